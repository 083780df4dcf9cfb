"""Steps: elementwise functions of every dtype. Each takes the graph and returns variables, and whether they are exact."""

import operator

import numpy as np
import pytensor.tensor as pt

from tests.differential.data import COMPLEX, DTYPES, FLOATS, INTEGERS, SIGNED
from tests.differential.graph import Rejected

NUMBERS = tuple(dtype for dtype in DTYPES if dtype != "bool")
REAL = tuple(dtype for dtype in NUMBERS if dtype not in COMPLEX)


def domain(x):
    """Positive numbers, away from 0."""
    return abs(x) + np.int8(1) if x.type.dtype not in FLOATS else abs(x) + np.float16(0.5)


def unit(x):
    """Numbers strictly between 0 and 1, where float functions are well conditioned."""
    return pt.sigmoid(pt.clip(x, np.int8(-2), np.int8(2)))


ROUNDING = {
    "exp": lambda x: pt.exp(pt.minimum(x, np.int8(4))),
    "exp2": lambda x: pt.exp2(pt.minimum(x, np.int8(5))),
    "expm1": lambda x: pt.expm1(pt.minimum(x, np.int8(4))),
    "log": lambda x: pt.log(domain(x)),
    "log1p": lambda x: pt.log1p(domain(x)),
    "log2": lambda x: pt.log2(domain(x)),
    "log10": lambda x: pt.log10(domain(x)),
    "sqrt": lambda x: pt.sqrt(domain(x)),
    "reciprocal": lambda x: pt.reciprocal(domain(x)),
    "root": lambda x: domain(x) ** np.float16(1.5),
    "cube": lambda x: x**3,
    "sqr": pt.sqr,
    "tanh": pt.tanh,
    "sigmoid": pt.sigmoid,
    "softplus": pt.softplus,
    "log1mexp": lambda x: pt.log1mexp(-domain(x)),
    "sin": pt.sin,
    "cos": pt.cos,
    "tan": lambda x: pt.tan(unit(x)),
    "sinh": lambda x: pt.sinh(pt.clip(x, np.int8(-3), np.int8(3))),
    "cosh": lambda x: pt.cosh(pt.clip(x, np.int8(-3), np.int8(3))),
    "arctan": pt.arctan,
    "arcsin": lambda x: pt.arcsin(unit(x)),
    "arccos": lambda x: pt.arccos(unit(x)),
    "arcsinh": pt.arcsinh,
    "arccosh": lambda x: pt.arccosh(domain(x) + np.int8(1)),
    "arctanh": lambda x: pt.arctanh(unit(x)),
    "deg2rad": pt.deg2rad,
}
SPECIAL = {
    "erf": pt.erf,
    "erfc": pt.erfc,
    "erfcx": lambda x: pt.erfcx(domain(x)),
    "erfinv": lambda x: pt.erfinv(unit(x)),
    "erfcinv": lambda x: pt.erfcinv(unit(x)),
    "gamma": lambda x: pt.gamma(unit(x) + np.int8(1)),
    "gammaln": lambda x: pt.gammaln(domain(x)),
    "psi": lambda x: pt.psi(domain(x)),
    "tri_gamma": lambda x: pt.tri_gamma(domain(x)),
    "polygamma": lambda x: pt.polygamma(np.int8(2), domain(x)),
    "j0": lambda x: pt.j0(unit(x)),
    "j1": lambda x: pt.j1(unit(x)),
    "i0": lambda x: pt.i0(unit(x)),
    "i1": lambda x: pt.i1(unit(x)),
    "jv": lambda x: pt.jv(np.float32(1.5), unit(x)),
    "ive": lambda x: pt.ive(np.float32(1.5), unit(x)),
    "kve": lambda x: pt.kve(np.float32(0.5), unit(x)),
    "gammainc": lambda x: pt.gammainc(domain(x), np.float32(2)),
    "gammaincc": lambda x: pt.gammaincc(np.float32(2), domain(x)),
    "betainc": lambda x: pt.betainc(np.float32(1.5), np.float32(2.5), unit(x)),
    "owens_t": lambda x: pt.owens_t(unit(x), unit(x)),
    "hyp2f1": lambda x: pt.hyp2f1(np.float32(0.5), np.float32(1.5), np.float32(2.5), unit(x) / 2),
}
_WRAPS = ("sqr", "cube")


def _below(limit, kinds="fiu"):
    return lambda t: t.kind in kinds and not t.wild and t.largest < limit


def unary(graph):
    x = graph.some(_below(50), REAL)
    name = graph.pick(list(ROUNDING))
    if name in _WRAPS and not x.is_float:
        raise Rejected  # it wraps round
    return [(ROUNDING[name](x.variable), False)]


def special(graph):
    x = graph.some(lambda t: _below(20)(t) and t.dtype not in ("int8", "uint8"), ("float32", "float64", "int32"))
    return [(graph.pick(list(SPECIAL.values()))(x.variable), False)]


def exact_unary(graph):
    x = graph.any(lambda t: t.exact and t.kind != "c")
    options = [pt.invert]
    if x.is_float:
        options = [pt.ceil, pt.floor, pt.trunc, pt.round, pt.isnan, pt.isinf]
    if x.is_tame_real and x.kind in "fi":
        options += [pt.neg, pt.abs, pt.sgn]
    return [(graph.pick(options)(x.variable), True)]


def cast(graph):
    x = graph.any(lambda t: t.kind != "c")
    target = graph.pick(DTYPES)
    if x.is_float and target not in (*FLOATS, *COMPLEX) and not (x.exact and x.is_tame_real and x.largest < 100):
        raise Rejected
    if x.is_float and target.startswith("u"):
        raise Rejected  # of negative numbers it is undefined
    if target == "float16" and x.largest > 1000:
        raise Rejected
    return [(pt.cast(x.variable, target), x.exact and np.can_cast(x.dtype, target))]


def _wraps(emit, x, y, dtype):
    """Return whether a result of integers does not fit its dtype: PyTensor changes the order and the dtype of sums."""
    for a, b in zip(x.values, y.values, strict=True):
        with np.errstate(all="ignore"):
            wide = emit(a.astype("float64"), b.astype("float64"))
        if not (np.abs(wide) < 2**50).all() or not np.array_equal(wide, wide.astype(dtype).astype("float64")):
            return True
    return False


def arithmetic(graph):
    x = graph.any(lambda t: not t.wild or t.is_float)
    y = graph.partner(x.extents, lambda t: not t.wild or t.is_float)
    emit = graph.pick([operator.add, operator.mul, operator.sub])
    if (x.kind == y.kind == "b") or (emit is operator.sub and "b" in (x.kind, y.kind)):
        raise Rejected  # NUMBA, which computes what stays on the host, is wrong for ~(x * y) of bools
    variable = emit(x.variable, y.variable)
    if variable.type.dtype in INTEGERS and _wraps(emit, x, y, variable.type.dtype):
        raise Rejected
    return [(variable, x.exact and y.exact and variable.type.dtype in INTEGERS)]


def extremum(graph):
    x = graph.any(lambda t: t.kind != "c")
    y = graph.partner(x.extents, lambda t: t.dtype == x.dtype, (x.dtype,))
    return [(graph.pick([pt.maximum, pt.minimum])(y.variable, x.variable), x.exact and y.exact)]


def division(graph):
    x = graph.some(lambda t: t.kind in "fiuc" and not t.wild, NUMBERS)
    y = graph.partner(x.extents, lambda t: t.is_tame_real, ("float32", "int32", "int8"))
    if graph.chance(0.5):
        return [(pt.true_div(x.variable, domain(y.variable)), False)]
    if not (x.exact and y.exact) or x.kind == "c" or not all(value.all() for value in y.values):
        raise Rejected
    return [(graph.pick([operator.floordiv, operator.mod])(x.variable, y.variable), False)]


def comparison(graph):
    x = graph.any(lambda t: t.exact and t.kind != "c")
    y = graph.partner(x.extents, lambda t: t.exact and t.kind != "c")
    return [(graph.pick([pt.lt, pt.gt, pt.le, pt.ge, pt.eq, pt.neq])(x.variable, y.variable), True)]


def logic(graph):
    x = graph.some(lambda t: t.kind in "biu", ("bool", *SIGNED))
    y = graph.partner(x.extents, lambda t: t.dtype == x.dtype, (x.dtype,))
    return [(graph.pick([operator.and_, operator.or_, operator.xor])(x.variable, y.variable), x.exact and y.exact)]


def switch(graph):
    condition = graph.some(lambda t: t.exact and t.kind in "biu", ("bool", "int32"))
    x = graph.partner(condition.extents)
    if graph.chance(0.3):
        return [(pt.switch(condition.variable, x.variable, np.int8(0)), x.exact)]
    y = graph.partner(condition.extents, lambda t: (t.kind == "c") == (x.kind == "c"))
    if "c" in (x.kind, y.kind) and x.kind != y.kind:
        raise Rejected
    return [(pt.switch(condition.variable, x.variable, y.variable), x.exact and y.exact)]


def clip(graph):
    x = graph.some(lambda t: t.kind in "fiu", REAL)
    low, high = graph.pick([(1, 3), (0, 2)]) if x.kind == "u" else graph.pick([(-2, 3), (0, 1), (3, -1)])
    return [(pt.clip(x.variable, np.dtype(x.dtype).type(low), np.dtype(x.dtype).type(high)), x.exact)]


def power(graph):
    x = graph.some(_below(9, "f"), FLOATS)
    y = graph.partner(x.extents, _below(4, "f"), ("float32",))
    # Not an exponent cast from integers: NUMBA, which computes what stays on the host, may then lack __powisf2 and abort.
    if y.largest > 4:
        raise Rejected
    return [(domain(x.variable) ** (y.variable + np.float32(0.25)), False)]


def arctan2(graph):
    x = graph.some(lambda t: t.is_float and not t.wild, FLOATS)
    y = graph.partner(x.extents, lambda t: t.is_float and not t.wild, FLOATS)
    return [(pt.arctan2(x.variable, domain(y.variable)), False)]


_OF_COMPLEX = {
    "exp": lambda z: pt.exp(z / np.float32(4)),
    "sin": lambda z: pt.sin(z / np.float32(4)),
    "tanh": lambda z: pt.tanh(z / np.float32(8)),
    "sqrt": lambda z: pt.sqrt(pt.abs(z) + np.float32(1)),
    "abs": pt.abs,
    "angle": lambda z: pt.angle(pt.real(z) * np.float32(0) + abs(z) + np.float32(1)),
    "square": lambda z: z * z,
    "polar": lambda z: z * pt.conj(z),
}


def of_complex(graph):
    z = graph.some(lambda t: t.kind == "c" and not t.wild and t.largest < 30, COMPLEX)
    if graph.chance(0.5):
        return [(graph.pick([pt.real, pt.imag, pt.conj])(z.variable), z.exact)]
    return [(graph.pick(list(_OF_COMPLEX.values()))(z.variable), False)]


STEPS = (unary, arithmetic, exact_unary, cast, extremum, division, comparison, logic, switch, clip, power, arctan2)
