"""Convolutions whose elements go through a function before they are stored, on every driver, with both schedules."""

import numpy as np
import pytest

from pytensor_cl.routines.conv import col2im, im2col, winograd, winograd_simt
from pytensor_cl.routines.conv.epilogue import ConvEpilogue
from pytensor_cl.routines.conv.routine import ConvForward, ConvGradInput
from pytensor_cl.routines.elemwise.epilogue import Epilogue
from pytensor_cl.runtime.layout import Layout
from tests.routines.conv.test_conv import CASES, FOLDED, ONE, POINTWISE, UNFOLDED, WINOGRAD, Reference, close, draw
from tests.routines.elemwise.test_epilogue import Function

BIAS, WHOLE, NUMBER = (True, False, True, True), (False,) * 4, (True,) * 4
_cache = {}


@pytest.fixture
def make(context, schedule):
    """Make a routine whose kernels are built once in the whole session; `known` is that of the further arrays."""

    def get(kind, dtype, known, outputs=None, further=None, **parameters):
        further = further or (dtype,) * len(known)
        key = (context.name, schedule, dtype, known, outputs, further)
        if key not in _cache:
            function = Function(dtype, further, outputs or (dtype,))
            flags = ((False,) * 4, *known)
            _cache[key] = ConvEpilogue(context, Epilogue(context, function, flags, schedule), schedule), {}
        epilogue, kernels = _cache[key]
        routine = kind(context, dtype, 2, schedule=schedule, epilogue=epilogue, **parameters)
        routine.engine._kernels = kernels
        return routine

    return get


def further_shapes(known, shape):
    return [tuple(1 if one else n for one, n in zip(flags, shape, strict=True)) for flags in known]


def check(make, context, rng, shape, kernel, known=(BIAS, WHOLE), dtype="float32", **parameters):
    """Compare a convolution and its gradient for x with NumPy; return the engines."""
    full = {"strides": (1, 1), "dilation": (1, 1), "groups": 1, "padding": ((0, 0),) * 2, "flip": False} | parameters
    x, w = draw(rng, dtype, *shape), draw(rng, dtype, *kernel)
    reference = Reference(x, w, **full)
    y = reference.forward()
    dy = draw(rng, dtype, *y.shape)
    engines = []
    for kind, arrays, lengths, expected in (
        (ConvForward, (x, w), (), y),
        (ConvGradInput, (w, dy), (shape[2:],), reference.grad_input(dy)),
    ):
        routine = make(kind, dtype, known, **full)
        further = [draw(rng, dtype, *s) for s in further_shapes(known, expected.shape)]
        (got,) = routine(*map(context.from_host, arrays), *lengths, *map(context.from_host, further))
        close(got, expected + sum(further), dtype)
        engines.append(routine.engine)
    return engines


def stores(engine):
    return all(plan.stores for plan in engine._plans._plans.values())


@pytest.mark.parametrize("case", ["same", "strided pointwise", "strided", "large kernel", "groups", "dilated"])
def test_products(context, make, rng, case):
    shape, kernel, parameters = CASES[case]
    forward, _ = check(make, context, rng, shape, kernel, **parameters)
    assert stores(forward) or case in ("groups", "dilated")  # which are small


@pytest.mark.parametrize("case", ["odd sizes", "groups", "many filters"])
def test_winograd(context, make, rng, monkeypatch, case):
    monkeypatch.setattr(winograd, "is_profitable", lambda problem: True)
    monkeypatch.setattr(winograd_simt, "is_profitable", lambda problem, units, itemsize: True)
    shape, kernel, parameters = WINOGRAD[case]
    engines = check(make, context, rng, shape, kernel, **parameters)
    assert all(map(stores, engines)) and all(engine.methods == {"winograd"} for engine in engines)


@pytest.mark.parametrize("limit", [0, 1 << 30], ids=["transformed", "fused"])
def test_winograd_of_any_number_of_tiles(context, make, rng, monkeypatch, limit):
    monkeypatch.setattr(winograd, "is_profitable", lambda problem: True)
    monkeypatch.setattr(winograd, "WINOGRAD_FEW_TILES", limit)
    shape, kernel, parameters = WINOGRAD["odd sizes"]
    check(make, context, rng, shape, kernel, **parameters)


@pytest.mark.parametrize("case", ["edges", "edges of a batch", "strided", "groups"])
def test_unfolded(context, make, rng, monkeypatch, schedule, case):
    monkeypatch.setitem(context.tuning, "conv.part", 1 << 20)
    shape, kernel, parameters = UNFOLDED[case]
    for limits in (
        {},
        {"IM2COL_MAX_COLUMNS": 32, "IM2COL_MIN_COLUMNS": 32, "IM2COL_MAX_DEPTH": 32, "IM2COL_MIN_DEPTH": 16},
    ):
        for name, limit in limits.items():
            monkeypatch.setattr(im2col, name, limit)
        assert stores(check(make, context, rng, shape, kernel, **parameters)[0]) or schedule == "simt"


@pytest.mark.parametrize("case", ["strided", "dilated", "groups", "one tap in place"])
def test_folded(context, make, rng, monkeypatch, schedule, case):
    for name in ("COL2IM_MIN_STRIDED_TERMS", "COL2IM_MIN_TERMS"):
        monkeypatch.setattr(col2im, name, 1)
    shape, kernel, parameters = FOLDED[case]
    assert stores(check(make, context, rng, shape, kernel, **parameters)[1]) or schedule == "simt"


@pytest.mark.parametrize("case", ["large images", "groups"])
def test_pointwise(context, make, rng, schedule, case):
    shape, kernel, parameters = POINTWISE[case]
    assert stores(check(make, context, rng, shape, kernel, **parameters)[0]) or schedule == "simt"


@pytest.mark.parametrize("known", [(), (NUMBER, WHOLE, BIAS, WHOLE)], ids=len)
def test_further_arrays(context, make, rng, known):
    check(make, context, rng, (2, 9, 9, 21), (13, 9, 3, 3), known, padding=ONE, strides=(2, 1))


def test_double_precision(context, make, rng):
    check(make, context, rng, (2, 9, 9, 21), (13, 9, 3, 3), dtype="float64", padding=ONE)


@pytest.mark.parametrize("case", ["depthwise", "depthwise with a multiplier", "large kernel"])
def test_what_other_variants_compute(context, make, rng, case):
    shape, kernel, parameters = CASES[case]
    check(make, context, rng, shape, kernel, **parameters)


@pytest.mark.parametrize(
    "shapes", [((0, 3, 8, 8), (9, 3, 3, 3)), ((2, 0, 8, 8), (9, 0, 3, 3)), ((2, 3, 2, 8), (9, 3, 3, 3))], ids=str
)
def test_empty(context, make, rng, shapes):
    check(make, context, rng, *shapes)


def test_sums_in_parts(context, make, rng):
    check(make, context, rng, (1, 3000, 2, 2), (9, 3000, 2, 2))


def test_sums_in_blocks(context, make, rng, schedule):
    (forward, _) = check(make, context, rng, (2, 130, 12, 12), (40, 130, 3, 3), strides=(2, 2))
    assert stores(forward) or schedule == "simt"


def test_other_dtypes_and_several_outputs(context, make, rng):
    x, w, b = draw(rng, "float32", 2, 9, 8, 12), draw(rng, "float32", 10, 9, 3, 3), draw(rng, "float64", 1, 10, 1, 1)
    routine = make(ConvForward, "float32", (BIAS,), ("float32", "bool"), ("float64",), padding=ONE)
    sums, positive = routine(*map(context.from_host, (x, w, b)))
    expected = Reference(x, w, (1, 1), (1, 1), 1, ONE, False).forward() + b
    close(sums, expected, "float32")
    sure = abs(expected) > 1e-3
    np.testing.assert_array_equal(np.asarray(positive)[sure], (expected > 0)[sure])


def test_any_strides(context, make, rng):
    x, w = draw(rng, "float32", 2, 9, 8, 12), draw(rng, "float32", 10, 9, 3, 3)
    b, r = draw(rng, "float32", 1, 1, 20, 1), draw(rng, "float32", 12, 8, 10, 2)
    bias, whole = context.from_host(b), context.from_host(r).T
    bias = bias.with_layout(bias.layout.transpose((0, 2, 1, 3)))[:, ::-2]
    expected = Reference(x, w, (1, 1), (1, 1), 1, ONE, False).forward() + b.transpose(0, 2, 1, 3)[:, ::-2] + r.T
    arrays = (context.from_host(x), context.from_host(w), bias, whole)
    routine = make(ConvForward, "float32", (BIAS, WHOLE), padding=ONE)
    close(routine(*arrays)[0], expected, "float32")
    out = context.from_host(np.full((12, 8, 10, 4), 7, "float32"))
    view = out.with_layout(out.layout.transpose((3, 2, 1, 0)))[::2]
    routine.launch((view,), arrays)
    close(view, expected, "float32")
    assert np.all(np.asarray(out)[..., 1::2] == 7)


def test_shapes_that_do_not_fit(context, make):
    routine = make(ConvForward, "float32", (WHOLE,))
    x, w = Layout.contiguous((2, 3, 8, 8)), Layout.contiguous((9, 3, 3, 3))
    with pytest.raises(ValueError):
        routine.layout(x, w, Layout.contiguous((2, 9, 6, 5)))
