"""Steps: orders, transforms, conditions, checks, named dimensions, batches of what has no batched kernel."""

import warnings

import numpy as np
import pytensor.tensor as pt
from pytensor.conditional.op import ifelse
from pytensor.gradient import grad
from pytensor.raise_op import Assert, CheckAndRaise
from pytensor.tensor.fft import irfft, rfft
from pytensor.tensor.fourier import fft
from pytensor.xtensor import as_xtensor

from tests.differential.data import FLOATS, INTEGERS
from tests.differential.graph import CALLS, Rejected

_REAL = (*FLOATS, *INTEGERS)
_SINGLE = ("float32", "float64")


def sort(graph):
    x = graph.some(lambda t: t.kind in "fiub" and t.ndim > 0, _REAL, 2)
    return [(pt.sort(x.variable, axis=None if graph.chance(0.2) else graph.number(-x.ndim, x.ndim - 1)), x.exact)]


def argsort(graph):
    x = graph.some(lambda t: t.kind in "fiub" and t.exact and t.ndim > 0, _REAL, 2)
    axis = None if graph.chance(0.2) else graph.number(-x.ndim, x.ndim - 1)
    return [(pt.argsort(x.variable, axis=axis, stable=True), True)]


def searchsorted(graph):
    extent = graph.pick(graph.symbols)
    dtype = graph.pick(("float32", "float64", "int32", "int64"))
    ordered = [np.sort(graph.rng.integers(-9, 9, size=n)) for n in extent]
    table = graph.input((extent,), dtype, False, ordered)
    x = graph.some(lambda t: t.exact and t.dtype == dtype, (dtype,))
    return [(pt.searchsorted(table.variable, x.variable, side=graph.pick(("left", "right"))), True)]


def unique(graph):
    x = graph.some(lambda t: t.exact and t.kind in "iub" and t.ndim > 0, ("int32", "uint8", "int64"), 2)
    if graph.chance(0.5):
        return [(pt.unique(x.variable), True)]
    found = pt.unique(x.variable, return_index=True, return_inverse=True, return_counts=True)
    return [(v, True) for v in found]


def _signal(graph):
    """Two dimensions of lengths that a transform takes, other ones in each call."""
    try:
        return graph.any(
            lambda t: t.dtype in _SINGLE and not t.wild and t.ndim in (2, 3) and t.shortest > 1 and t.largest < 60
        )
    except Rejected:
        lengths = tuple(graph.pick((8, 5, 2, 12, 34)) for _ in range(CALLS))
        return graph.input(((3,) * CALLS, lengths), graph.pick(_SINGLE), wild=False)


def real_transform(graph):
    x = _signal(graph)
    z = rfft(x.variable, graph.pick([None, "ortho", "no_norm"]))
    if graph.chance(0.5):
        return [(z, False)]
    return [(z, False), (irfft(z), False)]


def transform(graph):
    x = _signal(graph)
    return [(fft(x.variable, None, axis=graph.number(0, x.ndim - 1)), False)]


def condition(graph):
    x = graph.any()
    y = graph.input(x.extents, x.dtype, False)
    if y.variable.type != x.variable.type:
        raise Rejected
    flag = graph.input((), "bool", False, [np.bool_(graph.number(0, 1)) for _ in range(CALLS)])
    return [(ifelse(flag.variable, x.variable, y.variable), x.exact)]


def _claim(graph):
    """A claim about values that a device computes; in some calls it is wrong."""
    x = graph.some(lambda t: t.exact and t.kind in "fi" and t.ndim > 0, ("float32", "int32"), 2)
    limit = np.dtype(x.dtype).type(graph.number(0, 12))
    return pt.all(pt.lt(x.variable, limit))


def check(graph):
    x = graph.any()
    claim = _claim(graph)
    if graph.chance(0.5):
        return [(Assert("too large")(x.variable, claim), x.exact)]
    return [(CheckAndRaise(OverflowError, "too large")(x.variable, claim), x.exact)]


def specify_shape(graph):
    x = graph.some(lambda t: t.ndim > 0, ("float32", "int32"), 2)
    axis = graph.number(0, x.ndim - 1)
    wanted = x.extents[axis][graph.number(0, CALLS - 1)]
    static = x.variable.type.shape[axis]
    if static is not None and static != wanted:
        raise Rejected
    shape = [wanted if a == axis else None for a in range(x.ndim)]
    return [(pt.specify_shape(x.variable, shape), x.exact)]


def named(graph):
    """A graph of named dimensions, and the same without names."""
    x = graph.input(((3,) * CALLS, graph.pick(graph.symbols)), graph.pick(_SINGLE), wild=False)
    v = x.variable
    y = graph.input((x.extents[1],), x.dtype, False).variable
    if 1 in y.type.shape or y.type.shape != v.type.shape[1:]:
        raise Rejected
    a, b = as_xtensor(v, dims=("row", "column")), as_xtensor(y, dims=("column",))
    options = [
        ((a + b).sum("row").values, (v + y).sum(0)),
        ((a * b).transpose("column", "row").values, (v * y).T),
        (a.dot(b, dim="column").values, v @ y),
        ((a - a.mean("row")).values, v - v.mean(0)),
        (a.isel(column=slice(None, None, -1)).values, v[:, ::-1]),
    ]
    found, plain = graph.pick(options)
    return [(found, False, plain.astype(found.type.dtype))]


def matrices(graph):
    """Batches of what has no batched kernel, or none at all: well conditioned matrices."""
    x = graph.some(lambda t: t.dtype in _SINGLE and not t.wild and t.ndim in (2, 3) and t.largest < 20, _SINGLE, 3)
    if any(n == 0 for extent in x.extents for n in extent):
        raise Rejected
    v = x.variable
    square = pt.matmul(v, pt.matrix_transpose(v)) + np.dtype(x.dtype).type(20) * pt.eye(v.shape[-2], dtype=x.dtype)
    options = [pt.linalg.inv, pt.linalg.cholesky, lambda m: pt.linalg.solve(m, v), lambda m: pt.linalg.slogdet(m)[1]]
    return [(graph.pick(options)(square), False)]


def gradient(graph):
    """Derivatives of a function of something computed before, by the variables that it depends on."""
    x = graph.any(lambda t: t.dtype in _SINGLE and not t.wild and t.variable.owner is not None and t.largest < 60)
    leaves = [t for t in graph.pool if t.dtype in _SINGLE and t.variable.owner is None]
    cost = graph.pick([pt.sum, lambda v: pt.sqr(v).sum(), lambda v: pt.tanh(v).sum()])(x.variable)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = grad(cost, [t.variable for t in leaves], disconnected_inputs="ignore", return_disconnected="none")
    return [(v, False) for v in found if v is not None]


ORDERS = (sort, argsort, searchsorted, unique)
TRANSFORMS = (real_transform, transform)
CHECKS = (check, specify_shape, condition)
STEPS = (*ORDERS, *CHECKS)
