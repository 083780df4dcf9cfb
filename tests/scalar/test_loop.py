"""Loops of scalars on the device: every lane its own number of steps."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor import scalar as ps
from pytensor.scalar.loop import ScalarLoop
from pytensor.tensor.elemwise import Elemwise

from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.routines.base.routine import SCHEDULES
from pytensor_cl.routines.elemwise import routine as elemwise
from pytensor_cl.scalar.base import element_function, supported
from tests.helpers import assert_all_on_device, opencl

DTYPES = ("float32", "float64")


@pytest.fixture(autouse=True)
def _small_graphs_go_to_the_device():
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


def fibonacci(dtype):
    """Each state is the old value of another, or a sum of both."""
    a, b, step = (ps.get_scalar_type(dtype)() for _ in range(3))
    return ScalarLoop(init=[a, b], update=[ps.identity(b), a + b * step], constant=[step])


def halving(dtype):
    """Halve until below a limit; count the steps."""
    x, limit = (ps.get_scalar_type(dtype)() for _ in range(2))
    n = ps.int8()
    half = x / np.array(2, dtype)
    return ScalarLoop(init=[x, n], update=[half, n + np.int8(1)], constant=[limit], until=half < limit)


def run(context, op, dtypes, arrays, schedule):
    outputs = op.make_node(*(ps.get_scalar_type(d)() for d in dtypes)).outputs
    function = element_function(op, dtypes, tuple(o.type.dtype for o in outputs))
    routine = elemwise.Elemwise(context, function, ((False,),) * len(arrays), 1, (False,) * len(arrays), schedule)
    return [out.to_host() for out in routine(*map(context.from_host, arrays))]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_steps_differ_between_lanes(context, schedule, dtype):
    n = np.arange(-2, 21, dtype="int32")
    zero, one, twice = (np.full(n.shape, value, dtype) for value in (0, 1, 1))
    got, following = run(context, fibonacci(dtype), ("int32", *[dtype] * 3), [n, zero, one, twice], schedule)
    want = [0, 1]
    while len(want) < 25:
        want.append(want[-1] + want[-2])
    np.testing.assert_array_equal(got, [want[max(k, 0)] for k in n])
    np.testing.assert_array_equal(following, [want[max(k, 0) + 1] for k in n])


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_until_ends_each_lane(context, rng, schedule, dtype):
    n = np.repeat(np.array([0, 3, 100], "int64"), 11)
    x, limit = (rng.uniform(1, 1000, n.size).astype(dtype) for _ in range(2))
    x[5], x[16], x[27] = np.nan, np.inf, 0
    count = np.zeros(n.size, "int8")
    op = halving(dtype)
    got = run(context, op, ("int64", dtype, "int8", dtype), [n, x, count, limit], schedule)
    want = [[[None], [None], [None]] for _ in n]
    for steps, value, start, low, storage in zip(n, x, count, limit, want, strict=True):
        op.perform(None, [steps, value, start, low], storage)
    for k in range(3):
        np.testing.assert_array_equal(got[k], [storage[k][0] for storage in want])


def test_other_dtypes_than_those_of_the_inner_graph(context):
    """Elemwise keeps the loop of float32, and its node has float64."""
    n, x = pt.ivector("n"), pt.dvector("x")
    made = Elemwise(fibonacci("float32"))(n, x, x + 1, x)
    f = opencl([n, x], made)
    assert_all_on_device(f, GpuElemwise)
    steps, values = np.arange(5, dtype="int32"), np.full(5, 0.1)
    a, b = values, values + 1
    want = [(a[0], b[0])]
    for _ in range(4):
        want.append((want[-1][1], want[-1][0] + want[-1][1] * 0.1))
    got = f(steps, values)
    np.testing.assert_allclose(got[0], [w[0] for w in want], rtol=1e-15)
    np.testing.assert_allclose(got[1], [w[1] for w in want], rtol=1e-15)


def test_needs_of_the_inner_graph_are_reported():
    a, b = ps.float64(), ps.float64()
    op = ScalarLoop(init=[a], update=[a + ps.cast(b, "float64")], constant=[b])
    assert "float64" in supported(op, ("int32", "float64", "float64"), ("float64",), has_fp64=False)
    assert supported(op, ("int32", "float64", "float64"), ("float64",), has_fp64=True) is None


GRADIENTS = {
    "gammainc": ([(0.1, 30), (0.1, 40)], [0]),
    "gammaincc": ([(0.1, 30), (0.1, 40)], [0]),
    "betainc": ([(0.2, 20), (0.2, 20), (0.01, 0.99)], [0, 1]),
    "hyp2f1": ([(0.2, 4), (0.2, 4), (5, 9), (-0.9, 0.9)], [0, 1, 2]),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_by_parameters(context, rng, name):
    ranges, parameters = GRADIENTS[name]
    inputs = [pt.dvector(f"x{k}") for k in range(len(ranges))]
    gradients = pytensor.grad(getattr(pt, name)(*inputs).sum(), [inputs[k] for k in parameters])
    f, host = opencl(inputs, gradients), pytensor.function(inputs, gradients, mode="FAST_COMPILE")
    assert_all_on_device(f, GpuElemwise)
    arguments = [rng.uniform(low, high, 21) for low, high in ranges]
    arguments[-1][0] = 0
    for got, want in zip(f(*arguments), host(*arguments), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10)
