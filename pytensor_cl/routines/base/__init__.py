"""Base classes of routines, NDRange sizes, casts."""
