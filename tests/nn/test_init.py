"""Initialisers: variances by fans and layouts, against the formulas, in standard errors."""

import math

import numpy as np
import pytensor
import pytest
from scipy.stats import kstest

from pytensor_cl.nn import init

# name -> variance by inputs and outputs
VARIANCES = {
    "glorot_uniform": lambda i, o: 2 / (i + o),
    "glorot_normal": lambda i, o: 2 / (i + o),
    "he_uniform": lambda i, o: 2 / i,
    "he_normal": lambda i, o: 2 / i,
    "lecun_uniform": lambda i, o: 1 / i,
    "lecun_normal": lambda i, o: 1 / i,
}
# shape, layout, inputs, outputs
LAYOUTS = [
    ((300, 100), None, 300, 100),
    ((300, 100), "io", 300, 100),
    ((300, 100), "oi", 100, 300),
    ((80, 40, 3, 5), "oi...", 40 * 15, 80 * 15),
    ((80, 40, 3, 5), "io...", 80 * 15, 40 * 15),
    ((3, 5, 80, 40), "...io", 80 * 15, 40 * 15),
]


@pytest.mark.parametrize("name", VARIANCES)
@pytest.mark.parametrize(("shape", "layout", "inputs", "outputs"), LAYOUTS)
def test_distribution(rng, name, shape, layout, inputs, outputs):
    values = getattr(init, name)(rng, shape, layout=layout, dtype="float64")
    assert (values.shape, values.dtype) == (shape, np.dtype("float64"))
    scale = math.sqrt(VARIANCES[name](inputs, outputs))
    limit = math.sqrt(3) * scale
    if name.endswith("normal"):
        assert kstest(values.ravel() / scale, "norm").pvalue > 1e-6
    else:
        assert kstest(values.ravel(), "uniform", (-limit, 2 * limit)).pvalue > 1e-6
    # The variance of a variance is (kurtosis - 1) / n: 2 for the normal and 0.8 for the uniform distribution.
    spread = math.sqrt((2 if name.endswith("normal") else 0.8) / values.size)
    assert abs(np.mean(values**2) / scale**2 - 1) < 5 * spread


def test_gains():
    draws = {
        gain: init.lecun_normal(np.random.default_rng(3), (5, 4), gain=gain) for gain in (1.0, 2.5, "relu", "tanh")
    }
    np.testing.assert_allclose(draws[2.5], 2.5 * draws[1.0])
    np.testing.assert_allclose(draws["relu"], math.sqrt(2) * draws[1.0])
    np.testing.assert_allclose(draws["tanh"], 5 / 3 * draws[1.0])
    np.testing.assert_allclose(init.he_normal(np.random.default_rng(3), (5, 4)), draws["relu"])


@pytest.mark.parametrize(
    ("shape", "layout"),
    [((5, 5), None), ((7, 3), None), ((3, 7), "oi"), ((4, 2, 3), "oi..."), ((3, 2, 20), "...io"), ((2, 9, 2), "io...")],
)
def test_orthogonal(rng, shape, layout):
    w = init.orthogonal(rng, shape, layout=layout, gain=2.0, dtype="float64")
    outputs = {"oi": 0, "oi...": 0, "io...": 1}.get(layout, -1)
    matrix = np.moveaxis(w, outputs, 0).reshape(shape[outputs], -1)
    product = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-12)
    assert w.flags.c_contiguous


def test_orthogonal_has_no_preferred_direction(rng):
    """QR alone gives a diagonal of one sign; uniform rotations have a first element of mean 0 and variance 1/2."""
    first = np.array([init.orthogonal(rng, (2, 2), dtype="float64")[0, 0] for _ in range(2000)])
    assert abs(first.mean()) < 5 * math.sqrt(0.5 / 2000)
    assert abs(np.mean(first**2) - 0.5) < 5 * math.sqrt(1 / 8 / 2000)  # the square of a cosine has variance 1/8


def test_plain_ones(rng):
    values = init.normal(rng, (100, 100), mean=3.0, std=0.5, dtype="float64")
    assert kstest((values.ravel() - 3.0) / 0.5, "norm").pvalue > 1e-6
    values = init.uniform(rng, 10_000, low=-1.0, high=4.0, dtype="float64")
    assert values.shape == (10_000,)
    assert kstest(values, "uniform", (-1.0, 5.0)).pvalue > 1e-6
    np.testing.assert_array_equal(init.constant(rng, (2, 3), value=0.5), np.full((2, 3), 0.5))


def test_dtypes_get_the_same_numbers():
    draws = {dtype: init.he_normal(np.random.default_rng(1), (4, 4), dtype=dtype) for dtype in ("float64", "float32")}
    np.testing.assert_array_equal(draws["float64"].astype("float32"), draws["float32"])
    for floatx in ("float32", "float64"):
        with pytensor.config.change_flags(floatX=floatx):
            assert init.orthogonal(np.random.default_rng(1), (4, 4)).dtype == floatx


def test_empty(rng):
    assert init.he_normal(rng, (0, 3)).shape == (0, 3)
    assert init.orthogonal(rng, (3, 0)).shape == (3, 0)


def test_errors(rng):
    with pytest.raises(ValueError, match=r"layout is needed for the shape \(4, 3, 3, 3\): 'oi...' for filters"):
        init.he_normal(rng, (4, 3, 3, 3))
    with pytest.raises(ValueError, match="need two dimensions"):
        init.glorot_uniform(rng, (4,))
    with pytest.raises(ValueError, match="layout must be one of"):
        init.glorot_uniform(rng, (4, 3), layout="hw")
    with pytest.raises(ValueError, match="layout 'oi' has two dimensions"):
        init.glorot_uniform(rng, (4, 3, 3), layout="oi")
    with pytest.raises(ValueError, match="gain must be a number or one of"):
        init.glorot_uniform(rng, (4, 3), gain="gelu")
    with pytest.raises(TypeError, match=r"rng must be a numpy.random.Generator"):
        init.glorot_uniform(1, (4, 3))
    with pytest.raises(TypeError, match="floating-point"):
        init.glorot_uniform(rng, (4, 3), dtype="int64")
