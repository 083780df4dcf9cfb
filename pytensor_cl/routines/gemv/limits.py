"""Numbers that decide the speed of products of a matrix with a vector.

The keys ``row`` and ``col`` say what is contiguous in the matrix.
``benchmarks/gemm.py`` and ``run.py`` time the kernels.
"""

# --- schedule cpu ---
ROW_COL_ITEMS_PER_UNIT = {"row": 4, "col": 1}  # a core that starts late takes fewer of whole rows
MIN_ITEM_ROWS = {"row": 16, "col": 64}  # rows that a work-item takes before k is split
# Two products with one matrix: bytes and rows of a block. A block of rows is half of a small cache of the first level;
# one of columns is in the second level, where long pieces of columns come faster than short ones.
PAIR_BLOCK_BYTES = {"row": 16 << 10, "col": 128 << 10}
PAIR_BLOCK_ROWS = {"row": 128, "col": 1024}
PAIR_MAX_COLUMNS = 128  # columns of a matrix whose columns are contiguous: each is in another page of the memory
PAIR_FINISH_COLUMNS = 4096  # columns that are worth a work-item that adds up the parts

# --- schedule simt ---
TILE_ROW_BYTES = 128  # part of a row that a work-item has in local memory
LONG_ROW_ELEMENTS = 128  # elements from which a row is worth a work-group
SPLIT_K_DEPTH = 1024  # elements of a row that are worth another work-group
