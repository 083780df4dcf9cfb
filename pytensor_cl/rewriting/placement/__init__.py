"""Placement of nodes on the device, and transfers."""
