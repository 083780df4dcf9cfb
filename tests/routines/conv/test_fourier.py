"""Convolutions by Fourier transforms against sums over taps, with both schedules, and when they are chosen."""

import numpy as np
import pytest

from pytensor_cl.routines.conv import fourier
from pytensor_cl.routines.conv.plan import Geometry, Window, forward, grad_weight, simplify
from pytensor_cl.routines.conv.routine import ConvForward, ConvGradInput, ConvGradWeight, Convolve
from pytensor_cl.runtime.layout import Layout
from tests.routines.conv.test_conv import check

ONE = ((1, 1), (1, 1))
CASES = {
    "same": ((2, 5, 20, 37), (6, 5, 7, 9), {"padding": ((3, 3), (4, 4))}),
    "whole images": ((3, 2, 11, 9), (3, 2, 9, 8), {"padding": ((8, 8), (7, 7)), "flip": True}),
    "many tiles": ((1, 2, 70, 61), (2, 2, 5, 3), {"padding": ((2, 0), (1, 3))}),
    "one dimension": ((2, 3, 400), (5, 3, 33), {"padding": ((40, 1),)}),
    "three dimensions": ((2, 2, 9, 8, 12), (3, 2, 4, 5, 3), {"padding": ((1, 0), *ONE), "flip": True}),
    "groups": ((2, 6, 19, 18), (10, 3, 6, 7), {"groups": 2, "padding": ONE}),
    "depthwise": ((2, 3, 12, 70), (3, 1, 9, 11), {"groups": 3, "padding": ONE}),
    "one row of taps": ((2, 3, 6, 90), (4, 3, 1, 20), {}),
    "one column of taps": ((2, 3, 40, 7), (4, 3, 20, 1), {"padding": ((5, 5), (0, 0))}),
    "strided": ((2, 3, 31, 30), (4, 3, 8, 7), {"strides": (2, 2)}),
    "padding beyond the kernel": ((1, 2, 12, 13), (2, 2, 5, 4), {"padding": ((9, 6), (4, 5))}),
}


@pytest.fixture
def always(monkeypatch):
    """Fourier transforms are chosen wherever they are possible; returns the tiles of what was planned."""
    planned = []
    plan = fourier.Fourier.plan

    def spy(self, p, span):
        planned.append(fourier.best_tilings(p, self.dtype.itemsize))
        return plan(self, p, span)

    monkeypatch.setattr(fourier.Fourier, "plan", spy)
    possible = lambda p, itemsize, rate: fourier.best_tilings(p, itemsize) is not None  # noqa: E731
    monkeypatch.setattr(fourier, "is_profitable", possible)
    return planned


@pytest.fixture
def make(context, schedule):
    """Make a routine of a schedule."""
    return lambda kind, dtype, *args, **parameters: kind(context, dtype, *args, schedule=schedule, **parameters)


@pytest.mark.parametrize("case", CASES)
def test_cases(context, make, rng, always, case):
    """The convolution and both gradients; with a stride, the gradient for x alone goes through transforms."""
    shape, kernel, parameters = CASES[case]
    check(make, context, rng, "float32", shape, kernel, **parameters)
    assert len(always) == (4 if "strides" in parameters else 3)


def test_double_precision(context, make, rng, always):
    shape, kernel, parameters = CASES["same"]
    check(make, context, rng, "float64", shape, kernel, **parameters)
    assert len(always) == 3


@pytest.mark.parametrize("place", ["reversed", "transposed", "sliced"])
def test_any_strides(context, make, rng, always, place):
    shape, kernel, parameters = CASES["groups"]
    check(make, context, rng, "float32", shape, kernel, place, **parameters)
    assert len(always) == 3


def test_tiles_of_both_kinds(context, make, rng, always):
    """Long signals are cut into tiles of positions, and in the gradient for w into tiles of taps."""
    check(make, context, rng, "float32", (2, 2, 4200), (3, 2, 20), padding=((7, 8),))
    assert [tiles.cuts_taps for tiles in always] == [False, False, True]
    assert all(tiles.number > 1 for tiles in always)


def test_parts(context, make, rng, always, monkeypatch):
    """The memory of the spectra is bounded: one image, and one channel of y, at a time."""
    monkeypatch.setattr(fourier, "FOURIER_CHUNK_BYTES", 1)
    monkeypatch.setattr(fourier, "FOURIER_FILTER_BYTES", 20_000)
    shape, kernel, parameters = CASES["groups"]
    check(make, context, rng, "float32", shape, kernel, **parameters)
    routine = make(ConvForward, "float32", 2, **parameters)
    x, w = map(Layout.contiguous, (shape, kernel))
    step = routine.engine._fourier.plan(simplify(routine.problems(x, w, *routine.layout(x, w))[0]), ())
    plan = step.args[0]
    assert plan.images == (0, 1, 2)
    assert len(plan.channels) > 2


def test_signals(context, make, rng, always):
    """Convolutions in the sense of NumPy, and one that is to be direct."""
    x, w = rng.standard_normal(500), rng.standard_normal(90)
    arguments = context.from_host(x), context.from_host(w)
    (y,) = make(Convolve, "float64", 1)(*arguments, True)
    np.testing.assert_allclose(np.asarray(y), np.convolve(x, w), atol=1e-11)
    assert len(always) == 1
    make(Convolve, "float64", 1, direct=True)(*arguments, True)
    assert len(always) == 1


def test_values_beside_the_operands_are_not_read(context, make, rng, always):
    around = np.full((4, 5, 22, 24), np.nan, "float32")
    x, w = rng.standard_normal((2, 3, 19, 20)).astype("float32"), np.ones((4, 3, 6, 7), "float32")
    around[1:3, 1:4, 2:21, 3:23] = x
    view = context.from_host(around)[1:3, 1:4, 2:21, 3:23]
    routine = make(ConvForward, "float32", 2)
    (y,), (expected,) = routine(view, context.from_host(w)), routine(context.from_host(x), context.from_host(w))
    np.testing.assert_array_equal(np.asarray(y), np.asarray(expected))


def problem(shape, kernel, strides=1, dilation=1, padding=0, kind=forward):
    """Return a simplified problem of contiguous arrays."""
    where = Geometry(
        tuple(Window(strides, dilation, padding, padding) for _ in shape[2:]), shape[1] // kernel[1], False
    )
    out = where.positions(shape[2:], kernel[2:])
    x, w, y = map(Layout.contiguous, (shape, kernel, (shape[0], kernel[0], *out)))
    return simplify(kind(where, x, w, y) if kind is forward else kind(where, x, y, w))


LARGE = {
    "1-d, 65 taps": ((16, 16, 4096), (16, 16, 65)),
    "1-d, one channel, 4097 taps": ((1, 1, 100_000), (1, 1, 4097)),
    "2-d, 11 x 11 taps": ((16, 16, 64, 64), (16, 16, 11, 11)),
    "2-d, 65 x 65 taps": ((4, 16, 256, 256), (16, 16, 65, 65)),
    "depthwise, 31 x 31 taps": ((16, 32, 64, 64), (32, 1, 31, 31)),
    "3-d, 7 x 7 x 7 taps": ((2, 8, 32, 32, 32), (8, 8, 7, 7, 7)),
}
SMALL = {
    "3 x 3 taps": ((64, 64, 56, 56), (64, 64, 3, 3)),
    "5 x 5 taps, few channels": ((64, 6, 14, 14), (16, 6, 5, 5)),
    "1-d, 17 taps, one channel": ((64, 1, 1024), (1, 1, 17)),
    "one output": ((64, 3, 40, 40), (10, 3, 40, 40)),
}


@pytest.mark.parametrize("case", [*LARGE, *SMALL])
def test_large_kernels_go_through_transforms(context, case):
    """The method follows from the shapes; the gradients of the large ones go the same way."""
    shape, kernel = {**LARGE, **SMALL}[case]
    engine = ConvForward(context, "float32", len(shape) - 2, schedule="cpu").engine
    for kind in (forward, grad_weight):
        assert (engine.method(problem(shape, kernel, kind=kind)).name == "fourier") == (case in LARGE)


def test_strides_and_dilation_are_refused():
    shape, kernel = LARGE["2-d, 65 x 65 taps"]
    assert fourier.best_tilings(problem(shape, kernel), 4)
    assert fourier.best_tilings(problem(shape, kernel, strides=2), 4) is None
    assert fourier.best_tilings(problem(shape, kernel, dilation=2), 4) is None


def test_memory_is_bounded():
    """One channel of y and one image must fit into the limits."""
    p = problem((1, 64, 256, 256), (64, 64, 65, 65))
    filters, image = fourier._bytes(p, fourier.best_tilings(p, 4), 4)
    assert filters <= 64 * fourier.FOURIER_FILTER_BYTES and image <= fourier.FOURIER_IMAGE_BYTES
    assert fourier.best_tilings(problem((1, 1 << 14, 256, 256), (1, 1 << 14, 65, 65)), 4) is None


@pytest.mark.parametrize("kind", [ConvForward, ConvGradInput, ConvGradWeight])
def test_rounding_errors(context, rng, kind):
    """In float32 errors are below 1e-4 of the largest result; they are chosen without being forced to."""
    shape, kernel, where = (2, 8, 64, 64), (8, 8, 33, 33), {"padding": ((16, 16),) * 2}
    draws = {n: rng.standard_normal(s) for n, s in (("x", shape), ("w", kernel), ("dy", shape))}
    names, extents = {
        ConvForward: ("xw", ()),
        ConvGradInput: (("w", "dy"), (shape[2:],)),
        ConvGradWeight: (("x", "dy"), (kernel[2:],)),
    }[kind]
    results = []
    for dtype in ("float32", "float64"):
        arrays = [context.from_host(draws[n].astype(dtype)) for n in names]
        (y,) = kind(context, dtype, 2, schedule="cpu", **where)(*arrays, *extents)
        results.append(np.asarray(y))
    assert np.abs(results[0] - results[1]).max() < 1e-5 * np.abs(results[1]).max()
