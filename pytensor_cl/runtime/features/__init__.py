"""Features of a driver: probes, their results, the self-check."""
