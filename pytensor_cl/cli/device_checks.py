"""Results and speed of a device: the measured part of ``doctor``."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from pytensor_cl.cli.finding import Finding
from pytensor_cl.cli.text import size
from pytensor_cl.routines.elemwise.routine import Elemwise
from pytensor_cl.routines.gemm.routine import Gemm
from pytensor_cl.routines.reduction.routine import Reduction
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.interfaces import LaunchSequence
from pytensor_cl.runtime.launch_capture import LaunchCapture

_SEED = 20240501
_BYTES = 64 << 20
_LAUNCHES = 200
_SLOW_BANDWIDTH = 1e9  # bytes a second; less points at a driver that emulates
_SLOW_LAUNCH = 1e-3  # seconds


@dataclass
class _Exp:
    """The element function ``exp`` of float32."""

    input_dtypes: tuple[str, ...] = ("float32",)
    output_dtypes: tuple[str, ...] = ("float32",)
    preambles: tuple[str, ...] = ()
    itemsize: int = 4
    operations: int = 1

    def statements(self, lanes: int) -> str:
        """Return the assignment of ``o0``; OpenCL's ``exp`` takes any number of lanes."""
        return "o0 = exp(i0);"


def _exp(context: Context, ndim: int) -> Elemwise:
    return Elemwise(context, _Exp(), broadcast=[[False] * ndim], ndim=ndim, by_value=[False])


def _sum(context: Context, axis: int) -> Reduction:
    return Reduction(context, "add", "float32", "float64", "float32", ndim=2, axes=(axis,))


def _best(action: Callable[[], object], repeats: int = 5) -> float:
    """Return the shortest of several times in seconds, after one call that does not count."""
    action()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def _rate(subject: str, count: int, seconds: float, how: str = "") -> Finding:
    rate = count / seconds
    return Finding("ok" if rate >= _SLOW_BANDWIDTH else "warn", subject, f"{rate / 1e9:.1f} GB/s{how}", rate)


def _delay(subject: str, seconds: float) -> Finding:
    return Finding("ok" if seconds <= _SLOW_LAUNCH else "warn", subject, f"{seconds * 1e6:.1f} us", seconds)


# --- speed ---


def _memory_rates(context: Context) -> Iterator[Finding]:
    count = min(_BYTES, context.info.max_allocation // 8)
    host = np.ones(count // 4, np.float32)
    source = context.from_host(host)

    def copy() -> None:
        source.copy()
        context.queue.finish()

    what = size(host.nbytes)
    how = " through page-locked memory" if context.staging.is_usable() else ""
    yield _rate(f"copy {what}", 2 * host.nbytes, _best(copy))
    yield _rate(f"upload {what}", host.nbytes, _best(lambda: context.from_host(host, borrow=True).sync()), how)
    yield _rate(f"download {what}", host.nbytes, _best(source.to_host), how)


def _launch_times(context: Context) -> Iterator[Finding]:
    routine = _exp(context, 1)
    x = context.from_host(np.zeros(1, np.float32))
    outputs = routine(x)

    def launch_many() -> None:
        for _ in range(_LAUNCHES):
            routine.launch(outputs, (x,))
        context.queue.finish()

    def launch_and_wait() -> None:
        routine.launch(outputs, (x,))
        context.queue.finish()

    yield _delay("launch, in a row", _best(launch_many) / _LAUNCHES)
    if context.batch_launcher is None:
        sequence = _captured(context, lambda: routine.launch(outputs, (x,)), _LAUNCHES)

        def replay() -> None:
            sequence.submit((), ())
            context.queue.finish()

        yield _delay("launch, replayed", _best(replay) / _LAUNCHES)
    yield _delay("launch and wait", _best(launch_and_wait, 50))


def _captured(context: Context, launch: Callable[[], object], count: int) -> LaunchSequence:
    """Return a sequence of launches whose arguments are set, as a captured graph has them."""
    queue, capture = context.queue, LaunchCapture()
    queue.capture, capture.is_on = capture, True
    try:
        launch()
    finally:
        queue.capture = None
    kernels = []
    for captured in capture.launches * count:
        kernel = context.launcher.add(captured)
        for index, argument in enumerate(captured.arguments):
            if not isinstance(argument, bytes | np.generic):
                kernel.bind(index, argument)
        kernels.append(kernel)
    return context.launcher.finish(kernels, ())


# --- results ---


def _agreement(subject: str, got: GpuArray, expected: np.ndarray, tolerance: float) -> Finding:
    """Compare with a float64 reference; NaN disagrees."""
    error = float(np.max(np.abs(np.asarray(got) - expected) / np.abs(expected)))
    good = error <= tolerance
    text = f"largest relative error {error:.1e}" + ("" if good else f", more than {tolerance:.0e}")
    return Finding("ok" if good else "FAIL", subject, text, error)


def _results(context: Context) -> Iterator[Finding]:
    rng = np.random.default_rng(_SEED)
    a, b = (rng.uniform(0.5, 1.5, shape).astype(np.float32) for shape in ((301, 203), (203, 157)))
    x, y = context.from_host(a), context.from_host(b)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    yield _agreement("exp, contiguous", _exp(context, 2)(x)[0], np.exp(wide_a), 1e-6)
    yield _agreement("exp, strided", _exp(context, 2)(x[::-2, 1::3])[0], np.exp(wide_a[::-2, 1::3]), 1e-6)
    yield _agreement("sum of rows", _sum(context, 1)(x)[0], wide_a.sum(axis=1), 1e-6)
    yield _agreement("sum of columns", _sum(context, 0)(x)[0], wide_a.sum(axis=0), 1e-6)
    yield _agreement("matrix product", Gemm(context, "float32")(x, y)[0], wide_a @ wide_b, 1e-5)


def check_device(context: Context) -> Iterator[Finding]:
    """Yield the checks of a device's results and speed, one by one."""
    info = context.info
    start = time.perf_counter()
    sums = (_sum(context, 0), _sum(context, 1))
    routines = (_exp(context, 1), _exp(context, 2), *sums, Gemm(context, "float32"))
    context.build(source for routine in routines for source in routine.sources())
    seconds = time.perf_counter() - start
    facts = f"{info.compute_units} units, {size(info.global_memory)}, schedule {info.schedule}"
    yield Finding("ok", "device", facts + ("" if info.has_fp64 else ", no double precision"))
    yield Finding("ok", "parameters", context.tuning.origin)
    yield Finding("ok", "build", f"{seconds:.2f} s (less when the kernels are in the disk cache)", seconds)
    yield from _results(context)
    yield from _launch_times(context)
    yield from _memory_rates(context)
