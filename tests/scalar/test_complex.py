"""Scalar Ops on complex numbers against PyTensor's own Python implementation."""

from functools import cache

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor import scalar as ps
from pytensor.scalar import math as psm
from pytensor.tensor import math as ptm
from pytensor.tensor.elemwise import Elemwise as HostElemwise

from pytensor_cl.routines.elemwise.routine import Elemwise
from pytensor_cl.scalar.base import element_function, supported
from pytensor_cl.scalar.complex import COMPLEX
from tests.helpers import cases_on, sweep

SIZE = 200
TUPLES = (
    ("complex64",),
    ("complex128",),
    ("complex64", "complex64"),
    ("complex128", "complex128"),
    ("complex64", "float32"),
    ("int8", "complex64"),
    ("float16", "float32"),
    ("float64", "int8"),
    ("complex128", "complex64", "float32"),
    ("bool", "complex64", "float64"),
)
FEWER = [("complex64",), ("complex64", "complex64"), ("float64", "int8"), ("bool", "complex64", "float64")]
CASES = [("simt", d) for d in TUPLES] + [("cpu", d) for d in (*TUPLES[:6], *TUPLES[7:])]
ELSEWHERE = [("cpu", d) for d in FEWER]
RELATIVE = {"4": 3e-6, "8": 1e-14}
SOLID = (ps.Add, ps.Sub, ps.TrueDiv, ps.Reciprocal, ps.Abs, ps.Sign, ps.Sqrt, ps.Log, ps.EQ, ps.NEQ, ps.LT)
SOLID += (ps.LE, ps.GT, ps.GE, ps.Maximum, ps.Minimum, ps.IsNan, ps.IsInf, ps.Conj, ps.Neg, ps.Real, ps.Imag)
OPS = {kind: next(v for m in (ps, psm, ptm) for v in vars(m).values() if type(v) is kind) for kind in COMPLEX}


def output_dtypes(op, dtypes):
    """Dtypes of the outputs, or None if PyTensor has no such node."""
    try:
        return [o.dtype for o in op.make_node(*(ps.get_scalar_type(d)() for d in dtypes)).outputs]
    except TypeError:
        return None


def takes(op, dtypes):
    """Return whether an Op has a node, with complex numbers in it, that the device computes."""
    outputs = output_dtypes(op, dtypes) if (op.nin if op.nin > 0 else 2) == len(dtypes) else None
    if outputs is None or isinstance(op, ps.Identity) or not any(d.startswith("complex") for d in (*dtypes, *outputs)):
        return False
    return supported(op, dtypes, outputs, True) is None


@cache
def composite(dtypes):
    """All Ops that take these dtypes in one graph: one kernel instead of many."""
    inputs = [ps.get_scalar_type(d)() for d in dtypes]
    ops = [op for op in OPS.values() if takes(op, dtypes)]
    return ops, ps.Composite(inputs, [op(*inputs) for op in ops])


def ordinary(rng, dtype):
    """Values of moderate size, some of whose parts are zero or the same."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(SIZE) < 0.5
    parts = [np.where(rng.random(SIZE) < 0.2, rng.integers(-2, 3, SIZE), rng.normal(0, 3, SIZE)) for _ in range(2)]
    return (parts[0] + 1j * parts[1] if dtype.kind == "c" else parts[0]).astype(dtype)


def extreme(rng, dtype):
    """Infinite, very large and very small parts, and parts that are not a number."""
    dtype = np.dtype(dtype)
    if dtype.kind not in "fc":
        return ordinary(rng, dtype)
    limits = np.finfo(dtype)
    some = [0.0, -0.0, 1, -2, np.inf, -np.inf, np.nan, float(limits.max) * 0.6, float(limits.tiny)]
    parts = rng.choice(some, (2, SIZE))
    z = np.empty(SIZE, dtype)
    if dtype.kind == "c":
        z.real, z.imag = parts
    else:
        z[:] = parts[0]
    return z


def on_host(op, arrays):
    """Return what PyTensor's Python implementation computes."""
    node = HostElemwise(op).make_node(*(pt.tensor(dtype=a.dtype, shape=(None,)) for a in arrays))
    node.op.prepare_node(node, None, None, "py")
    storage = [[None]]
    with np.errstate(all="ignore"):
        node.op.perform(node, arrays, storage)
    return np.asarray(storage[0][0]).astype(node.outputs[0].dtype)


@cache
def routines(context, schedule):
    """The kernels of all dtypes, built as one program on CPUs. Compilers of GPUs take seconds for each of them."""
    made = {}
    for dtypes in (d for kind, d in cases_on(context.name, CASES, ELSEWHERE) if kind == schedule):
        _, op = composite(dtypes)
        function = element_function(op, dtypes, [o.dtype for o in op.outputs])
        made[dtypes] = Elemwise(context, function, ((False,),) * len(dtypes), 1, (False,) * len(dtypes), schedule)
    if context.info.kind == "cpu":
        context.build(source for routine in made.values() for source in routine.sources())
    return made


def compare(op, got, want):
    """Assert equality to rounding, relative to the size of the complex number."""
    assert got.dtype == want.dtype, op
    if want.dtype.kind not in "fc":
        np.testing.assert_array_equal(got, want, err_msg=str(op))
        return
    relative = RELATIVE[str(want.real.itemsize)]
    near = np.abs(got - want) <= relative * (np.abs(want) + 1)
    same = (got == want) | (np.isnan(got) & np.isnan(want)) | near
    assert same.all(), (str(op), got[~same][:5], want[~same][:5])


@sweep(("schedule", "dtypes"), CASES, ELSEWHERE)
def test_all_ops(context, schedule, dtypes, rng):
    ops, _ = composite(dtypes)
    arrays = [ordinary(rng, d) for d in dtypes]
    outputs = routines(context, schedule)[dtypes](*map(context.from_host, arrays))
    for op, output in zip(ops, outputs, strict=True):
        compare(op, output.to_host(), on_host(op, arrays))


def parts_agree(got, want):
    """Compare real, or imaginary, parts."""
    if want.dtype.kind == "b":
        return got == want
    relative = RELATIVE[str(want.itemsize)]
    with np.errstate(all="ignore"):
        near = np.abs(got / want - 1) <= relative
    tiny = np.abs(want - got) <= np.finfo(want.dtype).tiny * 4
    return (got == want) | (np.isnan(got) & np.isnan(want)) | near | tiny


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtypes", [("complex64",), ("complex64", "complex64"), ("float16", "float32")], ids="-".join)
def test_single_precision_does_not_mention_double(dtypes, lanes):
    """A device without fp64 rejects the program otherwise."""
    _, op = composite(dtypes)
    function = element_function(op, dtypes, [o.dtype for o in op.outputs])
    text = "\n".join((*function.preambles, function.statements(lanes)))
    assert "double" not in text and "DBL" not in text


@pytest.mark.parametrize("dtypes", [("complex64",), ("complex128",)], ids="-".join)
def test_constant_powers(context, dtypes, rng):
    (z,) = (ps.get_scalar_type(d)() for d in dtypes)
    exponents = (0, 1, 2, 3, -1, -2, 0.5, 2.5, 8, 11, 1 + 2j)
    op = ps.Composite([z], [ps.pow(z, ps.constant(n, dtype=dtypes[0])) for n in exponents])
    values = ordinary(rng, dtypes[0])
    values = values[np.abs(values) > 0.1]
    routine = Elemwise(context, element_function(op, dtypes, dtypes * len(exponents)), ((False,),), 1, (False,))
    for n, output in zip(exponents, routine(context.from_host(values)), strict=True):
        want = values.astype("complex128") ** n
        np.testing.assert_allclose(output.to_host(), want, rtol=10 * RELATIVE[str(values.itemsize // 2)])


@sweep(("schedule", "dtypes"), [c for c in CASES if c[1] in TUPLES[:4]], ELSEWHERE[:2])
def test_infinities_and_nan(context, schedule, dtypes, rng):
    ops, _ = composite(dtypes)
    arrays = [extreme(rng, d) for d in dtypes]
    outputs = routines(context, schedule)[dtypes](*map(context.from_host, arrays))
    for op, output in zip(ops, outputs, strict=True):
        if type(op) not in SOLID:
            continue
        got, want = output.to_host(), on_host(op, arrays)
        good = parts_agree(np.real(got), np.real(want)) & parts_agree(np.imag(got), np.imag(want))
        shown = [a[~good][:6] for a in arrays], got[~good][:6], want[~good][:6]
        assert good.all(), (str(op), *shown)


INVERSES = (ps.arccos, ps.arccosh, ps.arcsin, ps.arcsinh, ps.arctan, ps.arctanh)
FUNCTIONS = (ps.cos, ps.cosh, ps.exp, ps.sin, ps.sinh, ps.tan, ps.tanh)


@pytest.mark.parametrize("functions", [INVERSES, FUNCTIONS], ids=["inverses", "functions"])
def test_functions_of_infinite_parts_and_nan(context, functions):
    """C99's annex G, as NumPy has it; it leaves the sign open where the other part is NaN."""
    parts = np.array([0, 1, -1, 0.5, -2, 1e30, np.inf, -np.inf, np.nan], "float32")
    z = np.zeros((9, 9), "complex64")
    z.real, z.imag = parts[:, None], parts
    large = np.float32(1e30)
    z = z[~((np.abs(z.real) == large) & (z.imag != 0) | (np.abs(z.imag) == large) & (z.real != 0))]
    inputs = [ps.complex64()]
    composite = ps.Composite(inputs, [op(*inputs) for op in functions])
    function = element_function(composite, ("complex64",), ("complex64",) * len(functions))
    routine = Elemwise(context, function, ((False,),), 1, (False,), "simt")
    for op, output in zip(functions, routine(context.from_host(z)), strict=True):
        got, want = output.to_host(), on_host(op, [z])
        is_open = np.isnan(want.real) | np.isnan(want.imag)
        for a, b in ((got.real, want.real), (got.imag, want.imag)):
            a, b = np.where(is_open, np.abs(a), a), np.where(is_open, np.abs(b), b)
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=str(op))


SPECIAL = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan])
ROOTS = (ps.sqrt, ps.log, ps.log2, ps.log10, ps.log1p)


def on_host_or_of_exp(op, z):
    """NumPy's values; those of ``expm1`` without a finite real part are C99's of ``exp``, where NumPy has NaN."""
    want = on_host(op, [z])
    if op is ps.expm1:
        of_exp = on_host(ps.exp, [z])
        want.real = np.where(np.isfinite(z.real), want.real, of_exp.real - 1)
        want.imag = np.where(np.isfinite(z.real), want.imag, of_exp.imag)
    return want


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_special_parts(context, dtype):
    """All pairs of zeros, ones, infinities and NaN give what NumPy gives, with the signs of zeros."""
    z = np.zeros((7, 7), dtype)
    z.real, z.imag = SPECIAL[:, None], SPECIAL
    far = np.array([complex(-1e5, np.inf), complex(-1e5, np.nan), complex(1e5, np.inf)], dtype)
    z = np.concatenate([z.ravel(), far])
    inputs = [ps.get_scalar_type(dtype)()]
    for ops in (INVERSES, (*FUNCTIONS, ps.expm1, ps.exp2), ROOTS):
        composite = ps.Composite(inputs, [op(*inputs) for op in ops])
        function = element_function(composite, (dtype,), (dtype,) * len(ops))
        routine = Elemwise(context, function, ((False,),), 1, (False,))
        for op, output in zip(ops, routine(context.from_host(z)), strict=True):
            got, want = output.to_host(), on_host_or_of_exp(op, z)
            # C99 leaves the signs open beside a NaN, and those of the zeros that an infinite angle gives.
            is_open = np.isnan(want) | ~np.isfinite(z.imag)
            for a, b in ((got.real, want.real), (got.imag, want.imag)):
                signed, want_signed = np.where(is_open, np.abs(a), a), np.where(is_open, np.abs(b), b)
                np.testing.assert_allclose(signed, want_signed, rtol=1e-6, err_msg=str(op))
                is_same = is_open | (np.signbit(a) == np.signbit(b))
                assert is_same.all(), (str(op), z[~is_same], got[~is_same], want[~is_same])
