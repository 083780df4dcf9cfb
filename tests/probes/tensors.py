"""Tensor Ops: creation, shapes, indexing, joining, diagonals, dot products, special functions of rows, signals."""

from collections.abc import Iterator

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.tensor import basic, blas, extra_ops, fft, fourier, math, special, subtensor
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.einsum import Einsum
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.linalg.inverse import MatrixInverse
from pytensor.tensor.pad import Pad
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.signal import conv
from pytensor.tensor.type_other import MakeSlice

from tests.probes.probe import Probe, probe

RNG = np.random.default_rng(4)
FLOATS = ("float32", "float64")
SOME = (*FLOATS, "int64", "bool", "complex64", "float16")


def draw(*extents, dtype="float32"):
    """Return numbers that every dtype can hold."""
    return (RNG.uniform(0, 4, extents) if dtype[0] in "fc" else RNG.integers(0, 4, extents)).astype(dtype)


V, M, T = draw(6), draw(4, 5), draw(3, 4, 5)
I4 = np.array([3, 0, 2, -1])


def _creation() -> Iterator[Probe]:
    for dtype in SOME:
        yield probe(basic.Alloc, lambda x: pt.alloc(x, 5, 7), draw(dtype=dtype), variant=dtype)
    yield probe(basic.Alloc, lambda x, n: pt.alloc(x, n, 6), V, np.int64(4), variant="vector")
    for dtype in ("int64", "float32", "float64"):
        yield probe(basic.ARange, lambda n, d=dtype: pt.arange(n, dtype=d), np.int64(20), variant=dtype)
        yield probe(basic.Eye, lambda n, d=dtype: pt.eye(n, n + 2, 1, dtype=d), np.int64(5), variant=dtype)
        yield probe(
            basic.MakeVector, lambda x: pt.stack([x.sum(), x.max(), x.prod()]), draw(5, dtype=dtype), variant=dtype
        )
    yield probe(basic.AllocEmpty, lambda n: pt.empty((n, 3), dtype="float32"), np.int64(7), compare="types")
    yield probe(basic.TensorFromScalar, lambda x: pt.as_tensor(pt.scalar_from_tensor(x.sum()) + 1), V)
    yield probe(basic.ScalarFromTensor, lambda x, n: x[: pt.scalar_from_tensor(n)], V, np.int64(3))
    yield probe(extra_ops.Bartlett, lambda n: pt.bartlett(n), np.int64(9))
    yield probe(MakeSlice, lambda x, n: x[:n] * 2, V, np.int64(3))


def _shapes() -> Iterator[Probe]:
    for dtype in SOME:
        yield probe(DimShuffle, lambda x: x.dimshuffle(1, "x", 0), draw(4, 5, dtype=dtype), variant=dtype)
        yield probe(Reshape, lambda x: x.reshape((2, 10)), draw(4, 5, dtype=dtype), variant=dtype)
    yield probe(Reshape, lambda x, n: x.T.reshape((n, -1)), M, np.int64(10), variant="transposed")
    yield probe(Shape, lambda x: Shape()(x), M)
    yield probe(Shape_i, lambda x: x + x.shape[0], M)
    yield probe(SpecifyShape, lambda x: pt.specify_shape(x, (4, None)) + 1, M)
    yield probe(JoinDims, lambda x: pt.join_dims(x, start_axis=1), T)
    yield probe(SplitDims, lambda x: pt.split_dims(x, axis=0, shape=(2, 3)), V)
    yield probe(extra_ops.CpuContiguous, lambda x: extra_ops.cpu_contiguous(x.T), M)
    yield probe(Pad, lambda x: pt.pad(x, 2, mode="constant"), M, variant="constant")
    for mode in ("edge", "linear_ramp", "maximum", "mean", "minimum", "reflect", "symmetric", "wrap"):
        yield probe(Pad, lambda x, m=mode: pt.pad(x, 2, mode=m), M, variant=mode)


def _indexing() -> Iterator[Probe]:
    for dtype in SOME:
        x = draw(4, 5, dtype=dtype)
        yield probe(subtensor.Subtensor, lambda x: x[1:3, ::-2], x, variant=dtype)
        yield probe(subtensor.AdvancedSubtensor, lambda x, i: x[i], x, I4, variant=dtype)
        yield probe(
            subtensor.IncSubtensor, lambda x, y: x[1:3].set(y), x, draw(2, 5, dtype=dtype), variant=f"set-{dtype}"
        )
        yield probe(
            subtensor.AdvancedIncSubtensor,
            lambda x, i, y: x[i].set(y),
            x,
            I4[:3],
            draw(5, dtype=dtype),
            variant=f"set-{dtype}",
        )
        if dtype != "bool":
            yield probe(
                subtensor.IncSubtensor, lambda x, y: x[1:3].inc(y), x, draw(2, 5, dtype=dtype), variant=f"inc-{dtype}"
            )
            yield probe(
                subtensor.AdvancedIncSubtensor,
                lambda x, i, y: x[i].inc(y),
                x,
                I4,
                draw(4, 5, dtype=dtype),
                variant=f"inc-{dtype}",
            )
    yield probe(subtensor.AdvancedSubtensor, lambda x, i, j: x[i, j], M, I4, I4, variant="two")
    yield probe(subtensor.AdvancedSubtensor, lambda x, i: x[:, 1:, i], T, I4, variant="slices")
    yield probe(subtensor.AdvancedSubtensor, lambda x, b: x[b], M, M > 2, variant="mask")
    yield probe(subtensor.AdvancedIncSubtensor, lambda x, b: x[b].set(0), M, M > 2, variant="mask")
    yield probe(basic.Nonzero, lambda x: pt.nonzero(x), M > 2)
    yield probe(basic.Nonzero, lambda x: pt.flatnonzero(x), (M * (M > 2)), variant="flat")
    for mode in ("raise", "clip", "wrap"):
        yield probe(
            basic.Choose,
            lambda i, x, m=mode: pt.choose(i, x, mode=m),
            np.array([0, 2, 1, 1, 0]),
            draw(3, 5),
            variant=mode,
        )
    yield probe(basic.PermuteRowElements, lambda x, p: pt.permute_row_elements(x, p), M, np.array([4, 2, 0, 1, 3]))
    for axis in (0, 1):
        yield probe(
            extra_ops.Repeat,
            lambda x, n, a=axis: extra_ops.Repeat(axis=a)(x, n),
            M,
            np.arange(M.shape[axis]),
            variant=f"axis{axis}",
        )
    flat = np.array([0, 7, 13, 19])
    yield probe(extra_ops.UnravelIndex, lambda i: pt.unravel_index(i, (4, 5)), flat)
    yield probe(extra_ops.RavelMultiIndex, lambda i, j: pt.ravel_multi_index((i, j), (4, 5)), flat % 4, flat % 5)


def _joins_and_diagonals() -> Iterator[Probe]:
    for dtype in SOME:
        x, y = draw(4, 5, dtype=dtype), draw(4, 3, dtype=dtype)
        yield probe(basic.Join, lambda x, y: pt.join(1, x, y), x, y, variant=dtype)
        yield probe(basic.Split, lambda x: pt.split(x, (1, 3), n_splits=2, axis=0), x, variant=dtype)
        yield probe(basic.ExtractDiag, lambda x: pt.diagonal(x, offset=1), x, variant=dtype)
        yield probe(basic.AllocDiag, lambda x: pt.diag(x, 1), draw(6, dtype=dtype), variant=dtype)
    for dtype in FLOATS:
        value = np.dtype(dtype).type(9)
        yield probe(extra_ops.FillDiagonal, extra_ops.fill_diagonal, draw(4, 5, dtype=dtype), value, variant=dtype)
        fill = extra_ops.fill_diagonal_offset
        yield probe(extra_ops.FillDiagonalOffset, fill, draw(4, 5, dtype=dtype), value, np.int64(1), variant=dtype)


def _dots() -> Iterator[Probe]:
    for dtype in (*FLOATS, "int64", "complex64", "float16"):
        a, b, v = draw(4, 5, dtype=dtype), draw(5, 3, dtype=dtype), draw(5, dtype=dtype)
        loose = 2e-2 if dtype == "float16" else 1e-4
        yield probe(math.Dot, pt.dot, a, b, variant=dtype, rtol=loose)
        yield probe(math.Dot, pt.dot, v, v, variant=f"vectors-{dtype}", rtol=loose)
        yield probe(
            Blockwise,
            pt.matmul,
            draw(2, 4, 5, dtype=dtype),
            draw(2, 5, 3, dtype=dtype),
            variant=f"dot-{dtype}",
            rtol=loose,
        )
        yield probe(Einsum, lambda x, y: pt.einsum("ij,jk->ik", x, y), a, b, variant=dtype, rtol=loose)
    for dtype in (*FLOATS, "complex64"):
        a, b, c, v, w = (draw(*s, dtype=dtype) for s in ((4, 5), (5, 3), (4, 3), (5,), (4,)))
        two = np.dtype(dtype).type(2)
        yield probe(blas.Dot22, blas._dot22, a, b, variant=dtype)
        yield probe(blas.Dot22Scalar, blas._dot22scalar, a, b, two, variant=dtype)
        yield probe(blas.Gemm, blas.gemm_no_inplace, c, two, a, b, two, variant=dtype)
        yield probe(blas.Gemv, blas.gemv_no_inplace, w, two, a, v, two, variant=dtype)
        yield probe(
            blas.BatchedDot, blas._batched_dot, draw(2, 4, 5, dtype=dtype), draw(2, 5, 3, dtype=dtype), variant=dtype
        )
    square = np.stack([np.eye(3) * 3 + RNG.uniform(size=(3, 3)) for _ in range(2)]).astype("float32")
    yield probe(Blockwise, Blockwise(MatrixInverse()), square, variant="inverse")


def _rows_and_signals() -> Iterator[Probe]:
    x = RNG.normal(size=(4, 6))
    rows = {
        special.Softmax: special.softmax,
        special.LogSoftmax: special.log_softmax,
        special.LogSumExp: special.logsumexp,
    }
    for dtype in FLOATS:
        for op, function in rows.items():
            for axis in (-1, 0, None):
                yield probe(op, lambda x, f=function, a=axis: f(x, axis=a), x.astype(dtype), variant=f"{dtype}-{axis}")
        y = np.abs(x).astype(dtype)
        yield probe(special.LogAddExp, special.logaddexp, x.astype(dtype), y, variant=dtype)
        yield probe(special.XLogY, special.xlogy, y, y, variant=dtype)
        yield probe(special.XLog1PY, special.xlog1py, y, y, variant=dtype)
        for mode in ("full", "valid", "same"):
            yield probe(
                conv.Convolve1d,
                lambda a, b, m=mode: conv.convolve1d(a, b, mode=m),
                draw(9, dtype=dtype),
                draw(4, dtype=dtype),
                variant=f"{mode}-{dtype}",
            )
            yield probe(
                conv.Convolve2d,
                lambda a, b, m=mode: conv.convolve2d(a, b, mode=m),
                draw(7, 8, dtype=dtype),
                draw(3, 4, dtype=dtype),
                variant=f"{mode}-{dtype}",
            )
        yield probe(fft.RFFTOp, fft.rfft, draw(2, 8, dtype=dtype), variant=dtype)
        yield probe(fft.IRFFTOp, fft.irfft, draw(2, 5, 2, dtype=dtype), variant=dtype)
        yield probe(Elemwise, Elemwise(ps.add), draw(4, 5, dtype=dtype), draw(4, 5, dtype=dtype), variant=dtype)
    # Of float32 the graph says complex128, and PyTensor's Python Op returns complex64.
    yield probe(fourier.Fourier, lambda x: fourier.fft(x, 8, 1), draw(2, 8, dtype="float64"), variant="float64")


PROBES = (
    *_creation(),
    *_shapes(),
    *_indexing(),
    *_joins_and_diagonals(),
    *_dots(),
    *_rows_and_signals(),
)
