"""The first draw of thousands of chains has the moments of the distribution, where trajectory lengths differ from place to place.

The chains start with draws from the distribution. What is adapted, and when it is, must not move them out of it.
"""

import numpy as np
import pytest

pm = pytest.importorskip("pymc")

from pytensor_cl.ops.elemwise import GpuElemwise  # noqa: E402
from pytensor_cl.pymc.density import ModelDensity  # noqa: E402
from pytensor_cl.pymc.device_trees import DeviceTreeChains  # noqa: E402
from pytensor_cl.pymc.hamiltonian import Hamiltonian  # noqa: E402
from pytensor_cl.pymc.langevin import Langevin  # noqa: E402
from pytensor_cl.pymc.meads import Meads  # noqa: E402
from pytensor_cl.pymc.nuts import Nuts, TreeChains, block_ends  # noqa: E402
from pytensor_cl.pymc.samplers import Chees, window_ends  # noqa: E402
from tests.helpers import assert_on_device, on_one_driver  # noqa: E402

CHAINS = 4096  # with MEADS, whose statistics take long, a quarter
TUNE = 24
TREES = {"nuts": TreeChains, "nuts on the device": DeviceTreeChains}
MOST_ERRORS = 3.5
"""Standard errors of a moment, at most."""


def funnel(deviation):
    """A scale's logarithm, and six normal variables of that scale."""
    with pm.Model() as model:
        v = pm.Normal("v", 0, deviation)
        pm.Normal("x", 0, pm.math.exp(v / 2), shape=6)
    return ModelDensity(model, {"v": (), "x": (6,)})


def started(sampler, density, deviation, n):
    """Some chains at draws from the funnel, and what moves them."""
    seed = np.random.SeedSequence(5)
    if sampler in TREES:
        chains = TREES[sampler](density, n, seed, "OPENCL", 1023)
        moves = Nuts(chains, TUNE, 1, 0.8)
    elif sampler == "meads":
        chains = Langevin(density, n, 5, "OPENCL")
        moves = Meads(chains, TUNE, 4, None, seed)
    else:
        chains = Hamiltonian(density, n, 5, "OPENCL")
        moves = Chees(chains, TUNE, 0.7, 15, 2.0, adapt_length=sampler == "chees")
    rng = np.random.default_rng(8)
    v = deviation * rng.normal(size=n)
    chains.set_positions([v, np.exp(v / 2)[:, None] * rng.normal(size=(n, 6))])
    moves.start()
    return chains, moves


@on_one_driver
@pytest.mark.parametrize(
    ("sampler", "deviation"),
    [("nuts", 1.5), ("nuts", 0.5), ("nuts on the device", 1.5), ("chees", 1.5), ("hmc", 1.5), ("meads", 1.0)],
)
def test_first_draw_of_a_funnel(context, on_device, sampler, deviation):
    density = funnel(deviation)
    chains, moves = started(sampler, density, deviation, CHAINS)
    for _ in range(TUNE + 1):
        done = moves.iterate()
    assert not done.tuning
    v, x = (np.asarray(part, "float64") for part in chains.positions())
    scaled = x * np.exp(-v / 2)[:, None]
    for value, scale in ((v, deviation), (scaled, 1.0)):
        assert abs(value.mean()) < MOST_ERRORS * scale / np.sqrt(value.size)
        assert abs(value.var() / scale**2 - 1) < MOST_ERRORS * np.sqrt(2 / value.size)
    function = {**dict.fromkeys(TREES, "evaluate"), "meads": "advance"}.get(sampler, "step")
    assert_on_device(getattr(chains, function), GpuElemwise)


@pytest.mark.parametrize("tune", [0, 1, 5, 30, 100, 1000])
def test_blocks_of_the_warm_up(tune):
    """Blocks end where windows of the mass matrix do, and the last one with the warm-up."""
    ends = block_ends(tune)
    assert ends == sorted(set(ends))
    assert set(window_ends(tune)) <= set(ends)
    assert (ends or [0])[-1] == tune


@on_one_driver
def test_all_chains_make_the_same_number_of_transitions(context):
    """An iteration ends when each chain has its draw; chains that run ahead stop at the end of the block."""
    density = funnel(1.5)
    chains, moves = started("nuts", density, 1.5, 64)
    ends = block_ends(TUNE)
    for iteration in range(TUNE):
        begun = max([0, *(end for end in ends if end <= iteration)])
        trees = chains.trees
        if iteration == begun:
            trees.draws[:] = np.nan
        moves.iterate()
        assert trees.n_draws.min() >= iteration + 1 - begun
        assert len(trees.draws) == min(end for end in ends if end > iteration) - begun
        if iteration + 1 in ends:
            # All draws of all chains are there, and the next trees begin at the last ones.
            assert np.isfinite(trees.draws).all()
            np.testing.assert_array_equal(chains.trees.end_position[0], trees.draws[-1])
            assert chains.trees.leaves.max() == 0
