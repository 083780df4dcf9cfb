"""`sample`: draws from the posterior of a PyMC model with many chains at once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import pytensor

from pytensor_cl.pymc.arguments import (
    check_callback,
    check_initvals,
    check_model,
    check_numbers,
    check_others,
    check_var_names,
    entropy,
    superchain_number,
)
from pytensor_cl.pymc.checkpoint import Checkpoint, model_digest
from pytensor_cl.pymc.cluster import ClusterHamiltonian, payload_of
from pytensor_cl.pymc.density import ModelDensity
from pytensor_cl.pymc.device_trees import DeviceTreeChains, check_trees, tree_place
from pytensor_cl.pymc.diagnostics import bulk_ess, drift, nested_rhat
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
from pytensor_cl.pymc.progress import warn
from pytensor_cl.pymc.run import AnyChains, AnySampler, Draws, Record, Run, Settings
from pytensor_cl.pymc.samplers import Chees
from pytensor_cl.pymc.shards import ShardedHamiltonian, check_devices, check_shards
from pytensor_cl.pymc.tempering import AnyHamiltonian, temper
from pytensor_cl.pymc.workers import check_client

_ONE_DEVICE = {"meads": "its folds need each other's chains", "nuts": "its chains take each step together"}
_TARGET_ACCEPT = {"hmc": 0.8, "nuts": 0.8}
_RHAT_TOLERANCE = 0.02
"""Excess of the squared nested R-hat over that of one independent draw of each chain; above it there is a warning."""
_DRIFT_TOLERANCE = 0.1
"""Deviations by which the halves of the draws may differ; above it there is a warning."""
_MOVES = 8
"""Trajectories at each temperature of sampler "smc"."""


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
    client: Any = None,
    shards: int | None = None,
    trees: str | None = None,
    mode: Any = "OPENCL",
    progressbar: bool = True,
    callback: Callable[[Record], Any] | None = None,
    checkpoint: str | PathLike[str] | None = None,
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
        Names of as many contexts as there are shards, or fewer (flag ``contexts``, `pytensor_cl.use`), among which the
        chains are divided. Not for ``"meads"`` and ``"nuts"``. The draws do not depend on the number of devices, if
        they are of the same kind; they are others than without ``devices``. Default: the default context.
    client : dask.distributed.Client, optional
        The client of a Dask cluster, among whose workers the chains are divided, instead of ``devices``. Each worker
        computes on its own default context. The draws do not depend on the number of workers, if they are of the same
        kind; with as many shards they are those of ``devices``. The chains of a worker that is lost go on elsewhere,
        and nothing of the draws changes. The model must be one that can be pickled.
    shards : int, optional
        Number of equal parts of the chains with ``devices`` or ``client``, which share no random numbers, at most half
        of `chains`; default 4. At most so many devices or workers have something to do. The draws depend on it.
    trees : {"device", "host"}, optional
        For ``"nuts"``: whether its trees are advanced by a kernel, or on the host by a function compiled by Numba. On
        the host positions and gradients are transferred in each step. The draws of both are right, but not the same
        ones. Default: the device, if its memory is not the host's and has room for them (`docs/many-chains.md`).
    mode
        PyTensor mode of all functions. The flags ``device`` and ``contexts`` select the device of ``"OPENCL"``.
    progressbar : bool
        Whether there is a progress bar if stderr is a terminal.
    callback : callable, optional
        Called after each iteration, also in the warm-up, with a `pytensor_cl.pymc.Record`. If it raises
        `KeyboardInterrupt`, sampling ends with the draws so far.
    checkpoint : path, optional
        A file to which the state of the run is written every few seconds, and at the end. If it exists, the run goes on
        from it, and makes the draws that it would have made without interruption, bit for bit. After the last draw it
        stays, and the same call returns the same draws at once.

    Returns
    -------
    xarray.DataTree
        The groups that `pymc.sample` returns: ``posterior``, ``sample_stats``, ``observed_data``, ``constant_data``,
        and ``log_likelihood`` if it is wanted.
        Attributes of ``posterior`` are the times in seconds (``compile_time``, ``tuning_time``, ``sampling_time``),
        ``ess_bulk_min``, ``ess_per_second`` (of the slowest parameter; warm-up counts, compilation does not),
        ``nested_rhat_max``, ``drift_max`` (how far all chains moved together during the draws, in deviations),
        ``superchains``, ``trajectory_length`` and ``step_size``; ``restarted_chains``, how many chains were lost in the
        warm-up and have started again from others' positions; and ``lost_chains``, the numbers of those that are lost
        at the end. What a lost chain is, `pytensor_cl.pymc.lost` says.

    Raises
    ------
    ValueError
        If an argument is out of its range, the sampler is not known, the model has discrete or no free variables, or
        the checkpoint is of another model or of other arguments.
    KeyboardInterrupt
        If the warm-up is interrupted; there are no draws. SIGTERM raises `SystemExit` there.
    MemoryError
        If memory does not hold the draws.
    RuntimeError
        If all workers of a cluster are lost, and no other comes within a minute. The checkpoint is written.
    TypeError
        If an argument is of the wrong type, or one of `pymc.sample` that this function has not; the message says what
        there is instead. If the model cannot be pickled for the workers of a cluster.
    pymc.exceptions.SamplingError
        If no starting point with a finite log density is found, or the likelihood is zero at all draws from the prior.

    Notes
    -----
    A chain whose parameters are not allowed has a log density of minus infinity and stays where it was; this changes
    nothing for other chains. Trajectories whose energy grows by more than 1,000 are counted as divergences.

    Ctrl-C (SIGINT) and SIGTERM end the run after the iteration that is under way: a checkpoint is written, and the
    draws so far are returned, with a warning. A second signal does not wait.
    """
    check_others(others)
    model = check_model(model)
    counts = {"draws": draws, "tune": tune, "chains": chains, "max_steps": max_steps}
    check_numbers(sampler, counts, target_accept, trajectory_length, target_ess)
    superchains = superchain_number(superchains, chains)
    check_initvals(model, initvals, sampler)
    check_var_names(model, var_names)
    check_callback(callback)
    shards = _check_places(sampler, chains, devices, client, shards)
    seeds = entropy(random_seed)
    if target_accept is None:
        target_accept = _TARGET_ACCEPT.get(sampler, 0.651)
    if sampler == "hmc" and trajectory_length is None:
        trajectory_length = float(np.pi)
    settings = Settings(draws, tune, sampler, target_accept, max_steps, trajectory_length, target_ess, progressbar)
    call = _Call(model, settings, chains, superchains, mode, devices, client, shards, check_trees(trees, sampler, mode))
    file = saved = None
    if checkpoint is not None:
        starts = {
            "jitter": jitter,
            "initvals": {str(name): np.asarray(v).tolist() for name, v in (initvals or {}).items()},
        }
        seed = None if random_seed is None else [int(word) for word in seeds.generate_state(4)]
        file = Checkpoint(checkpoint, {**_arguments(call), **starts, "random_seed": seed})
        saved = file.load()
        if saved is not None:
            call = call._replace(trees=saved["trees"])
    begun = perf_counter()
    with _always_device():
        if sampler == "smc":
            state, tempering = _at_prior(call, seeds, saved)
        else:
            state, tempering = _at_initial_points(call, InitialPoints(model, initvals, jitter), seeds, saved)
    run = Run(state, _sampler(state, settings, seeds), settings)
    compile_time = perf_counter() - begun - tempering.get("tempering_time", 0.0)
    if saved is not None:
        run.load_state_dict(saved["run"])

    def save(now: bool) -> None:
        if file is not None and (now or file.is_due):
            trees = state.place if isinstance(state, TreeChains) else None
            file.save({"run": run.state_dict(), "tempering": tempering, "trees": trees})

    try:
        run.go(callback, save)
    finally:
        if isinstance(state, ClusterHamiltonian):
            state.close()
    values = run.kept.values()
    with _always_device():
        posterior = constrain(model, values, var_names, mode)
        pointwise = observed_density(model, values, mode) if log_likelihood else None
    attrs, stats = _attributes(call, run, state, tempering)
    return inference_data(model, posterior, stats, {"compile_time": compile_time, **attrs}, pointwise)


class _Call(NamedTuple):
    """One call of `sample`."""

    model: Any
    settings: Settings
    chains: int
    superchains: int
    mode: Any
    devices: Sequence[str] | None
    client: Any
    shards: int | None
    trees: str | None


def _check_places(
    sampler: str, chains: int, devices: Sequence[str] | None, client: Any, shards: int | None
) -> int | None:
    """Raise if chains cannot be divided as is wanted; return the number of shards, None if they are on one device."""
    if devices is None and client is None:
        if shards is not None:
            raise ValueError("shards= needs devices= or client=: without them the chains are on one device")
        return None
    if devices is not None and client is not None:
        raise ValueError("devices= and client= cannot be given both: each worker has the device of its own flags")
    if sampler in _ONE_DEVICE:
        raise ValueError(f"sampler {sampler!r} runs on one device: {_ONE_DEVICE[sampler]}")
    shards = check_shards(chains, shards, "devices=" if client is None else "client=")
    if client is not None:
        check_client(client)
    else:
        assert devices is not None
        check_devices(devices, shards)
    return shards


def _arguments(call: _Call) -> dict[str, Any]:
    """Return what must be the same in a call that goes on from a checkpoint."""
    return {
        "model": model_digest(call.model),
        "floatX": pytensor.config.floatX,
        **call.settings._replace(progressbar=False)._asdict(),
        "chains": call.chains,
        "superchains": call.superchains,
        "devices": call.devices is not None,
        "client": call.client is not None,
        "shards": call.shards,
        "trees": call.trees,
        "mode": str(call.mode),
    }


def _at_initial_points(
    call: _Call, initial: InitialPoints, seeds: np.random.SeedSequence, saved: Mapping[str, Any] | None
) -> tuple[AnyChains, dict[str, Any]]:
    """Return chains at the model's initial points, but for those whose positions are saved; and no attributes."""
    point_seeds = [int(s) for s in seeds.spawn(1)[0].generate_state(call.superchains)]
    state = _state(call, initial.shapes(point_seeds[0]), seeds.spawn(1)[0])
    if saved is None:
        initial.find(point_seeds, call.chains, state.set_positions)
        move_to_bulk(state, call.superchains)
    return state, {}


def _at_prior(
    call: _Call, seeds: np.random.SeedSequence, saved: Mapping[str, Any] | None
) -> tuple[AnyChains, dict[str, Any]]:
    """Return chains that were moved from the prior to the posterior, and attributes of the result."""
    prior = PriorDraws(call.model)
    state = _state(call, prior.shapes(), seeds.spawn(1)[0])
    if saved is not None:
        return state, saved["tempering"]
    begun = perf_counter()
    _, log_share = prior.find(int(seeds.spawn(1)[0].generate_state(1)[0]), call.chains, state.set_positions)
    assert isinstance(state, AnyHamiltonian)
    evidence, stages = temper(state, seeds.spawn(1)[0], _MOVES, log_share, prior.is_rounded)
    seconds = perf_counter() - begun
    return state, {"log_marginal_likelihood": evidence, "temperatures": stages, "tempering_time": seconds}


def _attributes(
    call: _Call, run: Run, state: AnyChains, tempering: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return attributes of the result, and the statistics of the draws."""
    settings, sampler = call.settings, run.sampler
    tuning, sampling = run.seconds
    tuning += tempering.get("tempering_time", 0.0)
    attrs = {
        "tuning_time": tuning,
        "sampling_time": sampling,
        "tuning_steps": settings.tune,
        "sampler": settings.sampler,
        "step_size": sampler.step_size,
        "trajectory_length": sampler.trajectory_length,
        "restarted_chains": len(sampler.monitor.restarted),
        **tempering,
    }
    if sampler.monitor.restarted:
        warn(
            f"{len(sampler.monitor.restarted)} of {call.chains} chains were lost in the warm-up, and have started "
            "again from others' positions"
        )
    stats = run.kept.stats()
    try:
        seconds, names = tuning + sampling, state.density.parameter_names
        attrs.update(summary(run.kept, stats, seconds, call.superchains, names, sampler.monitor.excess))
    except MemoryError:
        warn("memory is not enough for effective sample sizes and nested R-hat")
    return attrs, stats


def _state(call: _Call, shapes: Mapping[str, tuple[int, ...]], seed: np.random.SeedSequence) -> AnyChains:
    """Return the chains, with the functions that the sampler needs."""
    model, sampler, chains, mode = call.model, call.settings.sampler, call.chains, call.mode
    is_tempered = sampler == "smc"
    density = ModelDensity(model, shapes, tempered=is_tempered)
    _check_memory(density, chains, call.settings.draws)
    if call.devices is not None:
        others = [ModelDensity(model, shapes, tempered=is_tempered) for _ in call.devices[1:]]
        assert call.shards is not None
        return ShardedHamiltonian([density, *others], chains, seed, mode, call.devices, call.shards)
    if call.client is not None:
        assert call.shards is not None
        payload = payload_of(model, shapes, is_tempered, chains // call.shards, mode)
        return ClusterHamiltonian(density, chains, seed, call.client, payload, call.shards, call.settings.draws)
    if sampler == "nuts":
        at = tree_place(call.trees, mode, chains, density.size, call.settings.max_steps)
        return (DeviceTreeChains if at == "device" else TreeChains)(
            density, chains, seed, mode, call.settings.max_steps
        )
    return (Langevin if sampler == "meads" else Hamiltonian)(density, chains, seed, mode)


def _check_memory(density: ModelDensity, chains: int, draws: int) -> None:
    """Raise a MemoryError if the draws cannot be held, before anything is compiled."""
    needed, room = 8 * density.size * chains * draws, available_memory()
    if needed > room:
        raise MemoryError(
            f"{draws:,} draws of {chains:,} chains of {density.size:,} parameters take {needed / 1e9:,.1f} GB, and "
            f"{room / 1e9:,.1f} GB are available: fewer draws or chains"
        )


def _sampler(state: AnyChains, settings: Settings, seeds: np.random.SeedSequence) -> AnySampler:
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


def summary(
    kept: Draws,
    stats: Mapping[str, np.ndarray],
    seconds: float,
    superchains: int,
    names: Sequence[str],
    excess: float = 0.0,
) -> dict[str, Any]:
    """Return attributes that say how good the draws are, and warn if they are not.

    What is NaN is never good: comparisons are written so that they fail for it.
    """
    flat = kept.flat()
    length = len(flat) // superchains
    rhats = nested_rhat(flat[: superchains * length], superchains)
    ess, rhat = float(np.min(bulk_ess(flat))), float(np.max(rhats))
    # Single trajectories diverge; the trajectories of an iteration of "meads" are its steps.
    counts = stats.get("n_diverging", stats["diverging"])
    trajectories = stats["n_steps"].sum() if "n_diverging" in stats else counts.size
    divergences = int(counts.sum())
    if divergences:
        warn(
            f"{divergences:,} of {trajectories:,} trajectories diverged; a higher target_accept or another "
            "parametrisation helps"
        )
    lost = find_lost(flat, stats, excess)
    if lost.size:
        some = ", ".join(map(str, lost[:10])) + (", ..." if lost.size > 10 else "")
        warn(
            f"{lost.size} of {flat.shape[0]} chains are lost: they do not move, or are where the posterior has next to "
            f"no mass (posterior.attrs['lost_chains']: {some}); a longer warm-up (tune), initvals or 'smc' helps"
        )
    _judge_rhat(rhats, superchains, length, names)
    drifts = drift(flat)
    _judge_drift(drifts, names)
    return {
        "ess_bulk_min": ess,
        "ess_per_second": ess / seconds,
        "nested_rhat_max": rhat,
        "drift_max": float(np.max(drifts)),
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
    warn(f"nested R-hat {message}")


def _judge_drift(drifts: np.ndarray, names: Sequence[str]) -> None:
    """Warn if the chains had not reached the posterior."""
    far = drifts > _DRIFT_TOLERANCE
    if far.any():
        bad = list(dict.fromkeys(name for name, value in zip(names, far, strict=True) if value))
        some = ", ".join(bad[:10]) + (", ..." if len(bad) > 10 else "")
        warn(
            f"the chains are still on their way: from the first to the second half of the draws, {some} move by up to "
            f"{np.max(drifts):.2f} deviations; a longer warm-up (tune), or a longer trajectory, helps"
        )


@contextmanager
def _always_device() -> Iterator[None]:
    """Compile without trials of other backends, which cost more than a run of a sampler."""
    with pytensor.config.change_flags(opencl__select_backend=False):
        yield
