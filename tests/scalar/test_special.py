"""Special functions against SciPy and mpmath on a grid, and elementary ones in units in the last place."""

import re
from itertools import product

import mpmath
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor import scalar as ps
from pytensor.scalar import math as psm
from scipy import special

import benchmarks.elementary
from benchmarks.special import DTYPES, FAMILIES, errors
from pytensor_cl.codegen.coefficients.register_tables import ERF_LAST, ERFC_LAST, ERFC_QUADRATIC, TABLES, linear
from pytensor_cl.codegen.coefficients.series import bessel_power, debye, stirling, temme
from pytensor_cl.codegen.dtypes import ctype, vector_type
from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.routines.base.routine import SCHEDULES
from pytensor_cl.routines.elemwise.routine import Elemwise
from pytensor_cl.scalar.base import element_function
from pytensor_cl.scalar.special import SPECIAL
from tests.helpers import assert_all_on_device, opencl, sweep

NAMES = [name for family in FAMILIES for name in family.names]
LIMIT = {"float32": 1e-6, "float64": 1e-12}


@sweep(("dtype", "schedule"), list(product(DTYPES, SCHEDULES)), [("float64", "cpu")])
def test_worst_errors(context, dtype, schedule):
    found = {name: (worst, where) for name, worst, where in errors(context, dtype, schedule)}
    assert {n: f for n, f in found.items() if not f[0] <= LIMIT[dtype]} == {}


def test_every_function_is_on_the_grid():
    known = {
        type(op) for op in vars(psm).values() if isinstance(op, ps.ScalarOp) and type(op).__module__ == psm.__name__
    }
    assert known == {type(getattr(psm, name)) for name in NAMES}
    assert set(SPECIAL) <= known


@sweep(("dtype", "schedule"), list(product(DTYPES, SCHEDULES)), [("float32", "cpu"), ("float64", "simt")])
def test_elementary_functions_are_within_four_units(context, dtype, schedule):
    found = {name: (ulp, where) for name, ulp, where in benchmarks.elementary.errors(context, dtype, schedule)}
    assert {n: f for n, f in found.items() if not f[0] <= 4} == {}


PRECISE = [
    ("gammainc", (592241.7365872213, 588636.4761238259), 1.3404585950652885e-06),
    ("gammainc", (972683.394318862, 968036.8165325532), 1.1876127449435111e-06),
    ("gammaincc", (1822.3227895438104, 2637.4750941686634), 7.940213227826136e-64),
    ("gammaincc", (1e10, 1e10), 0.49999867019239),
    ("gammaln", (0.9999999999999997,), 1.922514364044002781e-16),
    ("gammaln", (-np.inf,), -np.inf),
    ("psi", (-0.9999999999999998,), -4503599627370495.5772),
    ("jv", (-42.0, 764.6741097736268), -0.001859989877227399882),
    ("jv", (1508.5073953, 1517.6664952), 0.0587681272461171538),
    ("jv", (-99999.5, 1.0), -np.inf),
    ("betainc", (1e13, 1e13, 0.5), 0.5),
    ("betainc", (1e30, 1e20, 0.5), 0.0),
    ("owens_t", (5.794832124886582, 0.0001595780571490031), 1.2970946149714448e-12),
    ("ndtri_exp", (-218338.51525762238,), -660.8042113352545),
]


def one_kernel(context, cases, arity):
    """All functions of so many arguments, each of its own variables, in one kernel."""
    inputs = [ps.float64() for _ in range(arity * len(cases))]
    results = [getattr(psm, name)(*inputs[arity * k : arity * (k + 1)]) for k, (name, _, _) in enumerate(cases)]
    op, count = ps.Composite(inputs, results), len(inputs)
    function = element_function(op, ("float64",) * count, ("float64",) * len(cases))
    return Elemwise(context, function, ((False,),) * count, 1, (False,) * count, "simt")  # builds sooner


@pytest.mark.parametrize("arity", [1, 2, 3])
def test_where_scipy_is_less_precise(context, arity):
    cases = [case for case in PRECISE if len(case[1]) == arity]
    arguments = [context.from_host(np.array([x])) for _, values, _ in cases for x in values]
    got = [float(out.to_host()[0]) for out in one_kernel(context, cases, arity)(*arguments)]
    np.testing.assert_allclose(got, [want for *_, want in cases], rtol=1e-12)


def test_incomplete_gamma_functions_of_vectors(context):
    """Arguments where SciPy is less precise, and next to what is no number."""
    cases = [(name, *values, want) for name, values, want in PRECISE if name.startswith("gammainc")]
    a, x = (np.array([case[k] for case in cases] + [np.nan, 0, -1, 3, np.inf]) for k in (1, 2))
    lower, upper = (apply(context, "cpu", op, a, x)[0] for op in (psm.gammainc, psm.gammaincc))
    got = [(lower if case[0] == "gammainc" else upper)[k] for k, case in enumerate(cases)]
    np.testing.assert_allclose(got, [case[-1] for case in cases], rtol=1e-12)
    np.testing.assert_array_equal(np.isnan(lower[len(cases) :]), [True, True, True, False, True])
    np.testing.assert_allclose(lower[-2], special.gammainc(3, 3), rtol=1e-13)
    assert "gammainc_double8" in element_function(psm.gammainc, ("float64",) * 2, ("float64",)).statements(8)


def test_incomplete_beta_function_of_vectors(context, rng):
    """Arguments that are rare, in some lanes only."""
    cases = [(*values, want) for name, values, want in PRECISE if name == "betainc"]
    a, b, x = (np.append([case[k] for case in cases], rng.uniform(0.01, 1, 90)) for k in range(3))
    a[10:60] *= 30
    b[30:80] *= 50
    a[20], b[25], x[35], a[70] = np.nan, 0, -1, 1e-7
    (got,) = apply(context, "cpu", psm.betainc, a, b, x)
    np.testing.assert_allclose(got[: len(cases)], [case[-1] for case in cases], rtol=1e-12)
    np.testing.assert_allclose(got[len(cases) :], special.betainc(a, b, x)[len(cases) :], rtol=1e-12)
    assert "betainc_double8" in element_function(psm.betainc, ("float64",) * 3, ("float64",)).statements(8)


@sweep(("dtype",), [("float32",), ("float64",)], [("float64",)])
def test_inverses_and_polygamma_of_vectors(context, rng, dtype):
    """Results are the same as of the code of scalars, which is what the lanes with rare arguments get."""
    a, b = (np.exp(rng.uniform(-5, 9, 300)).astype(dtype) for _ in range(2))
    p = np.where(rng.random(300) < 0.5, rng.random(300), 10.0 ** -rng.uniform(0, 30, 300)).astype(dtype)
    p[::20], p[1::20], p[2::40], a[3::40], b[4::40] = 0, 1, np.nan, np.inf, 0
    n, x = rng.integers(0, 40, 300).astype(dtype), a.copy()
    x[::9], n[::11] = -2.25, 171
    cases = [(psm.gammaincinv, a, p), (psm.gammainccinv, a, p), (psm.betaincinv, a, b, p), (psm.polygamma, n, x)]
    for op, *arrays in cases:
        (got,), (want,) = (apply(context, schedule, op, *arrays) for schedule in ("cpu", "simt"))
        changed = [array * (1 - 4 * np.finfo(dtype).eps) for array in arrays[-1:]]
        with np.errstate(all="ignore"):
            allowed = np.abs(apply(context, "simt", op, *arrays[:-1], *changed)[0].astype("float64") - want)
            off = np.abs(got.astype("float64") - want) - np.nan_to_num(allowed, nan=0, posinf=0)
        alike = (got == want) | (np.isnan(got) & np.isnan(want))
        relative = off[~alike] / np.maximum(np.abs(want[~alike]), np.finfo(dtype).tiny)
        assert (relative < (1e-5 if dtype == "float32" else 1e-12)).all(), op


EDGES = (0.25, -1.25, -3.5, -9.75, 1.5, 2.5, 4, 6.5, 9.5, 9.9, 20.25, -20.25, 87, -87.25, 88.5, 1000, 99999, -1e-9)
WIDE_EDGES = (26.6, 27.1, -50.5, 600, 708, 709.5, -709.25, 710.4, -710.4, -744.25, 1e-300, -1e-300, 1e300, 2.0**60)


def bounded(function):
    """For functions that grow as exp: mpmath has no such numbers."""
    return lambda x: function(min(max(x, -9999), 9999))


def test_two_dtypes_in_one_kernel(context, rng):
    """Functions that there are for whole registers, of float32 and of float64 in one kernel."""
    names, dtypes = ("betainc", "gammainc", "gammaincc", "log1mexp"), ("float32", "float64")
    arities = {"betainc": 3, "log1mexp": 1}
    inputs = [ps.get_scalar_type(d)() for d in dtypes for _ in range(3)]
    parts = [(getattr(psm, n), inputs[3 * k : 3 * k + arities.get(n, 2)]) for k in range(2) for n in names]
    op = ps.Composite(inputs, [f(*(-x for x in xs)) if f is psm.log1mexp else f(*xs) for f, xs in parts])
    function = element_function(op, [i.dtype for i in inputs], [o.dtype for o in op.outputs])
    arrays = [rng.uniform(0.1, 1, 100).astype(i.dtype) for i in inputs]
    outputs = Elemwise(context, function, ((False,),) * 6, 1, (False,) * 6, "cpu")(*map(context.from_host, arrays))
    for got, (f, xs), number in zip(outputs, parts, range(len(parts)), strict=True):
        values = [arrays[inputs.index(x)].astype("float64") for x in xs]
        want = np.log(-np.expm1(-values[0])) if f is psm.log1mexp else getattr(special, names[number % 4])(*values)
        np.testing.assert_allclose(got.to_host(), want, rtol=3e-6 if got.dtype == "float32" else 1e-12)


@pytest.mark.parametrize("dtypes", [("float32", "float64"), ("float64", "float32")])
def test_two_dtypes_of_elementary_functions_in_one_kernel(context, rng, dtypes):
    """What the text of a function for one dtype defines does not hide that for the other one, whichever comes first."""
    functions = {
        ps.arctan: np.arctan,
        ps.tanh: np.tanh,
        ps.log: np.log,
        ps.log1p: np.log1p,
        ps.sin: np.sin,
        psm.erfc: special.erfc,
    }
    inputs = [ps.get_scalar_type(d)() for d in dtypes]
    op = ps.Composite(inputs, [f(x) for x in inputs for f in functions])
    function = element_function(op, list(dtypes), [o.dtype for o in op.outputs])
    arrays = [rng.uniform(0.1, 3, 100).astype(d) for d in dtypes]
    outputs = Elemwise(context, function, ((False,),) * 2, 1, (False,) * 2, "cpu")(*map(context.from_host, arrays))
    wanted = [f(x.astype("float64")) for x in arrays for f in functions.values()]
    for got, want in zip(outputs, wanted, strict=True):
        np.testing.assert_allclose(got.to_host(), want, rtol=1e-6 if got.dtype == "float32" else 1e-14)


def log1mexp(x):
    """log(1 - exp(x)) without a difference of numbers that are nearly the same."""
    if x >= 0:
        return mpmath.nan
    return mpmath.log1p(-mpmath.exp(x)) if x < -1 else mpmath.log(-mpmath.expm1(x))


VECTORS = {
    psm.erf: bounded(mpmath.erf),
    psm.erfc: bounded(mpmath.erfc),
    psm.gammaln: lambda x: mpmath.re(mpmath.loggamma(x)),
    psm.psi: mpmath.digamma,
    psm.tri_gamma: lambda x: mpmath.polygamma(1, x),
    psm.softplus: lambda x: mpmath.log1p(mpmath.exp(x)) if x < 9999 else x,
    psm.log1mexp: bounded(log1mexp),
    ps.arcsinh: mpmath.asinh,
    ps.arccosh: lambda x: mpmath.acosh(x) if x >= 1 else mpmath.nan,
    ps.arctan: mpmath.atan,
    ps.arctanh: lambda x: mpmath.atanh(x) if abs(x) < 1 else mpmath.nan,
    ps.cos: mpmath.cos,
    ps.cosh: bounded(mpmath.cosh),
    ps.exp: bounded(mpmath.exp),
    ps.expm1: bounded(mpmath.expm1),
    ps.log: lambda x: mpmath.log(x) if x > 0 else mpmath.nan,
    ps.log10: lambda x: mpmath.log10(x) if x > 0 else mpmath.nan,
    ps.log2: lambda x: mpmath.log(x, 2) if x > 0 else mpmath.nan,
    ps.log1p: lambda x: mpmath.log1p(x) if x > -1 else mpmath.nan,
    ps.sin: mpmath.sin,
    ps.sinh: bounded(mpmath.sinh),
    ps.tanh: bounded(mpmath.tanh),
}
"""Functions of vectors, and what they are in mpmath."""


def apply(context, schedule, op, *arrays):
    """Compute the outputs of a scalar Op."""
    dtypes, count = tuple(a.dtype.name for a in arrays), len(arrays)
    function = element_function(op, dtypes, (dtypes[0],) * op.nout)
    routine = Elemwise(context, function, ((False,),) * count, 1, (False,) * count, schedule)
    return [output.to_host() for output in routine(*map(context.from_host, arrays))]


def all_of_them(dtype):
    """Every function of `VECTORS` in one kernel."""
    x = ps.get_scalar_type(dtype)()
    return ps.Composite([x], [op(x) for op in VECTORS])


@sweep(("dtype", "schedule"), list(product(DTYPES, SCHEDULES)), [("float64", "cpu")])
def test_tails_and_subnormal_numbers(context, dtype, schedule, rng):
    limits = np.finfo(dtype)
    sizes = [limits.smallest_subnormal * 8, limits.tiny, *EDGES, *(WIDE_EDGES if dtype == "float64" else ())]
    edges = np.array([*sizes, -limits.tiny], dtype)
    x = np.append(edges, [np.nan, np.inf, -np.inf] * 20).astype(dtype)[rng.permutation(len(edges) + 60)]
    finite = np.isfinite(x)
    for (op, exact), got in zip(VECTORS.items(), apply(context, schedule, all_of_them(dtype), x), strict=True):
        with mpmath.workdps(40):
            want = np.array([float(exact(mpmath.mpf(float(v)))) for v in x[finite]])
        with np.errstate(all="ignore"):
            unit = np.maximum(np.spacing(np.abs(want).astype(dtype)), limits.smallest_subnormal).astype("float64")
            rounded = want.astype(dtype)
            near = np.abs(got[finite].astype("float64") - want) <= 5 * unit
        same = (got[finite] == rounded) | (np.isnan(rounded) & np.isnan(got[finite]))
        wrong = ~(near | same)
        assert dict(zip(x[finite][wrong].tolist(), got[finite][wrong].tolist(), strict=True)) == {}, op
        assert np.isnan(got[np.isnan(x)]).all(), op


@sweep(("dtype", "schedule"), list(product(DTYPES, SCHEDULES)), [("float32", "cpu")])
def test_poles_and_signs_of_zero(context, dtype, schedule):
    x = np.array([0.0, -0.0, -1, -2, -1e9, 1, 2], dtype)
    got = dict(zip(VECTORS, apply(context, schedule, all_of_them(dtype), x), strict=True))
    inf, nan = np.inf, np.nan
    np.testing.assert_array_equal(got[psm.gammaln], [inf, inf, inf, inf, inf, 0, 0])
    np.testing.assert_array_equal(got[psm.psi][:5], [-inf, inf, nan, nan, nan])
    np.testing.assert_array_equal(got[psm.tri_gamma][:5], inf)
    np.testing.assert_array_equal(got[psm.erfc][[0, 1, 4]], [1, 1, 2])
    for op in (psm.erf, ps.arcsinh, ps.expm1, ps.log1p, ps.sin, ps.sinh):
        assert got[op][:2].tolist() == [0, 0], op
        assert np.signbit(got[op][:2]).tolist() == [False, True], op


@sweep(("dtype", "schedule"), list(product(DTYPES, SCHEDULES)), [("float64", "cpu")])
def test_powers_of_special_numbers(context, dtype, schedule):
    limits = np.finfo(dtype)
    bases = [
        0.0,
        1,
        2,
        0.5,
        1 + limits.eps,
        3.7,
        np.inf,
        np.nan,
        limits.smallest_subnormal * 5,
        limits.tiny,
        limits.max,
    ]
    exponents = [0.0, 1, 2, 3, 0.5, 1e30, np.inf, np.nan, 1 / limits.eps + 1, 17.25, limits.tiny]
    grids = np.meshgrid([s * b for b in bases for s in (1, -1)], [s * e for e in exponents for s in (1, -1)])
    x, y = (g.ravel().astype(dtype) for g in grids)
    (got,) = apply(context, schedule, ps.pow, x, y)
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.longdouble), y.astype(np.longdouble)).astype(dtype)
    np.testing.assert_allclose(got, want, rtol=2 * limits.eps, atol=limits.smallest_subnormal)
    np.testing.assert_array_equal(np.signbit(got)[~np.isnan(want)], np.signbit(want)[~np.isnan(want)])


def test_functions_fuse_with_their_neighbours(context, rng):
    x = pt.vector("x", dtype="float32")
    f = opencl([x], pt.exp(-pt.erfcx(pt.abs(x))) + 2 * pt.i1(x))
    assert_all_on_device(f)
    a = rng.normal(size=100).astype("float32")
    want = np.exp(-special.erfcx(np.abs(a))) + 2 * special.i1(a)
    np.testing.assert_allclose(f(a), want, rtol=2e-6, atol=1e-6)


def test_gradients_of_bessel_functions(context, rng):
    x = pt.vector("x", dtype="float64")
    value = pt.j0(x) + 2 * pt.j1(x) + pt.jv(2.5, x) + pt.hyp2f1(0.5, 1.5, 2.5, -x)
    with pytensor.config.change_flags(opencl__placement="device"):
        f = opencl([x], pytensor.grad(value.sum(), x))
    assert_all_on_device(f)
    a = rng.uniform(0.1, 30, 50)
    want = special.jvp(0, a) + 2 * special.jvp(1, a) + special.jvp(2.5, a) - 0.3 * special.hyp2f1(1.5, 2.5, 3.5, -a)
    np.testing.assert_allclose(f(a), want, rtol=1e-11, atol=1e-14)


def test_integers_are_cast(context):
    n = pt.lvector("n")
    f = opencl([n], [pt.gammaincc(n, 2.5), pt.kve(n, 2.5), pt.owens_t(n, n)])
    a = np.arange(1, 30)
    want = special.gammaincc(a, 2.5), special.kve(a, 2.5), special.owens_t(a, a)
    for one, other in zip(f(a), want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("lanes", [1, 16])
def test_float32_code_does_not_mention_double(lanes):
    """A device without fp64 rejects the program otherwise."""
    n, x = ps.int32(), [ps.float32() for _ in range(4)]
    arguments = {f.names: (*[n] * f.integers, *x)[: len(f.dtypes("float32"))] for f in FAMILIES}
    op = ps.Composite([n, *x], [getattr(psm, name)(*some) for names, some in arguments.items() for name in names])
    function = element_function(op, ("int32", *("float32",) * 4), ("float32",) * len(NAMES))
    text = re.sub(r"/\*.*?\*/", "", "\n".join((*function.preambles, function.statements(lanes))), flags=re.DOTALL)
    assert "double" not in text
    assert not re.search(r"\b(?!0x)\d+\.\d*(e[-+]?\d+)?(?![\w.])", text)
    assert not re.search(r"0x[\da-f.]+p[-+]?\d+(?!f)\b", text)


def test_coefficients():
    """The first ones, as DLMF prints them in 10.25.2, 10.41.10, 5.11.4 and 8.12.12."""
    assert [1 / c for c in bessel_power(1, 4)] == [1, 2, 12, 144]
    assert [[str(c) for c in row] for row in debye(3)] == [["1"], ["1/8", "-5/24"], ["9/128", "-77/192", "385/1152"]]
    assert [str(c) for c in stirling(4)] == ["1", "1/12", "1/288", "-139/51840"]
    assert [str(row[0]) for row in temme(3, 2)] == ["-1/3", "-1/540", "25/6048"]


WITH_PARTS = {
    "exp": np.exp,
    "expm1": np.expm1,
    "sinh": np.sinh,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "sin": np.sin,
    "erf": special.erf,
    "erfc": special.erfc,
    "gammaln": special.gammaln,
    "psi": special.psi,
    "softplus": lambda x: np.logaddexp(0, x),
}


def ends_of_intervals():
    """The places where registers choose other coefficients, in the functions of float32 that have them."""
    at, b, a = np.arange(0.5, 32), ERFC_QUADRATIC, linear(ERFC_LAST, ERFC_QUADRATIC)
    return {
        "erf": at / linear(ERF_LAST),
        "erfc": (np.sqrt(a**2 + 4 * b * at) - a) / (2 * b),
        "log": np.append(np.arange(16, 24) / 16, np.arange(24, 32) / 32),
        "tanh": np.array([2.0**o * (1 + k / 4) - 1 for o in range(4) for k in range(4)]),
    }


@pytest.mark.parametrize("name", ends_of_intervals())
def test_every_interval(context, rng, name):
    """Whole registers may choose their coefficients from a table."""
    ends = ends_of_intervals()[name]
    x = np.concatenate([rng.normal(0, 1.5, 4000), ends, ends * (1 - 1e-7), ends * (1 + 1e-7), 10.0 ** -np.arange(9)])
    x = np.concatenate([x, -x, [np.inf, -np.inf, np.nan, 0, ERF_LAST, ERFC_LAST, 4, 9.05, 30]]).astype("float32")
    op = getattr(ps, name, None) or getattr(psm, name)
    got = apply(context, "cpu", op, x)[0]
    with np.errstate(all="ignore"):
        want = (getattr(np, name, None) or getattr(special, name))(x.astype("float64"))
        units = np.abs(got - want) / np.spacing(np.maximum(np.abs(want), 1e-38).astype("float32"))
    assert np.nanmax(units[np.isfinite(want)]) < 2.5
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(got[np.isinf(want)], want[np.isinf(want)])


def test_tables_have_columns_of_one_length():
    assert all(len({*map(len, columns)}) == 1 for columns in TABLES.values())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
def test_vectors_of_any_number_of_lanes(context, rng, dtype, lanes):
    """Kernels of products take as many as the device's registers hold."""
    x = ps.get_scalar_type(dtype)("x")
    outputs = [getattr(psm if hasattr(psm, name) else ps, name)(x) for name in WITH_PARTS] + [ps.pow(x, x)]
    function = element_function(ps.Composite([x], outputs), [dtype], [dtype] * len(outputs))
    vector = vector_type(dtype, lanes)
    declared = "\n".join(f"{vector} o{k};" for k in range(len(outputs)))
    stored = "\n".join(f"vstore{lanes}(o{k}, {k}, y);" for k in range(len(outputs)))
    head = f"__kernel void {dtype}_{lanes}(__global const {ctype(dtype)} *x, __global {ctype(dtype)} *y)"
    body = f"const {vector} i0 = vload{lanes}(0, x);\n{declared}\n{{\n{function.statements(lanes)}\n}}\n{stored}"
    kernel = context.kernel(KernelSource(f"{dtype}_{lanes}", f"{head}\n{{\n{body}\n}}", function.preambles))
    value = rng.uniform(0.2, 3, lanes).astype(dtype)
    y = context.empty((len(outputs), lanes), np.dtype(dtype))
    kernel.launch(context.queue, (1,), (1,), context.from_host(value).buffer, y.buffer)
    wanted = [f(value.astype("float64")) for f in (*WITH_PARTS.values(), lambda v: v**v)]
    rtol = 1e-5 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(np.asarray(y), wanted, rtol=rtol, atol=rtol)
