"""Basic indexing: views."""

from typing import Any

from pytensor.graph.basic import Apply
from pytensor.tensor.subtensor import unflatten_index_variables

from pytensor_cl.ops.base import DEVICE, HOST, GpuOp, Routine, ViewRoutine
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout

__all__ = ["GpuSubtensor"]


class _Index(ViewRoutine):
    def __init__(self, entries: tuple[int | slice, ...]) -> None:
        self._entries = entries

    def layout(self, layout: Layout, *values: Any) -> Layout:
        return layout.subscript(unflatten_index_variables([int(v) for v in values], self._entries))


class GpuSubtensor(GpuOp):
    """Device counterpart of `Subtensor`: integers and slices with any step, static or computed on the host."""

    view_map = {0: [0]}
    works = False
    demands = (DEVICE, HOST)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the view."""
        return _Index(tuple(self.host.idx_list))
