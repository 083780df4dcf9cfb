"""Elementwise functions of gathered elements."""

from collections.abc import Sequence
from typing import Any

from pytensor import scalar as ps
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.type import TensorType

from pytensor_cl.ops.base import ANY, GpuOp, Routine, as_host_variable
from pytensor_cl.ops.elemwise import is_by_value
from pytensor_cl.ops.indexing.gather_scatter import index_arguments
from pytensor_cl.ops.names import Show, scalar_op_names
from pytensor_cl.routines.indexing.gather_fused import GatherFused
from pytensor_cl.runtime.context import Context
from pytensor_cl.scalar.base import element_function


class GpuFusedGather(GpuOp):
    """A gather of an elementwise result by an index of every axis; the other elements are not computed.

    The function computes an element of the result from one element of each operand.
    """

    __props__ = ("host", "function", "context_name")
    is_memory_bound = True
    checks_data = True

    def __init__(self, host: AdvancedSubtensor, function: ps.Composite, context_name: str) -> None:
        super().__init__(host, context_name)
        self.function = function

    def named(self, show: Show) -> str:
        """Return the name; `show` joins the names of parts."""
        return f"GpuFusedGather{{{show(scalar_op_names(self.function))}}}"

    def placement_of(self, index: int) -> str:
        """Arrays are on the device already; 0-d inputs may be host values."""
        return ANY

    def split(self, inputs: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        """Divide a sequence with an entry for each input into the operands' entries and the index's entries."""
        count = len(self.function.inputs)
        return inputs[:count], inputs[count:]

    def make_node(self, *inputs: Variable) -> Apply:
        """Make a node; inputs keep the placements of the replaced nodes."""
        operands, index = self.split(inputs)
        dtype = self.function.outputs[0].type.dtype
        whole = TensorType(dtype, _common([v.type.shape for v in operands if not is_by_value(v)]))()
        node = self.host.make_node(whole, *map(as_host_variable, index))
        return self.apply(inputs, [node.outputs[0].type])

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Return the shape that the host Op infers: the broadcast shape of the index arrays."""
        operands, index = self.split(node.inputs)
        places = [k for k, v in enumerate(operands) if not is_by_value(v)]
        known = zip(*(operands[k].type.broadcastable for k in places), strict=True)
        first = [places[flags.index(False)] if False in flags else places[0] for flags in known]
        whole = tuple(shapes[k][axis] for axis, k in enumerate(first))
        placeholder = TensorType(node.outputs[0].type.dtype, (None,) * len(whole))()
        host_node = self.host.make_node(placeholder, *map(as_host_variable, index))
        return self.host.infer_shape(host_node, [whole, *shapes[len(operands) :]])

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel."""
        operands, index = self.split(node.inputs)
        by_value = tuple(map(is_by_value, operands))
        function = element_function(self.function, [v.type.dtype for v in operands], [node.outputs[0].type.dtype])
        broadcast = tuple(() if value else v.type.broadcastable for v, value in zip(operands, by_value, strict=True))
        types, bounds, constant = index_arguments(index)
        return GatherFused(context, function, broadcast, by_value, types, bounds, constant=constant)


def _common(shapes: Sequence[Sequence[int | None]]) -> tuple[int | None, ...]:
    """Return the static broadcast shape of static shapes."""
    return tuple(
        next((n for n in lengths if n is not None and n != 1), None if None in lengths else 1)
        for lengths in zip(*shapes, strict=True)
    )
