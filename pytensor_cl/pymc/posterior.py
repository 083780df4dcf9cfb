"""From draws in the unbounded space to what PyMC and ArviZ call inference data."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from arviz_base import from_dict, make_attrs
from pymc.backends.arviz import coords_and_dims_for_inferencedata, find_constants, find_observations
from pymc.util import get_default_varnames
from pytensor.graph.replace import vectorize_graph

import pytensor_cl
from pytensor_cl.pymc.checks import replace_parameter_checks

__all__ = ["constrain", "inference_data", "log_likelihood"]

_BLOCK_BYTES = 2**26
"""Draws that are transformed in one call take about this many bytes."""


def constrain(
    model: Any, draws: Sequence[np.ndarray], var_names: Sequence[str] | None, mode: Any
) -> dict[str, np.ndarray]:
    """Return the values of the model's free variables and deterministics.

    Parameters
    ----------
    model
        A `pymc.Model`.
    draws
        For each value variable, an array of shape (chains, draws, *shape).
    var_names
        Names of the variables that are wanted; None for all.
    mode
        PyTensor mode that compiles the function.

    Returns
    -------
    dict
        Arrays of shape (chains, draws, *shape) by name.

    Raises
    ------
    ValueError
        If a name is not that of a variable.
    """
    variables = get_default_varnames(model.unobserved_value_vars, include_transformed=False)
    if var_names is not None:
        unknown = set(var_names) - {variable.name for variable in variables}
        if unknown:
            raise ValueError(f"not variables of the model: {', '.join(sorted(unknown))}")
        variables = [variable for variable in variables if variable.name in var_names]
    return _of_all_draws(model, variables, draws, mode, "constrain")


def log_likelihood(model: Any, draws: Sequence[np.ndarray], mode: Any) -> dict[str, np.ndarray]:
    """Return the log density of each observation, for all draws.

    Parameters
    ----------
    model, draws, mode
        See `constrain`.

    Returns
    -------
    dict
        For each observed variable, an array of shape (chains, draws, *shape).
    """
    variables = replace_parameter_checks(model.logp(model.observed_RVs, sum=False))
    for variable, observed in zip(variables, model.observed_RVs, strict=True):
        variable.name = observed.name
    return _of_all_draws(model, variables, draws, mode, "log_likelihood")


def _of_all_draws(
    model: Any, variables: Sequence[Any], draws: Sequence[np.ndarray], mode: Any, name: str
) -> dict[str, np.ndarray]:
    """Return the values of functions of one point, for all draws."""
    inputs = [
        pt.tensor(value.name, dtype=value.type.dtype, shape=(None, *array.shape[2:]))
        for value, array in zip(model.value_vars, draws, strict=True)
    ]
    outputs = vectorize_graph(variables, dict(zip(model.value_vars, inputs, strict=True)))
    function = pytensor.function(inputs, outputs, mode=mode, on_unused_input="ignore", name=name)
    n_chains, n_draws = draws[0].shape[:2]
    flat = [array.reshape(n_chains * n_draws, *array.shape[2:]) for array in draws]
    per_block = max(_BLOCK_BYTES // max(sum(array[0].nbytes for array in flat), 1), 1)
    blocks = []
    for start in range(0, len(flat[0]), per_block):
        part = [array[start : start + per_block] for array in flat]
        values = function(*part)
        blocks.append(
            [
                # A variable that depends on no value is the same in all draws.
                value if output.type.ndim > variable.type.ndim else np.broadcast_to(value, (len(part[0]), *value.shape))
                for value, output, variable in zip(values, outputs, variables, strict=True)
            ]
        )
    joined = [np.concatenate(parts) for parts in zip(*blocks, strict=True)]
    return {
        variable.name: value.reshape(n_chains, n_draws, *value.shape[1:])
        for variable, value in zip(variables, joined, strict=True)
    }


def inference_data(
    model: Any,
    posterior: Mapping[str, np.ndarray],
    stats: Mapping[str, np.ndarray],
    attrs: Mapping[str, Any],
    pointwise: Mapping[str, np.ndarray] | None = None,
) -> Any:
    """Return what `pymc.sample` returns: groups posterior, sample_stats, observed_data, constant_data, log_likelihood.

    Parameters
    ----------
    model
        A `pymc.Model`.
    posterior, stats
        Arrays of shape (chains, draws, ...) by name.
    attrs
        Attributes of the groups posterior and sample_stats.
    pointwise
        The group log_likelihood, as `log_likelihood` returns it; without it there is none.
    """
    coords, dims = coords_and_dims_for_inferencedata(model)
    data = {
        "log_likelihood": pointwise,
        "observed_data": find_observations(model),
        "constant_data": find_constants(model),
    }
    groups = {"posterior": dict(posterior), "sample_stats": dict(stats), **{name: d for name, d in data.items() if d}}
    named = make_attrs(dict(attrs), inference_library=pytensor_cl)
    with warnings.catch_warnings():
        # More chains than draws are what is wanted here.
        warnings.filterwarnings("ignore", "Found chain dimension to be longer than draw dimension", UserWarning)
        return from_dict(
            groups,
            coords=coords,
            dims=dims,
            sample_dims=["chain", "draw"],
            attrs={"posterior": named, "sample_stats": named},
        )
