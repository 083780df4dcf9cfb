"""Large buffers in huge pages, which need fewer page-table walks. Linux provides them on request (madvise)."""

import ctypes
import mmap
from functools import lru_cache
from typing import Any

from pytensor_cl.integers import round_up

PAGE = 2 << 20
"""Bytes of a huge page on x86-64, and on AArch64 with pages of 4 kB."""


@lru_cache(1)
def _madvise() -> Any:
    """Return the function ``madvise`` of the C library; None where it or huge pages do not exist."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return None
    function = getattr(ctypes.CDLL(None), "madvise", None)
    if function is not None:
        function.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return function


def advise_huge_pages(address: int, nbytes: int) -> int:
    """Request huge pages for memory that has not been written yet.

    `address`, `nbytes`: the memory. It need not be aligned: only the huge pages inside it are requested.

    Returns bytes of those pages; 0 if the system refuses them.
    """
    begin, end = round_up(address, PAGE), (address + nbytes) // PAGE * PAGE
    madvise = _madvise() if begin < end else None
    return end - begin if madvise is not None and madvise(begin, end - begin, mmap.MADV_HUGEPAGE) == 0 else 0
