"""Wrong arguments: the exception class of PyTensor's CPU backends, at the right node, and nothing is lost."""

from typing import NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from tests.helpers import assert_close, opencl


def ones(*shape, dtype="float32"):
    return np.ones(shape, dtype)


def variable(name, ndim, dtype="float32", shape=None):
    return pt.TensorType(dtype, (None,) * ndim if shape is None else shape)(name)


x, y, v, w = (variable(n, d) for n, d in (("x", 2), ("y", 2), ("v", 1), ("w", 1)))
i = variable("i", 0, "int64")
a, b = variable("a", 3), variable("b", 3)
row, ints = variable("row", 2, shape=(1, None)), variable("ints", 2, "int32")


class Case(NamedTuple):
    """A function, arguments that are wrong at run time and some that are right, and the Op that must be blamed."""

    inputs: list
    output: object
    bad: tuple
    good: tuple
    op: str = "Gpu"


CASES = {
    "elementwise": Case([x, y], pt.exp(x) + y, (ones(3, 4), ones(3, 5)), (ones(3, 4), ones(3, 4))),
    "run-time broadcasting": Case([x, y], pt.exp(x) + y, (ones(3, 4), ones(1, 4)), (ones(1, 4), ones(1, 4))),
    "both broadcast": Case([x, y], pt.exp(x) * y, (ones(1, 4), ones(3, 1)), (ones(3, 4), ones(3, 4))),
    "three operands": Case(
        [x, y, v], pt.exp(x) * y - v, (ones(3, 4), ones(3, 4), ones(5)), (ones(3, 4), ones(3, 4), ones(4))
    ),
    "static row": Case([x, row], pt.exp(x) + row, (ones(3, 4), ones(1, 5)), (ones(3, 4), ones(1, 4))),
    "switch": Case([x, y], pt.switch(pt.gt(x, 0), y, x), (ones(3, 4), ones(2, 4)), (ones(3, 4), ones(3, 4))),
    "dot": Case([x, y], pt.dot(x, y), (ones(3, 4), ones(3, 4)), (ones(3, 4), ones(4, 2)), "GpuDot22"),
    "dot of integers": Case(
        [ints, x],
        pt.dot(ints, x),
        (ones(3, 4, dtype="int32"), ones(3, 4)),
        (ones(3, 4, dtype="int32"), ones(4, 1)),
        "GpuDot",
    ),
    "gemm, inner": Case([x, y], 0.5 * pt.dot(x, y) + y, (ones(3, 4), ones(3, 4)), (ones(3, 3), ones(3, 3))),
    "gemm, addend": Case([x, y], 2 * pt.dot(x, x.T) - y, (ones(3, 4), ones(3, 4)), (ones(3, 4), ones(3, 3))),
    "gemm, broadcast addend": Case([x, y], 2 * pt.dot(x, x.T) - y, (ones(3, 4), ones(1, 3)), (ones(3, 4), ones(3, 3))),
    "gemv": Case([x, v], pt.dot(x, v), (ones(3, 4), ones(3)), (ones(3, 4), ones(4))),
    "gemv, transposed": Case([x, v], pt.dot(v, x), (ones(3, 4), ones(4)), (ones(3, 4), ones(3))),
    "gemv, addend": Case(
        [x, v, w], 2 * pt.dot(x, v) + w, (ones(3, 4), ones(4), ones(1)), (ones(3, 4), ones(4), ones(3))
    ),
    "inner product": Case([v, w], pt.dot(pt.exp(v), w), (ones(4), ones(3)), (ones(4), ones(4))),
    "matmul": Case([a, b], pt.matmul(a, b), (ones(2, 3, 4), ones(2, 3, 4)), (ones(2, 3, 4), ones(2, 4, 5))),
    "matmul, batch": Case([a, b], pt.matmul(a, b), (ones(2, 3, 4), ones(3, 4, 5)), (ones(2, 3, 4), ones(2, 4, 5))),
    "matmul, batch of one": Case(
        [a, b], pt.matmul(a, b), (ones(2, 3, 4), ones(1, 4, 5)), (ones(1, 3, 4), ones(1, 4, 5))
    ),
    "reshape": Case([x], pt.exp(x).reshape((5, 2)), (ones(3, 4),), (ones(2, 5),)),
    "reshape, -1": Case([x], pt.exp(x).reshape((5, -1)), (ones(3, 4),), (ones(2, 5),)),
    "reshape, symbolic": Case([x, i], pt.exp(x).reshape((i, 2)), (ones(3, 4), 5), (ones(3, 4), 6)),
    "reshape, two unknown": Case([x, i], pt.exp(x).reshape((i, i)), (ones(3, 3), -1), (ones(3, 3), 3)),
    "index": Case([x, i], pt.exp(x)[i], (ones(3, 4), 3), (ones(3, 4), -3), "Subtensor"),
    "negative index": Case([x, i], pt.exp(x)[1:, i], (ones(3, 4), -5), (ones(3, 4), 0), "Subtensor"),
    "index of nothing": Case([x], pt.exp(x)[0], (ones(0, 4),), (ones(1, 4),), "Subtensor"),
    "step of zero": Case([x, i], pt.exp(x)[::i], (ones(3, 4), 0), (ones(3, 4), -1), "Subtensor"),
    "alloc": Case([v, i], pt.exp(pt.alloc(v, i, 3)), (ones(4), 2), (ones(3), 2), "Alloc"),
    "alloc, negative": Case([v, i], pt.exp(pt.alloc(v, i, 3)), (ones(3), -2), (ones(3), 0), "Alloc"),
    "alloc, run-time broadcasting": Case([v, i], pt.exp(pt.alloc(v, i, 3)), (ones(1), 2), (ones(3), 1), "Alloc"),
    "maximum of nothing": Case([x], pt.exp(x).max(1), (ones(3, 0),), (ones(0, 3),), "max"),
    "minimum of nothing": Case([x], pt.exp(x).min(), (ones(0, 3),), (ones(1, 1),), "min"),
    "specified shape": Case([x], pt.specify_shape(pt.exp(x), (3, 5)) * 2, (ones(3, 4),), (ones(3, 5),), "SpecifyShape"),
    "host Op after": Case(
        [x, y], pt.concatenate([pt.exp(x @ y), y], 1), (ones(3, 3), ones(2, 3)), (ones(2, 2), ones(2, 3))
    ),
    "advanced index": Case(
        [x, ints],
        pt.exp(x @ x.T)[ints[0]],
        (ones(3, 4), np.full((1, 2), 9, "int32")),
        (ones(3, 4), np.full((1, 2), 2, "int32")),
        "AdvancedSubtensor",
    ),
}

# Before any node runs.
ARGUMENTS = {
    "dtype": (ones(3, 4, dtype="float64"),),
    "complex": (ones(3, 4, dtype="complex64"),),
    "dimensions": (ones(3),),
    "nothing": (None,),
    "text": ("abc",),
    "too few": (),
    "too many": (ones(3, 4), ones(3, 4)),
}


def error_of(f, arguments):
    with pytest.raises(Exception) as caught:
        f(*arguments)
    return caught.value


def classes_on_the_host(case):
    """Exception classes of PyTensor's own backends; some of them notice nothing."""
    modes = (pytensor.compile.mode.Mode("py", None), pytensor.compile.mode.Mode("py", "fast_run"))
    found = set()
    for mode in modes:
        try:
            pytensor.function(case.inputs, case.output, mode=mode)(*case.bad)
        except Exception as error:
            found.add(type(error))
    return found


@pytest.mark.parametrize("name", CASES)
def test_run_time_errors(context, name):
    case = CASES[name]
    calls = pytensor.shared(np.float32(0))
    kept = pytensor.shared(np.arange(3, dtype="float32"))
    updates = {calls: calls + 1, kept: kept * 2 + case.inputs[0].sum().astype("float32") * 0}
    with pytensor.config.change_flags(exception_verbosity="high"):
        f = opencl(case.inputs, case.output, updates=updates)
        for _ in range(2):
            error = error_of(f, case.bad)
            assert not classes_on_the_host(case).isdisjoint(type(error).__mro__)
            blamed = [line for line in str(error).splitlines() if "Apply node that caused the error" in line]
            assert blamed and case.op in blamed[0]
    assert_close(calls.get_value(), np.float32(0))
    assert_close(kept.get_value(), np.arange(3, dtype="float32"))
    expected = pytensor.function(case.inputs, case.output, mode="FAST_COMPILE")(*case.good)
    assert_close(f(*case.good), expected)
    assert_close(calls.get_value(), np.float32(1))
    assert_close(kept.get_value(), np.arange(3, dtype="float32") * 2)


def test_wrong_arguments(context):
    f, host = (pytensor.function([x], pt.exp(x), mode=mode) for mode in ("OPENCL", "FAST_COMPILE"))
    for arguments in ARGUMENTS.values():
        assert type(error_of(f, arguments)) is type(error_of(host, arguments))
    assert_close(f(ones(3, 4)), np.exp(ones(3, 4)))


def test_complex_numbers_and_halves_among_others(context):
    z, h = pt.zmatrix("z"), pt.matrix("h", dtype="float16")
    f = opencl([z, h, x], [abs(z * 2), h + 1, pt.exp(x)])
    value = ones(2, 3, dtype="complex128") * (3 + 4j)
    magnitude, half, exponential = f(value, ones(2, 3, dtype="float16"), ones(2, 3))
    assert_close(magnitude, np.full((2, 3), 10.0))
    assert_close(half, np.full((2, 3), 2, "float16"))
    assert_close(exponential, np.exp(ones(2, 3)))


def test_integer_overflow_raises_nothing_and_division_by_zero_does(context):
    n, m = variable("n", 1, "int32"), variable("m", 1, "int32")
    f = opencl([n, m], [n // m, n % m, n * m, -n])
    low = np.iinfo("int32").min
    quotient, remainder, product, negative = f(np.array([5, low, -7], "int32"), np.array([3, -1, 2], "int32"))
    assert_close(quotient, np.array([1, low, -4], "int32"))
    assert_close(remainder, np.array([2, 0, 1], "int32"))
    assert_close(product, np.array([15, low, -14], "int32"))
    assert_close(negative, np.array([-5, low, 7], "int32"))
    with pytest.raises(ZeroDivisionError):
        f(np.array([5, 1], "int32"), np.array([3, 0], "int32"))


def test_nan_and_infinity_pass_through(context):
    outputs = [pt.log(v), pt.sqrt(v), 1 / v, pt.maximum(v, 0), v.max(), v.sum(), pt.isnan(v), pt.switch(v > 0, v, 0)]
    value = np.array([-1, 0, np.inf, np.nan, -np.inf], "float32")
    with np.errstate(all="ignore"):
        expected = pytensor.function([v], outputs, mode="FAST_COMPILE")(value)
    for got, wanted in zip(opencl([v], outputs)(value), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
