"""Numbers that decide the speed of convolutions, beside those in ``runtime/tuning.py``.

Costs are counted in multiply-adds of a vector, if nothing else is said. ``benchmarks/conv.py`` times the kernels.
"""

# --- schedule cpu: packed operands (implicit GEMM) and direct kernels ---
# Rows and vectors of the register tiles, by bytes of the device's vector registers; see gemm/limits.py. The second one
# wastes less where there are few rows.
IMPLICIT_GEMM_TILES = {64: ((12, 2), (8, 3)), 32: ((4, 3),), 16: ((4, 2),)}
LOAD_COST = 10  # cost of loading a vector of x
PACK_COST = 0.7  # cost of packing an element of w
FEW_OUTPUT_CHANNELS = 8  # output channels of a group that do not justify packing
FEW_INPUT_CHANNELS = 4  # input channels of a group with which twice as many output channels do not justify it
DIRECT_BLOCKS = {1: (4, 2, 1), 4: (4, 2, 1), 8: (2, 1)}  # rows computed at a time to vectors along a row
DEPTHWISE_ROWS = 4  # rows of the output that the depthwise kernel computes at a time
DOT_OUTPUTS = 4  # outputs along a row that the dot kernel computes at a time
LONG_RUN_ELEMENTS = 8  # contiguous elements of w along k that justify a loop of their own
MIN_POINTWISE_POSITIONS = 512  # positions of an image that are worth a matrix product of their own

# --- schedule cpu: im2col ---
IM2COL_TILES = {64: (8, 3), 32: (4, 3), 16: (4, 2)}  # rows and vectors of the register tile, by bytes of a register
IM2COL_EDGE_COLUMNS = 4  # columns that take less time one by one than as a vector
IM2COL_MATRIX_BYTES = 384 << 10  # size of a block's matrix, which should stay in the second-level cache
IM2COL_MAX_COLUMNS = 384  # columns of the matrix of a block
IM2COL_MIN_COLUMNS = 96  # columns of the matrix below which a block takes less depth instead
IM2COL_MAX_DEPTH = 1024  # rows of the matrix of a block, along k
IM2COL_MIN_DEPTH = 256  # rows of the matrix below which a block takes fewer columns instead
IM2COL_PACKED_COLUMNS = 512  # columns from which rows of w that share a cache set are packed, by another method
IM2COL_COPY_COST = 5  # cost of copying a vector to the matrix
IM2COL_TILE_COST = 0.15  # cost of a register tile, besides that of its vectors

# --- schedule cpu: gradients of inputs (col2im) ---
COL2IM_MAX_TAPS = 8  # taps along a dimension
COL2IM_POINTWISE_POSITIONS = 512  # positions of all images from which kernels of one tap go to a method that packs
COL2IM_MIN_TERMS = 128  # terms of a sum that justify keeping it for each tap
COL2IM_MIN_STRIDED_TERMS = 32  # the same with strides, where other methods do more work
COL2IM_MAX_STRIDE = 2  # largest stride that is stored in vectors
COL2IM_PRODUCT_BYTES = 1 << 20  # size of a block's products, which should stay in the second-level cache
COL2IM_SINGLE_IMAGE_BYTES = 256 << 10  # the same of one image, which is in the cache anyway, if sums are short
COL2IM_LONG_SUM_TERMS = 256  # terms of a sum that is not short
COL2IM_MAX_DEPTH = 1024  # terms of a sum that are computed at a time

# --- schedule cpu: gradients of weights ---
GRAD_WEIGHTS_BLOCK_POSITIONS = 448
GRAD_WEIGHTS_BLOCK_ROWS = 96  # channels times taps of a block
GRAD_WEIGHTS_MIN_POSITIONS = 512  # positions of all images
GRAD_WEIGHTS_MAX_FEATURES = 256  # channels of y in a group
GRAD_WEIGHTS_MAX_ELEMENTS = 1 << 18  # elements of w: they stay in the cache, and are read and written for each block
GRAD_WEIGHTS_MAX_STEP = 2  # distance of elements of x that vectors can be made of
GRAD_WEIGHTS_IN_PLACE_POSITIONS = 256  # positions of an image from which x is read in place
GRAD_WEIGHTS_TRANSPOSE_COST = 8  # cost of transposing a vector of dy
GRAD_WEIGHTS_COPY_COST = 6  # cost of copying a vector of x
GRAD_WEIGHTS_ADD_COST = 4  # cost of adding a vector of partial sums

# --- schedule cpu: Winograd ---
# Transformed arrays should stay in the cache. If inputs and outputs of all images take less than the first, they are
# kept, and filters are transformed in blocks of the last; else filters are kept, and images come in blocks.
WINOGRAD_KEPT_BYTES = 16 << 20
WINOGRAD_IMAGE_BYTES = 6 << 20
WINOGRAD_FILTER_BYTES = 4 << 20
WINOGRAD_TILE_COST = 1000  # cost of the transforms of a tile and a channel, in multiply-adds of an element
WINOGRAD_FILTER_COST = 800  # cost of the transform of a filter, in multiply-adds of an element
WINOGRAD_FEATURES = 32  # features that are multiplied together, at most
WINOGRAD_FEW_TILES = 64  # tiles that do not justify keeping transformed filters
WINOGRAD_FUSED_BYTES = 320 << 10  # size of a work-item's transformed filters, where they are not kept
WINOGRAD_TILE_ROWS = {64: 8}  # rows of a register tile, by bytes of a register; 4 for others
WINOGRAD_MIN_ITEM_UNITS = 8  # transforms of a vector that are worth a work-item

# --- Fourier transforms, both schedules ---
FOURIER_BLOCKS = ((4, 2), (1, 4))  # channels of y and images of a block of products: for many channels, for few
FOURIER_FREQUENCIES = 64  # frequencies of a block of products
FOURIER_MIN_TAPS = 7  # taps, or outputs where these are fewer, added over the dimensions, below which nothing is tried
FOURIER_MAX_RATIO = 8  # length of a transform to that of the kernel
FOURIER_ELEMENT_COST = 38  # cost of transforming an element, in multiply-adds of an element
FOURIER_LINE_COST = 1200  # cost of each row of a tile that is transformed
FOURIER_FREQUENCY_COST = 5  # cost of a complex multiply-add
FOURIER_MOVE_COST = 12  # cost of copying an element
FOURIER_LAUNCH_COST = 4_000_000  # cost of all launches
# Time of a multiply-add of other methods, in that of FOURIER_ELEMENT_COST; those of schedule simt follow from the
# bandwidth and the arithmetic of GPUs, and were not timed.
FOURIER_RATES = {"dot": 4.0, "direct": 0.8, "product": 0.7, "simt": 1.0, "simt product": 0.4}
FOURIER_FILTER_BYTES = 128 << 20  # size of the spectra of w that are kept at a time
FOURIER_IMAGE_BYTES = 1 << 30  # size of the arrays of one image, at most
FOURIER_CHUNK_BYTES = 16 << 20  # size of the arrays of the images that are transformed at a time, if these are several

# --- schedule simt ---
SIMT_TILES = ((16, 16), (8, 8), (4, 4), (2, 2), (1, 1))  # width of the work-group, steps along k
# Tiles of kernels/conv/simt_double_buffered.mako.
SIMT_LARGE_COLUMNS = 128
SIMT_LARGE_ROWS = (128, 64)  # rows of the larger and of the smaller tile
SIMT_LARGE_STEP = 8  # terms of a sum between barriers
SIMT_LARGE_BYTES = 24 << 10  # size of local memory
# Costs of large tiles, in multiply-adds of float32 by a compute unit, of which a GPU makes about 1e11 in a second: of a
# multiply-add, by rows of the tile; the same if a unit has no more than so many work-items to hide latencies with; of a
# work-group; of the launch that adds up partial sums; of a partial sum that is stored and read.
SIMT_LARGE_COSTS = {128: 1.0, 64: 1.1}
SIMT_IDLE_COSTS = ((128, 2.5), (256, 1.5))
SIMT_GROUP_COST = 200_000
SIMT_LAUNCH_COST = 500_000
SIMT_PARTIAL_SUM_COST = 25
SIMT_FEW_COLUMNS = 32  # columns that leave most of a large tile empty
SIMT_SPLIT_K_TERMS = 128  # terms of a sum that are worth a work-group of their own
SIMT_SPLIT_K_GROUPS_PER_UNIT = 2  # work-groups per compute unit, where sums are split
SIMT_MIN_POINTWISE_POSITIONS = 128  # positions of an image that fill most of the tiles of a matrix product
SIMT_FEW_CHANNELS = 8  # output channels of a group from which a problem is a product
SIMT_FEW_CHANNELS_GROUP = 128  # work-items of a work-group, where there are fewer
NAIVE_GROUPS_PER_UNIT = 64  # work-groups per compute unit where work-items loop over elements

# --- schedule simt: Winograd ---
# Costs in multiply-adds, from the arithmetic and the bandwidth of GPUs: 15 multiply-adds in the time of 4 bytes, and
# three launches of 5 us for each compute unit.
SIMT_WINOGRAD_BYTE_COST = 4
SIMT_WINOGRAD_LAUNCH_COST = 1_500_000
SIMT_WINOGRAD_TILE = 32  # features, and tiles, of which matrix products compute a multiple
SIMT_WINOGRAD_CHUNK_BYTES = 256 << 20  # size of transformed images that are kept at a time
SIMT_WINOGRAD_IMAGE_BYTES = 1 << 30  # size of one transformed image, at most
SIMT_WINOGRAD_GROUP = 128  # work-items of a work-group
SIMT_WINOGRAD_NEIGHBOURS = 32  # tiles, or features, of a work-group
SIMT_WINOGRAD_ROW_ELEMENTS = 4  # elements of which rows are multiples, so that matrix products load and store vectors
