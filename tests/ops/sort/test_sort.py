"""Sorting in compiled functions."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import pytensor_cl
from pytensor_cl.ops.sort import GpuArgSort, GpuSort
from tests.helpers import assert_all_on_device, assert_on_device, check_against_python, opencl


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel():
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


@pytest.mark.parametrize("dtype", ["float32", "float64", "bool", "int8", "uint64"])
def test_axes(context, rng, dtype):
    x = pt.tensor3("x", dtype=dtype)
    value = rng.integers(0, 9, (4, 5, 6)).astype(dtype)
    outputs = [f(x, axis=a, kind="stable") for f in (pt.sort, pt.argsort) for a in (None, 0, -1)]
    kinds = (GpuSort, GpuArgSort)
    check_against_python([x], outputs, kinds, (value,), (value[::-1, ::2],), (value.T,), (value[:0],))


@pytest.mark.parametrize("kind", ["quicksort", "mergesort", "heapsort", "stable"])
def test_every_kind_is_stable(context, rng, kind):
    x = pt.vector("x", dtype="float32")
    f = opencl([x], pt.argsort(x, kind=kind))
    value = rng.choice(np.array([0.0, -0.0, np.nan, -np.nan, 2], "float32"), 500)
    np.testing.assert_array_equal(f(value), np.argsort(value, kind="stable"))


def test_constant_axis_and_neighbours(context, rng):
    x = pt.matrix("x", dtype="float32")
    value = rng.normal(size=(7, 90)).astype("float32")
    best = pt.sort(-x, axis=pt.constant(1))[:, :5]
    median = pt.sort(pt.exp(x), axis=0)[3] * 2
    f = check_against_python([x], [best, median], (GpuSort,), (value,), (value.T[:7],))
    assert_all_on_device(f, GpuSort)


def test_gradient(context, rng):
    x = pt.matrix("x", dtype="float32")
    value = rng.normal(size=(6, 40)).astype("float32")
    costs = [(pt.sort(x, axis=a) * x).sum() for a in (0, 1)] + [(pt.sort(x, axis=None) ** 3)[:20].sum()]
    f = check_against_python([x], [pytensor.grad(cost, x) for cost in costs], (GpuArgSort,), (value,), (value.T,))
    assert not {"SortOp", "ArgSortOp", "AdvancedSubtensor"} & {
        type(n.op).__name__ for n in pytensor_cl.explain(f).host_nodes
    }


def test_batched(context, rng):
    x = pt.tensor3("x", dtype="float32")
    rows = pt.vectorize(lambda row: pt.sort(row), "(n)->(n)")(x)
    columns = pt.vectorize(lambda m: pt.argsort(m, axis=0, kind="stable"), "(n,m)->(n,m)")(x)
    value = rng.normal(size=(3, 4, 9)).astype("float32")
    f = check_against_python([x], [rows, columns], (GpuSort, GpuArgSort), (value,), (value.T,))
    assert_all_on_device(f)


def test_shape_of_the_output(context):
    x = pt.matrix("x", dtype="float32")
    f = opencl([x], [pt.sort(x, axis=0).shape, pt.argsort(x)])
    assert_on_device(f, GpuArgSort)
    np.testing.assert_array_equal(f(np.zeros((3, 0), "float32"))[0], (3, 0))


def test_complex_stays_on_the_host(context):
    x = pt.vector("x", dtype="complex64")
    f = opencl([x], pt.sort(x))
    np.testing.assert_array_equal(f(np.array([2j, 1, 1j], "complex64")), np.array([1j, 2j, 1], "complex64"))
