"""Numbers that decide the speed of loops in one kernel, schedule cpu.

``benchmarks/scan_loop.py`` times the kernels.
"""

HELD_BYTES = 1 << 14  # size of the values that a work-item holds from step to step, in the first-level cache
MAX_VECTORS = 8  # vectors that a work-item advances in turn, so that operations of one hide the latency of others
