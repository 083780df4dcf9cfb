import numpy as np
import pytest

from pytensor_cl.routines.base.routine import SCHEDULES
from pytensor_cl.routines.fft.butterfly import RADICES
from pytensor_cl.routines.fft.plan import Device, factorise
from pytensor_cl.routines.fft.routine import FFT, IRFFT, RFFT
from pytensor_cl.routines.fft.tables import Table, host_table
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.layout import Layout

TOLERANCE = {"float32": 1e-6, "float64": 3e-15}
SMALL_LENGTHS = [1, 2, 3, 4, 5, 7, 8, 11, 13, 14, 15, 16, 17, 19, 22, 30, 34, 37, 48, 64, 97, 105, 143, 169, 194, 360]
LONG_LENGTHS = [2048, 2187, 3750, 5005, 8192, 4099, 4142]  # the four-step method, of a convolution in the last two


@pytest.fixture(params=SCHEDULES)
def schedule(request):
    return request.param


def pairs(z):
    return np.stack([z.real, z.imag], axis=-1)


def complex_of(x):
    return (x[..., 0] + 1j * x[..., 1]).astype("complex128")


def check(got, want, dtype, message=""):
    """Against double precision, relative to the largest value."""
    assert (str(got.dtype), got.shape) == (dtype, want.shape), message
    part = "float64" if dtype in ("float64", "complex128") else "float32"
    scale = TOLERANCE[part] * max(1, np.log2(max(want.size, 2)) / 8)
    np.testing.assert_allclose(got.to_host(), want, rtol=0, atol=scale * np.abs(want).max(initial=0), err_msg=message)


def want_of(transform, host, s):
    """NumPy's answer; an axis without elements is padded with zeros, which NumPy leaves to chance."""
    host = np.zeros((*host.shape[: -len(s)], *s), host.dtype) if 0 in host.shape[-len(s) :] else host
    return transform(host, s, range(-len(s), 0))


def check_rfft(routine, x, s, message=""):
    host = np.asarray(x).astype("float64")
    check(routine(x, s)[0], pairs(want_of(np.fft.rfftn, host, s)), str(x.dtype), f"rfft {message}")


def test_imaginary_parts_that_are_zero(context, rng, schedule):
    routine = RFFT(context, "float32", 2, schedule)
    for n in (12, 17, 34, 37, 74):
        z = np.asarray(routine(context.from_host(rng.normal(size=(3, n)).astype("float32")), (n,))[0])
        assert (z[:, 0, 1] == 0).all() and (n % 2 or (z[:, -1, 1] == 0).all())
        assert (z[:, 1:-1, 1] != 0).all()


def check_irfft(routine, z, s, message=""):
    want = want_of(np.fft.irfftn, complex_of(np.asarray(z)), s) * np.prod(s)
    check(routine(z, s)[0], want, str(z.dtype), f"irfft {message}")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lengths(context, rng, schedule, dtype):
    """Every butterfly, convolutions, odd and even; one line, some, and more than a block."""
    forward, back = (c(context, dtype, d, schedule) for c, d in ((RFFT, 2), (IRFFT, 3)))
    for n in SMALL_LENGTHS:
        for lines in (1, 5, 35):
            check_rfft(forward, context.from_host(rng.normal(size=(lines, n)).astype(dtype)), (n,), f"{lines} x {n}")
            spectrum = rng.normal(size=(lines, n // 2 + 1, 2)).astype(dtype)
            check_irfft(back, context.from_host(spectrum), (n,), f"{lines} x {n}")


def four_step_on(monkeypatch, capacity):
    """Make even short transforms use the longer ways."""
    device = property(lambda self: Device(self._lanes, 2, capacity, self.schedule == "simt"))
    for routine in (RFFT, IRFFT, FFT):
        monkeypatch.setattr(routine, "_device", device)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lines", [1, 3])
def test_long_lengths(context, rng, schedule, dtype, lines, monkeypatch):
    four_step_on(monkeypatch, 200)
    forward, back = (c(context, dtype, d, schedule) for c, d in ((RFFT, 2), (IRFFT, 3)))
    complete = FFT(context, dtype, 2, "complex64" if dtype == "float32" else "complex128", schedule)
    for n in LONG_LENGTHS:
        real, spectrum = rng.normal(size=(lines, n)).astype(dtype), rng.normal(size=(lines, n, 2)).astype(dtype)
        x, z = context.from_host(real), context.from_host(spectrum)
        check_rfft(forward, x, (n,), f"{lines} x {n}")
        check_irfft(back, z[:, : n // 2 + 1], (n,), f"{lines} x {n}")
        both = as_complex(context, spectrum)
        check(complete(both, n, 1)[0], np.fft.fft(complex_of(spectrum)), str(both.dtype), f"fft {lines} x {n}")


def test_lines_that_do_not_fit_into_local_memory(context, rng, monkeypatch):
    four_step_on(monkeypatch, 30)
    x = context.from_host(rng.normal(size=(9, 1500)).astype("float32"))
    check_rfft(RFFT(context, "float32", 2, "simt"), x, (1500,))
    check_rfft(RFFT(context, "float32", 2, "simt"), x[:, :37], (37,))


@pytest.mark.parametrize(
    "shape, s", [((2, 1600), (2000,)), ((2, 2000), (1600,)), ((2, 900), (2187,)), ((1, 900), (1031,))]
)
def test_padding_of_long_lines(context, rng, schedule, shape, s, monkeypatch):
    four_step_on(monkeypatch, 200)
    x = context.from_host(rng.normal(size=shape).astype("float32"))
    z = context.from_host(rng.normal(size=(shape[0], shape[1] // 2 + 1, 2)).astype("float32"))
    check_rfft(RFFT(context, "float32", 2, schedule), x, s)
    check_irfft(IRFFT(context, "float32", 3, schedule), z, s)


SHAPES = [
    ((3, 4, 6), (4, 6)),
    ((3, 4, 6), (3, 4, 6)),
    ((3, 5, 7), (7,)),
    ((2, 20, 18), (20, 18)),
    ((2, 4, 9), (6, 5)),
    ((2, 7, 6), (3, 11)),
    ((4, 5, 6), (5, 3, 9)),
    ((2, 33, 2), (33, 2)),
    ((2, 1, 1), (1, 1)),
    ((0, 4, 4), (4, 4)),
    ((2, 0, 3), (4, 4)),
]
VIEWS = {
    "contiguous": lambda x: x,
    "reversed": lambda x: x[::-1, :, ::-1],
    "sliced": lambda x: x[:, ::2, 1:],
    "swapped": lambda x: x.with_layout(x.layout.transpose((0, 2, 1, *range(3, x.ndim)))),
    "repeated": lambda x: x[:, :1].with_layout(x[:, :1].layout.broadcast_to(x.shape)) if x.shape[1] else x,
}


@pytest.mark.parametrize("view", VIEWS)
def test_axes_padding_and_layouts(context, rng, schedule, view):
    forward, back = (c(context, "float32", d, schedule) for c, d in ((RFFT, 3), (IRFFT, 4)))
    for shape, s in SHAPES:
        x = VIEWS[view](context.from_host(rng.normal(size=shape).astype("float32")))
        z = VIEWS[view](context.from_host(rng.normal(size=(*shape, 2)).astype("float32")))
        check_rfft(forward, x, s, f"{shape} {s}")
        check_irfft(back, z, s, f"{shape} {s}")


def test_real_and_imaginary_parts_of_any_stride(context, rng, schedule):
    for shape in [(2, 3, 5, 9), (2, 40, 12, 17)]:
        z = context.from_host(rng.normal(size=shape).astype("float32"))
        z = z.with_layout(z.layout.transpose((1, 3, 2, 0)))
        check_irfft(IRFFT(context, "float32", 4, schedule), z, (shape[3], 20), f"{shape}")
        check_irfft(IRFFT(context, "float32", 4, schedule), z[..., ::-1], (16,), f"{shape}")


def as_complex(context, spectrum):
    """Upload pairs of real numbers as complex numbers."""
    plain = context.from_host(np.ascontiguousarray(spectrum))
    dtype = np.dtype(f"complex{16 * plain.itemsize}")
    return GpuArray(context, plain.buffer, dtype, Layout.contiguous(plain.shape[:-1]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_complex(context, rng, schedule, dtype):
    routine = FFT(context, dtype, 3, "complex64" if dtype == "float32" else "complex128", schedule)
    spectrum = rng.normal(size=(6, 18, 5, 2)).astype(dtype)
    z, host = as_complex(context, spectrum), complex_of(spectrum)
    for axis, n in ((0, 6), (1, 18), (-1, 5), (1, 7), (1, 23), (2, 1), (0, 40)):
        for view in (slice(None), slice(None, None, -1), slice(1, 3)):
            message = f"{axis} {n} {view}"
            check(routine(z[:, view], n, axis)[0], np.fft.fft(host[:, view], n, axis), str(z.dtype), message)


@pytest.mark.parametrize("source", ["bool", "int32", "float32", "float64", "complex64"])
def test_complex_from_other_dtypes(context, rng, schedule, source):
    routine = FFT(context, "float64", 2, source, schedule)
    spectrum = rng.normal(size=(4, 21, 2)).astype("float32")
    if source == "complex64":
        x, host = as_complex(context, spectrum)[:, ::-2], complex_of(spectrum)[:, ::-2]
    else:
        host = (3 * spectrum[..., 0]).astype(source)[:, ::-2]
        x = context.from_host(host)
    for axis in (0, 1):
        want = np.fft.fft(host.astype("complex128"), axis=axis)
        check(routine(x, host.shape[axis], axis)[0], want, "complex128")


def test_output_of_ones_is_exact(context, schedule):
    (got,) = RFFT(context, "float32", 1, schedule)(context.from_host(np.ones(64, "float32")), (64,))
    want = np.zeros((33, 2))
    want[0, 0] = 64
    np.testing.assert_array_equal(got.to_host(), want)


def test_imaginary_parts_of_the_ends_are_ignored(context, rng, schedule):
    z = rng.normal(size=(2, 9, 2)).astype("float32")
    changed = z.copy()
    changed[:, 0, 1] = changed[:, 8, 1] = np.nan
    routine = IRFFT(context, "float32", 3, schedule)
    first, second = (routine(context.from_host(v), (16,))[0].to_host() for v in (z, changed))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("s", [(0,), (4, 0), (-3, 4)])
def test_lengths_that_are_not_positive(context, s):
    x = context.from_host(np.ones((2, 3, 4, 2), "float32"))
    for routine in (RFFT(context, "float32", 4), IRFFT(context, "float32", 4)):
        with pytest.raises(ValueError, match="Invalid number of FFT data points"):
            routine(x, np.array(s))
    with pytest.raises(ValueError, match="Invalid number of FFT data points"):
        FFT(context, "float32", 4)(x, 0, 1)


def test_minus_one_is_the_length_that_the_array_has(context, rng):
    x = context.from_host(rng.normal(size=(3, 5, 10)).astype("float32"))
    routine = RFFT(context, "float32", 3)
    np.testing.assert_array_equal(routine(x, (-1, 8))[0].to_host(), routine(x, (5, 8))[0].to_host())
    np.testing.assert_array_equal(routine(x, (4, -1))[0].to_host(), routine(x, (4, 10))[0].to_host())
    with pytest.raises(ValueError, match=r"data points \(-1\)"):  # NumPy's answer would be divided by it
        IRFFT(context, "float32", 3)(x.with_layout(x.layout.reshape((3, 25, 2))), (-1,))


def test_wrong_axes(context):
    x = context.from_host(np.ones((2, 3), "float32"))
    with pytest.raises(IndexError):
        RFFT(context, "float32", 2)(x, ())
    with pytest.raises(np.exceptions.AxisError):
        RFFT(context, "float32", 2)(x, (1, 2, 3))
    with pytest.raises(np.exceptions.AxisError):
        FFT(context, "float32", 2)(x, 3, 2)
    with pytest.raises(ValueError, match="1 dimensions"):
        RFFT(context, "float32", 1)(x, (3,))
    with pytest.raises(TypeError, match="on the device"):
        RFFT(context, "float32", 1)(np.float32(1), (3,))


def test_a_new_length_builds_nothing(context, rng, monkeypatch):
    routine = RFFT(context, "float32", 2)
    for n in (8, 1013, 6400):  # each kind of length has kernels of its own
        check_rfft(routine, context.from_host(rng.normal(size=(3, n)).astype("float32")), (n,))
    monkeypatch.setattr(type(context.programs), "build_text", lambda *_: pytest.fail("built a program"))
    for n in (9, 1009, 6000):
        check_rfft(routine, context.from_host(rng.normal(size=(3, n)).astype("float32")), (n,))


def test_factors():
    for n in range(1, 2000):
        radices = factorise(n)
        assert radices is None or (np.prod(radices, dtype=int) == n and set(radices) <= set(RADICES))
    assert factorise(17) is None
    assert factorise(1) == ()


def test_tables_are_exact_to_the_last_bits():
    got = host_table(Table("half_turns", (3000,)))[:3001]
    want = np.exp(-1j * np.pi * np.arange(3001, dtype="longdouble") / 3000)
    assert np.abs(got - want).max() < 3e-16
    assert got[1500] == -1j
    assert got[3000] == -1
