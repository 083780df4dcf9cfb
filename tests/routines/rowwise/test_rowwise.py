from dataclasses import dataclass

import numpy as np
import pytest

from pytensor_cl.errors import CompilationError
from pytensor_cl.routines.base.routine import SCHEDULES
from pytensor_cl.routines.rowwise import plan as rowwise_plan
from pytensor_cl.routines.rowwise import routine as rowwise
from pytensor_cl.routines.rowwise.program import ALWAYS_RECOMPUTE, Map, Operand, Program, Reduce, RowFunction
from pytensor_cl.routines.rowwise.routine import Rowwise
from pytensor_cl.runtime.array import GpuArray

F32 = "float32"


@dataclass(frozen=True)
class Code:
    """An element function of one dtype, as text."""

    text: str
    count: int
    dtype: str = F32
    preambles: tuple[str, ...] = ()
    operations: int = 1

    @property
    def input_dtypes(self):
        return (self.dtype,) * self.count

    @property
    def output_dtypes(self):
        return (self.dtype,)

    @property
    def itemsize(self):
        return np.dtype(self.dtype).itemsize

    def statements(self, lanes):
        return f"o0 = {self.text};"


def step(text, *inputs, cost=1, dtype=F32):
    return Map(Code(text, len(inputs), dtype), inputs, cost)


FULL = Operand("full", F32)
EXPONENTS = (
    Reduce("maximum", 0, F32, F32),
    step("i0 - i1", 0, 1),
    step("exp(i0)", 2, cost=10),
    Reduce("add", 3, "float64", F32),
)
SOFTMAX = RowFunction((FULL,), (*EXPONENTS, step("i0 / i1", 3, 4)), (5, 1))
MOMENTS = RowFunction(
    (FULL,), (step("i0 * i0", 0), Reduce("add", 1, "float64", F32), Reduce("add", 0, "float64", F32)), (2, 3)
)


def softmax(x, axis):
    e = np.exp(x.astype("float64") - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True), x.max(axis)


def moments(x, axis):
    return np.square(x, dtype="float64").sum(axis), x.sum(axis, dtype="float64")


@pytest.fixture(params=SCHEDULES)
def schedule(request):
    return request.param


def rows_of(context, function, axes, schedule, *, ndim=2, dropped=1, **options):
    outer = [False] * (len(function.operands) + len(function.outputs) - dropped) + [True] * dropped
    broadcast = ((False,) * ndim,) * len(function.operands)
    return Rowwise(context, function, ndim, axes, outer, broadcast, schedule=schedule, **options)


def check(got, wanted, rtol=3e-6):
    for array, want in zip(got, wanted, strict=True):
        assert array.shape == want.shape
        np.testing.assert_allclose(np.asarray(array), want, rtol=rtol, atol=rtol * np.abs(want).max(initial=0))


VIEWS = (lambda x: x, lambda x: x.T, lambda x: x[::-1, 1::2])


@pytest.mark.parametrize("axis", [0, 1])
def test_shapes_and_layouts(context, rng, schedule, axis):
    routine = rows_of(context, SOFTMAX, (axis,), schedule)
    for shape in ((1, 1), (3, 5), (17, 40), (40, 17), (70, 3), (600, 130)):
        host = rng.normal(size=shape).astype(F32)
        array = context.from_host(host)
        for view in VIEWS if shape == (17, 40) else VIEWS[:1]:
            check(routine(view(array)), softmax(view(host), axis))


def test_short_rows_have_one_row_per_lane(context, rng):
    routine = rows_of(context, SOFTMAX, (1,), "cpu")
    for shape in ((100, 17), (37, 32), (16, 24), (100, 33)):
        host = rng.normal(size=shape).astype(F32)
        check(routine(context.from_host(host)), softmax(host, 1))
    assert [variant.pattern for variant, _ in routine._kernels] == ["columns", "rows"]


@pytest.mark.parametrize("dtype", [F32, "float64", "int8"])
def test_blocks_of_short_rows_are_turned(context, rng, dtype):
    """The rows of one array, less their sums, times those of another, and the sums; next to what must stay as it is."""
    operands = (Operand("full", dtype),) * 2
    steps = Reduce("add", 0, dtype, dtype), step("i0 - i1", 0, 2, dtype=dtype), step("i0 * i1", 3, 1, dtype=dtype)
    routine = rows_of(context, RowFunction(operands, steps, (4, 2)), (1,), "cpu")
    for rows, columns in ((50, 2), (37, 3), (64, 7), (33, 8), (40, 10), (16, 13), (5, 3), (90, 16), (45, 17), (31, 23)):
        x, y = rng.integers(-3, 4, (2, rows, columns + 2)).astype(dtype)
        for part in (slice(1, columns + 1), slice(columns)):
            left, right = x[:, part], y[:, part]
            want = (left - left.sum(1, dtype=dtype, keepdims=True)) * right, left.sum(1, dtype=dtype)
            around = context.from_host(np.full((rows, columns + 2), 7, dtype))
            outputs = around[:, part], context.empty((rows,), dtype)
            routine.launch(outputs, [context.from_host(x)[:, part], context.from_host(right)])
            check((outputs[0].to_host(), outputs[1].to_host()), want, 0)
            np.testing.assert_array_equal(np.delete(around.to_host(), np.arange(columns + 2)[part], axis=1), 7)
            check(routine(context.from_host(left), context.from_host(y)[:, part]), want, 0)
    tiles = {variant.tile for variant, _ in routine._kernels}
    assert {2, 4, 8} <= tiles


@pytest.mark.parametrize("dtype", [F32, "float64"])
def test_vectors_of_narrow_columns_reach_into_the_next_row(context, rng, dtype):
    """Standardised columns, times a factor for each row."""
    full, factor = Operand("full", dtype), Operand("full", dtype)
    steps = (
        Reduce("add", 0, "float64", dtype),
        step("i0 - i1", 0, 2, dtype=dtype),
        step("i0 * i0", 3, dtype=dtype),
        Reduce("add", 4, "float64", dtype),
        step("(i0 - i1) * i2 / sqrt(i3)", 0, 2, 1, 5, dtype=dtype),
    )
    function = RowFunction((full, factor), steps, (6, 2))
    flags = (False, False, False, True)
    routine = Rowwise(context, function, 2, (0,), flags, ((False, False), (False, True)), schedule="cpu")
    for rows, columns in ((4099, 3), (4096, 7), (70_001, 6), (5000, 15)):
        x, y = (rng.normal(size=shape).astype(dtype) / 100 for shape in ((rows, columns + 1), (rows, 1)))
        for first in (slice(columns), slice(1, None)):
            for host in (x[:, first], np.ascontiguousarray(x[:, first])):
                device = context.from_host(x)[:, first] if host.base is x else context.from_host(host)
                centred = host - host.sum(0)
                want = centred * y / np.sqrt(np.square(centred, dtype="float64").sum(0))
                check(routine(device, context.from_host(y)), (want, host.sum(0)), 1e-4 if dtype == F32 else 1e-10)
    found = [(variant.pattern, variant.is_narrow) for variant, _ in routine._kernels]
    assert ("columns", True) in found and ("rows", False) in found


def test_what_is_gathered_again_and_again_is_laid_out_anew(context, rng):
    """Distances of two sets of points, of which one, or both, were turned, reversed or thinned out."""
    distance = (step("i0 - i1", 0, 1), step("i0 * i0", 2), Reduce("add", 3, F32, F32))
    function = RowFunction((FULL, FULL), distance, (4,))
    broadcast = ((False, True, False), (True, False, False))
    routine = Rowwise(context, function, 3, (2,), (False, False, True), broadcast, schedule="cpu")
    for rows, columns, count in ((40, 20, 8), (300, 37, 9), (60, 5, 300)):
        x = rng.normal(size=(rows, count)).astype(F32)
        y = rng.normal(size=(count, 2 * columns)).astype(F32)
        of_x, of_y = context.from_host(x[:, None])[::-1], context.from_host(y)[:, ::2].T
        of_y = GpuArray(context, of_y.buffer, of_y.dtype, of_y.layout.dimshuffle(("x", 0, 1)))
        want = np.square(x[::-1, None] - y[:, ::2].T[None]).sum(-1)
        check(routine(of_x, of_y), (want,))


def test_plans_of_copies():
    dims = (20, 8, 1, 0), (100_000, 0, 8, 20)  # of c[None], x[:, None] and the result
    rows = rowwise_plan.Rows(dims, ((8, 1, 1, 0),), (3, 0, 0), 2)
    new, (copy,) = rowwise_plan.pre_transposed(rows, "columns", (0, 1))
    assert copy.array == 0
    assert copy.view == ((8, 20), (1, 8), 3)
    assert new.outer[0] == (20, 1, 1, 0)
    assert new.reduced == ((8, 20, 1, 0),)
    assert new.shifts == (0, 0, 0)
    assert rowwise_plan.pre_transposed(new, "columns", (0, 1)) == (new, ())
    few = rows._replace(outer=(dims[0], (3, 0, 8, 20)))
    assert rowwise_plan.pre_transposed(few, "columns", (0, 1)) == (few, ())


DOT = RowFunction(
    (FULL, FULL), (step("i0 * i1", 0, 1), Reduce("add", 2, "float64", F32), step("i0 * i1", 0, 3)), (4, 3)
)


@pytest.mark.parametrize("columns", [17, 24, 31, 32])
def test_products_of_short_rows(context, rng, columns):
    """Where little is computed for each row, vectors run along rows that fill one and a half vectors."""
    x, y = (rng.normal(size=(37, columns)).astype(F32) for _ in range(2))
    a, b = map(context.from_host, (x, y))
    whole = "rows" if columns >= 24 else "columns"
    for of, pattern in (
        (lambda x: x, whole),
        (lambda x: x[::-2], whole),
        (lambda x: x[:, ::-1], None),
        (lambda x: x[3:4], "rows"),
        (lambda x: x[:, 1:], None),
    ):
        routine = rows_of(context, DOT, (1,), "cpu")
        dots = (of(x) * of(y).astype("float64")).sum(1)
        check(routine(of(a), of(b)), (of(x) * dots[:, None], dots), 1e-5)
        assert pattern in (None, *(variant.pattern for variant, _ in routine._kernels))
    turned = [context.from_host(z.T.copy()).T for z in (x, y)]
    dots = (x * y.astype("float64")).sum(1)
    routine = rows_of(context, DOT, (1,), "cpu")
    check(routine(*turned), (x * dots[:, None], dots), 1e-5)
    assert [variant.pattern for variant, _ in routine._kernels] == ["columns"]


def test_expensive_row_values_have_one_row_per_lane(context, rng):
    dear = RowFunction(
        (FULL, FULL),
        (step("i0 * i1", 0, 1), Reduce("add", 2, "float64", F32), step("exp(i0)", 3, cost=10), step("i0 * i1", 0, 4)),
        (5,),
    )
    x, y = (rng.normal(size=(37, 32)).astype(F32) for _ in range(2))
    routine = rows_of(context, dear, (1,), "cpu", dropped=0)
    want = x * np.exp((x * y.astype("float64")).sum(1, keepdims=True))
    check(routine(context.from_host(x), context.from_host(y)), (want,), 1e-4)
    assert {variant.pattern for variant, _ in routine._kernels} == {"columns"}


@pytest.mark.parametrize("shape, axis", [((2, 70_001), 1), ((70_001, 2), 0), ((20_001, 40), 0)])
def test_few_long_rows_are_cut_in_chunks(context, rng, schedule, shape, axis):
    host = rng.normal(size=shape).astype(F32)
    check(rows_of(context, SOFTMAX, (axis,), schedule)(context.from_host(host)), softmax(host, axis))
    check(rows_of(context, MOMENTS, (axis,), schedule, dropped=2)(context.from_host(host)), moments(host, axis))


@pytest.mark.parametrize("axis", [0, 1])
def test_results_that_go_past_the_cache(context, rng, schedule, axis, monkeypatch):
    monkeypatch.setattr(rowwise, "PAST_CACHE", 0)
    routine = rows_of(context, SOFTMAX, (axis,), schedule)
    for shape in ((5, 37), (37, 5), (64, 64), (5, 1003), (1003, 5), (4, 1024)):
        host = rng.normal(size=shape).astype(F32)
        check(routine(context.from_host(host)), softmax(host, axis))


def test_stores_of_a_row_that_begins_anywhere_in_a_line(context, rng, schedule, monkeypatch):
    monkeypatch.setattr(rowwise, "PAST_CACHE", 0)
    routine = rows_of(context, RowFunction((FULL,), SOFTMAX.steps, (3, 5, 1)), (1,), schedule)
    host = rng.normal(size=(20, 301)).astype(F32)
    for start in (0, 1, 15):
        e = np.exp(host[:, start:] - host[:, start:].max(1, keepdims=True), dtype="float64")
        check(routine(context.from_host(host)[:, start:]), (e, *softmax(host[:, start:], 1)))
    large = context.from_host(np.full((20, 320), 7, F32))
    outputs = large[:, 3:304], context.empty((20, 301), F32), context.empty((20,), F32)
    routine.launch(outputs, [context.from_host(host)])
    check(outputs[1:], softmax(host, 1))
    np.testing.assert_array_equal(large.to_host()[:, [0, 1, 2, 304, 319]], 7)


@pytest.mark.parametrize("axis", [0, 1])
def test_positive_numbers_are_added_in_blocks(context, rng, schedule, axis):
    exponential = step("exp(i0)", 2, cost=10)._replace(is_positive=True)
    function = RowFunction((FULL,), (*EXPONENTS[:2], exponential, EXPONENTS[3], step("i0 / i1", 3, 4)), (5, 1))
    for shape in ((3, 5), (7, 70), (2, 70_001)):
        host = (10 * rng.normal(size=shape)).astype(F32).reshape(shape if axis else shape[::-1])
        check(rows_of(context, function, (axis,), schedule)(context.from_host(host)), softmax(host, axis), rtol=1e-6)


@pytest.mark.parametrize("operation", ["maximum", "minimum"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan_and_infinities_of_extremes(context, schedule, operation, dtype):
    function = RowFunction(
        (Operand("full", dtype),), (step("i0 + 1", 0, dtype=dtype), Reduce(operation, 1, dtype, dtype)), (2,)
    )
    routine = rows_of(context, function, (1,), schedule)
    for special in ([np.nan], [np.inf], [-np.inf], [np.nan, np.inf], [-np.inf, np.nan]):
        host = np.ones((71, 70), dtype)
        for k, value in enumerate(special):
            host[np.arange(70), (np.arange(70) + 9 * k) % 70] = value
        host[70] = special[0]
        np.testing.assert_array_equal(
            routine(context.from_host(host))[0].to_host(), getattr(np, operation).reduce(host + 1, axis=1)
        )


def test_sums_without_double_precision(context, rng, schedule):
    host = (rng.normal(size=(3, 60_000)) + 1000).astype(F32)
    routine = rows_of(context, MOMENTS, (1,), schedule, dropped=2, has_fp64=False)
    assert all("double" not in "".join((*source.preambles, source.source)) for source in routine.sources())
    check(routine(context.from_host(host)), moments(host, 1), 2e-7)
    check(routine(context.from_host(host[:, :50])), moments(host[:, :50], 1), 2e-7)


def test_several_axes(context, rng, schedule):
    host = rng.normal(size=(6, 5, 9, 7)).astype(F32)
    array = context.from_host(host)
    for axes in ((0, 2, 3), (1, 3), (0, 1, 2, 3)):
        routine = rows_of(context, MOMENTS, axes, schedule, ndim=4, dropped=2)
        check(routine(array), moments(host, axes))
        check(routine(array[:, ::-1, :, ::2]), moments(host[:, ::-1, :, ::2], axes))


@pytest.mark.parametrize("shape", [(41, 5, 3), (3, 5, 41), (41, 5, 1), (2, 5, 3), (41, 0, 3)])
def test_short_rows_in_two_dimensions(context, rng, schedule, shape):
    """Vectors run across the longer of the other dimensions."""
    host = rng.normal(size=shape).astype(F32)
    array = context.from_host(host)
    routine = rows_of(context, MOMENTS, (1,), schedule, ndim=3, dropped=2)
    check(routine(array), moments(host, 1))
    check(routine(array[::-2, :, ::-1]), moments(host[::-2, :, ::-1], 1))
    if shape[1]:
        check(rows_of(context, SOFTMAX, (1,), schedule, ndim=3)(array), softmax(host, 1))


def test_operands_of_all_kinds(context, rng, schedule):
    operands = (FULL, FULL, Operand("row", F32), Operand("value", F32))
    steps = (step("i0 * i1 + i2 * i3", 0, 1, 2, 3), Reduce("minimum", 4, F32, F32), step("i0 - i1", 4, 5))
    function = RowFunction(operands, steps, (6, 5))
    broadcast = ((False, False), (True, False), (False,), ())
    x, gain, bias = (rng.normal(size=shape).astype(F32) for shape in ((21, 50), (1, 50), (21,)))
    want = x * gain + bias[:, None] * np.float32(3)
    arrays = [context.from_host(a) for a in (x, gain, bias)]
    for forms in ((False, False, True, False, False, False), (False, False, True, False, False, True)):
        routine = Rowwise(context, function, 2, (1,), forms, broadcast, schedule=schedule)
        least = want.min(1, keepdims=not forms[-1])
        check(routine(*arrays, np.float32(3)), (want - want.min(1, keepdims=True), least))
    for bad in ((x[:, :49], gain, bias), (x, x, bias), (x, gain, bias[:5])):
        with pytest.raises(ValueError, match="mismatch"):
            routine.layout(*(context.from_host(a).layout for a in bad), ((), (), 0))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float64"])
def test_every_size_of_element(context, rng, schedule, dtype):
    wide = "float64" if dtype == "float64" else "int64"
    steps = (step("i0 & i1" if dtype != "float64" else "i0 * i1", 0, 1, dtype=dtype),)
    steps += (Reduce("add", 2, wide, wide), Reduce("maximum", 2, dtype, dtype), Reduce("minimum", 0, dtype, dtype))
    function = RowFunction((Operand("full", dtype),) * 2, steps, (3, 4, 5))
    x, y = ((rng.normal(size=(19, 37)) * 5).astype(dtype) for _ in range(2))
    both = x * y if dtype == "float64" else x & y
    for axis in (0, 1):
        routine = rows_of(context, function, (axis,), schedule, dropped=3)
        got = routine(context.from_host(x), context.from_host(y))
        check(got, (both.sum(axis, dtype=wide), both.max(axis), x.min(axis)), 1e-13)


def test_nothing_to_read_or_write(context, schedule):
    empty = np.ones((0, 4), F32)
    routine = rows_of(context, MOMENTS, (0,), schedule, dropped=2)
    check(routine(context.from_host(empty)), moments(empty, 0))
    check(rows_of(context, SOFTMAX, (1,), schedule)(context.from_host(empty)), (empty, empty[:, 0]))
    with pytest.raises(ValueError, match="zero-size array to reduction operation maximum"):
        rows_of(context, SOFTMAX, (0,), schedule).layout(context.from_host(empty).layout)


def test_expensive_values_are_computed_once():
    program = Program(SOFTMAX, has_fp64=True)
    assert program.spills == (3,)
    assert [loop.reads for loop in program.passes(16, 1)] == [(0,), (0,), ()]
    assert Program(SOFTMAX, has_fp64=True, cost_limit=ALWAYS_RECOMPUTE).spills == ()
    assert Program(SOFTMAX, has_fp64=True, spill_operands=True).spills == (0, 3)


def test_what_is_not_needed_is_not_computed():
    function = RowFunction((FULL,), (*EXPONENTS, step("i0 * i1", 0, 1)), (5,))
    passes = Program(function, has_fp64=True).passes(16, 1)
    assert len(passes) == 2
    assert "exp" not in passes[1].code


def test_how_work_is_shared():
    def split(rows, pattern, passes):
        return rowwise_plan.split_cpu(rows, pattern, 4, 16, 64, passes=passes, nbytes=8, is_rounded=False)

    many, long = (rowwise_plan.Rows(((n, m),), ((m, 1),), (0,), 0) for n, m in ((4096, 1000), (2, 10**7)))
    assert split(many, "rows", 3).chunks == 1
    assert split(many, "rows", 3).is_cached
    assert split(long, "rows", 3).chunks > 1
    assert not split(long, "rows", 3).is_cached


def test_vectors_run_across_the_longest_dimension():
    short, long, row = (3, 1), (5000, 15), ((5, 3),)
    rows = rowwise_plan.Rows((short, long), row, (0,), 0)
    assert rowwise_plan.pattern_of(rows, 16) == "columns"
    assert rowwise_plan.with_wide_columns(rows, 16).outer == (long, short)
    assert rowwise_plan.with_wide_columns(rows, 2) == rows
    alone = rows._replace(outer=())
    assert rowwise_plan.with_wide_columns(alone, 16) == alone


def test_a_kernel_that_does_not_build_is_reported(context):
    function = RowFunction((FULL,), (step("nonsense", 0), Reduce("add", 1, F32, F32)), (2,))
    with pytest.raises(CompilationError, match="nonsense"):
        rows_of(context, function, (1,), "cpu")(context.from_host(np.ones((2, 3), F32)))
