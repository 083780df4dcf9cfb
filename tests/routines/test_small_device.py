"""Every family of kernels on a device with few registers, little local memory, and little room for arguments."""

import numpy as np
import pytensor.scalar as ps
import pytest
from scipy import sparse

from pytensor_cl.routines.argmax import Argmax
from pytensor_cl.routines.conv.routine import ConvForward
from pytensor_cl.routines.creation import ARange, Bartlett
from pytensor_cl.routines.cumop import CumOp
from pytensor_cl.routines.elemwise.routine import Copy
from pytensor_cl.routines.fft.routine import RFFT
from pytensor_cl.routines.gemm.routine import BatchedGemm, Gemm
from pytensor_cl.routines.gemv.routine import Gemv, Ger
from pytensor_cl.routines.indexing import gather_scatter
from pytensor_cl.routines.indexing.gather_fused import GatherFused
from pytensor_cl.routines.indexing.gather_scatter import Gather, Scatter
from pytensor_cl.routines.indexing.ravel_multi_index import RavelMultiIndex
from pytensor_cl.routines.indexing.take_along_axis import Choose
from pytensor_cl.routines.nonzero import Nonzero, Select
from pytensor_cl.routines.pool import MaxPool, SumPool, Window
from pytensor_cl.routines.reduction.routine import Reduction
from pytensor_cl.routines.repeat import Repeat
from pytensor_cl.routines.rowwise.routine import Rowwise
from pytensor_cl.routines.sort.routine import ArgSort, Sort
from pytensor_cl.routines.sort.searchsorted import SearchSorted
from pytensor_cl.routines.sort.unique import Unique
from pytensor_cl.routines.sparse import CsrDot
from pytensor_cl.runtime.program import Kernel
from pytensor_cl.scalar.base import element_function
from tests.routines.rowwise.test_rowwise import MOMENTS, SOFTMAX, moments, softmax
from tests.small_device import small_device

SIMT = {"schedule": "simt"}
SCATTER = {"value_dtype": "float32", "value_ndim": 2, **SIMT}


def difference():
    x, y = (ps.get_scalar_type("float32")() for _ in range(2))
    return element_function(ps.Composite([x, y], [x - y]), ["float32"] * 2, ["float32"])


def floats(rng, *shape):
    return rng.normal(size=shape).astype("float32")


def _reduction(acc_dtype, axes, *shape):
    def case(context, rng):
        x = floats(rng, *shape)
        routine = Reduction(context, "add", "float32", acc_dtype, "float32", x.ndim, axes, **SIMT)
        return routine, (x,), (x.sum(axes, "float64"),)

    return case


def _complex_sum(context, rng):
    x = floats(rng, 3000, 2).view("complex64")[:, 0]
    return Reduction(context, "add", "complex64", "complex128", "complex64", 1, **SIMT), (x,), (x.sum(),)


def _argmax(context, rng):
    x = floats(rng, 5, 4000)
    return Argmax(context, "float32", 2, (1,), **SIMT), (x,), (x.argmax(1),)


def _cumop(dtype, *shape):
    def case(context, rng):
        x = rng.integers(-4, 5, shape).astype(dtype)
        return CumOp(context, "add", dtype, len(shape), len(shape) - 1, **SIMT), (x,), (x.cumsum(-1, dtype),)

    return case


def _sort(kind, dtype, length):
    def case(context, rng):
        x = rng.integers(-99, 100, (2, length)).astype(dtype)
        wanted = np.sort(x) if kind is Sort else np.argsort(x, kind="stable")
        return kind(context, dtype, 2, 1, **SIMT), (x,), (wanted,)

    return case


def _nonzero(context, rng):
    x = rng.integers(0, 3, (70, 90)).astype("int32")
    return Nonzero(context, "int32", 2, "simt"), (x,), x.nonzero()


def _select(context, rng):
    x, mask = floats(rng, 6000), rng.random(6000) < 0.3
    return Select(context, "float32", 1, schedule="simt"), (x, mask), (x[mask],)


def _repeat(context, rng):
    x, n = floats(rng, 1500), rng.integers(0, 4, 1500)
    return Repeat(context, "float32", 1, 0, **SIMT), (x, n), (x.repeat(n),)


def _rowwise(function, outputs, reference):
    def case(context, rng):
        x = floats(rng, 9, 3000)
        flags = [k > 0 for k in range(1 + outputs)] if reference is moments else [False, False, True]
        return Rowwise(context, function, 2, (1,), flags, ((False, False),), "simt"), (x,), reference(x, 1)

    return case


def _gemm(kind, *shapes):
    def case(context, rng):
        a, b = (floats(rng, *shape) for shape in shapes)
        return kind(context, "float32", **SIMT), (a, b), (a @ b,)

    return case


def _gemv(context, rng):
    a, x = floats(rng, 7, 9000), floats(rng, 9000)
    return Gemv(context, "float32", **SIMT), (a, x), (a @ x,)


def _ger(context, rng):
    a, x, y = floats(rng, 7, 300), floats(rng, 7), floats(rng, 300)
    return Ger(context, "float32", **SIMT), (a, np.float32(2), x, y), (a + 2 * np.outer(x, y),)


def _fft(length):
    def case(context, rng):
        x = floats(rng, 3, length)
        f = np.fft.rfft(x, axis=1)
        return RFFT(context, "float32", 2, "simt"), (x, (length,)), (np.stack([f.real, f.imag], -1),)

    return case


def _conv(context, rng):
    x, w = floats(rng, 2, 9, 12, 12), floats(rng, 20, 9, 3, 3)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    wanted = np.einsum("nchwij,ocij->nohw", windows, w)
    return ConvForward(context, "float32", 2, **SIMT), (x, w), (wanted,)


def _conv_of_integers(context, rng):
    x, w = (rng.integers(-9, 9, shape).astype("int32") for shape in ((2, 3, 12, 12), (2, 3, 3, 3)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    return ConvForward(context, "int32", 2, **SIMT), (x, w), (np.einsum("nchwij,ocij->nohw", windows, w),)


def _pool(kind):
    def case(context, rng):
        x = floats(rng, 2, 3, 20, 20)
        blocks = x.reshape(2, 3, 10, 2, 10, 2)
        wanted = blocks.max((3, 5)) if kind is MaxPool else blocks.mean((3, 5))
        return kind(context, "float32", [Window(2, 2, 0, 0)] * 2, **SIMT), (x,), (wanted,)

    return case


def _sparse(context, rng):
    m = sparse.random(60, 40, 0.2, "csr", "float32", random_state=rng)
    parts = m.data, m.indices.astype("int32"), m.indptr.astype("int32")
    dense = floats(rng, 40, 5)
    return CsrDot(context, "float32", "simt"), (*parts, dense, np.int64(40)), (m @ dense,)


def _gather(context, rng):
    x, i = floats(rng, 50, 4), rng.integers(-50, 50, 700)
    return Gather(context, "float32", 2, [0], [("int64", 1)], **SIMT), (x, i), (x[i],)


def _scatter(accumulate, worth_sorting):
    def case(context, rng):
        x, i, y = floats(rng, 50, 4), rng.integers(-50, 50, 700), floats(rng, 700, 4)
        wanted = x.copy()
        if accumulate:
            np.add.at(wanted, i, y)
        else:
            wanted[i] = y
        routine = Scatter(context, "float32", 2, [0], [("int64", 1)], accumulate=accumulate, **SCATTER)
        return routine, (x, y, i), (wanted,)

    case.worth_sorting = worth_sorting
    return case


def _pick(context, rng):
    x, y, i, j = floats(rng, 9, 13), floats(rng, 9, 13), rng.integers(-9, 9, 700), rng.integers(-13, 13, 700)
    kinds = ((False, False),) * 2, (False, False), [("int64", 1)] * 2
    return GatherFused(context, difference(), *kinds, **SIMT), (x, y, i, j), ((x - y)[i, j],)


def _choose(context, rng):
    i, x = rng.integers(0, 3, (40, 20)), floats(rng, 3, 40, 20)
    return Choose(context, "float32", "int64", 2, 3, **SIMT), (i, x), (np.choose(i, x),)


def _searchsorted(context, rng):
    x, v = np.sort(floats(rng, 500)), floats(rng, 900)
    return SearchSorted(context, ("float32", "float32"), 1, **SIMT), (x, v), (np.searchsorted(x, v),)


def _unique(context, rng):
    x = rng.integers(0, 99, 3000).astype("int32")
    return Unique(context, "int32", 1, None, return_counts=True, **SIMT), (x,), np.unique(x, return_counts=True)


def _ravel(context, rng):
    i, j = (rng.integers(0, 5, 900) for _ in range(2))
    routine = RavelMultiIndex(context, ["int64"] * 2, [1, 1], "raise", "C", "simt")
    return routine, (i, j, (5, 6)), (np.ravel_multi_index((i, j), (5, 6)),)


def _arange(context, rng):
    return ARange(context, "int32", "simt"), (2, 9000, 3), (np.arange(2, 9000, 3, "int32"),)


def _bartlett(context, rng):
    return Bartlett(context, "float32", "simt"), (3001,), (np.bartlett(3001),)


def _copy(context, rng):
    x = floats(rng, 30, 70)
    return Copy(context, "float32", 2, "int32", "simt"), (x,), (x.astype("int32"),)


CASES = {
    "sum of rows": _reduction("float32", (1,), 9, 5000),
    "sum of columns": _reduction("float32", (0,), 900, 70),
    "sum in double precision": _reduction("float64", (0, 1), 90, 700),
    "sum of complex numbers": _complex_sum,
    "argmax": _argmax,
    "cumulative sum of rows": _cumop("int32", 3, 5000),
    "cumulative sum of columns": _cumop("int64", 3, 40),
    "cumulative sum of complex numbers": _cumop("complex64", 2, 3000),
    "short rows sorted": _sort(Sort, "int32", 700),
    "long rows sorted": _sort(Sort, "int32", 9000),
    "long rows of int64 sorted": _sort(Sort, "int64", 5000),
    "order of short rows": _sort(ArgSort, "int64", 700),
    "order of long rows": _sort(ArgSort, "int64", 5000),
    "nonzero": _nonzero,
    "select": _select,
    "repeat": _repeat,
    "softmax": _rowwise(SOFTMAX, 2, softmax),
    "moments": _rowwise(MOMENTS, 2, moments),
    "product of matrices": _gemm(Gemm, (70, 33), (33, 90)),
    "large product": _gemm(Gemm, (256, 30), (30, 256)),
    "product with long sums": _gemm(Gemm, (9, 3000), (3000, 8)),
    "batched product": _gemm(BatchedGemm, (3, 20, 30), (3, 30, 40)),
    "matrix times vector": _gemv,
    "rank-one update": _ger,
    "fft": _fft(256),
    "fft in registers": _fft(4800),
    "fft in global memory": _fft(6006),
    "convolution": _conv,
    "convolution of integers": _conv_of_integers,
    "max pooling": _pool(MaxPool),
    "average pooling": _pool(SumPool),
    "sparse product": _sparse,
    "gather": _gather,
    "scatter that adds": _scatter(True, 1 << 40),
    "scatter that sets": _scatter(False, 1 << 40),
    "sorted scatter that adds": _scatter(True, 1),
    "sorted scatter that sets": _scatter(False, 1),
    "pick": _pick,
    "choose": _choose,
    "searchsorted": _searchsorted,
    "unique": _unique,
    "ravel": _ravel,
    "arange": _arange,
    "bartlett": _bartlett,
    "copy": _copy,
}


def check(context, rng, name, monkeypatch, **limits):
    case = CASES[name]
    monkeypatch.setattr(gather_scatter, "MIN_SORTED_POSITIONS", getattr(case, "worth_sorting", 1 << 40))
    with small_device(context, **limits) as launched:
        routine, inputs, wanted = case(context, rng)
        arrays = [context.from_host(v) if isinstance(v, np.ndarray) else v for v in inputs]
        outputs = [output.to_host() for output in routine(*arrays)]
    assert launched
    for got, want in zip(outputs, wanted, strict=True):
        assert got.shape == np.shape(want)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * max(1, np.abs(want).max(initial=0)))


@pytest.mark.parametrize("items", [64, 256])
@pytest.mark.parametrize("name", CASES)
def test_small_device(context, rng, name, items, monkeypatch):
    """Work-groups of so many work-items and local memory of 16 KiB: no kernel may have more."""
    check(context, rng, name, monkeypatch, max_work_group_size=items)


@pytest.mark.parametrize("name", CASES)
def test_kernels_that_run_with_small_work_groups_only(context, rng, name, monkeypatch):
    """The device takes large work-groups; what the compiler made of the kernels does not: they are built again."""
    check(context, rng, name, monkeypatch, is_told=False)


@pytest.mark.parametrize("name", ["argmax", "short rows sorted", "long rows of int64 sorted", "product of matrices"])
def test_local_memory_that_the_compiler_uses_besides(context, rng, name, monkeypatch):
    """Kernels that turn out to use twice what they declare, as Mesa's rusticl reports, are built again for less."""
    own = Kernel.local_memory
    monkeypatch.setattr(Kernel, "local_memory", lambda kernel, device: 2 * own(kernel, device))
    check(context, rng, name, monkeypatch, max_work_group_size=256, local_memory=5000)


@pytest.mark.parametrize("schedule", ["cpu", "simt"])
def test_structs_that_are_too_large_for_arguments(context, rng, schedule):
    """Structs of many dimensions are read from a buffer."""
    shape, limit = (2, 3, 2, 3, 2, 2), 288
    x, y = floats(rng, *shape), floats(rng, *shape)
    index = [rng.integers(-n, n, 20) for n in shape]
    x_t = x.transpose(3, 1, 5, 0, 4, 2)  # no two dimensions are one
    types = [("int64", 1)] * 6
    cases = [
        (Gather(context, "float32", 6, range(6), types, schedule=schedule), (x, *index), x[tuple(index)]),
        (
            GatherFused(context, difference(), ((False,) * 6,) * 2, (False, False), types, schedule=schedule),
            (x, y, *index),
            (x - y)[tuple(index)],
        ),
        (CumOp(context, "add", "float32", 6, 2, schedule=schedule), (x_t,), x_t.cumsum(2)),
        (
            Choose(context, "float32", "int64", 6, 7, schedule=schedule),
            (rng.integers(0, 2, shape), np.stack([x, y])),
            None,
        ),
        (
            SearchSorted(context, ("float32", "float32"), 1, schedule=schedule),
            (np.sort(x), y),
            None,
        ),
    ]
    choices = cases[3][1]
    cases[3] = (*cases[3][:2], np.choose(*choices))
    rows = np.sort(x).reshape(-1, 2), y.reshape(-1, 2)
    found = [np.searchsorted(row, values) for row, values in zip(*rows, strict=True)]
    cases[4] = (*cases[4][:2], np.reshape(found, shape))
    for routine, inputs, wanted in cases:
        arrays = [context.from_host(a) for a in inputs]
        with small_device(
            context, max_parameter_size=limit, max_work_group_size=256, local_memory=32 << 10
        ) as launched:
            (got,) = routine(*arrays)
        assert launched
        np.testing.assert_allclose(got.to_host(), wanted, rtol=1e-5, atol=1e-5)
