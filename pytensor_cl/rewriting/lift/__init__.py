"""Lifts: the device Op of each Op, one module for each family."""
