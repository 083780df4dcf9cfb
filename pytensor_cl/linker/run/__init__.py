"""Run a call: virtual machine, steps of nodes, graph cache, locks, errors, timing."""
