"""Functions of device arrays against NumPy's: values, dtypes and shapes, of all layouts."""

import itertools

import numpy as np
import pytensor
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pytensor_cl.array as xp
from pytensor_cl.runtime.array import GpuArray
from tests.conftest import DRIVERS, context_of

NUMPY = {
    "acos": "arccos",
    "acosh": "arccosh",
    "asin": "arcsin",
    "asinh": "arcsinh",
    "atan": "arctan",
    "atan2": "arctan2",
    "atanh": "arctanh",
    "bitwise_invert": "invert",
    "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift",
    "pow": "power",
    "round": "rint",
}
"""Functions that NumPy calls otherwise."""
UNARY = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "bitwise_invert",
    "ceil",
    "conj",
    "cos",
    "cosh",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "isfinite",
    "isinf",
    "isnan",
    "log",
    "log10",
    "log1p",
    "log2",
    "logical_not",
    "negative",
    "positive",
    "reciprocal",
    "round",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
]
BINARY = [
    "add",
    "atan2",
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "copysign",
    "divide",
    "equal",
    "floor_divide",
    "greater",
    "greater_equal",
    "hypot",
    "less",
    "less_equal",
    "logaddexp",
    "logical_and",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "multiply",
    "nextafter",
    "not_equal",
    "pow",
    "remainder",
    "subtract",
]
DTYPES = ("bool", "int8", "uint8", "int32", "uint32", "int64", "float16", "float32", "float64", "complex64")
BECOMES_FLOAT = {np.dtype("float16"), np.dtype("float32"), np.dtype("float64")}
CLOSE = {"float16": 2e-3, "float32": 2e-6, "float64": 1e-13, "complex64": 5e-6, "complex128": 1e-12}
ONE_EACH = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=25, derandomize=True)


def close(found, expected, what=""):
    """Assert equal shapes, and equal values within the precision of the dtype; ints that became floats may be narrower."""
    assert isinstance(found, GpuArray), what
    assert found.shape == np.shape(expected), (what, found.shape, np.shape(expected))
    tolerance = CLOSE.get(str(found.dtype), 0)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=tolerance, atol=tolerance, err_msg=str(what))


def laid_out(context, host, kind):
    """The values as a device array of another layout: a slice of a larger array, transposed, or backwards."""
    if kind == "plain" or not host.ndim:
        return context.from_host(host)
    if kind == "transposed":
        return context.from_host(np.ascontiguousarray(host.T)).T
    if kind == "backwards":
        return context.from_host(np.ascontiguousarray(host[::-1]))[::-1]
    larger = np.zeros([2 * n + 1 for n in host.shape], host.dtype)
    larger[tuple(slice(1, None, 2) for _ in host.shape)] = host
    return context.from_host(larger)[tuple(slice(1, None, 2) for _ in host.shape)]


LAYOUTS = ("plain", "transposed", "backwards", "sliced")


def values(rng, dtype, shape=(3, 4)):
    """Values of which functions are defined: small, some negative where there are such."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) > 0.5
    if dtype.kind in "iu":
        return rng.integers(0 if dtype.kind == "u" else -3, 6, shape).astype(dtype)
    real = rng.uniform(-2, 2, shape)
    return (real + 1j * rng.uniform(-2, 2, shape)).astype(dtype) if dtype.kind == "c" else real.astype(dtype)


def expected_of(name, *operands):
    """Return what NumPy computes; None if it refuses the dtypes."""
    with np.errstate(all="ignore"):
        try:
            return getattr(np, NUMPY.get(name, name))(*operands)
        except TypeError:
            return None


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_operand(context, rng, name):
    kinds = itertools.cycle(LAYOUTS)
    for dtype in DTYPES:
        host = values(rng, dtype)
        expected = expected_of(name, host)
        if name == "reciprocal" and host.dtype.kind in "iu":
            expected = np.where(np.abs(host) == 1, host, 0).astype(host.dtype)  # NumPy's of zero differs by type
        array = laid_out(context, host, next(kinds))
        if expected is None:
            with pytest.raises(TypeError):
                getattr(xp, name)(array)
            continue
        if name in ("ceil", "floor", "trunc", "round") and host.dtype.kind in "iub":
            expected = host
        found = getattr(xp, name)(array)
        becomes_float = host.dtype.kind in "iub" and expected.dtype in BECOMES_FLOAT
        assert found.dtype == ("float64" if becomes_float else expected.dtype), (name, dtype)
        if becomes_float:
            expected = expected_of(name, host.astype("float64"))
        close(found, expected, (name, dtype))


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_operands(context, rng, name):
    layouts = itertools.cycle(itertools.product(LAYOUTS, LAYOUTS[::-1]))
    pairs = [(d, d) for d in DTYPES] + [
        ("int8", "uint8"),
        ("int32", "float32"),
        ("float16", "float64"),
        ("bool", "int64"),
    ]
    for first, second in pairs:
        a, b = values(rng, first), values(rng, second)
        if name in ("pow", "bitwise_left_shift", "bitwise_right_shift") and np.dtype(second).kind == "i":
            b = abs(b)
        if name in ("floor_divide", "remainder", "divide"):
            b = np.where(b == 0, b.dtype.type(1), b)
        expected = expected_of(name, a, b)
        given_arrays = [laid_out(context, v, kind) for v, kind in zip((a, b), next(layouts), strict=True)]
        if expected is None:
            with pytest.raises(TypeError):
                getattr(xp, name)(*given_arrays)
            continue
        found = getattr(xp, name)(*given_arrays)
        becomes_float = a.dtype.kind in "iub" and b.dtype.kind in "iub" and expected.dtype in BECOMES_FLOAT
        assert found.dtype == ("float64" if becomes_float else expected.dtype), (name, first, second)
        if becomes_float:
            expected = expected_of(name, a.astype("float64"), b.astype("float64"))
        close(found, expected, (name, first, second))


def test_numbers_take_the_dtype_of_the_array(context):
    x = context.from_host(np.array([1, 2, 3], "uint8"))
    assert (x + 1).dtype == "uint8" and (x + np.int32(1)).dtype == "int32" and (1 - x).dtype == "uint8"
    assert (x * 2.0).dtype == "float64" and (x + 1j).dtype == "complex128"
    half = context.from_host(np.array([1, 2], "float16"))
    assert (half * 2).dtype == (half * 2.5).dtype == "float16" and (half * np.float32(2)).dtype == "float32"
    with pytest.raises(OverflowError, match="300 is out of bounds for uint8"):
        x + 300
    close(x < 300, np.array([True] * 3))
    close(x < -1, np.array([False] * 3))
    close(x == 256, np.array([False] * 3))
    close(x == 2, np.array([False, True, False]))


def test_integers_become_floatx(context):
    x = context.from_host(np.array([1, 2, 3], "int64"))
    for floatx in ("float32", "float64"):
        with pytensor.config.change_flags(floatX=floatx):
            found = (
                xp.zeros((2,)),
                xp.full((2,), 1.5),
                xp.mean(x),
                xp.linspace(0, 1, 3),
                xp.asarray([0.5]),
                xp.sqrt(x),
                x / 2,
            )
            assert {f.dtype for f in found} == {np.dtype(floatx)}


def test_broadcasting_of_many_shapes(context, rng):
    shapes = [
        ((), (3,)),
        ((3, 1), (1, 4)),
        ((2, 3, 4), (4,)),
        ((5, 1, 3), (4, 1)),
        ((0, 3), (3,)),
        ((1,), (2, 2, 2, 2, 2)),
    ]
    for first, second in shapes:
        a, b = (rng.standard_normal(shape).astype("float32") for shape in (first, second))
        close(context.from_host(a) + context.from_host(b), a + b)
    with pytest.raises(ValueError, match=r"add.*broadcast.*\(2,\) \(3,\)"):
        xp.zeros((2,)) + xp.zeros((3,))


def test_in_place_operators_write_through_views(context, rng):
    host = rng.standard_normal((4, 6)).astype("float32")
    x, expected = context.from_host(host), host.copy()
    buffer = x.buffer
    for target, numpys in ((x, expected), (x[1:, ::2], expected[1:, ::2]), (x.T, expected.T)):
        target += 1
        numpys += 1
        target *= target
        numpys *= numpys
    x[1:] -= x[:-1]  # source and target overlap
    expected[1:] -= expected[:-1].copy()
    close(x, expected)
    assert x.buffer is buffer
    with pytest.raises(TypeError, match=r"same_kind"):
        integers = xp.arange(3)
        integers += 1.5
    with pytest.raises(ValueError, match=r"shape"):
        x += xp.zeros((3, 4, 6), dtype="float32")
    with pytest.raises(ValueError, match="same place"):
        wide = xp.broadcast_to(x[:1], (4, 6))
        wide += 1


def test_outputs_given_by_the_caller(context):
    x, out = xp.arange(6, dtype="float32").reshape(2, 3), xp.zeros((3, 2)).T
    assert xp.exp(x, out=out) is out
    np.testing.assert_allclose(np.asarray(out), np.exp(np.arange(6).reshape(2, 3)), rtol=1e-6)
    total = xp.zeros((3,), dtype="float64")
    assert xp.sum(x, axis=0, out=total) is total
    close(total, [3, 5, 7])
    assert xp.add(x[:1], x[:1], out=out) is out  # a smaller result is repeated
    close(out, [[0, 2, 4]] * 2)
    for wrong, message in (
        (xp.zeros((2, 2)), "out has shape"),
        (xp.zeros(3), "out has shape"),
        (xp.zeros((2, 3), dtype="int32"), "same_kind"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            xp.exp(x, out=wrong)


def test_limits(context, rng):
    host, high = rng.standard_normal((3, 4)).astype("float32"), rng.random((3, 4)).astype("float32")
    x, limit = context.from_host(host), context.from_host(high)
    close(xp.clip(x, -0.5, limit), np.clip(host, -0.5, high))
    close(xp.clip(x, min=0), np.clip(host, 0, None))
    assert xp.clip(x, 0, limit, out=limit) is limit  # the output is an operand
    close(limit, np.clip(host, 0, high))


def test_real_and_imaginary_parts_are_views(context):
    host = np.array([1 + 2j, 3 - 4j], "complex64")
    z = context.from_host(host)
    z.imag[...] = 7
    close(z, [1 + 7j, 3 + 7j])
    close(z.real, [1, 3])
    close(xp.real(z[::-1]), [3, 1])
    close(xp.imag(xp.ones((2,))), [0, 0])


REDUCTIONS = ("sum", "prod", "max", "min", "mean", "var", "std")


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(context, rng, name):
    layouts = itertools.cycle(LAYOUTS)
    for dtype in ("bool", "int8", "uint32", "float16", "float32", "float64", "complex64"):
        host = values(rng, dtype, (2, 3, 4))
        if name in ("max", "min") and host.dtype.kind == "c":
            continue
        wide = {"b": "int64", "i": "int64", "u": "uint64"}.get(host.dtype.kind, host.dtype)
        wide = wide if name in ("sum", "prod") else "float64" if name in ("mean", "var", "std") else host.dtype
        kind = {"f": host.dtype, "c": host.dtype}.get(host.dtype.kind, np.dtype(wide))
        for axis in (None, 0, -1, (0, 2), ()):
            array = laid_out(context, host, next(layouts))
            source = host.astype("float64") if host.dtype == "float16" else host
            expected = getattr(np, name)(source, axis=axis, keepdims=axis == 0)
            found = getattr(xp, name)(array, axis=axis, keepdims=axis == 0)
            real = np.dtype("float32") if kind == "complex64" and name in ("var", "std") else kind
            assert found.dtype == real, (name, dtype)
            tolerance = {"float16": 1e-2}.get(str(host.dtype), 1e-5)
            np.testing.assert_allclose(
                np.asarray(found), expected, rtol=tolerance, atol=tolerance, err_msg=(name, dtype)
            )


def test_reductions_of_nothing(context):
    nothing = xp.zeros((0, 3), dtype="float32")
    close(nothing.sum(axis=0), np.zeros(3))
    close(nothing.prod(), 1)
    assert bool(nothing.all()) and not bool(nothing.any())
    for function in (xp.max, xp.min, xp.argmax, xp.argmin):
        with pytest.raises(ValueError, match=r"no elements"):
            function(nothing)
    close(nothing.max(axis=1), np.zeros(0))


def test_shapes(context, rng):
    host = rng.standard_normal((2, 3, 4)).astype("float32")
    x = context.from_host(host)
    views = (
        (x.reshape(4, 6), host.reshape(4, 6)),
        (x.reshape(-1, 2), host.reshape(-1, 2)),
        (x.T, host.T),
        (x.mT, host.mT),
        (xp.permute_dims(x, (2, 0, 1)), host.transpose(2, 0, 1)),
        (xp.moveaxis(x, 0, -1), np.moveaxis(host, 0, -1)),
        (xp.expand_dims(x, axis=1), host[:, None]),
        (xp.flip(x, axis=1), host[:, ::-1]),
        (xp.squeeze(x[:1]), host[0]),
        (xp.broadcast_to(x[0], (5, 3, 4)), np.broadcast_to(host[0], (5, 3, 4))),
        (xp.diagonal(x, offset=1, axis1=1, axis2=2), np.diagonal(host, 1, 1, 2)),
        (xp.unstack(x, axis=1)[2], host[:, 2]),
        (xp.split(x, 2, axis=2)[1], np.split(host, 2, axis=2)[1]),
        (xp.hsplit(x, [1])[1], np.hsplit(host, [1])[1]),
        (xp.hsplit(x[0, 0], 2)[1], np.hsplit(host[0, 0], 2)[1]),
        (xp.vsplit(x, 2)[1], np.vsplit(host, 2)[1]),
        (xp.dsplit(x, 2)[1], np.dsplit(host, 2)[1]),
    )
    for found, expected in views:
        close(found, expected)
        assert found.buffer is x.buffer
    with pytest.raises(ValueError, match="number of sections must be positive, not 0"):
        xp.split(x, 0)
    for name, few in (("hsplit", x[0, 0, 0]), ("vsplit", x[0, 0]), ("dsplit", x[0])):
        with pytest.raises(ValueError, match=f"{name}: only arrays of {few.ndim + 1} or more dimensions"):
            getattr(xp, name)(few, 2)
    copies = (
        (xp.concat([x, x[:, :1]], axis=1), np.concatenate([host, host[:, :1]], axis=1)),
        (xp.stack([x, x], axis=-1), np.stack([host, host], axis=-1)),
        (xp.tile(x, (2, 1, 3)), np.tile(host, (2, 1, 3))),
        (xp.roll(x, (1, -2), axis=(0, 2)), np.roll(host, (1, -2), axis=(0, 2))),
        (xp.roll(x, 5), np.roll(host, 5)),
        (xp.repeat(x, 2, axis=1), np.repeat(host, 2, axis=1)),
        (xp.repeat(x, [0, 2, 1], axis=1), np.repeat(host, [0, 2, 1], axis=1)),
        (x.T.reshape(24), host.T.reshape(24)),
        (
            xp.pad(x, ((0, 1), (2, 0), (1, 1)), constant_values=3),
            np.pad(host, ((0, 1), (2, 0), (1, 1)), constant_values=3),
        ),
        (xp.pad(x, 1, mode="reflect"), np.pad(host, 1, mode="reflect")),
        (xp.tril(x, k=1), np.tril(host, 1)),
    )
    for found, expected in copies:
        close(found, expected)
        assert found.buffer is not x.buffer
    for wrong in (lambda: x.reshape(5, 5), lambda: xp.concat([x, x[:, :, :1]]), lambda: xp.squeeze(x, axis=0)):
        with pytest.raises(ValueError, match=r"reshape|concat|drop dimension"):
            wrong()


def test_sorting_and_searching(context, rng):
    host = rng.integers(-5, 5, (3, 40)).astype("float32")
    host[1, 3] = np.nan
    x = context.from_host(host)
    for axis in (0, 1):
        close(xp.sort(x, axis=axis), np.sort(host, axis=axis))
        close(xp.argsort(x, axis=axis), np.argsort(host, axis=axis, stable=True))
        backwards = np.take_along_axis(host, np.asarray(xp.argsort(x, axis=axis, descending=True)), axis=axis)
        np.testing.assert_array_equal(backwards, np.asarray(xp.sort(x, axis=axis, descending=True)))
        close(xp.argmax(x, axis=axis), np.argmax(host, axis=axis))
        close(xp.argmin(x, axis=axis), np.argmin(host, axis=axis))
        close(xp.cumulative_sum(x, axis=axis), np.cumsum(host, axis=axis))
        close(
            xp.cumulative_prod(x[:, :3], axis=axis, include_initial=True),
            np.cumulative_prod(host[:, :3], axis=axis, include_initial=True),
        )
        close(xp.diff(x, axis=axis, n=2), np.diff(host, axis=axis, n=2))
    found = xp.unique_all(x)
    assert len(found.values) == len(np.unique(host, equal_nan=False))
    np.testing.assert_array_equal(np.asarray(found.values[found.inverse_indices]), host)
    ordered = np.sort(host[0])
    close(
        xp.searchsorted(context.from_host(ordered), x[2], side="right"), np.searchsorted(ordered, host[2], side="right")
    )
    close(xp.nonzero(x > 0)[1], np.nonzero(host > 0)[1])
    close(xp.quantile(x[0], [0.25, 0.5]), np.quantile(host[0], [0.25, 0.5]).astype("float32"))
    close(xp.median(x, axis=1), np.median(host, axis=1))
    with pytest.raises(TypeError, match="complex"):
        xp.sort(context.from_host(np.zeros(3, "complex64")))


def test_products(context, rng):
    pairs = (
        ((4, 3), (3, 2)),
        ((3,), (3,)),
        ((4, 3), (3,)),
        ((3,), (3, 4)),
        ((2, 1, 4, 3), (5, 3, 2)),
        ((2, 4, 3), (3, 2)),
    )
    for dtype in ("float32", "float64", "int32", "bool", "complex64", "float16"):
        for first, second in pairs:
            a, b = values(rng, dtype, first), values(rng, dtype, second)
            found = context.from_host(a) @ context.from_host(b)
            assert found.dtype == (a @ b).dtype
            tolerance = 2e-2 if dtype == "float16" else 1e-5
            np.testing.assert_allclose(np.asarray(found), a @ b, rtol=tolerance, atol=tolerance)
    x, y = (rng.standard_normal(s) for s in ((2, 3, 4), (4, 3, 5)))
    dx, dy = map(context.from_host, (x, y))
    close(xp.tensordot(dx, dy, axes=((1, 2), (1, 0))), np.tensordot(x, y, axes=((1, 2), (1, 0))))
    for text, operands in (
        ("ijk,kjl->il", (x, y)),
        ("ijk->kj", (x,)),
        ("...k,kjl->...l", (x, y)),
        ("ijk,ijk,jk->i", (x, x, x[0])),
    ):
        close(xp.einsum(text, *map(context.from_host, operands)), np.einsum(text, *operands), text)
    close(xp.kron(dx[0], dx[1]), np.kron(x[0], x[1]))
    with pytest.raises(ValueError, match=r"matmul.*\(2, 3, 4\).*\(2, 3, 4\)"):
        dx @ dx


def test_two_contexts_never_mix(context):
    if len(DRIVERS) < 2:
        pytest.skip("needs two OpenCL drivers")
    other = context_of(next(d for d in DRIVERS if d != context.name))
    x, y = context.from_host(np.ones(3)), other.from_host(np.ones(3))
    context_of(context.name)
    for wrong in (lambda: x + y, lambda: xp.concat([x, y]), lambda: x @ y, lambda: xp.where(x > 0, x, y)):
        with pytest.raises(ValueError, match=rf"{context.name}.*{other.name}.*to_device"):
            wrong()
    close(x + y.to_device(x.device), np.full(3, 2.0))
    assert y.device == other.name and x.to_device(x.device) is x


# Indexing: NumPy does the same beside it


def _index(draw, shape):
    """Draw an index of an array of a shape: basic items, index arrays and masks, mixed."""
    items, axis, taken = [], 0, 0
    while axis < len(shape) and taken < 4:
        n = shape[axis]
        kind = draw(st.sampled_from(["int", "slice", "array", "mask", "new", "stop"]))
        taken += 1
        if kind == "stop":
            break
        if kind == "new":
            items.append(None)
            continue
        if kind == "int" and n:
            items.append(draw(st.integers(-n, n - 1)))
        elif kind == "array" and n:
            items.append(np.array(draw(st.lists(st.integers(-n, n - 1), min_size=3, max_size=3))))
        elif kind == "mask" and not any(isinstance(i, np.ndarray) for i in items):
            items.append(np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), bool))
        else:
            step = draw(st.sampled_from([1, 2, -1]))
            items.append(slice(draw(st.none() | st.integers(-n, n)), draw(st.none() | st.integers(-n, n)), step))
        axis += 1
    return tuple(items)


@pytest.mark.parametrize("driver", DRIVERS)
@ONE_EACH
@given(data=st.data())
def test_random_indices_and_assignments(driver, data):
    context = context_of(driver)
    shape = data.draw(st.sampled_from([(5,), (4, 3), (3, 2, 4), (2, 0, 3)]))
    host = np.arange(np.prod(shape, dtype=int), dtype="float32").reshape(shape)
    index = _index(data.draw, shape)
    on_device = data.draw(st.booleans())
    given_index = tuple(context.from_host(i) if on_device and isinstance(i, np.ndarray) else i for i in index)
    layout = data.draw(st.sampled_from(LAYOUTS))
    x = laid_out(context, host, layout)
    try:
        expected = host[index]
    except IndexError:
        with pytest.raises(IndexError):
            x[given_index]
        return
    close(x[given_index], expected, index)
    if data.draw(st.booleans()):
        x[given_index], host[index] = -1.5, -1.5
    else:
        new = np.arange(expected.size, dtype="float64").reshape(expected.shape) + 100
        x[given_index] = context.from_host(new)
        host[index] = new
    close(x, host, index)


def test_indices_out_of_bounds_name_the_operation(context):
    x = context.from_host(np.zeros((3, 4), "float32"))
    with pytest.raises(IndexError, match=r"index 7 is out of bounds for axis 1 with size 4"):
        x[:, [0, 7]]
    wrong = context.from_host(np.array([1, 9, -4]))
    found = x[wrong]
    x[wrong] = 1
    with pytest.raises(IndexError, match=r"index (9|-4) is out of bounds.*of shape \(3, 4\).*test_functions.py:\d+"):
        found.sync()
    found.sync()  # an error is raised once
    np.testing.assert_array_equal(np.asarray(x), [[0] * 4, [1] * 4, [0] * 4])  # what is in bounds is written


def test_repeated_indices(context):
    x = xp.zeros((4,), dtype="int64")
    x[[1, 1, 2]] = xp.asarray([5, 6, 7])
    close(x, [0, 6, 7, 0])
    x[[1, 1, 2]] += 1
    close(x, [0, 7, 8, 0])
    np.add.at(x, [1, 1, 2], 10)
    close(x, [0, 27, 18, 0])
    x[-1:] = [3.7]
    close(x, [0, 27, 18, 3])
    with pytest.raises(TypeError, match="complex"):
        x[0] = 1j


def test_values_by_masks(context, rng):
    for dtype, of_values in (("float32", "float32"), ("int32", "float64"), ("bool", "int64")):
        host, mask = rng.integers(0, 5, (4, 6)).astype(dtype).T, rng.random((6, 4)) > 0.5
        values = rng.integers(0, 5, mask.sum()).astype(of_values)
        x, on_device = xp.asarray(host.T).T, xp.asarray(mask)
        host[mask], x[on_device] = values, xp.asarray(values)
        close(x, host)
        host[mask], x[on_device] = host[mask][::-1], x[on_device][::-1]
        close(x, host)
        if dtype == "float32":
            np.add.at(host, mask, values)
            np.add.at(x, on_device, xp.asarray(values))
            close(x, host)
        with pytest.raises(ValueError, match="shape mismatch"):
            x[on_device] = xp.asarray(values[:-1])
    x = xp.zeros((200, 200), dtype="float32")
    x[x == 0] = xp.arange(40_000, dtype="float32")
    close(x, np.arange(40_000, dtype="float32").reshape(200, 200))


def test_nothing_waits(context, monkeypatch):
    """Only what needs values in Python waits for the device."""
    x = xp.arange(12, dtype="float32").reshape(3, 4)
    index, mask = xp.asarray([0, 2]), x > 3
    waits = []
    for name in ("finish", "wait", "finish_raw", "read"):
        monkeypatch.setattr(type(context.queue), name, lambda *a, n=name, **k: waits.append(n))
    y = xp.where(mask, x, 0) @ x.T
    y = xp.exp(y - xp.max(y, axis=1, keepdims=True))
    y[index] = 2
    x[mask] = 1
    _ = x[index], x[1, 2], xp.sort(x), xp.cumulative_sum(x, axis=1), repr(x), x == 1, xp.linalg.qr(x), x[index[0]]
    assert not waits
    monkeypatch.undo()
    assert bool(xp.all(xp.isfinite(y)))
