"""dtypes and checks of numbers."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.scalar.basic import autocast_float_as, upcast


def working_dtype(*dtypes: str) -> str:
    """Return the dtype in which values are computed: float32 for float16, which is too coarse for moments."""
    return str(upcast(*dtypes, "float32"))


@contextmanager
def numbers_as(dtype: str) -> Iterator[None]:
    """Give Python's numbers in expressions a dtype; by itself ``0.1 * x`` would be float64 if floatX is."""
    with pytensor.config.change_flags(cast_policy="custom"), autocast_float_as(dtype):
        yield


def as_type_of(variable: Variable, value: Variable) -> Variable:
    """Return a value with the dtype and the static shape of the variable that it is the update of."""
    value = value.astype(variable.type.dtype)
    if variable.type.is_super(value.type):
        return value
    return pt.specify_shape(value, variable.type.shape)


def one_minus_power(beta: float, t: Variable) -> Variable:
    """Return 1 - beta**t, which keeps its digits in float32 too, where JAX computes with floatX=float32."""
    if beta == 0:
        return pt.ones_like(t)
    return -pt.expm1(t * math.log(beta))


def nonnegative(name: str, value: Any) -> float:
    """Return an option as float, or raise an error."""
    number = _number(name, value)
    if not number >= 0:
        raise ValueError(f"{name} must not be negative or NaN; got {number}")
    return number


def fraction(name: str, value: Any) -> float:
    """Return an option from 0 to less than 1, or raise an error."""
    number = _number(name, value)
    if not 0 <= number < 1:
        raise ValueError(f"{name} must be at least 0 and less than 1; got {number}")
    return number


def _number(name: str, value: Any) -> float:
    if isinstance(value, Variable | str | bool):
        raise TypeError(f"{name} must be a number; got {value!r}")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number; got {value!r}") from None
