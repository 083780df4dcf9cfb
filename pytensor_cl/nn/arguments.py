"""Checks of the arguments of activations and losses, and the dtypes in which they are computed."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.raise_op import CheckAndRaise

from pytensor_cl.nn.composed import cast
from pytensor_cl.nn.windows import as_variable


def as_floats(value: Any, name: str) -> Any:
    """Return an array of float16, float32 or float64 as a variable.

    Raises `TypeError`: it is no array, or has another dtype.
    """
    variable = as_variable(value, name)
    if variable.type.numpy_dtype.kind != "f":
        raise TypeError(f"{name} must be floats, not {variable.type.dtype}: cast it first")
    return variable


def as_number(value: Any, like: Any) -> Any:
    """Return a Python or NumPy number as a constant of the dtype of `like`, or a symbolic array as it is."""
    if isinstance(value, Variable) or np.ndim(value):
        return pt.as_tensor_variable(value)
    return pt.constant(np.asarray(value, dtype=like.type.dtype))


def as_axis(value: Any, ndim: int, name: str) -> int:
    """Return an axis that is not negative.

    Raises `TypeError`: it is no integer. Raises `ValueError`: there is no such axis.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name}: axis must be an integer, not {value!r}")
    if not -ndim <= value < ndim:
        raise ValueError(f"{name}: axis {value} is none of the {ndim} axes of input")
    return int(value) % ndim


def working(x: Any, *others: Any) -> tuple[Any, str]:
    """Return an array in the dtype in which a loss is computed, and the dtype of its result.

    The first is the upcast of all arrays, float32 for float16.
    """
    types = [pt.as_tensor_variable(v).type.dtype for v in others]
    dtype = str(np.result_type(x.type.dtype, *types))
    return cast(x, "float32" if dtype == "float16" else dtype), dtype


def one_shape(
    x: Any,
    value: Any,
    axes: Sequence[int],
    expected: Sequence[int | None],
    name: str,
    argument: str = "target",
    first: str = "input",
) -> Any:
    """Return an array whose shape must be that of `x` along `axes`, of static lengths `expected`.

    Raises `ValueError`, here or in the call: it is not.
    """
    shape = value.type.shape
    text = f"{name}: {argument} has shape {_shown(shape)}, and {first} {_shown(x.type.shape)}: "
    need = f"{argument} needs shape {_shown(expected)}"
    hint = "; for classes along the last axis pass axis=-1" if argument == "target" else ""
    pairs = list(zip(shape, expected, strict=False))
    if len(shape) != len(expected) or any(None not in pair and pair[0] != pair[1] for pair in pairs):
        raise ValueError(text + need + hint)
    unknown = [k for k, pair in enumerate(pairs) if None in pair]
    if not unknown:
        return value
    conditions = [pt.eq(value.shape[k], x.shape[axes[k]]) for k in unknown]
    return CheckAndRaise(ValueError, text + f"{argument} needs the lengths of {first}" + hint)(value, *conditions)


def _shown(shape: Sequence[int | None]) -> str:
    """Return a static shape as text."""
    inner = ", ".join("?" if n is None else str(n) for n in shape)
    return f"({inner},)" if len(shape) == 1 else f"({inner})"


def reduced(losses: Any, reduction: str, size: Any) -> Any:
    """Return losses, their sum or their mean, for the number of them; the mean of none is 0."""
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    return losses.sum() / pt.cast(pt.maximum(size, 1), losses.type.dtype)
