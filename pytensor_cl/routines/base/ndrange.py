"""NDRanges within the limits of a device and of its compiled kernels, and the C type of index arithmetic."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.errors import CompilationError
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.limits import GROUP_ITEMS, GROUPS_PER_UNIT, INT_LIMIT, ITEMS_PER_UNIT
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.runtime.program import Kernel

MAX_GROUPS = 65535
"""Work-groups along the second and the third dimension of an NDRange that every GPU takes."""

RESERVED = 1024
"""Bytes of local memory that are left to the compiler, which uses some itself."""

Sizes = tuple[tuple[int, ...], tuple[int, ...]]


def power_of_two(n: int) -> int:
    """Return the largest power of two that is not above a number; 1 if there is none."""
    return 1 << (max(n, 1).bit_length() - 1)


def power_above(n: int) -> int:
    """Return the smallest power of two that is not below a number."""
    return 1 << max(n - 1, 0).bit_length()


def index_type(reach: int, overshoot: int = 0) -> str:
    """Return the C type, ``int`` or ``long``, that holds every value of an index.

    `reach`: the largest value that is used: an offset, a position, a number of elements; `overshoot`: distance that a
    loop steps past it before it ends: the size of the NDRange, or of a tile.
    """
    return "int" if reach + overshoot < INT_LIMIT else "long"


def max_offset(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return the largest distance between two elements of an array, in elements; see `index_type`."""
    return sum((n - 1) * abs(s) for n, s in zip(shape, strides, strict=True))


def local_memory(info: DeviceInfo) -> int:
    """Return the bytes of local memory that kernels may declare."""
    return max(0, info.local_memory - RESERVED)


def work_group_size(info: DeviceInfo, most: int, bytes_per_item: int = 0, fixed_bytes: int = 0) -> int:
    """Return the size of a work-group, a power of two, within the device's limits.

    `most`: the size that suits the kernel; `bytes_per_item`, `fixed_bytes`: local memory that the kernel declares: for
    each work-item, and besides.
    """
    most = min(most, info.max_work_group_size)
    if bytes_per_item:
        most = min(most, (local_memory(info) - fixed_bytes) // bytes_per_item)
    return power_of_two(most)


def ndrange(
    context: Context, kernel: Kernel, size: int, most: int = GROUP_ITEMS, groups_per_unit: int = GROUPS_PER_UNIT
) -> Sizes:
    """Return the NDRange and the work-group size for a kernel that runs with any of them.

    The kernel's work-items loop over `size` elements with the NDRange as step.

    `kernel`: the kernel to launch; its own limit may be below the device's; `size`: number of elements, at least one;
    `most`: work-items of a work-group where the limits allow it; `groups_per_unit`: work-groups for each compute unit,
    at most.
    """
    limit = min(context.info.max_work_group_size, kernel.max_work_group_size(context.device))
    local = power_of_two(min(most, limit))
    return (min(ceil_div(size, local), groups_per_unit * context.info.compute_units) * local,), (local,)


def item_range(context: Context, size: int, elements_per_item: int) -> Sizes:
    """Return the NDRange of a kernel of schedule cpu, whose work-items share out `size` elements."""
    return (min(ITEMS_PER_UNIT * context.info.compute_units, ceil_div(size, elements_per_item)),), (1,)


class _WorkGroupTooLarge(Exception):
    """A compiled kernel does not run with the work-group size that is compiled into it."""


class WorkGroupLimits:
    """The device's limits, lowered to those of the compiled kernels of a routine.

    Kernels with ``reqd_work_group_size`` or local arrays have their work-group size compiled in. It is chosen from
    `info` before the build. What the compiler makes of the kernel may need more registers or local memory than the
    device has for that many work-items: then `info` is lowered, and the routine renders and plans again.

    Parameters
    ----------
    context
        Context of the routine.

    Attributes
    ----------
    info
        The facts of the device, with the limits that hold for this routine.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.info = context.info

    def size(self, most: int, bytes_per_item: int = 0, fixed_bytes: int = 0) -> int:
        """Return the size of a work-group; see `work_group_size`."""
        return work_group_size(self.info, most, bytes_per_item, fixed_bytes)

    def kernel(self, source: KernelSource, function: str | None, work_items: int) -> Kernel:
        """Return a kernel that has `work_items` compiled in as its work-group size; for use in `with_fitting_groups`.

        Raises
        ------
        CompilationError
            The kernel does not run on the device, not even with one work-item in a work-group.
        """
        kernel = self._context.kernel(source, function)
        device, room = self._context.device, self._context.info.local_memory
        limit, used = kernel.max_work_group_size(device), kernel.local_memory(device)
        if limit >= work_items and used <= room:
            return kernel
        if limit < 1 or (used > room and self.info.local_memory <= 2 * RESERVED):
            raise CompilationError(
                f"kernel {function or source.name} does not run on {self.info.name}: it needs more registers or local "
                "memory than the device has for one work-item",
                source.source,
            )
        # Some drivers count what a kernel declares twice.
        memory = self.info.local_memory if used <= room else self.info.local_memory * room // used
        items = min(limit, self.info.max_work_group_size)
        self.info = replace(self.info, max_work_group_size=items, local_memory=memory)
        raise _WorkGroupTooLarge

    def with_fitting_groups[Plan](self, make: Callable[[], Plan], drop_kernels: Callable[[], None]) -> Plan:
        """Return the result of `make`; while work-groups are too large, call `drop_kernels` and `make` again.

        `make`: chooses a work-group size from `info`, and gets kernels from `kernel`; `drop_kernels`: drops kernels and
        plans of the work-group size that is too large.
        """
        while True:
            try:
                return make()
            except _WorkGroupTooLarge:
                drop_kernels()
