"""From draws in the unbounded space to what PyMC and ArviZ call inference data."""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from arviz_base import from_dict, make_attrs
from pymc.backends.arviz import coords_and_dims_for_inferencedata, find_constants, find_observations
from pymc.util import get_default_varnames
from pytensor.compile.mode import Mode
from pytensor.graph.replace import vectorize_graph
from pytensor.link.vm import VMLinker

import pytensor_cl
from pytensor_cl.pymc.checks import replace_parameter_checks
from pytensor_cl.pymc.memory import available_memory
from pytensor_cl.pymc.named_axes import as_tensor_graphs
from pytensor_cl.pymc.progress import warn

_SHARE = 0.8
"""Share of the available memory that the result may take."""

_BLOCK_BYTES = 2**26
"""Bytes that all outputs and intermediate values of one call take, about."""


def constrain(
    model: Any, draws: Sequence[np.ndarray], var_names: Sequence[str] | None, mode: Any
) -> dict[str, np.ndarray]:
    """Return the values of the model's free variables and deterministics."""
    variables = get_default_varnames(model.unobserved_value_vars, include_transformed=False)
    if var_names is not None:
        variables = [variable for variable in variables if variable.name in var_names]
    values, variables = as_tensor_graphs(model.value_vars, variables)
    return _AllDraws(values, draws, mode).compute(variables, "constrain")


def log_likelihood(model: Any, draws: Sequence[np.ndarray], mode: Any) -> dict[str, np.ndarray]:
    """Return the log density of each observation, for all draws."""
    try:
        values, variables = as_tensor_graphs(model.value_vars, model.logp(model.observed_RVs, sum=False))
        variables = replace_parameter_checks(variables)
    except Exception as error:
        _say_left_out(", ".join(rv.name for rv in model.observed_RVs), "log_likelihood", _reason(error))
        return {}
    for variable, observed in zip(variables, model.observed_RVs, strict=True):
        variable.name = observed.name
    return _AllDraws(values, draws, mode).compute(variables, "log_likelihood")


class _AllDraws:
    """Values of functions of one point, for all draws, in blocks of draws that memory holds."""

    def __init__(self, values: Sequence[Any], draws: Sequence[np.ndarray], mode: Any) -> None:
        self._values = values
        self._shape = draws[0].shape[:2]
        self._flat = [array.reshape(math.prod(self._shape), *array.shape[2:]) for array in draws]
        self._mode = mode

    def compute(self, variables: Sequence[Any], name: str) -> dict[str, np.ndarray]:
        """Return an array of shape (chains, draws, *shape) for each variable that can be computed and held."""
        try:
            return self._together(variables, name)
        except Exception as error:
            if len(variables) > 1:
                parts = [self.compute([variable], name) for variable in variables]
                return {name: value for part in parts for name, value in part.items()}
            _say_left_out(variables[0].name, name, _reason(error))
            return {}

    def _together(self, variables: Sequence[Any], name: str) -> dict[str, np.ndarray]:
        """Return the values of variables by one function."""
        size, one = _one_draw(self._values, variables, [array[0] for array in self._flat])
        kept = _that_fit(variables, one, len(self._flat[0]), name)
        if not kept:
            return {}
        found = [np.empty((len(self._flat[0]), *one[i].shape), one[i].dtype) for i in kept]
        self._fill(found, [variables[i] for i in kept], max(_BLOCK_BYTES // max(size, 1), 1), name)
        return {
            variables[i].name: array.reshape(*self._shape, *array.shape[1:])
            for i, array in zip(kept, found, strict=True)
        }

    def _fill(self, found: Sequence[np.ndarray], variables: Sequence[Any], per_block: int, name: str) -> None:
        """Compute blocks of draws, and smaller ones where memory is not enough."""
        inputs = [
            pt.tensor(value.name, dtype=value.type.dtype, shape=(None, *array.shape[1:]))
            for value, array in zip(self._values, self._flat, strict=True)
        ]
        outputs = vectorize_graph(variables, dict(zip(self._values, inputs, strict=True)))
        function = pytensor.function(inputs, outputs, mode=self._mode, on_unused_input="ignore", name=name)
        start, total = 0, len(self._flat[0])
        while start < total:
            end = min(start + per_block, total)
            try:
                values = function(*(array[start:end] for array in self._flat))
            except MemoryError:
                if per_block == 1:
                    raise
                per_block = max(min(per_block, total) // 2, 1)
                continue
            for array, value in zip(found, values, strict=True):
                # A variable that depends on no value is the same in all draws, and is broadcast.
                array[start:end] = value
            start = end


def _one_draw(values: Sequence[Any], variables: Sequence[Any], point: Sequence[np.ndarray]) -> tuple[int, list[Any]]:
    """Return how many bytes all nodes of a graph make for one draw, and the values of variables there."""
    size = 0

    def count(node: Any, thunk: Any, storage_map: Any, compute_map: Any) -> None:
        nonlocal size
        size += sum(getattr(storage_map[output][0], "nbytes", 0) for output in node.outputs)

    linker = VMLinker(use_cloop=False, c_thunks=False, callback=count)
    with pytensor.config.change_flags(mode="FAST_COMPILE"):  # of the functions inside Scan
        function = pytensor.function(
            list(values), list(variables), mode=Mode(linker, "fast_compile"), on_unused_input="ignore", name="one draw"
        )
        found = [np.asarray(value) for value in function(*point)]
    return size + sum(value.nbytes for value in found), found


def _that_fit(variables: Sequence[Any], one: Sequence[np.ndarray], draws: int, name: str) -> list[int]:
    """Return the numbers of the variables that memory holds for all draws; smaller ones go first. Others are said."""
    room = available_memory()
    left = _SHARE * room
    kept = []
    for i in sorted(range(len(one)), key=lambda i: one[i].nbytes):
        size = draws * one[i].nbytes
        if size <= left:
            left -= size
            kept.append(i)
        else:
            _say_left_out(
                variables[i].name, name, f"it takes {size / 1e9:,.1f} GB, and {room / 1e9:,.1f} GB are available"
            )
    return sorted(kept)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _say_left_out(variable: str, name: str, reason: str) -> None:
    what = f"the log likelihood of {variable}" if name == "log_likelihood" else variable
    warn(
        f"{what} is not in the result: {reason}. The draws of the other variables are; var_names= selects variables, "
        "and pymc.compute_deterministics and pymc.compute_log_likelihood add to a part of the draws"
    )


def inference_data(
    model: Any,
    posterior: Mapping[str, np.ndarray],
    stats: Mapping[str, np.ndarray],
    attrs: Mapping[str, Any],
    pointwise: Mapping[str, np.ndarray] | None = None,
) -> Any:
    """Return what `pymc.sample` returns; there is a group log_likelihood if `pointwise` is given."""
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
