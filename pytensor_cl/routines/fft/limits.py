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
