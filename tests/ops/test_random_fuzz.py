"""Chains of draws made up by a seed: numbers and states are those of PyTensor's Ops on the host.

``PYTENSOR_CL_DRAW_SEEDS=100:400`` takes other seeds than the few of the test suite.
"""

import os
import warnings

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.random import basic

from pytensor_cl.ops.random import GpuRandomVariable
from tests.helpers import device_ops

FIRST, LAST = map(int, os.environ.get("PYTENSOR_CL_DRAW_SEEDS", "0:6").split(":"))
BITS = ("PCG64", "PCG64", "PCG64DXSM", "Philox", "SFC64", "MT19937")

POSITIVE, REAL, CHANCE, COUNT = "positive", "real", "chance", "count"
SCALARS = {
    "BernoulliRV": (CHANCE,),
    "BetaBinomialRV": (COUNT, POSITIVE, POSITIVE),
    "BetaRV": (POSITIVE, POSITIVE),
    "BinomialRV": (COUNT, CHANCE),
    "CauchyRV": (REAL, POSITIVE),
    "ExponentialRV": (POSITIVE,),
    "GammaRV": (POSITIVE, POSITIVE),
    "GenGammaRV": (POSITIVE, POSITIVE, POSITIVE),
    "GeometricRV": (CHANCE,),
    "GumbelRV": (REAL, POSITIVE),
    "HalfCauchyRV": (REAL, POSITIVE),
    "HalfNormalRV": (REAL, POSITIVE),
    "HyperGeometricRV": (COUNT, COUNT, "few"),
    "IntegersRV": ("low", "high"),
    "InvGammaRV": (POSITIVE, POSITIVE),
    "LaplaceRV": (REAL, POSITIVE),
    "LogNormalRV": (REAL, POSITIVE),
    "LogisticRV": (REAL, POSITIVE),
    "NegBinomialRV": (POSITIVE, CHANCE),
    "NormalRV": (REAL, POSITIVE),
    "ParetoRV": (POSITIVE, POSITIVE),
    "PoissonRV": ("rate",),
    "StudentTRV": (POSITIVE, REAL, POSITIVE),
    "TriangularRV": ("left", "middle", "right"),
    "TruncExponentialRV": (POSITIVE, REAL, POSITIVE),
    "UniformRV": ("left", "right"),
    "VonMisesRV": (REAL, POSITIVE),
    "WaldRV": (POSITIVE, POSITIVE),
    "WeibullRV": (POSITIVE,),
}
VECTORS = (
    "CategoricalRV",
    "ChoiceWithoutReplacement",
    "DirichletRV",
    "MultinomialRV",
    "MvNormalRV",
    "PermutationRV",
    "choice",
)
INTEGERS = {"BinomialRV", "GeometricRV", "HyperGeometricRV", "NegBinomialRV", "PoissonRV", "BetaBinomialRV"}
EXACT = {"UniformRV", "NormalRV", "HalfNormalRV", "ExponentialRV", "TriangularRV", "WaldRV"} | {"PermutationRV"}
"""The distributions of floating-point numbers whose draws are the same to the last bit."""


class Graph:
    """A chain of draws, and values for its inputs; two calls with the same seed make the same one.

    Parameters
    ----------
    seed
        Of everything in it.
    """

    def __init__(self, seed):
        self.chance = np.random.default_rng(seed)
        self.inputs, self.values, self.names, self.draws, self.exact = [], [], [], [], []
        self.bits = self.pick(*BITS)
        self.before = int(self.chance.integers(0, 3))
        self.rng = pytensor.shared(self.generator(seed), name="rng")
        following = self.rng
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(self.chance.integers(1, 5)):
                name = self.pick(*SCALARS, *SCALARS, *VECTORS, *(("NormalRV",) * 3), *(("UniformRV", "IntegersRV") * 2))
                after = self.add(name, following)
                if self.chance.random() < 0.85:  # else the next draw has the same state
                    following = after
        self.after = following

    def generator(self, seed):
        """Return a Generator of which some numbers of 32 bits have been taken."""
        generator = np.random.Generator(getattr(np.random, self.bits)(seed))
        generator.integers(0, 9, self.before, dtype="uint32")
        return generator

    def pick(self, *choices):
        return choices[self.chance.integers(len(choices))]

    def symbolic(self, value, dtype):
        """Return a variable of the graph with a value."""
        value = np.asarray(value, dtype)
        variable = pt.tensor(
            dtype=value.dtype, shape=tuple(1 if n == 1 and self.chance.random() < 0.5 else None for n in value.shape)
        )
        self.inputs.append(variable)
        self.values.append(value)
        return variable

    def numbers(self, kind, shape):
        """Return parameters of a kind."""
        chance = self.chance
        ranges = {
            POSITIVE: lambda: np.round(np.exp(chance.normal(0.3, 1.0, shape)), 3) + 0.05,
            REAL: lambda: chance.normal(0, 3, shape),
            CHANCE: lambda: np.clip(chance.random(shape), 0.05, 0.99) if chance.random() < 0.9 else np.ones(shape),
            COUNT: lambda: chance.integers(0 if chance.random() < 0.3 else 5, self.pick(30, 300), shape),
            "few": lambda: chance.integers(0, 5, shape),
            "rate": lambda: chance.random(shape) * self.pick(8.0, 60.0) + 0.1,
            "low": lambda: chance.integers(-100, 100, shape),
            "high": lambda: chance.integers(101, self.pick(110, 300, 2**31, 2**32 + 4, 2**40), shape),
            "left": lambda: chance.random(shape) - 2.0,
            "middle": lambda: chance.random(shape),
            "right": lambda: chance.random(shape) + 2.0,
        }
        return ranges[kind]()

    def parameter(self, kind, length):
        """Return a parameter: a number or an array, a constant or an input, and whether it is an array."""
        form = self.pick("number", "number", "constant", "scalar", "scalar", "vector", "column", "same")
        shape = {"vector": (length,), "column": (self.pick(1, 2), 1), "same": (length,)}.get(form, ())
        value = self.numbers(kind, () if form == "same" else shape)
        value = np.broadcast_to(value, shape)
        if kind in (COUNT, "few", "low", "high"):
            dtype = self.pick("int64", "int32") if value.max(initial=0) < 2**31 else "int64"
        else:
            dtype = self.pick("float64", "float64", "float32")
        if form in ("number", "constant") or (form != "scalar" and self.chance.random() < 0.3):
            return np.asarray(value, dtype) if form != "number" else value.item(), shape
        return self.symbolic(value, dtype), shape

    def size(self, shapes):
        """Return the size of a draw whose parameters have such shapes."""
        common = np.broadcast_shapes(*shapes)
        form = self.pick("none", "none", "exact", "exact", "more", "more", "symbolic")
        if form == "none":
            return None
        length = self.pick(0, 1, 2, 3, 17, 700, 5000, 20001) // max(1, int(np.prod(common)) // 10)
        sizes = (length, *(n if n != 1 else self.pick(1, 3) for n in common))
        if form == "exact" and common:
            return common
        if form == "symbolic":
            return tuple(self.symbolic(n, "int64") if self.chance.random() < 0.6 else n for n in sizes)
        return sizes

    def add(self, name, rng):
        """Add a draw; return the generator after it."""
        self.names.append(name)
        if name in SCALARS:
            kinds = SCALARS[name]
            length = self.pick(0, 1, 3, 3, 3, 3000)
            parameters, shapes = zip(*(self.parameter(kind, length) for kind in kinds), strict=True)
            after, drawn = self.scalar(name, parameters, rng, self.size(shapes))
        else:
            after, drawn = getattr(self, name)(rng)
        self.draws.append(drawn)
        self.exact.append(drawn.dtype.startswith(("int", "bool", "uint")) or name in EXACT)
        return after

    def scalar(self, name, parameters, rng, size):
        kind = getattr(basic, name)
        if name == "IntegersRV":
            dtype = self.pick("int64", "int64", "int64", "int32")
        elif name == "BernoulliRV":
            dtype = self.pick("int64", "bool", "int8")
        elif name in INTEGERS:
            dtype = self.pick("int64", "int64", "int32")
        else:
            dtype = self.pick("float64", "float64", "float32")
        return kind(dtype=dtype)(*parameters, size=size, rng=rng, return_next_rng=True)

    def chances(self, *shape):
        return self.chance.dirichlet(np.ones(shape[-1]), shape[:-1])

    def batch(self):
        return self.pick((), (), (3,), (2, 1))

    def array(self, value):
        dtype = self.pick("float64", "float32")
        return self.symbolic(value, dtype) if self.chance.random() < 0.6 else np.asarray(value, dtype)

    def CategoricalRV(self, rng):
        batch = self.batch()
        p = self.symbolic(self.chances(*batch, self.pick(1, 4, 70)), "float64")
        return pt.random.categorical(p, size=self.size((batch,)), rng=rng, return_next_rng=True)

    def DirichletRV(self, rng):
        batch = self.batch()
        length = self.pick(1, 2, 5)
        if self.chance.random() < 0.5:
            p = np.full((*batch, length), self.pick(0.05, 0.3, 1.0, 4.5))
        else:
            p = self.array(self.numbers(POSITIVE, (*batch, length)))
        return pt.random.dirichlet(p, size=self.size((batch,)), rng=rng, return_next_rng=True)

    def MultinomialRV(self, rng):
        batch, other = self.batch(), self.pick((), ())
        p = self.symbolic(self.chances(*batch, self.pick(1, 2, 5, 70)), "float64")
        n = self.symbolic(self.numbers(COUNT, other), "int64")
        return pt.random.multinomial(n, p, size=self.size((batch, other)), rng=rng, return_next_rng=True)

    def MvNormalRV(self, rng):
        batch, length = self.batch(), self.pick(1, 3)
        root = self.chance.normal(size=(*batch, length, length))
        covariance = root @ np.swapaxes(root, -1, -2) + np.eye(length)
        mean = self.array(self.chance.normal(size=length))
        method = self.pick("cholesky", "cholesky", "svd", "eigh")
        op = basic.MvNormalRV(method=method, dtype="float64")
        return op(mean, self.symbolic(covariance, "float64"), size=self.size((batch,)), rng=rng, return_next_rng=True)

    def values_of(self):
        n = self.pick(1, 5, 5000)
        return self.pick(
            n, self.symbolic(n, "int64"), self.array(np.arange(n) * 0.5), self.array(np.ones((n, 2)).cumsum(0))
        ), n

    def PermutationRV(self, rng):
        return pt.random.permutation(self.values_of()[0], rng=rng, return_next_rng=True)

    def ChoiceWithoutReplacement(self, rng):
        values, n = self.values_of()
        p = self.pick(None, self.symbolic(self.chances(n), "float64"))
        size = self.pick((), (min(n, 3),), (1, n), (self.symbolic(min(n, 2), "int64"),))
        return pt.random.choice(values, size=size, p=p, replace=False, rng=rng, return_next_rng=True)

    def choice(self, rng):
        values, n = self.values_of()
        p = self.pick(None, self.symbolic(self.chances(n), "float64"))
        size = self.pick(None, (), (3,), (7000,), (self.symbolic(6000, "int64"),))
        return pt.random.choice(values, size=size, p=p, replace=True, rng=rng, return_next_rng=True)


def results(graph, seed, mode, calls):
    """Compile and call; return what each call gives and the states after it, or the class of an error."""
    graph.rng.set_value(graph.generator(seed))
    f = pytensor.function(
        graph.inputs, graph.draws, updates={graph.rng: graph.after}, mode=mode, on_unused_input="ignore"
    )
    found = []
    for _ in range(calls):
        try:
            found.append(f(*graph.values))
        except Exception as error:
            found.append(type(error))
        found.append(str(graph.rng.get_value(borrow=True).bit_generator.state))
    return f, found


def assert_same(got, want, exact, name):
    """Compare one draw."""
    assert (got.dtype, got.shape) == (want.dtype, want.shape), name
    if exact:
        np.testing.assert_array_equal(got, want, err_msg=name)
    else:
        rtol = 1e-6 if got.dtype == "float32" else 1e-12
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol, err_msg=name)


@pytest.mark.parametrize("placement", ["device", "auto"])
@pytest.mark.parametrize("seed", range(FIRST, LAST))
def test_numbers_and_states_are_those_of_the_host(context, seed, placement):
    graph = Graph(seed)
    calls = 2 if seed % 3 else 5  # from the fourth on calls are replayed
    _, want = results(graph, seed, "FAST_COMPILE", calls)
    select = placement == "auto" and seed % 2 == 0
    with pytensor.config.change_flags(opencl__placement=placement, opencl__select_backend=select):
        f, got = results(graph, seed, "OPENCL", calls)
    if placement == "device" and {"NormalRV", "UniformRV", "HalfNormalRV", "TriangularRV"} & set(graph.names):
        assert any(isinstance(op, GpuRandomVariable) for op in device_ops(f))
    for mine, other in zip(got, want, strict=True):
        label = f"seed {seed}: {graph.bits}, {graph.names}"
        if not isinstance(other, list):
            assert mine == other, label
            continue
        assert isinstance(mine, list), f"{label}: {mine}"
        for a, b, exact, name in zip(mine, other, graph.exact, graph.names, strict=True):
            assert_same(a, b, exact, f"{label}: {name}")
