"""Elementwise functions that are applied while a product is stored."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import pytensor_cl
from pytensor_cl.linker.reports.flops import flops
from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.epilogue import GpuEpilogue
from pytensor_cl.ops.gemm import GpuDot22, GpuDot22Scalar, GpuGemm
from pytensor_cl.ops.rowwise import GpuRowwise
from pytensor_cl.runtime.registry import get_context
from tests.helpers import assert_close, check_against_python, device_ops, opencl

ACTIVATIONS = {
    "none": lambda x: x,
    "relu": lambda x: pt.maximum(x, 0),
    "tanh": pt.tanh,
    "sigmoid": pt.sigmoid,
    "is positive": lambda x: x > 0,
    "cast": lambda x: pt.cast(x * 3, "int16"),
    "half": lambda x: pt.cast(x, "float16"),
}


@pytest.fixture(autouse=True)
def on_device():
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


def kinds(f):
    """Classes of the device Ops that compute."""
    return [type(op) for op in device_ops(f) if op.is_compute]


def normal(rng, *shapes, dtype="float32"):
    return [(rng.normal(size=s) * 0.3).astype(dtype) for s in shapes]


def matrices(names, dtype="float32"):
    return [pt.matrix(n, dtype=dtype) for n in names]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_layer_is_one_kernel(context, rng, name):
    x, w = matrices("xw")
    b = pt.vector("b", dtype="float32")
    sizes = ((5, 7, 3), (0, 3, 4), (3, 0, 4), (1, 6, 5), (6, 5, 1), (1, 1, 1), (34, 40, 50), (33, 1100, 17))
    values = [normal(rng, (m, k), (k, n), n) for m, k, n in sizes]
    f = check_against_python([x, w, b], [ACTIVATIONS[name](x @ w + b)], (), *values)
    assert kinds(f) == [GpuEpilogue]


def test_double_precision_and_every_kind_of_further_array(context, rng):
    """Rows, columns, whole matrices with any strides, scalars on the device, constants, several results."""
    x, w, r, q = matrices("xwrq", "float64")
    b, c, s = pt.vector("b", dtype="float64"), pt.vector("c", dtype="float64"), pt.vector("s", dtype="float64")
    y = pt.tanh(x @ w + b + c[:, None]) * r.T + 2.5 * q + s.sum()
    z = pt.exp(-y)
    values = [normal(rng, (9, 4), (4, 6), (6, 9), (9, 6), 6, 9, 3, dtype="float64") for _ in range(2)]
    values[1][2], values[1][3] = np.asfortranarray(values[1][2])[::-1], values[1][3][:, ::-1]
    f = check_against_python([x, w, r, q, b, c, s], [y, z, y + z > 1], (), *values)
    assert kinds(f).count(GpuEpilogue) == 1 and GpuElemwise not in kinds(f)


def test_scaled_products_and_addends(context, rng):
    x, w, c = matrices("xwc")
    s = pt.scalar("s", dtype="float32")
    outputs = [pt.tanh(s * (x @ w)), pt.tanh(0.5 * c.T - s * (w.T @ x.T))]
    f = check_against_python([x, w, c, s], outputs, (), [*normal(rng, (4, 5), (5, 6), (4, 6)), 0.25])
    assert kinds(f) == [GpuEpilogue, GpuEpilogue]
    assert {type(op.producer) for op in device_ops(f) if op.is_compute} == {GpuDot22Scalar, GpuGemm}


def test_batches(context, rng):
    x, w = pt.tensor3("x", dtype="float32"), pt.tensor3("w", dtype="float32")
    b, m = pt.vector("b", dtype="float32"), pt.matrix("m", dtype="float32")
    outputs = [pt.tanh(pt.matmul(x, w) + b), pt.maximum(pt.matmul(x, m) + b, 0)]
    values = normal(rng, (3, 4, 5), (3, 5, 6), 6, (5, 6))
    f = check_against_python([x, w, b, m], outputs, (), values, [v[:0] if v.ndim == 3 else v for v in values])
    assert kinds(f).count(GpuEpilogue) == 2 and GpuElemwise not in kinds(f)


def test_changing_numbers_are_replay_parameters(context, rng):
    x, w = matrices("xw")
    s = pt.scalar("s", dtype="float32")
    f = opencl([x, w, s], pt.tanh(x @ w + s))
    values = normal(rng, (4, 5), (5, 6))
    for number in range(8):
        assert_close(f(*values, number), np.tanh(values[0] @ values[1] + np.float32(number)))
    assert kinds(f) == [GpuDot22, GpuElemwise]
    assert len(pytensor_cl.explain(f).captured_graphs) == 1


def test_recorded_calls(context, rng):
    w, b = (pytensor.shared(v) for v in normal(rng, (6, 6), 6))
    x = pt.matrix("x", dtype="float32")
    f = opencl([x], pt.tanh(pt.tanh(x @ w + b) @ w + b), updates={b: b * 0.5})
    for n in (3, 5, 1) * 6:
        (value,) = normal(rng, (n, 6))
        weights, bias = w.get_value(), b.get_value()
        wanted = np.tanh(np.tanh(value @ weights + bias) @ weights + bias)
        assert_close(f(value), wanted)
    assert len(pytensor_cl.explain(f).captured_graphs) == 3


def test_what_others_read_is_stored(context, rng):
    x, w = matrices("xw")
    y = x @ w
    for outputs in ([y, pt.tanh(y)], [pt.tanh(y), pt.exp(y).sum(0)]):
        f = check_against_python([x, w], outputs, (GpuDot22,), normal(rng, (4, 5), (5, 6)))
        assert GpuEpilogue not in kinds(f)


def test_what_repeats_the_product_is_another_kernel(context, rng):
    x = pt.tensor("x", dtype="float32", shape=(None, 3, 4))
    w, c = pt.tensor("w", dtype="float32", shape=(1, 4, 5)), pt.tensor3("c", dtype="float32")
    row = pt.tensor("row", dtype="float32", shape=(1, 3, 4))
    f = check_against_python([row, w, c], [pt.matmul(row, w) + c], (), normal(rng, (1, 3, 4), (1, 4, 5), (2, 3, 5)))
    assert GpuEpilogue not in kinds(f)
    f = check_against_python([x, w], [pt.exp(pt.matmul(x, w))], (), normal(rng, (2, 3, 4), (1, 4, 5)))
    assert GpuEpilogue in kinds(f)


def test_rows_come_first(context, rng):
    """A softmax takes the bias in itself."""
    x, w = matrices("xw")
    b = pt.vector("b", dtype="float32")
    f = check_against_python([x, w, b], [pt.special.softmax(x @ w + b, -1)], (), normal(rng, (4, 5), (5, 6), 6))
    assert kinds(f) == [GpuDot22, GpuRowwise]


@pytest.mark.parametrize("dtype", ["int32", "float16", "complex64"])
def test_other_dtypes(context, rng, dtype):
    x, w = matrices("xw", dtype)
    values = [(v * 10).astype(dtype) for v in normal(rng, (4, 5), (5, 6))]
    f = check_against_python([x, w], [abs(pt.dot(x, w)) + 1], (GpuElemwise,), values)
    assert GpuEpilogue not in kinds(f)


def test_errors_name_the_node(context):
    x, w = matrices("xw")
    b = pt.vector("b", dtype="float32")
    f = opencl([x, w, b], pt.tanh(x @ w + b))
    ones = [np.ones(s, "float32") for s in ((2, 3), (3, 4), (5,), (4, 4), (1,))]
    for wrong, text in (((0, 1, 2), "mismatch"), ((0, 3, 2), "A has shape"), ((0, 1, 4), "broadcasting")):
        with pytest.raises(ValueError, match=text) as caught:
            f(*(ones[i] for i in wrong))
        assert any("GpuEpilogue{GpuDot22: add, tanh}" in note for note in (str(caught.value), *caught.value.__notes__))


def test_shown_and_counted(context, rng):
    x = pt.tensor("x", dtype="float32", shape=(20, 30))
    f = opencl([x], pt.tanh(x @ x.T + 1))
    (op,) = (op for op in device_ops(f) if isinstance(op, GpuEpilogue))
    assert "GpuEpilogue{GpuDot22: add, tanh}" in str(pytensor_cl.explain(f))
    assert flops(op, [(20, 30), (30, 20)], [(20, 20)]) == 2 * 20 * 30 * 20 + 2 * 400


def test_shapes_are_known_without_the_values(context, rng):
    x, w = matrices("xw")
    f = opencl([x, w], pt.tanh(x @ w).shape)
    np.testing.assert_array_equal(f(*normal(rng, (3, 4), (4, 5))), (3, 5))
    (node,) = (n.node for n in pytensor_cl.explain(opencl([x, w], pt.tanh(x @ w))).device_nodes if n.op.is_compute)
    assert [tuple(shape) for shape in node.op.infer_shape(node, [(3, 4), (4, 5)])] == [(3, 5)]


def test_gradients(context, rng):
    x, w = matrices("xw")
    b = pt.vector("b", dtype="float32")
    for activation in (pt.tanh, lambda v: pt.maximum(v, 0)):
        cost = (activation(activation(x @ w + b) @ w + b) ** 2).sum()
        f = check_against_python([x, w, b], [cost, *pt.grad(cost, [x, w, b])], (), normal(rng, (5, 6), (6, 6), 6))
        assert GpuEpilogue in kinds(f)


def test_more_arrays_than_a_kernel_may_have_as_arguments(context, rng):
    """Devices limit the bytes of a kernel's arguments; many of them to 1024."""
    x, w = matrices("xw")
    many = matrices([f"m{k}" for k in range(16)])
    values = normal(rng, (5, 7), (7, 3), *[(5, 3)] * len(many))
    few = check_against_python([x, w, *many[:2]], [pt.tanh(x @ w + sum(many[:2]))], (), values[:4])
    assert kinds(few) == [GpuEpilogue]
    f = check_against_python([x, w, *many], [pt.tanh(x @ w + sum(many))], (), values)
    if get_context(context.name).info.max_parameter_size == 1024:
        assert GpuElemwise in kinds(f)
