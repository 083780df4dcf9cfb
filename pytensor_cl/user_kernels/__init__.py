"""Kernels that users write, for arrays: below the Ops that are made of them."""
