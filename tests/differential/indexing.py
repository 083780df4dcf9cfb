"""Steps: views, writes into parts, gathers, scatters, masks."""

import numpy as np
import pytensor.tensor as pt

from tests.differential.data import DTYPES
from tests.differential.graph import CALLS, Rejected


def _shortest(extent):
    return min(extent)


def _bounds(graph, extent):
    if graph.chance(0.3):
        return slice(None, None, graph.pick([-1, 2, -2]))
    n = max(extent)
    start, stop = (None if graph.chance(0.3) else _integer(graph, -n - 2, n + 2) for _ in range(2))
    return slice(start, stop, graph.pick([None, 1, 2, -1, -3]))


def _integer(graph, low, high):
    """An integer; now and then one that is an argument of the function, another one in each call."""
    if graph.chance(0.7):
        return graph.number(low, high)
    return graph.index([graph.number(low, high) for _ in range(CALLS)])


def _places(graph, x):
    """A basic index of as many axes of x as it happens to have."""
    items = []
    for extent in x.extents[: graph.number(1, x.ndim)]:
        n = _shortest(extent)
        items.append(_integer(graph, -n, n - 1) if n and graph.chance(0.3) else _bounds(graph, extent))
    return tuple(items)


def _indexed(graph, ndim=None):
    return graph.some(lambda t: t.ndim > 0 and (ndim is None or t.ndim == ndim), DTYPES, 2)


def subtensor(graph):
    x = _indexed(graph)
    return [(x.variable[_places(graph, x)], x.exact)]


def _write(graph, x, place):
    """``x[place].set(y)`` or ``.inc(y)``, y of any shape that broadcasts."""
    target = x.variable[place]
    extents = graph_extents(graph, target)
    y = graph.partner(
        extents, lambda t: np.can_cast(t.dtype, x.dtype) and not (t.kind == "b") ^ (x.kind == "b"), (x.dtype,)
    )
    is_sum = x.kind in "fc" or (x.kind in "iu" and x.largest < 30 and y.largest < 30 and not x.wild and not y.wild)
    if graph.chance(0.5) and is_sum:
        return [(target.inc(y.variable), x.exact and y.exact and x.kind in "iu")]
    return [(target.set(y.variable), x.exact and y.exact)]


def graph_extents(graph, variable):
    """The extents of a variable that is no result of the graph."""
    term = graph.peek(variable)
    return tuple(zip(*(value.shape for value in term), strict=True)) if variable.type.ndim else ()


def inc_subtensor(graph):
    x = _indexed(graph)
    return _write(graph, x, _places(graph, x))


def _indices(graph, extent, shape_extents, may_fail=False):
    """An integer array of places along an axis; now and then one call has one outside."""
    shapes = list(zip(*shape_extents, strict=True)) if shape_extents else [()] * CALLS
    values = [
        graph.rng.integers(-n, max(n, 1 - n), size=shape) if n or may_fail else None
        for n, shape in zip(extent, shapes, strict=True)
    ]
    if any(value is None for value in values):
        raise Rejected
    if may_fail and values[-1].size:
        values[-1].reshape(-1)[-1] = extent[-1] + graph.number(0, 3)
    dtype = graph.pick(("int64", "int32", "int8"))
    return graph.input(shape_extents, dtype, False, values).variable


def _advanced(graph, x):
    """An index of one or two integer arrays among slices."""
    axes = graph.order(x.ndim)[: 1 if x.ndim == 1 or graph.chance(0.6) else 2]
    shape = (graph.pick(graph.symbols),) if graph.chance(0.7) else graph.extents(graph.pick((2, 0)))
    may_fail = graph.chance(0.1)
    items = [slice(None)] * x.ndim
    for axis in range(x.ndim):
        if axis in axes:
            items[axis] = _indices(graph, x.extents[axis], shape, may_fail)
        elif graph.chance(0.3):
            items[axis] = graph.pick([slice(None, None, -1), slice(1, None), slice(None, None, 2)])
    return tuple(items)


def take(graph):
    x = _indexed(graph)
    return [(x.variable[_advanced(graph, x)], x.exact)]


def scatter(graph):
    x = _indexed(graph)
    return _write(graph, x, _advanced(graph, x))


def _mask(graph, x):
    count = graph.number(1, x.ndim)
    return graph.input(x.extents[:count], "bool", False)


def masked(graph):
    x = _indexed(graph)
    return [(x.variable[_mask(graph, x).variable], x.exact)]


def masked_write(graph):
    x = _indexed(graph)
    place = x.variable[_mask(graph, x).variable]
    value = np.dtype(x.dtype).type(1)
    if graph.chance(0.5) and x.kind in "fc":
        return [(place.inc(value), False)]
    return [(place.set(value), x.exact)]


def take_along_axis(graph):
    x = _indexed(graph)
    axis = graph.number(0, x.ndim - 1)
    indices = _indices(graph, x.extents[axis], x.extents, False)
    return [(pt.take_along_axis(x.variable, indices, axis), x.exact)]


def choose(graph):
    x = _indexed(graph, 2)
    if not all(0 < n <= 32 for n in x.extents[0]):
        raise Rejected  # NumPy takes no more than 64
    mode = graph.pick(("clip", "wrap", "raise"))
    low, high = (0, _shortest(x.extents[0]) - 1) if mode == "raise" else (-3, 9)
    values = [graph.rng.integers(low, high + 1, size=n) for n in x.extents[1]]
    indices = graph.input(x.extents[1:], "int64", False, values)
    return [(pt.choose(indices.variable, x.variable, mode=mode), x.exact)]


def nonzero(graph):
    x = graph.some(lambda t: t.ndim > 0 and t.exact, ("int32", "bool", "float32"), 2)
    if graph.chance(0.4):
        return [(pt.flatnonzero(x.variable), True)]
    return [(place, True) for place in pt.nonzero(x.variable)]


def unravel(graph):
    values = [graph.rng.integers(0, 24, size=n) for n in graph.pick(graph.symbols)]
    flat = graph.input((tuple(map(len, values)),), "int64", False, values).variable
    i, j = pt.unravel_index(flat, (4, 6))
    return [(i, True), (j, True), (pt.ravel_multi_index((i, j), (4, 6)), True)]


STEPS = (subtensor, inc_subtensor, take, scatter, masked, masked_write, take_along_axis, choose, nonzero, unravel)
