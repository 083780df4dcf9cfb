"""Gather, scatter, slice updates, and other indexing."""
