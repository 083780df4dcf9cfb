"""Numbers that decide the speed of kernels that users write."""

SHORT_CALLS = 4  # calls of a function that a work-item computes for several elements at a time
UNROLLED_STATEMENTS = 8  # statements of an operation that is written once for each lane of a vector
MIN_ITEM_ELEMENTS = 1 << 11  # elements of a kernel with numbers or raw arrays that are worth a work-item, schedule cpu
MIN_LONG_ITEM_ELEMENTS = 1 << 5  # the same where the operation has loops or calls functions of its own
MAX_CALLS_KEPT = 256  # combinations of dtypes and layouts of arguments that a kernel remembers in each thread
MIN_CHUNK_ELEMENTS = 1 << 12  # elements of a reduction that are worth a partial result
STRANDS = 8  # values that a work-item of schedule cpu combines independently, so that none waits for another
