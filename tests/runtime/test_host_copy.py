"""Copies of host arrays by the device."""

import numpy as np
import pytensor.tensor as pt

from pytensor_cl.linker.run import host_steps
from pytensor_cl.runtime.host_copy import copy_by_device
from tests.helpers import host_ops, opencl

VIEWS = {
    "c": lambda a: a,
    "transposed": lambda a: a.T,
    "permuted": lambda a: a.transpose(1, 2, 0),
    "unaligned": lambda a: a.reshape(-1)[1:-2],
    "with an axis of one": lambda a: a[:, None],
}


def _steps(array):
    return [s for s, n in zip(array.strides, array.shape, strict=True) if n > 1]


def test_as_numpy_copies(context, rng):
    for dtype in ("float32", "float64", "complex64", "int16", "bool"):
        base = (9 * rng.normal(size=(40, 50, 60))).astype(dtype)
        for name, view in VIEWS.items():
            source = view(base)
            got, wanted = copy_by_device(source), source.copy("K")
            if not context.mappings.are_supported():
                assert got is None
                continue
            assert got is not None, (dtype, name)
            np.testing.assert_array_equal(got, source)
            assert (got.dtype, _steps(got), got.flags.writeable) == (wanted.dtype, _steps(wanted), True)
            assert not np.shares_memory(got, source)


def test_arrays_with_gaps_are_for_numpy(context, rng):
    base = rng.normal(size=(40, 50, 60))
    assert copy_by_device(base[:, ::2]) is None
    assert copy_by_device(base[::-1]) is None
    assert copy_by_device(np.broadcast_to(base[0], (30, 50, 60))) is None
    assert copy_by_device(base[:0]) is None


def test_the_result_of_a_function_is_its_callers(context, rng, monkeypatch):
    calls = []

    def counted(array):
        calls.append(array.shape)
        return copy_by_device(array)

    monkeypatch.setattr(host_steps, "LARGE", 1 << 16)
    monkeypatch.setattr(host_steps, "copy_by_device", counted)
    x = pt.dmatrix()
    f = opencl([x], x.T)
    assert len(host_ops(f)) == 2  # the view, and its copy
    value = rng.normal(size=(100, 200))
    kept = [f(value) for _ in range(host_steps.HOST_COPIES + 3)]
    assert len(calls) == 3
    kept[-1][:] = 0
    for result in kept[:-1]:
        np.testing.assert_array_equal(result, value.T)
