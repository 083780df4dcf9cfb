"""The Type of device arrays and its variables."""

import pickle

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import pytensor_cl
from pytensor_cl import GpuArrayType, GpuArrayVariable
from pytensor_cl.errors import ContextNotDefined
from pytensor_cl.ops.transfer import GpuFromHost
from pytensor_cl.variable import GpuArrayConstant
from tests.helpers import another_context, assert_close, opencl


@pytest.fixture
def matrix(context):
    return GpuArrayType("float32", (None, 3))


def test_a_type_is_its_dtype_shape_and_context(context, matrix):
    assert matrix == GpuArrayType(np.float32, [None, 3], context.name)
    assert matrix != GpuArrayType("float32", (None, None))
    assert matrix != GpuArrayType("float32", (None, 3), "elsewhere")
    assert hash(matrix) == hash(matrix.clone()) and matrix.clone(dtype="int8").dtype == "int8"
    assert matrix.clone(shape=(1, None)).broadcastable == (True, False)
    assert (matrix.ndim, matrix.context_name) == (2, context.name)
    assert str(matrix) == f"GpuArray<{context.name}>(float32, shape=(None, 3))"
    assert pickle.loads(pickle.dumps(matrix)) == matrix


def test_a_type_refuses_what_devices_cannot_hold(context):
    for dtype in ("float128", "object", "datetime64[s]", "U3"):
        with pytest.raises(TypeError, match="cannot hold"):
            GpuArrayType(dtype, ())


def test_it_is_no_tensor_type(matrix):
    tensor = matrix.host_type
    assert not isinstance(matrix, type(tensor))
    assert not tensor.is_super(matrix) and not matrix.is_super(tensor)
    assert not matrix.in_same_class(tensor)


def test_super_types(context, matrix):
    exact, loose = GpuArrayType("float32", (2, 3)), GpuArrayType("float32", (None, None))
    assert matrix.is_super(exact) and loose.is_super(matrix) and not exact.is_super(matrix)
    assert not matrix.is_super(GpuArrayType("float64", (2, 3)))
    assert not matrix.is_super(GpuArrayType("float32", (3,)))
    assert matrix.in_same_class(loose) and not matrix.in_same_class(loose.clone(shape=(1, None)))


def test_filter_uploads_arrays_of_the_host(context, matrix):
    held = matrix.filter(np.ones((2, 3), "float32"))
    assert isinstance(held, pytensor_cl.GpuArray) and held.context is context
    assert matrix.filter(held) is held and matrix.filter(held, strict=True) is held
    assert matrix.filter([[1, 2, 3]]).shape == (1, 3)
    assert matrix.is_valid_value(np.ones((2, 3), "float32"), strict=False)


@pytest.mark.parametrize(
    "data", [np.ones((2, 4), "float32"), np.ones(3, "float32"), np.ones((2, 3)), np.ones((2, 3), "complex64")]
)
def test_filter_refuses_other_arrays(context, matrix, data):
    with pytest.raises(TypeError):
        matrix.filter(data)
    if isinstance(data, np.ndarray) and data.dtype != "complex64":
        with pytest.raises(TypeError):
            matrix.filter(context.from_host(data))


def test_strict_filter_takes_device_arrays_only(matrix):
    with pytest.raises(TypeError, match="expected a GpuArray"):
        matrix.filter(np.ones((2, 3), "float32"), strict=True)


def test_filter_refuses_arrays_of_another_context(context, matrix):
    held = another_context(context).from_host(np.ones((2, 3), "float32"))
    with pytest.raises(TypeError, match="expected an array in context"):
        matrix.filter(held)


def test_an_unknown_context_is_an_error_when_it_is_used(context):
    kind = GpuArrayType("float32", (None,), "nowhere")
    with pytest.raises(ContextNotDefined, match="no context is called 'nowhere'; defined are"):
        kind.filter(np.ones(2, "float32"))


EXPRESSIONS = (
    lambda v: v.T,
    lambda v: v[0],
    lambda v: v[::-1, 1:],
    lambda v: v.sum(),
    lambda v: v.mean(0),
    lambda v: v + 1,
    lambda v: 2 / v,
    lambda v: -v,
    lambda v: v > 0,
    lambda v: v @ v.T,
    lambda v: v.shape[0],
    lambda v: v.astype("int32"),
    lambda v: v.reshape((3, -1)),
    pt.exp,
)


def test_variables_work_like_tensors(context, matrix, rng):
    g, x = matrix("g"), pt.matrix("x", dtype="float32")
    assert isinstance(g, GpuArrayVariable) and not isinstance(g, pt.TensorVariable)
    value = rng.normal(size=(4, 3)).astype("float32")
    f = opencl([g], [e(g) for e in EXPRESSIONS])
    expected = pytensor.function([x], [e(x) for e in EXPRESSIONS], mode="FAST_COMPILE")
    for argument in (value, context.from_host(value)):
        for got, wanted in zip(f(argument), expected(value), strict=True):
            assert_close(got, wanted)


def test_convert_variable(context, matrix):
    x, g = pt.matrix(dtype="float32"), matrix()
    wide = GpuArrayType("float32", (None, None))
    assert wide.filter_variable(g) is g
    moved = wide.filter_variable(x)
    assert isinstance(moved.owner.op, GpuFromHost) and moved.type == wide
    with pytest.raises(TypeError):
        wide.filter_variable(pt.vector(dtype="float32"))
    with pytest.raises(TypeError):
        matrix.filter_variable(x.astype("float64"))


def test_values_are_compared_on_the_host(context, matrix):
    a, b = (context.from_host(np.array(v, "float32")) for v in ([1, np.nan], [1, np.nan]))
    near = context.from_host(np.array([1 + 1e-6, np.nan], "float32"))
    assert matrix.values_eq(a, b) and not matrix.values_eq(a, near) and matrix.values_eq_approx(a, near)
    assert matrix.may_share_memory(a, a[:1]) and not matrix.may_share_memory(a, b)
    assert matrix.get_size(matrix.get_shape_info(a)) == 8


def test_constants_are_equal_if_they_hold_the_same_array(context):
    array = context.from_host(np.ones(3, "float32"))
    kind = GpuArrayType("float32", (3,))
    a, b = (GpuArrayConstant(kind, array) for _ in range(2))
    assert a.signature() == b.signature() != GpuArrayConstant(kind, array.copy()).signature()
    f = opencl([], [a + 1, a + b])
    assert_close(f()[1], np.full(3, 2, "float32"))


def test_host_functions_take_device_arrays(context, rng):
    value = rng.normal(size=(2, 3)).astype("float32")
    x = pt.matrix(dtype="float32")
    assert_close(pytensor.function([x], x * 2, mode="FAST_COMPILE")(context.from_host(value)), value * 2)
    assert_close(opencl([x], x * 2)(context.from_host(value)[::-1]), value[::-1] * 2)
