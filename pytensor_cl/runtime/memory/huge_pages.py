"""Memory in large pages: a processor finds an address in it without a walk through tables.

Those are two on a virtual machine. Linux gives large pages to whoever asks for them.
"""

import ctypes
import mmap
from functools import lru_cache
from typing import Any

__all__ = ["PAGE", "ask_for_large_pages"]

PAGE = 2 << 20
"""Bytes of a large page, of x86-64 and of AArch64 with pages of 4 kB."""


@lru_cache(1)
def _madvise() -> Any:
    """Return the function of the C library; None where there is none, or no large pages."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return None
    function = getattr(ctypes.CDLL(None), "madvise", None)
    if function is not None:
        function.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return function


def ask_for_large_pages(address: int, nbytes: int) -> int:
    """Have memory that was not touched yet in large pages; return the bytes of those that lie in it as a whole.

    Parameters
    ----------
    address, nbytes
        Where it is; others may use what is before and behind it.
    """
    begin, end = -(-address // PAGE) * PAGE, (address + nbytes) // PAGE * PAGE
    madvise = _madvise() if begin < end else None
    return end - begin if madvise is not None and madvise(begin, end - begin, mmap.MADV_HUGEPAGE) == 0 else 0
