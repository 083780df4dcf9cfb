"""Parameter checks in batches: a bad point gives -inf, the others are what they are alone."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors

pymc = pytest.importorskip("pymc")

from pymc.logprob.utils import CheckParameterValue, ParameterValueError  # noqa: E402

from pytensor_cl.ops.elemwise import GpuElemwise  # noqa: E402
from pytensor_cl.ops.scan_loop import GpuScanLoop  # noqa: E402
from pytensor_cl.ops.shape import GpuCheckAndRaise  # noqa: E402
from pytensor_cl.pymc import replace_parameter_checks  # noqa: E402
from tests.helpers import assert_all_on_device, assert_on_device, on_one_driver, opencl  # noqa: E402

SIGMAS = np.array([0.5, -1.0, 2.0])
VALUES = np.array([0.3, -1.2, 0.7, 2.0])


def _checks(outputs):
    return [v for v in ancestors(outputs) if v.owner and isinstance(v.owner.op, CheckParameterValue)]


def _normal():
    sigma = pt.dscalar("sigma")
    return sigma, pymc.logp(pymc.Normal.dist(0.1, sigma), pt.constant(VALUES)).sum()


def _assert_densities(got, slopes):
    """Compare densities of all values, and gradients, with formulas."""
    z = (VALUES[:, None] - 0.1) / SIGMAS
    wanted = np.sum(-0.5 * z**2 - np.log(np.sqrt(2 * np.pi) * np.abs(SIGMAS)), axis=0)
    good = SIGMAS > 0
    np.testing.assert_allclose(got, np.where(good, wanted, -np.inf), rtol=1e-12)
    np.testing.assert_allclose(slopes[good], np.sum(z**2 - 1, axis=0)[good] / SIGMAS[good], rtol=1e-12)


@on_one_driver
def test_only_the_bad_point_is_minus_infinity(context, on_device):
    sigma, logp = _normal()
    (logp,) = replace_parameter_checks([logp])
    batch = pt.dvector("batch")
    gradient = pt.grad(logp, sigma)
    outputs = vectorize_graph([logp, gradient], {sigma: batch})
    f = opencl([batch], outputs)
    assert_all_on_device(f, GpuElemwise)
    _assert_densities(*f(SIGMAS))


def test_without_it_one_bad_point_is_an_error_for_all(context, on_device):
    sigma, logp = _normal()
    batch = pt.dvector("batch")
    with pytest.raises(ParameterValueError):
        opencl([batch], vectorize_graph(logp, {sigma: batch}))(SIGMAS)


def test_the_graph_that_was_given_stays(context):
    sigma, logp = _normal()
    before = _checks([logp])
    (replaced,) = replace_parameter_checks([logp])
    assert _checks([replaced]) == []
    assert _checks([logp]) == before and before
    assert sigma in set(ancestors([replaced]))


def test_checks_of_quantiles_stay(context):
    sigma = pt.dscalar("sigma")
    quantile = pymc.icdf(pymc.Normal.dist(0, sigma), pt.constant([0.2, 0.7]))
    (replaced,) = replace_parameter_checks([quantile])
    f = pytensor.function([sigma], replaced, mode="FAST_COMPILE")
    with pytest.raises(ParameterValueError):
        f(-1.0)


@on_one_driver
def test_a_covariance_that_is_not_positive_definite(context, on_device):
    cov = pt.dmatrix("cov")
    batch = pt.dtensor3("batch")
    (logp,) = replace_parameter_checks([pymc.logp(pymc.MvNormal.dist(np.zeros(2), cov), np.array([0.4, -0.3]))])
    f = opencl([batch], vectorize_graph(logp, {cov: batch}))
    good = np.array([[2.0, 0.3], [0.3, 1.0]])
    got = f(np.stack([good, -good, 2 * good]))
    alone = pytensor.function([cov], logp, mode="FAST_COMPILE")
    np.testing.assert_allclose(got, [alone(good), -np.inf, alone(2 * good)], rtol=1e-12)


@on_one_driver
def test_only_the_bad_point_of_a_loop_is_minus_infinity(context, on_device):
    sigma, batch = pt.dscalar("sigma"), pt.dvector("batch")

    def step(value, total, sigma):
        return total + pymc.logp(pymc.Normal.dist(0.1, sigma), value)

    totals = pytensor.scan(step, [pt.constant(VALUES)], [np.float64(0)], [sigma], return_updates=False)
    (logp,) = replace_parameter_checks([totals[-1]])
    f = opencl([batch], vectorize_graph([logp, pt.grad(logp, sigma)], {sigma: batch}))
    assert_on_device(f, GpuScanLoop)
    _assert_densities(*f(SIGMAS))


@on_one_driver
def test_the_last_axis_of_a_number(context, on_device):
    """PyTensor's sum of a number takes one, as NumPy's does, and PyMC's conditional autoregression has one."""
    tau, batch = pt.dscalar("tau"), pt.dvector("batch")
    weights = np.eye(4, k=1) + np.eye(4, k=-1)
    (logp,) = replace_parameter_checks([pymc.logp(pymc.CAR.dist(np.zeros(4), weights, 0.5, tau), VALUES).sum()])
    f = opencl([batch], vectorize_graph(logp, {tau: batch}))
    assert_on_device(f, GpuElemwise)
    alone = pytensor.function([tau], logp, mode="FAST_COMPILE")
    np.testing.assert_allclose(f([0.5, -1.0, 2.0]), [alone(0.5), -np.inf, alone(2.0)], rtol=1e-12)


@on_one_driver
def test_checks_that_stay_run_on_the_device(context, on_device):
    p = pt.dvector("p")
    quantile = pymc.icdf(pymc.Bernoulli.dist(p), pt.constant([0.2, 0.7]))
    f = opencl([p], quantile)
    assert_on_device(f, GpuElemwise, GpuCheckAndRaise)
    np.testing.assert_array_equal(f([0.5, 0.5]), [0, 1])
    with pytest.raises(ParameterValueError):
        f([0.5, 1.5])
