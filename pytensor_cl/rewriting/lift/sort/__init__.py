"""Lifts of Ops that sort or search."""
