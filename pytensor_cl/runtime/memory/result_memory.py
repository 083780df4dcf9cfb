"""Memory of large results, used again: a new array has to be cleared by the system, which takes longer than the copy.

The C library keeps smaller blocks itself.
"""

from collections.abc import Callable

import numpy as np

from pytensor_cl.integers import round_up

MIN_BYTES = 16 << 20
"""Bytes of a result from which its memory is used again."""
MAX_BYTES = 256 << 20
"""Bytes of free memory that are kept."""
_UNIT = 2 << 20  # bytes: sizes of blocks are multiples
_SLACK = 8  # A block may be larger than a result by 1/8.


class _Block:
    """Memory for `numpy.ndarray` (buffer protocol). It is kept for another result when no array uses it any more."""

    __slots__ = ("_keep", "_memory")

    def __init__(self, memory: np.ndarray, keep: Callable[[np.ndarray], None]) -> None:
        self._memory, self._keep = memory, keep

    def __buffer__(self, flags: int, /) -> memoryview:
        return memoryview(self._memory)

    def __del__(self) -> None:
        self._keep(self._memory)


class ResultMemory:
    """Makes arrays for large results."""

    def __init__(self) -> None:
        self._free: list[np.ndarray] = []  # the last one was freed last

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, nbytes: int) -> np.ndarray:
        """Return an array of `nbytes` bytes with arbitrary values."""
        if nbytes < MIN_BYTES:
            return np.empty(shape, dtype)
        memory = self._take(nbytes)
        if memory is None:
            memory = np.empty(round_up(nbytes, _UNIT), np.uint8)
        return np.ndarray(shape, dtype, _Block(memory, self._keep))

    def _take(self, nbytes: int) -> np.ndarray | None:
        """Return free memory for an array, if there is some of its size."""
        free, tried = self._free, []
        found = None
        while free and found is None:
            try:
                memory = free.pop()  # whole or not at all: other threads do it as well
            except IndexError:
                break
            if nbytes <= memory.size <= nbytes + nbytes // _SLACK + _UNIT:
                found = memory
            else:
                tried.append(memory)
        free[:0] = reversed(tried)
        return found

    def _keep(self, memory: np.ndarray) -> None:
        """Keep free memory; release what was freed longest ago if it is too much."""
        free = self._free
        free.append(memory)
        while len(free) > 1 and sum(m.size for m in free) > MAX_BYTES:
            free.pop(0)
        if memory.size > MAX_BYTES:
            free.clear()

    def clear(self) -> None:
        """Release the free memory."""
        self._free.clear()
