"""Steps: reductions of all kinds, cumulative ones, functions of rows."""

import pytensor.tensor as pt
from pytensor.tensor.special import log_softmax, softmax

from tests.differential.data import FLOATS
from tests.differential.elementwise import NUMBERS, REAL, domain
from tests.differential.graph import Rejected


def _axes(graph, ndim):
    if graph.chance(0.3):
        return None
    axes = graph.order(ndim)[: graph.number(0 if graph.chance(0.1) else min(1, ndim), ndim)]
    return tuple(a - ndim if graph.chance(0.3) else a for a in axes)


def _options(x):
    if x.kind == "c":
        return [] if x.wild else [pt.sum, pt.prod]
    options = [pt.any, pt.all] if x.kind in "biu" else [pt.mean, pt.var, pt.std] * (not x.wild)
    if not x.wild or x.is_float:
        options += [pt.sum, pt.prod] if x.is_float or x.largest < 2 else [pt.sum]
    return [*options, pt.max, pt.min]


def _is_wide_enough(x):
    return x.is_float or x.largest * max(value.size for value in x.values) < 2**31


def reduction(graph):
    x = graph.any()
    options = _options(x)
    if not options:
        raise Rejected
    emit = graph.pick(options)
    if emit in (pt.mean, pt.var, pt.std) and not all(value.size for value in x.values):
        raise Rejected
    if emit is pt.sum and not _is_wide_enough(x):
        raise Rejected
    variable = emit(x.variable, axis=_axes(graph, x.ndim), keepdims=graph.chance(0.3))
    exact = x.exact and (emit in (pt.max, pt.min, pt.any, pt.all) or x.kind in "biu")
    return [(variable, exact)]


def argmax(graph):
    x = graph.some(lambda t: t.exact and t.kind != "c", NUMBERS)
    axes = _axes(graph, x.ndim)
    if axes is not None and len(axes) > 1:
        axes = axes[0]
    emit = pt.argmin if x.kind in "fi" and not x.wild and graph.chance(0.4) else pt.argmax
    return [(emit(x.variable, axis=axes, keepdims=graph.chance(0.2)), True)]


def max_and_argmax(graph):
    x = graph.some(lambda t: t.exact and t.kind in "fiu" and t.ndim > 0, REAL, ndim=2)
    values, places = pt.max_and_argmax(x.variable, axis=graph.number(0, x.ndim - 1))
    return [(values, True), (places, True)]


def cumulative(graph):
    x = graph.any(lambda t: not t.wild and t.kind != "b")
    axis = None if graph.chance(0.3) or not x.ndim else graph.number(-x.ndim, x.ndim - 1)
    if x.kind in "iu" and not (x.largest < 20 and x.dtype not in ("int8", "uint8")):
        raise Rejected
    emit = pt.cumprod if x.is_float and x.largest < 3 and graph.chance(0.4) else pt.cumsum
    return [(emit(x.variable, axis=axis), x.exact and x.kind in "iu")]


def _row_input(graph):
    x = graph.some(lambda t: t.is_float and not t.wild and t.ndim > 0, FLOATS, ndim=2)
    if not all(value.size for value in x.values) or x.largest > 60:
        raise Rejected
    return x, graph.number(-x.ndim, x.ndim - 1)


def rows(graph):
    """Functions that one `GpuRowwise` kernel computes."""
    x, axis = _row_input(graph)
    v = x.variable
    centred = v - v.mean(axis=axis, keepdims=True)
    options = [
        lambda: softmax(v, axis=axis),
        lambda: log_softmax(v, axis=axis),
        lambda: pt.logsumexp(v, axis=axis),
        lambda: centred / pt.sqrt(v.var(axis=axis, keepdims=True) + 1),
        lambda: v / (abs(v).sum(axis=axis, keepdims=True) + 1),
        lambda: pt.exp(v - v.max(axis=axis, keepdims=True)).sum(axis=axis),
        lambda: (pt.tanh(v) * v).sum(axis=axis),
        lambda: pt.log(domain(v)).max(axis=axis),
    ]
    return [(graph.pick(options)(), False)]


def rows_twice(graph):
    """Two functions of the same rows, with an operand that is broadcast along them."""
    x, axis = _row_input(graph)
    y = graph.partner(x.extents, lambda t: t.is_float and not t.wild, FLOATS)
    if y.largest > 60:
        raise Rejected
    shifted = x.variable + y.variable
    if shifted.type.ndim != x.ndim:
        raise Rejected
    scaled = softmax(shifted, axis=axis) * y.variable
    return [(scaled, False), (pt.sqr(shifted).sum(axis=axis), False)]


REDUCTIONS = (reduction, reduction, argmax, max_and_argmax, cumulative)
ROWS = (rows, rows_twice)
STEPS = (*REDUCTIONS, *ROWS)
