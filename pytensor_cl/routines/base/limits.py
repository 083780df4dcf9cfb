"""Numbers that several families share.

Those of one family stand in its own ``limits.py``, or at the top of its only module; those that differ between devices
in ``runtime/tuning.py``. Numbers of schedule cpu were fitted by timing PoCL and Intel's runtime on CPUs with AVX2 and
AVX-512; numbers of schedule simt follow from the hardware (warps, banks, registers) and were not fitted to one GPU.
"""

# --- work-groups and work-items ---
GROUP_ITEMS = 256  # work-items of a work-group, schedule simt: kernels that hold few values
SMALL_GROUP_ITEMS = 64  # work-items of a work-group, schedule simt: kernels that hold many values
GROUPS_PER_UNIT = 32  # work-groups per compute unit at most, schedule simt: work-items loop over the rest
MOVE_GROUPS_PER_UNIT = 128  # the same for kernels that only move data, whose work-items take few turns
BUSY_GROUPS_PER_UNIT = 8  # work-groups that keep a compute unit busy, schedule simt: with fewer, sums are divided
INTERLEAVED_ITEMS = 32  # work-items that read neighbouring elements, schedule simt: a warp
ITEMS_PER_UNIT = 4  # work-items per compute unit, schedule cpu: a core that starts late takes fewer
MIN_ITEM_ELEMENTS = 1 << 14  # elements of a plain loop that are worth a work-item, schedule cpu
VECTOR_BYTES = 16  # the largest access of a work-item that GPUs have an instruction for, schedule simt

COLUMN_TILE_VECTORS = 64  # across a tile of columns, schedule cpu: whole pages, sums that fit the first-level cache
CHUNK_ALIGNMENT_ELEMENTS = 64  # chunks of a sum begin at multiples, so that aligned vectors stay aligned

# --- caches of a CPU ---
CACHE_LINE_BYTES = 64
CACHE_WAY_BYTES = 4096  # addresses at this distance share a set of the first-level cache
CORE_CACHE_BYTES = 1 << 19  # bytes of a core's second-level cache that data read twice may take

# --- kernels ---
KERNEL_DIMS = 4  # dimensions (besides the axis) that every kernel has, so that most programs share one kernel
INT_LIMIT = 1 << 31  # numbers below this fit into 32 bits with a sign
STEPPED_INT_LIMIT = 1 << 30  # the same for indices of kernels that step past the end before they compare
UINT_LIMIT = 1 << 32  # numbers below this fit into 32 bits without a sign

# --- memory ---
KEPT_BYTES = 256 << 20  # bytes of tables and positions that a context keeps for later calls
