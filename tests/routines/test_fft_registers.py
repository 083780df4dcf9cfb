"""Fourier transforms of schedule simt whose lines stay in registers, against NumPy in double precision."""

from functools import partial

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.tensor.fft import irfft, rfft

import pytensor_cl.array as xp
from pytensor_cl.array import fft as array_fft
from pytensor_cl.ops import fft as fft_ops
from pytensor_cl.routines.fft import routine as fft_routine
from pytensor_cl.routines.fft.limits import MIN_REGISTER_ELEMENTS, REGISTER_ELEMENTS
from pytensor_cl.routines.fft.passes import RegisterLimits, choose_radices, fits
from pytensor_cl.routines.fft.plan import Device
from pytensor_cl.routines.fft.routine import FFT, IRFFT, RFFT
from pytensor_cl.runtime.array import GpuArray
from tests.helpers import assert_on_device, opencl

ERROR = {"float32": 2.5e-7, "float64": 8e-16}
PART = {"complex64": "float32", "complex128": "float64"}
LENGTHS = {
    "complex64": [16, 32, 48, 64, 128, 256, 512, 1000, 1024, 1536, 2048, 4096, 6000, 8192],
    "complex128": [16, 64, 360, 2048, 4096],
}


@pytest.fixture(autouse=True)
def chosen(monkeypatch):
    """The kernels that were chosen for the launches, None for those of the other template."""
    kernels, choose = [], fft_routine.register_kernel
    monkeypatch.setattr(fft_routine, "register_kernel", lambda *args: kernels.append(choose(*args)) or kernels[-1])
    return kernels


def numbers(rng, shape, dtype):
    values = rng.normal(size=(*shape, 2)).astype(PART.get(dtype, dtype))
    return values.view(dtype)[..., 0] if dtype in PART else values[..., 0].copy()


def lines_of(length):
    """A number of lines that is no multiple of those of a work-group, and worth a kernel."""
    return MIN_REGISTER_ELEMENTS // length + 3


def check(got, want, part):
    """Errors relative to the norm: they are those of rounding."""
    got = got.to_host() if isinstance(got, GpuArray) else got
    assert got.shape == want.shape
    assert np.linalg.norm(got - want) <= ERROR[part] * np.linalg.norm(want)


def complex_of(pairs):
    host = pairs.to_host()
    return host[..., 0] + 1j * host[..., 1]


def wide(x):
    return x.astype("complex128" if x.dtype.kind == "c" else "float64")


@pytest.mark.parametrize("dtype", LENGTHS)
def test_lengths(context, rng, dtype, chosen):
    routine = FFT(context, PART[dtype], 2, dtype, "simt")
    for n in LENGTHS[dtype]:
        x = numbers(rng, (lines_of(n), n), dtype)
        check(routine(context.from_host(x), n, 1)[0], np.fft.fft(wide(x)), PART[dtype])
    assert [kernel.length for kernel in chosen] == LENGTHS[dtype]


@pytest.mark.parametrize("dtype, n", [("complex64", 16), ("complex64", 1536), ("complex128", 64)])
def test_layouts(context, rng, dtype, n, chosen):
    """Along either axis, with negative and large strides; the inverse has the conjugate factors."""
    routine = FFT(context, PART[dtype], 2, dtype, "simt", inverse=True)
    host = numbers(rng, (n, 2 * lines_of(n)), dtype)
    x = context.from_host(host)
    check(routine(x, n, 0)[0], n * np.fft.ifft(wide(host), axis=0), PART[dtype])
    assert chosen[-1].read == chosen[-1].write == (True, "pairs")
    check(routine(x[::-1, ::2], n, 0)[0], n * np.fft.ifft(wide(host[::-1, ::2]), axis=0), PART[dtype])
    rows = x.with_layout(x.layout.transpose((1, 0)))
    check(routine(rows, n, 1)[0], n * np.fft.ifft(wide(host.T)), PART[dtype])
    assert (chosen[-1].read, chosen[-1].write) == ((True, "pairs"), (False, "unit"))


def test_batches_of_several_dimensions(context, rng, chosen):
    routine = FFT(context, "float32", 4, "complex64", "simt")
    host = numbers(rng, (5, 7, 6, 64), "complex64")
    x = context.from_host(host)[:, ::-2, 1:]
    check(routine(x, 64, 3)[0], np.fft.fft(wide(host[:, ::-2, 1:])), "float32")
    check(routine(x, 64, -1)[0], np.fft.fft(wide(host[:, ::-2, 1:])), "float32")
    middle = context.from_host(np.ascontiguousarray(host.transpose(0, 3, 1, 2)))
    check(routine(middle, 64, 1)[0], np.fft.fft(wide(host.transpose(0, 3, 1, 2)), axis=1), "float32")
    assert [kernel.dims for kernel in chosen] == [3, 2]


@pytest.mark.parametrize("source", ["complex64", "float32"])
def test_lines_that_are_cut_or_padded(context, rng, source, chosen):
    routine = FFT(context, "float32", 2, source, "simt")
    host = numbers(rng, (50, 100), source)
    for n in (96, 128):
        check(routine(context.from_host(host), n, 1)[0], np.fft.fft(wide(host), n), "float32")
    modes = ["unit", "parts"] if source == "complex64" else ["parts", "parts"]
    assert [kernel.read.mode for kernel in chosen] == modes


@pytest.mark.parametrize("dtype, n", [("float32", 32), ("float32", 360), ("float32", 8192), ("float64", 128)])
def test_real_transforms(context, rng, dtype, n, chosen):
    forward, back = (c(context, dtype, d, "simt") for c, d in ((RFFT, 2), (IRFFT, 3)))
    host = numbers(rng, (2 * lines_of(n), n), dtype)
    x = context.from_host(host)
    (spectrum,) = forward(x, (n,))
    check(complex_of(spectrum), np.fft.rfft(wide(host)), dtype)
    check(back(spectrum, (n,))[0], n * wide(host), dtype)
    assert [kernel[-3:] for kernel in chosen] == [(False, True, False), (True, False, False)]
    z = complex_of(spectrum).T  # neighbouring lines are neighbours; imaginary parts of the ends are ignored
    columns = context.from_host(np.stack([z.real, z.imag], -1).astype(dtype))
    got = back(columns.with_layout(columns.layout.transpose((1, 0, 2))), (n,))[0]
    check(got, n * wide(host), dtype)
    assert chosen[-1].read.is_columns and not chosen[-1].write.is_columns


def test_real_transforms_of_odd_offset(context, rng, chosen):
    """Pairs of real numbers are read as complex numbers where they are aligned as such."""
    routine = RFFT(context, "float32", 2, "simt")
    host = numbers(rng, (70, 131), "float32")
    x = context.from_host(host)
    contiguous = context.from_host(host.ravel())[1:8961]
    check(complex_of(routine(x[:, 1:129], (128,))[0]), np.fft.rfft(wide(host[:, 1:129])), "float32")
    rows = contiguous.with_layout(contiguous.layout.reshape((70, 128)))
    check(complex_of(routine(rows, (128,))[0]), np.fft.rfft(wide(host.ravel()[1:8961].reshape(70, 128))), "float32")
    aligned = context.from_host(host.ravel())[2:8962]
    rows = aligned.with_layout(aligned.layout.reshape((70, 128)))
    check(complex_of(routine(rows, (128,))[0]), np.fft.rfft(wide(host.ravel()[2:8962].reshape(70, 128))), "float32")
    assert [kernel.read.mode for kernel in chosen] == ["parts", "parts", "unit"]


def test_several_axes(context, rng, chosen):
    """All but the first are transformed in place."""
    host = numbers(rng, (3, 48, 64), "float32")
    (spectrum,) = RFFT(context, "float32", 3, "simt")(context.from_host(host), (48, 64))
    check(complex_of(spectrum), np.fft.rfftn(wide(host), axes=(1, 2)), "float32")
    check(IRFFT(context, "float32", 4, "simt")(spectrum, (48, 64))[0], 48 * 64 * wide(host), "float32")
    assert len(chosen) == 4 and None not in chosen
    assert chosen[1].read.is_columns and chosen[1].write.is_columns


def with_limits(monkeypatch, items, local_bytes, capacity=100):
    """Let transforms believe that the device has no more."""
    device = property(
        lambda self: Device(self._lanes, 2, capacity, True, RegisterLimits(items, local_bytes, self.dtype.itemsize))
    )
    for routine in (RFFT, IRFFT, FFT):
        monkeypatch.setattr(routine, "_device", device)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_long_lines(context, rng, dtype, chosen, monkeypatch):
    """Lines that do not fit into local memory: both launches of the four-step method."""
    with_limits(monkeypatch, 64, 2048)
    part = PART[dtype]
    for n in (8192, 3000):
        x = numbers(rng, (3, n), dtype)
        check(FFT(context, part, 2, dtype, "simt")(context.from_host(x), n, 1)[0], np.fft.fft(wide(x)), part)
    assert [kernel.twiddle for kernel in chosen] == [True, False] * 2
    chosen.clear()
    x = numbers(rng, (3, 6400), part)
    (spectrum,) = RFFT(context, part, 2, "simt")(context.from_host(x), (6400,))
    check(complex_of(spectrum), np.fft.rfft(wide(x)), part)
    check(IRFFT(context, part, 3, "simt")(spectrum, (6400,))[0], 6400 * wide(x), part)
    assert chosen[0].twiddle and chosen[0].real_post and chosen[3].real_pre  # two launches have mirror images


def test_few_work_items(context, rng, chosen, monkeypatch):
    with_limits(monkeypatch, 24, 1 << 13)
    for n in (96, 100, 256):
        x = numbers(rng, (lines_of(n), n), "complex64")
        routine = FFT(context, "float32", 2, "complex64", "simt")
        check(routine(context.from_host(x), n, 1)[0], np.fft.fft(wide(x)), "float32")
    assert all(kernel is not None and kernel.group <= 24 for kernel in chosen)


@pytest.mark.parametrize("lines, n", [(400, 15), (50, 176), (2, 256), (60, 97)])
def test_other_transforms_have_the_general_kernel(context, rng, lines, n, chosen):
    """Short ones, other prime factors, few elements, convolutions."""
    x = numbers(rng, (lines, n), "complex64")
    check(
        FFT(context, "float32", 2, "complex64", "simt")(context.from_host(x), n, 1)[0], np.fft.fft(wide(x)), "float32"
    )
    assert chosen == [None]


def test_device_arrays(context, rng, chosen, monkeypatch):
    for name, routine in (("FFT", FFT), ("RFFT", RFFT), ("IRFFT", IRFFT)):
        monkeypatch.setattr(array_fft, name, partial(routine, schedule="simt"))
    factors, scaled = [], array_fft._scaled
    monkeypatch.setattr(array_fft, "_scaled", lambda x, factor: factors.append(factor) or scaled(x, factor))
    host = numbers(rng, (12, 24, 32), "complex64")
    x = xp.asarray(host)
    check(xp.fft.fft(x, axis=1), np.fft.fft(wide(host), axis=1), "float32")
    check(xp.fft.ifft(x, norm="ortho"), np.fft.ifft(wide(host), norm="ortho"), "float32")
    check(xp.fft.ifftn(xp.fft.fftn(x)), wide(host), "float32")
    check(xp.fft.irfft(xp.fft.rfft(xp.real(x))), wide(host.real), "float32")
    assert len(chosen) == 9 and chosen.count(None) == 2  # along the axis of length 12
    assert factors == [1 / 12, 1]  # other kernels multiply by the factor; that of rfft has none here


def test_graphs(context, rng, chosen, monkeypatch):
    for routine, op in ((RFFT, fft_ops.GpuRFFT), (IRFFT, fft_ops.GpuIRFFT)):
        monkeypatch.setattr(op, "kernel", partial(routine, schedule="simt"))
    x = pt.fmatrix("x")
    f = opencl([x], [rfft(x), irfft(rfft(x) * 2)])
    assert_on_device(f, fft_ops.GpuRFFT, fft_ops.GpuIRFFT)
    host = numbers(rng, (90, 128), "float32")
    spectrum, back = f(host)
    check(spectrum[..., 0] + 1j * spectrum[..., 1], np.fft.rfft(wide(host)), "float32")
    check(back, 2 * wide(host), "float32")
    assert len(chosen) >= 2 and None not in chosen


def test_radices():
    for items in (64, 512):
        for n in range(1, 3000):
            found = choose_radices(n, items)
            if found is not None:
                radices, count = found
                assert np.prod(radices) == n and count <= items
                assert max(-(n // r // -count) * r for r in radices) <= REGISTER_ELEMENTS
    assert choose_radices(4096, 512) == ((16, 16, 16), 256)
    assert choose_radices(8192, 512) is not None and choose_radices(8192, 256) is None
    assert fits(4096, RegisterLimits(512, 47 << 10, 8)) and not fits(8192, RegisterLimits(512, 47 << 10, 8))
