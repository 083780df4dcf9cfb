"""Captured graphs: trace a call, plan its memory, build a graph, replay it."""
