"""Convolutions and their gradients against NumPy, on every driver, with both schedules."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from pytensor_cl.errors import UnsupportedDtype
from pytensor_cl.routines.conv import col2im, grad_weights, im2col, schedule_simt, winograd_simt
from pytensor_cl.routines.conv import winograd as conv_winograd
from pytensor_cl.routines.conv.launch import FusedGradient
from pytensor_cl.routines.conv.method import Method
from pytensor_cl.routines.conv.plan import simplify
from pytensor_cl.routines.conv.routine import ConvForward, ConvGradInput, ConvGradWeight, Convolve
from pytensor_cl.routines.conv.winograd_transforms import transforms
from pytensor_cl.runtime.layout import Layout

_kernels = {}


@pytest.fixture
def make(context, schedule):
    """Make a routine whose kernels are built once in the whole session."""

    def get(kind, dtype, *args, **parameters):
        routine = kind(context, dtype, *args, schedule=schedule, **parameters)
        engine = routine.engine
        engine._kernels = _kernels.setdefault((context.name, schedule, dtype), engine._kernels)
        return routine

    return get


class Reference:
    """A convolution by the sum over taps, in float64, and its gradients by the transposes of the same slices."""

    def __init__(self, x, w, strides, dilation, groups, padding, flip):
        self.x, self.w, self.groups, self.flip = x.astype("float64"), w.astype("float64"), groups, flip
        self.padding = [(0, 0), (0, 0), *padding]
        self.padded = np.pad(self.x, self.padding)
        spans = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilation, strict=True)]
        rooms = zip(self.padded.shape[2:], spans, strides, strict=True)
        self.out = tuple(max(0, (n - span) // s + 1) if n >= span else 0 for n, span, s in rooms)
        self.steps = list(zip(self.out, strides, dilation, strict=True))

    def each(self):
        """For each group and tap: channels of x and of y, index of w, and the slices of the padded x."""
        if 0 in self.out:
            return
        c, m = self.w.shape[1], self.w.shape[0] // self.groups
        for g, tap in product(range(self.groups), product(*map(range, self.w.shape[2:]))):
            at = tuple(slice(t * d, t * d + (n - 1) * s + 1, s) for t, (n, s, d) in zip(tap, self.steps, strict=True))
            kernel = tuple(k - 1 - t for k, t in zip(self.w.shape[2:], tap, strict=True)) if self.flip else tap
            filters = slice(g * m, (g + 1) * m)
            yield filters, (filters, slice(None), *kernel), (slice(None), slice(g * c, (g + 1) * c), *at)

    def forward(self):
        y = np.zeros((self.x.shape[0], self.w.shape[0], *self.out))
        for filters, kernel, at in self.each():
            y[:, filters] += np.einsum("nc...,oc->no...", self.padded[at], self.w[kernel])
        return y

    def grad_input(self, dy):
        dx = np.zeros_like(self.padded)
        for filters, kernel, at in self.each():
            dx[at] += np.einsum("no...,oc->nc...", dy[:, filters].astype("float64"), self.w[kernel])
        return dx[tuple(slice(b, b + n) for (b, _), n in zip(self.padding, self.x.shape, strict=True))]

    def grad_weight(self, dy):
        dw = np.zeros_like(self.w)
        for filters, kernel, at in self.each():
            flat = (a.reshape(*a.shape[:2], np.prod(self.out)) for a in (dy[:, filters], self.padded[at]))
            dw[kernel] = np.einsum("nox,ncx->oc", *flat)
        return dw


PLACEMENTS = {
    "rows": lambda context, x: context.from_host(x),
    "reversed": lambda context, x: context.from_host(x[..., ::-1])[..., ::-1],
    "transposed": lambda context, x: context.from_host(np.ascontiguousarray(x.T)).T,
    "sliced": lambda context, x: context.from_host(np.repeat(np.repeat(x, 2, -1), 3, 1))[:, 1::3, ..., 1::2],
}


def close(got, expected, dtype):
    got = np.asarray(got)
    assert (got.dtype, got.shape) == (dtype, expected.shape)
    tolerance = {"float32": 1e-4, "float64": 1e-11}.get(dtype, 0)
    assert np.abs(got - expected).max(initial=0) <= tolerance * max(1, np.abs(expected).max(initial=0))


def draw(rng, dtype, *shape):
    return (rng.standard_normal(shape) * (1 if dtype.startswith("float") else 5)).astype(dtype)


def check(make, context, rng, dtype, shape, kernel, place="rows", **parameters):
    """Compare a convolution and both gradients; `kernel` is the shape of w."""
    ndim = len(kernel) - 2
    full = {"strides": (1,) * ndim, "dilation": (1,) * ndim, "groups": 1, "padding": ((0, 0),) * ndim, "flip": False}
    full |= parameters
    x, w = draw(rng, dtype, *shape), draw(rng, dtype, *kernel)
    reference = Reference(x, w, **full)
    y = reference.forward()
    dy = draw(rng, dtype, *y.shape)
    dx, dw, ddy = (PLACEMENTS[place](context, a) for a in (x, w, dy))
    close(make(ConvForward, dtype, ndim, **full)(dx, dw)[0], y, dtype)
    close(make(ConvGradInput, dtype, ndim, **full)(dw, ddy, shape[2:])[0], reference.grad_input(dy), dtype)
    close(make(ConvGradWeight, dtype, ndim, **full)(dx, ddy, kernel[2:])[0], reference.grad_weight(dy), dtype)


ONE = ((1, 1), (1, 1))
CASES = {
    "same": ((2, 5, 20, 37), (13, 5, 3, 3), {"padding": ONE}),
    "pointwise": ((3, 20, 7, 7), (30, 20, 1, 1), {}),
    "strided pointwise": ((2, 20, 9, 8), (24, 20, 1, 1), {"strides": (2, 2)}),
    "strided": ((2, 4, 21, 40), (17, 4, 3, 3), {"strides": (2, 2), "padding": ONE}),
    "deep": ((1, 130, 6, 5), (12, 130, 3, 3), {"padding": ONE, "flip": True}),
    "large kernel": ((1, 3, 30, 35), (20, 3, 7, 7), {"strides": (2, 3), "padding": ((3, 2), (0, 3))}),
    "dilated": ((1, 3, 20, 20), (9, 3, 3, 2), {"dilation": (2, 3), "padding": ((2, 0), (1, 3)), "flip": True}),
    "strided and dilated": ((2, 3, 20, 21), (9, 3, 3, 4), {"dilation": (2, 3), "strides": (4, 2)}),
    "groups": ((2, 12, 9, 18), (18, 4, 3, 3), {"groups": 3, "padding": ONE}),
    "depthwise": ((2, 6, 12, 70), (6, 1, 3, 3), {"groups": 6, "padding": ONE}),
    "depthwise with a multiplier": ((1, 3, 10, 20), (6, 1, 3, 5), {"groups": 3, "strides": (2, 2), "padding": ONE}),
    "kernel as large as the input": ((2, 9, 6, 5), (11, 9, 6, 5), {}),
    "one dimension": ((2, 4, 90), (10, 4, 5), {"strides": (3,), "padding": ((4, 1),)}),
    "three dimensions": (
        (1, 3, 5, 6, 9),
        (9, 3, 2, 3, 3),
        {"strides": (1, 2, 1), "padding": ((1, 0), *ONE), "flip": True},
    ),
    "stride beyond the kernel": ((1, 2, 9, 11), (9, 2, 2, 1), {"strides": (3, 4)}),
    "long sums": ((1, 3, 61, 64), (9, 3, 3, 3), {"padding": ONE}),
    "image of one position": ((20, 9, 1, 1), (10, 9, 1, 1), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_cases(context, make, rng, case):
    shape, kernel, parameters = CASES[case]
    check(make, context, rng, "float32", shape, kernel, **parameters)


POINTWISE = {
    "large images": ((2, 10, 24, 25), (13, 10, 1, 1), {}),
    "groups": ((2, 24, 23, 29), (30, 8, 1, 1), {"groups": 3, "flip": True}),
    "one dimension": ((3, 9, 600), (14, 9, 1), {}),
    "a product on GPUs": ((3, 9, 8, 16), (14, 9, 1, 1), {}),
    "less than one": ((3, 9, 127), (14, 9, 1), {}),
}


@pytest.mark.parametrize("case", POINTWISE)
def test_pointwise(context, make, rng, schedule, case):
    shape, kernel, parameters = POINTWISE[case]
    check(make, context, rng, "float32", shape, kernel, **parameters)
    routine = make(ConvForward, "float32", len(shape) - 2, **parameters)
    x, w = Layout.contiguous(shape), Layout.contiguous(kernel)
    problem = simplify(routine.problems(x, w, *routine.layout(x, w))[0])
    least = {"cpu": 512, "simt": 128}[schedule]
    assert (routine.engine.method(problem).name == "pointwise") == (problem.columns // shape[0] >= least)


def test_pointwise_of_any_strides(context, make, rng):
    for place in PLACEMENTS:
        check(make, context, rng, "float32", (2, 10, 24, 25), (13, 10, 1, 1), place)


LARGE = {
    "same": ((2, 10, 20, 37), (40, 10, 3, 3), {"padding": ONE}),
    "many channels": ((3, 18, 19, 19), (150, 18, 3, 2), {"strides": (2, 2), "padding": ONE}),
    "strided and dilated": ((1, 20, 30, 41), (18, 20, 3, 4), {"dilation": (2, 3), "strides": (4, 2)}),
    "large kernel": ((1, 17, 30, 35), (20, 17, 7, 7), {"strides": (2, 3), "padding": ((3, 2), (0, 3)), "flip": True}),
    "groups": ((2, 51, 9, 18), (54, 17, 3, 3), {"groups": 3, "padding": ONE}),
    "pointwise": ((5, 20, 7, 7), (30, 20, 1, 1), {}),
    "one dimension": ((2, 20, 190), (30, 20, 5), {"strides": (3,), "padding": ((4, 1),)}),
    "three dimensions": ((1, 20, 5, 6, 9), (17, 20, 2, 3, 3), {"padding": ((1, 0), *ONE), "flip": True}),
    "long sums": ((1, 17, 61, 64), (19, 17, 3, 3), {"padding": ONE}),
}


@pytest.fixture
def few_units(monkeypatch):
    """Small problems have tiles enough for all compute units."""
    tile_of = schedule_simt.tile_of
    few = lambda p, info, dtype: tile_of(p, replace(info, compute_units=1), dtype)  # noqa: E731
    monkeypatch.setattr(schedule_simt, "tile_of", few)


@pytest.mark.parametrize("case", LARGE)
def test_large_tiles(context, make, rng, schedule, few_units, case):
    shape, kernel, parameters = LARGE[case]
    check(make, context, rng, "float32", shape, kernel, **parameters)
    routine = make(ConvForward, "float32", len(shape) - 2, **parameters)
    x, w = Layout.contiguous(shape), Layout.contiguous(kernel)
    problem = simplify(routine.problems(x, w, *routine.layout(x, w))[0])
    method = routine.engine.method(problem)
    if schedule == "cpu":
        assert method.name != "simt"
    else:
        assert method.parameters[0].template == "conv/simt_double_buffered"


FEW = {
    "depthwise": ((2, 9, 12, 17), (9, 1, 3, 3), {"groups": 9, "padding": ONE, "strides": (2, 1)}),
    "seven channels": ((1, 10, 9, 14), (14, 5, 2, 4), {"groups": 2, "dilation": (2, 1), "flip": True}),
    "three dimensions": ((1, 3, 5, 6, 9), (4, 3, 2, 3, 3), {"padding": ((1, 0), *ONE)}),
}


@pytest.mark.parametrize("case", FEW)
def test_few_channels(context, make, rng, schedule, case):
    shape, kernel, parameters = FEW[case]
    for place in ("rows", "sliced") if len(shape) == 4 else ("rows",):
        check(make, context, rng, "float32", shape, kernel, place, **parameters)
    routine = make(ConvForward, "float32", len(shape) - 2, **parameters)
    x, w = Layout.contiguous(shape), Layout.contiguous(kernel)
    problem = simplify(routine.problems(x, w, *routine.layout(x, w))[0])
    assert (routine.engine.method(problem).name == "small_m") == (schedule == "simt" and problem.m < 8)


def test_large_tiles_of_any_strides(context, make, rng, few_units):
    shape, kernel, parameters = LARGE["same"]
    for place in PLACEMENTS:
        check(make, context, rng, "float32", shape, kernel, place, **parameters)


def test_large_tiles_do_not_read_beyond_the_sums(context, make, rng, few_units):
    """What is beside the operands is not a number."""
    around = np.full((4, 30, 12, 14), np.nan, "float32")
    filters = np.full((22, 30, 4, 4), np.nan, "float32")
    x, w = draw(rng, "float32", 2, 19, 9, 11), draw(rng, "float32", 20, 19, 3, 3)
    around[1:3, 5:24, 1:10, 1:12], filters[1:21, 5:24, :3, 1:] = x, w
    views = context.from_host(around)[1:3, 5:24, 1:10, 1:12], context.from_host(filters)[1:21, 5:24, :3, 1:]
    reference = Reference(x, w, (1, 1), (1, 1), 1, ONE, False)
    close(make(ConvForward, "float32", 2, padding=ONE)(*views)[0], reference.forward(), "float32")


def test_tiles_suit_the_problem(context):
    info = replace(context.info, compute_units=100, max_work_group_size=256, local_memory=32768)
    wanted = {
        ((32, 128, 28, 28), (128, 128, 3, 3)): ("conv/simt_double_buffered", 128, 1),
        ((32, 64, 56, 56), (64, 64, 3, 3)): ("conv/simt_double_buffered", 64, 1),
        ((16, 512, 14, 14), (512, 512, 3, 3)): ("conv/simt_double_buffered", 128, 2),
        ((1, 256, 14, 14), (256, 256, 3, 3)): ("conv/simt_double_buffered", 128, 18),
        ((1, 512, 7, 7), (512, 512, 3, 3)): ("conv/simt_double_buffered", 128, 36),
        ((1, 512, 4, 4), (512, 512, 3, 3)): ("conv/simt", 64, 18),
        ((1, 20, 20, 20), (20, 20, 3, 3)): ("conv/simt", 64, 1),
    }
    routine = ConvForward(context, "float32", 2, padding=ONE, schedule="simt")
    for (shape, kernel), (template, rows, parts) in wanted.items():
        x, w = Layout.contiguous(shape), Layout.contiguous(kernel)
        p = simplify(routine.problems(x, w, *routine.layout(x, w))[0])
        tile = schedule_simt.tile_of(p, info, np.dtype("float32"))
        assert (tile.template, tile.rows, tile.split_k(p, 100, {"conv.groups_per_unit": 4, "conv.simt_part": 16})) == (
            template,
            rows,
            parts,
        )
        for less in (replace(info, local_memory=16384), replace(info, max_work_group_size=128)):
            assert schedule_simt.tile_of(p, less, np.dtype("float32")).template == "conv/simt"
        assert schedule_simt.tile_of(p, info, np.dtype("float64")).template == "conv/simt"
        apart = p._replace(x=(p.x[0], p.x[1], 1 << 31))
        assert schedule_simt.tile_of(apart, info, np.dtype("float32")).template == "conv/simt"


UNFOLDED = {
    "edges": ((1, 16, 7, 7), (29, 16, 3, 3), {"padding": ONE}),
    "edges of a batch": ((3, 32, 5, 6), (17, 32, 1, 1), {}),
    "little but kernels": ((1, 130, 5, 3), (100, 130, 1, 1), {}),
    "strided": ((2, 10, 21, 40), (17, 10, 3, 3), {"strides": (2, 2), "padding": ONE}),
    "stride of three": ((2, 7, 9, 50), (12, 7, 2, 4), {"strides": (1, 3), "padding": ((1, 0), (2, 3))}),
    "dilated": ((1, 9, 20, 23), (11, 9, 3, 2), {"dilation": (2, 3), "padding": ((2, 0), (1, 3))}),
    "groups": ((2, 30, 9, 18), (33, 10, 5, 3), {"groups": 3, "padding": ONE}),
    "three dimensions": ((1, 6, 5, 6, 9), (9, 6, 2, 3, 3), {"strides": (1, 2, 1), "padding": ((1, 0), *ONE)}),
    "much padding": ((1, 8, 2, 3), (16, 8, 3, 3), {"padding": ((4, 5), (6, 3))}),
}


@pytest.mark.parametrize("case", UNFOLDED)
def test_unfolded(context, make, rng, schedule, monkeypatch, case):
    """Convolutions that read filters in place, with matrices of one block and of several."""
    shape, kernel, parameters = UNFOLDED[case]
    for limits in (
        {},
        {"IM2COL_MAX_COLUMNS": 32, "IM2COL_MIN_COLUMNS": 32, "IM2COL_MAX_DEPTH": 32, "IM2COL_MIN_DEPTH": 16},
    ):
        for name, limit in limits.items():
            monkeypatch.setattr(im2col, name, limit)
        check(make, context, rng, "float32", shape, kernel, **parameters)
    routine = make(ConvForward, "float32", len(shape) - 2, **parameters)
    x, w = Layout.contiguous(shape), Layout.contiguous(kernel)
    problem = simplify(routine.problems(x, w, *routine.layout(x, w))[0])
    assert (routine.engine.method(problem).name == "im2col") == (schedule == "cpu")


def test_unfolded_in_parts(context, make, rng, monkeypatch):
    monkeypatch.setitem(context.tuning, "conv.part", 64)
    check(make, context, rng, "float32", (1, 150, 4, 4), (9, 150, 3, 3), padding=ONE)
    check(make, context, rng, "float64", (1, 150, 5, 5), (9, 150, 3, 3), padding=ONE)


FOLDED = {
    "strided": ((2, 20, 15, 11), (24, 20, 3, 3), {"strides": (2, 2), "padding": ONE}),
    "overlapping blocks": ((1, 35, 4, 3), (17, 35, 3, 3), {"padding": ONE, "flip": True}),
    "dilated": ((1, 17, 23, 20), (18, 17, 3, 4), {"strides": (3, 2), "dilation": (2, 3), "padding": ((2, 4), (0, 3))}),
    "stride of both": ((2, 16, 21, 24), (16, 16, 2, 3), {"strides": (4, 6), "dilation": (2, 4), "flip": True}),
    "groups": ((2, 60, 7, 9), (51, 20, 3, 2), {"groups": 3, "strides": (1, 3), "padding": ONE}),
    "one tap": ((3, 18, 9, 8), (24, 18, 1, 1), {"strides": (2, 2)}),
    "one tap in place": ((2, 70, 5, 7), (40, 70, 1, 1), {}),
    "one dimension": ((2, 16, 90), (20, 16, 5), {"strides": (3,), "padding": ((4, 1),)}),
    "three dimensions": ((1, 16, 5, 6, 9), (16, 16, 2, 3, 3), {"strides": (2, 2, 1), "padding": ((1, 0), *ONE)}),
    "narrow": ((1, 16, 20, 1), (16, 16, 3, 2), {"strides": (2, 2), "padding": ONE}),
}


def is_whole(routine, name, *layouts):
    """Return whether one kernel computes a gradient, from layouts in the order of its problems."""
    plan = routine.engine._plan(routine.problems, FusedGradient(name, routine.convolution), *layouts)
    launches = [step.args[0] for step in plan.steps if step.func == routine.engine._launch]
    return [launch.kernel for launch in launches] == [routine.engine._kernels.get(Method(name))]


@pytest.mark.parametrize("case", FOLDED)
def test_folded(context, make, rng, schedule, monkeypatch, case):
    """Gradients of inputs whose products are added up where they meet, with sums of one block and of several."""
    shape, kernel, parameters = FOLDED[case]
    for name in ("COL2IM_MIN_STRIDED_TERMS", "COL2IM_MIN_TERMS"):
        monkeypatch.setattr(col2im, name, 1)
    check(make, context, rng, "float32", shape, kernel, **parameters)
    monkeypatch.setattr(col2im, "COL2IM_MAX_DEPTH", 10)
    check(make, context, rng, "float64", shape, kernel, **parameters)
    routine, x, w = make(ConvForward, "float32", len(shape) - 2, **parameters), *map(Layout.contiguous, (shape, kernel))
    layouts = *routine.layout(x, w), w, x
    gradient = make(ConvGradInput, "float32", len(shape) - 2, **parameters)
    assert is_whole(gradient, "col2im", *layouts) == (schedule == "cpu")


def test_folded_of_any_strides(context, make, rng, monkeypatch):
    monkeypatch.setattr(col2im, "COL2IM_MIN_STRIDED_TERMS", 1)
    shape, kernel, parameters = FOLDED["strided"]
    for place in PLACEMENTS:
        check(make, context, rng, "float32", shape, kernel, place, **parameters)
    x, w, dy = (draw(rng, "float32", *s) for s in (shape, kernel, (2, 24, 8, 6)))
    out = context.from_host(np.full((11, 2, 40, 15), 7, "float32"))
    view = out.with_layout(out.layout.transpose((1, 2, 3, 0)))[:, 1::2]
    whole = context.from_host(np.concatenate([w, w]))[24:], context.from_host(np.concatenate([dy, dy]))[2:]
    make(ConvGradInput, "float32", 2, **parameters).launch((view,), whole)
    reference = Reference(x, w, (2, 2), (1, 1), 1, ONE, False)
    close(view, reference.grad_input(dy), "float32")
    assert np.all(np.asarray(out)[:, :, ::2] == 7)


WEIGHTS = {
    "strided": ((2, 5, 15, 21), (20, 5, 3, 3), {"strides": (2, 2), "padding": ONE}),
    "small images": ((5, 7, 4, 3), (17, 7, 3, 3), {"padding": ONE, "flip": True}),
    "dilated": ((1, 4, 23, 40), (18, 4, 3, 4), {"strides": (3, 2), "dilation": (2, 3), "padding": ((2, 4), (0, 3))}),
    "groups": ((2, 18, 9, 10), (51, 6, 3, 2), {"groups": 3, "padding": ONE}),
    "one tap in place": ((2, 70, 9, 7), (40, 70, 1, 1), {}),
    "one tap of small images": ((5, 33, 3, 3), (40, 33, 1, 1), {}),
    "three dimensions": ((1, 3, 5, 6, 9), (16, 3, 2, 3, 3), {"strides": (1, 2, 1), "padding": ((1, 0), *ONE)}),
}


@pytest.mark.parametrize("grain", [1 << 40, 1], ids=["one item", "many items"])
@pytest.mark.parametrize("case", WEIGHTS)
def test_weights(context, make, rng, schedule, monkeypatch, case, grain):
    """Gradients of weights from x that is unfolded or in place, some rows and positions at a time."""
    for name, value in {
        "MAX_STEP": 9,
        "MIN_POSITIONS": 1,
        "MAX_ELEMENTS": 1 << 40,
        "IN_PLACE_POSITIONS": 1,
        "BLOCK_POSITIONS": 32,
        "BLOCK_ROWS": 16,
    }.items():
        monkeypatch.setattr(grad_weights, f"GRAD_WEIGHTS_{name}", value)
    monkeypatch.setitem(context.tuning, "conv.grain", grain)
    shape, kernel, parameters = WEIGHTS[case]
    check(make, context, rng, "float32", shape, kernel, **parameters)
    check(make, context, rng, "float64", shape, kernel, **parameters)
    routine, x, w = make(ConvForward, "float32", len(shape) - 2, **parameters), *map(Layout.contiguous, (shape, kernel))
    layouts = x, *routine.layout(x, w), w
    gradient = make(ConvGradWeight, "float32", len(shape) - 2, **parameters)
    assert is_whole(gradient, "grad_weights", *layouts) == (schedule == "cpu")


def test_weights_of_any_strides(context, make, rng, monkeypatch):
    monkeypatch.setattr(grad_weights, "GRAD_WEIGHTS_MIN_POSITIONS", 1)
    shape, kernel, parameters = WEIGHTS["strided"]
    for place in PLACEMENTS:
        check(make, context, rng, "float32", shape, kernel, place, **parameters)
    x, w, dy = (draw(rng, "float32", *s) for s in (shape, kernel, (2, 20, 8, 11)))
    out = context.from_host(np.full((40, 5, 3, 3), 7, "float32"))
    whole = context.from_host(np.concatenate([x, x]))[2:], context.from_host(np.concatenate([dy, dy]))[2:]
    make(ConvGradWeight, "float32", 2, **parameters).launch((out[1::2],), whole)
    close(out[1::2], Reference(x, w, (2, 2), (1, 1), 1, ONE, False).grad_weight(dy), "float32")
    assert np.all(np.asarray(out)[::2] == 7)


WINOGRAD = {
    "one tile": ((2, 20, 4, 4), (9, 20, 3, 3), {"padding": ONE}),
    "one position": ((3, 10, 1, 1), (11, 10, 3, 3), {"padding": ONE}),
    "odd sizes": ((3, 33, 17, 19), (37, 33, 3, 3), {"padding": ((2, 0), (1, 2)), "flip": True}),
    "no padding": ((2, 17, 18, 34), (16, 17, 3, 3), {}),
    "much padding": ((1, 13, 9, 5), (14, 13, 3, 3), {"padding": ((4, 3), (5, 0))}),
    "groups": ((2, 30, 7, 14), (39, 10, 3, 3), {"padding": ONE, "groups": 3}),
    "many filters": ((3, 9, 6, 5), (100, 9, 3, 3), {"padding": ONE, "flip": True}),
}


@pytest.fixture
def winograd(monkeypatch):
    """Take Winograd's algorithm wherever it can be taken."""
    monkeypatch.setattr(conv_winograd, "is_profitable", lambda problem: True)
    for name in ("is_profitable", "is_weights_profitable"):
        monkeypatch.setattr(winograd_simt, name, lambda problem, units, itemsize: True)


def is_winograd(routine, *layouts):
    return all(routine.engine.method(simplify(p)).name == "winograd" for p in routine.problems(*layouts))


@pytest.mark.parametrize("case", WINOGRAD)
def test_winograd(context, make, rng, schedule, winograd, monkeypatch, case):
    shape, kernel, parameters = WINOGRAD[case]
    monkeypatch.setattr(conv_winograd, "WINOGRAD_FEW_TILES", 0)
    check(make, context, rng, "float32", shape, kernel, **parameters)
    routine, x, w = make(ConvForward, "float32", 2, **parameters), Layout.contiguous(shape), Layout.contiguous(kernel)
    (y,) = routine.layout(x, w)
    assert is_winograd(routine, x, w, y)
    assert is_winograd(make(ConvGradInput, "float32", 2, **parameters), y, w, x)
    weights = make(ConvGradWeight, "float32", 2, **parameters)
    (problem,) = weights.problems(x, y, w)
    assert (weights.engine.method(simplify(problem)).name == "winograd_weights") == (schedule == "simt")


@pytest.mark.parametrize("case", WINOGRAD)
def test_winograd_of_few_tiles(context, make, rng, winograd, monkeypatch, case):
    """Filters that are multiplied as soon as they are transformed, some channels at a time."""
    shape, kernel, parameters = WINOGRAD[case]
    monkeypatch.setattr(conv_winograd, "WINOGRAD_FEW_TILES", 1 << 30)
    monkeypatch.setattr(conv_winograd, "WINOGRAD_FUSED_BYTES", 0)
    check(make, context, rng, "float32", shape, kernel, **parameters)


@pytest.mark.parametrize("limits", [(1 << 30, 0, 0), (0, 1 << 16, 0)], ids=["filters", "images"])
def test_winograd_in_blocks(context, make, rng, winograd, monkeypatch, limits):
    monkeypatch.setattr(conv_winograd, "WINOGRAD_FEW_TILES", 0)
    for name, limit in zip(
        ("WINOGRAD_KEPT_BYTES", "WINOGRAD_IMAGE_BYTES", "WINOGRAD_FILTER_BYTES"), limits, strict=True
    ):
        monkeypatch.setattr(conv_winograd, name, limit)
    check(make, context, rng, "float32", (5, 9, 6, 10), (110, 9, 3, 3), padding=ONE)
    check(make, context, rng, "float32", (5, 18, 6, 10), (90, 9, 3, 3), padding=ONE, groups=2)


def test_winograd_in_blocks_on_gpus(context, rng, winograd, monkeypatch):
    """Some images at a time; group by group of the tiles, with few work-groups."""
    monkeypatch.setattr(winograd_simt, "SIMT_WINOGRAD_CHUNK_BYTES", 0)
    monkeypatch.setattr(winograd_simt, "NAIVE_GROUPS_PER_UNIT", 0)
    monkeypatch.setattr(winograd_simt, "SIMT_SPLIT_K_GROUPS_PER_UNIT", 1 << 10)  # parts for gradients for w

    def make(kind, dtype, *args, **parameters):
        return kind(context, dtype, *args, schedule="simt", **parameters)

    check(make, context, rng, "float32", (5, 9, 6, 10), (70, 9, 3, 3), padding=ONE)
    check(make, context, rng, "float32", (2, 18, 30, 31), (20, 9, 3, 3), padding=ONE, groups=2)


def test_winograd_in_double_precision(context, make, rng, winograd):
    check(make, context, rng, "float64", (2, 33, 18, 10), (40, 33, 3, 3), padding=ONE)


def test_winograd_of_any_strides(context, make, rng, winograd):
    for place in PLACEMENTS:
        check(make, context, rng, "float32", (2, 33, 18, 10), (40, 33, 3, 3), place, padding=ONE)
    out = context.from_host(np.full((20, 2, 40, 18), 7, "float32"))
    view = out.with_layout(out.layout.transpose((1, 2, 3, 0)))[..., ::2]
    x, w = draw(rng, "float32", 2, 33, 18, 10), draw(rng, "float32", 40, 33, 3, 3)
    make(ConvForward, "float32", 2, padding=ONE).launch((view,), (context.from_host(x), context.from_host(w)))
    close(view, Reference(x, w, (1, 1), (1, 1), 1, ONE, False).forward(), "float32")
    assert np.all(np.asarray(out)[1::2] == 7)


def test_winograd_is_used_where_it_is_faster(context):
    chosen = {}
    for n, c, image, m in ((1, 256, 14, 256), (16, 64, 56, 64), (1, 512, 7, 512), (4, 8, 56, 32), (4, 256, 14, 8)):
        layouts = [Layout.contiguous(shape) for shape in ((n, c, image, image), (m, c, 3, 3), (n, m, image, image))]
        routine = ConvForward(context, "float32", 2, padding=ONE, schedule="cpu")
        chosen[n, c, image, m] = is_winograd(routine, *layouts)
    assert list(chosen.values()) == [True, True, False, False, False], chosen


@pytest.mark.parametrize(("count", "taps"), [(2, 3), (4, 3), (3, 2), (1, 1)])
def test_transforms_are_exact(rng, count, taps):
    points = [Fraction(n, 2) for n in (0, 1, -1, 3, -3)][: count + taps - 2]
    outputs, filters, inputs = (np.array(m, object) for m in transforms(count, taps, points))
    d, g = rng.integers(-9, 9, count + taps - 1).astype(object), rng.integers(-9, 9, taps).astype(object)
    expected = [sum(g[k] * d[j + k] for k in range(taps)) for j in range(count)]
    assert list(outputs @ ((filters @ g) * (inputs @ d))) == expected


@pytest.mark.parametrize("case", ["strided", "dilated"])
def test_double_precision(context, make, rng, case):
    shape, kernel, parameters = CASES[case]
    check(make, context, rng, "float64", shape, kernel, **parameters)


@pytest.mark.parametrize("case", ["strided", "depthwise with a multiplier"])
def test_integers(context, make, rng, case):
    shape, kernel, parameters = CASES[case]
    check(make, context, rng, "int32", shape, kernel, **parameters)


EMPTY = {
    "no images": ((0, 3, 8, 8), (9, 3, 3, 3)),
    "no filters": ((2, 3, 8, 8), (0, 3, 3, 3)),
    "no channels": ((2, 0, 8, 8), (9, 0, 3, 3)),
    "no positions": ((2, 3, 2, 8), (9, 3, 3, 3)),
    "no pixels": ((2, 3, 0, 8), (9, 3, 3, 3)),
}


@pytest.mark.parametrize("case", EMPTY)
def test_empty(context, make, rng, case):
    check(make, context, rng, "float32", *EMPTY[case])
    check(make, context, rng, "float32", *EMPTY[case], padding=ONE, strides=(2, 2))


@pytest.mark.parametrize("place", PLACEMENTS)
@pytest.mark.parametrize("case", ["strided", "pointwise", "depthwise", "one dimension"])
def test_strides(context, make, rng, case, place):
    shape, kernel, parameters = CASES[case]
    check(make, context, rng, "float32", shape, kernel, place, **parameters)


def test_zero_strides_and_strided_outputs(context, make, rng):
    x, w = draw(rng, "float32", 2, 1, 1, 30), draw(rng, "float32", 12, 9, 3, 3)
    repeated = context.from_host(x)
    repeated = repeated.with_layout(repeated.layout.broadcast_to((2, 9, 10, 30)))
    out = context.from_host(np.full((28, 2, 12, 16), 7, "float32"))
    view = out.with_layout(out.layout.transpose((1, 2, 3, 0)))[:, :, ::2]
    make(ConvForward, "float32", 2).launch((view,), (repeated, context.from_host(w)))
    reference = Reference(np.tile(x, (1, 9, 10, 1)), w, (1, 1), (1, 1), 1, ((0, 0),) * 2, False)
    close(view, reference.forward(), "float32")
    assert np.all(np.asarray(out)[:, :, :, 1::2] == 7)


def test_random(context, make, rng):
    for _ in range(12):
        ndim, groups = int(rng.integers(1, 4)), int(rng.choice([1, 1, 2, 3]))
        most = {1: 60, 2: 20, 3: 8}[ndim]
        shape = (int(rng.integers(1, 3)), groups * int(rng.integers(1, 6)), *map(int, rng.integers(1, most, ndim)))
        kernel = (groups * int(rng.choice([1, 4, 9, 14])), shape[1] // groups, *map(int, rng.integers(1, 5, ndim)))
        parameters = {
            "strides": tuple(map(int, rng.integers(1, 4, ndim))),
            "dilation": tuple(map(int, rng.integers(1, 4, ndim))),
            "padding": tuple((int(b), int(a)) for b, a in rng.integers(0, 4, (ndim, 2))),
            "groups": groups,
            "flip": bool(rng.integers(2)),
        }
        print(shape, kernel, parameters)  # noqa: T201 (for a test that fails)
        check(make, context, rng, "float32", shape, kernel, **parameters)


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_signals(context, make, rng, ndim):
    convolve = make(Convolve, "float32", ndim)
    x, w = draw(rng, "float32", *(3, 7, 150)[-ndim:]), draw(rng, "float32", *(2, 3, 6)[-ndim:])
    plain = {"strides": (1,) * ndim, "dilation": (1,) * ndim, "groups": 1, "flip": True}
    for full in (True, False):
        padding = [(k - 1, k - 1) if full else (0, 0) for k in w.shape]
        expected = Reference(x[None, None], w[None, None], padding=padding, **plain).forward()[0, 0]
        for pair in ((x, w), (w, x)):
            close(convolve(*map(context.from_host, pair), full)[0], expected, "float32")


BATCHES = [
    ((3, 2), (3, 2)),
    ((2,), (3, 2)),
    ((3, 1), (1, 2)),
    ((3, 2, 1), (1, 1, 4)),
    ((0,), (1,)),
    ((2, 1, 3), (1, 4, 1)),
]


@pytest.mark.parametrize("shapes", BATCHES, ids=str)
def test_batches_of_signals(context, make, rng, shapes):
    x, w = draw(rng, "float32", *shapes[0], 20), draw(rng, "float32", *shapes[1], 4)
    convolve = np.vectorize(np.convolve, signature="(n),(k)->(m)", excluded={2})
    batch = np.broadcast_shapes(*shapes)
    for full, mode in ((True, "full"), (False, "valid")):
        length = 23 if full else 17
        expected = convolve(x, w, mode) if 0 not in batch else np.zeros((*batch, length))
        close(make(Convolve, "float32", 1)(context.from_host(x), context.from_host(w), full)[0], expected, "float32")


def test_layouts_that_do_not_fit(context):
    def layout(*shape):
        return Layout.contiguous(shape)

    forward = ConvForward(context, "float32", 2, groups=2)
    for x, w in (
        ((1, 4, 5, 5), (2, 4, 3, 3)),
        ((1, 4, 5, 5), (3, 2, 3, 3)),
        ((1, 4, 5), (2, 2, 3)),
        ((1, 4, 5, 5), (2, 2)),
    ):
        with pytest.raises(ValueError, match="Shape mismatch"):
            forward.layout(layout(*x), layout(*w))
    with pytest.raises(ValueError, match="Shape mismatch"):
        ConvGradInput(context, "float32", 1).layout(layout(2, 3, 3), layout(1, 2, 5), (8,))
    with pytest.raises(ValueError, match="Shape mismatch"):
        ConvGradWeight(context, "float32", 1).layout(layout(1, 3, 9), layout(1, 2, 5), (3,))
    convolve = Convolve(context, "float32", 2)
    with pytest.raises(ValueError, match="valid"):
        convolve.layout(layout(3, 4), layout(4, 3), False)
    with pytest.raises(ValueError, match="empty"):
        Convolve(context, "float32", 1).layout(layout(0), layout(2), True)
    assert convolve.layout(layout(0, 2), layout(3, 4), True)[0].shape == (2, 5)


@pytest.mark.parametrize(
    "parameters",
    [{"strides": (0,)}, {"dilation": (0,)}, {"groups": 0}, {"strides": (1, 1)}, {"padding": ((0, 0),) * 2}],
    ids=str,
)
def test_parameters_that_make_no_sense(context, parameters):
    with pytest.raises(ValueError, match="strides"):
        ConvForward(context, "float32", 1, **parameters)


def test_dtypes_that_are_refused(context):
    for dtype in ("bool", "float16"):
        with pytest.raises(UnsupportedDtype):
            ConvForward(context, dtype, 1)
