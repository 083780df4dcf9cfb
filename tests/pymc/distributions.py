"""A case for each distribution of PyMC: parameters that are inputs of the graph, and what is fixed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

__all__ = ["CASES", "LEFT_OUT", "Case"]

SIZE = 20
"""Draws of a distribution of scalars."""


@dataclass(frozen=True)
class Case:
    """A distribution with parameters.

    Attributes
    ----------
    name
        Of the distribution in `pymc.distributions`, and after a space which of its cases it is.
    build
        Takes the parameters by name; returns a random variable.
    parameters
        Values of the parameters that are inputs of the graph. Gradients are taken by those of floating point.
    fixed
        Names of the parameters that are the same for each point of a batch, since multiples of them are no parameters.
    value
        Where the density is evaluated; drawn from the distribution if it is None.
    is_smooth
        Whether gradients by a value of floating point are tested.
    """

    name: str
    build: Callable[..., Any]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    fixed: tuple[str, ...] = ()
    value: Any = None
    is_smooth: bool = True

    @property
    def distribution(self) -> str:
        """Return the name in `pymc.distributions`."""
        return self.name.partition(" ")[0]


def _scalars(name: str, value: Any = None, is_smooth: bool = True, **parameters: Any) -> Case:
    """Return the case of a distribution of scalars."""

    def build(**variables: Any) -> Any:
        return getattr(pm, name).dist(**variables, size=SIZE)

    return Case(name, build, parameters, (), value, is_smooth)


def _shaped(name: str, fixed: tuple[str, ...] = (), value: Any = None, settings: Any = None, **parameters: Any) -> Case:
    """Return the case of a distribution whose shape its parameters have; `settings` are no inputs of the graph."""
    kind = getattr(pm, name.partition(" ")[0])
    return Case(name, lambda **variables: kind.dist(**variables, **(settings or {})), parameters, fixed, value)


def _positive_definite(size: int, seed: int) -> np.ndarray:
    factor = np.random.default_rng(seed).normal(size=(size, size))
    return factor @ factor.T + size * np.eye(size)


COV = _positive_definite(3, 1)
NEIGHBOURS = np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]])
GRID = np.linspace(-3, 3, 13)
WEIGHTS = np.array([0.2, 0.5, 0.3])
CUTPOINTS = np.array([-1.0, 0.5, 2.0])
VECTOR = np.array([0.3, -0.4, 1.1])

CONTINUOUS = (
    _scalars("AsymmetricLaplace", kappa=1.7, mu=0.3, b=2.0),
    _scalars("Beta", alpha=np.linspace(0.6, 3.0, SIZE), beta=2.5),
    _scalars("Cauchy", alpha=0.4, beta=1.3),
    _scalars("ChiSquared", nu=3.5),
    _scalars("ExGaussian", mu=0.2, sigma=1.1, nu=0.9),
    _scalars("Exponential", lam=0.7),
    _scalars("Flat", value=np.linspace(-2, 3, SIZE)),
    _scalars("Gamma", alpha=np.linspace(0.5, 4.0, SIZE), beta=1.6),
    _scalars("Gumbel", mu=-0.4, beta=1.2),
    _scalars("HalfCauchy", beta=1.5),
    _scalars("HalfFlat", value=np.linspace(0.5, 3, SIZE)),
    _scalars("HalfNormal", sigma=np.linspace(0.5, 2.0, SIZE)),
    _scalars("HalfStudentT", nu=4.0, sigma=1.2),
    Case("Interpolated", lambda: pm.Interpolated.dist(x_points=GRID, pdf_points=np.exp(-0.5 * GRID**2))),
    _scalars("InverseGamma", alpha=2.5, beta=1.4),
    _scalars("Kumaraswamy", a=1.8, b=2.2),
    _scalars("Laplace", mu=0.5, b=1.3),
    _scalars("LogNormal", mu=0.2, sigma=0.8),
    _scalars("Logistic", mu=-0.3, s=1.4),
    _scalars("LogitNormal", mu=0.1, sigma=1.2),
    _scalars("Moyal", mu=0.4, sigma=1.1),
    _scalars("Normal", mu=np.linspace(-1, 1, SIZE), sigma=1.3),
    _scalars("Pareto", alpha=2.3, m=1.1),
    _scalars("Rice", nu=1.2, sigma=0.9),
    _scalars("SkewNormal", mu=0.2, sigma=1.1, alpha=1.6),
    _scalars("SkewStudentT", a=2.3, b=3.1, mu=0.2, sigma=1.4),
    _scalars("StudentT", nu=5.0, mu=0.3, sigma=1.2),
    _scalars("Triangular", lower=-1.0, c=0.4, upper=2.0),
    _scalars("TruncatedNormal", mu=0.1, sigma=1.2, lower=-1.0, upper=2.5),
    _scalars("Uniform", lower=-1.2, upper=2.1),
    _scalars("VonMises", mu=0.4, kappa=2.2),
    _scalars("Wald", mu=1.3, lam=2.1),
    _scalars("Weibull", alpha=1.7, beta=1.2),
)
DISCRETE = (
    _scalars("Bernoulli", p=np.linspace(0.2, 0.8, SIZE)),
    _scalars("BetaBinomial", alpha=1.8, beta=2.4, n=12),
    _scalars("Binomial", n=10, p=0.35),
    Case("Categorical", lambda p: pm.Categorical.dist(p=p, size=SIZE), {"p": WEIGHTS}, ("p",)),
    _scalars("DiracDelta", c=2.0, is_smooth=False),
    _scalars("DiscreteUniform", lower=-2, upper=7),
    _scalars("DiscreteWeibull", q=0.7, beta=1.3),
    _scalars("Geometric", p=0.3),
    _scalars("HyperGeometric", N=30, k=12, n=9),
    _scalars("NegativeBinomial", mu=np.linspace(1.0, 6.0, SIZE), alpha=1.7),
    Case(
        "OrderedLogistic",
        lambda eta, cutpoints: pm.OrderedLogistic.dist(eta=eta, cutpoints=cutpoints, compute_p=False),
        {"eta": np.linspace(-1, 2, SIZE), "cutpoints": CUTPOINTS},
    ),
    Case(
        "OrderedProbit",
        lambda eta, cutpoints: pm.OrderedProbit.dist(eta=eta, cutpoints=cutpoints, compute_p=False),
        {"eta": np.linspace(-1, 2, SIZE), "cutpoints": CUTPOINTS},
    ),
    _scalars("Poisson", mu=np.linspace(0.5, 6.0, SIZE)),
)
MIXTURES = (
    _scalars("HurdleGamma", psi=0.7, alpha=1.6, beta=1.2),
    _scalars("HurdleLogNormal", psi=0.6, mu=0.3, sigma=0.8),
    _scalars("HurdleNegativeBinomial", psi=0.7, mu=3.0, alpha=1.4),
    _scalars("HurdlePoisson", psi=0.7, mu=2.4),
    Case(
        "Mixture of two",
        lambda w, mu, lam: pm.Mixture.dist(w, [pm.Normal.dist(mu, 1.0), pm.Laplace.dist(mu, lam)], size=SIZE),
        {"w": np.array([0.4, 0.6]), "mu": 0.3, "lam": 1.2},
        ("w",),
    ),
    Case(
        "Mixture of a batch",
        lambda w, mu: pm.Mixture.dist(w, pm.Poisson.dist(mu, size=3), size=SIZE),
        {"w": WEIGHTS, "mu": np.array([1.0, 3.0, 7.0])},
        ("w",),
    ),
    Case(
        "Mixture of vectors",
        lambda w, mu, cov: pm.Mixture.dist(w, [pm.MvNormal.dist(mu, cov), pm.MvNormal.dist(-mu, 2 * cov)]),
        {"w": np.array([0.4, 0.6]), "mu": VECTOR, "cov": COV},
        ("w",),
    ),
    Case(
        "NormalMixture",
        lambda w, mu, sigma: pm.NormalMixture.dist(w, mu, sigma, size=SIZE),
        {"w": WEIGHTS, "mu": VECTOR, "sigma": np.array([0.5, 1.0, 1.5])},
        ("w",),
    ),
    _scalars("ZeroInflatedBinomial", psi=0.7, n=8, p=0.4),
    _scalars("ZeroInflatedNegativeBinomial", psi=0.7, mu=3.0, alpha=1.4),
    _scalars("ZeroInflatedPoisson", psi=0.7, mu=2.4),
)
MULTIVARIATE = (
    _shaped("CAR", mu=np.linspace(-1, 1, 4), alpha=0.4, tau=1.3, settings={"W": NEIGHBOURS}),
    _shaped("ICAR", sigma=1.2, settings={"W": NEIGHBOURS}, value=np.array([0.3, -0.5, 0.4, -0.2])),
    _shaped("Dirichlet", a=np.array([1.2, 0.7, 2.4])),
    _shaped("DirichletMultinomial", n=9, a=np.array([1.2, 0.7, 2.4])),
    Case(
        "KroneckerNormal",
        lambda mu, a, b: pm.KroneckerNormal.dist(mu, covs=[a, b]),
        {"mu": np.linspace(-1, 1, 6), "a": _positive_definite(2, 2), "b": COV},
    ),
    Case(
        "LKJCholeskyCov",
        lambda eta: pm.LKJCholeskyCov.dist(n=3, eta=eta, sd_dist=pm.Exponential.dist(1.0, size=3), compute_corr=False),
        {"eta": 2.0},
        value=np.array([1.2, 0.3, 0.9, -0.2, 0.4, 1.1]),
    ),
    _shaped("LKJCorr", eta=2.0, settings={"n": 3}),
    _shaped("MatrixNormal", mu=np.zeros((2, 3)), rowcov=_positive_definite(2, 2), colcov=COV),
    _shaped("Multinomial", ("p",), n=9, p=WEIGHTS),
    _shaped("MvNormal cov", mu=VECTOR, cov=COV),
    _shaped("MvNormal chol", mu=VECTOR, chol=np.linalg.cholesky(COV)),
    _shaped("MvNormal tau", mu=VECTOR, tau=COV),
    _shaped("MvStudentT", nu=5.0, mu=VECTOR, scale=COV),
    Case(
        "OrderedMultinomial",
        lambda eta, cutpoints: pm.OrderedMultinomial.dist(eta=eta, cutpoints=cutpoints, n=9, compute_p=False),
        {"eta": 0.4, "cutpoints": CUTPOINTS},
    ),
    _shaped("StickBreakingWeights", alpha=1.6, settings={"K": 4}),
    _shaped("Wishart", nu=5, V=COV),
    _shaped("ZeroSumNormal", sigma=1.3, settings={"shape": 4}),
)


def _first_vector() -> Any:
    """Return where a random walk begins, with the float type of the graph that it is made for."""
    return pm.MvNormal.dist(pt.zeros(3), pt.eye(3))


TIME_SERIES = (
    Case(
        "AR",
        lambda rho, sigma: pm.AR.dist(
            rho, sigma, ar_order=2, constant=True, steps=6, init_dist=pm.Normal.dist(0, 1, size=2)
        ),
        {"rho": np.array([0.2, 0.5, -0.3]), "sigma": 0.9},
    ),
    Case(
        "EulerMaruyama",
        lambda rate: pm.EulerMaruyama.dist(
            dt=0.1, sde_fn=lambda x, rate: (-rate * x, 0.3), sde_pars=(rate,), steps=5, init_dist=pm.Normal.dist(0, 1)
        ),
        {"rate": 0.7},
    ),
    _shaped("GARCH11", omega=0.4, alpha_1=0.3, beta_1=0.4, initial_vol=0.8, settings={"steps": 5}),
    _shaped("GaussianRandomWalk", mu=0.1, sigma=0.8, settings={"steps": 6, "init_dist": pm.Normal.dist(0, 1)}),
    Case(
        "MvGaussianRandomWalk",
        lambda mu, cov: pm.MvGaussianRandomWalk.dist(mu=mu, cov=cov, steps=4, init_dist=_first_vector()),
        {"mu": VECTOR, "cov": COV},
    ),
    Case(
        "MvStudentTRandomWalk",
        lambda nu, mu, scale: pm.MvStudentTRandomWalk.dist(
            nu=nu, mu=mu, scale=scale, steps=4, init_dist=_first_vector()
        ),
        {"nu": 5.0, "mu": VECTOR, "scale": COV},
    ),
    Case(
        "RandomWalk",
        lambda b: pm.RandomWalk.dist(init_dist=pm.Normal.dist(0, 1), innovation_dist=pm.Laplace.dist(0, b), steps=6),
        {"b": 0.8},
    ),
)
OTHERS = (
    Case(
        "Censored",
        lambda mu, sigma: pm.Censored.dist(pm.Normal.dist(mu, sigma), lower=-1.0, upper=1.5, size=SIZE),
        {"mu": 0.2, "sigma": 1.3},
        is_smooth=False,
    ),
    Case(
        "Truncated",
        lambda alpha, beta: pm.Truncated.dist(pm.Gamma.dist(alpha, beta), lower=0.2, upper=4.0, size=SIZE),
        {"alpha": 2.0, "beta": 1.1},
    ),
    Case(
        "Truncated Poisson",
        lambda mu: pm.Truncated.dist(pm.Poisson.dist(mu), lower=1, upper=9, size=SIZE),
        {"mu": 3.0},
    ),
    Case(
        "CustomDist by logp",
        lambda mu, sigma: pm.CustomDist.dist(
            mu, sigma, logp=lambda value, mu, sigma: -0.5 * ((value - mu) / sigma) ** 2 - pt.log(sigma), size=SIZE
        ),
        {"mu": 0.2, "sigma": 1.3},
        value=np.linspace(-1, 2, SIZE),
    ),
    Case(
        "CustomDist by dist",
        lambda mu, sigma: pm.CustomDist.dist(
            mu, sigma, dist=lambda mu, sigma, size: pt.exp(pm.Normal.dist(mu, sigma, size=size)), size=SIZE
        ),
        {"mu": 0.2, "sigma": 0.6},
    ),
)
CASES: tuple[Case, ...] = CONTINUOUS + DISCRETE + MIXTURES + MULTIVARIATE + TIME_SERIES + OTHERS

LEFT_OUT = {
    "Continuous": "a base class",
    "Discrete": "a base class",
    "Distribution": "a base class",
    "SymbolicRandomVariable": "a base class",
    "DensityDist": "the former name of CustomDist",
    "Lognormal": "another name of LogNormal",
    "PolyaGamma": "its density needs the package polyagamma, and has no gradient",
    "Simulator": "it has no density",
    "WishartBartlett": "a function that makes other distributions",
}
"""Public names without a case, and why."""
