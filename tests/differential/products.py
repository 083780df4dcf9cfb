"""Steps: products of vectors, matrices and batches of them, dense and sparse."""

import numpy as np
import pytensor.sparse as ps
import pytensor.tensor as pt
from scipy import sparse

from tests.differential.data import FLOATS
from tests.differential.graph import CALLS, Rejected

_DTYPES = ("float32", "float64", "float32", "int32", "complex64", "float16")


def _factor(graph, *ndims):
    x = graph.some(lambda t: t.kind != "b" and not t.wild and t.ndim in ndims and t.largest < 60, _DTYPES, ndims[0])
    if x.dtype in ("int8", "uint8", "int16", "uint16"):
        raise Rejected  # it wraps round
    return x


def _columns(graph):
    return graph.pick(graph.symbols) if graph.chance(0.5) else (graph.pick((1, 3, 9)),) * CALLS


def _second(graph, x, extents, fits=lambda t: True):
    """The other factor: of the same dtype for most, so that a kernel is reached."""
    try:
        if graph.chance(0.4):
            return graph.any(lambda t: t.kind == x.kind and not t.wild and t.largest < 60 and t.extents == extents)
    except Rejected:
        pass
    return graph.input(extents, x.dtype if graph.chance(0.8) else graph.pick(_DTYPES), wild=False)


def dot(graph):
    x = _factor(graph, 2, 1)
    inner = x.extents[-1]
    y = _second(graph, x, (inner, _columns(graph))[: graph.number(1, 2)])
    return [(pt.dot(x.variable, y.variable), False)]


def transposed_dot(graph):
    x = _factor(graph, 2)
    y = _second(graph, x, (_columns(graph), x.extents[0]))
    return [(pt.dot(x.variable.T, y.variable.T), False)]


def matmul(graph):
    x = _factor(graph, 3, 2, 4)
    *batch, _, inner = x.extents
    kept = batch[graph.number(0, len(batch)) :]
    y = _second(graph, x, (*((1,) * CALLS if graph.chance(0.2) else e for e in kept), inner, _columns(graph)))
    return [(pt.matmul(x.variable, y.variable), False)]


def affine(graph):
    x = graph.some(lambda t: t.kind in "fc" and t.ndim == 2 and not t.wild and t.largest < 60, FLOATS, 2)
    rows, inner = x.extents
    n = () if graph.chance(0.4) else (_columns(graph),)
    w, b = graph.input((inner, *n), x.dtype, False), graph.input((rows, *n), x.dtype, False)
    scale = np.float16(0.5)
    options = [
        lambda: scale * pt.dot(x.variable, w.variable) - np.int8(2) * b.variable,
        lambda: pt.tanh(pt.dot(x.variable, w.variable) + b.variable),
        lambda: b.variable + pt.dot(x.variable, w.variable) * w.variable.sum(),
    ]
    return [(graph.pick(options)(), False)]


_EINSUMS = (("ij,jk->ik", 2, 2), ("ij,ij->i", 2, 2), ("bij,bjk->bik", 3, 3), ("ij,kj->ki", 2, 2), ("bij,j->bi", 3, 1))


def einsum(graph):
    formula, first, second = graph.pick(_EINSUMS)
    x = graph.some(lambda t: t.is_float and t.ndim == first and not t.wild and t.largest < 60, FLOATS, first)
    left, right = formula.split("->")[0].split(",")
    known = dict(zip(left, x.extents, strict=True))
    y = graph.input(tuple(known.get(name) or _columns(graph) for name in right), x.dtype, False)
    assert y.ndim == second
    return [(pt.einsum(formula, x.variable, y.variable), False)]


def outer(graph):
    x = _factor(graph, 1)
    y = _second(graph, x, (_columns(graph),))
    return [(pt.outer(x.variable, y.variable), False)]


def tensordot(graph):
    x = _factor(graph, 3)
    y = _second(graph, x, (x.extents[2], x.extents[1], _columns(graph)))
    return [(pt.tensordot(x.variable, y.variable, axes=[[1, 2], [1, 0]]), False)]


def sparse_product(graph):
    """A constant sparse matrix times a dense one, from either side."""
    y = graph.some(lambda t: t.dtype in FLOATS[:2] and t.ndim == 2 and not t.wild and t.largest < 60, FLOATS[:2], 2)
    from_left = not graph.chance(0.4)
    inner = y.extents[0 if from_left else 1]
    if len(set(inner)) > 1 or not inner[0]:
        raise Rejected
    shape = (5, inner[0]) if from_left else (inner[0], 4)
    dense = np.where(graph.rng.random(shape) < 0.4, graph.rng.normal(size=shape), 0).astype(y.dtype)
    matrix = ps.as_sparse_variable(graph.pick([sparse.csr_matrix, sparse.csc_matrix])(dense))
    return [(ps.dot(matrix, y.variable) if from_left else ps.dot(y.variable, matrix), False)]


STEPS = (dot, matmul, affine, transposed_dot, einsum, outer, tensordot, sparse_product)
