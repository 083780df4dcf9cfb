"""Search in sorted arrays, in compiled functions."""

from dataclasses import replace

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl.ops.registry import NoKernel, device_op
from pytensor_cl.ops.sort import GpuSearchSorted
from tests.helpers import assert_all_on_device, check_against_python, host_ops, opencl


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel():
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


def check(inputs, outputs, *arguments):
    return check_against_python(inputs, outputs, (GpuSearchSorted,), *arguments)


@pytest.mark.parametrize(
    "dtypes", [("float32", "float32"), ("float64", "int32"), ("int64", "uint64"), ("bool", "int8")]
)
def test_sides_and_shapes(context, rng, dtypes):
    x, v = pt.vector("x", dtype=dtypes[0]), pt.matrix("v", dtype=dtypes[1])
    outputs = [pt.searchsorted(x, value, side=side) for side in ("left", "right") for value in (v, v[0], v[0, 0], 3)]
    rows, values = np.sort(rng.integers(0, 9, 50).astype(dtypes[0])), rng.integers(0, 9, (5, 6)).astype(dtypes[1])
    check([x, v], outputs, (rows, values), (rows[::2], values[::-1].T), (rows[:0], values))


def test_sorter(context, rng):
    x, v = pt.vector("x", dtype="float32"), pt.vector("v", dtype="float32")
    rows, values = rng.normal(size=(2, 40)).astype("float32")
    f = check([x, v], [pt.searchsorted(x, v, sorter=pt.argsort(x))], (rows, values), (rows[::-2], values))
    assert_all_on_device(f)


def test_wrong_sorter(context):
    x, sorter = pt.vector("x", dtype="float32"), pt.vector("sorter", dtype="int32")
    f = opencl([x, sorter], pt.searchsorted(x, x, sorter=sorter))
    value = np.arange(4, dtype="float32")
    with pytest.raises(ValueError, match=r"sorter\.size must equal a\.size"):
        f(value, np.arange(3, dtype="int32"))
    with pytest.raises(ValueError, match="Sorter index out of range"):
        f(value, np.full(4, 4, "int32"))
    np.testing.assert_array_equal(f(value, np.arange(4, dtype="int32")), range(4))


def test_batched(context, rng):
    x, v = pt.matrix("x", dtype="float32"), pt.tensor3("v", dtype="float32")
    rows, values = np.sort(rng.normal(size=(3, 20))).astype("float32"), rng.normal(size=(3, 4, 5)).astype("float32")
    search = pt.vectorize(lambda r, m: pt.searchsorted(r, m), "(n),(k,m)->(k,m)")(x, v)
    crossed = pt.vectorize(lambda r, q: pt.searchsorted(r, q), "(n),(m)->(m)")(x[:, None], v)
    check([x, v], [search, crossed], (rows, values), (rows[::-1], values[:, ::-1]))


def test_neighbours_and_gradient(context, rng):
    x, v = pt.vector("x", dtype="float32"), pt.vector("v", dtype="float32")
    place = pt.searchsorted(x, v)
    cost = (x[place.clip(0, x.shape[0] - 1)] * pt.exp(v)).sum()
    rows = np.sort(rng.normal(size=30)).astype("float32")
    check([x, v], [place + 1, *pytensor.grad(cost, [x, v])], (rows, rng.normal(size=8).astype("float32")))


def test_complex_stays_on_the_host(context):
    x = pt.vector("x", dtype="complex64")
    f = opencl([x], pt.searchsorted(x, x))
    assert any("Searchsorted" in str(op) for op in host_ops(f))


def test_without_double_precision(context):
    info = replace(context.info, has_fp64=False)
    single, signed, unsigned = (pt.vector(dtype=dtype) for dtype in ("float32", "int64", "uint64"))
    mixed = device_op(pt.searchsorted(signed, unsigned).owner, context.name, info)
    assert isinstance(mixed, NoKernel) and mixed.missing_fp64
    op = device_op(pt.searchsorted(single, single).owner, context.name, info)
    node = op.make_node(single, single)
    assert all("double" not in source.source for source in op.routine(node, context).sources())
