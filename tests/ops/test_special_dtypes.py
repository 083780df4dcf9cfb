"""float16 and complex numbers through every family of device Ops."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.blas import gemm_no_inplace, gemv_no_inplace

import pytensor_cl
from pytensor_cl.ops.argmax import GpuArgmax
from pytensor_cl.ops.creation import GpuARange, GpuEye
from pytensor_cl.ops.cumop import GpuCumOp
from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.gemm import GpuDot22, GpuDot22Scalar, GpuGemm, GpuMatmul
from pytensor_cl.ops.gemv import GpuGemv
from pytensor_cl.ops.indexing.diagonal import GpuExtractDiag
from pytensor_cl.ops.indexing.gather_scatter import GpuAdvancedIncSubtensor, GpuAdvancedSubtensor
from pytensor_cl.ops.indexing.slice_update import GpuIncSubtensor
from pytensor_cl.ops.join import GpuJoin
from pytensor_cl.ops.reduction import GpuCAReduce
from tests.helpers import assert_close, assert_on_device, host_ops, opencl, sweep

COMPLEX = ("complex64", "complex128")
SPECIAL = ("float16", *COMPLEX)
each_dtype = sweep(("dtype",), [(d,) for d in SPECIAL], [("float16",), ("complex64",)])


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel():
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


def random(rng, dtype, *shape):
    """Normal numbers of a dtype."""
    values = rng.normal(size=shape)
    return (values + 1j * rng.normal(size=shape) if dtype in COMPLEX else values).astype(dtype)


def check(kinds, inputs, outputs, *values):
    """Compare with PyTensor's Python Ops; these kinds of device Ops computed it, and the host only what shapes need."""
    f = opencl(inputs, outputs)
    with np.errstate(all="ignore"):
        expected = pytensor.function(inputs, outputs, mode="FAST_COMPILE")(*values)
    for got, wanted in zip(f(*values), expected, strict=True):
        assert_close(got, wanted)
    assert_on_device(f, *kinds)
    assert [str(n.op) for n in pytensor_cl.explain(f).host_nodes if "host arithmetic" not in n.reason] == []


@each_dtype
def test_elements(context, rng, dtype):
    x, y = pt.matrix("x", dtype=dtype), pt.vector("y", dtype=dtype)
    outputs = [
        x + y,
        x.T * 2,
        -x / (y + 1),
        x**2,
        pt.sqrt(abs(y) + 1) * x,
        pt.switch(pt.eq(x, y), x, y),
        abs(x) + abs(y),
    ]
    outputs += [pt.exp(x) - y, pt.cast(x, dtype) + np.int8(2)]
    check([GpuElemwise], [x, y], outputs, random(rng, dtype, 5, 19), random(rng, dtype, 19))


@each_dtype
def test_arrays(context, rng, dtype):
    x, i = pt.matrix("x", dtype=dtype), pt.lvector("i")
    outputs = [
        pt.join(1, x, x[:, ::-2]),
        pt.join(0, x, pt.ones((2, 7), "int8")),
        pt.diagonal(x) + 0,
        x[i],
        x.T[::-1][i],
        pt.set_subtensor(x[i], x[::-1][i]),
        pt.inc_subtensor(x[i], x[i] * 2),
        pt.inc_subtensor(x[1, ::3], 1),
        pt.set_subtensor(x[:, 2], x[:, 0]),
        pt.eye(i.shape[0] + 1, dtype=dtype) + x,
        x.reshape((-1,))[3:20],
        pt.zeros_like(x) + x[0, 0],
    ]
    kinds = [GpuJoin, GpuExtractDiag, GpuAdvancedSubtensor, GpuAdvancedIncSubtensor, GpuIncSubtensor, GpuEye]
    check(kinds, [x, i], outputs, random(rng, dtype, 7, 7), np.array([1, 5, 1, 0, 6, 1]))


@each_dtype
def test_reductions(context, rng, dtype):
    x = pt.matrix("x", dtype=dtype)
    outputs = [x.sum(), x.sum(axis=0), x.mean(axis=1), x[:, ::-2].prod(axis=1)]
    outputs += [pt.cumsum(x), pt.cumprod(x, axis=0), pt.eq(x, x[0]).all(axis=0)]
    if dtype == "float16":
        outputs += [x.max(axis=0), x.min(), pt.argmax(x, axis=1)]
    kinds = [GpuCAReduce, GpuCumOp] + ([GpuArgmax] if dtype == "float16" else [])
    check(kinds, [x], outputs, random(rng, dtype, 9, 12))


@each_dtype
def test_products(context, rng, dtype):
    a, b, c = pt.matrix("a", dtype=dtype), pt.matrix("b", dtype=dtype), pt.matrix("c", dtype=dtype)
    x, y, t = pt.vector("x", dtype=dtype), pt.vector("y", dtype=dtype), pt.tensor3("t", dtype=dtype)
    s = pt.constant(np.array(0.5 if dtype == "float16" else 0.5 - 2j, dtype))
    outputs = [a @ b, s * (a @ b), gemm_no_inplace(c, s, a, b, s), t @ b, x @ b, y + a @ x]
    if dtype in COMPLEX:
        outputs += [gemv_no_inplace(y, s, a, x, s), gemv_no_inplace(y, s, a, x, s * 0)]
    values = [random(rng, dtype, *shape) for shape in ((6, 8), (8, 5), (6, 5), (8,), (6,), (3, 4, 8))]
    kinds = [GpuDot22, GpuDot22Scalar, GpuGemm, GpuMatmul] + ([GpuGemv] if dtype in COMPLEX else [])
    check(kinds, [a, b, c, x, y, t], outputs, *values)


def test_range_of_halves(context):
    start, stop, step = (pt.scalar(n, dtype="float16") for n in "abc")
    numbers = pt.arange(start, stop, step, dtype="float16") * 1
    f = opencl([start, stop, step], numbers)
    host = pytensor.function([start, stop, step], numbers, mode="FAST_COMPILE")
    assert_on_device(f, GpuARange)
    for values in ((0, 1, 0.1), (-3, 50, 0.3), (7, 2, -0.7), (0, 0, 1), (100, 4000, 3.3)):
        arguments = [np.float16(v) for v in values]
        np.testing.assert_array_equal(f(*arguments), host(*arguments), strict=True)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_what_has_no_kernel_runs_on_the_host(context, rng, dtype):
    x = pt.vector("x", dtype=dtype)
    f = opencl([x], [pt.max(x), pt.sort(x * 2), pt.erf(x)])
    value = random(rng, dtype, 9)
    expected = pytensor.function([x], [pt.max(x), pt.sort(x * 2), pt.erf(x)], mode="FAST_COMPILE")(value)
    for got, wanted in zip(f(value), expected, strict=True):
        assert_close(got, wanted)
    assert len(host_ops(f)) >= 3


@each_dtype
def test_a_chain_is_rounded_as_one_op_after_another(context, rng, dtype):
    x = pt.vector("x", dtype=dtype)
    value = random(rng, dtype, 200)
    fused = opencl([x], pt.eq(x * x + x, x * (x + 1)).astype("int8") + (x * x + x).real)(value)
    first = opencl([x], x * x)(value)
    assert_close(fused - opencl([x], pt.eq(x * x + x, x * (x + 1)).astype("int8"))(value), (first + value).real)
