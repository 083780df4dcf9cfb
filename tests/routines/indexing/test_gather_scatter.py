"""Gather and scatter against NumPy."""

import re
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest

from pytensor_cl.codegen.dtypes import SUPPORTED
from pytensor_cl.codegen.template import kernel_source
from pytensor_cl.routines.base.ndrange import WorkGroupLimits
from pytensor_cl.routines.base.routine import SCHEDULES
from pytensor_cl.routines.indexing.gather_scatter import Gather, Scatter, _Atomic, _Few, _Sorted
from pytensor_cl.routines.indexing.plan import UNCHECKED_BOUNDS
from pytensor_cl.routines.indexing.scatter_few import cut_few
from pytensor_cl.routines.indexing.scatter_order import OrderPlan
from pytensor_cl.runtime.context import Context, Settings
from tests.conftest import DRIVERS

ALL = slice(None)


@pytest.fixture(params=SCHEDULES)
def schedule(request):
    return request.param


def numbered(index):
    """Return an index as entries and inputs, as routines take it, and the types of the inputs."""
    values = []

    def number(value):
        if value is None:
            return None
        values.append(value)
        return len(values) - 1

    entries = [
        slice(*map(number, (e.start, e.stop, e.step))) if isinstance(e, slice) else number(np.asarray(e)) for e in index
    ]
    types = [(str(v.dtype), v.ndim) if isinstance(v, np.ndarray) else None for v in values]
    return entries, values, types


class Case:
    """The routines for an index, and what they compute."""

    def __init__(self, context, schedule, x, index, y=None, **options):
        self.context, self.x, self.index, self.y = context, x, tuple(index), y
        entries, values, types = numbered(index)
        self.values = [context.from_host(v) if isinstance(v, np.ndarray) else v for v in values]
        common = str(x.dtype), x.ndim, entries, types
        self.routines = [Gather(context, *common, schedule=schedule, **options)]
        for accumulate in (True, False) if y is not None else ():
            kinds = {"accumulate": accumulate, "value_dtype": str(y.dtype), "value_ndim": y.ndim}
            self.routines.append(Scatter(context, *common, schedule=schedule, **kinds, **options))

    def run(self, routine, *values):
        device = self.context.from_host(self.x)
        (result,) = routine(device, *map(self.context.from_host, values), *self.values)
        routine.check()
        np.testing.assert_array_equal(device.to_host(), self.x)  # the argument never changes
        return result.to_host()

    def gather(self):
        return self.run(self.routines[0])

    def scatter(self, accumulate):
        return self.run(self.routines[1 if accumulate else 2], self.y)

    def check(self):
        np.testing.assert_array_equal(self.gather(), self.x[self.index], strict=True, err_msg=str(self.index))
        for accumulate in (True, False) if self.y is not None else ():
            want = expected_scatter(accumulate, self.x, self.y, *self.index)
            np.testing.assert_array_equal(self.scatter(accumulate), want, strict=True, err_msg=str(self.index))


def check_all(context, cases):
    """Check many cases; their kernels are one program."""
    context.build([source for case in cases for routine in case.routines for source in routine.sources()])
    for case in cases:
        case.check()


def expected_scatter(accumulate, x, y, *index):
    result = x.copy()
    if accumulate:
        np.add.at(result, index, y)
    else:
        result[index] = y
    return result


def values_of(dtype, shape, rng):
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype.startswith("float"):
        return rng.normal(size=shape).astype(dtype)
    if dtype.startswith("complex"):
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    return rng.integers(0, 100, shape).astype(dtype)


def indices(rng, shape=(3, 4)):
    i, j = rng.integers(-6, 6, shape), rng.integers(-5, 5, shape[-1:])
    return [
        (i,),
        (ALL, i),
        (i, j),
        (i, ALL, j),
        (ALL, i, j),
        (slice(1, 5), j, slice(None, None, -2)),
        (j, ALL, 2),
        (i[:, :1], j),
        (np.int16(-2), ALL, j.astype("int8")),
        (i.astype("uint8") % 6, slice(0, 0)),
        (np.zeros(0, "int64"),),
        (2, 1, 3),
    ]


def test_gather_and_scatter(context, schedule, rng):
    x = rng.normal(size=(6, 7, 8)).astype("float32")
    chosen = indices(rng)
    check_all(context, [Case(context, schedule, x, i, x[i] + np.float32(0.1)) for i in chosen])


def test_dtypes(context, schedule, rng):
    i = rng.integers(-50, 50, 300)

    def case(dtype):
        return Case(context, schedule, values_of(dtype, (50, 21), rng), (i,), values_of(dtype, (300, 21), rng))

    some = ("bool", "int16", "uint64", "float16", "float32", "complex128")
    check_all(context, [case(dtype) for dtype in (SUPPORTED if context.name == DRIVERS[0] else some)])


def test_index_dtypes(context, schedule, rng):
    x, cases = rng.normal(size=9).astype("float32"), []
    for kind in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
        i = rng.integers(0, 9, 40).astype(kind)
        if kind[0] == "i":
            i[::2] -= 9
        cases.append(Case(context, schedule, x, (i,)))
    check_all(context, cases)


@pytest.mark.parametrize(
    ("shape", "count"), [((1000,), 100_000), ((10,), 100_000), ((500, 64), 4096), ((1,), 1000), ((9, 3, 2), 5000)]
)
def test_sums_are_numpys_to_the_bit(context, schedule, rng, monkeypatch, shape, count):
    """Unless the values are so many that work-items add them up apart, or sort their positions."""
    monkeypatch.setattr("pytensor_cl.routines.indexing.gather_scatter.MIN_VALUES_PER_ELEMENT", 1 << 40)
    monkeypatch.setattr("pytensor_cl.routines.indexing.gather_scatter.MIN_SORTED_POSITIONS", 1 << 40)
    x, i = rng.normal(size=shape).astype("float32"), rng.integers(-shape[0], shape[0], count)
    check_all(context, [Case(context, schedule, x, (i,), rng.normal(size=(count, *shape[1:])).astype("float32"))])


@pytest.mark.parametrize("dtype", ["float32", "int16", "bool", "float16", "complex64"])
@pytest.mark.parametrize("shape", [(40,), (40, 3), (40, 2, 5)])
def test_sorted_positions(context, rng, monkeypatch, dtype, shape):
    """Schedule simt: segments that begin and end anywhere, in many levels; those of a few values are NumPy's to the bit."""
    monkeypatch.setattr("pytensor_cl.routines.indexing.gather_scatter.MIN_SORTED_POSITIONS", 1)
    monkeypatch.setattr("pytensor_cl.routines.indexing.scatter_sorted.SORTED_CHUNK_VALUES", 4)
    monkeypatch.setattr("pytensor_cl.routines.indexing.scatter_few.FEW_TILES", 0)
    x, cases = values_of(dtype, shape, rng), []
    for lengths in ([1] * 40, [4] * 9, [3, 5, 1, 4], [64], [5] * 8, [1, 63, 2, 17], [300], [0, 1, 9, 0, 130, 4]):
        i = np.repeat(rng.permutation(40)[: len(lengths)], lengths)
        rng.shuffle(i)
        y = rng.integers(-3, 4, (len(i), *shape[1:])).astype(dtype)  # whose sums are exact in any order
        cases.append(Case(context, "simt", np.round(x) if dtype != "bool" else x, (i - 40 * (i % 2),), y))
    few = np.repeat(np.arange(-40, 0), 4)
    rng.shuffle(few)
    cases.append(Case(context, "simt", x, (few,), values_of(dtype, (160, *shape[1:]), rng)))
    check_all(context, cases)


def way_of(routine):
    (plan,) = routine._plans._plans.values()
    return plan.way


@pytest.mark.parametrize("dtype", ["float32", "int16", "bool", "complex64"])
def test_few_positions(context, rng, dtype, monkeypatch):
    """Schedule simt: any number of positions, of elements of each, and of values."""
    monkeypatch.setattr("pytensor_cl.routines.indexing.gather_scatter.MIN_SORTED_POSITIONS", 1)
    cases = []
    for rows, columns, count in (
        (1, (), 1),
        (1, (3,), 63),
        (31, (), 64),
        (32, (1,), 65),
        (33, (2, 5), 1500),
        (85, (), 20_000),
        (127, (33,), 129),
        (129, (), 3000),
        (300, (7,), 513),
    ):
        x, y = (rng.integers(-3, 4, (n, *columns)).astype(dtype) for n in (rows, count))  # sums are exact in any order
        i = rng.integers(-rows, rows, count)
        if count > 1000:
            i[100:900] = 5
        cases.append(Case(context, "simt", x, (i,), y))
    x, i, j = rng.integers(0, 4, (6, 7, 8)).astype(dtype), rng.integers(-6, 6, (30, 5)), rng.integers(-7, 7, 5)
    wide = rng.integers(0, 4, (30, 5, 8)).astype(dtype)
    cases += [Case(context, "simt", x, index, x[index]) for index in ((ALL, i), (i, j), (2, j), (i, slice(1, 7, 2)))]
    cases.append(Case(context, "simt", x, (i, j), np.broadcast_to(wide[:, :1], wide.shape)))
    check_all(context, cases)
    assert all(isinstance(way_of(case.routines[1]), _Few) for case in cases)
    mixed = Case(context, "simt", x, (i, ALL, j), x[i, :, j])
    mixed.check()
    assert isinstance(way_of(mixed.routines[1]), _Sorted)  # two positions may mean the same element


@pytest.mark.parametrize("shape", [(40,), (6, 7), (3, 40)])
def test_few_positions_of_arrays_of_any_strides(context, rng, shape):
    """What is added to is read where it is, if its elements are evenly apart."""
    x, i = rng.integers(-3, 4, (2, *shape)).astype("float32"), rng.integers(0, 3, 2000)
    y, device = rng.integers(-3, 4, (2000, *shape[1:])).astype("float32"), context.from_host(x)
    of = {"value_dtype": "float32", "value_ndim": y.ndim, "schedule": "simt", "accumulate": True}
    add = Scatter(context, "float32", len(shape), [0], [("int64", 1)], **of)
    one = context.from_host(x[0].ravel()[5:6])
    zeros = one.with_layout(one.layout._replace(shape=shape, strides=(0,) * len(shape)))
    cases = [(device[1], x[1]), (device[0, ::-1], x[0, ::-1]), (zeros, np.full(shape, x[0].ravel()[5]))]
    for array, host in cases:
        got = add(array, context.from_host(y), context.from_host(i))[0].to_host()
        np.testing.assert_array_equal(got, expected_scatter(True, host, y, i))
    assert all(isinstance(plan.way, _Few) for plan in add._plans._plans.values())
    np.testing.assert_array_equal(device.to_host(), x)


@pytest.mark.parametrize("kind", ["int8", "uint16", "int64"])
def test_few_positions_by_indices_of_any_strides(context, rng, kind):
    """They are read where they are; the call ends with an error for one that is out of range."""
    many = rng.integers(0, 50, (70, 40)).astype(kind)
    many[::2] -= 50 if kind[0] == "i" else 0
    x, y, at = rng.integers(-3, 4, (50, 2)).astype("float32"), np.ones((2100, 2), "float32"), context.from_host(many)
    for pick in (lambda i: i[5:].ravel()[:2100], lambda i: i.T[:30], lambda i: i[::2, :1].repeat(60, 0)):
        host = pick(many)
        is_view = host.shape == (30, 70)
        index = at.with_layout(at.layout.transpose((1, 0)))[:30] if is_view else context.from_host(host)
        value = y[: host.size].reshape(*host.shape, 2)
        of = {"value_dtype": "float32", "value_ndim": value.ndim, "schedule": "simt", "accumulate": True}
        add = Scatter(context, "float32", 2, [0], [(kind, host.ndim)], **of)
        got = add(*map(context.from_host, (x, value)), index)[0].to_host()
        add.check()
        np.testing.assert_array_equal(got, expected_scatter(True, x, value, host))
        assert way_of(add).add.is_direct != is_view
    wrong = np.zeros(1500, kind)
    wrong[1300] = 50
    of = {"value_dtype": "float32", "value_ndim": 2, "schedule": "simt", "accumulate": True}
    add = Scatter(context, "float32", 2, [0], [(kind, 1)], **of)
    with pytest.raises(IndexError, match="index 50 is out of bounds for axis 0 with size 50"):
        add(*map(context.from_host, (x, y[:1500], wrong)))
        add.check()


def test_work_of_few_positions(context):
    """Chunks keep the device busy, none so long that a sum in float32 loses digits."""
    cut = partial(cut_few, WorkGroupLimits(context), 132, 4)
    small, large = cut(85, 1, 1_200_000), cut(85, 1, 1 << 30)
    assert small.parts == pytest.approx(792, abs=5) and small.chunk * small.parts >= 1_200_000
    assert large.chunk <= 1024 * large.group + large.group
    assert cut(85, 32, 5000).parts * 16 * 2 <= 5000 + 32 * 16 * 2
    assert cut(1 << 20, 1, 1 << 22) is None
    assert cut(300, 1, 100_000).tiles == (3, 1) and cut(20, 100, 100_000).tiles == (1, 4)


def test_few_positions_add_up_the_same_each_time(context, rng):
    x, y, i = (v.astype("float32") for v in (rng.normal(size=90), rng.normal(size=50_000), rng.random(50_000)))
    i = (90 * i**2).astype("int64")
    of = {"value_dtype": "float32", "value_ndim": 1, "schedule": "simt"}
    add = Scatter(context, "float32", 1, [0], [("int64", 1)], accumulate=True, **of)
    first, second = (add(*map(context.from_host, (x, y, i)))[0].to_host() for _ in range(2))
    np.testing.assert_array_equal(first, second)
    wanted = x + np.bincount(i, y, 90)
    np.testing.assert_allclose(first, wanted, rtol=1e-5, atol=1e-4)
    assert isinstance(way_of(add), _Few)


def by_exchanges(name, **arguments):
    """Render a kernel with what every device has in the place of the instructions of atomic additions."""
    source = kernel_source(name, **arguments)
    text, replaced = RED.subn("add_atomically(\\1, \\2);", source.source)
    assert name != "indexing/scatter_atomic" or (replaced == 4 and "asm" not in text)
    return source._replace(source=EXCHANGES + text) if replaced else source


RED = re.compile(r'asm volatile\("red.global.add.f32 \[%0\], %1;" : : "l"\((\w+)\), "f"\((\w+)\) : "memory"\);')
EXCHANGES = """
static void add_atomically(__global float *x, const float value)
{
    int seen = *(volatile __global int *)x;
    for (;;) {
        const int before = atomic_cmpxchg((volatile __global int *)x, seen, as_int(as_float(seen) + value));
        if (before == seen)
            return;
        seen = before;
    }
}
"""


def test_many_positions(context, rng):
    """Schedule simt: segments of every length, with the sizes that users have."""
    x, lengths = rng.normal(size=(4000, 3)).astype("float32"), np.append(rng.integers(0, 20, 3990), [64, 65, 200, 9000])
    i = np.repeat(rng.permutation(4000)[: len(lengths)], lengths)
    rng.shuffle(i)
    y = rng.normal(size=(len(i), 3)).astype("float32")
    of = {"value_dtype": "float32", "value_ndim": 2, "schedule": "simt", "accumulate": True}
    add = Scatter(context, "float32", 2, [0], [("int64", 1)], **of)
    got = add(*map(context.from_host, (x, y, i)))[0].to_host()
    wanted = expected_scatter(True, x, y, i)
    short = np.bincount(i, minlength=4000) <= 64
    np.testing.assert_array_equal(got[short], wanted[short])  # to the bit
    np.testing.assert_allclose(got, expected_scatter(True, x.astype("float64"), y, i), rtol=1e-5, atol=1e-4)
    assert isinstance(way_of(add), _Sorted) and way_of(add).sort.lanes == 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_many_positions_of_rows_of_vectors(context, rng, monkeypatch, dtype):
    """Neighbouring elements are added as vectors, with the sums of single elements, where the arrays are aligned."""
    monkeypatch.setattr("pytensor_cl.routines.indexing.scatter_few.FEW_TILES", 0)
    x, y = (rng.normal(size=(n, 2, 8)).astype(dtype) for n in (500, 3000))
    i = np.append(rng.integers(-500, 500, 2400), np.full(600, 7))
    of = {"value_dtype": dtype, "value_ndim": 3, "schedule": "simt", "accumulate": True}
    add = Scatter(context, dtype, 3, [0], [("int64", 1)], **of)
    wanted = expected_scatter(True, x.astype("float64"), y, i)
    on_device = context.from_host(np.append(np.zeros(1, dtype), y))[1:]
    shifted = on_device.with_layout(on_device.layout._replace(shape=y.shape, strides=(16, 8, 1)))
    index, values = context.from_host(i), (context.from_host(y), shifted)
    got, again = (add(context.from_host(x), v, index)[0].to_host() for v in values)
    np.testing.assert_array_equal(got, again)
    np.testing.assert_allclose(got, wanted, rtol=1e-4 if dtype == "float32" else 1e-12, atol=1e-4)
    assert way_of(add).sort.lanes == (4 if dtype == "float32" else 2)


@pytest.mark.parametrize(("columns", "count"), [((), 1), ((), 5000), ((3,), 1023), ((2, 5), 4096)])
def test_atomic_additions(context, rng, monkeypatch, columns, count):
    monkeypatch.setattr("pytensor_cl.routines.indexing.gather_scatter.MIN_SORTED_POSITIONS", 1)
    monkeypatch.setattr("pytensor_cl.routines.indexing.scatter_few.FEW_TILES", 0)
    monkeypatch.setattr("pytensor_cl.routines.indexing.gather_scatter.kernel_source", by_exchanges)
    features = replace(context.info.features, float_atomics=True)
    able = Context(context.name, context.entry, Settings(features=features))
    x, y = (rng.integers(-9, 9, (n, *columns)).astype("float32") for n in (2000, count))  # sums are exact in any order
    i = rng.integers(-2000, 2000, count)
    kinds = {"value_dtype": "float32", "value_ndim": y.ndim, "schedule": "simt", "accumulate": True}
    for device, atomics, way in ((able, True, _Atomic), (able, False, _Sorted), (context, True, _Sorted)):
        add = Scatter(device, "float32", x.ndim, [0], [("int64", 1)], atomics=atomics, **kinds)
        got = add(*map(device.from_host, (x, y, i)))[0].to_host()
        np.testing.assert_array_equal(got, expected_scatter(True, x, y, i))
        assert isinstance(way_of(add), way)


@pytest.mark.parametrize(("accumulate", "few"), [(True, True), (True, False), (False, False)])
def test_one_index_of_all(context, rng, accumulate, few, monkeypatch):
    """No work-item of schedule simt adds up more than a few values, one after the other."""
    if not few:
        monkeypatch.setattr("pytensor_cl.routines.indexing.scatter_few.FEW_TILES", 0)
    x, count = rng.normal(size=(7, 3)).astype("float32"), 30_000
    y, i = rng.normal(size=(count, 3)).astype("float32") + 1, np.full(count, 4)
    of = {"value_dtype": "float32", "value_ndim": 2, "schedule": "simt"}
    scatter = Scatter(context, "float32", 2, [0], [("int64", 1)], accumulate=accumulate, **of)
    (got,) = scatter(*map(context.from_host, (x, y, i)))
    wanted = x.copy()
    wanted[4] = x[4] + y.sum(axis=0, dtype="float64") if accumulate else y[-1]
    np.testing.assert_allclose(got.to_host(), wanted, rtol=1e-6)
    assert isinstance(way_of(scatter), _Few if few else _Sorted)


@pytest.mark.parametrize("cached", [0, 1 << 40])
def test_rows(context, rng, monkeypatch, cached):
    """Rows of any length, by as many indices as blocks and work-items have, from tables that the cache holds or not."""
    monkeypatch.setattr("pytensor_cl.routines.indexing.gather_rows.CORE_CACHE_BYTES", cached)
    monkeypatch.setattr("pytensor_cl.routines.indexing.gather_rows.MIN_ITEM_GATHERED", 64)
    cases = []
    for columns in ((), (1,), (2,), (15,), (17,), (33,), (5, 21)):
        x = rng.normal(size=(40, *columns)).astype("float32")
        for count in (1, 7, 1023, 1025, 5000) if len(columns) < 2 else (300,):
            low = -40 if count % 2 else 0  # blocks without negative indices have a loop of their own
            i = rng.integers(low, 40, count)
            y = rng.integers(0, 9, (count, *columns)).astype("float32") if count < 1500 else None
            cases.append(Case(context, "cpu", np.round(x), (i,), y))
    index = rng.integers(-40, 40, (300, 2))
    others = [Case(context, "cpu", values_of(dtype, (40, 9), rng), (index,)) for dtype in ("int8", "complex128")]
    check_all(context, cases + others)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "complex64"])
@pytest.mark.parametrize("columns", [2, 3, 4, 32, 33, 129, 260])
def test_rows_move_as_vectors(context, rng, dtype, columns):
    """Odd and even numbers of rows; arrays that begin at any element; an index of two dimensions, and of the rows."""
    x = rng.integers(-50, 50, (41, columns + 1)).astype(dtype)
    device = context.from_host(x)
    lanes = {"float64": 2, "complex64": 2}.get(dtype, 4)
    for part in ((ALL, slice(columns)), (ALL, slice(1, None)), (slice(1, None, 2), slice(columns))):
        for shape in ((1,), (300,), (7, 9)):
            index = rng.integers(-20, 20, shape)
            gather = Gather(context, dtype, 2, [0], [("int64", len(shape))], schedule="simt")
            (got,) = gather(device[part], context.from_host(index))
            np.testing.assert_array_equal(got.to_host(), x[part][index], strict=True)
            source = gather.sources()[0].source
            assert "_vector moved_1" in source and f"column + {lanes} <= end" in source
            assert list(gather._kernels) == [gather.sources()[0]]
    dense = context.from_host(np.ascontiguousarray(x[:, :columns]))
    for shape in ((5,), (2, 3)):
        index = rng.integers(-columns, columns, shape)
        gather = Gather(context, dtype, 2, [slice(None), 0], [("int64", len(shape))], schedule="simt")
        (got,) = gather(dense, context.from_host(index))
        np.testing.assert_array_equal(got.to_host(), x[:, :columns][:, index], strict=True)


def test_rows_are_gathered_by_any_strides(context, rng):
    store, many = rng.normal(size=(50, 30)).astype("float32"), rng.integers(-8, 8, (40, 60))
    device, at = context.from_host(store), context.from_host(many)
    for of in (lambda x: x[::-2, 3:], lambda x: x.T, lambda x: x[:, ::2], lambda x: x[5:30, :1]):
        for pick in (lambda i: i[::3, 1], lambda i: i[::-1, ::2], lambda i: i[:1].T):
            types = [("int64", pick(many).ndim)]
            routine = Gather(context, "float32", 2, (0,), types, schedule="cpu")
            np.testing.assert_array_equal(routine(of(device), pick(at))[0].to_host(), of(store)[pick(many)])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool", "float16", "complex64"])
def test_what_work_items_add_up_apart(context, rng, monkeypatch, dtype):
    """Sums of small whole numbers are the same in any order."""
    monkeypatch.setattr("pytensor_cl.routines.indexing.gather_scatter.MIN_ITEM_SCATTERED", 64)

    def whole(*shape):
        return rng.integers(0, 3, shape).astype(dtype)

    cases = []
    i = rng.integers(-7, 7, 500)
    chosen = (i, np.sort(i), i.astype("int8")[:450].reshape(10, 45)) if dtype == "float32" else (i,)
    for columns, index in product(((), (1,), (3,), (40,)), chosen):
        cases.append(Case(context, "cpu", whole(7, *columns), (index,), whole(*index.shape, *columns)))
    if dtype == "float32":
        several = rng.integers(0, 7, (30, 20))
        cases += [Case(context, "cpu", whole(7, 9), (several,), whole(*s, 9)) for s in ((30, 1), (1, 20), ())]
        cases.append(Case(context, "cpu", whole(5, 7, 4), (ALL, rng.integers(0, 7, 300)), whole(5, 300, 4)))
    check_all(context, cases)


@pytest.fixture
def ordered(monkeypatch):
    """Values are put in the order of their positions, whatever their number."""
    monkeypatch.setattr("pytensor_cl.routines.indexing.gather_scatter.MIN_VALUES_PER_ELEMENT", 1 << 40)
    for name, value in (("MIN_ORDERED_ELEMENTS", 1), ("SHORT_ROW_BYTES", 0), ("MAX_POSITIONS_PER_VALUE", 1000)):
        monkeypatch.setattr(f"pytensor_cl.routines.indexing.scatter_order.{name}", value)


def is_ordered(context, case):
    """Return whether the scatters of a case have done so; one compute unit alone never does."""
    plans = [plan for routine in case.routines[1:] for plan in routine._plans._plans.values()]
    return all(isinstance(plan.way, OrderPlan) == (context.info.compute_units > 1) for plan in plans)


def test_values_in_order(context, rng, ordered):
    cases = []
    for columns in (2, 7, 16, 40, 101):
        x = rng.normal(size=(30, columns)).astype("float32")
        for count in (1, 5, 700):
            i = rng.integers(-30, 30, count)
            cases.append(Case(context, "cpu", x, (i,), rng.normal(size=(count, columns)).astype("float32")))
    for dtype in ("float64", "int8", "uint64", "bool"):
        i = np.sort(rng.integers(0, 30, 500)).astype("int32")
        cases.append(Case(context, "cpu", values_of(dtype, (30, 21), rng), (i,), values_of(dtype, (500, 21), rng)))
    x, several = rng.normal(size=(30, 5, 4)).astype("float32"), rng.integers(-30, 30, (20, 30))
    shapes = (20, 30, 5, 4), (20, 1, 5, 4), (30, 5, 4), (1, 1, 5, 4)
    cases += [Case(context, "cpu", x, (several,), rng.normal(size=s).astype("float32")) for s in shapes]
    check_all(context, cases)
    assert all(is_ordered(context, case) for case in cases)


def test_order_of_arrays_of_any_strides(context, rng, ordered):
    x, y = rng.normal(size=(14, 6)).astype("float32"), rng.normal(size=(500, 6)).astype("float32")
    index = rng.integers(0, 7, 1000)
    device, zero, at = (context.from_host(a) for a in (x, np.zeros((), "float32"), index))
    kinds = {"accumulate": True, "value_dtype": "float32", "value_ndim": 2}
    add = Scatter(context, "float32", 2, (0,), [("int64", 1)], schedule="cpu", **kinds)
    square = context.from_host(x[:7].T.copy()).T
    column = device[:7, :1].with_layout(device[:7, :1].layout.broadcast_to((7, 6)))
    for view in (device[::-2], device[:7], zero.with_layout(zero.layout.broadcast_to((7, 6))), square, column):
        for value in (context.from_host(y), context.from_host(y)[::-1], context.from_host(y[:, ::-1].copy())[:, ::-1]):
            got = add(view, value, at[::-2])[0].to_host()
            np.testing.assert_array_equal(got, expected_scatter(True, view.to_host(), value.to_host(), index[::-2]))


@pytest.mark.parametrize("given", [9, -10, 2**40])
def test_bad_indices_among_values_in_order(context, ordered, given):
    x, i = np.zeros((9, 20), "float32"), np.zeros(300, "int64")
    i[77] = given
    case = Case(context, "cpu", x, (i,), np.ones((300, 20), "float32"))
    with pytest.raises(IndexError, match=f"index {given} is out of bounds for axis 0 with size 9"):
        case.scatter(True)
    assert is_ordered(context, case)


@pytest.mark.parametrize("dtype", ["float32", "float16", "complex64"])
def test_minus_zero_stays_minus_zero(context, rng, monkeypatch, dtype):
    """Nothing is added to some elements, and minus zero to others."""
    monkeypatch.setattr("pytensor_cl.routines.indexing.gather_scatter.MIN_ITEM_SCATTERED", 64)
    index = rng.integers(0, 4, 500)
    for columns in ((), (3,)):
        x, y = (-np.zeros((n, *columns), dtype) for n in (7, 500))
        kinds = {"accumulate": True, "value_dtype": dtype, "value_ndim": y.ndim}
        add = Scatter(context, dtype, x.ndim, (0,), [("int64", 1)], schedule="cpu", **kinds)
        assert add(*map(context.from_host, (x, y, index)))[0].to_host().tobytes() == x.tobytes()


def test_work_items_add_to_arrays_of_any_strides(context, rng, monkeypatch):
    monkeypatch.setattr("pytensor_cl.routines.indexing.gather_scatter.MIN_ITEM_SCATTERED", 64)
    x, y = rng.integers(0, 3, (14, 6)).astype("float32"), rng.integers(0, 3, (500, 6)).astype("float32")
    index = rng.integers(0, 7, 500)
    device, zero, at = (context.from_host(a) for a in (x, np.zeros((), "float32"), index))
    for ndim in (1, 2):
        kinds = {"accumulate": True, "value_dtype": "float32", "value_ndim": ndim}
        add = Scatter(context, "float32", ndim, (0,), [("int64", 1)], schedule="cpu", **kinds)
        views = device[::-2], device[:7], zero.with_layout(zero.layout.broadcast_to((7, 6)))
        for view in views if ndim == 2 else [v[:, 1] for v in views]:
            value = y if ndim == 2 else y[:, 0]
            got = add(view, context.from_host(value), at)[0].to_host()
            np.testing.assert_array_equal(got, expected_scatter(True, view.to_host(), value, index))
            parts = {plan.copies.parts for plan in add._plans._plans.values()}
            assert parts == {min(context.info.compute_units, value.size // 64)}


def test_vectors(context, schedule, rng, monkeypatch):
    monkeypatch.setattr("pytensor_cl.routines.indexing.gather_scatter.MIN_SORTED_POSITIONS", 1 << 40)
    cases = []
    for dtype in ("bool", "int16", "float16", "complex64", "float64"):
        i = np.sort(rng.integers(0, 30, 700)) - 30  # runs of equal indices
        cases.append(Case(context, schedule, values_of(dtype, (30,), rng), (i,), values_of(dtype, (700,), rng)))
    x = rng.normal(size=30).astype("float32")
    for kind in ("int8", "uint64"):
        i = rng.integers(0, 30, 70).astype(kind)
        cases.append(Case(context, schedule, x, (i,), rng.normal(size=70).astype("float32")))
    for length in (1, 1023, 1025, 5000):
        i = np.repeat(rng.integers(-30, 30, length), rng.integers(0, 50, length))[:length]
        cases.append(Case(context, schedule, x, (i,), rng.normal(size=len(i)).astype("float32")))
    i = rng.integers(-30, 30, (20, 30))
    uneven = [rng.normal(size=shape).astype("float32") for shape in ((20, 30), (1, 30), (20, 1), ())]
    check_all(context, cases + [Case(context, schedule, x, (i,), y) for y in uneven])


def test_gather_along_an_axis_of_length_one_whose_stride_is_beyond_32_bits(context, schedule, rng):
    x, zeros = rng.normal(size=(5, 9)).astype("float32"), np.zeros(4, "int64")
    device = context.from_host(x)
    for items in ((slice(None, None, 10**12),), (slice(None), slice(None, None, 10**12))):
        entries = [slice(None)] * (len(items) - 1) + [0]
        gather = Gather(context, "float32", 2, entries, [("int64", 1)], schedule=schedule)
        (got,) = gather(device[items], context.from_host(zeros))
        np.testing.assert_array_equal(got.to_host(), np.take(x[items], zeros, len(items) - 1))


def test_values_are_repeated(context, schedule, rng):
    x, i = rng.normal(size=(6, 8)).astype("float32"), rng.integers(-6, 6, (3, 4))
    shapes = [(), (1,), (8,), (4, 1), (4, 8), (1, 4, 8), (3, 1, 1), (3, 4, 8), (1, 1)]
    check_all(context, [Case(context, schedule, x, (i,), rng.normal(size=s).astype("float32")) for s in shapes])


@pytest.mark.parametrize("columns", [1, 5, 40])
def test_values_that_repeat_along_some_dimensions_of_the_index(context, schedule, rng, columns):
    """The gradient of a mean of rows of a table is one; a step for the last dimension and one for the others will do."""
    x = rng.normal(size=(9, columns)).astype("float32")
    cases = []
    for shape, repeated in (
        ((6, 7), (6, 1)),
        ((6, 7), (1, 7)),
        ((3, 4, 5), (3, 1, 5)),
        ((3, 4, 5), (3, 4, 1)),
        ((1,), (1,)),
    ):
        y = rng.normal(size=(*repeated, columns)).astype("float32")
        cases.append(Case(context, schedule, x, [rng.integers(-9, 9, shape)], y))
    check_all(context, cases)


def test_values_of_another_dtype(context, schedule, rng):
    x, i = rng.normal(size=(6, 8)).astype("float32"), rng.integers(-6, 6, 5)
    check_all(context, [Case(context, schedule, x, (i,), rng.integers(-9, 9, (5, 8)).astype("int8"))])


def test_values_that_do_not_fit(context, schedule, rng):
    x, index = np.zeros((3, 4), "float32"), (np.array([0, 1]),)
    short = Case(context, schedule, x, index, np.ones((3, 4), "float32"))
    for accumulate in (True, False):
        with pytest.raises(ValueError, match="could not be broadcast"):
            short.scatter(accumulate)
    deep = Case(context, schedule, x, index, np.ones((1, 2, 4), "float32"))
    with pytest.raises(ValueError, match="could not be broadcast"):
        deep.scatter(True)
    np.testing.assert_array_equal(deep.scatter(False), expected_scatter(False, x, deep.y, *index))


def test_strides(context, schedule, rng):
    store = rng.normal(size=(9, 14, 10)).astype("float32")
    many = rng.integers(-3, 3, (6, 10))
    device, device_index = context.from_host(store), context.from_host(many)
    x, i = store[::-2, 3:, 1::3].T, many[::-1, ::3]
    view = device[::-2, 3:, 1::3].T
    y = np.broadcast_to(rng.normal(size=(1, 11, 1)).astype("float32"), (*i.shape, 11, 5))
    device_y = context.from_host(y[0, 0, :, :1].copy())
    device_y = device_y.with_layout(device_y.layout.broadcast_to(y.shape))
    types = [("int64", 2)]
    routine = Gather(context, "float32", 3, (0,), types, schedule=schedule)
    assert x.shape == view.shape
    np.testing.assert_array_equal(routine(view, device_index[::-1, ::3])[0].to_host(), x[i])
    options = {"accumulate": True, "value_dtype": "float32", "value_ndim": 4}
    add = Scatter(context, "float32", 3, (0,), types, schedule=schedule, **options)
    got = add(view, device_y, device_index[::-1, ::3])[0].to_host()
    np.testing.assert_array_equal(got, expected_scatter(True, np.ascontiguousarray(x), y, i))


@pytest.mark.parametrize(
    ("shape", "index", "message"),
    [
        ((5, 4), ([1, 9],), "index 9 is out of bounds for axis 0 with size 5"),
        ((5, 4), ([1, -6],), "index -6 is out of bounds for axis 0 with size 5"),
        ((5, 4), ([1, 2], [3, 4]), "index 4 is out of bounds for axis 1 with size 4"),
        ((5, 4), (ALL, [2**40]), f"index {2**40} is out of bounds for axis 1 with size 4"),
        ((0, 4), ([3],), "index 3 is out of bounds for axis 0 with size 0"),
        ((5, 0), ([7],), "index 7 is out of bounds for axis 0 with size 5"),
        ((5, 4), ([0, 1], [0, 1, 2]), "could not be broadcast together with shapes .2,. .3,."),
    ],
)
def test_bad_indices(context, schedule, shape, index, message):
    x = np.zeros(shape, "float32")
    index = [np.array(i) if isinstance(i, list) else i for i in index]
    with pytest.raises(IndexError, match=message):
        x[tuple(index)]
    case = Case(context, schedule, x, index, np.float32(1))
    for routine in case.routines:
        with pytest.raises(IndexError, match=message):
            case.run(routine, *([] if routine is case.routines[0] else [case.y]))
        assert routine.error_flag.read() is None  # it was heard, and the next call is a new one


def test_bad_numbers_of_the_host(context, schedule):
    routine = Gather(context, "float32", 2, (0, 1), [None, ("int64", 1)], schedule=schedule)
    x, i = context.empty((3, 4), "float32"), context.from_host(np.array([0]))
    with pytest.raises(IndexError, match="index 3 is out of bounds for axis 0 with size 3"):
        routine(x, 3, i)
    with pytest.raises(IndexError, match="index -4 is out of bounds for axis 0 with size 3"):
        routine(x, -4, i)


def test_known_bounds_are_checked_without_the_device(context, schedule, rng):
    x, i = rng.normal(size=6).astype("float32"), np.array([-3, 5])
    case = Case(context, schedule, x, (i,), bounds=[(-3, 5)])
    assert not case.routines[0].is_checked
    case.check()
    case.x = x[:5]
    with pytest.raises(IndexError, match="index 5 is out of bounds for axis 0 with size 5"):
        case.gather()
    assert not Case(context, schedule, x, (i,), bounds=[UNCHECKED_BOUNDS]).routines[0].is_checked


def test_positions_of_constant_indices_are_kept(context, schedule, rng):
    x, i = rng.normal(size=(6, 3)).astype("float32"), rng.integers(0, 6, 20)
    kinds = {"accumulate": True, "value_dtype": "float32", "value_ndim": 2}
    routine = Scatter(context, "float32", 2, (0,), [("int64", 1)], constant=True, schedule=schedule, **kinds)
    device, index = context.from_host(x), context.from_host(i)
    for _ in range(3):
        y = rng.normal(size=(20, 3)).astype("float32")
        got = routine(device, context.from_host(y), index)[0].to_host()
        np.testing.assert_array_equal(got, expected_scatter(True, x, y, i))
    assert len(routine._found) == 1


def test_long_indices(context, schedule, rng, monkeypatch):
    monkeypatch.setattr("pytensor_cl.routines.indexing.base.INT_LIMIT", 0)
    x, i = rng.normal(size=(6, 7, 8)).astype("float32"), rng.integers(-6, 6, 9)
    Case(context, schedule, x, (i, ALL, i), rng.normal(size=(9, 7)).astype("float32")).check()


def _random_index(rng, shape):
    adv = tuple(int(n) for n in rng.choice([0, 1, 2, 3, 5], size=rng.integers(0, 3)))
    index = []
    for n in shape[: rng.integers(1, len(shape) + 1)]:
        if rng.random() < 0.5:
            start, stop = (None if rng.random() < 0.3 else int(rng.integers(-n - 1, n + 2)) for _ in range(2))
            index.append(slice(start, stop, rng.choice([None, 1, 2, -1, -3])))
        elif n == 0:
            index.append(np.zeros((*adv[:-1], 0), "int64"))
        else:
            keep = [m if rng.random() < 0.7 else 1 for m in adv[rng.integers(0, len(adv) + 1) :]]
            index.append(rng.integers(-n, n, keep).astype(rng.choice(["int8", "int64"])))
    return index


def test_random(context, rng):
    cases = []
    while len(cases) < 20:
        shape = tuple(int(n) for n in rng.choice([0, 1, 2, 3, 5, 9], size=rng.integers(1, 5)))
        x, index = rng.normal(size=shape).astype("float32"), _random_index(rng, shape)
        try:
            y = x[tuple(index)] * 2
        except IndexError:
            continue  # arrays that do not broadcast together
        cases.append(Case(context, str(rng.choice(SCHEDULES)), x, index, np.asarray(y)))
    check_all(context, cases)


LAYOUTS = (
    lambda x: x,
    lambda x: x[1::2, :, ::-1],
    lambda x: x.T[:5, ::-1],
    lambda x: x[::-1, ::-2],
)


def check_update(context, schedule, x, view, index, y, accumulate):
    """Change a view of an array on the device, and compare the whole array with NumPy's."""
    entries, values, types = numbered(index)
    kinds = {"accumulate": accumulate, "value_dtype": str(y.dtype), "value_ndim": y.ndim, "schedule": schedule}
    routine = Scatter(context, str(x.dtype), view(x).ndim, entries, types, **kinds)
    want, device = x.copy(), context.from_host(x)
    if accumulate:
        np.add.at(view(want), index, y)
    else:
        view(want)[index] = y
    inputs = [context.from_host(v) if isinstance(v, np.ndarray) else v for v in values]
    routine.update(view(device), context.from_host(y), *inputs)
    routine.check()
    np.testing.assert_array_equal(device.to_host(), want, strict=True, err_msg=str(index))
    return routine


def test_updates_in_place(context, schedule, rng):
    """Elements between those of the target stay as they are, and the last of repeated indices wins."""
    x = rng.integers(0, 100, (12, 11, 10)).astype("float32")
    i, j = rng.integers(-5, 5, (3, 4)), rng.integers(-5, 5, 4)
    for index in ((i,), (ALL, i, j), (j, slice(None, None, -2), j)):
        for view in LAYOUTS:
            y = rng.integers(0, 9, view(x)[index].shape).astype("float32")
            for accumulate in (False, True):
                check_update(context, schedule, x, view, index, y, accumulate)


def test_updates_of_vectors_and_many_values(context, schedule, rng, monkeypatch):
    """The ways that a scatter has, with a target whose elements are apart and with one that is whole."""
    monkeypatch.setattr("pytensor_cl.routines.indexing.gather_scatter.MIN_ITEM_SCATTERED", 64)
    monkeypatch.setattr("pytensor_cl.routines.indexing.gather_scatter.MIN_SORTED_POSITIONS", 1)
    ways = set()
    for shape, view in product(((14,), (14, 3), (500, 3)), (lambda x: x, lambda x: x[::2])):
        x = rng.integers(0, 100, shape).astype("float32")
        rows = len(view(x))
        i = rng.integers(-rows, rows, 500)
        y = rng.integers(0, 3, (500, *shape[1:])).astype("float32")
        for accumulate in (False, True):
            routine = check_update(context, schedule, x, view, (i,), y, accumulate)
            ways |= {type(plan.way).__name__ for plan in routine._plans._plans.values()}
    assert ways == ({"_Direct", "_ByPosition"} if schedule == "cpu" else {"_Sorted", "_Few"})


def test_values_in_order_in_place(context, rng, ordered):
    x, i = rng.normal(size=(30, 7)).astype("float32"), rng.integers(-30, 30, 700)
    routine = check_update(context, "cpu", x, lambda a: a, (i,), rng.normal(size=(700, 7)).astype("float32"), True)
    (plan,) = routine._plans._plans.values()
    assert isinstance(plan.way, OrderPlan) == (context.info.compute_units > 1)


def test_targets_that_are_also_values_or_indices(context, schedule):
    host = np.arange(20)[::-1].copy()
    kinds = {"accumulate": False, "value_dtype": "int64", "value_ndim": 1, "schedule": schedule}
    routine = Scatter(context, "int64", 1, (0,), [("int64", 1)], **kinds)
    device, want = context.from_host(host), host.copy()
    want[want[5:15].copy()] = want[:10].copy()
    routine.update(device, device[:10], device[5:15])
    np.testing.assert_array_equal(device.to_host(), want)


@pytest.mark.parametrize("few", [True, False])
def test_bad_indices_write_nothing(context, schedule, monkeypatch, few):
    """What is out of range is reported, and every element but those of other indices stays as it is."""
    if few:
        monkeypatch.setattr("pytensor_cl.routines.indexing.gather_scatter.MIN_SORTED_POSITIONS", 1)
    else:
        monkeypatch.setattr("pytensor_cl.routines.indexing.scatter_few.FEW_TILES", 0)
        monkeypatch.setattr("pytensor_cl.routines.indexing.gather_scatter.MIN_SORTED_POSITIONS", 4)
    for shape, rows in (((8,), 3), ((8, 5), 3), ((8, 5), 300)):
        i = np.resize(np.array([2, 8, 2, -9, 5]), rows * 5)
        y = np.ones((len(i), *shape[1:]), "float32")
        for accumulate in (False, True):
            kinds = {"accumulate": accumulate, "value_dtype": "float32", "value_ndim": len(shape)}
            routine = Scatter(context, "float32", len(shape), (0,), [("int64", 1)], schedule=schedule, **kinds)
            device = context.from_host(np.full(shape, 7, "float32"))
            routine.update(device, context.from_host(y), context.from_host(i))
            with pytest.raises(IndexError, match="index (8|-9) is out of bounds for axis 0 with size 8"):
                routine.check()
            want = np.full(shape, 7, "float32")
            want[2], want[5] = (7 + 2 * rows, 7 + rows) if accumulate else (1, 1)
            np.testing.assert_array_equal(device.to_host(), want)
