"""Products whose elements go through a function before they are stored, on every driver, with both schedules."""

import numpy as np
import pytest

from pytensor_cl.routines.elemwise.epilogue import Epilogue
from pytensor_cl.routines.gemm import routine as module
from pytensor_cl.routines.gemm.routine import BatchedGemm, Gemm
from pytensor_cl.runtime.layout import Layout
from tests.routines.gemm.test_gemm import PLACEMENTS, draw

SIZES = [
    (0, 3, 2), (3, 0, 2), (2, 3, 0), (1, 1, 1), (12, 16, 32), (11, 15, 31), (13, 17, 33), (5, 300, 3),
    (97, 101, 103), (65, 16, 130), (1, 40, 50), (50, 40, 1), (9, 2500, 40), (5, 9000, 6),
]  # fmt: skip


class Function:
    """A fixed text: the product plus what there is besides, twice that, and whether it is positive."""

    preambles, operations = (), 4

    def __init__(self, dtype, further, outputs):
        self.input_dtypes = (dtype, *further)
        self.output_dtypes = outputs
        self.itemsize = max(np.dtype(t).itemsize for t in (*self.input_dtypes, *outputs))

    def statements(self, lanes):
        """C code."""
        width = lanes if lanes > 1 else ""
        real = {"float32": "float", "float64": "double"}[self.input_dtypes[0]]
        casts = [f"convert_{real}{width}(i{k})" for k in range(len(self.input_dtypes))]
        lines = [f"{real}{width} sum = {' + '.join(casts)};"]
        for k, dtype in enumerate(self.output_dtypes):
            if dtype == "bool":
                lines.append(f"o{k} = convert_uchar{width}(sum > 0) & (uchar)1;")
            else:
                other = {"float32": "float", "float64": "double"}[dtype]
                lines.append(f"o{k} = convert_{other}{width}({k + 1} * sum);")
        return "\n".join(lines)

    def expected(self, product, *further):
        """The same by NumPy."""
        total = product + sum(x.astype("float64") for x in further)
        return [total > 0 if t == "bool" else (k + 1) * total for k, t in enumerate(self.output_dtypes)]


_cache = {}
FREE = (False, False)
ROW, COLUMN = (True, False), (False, True)


@pytest.fixture
def make(context, schedule):
    """Build a routine, once in the whole session; `known` tells along which dimensions further arrays have length one."""

    def get(kind, dtype, further, outputs, known, **flags):
        key = (context.name, schedule, kind, dtype, further, outputs, known, *sorted(flags.items()))
        if key not in _cache:
            broadcast = ((False,) * len(known[0]), *known)
            epilogue = Epilogue(context, Function(dtype, further, outputs), broadcast, schedule)
            _cache[key] = kind(context, dtype, schedule=schedule, epilogue=epilogue, **flags)
        return _cache[key]

    return get


def check(routine, further, outputs):
    """Compare with NumPy, as exactly as sums of a few thousand numbers of size one can be."""
    results = routine.epilogue.function.expected(*further)
    for got, wanted in zip(map(np.asarray, outputs), results, strict=True):
        assert got.shape == wanted.shape
        if got.dtype == "bool":
            sure = abs(results[0]) > 1e-2
            np.testing.assert_array_equal(got[sure], wanted[sure])
        else:
            atol = 2e-3 if "float32" in (got.dtype, routine.dtype) else 1e-10
            np.testing.assert_allclose(got, wanted, rtol=0, atol=atol)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sizes_and_a_row_and_a_column_beside(context, make, rng, dtype):
    """A bias for each column and one for each row; the second result tells of which sign the first is."""
    routine = make(Gemm, dtype, (dtype, dtype), (dtype, "bool"), (ROW, COLUMN))
    for m, k, n in SIZES:
        a, b, row, column = (draw(rng, dtype, *s) for s in ((m, k), (k, n), (1, n), (m, 1)))
        check(routine, (a.astype("float64") @ b, row, column), routine(*map(context.from_host, (a, b, row, column))))


def test_alpha_and_an_addend_come_first(context, make, rng):
    """Whole arrays of another dtype have any strides; scalars on the host or the device."""
    routine = make(Gemm, "float32", ("float64", "int8"), ("float32",), (FREE, FREE), has_c=True)
    for m, k, n in ((21, 30, 40), (16, 20, 32), (9, 2500, 33), (4, 9000, 5), (1, 8, 9), (300, 20, 260)):
        c, a, b, d = (draw(rng, "float32", *s) for s in ((m, n), (m, k), (k, n), (m, n)))
        whole, signs = d.astype("float64"), (d * 20).astype("int8")
        expected = 0.5 * (a.astype("float64") @ b) - 2 * c
        for name, place in PLACEMENTS.items():
            scalars = [np.float32(0.5), np.float32(-2)]
            if name == "scattered":
                scalars = [context.from_host(x) for x in scalars]
            arrays = [place(context, x) for x in (c, a, b, whole, signs)]
            got = routine(arrays[0], scalars[0], *arrays[1:3], scalars[1], *arrays[3:])
            check(routine, (expected, whole, signs), got)


def test_no_result_can_hold_incomplete_sums(context, rng):
    epilogue = Epilogue(context, Function("float32", (), ("float64", "bool")), (FREE,), "cpu")
    assert epilogue.sum_output is None
    routine = Gemm(context, "float32", schedule="cpu", epilogue=epilogue)
    for m, k, n in ((5, 3000, 40), (33, 5000, 7), (2, 9000, 3)):
        a, b = draw(rng, "float32", m, k), draw(rng, "float32", k, n)
        check(routine, (a.astype("float64") @ b,), routine(context.from_host(a), context.from_host(b)))


def test_batches(context, make, rng):
    """Batches that B repeats along are rows of one product, unless what is read besides does not allow it."""
    known = ((True, True, False), (False, False, False))
    routine = make(BatchedGemm, "float32", ("float32", "float32"), ("float32",), known)
    a, row, d = (draw(rng, "float32", *s) for s in ((3, 10, 20), (1, 1, 33), (3, 10, 33)))
    for b in (draw(rng, "float32", 3, 20, 33), draw(rng, "float32", 20, 33), draw(rng, "float32", 1, 20, 33)):
        for other in (context.from_host(d), context.from_host(d[:, ::-1])[:, ::-1]):
            got = routine(*map(context.from_host, (a, b, row)), other)
            check(routine, (np.matmul(a.astype("float64"), b), row, d), got)
    none = [context.from_host(x) for x in (a[:0], b, row, d[:0])]
    assert routine(*none)[0].shape == (0, 10, 33)


def test_more_batch_dimensions_than_a_launch_has(context, make, rng):
    routine = make(BatchedGemm, "float32", ("float32",), ("float32",), ((False,) * 7,))
    shape = (2, 3, 2, 2, 3)
    a, b, d = (draw(rng, "float32", *shape, *s) for s in ((2, 4), (4, 3), (2, 3)))
    arrays = [context.from_host(np.repeat(x, 2, axis)) for x, axis in ((a, 1), (b, 3), (d, 0))]
    a_view, b_view, d_view = arrays[0][:, ::2], arrays[1][:, :, :, ::2], arrays[2][::2]
    check(routine, (np.matmul(a.astype("float64"), b), d), routine(a_view, b_view, d_view))


def test_large_arrays_between_short_sums(context, rng, monkeypatch):
    monkeypatch.setattr(module, "CACHED_OUTPUT_BYTES", 100)
    epilogue = Epilogue(context, Function("float32", ("float32",), ("float32",)), (FREE, FREE), "cpu")
    routine = Gemm(context, "float32", schedule="cpu", epilogue=epilogue)
    for k in (3, 200):
        a, b, d = (draw(rng, "float32", *s) for s in ((20, k), (k, 17), (20, 17)))
        check(routine, (a.astype("float64") @ b, d), routine(*map(context.from_host, (a, b, d))))
    assert [plan.is_unfused for plan in routine._plans._plans.values()] == [True, False]


def test_shapes_that_do_not_fit(context, make):
    routine = make(Gemm, "float32", ("float32", "float32"), ("float32", "bool"), (ROW, COLUMN))
    a, b, row, column = (Layout.contiguous(s) for s in ((3, 4), (4, 5), (1, 5), (3, 1)))
    assert [x.shape for x in routine.layout(a, b, row, column)] == [(3, 5), (3, 5)]
    with pytest.raises(ValueError, match="A has shape"):
        routine.layout(a, a, row, column)
    with pytest.raises(ValueError, match="mismatch"):
        routine.layout(a, b, Layout.contiguous((1, 4)), column)
    with pytest.raises(ValueError, match="Runtime broadcasting"):
        routine.layout(a, b, Layout.contiguous((1, 1)), column)
