"""Kernels of the user's as Ops: the exercises of PyTensor's GPU tutorial, gradients, fusion, and the other modes."""

import pickle
import re
from importlib.util import find_spec

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import verify_grad
from pytensor.graph.replace import vectorize_graph

import pytensor_cl
from pytensor_cl import ElementwiseKernel, ReductionKernel, as_op
from pytensor_cl.errors import CompilationError
from pytensor_cl.linker.reports.profile import profile
from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.rowwise import GpuRowwise
from pytensor_cl.ops.user_kernels.batched import GpuBatchedKernel
from pytensor_cl.ops.user_kernels.elementwise import GpuElementwise
from pytensor_cl.ops.user_kernels.reduction import GpuUserReduction
from tests.helpers import assert_all_on_device, device_ops, host_ops, on_one_driver, opencl

TWICE = ElementwiseKernel("T x", "T z", "z = 2 * x", "twice")
PRODUCT = ElementwiseKernel("T x, T y", "T z", "z = x * y", "product")
PRODUCT_GRAD = ElementwiseKernel("T x, T y, T gz", "T gx, T gy", "gx = gz * y; gy = gz * x", "product_grad")
BOTH = ElementwiseKernel("T x, T y", "T s, T d", "s = x + y; d = x - y", "sum_and_difference")
ROLL = ElementwiseKernel("raw T x, T y", "T z", "z = x[(i + 1) % n] - y", "roll")
product_op = as_op(PRODUCT, grad=PRODUCT_GRAD)


def twice_gradient(x, z, gz):
    return [2 * gz]


def product_on_host(x, y):
    return x * y


def kinds(f):
    """The compute Ops of a function on the device."""
    return [type(op) for op in device_ops(f) if op.is_compute]


def test_twice(context, rng):
    twice_op = as_op(TWICE, grad=lambda x, z, gz: [2 * gz])
    x = pt.fmatrix("x")
    f = opencl([x], [twice_op(x), pt.grad(twice_op(x).sum(), x)])
    value = rng.normal(size=(20, 10)).astype("float32")
    z, g = f(value)
    np.testing.assert_array_equal(z, 2 * value)
    np.testing.assert_array_equal(g, np.full_like(value, 2))


def test_product_is_fused_with_its_neighbours(context, rng):
    x, y = pt.fmatrices("xy")
    f = opencl([x, y], pt.exp(product_op(x, y)))
    assert kinds(f) == [GpuElemwise] and host_ops(f) == []
    a, b = rng.normal(size=(2, 3, 4)).astype("float32")
    for _ in range(5):  # the third call is captured
        np.testing.assert_allclose(f(a, b), np.exp(a * b), rtol=1e-6)
    (captured,) = f.vm.executor.graphs.values()
    assert captured.kernels == 1
    rows = opencl([x, y], pt.exp(product_op(x, y)).sum(axis=1))
    assert kinds(rows) == [GpuRowwise]
    np.testing.assert_allclose(rows(a, b), np.exp(a * b).sum(axis=1), rtol=1e-6)
    assert "product" in str(device_ops(f)) and "product" in str(pytensor_cl.explain(f))


def test_two_outputs(context, rng):
    both_op = as_op(BOTH, grad=lambda x, y, s, d, gs, gd: [gs + gd, gs - gd])
    x, y = pt.fmatrix("x"), pt.fvector("y")
    s, d = both_op(x, y)
    cost = (s * d).sum() + s.sum()
    f = opencl([x, y], [s, d, *pt.grad(cost, [x, y])])
    assert kinds(f) == [GpuRowwise]
    a, b = rng.normal(size=(3, 4)).astype("float32"), rng.normal(size=4).astype("float32")
    for got, expected in zip(f(a, b), (a + b, a - b, 2 * a + 1, (1 - 2 * np.tile(b, (3, 1))).sum(0)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5)
    only = opencl([x, y], pt.grad(d.sum(), y))  # the cost does not depend on s
    np.testing.assert_array_equal(only(a, b), np.full(4, -3, "float32"))
    s, d = both_op(y[:, None], y[None, :])  # neither input has the shape of the outputs
    square = opencl([y], [s, d])
    assert kinds(square) == [GpuElementwise]
    np.testing.assert_allclose(square(b), [b[:, None] + b, b[:, None] - b], rtol=1e-6)


def test_what_is_fused(context, rng):
    """Several outputs, the number of elements, a variable `i` of a loop, and kernels one after the other."""
    x, y = pt.fmatrices("xy")
    both_op = as_op(BOTH)
    shares = as_op(ElementwiseKernel("T x", "T z", "for (int i = 0; i < 3; i++) { z += i * x / n; }", "shares"))
    s, d = both_op(x, shares(y))
    f = opencl([x, y], pt.exp(s) * shares(d))
    assert kinds(f) == [GpuElemwise] and f.maker.fgraph.outputs[0].type.ndim == 2
    for shape in ((3, 4), (2, 3), (0, 2)):  # the number is an argument of a captured kernel
        a, b = rng.normal(size=(2, *shape)).astype("float32")
        n = max(1, a.size)
        for _ in range(4):
            np.testing.assert_allclose(f(a, b), np.exp(a + 3 * b / n) * 3 / n * (a - 3 * b / n), rtol=1e-4, atol=1e-6)
    (op,) = [op for op in device_ops(f) if op.is_compute]
    source = op.routine(next(n for n in f.maker.fgraph.apply_nodes if n.op is op), context).sources()[0].source
    assert len(re.findall(r"\buser_sum_and_difference_\w+\(", source)) == 1  # one call for both outputs


def test_gradients(context, rng):
    if not context.info.has_fp64:
        pytest.skip("verify_grad computes in float64")
    shapes = [rng.normal(size=(2, 3)), rng.normal(size=(1, 3))]
    verify_grad(product_op, shapes, mode="OPENCL", rng=rng)
    by_input = as_op(PRODUCT, grad={"x": lambda x, y, z, gz: gz * y, "y": PRODUCT_GRAD})
    x, y = pt.dmatrices("xy")
    gradients = opencl([x, y], pt.grad(by_input(x, y).sum(), [x, y]))(*shapes[:1], shapes[0])
    np.testing.assert_array_equal(gradients, [shapes[0]] * 2)
    square = ElementwiseKernel("T x", "T z", "z = x * x", "square")
    square_op = as_op(square, grad=lambda x, z, gz: 2 * x * gz)
    verify_grad(lambda x: pt.grad(square_op(x).sum() ** 2, x), [rng.normal(size=4)], mode="OPENCL", rng=rng)
    roll_op = as_op(ROLL, grad=lambda x, y, z, gz: [pt.roll(gz, 1), -gz])
    verify_grad(roll_op, [rng.normal(size=5), rng.normal(size=5)], mode="OPENCL", rng=rng)


def test_where_no_gradient_flows(context):
    switch = ElementwiseKernel("int32 k, T x", "T z, int32 c", "z = k > 0 ? x : -x; c = k + 1", "switch")
    op = as_op(switch, grad=lambda k, x, z, c, gz, gc: [None, pt.switch(k > 0, gz, -gz)])
    k, x = pt.ivector("k"), pt.fvector("x")
    z, c = op(k, x)
    f = opencl([k, x], [pt.grad(z.sum(), x), c])
    g, count = f(np.array([1, -1], "int32"), np.ones(2, "float32"))
    np.testing.assert_array_equal(g, np.array([1, -1], "float32"))
    np.testing.assert_array_equal(count, np.array([2, 0], "int32"))
    with pytest.raises(pytensor.gradient.DisconnectedInputError):
        pt.grad(c.sum().astype("float32"), x)
    with pytest.raises(NotImplementedError, match="op twice has no gradient: pass grad= to as_op"):
        pt.grad(as_op(TWICE)(x).sum(), x)


def test_numbers_of_elements_and_raw_arrays(context, rng):
    x, y, n = pt.fmatrix("x"), pt.fmatrix("y"), pt.lscalar("n")
    f = opencl([x, y], pt.exp(as_op(ROLL)(x.T, y)))
    assert kinds(f) == [GpuElementwise, GpuElemwise] and host_ops(f) == []
    a, b = rng.normal(size=(4, 3)).astype("float32"), rng.normal(size=(3, 4)).astype("float32")
    for _ in range(5):
        np.testing.assert_allclose(f(a, b), np.exp(np.roll(a.T.ravel(), -1).reshape(3, 4) - b), rtol=1e-6)
    shifted = as_op(ElementwiseKernel("T x, int64 k", "T z", "z = x + (i + k) % n", "shifted"))
    f = opencl([x, n], shifted(x, n))
    for k in (1, 2, 3, 4, 5):  # the number is an argument of a captured kernel
        np.testing.assert_allclose(f(a, k), a + (np.arange(12).reshape(4, 3) + k) % 12, rtol=1e-6)


def test_lengths_that_are_not_known_to_be_one(context):
    """They are not repeated, as the gradient would not be summed: in all modes, by kernels of their own too."""
    x, y = pt.fmatrices("xy")
    a, b = np.ones((2, 3), "float32"), np.ones((1, 3), "float32")
    numbered = as_op(ElementwiseKernel("T x, T y", "T z", "z = x * y + i", "numbered"))
    total = as_op(ReductionKernel("T x, T y", "T z", "x * y", "hypot(a, b)", "z = a", "0", "total"))
    for result, mode in ((numbered(x, y), "OPENCL"), (total(x, y), "OPENCL"), (product_op(x, y), "FAST_COMPILE")):
        f = pytensor.function([x, y], result, mode=mode)
        f(a, a)
        with pytest.raises(ValueError, match="Runtime broadcasting not allowed"):
            f(a, b)
        with pytest.raises(ValueError, match="mismatch"):
            f(a, a[:, :2])


def test_numbers_and_scalars(context, rng):
    x, s = pt.fvector("x"), pt.fscalar("s")
    a = rng.normal(size=3).astype("float32")
    f = opencl([x, s], [product_op(x, 2), product_op(x, s), product_op(s, 3.5)])
    for got, expected in zip(f(a, 4), (2 * a, 4 * a, np.float32(14)), strict=True):
        np.testing.assert_array_equal(got, expected, strict=True)
    chosen = as_op(ElementwiseKernel("int32 k", "U z", "z = k * 0.5", "half"), outputs={"z": "float32"})
    k = pt.ivector("k")
    np.testing.assert_array_equal(opencl([k], chosen(k))([3, 4]), np.array([1.5, 2], "float32"), strict=True)


def test_static_shapes():
    x, y = pt.tensor("x", shape=(3, None), dtype="float32"), pt.tensor("y", shape=(None, 4), dtype="float32")
    assert product_op(x, y).type.shape == (3, 4)
    assert product_op(x, pt.fscalar()).type.shape == (3, None)
    with pytest.raises(ValueError, match="op product: the shapes do not fit together"):
        product_op(x, pt.tensor("w", shape=(2, 4), dtype="float32"))
    with pytest.raises(TypeError, match="x is float32 and y is float64, but both are declared T"):
        product_op(x, pt.dmatrix())
    with pytest.raises(TypeError, match="op product takes 2 inputs, not 1"):
        product_op(x)


def test_equal_kernels_are_merged(context):
    again = as_op(ElementwiseKernel("T x", "T z", "z = 2 * x", "twice"), grad=twice_gradient)
    op = as_op(TWICE, grad=twice_gradient)
    assert op == again and hash(op) == hash(again) and op != as_op(TWICE)
    x = pt.fvector("x")
    f = opencl([x], [op(x), again(x)])
    assert len(kinds(f)) == 1
    restored = pickle.loads(pickle.dumps(op))
    assert restored == op and str(restored) == "twice"
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        pickle.dumps(as_op(TWICE, grad=lambda x, z, gz: [2 * gz]))
    g = pickle.loads(pickle.dumps(f))
    np.testing.assert_array_equal(g(np.ones(2, "float32"))[0], [2, 2])


def test_batches(context, rng):
    x, y, batch = pt.fvector("x"), pt.fvector("y"), pt.fmatrix("batch")
    a, b = rng.normal(size=(3, 4)).astype("float32"), rng.normal(size=4).astype("float32")
    f = opencl([batch, y], vectorize_graph(product_op(x, y), {x: batch}))
    np.testing.assert_array_equal(f(a, b), a * b)
    assert kinds(f) == [GpuElemwise]
    f = opencl([batch, y], vectorize_graph(as_op(ROLL)(x, y), {x: batch}))
    assert_all_on_device(f, GpuBatchedKernel)
    for _ in range(4):
        np.testing.assert_allclose(f(a, b), np.roll(a, -1, axis=1) - b, rtol=1e-6)
    (captured,) = f.vm.executor.graphs.values()
    assert captured.kernels == 3


@on_one_driver
@pytest.mark.parametrize("mode", ["FAST_COMPILE", "CVM", "NUMBA", "JAX"])
def test_other_modes(context, rng, mode, recwarn):
    if mode == "JAX":
        pytest.importorskip("jax")
    x, y, batch = pt.fvector("x"), pt.fvector("y"), pt.fmatrix("batch")
    a, b = rng.normal(size=(3, 4)).astype("float32"), rng.normal(size=4).astype("float32")
    on_host = as_op(PRODUCT, perform=product_on_host)
    rolled = as_op(ROLL)(x, y)
    outputs = [pt.exp(product_op(x, y)), on_host(x, y), rolled]
    if mode != "NUMBA":  # which takes seconds to compile it
        outputs.append(vectorize_graph(rolled, {x: batch}))
    f = pytensor.function([x, y, batch], outputs, mode=mode, on_unused_input="ignore")
    expected = (np.exp(a[0] * b), a[0] * b, np.roll(a[0], -1) - b, np.roll(a, -1, axis=1) - b)
    for got, wanted in zip(f(a[0], b, a), expected, strict=False):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
    assert not [w for w in recwarn if "of product" in str(w.message)]


def test_the_host_does_not_compute_them(context, rng):
    """Small values and neighbours without a kernel keep other Ops on the host."""
    x, n = pt.fscalar("x"), pt.lscalar("n")
    with pytensor.config.change_flags(opencl__placement="auto", opencl__select_backend=True):
        f = opencl([x], product_op(x, 3.0))
        assert kinds(f) == [GpuElemwise]
        for _ in range(4):
            assert f(2) == 6
        g = opencl([n], as_op(TWICE)(n) + 1)
        assert g(3) == 7
    assert "kernels of the user's" in str(pytensor_cl.explain(f))


def test_in_a_loop(context, rng):
    x = pt.fvector("x")
    steps = pytensor.scan(lambda s: product_op(s, s), outputs_info=[x], n_steps=3, return_updates=False)
    f = opencl([x], steps[-1])
    a = rng.normal(size=5).astype("float32")
    np.testing.assert_allclose(f(a), a**8, rtol=1e-5)


def test_profile_names_it(context, rng):
    x, y = pt.fmatrix("x"), pt.fmatrix("y")
    f = opencl([x, y], [as_op(ROLL)(x, y), pt.exp(product_op(x, y))])
    a = rng.normal(size=(2, 3)).astype("float32")
    with profile(f) as report:
        for _ in range(4):
            f(a, a)
    assert "roll" in str(report) and "product" in str(report)


# What is wrong


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        (TypeError, "as_op makes Ops of kernels", {"kernel": "z = x"}),
        (TypeError, "pytensor.wrap_py makes Ops of Python functions", {"kernel": lambda x: x}),
        (TypeError, "infer_shape= is for raw kernels", {"infer_shape": lambda *a: a}),
        (TypeError, "perform= is a function of NumPy arrays", {"perform": 3}),
        (TypeError, "grad= is a function, a kernel, or a dict", {"grad": 3}),
        (TypeError, r"grad= is called with \(x, y, z, gz\)", {"grad": lambda x, gz: [gz, gz]}),
        (ValueError, "grad= has 'w', the inputs are x, y", {"grad": {"w": PRODUCT_GRAD}}),
        (ValueError, "of grad= takes 's'", {"grad": ElementwiseKernel("T s", "T gx", "gx = s")}),
        (ValueError, "of grad= makes 'z'", {"grad": ElementwiseKernel("T x", "T z", "z = x")}),
        (TypeError, "outputs= is a dict", {"outputs": ["float32"]}),
        (ValueError, "outputs whose dtype is open are: none", {"outputs": {"z": "float32"}}),
        (TypeError, "no input says what U of z is", {"kernel": ElementwiseKernel("T x", "U z", "z = x")}),
        (ValueError, "the output z is raw", {"kernel": ElementwiseKernel("T x", "raw T z", "z[0] = x")}),
        (
            ValueError,
            "that of the inputs that are not raw",
            {"kernel": ElementwiseKernel("raw T x", "T z", "z = x[i]")},
        ),
    ],
)
def test_wrong_arguments(error, message, arguments):
    with pytest.raises(error, match=message):
        as_op(**{"kernel": PRODUCT, **arguments})


def test_wrong_results_of_functions(context):
    x, y = pt.fvector("x"), pt.fvector("y")
    with pytest.raises(ValueError, match="grad= returned 1 gradients for 2 inputs"):
        pt.grad(as_op(PRODUCT, grad=lambda x, y, z, gz: [gz])(x, y).sum(), x)
    for made, error, message in (
        (lambda x, z, gz: None, TypeError, r"grad= returned None: is there a return in it\?"),
        (lambda x, z, gz: [gz.sum()], ValueError, "returned for the input x has 0 dimensions, not the 1 of the input"),
        (lambda x, z, gz: [pt.outer(x, gz)], ValueError, "has 2 dimensions, not the 1"),
        (lambda x, z, gz: [pt.zeros(3)], ValueError, r"has shape \(3,\), not that of the input, \(4,\)"),
        (lambda x, z, gz: [x > 0], TypeError, r"has dtype bool: cast it to float32"),
        (lambda x, z, gz: ["gz"], TypeError, "is 'gz', which is no expression of PyTensor"),
    ):
        static = pt.tensor("static", dtype="float32", shape=(4,))
        with pytest.raises(error, match=message):
            pt.grad(as_op(TWICE, grad=made)(static).sum(), static)
    two = pt.grad(as_op(TWICE, grad=lambda x, z, gz: [2])(x).sum(), x)  # a number is repeated
    assert two.eval({x: np.zeros(3, "float32")}, mode="OPENCL").tolist() == [2, 2, 2]
    for function, error, message in (
        (lambda x, y: (x, y), ValueError, "perform= returned 2 arrays, not 1"),
        (lambda x, y: (x * y).astype("float64"), TypeError, "perform= returned float64, not float32"),
        (lambda x, y: x.sum(), ValueError, "perform= returned 0 dimensions, not 1"),
    ):
        f = pytensor.function([x, y], as_op(PRODUCT, perform=function)(x, y), mode="FAST_COMPILE")
        with pytest.raises(error, match=message):
            f(np.ones(2, "float32"), np.ones(2, "float32"))


def test_errors_of_the_build_in_graphs(context):
    wrong = as_op(ElementwiseKernel("T x", "T z", "T d = x;\nz = d * dd;", "wrong"))
    x = pt.fvector("x")
    with pytest.raises(CompilationError) as caught:
        opencl([x], pt.exp(wrong(x)).sum())(np.ones(3, "float32"))
    message = str(caught.value)
    assert "kernel 'wrong' with T = float32 could not be built, in its operation" in message
    assert ">   2 | z = d * dd;" in message


# Reductions

NORM = ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "norm")
HYPOT = ReductionKernel("T x", "T y", "x", "hypot(a, b)", "y = a", "0", "hypotenuse")
MEAN = ReductionKernel("T x", "T y", "x", "a + b", "y = a / n", "0", "own_mean")
norm_op, hypot_op = (as_op(kernel, grad=lambda x, y, gy: [gy * x / y]) for kernel in (NORM, HYPOT))


@pytest.mark.parametrize("op", [norm_op, hypot_op], ids=["fused", "unfused"])
def test_reductions(context, rng, op):
    x = pt.fmatrix("x")
    a = rng.normal(size=(4, 30)).astype("float32")
    for axis in (None, 0, (1,)):
        f = opencl([x], [op(x, axis=axis), op(x, axis=axis, keepdims=True), pt.grad(op(x, axis=axis).sum(), x)])
        assert_all_on_device(f, GpuRowwise if op is norm_op else GpuUserReduction)
        kept = np.sqrt((a**2).sum(axis=axis, keepdims=True))
        for _ in range(4):
            plain, same, gradient = f(a)
            np.testing.assert_allclose(plain, np.sqrt((a**2).sum(axis=axis)), rtol=1e-5)
            np.testing.assert_allclose(same, kept, rtol=1e-5)
            np.testing.assert_allclose(gradient, a / kept, rtol=1e-5)


def test_neighbours_of_reductions(context, rng):
    """What is before a reduction is computed in its kernel, and `n` is no array."""
    x = pt.fmatrix("x")
    a = rng.normal(size=(4, 30)).astype("float32")
    f = opencl([x], as_op(MEAN)(pt.exp(x), axis=1))
    assert kinds(f) == [GpuRowwise, GpuElemwise]
    np.testing.assert_allclose(f(a), np.exp(a).mean(axis=1), rtol=1e-5)


def test_gradients_of_reductions(context, rng):
    if not context.info.has_fp64:
        pytest.skip("verify_grad computes in float64")
    for op in (norm_op, hypot_op):
        verify_grad(lambda x, op=op: op(x, axis=0), [rng.normal(size=(3, 4))], mode="OPENCL", rng=rng)
    by_kernel = ElementwiseKernel("T x, T y, T gy", "T gx", "gx = gy * x / y", "norm_grad")
    verify_grad(as_op(NORM, grad=by_kernel), [rng.normal(size=5)], mode="OPENCL", rng=rng)


def test_gradients_that_hold_for_all_elements(context, rng):
    """The gradient of a sum is its cotangent, which is repeated, and summed where an input was broadcast."""
    x, y = pt.fmatrix("x"), pt.fvector("y")
    total = ReductionKernel("T x, T y", "T z", "x + y", "a + b", "z = a", "0", "total")
    op = as_op(total, grad=lambda x, y, z, gz: [gz, gz])
    a, b = rng.normal(size=(2, 3)).astype("float32"), rng.normal(size=3).astype("float32")
    for axis in (0, 1):
        f = opencl([x, y], pt.grad((op(x, y, axis=axis) ** 2).sum(), [x, y]))
        expected = np.broadcast_to(2 * (a + b).sum(axis=axis, keepdims=True), a.shape)
        for got, wanted in zip(f(a, b), (expected, expected.sum(axis=0)), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4)


def test_batches_and_modes_of_reductions(context, rng):
    x, batch = pt.fvector("x"), pt.fmatrix("batch")
    a = rng.normal(size=(4, 5)).astype("float32")
    expected = np.sqrt((a**2).sum(axis=1))
    modes = ("OPENCL", "FAST_COMPILE", "CVM", *(("JAX",) if find_spec("jax") else ()))
    for mode in modes:
        for op in (norm_op, hypot_op):
            f = pytensor.function([batch], vectorize_graph(op(x), {x: batch}), mode=mode)
            np.testing.assert_allclose(f(a), expected, rtol=1e-5)
    raw = ReductionKernel("raw T x, int64 k", "T y", "x[k]", "a + b", "y = a", "0", "gathered")
    k = pt.lvector("k")
    f = opencl([x, k], as_op(raw)(x, k))
    assert kinds(f) == [GpuUserReduction]
    np.testing.assert_allclose(f(a[0], [1, 1, 3]), 2 * a[0, 1] + a[0, 3], rtol=1e-6)
    with pytest.raises(NotImplementedError, match="op gathered: a reduction with raw inputs"):
        vectorize_graph(as_op(raw)(x, k), {x: batch})


def test_equal_reductions(context):
    x = pt.fmatrix("x")
    op = as_op(NORM)
    assert op.over((1,)) == as_op(NORM).over((1,)) != op and pickle.loads(pickle.dumps(op)) == op
    assert str(op(x, axis=1).owner.op) == "norm{axes=(1,)}"
    with pytest.raises(np.exceptions.AxisError):
        op(x, axis=2)
    with pytest.raises(NotImplementedError, match="op norm has no gradient"):
        pt.grad(op(x), x)
    with pytest.raises(ValueError, match="there is no identity"):
        highest = ReductionKernel("T x", "T y", "x", "b > a ? b : a", "y = a", None)
        opencl([x], as_op(highest)(x))(np.ones((0, 2), "float32"))
