"""Buffer donation: an update that is written to the memory of the old value of a shared variable or an input."""

from sys import getrefcount
from typing import Any

from pytensor_cl.linker.graphs.buffers import ArrayLocation, BufferBinding
from pytensor_cl.linker.types import Cell
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context

__all__ = ["BufferDonation"]


def _reference_counts(array: Any) -> tuple[int, int]:
    """Count the references to an array, and to its buffer."""
    return getrefcount(array), getrefcount(array.buffer)


class BufferDonation:
    """An update that is written to the memory of the old value, if nothing else refers to the old value.

    Parameters
    ----------
    context, location
        Of the new value.
    nbytes
        Its size.
    out
        Cell of the new value.
    holders
        How many cells refer to the old value when `acquire` is called.

    Attributes
    ----------
    binding
        Of the new value.
    reuse_count
        In how many calls the memory of the old value was used.
    """

    def __init__(self, context: Context, location: ArrayLocation, nbytes: int, out: Cell, holders: int) -> None:
        self._context, self._location, self._nbytes = context, location, nbytes
        self._out = out
        self._expected_counts = _COUNTS_OF_ONE_HOLDER[0] + holders - 1, _COUNTS_OF_ONE_HOLDER[1]
        self.binding = BufferBinding()
        self.array: GpuArray | None = None
        self.reuse_count = 0

    def acquire(self, array: GpuArray) -> None:
        """Bind the memory of the old value; new memory if something else refers to it.

        Called by a binding that holds the array in one local variable: the reference counts depend on that.
        """
        self._out[0] = None
        if _reference_counts(array) == self._expected_counts:
            self.reuse_count += 1
            self.array = array
        else:
            buffer = self._context.memory.allocate(self._nbytes)
            self.array = GpuArray(self._context, buffer, self._location.dtype, self._location.layout)
        self.binding.bind_array(self.array)

    def take(self) -> GpuArray:
        """Return the new value, and drop the reference to it."""
        array, self.array = self.array, None
        assert array is not None
        return array


class _CalibrationArray:
    """Stands for an array to which one cell refers. Reference counts differ between versions of Python."""

    __slots__ = ("buffer",)

    def __init__(self) -> None:
        self.buffer = object()

    @staticmethod
    def acquire(array: Any) -> tuple[int, int]:
        """Count references at the depth of `BufferDonation.acquire`."""
        return _reference_counts(array)


def _count_as_bindings_do(cell: Cell) -> tuple[int, int]:
    """Count references at the depth of `SharedBinding` and `DeviceInputBinding`."""
    array = cell[0]
    return _CalibrationArray.acquire(array)


_COUNTS_OF_ONE_HOLDER = _count_as_bindings_do([_CalibrationArray()])
