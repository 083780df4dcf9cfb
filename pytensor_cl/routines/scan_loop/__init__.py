"""A loop over time in one kernel."""
