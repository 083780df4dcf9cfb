"""Row functions of gathered columns whose results are added up by groups, against NumPy."""

import numpy as np
import pytest

from pytensor_cl.routines.base.routine import SCHEDULES
from pytensor_cl.routines.grouped_rows.quotients import with_reciprocals
from pytensor_cl.routines.grouped_rows.routine import GroupedRows, Groups, TableFunction
from pytensor_cl.routines.rowwise.program import Map, Operand, Reduce, RowFunction
from tests.routines.rowwise.test_rowwise import Code

TOLERANCE = {"float32": 2e-5, "float64": 1e-12}


@pytest.fixture(params=SCHEDULES)
def schedule(request):
    return request.param


@pytest.fixture(params=TOLERANCE)
def dtype(request, context):
    if request.param == "float64" and not context.info.has_fp64:
        pytest.skip("no double precision")
    return request.param


def slopes(dtype):
    """The errors of a linear model, divided by a scale: a(0)[:, i], b(1)[:, i], x(2), scale(3), y(4)."""
    full = Operand("full", dtype)
    operands = full, full, full, Operand("row", dtype), full
    steps = (
        Map(Code("i2 - (i0 + i1 * i3)", 4, dtype), (0, 1, 4, 2)),  # 5
        Map(Code("i0 / i1", 2, dtype), (5, 3), 4, "true_div"),  # 6
        Map(Code("i0 * i1", 2, dtype), (6, 2)),  # 7
        Map(Code("i0 * i0", 1, dtype), (6,)),  # 8
        Reduce("add", 8, "float64", dtype),  # 9
        Map(Code("i0 + i1", 2, dtype), (9, 3)),  # 10
    )
    return RowFunction(operands, steps, (9, 10, 6, 6, 7))


def slopes_of(context, dtype, schedule="cpu", kinds=("int64", "int64"), bounds=(None, None), **options):
    """Outputs: two row values, the errors, and sums of these by two indices."""
    groups = Groups(kinds, bounds, False, ((0, 0), (1, 1)), ((3, 0), (4, 1)))
    dropped = *(False,) * 3, True, False, True, True, False, False, False
    known = (False,) * 2, (False,) * 2, (True, False), (False,), (True, False)
    return GroupedRows(context, slopes(dtype), groups, dropped, known, schedule, **options)


def given_for(rng, dtype, rows, count, groups, kinds=("int64", "int64")):
    real = lambda *shape: rng.normal(size=shape).astype(dtype)  # noqa: E731
    low = [0 if kind.startswith("u") else -n for kind, n in zip(kinds, groups, strict=True)]
    indices = (rng.integers(a, n, count).astype(k) for a, n, k in zip(low, groups, kinds, strict=True))
    tables = [real(rows, n) for n in groups]
    return [*tables, real(1, count), 2 + real(rows) ** 2, real(1, count), *indices, *(real(rows, n) for n in groups)]


def wanted_of(a, b, x, scale, y, i, j, first, second):
    wide = [v.astype("float64") for v in (a, b, x, scale, y, first, second)]
    a, b, x, scale, y, first, second = wide
    z = (y - (a[:, i] + b[:, j] * x)) / scale[:, None]
    np.add.at(first, (slice(None), i), z)
    np.add.at(second, (slice(None), j), z * x)
    return (z**2).sum(1), (z**2).sum(1) + scale, z, first, second


def check(routine, given, arrays=None):
    context, want = routine.context, wanted_of(*given)
    got = routine(*(arrays or [context.from_host(v) for v in given]))
    routine.check()
    rtol = TOLERANCE[str(given[0].dtype)]
    for array, wanted in zip(got, want, strict=True):
        assert (array.shape, str(array.dtype)) == (wanted.shape, str(given[0].dtype))
        np.testing.assert_allclose(array.to_host(), wanted, rtol, rtol * np.abs(wanted).max(initial=1))


def is_fused(routine):
    return [bool(plan.work_items) for plan in routine._plans._plans.values()]


def test_shapes(context, rng, schedule, dtype):
    """Blocks with and without missing rows; fewer groups than lanes, and more."""
    routine = slopes_of(context, dtype, schedule)
    for rows, count, groups in (
        (16, 33, (16, 9)),
        (41, 150, (37, 5)),
        (64, 3, (2, 3)),
        (9, 1, (1, 1)),
        (33, 128, (40, 100)),
    ):
        check(routine, given_for(rng, dtype, rows, count, groups))
    assert set(is_fused(routine)) == {schedule == "cpu"}
    for rows, count, groups in ((1, 1, (1, 1)), (7, 20, (3, 400))):  # few rows, many groups
        check(routine, given_for(rng, dtype, rows, count, groups))
    assert not any(is_fused(routine)[-2:])


def test_nothing(context, rng, schedule, dtype):
    routine = slopes_of(context, dtype, schedule)
    for rows, count, groups in ((0, 5, (3, 4)), (9, 0, (3, 4)), (0, 0, (0, 0)), (9, 0, (0, 3))):
        check(routine, given_for(rng, dtype, rows, count, groups))
    assert not any(is_fused(routine))


@pytest.mark.parametrize("kinds", [("int8", "uint64"), ("uint8", "int32"), ("int16", "uint32")])
def test_index_dtypes(context, rng, kinds):
    check(slopes_of(context, "float32", kinds=kinds), given_for(rng, "float32", 20, 50, (30, 9), kinds))


def test_layouts(context, rng, dtype):
    """Reversed, thinned out and transposed matrices, indices and bases; results that are views."""
    rows, count, groups = 21, 30, (20, 17)
    given = given_for(rng, dtype, 2 * rows, 2 * count, groups)
    parts = [np.s_[::-2], np.s_[:rows, ::-1], np.s_[:, ::2], np.s_[::2], np.s_[:, count:]]
    parts += [np.s_[::-2], np.s_[1::2], np.s_[rows:], np.s_[::2]]
    routine = slopes_of(context, dtype)
    arrays = [context.from_host(v)[part] for v, part in zip(given, parts, strict=True)]
    hosts = [v[part] for v, part in zip(given, parts, strict=True)]
    check(routine, hosts, arrays)
    turned = [context.from_host(np.ascontiguousarray(v.T)).T for v in hosts]
    check(routine, hosts, turned)


def test_nothing_else_is_written(context, rng, dtype):
    """Results that are parts of larger arrays: of every other element, or of consecutive rows."""
    routine = slopes_of(context, dtype)
    for rows, count, groups in ((21, 150, (20, 17)), (16, 64, (16, 3))):
        given = given_for(rng, dtype, rows, count, groups)
        want, wholes, parts = wanted_of(*given), [], []
        for k, wanted in enumerate(want):
            wholes.append(context.from_host(np.full([2 * n for n in wanted.shape], 7, dtype)))
            thin = tuple(slice(1, None, 2) for _ in wanted.shape)
            parts.append(thin if k < 3 else np.s_[3 : 3 + rows, :])
        for k in (3, 4):
            wholes[k] = context.from_host(np.full((2 * rows, want[k].shape[1]), 7, dtype))
        routine.launch(
            [whole[part] for whole, part in zip(wholes, parts, strict=True)], [context.from_host(v) for v in given]
        )
        for whole, part, wanted in zip(wholes, parts, want, strict=True):
            expected = np.full(whole.shape, 7.0)
            expected[part] = wanted
            np.testing.assert_allclose(whole.to_host(), expected, rtol=1e-4, atol=1e-4)
    assert all(is_fused(routine))


@pytest.mark.parametrize("place", [5, 6])
def test_an_index_that_is_out_of_range(context, rng, schedule, place):
    for groups, wrong in (((4, 4), 4), ((4, 4), -5), ((20, 20), 2**40)):
        given = given_for(rng, "float32", 40, 50, groups)
        given[place][37] = wrong
        routine = slopes_of(context, "float32", schedule)
        routine(*map(context.from_host, given))
        with pytest.raises(IndexError, match=f"index {wrong} is out of bounds for axis 1 with size {groups[0]}"):
            routine.check()
        known = slopes_of(context, "float32", schedule, bounds=((min(0, wrong), max(0, wrong)),) * 2)
        assert not known.is_checked
        with pytest.raises(IndexError, match="out of bounds for axis 1"):
            known(*map(context.from_host, given))


@pytest.mark.parametrize(("rows", "groups"), [(0, (4, 4)), (9, (0, 4)), (9, (4, 0))])
def test_indices_of_nothing_are_checked(context, rng, schedule, rows, groups):
    given = given_for(rng, "float32", rows, 0, groups)
    given[2] = given[4] = np.zeros((1, 3), "float32")
    given[5] = given[6] = np.array([0, 0, 7])
    routine = slopes_of(context, "float32", schedule)
    with pytest.raises(IndexError, match="out of bounds for axis 1"):
        routine(*map(context.from_host, given))
        routine.check()


def test_shapes_that_do_not_fit(context, rng, schedule):
    routine = slopes_of(context, "float32", schedule)
    for place, shape in ((0, (8, 3)), (1, (1, 4)), (2, (1, 4)), (3, (8,)), (5, (4,)), (6, (1,))):
        given = given_for(rng, "float32", 9, 5, (3, 4))
        given[place] = np.zeros(shape, given[place].dtype)
        with pytest.raises(ValueError, match="mismatch"):
            routine(*map(context.from_host, given))


def test_sums_are_numpys_to_the_bit(context, rng, dtype):
    """Elements are added to the base in their order."""
    given = given_for(rng, dtype, 9, 500, (4, 6))
    result = slopes_of(context, dtype)(*map(context.from_host, given))
    z, base = result[2].to_host(), given[7].copy()
    np.add.at(base, (slice(None), given[5]), z)
    np.testing.assert_array_equal(result[3].to_host(), base)


def test_sums_without_double_precision(context, rng):
    """The rounding error is carried along."""
    given = given_for(rng, "float32", 18, 3000, (4, 6))
    narrow = slopes_of(context, "float32", has_fp64=False)
    assert "double" not in narrow._source().source
    check(narrow, given)
    z = wanted_of(*given)[2]
    sums = narrow(*map(context.from_host, given))[0].to_host()
    np.testing.assert_allclose(sums, (z**2).sum(1), 1e-6)


def test_several_passes(context, rng, schedule, dtype):
    """A softmax of gathered columns, and sums of the probabilities by group."""
    full = Operand("full", dtype)
    steps = (
        Reduce("maximum", 0, dtype, dtype),
        Map(Code("exp(i0 - i1)", 2, dtype), (0, 1), 10),
        Reduce("add", 2, "float64", dtype),
        Map(Code("i0 / i1", 2, dtype), (2, 3), 4, "true_div"),
    )
    groups = Groups(("int64",), (None,), False, ((0, 0),), ((1, 0),))
    function = RowFunction((full,), steps, (3, 4))
    routine = GroupedRows(context, function, groups, (False, True, False), ((False, False),), schedule)
    x, i, base = rng.normal(size=(19, 7)).astype(dtype), rng.integers(-7, 7, 40), np.zeros((19, 7), dtype)
    sums, shares = routine(*map(context.from_host, (x, i, base)))
    e = np.exp(x.astype("float64")[:, i] - x[:, i].max(1, keepdims=True))
    np.testing.assert_allclose(sums.to_host(), e.sum(1), TOLERANCE[dtype])
    want = np.zeros((19, 7))
    np.add.at(want, (slice(None), i), e / e.sum(1, keepdims=True))
    np.testing.assert_allclose(shares.to_host(), want, TOLERANCE[dtype], TOLERANCE[dtype])
    assert len(routine._program.spills) == 1


def test_whole_numbers(context, rng):
    full = Operand("full", "int64")
    steps = Map(Code("i0 * i1", 2, "int64"), (0, 1)), Reduce("add", 2, "int64", "int64")
    groups = Groups(("int32",), (None,), False, ((0, 0),), ((1, 0),))
    function, known = RowFunction((full, full), steps, (3, 2)), ((False,) * 2,) * 2
    routine = GroupedRows(context, function, groups, (False, False, True, False), known)
    x, f = rng.integers(-9, 9, (13, 5)), rng.integers(-9, 9, (13, 30))
    i, base = rng.integers(-5, 5, 30).astype("int32"), rng.integers(-9, 9, (13, 5))
    sums, scattered = routine(*map(context.from_host, (x, f, i, base)))
    np.testing.assert_array_equal(sums.to_host(), (x[:, i] * f).sum(1))
    np.add.at(base, (slice(None), i), x[:, i] * f)
    np.testing.assert_array_equal(scattered.to_host(), base)


def quotients(context, dtype, x, y):
    """The quotients of columns of a row by a number for each row."""
    steps = (Map(Code("i0 / i1", 2, dtype), (0, 1), 4, "true_div"),)
    function = RowFunction((Operand("full", dtype), Operand("row", dtype)), steps, (2,))
    groups = Groups(("int64",), (None,), False, ((0, 0),), ())
    known = (False, False), (False,)
    routine = GroupedRows(context, function, groups, (False, True, False), known)
    given = np.tile(x, (len(y), 1)), y, np.arange(len(x))
    return routine(*map(context.from_host, given))[0].to_host()


def test_quotients(context, rng, dtype):
    """Products with reciprocals are corrected: the result is that of a division, but for the rarest last bit."""
    if context.info.schedule != "cpu":
        pytest.skip("of the kernel for CPUs")
    x = (rng.normal(size=2000) * np.exp(rng.normal(size=2000) * 3)).astype(dtype)
    y = (rng.normal(size=96) * np.exp(rng.normal(size=96) * 3)).astype(dtype)
    found = quotients(context, dtype, x, y)
    np.testing.assert_array_equal(found, x / y[:, None])
    assert "is_far1" in with_reciprocals(slopes(dtype)).steps[2].function.statements(8)


def test_quotients_of_unusual_numbers(context, dtype):
    info = np.finfo(dtype)
    special = [0.0, 1.0, 3.0, info.max, info.tiny, info.tiny / 8, np.inf, np.nan, 1e-20, 1e20]
    x = np.array([*special, *(-n for n in special)], dtype)
    with np.errstate(all="ignore"):
        for y in np.split(x, 20):  # lanes of a block with the same divisor, and with others
            want = x / y[:, None]
            found = quotients(context, dtype, x, np.repeat(y, 3))[:1]
            np.testing.assert_allclose(found, want, 4 * info.eps, info.tiny if context.info.kind == "gpu" else 0)
            np.testing.assert_array_equal(np.signbit(found)[~np.isnan(want)], np.signbit(want)[~np.isnan(want)])
        np.testing.assert_allclose(quotients(context, dtype, x, x), x / x[:, None], 4 * info.eps, 0)


def test_reciprocals_of_row_values_only(dtype):
    full, row = Operand("full", dtype), Operand("row", dtype)
    steps = tuple(Map(Code("i0 / i1", 2, dtype), inputs, 4, "true_div") for inputs in ((0, 1), (2, 0), (2, 2), (0, 2)))
    function = RowFunction((full, full, row), steps, (3, 4, 5, 6))
    found = with_reciprocals(function)
    assert [len(step.inputs) for step in found.steps] == [2, 2, 2, 1, 3]
    assert found.outputs == (3, 4, 5, 7)
    whole = RowFunction((full, row), (Map(Code("i0 / i1", 2, "int64"), (0, 1), 4, "true_div"),), (2,))
    assert with_reciprocals(whole) is whole


def test_tables_that_are_functions(context, rng, schedule, dtype):
    """The sums of gathered columns of ``exp(r) + x * y``; x is given in place of the table."""
    full = Operand("full", dtype)
    steps = Map(Code("exp(i0)", 1, dtype), (0,), 10), Map(Code("i0 + i1 * i2", 3, dtype), (3, 2, 1))
    of_table = RowFunction((Operand("row", dtype), full, full), steps, (4,))
    known = (False,), (False, False), (False, False)
    functions = ((0, TableFunction(of_table, 2, (True, False, False, False), known)),)
    groups = Groups(("int64",), (None,), False, ((0, 0),), (), functions)
    function = RowFunction((full,), (Reduce("add", 0, "float64", dtype),), (1,))
    routine = GroupedRows(context, function, groups, (False, True), ((False, False),), schedule)
    for rows, count, length in ((33, 40, 20), (16, 50, 3), (1, 9, 50), (0, 4, 3)):
        x, y = rng.normal(size=(2, rows, length)).astype(dtype)
        r, i = rng.normal(size=rows).astype(dtype), rng.integers(-length, length, count)
        (sums,) = routine(*map(context.from_host, (x, i, r, y)))
        want = (np.exp(r.astype("float64"))[:, None] + x.astype("float64") * y)[:, i].sum(1)
        np.testing.assert_allclose(sums.to_host(), want, 10 * TOLERANCE[dtype], 10 * TOLERANCE[dtype])
    assert is_fused(routine) == [schedule == "cpu"] * 2 + [False] * 2
    for shapes in (((9, 4), (8,), (9, 4)), ((9, 4), (9,), (9, 5)), ((9, 4), (9,), (8, 4))):
        x, r, y = (np.ones(shape, dtype) for shape in shapes)
        with pytest.raises(ValueError, match="mismatch"):
            routine(*map(context.from_host, (x, np.zeros(5, "int64"), r, y)))
    routine.check()


def test_numbers_of_the_host(context, rng, schedule):
    """A number is passed by value; without a scatter there is no base."""
    steps = Map(Code("i0 * i1", 2), (0, 1)), Reduce("add", 2, "float64", "float32")
    function = RowFunction((Operand("full", "float32"), Operand("value", "float32")), steps, (3,))
    groups = Groups(("int64",), (None,), False, ((0, 0),), ())
    routine = GroupedRows(context, function, groups, (False, False, True), ((False, False), ()), schedule)
    x, i = rng.normal(size=(11, 4)).astype("float32"), rng.integers(-4, 4, 9)
    assert len(routine.sources()) == 1 or schedule == "simt"
    for number in (np.float32(2), np.float32(-3)):
        (sums,) = routine(context.from_host(x), number, context.from_host(i))
        np.testing.assert_allclose(sums.to_host(), (x[:, i] * number).sum(1), 1e-5, 1e-5)
    assert routine.value_arguments[1].place == 0
    assert len(list(routine.value_kernels())) == 1
