"""Reductions of rows that an index picks, in compiled functions."""

import pickle

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl.ops.indexing.embedding_bag import GpuEmbeddingBag
from pytensor_cl.ops.indexing.gather_scatter import GpuAdvancedSubtensor
from tests.helpers import check_against_python, device_ops, opencl


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel():
    with pytensor.config.change_flags(opencl__placement="device", floatX="float32"):
        yield


def check(inputs, outputs, *arguments, gathers=0):
    """Compare with the host, and count the gathers that are left."""
    f = check_against_python(inputs, outputs, (GpuEmbeddingBag,), *arguments)
    assert sum(isinstance(op, GpuAdvancedSubtensor) for op in device_ops(f)) == gathers
    return f


def test_mean_of_words_and_gradient(context, rng):
    table, words, w = pt.fmatrix("table"), pt.lmatrix("words"), pt.fmatrix("w")
    cost = pt.sum(pt.tanh(pt.dot(table[words].mean(axis=1), w)) ** 2)
    values = [
        (
            rng.normal(size=(50, 20)).astype("float32"),
            rng.integers(-50, 50, (n, k)),
            rng.normal(size=(20, 3)).astype("float32"),
        )
        for n, k in ((400, 20), (1, 1), (3, 2))
    ]
    f = check([table, words, w], [cost, *pytensor.grad(cost, [table, w])], *values)
    assert any(str(op).startswith("GpuEmbeddingBag{Sum{axis=1") for op in device_ops(f))


def test_axes_and_dtypes(context, rng):
    for dtype in ("float32", "float64", "int32", "bool"):
        table, index = pt.tensor(dtype=dtype, shape=(None, None)), pt.tensor(dtype="int16", shape=(None, None, None))
        rows = table[index]
        outputs = {
            "bool": [rows.any(axis=0)],
            "int32": [
                rows.sum(axis=(0, 2)),
            ],
        }.get(dtype, [rows.max(axis=1)])
        value = (rng.random((9, 7)) < 0.3) if dtype == "bool" else (9 * rng.normal(size=(9, 7))).astype(dtype)
        check([table, index], outputs, (value, rng.integers(-9, 9, (3, 4, 5)).astype("int16")))


def test_other_gathers_stay(context, rng):
    table, index = pt.fmatrix(), pt.lmatrix()
    rows = table[index]
    value = rng.normal(size=(9, 7)).astype("float32"), rng.integers(-7, 7, (3, 4))
    for outputs in ([rows.sum(axis=2)], [rows.sum(axis=1), rows.max()], [rows.sum()], [table[:, index].sum(axis=0)]):
        f = check_against_python([table, index], outputs, (), value)
        assert not any(isinstance(op, GpuEmbeddingBag) for op in device_ops(f))


def test_wrong_index(context):
    table, index = pt.fmatrix(), pt.lmatrix()
    f = opencl([table, index], table[index].sum(axis=1))
    assert any(isinstance(op, GpuEmbeddingBag) for op in device_ops(f))
    x = np.ones((4, 3), "float32")
    np.testing.assert_array_equal(f(x, np.zeros((2, 5), "int64")), np.full((2, 3), 5))
    with pytest.raises(IndexError, match="index 4 is out of bounds for axis 0 with size 4"):
        f(x, np.full((2, 5), 4))


def test_shape_alone_needs_no_kernel(context, rng):
    table, index = pt.fmatrix(), pt.lmatrix()
    total = table[index].sum(axis=1)
    f = opencl([table, index], [total, total.shape])
    got, shape = f(np.ones((4, 3), "float32"), np.zeros((2, 5), "int64"))
    assert tuple(shape) == got.shape == (2, 3)


def test_pickle(context, rng):
    table, index = pt.fmatrix(), pt.lmatrix()
    f = pickle.loads(pickle.dumps(opencl([table, index], table[index].sum(axis=1))))
    np.testing.assert_array_equal(f(np.ones((4, 3), "float32"), np.zeros((2, 5), "int64")), np.full((2, 3), 5))
