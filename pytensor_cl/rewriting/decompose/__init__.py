"""Decomposition: Ops without a kernel become Ops that have one."""
