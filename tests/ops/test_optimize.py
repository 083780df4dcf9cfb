"""`pytensor.tensor.optimize`: SciPy's loop on the host, with a function of each point that runs on the device."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor import optimize

from pytensor_cl import explain
from pytensor_cl.ops.base import GpuOp

X, C, A = pt.dvector("x"), pt.dvector("c"), pt.dmatrix("A")
COST = 0.5 * pt.dot(X, A @ X) - pt.dot(C, X) + pt.log1p(pt.exp(X)).sum()
OPTIMISATIONS = {
    "minimize": lambda: optimize.minimize(COST, X, method="BFGS"),
    "root": lambda: optimize.root(pt.tanh(X) + A @ X - C, X),
}


def _values(rng):
    factor = rng.normal(size=(4, 4))
    return rng.normal(size=4), factor @ factor.T + 2 * np.eye(4)


def _assert_inside(f):
    inside = explain(f).inner_nodes
    assert [n for n in inside if isinstance(n.op, GpuOp) and n.op.is_compute]
    assert "objective " in str(explain(f))


@pytest.mark.parametrize("name", OPTIMISATIONS)
def test_objective_on_the_device(context, on_device, rng, name):
    found, success = OPTIMISATIONS[name]()
    outputs = [found, success, pt.grad(found.sum(), C)]
    f, reference = (pytensor.function([X, C, A], outputs, mode=mode) for mode in ("OPENCL", "FAST_COMPILE"))
    c, a = _values(rng)
    for start in (np.zeros(4), np.ones(4)):
        for got, want in zip(f(start, c, a), reference(start, c, a), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    _assert_inside(f)
    (node,) = (n for n in explain(f).host_nodes if "SciPy" in n.reason)
    assert node.reason == "SciPy chooses the points; the function of a point runs on the device"


def test_batch(context, on_device, rng):
    starts = pt.dmatrix("starts")
    batch = vectorize_graph(optimize.minimize(COST, X)[0], {X: starts})
    f, reference = (pytensor.function([starts, C, A], batch, mode=mode) for mode in ("OPENCL", "FAST_COMPILE"))
    c, a = _values(rng)
    values = rng.normal(size=(3, 4))
    np.testing.assert_allclose(f(values, c, a), reference(values, c, a), rtol=1e-5, atol=1e-6)
    _assert_inside(f)


def test_one_variable(context, on_device):
    x, c = pt.dscalar("x"), pt.dvector("c")
    outputs = [
        *optimize.minimize_scalar(((x - c) ** 2).sum(), x),
        *optimize.root_scalar((x - c).sum(), x, method="newton"),
    ]
    f, reference = (pytensor.function([x, c], outputs, mode=mode) for mode in ("OPENCL", "FAST_COMPILE"))
    for got, want in zip(f(0.3, [1.0, 2.5]), reference(0.3, [1.0, 2.5]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    _assert_inside(f)


def test_an_error_in_the_objective(context, on_device):
    y = pt.dvector("y")
    f = pytensor.function([X, y], optimize.minimize(((X - y) ** 2).sum(), X)[0], mode="OPENCL")
    np.testing.assert_allclose(f([0.0, 0.0], [1.0, 2.0]), [1.0, 2.0], rtol=1e-5)
    with pytest.raises(ValueError, match="[Ss]hape|dimension|broadcast"):
        f([0.0, 0.0], [1.0, 2.0, 3.0])
    np.testing.assert_allclose(f([0.0, 0.0], [1.0, 3.0]), [1.0, 3.0], rtol=1e-5)
