"""Capture the launches of a call: host values, memory plan, donation, dependencies."""
