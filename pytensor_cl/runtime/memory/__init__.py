"""Memory of a context: pools, arenas, host mappings."""
