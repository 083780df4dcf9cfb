"""Rewrites of inner graphs: Scan, OpFromGraph, LazyIfElse and Blockwise."""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any

import pytensor.tensor as pt
from pytensor.compile.builders import FinalizedOpFromGraph, OpFromGraph
from pytensor.compile.inner_function import HasInnerFunction
from pytensor.compile.mode import get_mode
from pytensor.compile.rewriting import inline_ofg_node
from pytensor.conditional.op import LazyIfElse
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import HasMultipleInnerGraph, Op
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.basic import dfs_rewriter
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.scalar.basic import ScalarOp
from pytensor.scan.op import Scan
from pytensor.scan.rewriting.push_out import scan_push_out_add
from pytensor.tensor.basic import AllocDiag
from pytensor.tensor.blockwise import Blockwise


def graphs_inside(op: Op) -> Iterator[Any]:
    """Yield the graphs inside an Op, or inside the Op of a Blockwise; none for scalar Ops."""
    core = op.core_op if isinstance(op, Blockwise) else op
    if isinstance(core, HasMultipleInnerGraph) and not isinstance(core, ScalarOp):
        yield from core.inner_graphs.values()


def rewrite_compiled_inner_graphs(fgraph: FunctionGraph, rewrite: Callable[[FunctionGraph], None]) -> None:
    """Rewrite the graphs inside Scan, OpFromGraph, LazyIfElse and optimizers, which are compiled with the graph."""
    known: dict[Op, Op] = {}
    for node in fgraph.toposort():
        if node.op not in known:
            known[node.op] = with_rewritten_graph(node.op, rewrite)
        new = known[node.op]
        if new is not node.op:
            outputs = Apply(new, list(node.inputs), [v.type() for v in node.outputs]).outputs
            fgraph.replace_all(list(zip(node.outputs, outputs, strict=True)), reason="opencl_inner_graph")


def with_rewritten_graph(op: Any, rewrite: Callable[[FunctionGraph], None]) -> Any:
    """Return an Op with a rewritten inner graph; the same Op if nothing has changed."""
    if isinstance(op, Blockwise):
        core = with_rewritten_graph(op.core_op, rewrite)
        if core is op.core_op:
            return op
        options = {"gufunc_spec": op.gufunc_spec, "destroy_map": op.destroy_map}
        return type(op)(core, signature=op.signature, name=op.name, **options)
    if isinstance(op, LazyIfElse):
        branches = [with_rewritten_graph(branch, rewrite) for branch in (op.true_branch, op.false_branch)]
        new: Op = LazyIfElse(*branches, op.output_types)
    elif isinstance(op, HasInnerFunction) and not isinstance(op, FinalizedOpFromGraph):
        inner = op.fgraph.unfreeze()
        rewrite(inner)
        new = op.clone_with_inner_graph(inner)
    else:
        return op
    return op if new == op else new


def drop_scan_modes(fgraph: FunctionGraph, linker_type: type) -> None:
    """Remove mode OPENCL from Scan nodes (`scan`'s argument ``mode``).

    PyTensor would apply the mode's rewrites to the nodes inside a loop, including the lift to devices, and run them
    with its own loop, also in functions of other modes.
    """
    for node in fgraph.toposort():
        op = _without_mode(node.op, linker_type) if isinstance(node.op, Scan) else node.op
        if op is not node.op:
            new = op.make_node(*node.inputs).outputs
            fgraph.replace_all(list(zip(node.outputs, new, strict=True)), reason="opencl_drop_scan_modes")


def push_sums_out_of_loops(fgraph: FunctionGraph) -> None:
    """Replace sums of products over all steps of a loop by one product outside of it, as PyTensor's rewrite does."""
    dfs_rewriter(scan_push_out_add, ignore_newtrees=False).rewrite(fgraph)


def _without_mode(op: Scan, linker_type: type) -> Scan:
    """Return a Scan without the mode, also in its inner graph; the same Op if it has none."""
    inner = op.fgraph
    if any(isinstance(node.op, Scan) for node in inner.apply_nodes):
        thawed = inner.unfreeze()
        drop_scan_modes(thawed, linker_type)
        op = op.clone_with_inner_graph(thawed)
    if op.mode is not None and isinstance(get_mode(op.mode).linker, linker_type):
        op = copy(op)
        op.mode, op._fn = None, None
    return op


def _unbatched(node: Apply) -> Apply:
    """Return a node of the core Op in place of a Blockwise, where that Op can compute all batches; else the node."""
    core = getattr(node.op, "core_op", None)
    batch = node.op.batch_ndim(node) if isinstance(node.op, Blockwise) else 0
    if isinstance(core, AllocDiag):  # supports batch dimensions
        shifted = type(core)(axis1=core.axis1 + batch, axis2=core.axis2 + batch, offset=core.offset)
        return shifted(*node.inputs).owner
    if core is None or not _is_inlined(core):
        return node
    return _vectorized(core, node, batch) if batch else core.make_node(*node.inputs)


def _vectorized(core: OpFromGraph, node: Apply, batch: int) -> Apply:
    """Return a node of an OpFromGraph of the batched inner graph."""
    inner = core.fgraph.unfreeze()
    inputs = [v.type() for v in node.inputs]
    outputs = vectorize_graph(inner.outputs, dict(zip(inner.inputs, inputs, strict=True)))
    whole = [_of_batch(new, old, inputs, batch) for new, old in zip(outputs, node.outputs, strict=True)]
    return OpFromGraph(inputs, whole).make_node(*node.inputs)


def _of_batch(value: Variable, wanted: Variable, inputs: Sequence[Variable], batch: int) -> Variable:
    """Broadcast an output that does not depend on all inputs along the batch dimensions."""
    if value.type.broadcastable == wanted.type.broadcastable:
        return value
    core = wanted.type.ndim - batch
    free = [next((v for v in inputs if not v.type.broadcastable[i]), inputs[0]) for i in range(batch)]
    lengths = [v.shape[i] for i, v in enumerate(free)]
    return pt.alloc(value, *lengths, *(value.shape[value.type.ndim - core + i] for i in range(core)))


def _is_inlined(op: Op) -> bool:
    return isinstance(op, OpFromGraph) and not isinstance(op, FinalizedOpFromGraph)


def _stabilized(node: Apply, known: dict[Op, Op]) -> Apply:
    """Return a node whose inner graph is rewritten as the outer graph has been.

    PyTensor's own symbolic Ops and their gradients do not need that.
    """
    op = node.op
    if type(op) is not OpFromGraph:
        return node
    if op not in known:
        inner = op.fgraph.unfreeze()
        rewrite_graph(inner, include=("canonicalize", "stabilize", "specialize"), clone=False)
        known[op] = op.clone_with_inner_graph(inner)
    return known[op].make_node(*node.inputs)


def inline_op_from_graphs(fgraph: FunctionGraph, kept: tuple[type[Op], ...] = ()) -> None:
    """Replace OpFromGraph nodes by their inner graphs, so that these are fused and placed on devices.

    Nodes of the classes `kept` stay; a Blockwise of them does not.
    """
    known: dict[Op, Op] = {}
    while True:
        nodes = [node for node in fgraph.toposort() if not isinstance(node.op, kept)]
        simple = ((node, _stabilized(_unbatched(node), known)) for node in nodes)
        found = [(node, inner) for node, inner in simple if _is_inlined(inner.op)]
        if not found:
            return
        for node, inner in found:
            pairs = list(zip(node.outputs, inline_ofg_node(inner), strict=True))
            typed = [(old, old.type.filter_variable(new)) for old, new in pairs]
            fgraph.replace_all(typed, reason="opencl_inline", import_missing=True)
