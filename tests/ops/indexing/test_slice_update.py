"""Setting and incrementing slices, against PyTensor's own implementation."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl.ops.indexing.slice_update import GpuIncSubtensor, GpuMergedIncSubtensor
from tests.helpers import assert_all_on_device, assert_on_device, opencl

DTYPES = ("bool", "int8", "uint8", "int64", "float32", "float64")


def both(inputs, outputs, values):
    """Compile and call on the device and by FAST_COMPILE; return the device function."""
    f = opencl(inputs, outputs, on_unused_input="ignore")
    g = pytensor.function(inputs, outputs, mode="FAST_COMPILE", on_unused_input="ignore")
    for got, want in zip(f(*values), g(*values), strict=True):
        np.testing.assert_array_equal(got, want, strict=True)
    return f


def test_inc_and_set(context, rng):
    x, y, v, s, k = pt.ftensor3("x"), pt.fmatrix("y"), pt.fvector("v"), pt.fscalar("s"), pt.lscalar("k")
    targets = [
        (x[1], y),
        (x[k], v),
        (x[:, 2:5, ::-2], s),
        (x[k:, 1, k], 1),
        (x[::2, ..., :0], s),
        (x[-1, ::-1], y),
        (x[0, 1, 2], s),
        (x[0, 1, 2], x[k, 2, 1]),
        (x[1:3], x[:2] + 1),
        (x[:, 1:2], y[0]),
    ]
    outputs = [change(*target) for target in targets for change in (pt.set_subtensor, pt.inc_subtensor)]
    values = [rng.normal(size=shape).astype("float32") for shape in [(4, 5, 6), (5, 6), (6,), ()]]
    f = both([x, y, v, s, k], outputs, [*values, np.int64(-2)])
    assert_on_device(f, GpuIncSubtensor)


def test_dtypes(context, rng):
    inputs, outputs, values = [], [], []
    for dtype in DTYPES:
        x, y = pt.matrix(dtype=dtype), pt.vector(dtype=dtype)
        inputs += [x, y]
        outputs += [pt.set_subtensor(x[1:, ::2], y), pt.inc_subtensor(x[1:, ::2], y)]
        values += [rng.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype) for shape in [(3, 5), 3]]
    x, y = pt.fmatrix(), pt.bvector()
    outputs += [pt.set_subtensor(x[1:, ::2], y), pt.inc_subtensor(x[1:, ::2], y)]
    values += [np.ones((3, 5), "float32"), np.array([1, 2, -3], "int8")]
    assert_all_on_device(both([*inputs, x, y], outputs, values), GpuIncSubtensor)


def test_strides_and_arguments_stay(context, rng):
    x, y = pt.fmatrix("x"), pt.fmatrix("y")
    f = opencl([x, y], [pt.inc_subtensor(x.T[1:, ::2], y.T), x + 1])
    store, other = rng.normal(size=(5, 8)).astype("float32"), rng.normal(size=(3, 3)).astype("float32")
    before = store.copy()
    got, plus = f(store[:, ::2], other)
    want = store[:, ::2].T.copy()
    want[1:, ::2] += other.T
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(store, before)
    np.testing.assert_array_equal(plus, store[:, ::2] + 1)


def test_values_that_do_not_fit(context):
    x, y = pt.fmatrix("x"), pt.fvector("y")
    for change in (pt.set_subtensor, pt.inc_subtensor):
        f = opencl([x, y], change(x[1:], y))
        with pytest.raises(ValueError, match=r"broadcast|do not have"):
            f(np.ones((3, 4), "float32"), np.ones(3, "float32"))


def test_updates_in_a_loop(context):
    table = pytensor.shared(np.zeros((3, 4), "float32"))
    step = opencl([], [], updates=[(table, pt.inc_subtensor(table[1:, ::2], 1))])
    for _ in range(3):
        step()
    want = np.zeros((3, 4))
    want[1:, ::2] = 3
    np.testing.assert_array_equal(table.get_value(), want)


def test_gradient(context, rng):
    x, w = pt.fmatrix("x"), pt.fmatrix("w")
    cost = (pt.set_subtensor(x[1:, ::2], w)[:, 1:] ** 2).sum() + (x[::-1, 2] ** 3).sum()
    values = [rng.normal(size=shape).astype("float32") for shape in [(4, 6), (3, 3)]]
    gradients = pytensor.grad(cost, [x, w])
    f = opencl([x, w], gradients)
    want = pytensor.function([x, w], gradients, mode="FAST_COMPILE")(*values)
    for g, e in zip(f(*values), want, strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-5)
    assert_on_device(f, GpuIncSubtensor)


def nodes_of(f, kind):
    return [n for n in f.maker.fgraph.apply_nodes if isinstance(n.op, kind)]


def test_several_writes_copy_once(context, rng):
    x, y, s, k = pt.fmatrix("x"), pt.fvector("y"), pt.fscalar("s"), pt.lscalar("k")
    out = pt.set_subtensor(x[1:, ::2], y)
    out = pt.inc_subtensor(out[:-1], s)
    out = pt.set_subtensor(out[k, k:], y[:1])
    out = pt.inc_subtensor(out[::-1, 1], out.shape[0])
    values = [rng.normal(size=(4, 6)).astype("float32"), rng.normal(size=3).astype("float32"), np.float32(2), 1]
    f = both([x, y, s, k], [out, x + 1], values)
    assert_on_device(f, GpuMergedIncSubtensor)
    assert len(nodes_of(f, GpuMergedIncSubtensor)) == 1
    assert not nodes_of(f, GpuIncSubtensor)
    for _ in range(3):  # recorded
        f(*values)
    other = [np.ones((7, 5), "float32"), values[1], np.float32(-1), -2]
    np.testing.assert_array_equal(f(*other)[0], pytensor.function([x, y, s, k], out, mode="FAST_COMPILE")(*other))


def test_writes_that_are_read_in_between_stay_apart(context, rng):
    x, y = pt.fmatrix("x"), pt.fvector("y")
    first = pt.set_subtensor(x[1], y)
    f = both(
        [x, y], [pt.inc_subtensor(first[:, 1], first[:, 0]), first.sum(1)], [np.eye(3, dtype="float32"), [1, 2, 4]]
    )
    assert len(nodes_of(f, GpuIncSubtensor)) == 2


def test_several_writes_of_what_does_not_fit(context):
    x, y = pt.fmatrix("x"), pt.fvector("y")
    f = opencl([x, y], pt.inc_subtensor(pt.set_subtensor(x[:, 0], 1)[1:], y))
    with pytest.raises(ValueError, match=r"broadcast|do not have"):
        f(np.ones((3, 4), "float32"), np.ones(3, "float32"))


def test_gradient_of_differences(context, rng):
    x = pt.fvector("x")
    gradient = pytensor.grad(pt.sum((x[1:] - x[:-1]) ** 2) + pt.sum(x[2:] * x[:-2]), x)
    value = rng.normal(size=50).astype("float32")
    f = opencl([x], gradient)
    want = pytensor.function([x], gradient, mode="FAST_COMPILE")
    for v in (value, value[:3], value[:2]):
        np.testing.assert_allclose(f(v), want(v), rtol=1e-5, atol=1e-6)
    assert len(nodes_of(f, GpuMergedIncSubtensor)) == 1
