"""Lifts of indexing Ops."""
