"""Numbers that decide the speed of matrix products, beside those in ``runtime/tuning.py``.

Costs are counted in steps of a micro-kernel: a vector of B times the rows of a register tile.
``benchmarks/gemm.py`` times the kernels.
"""

from typing import NamedTuple

# --- schedule cpu: tiles and blocks ---
# By bytes of the vector registers: rows and vectors of the register tile. The accumulators and the operands of one
# step must fit in them (32 registers with AVX-512, 16 with AVX). No more rows than a set of the first-level cache has
# ways (8): rows whose distance is a multiple of 4096 bytes share a set.
FLOAT_TILES = {64: (8, 3), 32: (4, 3), 16: (4, 2)}
INTEGER_TILE = (4, 2)
# By bytes of the vector registers: bytes along k of a block. With few registers a multiply-add needs more of B: the
# panel that a tile reads should be near.
DEPTH_BYTES = {64: 4096, 32: 2048, 16: 2048}
MIN_HALVED_ROWS = 8  # rows of a tile from which there is one with half as many
NARROW_LANES = 4  # lanes above which half a vector is worth a micro-kernel: panels are packed four columns at a time

# --- schedule cpu: costs ---
PACK_ROWS = 6.4  # rows of A by which a vector of B is multiplied in the time in which it is packed
SCATTERED_STORE_COST = 0.2  # cost of storing an element of a column
PANEL_COST = 0.15  # cost of a panel, besides that of its vectors
FAR_READ_COST = 1.0  # cost of a vector that a work-item reads from caches of other cores
SWAP_RATIO = 0.9  # cost relative to the product as it is, below which it is transposed
TOLERANCE_RATIO = 1.03  # partitions with this cost relative to the least are as good

# --- schedule cpu: k split among work-items ---
SPLIT_K_RATIO = 16  # least ratio of k to m and to n
SPLIT_K_DEPTH = 512  # elements along k that are worth another work-item

# --- schedule cpu: packing ---
PACK_B_MIN_ROWS = 64  # rows of A for which unaligned rows of B are worth packing
SHARED_SETS_BYTES = 1024  # rows of B that are a multiple of it apart have lines that share sets of the caches
SHARED_SETS_MIN_BYTES = 1 << 20  # such rows are packed where B is larger
PACK_A_MIN_COLUMNS = 256  # columns for which rows or columns of A that share sets of a cache are worth packing
PACKED_B_BYTES = 1 << 20  # panels of B that a work-item keeps
PACKED_ROWS = 8  # rows of B that are packed at a time
# B is packed once for all work-items within all of these limits: multiply-adds, bytes of B, rows of A.
SHARED_B_MIN_MULTIPLY_ADDS = 1 << 22
SHARED_B_MAX_BYTES = 1 << 24
SHARED_B_MIN_ROWS = 64
SHARED_B_MAX_ITEM_ROWS = 512  # the most rows of a work-item
SHARED_B_ITEMS_RATIO = 2  # times as many work-items compute then as otherwise
PACKING_ITEMS_PER_UNIT = 4  # work-items that pack

# --- schedule cpu: reading ---
PREFETCHED_BYTES = 1 << 20  # size of A: more than the caches near a core keep
SHORT_ROW_BYTES = 128  # bytes of B's row in a tile below which two lines are read for one and a half
SHORT_SUM_TERMS = 128  # terms of sums that are so short that an epilogue decides the time
CACHED_OUTPUT_BYTES = 8 << 20  # size of the input of an epilogue of short sums, which should stay in the cache

# --- schedule simt ---
SIMT_TILES = ((16, 16), (8, 8), (4, 4), (2, 2), (1, 1))  # width of the work-group, steps along k


class LargeTile(NamedTuple):
    """A tile of kernels/gemm/simt_double_buffered.mako, and what it costs.

    `rows`, `columns`: sums of a work-group; `step`: elements along k between barriers; `slices`: parts of a work-group
    that share out k; `item_rows`: rows of a work-item's sums, which are 8 columns wide in a float32 tile; `fragments`,
    `registers`: see the template; `cost`: of a multiply-add, relative to that of the first tile for the dtype; `alone`:
    the same where a work-group has a compute unit to itself; `group`: of a work-group besides, in multiply-adds.
    """

    rows: int
    columns: int
    step: int
    slices: int
    cost: float
    alone: float
    group: int
    item_rows: int = 8
    fragments: int = 1
    registers: int = 128


# By dtype; "matrix": float64 with an instruction for matrices; "float32, many registers": for devices whose work-items
# may have 255 registers: costs fitted to 400 times on an H200. By them the tile that is chosen for each of ten sizes is
# the fastest, or takes 2 % longer at most. The costs of the others have not been fitted.
SIMT_LARGE_TILES = {
    "float32": (
        LargeTile(128, 128, 8, 1, 1.0, 1.5, 320_000),
        LargeTile(128, 64, 16, 2, 1.1, 1.65, 320_000),
        LargeTile(64, 64, 32, 4, 1.2, 1.8, 320_000),
        LargeTile(32, 64, 32, 8, 1.6, 2.4, 320_000),
    ),
    "float32, many registers": (
        LargeTile(128, 128, 8, 1, 1.0, 1.26, 970_000, item_rows=16, fragments=2, registers=0),
        LargeTile(128, 64, 16, 1, 1.09, 1.42, 400_000, fragments=2, registers=168),
        LargeTile(128, 64, 16, 2, 1.27, 1.2, 660_000, fragments=2, registers=0),
        LargeTile(64, 64, 32, 4, 1.25, 1.19, 690_000, fragments=2, registers=0),
        LargeTile(32, 64, 32, 8, 1.42, 1.73, 390_000),
    ),
    "float64": (
        LargeTile(128, 64, 8, 1, 1.0, 1.5, 160_000),
        LargeTile(64, 64, 16, 2, 1.1, 1.65, 160_000),
        LargeTile(32, 64, 16, 4, 1.4, 2.1, 160_000),
    ),
    "matrix": (
        LargeTile(128, 128, 8, 1, 0.9, 1.35, 320_000),
        LargeTile(128, 64, 8, 1, 1.0, 1.5, 320_000),
        LargeTile(64, 64, 16, 2, 1.2, 1.8, 320_000),
    ),
}
SIMT_ITEM_BYTES = 256  # size of the sums of a work-item
# Other forms of the first tile of float32, by the number `gemm.form` of runtime/tuning.py; 0: none, that of the table.
# Rows, columns, elements along k between barriers, rows of a work-item's sums, fragments of A and B in registers, limit
# of registers on NVIDIA's devices. `bash ci/gpu.sh variants` times them beside cuBLAS.
SIMT_FORMS = (
    (128, 128, 8, 8, 1, 128),
    (128, 128, 8, 8, 1, 0),
    (128, 128, 8, 8, 2, 128),
    (128, 64, 8, 8, 2, 168),
    (128, 128, 8, 16, 1, 0),
    (128, 128, 8, 16, 2, 0),
    (256, 128, 8, 16, 1, 0),
    (256, 128, 8, 16, 2, 0),
)  # elements, fragments, registers
SIMT_REGISTERS = 128  # limit of a work-item's registers on NVIDIA's devices: two work-groups run on a multiprocessor
# Costs in multiply-adds of float32 by a compute unit in the same time: of a launch that adds up partial sums, and of a
# byte of partial sums.
SIMT_LAUNCH_COST = 1_260_000
SIMT_BYTE_COST = 0.055
SIMT_MOST_GROUPS = 1 << 22  # work-groups along the first dimension of an NDRange that every GPU takes
SIMT_FEW_ROWS = 32  # rows that leave most of a large tile empty, which matters where a CPU computes all of it
SIMT_FEW_COLUMNS = 64  # columns that do
SIMT_SPLIT_K_DEPTH = 256  # elements along k that are worth a work-group of their own
SIMT_SPLIT_K_GROUPS_PER_UNIT = 2  # work-groups per compute unit, where k is split
SIMT_BANKS_BYTES = 128  # distance at which the banks of local memory repeat
