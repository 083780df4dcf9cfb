"""Scan -> the same with a device graph of its steps, unless one kernel computes the whole loop."""

from collections.abc import Iterable
from copy import copy

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph, Output
from pytensor.scan.op import Scan
from pytensor.tensor.basic import Alloc, AllocEmpty, ARange, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import IncSubtensor, Subtensor
from pytensor.tensor.type import TensorType, discrete_dtypes

from pytensor_cl.ops.base import DEVICE, HOST, GpuOp, context_of
from pytensor_cl.ops.scan import InnerPlacement, ScanWithDeviceGraph, unsupported_reason
from pytensor_cl.ops.scan_loop import lift_scan_loop
from pytensor_cl.rewriting.decompose.inner_graph import compile_inner_graph, place_inner_graph
from pytensor_cl.rewriting.decompose.loop_indices import with_selections
from pytensor_cl.rewriting.placement.placement import contexts_of_nodes
from pytensor_cl.runtime.registry import default_context_name, get_context

_CARRIERS = (Elemwise, DimShuffle, ScalarFromTensor, TensorFromScalar, MakeVector)
_INDEXED = (Subtensor, IncSubtensor, Reshape, Alloc)  # inputs after the first are indices or lengths
_OF_LENGTHS = (AllocEmpty, ARange)


# The places of the values of a step


def _is_index(variable: Variable) -> bool:
    """Return whether a value is a number that indices or lengths are computed from, which the host needs."""
    return getattr(variable.type, "ndim", 1) == 0 and getattr(variable.type, "dtype", "") in discrete_dtypes


def _reaches_index(variable: Variable, fgraph: FunctionGraph) -> bool:
    """Return whether a number becomes an index or a length by arithmetic on integers."""
    todo, seen = [variable], set()
    while todo:
        for node, at in fgraph.clients[todo.pop()]:
            op = node.op
            if type(op) is Output:
                continue
            if _is_index_or_length(node, at):
                return True
            is_carrier = isinstance(op, _CARRIERS) and node.outputs[0].type.dtype in discrete_dtypes
            if is_carrier and node.outputs[0].type.ndim < 2 and node not in seen:
                seen.add(node)
                todo += node.outputs
    return False


def _is_index_or_length(node: Apply, at: int) -> bool:
    """Return whether an input of a node is an index, a length, or the number of steps of an inner loop."""
    op = node.op
    if isinstance(op, Scan):
        return at == 0 or op.nit_sot_arg_offset <= at < op.nit_sot_arg_offset + op.info.n_nit_sot
    if isinstance(op, RandomVariable):
        return node.inputs[at] is op.size_param(node)
    return isinstance(op, _OF_LENGTHS) or (isinstance(op, _INDEXED) and at > 0)


def _place_of(variables: Iterable[Variable], fgraph: FunctionGraph) -> str:
    """Return where values are that are the same input of the node."""
    variables = list(variables)
    if any(type(v.type) is not TensorType for v in variables):
        return HOST
    is_index = all(map(_is_index, variables)) and any(_reaches_index(v, fgraph) for v in variables)
    return HOST if is_index else DEVICE


def _inner_placement(op: Scan) -> InnerPlacement:
    """Choose where the values of the steps are."""
    graph, info = op.fgraph.unfreeze(), op.info
    inputs = list(graph.inputs)

    def take(count: int) -> list[Variable]:
        taken = inputs[:count]
        del inputs[:count]
        return taken

    seqs = tuple(_place_of([v], graph) for v in take(info.n_seqs))
    states = tuple(_place_of(take(len(taps)), graph) for taps in info.tap_array)
    untraced = tuple(_place_of([v], graph) for v in take(info.n_untraced_sit_sot))
    return InnerPlacement(seqs, states, untraced, tuple(_place_of([v], graph) for v in inputs))


# The device graph of a step


def _device_graph(op: Scan, fgraph: FunctionGraph, placement: InnerPlacement, context_name: str) -> FunctionGraph:
    """Return the inner graph as the mode of the outer graph compiles it, with its values where they belong."""
    info = op.info
    places = placement.inner_inputs(info), placement.inner_outputs(info)
    return compile_inner_graph(place_inner_graph(op.fgraph.unfreeze(), *places, context_name), fgraph)


def _with_device_graph(
    node: Apply, fgraph: FunctionGraph, context_name: str, refusal: str
) -> ScanWithDeviceGraph | None:
    """Return the Op of a node with a device graph of its steps; None if it stays on the host."""
    op: Scan = node.op
    if unsupported_reason(op, get_context(context_name).info):
        return None
    placement = _inner_placement(op)
    graph = _device_graph(op, fgraph, placement, context_name)
    if not any(isinstance(n.op, GpuOp) and n.op.is_compute for n in graph.apply_nodes):
        return None
    names = {name for n in graph.apply_nodes for v in n.outputs if (name := context_of(v))}
    return ScanWithDeviceGraph(op, graph, placement, context_name, refusal) if names == {context_name} else None


def compile_loops(fgraph: FunctionGraph) -> None:
    """Compile the steps of each Scan for devices."""
    order = fgraph.toposort()
    loops = [node for node in order if type(node.op) is Scan]
    if not loops:
        return
    contexts = contexts_of_nodes(order, fgraph, default_context_name())
    for node in loops:
        name = contexts[node]
        whole = lift_scan_loop(node, name, get_context(name).info)
        if isinstance(whole, GpuOp):
            continue
        selecting = with_selections(node.op, node.inputs)
        if selecting is not None:
            new = selecting[0].make_node(*selecting[1])
            if isinstance(lift_scan_loop(new, name, get_context(name).info), GpuOp):
                _replace(fgraph, node, new)
                continue
        found = _with_device_graph(node, fgraph, name, whole.reason)
        if found is None:
            continue
        new = Apply(found, list(node.inputs), [v.type() for v in node.outputs])
        _replace(fgraph, node, new)


def _replace(fgraph: FunctionGraph, node: Apply, new: Apply) -> None:
    """Replace a loop by another one."""
    new.tag = copy(node.tag)
    pairs = list(zip(node.outputs, new.outputs, strict=True))
    fgraph.replace_all(pairs, reason="opencl_compile_loops", import_missing=True)
