"""The graph that NUMBA and C compile for the host: a copy in canonical form, with checks for NUMBA."""
