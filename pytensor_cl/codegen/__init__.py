"""Render kernels: templates, OpenCL types, expressions, coefficients of approximations."""
