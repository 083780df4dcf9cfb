"""Places of the elements that are not zero, and what masks select and set, against NumPy."""

from itertools import product

import numpy as np
import pytest

from pytensor_cl.routines.nonzero import Expand, Flatnonzero, Nonzero, Select

SCHEDULES = ("cpu", "simt")
DTYPES = ("bool", "int16", "float16", "float32", "float64", "complex64", "complex128")
SHAPES = ((0,), (1,), (131,), (3, 0), (17, 33), (2, 5, 40))


def values(rng, shape, dtype, density=0.4):
    """Zeros, some of them negative, and values that are not zero, some of them no numbers."""
    chosen = rng.random(shape) < density
    if np.dtype(dtype).kind not in "fc":
        return (chosen * rng.integers(1, 100, shape)).astype(dtype)
    result = np.where(chosen, rng.choice([np.nan, np.inf, 1e-7, -3.0], shape), -0.0).astype(dtype)
    return (
        np.where(rng.random(shape) < 0.5, result * 1j, result).astype(dtype) if np.dtype(dtype).kind == "c" else result
    )


def check(got, wanted):
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(g), w, strict=True)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_dtypes(context, rng, schedule):
    routines = [(d, Nonzero(context, d, 2, schedule), Flatnonzero(context, d, 2, schedule)) for d in DTYPES]
    context.build(source for _, *both in routines for routine in both for source in routine.sources())
    for (dtype, nonzero, flat), density in product(routines, (0, 0.4, 1)):
        host = values(rng, (23, 90), dtype, density)
        array = context.from_host(host)
        check(nonzero(array), np.nonzero(host))
        check(flat(array), (np.flatnonzero(host),))
        check(nonzero(array[::-1, 1::2]), np.nonzero(host[::-1, 1::2]))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_shapes_and_strides(context, rng, schedule, ndim):
    nonzero = Nonzero(context, "int32", ndim, schedule)
    select, expand = (
        Select(context, "int32", ndim, schedule),
        Expand(context, "int32", ndim, accumulate=False, value_dtype="int32", value_ndim=1, schedule=schedule),
    )
    for shape in (s for s in SHAPES if len(s) == ndim):
        host = values(rng, shape, "int32")
        mask = rng.random(shape) < 0.5
        array, chosen = context.from_host(host), context.from_host(mask)
        new = np.arange(mask.sum(), dtype="int32")
        wanted = host.T[::-1].copy()
        wanted[mask.T[::-1]] = new
        check(nonzero(array.T), np.nonzero(host.T))
        check(select(array, chosen), (host[mask],))
        check(select(array.T[::-1], chosen.T), (host.T[::-1][mask.T],))
        check(expand(array.T[::-1], context.from_host(new), chosen.T[::-1]), (wanted,))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("density", [0, 0.001, 0.03, 0.5, 0.995, 1])
def test_many_elements(context, rng, schedule, density):
    mask = rng.random(70_001) < density
    x = rng.integers(0, 99, mask.size).astype("uint8")
    device, chosen = context.from_host(x), context.from_host(mask)
    check(Nonzero(context, "bool", 1, schedule)(chosen), np.nonzero(mask))
    check(Select(context, "uint8", 1, schedule)(device, chosen), (x[mask],))
    kinds = {"value_dtype": "uint8", "value_ndim": 1, "schedule": schedule}
    y = np.arange(mask.sum()).astype("uint8")
    for accumulate in (False, True):
        wanted = x.copy()
        wanted[mask] = y + x[mask] * accumulate
        expand = Expand(context, "uint8", 1, accumulate=accumulate, **kinds)
        check(expand(device, context.from_host(y), chosen), (wanted,))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_repeated_arrays(context, schedule):
    mask = context.from_host(np.array([[True], [False], [True]]))
    x = context.from_host(np.float32(3))
    many, one = mask.with_layout(mask.layout.broadcast_to((3, 40))), x.with_layout(x.layout.broadcast_to((3, 40)))
    host = np.broadcast_to([[True], [False], [True]], (3, 40))
    check(Nonzero(context, "bool", 2, schedule)(many), np.nonzero(host))
    check(Select(context, "float32", 2, schedule)(one, many), (np.full(80, 3, "float32"),))
    kinds = {"value_dtype": "int8", "value_ndim": 0, "schedule": schedule}
    expand = Expand(context, "float32", 2, accumulate=True, **kinds)
    check(expand(one, np.int8(4), many), (np.where(host, 7, 3).astype("float32"),))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", ["bool", "float16", "complex128"])
def test_select_and_expand_dtypes(context, rng, schedule, dtype):
    x = rng.integers(0, 2 if dtype == "bool" else 50, (9, 31)).astype(dtype)
    mask = rng.random(x.shape) < 0.5
    y = rng.integers(0, 2 if dtype == "bool" else 50, mask.sum()).astype(dtype)
    device = [context.from_host(a) for a in (x, y, mask)]
    check(Select(context, dtype, 2, schedule)(device[0], device[2]), (x[mask],))
    for accumulate in filter(lambda a: Expand.takes(dtype, a), (False, True)):
        kinds = {"value_dtype": dtype, "value_ndim": 1, "schedule": schedule}
        wanted = x.copy()
        wanted[mask] = x[mask] + y if accumulate else y
        check(Expand(context, dtype, 2, accumulate=accumulate, **kinds)(*device), (wanted,))


def test_what_does_not_fit(context):
    x, mask = context.from_host(np.zeros((3, 4), "float32")), context.from_host(np.ones((3, 4), "bool"))
    with pytest.raises(IndexError, match="did not match indexed array along axis 1"):
        Select(context, "float32", 2)(x[:, :3], mask)
    expand = Expand(context, "float32", 2, accumulate=False, value_dtype="float32", value_ndim=1)
    with pytest.raises(IndexError, match="did not match"):
        expand(x[:1], x[0], mask)
    with pytest.raises(ValueError, match="could not be broadcast to indexing result of shape"):
        expand(x, x[0], mask)
