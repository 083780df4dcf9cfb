"""Reductions of gathered rows of a table."""

from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.elemwise import CAReduce
from pytensor.tensor.subtensor import AdvancedSubtensor

from pytensor_cl.ops.base import GpuOp, Routine, as_host_variable
from pytensor_cl.ops.indexing.gather_scatter import index_arguments
from pytensor_cl.ops.names import Show, host_name
from pytensor_cl.ops.reduction import OPERATIONS
from pytensor_cl.routines.indexing.embedding_bag import EmbeddingBag
from pytensor_cl.runtime.context import Context


class GpuEmbeddingBag(GpuOp):
    """``host(table[index])``, a reduction along axes of the index that reads rows in place; `gather` is the host Op."""

    __props__ = ("host", "gather", "context_name")
    checks_data = True

    def __init__(self, host: CAReduce, gather: AdvancedSubtensor, context_name: str) -> None:
        super().__init__(host, context_name)
        self.gather = gather

    def named(self, show: Show) -> str:
        """Return the name; `show` joins the names of parts."""
        return f"GpuEmbeddingBag{{{host_name(self.host, show)}}}"

    def make_node(self, *inputs: Variable) -> Apply:
        """Make a node for a table and an index."""
        placed = list(map(self.on_device, inputs))
        rows = self.gather.make_node(*map(as_host_variable, placed)).outputs[0]
        return self.apply(placed, [self.host.make_node(rows.type()).outputs[0].type])

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Return the kept lengths of the index, and the lengths of a row."""
        table, index = shapes
        kept = (n for axis, n in enumerate(index) if axis not in self.host.axis)
        return [(*kept, *table[1:])]

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel."""
        table, index = node.inputs
        target, host = node.outputs[0].type.dtype, self.host
        dtypes = table.type.dtype, host.acc_dtype or target, target
        (kind,), (bounds,), _ = index_arguments([index])
        assert kind is not None
        operation, initial = OPERATIONS[type(host.scalar_op).__name__], bool(getattr(host, "initial", False))
        return EmbeddingBag(context, operation, dtypes, table.type.ndim, kind, host.axis, bounds, initial=initial)
