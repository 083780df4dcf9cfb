"""`sample`: draws from the posterior of a PyMC model with many chains at once."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import pytensor

from pytensor_cl.pymc.arguments import (
    SAMPLERS,
    check_initvals,
    check_model,
    check_numbers,
    check_others,
    check_var_names,
    entropy,
    superchain_number,
)
from pytensor_cl.pymc.density import ModelDensity
from pytensor_cl.pymc.diagnostics import bulk_ess, nested_rhat
from pytensor_cl.pymc.hamiltonian import Hamiltonian
from pytensor_cl.pymc.initial import InitialPoints, move_to_bulk
from pytensor_cl.pymc.langevin import Langevin
from pytensor_cl.pymc.lost import find_lost
from pytensor_cl.pymc.meads import Meads
from pytensor_cl.pymc.memory import available_memory
from pytensor_cl.pymc.nuts import Nuts, TreeChains
from pytensor_cl.pymc.posterior import constrain, inference_data
from pytensor_cl.pymc.posterior import log_likelihood as observed_density
from pytensor_cl.pymc.prior import PriorDraws
from pytensor_cl.pymc.progress import progress_bar
from pytensor_cl.pymc.samplers import Chees, Iteration
from pytensor_cl.pymc.shards import ShardedHamiltonian, check_devices
from pytensor_cl.pymc.tempering import temper

__all__ = ["SAMPLERS", "sample", "summary"]

_ONE_DEVICE = {"meads": "its folds need each other's chains", "nuts": "its trees are on the host"}
_TARGET_ACCEPT = {"hmc": 0.8, "nuts": 0.8}
_RHAT_TOLERANCE = 0.02
"""Excess of the squared nested R-hat over that of one independent draw of each chain; above it there is a warning."""
_MOVES = 8
"""Trajectories at each temperature of sampler "smc"."""


_AnyChains = Hamiltonian | Langevin | ShardedHamiltonian | TreeChains
_AnySampler = Chees | Meads | Nuts


class _Settings(NamedTuple):
    """How to sample: the arguments of `sample` that samplers need."""

    draws: int
    tune: int
    sampler: str
    target_accept: float
    max_steps: int
    trajectory_length: float | None
    target_ess: float | None
    progressbar: bool


class _Draws:
    """Draws and statistics, in arrays that are allocated once.

    Parameters
    ----------
    shapes, dtypes
        Of the value variables.
    chains, draws
        How many there are at most.
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[str], chains: int, draws: int) -> None:
        self._values = [np.empty((chains, draws, *s), d) for s, d in zip(shapes, dtypes, strict=True)]
        self._stats: list[Mapping[str, np.ndarray]] = []

    def __len__(self) -> int:
        return len(self._stats)

    def add(self, positions: Sequence[np.ndarray], done: Iteration) -> None:
        """Keep the state after an iteration."""
        for array, value in zip(self._values, positions, strict=True):
            array[:, len(self)] = value
        self._stats.append(done.stats)

    def values(self) -> list[np.ndarray]:
        """Return, for each value variable, an array of shape (chains, draws, *shape)."""
        return [np.ascontiguousarray(array[:, : len(self)]) for array in self._values]

    def flat(self) -> np.ndarray:
        """Return the draws as one array of shape (chains, draws, parameters)."""
        return np.concatenate([value.reshape(*value.shape[:2], -1) for value in self.values()], axis=2)

    def stats(self) -> dict[str, np.ndarray]:
        """Return arrays of shape (chains, draws) by name."""
        return {name: np.stack([stat[name] for stat in self._stats], axis=1) for name in self._stats[0]}


def sample(
    model: Any = None,
    *,
    draws: int = 200,
    tune: int = 200,
    chains: int = 1024,
    sampler: str = "chees",
    random_seed: Any = None,
    target_accept: float | None = None,
    max_steps: int = 1023,
    trajectory_length: float | None = None,
    superchains: int | None = None,
    target_ess: float | None = None,
    initvals: Mapping[Any, Any] | None = None,
    jitter: bool = True,
    var_names: Sequence[str] | None = None,
    log_likelihood: bool = False,
    devices: Sequence[str] | None = None,
    mode: Any = "OPENCL",
    progressbar: bool = True,
    **others: Any,
) -> Any:
    """Draw from the posterior of a PyMC model with many chains that advance together.

    Positions, momenta, gradients and random numbers of all chains stay on the device. The step size, the trajectory
    length and the mass matrix are the same for all chains and are adapted from all of them, so a short warm-up is
    enough.

    Parameters
    ----------
    model : pymc.Model, optional
        The model; in a ``with model`` block it need not be given. All free variables must be continuous.
    draws : int
        Draws of each chain, at most.
    tune : int
        Iterations of warm-up, which are discarded.
    chains : int
        Number of chains.
    sampler : {"chees", "meads", "hmc", "nuts", "smc"}
        ``"chees"`` adapts the trajectory length (Hoffman, Radul, Sountsov 2021); ``"hmc"`` has a given one. ``"meads"``
        takes single steps and keeps a part of the momenta between them (Hoffman and Sountsov 2022); a draw is made
        after as many steps as it takes to replace them. It needs at least eight chains. ``"nuts"`` is the No-U-Turn
        sampler: each chain has trajectories of its own length, and begins the next one without waiting for others.
        ``"smc"`` first moves draws from the prior to the posterior through powers of the likelihood (sequential Monte
        Carlo), which suits posteriors with several modes, and then does as ``"chees"``. It adds the attribute
        ``log_marginal_likelihood``: the logarithm of the integral of likelihood and prior, where a ``Potential``
        counts as likelihood. Priors must be proper.
    random_seed : int, sequence of int, SeedSequence, BitGenerator, Generator, RandomState or None
        The same seed gives the same draws on the same device. Generators are advanced; a `SeedSequence` is not.
    target_accept : float, optional
        Wanted harmonic mean of the acceptance probabilities, between 0 and 1. Default 0.651, or 0.8 for ``"hmc"`` and
        ``"nuts"``, where each chain's probability is the mean over its steps.
        Not for ``"meads"``, whose step size follows from the curvature of the log density.
    max_steps : int
        Most leapfrog steps of a trajectory. For ``"nuts"``, trees have 1, 3, 7, 15, ... steps at most.
    trajectory_length : float, optional
        Longest trajectory in units of the mass matrix: the first one for ``"chees"`` and ``"smc"`` (default 2), all
        for ``"hmc"`` (default pi). For ``"meads"``: the time between two draws (default: that in which the momenta are
        replaced). Not for ``"nuts"``.
    superchains : int, optional
        Number of groups of chains that start at one point each, for nested R-hat. It divides `chains`. Default: the
        largest divisor of `chains` up to 16 that leaves at least two chains in each; if that is less than 4, as for a
        prime number of chains, 16, and the chains that are left over have no part in nested R-hat.
    target_ess : float, optional
        Sampling ends when each parameter of the unbounded space has this bulk effective sample size.
    initvals : dict, optional
        Starting values by variable or name, as for `pymc.sample`. Not for ``"smc"``.
    jitter : bool
        Whether uniform numbers between -1 and 1 are added to starting values. ``"smc"`` has none.
    var_names : sequence of str, optional
        Variables of the result; default all.
    log_likelihood : bool
        Whether the result has the log density of each observation.
    devices : sequence of str, optional
        Names of up to four contexts (flag ``contexts``, `pytensor_cl.use`), among which the chains are divided. Not for
        ``"meads"``. The draws do not depend on the number of devices, if they are of the same kind; they are others
        than without ``devices``. Default: the default context.
    mode
        PyTensor mode of all functions. The flags ``device`` and ``contexts`` select the device of ``"OPENCL"``.
    progressbar : bool
        Whether there is a progress bar if stderr is a terminal.

    Returns
    -------
    xarray.DataTree
        As `pymc.sample` returns: groups ``posterior``, ``sample_stats``, ``observed_data``, ``constant_data``, and
        ``log_likelihood`` if it is wanted.
        Attributes of ``posterior`` are the times in seconds (``compile_time``, ``tuning_time``, ``sampling_time``),
        ``ess_bulk_min``, ``ess_per_second`` (of the slowest parameter; warm-up counts, compilation does not),
        ``nested_rhat_max``, ``superchains``, ``trajectory_length`` and ``step_size``; ``restarted_chains``, how many
        chains were lost in the warm-up and have started again from others' positions; and ``lost_chains``, the numbers
        of those that are lost at the end. What a lost chain is, `pytensor_cl.pymc.lost.lost_chains` says.

    Raises
    ------
    ValueError
        If an argument is out of its range, the sampler is not known, or the model has discrete or no free variables.
    TypeError
        If an argument is of the wrong type, or one of `pymc.sample` that this function has not; the message says what
        there is instead.
    pymc.exceptions.SamplingError
        If no starting point with a finite log density is found, or the likelihood is zero at all draws from the prior.

    Notes
    -----
    A chain whose parameters are not allowed has a log density of minus infinity and stays where it was; this changes
    nothing for other chains. Trajectories whose energy grows by more than 1,000 are counted as divergences.
    """
    check_others(others)
    model = check_model(model)
    counts = {"draws": draws, "tune": tune, "chains": chains, "max_steps": max_steps}
    check_numbers(sampler, counts, target_accept, trajectory_length, target_ess)
    superchains = superchain_number(superchains, chains)
    check_initvals(model, initvals, sampler)
    check_var_names(model, var_names)
    if devices is not None:
        if sampler in _ONE_DEVICE:
            raise ValueError(f"sampler {sampler!r} runs on one device: {_ONE_DEVICE[sampler]}")
        check_devices(devices, chains)
    seeds = entropy(random_seed)
    if target_accept is None:
        target_accept = _TARGET_ACCEPT.get(sampler, 0.651)
    if sampler == "hmc" and trajectory_length is None:
        trajectory_length = float(np.pi)
    settings = _Settings(draws, tune, sampler, target_accept, max_steps, trajectory_length, target_ess, progressbar)
    begun = perf_counter()
    with _always_device():
        if sampler == "smc":
            state, log_share, is_rounded = _at_prior(model, settings, chains, seeds, mode, devices)
        else:
            initial = InitialPoints(model, initvals, jitter)
            state = _at_initial_points(model, settings, chains, superchains, initial, seeds, mode, devices)
    compiled = perf_counter()
    tempering = {}
    if isinstance(state, Hamiltonian | ShardedHamiltonian) and sampler == "smc":
        log_evidence, stages = temper(state, seeds.spawn(1)[0], _MOVES, log_share, is_rounded)
        tempering = {"log_marginal_likelihood": log_evidence, "temperatures": stages}
    tempered = perf_counter() - compiled
    iterations = _sampler(state, settings, seeds)
    kept, times = _run(state, iterations, settings)
    times = (times[0] + tempered, times[1])
    with _always_device():
        posterior = constrain(model, kept.values(), var_names, mode)
        pointwise = observed_density(model, kept.values(), mode) if log_likelihood else None
    attrs = {
        "compile_time": compiled - begun,
        "tuning_time": times[0],
        "sampling_time": times[1],
        "tuning_steps": tune,
        "sampler": sampler,
        "step_size": iterations.step_size,
        "trajectory_length": iterations.trajectory_length,
        "restarted_chains": len(iterations.restarted),
        **tempering,
    }
    if iterations.restarted:
        warnings.warn(
            f"{len(iterations.restarted)} of {chains} chains were lost in the warm-up, and have started again from "
            "others' positions",
            stacklevel=2,
        )
    stats = kept.stats()
    try:
        attrs.update(summary(kept, stats, sum(times), superchains, state.density.parameter_names))
    except MemoryError:
        warnings.warn("memory is not enough for effective sample sizes and nested R-hat", stacklevel=2)
    return inference_data(model, posterior, stats, attrs, pointwise)


def _at_initial_points(
    model: Any,
    settings: _Settings,
    chains: int,
    superchains: int,
    initial: InitialPoints,
    seeds: np.random.SeedSequence,
    mode: Any,
    devices: Sequence[str] | None,
) -> _AnyChains:
    """Return chains at the model's initial points."""
    point_seeds = [int(s) for s in seeds.spawn(1)[0].generate_state(superchains)]
    shapes = initial.shapes(point_seeds[0])
    state = _state(model, shapes, settings, chains, seeds.spawn(1)[0], mode, devices)
    initial.find(point_seeds, chains, state.set_positions)
    move_to_bulk(state, superchains)
    return state


def _at_prior(
    model: Any,
    settings: _Settings,
    chains: int,
    seeds: np.random.SeedSequence,
    mode: Any,
    devices: Sequence[str] | None,
) -> tuple[_AnyChains, float, bool]:
    """Return chains at draws from the prior, and what `temper` wants to know of them."""
    prior = PriorDraws(model)
    state = _state(model, prior.shapes(), settings, chains, seeds.spawn(1)[0], mode, devices)
    _, log_share = prior.find(int(seeds.spawn(1)[0].generate_state(1)[0]), chains, state.set_positions)
    return state, log_share, prior.is_rounded


def _state(
    model: Any,
    shapes: Mapping[str, tuple[int, ...]],
    settings: _Settings,
    chains: int,
    seed: np.random.SeedSequence,
    mode: Any,
    devices: Sequence[str] | None,
) -> _AnyChains:
    """Return the chains, with the functions that the sampler needs."""
    is_tempered = settings.sampler == "smc"
    if devices is not None:
        densities = [ModelDensity(model, shapes, tempered=is_tempered) for _ in devices]
        return ShardedHamiltonian(densities, chains, seed, mode, devices)
    density = ModelDensity(model, shapes, tempered=is_tempered)
    _check_memory(density, chains, settings.draws)
    if settings.sampler == "nuts":
        return TreeChains(density, chains, seed, mode, settings.max_steps)
    return (Langevin if settings.sampler == "meads" else Hamiltonian)(density, chains, seed, mode)


def _check_memory(density: ModelDensity, chains: int, draws: int) -> None:
    """Raise a MemoryError if the draws cannot be held, before anything is compiled."""
    needed, room = 8 * density.size * chains * draws, available_memory()
    if needed > room:
        raise MemoryError(
            f"{draws:,} draws of {chains:,} chains of {density.size:,} parameters take {needed / 1e9:,.1f} GB, and "
            f"{room / 1e9:,.1f} GB are available: fewer draws or chains"
        )


def _sampler(state: _AnyChains, settings: _Settings, seeds: np.random.SeedSequence) -> _AnySampler:
    """Return what moves the chains."""
    if isinstance(state, TreeChains):
        return Nuts(state, settings.tune, settings.draws, settings.target_accept)
    if isinstance(state, Langevin):
        return Meads(state, settings.tune, settings.max_steps, settings.trajectory_length, seeds.spawn(1)[0])
    return Chees(
        state,
        settings.tune,
        settings.target_accept,
        settings.max_steps,
        settings.trajectory_length or 2.0,
        settings.sampler != "hmc",
    )


def _run(state: _AnyChains, iterations: _AnySampler, settings: _Settings) -> tuple[_Draws, tuple[float, float]]:
    """Warm up and draw; return the draws, and the seconds of both."""
    density = state.density
    kept = _Draws(density.shapes, density.dtypes, state.chains, settings.draws)
    begun = perf_counter()
    tuned = begun
    divergences = 0
    next_check = 8
    iterations.start()
    with progress_bar(settings.tune + settings.draws, f"{state.chains} chains", settings.progressbar) as show:
        for index in range(settings.tune + settings.draws):
            if index == settings.tune:
                tuned = perf_counter()
            done = iterations.iterate()
            if not done.tuning:
                kept.add(state.positions(), done)
                divergences += int(done.stats.get("n_diverging", done.stats["diverging"]).sum())
            show(index + 1, f"{divergences} divergences, step size {done.step_size:.3g}, {done.n_steps} steps")
            if settings.target_ess and len(kept) >= next_check:
                next_check = int(next_check * 1.3) + 1
                if np.min(bulk_ess(kept.flat())) >= settings.target_ess:
                    break
    end = perf_counter()
    return kept, (tuned - begun, end - tuned)


def summary(
    kept: _Draws, stats: Mapping[str, np.ndarray], seconds: float, superchains: int, names: Sequence[str]
) -> dict[str, Any]:
    """Return attributes that say how good the draws are, and warn if they are not.

    What is NaN is never good: comparisons are written so that they fail for it.
    """
    flat = kept.flat()
    length = len(flat) // superchains
    rhats = nested_rhat(flat[: superchains * length], superchains)
    ess, rhat = float(np.min(bulk_ess(flat))), float(np.max(rhats))
    # Single trajectories diverge; those of an iteration of "meads" are its steps.
    counts = stats.get("n_diverging", stats["diverging"])
    trajectories = stats["n_steps"].sum() if "n_diverging" in stats else counts.size
    divergences = int(counts.sum())
    if divergences:
        warnings.warn(
            f"{divergences:,} of {trajectories:,} trajectories diverged; a higher target_accept or another "
            "parametrisation helps",
            stacklevel=3,
        )
    lost = find_lost(flat, stats)
    if lost.size:
        some = ", ".join(map(str, lost[:10])) + (", ..." if lost.size > 10 else "")
        warnings.warn(
            f"{lost.size} of {flat.shape[0]} chains are lost: they do not move, or are where the posterior has next to "
            f"no mass (posterior.attrs['lost_chains']: {some}); a longer warm-up (tune), initvals or 'smc' helps",
            stacklevel=3,
        )
    _judge_rhat(rhats, superchains, length, names)
    return {
        "ess_bulk_min": ess,
        "ess_per_second": ess / seconds,
        "nested_rhat_max": rhat,
        "superchains": superchains,
        "lost_chains": [int(index) for index in lost],
        "divergences": divergences,
    }


def _judge_rhat(rhats: np.ndarray, superchains: int, length: int, names: Sequence[str]) -> None:
    """Warn if nested R-hat is too large, or not known."""
    largest = float(np.max(rhats))
    if superchains < 2 or length < 2:
        message = f"is not known: it needs two superchains of two chains, and there are {superchains} of {length}"
    elif np.isnan(largest):
        bad = ", ".join(dict.fromkeys(name for name, value in zip(names, rhats, strict=True) if np.isnan(value)))
        message = f"is NaN: the draws of {bad} are all the same, or not finite"
    # With one draw of each chain, the means of superchains vary by the variance divided by the number of their chains.
    elif not largest**2 <= 1 + 1 / length + _RHAT_TOLERANCE:
        message = f"is {largest:.3f}: the superchains do not agree yet; a longer warm-up (tune) helps"
    else:
        return
    warnings.warn(f"nested R-hat {message}", stacklevel=4)


@contextmanager
def _always_device() -> Iterator[None]:
    """Compile without trials of other backends, which cost more than a run of a sampler."""
    with pytensor.config.change_flags(opencl__select_backend=False):
        yield
