"""Numbers that decide the speed of loops in one kernel.

``benchmarks/scan_loop.py`` times the kernels. The numbers of chunks were fitted on CPUs; those of schedule simt follow
from the hardware, and were not timed on a GPU.
"""

HELD_BYTES = 1 << 14  # size of the values that a work-item holds from step to step, in the first-level cache
MAX_VECTORS = 8  # vectors that a work-item advances in turn, so that operations of one hide the latency of others

# --- loops whose steps are affine maps, parallel over time ---
LEAST_CHUNKS = 8  # chunks of a series, schedule simt: to map, scan and run them is three times the work of the steps
LEAST_STEPS_SIMT = 1024  # steps of a series that is divided, schedule simt: two more launches take 10 us
CHUNK_STEPS_SIMT = 32  # steps of a chunk at least, schedule simt
CHUNK_STEPS_CPU = 2048  # steps of a chunk at least, schedule cpu: two more launches cost as much as some thousand steps
CHUNKS_PER_UNIT_SIMT = 256  # chunks per compute unit, schedule simt: work-items that hide the latency of a step
MOST_MAP_NUMBERS = 32  # numbers of a chunk's map, at most: they are in registers
SCAN_ITEMS = 256  # work-items of the work-group that multiplies the maps of chunks, schedule simt
SCAN_STEPS = 8  # steps of a chunk that take as long as a map in that work-group, which waits for memory, schedule simt
