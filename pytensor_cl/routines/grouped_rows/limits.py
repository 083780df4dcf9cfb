"""Numbers that decide the speed of functions of gathered rows, schedule cpu.

``benchmarks/run.py --only models`` times the kernels.
"""

MIN_ITEM_VECTORS = 1024  # vectors that justify another work-item
MIN_SHARED_ELEMENTS = 1 << 16  # elements from which the parts share few blocks of rows among all compute units
UNFUSED_BLOCKS = 4  # compute units that take as long for the parts as one for the kernel
TILE_COST = 8  # groups of a tile that take as long as an element of the parts
CHUNK_ELEMENTS = 64  # elements of a chunk of a row that is neither gathered nor scattered: a tile fits in the cache
MAX_DIVISORS = 4  # divisors whose reciprocals a kernel keeps in registers
