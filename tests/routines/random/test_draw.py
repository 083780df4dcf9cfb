"""Draws on the device: the numbers of NumPy, and the state that it leaves."""

import numpy as np
import pytensor.tensor.random.basic as basic
import pytest

from pytensor_cl.nn.dropout import MaskRV
from pytensor_cl.routines.random.dirichlet import DirichletDraw
from pytensor_cl.routines.random.distributions import DISTRIBUTIONS, VARIATES
from pytensor_cl.routines.random.draw import Draw, HostDraw
from pytensor_cl.routines.random.generator import GENERATORS, sequence_of, ziggurat_tables
from tests.helpers import sweep

PARAMETERS = {
    "BernoulliRV": [(0.3,), (0.8,), (1.0,)],
    "BetaRV": [(3.0, 2.0), (1.0, 1.5), (0.5, 0.5), (0.5, 2.0)],
    "BinomialRV": [(10, 0.3), (500, 0.3), (500, 0.95), (10, 0.7), (5, 1.0)],
    "CategoricalRV": [(np.array([0.2, 0.3, 0.5]),)],
    "CauchyRV": [(1.0, 2.0)],
    "DirichletRV": [(np.full(3, 2.5),), (np.ones(4),), (np.full(5, 0.3),), (np.full(2, 0.1),)],
    "ExponentialRV": [(2.0,)],
    "GammaRV": [(3.0, 2.0), (1.0, 2.0), (0.4, 2.0)],
    "GenGammaRV": [(3.0, 2.0, 1.5)],
    "GeometricRV": [(0.5,), (0.05,), (1.0,)],
    "GumbelRV": [(1.0, 2.0)],
    "HalfCauchyRV": [(1.0, 2.0)],
    "HalfNormalRV": [(1.0, 2.0)],
    "HyperGeometricRV": [(30, 20, 15), (20, 90, 80), (3000, 2000, 700), (200, 0, 100)],
    "IntegersRV": [(0, 10), (-5, 2**32 - 5), (-7, 3 * 2**30), (0, 2**40), (-(2**62), 2**62 + 5), (-(2**63), 2**63 - 1)],
    "InvGammaRV": [(3.0, 2.0)],
    "LaplaceRV": [(1.0, 2.0)],
    "LogNormalRV": [(0.5, 0.7)],
    "LogisticRV": [(1.0, 2.0)],
    "MaskRV": [(0.3,), (0.0,), (1.0,)],
    "NegBinomialRV": [(3.0, 0.4), (0.5, 0.05), (200.0, 0.5)],
    "NormalRV": [(1.0, 2.0)],
    "ParetoRV": [(2.0, 3.0)],
    "PoissonRV": [(3.0,), (30.0,), (1e4,)],
    "StudentTRV": [(4.0, 1.0, 2.0), (1.0, 0.0, 1.0)],
    "TriangularRV": [(1.0, 2.0, 4.0)],
    "TruncExponentialRV": [(2.0, 1.0, 3.0)],
    "UniformRV": [(1.0, 3.0)],
    "VonMisesRV": [(0.5, 2.0), (1.0, 0.0)],
    "WaldRV": [(1.5, 2.0)],
    "WeibullRV": [(1.5,)],
}
# Only counter-based generators draw the others.
WITH_STREAMS = [name for name, d in DISTRIBUTIONS.items() if d.variate in ("", "integers", "ratio_gamma", *VARIATES)]
CASES = [(name, number) for name in WITH_STREAMS for number in range(len(PARAMETERS[name]))]
FEW = [("NormalRV", 0), ("IntegersRV", 0), ("GammaRV", 0), ("UniformRV", 0), ("BinomialRV", 1), ("DirichletRV", 0)]
SIZES = ((), (7,), (3, 2000))


def op_of(name, dtype=None):
    """The host Op."""
    if name == "MaskRV":
        return MaskRV()
    kind = getattr(basic, name)
    return kind(dtype=dtype or ("int64" if kind.dtype == "int64" else "float64"))


def is_exact(name, values):
    """Return whether the numbers are the same to the last bit."""
    distribution = DISTRIBUTIONS[name]
    if name == "IntegersRV" or not distribution.variate:
        return distribution.is_exact
    if distribution.variate == "ratio_gamma":
        return False
    fixed = (np.ravel(values[k])[0] for k in distribution.fixed)
    return distribution.is_exact and VARIATES[distribution.variate].is_exact(*fixed)


def generators(bits="PCG64", before=0, seed=5):
    """Two generators in the same state; `before` numbers of 32 bits have been taken."""
    pair = [np.random.Generator(getattr(np.random, bits)(seed)) for _ in range(2)]
    for generator in pair:
        generator.integers(0, 9, before, dtype="uint32")
    return pair


def check(context, name, values, size, pair, schedule=None, dtype=None):
    """Compare with what PyTensor's Op does on the host, and the states afterwards."""
    op = op_of(name, dtype)
    mine, other = pair
    kind = DirichletDraw if name == "DirichletRV" else Draw
    routine = kind(context, name, op.dtype, HostDraw(op.rng_fn, None), schedule)
    free = [k for k in DISTRIBUTIONS[name].free if np.ndim(values[k])]
    given = [context.from_host(np.asarray(v)) if k in free else v for k, v in enumerate(values)]
    after, drawn = routine(mine, size, *given)
    want = np.asarray(op.rng_fn(other, *map(np.asarray, values), size), dtype=op.dtype)
    got = drawn.to_host()
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if is_exact(name, values):
        np.testing.assert_array_equal(got, want)
    else:
        np.testing.assert_allclose(got, want, rtol=1e-12 if op.dtype == "float64" else 1e-6, atol=1e-12)
    assert after is mine
    assert str(mine.bit_generator.state) == str(other.bit_generator.state)
    assert routine.on_host == 0
    return routine


@sweep(("name", "number"), CASES, FEW)
def test_numbers_and_states_are_numpys(context, name, number):
    values = PARAMETERS[name][number]
    for k, size in enumerate(SIZES):
        check(context, name, values, size, generators(before=k, seed=11 * k))


@sweep(("bits", "schedule"), [(b, s) for b in GENERATORS for s in ("cpu", "simt")], [("PCG64DXSM", "simt")])
def test_generators_and_schedules(context, bits, schedule):
    for name, number in FEW:
        check(context, name, PARAMETERS[name][number], (5000,), generators(bits, before=1), schedule)


@pytest.mark.parametrize("schedule", ["cpu", "simt"])
def test_few_numbers(context, schedule):
    for name in ("UniformRV", "NormalRV", "IntegersRV"):
        for size in ((1,), (5, 60)):
            check(context, name, PARAMETERS[name][0], size, generators(before=1), schedule)


def test_many_draws_one_after_the_other(context):
    pair = generators()
    for size in (1, 10, 300, 40_000, 2):
        for name, number in (("NormalRV", 0), ("IntegersRV", 0), ("ExponentialRV", 0), ("UniformRV", 0)):
            check(context, name, PARAMETERS[name][number], (size,), pair)


def test_a_long_stream_is_drawn_in_batches(context, monkeypatch):
    monkeypatch.setattr("pytensor_cl.routines.random.stream.ROUND_POSITIONS", 5000)
    check(context, "NormalRV", (1.0, 2.0), (30_000,), generators())
    check(context, "PoissonRV", (30.0,), (9_000,), generators())


def test_chains_that_do_not_meet_are_followed_again(context, monkeypatch):
    short = {name: v._replace(warm=0) for name, v in VARIATES.items()}
    monkeypatch.setattr("pytensor_cl.routines.random.draw.VARIATES", short)
    for name, values in (("GammaRV", (3.0, 2.0)), ("StudentTRV", (5.0, 0.0, 1.0)), ("IntegersRV", (0, 3 * 2**30))):
        check(context, name, values, (20_000,), generators())


def test_the_sizes_of_work_groups_do_not_depend_on_the_draws(context, monkeypatch):
    """A driver may compile a kernel for each size of its work-groups."""
    sizes, launch = set(), context.queue.launch

    def record(kernel, global_size, local_size):
        sizes.add(local_size)
        launch(kernel, global_size, local_size)

    monkeypatch.setattr(context.queue, "launch", record)
    for seed in range(5):
        check(context, "NormalRV", (1.0, 2.0), (20_000,), generators(seed=seed))
    assert None not in sizes
    assert len(sizes) <= 2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_arrays_of_parameters_are_broadcast(context, dtype):
    rows, columns = np.linspace(0.5, 2.0, 3)[:, None], np.linspace(2.5, 4.0, 500)
    for name in ("NormalRV", "UniformRV", "LaplaceRV", "HalfNormalRV"):
        for size in ((3, 500), None, (2, 3, 500)):
            check(context, name, (rows.astype(dtype), columns), size, generators(), dtype=dtype)
    check(context, "ExponentialRV", (columns[::-1],), (4, 500), generators(), dtype=dtype)
    check(context, "BernoulliRV", (columns / 5,), (4, 500), generators())
    check(context, "StudentTRV", (5.0, columns, 1.0), (4, 500), generators())
    check(context, "CategoricalRV", (np.random.default_rng(2).dirichlet([1, 2, 3], (4, 1)),), (5, 4, 7), generators())


@pytest.mark.parametrize("schedule", ["cpu", "simt"])
def test_binomial_numbers_of_arrays(context, rng, schedule):
    n, p = np.arange(1, 61), rng.uniform(0.01, 1.0, (50, 1))
    op = op_of("BinomialRV")
    routine = Draw(context, "BinomialRV", "int64", HostDraw(op.rng_fn, None), schedule, of_arrays=True)
    mine, other = generators()
    drawn = routine(mine, None, context.from_host(n), context.from_host(p))[1]
    np.testing.assert_array_equal(drawn.to_host(), other.binomial(n, p))
    assert mine.bit_generator.state == other.bit_generator.state
    assert routine.on_host == 0
    drawn = routine(mine, None, context.from_host(n + 100), context.from_host(p))[1]  # BTPE for some
    np.testing.assert_array_equal(drawn.to_host(), other.binomial(n + 100, p))
    assert routine.on_host == 1


@pytest.mark.parametrize("name", ["ParetoRV", "TruncExponentialRV", "InvGammaRV", "GenGammaRV"])
def test_what_is_computed_of_a_parameter_has_its_precision(context, name):
    """SciPy and NumPy take the reciprocal of a number of single precision in single precision."""
    values = [np.asarray(v * 1.1, "float32") for v in PARAMETERS[name][0]]
    check(context, name, values, (300,), generators())
    values[DISTRIBUTIONS[name].free[0]] = np.full(300, values[DISTRIBUTIONS[name].free[0]])
    check(context, name, values, (300,), generators())


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("NormalRV", "float32"), ("BernoulliRV", "bool"), ("IntegersRV", "int8"), ("PoissonRV", "int32")],
)
def test_other_dtypes_are_cast(context, name, dtype):
    check(context, name, PARAMETERS[name][0], (3000,), generators(), dtype=dtype)


class Watched:
    """Counts what NumPy draws."""

    def __init__(self, name):
        self.op, self.calls = op_of(name), 0

    def __call__(self, *arguments):
        self.calls += 1
        return self.op.rng_fn(*arguments)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("NormalRV", (0.0, np.array([1.0, -1.0]))),
        ("NormalRV", (0.0, -1.0)),
        ("UniformRV", (np.array([0.0, 3.0]), np.array([1.0, 2.0]))),
        ("GammaRV", (-1.0, 1.0)),
        ("BernoulliRV", (np.array([0.5, 1.5]),)),
        ("BinomialRV", (5, 1.5)),
        ("IntegersRV", (5, 5)),
        ("TriangularRV", (3.0, 2.0, 1.0)),
        ("LogNormalRV", (0.0, -1.0)),
    ],
)
def test_wrong_parameters_raise_what_numpy_raises(context, name, values):
    host = Watched(name)
    routine = Draw(context, name, host.op.dtype, HostDraw(host, None))
    given = [context.from_host(v) if np.ndim(v) else v for v in values]
    generator, other = generators()
    with pytest.raises(ValueError):
        routine(generator, (2,), *given)
    assert host.calls == 1
    assert str(generator.bit_generator.state) == str(other.bit_generator.state)


def test_what_has_no_kernel_is_drawn_by_numpy(context):
    host = Watched("NormalRV")
    routine = Draw(context, "NormalRV", "float64", HostDraw(host, None, min_elements=10))
    for bits, size in (("SFC64", (50,)), ("MT19937", (50,)), ("PCG64", (9,)), ("PCG64", (0,))):
        mine, other = generators(bits)
        np.testing.assert_array_equal(routine(mine, size, 1.0, 2.0)[1].to_host(), other.normal(1.0, 2.0, size))
        np.testing.assert_array_equal(mine.random(3), other.random(3))
    assert routine.on_host == host.calls == 4
    mine, other = generators()
    drawn = routine(mine, (2,), 1.0, context.from_host(np.array([0.0, 2.0])))[1]  # a scale of zero is NumPy's to judge
    np.testing.assert_array_equal(drawn.to_host(), other.normal(1.0, [0.0, 2.0]))


def test_another_numpy_is_noticed(context, monkeypatch):
    """Where NumPy draws other numbers than the kernels, NumPy's are the result."""
    wrong = {"normal": VARIATES["normal"]._replace(numpy=lambda rng, n: rng.standard_normal(n) + 1e-9)}
    monkeypatch.setattr("pytensor_cl.routines.random.draw.VARIATES", wrong)
    host = Watched("NormalRV")
    routine = Draw(context, "NormalRV", "float64", HostDraw(host, None))
    mine, other = generators()
    np.testing.assert_array_equal(routine(mine, (500,), 0.0, 1.0)[1].to_host(), other.normal(size=500))
    assert routine.on_host == 1
    assert str(mine.bit_generator.state) == str(other.bit_generator.state)


def test_a_copy_of_the_generator_is_changed_where_requested(context):
    op = op_of("NormalRV")
    mine, other = generators()

    def copy(generator):
        copied = np.random.default_rng()
        copied.bit_generator.state = generator.bit_generator.state
        return copied

    routine = Draw(context, "NormalRV", "float64", HostDraw(op.rng_fn, copy))
    after, drawn = routine(mine, (100,), 0.0, 1.0)
    assert str(mine.bit_generator.state) == str(other.bit_generator.state)
    np.testing.assert_array_equal(drawn.to_host(), other.normal(size=100))
    assert str(after.bit_generator.state) == str(other.bit_generator.state)


@pytest.mark.parametrize("bits", GENERATORS)
def test_positions_of_a_sequence(bits):
    mine, other = generators(bits, before=1)
    sequence = sequence_of(mine)
    raw = np.random.Generator(getattr(np.random, bits)())
    raw.bit_generator.state = {**other.bit_generator.state, "has_uint32": 0}
    numbers = raw.bit_generator.random_raw(50)
    halves = [other.bit_generator.state["uinteger"], *(h for n in numbers.tolist() for h in (n & 0xFFFFFFFF, n >> 32))]
    for position in (0, 1, 17, 49):
        sequence.go(position)
        assert mine.bit_generator.random_raw() == numbers[position]
    for word in (-1, 0, 1, 2, 7, 44):
        sequence.go_to_half(word)
        drawn = mine.integers(0, 2**32, 3, dtype="uint32")
        np.testing.assert_array_equal(drawn, halves[word + 1 : word + 4])
    sequence.restore()
    assert str(mine.bit_generator.state) == str(other.bit_generator.state)


def philox(counter, used, seed=3):
    """Two generators of Philox with such a counter, of which so many numbers of a block have been taken."""
    pair = [np.random.Generator(np.random.Philox(seed)) for _ in range(2)]
    words = np.array([counter >> 64 * k & (1 << 64) - 1 for k in range(4)], "uint64")
    for generator in pair:
        state = generator.bit_generator.state
        state["state"]["counter"] = words
        generator.bit_generator.state = state
        generator.bit_generator.random_raw(used)
    return pair


@sweep(("name", "number"), CASES, FEW)
def test_numbers_of_philox(context, name, number):
    for k, size in enumerate(((7,), (3, 2000))):
        check(context, name, PARAMETERS[name][number], size, generators("Philox", k, seed=11 * k))


@pytest.mark.parametrize("schedule", ["cpu", "simt"])
def test_blocks_and_counters_of_philox(context, schedule):
    """Draws begin anywhere in a block; the counter has 256 bits, with carries between its words."""
    for used in range(1, 6):
        for name in ("UniformRV", "NormalRV"):
            check(context, name, PARAMETERS[name][0], (300,), philox(used, used), schedule)
    for bits in (64, 128, 192, 256):
        for before in (2, 14, 40):
            for name in ("UniformRV", "NormalRV"):
                check(context, name, PARAMETERS[name][0], (2000,), philox((1 << bits) - before, 2), schedule)


def test_a_buffer_of_philox_that_was_set_to_other_numbers(context):
    op = op_of("NormalRV")
    routine = Draw(context, "NormalRV", "float64", HostDraw(op.rng_fn, None))
    pair = philox(5, 2)
    for generator in pair:
        state = generator.bit_generator.state
        state["buffer"] = np.arange(4, dtype="uint64")
        generator.bit_generator.state = state
    mine, other = pair
    np.testing.assert_array_equal(routine(mine, (50,), 0.0, 1.0)[1].to_host(), other.normal(size=50))
    assert str(mine.bit_generator.state) == str(other.bit_generator.state)
    assert routine.on_host == 1


def test_the_tables_are_numpys():
    """A draw of the fast path is an integer times the width of a layer: states are chosen so that it is one."""
    tables = ziggurat_tables()
    widths = tables[256:512].view("float64")
    generator = np.random.default_rng(1)
    multiplier, increment = 0x2360ED051FC65DA44385DF649FCCF645, 1
    inverse = pow(multiplier, -1, 1 << 128)
    for layer in (0, 2, 3, 100, 254, 255):
        number = (12345 << 9) | layer
        state = (number - increment) * inverse % (1 << 128)
        generator.bit_generator.state = {
            "bit_generator": "PCG64",
            "state": {"state": state, "inc": increment},
            "has_uint32": 0,
            "uinteger": 0,
        }
        assert generator.standard_normal() == 12345 * widths[layer]


def test_an_unknown_schedule_is_refused(context):
    with pytest.raises(ValueError, match="schedule"):
        Draw(context, "NormalRV", "float64", HostDraw(None, None), "tpu")


def test_a_dirichlet_draw_that_numpy_makes(context):
    """Unequal shapes, shapes for which NumPy draws beta numbers, and shapes that it refuses."""
    op = op_of("DirichletRV")
    for shapes in ([0.5, 2.0, 1.0], [0.05, 0.05], [[1.0, 1.0], [2.0, 2.0]]):
        routine = DirichletDraw(context, "DirichletRV", "float64", HostDraw(op.rng_fn, None))
        mine, other = generators()
        got = routine(mine, (9, 2), np.array(shapes))[1].to_host()
        np.testing.assert_array_equal(got, op.rng_fn(other, np.array(shapes), (9, 2)))
        assert str(mine.bit_generator.state) == str(other.bit_generator.state)
        assert routine.on_host == 1
    with pytest.raises(ValueError, match="alpha"):
        routine(mine, (9,), np.array([-1.0, -1.0]))


def test_batches_of_equal_dirichlet_shapes(context):
    for size in (None, (500, 3)):
        check(context, "DirichletRV", (np.full((3, 4), 1.5),), size, generators())
    check(context, "DirichletRV", (np.full((3, 4), 1.5),), (5, 3), generators(), dtype="float32")
    check(context, "DirichletRV", (np.full(500, 2.5),), (30,), generators())  # the order of a long sum


def test_gamma_numbers_of_shape_one_are_exponential_numbers(context):
    routine = check(context, "GammaRV", (1.0, 2.0), (20_000,), generators())
    assert list(routine._streams) == ["exponential"]
    check(context, "InvGammaRV", (1.0, 2.0), (20_000,), generators())
