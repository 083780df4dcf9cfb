"""Element-wise routines."""
