"""Fusion of device nodes."""
