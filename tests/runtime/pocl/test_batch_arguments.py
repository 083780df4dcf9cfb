"""All kernels of a repeated call in one launch."""

import ctypes

import numpy as np
import pytest

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.launch_capture import Launch
from pytensor_cl.runtime.layout import Layout

_SOURCE = """
typedef struct { char a; long b; float16 v; int n[3]; } all_kinds_s;
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void all_kinds(__global double *out, const char c, const double16 d, const all_kinds_s s, __global const float *none,
               const uchar3 u, const float16 f)
{
    const long i = get_global_id(0), j = get_global_id(1), k = get_global_id(2);
    const double number = none ? -1 : c + d.s3 + 2 * d.sf + s.a + s.b + s.v.sf + s.n[2] + u.z + f.sf;
    out[i + get_global_size(0) * (j + get_global_size(1) * k)] = number + 1000 * i + 10000 * j + 100000 * k;
}
"""
_STRUCT = np.dtype(
    {
        "names": ["a", "b", "v", "n"],
        "formats": ["i1", "i8", ("f4", 16), ("i4", 3)],
        "offsets": [0, 8, 64, 128],
        "itemsize": 192,
    }
)


@pytest.fixture(autouse=True)
def _only_where_chains_are(context):
    if context.batch_launcher is None:
        pytest.skip("kernels are launched one by one")


def test_arguments_of_all_kinds(context):
    kernel, shape = context.kernel(KernelSource("all_kinds", _SOURCE, ())), (3, 5, 2)
    struct = np.zeros((), _STRUCT)
    struct["a"], struct["b"], struct["v"][15], struct["n"][2] = 3, 5, 7, 11
    values = np.int8(-4), np.arange(16.0).tobytes(), struct.tobytes()
    more = np.uint8([1, 2, 9, 0]).tobytes(), np.arange(16, dtype="float32").tobytes()
    out = context.empty((30,), "float64")
    arguments = out.buffer, *values, None, *more
    kernel.launch(context.queue, shape, (1, 1, 1), *arguments)
    k, j, i = np.mgrid[:2, :5, :3]
    expected = (-4 + 3 + 30 + 3 + 5 + 7 + 11 + 9 + 15 + 1000 * i + 10000 * j + 100000 * k).ravel()
    np.testing.assert_array_equal(context.download(out), expected)
    launch = Launch(kernel.handle, shape, (1, 1, 1), arguments)
    builder = context.batch_launcher.begin([launch], True)
    assert context._hooks.build_variants.access_modes["all_kinds"] == "wvvvrvv"
    kernels, outs = [builder.add(launch) for _ in range(3)], [context.empty((30,), "float64") for _ in range(3)]
    for kernel, array in zip(kernels, outs, strict=True):
        kernel.bind(0, array.buffer)
        kernel.bind(4, None)
    batch = builder.finish(kernels, [-1, 0, -1])
    for _ in range(6):
        batch.submit((), [array.buffer for array in outs])
    for array in outs:
        np.testing.assert_array_equal(context.download(array), expected)


@pytest.mark.parametrize("value", [np.float32(3), np.float32([[1, 2], [3, 4]]).T, np.float32([1, 2, 3, 4])[::-2]])
def test_a_staged_copy_has_the_address_of_its_buffer(context, value):
    array = context.stage(value)
    assert isinstance(array, GpuArray)
    assert array.layout == Layout.contiguous(np.shape(value))
    _others = [np.full((), 7, "float32") for _ in range(20)]
    there = (ctypes.c_char * value.nbytes).from_address(array.buffer.address)
    np.testing.assert_array_equal(np.frombuffer(there, "float32").reshape(np.shape(value)), value)
    np.testing.assert_array_equal(context.download(array), value)
