"""Reductions that users write, on arrays, against NumPy."""

import pickle

import numpy as np
import pytest

from pytensor_cl import ReductionKernel
from pytensor_cl.errors import CompilationError
from pytensor_cl.user_kernels.reduction_function import reduction_functions
from pytensor_cl.user_kernels.reduction_routine import UserReduction

NORM = ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "norm")
MEAN = ReductionKernel("T x, T w", "T y", "x * w", "a + b", "y = a / n", 0, "weighted_mean")
HYPOT = ReductionKernel("T x", "T y", "x", "hypot(a, b)", "y = a", "0", "hypotenuse")
# the place of the greatest element: a type of the user's
ARGMAX = ReductionKernel(
    "T x",
    "int64 y",
    "((place){x, i})",
    "a.value > b.value || (a.value == b.value && a.at < b.at) ? a : b",
    "y = a.at",
    "((place){0, -1})",
    "first_greatest",
    "place",
    preamble="typedef struct { float value; long at; } place;",
)
AXES = (None, 0, 2, (0, 2), (), (0, 1, 2))


def host(x):
    return np.asarray(x)


@pytest.mark.parametrize("kernel", [NORM, HYPOT], ids=["sum", "expression"])
def test_axes_and_strides(context, rng, kernel):
    x = rng.normal(size=(3, 5, 40)).astype("float32")
    r = context.from_host(x)
    for axes in AXES:
        expected = np.sqrt((x.astype("float64") ** 2).sum(axis=axes)).astype("float32")
        got = host(kernel(r, axis=axes))
        if axes == () and kernel is HYPOT:
            expected = x  # a single value is not combined
        np.testing.assert_allclose(got, expected, rtol=1e-5, strict=True)
    got = host(kernel(r[:, ::-1, ::3].T, axis=-1, keepdims=True))
    np.testing.assert_allclose(got, np.sqrt((x[:, ::-1, ::3].T ** 2).sum(axis=-1, keepdims=True)), rtol=1e-5)
    large = rng.normal(size=30_000).astype("float32")
    got = host(kernel(context.from_host(large)))
    np.testing.assert_allclose(got, np.sqrt((large.astype("float64") ** 2).sum()), rtol=2e-4)


def test_broadcasting_numbers_and_lengths(context, rng):
    x, w = rng.normal(size=(4, 6)).astype("float32"), rng.normal(size=(1, 6)).astype("float32")
    r = context.from_host(x)
    got = host(MEAN(r, context.from_host(w), axis=1))
    np.testing.assert_allclose(got, (x * w).mean(axis=1), rtol=1e-5, atol=1e-6, strict=True)
    np.testing.assert_allclose(host(MEAN(r, context.from_host(w[0]))), (x * w).mean(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(host(MEAN(r, 2, axis=0)), 2 * x.mean(axis=0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("reduce", "function", "dtype"),
    [
        ("a * b", np.prod, "float32"),
        ("max(a, b)", np.max, "float32"),
        ("min(b, a)", np.min, "int32"),
        ("( a + b )", np.sum, "int64"),
        ("a | b", np.bitwise_or.reduce, "uint8"),
        ("a ^ b", np.bitwise_xor.reduce, "int16"),
        ("a && b", np.all, "bool"),
        ("a + b", np.sum, "complex64"),
        ("cmul(a, b)", np.prod, "complex64"),
        ("b > a ? b : a", np.max, "float16"),
    ],
)
def test_operations(context, rng, reduce, function, dtype):
    x = rng.integers(0, 3, (5, 6)) if dtype != "complex64" else rng.normal(size=(5, 6, 2)).view("complex128")[..., 0]
    x = x.astype(dtype)
    kernel = ReductionKernel("T x", "T y", "x", reduce, "y = a", None)
    got = host(kernel(context.from_host(x), axis=0))
    expected = np.stack([function(column) for column in x.T]).astype(dtype)
    np.testing.assert_allclose(got, expected, rtol=1e-6, strict=True)
    assert (kernel.definition.operation is None) == (reduce in ("a && b", "b > a ? b : a", "cmul(a, b)"))


def test_types_of_the_user(context, rng):
    x = rng.integers(0, 20, (4, 50)).astype("float32")
    r = context.from_host(x)
    np.testing.assert_array_equal(host(ARGMAX(r)), x.argmax(), strict=True)
    np.testing.assert_array_equal(host(ARGMAX(r, axis=1)), x.argmax(axis=1) + 50 * np.arange(4), strict=True)
    large = rng.integers(0, 5, 40_000).astype("float32")
    np.testing.assert_array_equal(host(ARGMAX(context.from_host(large))), large.argmax(), strict=True)
    spread = ReductionKernel(
        "float32 x", "float32 y", "(float2)(x, x)", "(float2)(fmin(a.x, b.x), fmax(a.y, b.y))", "y = a.y - a.x", None,
        reduce_type="float2",
    )  # fmt: skip
    np.testing.assert_array_equal(host(spread(r, axis=0)), np.ptp(x, axis=0), strict=True)


def test_literals_have_the_precision_of_what_is_reduced(context):
    if not context.info.has_fp64:
        pytest.skip("no double precision")
    kernel = ReductionKernel("T x", "T y", "x", "a + b + 0.1", "y = a", None, "spaced")
    x = np.zeros(5)
    np.testing.assert_allclose(host(kernel(context.from_host(x))), 0.4, rtol=1e-15)


def test_raw_arrays(context, rng):
    x, i = rng.normal(size=20).astype("float32"), rng.integers(0, 20, (3, 7))
    gathered = ReductionKernel("raw T x, int64 k", "T y", "x[k]", "a + b", "y = a", "0", "gathered")
    got = host(gathered(context.from_host(x)[::-1], context.from_host(i), axis=1))
    np.testing.assert_allclose(got, x[::-1][i].sum(axis=1), rtol=1e-5, atol=1e-6)


def test_nothing_and_starts(context):
    empty = context.from_host(np.ones((3, 0), "float32"))
    np.testing.assert_array_equal(host(NORM(empty, axis=1)), np.zeros(3, "float32"), strict=True)
    assert NORM(empty, axis=0).shape == (0,)
    highest = ReductionKernel("T x", "T y", "x", "max(a, b)", "y = a", None, "highest")
    with pytest.raises(ValueError, match="kernel 'highest': there is no identity, and an axis of length 0"):
        highest(empty, axis=1)
    np.testing.assert_array_equal(host(highest(empty, axis=1, initial=2)), np.full(3, 2, "float32"))
    # An identity that is none enters only where nothing is reduced.
    odd = ReductionKernel("T x", "T y", "x", "a + b", "y = a", "7")
    np.testing.assert_array_equal(host(odd(empty, axis=1)), np.full(3, 7, "float32"))
    r = context.from_host(np.arange(6, dtype="float32").reshape(2, 3))
    np.testing.assert_array_equal(host(odd(r, axis=1)), [3, 12])
    np.testing.assert_array_equal(host(odd(r, axis=1, initial=10)), [13, 22])
    product = ReductionKernel(
        "T x", "T y", "x", "cmul(a, b)", "y = a", 1
    )  # of complex numbers it has no imaginary part
    pairs = context.from_host(np.array([[1 + 2j, 3j]], "complex64"))
    np.testing.assert_array_equal(host(product(pairs, axis=1)), [-6 + 3j])
    assert host(product(pairs[:0])) == 1
    with pytest.raises(TypeError, match="initial is float32, which does not hold array"):
        odd(r, initial=np.ones(3))
    with pytest.raises(TypeError, match=r"in its reduce_expr would compute .*: write cmul\(a, b\)"):
        ReductionKernel("T x", "T y", "x", "a * b", "y = a", 1)(pairs)


def test_outputs_that_are_given(context, rng):
    x = rng.normal(size=(3, 3)).astype("float32")
    r = context.from_host(x)
    expected = np.sqrt((x**2).sum(axis=1))
    for kernel in (NORM, HYPOT):
        out = context.from_host(np.zeros((3, 2), "float32"))
        assert kernel(r, axis=1, out=out[:, 1]).buffer is out.buffer
        np.testing.assert_allclose(host(out), np.stack([np.zeros(3), expected], axis=1), rtol=1e-6)
        kept = context.from_host(np.zeros((3, 1), "float32"))
        kernel(r, kept, axis=1, keepdims=True)
        np.testing.assert_allclose(host(kept)[:, 0], expected, rtol=1e-6)
        overlapping = context.from_host(x)
        kernel(overlapping, axis=1, out=overlapping[0])
        np.testing.assert_allclose(host(overlapping)[0], expected, rtol=1e-6)


@pytest.mark.parametrize("schedule", ["cpu", "simt"])
def test_routine(context, rng, schedule):
    """Both schedules: rows shorter and longer than a work-group, and in two passes."""
    functions = reduction_functions(ARGMAX.definition, (("T", "float32"),))
    for shape, axes in (((70, 3), (1,)), ((3, 700), (1,)), ((1, 9000), None)):
        x = rng.permutation(np.prod(shape)).reshape(shape).astype("float32")
        routine = UserReduction(context, functions, (2,), 2, axes, schedule)
        expected = x.argmax() if axes is None else x.argmax(axis=1) + shape[1] * np.arange(shape[0])
        np.testing.assert_array_equal(host(routine(context.from_host(x))[0]), expected)


def test_identity_and_pickling(context):
    again = ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "norm")
    assert again == NORM == pickle.loads(pickle.dumps(NORM)) and hash(again) == hash(NORM) and NORM != HYPOT
    assert "x * x" in NORM.source("float32", device=context.name) and "norm" in repr(NORM) and MEAN.nin == 2
    HYPOT.compile("float32", device=context.name)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("T x", "T y", "x;", "a + b", "y = a", 0), "map_expr is one expression, without a semicolon"),
        (("T x", "T y", "x", "a + x", "y = a", 0), "reduce_expr combines a and b"),
        (("T x", "T y", "x", "a + b", "a", 0), "post_map_expr assigns to the output, such as 'y = a'"),
        (("T a", "T y", "a", "a + b", "y = a", 0), "'a' is a value that is reduced"),
        (("T x", "T y, T z", "x", "a + b", "y = z = a", 0), "has one output, which is not raw"),
        (("T x", "T y", "(x", "a + b", "y = a", 0), r"map_expr, line 1: '\(' is not closed"),
        (("T x", "T y", "x", "a + b", "y = a", 0, "no name"), "is a name of C"),
    ],
)
def test_wrong_texts(arguments, message):
    with pytest.raises(ValueError, match=message):
        ReductionKernel(*arguments)


def test_wrong_arguments(context):
    f = context.from_host(np.ones((2, 3), "float32"))
    for error, message, call in (
        (TypeError, r"takes its inputs \(T x, T w\); number of arguments given: 1", lambda: MEAN(f)),
        (ValueError, "the shapes do not fit together", lambda: MEAN(f, f.T)),
        (ValueError, "no array says what is reduced", lambda: MEAN(1, 2, device=context.name)),
        (ValueError, r"out has shape \(2, 3\), not \(2,\)", lambda: NORM(f, axis=1, out=f)),
        (np.exceptions.AxisError, "out of bounds", lambda: NORM(f, axis=2)),
        (TypeError, "x is an array of NumPy", lambda: NORM(np.ones(3))),
        (TypeError, "initial= is for numbers, and place is a type of C", lambda: ARGMAX(f, initial=1)),
        (TypeError, "has 1 placeholders", lambda: NORM.source()),
        (TypeError, "identity is a number", lambda: ReductionKernel("T x", "T y", "x", "a + b", "y = a", [0])),
    ):
        with pytest.raises(error, match=message):
            call()


def test_errors_of_the_build(context):
    r = context.from_host(np.ones(3, "float32"))
    for texts, place, line in (
        (("xx", "a + b", "y = a"), "in its map_expr", ">   1 | xx"),
        (("x", "hypot(a,\n  bb + b)", "y = a"), "in its reduce_expr", ">   2 |   bb + b)"),
        (("x", "a + b", "y = a;\ny = c"), "in its post_map_expr", ">   2 | y = c"),
    ):
        with pytest.raises(CompilationError) as caught:
            ReductionKernel("T x", "T y", *texts, "0", "wrong")(r)
        message = str(caught.value)
        assert message.startswith("kernel 'wrong' with T = float32 could not be built") and place in message
        assert line in message and "b_i0" not in message
