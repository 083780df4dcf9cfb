"""Execution of mixed graphs: what is computed on devices is enqueued, what is not runs on the host."""
