"""Epilogues: elementwise functions that a kernel applies while it stores its output."""

from collections.abc import Sequence
from typing import Any

from pytensor import scalar as ps
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.type import TensorType

from pytensor_cl.ops.base import ANY, GpuOp, Routine
from pytensor_cl.ops.names import Show, scalar_op_names
from pytensor_cl.routines.elemwise.epilogue import Epilogue
from pytensor_cl.runtime.context import Context
from pytensor_cl.scalar.base import element_function


class SupportsEpilogue(GpuOp):
    """A device Op of one output whose kernel can apply a function to each element that it stores."""

    def can_apply(self, node: Apply, extra: Sequence[Variable]) -> bool:
        """Return whether it can apply a real function of its output and of extra operands."""
        raise NotImplementedError

    def routine_with_epilogue(self, node: Apply, context: Context, epilogue: Epilogue | None) -> Routine:
        """Return the routine that computes `node` and the epilogue; the operands of the epilogue follow the inputs."""
        raise NotImplementedError

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the routine that computes `node` on an open context."""
        return self.routine_with_epilogue(node, context, None)


class GpuEpilogue(GpuOp):
    """A device Op and an elementwise function of its output and of extra operands, in one kernel.

    Its inputs are the inputs of the Op, then the extra operands.
    """

    __props__ = ("producer", "function", "context_name")

    def __init__(self, producer: SupportsEpilogue, function: ps.Composite, context_name: str) -> None:
        super().__init__(producer.host, context_name)
        self.producer = producer
        self.function = function

    def named(self, show: Show) -> str:
        """Return the name; `show` joins the names of parts."""
        return f"GpuEpilogue{{{self.producer.named(show)}: {show(scalar_op_names(self.function))}}}"

    def placement_of(self, index: int) -> str:
        """Inputs keep the placements of the replaced nodes."""
        return ANY

    def prefers_row_major(self, index: int) -> bool:
        """Return the producer's answer for its input."""
        return self.producer.prefers_row_major(index)

    def split(self, inputs: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        """Divide a sequence with an entry for each input into the producer's and the extra operands' entries."""
        count = len(inputs) - len(self.function.inputs) + 1
        return inputs[:count], inputs[count:]

    def make_node(self, *inputs: Variable) -> Apply:
        """Make a node; inputs keep the placements of the replaced nodes."""
        own, _ = self.split(inputs)
        shape = self.producer.make_node(*own).outputs[0].type.shape
        return self.apply(inputs, [TensorType(v.type.dtype, shape) for v in self.function.outputs])

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Return the shape that the producer infers; the extra operands are broadcast to it."""
        own, _ = self.split(node.inputs)
        return self.producer.infer_shape(self.producer.make_node(*own), self.split(shapes)[0]) * len(node.outputs)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel."""
        own, extra = self.split(node.inputs)
        producer = self.producer.make_node(*own)
        (product,) = producer.outputs
        dtypes = [v.type.dtype for v in (product, *extra)]
        function = element_function(self.function, dtypes, [v.type.dtype for v in node.outputs])
        epilogue = Epilogue(context, function, [v.type.broadcastable for v in (product, *extra)])
        return self.producer.routine_with_epilogue(producer, context, epilogue)
