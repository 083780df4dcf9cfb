"""LazyIfElse -> the same with device graphs of its branches."""

from collections.abc import Sequence
from copy import copy

from pytensor.conditional.op import LazyIfElse
from pytensor.configdefaults import config
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.shape import Shape, Shape_i

from pytensor_cl.ops.base import DEVICE, HOST, GpuOp
from pytensor_cl.ops.ifelse import IfElseWithDeviceGraphs
from pytensor_cl.ops.transfer import GpuFromHost
from pytensor_cl.rewriting.decompose.inner_graph import compile_inner_graph, place_inner_graph
from pytensor_cl.rewriting.placement.placement import contexts_of_nodes
from pytensor_cl.rewriting.placement.transfer import cut_transfers
from pytensor_cl.runtime.registry import default_context_name


def _branch_placement(inputs: Sequence[Variable], graphs: Sequence[FunctionGraph]) -> str:
    """Return where the branches need an input: on the device, unless a host node reads it."""
    readers = [c.op for v, graph in zip(inputs, graphs, strict=True) for c, _ in graph.clients[v]]
    readers = [op for op in readers if not isinstance(op, Shape | Shape_i)]
    returned = any(v in graph.outputs for v, graph in zip(inputs, graphs, strict=True))
    wanted = [op for op in readers if isinstance(op, GpuFromHost)]
    on_host = [op for op in readers if not isinstance(op, GpuFromHost) and type(op).__name__ != "Output"]
    return DEVICE if (wanted or returned) and not on_host else HOST


def _device_graphs(op: LazyIfElse, fgraph: FunctionGraph) -> list[FunctionGraph]:
    return [compile_inner_graph(b.fgraph.unfreeze(), fgraph) for b in (op.true_branch, op.false_branch)]


def _has_device_nodes(graphs: Sequence[FunctionGraph]) -> bool:
    return any(isinstance(n.op, GpuOp) for graph in graphs for n in graph.apply_nodes)


def _placed(op: LazyIfElse, graphs: Sequence[FunctionGraph], context_name: str) -> IfElseWithDeviceGraphs:
    """Return the Op with copies of its branches that have inputs at their placements and outputs on the device."""
    inputs = zip(*(graph.inputs for graph in graphs), strict=True)
    operand_placements = [_branch_placement(variables, graphs) for variables in inputs]
    placed = []
    for graph in graphs:
        copied = place_inner_graph(graph, operand_placements, [DEVICE] * len(graph.outputs), context_name)
        cut_transfers(copied)
        placed.append(copied)
    return IfElseWithDeviceGraphs(op, placed, (HOST, *operand_placements), context_name)


def compile_branches(fgraph: FunctionGraph) -> None:
    """Compile the branches of each LazyIfElse for devices, in place."""
    order = fgraph.toposort()
    conditionals = [node for node in order if type(node.op) is LazyIfElse]
    contexts = contexts_of_nodes(order, fgraph, default_context_name()) if conditionals else {}
    for node in conditionals:
        graphs = _device_graphs(node.op, fgraph)
        if not _has_device_nodes(graphs):  # unprofitable alone, but perhaps not between device nodes
            with config.change_flags(opencl__placement="device"):
                graphs = _device_graphs(node.op, fgraph)
        if _has_device_nodes(graphs):
            new = _placed(node.op, graphs, contexts[node]).make_node(*node.inputs)
            new.tag = copy(node.tag)
            pairs = list(zip(node.outputs, new.outputs, strict=True))
            fgraph.replace_all(pairs, reason="opencl_compile_branches", import_missing=True)
