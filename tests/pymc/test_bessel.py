"""The scalar functions that PyMC defines, against SciPy on a grid and mpmath at some points; gradients."""

from itertools import product

import mpmath
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

dist_math = pytest.importorskip("pymc.distributions.dist_math")

from benchmarks.special import DTYPES, OF_PYMC, errors  # noqa: E402
from pytensor_cl.ops.elemwise import GpuElemwise  # noqa: E402
from pytensor_cl.routines.base.routine import SCHEDULES  # noqa: E402
from tests.helpers import assert_all_on_device, opencl, sweep  # noqa: E402

LIMIT = {"float32": 1e-6, "float64": 1e-12}
POINTS = (0.0, 1e-20, -0.3, 1.0, 7.999, 8.0, 8.001, -15.0, 99.0, 1e5, -1e300)


@sweep(("dtype", "schedule"), list(product(DTYPES, SCHEDULES)), [("float64", "cpu")])
def test_worst_errors(context, dtype, schedule):
    found = {name: (worst, where) for name, worst, where in errors(context, dtype, schedule, [OF_PYMC])}
    assert {name: f for name, f in found.items() if not f[0] <= LIMIT[dtype]} == {}


@sweep(("dtype",), [("float32",), ("float64",)], [("float64",)])
def test_against_many_digits(context, on_device, dtype):
    x = pt.vector("x", dtype=dtype)
    f = opencl([x], [dist_math.i0e(x), dist_math.i1e(x)])
    assert_all_on_device(f, GpuElemwise)
    with np.errstate(over="ignore"):
        points = np.array(POINTS).astype(dtype)
    points = points[np.isfinite(points)]
    for order, got in enumerate(f(points)):
        with mpmath.workdps(40):
            wanted = [
                float(mpmath.besseli(order, v) * mpmath.exp(-abs(v)))
                if abs(v) < 1e6
                else float(mpmath.sign(v) ** order / mpmath.sqrt(2 * mpmath.pi * abs(v)))
                for v in map(mpmath.mpf, map(float, points))
            ]
        np.testing.assert_allclose(got, wanted, rtol=LIMIT[dtype])


@sweep(("dtype",), [("float32",), ("float64",)], [("float64",)])
def test_gradient(context, on_device, rng, dtype):
    x = pt.vector("x", dtype=dtype)
    gradient = pt.grad(pt.log(dist_math.i0e(x)).sum(), x)
    f = opencl([x], gradient)
    assert_all_on_device(f, GpuElemwise)
    values = np.append(rng.normal(0, 20, 50), [0.0, 8.0]).astype(dtype)
    wanted = pytensor.function([x], gradient, mode="FAST_COMPILE")(values)
    np.testing.assert_allclose(f(values), wanted, rtol=10 * LIMIT[dtype], atol=LIMIT[dtype])
