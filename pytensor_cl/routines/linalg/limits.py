"""Numbers that decide the speed of factorisations.

``benchmarks/linalg.py`` times the kernels.
"""

BLOCK_ROWS = {"cpu": 64, "simt": 32}  # rows of the largest matrix for one kernel; larger ones are divided
COMPLEX_BLOCK_ROWS = {"cpu": 64, "simt": 16}  # the same of complex matrices
PANEL_COLUMNS = {"cpu": 32, "simt": 16}  # columns that one kernel factors in a matrix of more rows than a block
COMPLEX_PANEL_COLUMNS = {"cpu": 16, "simt": 8}  # the same of complex matrices
MAX_LANE_ROWS = 64  # rows of the largest matrices that are factored in lanes
UPDATE_BLOCKS = 4  # blocks of a symmetric update in one product, where products also compute the upper triangle
COMPLEX_REFLECTIONS = 16  # columns of a complex matrix whose reflections are one product
COMPLEX_TILE_COLUMNS = 16  # columns of a complex right side that are solved at a time
FEW_COLUMNS = 8  # columns below which schedule simt solves one matrix of a batch for each work-item
