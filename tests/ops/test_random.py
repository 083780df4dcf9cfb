"""Random numbers in compiled functions: NumPy's numbers, whatever draws them."""

import warnings

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.random.basic import IntegersRV, NormalRV
from pytensor.tensor.random.op import RandomVariable

from pytensor_cl import explain
from pytensor_cl.ops.random import MIN_ELEMENTS, GpuRandomVariable
from pytensor_cl.routines.random.draw import Draw
from tests.helpers import assert_on_device, device_ops, host_ops, opencl

N = pt.lscalar("n")


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel():
    with pytensor.config.change_flags(opencl__placement="device"), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # a gamma's rate
        yield


@pytest.fixture
def by_the_device(monkeypatch):
    """Fail where NumPy draws."""
    monkeypatch.setattr(Draw, "_by_host", lambda *_: pytest.fail("NumPy has drawn"))


class Pair:
    """The same graph compiled for the device and for the host, each with a generator of its own.

    Parameters
    ----------
    make
        Called with a generator; returns the outputs and the generator after all draws.
    """

    def __init__(self, make, inputs=(N,), seed=3, host_mode="FAST_COMPILE", bits=np.random.PCG64):
        self.generators = [pytensor.shared(np.random.Generator(bits(seed)), name=f"rng{k}") for k in range(2)]
        self.functions = []
        for generator, mode in zip(self.generators, ("OPENCL", host_mode), strict=True):
            outputs, after = make(generator)
            f = pytensor.function(list(inputs), outputs, updates={generator: after}, mode=mode)
            self.functions.append(f)
        assert_on_device(self.functions[0], GpuRandomVariable)

    def check(self, *values, rtol=0.0):
        """Call both and compare numbers and states."""
        got, want = (f(*values) for f in self.functions)
        for a, b in zip(got, want, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            if rtol:
                np.testing.assert_allclose(a, b, rtol=rtol)
            else:
                np.testing.assert_array_equal(a, b)
        mine, other = (g.get_value(borrow=True).bit_generator.state for g in self.generators)
        assert str(mine) == str(other)

    def seed(self, seed):
        """Give both generators new values."""
        for generator in self.generators:
            generator.set_value(np.random.default_rng(seed))


def chained(generator):
    """Several draws, one after the other, of one generator."""
    options = {"return_next_rng": True}
    generator, a = pt.random.normal(1.0, 2.0, size=(N, 3), rng=generator, **options)
    generator, b = pt.random.uniform(-1, 1, size=(N,), rng=generator, **options)
    generator, c = pt.random.integers(0, 10, size=(N,), rng=generator, **options)
    generator, d = pt.random.gamma(2.0, scale=3.0, size=(N, 2), rng=generator, **options)
    generator, e = pt.random.bernoulli(0.3, size=(N,), rng=generator, **options)
    return [a, b, c, d, e], generator


def test_replayed_calls_new_sizes_and_new_generators(context, by_the_device):
    pair = Pair(chained)
    for n in (700, 700, 700, 700, 700, 60, 700, 1, 700):
        pair.check(n)
    pair.seed(11)
    pair.check(700)
    pair.check(700)


def test_draws_feed_kernels_that_are_repeated(context, by_the_device):
    """The draws run between captured graphs of the nodes that use them."""

    def make(generator):
        following, z = pt.random.normal(size=(N, 4), rng=generator, return_next_rng=True)
        return [pt.sqr(z).sum(axis=0), (z + 1).mean()], following

    pair = Pair(make)
    for _ in range(5):
        pair.check(400, rtol=1e-12)
    assert pair.functions[0].vm.executor.replay_count > 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dtypes(context, by_the_device, dtype):
    def make(generator):
        following, z = pt.random.normal(size=(N,), rng=generator, dtype=dtype, return_next_rng=True)
        following, u = pt.random.exponential(
            np.float32(1.5), size=(N,), rng=following, dtype=dtype, return_next_rng=True
        )
        return [z, u], following

    pair = Pair(make)
    pair.check(500)
    pair.check(500)


def test_parameters_from_the_device_and_from_the_host(context, by_the_device):
    mu, sigma, scalar = pt.vector("mu", dtype="float64"), pt.vector("sigma", dtype="float32"), pt.dscalar("s")

    def make(generator):
        options = {"return_next_rng": True}
        generator, a = pt.random.normal(pt.exp(mu), sigma[:, None], rng=generator, **options)
        generator, b = pt.random.normal(scalar, pt.exp(scalar), size=(N, 5), rng=generator, **options)
        generator, c = pt.random.uniform(pt.constant(np.array([1.0])), mu + 4, rng=generator, **options)
        generator, d = pt.random.normal(
            pt.constant(np.array([1.0])), pt.constant(np.array([2.0])), rng=generator, **options
        )
        generator, e = pt.random.gamma(scalar + 2, scale=mu + 4, size=(N, 6), rng=generator, **options)
        generator, f = pt.random.normal(mu.sum(), 1.0, size=(N,), rng=generator, **options)
        return [a, b, c, d, e, f], generator

    values = np.linspace(-1, 1, 6), np.linspace(0.5, 2, 4).astype("float32"), 0.25
    pair = Pair(make, (mu, sigma, scalar, N))
    for _ in range(3):
        pair.check(*values, 300, rtol=1e-13)


def test_a_generator_that_others_read_is_copied(context, by_the_device):
    generator, other = (pytensor.shared(np.random.default_rng(5)) for _ in range(2))
    same = opencl([N], [pt.random.normal(size=(N,), rng=generator, return_next_rng=True)[1] for _ in range(2)])
    a, b = same(300)
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(a, other.get_value().normal(size=300))
    assert str(generator.get_value().bit_generator.state) == str(other.get_value().bit_generator.state)
    assert not any(op.inplace for op in device_ops(same))


def test_a_generator_that_is_an_argument(context, by_the_device):
    rng = pt.random.type.random_generator_type("rng")
    following, z = pt.random.normal(size=(N,), rng=rng, return_next_rng=True)
    f = opencl([rng, N], [following, z])
    given = np.random.default_rng(5)
    after, drawn = f(given, 300)
    want = np.random.default_rng(5)
    assert str(given.bit_generator.state) == str(want.bit_generator.state)
    np.testing.assert_array_equal(drawn, want.normal(size=300))
    assert str(after.bit_generator.state) == str(want.bit_generator.state)


def test_random_streams(context, by_the_device):
    """Each call takes the numbers that follow."""
    stream = pt.random.utils.RandomStream(seed=4)
    z = stream.normal(size=(N,))
    f = opencl([N], z)
    stream.seed(4)
    first, second = f(300), f(300)
    stream.seed(4)
    g = pytensor.function([N], z, mode="FAST_COMPILE")
    np.testing.assert_array_equal(first, g(300))
    np.testing.assert_array_equal(second, g(300))


def test_few_draws_are_numpys_where_it_is_free_to_choose(context):
    with pytensor.config.change_flags(opencl__placement="auto"):
        generator = pytensor.shared(np.random.default_rng(5))
        following, z = pt.random.normal(size=(10, 10), rng=generator, return_next_rng=True)
        f = opencl([], z, updates={generator: following})
        assert [type(op).__name__ for op in host_ops(f)] == ["NormalRV"]
        assert "NumPy" in str(explain(f))
        following, z = pt.random.normal(size=(N,), rng=generator, return_next_rng=True)
        f = opencl([N], z, updates={generator: following})
    (node,) = [n for n in f.maker.fgraph.toposort() if isinstance(n.op, GpuRandomVariable)]
    assert node.op.min_elements == MIN_ELEMENTS
    want = np.random.default_rng(5)
    for n in (100, 10_000, 100):
        np.testing.assert_array_equal(f(n), want.normal(size=n))


def test_arrays_that_change_how_many_numbers_a_draw_takes_are_for_numpy(context):
    shapes = pt.vector("shapes", dtype="float64")

    def make(generator):
        following, z = pt.random.gamma(shapes, scale=1.0, size=(N, 3), rng=generator, return_next_rng=True)
        following, u = pt.random.uniform(size=(N,), rng=following, return_next_rng=True)
        return [z, u], following

    pair = Pair(make, (shapes, N))
    pair.check(np.array([0.5, 1.0, 2.0]), 200)
    (host,) = [op for op in host_ops(pair.functions[0]) if isinstance(op, RandomVariable)]
    assert host.name == "gamma"
    assert "raw numbers" in str(explain(pair.functions[0]))


def test_wrong_parameters_leave_the_generator_as_it_was(context):
    sigma = pt.vector("sigma", dtype="float64")
    generator = pytensor.shared(np.random.default_rng(5))
    following, z = pt.random.normal(size=(3,), rng=generator, return_next_rng=True)
    following, y = pt.random.normal(z, sigma, rng=following, return_next_rng=True)
    f = opencl([sigma], y, updates={generator: following})
    assert_on_device(f, GpuRandomVariable)
    before = str(generator.get_value(borrow=True).bit_generator.state)
    with pytest.raises(ValueError, match="scale < 0"):
        f(np.array([1.0, -1.0, 1.0]))
    assert str(generator.get_value(borrow=True).bit_generator.state) == before
    want = np.random.default_rng(5)
    np.testing.assert_array_equal(f(np.ones(3)), want.normal(want.normal(size=3), 1.0))


def test_other_generators_are_numpys(context):
    pair = Pair(chained, bits=np.random.SFC64)
    pair.check(100)
    pair.check(100)


def test_selection_may_move_a_draw(context):
    """Whatever runs a call, the numbers go on where they were."""
    with pytensor.config.change_flags(opencl__placement="auto", opencl__select_backend=True):
        generator = pytensor.shared(np.random.default_rng(5))
        following, z = pt.random.normal(size=(N,), rng=generator, return_next_rng=True)
        f = opencl([N], z, updates={generator: following})
    want = np.random.default_rng(5)
    for n in (6000, 20, 6000, 6000, 20, 20, 6000):
        np.testing.assert_array_equal(f(n), want.normal(size=n))


def test_the_last_bit_does_not_depend_on_the_backend(context):
    """NUMBA does not contract the product and the sum of a draw."""

    def make(generator):
        options = {"size": (N,), "return_next_rng": True}
        generator, a = pt.random.normal(1.3, 2.7, rng=generator, **options)
        generator, b = pt.random.uniform(-1.1, 2.3, rng=generator, **options)
        generator, c = pt.random.halfnormal(0.3, 1.7, rng=generator, **options)
        generator, d = pt.random.t(5.0, 0.3, 1.7, rng=generator, **options)
        return [a, b, c, d], generator

    generators = [pytensor.shared(np.random.Generator(np.random.SFC64(5))) for _ in range(2)]
    with pytensor.config.change_flags(opencl__placement="auto", opencl__select_backend=True):
        outputs, after = make(generators[0])
        f = opencl([N], outputs, updates={generators[0]: after})
    outputs, after = make(generators[1])
    g = pytensor.function([N], outputs, updates={generators[1]: after}, mode="FAST_COMPILE")
    for _ in range(2):
        for got, want in zip(f(1000), g(1000), strict=True):
            np.testing.assert_array_equal(got, want)
    assert "NUMBA" in str(explain(f))


def test_numbers_of_a_generator_that_counts(context, by_the_device):
    """Arrays of any parameter run on the device; no other backend may run the function."""
    shapes, m = pt.vector("shapes", dtype="float64"), pt.lscalar("m")
    generator = pytensor.shared(np.random.default_rng(5))
    following, z = pt.random.gamma(shapes, scale=2.0, size=(m, 3), rng=generator, return_next_rng=True)
    following, u = pt.random.binomial(10, 0.5, size=(m,), rng=following, return_next_rng=True)
    with pytensor.config.change_flags(opencl__random="philox", opencl__placement="auto", opencl__select_backend=True):
        f = opencl([shapes, m], [z, u], updates={generator: following})
    assert not any(isinstance(op, RandomVariable) for op in host_ops(f))
    assert "other numbers" in str(explain(f))
    values = np.array([0.5, 1.0, 4.0])
    (a, b), (c, d) = f(values, 4000), f(values, 4000)
    assert not np.array_equal(a, c)
    assert not np.array_equal(b, d)
    np.testing.assert_allclose(a.mean(axis=0), 2 * values, rtol=0.15)
    assert b.dtype == "int64"
    assert abs(b.mean() - 5) < 0.2
    generator.set_value(np.random.default_rng(5))
    np.testing.assert_array_equal(f(values, 4000)[0], a)
    want = np.random.default_rng(5)
    want.bit_generator.random_raw(4)
    assert str(generator.get_value(borrow=True).bit_generator.state) == str(want.bit_generator.state)


def test_pymc_draw(context, by_the_device):
    pymc = pytest.importorskip("pymc")
    with pymc.Model():
        mu = pymc.Normal("mu", 0.0, 2.0)
        x = pymc.Normal("x", mu, pymc.HalfNormal("sigma", 1.0), shape=50)
        b = pymc.Bernoulli("b", 0.3, shape=20)
    got = pymc.draw([mu, x, b], draws=4, random_seed=7, mode="OPENCL")
    want = pymc.draw([mu, x, b], draws=4, random_seed=7, mode="FAST_COMPILE")
    for a, c in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, c)


class Indices(IntegersRV):
    """Draws what PyTensor's class draws, as PyMC's MinibatchIndexRV does."""

    _print_name = ("indices", "indices")


class Shifted(NormalRV):
    """Draws something else than PyTensor's class."""

    @classmethod
    def rng_fn(cls, rng, loc, scale, size):
        return rng.normal(loc, scale, size) + 100


class WaldRV(RandomVariable):
    """Has the name of a class of PyTensor and another parameter, as PyMC's WaldRV."""

    name = "wald"
    signature = "(),(),()->()"
    dtype = "float64"

    @classmethod
    def rng_fn(cls, rng, mean, scale, shift, size):
        return rng.wald(mean, scale, size) + shift


def test_a_subclass_that_draws_the_same(context, by_the_device):
    Pair(lambda g: _drawn(Indices(), g, 3, 1000)).check(5000)


@pytest.mark.parametrize(("op", "parameters"), [(Shifted(), (0.0, 1.0)), (WaldRV(), (1.0, 2.0, 3.0))])
def test_classes_that_draw_something_else_are_the_hosts(context, op, parameters):
    generators = [pytensor.shared(np.random.default_rng(4)) for _ in range(2)]
    f, host = (
        pytensor.function([], op(*parameters, size=(50,), rng=g, return_next_rng=True)[1], mode=mode)
        for g, mode in zip(generators, ("OPENCL", "FAST_COMPILE"), strict=True)
    )
    np.testing.assert_array_equal(f(), host())
    (node,) = (n for n in explain(f).host_nodes if type(n.op) is type(op))
    assert node.reason == f"no OpenCL kernel for {type(op).__name__} yet"


def _drawn(op, generator, *parameters):
    following, drawn = op(*parameters, size=(N,), rng=generator, return_next_rng=True)
    return [drawn], following


def test_draws_of_pymc_that_have_names_of_pytensor(context):
    pymc = pytest.importorskip("pymc")
    with pymc.Model():
        x = pymc.Wald("x", 1.5, 2.0, alpha=2.0, shape=20)
    got, want = (pymc.draw(x, random_seed=3, mode=mode) for mode in ("OPENCL", "FAST_COMPILE"))
    np.testing.assert_array_equal(got, want)
