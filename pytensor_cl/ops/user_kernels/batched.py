"""Batches of users' kernels: `vectorize_graph`, and the device Op of a batch."""

from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.replace import _vectorize_node
from pytensor.tensor.blockwise import Blockwise

from pytensor_cl.ops.base import GpuOp, Routine
from pytensor_cl.ops.registry import NoKernel, register_batched_lift
from pytensor_cl.ops.user_kernels.elementwise import ElementwiseOp, lacks_double
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.user_kernels.routine import Batched, Indexed


def _signature(node: Apply) -> str:
    """Return the signature of a batch: each dimension has a name of its own, as it may have length one."""
    inputs = (", ".join(f"i{k}_{d}" for d in range(v.type.ndim)) for k, v in enumerate(node.inputs))
    outputs = (", ".join(f"o{d}" for d in range(v.type.ndim)) for v in node.outputs)
    return f"{','.join(f'({dims})' for dims in inputs)}->{','.join(f'({dims})' for dims in outputs)}".replace(" ", "")


@_vectorize_node.register(ElementwiseOp)
def _vectorize_elementwise(op: ElementwiseOp, node: Apply, *inputs: Variable) -> Sequence[Variable]:
    """Batch dimensions are further dimensions, unless the operation has numbers of elements or raw arrays."""
    if not op.kernel.definition.is_indexed:
        outputs: Sequence[Variable] = op.make_node(*inputs).outputs
        return outputs
    batched: Sequence[Variable] = Blockwise(op, signature=_signature(node)).make_node(*inputs).outputs
    return batched


class GpuBatchedKernel(GpuOp):
    """Device counterpart of a batch of a user's kernel: one launch for each entry."""

    def __str__(self) -> str:
        host: Any = self.host
        return f"GpuBatched{{{host.core_op}}}"

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the routine of one entry, for all of them."""
        host: Any = self.host
        lead = host.batch_ndim(node)
        ndims = [v.type.ndim - lead for v in node.inputs]
        function = host.core_op.function_of(node.inputs)
        known = [v.type.broadcastable[lead:] for v in node.inputs]
        core = Indexed(context, function, (*ndims, *(v.type.ndim - lead for v in node.outputs)), broadcast=known)
        return Batched(context, core, ndims)


@register_batched_lift(ElementwiseOp, every_dtype=True)
def lift_batch(node: Apply, context_name: str, info: DeviceInfo) -> GpuBatchedKernel | NoKernel:
    """Lift a Blockwise of an `ElementwiseOp`."""
    op: Any = node.op
    return lacks_double(op.core_op, node, info) or GpuBatchedKernel(op, context_name)
