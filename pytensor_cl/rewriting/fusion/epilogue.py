"""Elementwise functions of what one node computes -> GpuEpilogue: applied while it is stored.

The bias and the activation of a layer are one. Here is decided which elementwise node can be part of the node before
it; `StoringOp.applies` says which Ops have kernels for it.
"""

from pytensor import scalar as ps
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph

from pytensor_cl.codegen.dtypes import is_complex
from pytensor_cl.ops.elemwise import GpuElemwise, is_by_value
from pytensor_cl.ops.epilogue import GpuEpilogue, StoringOp
from pytensor_cl.rewriting.fusion.gather_fused import apply_scalar_op, scalar_of
from pytensor_cl.rewriting.fusion.replace import replace_outputs
from pytensor_cl.runtime.registry import get_context

__all__ = ["fuse_epilogues"]

FIXED_BYTES, ARRAY_BYTES, RESULT_BYTES = 480, 72, 16
"""What a kernel's own arguments take at most, those of each further array, and of each result: devices may take no more
than 1024."""


def _varies(variable: Variable) -> bool:
    """Whether it is a number of the host that may be another one in each call: recordings know them of GpuElemwise."""
    return is_by_value(variable) and not isinstance(variable, Constant)


def _is_real(node: Apply) -> bool:
    return not any(is_complex(v.type.dtype) for v in (*node.inputs, *node.outputs))


def _is_read_once(variable: Variable, fgraph: FunctionGraph) -> bool:
    return len(fgraph.clients[variable]) == 1


def _has_its_shape(variable: Variable, node: Apply) -> bool:
    """Whether the results of an elementwise node have the shape of an input, whatever the data."""
    return variable.type.broadcastable == node.outputs[0].type.broadcastable


def _further(node: Apply, product: Variable) -> list[Variable]:
    """Return the arrays that an elementwise node reads besides."""
    return list(dict.fromkeys(v for v in node.inputs if v is not product and not isinstance(v, Constant)))


def _has_room(node: Apply, further: list[Variable]) -> bool:
    """Whether a kernel may have so many arguments."""
    room = get_context(node.op.context_name).info.max_parameter_size - FIXED_BYTES
    return len(further) * ARRAY_BYTES + len(node.outputs) * RESULT_BYTES <= room


def _is_absorbed(product: Variable, node: Apply, fgraph: FunctionGraph) -> bool:
    """Whether the node that computes an input of an elementwise node can do the work of both."""
    owner = product.owner
    if owner is None or not isinstance(owner.op, StoringOp) or owner.op.context_name != node.op.context_name:
        return False
    further = _further(node, product)
    fits = _is_read_once(product, fgraph) and _has_its_shape(product, node) and _has_room(node, further)
    return fits and owner.op.applies(owner, further)


def _function(node: Apply, inputs: list[Variable]) -> ps.Composite:
    """Return the function of an element of each input; numbers that are known are part of it."""
    known = {v: scalar_of(v) for v in node.inputs}
    outputs = apply_scalar_op(node.op.host.scalar_op, [known[v] for v in node.inputs])
    return ps.Composite([known[v] for v in inputs], outputs)


def _absorbed(node: Apply, fgraph: FunctionGraph) -> Apply | None:
    """Return the node that does the work of an elementwise node and of one before it."""
    if not isinstance(node.op, GpuElemwise) or any(map(_varies, node.inputs)) or not _is_real(node):
        return None
    product = next((v for v in node.inputs if _is_absorbed(v, node, fgraph)), None)
    if product is None:
        return None
    producer, further = product.owner, _further(node, product)
    op = GpuEpilogue(producer.op, _function(node, [product, *further]), node.op.context_name)
    return op.make_node(*producer.inputs, *further)


def fuse_epilogues(fgraph: FunctionGraph) -> None:
    """Apply elementwise functions where their input is stored.

    Parameters
    ----------
    fgraph
        A graph after lifting, in which what shares rows is one node; changed in place.
    """
    for node in fgraph.toposort():
        fused = _absorbed(node, fgraph)
        if fused is None:
            continue
        replace_outputs(fgraph, node.outputs, fused.outputs, "opencl_epilogue")
