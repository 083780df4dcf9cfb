"""Take out transfers that lead back to where the value came from."""

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.basic import MakeVector
from pytensor.tensor.shape import Shape, Shape_i

from pytensor_cl.ops.base import context_of
from pytensor_cl.ops.transfer import GpuFromHost, GpuToGpu, HostFromGpu

__all__ = ["cut_transfers"]


def _source(variable: Variable, op_type: type) -> Variable | None:
    owner = variable.owner
    return owner.inputs[0] if owner is not None and isinstance(owner.op, op_type) else None


def _cut_upload(node: Apply) -> Variable | None:
    """GpuFromHost(HostFromGpu(g)) -> g, or GpuToGpu(g) where the contexts differ."""
    device = _source(node.inputs[0], HostFromGpu)
    if device is None:
        return None
    target = node.op.context_name
    return device if context_of(device) == target else GpuToGpu(target)(device)


def _cut_download(node: Apply) -> Variable | None:
    """HostFromGpu(GpuFromHost(x)) -> x."""
    return _source(node.inputs[0], GpuFromHost)


def _cut_copy(node: Apply) -> Variable | None:
    """GpuToGpu<a>(x in a) -> x."""
    return node.inputs[0] if context_of(node.inputs[0]) == node.op.context_name else None


def _cut_shape(node: Apply) -> Variable | None:
    """Shape_i(HostFromGpu(g)) -> Shape_i(g): the shape is known without the values."""
    device = _source(node.inputs[0], HostFromGpu)
    return None if device is None else node.op(device)


def _cut_shapes(node: Apply) -> Variable | None:
    """Shape(HostFromGpu(g)) -> [Shape_i(g) for each dimension]."""
    device = _source(node.inputs[0], HostFromGpu)
    return None if device is None else MakeVector("int64")(*(Shape_i(i)(device) for i in range(device.type.ndim)))


_CUTS = {
    GpuFromHost: _cut_upload,
    HostFromGpu: _cut_download,
    GpuToGpu: _cut_copy,
    Shape_i: _cut_shape,
    Shape: _cut_shapes,
}


def cut_transfers(fgraph: FunctionGraph) -> None:
    """Apply the cuts until none is left."""
    for node in fgraph.toposort():
        cut = _CUTS.get(type(node.op))
        new = cut(node) if cut is not None and node in fgraph.apply_nodes else None
        if new is not None and new is not node.outputs[0]:
            new = node.outputs[0].type.filter_variable(new)
            fgraph.replace(node.outputs[0], new, reason="opencl_cut_transfers", import_missing=True)
