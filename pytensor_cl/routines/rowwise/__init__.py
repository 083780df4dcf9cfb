"""Fused row kernels."""
