"""Coefficients of polynomial and rational approximations, computed when they are needed."""
