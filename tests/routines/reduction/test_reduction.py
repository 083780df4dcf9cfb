import itertools

import numpy as np
import pytest

from pytensor_cl.errors import UnsupportedDtype
from pytensor_cl.routines.base.routine import SCHEDULES
from pytensor_cl.routines.reduction import plan as reduction_plan
from pytensor_cl.routines.reduction.routine import OPERATIONS, Reduction
from pytensor_cl.runtime.layout import Layout
from tests.helpers import sweep


class ProductWithoutZeros:
    """The product of what is not zero; zero if nothing is."""

    @staticmethod
    def reduce(host, axis, dtype=None):
        product = np.multiply.reduce(np.where(host == 0, 1, host), axis=axis, dtype=dtype)
        return np.where((host != 0).any(axis), product, 0)


UFUNCS = {
    "add": np.add,
    "mul": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "mul_without_zeros": ProductWithoutZeros,
}
REAL = ("float32", "float64")
INTEGERS = ("bool", "int8", "uint8", "int32", "int64")
COMBINATIONS = [
    (operation, dtype)
    for operation, dtype in itertools.product(OPERATIONS, INTEGERS + REAL)
    if dtype not in REAL or OPERATIONS[operation].real
]
# Kernels of the pattern columns take longest to build.
FEWER = [(op, dtype) for op, dtype in COMBINATIONS if dtype in ("int64", "float32") or (op, dtype) == ("add", "bool")]
# Every dtype summed; several dtypes for each operation, several operations for each dtype.
MOST = [pair for k, pair in enumerate(COMBINATIONS) if pair[0] == "add" or k % 2 == 0]
CASES = {
    ("cpu", "rows"): ((1,), MOST),
    ("cpu", "columns"): ((0,), FEWER),
    ("simt", "rows"): ((1,), FEWER),
    ("simt", "columns"): ((0,), FEWER),
}
# What PyTensor accumulates in.
ACCUMULATORS = {"bool": "int64", "int8": "int64", "uint8": "uint64", "int32": "int64", "float32": "float64"}
LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.T,
    "reversed": lambda x: x[::-1, :, ::-1],
    "sliced": lambda x: x[1:, :, ::2],
    "column of one": lambda x: x[:, 0:1],
    "last sliced": lambda x: x[..., 1:],
}


def subsets(ndim):
    return [axes for n in range(ndim + 1) for axes in itertools.combinations(range(ndim), n)]


AXES = subsets(3)


@pytest.fixture(params=SCHEDULES)
def schedule(request):
    return request.param


def accumulator(operation, dtype):
    wide = operation in ("add", "mul", "mul_without_zeros")
    return ACCUMULATORS.get(dtype, dtype) if wide else dtype


def values(rng, shape, dtype):
    if dtype in REAL:
        return rng.uniform(0.5, 1.5, shape).astype(dtype)
    if dtype == "bool":
        return rng.random(shape) < 0.7
    return rng.integers(1 if dtype == "uint8" else -3, 4, shape).astype(dtype)


def expected(operation, host, acc_dtype, axes):
    return UFUNCS[operation].reduce(host, axis=axes, dtype=acc_dtype)


def close(got, want):
    assert got.shape == want.shape
    tolerance = {"float32": 2e-6, "float64": 1e-13}.get(str(got.dtype), 0)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@sweep(("schedule", "pattern"), [*CASES], [("cpu", "rows"), ("simt", "columns")])
def test_every_operation_on_every_dtype(context, rng, schedule, pattern):
    axes, combinations = CASES[schedule, pattern]
    routines = {
        (operation, dtype): Reduction(
            context, operation, dtype, accumulator(operation, dtype), dtype, 2, axes, schedule=schedule
        )
        for operation, dtype in combinations
    }
    context.build(routine.sources()[0] for routine in routines.values())
    for (operation, dtype), routine in routines.items():
        host = values(rng, (37, 41), dtype)
        (got,) = routine(context.from_host(host))
        with np.errstate(over="ignore"):
            want = expected(operation, host, accumulator(operation, dtype), axes).astype(dtype)
        close(got.to_host(), want)


@pytest.mark.parametrize("operation, dtype", [("add", "float32"), ("maximum", "int64")])
def test_axes_and_layouts(context, rng, schedule, operation, dtype):
    acc_dtype = accumulator(operation, dtype)
    for axes in AXES:
        routine = Reduction(context, operation, dtype, acc_dtype, acc_dtype, 3, axes, schedule=schedule)
        for shape in [(5, 3, 70), (2, 33, 19), (1, 1, 1), (4, 1, 3)]:
            host = values(rng, shape, dtype)
            device = context.from_host(host)
            for layout in LAYOUTS.values():
                want = expected(operation, layout(host), acc_dtype, axes) if layout(host).size else None
                if want is not None:
                    close(routine(layout(device))[0].to_host(), want)


def test_broadcast_input(context, rng, schedule):
    host = values(rng, (6, 1, 40), "float32")
    wide = np.broadcast_to(host, (6, 5, 40))
    device = context.from_host(host)
    device = device.with_layout(device.layout.broadcast_to(wide.shape))
    for axes in AXES:
        routine = Reduction(context, "add", "float32", "float64", "float32", 3, axes, schedule=schedule)
        close(routine(device)[0].to_host(), expected("add", wide, "float64", axes).astype("float32"))


@pytest.mark.parametrize(
    "shape, axes",
    [
        ((300_001,), (0,)),
        ((3, 100_003), (1,)),
        ((100_003, 3), (0,)),
        ((3, 30_001, 40), (1,)),
        ((37, 3, 5_001), (0, 2)),
        ((2, 5, 70_001), (0, 2)),
    ],
)
def test_two_passes(context, rng, schedule, shape, axes):
    host = values(rng, shape, "float32")
    device = context.from_host(host)
    for view in (lambda x: x, lambda x: x[::-1], lambda x: x[..., 1::2], lambda x: x[..., ::-2]):
        want = expected("add", view(host), "float64", axes)
        routine = Reduction(context, "add", "float32", "float64", "float64", len(shape), axes, schedule=schedule)
        (got,) = routine(view(device))
        (plan,) = routine._plans._plans.values()
        assert plan.final is not None or view(host).size < 100_000
        close(got.to_host(), want)
        np.testing.assert_array_equal(routine(view(device))[0].to_host(), got.to_host())


def test_alternating_runs(context, rng):
    host = values(rng, (9, 70, 601), "float32")
    routine = Reduction(context, "add", "float32", "float64", "float64", 3, (0, 2), schedule="cpu")
    device = context.from_host(host)
    close(routine(device)[0].to_host(), expected("add", host, "float64", (0, 2)))
    close(routine(device[:, ::2])[0].to_host(), expected("add", host[:, ::2], "float64", (0, 2)))
    assert all(len(plan.first) == 1 and plan.final is not None for plan in routine._plans._plans.values())


@pytest.mark.parametrize(
    "operation, dtype", [("add", "float32"), ("maximum", "float32"), ("mul", "float64"), ("xor", "int8")]
)
def test_rows_of_any_length(context, rng, operation, dtype):
    """The last vector of a row overlaps the one before."""
    acc = accumulator(operation, dtype)
    routine = Reduction(
        context, operation, dtype, acc, dtype if operation != "add" else "float32", 2, (1,), schedule="cpu"
    )
    host = rng.integers(-4, 5, (9, 700)).astype(dtype)
    array = context.from_host(host)
    for length in (1, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 100, 129, 333):
        for view in (array[:, 1 : 1 + length], array[:, 2 + 2 * length : 2 : -2]):
            part = view.to_host()
            close(routine(view)[0].to_host(), expected(operation, part, acc, (1,)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_columns_of_any_width(context, rng, dtype):
    """The last vector overlaps the one before; rows that follow one another are read one by one, others eight at a time."""
    routine = Reduction(context, "add", dtype, "float64", dtype, 2, (0,), schedule="cpu")
    for rows, width in itertools.product((1, 9, 40), (15, 16, 17, 63, 65, 130, 1025, 2047, 2049)):
        host = values(rng, (rows, width + 400), dtype)
        array = context.from_host(host)
        views = array[:, :width], array[::-1, 3 : 3 + width], context.from_host(host[:, :width])
        for view in views:
            part = view.to_host()
            close(routine(view)[0].to_host(), np.add.reduce(part, axis=0, dtype="float64").astype(dtype))


@pytest.mark.parametrize("operation, dtype", [("maximum", "float64"), ("xor", "int8")])
def test_narrow_rows_are_folded(context, rng, operation, dtype):
    """Several rows are one, and those that are left are reduced with the results."""
    acc = accumulator(operation, dtype)
    routine = Reduction(context, operation, dtype, acc, acc, 2, (0,), schedule="cpu")
    for rows, width in ((40_009, 3), (7_000, 10), (70_001, 1), (1701, 40), (2101, 33)):
        host = values(rng, (rows, width), dtype)
        for view in (lambda x: x, lambda x: x[::-1]):
            close(routine(view(context.from_host(host)))[0].to_host(), expected(operation, view(host), acc, (0,)))
    steps = [len(plan.first) + (plan.final is not None) for plan in routine._plans._plans.values()]
    assert steps[0] == 3 and all(n > 1 for n in steps[4:])
    routine = Reduction(context, "add", "float32", "float64", "float32", 2, (0,), schedule="cpu", has_fp64=False)
    host = values(rng, (40_009, 3), "float32")
    close(routine(context.from_host(host))[0].to_host(), expected("add", host, "float64", (0,)).astype("float32"))


@pytest.mark.parametrize("operation, dtype", [("add", "float32"), ("maximum", "float64"), ("xor", "int8")])
@pytest.mark.parametrize("axes", [(0, 2), (0, 1, 3), (1, 3)])
def test_the_outermost_dimension_is_reduced_first(context, rng, operation, dtype, axes):
    """The others are one dense row, in which short runs alternate."""
    acc = accumulator(operation, dtype)
    routine = Reduction(context, operation, dtype, acc, acc, 4, axes, schedule="cpu")
    shapes = ((40, 30, 9, 7), (300, 5, 11, 8), (20, 3, 70, 20), (17, 2, 3, 900))
    for shape in shapes:
        host = values(rng, shape, dtype)
        for view in (lambda x: x, lambda x: x[::-1], lambda x: x[:, 1:]):
            close(routine(view(context.from_host(host)))[0].to_host(), expected(operation, view(host), acc, axes))
    steps = [len(plan.first) + (plan.final is not None) for plan in routine._plans._plans.values()]
    assert steps[:3] == ([2, 2, 1] if 0 in axes else [1, 1, 1])
    if operation == "add":
        routine = Reduction(context, "add", dtype, "float64", dtype, 4, axes, schedule="cpu", has_fp64=False)
        host = values(rng, shapes[0], dtype)
        close(routine(context.from_host(host))[0].to_host(), expected("add", host, "float64", axes).astype(dtype))


@pytest.mark.parametrize("operation, dtype", [("add", "float32"), ("maximum", "float64")])
def test_short_rows(context, rng, operation, dtype):
    """A vector of results at a time."""
    acc = accumulator(operation, dtype)
    routine = Reduction(context, operation, dtype, acc, dtype, 3, (1, 2), schedule="cpu")
    for shape in ((101, 1, 3), (37, 2, 5), (1030, 1, 16), (41, 3, 5), (2100, 1, 2)):
        host = values(rng, shape, dtype)
        device = context.from_host(host)
        for view in (lambda x: x, lambda x: x[::-1, :, ::-1], lambda x: x[..., 1:]):
            want = expected(operation, view(host), acc, (1, 2)).astype(dtype)
            close(routine(view(device))[0].to_host(), want)
    assert any(variant.pattern == "short" for variant, _ in routine._single_pass.kernels)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4), (0, 0), (2, 0, 3)])
def test_nothing_to_reduce(context, schedule, shape):
    host = np.empty(shape, "float32")
    device = context.from_host(host)
    for axes in subsets(len(shape)):
        for operation in ("add", "mul"):
            routine = Reduction(
                context, operation, "float32", "float64", "float32", len(shape), axes, schedule=schedule
            )
            close(routine(device)[0].to_host(), expected(operation, host, "float32", axes))
        routine = Reduction(context, "maximum", "float32", "float32", "float32", len(shape), axes)
        try:
            want = np.maximum.reduce(host, axis=axes)
        except ValueError as error:
            with pytest.raises(ValueError) as caught:
                routine.layout(device.layout)
            assert str(caught.value) == str(error)
        else:
            assert routine.layout(device.layout)[0].shape == want.shape


def test_nothing_is_and_identity(context, schedule):
    routine = Reduction(context, "and", "int32", "int32", "int32", 2, (0,), schedule=schedule)
    (got,) = routine(context.from_host(np.empty((0, 3), "int32")))
    np.testing.assert_array_equal(got.to_host(), [-1, -1, -1])


@pytest.mark.parametrize("axes", [(0,), (1,)])
@pytest.mark.parametrize("operation", ["maximum", "minimum"])
def test_extrema_propagate_nan(context, rng, schedule, operation, axes):
    routine = Reduction(context, operation, "float32", "float32", "float32", 2, axes, schedule=schedule)
    host = rng.standard_normal((150, 150)).astype("float32")
    host[rng.integers(0, 150, 40), rng.integers(0, 150, 40)] = np.nan
    host[3], host[:, 4], host[7, 9] = np.inf, -np.inf, np.nan
    np.testing.assert_array_equal(
        routine(context.from_host(host))[0].to_host(), UFUNCS[operation].reduce(host, axis=axes)
    )


def test_sums_of_infinities(context, schedule):
    inf, nan = np.inf, np.nan
    host = np.array([[1, inf, 2], [inf, -inf, 1], [nan, 1, 2], [-inf, -inf, 1]], "float32")
    for has_fp64 in (True, False):
        routine = Reduction(
            context, "add", "float32", "float64", "float32", 2, (1,), schedule=schedule, has_fp64=has_fp64
        )
        np.testing.assert_array_equal(routine(context.from_host(host))[0].to_host(), [inf, nan, nan, -inf])


@pytest.mark.parametrize("shape, axes", [((1 << 22,), None), ((1 << 20, 4), (0,)), ((1 << 16, 64), (0,))])
def test_long_float32_sum_is_accurate(context, rng, schedule, shape, axes):
    host = rng.random(shape, dtype="float32")
    routine = Reduction(context, "add", "float32", "float32", "float32", len(shape), axes, schedule=schedule)
    want = host.sum(axis=axes, dtype="float64")
    np.testing.assert_allclose(routine(context.from_host(host))[0].to_host(), want, rtol=3e-6)


@pytest.mark.parametrize("shape, axes", [((1 << 20,), None), ((1 << 16, 20), (0,)), ((50, 3000), (1,))])
def test_sum_without_double_precision_is_compensated(context, rng, schedule, shape, axes):
    routine = Reduction(
        context, "add", "float32", "float64", "float32", len(shape), axes, schedule=schedule, has_fp64=False
    )
    assert not any("double" in source.source for source in routine.sources())
    host = (rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)).astype("float32")
    got = routine(context.from_host(host))[0].to_host()
    want = host.sum(axis=axes, dtype="float64")
    # Nothing but the rounding of the result, however much cancels.
    bound = np.abs(host).sum(axis=axes, dtype="float64") * 1e-12 + np.abs(want) * 2.0**-24
    assert np.all(np.abs(got - want) <= bound)


def test_product_without_double_precision_is_compensated(context, rng, schedule):
    routine = Reduction(context, "mul", "float32", "float64", "float32", 2, (1,), schedule=schedule, has_fp64=False)
    host = rng.uniform(0.9, 1.1, (9, 4000)).astype("float32")
    want = host.prod(axis=1, dtype="float64")
    np.testing.assert_allclose(routine(context.from_host(host))[0].to_host(), want, rtol=2.0**-23)


def test_storage_and_accumulator_differ(context, rng, schedule):
    for in_dtype, acc_dtype, out_dtype in [
        ("bool", "int64", "int64"),
        ("int8", "int64", "float32"),
        ("int32", "int32", "int64"),
        ("float32", "float64", "float64"),
        ("int32", "bool", "bool"),
        ("float32", "float32", "bool"),
    ]:
        host = values(rng, (20, 70), in_dtype)
        routine = Reduction(context, "add", in_dtype, acc_dtype, out_dtype, 2, (1,), schedule=schedule)
        want = np.add.reduce(host.astype(acc_dtype), axis=1, dtype=acc_dtype).astype(out_dtype)
        close(routine(context.from_host(host))[0].to_host(), want)


def test_output_of_any_strides(context, rng, schedule):
    host = values(rng, (20, 30, 40), "float32")
    device = context.from_host(host)
    for axes, shape in [((0,), (30, 40)), ((1,), (20, 40)), ((2,), (20, 30))]:
        routine = Reduction(context, "add", "float32", "float64", "float32", 3, axes, schedule=schedule)
        base = context.from_host(np.zeros((2 * shape[1], shape[0]), "float32"))
        out = base.T[::-1, ::2]
        routine.launch((out,), (device,))
        close(out.to_host(), host.sum(axis=axes, dtype="float64").astype("float32"))
        assert not base.to_host()[1::2].any()


@pytest.mark.parametrize("group", [1, 2, 64])
def test_work_group_sizes(context, rng, group):
    host = values(rng, (33, 1030), "float32")
    for axes in [(0,), (1,), (0, 1)]:
        routine = Reduction(context, "add", "float32", "float64", "float64", 2, axes, schedule="simt", group=group)
        close(routine(context.from_host(host))[0].to_host(), host.sum(axis=axes, dtype="float64"))


def test_long_indices_on_simt(context, rng, monkeypatch):
    monkeypatch.setattr(reduction_plan, "fits_int", lambda problem: False)
    host = values(rng, (3, 50, 60), "float32")
    for axes in [(0, 2), (1,)]:
        routine = Reduction(context, "add", "float32", "float64", "float64", 3, axes, schedule="simt")
        (got,) = routine(context.from_host(host)[:, ::-1])
        close(got.to_host(), host[:, ::-1].sum(axis=axes, dtype="float64"))


LOADS = 32 * 4 * 4  # elements that 32 work-items of a GPU load at once


@pytest.mark.parametrize("dtype", ["float32", "bool", "int64", "float64", "complex64"])
def test_vectors_along_rows_on_gpus(context, rng, dtype):
    lanes = reduction_plan.simt_lanes(dtype)
    acc = {"bool": "int64", "float32": "float64"}.get(dtype, dtype)
    for length in (lanes, 2 * lanes, 128, LOADS - lanes, LOADS, LOADS + lanes, LOADS + 1, 1000, 4 * LOADS + lanes):
        routine = Reduction(context, "add", dtype, acc, acc, 2, (1,), schedule="simt")
        host = values(rng, (9, length), dtype)
        close(routine(context.from_host(host))[0].to_host(), host.sum(axis=1, dtype=acc))
        ((variant, _),) = routine._single_pass.kernels
        assert variant.along and variant.lanes == (1 if length % lanes else lanes)


@pytest.mark.parametrize("operation, acc", [("add", "float64"), ("maximum", "float32"), ("add", "float32")])
def test_rows_of_gpus_that_begin_anywhere(context, rng, operation, acc):
    for has_fp64 in (True, False) if acc == "float64" else (True,):
        routine = Reduction(context, operation, "float32", acc, "float32", 2, (1,), schedule="simt", has_fp64=has_fp64)
        host = values(rng, (9, 1024), "float32")
        whole = context.from_host(host)
        found = routine._single_pass.kernels
        for lanes, view in (
            (4, lambda x: x),
            (4, lambda x: x[::2, 4:1000]),
            (1, lambda x: x[:, 1:1001]),
            (1, lambda x: x[:, :1001]),
            (1, lambda x: x[:, ::2]),
        ):
            close(routine(view(whole))[0].to_host(), expected(operation, view(host), acc, (1,)).astype("float32"))
            assert any(variant.lanes == lanes for variant, _ in found)
        assert {variant.lanes for variant, _ in found} == {1, 4}


def test_chunks_of_vectors_on_gpus(context, rng):
    for shape, axes in (((400_004,), (0,)), ((3, 100_000), (1,)), ((3, 100_004), (1,))):
        routine = Reduction(context, "add", "float32", "float32", "float32", len(shape), axes, schedule="simt")
        host = rng.integers(0, 5, shape).astype("float32")
        close(routine(context.from_host(host))[0].to_host(), host.sum(axis=axes, dtype="float64"))
        assert {variant.lanes for variant, _ in routine._partial_pass.kernels} == {4}
        assert {variant.lanes for variant, _ in routine._final_pass.kernels} == {1}


def test_work_items_along_rows():
    def threads(rows, length, lanes=4):
        problem = reduction_plan.normal_form((rows, length), (length, 1), (1,), {1})
        return reduction_plan.split_simt(problem, 132, 256, may_split=False, lanes=lanes).threads_per_output

    assert threads(64_000, 1000) == 32
    assert threads(64_000, 1001, lanes=1) == 32
    assert threads(64_000, 32) == 8
    assert threads(64_000, 8) == 2
    assert threads(2000, 1000) == 128  # few rows: all units are busy
    assert threads(1, 1 << 20) == 256


def test_scalar_input(context, schedule):
    routine = Reduction(context, "add", "float32", "float64", "float32", 0, schedule=schedule)
    assert routine(np.float32(1.5))[0].to_host() == 1.5


def test_contiguous_inputs_need_only_the_sources(context, rng, schedule):
    for shape, axes in [((70_000,), (0,)), ((700, 900), (1,)), ((900, 700), (0,)), ((8, 90, 70), (1,))]:
        dtypes = ("float32",) * 3
        routine = Reduction(context, "mul", *dtypes, len(shape), axes, schedule=schedule)
        names = {source.name for source in routine.sources()}
        routine(context.from_host(np.ones(shape, "float32")))
        stages = (routine._single_pass, routine._partial_pass, routine._final_pass)
        assert {k.handle.function_name for stage in stages for k in stage.kernels.values()} <= names


def test_misuse(context):
    with pytest.raises(np.exceptions.AxisError):
        Reduction(context, "add", "float32", "float32", "float32", 2, (2,))
    with pytest.raises(ValueError, match="repeated"):
        Reduction(context, "add", "float32", "float32", "float32", 2, (0, -2))
    with pytest.raises(UnsupportedDtype, match="bool and integers"):
        Reduction(context, "and", "float32", "float32", "float32", 2)
    with pytest.raises(UnsupportedDtype, match="double precision"):
        Reduction(context, "add", "float64", "float64", "float64", 2, has_fp64=False)
    with pytest.raises(ValueError, match="dimensions"):
        Reduction(context, "add", "float32", "float32", "float32", 2).layout(Layout.contiguous((3,)))


COMPLEX = {"add": np.sum, "mul": np.prod, "mul_without_zeros": lambda x, axis: np.prod(np.where(x == 0, 1, x), axis)}


PAIRS = {"add": ("complex64", "complex128"), "mul": ("complex128",) * 2, "mul_without_zeros": ("complex64",) * 2}
WAYS = [*itertools.product(SCHEDULES, ((0,), (1,), (0, 1)))]


@sweep(("schedule", "axes"), WAYS, WAYS[3::2])
def test_complex_numbers(context, rng, schedule, axes):
    cases = [(name, *pair) for name, pair in PAIRS.items()]
    routines = [Reduction(context, n, t, acc, t, 2, axes, schedule=schedule) for n, t, acc in cases]
    context.build(source for routine in routines for source in routine.sources())
    for (name, dtype, _), routine in zip(cases, routines, strict=True):
        for shape in ((37, 53), (1, 19), (170, 3)):
            host = (rng.uniform(0.9, 1.1, shape) * np.exp(1j * rng.normal(size=shape))).astype(dtype)
            host[1::3, :2] = 0 if name == "mul_without_zeros" else host[1::3, :2]
            tolerance = 1e-5 if dtype == "complex64" else 1e-13
            for view in (host, host[::-1, ::-2])[: 2 if name == "add" else 1]:  # each order of axes is another kernel
                got = routine(context.from_host(host)[::-1, ::-2] if view is not host else context.from_host(host))[0]
                want = COMPLEX[name](view.astype("complex128"), axes)
                np.testing.assert_allclose(got.to_host(), want, rtol=tolerance, atol=tolerance * 60)


@pytest.mark.parametrize("operation", ["add", "mul", "maximum"])
def test_halves(context, rng, schedule, operation):
    host = rng.uniform(0.5, 2, (90, 40)).astype("float16")
    kind, half = {"schedule": schedule}, ("float16",) * 3
    for axes, kind["has_fp64"] in (((0,), None), ((1,), False), ((0, 1), None), ((0, 1), False)):
        routine = Reduction(context, operation, *half, 2, axes, **kind)
        want = expected(operation, host.astype("float64"), "float64", axes)
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(routine(context.from_host(host))[0].to_host(), want.astype("float16"), rtol=2e-3)
