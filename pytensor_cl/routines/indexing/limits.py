"""Numbers that decide the speed of indexing.

``benchmarks/run.py --only indexing`` times the kernels.
"""

# --- work-items, schedule cpu ---
MIN_ITEM_GATHERED = 8192  # gathered elements that are worth a work-item
MIN_ITEM_SCATTERED = 8192  # scattered elements that are worth a second work-item
MIN_ITEM_SLICED = 8192  # elements written to slices that are worth a second work-item
MIN_ITEM_LOOKUPS = 1 << 12  # single elements that are worth a work-item
MIN_ITEM_FUSED = 512  # elements of a fused gather that are worth a second work-item: cache misses and no vectors

# --- gathers ---
PREFETCHED_ROW_BYTES = 512  # bytes from which the hardware prefetches the cache lines of a row
MAX_SEQUENTIAL_ROWS = 1 << 13  # rows of a bag whose sum in float32 stays accurate
SEGMENT_BYTES = 4096  # bytes of a row that, with the inputs, stay in the first-level cache while they are written
MIN_WRITTEN_SHARE = 0.5  # share of an array from which slices are written while it is copied
MIN_WRITTEN_SHARE_NON_TEMPORAL = 0.75  # the same of one that is copied past the cache
FIXED_ARGUMENT_BYTES = 96  # size of a kernel's arguments, besides those for each slice and dimension
POINTER_ARGUMENT_BYTES = 16  # size of the arguments for each array that is written

# --- gathers and slices, schedule simt ---
UNIT_ELEMENTS = 4  # elements with indices of their own that a work-item has in flight
MAX_UNIT_SLICES = 4  # slices up to which a work-item has registers for so many elements
UNIT_ROWS = 2  # rows of which a work-item has a vector in flight

# --- scatters, schedule cpu ---
MIN_OWNED_RUN = 16  # elements per position for which work-items share out the positions
MIN_VALUES_PER_ELEMENT = 2  # values for each element of the array from which work-items add to private copies
ZEROS_PER_VALUE = 8  # zeros in the cache that take as long as a value
PRIVATE_COPY_BYTES = 1 << 20  # array that stays in a core's cache; larger ones need as many values per work-item
ALL_COPIES_BYTES = 16 << 20  # arrays of all work-items together, which stay in the cache of all cores
COPY_ALIGNMENT_ELEMENTS = 64  # elements that fill lines of the cache
MIN_ORDERED_ELEMENTS = 1 << 18  # elements of all values that justify the five kernels which order positions
SHORT_ROW_BYTES = 64  # bytes of a row below which finding it costs more than adding it
MAX_POSITIONS_PER_VALUE = 4  # positions for each value above which counting costs more than adding

# --- scatters, schedule simt ---
MIN_SORTED_POSITIONS = 1024  # positions that justify the sort; of fewer, each work-group looks through all
SORTED_CHUNK_VALUES = 64  # values that a work-item adds up one after the other
SORTED_FEW_PARTS = 32  # parts of a sum that a work-item joins alone
SORTED_BLOCK_CHUNKS = 64  # chunks whose sums a work-group joins: few of these have many parts
FEW_BYTES = 1 << 15  # local memory for the sums of a work-group that adds to few positions: several fit a compute unit
FEW_ROW_STEP = 32  # positions: kernels for multiples of it are built
FEW_COLUMNS = 32  # elements of a position that neighbouring work-items add to: they read whole lines
FEW_TILES = 8  # times that the positions are read at most
FEW_READS = 1 << 25  # values times tiles of positions above which sorting is faster than reading the positions again
FEW_INDEX_READS = 2  # times that an index is read at most; else it is turned into positions first
FEW_GROUPS_PER_UNIT = 6  # work-groups whose sums fit the local memory of a compute unit
MIN_ITEM_FEW = 16  # values that are worth a work-item, which clears its sums first
MAX_ITEM_FEW = 1024  # values that a work-item adds up one after the other, whose sum in float32 stays accurate
FINISHED_SUMS = 8  # neighbouring sums that a work-group finishes at once: whole sectors of memory
ATOMIC_ITEM_VALUES = 4  # values that a work-item reads before it adds the first

# --- gathers, schedule simt ---
MIN_BAG_ITEMS = 256  # elements of the result for each compute unit, each the work of an item, that keep it busy
