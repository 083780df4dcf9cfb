"""Execution of mixed graphs: nodes of devices are enqueued, other nodes run on the host."""
