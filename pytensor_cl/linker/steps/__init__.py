"""Thunks of single nodes: on the device, on the host, and transfers."""
