"""Row functions on GPUs, whose work-items keep the elements of a row in registers."""

import numpy as np
import pytest

from pytensor_cl.routines.rowwise import plan as planning
from pytensor_cl.routines.rowwise.limits import LOAD_LANES, MAX_HELD, MIN_HELD
from pytensor_cl.routines.rowwise.plan import Rows, split_simt, vector_access
from pytensor_cl.routines.rowwise.program import Operand, Reduce, RowFunction
from pytensor_cl.routines.rowwise.routine import Rowwise
from tests.routines.rowwise.test_rowwise import F32, FULL, MOMENTS, SOFTMAX, check, moments, rows_of, softmax, step

UNITS = 132

# (x - mean) / deviation * gain + bias
NORM = RowFunction(
    (FULL, FULL, FULL),
    (
        Reduce("add", 0, "float64", F32),
        step("i0 - i1 / 1000", 0, 3),
        step("i0 * i0", 4),
        Reduce("add", 5, "float64", F32),
        step("i0 * rsqrt(i1) * i2 + i3", 4, 6, 1, 2),
    ),
    (7,),
)


def _variants(routine):
    return {(variant.held, variant.load_lanes) for variant, _ in routine._kernels}


def _rows(count, total):
    return Rows(((count, total),), ((total, 1),), (0,), 0)


@pytest.mark.parametrize("columns", [1, 3, 4, 31, 127, 128, 132, 511, 1000, 4095, 4096, 4097])
def test_rows_of_all_lengths(context, rng, columns):
    routine = rows_of(context, SOFTMAX, (1,), "simt")
    for rows in (1, 37) if columns < 1000 else (5,):
        host = rng.normal(size=(rows, columns)).astype(F32)
        check(routine(context.from_host(host)), softmax(host, 1))
    if columns > 31:
        is_held = columns <= MAX_HELD * routine._rendered.group
        assert all((held > 0) == is_held for held, _ in _variants(routine))
        assert all(
            lanes == (LOAD_LANES if is_held and columns % LOAD_LANES == 0 else 1) for _, lanes in _variants(routine)
        )


def test_rows_that_begin_anywhere(context, rng):
    routine = rows_of(context, SOFTMAX, (1,), "simt")
    host = rng.normal(size=(21, 140)).astype(F32)
    array = context.from_host(host)
    views = {
        4: (lambda x: x, lambda x: x[:, 4:], lambda x: x[1::3, 8:136]),
        1: (lambda x: x[:, 1:], lambda x: x[:, :137], lambda x: x[::-1, ::-1], lambda x: x[:, ::2]),
    }
    for lanes, some in views.items():
        for view in some:
            check(routine(view(array)), softmax(view(host), 1))
        assert _variants(routine) <= {(held, n) for held in (4, 8, 16) for n in (1, lanes, 4)}
    assert {lanes for _, lanes in _variants(routine)} == {1, 4}
    target = context.from_host(np.full((21, 145), 7, F32))
    for start in (4, 3):
        outputs = target[:, start : start + 140], context.empty((21,), F32)
        routine.launch(outputs, [array])
        check((outputs[0].to_host(), outputs[1].to_host()), softmax(host, 1))
    np.testing.assert_array_equal(target.to_host()[:, [0, 1, 2, 144]], 7)


def test_operands_that_all_rows_share(context, rng):
    rows, columns = 9, 1000
    x, gain, bias = (rng.normal(size=s).astype(F32) for s in ((rows, columns), (1, columns), (rows, 1)))
    broadcast = ((False, False), (True, False), (False, True))
    routine = Rowwise(context, NORM, 2, (1,), (False,) * 4, broadcast, schedule="simt")
    centred = x - x.sum(1, dtype="float64", keepdims=True) / 1000
    want = centred / np.sqrt(np.square(centred).sum(1, keepdims=True)) * gain + bias
    check(routine(*map(context.from_host, (x, gain, bias))), (want,), 1e-5)
    ((variant, _),) = routine._kernels
    assert routine._rendered.most_held == MAX_HELD and variant.held >= MIN_HELD
    assert variant.access == ("vector", "vector", "gather", "vector")


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "float64"])
def test_vectors_of_every_size(context, rng, dtype):
    wide = "float64" if np.dtype(dtype).kind == "f" else "int64"
    function = RowFunction(
        (Operand("full", dtype),), (Reduce("add", 0, wide, wide), Reduce("maximum", 0, dtype, dtype)), (1, 2)
    )
    routine = rows_of(context, function, (1,), "simt", dropped=2)
    x = (rng.normal(size=(19, 200)) * 5).astype(dtype)
    for host in (x, x[:, :199]):
        want = host.sum(1, dtype=wide), host.max(1)
        check(routine(context.from_host(np.ascontiguousarray(host))), want, 1e-13)
    assert {lanes for _, lanes in _variants(routine)} == {1, LOAD_LANES}


def test_long_indices(context, rng, monkeypatch):
    monkeypatch.setattr(planning, "fits_int", lambda rows: False)
    routine = rows_of(context, SOFTMAX, (1,), "simt")
    host = rng.normal(size=(7, 300)).astype(F32)
    check(routine(context.from_host(host)), softmax(host, 1))
    assert {variant.index_type for variant, _ in routine._kernels} == {"long"}


def test_several_dimensions_along_a_row(context, rng):
    host = rng.normal(size=(6, 12, 3, 8)).astype(F32)
    routine = rows_of(context, MOMENTS, (1, 3), "simt", ndim=4, dropped=2)
    check(routine(context.from_host(host)), moments(host, (1, 3)))
    assert _variants(routine) == {(MIN_HELD, 1)}


def test_work_items_of_a_row():
    def split(count, total, most=MAX_HELD):
        found = split_simt(_rows(count, total), "rows", UNITS, 256, most)
        return found.threads_per_row, found.held

    assert split(16384, 1000) == (64, 16)
    assert split(16384, 1024) == (64, 16)
    assert split(16384, 100) == (32, 4)
    assert split(16384, 500) == (32, 16)
    assert split(16384, 4096) == (256, 16)
    assert split(16384, 4097)[1] == 0
    assert split(16384, 1000, most=0)[1] == 0
    assert split(16384, 1000, most=8) == (128, 8)
    assert split(100, 1000) == (256, 4)  # few rows: all units are busy
    assert split(100_000, 3) == (1, 4)


def test_vectors_need_aligned_rows():
    rows = Rows(((8, 100, 1, 100),), ((100, 1, 0, 1),), (0, 0, 4), 0)
    assert vector_access(rows, (0, 1, 2), (0, 0, 0), 4) == ("vector", "gather", "vector")
    assert vector_access(rows, (1, 2), (0, 0, 0), 4) == ("gather", "gather", "vector")
    assert vector_access(rows, (0, 1, 2), (2, 0, 0), 4) == ("gather", "gather", "vector")
    assert vector_access(rows._replace(shifts=(0, 0, 5)), (0, 2), (0, 0, 3), 4) == ("vector", "gather", "vector")
    assert vector_access(rows._replace(outer=((8, 102, 1, 100),)), (0, 2), (0, 0, 0), 4)[0] == "gather"
    assert vector_access(rows._replace(reduced=((99, 1, 0, 1),)), (0, 2), (0, 0, 0), 4)[0] == "gather"
