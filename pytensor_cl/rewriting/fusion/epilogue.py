"""Elementwise functions of the output of another kernel -> GpuEpilogue: applied while the output is stored.

The bias and the activation of a layer are an example. This module decides which elementwise node is absorbed;
`SupportsEpilogue.can_apply` returns whether the kernels of an Op support one.
"""

from pytensor import scalar as ps
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph

from pytensor_cl.codegen.dtypes import is_complex
from pytensor_cl.ops.elemwise import GpuElemwise, is_by_value
from pytensor_cl.ops.epilogue import GpuEpilogue, SupportsEpilogue
from pytensor_cl.ops.shape import GpuReshape
from pytensor_cl.rewriting.fusion.gather_fused import apply_scalar_op, scalar_of
from pytensor_cl.rewriting.fusion.replace import replace_outputs
from pytensor_cl.runtime.registry import get_context

FIXED_BYTES, ARRAY_BYTES, RESULT_BYTES = 480, 72, 16
"""Upper bounds of a kernel's own arguments, of the arguments of each operand of the epilogue, and of each result.
Devices may limit arguments to 1024 bytes."""


def _operands(node: Apply, product: Variable) -> list[Variable]:
    """Return the arrays that an elementwise node reads besides the output of the other kernel."""
    return list(dict.fromkeys(v for v in node.inputs if v is not product and not isinstance(v, Constant)))


def _may_be_epilogue(node: Apply) -> bool:
    """Return whether a node is a real elementwise function without host scalars that vary between calls.

    An elementwise kernel takes such scalars by value, and a captured graph can set them.
    """
    if not isinstance(node.op, GpuElemwise) or any(is_complex(v.type.dtype) for v in (*node.inputs, *node.outputs)):
        return False
    return not any(is_by_value(v) and not isinstance(v, Constant) for v in node.inputs)


def _can_absorb(product: Variable, node: Apply, fgraph: FunctionGraph) -> bool:
    """Return whether the kernel that computes `product` can apply the function of an elementwise node to it."""
    owner = product.owner
    if owner is None or not isinstance(owner.op, SupportsEpilogue) or owner.op.context_name != node.op.context_name:
        return False
    if len(fgraph.clients[product]) > 1:  # the output itself is needed, too
        return False
    if product.type.broadcastable != node.outputs[0].type.broadcastable:  # the result may be larger
        return False
    operands = _operands(node, product)
    room = get_context(node.op.context_name).info.max_parameter_size - FIXED_BYTES
    if len(operands) * ARRAY_BYTES + len(node.outputs) * RESULT_BYTES > room:
        return False
    return owner.op.can_apply(owner, operands)


def _function(node: Apply, inputs: list[Variable]) -> ps.Composite:
    """Return the function of one element of each input; constants become a part of it."""
    scalars = {v: scalar_of(v) for v in node.inputs}
    outputs = apply_scalar_op(node.op.host.scalar_op, [scalars[v] for v in node.inputs])
    return ps.Composite([scalars[v] for v in inputs], outputs)


def _behind_reshape(node: Apply, fgraph: FunctionGraph) -> Apply | None:
    """Return the kernel whose reshaped output an elementwise node alone reads, if it can absorb the function.

    A product of more dimensions, such as that of a layer with each element of a sequence, is a reshaped one of two.
    """
    view = node.inputs[0].owner
    if len(node.inputs) > 1 or view is None or not isinstance(view.op, GpuReshape):
        return None
    product, context_name = view.inputs[0], node.op.context_name
    if len(fgraph.clients[node.inputs[0]]) > 1 or len(fgraph.clients[product]) > 1 or product.owner is None:
        return None
    if isinstance(product.owner.op, GpuEpilogue):  # that of a bias
        return product.owner if product.owner.op.context_name == context_name else None
    return product.owner if _can_absorb(product, node.op.make_node(product), fgraph) else None


def _absorb_behind_reshape(node: Apply, producer: Apply, fgraph: FunctionGraph) -> None:
    """f(reshape(x)) -> reshape(f(x)), with f in the kernel of x."""
    view, name = node.inputs[0].owner, node.op.context_name
    before = producer.op.function if isinstance(producer.op, GpuEpilogue) else None
    element = scalar_of(view.inputs[0]) if before is None else before.outputs[view.inputs[0].index]
    results = apply_scalar_op(node.op.host.scalar_op, [element])
    function = ps.Composite([element] if before is None else before.inputs, results)
    op = GpuEpilogue(producer.op if before is None else producer.op.producer, function, name)
    made = op.make_node(*producer.inputs).outputs
    shaped = [view.op.make_node(v, view.inputs[1]).outputs[0] for v in made]
    replace_outputs(fgraph, node.outputs, shaped, "opencl_epilogue")


def fuse_epilogues(fgraph: FunctionGraph) -> None:
    """Make elementwise functions epilogues of the kernels that compute their input."""
    for node in fgraph.toposort():
        if not _may_be_epilogue(node):
            continue
        producer = _behind_reshape(node, fgraph)
        if producer is not None:
            _absorb_behind_reshape(node, producer, fgraph)
            continue
        product = next((v for v in node.inputs if _can_absorb(v, node, fgraph)), None)
        if product is None:
            continue
        producer, operands = product.owner, _operands(node, product)
        op = GpuEpilogue(producer.op, _function(node, [product, *operands]), node.op.context_name)
        fused = op.make_node(*producer.inputs, *operands)
        replace_outputs(fgraph, node.outputs, fused.outputs, "opencl_epilogue")
