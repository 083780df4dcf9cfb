"""Numbers that decide the speed of attention. ``benchmarks/attention.py`` times the kernels."""

# --- schedule cpu ---
BLOCK_TILES = 2  # tiles of own elements in a block of the other axis: its panels stay in the first two caches
ITEMS_PER_UNIT = 4  # work-items per compute unit: causal tiles differ in length

# --- schedule simt ---
# Own rows and others of a tile, and own rows of a work-item, which has four others; the first that fits the device, by
# bytes of an element. The tall tile is for kernels that hold few sums, where there is one for each compute unit.
SIMT_TALL_TILE = (64, 64, 8)
_SMALL_TILES = ((32, 32, 4), (16, 16, 4), (8, 8, 4), (4, 4, 4))
SIMT_TILES = {4: ((32, 64, 4), *_SMALL_TILES), 8: _SMALL_TILES}
SIMT_STEP = 16  # features, or rows of the added operand, that a step loads into local memory
