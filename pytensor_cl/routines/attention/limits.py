"""Numbers that decide the speed of attention. ``benchmarks/attention.py`` times the kernels."""

# --- schedule cpu ---
BLOCK_TILES = 2  # tiles of own elements in a block of the other axis: its panels stay in the first two caches
ITEMS_PER_UNIT = 4  # work-items per compute unit: causal tiles differ in length
