"""Element functions over every kind of layout, against NumPy."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from pytensor_cl.codegen.emitter import Emitter, Value
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.routine import SCHEDULES
from pytensor_cl.routines.base.units import share_out
from pytensor_cl.routines.elemwise import routine as elemwise
from pytensor_cl.routines.elemwise.routine import Copy, Elemwise, Fill, contiguous
from pytensor_cl.runtime.layout import Layout, collapse

SIZES = (0, 1, 3, 16, 17, 1000)


@dataclass(frozen=True)
class Function:
    """An element function written with Python's operators."""

    input_dtypes: tuple
    output_dtypes: tuple
    compute: object
    preambles: tuple = ()
    operations: int = 1

    @property
    def itemsize(self):
        return max(np.dtype(t).itemsize for t in self.input_dtypes + self.output_dtypes)

    def statements(self, lanes):
        writer = Emitter(lanes)
        outputs = self.compute(*(Value(f"i{k}", t, writer) for k, t in enumerate(self.input_dtypes)))
        return writer.body(outputs)


def fused(wide):
    """Two outputs of different sizes, of two inputs."""
    return Function(("float32", "float32"), ("float32", wide), lambda x, y: (x * y + x, (x - y).cast(wide)))


FUSED = {wide: fused(wide) for wide in ("float64", "int64")}


def wide_dtype(context):
    """A dtype of eight bytes that the device computes with."""
    return "float64" if context.info.has_fp64 else "int64"


def expected_fused(context, x, y):
    """Return what `fused` computes."""
    return x * y + x, (x - y).astype(wide_dtype(context))


@cache
def routine(context, schedule, ndim, by_value=(False, False), known=True):
    """One routine per kind for the whole module: a build costs 100 ms."""
    return Elemwise(context, FUSED[wide_dtype(context)], ((known,) * ndim,) * 2, ndim, by_value, schedule)


def check(context, schedule, x, y, device_x=None, device_y=None):
    """Compare the routine with NumPy; the device arrays may be views made on the device."""
    x_on_device = context.from_host(x) if device_x is None else device_x
    y_on_device = context.from_host(y) if device_y is None else device_y
    wanted = expected_fused(context, x, y)
    for got, want in zip(routine(context, schedule, x.ndim)(x_on_device, y_on_device), wanted, strict=True):
        assert got.dtype == want.dtype
        assert got.layout.is_contiguous
        # A compiler may fuse the multiplication and the addition.
        np.testing.assert_allclose(got.to_host(), want, rtol=1e-5, atol=1e-5, strict=True)


def normal(rng, *shape):
    """Float32 test data."""
    return rng.normal(size=shape).astype("float32")


pytestmark = pytest.mark.parametrize("schedule", SCHEDULES)


@pytest.mark.parametrize("size", SIZES)
def test_sizes_with_tails(context, schedule, rng, size):
    check(context, schedule, normal(rng, size), normal(rng, size))


def test_many_elements_for_each_work_item(context, schedule, rng, monkeypatch):
    for name in ("elemwise.groups_per_unit", "elemwise.items_per_unit"):
        monkeypatch.setitem(context.tuning, name, 1)
    monkeypatch.setitem(context.tuning, "elemwise.group", 16)
    for rest in (0, 1, 15, 17):
        size = 5 * 16 * context.info.compute_units + rest
        check(context, schedule, normal(rng, size), normal(rng, size))
        check(context, schedule, normal(rng, size)[::-1], normal(rng, 2 * size)[::2])


def added(context, schedule, arrays, views, shape, broadcast, dtype="float32"):
    """Compare a sum of two arrays with NumPy's, and return the units of the plan."""
    function = Function((dtype, dtype), (dtype,), lambda x, y: (x + y,))
    routine = Elemwise(context, function, broadcast, len(shape), (False, False), schedule)
    output = context.empty(shape, dtype)
    routine.launch((output,), views)
    np.testing.assert_array_equal(output.to_host(), arrays[0] + arrays[1])
    shape, strides = collapse(shape, [v.layout.broadcast_to(shape).strides for v in (*views, output)])
    return share_out(shape, routine._lanes, routine._has_vectors(shape, strides))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
@pytest.mark.parametrize("size", [1, 3, 4, 5, 127, 128, 129, 1023, 1028])
def test_vectors_of_whole_arrays(context, schedule, rng, dtype, size):
    """Aligned and not, with a part of a vector at the end."""
    if dtype == "float64" and not context.info.has_fp64:
        pytest.skip("no fp64")
    x, y = (rng.integers(0, 50, size + 4).astype(dtype) for _ in range(2))
    on_device = context.from_host(x), context.from_host(y)
    for start in (0, 4, 1):
        arrays, views = [a[start:][:size] for a in (x, y)], [a[start:][:size] for a in on_device]
        units = added(context, schedule, arrays, views, (size,), ((False,),) * 2, dtype)
        if schedule == "simt" and size > 1:
            assert units.vectors == ceil_div(size, 2 if dtype == "float64" else 4)


@pytest.mark.parametrize("columns", [2, 3, 4, 31, 36, 64, 65, 128, 129, 300])
def test_rows_that_are_repeated(context, schedule, rng, columns):
    """Every row of one array, one element of each row of the other; three dimensions; rows of any alignment."""
    rows, column = normal(rng, 1, columns), normal(rng, 40, 1)
    table = normal(rng, 40, columns)
    for x, y, known in (
        (column, rows, ((False, True), (True, False))),
        (table, rows, ((False, False), (True, False))),
        (table, column, ((False, False), (False, True))),
        (table, column, ((False, False), (False, False))),
    ):
        units = added(context, schedule, (x, y), [context.from_host(a) for a in (x, y)], (40, columns), known)
        has_vectors = columns % 4 == 0 and not (y is column and not known[1][1])
        assert schedule == "cpu" or bool(units.vectors) == has_vectors
    x, y = normal(rng, 5, 1, columns), normal(rng, 1, 7, columns)
    known = (False, True, False), (True, False, False)
    added(context, schedule, (x, y), [context.from_host(a) for a in (x, y)], (5, 7, columns), known)
    store = normal(rng, 40, columns + 3)
    view = context.from_host(store)[:, 3:]
    added(
        context,
        schedule,
        (store[:, 3:], column),
        (view, context.from_host(column)),
        (40, columns),
        ((False, False), (False, True)),
    )


def test_long_functions_off_the_vectors(context, schedule, rng):
    """Two calls: where arrays are not aligned, one element after the other."""
    if schedule == "cpu":
        pytest.skip("of schedule simt")

    def compute(x):
        return ((x.call("exp") + x.call("sin")),)

    function = Function(("float32",), ("float32",), compute, operations=4)
    for size in (1, 4, 6, 129, 1000):
        for start in (0, 1):
            x = normal(rng, size + 1)
            routine = Elemwise(context, function, ((False,),), 1, (False,), schedule)
            got = routine(context.from_host(x)[start:][:size])[0].to_host()
            x = x[start:][:size]
            np.testing.assert_allclose(got, np.exp(x) + np.sin(x), rtol=1e-5, atol=1e-6)
            assert "q < 4" in routine.sources()[0].source


def test_units_of_rows(schedule):
    assert share_out((), 4) == (1, 1, 0, 1, 1, 0)
    assert share_out((1000,), 1) == (1000, 1000, 0, 1000, 1, 0)
    assert share_out((1000,), 4, True) == (256, 8, 250, 250, 1, 5)
    assert share_out((7, 9), 4) == (7 * 4, 1, 0, 3, 2, 2)
    assert share_out((7, 129), 4) == (7 * 64, 2, 0, 33, 2, 5)


def test_zero_dimensions(context, schedule, rng):
    check(context, schedule, normal(rng), normal(rng))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (1, 1), (7, 33), (300, 3), (2, 40000)])
def test_two_dimensions(context, schedule, rng, shape):
    check(context, schedule, normal(rng, *shape), normal(rng, *shape))


@pytest.mark.parametrize("shape", [(37, 53), (1, 17), (200, 300), (3, 5)])
def test_transposed(context, schedule, rng, shape):
    x, y = normal(rng, *shape), normal(rng, *shape[::-1])
    on_device = context.from_host(x).T
    check(context, schedule, x.T, y, device_x=on_device)
    check(context, schedule, x.T, x.T, device_x=on_device, device_y=on_device)


@pytest.mark.parametrize("shape", [(1000, 300), (300, 1000), (256, 512)])
def test_sum_with_a_transposed_array(context, schedule, rng, shape):
    x, y = normal(rng, *shape), normal(rng, *shape[::-1])
    check(context, schedule, x.T, y, device_x=context.from_host(x).T)
    check(context, schedule, y, x.T, device_y=context.from_host(x).T)


TURNED = {  # shape of the array, and the order of its axes
    "matrix": ((70, 45), (1, 0)),
    "batch": ((3, 40, 33), (0, 2, 1)),
    "channels last": ((2, 5, 7, 40), (0, 3, 1, 2)),
    "outermost first": ((33, 4, 5, 40), (3, 1, 2, 0)),
    "a row of tiles": ((1, 100), (1, 0)),
}


@pytest.mark.parametrize("name", TURNED)
@pytest.mark.parametrize("groups", [1, 64])
def test_turned_inputs_pass_through_tiles_in_local_memory(context, schedule, rng, monkeypatch, name, groups):
    shape, axes = TURNED[name]
    monkeypatch.setitem(context.tuning, "elemwise.groups_per_unit", groups)
    function = Elemwise(
        context, FUSED[wide_dtype(context)], ((True,) * len(shape),) * 2, len(shape), (False, False), schedule
    )
    whole = rng.normal(size=(*shape[:-1], 2 * shape[-1])).astype("float32")
    x, y = whole[..., : shape[-1]], rng.normal(size=[shape[a] for a in axes]).astype("float32")
    on_device = context.from_host(whole)[..., : shape[-1]]
    on_device = on_device.with_layout(on_device.layout.transpose(axes))
    outputs = function(on_device, context.from_host(y))
    for got, want in zip(outputs, expected_fused(context, x.transpose(axes), y), strict=True):
        np.testing.assert_allclose(got.to_host(), want, rtol=1e-5, atol=1e-6)
    assert _is_tiled(function) == (schedule == "simt" and 1 not in shape)


def _is_tiled(function):
    return ["tiled" in source.name for source in function._sources.values()][-1]


def test_turned_inputs_are_transposed_in_registers(context, schedule, rng):
    if schedule == "simt":
        pytest.skip("of schedule cpu")
    for narrow, wide in (("float32", "float32"), ("int8", "int16"), ("int64", "float32")):
        x = (50 * rng.normal(size=(2, 301, 263))).astype(narrow)
        copy = Copy(context, narrow, 3, wide, schedule)
        on_device = context.from_host(x)
        for part in (np.s_[:], np.s_[:, 3:290, 1:262], np.s_[1:, ::-1], np.s_[..., ::-1]):
            view = on_device[part]
            view = view.with_layout(view.layout.transpose((0, 2, 1)))
            result = context.empty(view.layout.shape, wide)
            copy.launch((result,), (view,))
            np.testing.assert_array_equal(result.to_host(), x[part].transpose(0, 2, 1).astype(wide))
        assert sum("shuffle0" in source.source for source in copy._sources.values()) == 1


def test_both_inputs_turned_and_negative_strides(context, schedule, rng):
    function = Elemwise(context, FUSED[wide_dtype(context)], ((False,) * 2,) * 2, 2, (False, False), schedule)
    x, y = (rng.normal(size=(37, 50)).astype("float32") for _ in range(2))
    outputs = function(context.from_host(x)[::-1].T, context.from_host(y)[:, ::-1].T)
    for got, want in zip(outputs, expected_fused(context, x[::-1].T, y[:, ::-1].T), strict=True):
        np.testing.assert_allclose(got.to_host(), want, rtol=1e-5, atol=1e-6)


def test_tiles_need_room_in_local_memory(context, schedule, rng, monkeypatch):
    monkeypatch.setattr(context, "info", replace(context.info, local_memory=4096))
    function = Elemwise(context, FUSED[wide_dtype(context)], ((False,) * 2,) * 2, 2, (False, False), schedule)
    x, y = rng.normal(size=(40, 50)).astype("float32"), rng.normal(size=(50, 40)).astype("float32")
    for got, want in zip(
        function(context.from_host(x).T, context.from_host(y)), expected_fused(context, x.T, y), strict=True
    ):
        np.testing.assert_allclose(got.to_host(), want, rtol=1e-5, atol=1e-6)
    assert not _is_tiled(function)


def test_columns_of_a_tile(schedule):
    dense, across, aligned = (1000, 1), (1, 1000), (1, 1024)
    columns = elemwise._crossing_columns
    assert columns((1000, 1000), (across, dense), 4, 16) == columns((1000, 64), (across, dense), 8, 16) == 16
    assert columns((1000, 1000), (across, dense), 8, 16) == 8
    assert columns((1000, 1000), (dense, across, dense), 4, 16) == 128
    assert columns((1000, 1000), (dense, across, dense), 8, 16) == 64
    assert columns((1000, 1000), (dense, aligned, dense), 8, 16) == 8


@pytest.mark.parametrize(
    "items",
    [
        (slice(None, None, -1), slice(None)),
        (slice(None), slice(None, None, -1)),
        (slice(None, None, -2), slice(1, None, -3)),
        (slice(3, 30), slice(5, 41)),
        (slice(None, None, 2), slice(None, None, 2)),
    ],
    ids=str,
)
def test_strided_views(context, schedule, rng, items):
    x = normal(rng, 41, 67)
    view = x[items]
    check(context, schedule, view, normal(rng, *view.shape), device_x=context.from_host(x)[items])


@pytest.mark.parametrize("axes", [(0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)], ids=str)
def test_permuted_axes(context, schedule, rng, axes):
    x = normal(rng, 6, 35, 20)
    view = x.transpose(axes)
    on_device = context.from_host(x)
    on_device = on_device.with_layout(on_device.layout.transpose(axes))
    check(context, schedule, view, normal(rng, *view.shape), device_x=on_device)


@pytest.mark.parametrize("shape", [(1, 33), (40, 1), (1, 1), (40, 33)], ids=["row", "column", "scalar", "matrix"])
def test_broadcast(context, schedule, rng, shape):
    check(context, schedule, normal(rng, 40, 33), normal(rng, *shape))
    check(context, schedule, normal(rng, *shape), normal(rng, 40, 33))


def test_broadcast_both_ways(context, schedule, rng):
    check(context, schedule, normal(rng, 29, 1), normal(rng, 1, 50))
    check(context, schedule, normal(rng, 4, 1, 19), normal(rng, 1, 5, 1))


def test_five_dimensions_that_do_not_collapse(context, schedule, rng):
    x = normal(rng, 3, 4, 5, 6, 7)
    on_device = context.from_host(x)
    on_device = on_device.with_layout(on_device.layout.transpose((4, 2, 0, 3, 1)))
    view = x.transpose(4, 2, 0, 3, 1)
    check(context, schedule, view, normal(rng, 7, 1, 3, 1, 4), device_x=on_device)


def test_by_value(context, schedule, rng):
    x, y = normal(rng, 50), np.float32(1.5)
    got = routine(context, schedule, 1, (False, True))(context.from_host(x), y)
    for one, want in zip(got, expected_fused(context, x, y), strict=True):
        np.testing.assert_allclose(one.to_host(), want, rtol=1e-5, atol=1e-6)


def test_all_by_value_is_a_single_element(context, schedule):
    got = routine(context, schedule, 0, (True, True))(np.float32(2), np.float32(3))
    assert [float(one) for one in got] == [8, -1]


def test_output_of_any_strides(context, schedule, rng):
    x, y = normal(rng, 21, 34), normal(rng, 21, 34)
    first, second = context.empty((34, 21), "float32").T, context.empty((42, 68), wide_dtype(context))
    second = second[::-2, ::2]
    routine(context, schedule, 2).launch((first, second), (context.from_host(x), context.from_host(y)))
    for got, want in zip((first, second), expected_fused(context, x, y), strict=True):
        np.testing.assert_allclose(got.to_host(), want, rtol=1e-5, atol=1e-6)


def test_output_may_be_an_input(context, schedule, rng):
    x, y = normal(rng, 1000), normal(rng, 1000)
    on_device, other = context.from_host(x), context.empty((1000,), wide_dtype(context))
    routine(context, schedule, 1).launch((on_device, other), (on_device, context.from_host(y)))
    np.testing.assert_allclose(on_device.to_host(), x * y + x, rtol=1e-5, atol=1e-6)


def test_same_layout_at_other_offsets(context, schedule, rng):
    x = normal(rng, 8, 30)
    on_device = context.from_host(x)
    plans = len(routine(context, schedule, 1)._plans)
    for k in range(8):
        check(context, schedule, x[k], x[7 - k], on_device[k], on_device[7 - k])
    assert len(routine(context, schedule, 1)._plans) <= plans + 1


def test_plans_are_bounded(context, schedule, rng):
    x = context.from_host(normal(rng, 100))
    for n in range(100):
        routine(context, schedule, 1)(x[:n], x[:n])
    assert len(routine(context, schedule, 1)._plans) <= 64


def test_runtime_broadcasting_is_refused(context, schedule):
    refusing = routine(context, schedule, 2, known=False)
    with pytest.raises(ValueError, match="Runtime broadcasting not allowed"):
        refusing.layout(Layout.contiguous((4, 1)), Layout.contiguous((4, 3)))
    assert refusing.layout(Layout.contiguous((4, 1)), Layout.contiguous((4, 1)))[0].shape == (4, 1)


def test_shapes_that_do_not_fit(context, schedule):
    with pytest.raises(ValueError, match=r"Input dimension mismatch.*\(4, 2\), \(4, 3\)"):
        routine(context, schedule, 2).layout(Layout.contiguous((4, 2)), Layout.contiguous((4, 3)))


@pytest.mark.parametrize("offset", [0, 1, 16])
def test_results_that_go_past_the_cache(context, schedule, rng, monkeypatch, offset):
    monkeypatch.setattr(elemwise, "PAST_CACHE", 0)
    large = Elemwise(context, FUSED[wide_dtype(context)], ((True,),) * 2, 1, (False, False), schedule)
    x, y = normal(rng, 1003), normal(rng, 1003)
    first, second = (context.empty((1030,), t) for t in ("float32", wide_dtype(context)))
    on_device = context.from_host(x)
    large.launch((first[offset:][:1003], second[offset:][:1003]), (on_device, context.from_host(y)))
    large.launch((on_device, second[offset:][:1003]), (on_device, context.from_host(y)))
    for got, want in zip((on_device, second[offset:][:1003]), expected_fused(context, x, y), strict=True):
        np.testing.assert_allclose(got.to_host(), want, rtol=1e-5, atol=1e-5, strict=True)
    np.testing.assert_array_equal(first[offset:][:1003].to_host(), on_device.to_host())


def test_64_bit_indices(context, schedule, rng, monkeypatch):
    monkeypatch.setattr(elemwise, "INT_LIMIT", 10)
    wide = Elemwise(context, FUSED[wide_dtype(context)], ((True, True),) * 2, 2, (False, False), schedule)
    x, y = normal(rng, 40, 35), normal(rng, 35, 40)
    got = wide(context.from_host(x).T, context.from_host(y))
    for one, want in zip(got, expected_fused(context, x.T, y), strict=True):
        np.testing.assert_allclose(one.to_host(), want, rtol=1e-5, atol=1e-6)
    assert {index for index, _ in wide._sources} == {"int", "long"}


def test_too_many_parameters_go_through_a_buffer(context, schedule, rng, monkeypatch):
    monkeypatch.setattr(context, "info", replace(context.info, max_parameter_size=100))
    frugal = Elemwise(context, FUSED[wide_dtype(context)], ((True, True),) * 2, 2, (False, False), schedule)
    assert "*plan" in frugal.sources()[0].source
    x, y = normal(rng, 40, 35), normal(rng, 40, 1)
    for one, want in zip(
        frugal(context.from_host(x), context.from_host(y)), expected_fused(context, x, y), strict=True
    ):
        np.testing.assert_allclose(one.to_host(), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "complex64", "complex128"])
@pytest.mark.parametrize("size", [1, 5, 129, 1000])
def test_copy_of_pairs_and_halves(context, schedule, rng, dtype, size):
    if dtype == "complex128" and not context.info.has_fp64:
        pytest.skip("no fp64")
    x = rng.integers(0, 100, size + 1).astype(dtype)
    for start in (0, 1):
        got = Copy(context, dtype, 1, schedule=schedule)(context.from_host(x)[start:])[0]
        np.testing.assert_array_equal(got.to_host(), x[start:], strict=True)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float64"])
def test_copy(context, schedule, rng, dtype):
    x = rng.integers(0, 2 if dtype == "bool" else 100, (30, 21)).astype(dtype)
    got = Copy(context, dtype, 2, schedule=schedule)(context.from_host(x).T)[0]
    np.testing.assert_array_equal(got.to_host(), x.T, strict=True)


def test_copy_repeats_to_the_shape_of_the_output(context, schedule, rng):
    x, output = normal(rng, 1, 21), context.empty((5, 21), "float32")
    Copy(context, "float32", 2, schedule=schedule).launch((output,), (context.from_host(x),))
    np.testing.assert_array_equal(output.to_host(), np.broadcast_to(x, (5, 21)))


@pytest.mark.parametrize("value", [True, np.int8(-3), np.float32(1.5), np.float64(np.nan)], ids=repr)
def test_fill(context, schedule, value):
    dtype = str(np.asarray(value).dtype)
    output = context.empty((5, 21), dtype)
    Fill(context, dtype, 2, schedule=schedule).launch((output,), (np.dtype(dtype).type(value),))
    np.testing.assert_array_equal(output.to_host(), np.full((5, 21), value))


def test_contiguous(context, schedule, rng):
    x = normal(rng, 12, 9)
    on_device = context.from_host(x)
    assert contiguous(on_device[3]).buffer is on_device.buffer
    copied = contiguous(on_device.T)
    assert copied.layout.is_contiguous
    np.testing.assert_array_equal(copied.to_host(), x.T)


def test_unknown_schedule(context, schedule):
    with pytest.raises(ValueError, match="unknown schedule"):
        Copy(context, "float32", 1, schedule=f"not {schedule}")
