"""Factors of matrices and solutions of linear systems."""
