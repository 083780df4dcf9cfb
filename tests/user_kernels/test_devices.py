"""Kernels of users on devices of other kinds: graphics cards, devices without double precision, very large arrays."""

import re

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl import ElementwiseKernel, RawKernel, ReductionKernel, as_op
from pytensor_cl.errors import UnsupportedDtype
from pytensor_cl.runtime.context import Context, Settings
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.user_kernels.elementwise import user_function
from pytensor_cl.user_kernels.launches import ArrayInfo, RawLaunches, RawOperation, Signature
from pytensor_cl.user_kernels.reduction_function import reduction_functions
from pytensor_cl.user_kernels.reduction_routine import UserReduction
from pytensor_cl.user_kernels.routine import Indexed, UserElemwise
from tests.device_apart import context_apart, device_apart

SHIFT = ElementwiseKernel("T x, T y", "T z", "z = x + exp(y)", "shift")
REVERSED = ElementwiseKernel("T y, raw T x", "T z", "z = x[n - 1 - i] * y", "reversed")
NORM = ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "norm")
LARGEST = ReductionKernel("T x", "T y", "x", "b > a ? b : a", "y = a", None, "largest")
TWICE = RawKernel(
    "__kernel void twice(__global const float *x, __global float *z, int n)"
    "{ int i = get_global_id(0); if (i < n) z[i] = 2 * x[i]; }",
    "twice",
)


def _values(x, y):
    return [x + np.exp(y), x.ravel()[::-1].reshape(x.shape) * y, np.sqrt((x * x).sum(axis=1)), x.max(axis=0)]


def test_schedule_of_graphics_cards(rng):
    x, y = rng.normal(size=(2, 70, 90)).astype("float32")
    with context_apart() as context:
        assert context.info.kind == "gpu"
        rx, ry = context.from_host(x), context.from_host(y)
        got = [SHIFT(rx, ry), REVERSED(ry, rx), NORM(rx, axis=1), LARGEST(rx, axis=0)]
        for one, expected in zip(got, _values(x, y), strict=True):
            np.testing.assert_allclose(one.to_host(), expected, rtol=1e-5, atol=1e-6)
        m, v = pt.fmatrix("m"), pt.fvector("v")
        ops = [as_op(kernel) for kernel in (SHIFT, REVERSED, NORM, LARGEST)]
        twice = as_op(TWICE, signature="(n)->(n)", grad=lambda x, z, gz: [2 * gz])
        outputs = [ops[0](m, m[::-1]), ops[1](m[::-1], m), ops[2](m, axis=1), ops[3](m, axis=0), twice(v)]
        f = pytensor.function([m, v], [*outputs, pt.grad(twice(v).sum(), v)], mode="OPENCL")
        for _ in range(4):  # replayed
            *got, doubled, gradient = f(x, x[0])
        for one, expected in zip(got, _values(x, x[::-1]), strict=True):
            np.testing.assert_allclose(one, expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(doubled, 2 * x[0])
        np.testing.assert_array_equal(gradient, np.full(90, 2, "float32"))


def test_without_double_precision(rng):
    context = Context("single", device_apart(has_fp64=False), Settings(quiet=True, parallel_compile=False))
    x = rng.normal(size=(5, 6)).astype("float32")
    r = context.from_host(x)
    kernel = ElementwiseKernel("T x, T a", "T z", "z = 0.5 * x + a * M_PI", "halved")
    np.testing.assert_allclose(kernel(r, 1.5).to_host(), 0.5 * x + 1.5 * np.pi, rtol=1e-6, atol=1e-6)
    for reduction, expected in ((NORM, np.sqrt((x * x).sum(axis=1))), (LARGEST, x.max(axis=1))):
        np.testing.assert_allclose(reduction(r, axis=1).to_host(), expected, rtol=1e-6)
    sources = [text for one in (kernel, NORM, LARGEST) for text in _sources(one, context)]
    assert sources and not any(re.search(r"\bdouble\b", source) for source in sources)
    with pytest.raises(UnsupportedDtype, match="float64"):
        ElementwiseKernel("T x", "float64 z", "z = x", "wide")(r)


def _sources(kernel, context):
    """The texts of a kernel for float32 on a context that is not registered."""
    routine = getattr(kernel, "_plain_routine", None) or kernel._matrix_routine
    return ["\n".join((*s.preambles, s.source)) for s in routine(("float32",), context).sources()]


@pytest.mark.parametrize("schedule", ["cpu", "simt"])
def test_indices_beyond_31_bits(context, schedule):
    """Arrays that are never there: the plan of a launch has 64-bit indices where the elements or strides need them."""
    types, n = (("T", "float32"),), 3 << 30
    one = context.empty((1,), "float32")

    def array(*shape, strides=None):
        return one.with_layout(Layout(shape, strides) if strides else Layout.contiguous(shape))

    indexed = Indexed(context, user_function(REVERSED.definition, types), (1, 1, 1), schedule)
    for shape, strides, expected in (((1000,), (1,), "int"), ((n,), (1,), "long"), ((1000,), (1 << 23,), "long")):
        kernel, _, _ = indexed._plan(shape, [array(*shape, strides=strides), array(7), array(*shape)])
        assert kernel is indexed._kernels[expected, 1], (shape, strides)
    function = user_function(SHIFT.definition, types)
    elemwise = UserElemwise(context, function, ((False,), (False,)), 1, (False, False), schedule)
    assert elemwise.plan_for([Layout.contiguous((n,))] * 3).kernel is not None
    reduction = UserReduction(context, reduction_functions(LARGEST.definition, types), (2,), 2, (1,), schedule)
    for shape in ((10, 100), (3, 1 << 30)):
        launches, _ = reduction._plan(shape, array(shape[0]), [array(*shape)], False)
        wanted = "long" if shape[1] > 100 else "int"
        used = {variant.index_type for variant in reduction._kernels if reduction._kernels[variant] in
                {launch.kernel for launch in launches}}  # fmt: skip
        assert used == {wanted}, shape


def test_numbers_of_work_items_beyond_31_bits(context):
    """The number of elements is refused where the kernel counts with int."""
    operation = RawOperation("twice", TWICE, Signature.parse("(n)->(n)", "twice"), ("x",), ("z",), ("float32",))
    launches = RawLaunches(context, operation)
    layouts = [Layout.contiguous((3 << 30,))] * 2
    plan = launches._plan(layouts, [np.dtype("float32")] * 2, 1)
    assert plan.grid == 3 << 30 and isinstance(plan.arguments[0], ArrayInfo)
    x = context.empty((1,), "float32")
    with pytest.raises(OverflowError, match=r"argument 'n' of kernel 'twice' \(int n\) must be between"):
        TWICE.enqueue(context, plan.grid, plan.block, (x, x, plan.arguments[2]))
