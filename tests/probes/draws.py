"""Random draws: the numbers are NumPy's, whatever makes them."""

from collections.abc import Iterator

import numpy as np
import pytensor.tensor.random.basic as random
from pytensor.tensor.random.op import DefaultGeneratorMakerOp, RandomVariable

from pytensor_cl.routines.random.distributions import DISTRIBUTIONS
from tests.probes.probe import Probe, probe

ONE, TWO = (np.ones(3, dtype="float32"),), (np.ones(3, dtype="float32"), np.full(3, 0.5, dtype="float32"))
HALF = (np.full(3, 0.5, dtype="float32"),)
FOUR = (np.int64(5), np.full(3, 0.5, dtype="float32"))

# Parameters; what is not here takes two positive numbers.
PARAMETERS = {
    "BernoulliRV": HALF,
    "BetaBinomialRV": (np.int64(5), *TWO),
    "BinomialRV": FOUR,
    "CategoricalRV": (np.full((2, 4), 0.25, dtype="float32"),),
    "DirichletRV": (np.ones((2, 3), dtype="float32"),),
    "ExponentialRV": ONE,
    "GenGammaRV": (*TWO, ONE[0]),
    "GeometricRV": HALF,
    "HyperGeometricRV": (np.int64(5), np.int64(4), np.int64(3)),
    "IntegersRV": (np.int64(0), np.int64(9)),
    "MultinomialRV": (np.int64(5), np.full((2, 4), 0.25, dtype="float64")),
    "MvNormalRV": (np.zeros(3, dtype="float32"), np.eye(3, dtype="float32")),
    "NegBinomialRV": FOUR,
    "PoissonRV": ONE,
    "StudentTRV": (*TWO, ONE[0]),
    "TriangularRV": (np.float32(0), np.float32(1), np.float32(2)),
    "TruncExponentialRV": (*TWO, ONE[0]),
    "WeibullRV": ONE,
    "UniformRV": (np.zeros(3, dtype="float32"), np.ones(3, dtype="float32")),
}
CORE = {"CategoricalRV", "DirichletRV", "MultinomialRV", "MvNormalRV"}


def _ops() -> dict[type, RandomVariable]:
    found: dict[type, RandomVariable] = {}
    for op in vars(random).values():
        if isinstance(op, RandomVariable):
            found.setdefault(type(op), op)
    return found


def _draws() -> Iterator[Probe]:
    for kind, op in sorted(_ops().items(), key=lambda item: item[0].__name__):
        parameters = PARAMETERS.get(kind.__name__, TWO)
        for size in (None, 3):
            if size is None or kind.__name__ not in CORE:
                yield probe(
                    kind,
                    lambda rng, *p, f=op, n=size: f(*p, rng=rng, size=None if n is None else (n,)),
                    np.random.default_rng(1),
                    *parameters,
                    variant=f"size-{size}",
                )
    for kind, op in sorted(_ops().items(), key=lambda item: item[0].__name__):
        if kind.__name__ in DISTRIBUTIONS and kind.__name__ not in CORE:
            numbers = [np.asarray(p).flat[0] for p in PARAMETERS.get(kind.__name__, TWO)]
            yield probe(
                kind,
                lambda rng, *p, f=op: f(*p, rng=rng, size=(3, 4)),
                np.random.default_rng(2),
                *numbers,
                variant="of-numbers",
            )
    yield probe(
        random.ChoiceWithoutReplacement,
        lambda rng, x: random.choice(x, size=3, replace=False, rng=rng),
        np.random.default_rng(1),
        np.arange(6),
    )
    yield probe(
        random.PermutationRV,
        lambda rng, x: random.permutation(x, rng=rng),
        np.random.default_rng(1),
        np.arange(6),
    )
    yield probe(
        DefaultGeneratorMakerOp,
        lambda x: random.normal(x, rng=DefaultGeneratorMakerOp()()),
        ONE[0],
        compare="types",
    )


PROBES = tuple(_draws())
