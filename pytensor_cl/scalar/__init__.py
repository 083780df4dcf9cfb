"""Scalar Ops as OpenCL C expressions."""
