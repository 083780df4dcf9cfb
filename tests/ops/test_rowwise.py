"""Functions of rows in compiled functions: softmax and its like, normalisation, reductions of expressions."""

import pickle

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor import scalar as ps
from pytensor.scalar.loop import ScalarLoop
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.special import log_softmax, softmax
from pytensor.tensor.type import TensorType

from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.reduction import GpuCAReduce
from pytensor_cl.ops.rowwise import GpuRowwise
from pytensor_cl.runtime.device import DeviceInfo
from tests.helpers import assert_close, assert_on_device, check_against_python, device_ops, opencl


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel():
    with pytensor.config.change_flags(opencl__placement="device", floatX="float32"):
        yield


def check(inputs, outputs, *arguments):
    return check_against_python(inputs, outputs, (GpuRowwise,), *arguments)


def kinds(f):
    return [type(op) for op in device_ops(f)]


def matrix_values(rng, *shapes):
    return [(rng.normal(size=shape).astype("float32"),) for shape in shapes]


def layer_norm(x, gain, bias, axis=-1):
    centred = x - x.mean(axis, keepdims=True)
    return centred / pt.sqrt(x.var(axis, keepdims=True) + 1e-5) * gain + bias


def test_softmax_is_one_kernel(context, rng):
    x = pt.fmatrix("x")
    for axis in (0, 1):
        f = check([x], [softmax(x, axis=axis)], *matrix_values(rng, (7, 33), (1, 1)))
        assert kinds(f) == [GpuRowwise]
        assert str(device_ops(f)[0]) == f"GpuRowwise{{axes=({axis},): max, sub, exp, sum, true_div}}"


def test_softmax_of_what_was_shifted_already(context, rng):
    x = pt.fmatrix("x")
    f = check([x], [softmax(x - x.max(axis=1, keepdims=True), axis=1)], *matrix_values(rng, (4, 40)))
    assert device_ops(f)[0].full_name == "GpuRowwise{axes=(1,): max, sub, sub, sub, exp, sum, true_div}"


def test_log_softmax_and_logsumexp(context, rng):
    x = pt.ftensor3("x")
    value = rng.normal(size=(4, 5, 21)).astype("float32")
    check([x], [log_softmax(x, axis=-1), pt.logsumexp(x, axis=(0, 1))], (value,), (value + 300,))


def test_gradients_of_softmax(context, rng):
    x, c = pt.fmatrices("x", "c")
    values = tuple(rng.normal(size=(6, 30)).astype("float32") for _ in range(2))
    costs = (softmax(x, axis=1) * c).sum(), (log_softmax(x, axis=0) * c).sum(), pt.sqr(pt.logsumexp(x, axis=1)).sum()
    check([x, c], [pytensor.grad(cost, x) for cost in costs], values)


def test_reductions_of_what_is_made_row_by_row_join_the_rows(context, rng):
    x, c = pt.fmatrices("x", "c")
    cost = (softmax(x, axis=1) * c).sum()
    f = check([x, c], [cost, pytensor.grad(cost, x)], *(matrix_values(rng, (60, 7))[0] * 2 for _ in range(2)))
    assert kinds(f) == [GpuRowwise, GpuCAReduce]
    centred = x - x.mean(0)
    for whole in (abs(centred).max(), centred.min(), pt.any(centred > 2), (centred**2).mean(), centred.sum((0, 1))):
        assert kinds(check([x], [centred, whole], *matrix_values(rng, (50, 9))))[0] == GpuRowwise
    cube = pt.ftensor3("cube")
    shifted = cube - cube.max(-1, keepdims=True)
    values = (rng.normal(size=(5, 6, 7)).astype("float32"),)
    f = check([cube], [shifted, pt.exp(shifted).sum(), shifted.prod(), pt.exp(shifted).sum((1, 2))], values)
    assert "axes=(2,)" in str(device_ops(f)[0])


def test_gradients_of_a_mean_do_not_wait_for_it(context, rng):
    """PyTensor's fusion makes one Composite of the mean and of what its gradient is divided by."""
    x, y, mask = pt.fmatrix("x"), pt.fmatrix("y"), pt.bmatrix("mask")
    error = pt.switch(mask > 0, (x - y) ** 2, 0)
    cost = (error.sum(1) / pt.maximum(mask.sum(1), 1)).mean()
    values = (
        *matrix_values(rng, (9, 40))[0],
        *matrix_values(rng, (9, 40))[0],
        rng.integers(0, 2, (9, 40)).astype("int8"),
    )
    f = check([x, y, mask], [cost, pytensor.grad(cost, x)], values)
    assert kinds(f).count(GpuRowwise) == 1
    assert not any("switch" in str(op).lower() for op in device_ops(f) if isinstance(op, GpuElemwise))


def test_single_numbers_of_the_host_alone_keep_their_dimensions(context, rng):
    """Computed apart from a sum, nothing but two 0-d values is left of what made them 1 by 1."""
    x, a, b = pt.fmatrix("x"), pt.fscalar("a"), pt.fscalar("b")
    scale = pt.exp(pt.expand_dims(a, (0, 1)) * pt.expand_dims(b, (0, 1)))
    total = pt.exp(x).sum(keepdims=True)
    values = matrix_values(rng, (3, 4))[0] + (np.float32(0.5), np.float32(-2))
    with pytensor.config.change_flags(on_opt_error="raise"):
        f = check([x, a, b], [total * scale, scale + 1, scale * 2 + total], values)
    assert [v.type.shape for v in f.maker.fgraph.outputs] == [(1, 1)] * 3


def test_a_copy_keeps_a_length_that_follows_from_other_inputs(context, rng):
    """The condition is computed twice, once without the array that has two columns."""
    x, y = pt.fmatrix("x"), pt.tensor("y", dtype="float32", shape=(None, 2))
    outputs = [pt.log(pt.exp(pt.switch(x > 0, y, x)).sum(1)), (x > 0).all(), (x > 0).all(0)]
    values = matrix_values(rng, (5, 2))[0] + matrix_values(rng, (5, 2))[0]
    with pytensor.config.change_flags(on_opt_error="raise"):
        check([x, y], outputs, values)


def test_reductions_along_different_axes_store_nothing_for_each_other(context, rng):
    x, y = pt.fmatrix("x"), pt.fmatrix("y")
    cost = pt.sqrt(((x[:, None] - y[None]) ** 2).sum(-1) + 1e-3).sum()
    values = matrix_values(rng, (30, 3))[0] + matrix_values(rng, (40, 3))[0]
    f = check([x, y], [cost, *pytensor.grad(cost, [x, y])], values)
    made = [v for node in f.maker.fgraph.apply_nodes if isinstance(node.op, GpuRowwise) for v in node.outputs]
    assert len(made) >= 3
    assert not any(v.type.broadcastable == (False, False, False) for v in made)


def test_classifier(context, rng):
    x, y, w, b = pt.fmatrix("x"), pt.lvector("y"), pt.fmatrix("w"), pt.fvector("b")
    cost = -log_softmax(x @ w + b, axis=1)[pt.arange(y.shape[0]), y].mean()
    values = [rng.normal(size=shape).astype("float32") for shape in ((20, 8), (8, 5), (5,))]
    f = check([x, w, b, y], [cost, *pytensor.grad(cost, [w, b])], (*values, rng.integers(0, 5, 20)))
    assert kinds(f).count(GpuRowwise) == 1


def test_a_sum_of_labels_joins_the_gradient_that_uses_it(context, rng):
    x, y = pt.fmatrices("x", "y")
    cost = -(y * log_softmax(x, axis=1)).sum()
    values = tuple(rng.normal(size=(6, 10)).astype("float32") for _ in range(2))
    f = check([x, y], [pytensor.grad(cost, x)], values)
    assert kinds(f) == [GpuRowwise]


def test_layer_norm(context, rng):
    x, gain, bias = pt.ftensor3("x"), pt.fvector("gain"), pt.fvector("bias")
    arrays = [rng.normal(size=shape).astype("float32") for shape in ((3, 7, 24), (24,), (24,))]
    y = layer_norm(x, gain, bias)
    f = check([x, gain, bias], [y], arrays)
    assert GpuCAReduce not in kinds(f)
    assert kinds(f).count(GpuRowwise) == 1
    check([x, gain, bias], pytensor.grad((y**3).sum(), [x, gain, bias]), arrays)


def test_norms_and_moments(context, rng):
    x = pt.fmatrix("x")
    outputs = [x.var(1), x.norm(2), x / pt.sqrt((x**2).sum(0, keepdims=True)), pt.sum(x * x[:, ::-1], axis=0)]
    check([x], outputs, *matrix_values(rng, (9, 50)))


def test_mixture(context, rng):
    x, means, weights = pt.fvector("x"), pt.fvector("means"), pt.fvector("weights")
    component = -0.5 * (x[:, None] - means[None, :]) ** 2 + log_softmax(weights)[None, :]
    cost = pt.logsumexp(component, axis=1).sum()
    values = [rng.normal(size=n).astype("float32") for n in (100, 4, 4)]
    check([x, means, weights], [cost, *pytensor.grad(cost, [means, weights])], values)


def test_batch_norm_over_several_axes(context, rng):
    x = pt.ftensor4("x")
    mean, var = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
    value = rng.normal(size=(4, 3, 6, 5)).astype("float32")
    check([x], [(x - mean) / pt.sqrt(var + 1e-5), mean, var], (value,))


@pytest.mark.parametrize("dtype", ["float64", "int8", "bool"])
def test_other_dtypes(context, rng, dtype):
    x = pt.matrix("x", dtype=dtype)
    value = (rng.normal(size=(8, 35)) * 3).astype(dtype)
    check([x], [pt.sum(x * x, axis=1), pt.all(pt.neq(x, 1), axis=1), pt.max(x + x, axis=1)], (value,))


def test_nan_and_infinity_go_their_way(context):
    x = pt.fmatrix("x")
    value = np.array([[1, 2, np.nan], [np.inf, 1, 2], [-np.inf, 0, 1], [-np.inf] * 3, [np.inf, -np.inf, 0]], "float32")
    shifted = x - x.max(axis=1, keepdims=True)
    outputs = [softmax(x, axis=1), log_softmax(x, axis=1), pt.logsumexp(x, axis=1), softmax(shifted, axis=1)]
    f = opencl([x], outputs)
    with np.errstate(all="ignore"):
        for wide in (value, np.repeat(value, 9, axis=1)):
            for got, wanted in zip(f(wide), pytensor.function([x], outputs, mode="FAST_COMPILE")(wide), strict=True):
                np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_reductions_that_share_an_input_share_a_kernel(context, rng):
    x = pt.fmatrix("x")
    f = check([x], [x.sum(), (x**2).sum(), x.max()], *matrix_values(rng, (30, 50)))
    assert kinds(f).count(GpuRowwise) == 1
    assert GpuElemwise not in kinds(f)


def test_a_full_result_that_others_need_is_written(context, rng):
    x = pt.fmatrix("x")
    y = pt.exp(x)
    check([x], [y, y.sum(1), y @ y.T], *matrix_values(rng, (12, 20)))


def test_results_that_depend_on_row_values_only(context, rng):
    x, y = pt.fmatrix("x"), pt.fcol("y")
    scalars = [pytensor.scalar.float32() for _ in range(2)]
    one = pytensor.scalar.constant(np.float32(3))
    results = [
        scalars[0] * scalars[1],
        scalars[1] + scalars[1],
        pytensor.scalar.identity(one),
        pytensor.scalar.identity(scalars[1]),
    ]
    both = Elemwise(pytensor.scalar.Composite(scalars, results))(x, y)
    values = [rng.normal(size=shape).astype("float32") for shape in ((7, 20), (7, 1))]
    check([x, y], [v.sum(1) for v in both] + [both[1], both[3]], values)


def test_rows_of_different_length_are_not_fused(context, rng):
    x, y = pt.fmatrices("x", "y")
    outputs = [y - x.sum(1, keepdims=True), pt.exp(x).sum(1)]
    check([x, y], outputs, [rng.normal(size=shape).astype("float32") for shape in ((5, 9), (5, 4))])


def test_errors_are_those_of_the_host(context):
    x, y = pt.fmatrices("x", "y")
    f = opencl([x, y], [(x * y).sum(1), x.max(1) + y.max(1)])
    ones = np.ones((3, 4), "float32")
    with pytest.raises(ValueError, match="mismatch|broadcast"):
        f(ones, ones[:, :1])
    with pytest.raises(ValueError, match="zero-size array"):
        f(ones[:, :0], ones[:, :0])


def test_shape_and_pickle(context, rng):
    x = pt.fmatrix("x")
    y = softmax(x, axis=1)
    f = pickle.loads(pickle.dumps(opencl([x], [y, y.shape, x.sum(1) * 2 + pt.exp(x).sum(1)])))
    value = rng.normal(size=(4, 6)).astype("float32")
    assert list(f(value)[1]) == [4, 6]
    assert_close(f(value)[2], 2 * value.sum(1) + np.exp(value).sum(1))


def test_values_of_rows_that_are_used_after_the_reduction(context):
    """Both schedules: what each row computes of its own is not the same for all rows."""
    x, s = pt.fmatrix("x"), pt.fvector("s")
    outputs = [(x * x).sum(0) / pt.exp(s), pt.max(pt.sqr(x), axis=0) * pt.exp(-s)]
    values = np.ones((5, 3), "float32"), np.float32([1, 2, 3])
    for schedule in ("cpu", "simt"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DeviceInfo, "schedule", property(lambda self, s=schedule: s))
            f = opencl([x, s], outputs)
            assert_on_device(f, GpuRowwise)
            for got, wanted in zip(f(*values), (5 * np.exp(-values[1]), np.exp(-values[1])), strict=True):
                assert_close(got, wanted)


def test_numbers_that_rows_are_scaled_by_are_computed_with_them(context, rng):
    """On a GPU: a launch takes longer than a number for each work-item."""
    x, s = pt.fvector("x"), pt.fscalar("s")
    step = x - 1
    outputs = [pt.sqr(step).sum() * pt.exp(-2 * s) + s]
    outputs += pt.grad(outputs[0], [step, s])
    values = rng.normal(size=1000).astype("float32"), np.float32(0.3)
    scale, total = np.exp(-0.6), np.sum((values[0] - 1) ** 2)
    expected = total * scale + 0.3, 2 * (values[0] - 1) * scale, 1 - 2 * total * scale
    for schedule in ("cpu", "simt"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DeviceInfo, "schedule", property(lambda self, s=schedule: s))
            f = opencl([x, s], outputs)
            assert kinds(f).count(GpuRowwise) == 1
            assert (GpuElemwise in kinds(f)) == (schedule == "cpu")
            for got, wanted in zip(f(*values), expected, strict=True):
                np.testing.assert_allclose(got, wanted, rtol=2e-5)


def test_the_mean_of_what_rows_have_left_is_one_kernel_on_a_gpu(context, rng):
    x = pt.fmatrix("x")
    outputs = -pt.sqr(log_softmax(x, axis=1)).sum() / 3
    value = rng.normal(size=(300, 20)).astype("float32")
    scores = value - np.log(np.exp(value).sum(axis=1, keepdims=True))
    for schedule, others in (("cpu", [GpuCAReduce, GpuElemwise]), ("simt", [GpuRowwise])):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DeviceInfo, "schedule", property(lambda self, s=schedule: s))
            f = opencl([x], outputs)
            assert len(kinds(f)) == 1 + len(others)
            assert all(issubclass(kind, one) for kind, one in zip(kinds(f), [GpuRowwise, *others], strict=True))
            np.testing.assert_allclose(f(value), -np.sum(scores**2) / 3, rtol=1e-5)


def test_a_shape_that_was_learnt_late(context, rng):
    """A sum over the rows of a column whose width was unknown when the sum was made is not fused with nodes of a known width."""
    x = pt.tensor("x", dtype="float32", shape=(None, 1))
    y = x * 2
    total = y.sum(0)
    total.type = TensorType("float32", (None,))  # as if y had become a column later
    value = rng.normal(size=(5, 1)).astype("float32")
    f = opencl([x], [y, total / 2])
    assert_close(f(value)[0], 2 * value)
    assert_close(f(value)[1], value.sum(0))


def test_a_loop_with_several_results_beside_a_sum(context, rng):
    """Each step of a row function has one result: the loop keeps a kernel of its own."""
    x0, y0 = ps.float32("x0"), ps.float32("y0")
    loop = Elemwise(ScalarLoop(init=[x0, y0], update=[x0 * 0.5 + y0, y0 * 0.25]))
    x = pt.fmatrix("x")
    half, quarter = loop(pt.constant(3), x, x + 1)
    with pytensor.config.change_flags(on_opt_error="raise"):
        f = opencl([x], [half.sum(axis=1), quarter, quarter.sum(axis=1)])
    assert_on_device(f, GpuElemwise, GpuCAReduce)
    (data,) = matrix_values(rng, (5, 40))[0]
    x_now, y_now = data, data + 1
    for _ in range(3):
        x_now, y_now = x_now * 0.5 + y_now, y_now * 0.25
    for got, wanted in zip(f(data), (x_now.sum(1), y_now, y_now.sum(1)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_columns_of_two_lengths_that_share_a_scalar(context, rng):
    """The means of arrays with the same number of rows are divided by one scalar; each array has a kernel of its own."""
    inputs, outputs = [], []
    for columns in (2, 3):
        new, old, slope = (pt.tensor(f"{name}{columns}", dtype="float32", shape=(16, columns)) for name in "nos")
        chosen = pt.switch(old > 0, new, old)
        inputs += [new, old, slope]
        outputs += [chosen.mean(axis=0), chosen.var(axis=0), slope.var(axis=0)]
    f = check(inputs, outputs, [rng.normal(size=(16, k)).astype("float32") for k in (2, 2, 2, 3, 3, 3)])
    assert_on_device(f, GpuRowwise)
