"""Products of loops -> one product outside of the loop, where a step needs nothing of the steps before it.

Two kinds: the product of a row of a sequence with a matrix that is the same in all steps, as a recurrent layer has for
its inputs; and the sum over all steps of products, as the gradient of its weights is.
"""

from dataclasses import replace

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.scan.op import Scan
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.math import Dot

from pytensor_cl._compat import inner_graphs
from pytensor_cl.ops.registry import NoKernel
from pytensor_cl.ops.scan_loop import lift_scan_loop
from pytensor_cl.runtime.registry import default_context_name, get_context

SMALL = 16
"""Rows or columns of matrices that one kernel of a whole loop may hold."""


def _is_matrix_product(node: Apply) -> bool:
    """Return whether a node is a product of two matrices that are not known to be small."""
    is_matmul = isinstance(node.op, Blockwise) and isinstance(node.op.core_op, Dot)
    if not (is_matmul or isinstance(node.op, Dot)) or any(v.type.ndim != 2 for v in node.inputs):
        return False
    return any(n is None or n > SMALL for v in node.inputs for n in v.type.shape)


def _with_plain_products(op: Scan) -> Scan:
    """Return a Scan with Dot in place of Matmul of two matrices, which PyTensor's rewrites of loops look for."""
    graph = op.fgraph.unfreeze()
    found = [n for n in graph.apply_nodes if isinstance(n.op, Blockwise) and _is_matrix_product(n)]
    for node in found:
        old = node.outputs[0]
        graph.replace(old, old.type.filter_variable(pt.dot(*node.inputs)), import_missing=True)
    return op.clone_with_inner_graph(graph) if found else op


def _products_of_sequences(op: Scan, graph: FunctionGraph) -> list[tuple[Variable, int, int]]:
    """Return products of a step with the numbers of a sequence and of a value that is the same in all steps."""
    seqs, non_seqs = list(op.inner_seqs(graph.inputs)), list(op.inner_non_seqs(graph.inputs))
    products = (n for n in graph.toposort() if _is_matrix_product(n))
    return [
        (n.outputs[0], seqs.index(n.inputs[0]), non_seqs.index(n.inputs[1]))
        for n in products
        if n.inputs[0] in seqs and n.inputs[1] in non_seqs
    ]


def _hoist_products_of_sequences(fgraph: FunctionGraph, node: Apply) -> None:
    """Compute the products of all rows of a sequence with a matrix as one product."""
    op, graph = node.op, node.op.fgraph.unfreeze()
    moved = [] if op.info.as_while else _products_of_sequences(op, graph)
    if not moved:
        return
    outer_seqs, outer_non_seqs = op.outer_seqs(node.inputs), op.outer_non_seqs(node.inputs)
    products = []
    for _, k, m in moved:
        x, w = outer_seqs[k][: node.inputs[0]], outer_non_seqs[m]
        flat = pt.dot(x.reshape((x.shape[0] * x.shape[1], x.shape[2])), w)
        products.append(flat.reshape((x.shape[0], x.shape[1], w.shape[1])))
    inputs = list(graph.inputs)
    rows = [pt.TensorType(v.type.dtype, v.type.shape[1:])() for v in products]
    for (old, *_), row in zip(moved, rows, strict=True):
        graph.replace(old, old.type.filter_variable(row), import_missing=True)
    count = op.info.n_seqs
    new = Scan(
        [*inputs[:count], *rows, *inputs[count:]],
        list(graph.outputs),
        replace(op.info, n_seqs=count + len(rows)),
        mode=op.mode,
        truncate_gradient=op.truncate_gradient,
        name=op.name,
        profile=op.profile,
        allow_gc=op.allow_gc,
        strict=op.strict,
    )
    outputs = new.make_node(*node.inputs[: 1 + count], *products, *node.inputs[1 + count :]).outputs
    pairs = [(old, old.type.filter_variable(v)) for old, v in zip(node.outputs, outputs, strict=True)]
    fgraph.replace_all(pairs, reason="opencl_hoist_products", import_missing=True)


def _loops(fgraph: FunctionGraph) -> list[Apply]:
    """Return the loops that do not become one kernel."""
    name = default_context_name()
    loops = (node for node in fgraph.toposort() if type(node.op) is Scan)
    return [node for node in loops if isinstance(lift_scan_loop(node, name, get_context(name).info), NoKernel)]


def hoist_products(fgraph: FunctionGraph) -> None:
    """Move products out of loops."""
    for node in _loops(fgraph):
        op = _with_plain_products(node.op)
        if op is not node.op:
            new = op.make_node(*node.inputs).outputs
            fgraph.replace_all(list(zip(node.outputs, new, strict=True)), reason="opencl_hoist_products")
    if _loops(fgraph):
        inner_graphs.push_sums_out_of_loops(fgraph)
    for node in _loops(fgraph):
        _hoist_products_of_sequences(fgraph, node)
