"""The methods of convolutions and their partitions, from shapes and facts of a device, without a device."""

from math import prod

import numpy as np
import pytest

from pytensor_cl.routines.conv.method import Elements, Method
from pytensor_cl.routines.conv.plan import Geometry, Window, forward, grad_input, grad_weight, simplify
from pytensor_cl.routines.conv.schedule_cpu import CpuSchedule
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.tuning import DEFAULTS

UNITS = 8
ONE = (1, 1)


def schedule(dtype="float32", register_bytes=64, units=UNITS):
    dtype = np.dtype(dtype)
    return CpuSchedule(dtype, register_bytes, register_bytes // dtype.itemsize, units, DEFAULTS)


def geometry(strides=ONE, padding=(0, 0), groups=1):
    return Geometry(tuple(Window(s, 1, p, p) for s, p in zip(strides, padding, strict=True)), groups, False)


def layouts(shape, kernel, where):
    positions = where.positions(shape[2:], kernel[2:])
    return tuple(map(Layout.contiguous, (shape, kernel, (shape[0], kernel[0], *positions))))


FORWARD = {
    "winograd": ((8, 64, 56, 56), (64, 64, 3, 3), {"padding": ONE}, ()),
    "pointwise": ((8, 64, 56, 56), (64, 64, 1, 1), {}, ()),
    "im2col": ((8, 64, 56, 56), (64, 64, 3, 3), {"strides": (2, 2), "padding": ONE}, ()),
    "depthwise": ((8, 64, 56, 56), (64, 1, 3, 3), {"groups": 64}, (4, 4)),
    "direct": ((8, 64, 56, 56), (3, 64, 5, 5), {}, (4, 4)),
    "dot": ((1, 16, 40, 40), (2, 16, 40, 40), {}, (1,)),
}


@pytest.mark.parametrize("name", FORWARD)
def test_methods(name):
    shape, kernel, parameters, wanted = FORWARD[name]
    where = geometry(**parameters)
    p = simplify(forward(where, *layouts(shape, kernel, where)))
    assert schedule().method(p) == Method(name, wanted)
    assert schedule("int32").method(p) == Method("naive")


@pytest.mark.parametrize("register_bytes, tile", [(64, (12, 2)), (32, (4, 3)), (16, (4, 2))])
def test_filters_that_share_cache_sets_are_packed(register_bytes, tile):
    where = geometry((2, 2))
    p = simplify(forward(where, *layouts((8, 1024, 32, 32), (120, 1024, 1, 1), where)))
    chosen = schedule(register_bytes=register_bytes)
    method = chosen.method(p)
    assert method == Method("implicit_gemm", ("rows", *tile))
    part = chosen.partition(p, method)
    mc, nc, kc, _, each = part.blocks
    assert (each, part.workspace) == (kc * (mc + nc), kc * (mc + nc) * UNITS)
    assert (prod(part.global_size), part.split_k) == (UNITS, 1)


def test_long_sums_are_split():
    where = geometry((2, 2))
    p = simplify(forward(where, *layouts((1, 2048, 5, 5), (16, 2048, 3, 3), where)))
    for units, parts in ((1, 1), (UNITS, 4)):
        part = schedule(units=units).partition(p, Method("im2col"))
        assert (part.split_k, part.global_size[2]) == (parts, parts)
    assert schedule().partition(p, Method("naive")) == Elements(16 * 4, 1)


def test_gradients_in_one_kernel():
    where = geometry((2, 2), ONE)
    x, w, y = layouts((2, 64, 28, 28), (64, 64, 3, 3), where)
    convolution = simplify(forward(where, x, w, y))
    phases = [simplify(p) for p in grad_input(where, w, y, x)]
    blocks = schedule().col2im(phases, convolution)
    assert blocks.channels * blocks.blocks >= 64
    assert schedule("int32").col2im(phases, convolution) is None  # computed element by element
    x, w, y = layouts((8, 64, 28, 28), (64, 64, 3, 3), where)
    convolution = simplify(forward(where, x, w, y))
    problem = simplify(grad_weight(where, x, y, w))
    assert prod(schedule().grad_weights([problem], convolution).grid) == UNITS
    wide = convolution._replace(m=10_000)  # results larger than the cache
    assert schedule().grad_weights([problem], wide) is None
