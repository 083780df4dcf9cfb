"""Captured graphs: bindings of arguments, and the replay."""
