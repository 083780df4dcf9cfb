"""Numbers that decide the speed of sorts and searches.

No benchmark of the repository times the kernels.
"""

MAX_NETWORK_ROW = 2048  # elements of the longest rows that a network sorts, however few there are
MAX_NETWORK_ROW_OF_MANY = 8192  # the same where the rows fill the vectors of all compute units, schedule cpu
MIN_LONG_ROW = 1 << 15  # elements of a row that justify digits of 11 bits, schedule cpu: fewer passes, more counts

# --- schedule cpu ---
MIN_ITEM_KEYS = 1 << 15  # elements of a row that are worth a work-item of a radix sort
MIN_ITEM_UNIQUE = 1 << 13  # elements that are worth a work-item where distinct ones are sought
MIN_ITEM_SEARCHES = 512  # searches that are worth a work-item
CHUNK_STEP = 1024  # elements that a chunk of a row is a multiple of
SEARCH_LANES = 8  # searches that run side by side

# --- schedule simt ---
MAX_NETWORK_BYTES = 1 << 14  # local memory for a row that a network sorts
DIGIT_BITS = 8  # bits of a digit: its counts fit local memory, and few elements of a tile have the same one
MIN_DIGIT_BITS = 4  # the same on a device with little local memory
DIGIT_BYTES = 12  # local memory for the counts of a digit
INDEX_DIGIT_BITS = 9  # the same for indices, if that saves a pass
ITEM_ELEMENTS = 8  # elements that a work-item ranks and moves at once
ITEM_BYTES = 64  # bytes of these at most
MAX_ITEM_ELEMENTS = 12  # the same by warps: as many as a work-item has registers for
FEW_CHUNKS = 32  # chunks whose counts a work-item adds up alone
