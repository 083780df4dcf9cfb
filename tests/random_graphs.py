"""Random graphs of the Op families that have kernels, with the values that they must give.

Every variable is computed when it is made, by the Python implementation of each Op, so that the generator knows the values: it
takes nothing whose result rounding could change by more than rounding (comparisons, casts to integers and ``floor`` act on exact
values only) and nothing that overflows.
"""

import operator
from dataclasses import dataclass

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Constant
from pytensor.tensor.type import TensorType

FLOATS = ("float32", "float64")
INTEGERS = ("int8", "int32", "int64")
DTYPES = (*FLOATS, "float32", "float32", *INTEGERS, "bool")
LARGEST = 1e4


class Rejected(Exception):
    """A draw that does not fit; another one follows."""


@dataclass(frozen=True)
class Known:
    """A variable, its value, and whether no rounding went into it."""

    variable: object
    value: np.ndarray
    exact: bool

    @property
    def dtype(self):
        return self.variable.type.dtype

    @property
    def is_float(self):
        return self.dtype in FLOATS

    @property
    def is_bool(self):
        return self.dtype == "bool"


def shuffled_strides(value, rng):
    """The same values with other strides: transposed, reversed, every other element."""
    if not value.ndim:
        return value
    axes = rng.permutation(value.ndim)
    store = np.empty([2 * n for n in np.asarray(value.shape)[axes]], value.dtype)
    view = store[tuple(slice(None, None, int(rng.choice([-2, 2]))) for _ in axes)].transpose(np.argsort(axes))
    view[...] = value
    return view


class RandomGraph:
    """A function's worth of random graph.

    Parameters
    ----------
    rng
        Where everything random comes from.
    steps
        How many Ops to apply.
    """

    def __init__(self, rng, steps=12):
        self.rng = rng
        self.inputs = []  # (variable, value)
        self.shared = []
        self.pool = []
        self._values = {}
        for _ in range(rng.integers(2, 5)):
            self.input(self.shape())
        self.results = []
        while len(self.results) < steps:
            self.step()

    def chance(self, probability):
        return self.rng.random() < probability

    def pick(self, options):
        return options[self.rng.integers(len(options))]

    def any(self, fits=lambda known: True):
        found = [k for k in self.pool if fits(k)]
        if not found:
            raise Rejected
        return self.pick(found[-8:] if self.chance(0.6) else found)

    # Inputs

    def shape(self):
        extents = self.rng.choice([0, 1, 1, 2, 3, 4, 5, 8, 17], size=self.rng.choice([0, 1, 1, 2, 2, 2, 3, 4]))
        return tuple(int(n) for n in np.where((extents == 0) & (self.rng.random() < 0.7), 3, extents))

    def data(self, dtype, shape):
        rng = self.rng
        if dtype == "bool":
            return rng.random(shape) < 0.5
        if dtype in FLOATS:
            value = np.asarray(rng.normal(size=shape))
            return np.where(rng.random(shape) < 0.2, np.round(value), value).astype(dtype)
        low, high = (-127, 128) if dtype == "int8" else (-9, 10)
        return rng.integers(low, high, size=shape).astype(dtype)

    def input(self, shape, dtype=None):
        dtype = dtype or self.pick(DTYPES)
        value = np.asarray(self.data(dtype, shape), dtype)
        kind = TensorType(dtype, tuple(n if n == 1 or self.chance(0.15) else None for n in shape))
        if self.chance(0.2):
            variable = pytensor.shared(value, shape=kind.shape)
            self.shared.append(variable)
        else:
            variable = kind()
            self.inputs.append((variable, value))
        known = Known(variable, value, True)
        self._values[variable] = value
        self.pool.append(known)
        return known

    # Values

    def evaluate(self, variable):
        """Compute a variable, and all before it, by the Ops' own Python code."""
        if isinstance(variable, Constant):
            return variable.data
        if variable not in self._values:
            node = variable.owner
            values = [self.evaluate(v) for v in node.inputs]
            storage = [[None] for _ in node.outputs]
            node.op.prepare_node(node, None, None, "py")
            with np.errstate(all="ignore"):
                node.op.perform(node, values, storage)
            for out, (result,) in zip(node.outputs, storage, strict=True):
                # What the Op did not allocate itself may change no more.
                self._values[out] = np.array(result) if isinstance(result, np.ndarray) else result
        return self._values[variable]

    def step(self):
        try:
            variable, exact = self.pick(STEPS)(self)
            value = np.asarray(self.evaluate(variable))
            self.check(variable, value)
        except Rejected:
            return
        known = Known(variable, value, exact)
        self.pool.append(known)
        self.results.append(known)

    def check(self, variable, value):
        if variable.type.dtype not in DTYPES or variable.type.ndim > 5 or value.size > 20_000:
            raise Rejected
        if value.dtype == "int8" and -128 in value:
            raise Rejected  # it has no negative, and PyTensor turns -max(-x) into min(x)
        if value.dtype.kind == "f" and not (np.isfinite(value).all() and np.abs(value).max(initial=0) < LARGEST):
            raise Rejected

    def partner(self, shape, fits=lambda known: True, dtype=None):
        """A variable that broadcasts with a shape; made if there is none."""

        def broadcasts(known):
            kind, extents = known.variable.type, known.value.shape
            pairs = zip(extents[::-1], kind.shape[::-1], shape[::-1], strict=False)
            return len(extents) <= len(shape) and all(n == m or s == 1 for n, s, m in pairs) and fits(known)

        try:
            return self.any(broadcasts) if self.chance(0.7) else self.any(lambda k: broadcasts(k) and k.value.size > 1)
        except Rejected:
            kept = shape[self.rng.integers(0, len(shape) + 1) :]
            return self.input(tuple(1 if self.chance(0.3) else n for n in kept), dtype)


def is_wide(variable):
    """Whether every dimension of length one is known to be: only then may PyTensor broadcast it."""
    return 1 not in [m for n, m in zip(variable.variable.type.shape, variable.value.shape, strict=True) if n is None]


# Steps: each takes the graph and returns a variable and whether it is exact.


def _domain(x):
    return abs(x) + 0.5


ROUNDING = {
    "exp": lambda x: pt.exp(pt.minimum(x, 5)),
    "expm1": lambda x: pt.expm1(pt.minimum(x, 5)),
    "log": lambda x: pt.log(_domain(x)),
    "log1p": lambda x: pt.log1p(_domain(x)),
    "log2": lambda x: pt.log2(_domain(x)),
    "sqrt": lambda x: pt.sqrt(_domain(x)),
    "tanh": pt.tanh,
    "sigmoid": pt.sigmoid,
    "softplus": pt.softplus,
    "sin": pt.sin,
    "cos": pt.cos,
    "arctan": pt.arctan,
    "erf": pt.erf,
    "sqr": pt.sqr,
    "reciprocal": lambda x: pt.reciprocal(_domain(x)),
    "cube": lambda x: x**3,
    "root": lambda x: _domain(x) ** 1.5,
}


def unary(graph):
    x = graph.any(lambda k: not k.is_bool and np.abs(k.value.astype("float64")).max(initial=0) < 50)
    name = graph.pick(list(ROUNDING))
    if name in ("sqr", "cube") and not x.is_float:
        raise Rejected  # it wraps round
    return ROUNDING[name](x.variable), False


def exact_unary(graph):
    x = graph.any(lambda k: k.exact)
    options = [pt.ceil, pt.floor, pt.trunc, pt.round, pt.sgn, pt.isnan, pt.isinf] if x.is_float else [pt.invert]
    if not x.is_bool:
        options += [pt.neg, pt.abs, pt.sgn]
    return graph.pick(options)(x.variable), True


def cast(graph):
    x = graph.any()
    target = graph.pick(DTYPES)
    if x.is_float and target not in FLOATS and not (x.exact and np.abs(x.value).max(initial=0) < 100):
        raise Rejected
    exact = x.exact and not (target == "float32" and x.dtype in ("float64", "int64", "int32"))
    return pt.cast(x.variable, target), exact


def arithmetic(graph):
    x = graph.any()
    y = graph.partner(x.value.shape)
    emit = graph.pick([operator.add, operator.mul, operator.sub, operator.add])
    if (x.is_bool and y.is_bool) or (emit is operator.sub and (x.is_bool or y.is_bool)):
        raise Rejected  # NUMBA, which computes what stays on the host, is wrong for ~(x * y) of bools
    variable = emit(x.variable, y.variable)
    if variable.type.dtype in INTEGERS:
        wide = emit(x.value.astype("int64"), y.value.astype("int64"))
        if not np.array_equal(wide, wide.astype(variable.type.dtype)):
            raise Rejected  # PyTensor changes the order, and with it the dtype, of sums and products
    return variable, x.exact and y.exact and not (x.is_float or y.is_float)


def extremum(graph):
    x = graph.any()
    y = graph.partner(x.value.shape, lambda k: k.dtype == x.dtype, x.dtype)
    return graph.pick([pt.maximum, pt.minimum])(y.variable, x.variable), x.exact and y.exact


def division(graph):
    x = graph.any(lambda k: not k.is_bool)
    y = graph.partner(x.value.shape, lambda k: not k.is_bool, graph.pick(("float32", "int32", "int8")))
    if graph.chance(0.5):
        return pt.true_div(x.variable, _domain(y.variable)), False
    if not (x.exact and y.exact) or not y.value.all():
        raise Rejected
    return graph.pick([operator.floordiv, operator.mod])(x.variable, y.variable), False


def comparison(graph):
    x = graph.any(lambda k: k.exact)
    y = graph.partner(x.value.shape, lambda k: k.exact)
    emit = graph.pick([pt.lt, pt.gt, pt.le, pt.ge, pt.eq, pt.neq])
    return emit(x.variable, y.variable), True


def logic(graph):
    x = graph.any(lambda k: not k.is_float)
    y = graph.partner(x.value.shape, lambda k: not k.is_float and k.is_bool == x.is_bool, x.dtype)
    return graph.pick([operator.and_, operator.or_, operator.xor])(x.variable, y.variable), x.exact and y.exact


def switch(graph):
    condition = graph.any(lambda k: k.exact and (k.is_bool or not k.is_float))
    x = graph.partner(condition.value.shape)
    y = graph.partner(condition.value.shape) if graph.chance(0.7) else None
    if y is None:
        return pt.switch(condition.variable, x.variable, 0), x.exact
    return pt.switch(condition.variable, x.variable, y.variable), x.exact and y.exact


def clip(graph):
    x = graph.any(lambda k: not k.is_bool)
    return pt.clip(x.variable, np.int8(-2), np.int8(3)), x.exact


def power(graph):
    x = graph.any(lambda k: k.is_float and np.abs(k.value).max(initial=0) < 9)
    y = graph.partner(x.value.shape, lambda k: k.is_float and np.abs(k.value).max(initial=0) < 4, "float32")
    # Not an exponent cast from integers: NUMBA, which computes what stays on the host, may then lack __powisf2 and abort.
    return _domain(x.variable) ** (y.variable + np.float32(0.25)), False


def _axes(graph, ndim):
    if graph.chance(0.3):
        return None
    count = graph.rng.integers(0 if graph.chance(0.1) else min(1, ndim), ndim + 1)
    axes = [int(a) for a in graph.rng.choice(ndim, size=count, replace=False)] if ndim else []
    return tuple(a - ndim if graph.chance(0.3) else a for a in axes)


def reduction(graph):
    x = graph.any()
    axes, keep = _axes(graph, x.value.ndim), graph.chance(0.3)
    options = [pt.sum, pt.sum, pt.any, pt.all] if not x.is_float else [pt.sum, pt.sum, pt.prod, pt.mean, pt.var]
    if x.value.size:
        options += [pt.max, pt.min]
    emit = graph.pick(options)
    if emit in (pt.mean, pt.var) and not x.value.size:
        raise Rejected
    exact = x.exact and (emit in (pt.max, pt.min) or not x.is_float)
    return emit(x.variable, axis=axes, keepdims=keep), exact


def dimshuffle(graph):
    x = graph.any()
    static = x.variable.type.shape
    order = [a for a in range(len(static)) if not (static[a] == 1 and graph.chance(0.4))]
    order = [int(a) for a in graph.rng.permutation(order)] if order else []
    for _ in range(graph.rng.integers(0, 2)):
        order.insert(int(graph.rng.integers(0, len(order) + 1)), "x")
    return x.variable.dimshuffle(order), x.exact


def _factors(size, rng):
    shape = []
    while size > 1:
        factor = int(rng.choice([d for d in range(2, size + 1) if size % d == 0]))
        shape.append(factor)
        size //= factor
    for _ in range(rng.integers(0, 2)):
        shape.insert(int(rng.integers(0, len(shape) + 1)), 1)
    return shape


def reshape(graph):
    x = graph.any(lambda k: k.value.ndim < 5)
    size = x.value.size
    shape = _factors(size, graph.rng) if size else [0]
    if shape and size and graph.chance(0.5):
        shape[graph.rng.integers(len(shape))] = -1
    if not graph.chance(0.3) or len(shape) > 5:
        return x.variable.reshape(tuple(shape[:5]) if len(shape) <= 5 else (-1,)), x.exact
    wanted = graph.input((), "int64")  # an extent that is known at run time only
    variable = x.variable.reshape((-1, *([abs(wanted.variable) * 0 + 1] if size else [])))
    return variable, x.exact


def _bounds(graph, n):
    if graph.chance(0.3):
        return slice(None, None, graph.pick([-1, 2, -2]))
    start, stop = (None if graph.chance(0.3) else int(v) for v in graph.rng.integers(-n - 2, n + 3, size=2))
    return slice(start, stop, graph.pick([None, 1, 1, 2, -1, -3]))


def _symbolic(graph, item):
    """The same index, now and then by an input of the function."""
    if isinstance(item, slice) or not graph.chance(0.3):
        return item
    index = pt.scalar(dtype="int64")
    value = np.asarray(item, "int64")
    graph.inputs.append((index, value))
    graph._values[index] = value
    return index


def subtensor(graph):
    x = graph.any(lambda k: k.value.ndim > 0)
    items = []
    for n in x.value.shape[: graph.rng.integers(1, x.value.ndim + 1)]:
        as_integer = n > 0 and graph.chance(0.3)
        items.append(_symbolic(graph, int(graph.rng.integers(-n, n)) if as_integer else _bounds(graph, n)))
    return x.variable[tuple(items)], x.exact


def alloc(graph):
    x = graph.any(lambda k: k.value.ndim < 3 and is_wide(k))
    lead = [int(n) for n in graph.rng.choice([1, 2, 3, 5], size=graph.rng.integers(0, 3))]
    static, shape = x.variable.type.shape, x.value.shape
    own = [int(graph.pick([1, 2, 4])) if s == 1 else n for s, n in zip(static, shape, strict=True)]
    return pt.alloc(x.variable, *lead, *own), x.exact


def like(graph):
    x = graph.any()
    return graph.pick([pt.zeros_like, pt.ones_like])(x.variable), True


def product(graph):
    x = graph.any(lambda k: k.value.ndim in (1, 2) and not k.is_bool)
    n = x.value.shape[-1]
    fits = lambda k: k.value.ndim in (1, 2) and k.value.shape[0] == n and not k.is_bool  # noqa: E731
    try:
        y = graph.any(fits) if graph.chance(0.6) else graph.any(lambda k: fits(k) and k.value.ndim == 2)
    except Rejected:
        y = graph.input((n, int(graph.pick([1, 2, 7])))[: graph.rng.integers(1, 3)], graph.pick((*FLOATS, x.dtype)))
    return pt.dot(x.variable, y.variable), False


def matmul(graph):
    x = graph.any(lambda k: k.value.ndim in (2, 3, 4) and not k.is_bool)
    *batch, _, n = x.value.shape
    dtype = x.dtype if graph.chance(0.8) else "float32"
    columns = int(graph.pick([1, 3, 9]))
    y = graph.input((*batch[graph.rng.integers(0, len(batch) + 1) :], n, columns), dtype)
    return pt.matmul(x.variable, y.variable), False


def affine(graph):
    x = graph.any(lambda k: k.value.ndim == 2 and k.is_float)
    m, n = x.value.shape
    as_vector = graph.chance(0.4)
    w = graph.input((n,) if as_vector else (n, 4), x.dtype)
    b = graph.input((m,) if as_vector else (m, 4), x.dtype)
    return 0.5 * pt.dot(x.variable, w.variable) - 2 * b.variable, False


_ELEMENTWISE = (unary, unary, exact_unary, cast, arithmetic, arithmetic, extremum, division, comparison, logic, switch)
_OTHERS = (clip, power, reduction, reduction, reduction, dimshuffle, reshape, subtensor, subtensor, alloc, like)
STEPS = (*_ELEMENTWISE, *_OTHERS, product, matmul, affine)
