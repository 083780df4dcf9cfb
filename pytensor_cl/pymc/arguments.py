"""Checks of the arguments of `sample`, before anything is compiled."""

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pymc import Model, modelcontext
from pymc.util import get_default_varnames

from pytensor_cl.pymc.density import check_continuous
from pytensor_cl.pymc.meads import FOLDS

SAMPLERS = ("chees", "meads", "hmc", "nuts", "smc")
_LEAST_CHAINS = {"meads": 2 * FOLDS}
_MOST_SUPERCHAINS = 16

_OF_PYMC = {
    "backend": "the draws are returned",
    "blas_cores": "the device has the cores that its driver gives it",
    "compile_kwargs": "mode= is the mode of all functions; other settings are flags of PyTensor",
    "compute_convergence_checks": "they are always made; warnings.filterwarnings hides warnings",
    "cores": "all chains advance together on one device, which has its own cores; devices= and client= take several",
    "discard_tuned_samples": "the warm-up is always discarded",
    "idata_kwargs": "log_likelihood=True adds that group",
    "init": "the mass matrix is adapted from all chains; initvals= and jitter= say where they start",
    "initvals_strategy": "initvals= and jitter= say where chains start",
    "jitter_max_retries": "it is fixed",
    "keep_warning_stat": "there is no such statistic",
    "max_treedepth": "max_steps=2**depth - 1 bounds a tree",
    "model_name": "model= takes the model",
    "mp_ctx": "the only worker processes are those of a Dask cluster, with client=",
    "n_init": "there is no variational initialisation",
    "nuts": "target_accept= and max_steps= are arguments of their own",
    "nuts_kwargs": "target_accept= and max_steps= are arguments of their own",
    "nuts_sampler": f"sampler= selects one of {', '.join(SAMPLERS)}; for others, pm.sample",
    "nuts_sampler_kwargs": "target_accept= and max_steps= are arguments of their own",
    "progressbar_theme": "progressbar= is True or False",
    "return_inferencedata": "the result is always a DataTree",
    "start": "it is called initvals=",
    "step": f"sampler= selects one of {', '.join(SAMPLERS)}, which moves all variables; for others, pm.sample",
    "trace": "the draws are returned",
}
"""Arguments of `pymc.sample` that `sample` has not, and what there is instead."""


def check_others(others: Mapping[str, Any]) -> None:
    """Raise a TypeError for arguments that `sample` has not, which says what there is instead."""
    for name in others:
        if name not in _OF_PYMC:
            raise TypeError(f"sample() got an unexpected keyword argument {name!r}")
        raise TypeError(f"sample() of pytensor_cl.pymc has no argument {name!r}: {_OF_PYMC[name]}")


def check_model(model: Any) -> Any:
    """Return the model, or the context's model."""
    if model is not None and not isinstance(model, Model):
        raise TypeError(f"the first argument is a pymc.Model, not {model!r}; draws= is given by name")
    model = modelcontext(model)
    check_continuous(model)
    return model


def check_numbers(
    sampler: str, counts: Mapping[str, Any], target_accept: Any, trajectory_length: Any, target_ess: Any
) -> None:
    """Raise a ValueError for numbers out of their ranges, and a TypeError for counts that are no integers."""
    if sampler not in SAMPLERS:
        raise ValueError(f"no sampler {sampler!r}; there are {', '.join(SAMPLERS)}")
    least = {"draws": 1, "tune": 0, "chains": _LEAST_CHAINS.get(sampler, 2), "max_steps": 1}
    for name, value in counts.items():
        try:
            operator.index(value)
        except TypeError:
            raise TypeError(f"{name} must be an integer, not {value!r}") from None
        if value < least[name]:
            raise ValueError(f"{name} must be at least {least[name]}, not {value}")
    if target_accept is not None and sampler == "meads":
        raise ValueError("sampler 'meads' has no target_accept: its step size follows from the curvature")
    if target_accept is not None and not 0 < target_accept < 1:
        raise ValueError(f"target_accept must be between 0 and 1, not {target_accept}")
    if trajectory_length is not None and sampler == "nuts":
        raise ValueError("sampler 'nuts' has no trajectory_length: each trajectory has a length of its own")
    for name, value in (("trajectory_length", trajectory_length), ("target_ess", target_ess)):
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} must be positive and finite, not {value}")


def check_initvals(model: Any, initvals: Any, sampler: str) -> None:
    """Raise if starting values are for no variables of the model, or the sampler has no use for them."""
    if initvals is None:
        return
    if sampler == "smc":
        raise ValueError("sampler 'smc' begins with draws from the prior, and takes no initvals")
    if not isinstance(initvals, Mapping):
        raise TypeError(f"initvals must be one dict of values by variable or name, not {type(initvals).__name__}")
    names = {variable.name for variable in (*model.free_RVs, *model.value_vars)}
    unknown = [str(name) for key in initvals if (name := getattr(key, "name", key)) not in names]
    if unknown:
        raise ValueError(f"initvals of what is no free variable of the model: {', '.join(unknown)}")


def check_callback(callback: Any) -> None:
    """Raise a TypeError if it is no function."""
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be a function of a Record, not {callback!r}")


def check_var_names(model: Any, var_names: Sequence[str] | None) -> None:
    """Raise a ValueError if names belong to no free variables or deterministics."""
    if var_names is None:
        return
    if isinstance(var_names, str):
        raise TypeError(f"var_names must be a sequence of names, not the string {var_names!r}")
    known = get_default_varnames(model.unobserved_value_vars, include_transformed=False)
    unknown = set(var_names) - {variable.name for variable in known}
    if unknown:
        raise ValueError(f"not variables of the model: {', '.join(sorted(unknown))}")


def entropy(random_seed: Any) -> np.random.SeedSequence:
    """Return the seed of all random numbers."""
    if isinstance(random_seed, np.random.SeedSequence):
        return np.random.SeedSequence([int(word) for word in random_seed.generate_state(4)])
    if isinstance(random_seed, np.random.BitGenerator):
        random_seed = np.random.Generator(random_seed)
    if isinstance(random_seed, np.random.Generator):
        return np.random.SeedSequence([int(word) for word in random_seed.integers(2**32, size=4)])
    if isinstance(random_seed, np.random.RandomState):
        return np.random.SeedSequence([int(word) for word in random_seed.randint(2**31, size=4)])
    try:
        return np.random.SeedSequence(random_seed)
    except TypeError:
        raise TypeError(
            "random_seed must be None, integers, or a SeedSequence, BitGenerator, Generator or RandomState, not "
            f"{random_seed!r}"
        ) from None


def superchain_number(superchains: int | None, chains: int) -> int:
    """Return the number of superchains.

    The default is the largest divisor of the number of chains up to 16 that leaves two chains in each. Where that is
    less than 4, as for a prime number of chains, it is 16, or half of the chains if these are fewer: superchains have
    equal lengths all the same, and the chains that are left over belong to none.
    """
    if superchains is not None:
        if superchains < 1 or chains % superchains:
            raise ValueError(f"{chains} chains cannot be divided into {superchains} superchains")
        return superchains
    most = max(min(_MOST_SUPERCHAINS, chains // 2), 1)
    divisor = max(n for n in range(1, most + 1) if chains % n == 0)
    return divisor if divisor >= min(4, most) else most
