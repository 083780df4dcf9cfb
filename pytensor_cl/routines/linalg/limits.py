"""Numbers that decide the speed of factorisations.

``benchmarks/linalg.py`` times the kernels.
"""

BLOCK_ROWS = {"cpu": 64, "simt": 32}  # of the largest matrix that one kernel factors or solves; larger ones are divided
PANEL_COLUMNS = {"cpu": 32, "simt": 16}  # that one kernel factors in a matrix of more rows than a block
MAX_LANE_ROWS = 64  # of the largest matrices that are factored in lanes
UPDATE_BLOCKS = 4  # of a symmetric update that are one product where products compute the upper triangle too
FEW_COLUMNS = 8  # below which a batch on schedule simt is solved with one matrix for each work-item
