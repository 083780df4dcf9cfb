"""Numbers that decide the speed of factorisations.

``benchmarks/linalg.py`` times the kernels.
"""

BLOCK_ROWS = {"cpu": 64, "simt": 32}  # rows of the largest matrix for one kernel; larger ones are divided
PANEL_COLUMNS = {"cpu": 32, "simt": 16}  # columns that one kernel factors in a matrix of more rows than a block
MAX_LANE_ROWS = 64  # rows of the largest matrices that are factored in lanes
UPDATE_BLOCKS = 4  # blocks of a symmetric update in one product, where products also compute the upper triangle
FEW_COLUMNS = 8  # columns below which schedule simt solves one matrix of a batch for each work-item
