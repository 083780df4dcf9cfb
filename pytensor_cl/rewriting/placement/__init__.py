"""Placement of nodes on the device, transfers, the registry of lifts."""
