"""Variables of ``pymc.dims`` are sampled as those of ``pymc`` are, draw by draw."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.xtensor.type import XTensorType

pm = pytest.importorskip("pymc", reason="needs pip install pymc")
pmd = pytest.importorskip("pymc.dims", reason="of PyMC 6")

from pytensor_cl.ops.rowwise import GpuRowwise  # noqa: E402
from pytensor_cl.pymc import sample  # noqa: E402
from pytensor_cl.pymc.density import ModelDensity  # noqa: E402
from pytensor_cl.pymc.named_axes import as_tensor_graphs  # noqa: E402
from pytensor_cl.pymc.prior import PriorDraws  # noqa: E402
from tests.helpers import assert_on_device, host_ops, on_one_driver, opencl  # noqa: E402

ROWS = 60
COORDS = {"group": list("abc"), "row": range(ROWS), "slope": [0, 1]}


@pytest.fixture
def data():
    rng = np.random.default_rng(3)
    x, group = rng.normal(size=(ROWS, 2)), rng.integers(0, 3, ROWS)
    return x, group, x @ [0.5, -2.0] + np.array([1.0, -1.0, 2.0])[group] + 0.3 * rng.normal(size=ROWS)


def with_names(x, group, y):
    with pm.Model(coords=COORDS) as model:
        x = pmd.Data("x", x, dims=("row", "slope"))
        a = pmd.Normal("a", 0, 2, dims="group")
        b = pmd.Normal("b", 0, 1, dims="slope")
        sigma = pmd.HalfNormal("sigma", 1)
        pmd.VonMises("angle", 0, 1)
        share = pmd.Dirichlet("share", pmd.as_xtensor([2.0, 3.0, 4.0], dims="group"), core_dims="group")
        mean = (x * b).sum("slope") + a.isel(group=pmd.as_xtensor(group, dims="row"))
        pmd.Normal("y", mean, sigma, dims="row", observed=pmd.as_xtensor(y, dims="row"))
        pmd.Deterministic("double", 2 * a + share)
    return model


def without_names(x, group, y):
    with pm.Model(coords=COORDS) as model:
        x = pm.Data("x", x, dims=("row", "slope"))
        a = pm.Normal("a", 0, 2, dims="group")
        b = pm.Normal("b", 0, 1, dims="slope")
        sigma = pm.HalfNormal("sigma", 1)
        pm.VonMises("angle", 0, 1)
        share = pm.Dirichlet("share", [2.0, 3.0, 4.0], dims="group")
        pm.Normal("y", (x * b).sum(-1) + a[group], sigma, dims="row", observed=y)
        pm.Deterministic("double", 2 * a + share, dims="group")
    return model


def density(model):
    """Return the function of the log density and its gradient for some chains."""
    found = ModelDensity(model, {name: np.shape(value) for name, value in model.initial_point().items()})
    assert found.is_periodic == ["angle" in name for name in found.names]
    position = pt.dmatrix("position")
    return found.size, opencl([position], list(found(position)))


@on_one_driver
def test_density(context, data, rng):
    """On the device, with data that are copied once."""
    size, f = density(with_names(*data))
    _, expected = density(without_names(*data))
    assert_on_device(f, GpuRowwise)
    assert not any("XTensor" in str(op) for op in host_ops(f))
    position = rng.normal(size=(5, size))
    for mine, wanted in zip(f(position), expected(position), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-10)


@on_one_driver
@pytest.mark.filterwarnings("ignore")  # of short chains
def test_draws(context, data):
    more = {"log_likelihood": True, "random_seed": 5, "progressbar": False}
    models = with_names(*data), without_names(*data)
    found, plain = (sample(model, chains=8, draws=3, tune=3, **more) for model in models)
    for group in ("posterior", "log_likelihood"):
        assert set(found[group].data_vars) == set(plain[group].data_vars)
        for name, wanted in plain[group].items():
            assert found[group][name].dims == wanted.dims
            np.testing.assert_allclose(found[group][name], wanted, rtol=1e-4, atol=1e-6)


def test_draws_from_the_prior(data):
    def drawn(model):
        points, _ = PriorDraws(model).find(3, 20, lambda points: np.zeros(len(points[0])))
        return points

    for found, wanted in zip(drawn(with_names(*data)), drawn(without_names(*data)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)


def test_graphs_are_not_changed(data):
    model = with_names(*data)
    before = pytensor.dprint(model.logp(), file="str")
    values, (log_density,) = as_tensor_graphs(model.value_vars, [model["double"]])
    assert [value.name for value in values] == [value.name for value in model.value_vars]
    assert not any(isinstance(v.type, XTensorType) for v in values)
    assert log_density.name == "double"
    assert pytensor.dprint(model.logp(), file="str") == before
    plain = without_names(*data)
    values, graphs = as_tensor_graphs(plain.value_vars, [plain["double"]])
    assert values == plain.value_vars and graphs == [plain["double"]]
