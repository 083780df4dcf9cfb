"""ARange, Eye, Bartlett and what is built of them, in compiled functions."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

from pytensor_cl.ops.creation import GpuARange, GpuBartlett, GpuEye
from tests.helpers import ALL as SWEEP
from tests.helpers import check_against_python, device_ops, opencl


def check(inputs, outputs, kind, *arguments):
    return check_against_python(inputs, outputs, (kind,), *arguments)


def test_arange(context, rng):
    x, n, step = pt.vector("x", dtype="float32"), pt.lscalar("n"), pt.dscalar("step")
    outputs = [
        pt.exp(x) + pt.arange(n, dtype="float32"),
        x.sum() * pt.arange(n, 0, -2),
        pt.exp(x).sum() + pt.arange(0, n, step, dtype="float64"),
        x.max() + pt.arange(n, dtype="int8"),
    ]
    arguments = [(rng.normal(size=n).astype("float32"), n, step) for n, step in ((40, 0.3), (1, 2.0))]
    check([x, n, step], outputs, GpuARange, *arguments)


def test_arange_of_a_length_from_the_device(context):
    x = pt.matrix("x", dtype="float32")
    y = pt.exp(x).sum() + pt.arange(pt.cast(x.max(), "int64"))
    check([x], [y], GpuARange, (np.full((2, 3), 5, "float32"),), (np.zeros((2, 3), "float32"),))


def test_nothing_is_made_there_for_the_host(context):
    n = pt.lscalar("n")
    f = opencl([n], [pt.arange(n), pt.eye(n, n, 1)])
    assert device_ops(f) == []
    np.testing.assert_array_equal(f(5)[0], np.arange(5))


def test_eye(context, rng):
    x, k = pt.matrix("x", dtype="float32"), pt.lscalar("k")
    n, m = x.shape
    outputs = [pt.exp(x) + pt.eye(n, m, k, dtype="float32"), pt.exp(x).T * pt.eye(m, n, k, dtype="int8")]
    value = rng.normal(size=(4, 7)).astype("float32")
    check([x, k], outputs, GpuEye, (value, 0), (value, 2), (value.T, -3), (value, 99), (value[:1, :1], 0))


def test_triangles(context, rng):
    x, k = pt.matrix("x", dtype="float32"), pt.lscalar("k")
    outputs = [pt.tril(pt.exp(x), k), pt.triu(pt.exp(x), k), pt.exp(x) + pt.tri(x.shape[0], x.shape[1], k)]
    value = rng.normal(size=(4, 7)).astype("float32")
    check([x, k], outputs, GpuARange, (value, 0), (value, 2), (value.T, -3))


WITHOUT_A_LENGTH = {
    (0, 5, 0): OverflowError,
    (5, 0, 0): OverflowError,
    (0, 0, 0): ValueError,
    (0, np.inf, 1): OverflowError,
    (0, np.nan, 1): ValueError,
    (0, 1, 1e-300): OverflowError,
}
"""Start, stop and step of a range, and what PyTensor's C backend raises."""


@pytest.mark.skipif(not SWEEP, reason="compiles by the C compiler")
def test_what_the_c_backend_raises(c_compiler):
    ends, n = pt.dscalars("start", "stop", "step"), pt.lscalar("n")
    mode = Mode("cvm", "fast_run")
    f, g = pytensor.function(ends, pt.arange(*ends), mode=mode), pytensor.function([n], pt.empty((n, 3)), mode=mode)
    for wrong, error in WITHOUT_A_LENGTH.items():
        with pytest.raises(error):
            f(*wrong)
    with pytest.raises(MemoryError):
        g(-1)


@pytest.mark.parametrize("placement", ["auto", "device"])
def test_ranges_without_a_length_raise_what_the_c_backend_raises(context, placement):
    x, ends = pt.dvector("x"), pt.dscalars("start", "stop", "step")
    with pytensor.config.change_flags(opencl__placement=placement):
        f = opencl([x, *ends], [pt.exp(x).sum() + pt.arange(*ends), pt.arange(*ends)])
    if placement == "device":
        assert GpuARange in map(type, device_ops(f))
    value = np.ones(3)
    for wrong, error in WITHOUT_A_LENGTH.items():
        with pytest.raises(error, match="arange"):
            f(value, *wrong)
    np.testing.assert_allclose(f(value, 0, 5, 2)[1], [0, 2, 4])


@pytest.mark.parametrize("placement", ["auto", "device"])
def test_negative_lengths_raise_what_the_cpu_backends_raise(context, placement):
    """PyTensor's C backend raises a MemoryError, the others a ValueError."""
    x, n = pt.dvector("x"), pt.lscalar("n")
    for output in (pt.exp(pt.repeat(x, n)), pt.empty((n, 3)), pt.exp(x)[:, None] * pt.ones((3, n))):
        with pytensor.config.change_flags(opencl__placement=placement):
            f = opencl([x, n], output, on_unused_input="ignore")
        assert f(np.ones(3), 2).size == 6
        for error in (MemoryError, ValueError):
            with pytest.raises(error, match="negative dimensions"):
                f(np.ones(3), -1)


def test_a_constant_negative_length(context):
    x = pt.dvector("x")
    with pytensor.config.change_flags(opencl__placement="device"):
        f = opencl([x], pt.exp(pt.repeat(x, -1)).sum() + pt.exp(x))
    assert device_ops(f)
    with pytest.raises(ValueError, match="negative dimensions"):
        f(np.ones(3))


def test_bartlett(context, rng):
    x, n = pt.vector("x", dtype="float64"), pt.lscalar("n")
    check(
        [x, n],
        [pt.exp(x).sum() * pt.bartlett(n)],
        GpuBartlett,
        *((rng.normal(size=3), n) for n in (-1, 0, 1, 2, 9, 50)),
    )


def test_diagonal_matrices(context, rng):
    x = pt.matrix("x", dtype="float32")
    outputs = [pt.diag(pt.exp(x[0]), 1), pt.basic.alloc_diag(pt.exp(x), offset=-2), pt.diag(x)]
    with pytensor.config.change_flags(opencl__placement="device"):
        check_against_python([x], outputs, (), (rng.normal(size=(4, 5)).astype("float32"),))
