"""Sizes of arrays in local memory with gaps against bank conflicts: see ``kernels/common/bank_padding.mako``."""

BANK = 4  # bytes of a bank
ROW = 32 * BANK  # bytes after which banks repeat


def per_gap(itemsize: int) -> int:
    """Return the number of elements between two gaps."""
    return ROW // itemsize


def gap(itemsize: int) -> int:
    """Return the elements of a gap: a bank at least."""
    return max(1, BANK // itemsize)


def padded_size(count: int, itemsize: int) -> int:
    """Return the elements of an array that holds `count` elements with gaps."""
    return count + count // per_gap(itemsize) * gap(itemsize)
