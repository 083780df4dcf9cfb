"""Numbers that decide the speed of attention. ``benchmarks/attention.py`` times the kernels."""

# --- schedule cpu ---
BLOCK_TILES = 2  # tiles of own elements in a block of the other axis: its panels stay in the first two caches
ITEMS_PER_UNIT = 4  # work-items per compute unit: causal tiles differ in length

# --- schedule simt ---
SIMT_ROWS = (32, 16, 8, 4)  # rows of a tile, the first that fits: four times the side of its work-group
SIMT_STEP = 16  # features that a step of the scores loads into local memory
