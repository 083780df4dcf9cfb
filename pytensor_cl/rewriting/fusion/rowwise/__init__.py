"""Fusion of nodes into row kernels."""
