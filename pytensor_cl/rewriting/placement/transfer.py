"""Removes transfers to where a value came from."""

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.basic import MakeVector
from pytensor.tensor.shape import Shape, Shape_i

from pytensor_cl.ops.base import context_of
from pytensor_cl.ops.transfer import GpuFromHost, GpuToGpu, HostFromGpu


def _source(variable: Variable, op_type: type) -> Variable | None:
    """Return the input of the transfer of a class that makes a variable; None for other variables."""
    owner = variable.owner
    return owner.inputs[0] if owner is not None and isinstance(owner.op, op_type) else None


def _cut(node: Apply) -> Variable | None:
    """Return the replacement of a node's output; None if there is none.

    GpuFromHost(HostFromGpu(g)) -> g, or GpuToGpu(g) between contexts; HostFromGpu(GpuFromHost(x)) -> x;
    GpuToGpu<a>(x in a) -> x. Shapes of HostFromGpu(g) are those of g, without the values.
    """
    (x, *_), op = node.inputs or (None,), node.op
    match op:
        case GpuFromHost():
            device = _source(x, HostFromGpu)
            if device is None or context_of(device) == op.context_name:
                return device
            return GpuToGpu(op.context_name)(device)
        case HostFromGpu():
            return _source(x, GpuFromHost)
        case GpuToGpu():
            return x if context_of(x) == op.context_name else None
        case Shape_i():
            device = _source(x, HostFromGpu)
            return None if device is None else op(device)
        case Shape():
            device = _source(x, HostFromGpu)
            dims = range(device.type.ndim) if device is not None else ()
            return None if device is None else MakeVector("int64")(*(Shape_i(i)(device) for i in dims))
    return None


def cut_transfers(fgraph: FunctionGraph) -> None:
    """Remove transfers to where a value came from."""
    for node in fgraph.toposort():
        new = _cut(node) if node in fgraph.apply_nodes else None
        if new is not None and new is not node.outputs[0]:
            new = node.outputs[0].type.filter_variable(new)
            fgraph.replace(node.outputs[0], new, reason="opencl_cut_transfers", import_missing=True)
