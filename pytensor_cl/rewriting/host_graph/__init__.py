"""Graphs of the host backends: a canonical copy, and checks."""
