"""IfElse and LazyIfElse -> their device Ops, whose branches are device graphs of their own."""

from collections.abc import Sequence
from copy import copy

from pytensor.conditional.op import IfElse, LazyIfElse
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import get_active_mode
from pytensor.tensor.shape import Shape, Shape_i

from pytensor_cl._compat import numba_backend
from pytensor_cl.ops.base import DEVICE, HOST, GpuOp
from pytensor_cl.ops.ifelse import GpuIfElse, GpuLazyIfElse, IfElseWithDeviceGraphs
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.ops.transfer import GpuFromHost
from pytensor_cl.rewriting.host_backend.inner_guards import guard_inner_graph
from pytensor_cl.rewriting.lowering.inner_graph import compile_inner_graph, place_inner_graph
from pytensor_cl.rewriting.placement.transfer import cut_transfers
from pytensor_cl.runtime.device import DeviceInfo

__all__ = ["lift_branches", "prepare_host_branches"]


@register_lift(IfElse, every_dtype=True)
def lift_ifelse(op: IfElse, node: Apply, context_name: str, info: DeviceInfo) -> GpuIfElse:
    """IfElse(c, x, y) -> GpuIfElse(c, x, y); the condition stays on the host."""
    return GpuIfElse(op, context_name)


@register_lift(IfElseWithDeviceGraphs, every_dtype=True)
def lift_branched(op: IfElseWithDeviceGraphs, node: Apply, context_name: str, info: DeviceInfo) -> GpuLazyIfElse:
    """IfElseWithDeviceGraphs(c, xs) -> GpuLazyIfElse(c, xs)."""
    operand_placements = [
        _branch_placement([g.inputs[i] for g in op.graphs], op.graphs) for i in range(len(node.inputs) - 1)
    ]
    graphs = [_on_device(graph, operand_placements, context_name) for graph in op.graphs]
    return GpuLazyIfElse(op, context_name, (HOST, *operand_placements), graphs)


@register_lift(LazyIfElse, every_dtype=True)
def refuse_lazy_ifelse(op: LazyIfElse, node: Apply, context_name: str, info: DeviceInfo) -> NoKernel:
    """Return the reason: branches that could run on a device were replaced before."""
    return NoKernel("no node of its branches has an OpenCL kernel, or is worth one")


def _branch_placement(inputs: Sequence[Variable], graphs: Sequence[FunctionGraph]) -> str:
    """Return where the branches need an input: on the device, unless a host node reads it."""
    readers = [c.op for v, graph in zip(inputs, graphs, strict=True) for c, _ in graph.clients[v]]
    readers = [op for op in readers if not isinstance(op, Shape | Shape_i)]
    returned = any(v in graph.outputs for v, graph in zip(inputs, graphs, strict=True))
    wanted = [op for op in readers if isinstance(op, GpuFromHost)]
    on_host = [op for op in readers if not isinstance(op, GpuFromHost) and type(op).__name__ != "Output"]
    return DEVICE if (wanted or returned) and not on_host else HOST


def _on_device(graph: FunctionGraph, operand_placements: Sequence[str], context_name: str) -> FunctionGraph:
    """Return a copy of a branch with its inputs at their placements and its outputs on the device."""
    result = place_inner_graph(graph, operand_placements, [DEVICE] * len(graph.outputs), context_name)
    cut_transfers(result)
    return result


def _device_graphs(op: LazyIfElse, fgraph: FunctionGraph) -> list[FunctionGraph]:
    return [compile_inner_graph(b.fgraph.unfreeze(), fgraph) for b in (op.true_branch, op.false_branch)]


def _has_device_nodes(graphs: Sequence[FunctionGraph]) -> bool:
    return any(isinstance(n.op, GpuOp) for graph in graphs for n in graph.apply_nodes)


def _replace(fgraph: FunctionGraph, node: Apply, op: LazyIfElse) -> None:
    new = op.make_node(*node.inputs)
    new.tag = copy(node.tag)  # holds the reason of its placement
    pairs = list(zip(node.outputs, new.outputs, strict=True))
    fgraph.replace_all(pairs, reason="opencl_lift_branches", import_missing=True)


def lift_branches(fgraph: FunctionGraph) -> None:
    """Compile the branches of each LazyIfElse for devices.

    Parameters
    ----------
    fgraph
        A graph of host Ops; changed in place.
    """
    for node in fgraph.toposort():
        if type(node.op) is not LazyIfElse:
            continue
        graphs = _device_graphs(node.op, fgraph)
        if not _has_device_nodes(graphs):  # unprofitable alone, but perhaps not between device nodes
            with config.change_flags(opencl__placement="device"):
                graphs = _device_graphs(node.op, fgraph)
        if _has_device_nodes(graphs):
            _replace(fgraph, node, IfElseWithDeviceGraphs(node.op, graphs))


def prepare_host_branches(fgraph: FunctionGraph) -> None:
    """Prepare the branches that stay on the host for NUMBA.

    Parameters
    ----------
    fgraph
        A graph after placement; changed in place.
    """
    mode = get_active_mode(fgraph)
    for node in fgraph.toposort():
        if not isinstance(node.op, LazyIfElse):
            continue
        given = (node.op.true_branch, node.op.false_branch)
        branches = [numba_backend.prepare_for_numba(branch, mode, guard_inner_graph) for branch in given]
        _replace(fgraph, node, LazyIfElse(*branches, node.op.output_types))
