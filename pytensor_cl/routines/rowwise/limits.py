"""Numbers that decide the speed of row functions; some are those of reductions.

``benchmarks/run.py --only rows`` times the kernels.
"""

# --- schedule cpu ---
MIN_CHUNK_ELEMENTS = 1 << 14  # elements of a chunk below which splitting a reduction costs more than it gives
MIN_MAP_CHUNK_ELEMENTS = 1 << 13  # the same where there are no partial results to put together
MIN_SHARED_ELEMENTS = 1 << 14  # elements that are worth several work-items
MAX_SEQUENTIAL_TERMS = 1 << 17  # elements of a chunk whose sum in float32 stays accurate
WIDE_TILE_VECTORS = 16  # vectors across which a tile is read in longer runs
MIN_REUSE_TO_TRANSPOSE = 4  # reads of each element of an array that is transposed before
MIN_READS_TO_TRANSPOSE = 1 << 16  # reads of all its elements
COLUMNS_PER_VECTOR_DIVISOR = 3  # columns must fill this part of a vector, if they are fewer
MIN_NARROW_ROWS = 1 << 12  # elements of each column then
MIN_RECOMPUTE_COST = 6  # cost of a value from which a later loop reads it back from the cache

# --- schedule simt ---
MIN_SIMT_ITEM_ELEMENTS = 16  # elements that a work-item should reduce before it meets the others
MIN_HELD = 4  # elements of a row that a work-item keeps in registers, at least
MAX_HELD = 16  # the same, at most
HELD_WORDS = 32  # words of 4 bytes that they all take, at most: 2 or 3 groups then fit on a unit with 65,536
LOAD_LANES = 4  # elements of a load

# --- kernels ---
ROW_KERNEL_DIMS = 2  # dimensions across rows that every kernel has
FIXED_BYTES = 320  # upper bound of a row kernel's arguments, without those for each array


def array_bytes(ndim: int) -> int:
    """Return the bytes of a kernel's arguments for each array: a pointer, an offset and its strides."""
    return 8 * (ndim + 4)
