"""Steps: shapes, joins, creation, diagonals."""

import numpy as np
import pytensor.tensor as pt

from tests.differential.data import DTYPES
from tests.differential.graph import CALLS, Rejected


def dimshuffle(graph):
    x = graph.any()
    static = x.variable.type.shape
    order = [a for a in graph.order(x.ndim) if not (static[a] == 1 and graph.chance(0.4))]
    for _ in range(graph.number(0, 1)):
        order.insert(graph.number(0, len(order)), "x")
    return [(x.variable.dimshuffle(order), x.exact)]


def reshape(graph):
    """By extents that are constants, -1, or computed from a shape."""
    x = graph.any(lambda t: t.ndim < 5)
    v = x.variable
    if x.ndim >= 2 and graph.chance(0.5):
        rows = v.shape[0] * v.shape[1]
        return [(v.reshape((rows, *v.shape[2:]), ndim=x.ndim - 1), x.exact)]
    shape = graph.pick([(-1,), (1, -1), (-1, 1), (-1, 2), (3, -1), (2, 2)])
    return [(v.reshape(shape), x.exact)]


def join_dims(graph):
    x = graph.some(lambda t: 2 <= t.ndim < 5, DTYPES, 3)
    start = graph.number(0, x.ndim - 1)
    return [(pt.join_dims(x.variable, start_axis=start, n_axes=graph.number(0, x.ndim - start)), x.exact)]


def split_dims(graph):
    x = graph.some(lambda t: 0 < t.ndim < 5, DTYPES, 2)
    axis = graph.number(0, x.ndim - 1)
    n = x.variable.shape[axis]
    return [(pt.split_dims(x.variable, axis=axis, shape=graph.pick([(n, 1), (1, n), (1, n, 1)])), x.exact)]


def _like(graph, x, axis):
    """More arrays to join with x along an axis."""
    count = graph.number(1, 3)
    extents = list(x.extents)
    found = []
    for _ in range(count):
        extents[axis] = graph.pick(graph.symbols)
        found.append(
            x if graph.chance(0.3) else graph.input(tuple(extents), graph.pick((x.dtype, "float32", "int8")), False)
        )
    return found


def join(graph):
    x = graph.some(lambda t: t.ndim > 0, DTYPES, 2)
    axis = graph.number(0, x.ndim - 1)
    parts = [x, *_like(graph, x, axis)]
    if len({t.kind == "c" for t in parts}) > 1:
        raise Rejected
    return [(pt.join(axis, *(t.variable for t in parts)), False)]


def stack(graph):
    x = graph.any(lambda t: t.ndim < 4)
    others = [graph.input(x.extents, x.dtype, False) for _ in range(graph.number(1, 2))]
    return [(pt.stack([x.variable, *(t.variable for t in others)], axis=graph.number(0, x.ndim)), x.exact)]


def split(graph):
    x = graph.some(lambda t: t.ndim > 0, DTYPES, 2)
    axis = graph.number(0, x.ndim - 1)
    n = x.variable.shape[axis]
    first = graph.pick([n // 2, n - n // 3, n * 0])
    return [(part, x.exact) for part in pt.split(x.variable, [first, n - first], n_splits=2, axis=axis)]


def alloc(graph):
    x = graph.any(lambda t: t.ndim < 3)
    lead = [graph.pick((2, 1, 3, 0)) for _ in range(graph.number(0, 2))]
    static = x.variable.type.shape
    own = [graph.pick((1, 4)) if s == 1 else x.variable.shape[a] for a, s in enumerate(static)]
    return [(pt.alloc(x.variable, *lead, *own), x.exact)]


def like(graph):
    x = graph.any()
    options = [pt.zeros_like, pt.ones_like, lambda v: pt.full_like(v, np.dtype(x.dtype).type(1))]
    return [(graph.pick(options)(x.variable), True)]


def _extent(graph):
    """A number of elements that is a constant, an argument, or the extent of something."""
    if graph.chance(0.4):
        return graph.number(0, 6)
    if graph.chance(0.5):
        return graph.index([graph.number(0, 9) for _ in range(CALLS)])
    x = graph.any(lambda t: t.ndim > 0)
    return x.variable.shape[0]


def create(graph):
    n, dtype = _extent(graph), graph.pick(("float32", "int64", "float64", "int32"))
    options = [
        lambda: pt.arange(n, dtype=dtype),
        lambda: pt.arange(np.int64(-3), n, 2, dtype=dtype),
        lambda: pt.arange(n, np.int64(-2), -1, dtype=dtype),
        lambda: pt.eye(n, dtype=dtype),
        lambda: pt.eye(n, n + 1, k=graph.number(-2, 3), dtype=dtype),
        lambda: pt.tri(n, n + 2, k=graph.number(-2, 2), dtype=dtype),
        lambda: pt.zeros((n, 2), dtype=dtype),
        lambda: pt.linspace(np.float64(0), np.float64(1), 5) + n,
    ]
    return [(graph.pick(options)(), False)]


def diagonal(graph):
    x = graph.some(lambda t: t.ndim in (1, 2, 3), DTYPES, 2)
    if x.ndim == 1:
        return [(pt.diag(x.variable, graph.number(-2, 2)), x.exact)]
    axis1, axis2 = graph.order(x.ndim)[:2]
    return [(pt.diagonal(x.variable, graph.number(-2, 2), axis1, axis2), x.exact)]


def triangle(graph):
    x = graph.some(lambda t: t.ndim == 2 and t.kind in "fi" and not t.wild, ("float32", "float64", "int32"), 2)
    return [(graph.pick([pt.tril, pt.triu])(x.variable, graph.number(-1, 1)), x.exact)]


def repeat(graph):
    x = graph.some(lambda t: t.ndim > 0, DTYPES, 2)
    axis = graph.number(0, x.ndim - 1)
    if graph.chance(0.5):
        return [(pt.repeat(x.variable, graph.number(0, 3), axis=axis), x.exact)]
    counts = [graph.rng.integers(0, 4, size=n) for n in x.extents[axis]]
    repeats = graph.input((x.extents[axis],), "int64", False, counts)
    return [(pt.repeat(x.variable, repeats.variable, axis=axis), x.exact)]


_PADS = ("constant", "edge", "reflect", "symmetric", "wrap", "linear_ramp", "maximum", "mean")


def pad(graph):
    x = graph.some(lambda t: t.is_tame_real and t.is_float and t.ndim > 0, ("float32", "float64"), 2)
    if any(n < 3 for extent in x.extents for n in extent):
        raise Rejected
    return [(pt.pad(x.variable, graph.number(0, 2), mode=graph.pick(_PADS)), False)]


def rearrange(graph):
    x = graph.some(lambda t: t.ndim > 0, DTYPES, 2)
    axis = graph.number(0, x.ndim - 1)
    options = [
        lambda v: pt.roll(v, graph.number(-3, 3), axis=axis),
        lambda v: pt.flip(v, axis),
        lambda v: pt.moveaxis(v, axis, 0),
        lambda v: pt.tile(v, (2,) * x.ndim),
        lambda v: pt.concatenate([v, v[::-1]], axis=0),
        lambda v: v.flatten(),
        lambda v: pt.diff(v, axis=axis) if x.kind in "fi" and not x.wild else v.T,
    ]
    return [(graph.pick(options)(x.variable), x.exact and not x.is_float)]


STEPS = (dimshuffle, reshape, join_dims, split_dims, join, stack, split, alloc, like)
CREATION = (create, diagonal, triangle, repeat, pad, rearrange)
