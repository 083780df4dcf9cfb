"""Numbers that decide the speed of element functions, beside those in ``runtime/tuning.py``.

``benchmarks/run.py`` and ``sweep.py`` time the kernels.
"""

# --- schedule cpu ---
SPREAD_BYTES = 128  # between lines of which the first-level cache has room for hundreds
LONG_TILE_ROW_BYTES = 512  # row of a tile where one operand is transposed and others are not
MIN_TRANSPOSED_ELEMENTS = 1 << 16  # elements of an array that justify a kernel that transposes operands in registers
MAX_TRANSPOSED = 3  # operands that it transposes: its code and its tiles grow with each
TRANSPOSED_TILE_COLUMNS = 64  # columns of its tiles
TRANSPOSED_TILE_ROWS = 256  # rows of its tiles at most: long pieces of each column, which the processor prefetches
TRANSPOSED_TILE_BYTES = 1 << 16  # a tile of one operand at most, in private memory
WIDE_ROW_ELEMENTS = 256  # elements of an array's row that is not short
FOLDED_ROW_VECTORS = 8  # vectors: rows that are shorter are folded in any case
MAX_FOLDED_ELEMENTS = 1 << 13  # elements of rows that are taken together, if they are longer
MIN_FOLDED_ELEMENTS = 1 << 10  # the same, of short ones: a loop that is worth beginning
MIN_FOLDED_ARRAY_ELEMENTS = 1 << 14  # elements of an array that justify folding its rows

# --- schedule simt ---
TILE_SIDE_ELEMENTS = 32  # elements on a side of a tile of kernels/elemwise/simt_tiled.mako
TILE_GROUP_ROWS = 8  # work-items of its work-group along the other side
MIN_TILED_ELEMENTS = 16  # elements along both sides that are worth a tile
MAX_CALLS = 4  # calls of long functions up to which a work-item reads several elements at a time
