"""Fourier transforms in compiled functions."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.fft import irfft, irfft_op, rfft, rfft_op
from pytensor.tensor.fourier import fft

from pytensor_cl.codegen.dtypes import is_supported
from pytensor_cl.ops.fft import GpuFourier, GpuIRFFT, GpuRFFT
from tests.helpers import assert_all_on_device, assert_close, assert_on_device, check_against_python, host_ops, opencl

pytestmark = pytest.mark.filterwarnings("ignore:.axes. should not be:DeprecationWarning")  # of PyTensor's own Ops

NORMS = (None, "ortho", "no_norm")


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel():
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rfft(context, rng, dtype):
    x = pt.matrix("x", dtype=dtype)
    values = [rng.normal(size=shape).astype(dtype) for shape in ((3, 8), (1, 15), (20, 34), (2, 1), (0, 6))]
    check_against_python([x], [rfft(x, norm) for norm in NORMS], (GpuRFFT,), *((v,) for v in values), (values[2].T,))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("is_odd", [False, True])
def test_irfft(context, rng, dtype, is_odd):
    x = pt.tensor3("x", dtype=dtype)
    values = [rng.normal(size=(lines, n, 2)).astype(dtype) for lines, n in ((3, 5), (1, 8), (20, 18), (0, 4), (5, 2))]
    check_against_python(
        [x],
        [irfft(x, norm, is_odd) for norm in NORMS],
        (GpuIRFFT,),
        *((v,) for v in values),
        (values[2][:, ::-1],),
    )


def test_several_axes_and_lengths(context, rng):
    x, s = pt.tensor4("x", dtype="float32"), pt.lvector("s")
    value = rng.normal(size=(3, 4, 6, 2)).astype("float32")
    calls = [(value, np.array(s)) for s in ((4, 6), (5,), (3, 4, 9), (2, 3))]
    f = opencl([x, s], [rfft_op(x, s), irfft_op(x, s)])
    assert_on_device(f, GpuRFFT, GpuIRFFT)
    for array, lengths in calls:
        axes = range(-len(lengths), 0)
        forward, spectrum = np.fft.rfftn(array, lengths, axes), array[..., 0] + 1j * array[..., 1]
        got, back = f(array, lengths)
        assert_close(got, np.stack([forward.real, forward.imag], -1).astype("float32"))
        assert_close(back, (np.fft.irfftn(spectrum, lengths, axes) * lengths.prod()).astype("float32"))


def test_there_and_back_stays_on_the_device(context, rng):
    x = pt.tensor("x", shape=(4, 6, 10), dtype="float32")
    f = opencl([x], irfft(rfft(x) * 2))
    assert_on_device(f, GpuRFFT, GpuIRFFT)
    assert not any("FFT" in str(op) for op in host_ops(f))
    value = rng.normal(size=(4, 6, 10)).astype("float32")
    assert_close(f(value), value * 2)


@pytest.mark.parametrize("shape", [(2, 6), (2, 3, 5)])
def test_gradients(context, rng, shape):
    x = pt.tensor("x", shape=(None,) * len(shape), dtype="float64")
    value = rng.normal(size=shape)
    z = rfft(x)
    back = irfft(z, is_odd=bool(shape[-1] % 2))
    weights = rng.normal(size=(*shape[:-1], shape[-1] // 2 + 1, 2))
    costs = [(z * weights).sum(), pt.sqr(z[..., 0]).sum(), (pt.tanh(z) * weights).sum(), pt.sqr(back).sum()]
    f = check_against_python([x], [pytensor.grad(cost, x) for cost in costs], (GpuRFFT, GpuIRFFT), (value,))
    assert not any("FFT" in str(op) for op in host_ops(f))


@pytest.mark.parametrize("n", [6, 7])
def test_gradients_are_those_of_differences(context, rng, n):
    value, spectrum = rng.normal(size=(2, n)), rng.normal(size=(2, n // 2 + 1, 2))
    pytensor.gradient.verify_grad(rfft, [value], rng=rng, mode="OPENCL")
    pytensor.gradient.verify_grad(lambda z: irfft(z, is_odd=bool(n % 2)), [spectrum], rng=rng, mode="OPENCL")


def test_convolution_by_transforms(context, rng):
    """The use that most graphs have: real transforms, a product of complex numbers by parts, and back."""
    a, b = pt.fmatrices("ab")
    fa, fb = rfft(a), rfft(b)
    real, imaginary = (
        fa[..., 0] * fb[..., 0] - fa[..., 1] * fb[..., 1],
        fa[..., 0] * fb[..., 1] + fa[..., 1] * fb[..., 0],
    )
    f = opencl([a, b], irfft(pt.stack([real, imaginary], axis=-1)))
    assert_on_device(f, GpuRFFT, GpuIRFFT)
    x, y = rng.normal(size=(2, 3, 64)).astype("float32")
    assert_close(f(x, y), np.fft.irfft(np.fft.rfft(x) * np.fft.rfft(y)).astype("float32"))


def test_errors_are_numpys(context):
    x, s = pt.fmatrix("x"), pt.lvector("s")
    f = opencl([x, s], rfft_op(x, s))
    value = np.ones((2, 4), "float32")
    for lengths, error in (([0], ValueError), ([2, -5], ValueError), ([1, 2, 3], np.exceptions.AxisError)):
        for run in (f, pytensor.function([x, s], rfft_op(x, s), mode="FAST_COMPILE")):
            with pytest.raises(error):
                run(value, np.array(lengths))


def test_integers_stay_on_the_host(context):
    x = pt.lmatrix("x")
    f = opencl([x], rfft_op(x, np.array([4])))
    assert any("RFFT" in str(op) for op in host_ops(f))
    assert f(np.eye(4, dtype="int64")).shape == (4, 3, 2)


@pytest.mark.skipif(not is_supported("complex128"), reason="no complex arrays on devices")
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "complex128", "complex64"])
def test_fourier(context, rng, dtype):
    x, n, axis = pt.matrix("x", dtype=dtype), pt.lscalar("n"), pt.lscalar("axis")
    value = (9 * (rng.normal(size=(6, 20)) + 1j * rng.normal(size=(6, 20)))).astype("complex64")
    value = (value if np.dtype(dtype).kind == "c" else value.real).astype(dtype)
    f = opencl([x, n, axis], fft(x, n, axis))
    assert_all_on_device(f, GpuFourier)
    for length, along in ((20, 1), (6, 0), (17, 0), (11, 1)):
        got = f(value, length, along)
        np.testing.assert_allclose(
            got, np.fft.fft(value.astype("complex128"), length, along), rtol=1e-13, atol=1e-11, strict=True
        )
    with pytest.raises(ValueError, match="data points"):
        f(value, 0, 0)


@pytest.mark.skipif(not is_supported("complex128"), reason="no complex arrays on devices")
def test_fourier_with_constants(context, rng):
    x = pt.dtensor3("x")
    f = opencl([x], [fft(x, None, None), fft(x, 4, 0)])
    assert_on_device(f, GpuFourier)
    value = rng.normal(size=(2, 3, 10))
    for got, want in zip(f(value), (np.fft.fft(value), np.fft.fft(value, 4, 0)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-13, strict=True)
