"""Reductions of rows of work-items: kernels/common/workgroup.mako."""

import numpy as np
import pytest
from mako.template import Template

from pytensor_cl.codegen.template import _lookup, render
from pytensor_cl.runtime.features.probe import Device

KERNEL = """
<%namespace name="workgroup" file="/common/workgroup.mako"/>
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void rows(__global const float *x, __global float *o, const int threads)
{
    ${workgroup.row_scratch("float", "scratch", group)}
    const int item = get_local_id(0), slots = ${group} / threads;
    const int lane = ${"item % threads" if along else "item / slots"};
    const int slot = ${"item / threads" if along else "item % slots"};
    float value = x[get_global_id(0)];
    for (int turn = 0; turn < 2; ++turn) {
        ${workgroup.row_reduce("value", "float", [("", "float32")], "2 * {a} + {b}", group, along=along,
            stride="1" if along else "slots")}
        ${workgroup.row_reduce("value", "float", [("", "float32")], "max({a}, {b})", group, along=along, phase=1,
            stride="1" if along else "slots")}
    }
    o[get_global_id(0)] = value;
}
"""


def _text(group, along):
    shuffles = render("common/warp_shuffle", dtype="float32")
    return shuffles + Template(KERNEL, lookup=_lookup(), strict_undefined=True).render(group=group, along=along)


def _combined(values, heads):
    """Reduce the last axis in the order of the kernel: `heads` work-items first, then their results."""
    count = values.shape[-1]
    parts = [values[..., k] for k in range(heads)]
    for k in range(heads, count):
        parts[k % heads] = 2 * parts[k % heads] + values[..., k]
    total = parts[0]
    for part in parts[1:]:
        total = 2 * total + part
    return total


@pytest.mark.parametrize("along", [True, False])
@pytest.mark.parametrize("group", [1, 8, 64, 256])
def test_rows_of_all_lengths(context, rng, group, along):
    device = Device(context.device)
    kernel = device.kernel(_text(group, along), "rows")
    x = rng.integers(0, 3, 2 * group).astype("float32")
    threads = 1
    while threads <= group:
        target = device.buffer(np.zeros_like(x))
        device.run(kernel, 2 * group, group, device.buffer(x), target, np.int32(threads))
        values = x.reshape((2, -1, threads)) if along else x.reshape((2, threads, -1)).swapaxes(1, 2)
        heads = 1 << ((threads.bit_length() - 1) // 2)
        for _ in range(2):
            values = np.broadcast_to(_combined(values, heads)[..., None], values.shape)
        wanted = values if along else values.swapaxes(1, 2)
        np.testing.assert_array_equal(device.read(target, x), wanted.ravel())
        threads *= 2


def test_shuffles_are_behind_their_option():
    for group, along, has in ((64, True, True), (64, False, False), (16, True, False)):
        text = _text(group, along)
        kernel = text[text.index("__kernel") :]
        assert ("warp_down_float" in kernel) == has
        before, found, _ = kernel.partition("warp_down_float")
        assert not found or before.rindex("#ifdef WARP_SHUFFLES") > before.rfind("#endif")
