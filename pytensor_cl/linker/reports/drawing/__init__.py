"""Pictures of compiled functions."""
