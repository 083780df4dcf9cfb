"""Numbers that decide the speed of Fourier transforms.

``benchmarks/conv_fourier.py`` times the transforms as part of convolutions.
"""

MIN_SPLIT_ELEMENTS = 1024  # elements of a transform that is worth several launches
FOUR_STEP_COST = 2  # time of a transform by the four-step method, relative to one launch with all lanes at work
CACHED_ELEMENTS = 1 << 14  # elements of float32 vectors that fit in a core's cache, schedule cpu
TABLE_PADDING = 64  # complex numbers after the last one of a table: vectors of lanes may reach past it

# --- schedule simt ---
OFFSETS_BYTES = 512  # bytes of local memory besides the elements: the positions of the lines of a work-group
MAX_GROUP_LINES = 16  # lines of a work-group
MIN_GROUP_ELEMENTS = 1024  # elements that keep a work-group busy
WORKSPACE_GROUPS_PER_UNIT = 4  # work-groups per compute unit with workspace in global memory

# --- schedule simt, elements in registers ---
REGISTER_RADICES = (16, 14, 12, 10, 9, 8, 7, 6, 5, 4, 3, 2)  # lengths of the butterflies
REGISTER_ELEMENTS = 16  # complex numbers of a work-item: two, of float64 four registers each, of 128 at 512 work-items
MIN_REGISTER_LENGTH_ELEMENTS = 16  # elements of a line: shorter ones have one pass
MIN_REGISTER_ELEMENTS = 1 << 12  # elements of all lines that are worth the compilation of a kernel for their length
REGISTER_GROUP_ITEMS = 256  # work-items of a work-group that has several lines
MAX_REGISTER_GROUP_ITEMS = 512  # work-items of a work-group: with more, a work-item has too few registers
COLUMN_BYTES = 128  # bytes of neighbouring lines that are read together: a line of the cache
BANKS_BYTES = 128  # bytes of local memory that a warp moves at a time, one word of each bank
