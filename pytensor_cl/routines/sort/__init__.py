"""Sort, unique, searchsorted."""
