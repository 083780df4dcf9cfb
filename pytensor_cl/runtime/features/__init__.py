"""What a driver can do: probes, their results, the self-check."""
