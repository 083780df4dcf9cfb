"""Every scalar Op of the table against PyTensor's own Python implementation."""

import re
from functools import cache
from itertools import product

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor import scalar as ps
from pytensor.scalar import math as psm
from pytensor.tensor import math as ptm
from pytensor.tensor.elemwise import Elemwise as HostElemwise

from pytensor_cl.routines.base.routine import SCHEDULES
from pytensor_cl.routines.elemwise.routine import Copy, Elemwise
from pytensor_cl.scalar.base import BUILTINS, RULES, Unsupported, element_function, supported
from pytensor_cl.scalar.special import SPECIAL
from tests.helpers import cases_on, on_one_driver, sweep

SIZE = 1000
FLOATS = ("float16", "float32", "float64")
INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
DTYPES = ("bool", "int8", "int32", "int64", "uint8", *FLOATS)
MIXED = (
    ("int64", "uint64"),
    ("uint8", "int8"),
    ("bool", "int8"),
    ("bool", "float32"),
    ("int32", "float32"),
    ("int8", "float16"),
    ("float16", "float32"),
)
TERNARY = (("float32",) * 3, ("bool", "float32", "float64"), ("int32", "int8", "int8"), ("float16",) * 3)
TUPLES = (*((d,) for d in DTYPES), *((d, d) for d in DTYPES), *MIXED, *TERNARY)

# Vector code takes six times as long to build as scalar code: for it one dtype of each kind.
FEWER = {("int32",), ("uint8",), ("int8", "int8"), ("int64", "int64"), ("float16", "float16"), *MIXED[1:3], *MIXED[5:]}
CASES = [("simt", d) for d in TUPLES] + [("cpu", d) for d in TUPLES if d not in FEWER]
# Other drivers have float64 in tests/ops/test_elemwise.py.
ELSEWHERE = (("int8",), ("float16",), ("float32",), ("int32",) * 2, ("float32",) * 2, ("bool", "float32"), *TERNARY[2:])
ELSEWHERE = [("cpu", dtypes) for dtypes in ELSEWHERE]

# For integers and float16 these show that the input is cast; the functions themselves are tested with wider floats.
FUNCTIONS = {*BUILTINS, ps.Cos, ps.Sin, ps.Tan, psm.Psi, psm.TriGamma, psm.Log1mexp}
FUNCTIONS_OF_INTEGERS = {ps.Exp, ps.Sqrt, ps.Floor, psm.Erf, psm.Psi}
RELATIVE = {"float16": 1e-3, "float32": 2e-6, "float64": 2e-13}
# SciPy's own error; the drivers are right to 2 ulp (compared with 120 digits).
SCIPY_ERROR = {psm.Erfc: 1e-12, psm.GammaLn: 1e-8, psm.Psi: 1e-7}
# Near a zero of the function only the absolute error is small, SciPy's too.
ABSOLUTE = {(psm.GammaLn, "float64"): 1e-11, (psm.Psi, "float64"): 1e-14, (psm.Psi, "float32"): 2e-6}
# Beyond this NumPy's own answer depends on the position in the array.
UNSIGNED_RANGE = {"uint32": (-(2.0**31), 2.0**32), "uint64": (-(2.0**63), 2.0**63)}


def instance(kind):
    """The module-level instance of a scalar Op class."""
    return next(v for module in (ps, psm, ptm) for v in vars(module).values() if type(v) is kind)


OPS = tuple(instance(kind) for kind in RULES if kind not in SPECIAL)  # see test_special.py


def output_dtypes(op, dtypes):
    """Dtypes of the outputs, or None if PyTensor has no such node."""
    try:
        return [o.dtype for o in op.make_node(*(ps.get_scalar_type(d)() for d in dtypes)).outputs]
    except TypeError:
        return None


def takes(op, dtypes):
    """Return whether to test an Op with these dtypes."""
    arity = op.nin if op.nin > 0 else 2
    if arity != len(dtypes) or output_dtypes(op, dtypes) is None:
        return False
    if isinstance(op, ps.Identity | ps.Real) or supported(op, dtypes, output_dtypes(op, dtypes), True):
        return False
    if isinstance(op, ptm.MulWithoutZeros):  # PyTensor's own raises on integer overflow
        return dtypes[0] in FLOATS
    if isinstance(op, ps.Pow) and not set(output_dtypes(op, dtypes)) & set(FLOATS):
        return False  # see test_integer_power
    return dtypes[0] in ("float32", "float64") or type(op) not in FUNCTIONS or type(op) in FUNCTIONS_OF_INTEGERS


@cache
def composite(dtypes):
    """All Ops that take these dtypes in one graph: one kernel instead of many."""
    inputs = [ps.get_scalar_type(d)() for d in dtypes]
    ops = [op for op in OPS if takes(op, dtypes)]
    ops = [op for op in ops if not any(op(*inputs) is i for i in inputs)]
    return ops, ps.Composite(inputs, [op(*inputs) for op in ops])


@cache
def routines(context, schedule):
    """The kernels of all dtypes, built as one program."""
    made = {}
    for dtypes in (d for kind, d in cases_on(context.name, CASES, ELSEWHERE) if kind == schedule):
        _, op = composite(dtypes)
        function = element_function(op, dtypes, [o.dtype for o in op.outputs])
        made[dtypes] = Elemwise(context, function, ((False,),) * len(dtypes), 1, (False,) * len(dtypes), schedule)
    context.build(source for routine in made.values() for source in routine.sources())
    return made


def specials(dtype):
    """Values at which functions change their mind."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind == "f":
        common = [0.0, -0.0, np.nan, np.inf, -np.inf, 1, -1, 0.5, -0.5, 2, 1e10, -1e10, 300, -300, 2.5, 1e-30, 1e30]
        with np.errstate(over="ignore"):
            return np.array(common, dtype)
    limits = np.iinfo(dtype)
    return np.array([0, 1, 2, limits.max, limits.min, limits.max - 1], dtype)


def values(rng, dtype):
    """Ordinary values with special ones strewn among them, in every lane."""
    dtype = np.dtype(dtype)
    some = specials(dtype)
    if dtype.kind == "f":
        spread = np.exp(rng.normal(0, 6 if dtype == "float16" else 15, SIZE)) * rng.choice([-1, 1], SIZE)
        with np.errstate(over="ignore"):
            ordinary = np.where(rng.random(SIZE) < 0.5, rng.normal(0, 4, SIZE), spread).astype(dtype)
    elif dtype.kind == "b":
        return rng.choice(some, SIZE)
    else:
        ordinary = rng.integers(0 if dtype.kind == "u" else -9, 20, SIZE).astype(dtype)
    return np.where(rng.random(SIZE) < 0.2, rng.choice(some, SIZE), ordinary)


def on_host(op, arrays):
    """Return what PyTensor's Python implementation computes."""
    node = HostElemwise(op).make_node(*(pt.tensor(dtype=a.dtype, shape=(None,)) for a in arrays))
    node.op.prepare_node(node, None, None, "py")
    storage = [[None]]
    with np.errstate(all="ignore"):
        node.op.perform(node, arrays, storage)
    return np.asarray(storage[0][0]).astype(node.outputs[0].dtype)


def compare(op, got, want, arrays):
    """Assert equality, to some ulp for floats."""
    assert got.dtype == want.dtype, op
    if want.dtype.kind != "f":
        np.testing.assert_array_equal(got, want, err_msg=str(op))
        return
    if isinstance(op, psm.GammaLn):
        want = np.where(np.isneginf(arrays[0]), np.inf, want)  # as C's lgamma; SciPy has -inf
    relative = max(RELATIVE[str(want.dtype)], SCIPY_ERROR.get(type(op), 0))
    absolute = ABSOLUTE.get((type(op), str(want.dtype)), np.finfo(want.dtype).tiny)
    np.testing.assert_allclose(got, want, rtol=relative, atol=absolute, err_msg=str(op))


@sweep(("schedule", "dtypes"), CASES, ELSEWHERE)
def test_all_ops(context, schedule, dtypes, rng):
    ops, _ = composite(dtypes)
    arrays = [values(rng, d) for d in dtypes]
    outputs = routines(context, schedule)[dtypes](*map(context.from_host, arrays))
    for op, output in zip(ops, outputs, strict=True):
        got, some = output.to_host(), arrays
        if isinstance(op, psm.Softplus) and dtypes == ("bool",):
            continue  # PyTensor's own computes it in float16
        if isinstance(op, psm.Psi | psm.TriGamma):  # far below zero SciPy is inaccurate and slow
            near = ~(arrays[0] < -100)
            got, some = got[near], [arrays[0][near]]
        compare(op, got, on_host(op, some), some)


def test_every_op_is_tested():
    tested = {type(op) for dtypes in TUPLES for op in composite(dtypes)[0]}
    assert set(RULES) - set(SPECIAL) - tested == {ps.Identity, ps.Real, ps.Cast, ps.Abs, ps.Conj} - tested


SOURCES = ("bool", "int8", "int64", "uint64", "float16", "float32", "float64")
CASTS = [*product(("simt",), SOURCES), *product(("cpu",), ("bool", "int64", "float16", "float32", "float64"))]


@sweep(("schedule", "source"), CASTS, [("cpu", "int64"), ("cpu", "float32"), ("cpu", "float64")])
def test_cast(context, schedule, source, rng):
    targets = ("bool", "int8", "int32", "int64", "uint8", "uint32", "uint64", *FLOATS)
    targets += ("int16", "uint16", "complex64", "complex128") if schedule == "simt" else ()
    x = values(rng, source)
    copies = {t: Copy(context, source, 1, t, schedule) for t in targets}
    context.build(s for c in copies.values() for s in c.sources())
    on_device = context.from_host(x)
    for target, copy in copies.items():
        with np.errstate(all="ignore"):
            want = x.astype(target)
        keep = np.full(SIZE, True)
        if np.dtype(source).kind == "f" and target in UNSIGNED_RANGE:
            low, high = UNSIGNED_RANGE[target]
            keep = (x > low) & (x < high)
        np.testing.assert_array_equal(copy(on_device)[0].to_host()[keep], want[keep], err_msg=target, strict=True)


def scalar_inputs(*dtypes):
    """Scalar variables."""
    return [ps.get_scalar_type(d)() for d in dtypes]


def run(context, schedule, inputs, outputs, *arrays):
    """Compute a scalar graph for every element of the arrays."""
    op = ps.Composite(inputs, outputs)
    function = element_function(op, [i.dtype for i in inputs], [o.dtype for o in outputs])
    ndim = arrays[0].ndim
    routine = Elemwise(context, function, ((False,) * ndim,) * len(arrays), ndim, (False,) * len(arrays), schedule)
    return [output.to_host() for output in routine(*map(context.from_host, arrays))]


EVERY_DTYPE = ("bool", *INTEGERS, *FLOATS, "complex64", "complex128")
# What takes its result from one input, compares, or computes in the dtype of the result; and which inputs it gets.
BINARY = {
    ps.second: (0, 1),
    ps.switch: (0, 1, 1),
    **dict.fromkeys((ps.eq, ps.lt, ps.add, ps.mul, ps.maximum), (0, 1)),
}


def telling(dtype):
    """Values that a narrower dtype does not hold, or holds only rounded."""
    kind = np.dtype(dtype).kind
    if kind == "c":
        parts = telling("float32" if dtype == "complex64" else "float64")
        return (parts + 1j * parts[::-1]).astype(dtype)
    if kind == "f":
        eps = np.finfo(dtype).eps
        return np.array([1 + eps, -2.5, 3, -1 / 3, 7.25, 1 - 3 * eps, 0, 100.5], dtype)
    if kind == "b":
        return np.array([1, 0, 1, 1, 0, 0, 1, 0], dtype)
    limits = np.iinfo(dtype)
    return np.array([limits.max, limits.min, 5, 7, limits.max // 3, limits.max - 1, 0, 1], dtype)


@on_one_driver
@pytest.mark.parametrize("first", EVERY_DTYPE)
def test_no_dtype_is_narrowed(context, first):
    """Every pair of dtypes: the result's dtype and each of its bits are PyTensor's, but for a rounding of products."""
    jobs = []
    for second in EVERY_DTYPE:
        inputs = scalar_inputs(first, second)
        outputs = {
            op: op(*(inputs[i] for i in order)) for op, order in BINARY.items() if not refused(op, order, inputs)
        }
        composite = ps.Composite(inputs, list(outputs.values()))
        function = element_function(composite, (first, second), [v.dtype for v in outputs.values()])
        jobs.append((second, outputs, Elemwise(context, function, ((False,),) * 2, 1, (False,) * 2, "simt")))
    context.build(source for *_, routine in jobs for source in routine.sources())
    x = telling(first)
    for second, outputs, routine in jobs:
        y = telling(second)[[3, 0, 1, 2, 5, 4, 7, 6]]
        assert set(outputs) == set(BINARY)
        results = routine(context.from_host(x), context.from_host(y))
        for op, got in zip(outputs, results, strict=True):
            want = on_host(op, [(x, y)[i] for i in BINARY[op]])
            rtol = 4 * np.finfo(want.dtype).eps if op in (ps.add, ps.mul) and want.dtype.kind in "fc" else 0
            np.testing.assert_allclose(got.to_host(), want, rtol, strict=True, err_msg=f"{op} of {first}, {second}")


def refused(op, order, inputs):
    """Why a device has no code for an Op."""
    node = op.make_node(*(inputs[i] for i in order))
    return supported(op, [v.dtype for v in node.inputs], [v.dtype for v in node.outputs], True)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8", "uint64"])
def test_integer_power(context, schedule, dtype, rng):
    x, y = scalar_inputs(dtype, dtype)
    base = values(rng, dtype)
    exponent = rng.integers(0, 70, SIZE).astype(dtype)
    powers = [ps.pow(x, y), *(ps.pow(x, ps.constant(n, dtype=dtype)) for n in (0, 1, 2, 7, 30))]
    got = run(context, schedule, [x, y], powers, base, exponent)
    want = [base**exponent, *(base ** np.array(n, dtype) for n in (0, 1, 2, 7, 30))]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtypes", [("int8", "uint16", "int32", "uint64"), ("uint8", "int16", "uint32", "int64")])
def test_integer_division(context, schedule, dtypes, rng):
    """Integers of all magnitudes, near multiples, beyond what floats hold exactly, and by 0 and -1."""
    inputs, arrays = scalar_inputs(*(d for d in dtypes for _ in range(2))), []
    for dtype in dtypes:
        limits, bits = np.iinfo(dtype), 8 * np.dtype(dtype).itemsize
        edges = np.unique(np.array([0, 1, 2, 7, limits.max, limits.max - 1, limits.min, limits.min + 1], dtype))
        edges = np.unique(np.concatenate([edges, np.zeros(1, dtype) - edges, edges // 2, edges[-1:] >> 12]))
        x, y = np.repeat(edges, len(edges)), np.tile(edges, len(edges))
        some = [rng.integers(limits.min, limits.max, 4 * SIZE, dtype=dtype, endpoint=True) for _ in range(2)]
        shifts = rng.integers(0, bits, (2, 4 * SIZE)).astype(dtype)
        divisor = rng.integers(1, 1 << min(25, bits // 2), SIZE).astype(dtype)
        near = divisor * rng.integers(1, 1 << min(25, bits // 2 - 1), SIZE).astype(dtype)
        near += rng.integers(-1, 2, SIZE).astype(dtype)
        arrays.append(np.concatenate([x, some[0] >> shifts[0], near, np.zeros(1, dtype) - near]))
        arrays.append(np.concatenate([y, some[1] >> shifts[1], divisor, divisor]))
    arrays = [np.resize(a, max(map(len, arrays))) for a in arrays]
    pairs = list(zip(inputs[::2], inputs[1::2], strict=True))
    got = run(context, schedule, inputs, [f(x, y) for x, y in pairs for f in (ps.int_div, ps.mod)], *arrays)
    with np.errstate(all="ignore"):
        want = [f(x, y) for x, y in zip(arrays[::2], arrays[1::2], strict=True) for f in (np.floor_divide, np.mod)]
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b, strict=True)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_constant_power(context, schedule, rng):
    exponents = (0, 1, 2, 3, -1, -2, 0.5, -0.5, 1.5, 2.5, 8, 0.3, 11)
    (x,) = scalar_inputs("float64")
    base = np.abs(values(rng, "float64"))
    powers = [ps.pow(x, ps.constant(n, dtype="float64")) for n in exponents]
    with np.errstate(all="ignore"):
        want = [base**n for n in exponents]
    np.testing.assert_allclose(run(context, schedule, [x], powers, base), want, rtol=1e-14)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_half_powers_of_zero_and_infinity(context, schedule, dtype):
    exponents = (-0.5, 1.5, -1.5, 2.5)
    (x,) = scalar_inputs(dtype)
    base = np.array([0.0, -0.0, np.inf, -np.inf, -4, 4], dtype)
    powers = [ps.pow(x, ps.constant(n, dtype=dtype)) for n in exponents]
    with np.errstate(all="ignore"):
        want = [np.power(base, np.full_like(base, n)) for n in exponents]
    np.testing.assert_array_equal(run(context, schedule, [x], powers, base), want)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_casts_to_halves_round_once_and_to_even(context, schedule):
    ulps = np.array([-1, -0.5, -(2.0**-38), 0, 2.0**-38, 0.5, 1])  # of half-way cases, in double precision
    places = [1, 2.0**-14, 2.0**-24, 2.0**-25, 65504, 65520, 1e-300, 1e300]
    x = np.concatenate(
        [p * (1 + (2.0**-11 + ulps * 2.0**-13)) for p in places] + [p * (1 + ulps / 1024) for p in places]
    )
    x = np.concatenate([x, -x, [np.nan, np.inf, -np.inf]])
    with np.errstate(over="ignore"):
        want = x.astype("float16")
    (got,) = Copy(context, "float64", 1, "float16", schedule)(context.from_host(x))
    np.testing.assert_array_equal(got.to_host(), want)
    every = np.arange(2**16, dtype="uint16").view("float16")
    (got,) = Copy(context, "float16", 1, "float32", schedule)(context.from_host(every))
    np.testing.assert_array_equal(got.to_host(), every.astype("float32"))
    (back,) = Copy(context, "float32", 1, "float16", schedule)(got)
    np.testing.assert_array_equal(back.to_host(), every)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_composite_of_several_outputs(context, schedule, rng):
    x, y = scalar_inputs("float32", "float32")
    inner = ps.Composite([x, y], [ps.exp(x) * y, ps.lt(x, y)])
    product, below = inner(x, ps.add(y, ps.constant(np.float32(1))))
    outputs = [ps.switch(below, product, ps.constant(np.float32(-2))), below, ps.exp(x)]
    a, b = rng.normal(size=(2, 13, 17)).astype("float32")
    got = run(context, schedule, [x, y], outputs, a, b)
    want = np.where(a < b + 1, np.exp(a) * (b + 1), -2), a < b + 1, np.exp(a)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_integers_wrap_before_they_are_compared(context, schedule):
    (x,) = scalar_inputs("int8")
    outputs = [ps.gt(ps.add(x, ps.constant(1, dtype="int8")), x), ps.neg(x), ps.sqr(x)]
    a = np.arange(-128, 128).astype("int8")
    got = run(context, schedule, [x], outputs, a)
    for one, want in zip(got, (a + np.int8(1) > a, -a, a * a), strict=True):
        np.testing.assert_array_equal(one, want)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_derivatives_of_gammaln(context, schedule):
    (x,) = scalar_inputs("float64")
    a = np.array([1, 0.5, 0.25, -0.5, -1e6 - 0.5])
    digamma, trigamma = run(context, schedule, [x], [psm.psi(x), psm.tri_gamma(x)], a)
    euler, catalan, log_2 = 0.57721566490153286, 0.91596559417721902, np.log(2)
    want = [-euler, -euler - 2 * log_2, -np.pi / 2 - euler - 3 * log_2, 2 - euler - 2 * log_2, np.log(1e6 + 1)]
    np.testing.assert_allclose(digamma, want, rtol=1e-14)
    want = [np.pi**2 / 6, np.pi**2 / 2, np.pi**2 + 8 * catalan, np.pi**2 / 2 + 4, np.pi**2 - 1 / (1e6 + 1)]
    np.testing.assert_allclose(trigamma, want, rtol=1e-14)


def test_common_subexpressions_are_computed_once():
    x, y = scalar_inputs("float32", "float32")
    inner = ps.Composite([x], [ps.exp(x) + ps.constant(np.float32(1))])
    op = ps.Composite([x, y], [inner(x) * y, inner(x) + ps.exp(x)])
    assert element_function(op, ("float32",) * 2, ("float32",) * 2).statements(16).count("exp_float16(") == 1


@pytest.mark.parametrize("lanes", [1, 16])
def test_float32_graphs_do_not_mention_double(lanes):
    """A device without fp64 rejects the program otherwise."""
    inputs = scalar_inputs("float32", "float32")
    ops = [op for op in OPS if takes(op, ("float32", "float32"))]
    unary = [op for op in OPS if takes(op, ("float32",))]
    op = ps.Composite(inputs, [op(*inputs) for op in ops] + [op(inputs[0]) for op in unary])
    function = element_function(op, ("float32",) * 2, [o.dtype for o in op.outputs])
    text = "\n".join((*function.preambles, function.statements(lanes)))
    assert "double" not in text
    assert "DBL" not in text
    assert not re.search(r"\b(?!0x)\d+\.\d*(e[-+]?\d+)?(?![\w.])", text)
    assert not re.search(r"0x[\da-f.]+p[-+]?\d+(?!f)\b", text)
    assert function.itemsize == 4


class Unheard(ps.UnaryScalarOp):
    """An Op of another package."""


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "reason"),
    [
        (ps.exp, ["float16"], ["float16"], None),
        (ps.add, ["complex64", "float32"], ["complex64"], None),
        (ps.add, ["complex64", "float64"], ["complex128"], "float64, which the device does not have"),
        (psm.erf, ["complex64"], ["complex64"], "no OpenCL kernel for Erf of complex numbers yet"),
        (Unheard(ps.same_out), ["float32"], ["float32"], "no OpenCL kernel for Unheard yet"),
        (ps.exp, ["float64"], ["float64"], "float64, which the device does not have"),
        (ps.lt, ["int32", "float32"], ["bool"], "float64, which the device does not have"),
        (ps.and_, ["int64", "uint64"], ["float64"], "no integer type holds both"),
        (ps.exp, ["float32"], ["float32"], None),
    ],
)
def test_reasons(op, inputs, outputs, reason):
    found = supported(op, inputs, outputs, has_fp64=False)
    assert found is None if reason is None else reason in found


def test_reason_inside_a_composite():
    (x,) = scalar_inputs("float32")
    op = ps.Composite([x], [ps.cast(ps.exp(ps.cast(x, "float64")), "float32")])
    assert "float64" in supported(op, ["float32"], ["float32"], has_fp64=False)
    assert supported(op, ["float32"], ["float32"], has_fp64=True) is None
    inner = ps.Composite([x], [ps.real(psm.erf(ps.complex(x, x)))])
    with pytest.raises(Unsupported, match="Erf of complex"):
        element_function(inner, ["float32"], ["float32"])


def test_code_is_written_once_for_an_op_and_not_for_others_that_equal_it():
    (x,) = scalar_inputs("float32")
    first, other = (ps.Composite([x], [ps.exp(x)]) for _ in range(2))
    functions = [element_function(op, ["float32"], ["float32"]) for op in (first, other, first)]
    assert first == other and first is not other
    assert functions[0] is functions[2] and functions[0] is not functions[1]
    assert element_function(first, ["float64"], ["float64"]) is not functions[0]
