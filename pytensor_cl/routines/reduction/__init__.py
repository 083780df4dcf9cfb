"""Reductions, argmax and argmin."""
