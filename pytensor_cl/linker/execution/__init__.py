"""Execute a call: graph cache, segments, virtual machine, errors."""
