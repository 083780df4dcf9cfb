"""Measured peaks of a device: bytes moved in global memory, and arithmetic in registers, per second."""

from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple

import numpy as np

from pytensor_cl.codegen.dtypes import ctype, vector_type
from pytensor_cl.codegen.template import kernel_source
from pytensor_cl.routines.base.blas import lanes_of
from pytensor_cl.routines.base.ndrange import power_of_two
from pytensor_cl.routines.elemwise.routine import Cast, Elemwise
from pytensor_cl.runtime.context import Context

BYTES = 64 << 20  # bytes of each of the two arrays: more than caches hold
CHAINS = {"cpu": 12, "simt": 8}  # independent sums that hide the latency of an addition
COUNT = 1 << 14  # steps of each
ITEMS = {"cpu": 4, "simt": 2048}  # work-items per compute unit
GROUP = {"cpu": 1, "simt": 256}
SIMT_COUNT = 1 << 11
REPEATS = 12


class Peak(NamedTuple):
    """The best that was measured.

    `bytes_per_second`: read and written by a copy of an array that is larger than caches; `flops`: multiplications and
    additions per second, by dtype.
    """

    bytes_per_second: float
    flops: dict[str, float]


_known: dict[Context, Peak] = {}


def _best(context: Context, action: Callable[[], object]) -> float:
    """Seconds of the fastest of several runs, after one that does not count."""
    times = []
    for _ in range(REPEATS + 1):
        context.queue.finish()
        start = perf_counter()
        action()
        context.queue.finish()
        times.append(perf_counter() - start)
    return min(times[1:])


def _bandwidth(context: Context) -> float:
    count = min(BYTES, context.info.max_allocation // 8)
    source = context.from_host(np.ones(count // 4, "float32"))
    target = context.empty(source.shape, source.dtype)
    copy = Elemwise(context, Cast("float32", "float32"), ((False,),), 1, (False,))
    by_kernel = _best(context, lambda: copy.launch((target,), (source,)))
    by_driver = _best(context, lambda: context.queue.copy(target.buffer, source.buffer, count))
    return 2 * count / min(by_kernel, by_driver)


def _flops(context: Context, dtype: str) -> float:
    schedule, units = context.info.schedule, context.info.compute_units
    chains, items = CHAINS[schedule], ITEMS[schedule] * units
    lanes, count = (lanes_of(context, np.dtype(dtype)), COUNT) if schedule == "cpu" else (1, SIMT_COUNT)
    wide = vector_type(dtype, lanes)
    source = kernel_source("runtime/peak", wide=wide, ctype=ctype(dtype), lanes=lanes, chains=chains, count=count)
    kernel = context.kernel(source)
    most = min(GROUP[schedule], context.info.max_work_group_size, kernel.max_work_group_size(context.device))
    group = (power_of_two(most),)
    out = context.empty((items,), dtype)
    numbers = [np.dtype(dtype).type(v) for v in (0.5, 0.25)]  # no sum grows, none becomes subnormal
    seconds = _best(context, lambda: kernel.launch(context.queue, (items,), group, out.buffer, *numbers))
    return 2.0 * items * lanes * chains * count / seconds


def measure_peak(context: Context) -> Peak:
    """Return the peaks of a device, measured once for each context, in less than a second."""
    if context not in _known:
        dtypes = ("float32", "float64") if context.info.has_fp64 else ("float32",)
        _known[context] = Peak(_bandwidth(context), {dtype: _flops(context, dtype) for dtype in dtypes})
    return _known[context]
