"""Elementwise functions in compiled functions."""

import operator

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl import GpuArrayType
from pytensor_cl.ops.elemwise import GpuElemwise
from tests.helpers import assert_all_on_device, assert_close, assert_on_device, device_ops, opencl, sweep


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel():
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


def check(inputs, outputs, *values, rtol=1e-5):
    f = opencl(inputs, outputs)
    assert_on_device(f, GpuElemwise)
    with np.errstate(all="ignore"):
        expected = pytensor.function(inputs, outputs, mode="FAST_COMPILE")(*values)
    for got, wanted in zip(f(*values), expected, strict=True):
        assert_close(got, wanted, rtol)
    return f


ANYWHERE = (
    pt.exp,
    pt.expm1,
    pt.exp2,
    pt.sin,
    pt.cos,
    pt.tan,
    pt.arctan,
    pt.sinh,
    pt.cosh,
    pt.tanh,
    pt.arcsinh,
    pt.sqr,
    pt.sigmoid,
    pt.softplus,
    pt.erf,
    pt.erfc,
    pt.neg,
    pt.abs,
    pt.sgn,
    pt.ceil,
    pt.floor,
    pt.round,
    pt.trunc,
    pt.isnan,
    pt.isinf,
    pt.deg2rad,
)
POSITIVE = (
    pt.log,
    pt.log2,
    pt.log10,
    pt.log1p,
    pt.sqrt,
    pt.reciprocal,
    pt.gamma,
    pt.gammaln,
    lambda x: x**-0.5,
    lambda x: x**2.5,
)
UNIT = (pt.arcsin, pt.arccos, pt.arctanh, lambda x: pt.log1mexp(-abs(x) - 0.1))
ABOVE_ONE = (pt.arccosh,)


@sweep(("dtype",), [("float32",), ("float64",)], [("float64",)])
def test_functions_of_one_float(context, rng, dtype):
    x = pt.vector("x", dtype=dtype)
    outputs = [f(x) for f in ANYWHERE]
    outputs += [f(abs(x) + 0.1) for f in POSITIVE] + [f(x / 10) for f in UNIT] + [f(abs(x) + 1) for f in ABOVE_ONE]
    value = np.concatenate([rng.uniform(-9, 9, 100), [0, -0.0, 0.5, 1.5, 2.5, -2.5]]).astype(dtype)
    f = check([x], outputs, value, rtol=3e-5 if dtype == "float32" else 1e-12)
    assert_all_on_device(f)


FLOAT_PAIRS = (
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    pt.maximum,
    pt.minimum,
    pt.arctan2,
    lambda x, y: (abs(x) + 0.1) ** y,
)
COMPARISONS = (pt.lt, pt.gt, pt.le, pt.ge, pt.eq, pt.neq)
INTEGER_PAIRS = (
    operator.add,
    operator.sub,
    operator.mul,
    operator.floordiv,
    operator.mod,
    operator.truediv,
    operator.and_,
    operator.or_,
    operator.xor,
    pt.maximum,
    pt.minimum,
)


@sweep(("dtype",), [("float32",), ("float64",)], [("float64",)])
def test_functions_of_two_floats(context, rng, dtype):
    x, y = pt.vector("x", dtype=dtype), pt.vector("y", dtype=dtype)
    values = [np.round(rng.uniform(-4, 4, 60), 1).astype(dtype) for _ in range(2)]
    values[1][values[1] == 0] = 0.7
    check([x, y], [f(x, y) for f in (*FLOAT_PAIRS, *COMPARISONS)], *values, rtol=3e-5 if dtype == "float32" else 1e-12)


# The others are in tests/scalar/test_scalar.py.
@sweep(("dtype",), [("uint8",), ("int16",), ("uint32",), ("int64",), ("uint64",)], [("int8",), ("int32",)])
def test_functions_of_integers(context, rng, dtype):
    x, y = pt.vector("x", dtype=dtype), pt.vector("y", dtype=dtype)
    info = np.iinfo(dtype)
    values = [rng.integers(info.min, info.max, 200, dtype, endpoint=True) for _ in range(2)]
    values[1][:100] = rng.integers(max(info.min, -9), 9, 100)
    values[1][values[1] == 0] = 3
    outputs = [f(x, y) for f in (*INTEGER_PAIRS, *COMPARISONS)] + [
        pt.invert(x),
        abs(x),
        pt.sqr(x),
        pt.sgn(x),
        pt.switch(x, x, y),
    ]
    check([x, y], outputs, *values)


def test_functions_of_bools(context, rng):
    x, y = pt.vector("x", dtype="bool"), pt.vector("y", dtype="bool")
    outputs = [
        x & y,
        x | y,
        x ^ y,
        ~x,
        x + y,
        x * y,
        pt.eq(x, y),
        pt.switch(x, y, x),
        pt.maximum(x, y),
        x * np.float32(2),
        pt.cast(x, "int8"),
    ]
    check([x, y], outputs, np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool))


DTYPES = ("bool", "int8", "uint32", "int64", "float32", "float64")  # casts
MIXED = ("bool", "int8", "uint32", "int64", "float32")


def test_casts_between_all_dtypes(context):
    inputs = [pt.vector(d, dtype=d) for d in DTYPES]
    outputs = [pt.cast(x, d) for x in inputs for d in DTYPES if d != x.type.dtype]
    values = [np.array([0, 1, 2.7, 100, 0.3]).astype(d) for d in DTYPES]
    check(inputs, outputs, *values)


def test_mixed_dtypes_promote_as_on_the_host(context, rng):
    inputs = [pt.vector(d, dtype=d) for d in MIXED]
    values = [rng.integers(0, 2 if d == "bool" else 9, 7).astype(d) for d in MIXED]
    outputs = [x + y for i, x in enumerate(inputs) for y in inputs[:i]] + [
        pt.lt(x, y) for i, x in enumerate(inputs) for y in inputs[:i]
    ]
    check(inputs, outputs, *values)


def test_broadcasting(context, rng):
    shapes = {"matrix": (5, 7), "row": (1, 7), "column": (5, 1), "vector": (7,), "one": (1, 1), "scalar": ()}
    inputs = {
        n: pt.tensor(n, dtype="float32", shape=tuple(1 if k == 1 else None for k in s)) for n, s in shapes.items()
    }
    m, r, c, v, o, s = inputs.values()
    outputs = [
        m + r,
        m * c,
        r - c,
        v / (abs(m) + 1),
        o * m,
        s * m,
        s + r * c,
        pt.maximum(o, s),
        v * v,
        pt.exp(m) * r + c * v - s,
    ]
    values = [rng.normal(size=shape).astype("float32") for shape in shapes.values()]
    check(list(inputs.values()), outputs, *values)


def test_any_number_of_dimensions_strides_and_no_elements(context, rng):
    x, y = (pt.tensor(n, dtype="float32", shape=(None,) * 5) for n in "xy")
    f = opencl([x, y], [pt.exp(x) * y.transpose(0, 2, 1, 3, 4), x[:, ::-1, :, ::2] + 1])
    for shape in ((2, 3, 3, 2, 5), (0, 3, 3, 2, 5), (2, 1, 1, 1, 1), (1, 1, 1, 1, 40)):
        value, other = (rng.normal(size=shape).astype("float32") for _ in range(2))
        for a in (value, np.asfortranarray(value), value[::-1, ::-1, ::-1, ::-1, ::-1]):
            product, part = f(a, other)
            assert_close(product, np.exp(a) * other.transpose(0, 2, 1, 3, 4))
            assert_close(part, a[:, ::-1, :, ::2] + 1)


def test_composites_of_several_outputs_are_one_kernel(context, rng):
    x, y = pt.vector("x", dtype="float32"), pt.vector("y", dtype="float32")
    a = pt.exp(x) * y
    b = pt.tanh(a) + x
    f = check([x, y], [a, b, a * b - 2, pt.gt(b, 0)], *(rng.normal(size=9).astype("float32") for _ in range(2)))
    assert len(device_ops(f)) == 1 and len(f.maker.fgraph.toposort()) == 1 + 2 + 4


def test_gradients(context, rng):
    x, y = pt.matrix("x", dtype="float32"), pt.vector("y", dtype="float32")
    cost = (
        pt.tanh(x * y) ** 2 + pt.switch(pt.gt(x, 0), x * y, pt.exp(x)) + pt.clip(x, -0.5, 0.5) + pt.maximum(x, y)
    ).sum()
    values = rng.normal(size=(6, 4)).astype("float32"), rng.normal(size=4).astype("float32")
    check([x, y], pt.grad(cost, [x, y]), *values)


def test_device_scalars_and_host_scalars(context, rng):
    g, s = GpuArrayType("float32", ())("g"), pt.scalar("s", dtype="float32")
    x = pt.vector("x", dtype="float32")
    f = opencl([g, s, x], [g * s, (g * x + s).sum(), pt.exp(x * s) - g, (g + 1).transfer(context.name)])
    value = rng.normal(size=5).astype("float32")
    got = f(np.float32(2), 3, value)
    expected = [np.float32(6), (2 * value + 3).sum(), np.exp(value * 3) - 2, np.float32(3)]
    for one, wanted in zip(got, expected, strict=True):
        assert_close(one, wanted)


def test_device_ops_are_equal_by_what_they_compute(context):
    x = pt.vector("x", dtype="float32")
    op = opencl([x], pt.exp(x)).maker.fgraph.outputs[0].owner.inputs[0].owner.op
    again = opencl([x], pt.exp(x) * 1).maker.fgraph.outputs[0].owner.inputs[0].owner.op
    assert op == again and hash(op) == hash(again) and str(op).startswith("Gpu")
    assert op != type(op)(op.host, "elsewhere")
    node = op(GpuArrayType("float32", (None,))("g")).owner
    assert len(op.infer_shape(node, [(pt.constant(3),)])) == 1 and not op.do_constant_folding(None, node)


def test_values_alone_make_an_array_of_one_element(context):
    a, n = pt.scalar("a", dtype="int8"), pt.scalar("n", dtype="int64")
    f = opencl([a, n], pt.clip(a.reshape((-1, abs(n) * 0 + 1)), np.int8(-2), np.int8(3)))
    assert_on_device(f, GpuElemwise)
    assert_close(f(7, 1), np.array([[3]], "int8"))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_odd_functions_keep_the_sign_of_zero(context, dtype):
    x = pt.vector("x", dtype=dtype)
    f = opencl([x], [pt.tanh(x), pt.sinh(x), pt.arcsinh(x), pt.expm1(x), pt.log1p(x), pt.erf(x), pt.sin(x), pt.tan(x)])
    assert_on_device(f, GpuElemwise)
    value = np.tile(np.array([0.0, -0.0], dtype), 10)
    for got in f(value):
        np.testing.assert_array_equal(np.signbit(got), np.signbit(value))
