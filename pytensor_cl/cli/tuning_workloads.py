"""Workloads of ``tune``: for each stage a few computations of different shapes, with references in float64."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.routines.conv.routine import ConvForward, ConvGradInput, ConvGradWeight
from pytensor_cl.routines.elemwise.routine import Cast, Elemwise
from pytensor_cl.routines.gemm.routine import BatchedGemm, Gemm
from pytensor_cl.routines.gemv.routine import Gemv
from pytensor_cl.routines.reduction.routine import Reduction
from pytensor_cl.runtime.context import Context

__all__ = ["STAGES", "Workload"]

Arrays = Sequence[np.ndarray]


class Workload(NamedTuple):
    """A computation to be timed.

    Attributes
    ----------
    name
        For people.
    shapes
        Of the arrays, which hold normal numbers.
    routine
        Makes what computes it on a device.
    reference
        Computes it with NumPy.
    dtype
        Of the arrays.
    extra
        What the routine gets after the arrays.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    routine: Callable[[Context], Any]
    reference: Callable[..., np.ndarray]
    dtype: str = "float32"
    extra: tuple[Any, ...] = ()

    def arrays(self) -> list[np.ndarray]:
        """Return the inputs, the same each time."""
        rng = np.random.default_rng(2026)
        return [rng.normal(size=shape).astype(self.dtype) for shape in self.shapes]


# --- elementwise ---


@dataclass(frozen=True)
class _Sum:
    """The element function of addition."""

    dtype: str = "float32"
    preambles: tuple[str, ...] = ()
    operations: int = 1

    @property
    def input_dtypes(self) -> tuple[str, ...]:
        """Return the dtypes of both addends."""
        return (self.dtype,) * 2

    @property
    def output_dtypes(self) -> tuple[str, ...]:
        """Return the dtype of the sum."""
        return (self.dtype,)

    @property
    def itemsize(self) -> int:
        """Return the bytes of an element."""
        return np.dtype(self.dtype).itemsize

    def statements(self, lanes: int) -> str:
        """Return the assignment of ``o0``."""
        return "o0 = i0 + i1;"


def _add(context: Context, ndim: int = 1, swapped: bool = False) -> Any:
    routine = Elemwise(context, _Sum(), ((False,) * ndim,) * 2, ndim, (False,) * 2)
    return (lambda a, b: routine(a, b.T)) if swapped else routine


def _transposed(context: Context) -> Any:
    copy = Elemwise(context, Cast("float32", "float32"), ((False,) * 2,), 2, (False,))
    return lambda a: copy(a.T)


def _plus_transposed(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a + b.T


def _elementwise() -> tuple[Workload, ...]:
    return (
        Workload("add 10,000", ((10_000,),) * 2, _add, np.add),
        Workload("add 300,000", ((300_000,),) * 2, _add, np.add),
        Workload("add 8,000,000", ((8_000_000,),) * 2, _add, np.add),
        # Rows at a distance of a power of two share cache sets, others do not; the best values differ.
        *(Workload(f"transpose {n} x {n}", ((n, n),), _transposed, np.transpose) for n in (2000, 2048)),
        *(
            Workload(f"add {n} x {n} transposed", ((n, n),) * 2, partial(_add, ndim=2, swapped=True), _plus_transposed)
            for n in (300, 1500, 2048)
        ),
    )


# --- reductions ---


def _total(context: Context, axes: tuple[int, ...], ndim: int = 2) -> Reduction:
    accumulator = "float64" if context.info.has_fp64 else "float32"
    return Reduction(context, "add", "float32", accumulator, "float32", ndim=ndim, axes=axes)


def _sum(text: str, shape: tuple[int, ...], *axes: int) -> Workload:
    routine = partial(_total, axes=axes, ndim=len(shape))
    return Workload(text, (shape,), routine, lambda a: a.sum(axis=axes))


def _reductions() -> tuple[Workload, ...]:
    return (
        _sum("sum of 10,000", (10_000,), 0),
        _sum("sum of 8,000,000", (8_000_000,), 0),
        _sum("sum of 4000 rows of 1000", (4000, 1000), 1),
        _sum("sum of 1000 columns of 4000", (4000, 1000), 0),
        _sum("sum of 2048 columns of 2048", (2048, 2048), 0),
        _sum("sum of 100,000 columns of 30", (30, 100_000), 0),
        _sum("sum of channels", (32, 64, 28, 28), 0, 2, 3),
        _sum("sum of 300 rows of 300", (300, 300), 1),
    )


# --- products ---


def _products() -> tuple[Workload, ...]:
    gemm, matmul = partial(Gemm, dtype="float32"), partial(BatchedGemm, dtype="float32")
    return (
        Workload("1024 x 1024 x 1024", ((1024, 1024),) * 2, gemm, np.matmul),
        Workload("256 x 256 x 256", ((256, 256),) * 2, gemm, np.matmul),
        Workload("64 x 64 x 64", ((64, 64),) * 2, gemm, np.matmul),
        Workload("20000 x 64 x 64", ((20_000, 64), (64, 64)), gemm, np.matmul),
        Workload("256 x 784 x 512", ((256, 784), (784, 512)), gemm, np.matmul),
        Workload("32 products of 128 x 128 x 128", ((32, 128, 128),) * 2, matmul, np.matmul),
        Workload("matrix 3000 x 3000 times vector", ((3000, 3000), (3000,)), partial(Gemv, dtype="float32"), np.matmul),
        Workload("matrix 300 x 300 times vector", ((300, 300), (300,)), partial(Gemv, dtype="float32"), np.matmul),
    )


# --- convolutions ---


def _windows(x: np.ndarray, taps: tuple[int, ...], stride: int, pad: int) -> np.ndarray:
    """Return (N, C, h, w, taps...): a view of the padded images."""
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    return np.lib.stride_tricks.sliding_window_view(padded, taps, (2, 3))[:, :, ::stride, ::stride]


def _forward(x: np.ndarray, w: np.ndarray, stride: int, pad: int) -> np.ndarray:
    found = np.tensordot(_windows(x, w.shape[2:], stride, pad), w, ((1, 4, 5), (1, 2, 3)))
    return found.transpose(0, 3, 1, 2)


def _grad_weight(x: np.ndarray, dy: np.ndarray, taps: tuple[int, int], stride: int, pad: int) -> np.ndarray:
    return np.tensordot(dy, _windows(x, taps, stride, pad), ((0, 2, 3), (0, 2, 3)))


def _grad_input(w: np.ndarray, dy: np.ndarray, image: tuple[int, int], pad: int) -> np.ndarray:
    """The gradient of a convolution with stride 1 is a convolution with flipped filters."""
    flipped = w.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1]
    return _forward(dy, flipped, 1, w.shape[2] - 1 - pad)


def _conv(kind: Any, stride: int, pad: int) -> Callable[[Context], Any]:
    return lambda context: kind(context, "float32", 2, strides=(stride,) * 2, padding=((pad, pad),) * 2)


def _layer(batch: int, channels: int, image: int, filters: int, taps: int, stride: int) -> Workload:
    pad = taps // 2
    shapes = (batch, channels, image, image), (filters, channels, taps, taps)
    name = f"{batch} x {channels} x {image}^2 -> {filters}, {taps} x {taps} / {stride}"
    return Workload(name, shapes, _conv(ConvForward, stride, pad), partial(_forward, stride=stride, pad=pad))


def _convolutions() -> tuple[Workload, ...]:
    x, w, y = (2, 64, 28, 28), (64, 64, 3, 3), (2, 64, 28, 28)
    by_weight = partial(_grad_weight, stride=1, pad=1)
    return (
        _layer(1, 3, 128, 64, 7, 2),
        _layer(1, 64, 56, 64, 3, 1),
        _layer(4, 256, 14, 256, 3, 1),
        _layer(1, 256, 28, 128, 1, 1),
        _layer(1, 512, 7, 512, 3, 1),
        Workload("gradient for the kernels", (x, y), _conv(ConvGradWeight, 1, 1), by_weight, extra=((3, 3),)),
        Workload(
            "gradient for the images",
            (w, y),
            _conv(ConvGradInput, 1, 1),
            partial(_grad_input, pad=1),
            extra=((28, 28),),
        ),
    )


STAGES: dict[str, Callable[[], tuple[Workload, ...]]] = {
    "elemwise": _elementwise,
    "reduction": _reductions,
    "gemm": _products,
    "conv": _convolutions,
}
