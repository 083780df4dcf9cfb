"""Arguments of `sample`: what is wrong is an error before anything is compiled, and says what to do."""

import numpy as np
import pytest

pm = pytest.importorskip("pymc")
pytest.importorskip("arviz_base")

from pymc.exceptions import SamplingError  # noqa: E402

from pytensor_cl.pymc import sample, sampling  # noqa: E402
from pytensor_cl.pymc.arguments import entropy, superchain_number  # noqa: E402
from pytensor_cl.pymc.langevin import Langevin  # noqa: E402
from pytensor_cl.pymc.sampling import summary  # noqa: E402


@pytest.fixture
def model(monkeypatch):
    """A model; whatever is compiled for it is an error."""

    def fails(*args, **kwargs):
        raise AssertionError("something was compiled")

    monkeypatch.setattr(sampling, "ModelDensity", fails)
    with pm.Model() as model:
        pm.Normal("x", 0, 1, shape=2)
    return model


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"trajectory_length": -1}, ValueError, "positive and finite"),
        ({"trajectory_length": 0}, ValueError, "positive and finite"),
        ({"trajectory_length": np.nan, "sampler": "hmc"}, ValueError, "positive and finite"),
        ({"trajectory_length": 1.0, "sampler": "nuts"}, ValueError, "no trajectory_length"),
        ({"target_ess": np.nan}, ValueError, "positive and finite"),
        ({"target_accept": 0}, ValueError, "between 0 and 1"),
        ({"target_accept": np.nan}, ValueError, "between 0 and 1"),
        ({"draws": 10.5}, TypeError, "draws must be an integer"),
        ({"cores": 4}, TypeError, "'cores': all chains advance together"),
        ({"nuts_sampler": "nutpie"}, TypeError, "'nuts_sampler': sampler= selects"),
        ({"compile_kwargs": {"mode": "NUMBA"}}, TypeError, "'compile_kwargs': mode= is"),
        ({"step": None}, TypeError, "'step': sampler= selects"),
        ({"idata_kwargs": {}}, TypeError, "log_likelihood=True"),
        ({"chians": 4}, TypeError, "unexpected keyword argument 'chians'"),
        ({"random_seed": "1"}, TypeError, "random_seed must be"),
        ({"initvals": [{"x": 0}]}, TypeError, "initvals must be one dict"),
        ({"initvals": {"z": 0}}, ValueError, "no free variable of the model: z"),
        ({"var_names": "x"}, TypeError, "sequence of names"),
        ({"var_names": ["z"]}, ValueError, "not variables of the model: z"),
    ],
)
def test_bad_arguments(model, options, error, message):
    with pytest.raises(error, match=message):
        sample(model, **options)


def test_first_argument_is_the_model():
    with pytest.raises(TypeError, match="draws= is given by name"):
        sample(1000)


def test_seeds():
    """Equal seeds give equal numbers; a SeedSequence stays as it is, a generator goes on."""
    sequence = np.random.SeedSequence(5)

    def words(seed):
        return entropy(seed).generate_state(4).tolist()

    assert words(sequence) == words(sequence) == words(np.random.SeedSequence(5))
    assert words(np.random.PCG64(3)) == words(np.random.default_rng(3))
    generator = np.random.default_rng(3)
    assert words(generator) != words(generator)
    assert words([1, 2]) == words(np.array([1, 2]))


@pytest.mark.parametrize(
    ("chains", "expected"), [(1024, 16), (100, 10), (127, 16), (13, 6), (34, 16), (22, 11), (4, 2), (3, 1), (2, 1)]
)
def test_superchains(chains, expected):
    """A prime number of chains has superchains as well."""
    assert superchain_number(None, chains) == expected


class _Kept:
    def __init__(self, draws):
        self._draws = draws

    def flat(self):
        return self._draws


def statistics(chains):
    return {
        "diverging": np.zeros((chains, 20), bool),
        "lp": np.zeros((chains, 20)),
        "acceptance_rate": np.ones((chains, 20)),
    }


@pytest.mark.parametrize(
    ("value", "superchains", "message"),
    [
        (np.nan, 4, "NaN: the draws of b"),
        (0.0, 4, "NaN: the draws of b"),
        (None, 1, "not known"),
        (None, 16, "not known"),
    ],
)
def test_what_is_not_a_number_is_not_good(rng, value, superchains, message):
    """Draws that are NaN or constant, and superchains that cannot be compared, each give a warning."""
    draws = rng.normal(size=(16, 20, 2))
    if value is not None:
        draws[:, :, 1] = value
    with pytest.warns(UserWarning, match=message):
        summary(_Kept(draws), statistics(16), 1.0, superchains, ["a", "b"])


def test_prime_number_of_chains(rng):
    """Superchains that disagree are found, though one chain belongs to none."""
    draws = rng.normal(size=(17, 20, 1))
    draws[:8] += 3
    with pytest.warns(UserWarning, match="do not agree"):
        found = summary(_Kept(draws), statistics(17), 1.0, superchain_number(None, 17), ["a"])
    assert found["nested_rhat_max"] > 1.5


def test_chains_on_their_way_are_named(rng):
    """All move together, so that nested R-hat is good; a parameter that does not move is not named."""
    draws = rng.normal(size=(64, 20, 2))
    draws[:, :, 1] += np.linspace(0, 2, 20)
    with pytest.warns(UserWarning, match="still on their way: .*, b move by up to 0"):
        found = summary(_Kept(draws), statistics(64), 1.0, 16, ["a", "b"])
    assert found["nested_rhat_max"] < 1.02
    assert 0.7 < found["drift_max"] < 1


def test_statistics_of_all_steps():
    """The statistics of an iteration of "meads" are those of all its steps, of which each diverges here."""
    with pm.Model() as model:
        pm.Normal("x", 0, 1e-3)
    from pytensor_cl.pymc.density import ModelDensity

    chains = Langevin(ModelDensity(model, {"x": ()}), 8, 1, "FAST_COMPILE")
    chains.set_positions([np.zeros(8)])
    chains.set_parameters(np.ones((8, 1)), np.ones(8), np.ones(8))
    found = chains.trajectory(5)
    np.testing.assert_array_equal(found.diverging, 5)
    np.testing.assert_array_equal(found.acceptance, 0)
    assert (found.worst_error >= found.energy_error).all()
    stats = found.statistics(1.0, 5)
    assert stats["diverging"].all()
    assert not stats["accepted"].any()
    chains.set_parameters(np.full((8, 1), 1e-3), np.full(8, 0.1), np.ones(8))
    assert not chains.trajectory(5).diverging.any()
    assert chains.trajectory(5).acceptance.min() > 0.9


def test_starting_points_name_the_variable():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.HalfNormal("scale")
        pm.Poisson("counts", pm.math.exp(x), observed=[-1, 2])
    with pytest.raises(SamplingError, match="There the log density of counts is -inf"):
        sample(model, chains=16, draws=1, tune=1, mode="FAST_COMPILE", progressbar=False)


@pytest.mark.parametrize("sampler", ["chees", "meads", "nuts", "smc"])
def test_empty_variable(sampler):
    """A variable of no element is sampled beside others."""
    with pm.Model() as model:
        pm.Normal("x", 3, 0.1)
        pm.Normal("none", 0, 1, shape=(0,))
    found = sample(
        model, sampler=sampler, chains=16, draws=8, tune=30, random_seed=1, progressbar=False, mode="FAST_COMPILE"
    )
    assert found.posterior["none"].shape == (16, 8, 0)
    assert abs(found.posterior["x"].values.mean() - 3) < 0.2


def test_nothing_but_empty_variables():
    with pm.Model() as model:
        pm.Normal("none", 0, 1, shape=(0,))
    with pytest.raises(ValueError, match="no parameter to sample: none has no element"):
        sample(model, chains=16, mode="FAST_COMPILE")
