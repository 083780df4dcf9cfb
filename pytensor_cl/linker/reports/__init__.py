"""Reports: explain, profile, trace."""
