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
ITEM_ROWS = 4  # rows that a work-item has at once: their loads are in flight together
ROW_ITEMS = 32  # work-items along a row at most, where there are many rows
FINISH_COLUMNS = 8  # sums beside each other of a work-group that adds up many parts: whole sectors of memory
SPLIT_GROUPS_PER_UNIT = 4  # work-groups that keep a compute unit busy, with several vectors in flight for each item
SPLIT_LOADS_PER_ITEM = 16  # loads, four at a time, that are worth more work-groups and a launch that adds up the parts
PAIR_ROW_ITEMS = 64  # work-items of a row at most, of two products with one matrix: each holds a vector
PAIR_GROUPS_PER_UNIT = 2  # work-groups that a compute unit holds at once, with about 100 registers for each work-item
PAIR_ONE_GROUP_STEPS = 8  # steps over the rows that take one work-group less time than a second launch
