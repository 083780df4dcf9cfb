"""Arithmetic of whole numbers."""


def ceil_div(a: int, b: int) -> int:
    """Return ``a / b``, rounded up."""
    return -(-a // b)


def round_up(n: int, unit: int) -> int:
    """Return the smallest multiple of a unit that is not below a number."""
    return -(-n // unit) * unit


def balanced_block(total: int, limit: int, unit: int) -> int:
    """Return the size of the fewest equal blocks of at most `limit`, in whole units; at least one unit."""
    count = ceil_div(total, limit) or 1
    return round_up(ceil_div(total, count), unit) or unit
