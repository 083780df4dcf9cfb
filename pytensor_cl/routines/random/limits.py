"""Numbers that decide the speed of draws.

``benchmarks/draws.py`` times the kernels.
"""

MIN_ITEM_DRAWS = 512  # draws of a counter-based generator that are worth a work-item, schedule cpu
MIN_ITEM_DIRICHLET = 256  # numbers that are worth a work-item, schedule cpu
DRAW_LANES = 8  # lanes of the vectors that schedule cpu computes with
FILL_LANES = {"cpu": 8, "simt": 1}  # lanes of the vectors in which a block of a generator's numbers is made

# --- chunks of a generator's sequence ---
CHUNKS_PER_UNIT = 8  # chunks that each compute unit gets
MIN_UNIFORM_CHUNK = 256  # positions of a chunk of uniform numbers, schedule cpu
MIN_CHUNK = 64  # positions of a chunk of other numbers
MAX_CHUNK = {"cpu": 16384, "simt": 512}  # positions of a chunk
CHUNK_PADDING = 8  # places after those of a chunk: vectors are written and read past its end
ROUND_POSITIONS = 1 << 22  # positions that are followed at once
ODD_DRAWS = 256  # draws in the list for NumPy, besides one for each POSITIONS_PER_ODD_DRAW positions
POSITIONS_PER_ODD_DRAW = 256
