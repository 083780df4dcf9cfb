"""Ops that are made of kernels that users write."""
