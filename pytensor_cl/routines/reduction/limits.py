"""Numbers that decide the speed of reductions, beside those in ``runtime/tuning.py``.

``benchmarks/run.py`` and ``sweep.py`` time the kernels.
"""

MIN_ROW_ELEMENTS = 16  # contiguous rows that are shorter are reduced with vectors across rows
SHORT_ROW_VECTORS = 2  # vectors: of rows that are no longer, a vector of results is finished before the next
NARROW_ROW_VECTORS = 4  # vectors: rows that are shorter, and not whole vectors, are packed
PACKED_ELEMENTS = 512  # elements that are one row then
MIN_PACKED_ARRAY_ELEMENTS = 1 << 16  # elements of an array that justify packing
OUTERMOST_LENGTH = 16  # length from which the outermost dimension is reduced first, if the innermost is short
SHORT_RUN_ELEMENTS = 256  # elements below which the innermost dimension is short
LONG_RUN_ELEMENTS = range(256, 1 << 16)  # elements of runs that are worth a partial result each
# Terms of a chunk whose sum in float32 stays accurate.
MAX_SEQUENTIAL_TERMS = {"rows": 1 << 17, "columns": 1 << 13}
COALESCED_ITEMS = 32  # neighbouring work-items that should read neighbouring elements, schedule simt
SIMT_LOAD_BYTES = 16  # widest load of a work-item of a GPU
MAX_SIMT_LANES = 4  # elements of a load at most: each has an accumulator
MAX_ITEM_VECTORS = 8  # loads of vectors of a work-item along a row, if there are rows enough for all units
MAX_ITEM_ELEMENTS = 16  # loads of single elements, likewise
MIN_THREADS_ALONG = 8  # neighbours that read 128 bytes of a row at once
RESIDENT_ITEMS = 2048  # work-items that a unit of a GPU holds
MAX_JOINED_PARTS = 8  # partial results that a work-item of the last work-group adds up; of more, a second launch does
