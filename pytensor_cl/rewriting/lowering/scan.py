"""Scan -> GpuScan, whose steps are a device graph of their own, or another device Op for the whole loop.

Modules that make one kernel of a loop register themselves with `register_whole_loop`. What they refuse becomes a
`GpuScan`.
"""

from collections.abc import Callable, Iterable
from copy import copy

from pytensor.configdefaults import config
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph, Output
from pytensor.scan.op import Scan
from pytensor.tensor.basic import Alloc, AllocEmpty, ARange, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import IncSubtensor, Subtensor
from pytensor.tensor.type import TensorType, discrete_dtypes

from pytensor_cl.codegen import dtypes
from pytensor_cl.ops.base import DEVICE, HOST, GpuOp, context_of
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.ops.scan import GpuScan, InnerPlacement, ScanWithDeviceGraph
from pytensor_cl.rewriting.lowering.inner_graph import compile_inner_graph, place_inner_graph
from pytensor_cl.rewriting.placement.placement import contexts_of_nodes
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.runtime.registry import default_context_name, get_context

__all__ = ["has_whole_loop", "lift_loops", "register_whole_loop"]

WholeLoop = Callable[[Scan, Apply, str, DeviceInfo], "GpuOp | NoKernel"]

NUMBERS = "each step computes with single numbers, which NUMBA's compiled loop does faster"
NO_NODES = "no node of its steps has an OpenCL kernel, or is worth one"
_CARRIERS = (Elemwise, DimShuffle, ScalarFromTensor, TensorFromScalar, MakeVector)
_INDEXED = (Subtensor, IncSubtensor, Reshape, Alloc)  # inputs after the first are indices or lengths
_OF_LENGTHS = (AllocEmpty, ARange)

_whole_loops: list[WholeLoop] = []


def register_whole_loop(lift: WholeLoop) -> WholeLoop:
    """Register a function that makes one device Op of a loop whose steps need no device graph of their own.

    Parameters
    ----------
    lift
        Takes the `Scan`, its node, the context's name and the device; returns a device Op, or why there is none. It
        is called twice with the same node: before Elemwise nodes are fused, and when nodes are placed.
    """
    _whole_loops.append(lift)
    return lift


def _whole_loop(op: Scan, node: Apply, context_name: str, info: DeviceInfo) -> GpuOp | NoKernel:
    """Return a device Op of the whole loop, or why there is none."""
    refusal = NoKernel(NO_NODES)
    for lift in _whole_loops:
        found = lift(op, node, context_name, info)
        if isinstance(found, GpuOp):
            return found
        refusal = found
    return refusal


def has_whole_loop(node: Apply) -> bool:
    """Return whether there is a device Op of a whole loop on the default device."""
    name = default_context_name()
    return isinstance(_whole_loop(node.op, node, name, get_context(name).info), GpuOp)


@register_lift(Scan, every_dtype=True)
def lift_scan(op: Scan, node: Apply, context_name: str, info: DeviceInfo) -> GpuOp | NoKernel:
    """Scan -> one device Op of the whole loop."""
    found = _whole_loop(op, node, context_name, info)
    return found if isinstance(found, GpuOp) else NoKernel(_unsupported_reason(op, info) or NO_NODES)


@register_lift(ScanWithDeviceGraph, every_dtype=True)
def lift_scan_with_graph(
    op: ScanWithDeviceGraph, node: Apply, context_name: str, info: DeviceInfo
) -> GpuScan | NoKernel:
    """ScanWithDeviceGraph -> GpuScan."""
    if op.context_name != context_name:
        return NoKernel(f"its steps were compiled for another device, {op.context_name}")
    return GpuScan(op, context_name, op.device_graph, op.placement, op.refusal)


# Where the values of a step are


def _is_index(variable: Variable) -> bool:
    """Whether a value is a number that indices or lengths are computed from, which the host needs."""
    return getattr(variable.type, "ndim", 1) == 0 and getattr(variable.type, "dtype", "") in discrete_dtypes


def _reaches_index(variable: Variable, fgraph: FunctionGraph) -> bool:
    """Whether a number becomes an index or a length by arithmetic on integers."""
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
    """Whether an input of a node is an index, a length, or the number of steps of an inner loop."""
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


def _unsupported_reason(op: Scan, info: DeviceInfo) -> str:
    """Return why the steps of a loop get no device graph; empty if they may get one."""
    for kind in (v.type for v in op.inner_nitsot_outs(op.fgraph.outputs)):
        if type(kind) is not TensorType or not dtypes.is_supported(kind.dtype):
            return f"device arrays cannot hold {kind}"
        if dtypes.needs_fp64(kind.dtype) and not info.has_fp64:
            return f"{info.name} has no double precision ({kind.dtype})"
    if op.mode is not None:
        return "its steps have a mode of their own"
    return NUMBERS if config.opencl__placement == "auto" and _has_numbers_only(op) else ""


def _has_numbers_only(op: Scan) -> bool:
    """Whether all sequences, states and results of a step are single numbers."""
    count = op.info.n_inner_inputs - op.info.n_non_seqs
    values = [*op.fgraph.inputs[:count], *op.fgraph.outputs]
    return all(getattr(v.type, "ndim", 0) == 0 for v in values)


def _with_device_graph(
    node: Apply, fgraph: FunctionGraph, context_name: str, refusal: str
) -> ScanWithDeviceGraph | None:
    """Return the Op of a node with a device graph of its steps; None if it stays on the host."""
    op: Scan = node.op
    if _unsupported_reason(op, get_context(context_name).info):
        return None
    placement = _inner_placement(op)
    graph = _device_graph(op, fgraph, placement, context_name)
    if not any(isinstance(n.op, GpuOp) and n.op.is_compute for n in graph.apply_nodes):
        return None
    names = {name for n in graph.apply_nodes for v in n.outputs if (name := context_of(v))}
    return ScanWithDeviceGraph(op, graph, placement, context_name, refusal) if names == {context_name} else None


def lift_loops(fgraph: FunctionGraph) -> None:
    """Compile the steps of each Scan for devices.

    Parameters
    ----------
    fgraph
        A graph of host Ops; changed in place.
    """
    order = fgraph.toposort()
    loops = [node for node in order if type(node.op) is Scan]
    if not loops:
        return
    contexts = contexts_of_nodes(order, fgraph, default_context_name())
    for node in loops:
        name = contexts[node]
        whole = _whole_loop(node.op, node, name, get_context(name).info)
        if isinstance(whole, GpuOp):
            continue
        found = _with_device_graph(node, fgraph, name, whole.reason)
        if found is None:
            continue
        new = Apply(found, list(node.inputs), [v.type() for v in node.outputs])
        new.tag = copy(node.tag)
        pairs = list(zip(node.outputs, new.outputs, strict=True))
        fgraph.replace_all(pairs, reason="opencl_lift_loops", import_missing=True)
