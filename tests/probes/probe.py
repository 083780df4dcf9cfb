"""Probes: one small graph with one Op of PyTensor in it, and the values to call it with."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any

import numpy as np
import pytensor.sparse
import pytensor.tensor as pt
import scipy.sparse
from pytensor.tensor.random.type import random_generator_type
from pytensor.tensor.type import TensorType
from pytensor.typed_list import TypedListType

__all__ = ["VALUES", "Probe", "probe", "variable_for"]

VALUES = "values"
"""The device must give the host's values; the alternative is to compare dtypes and shapes only."""


@dataclass(frozen=True, eq=False)
class Probe:
    """A small graph with one Op under test.

    Attributes
    ----------
    op
        Class of the Op.
    build
        Makes the outputs from the inputs.
    values
        One for each input; its type says what kind of input (see `variable_for`).
    variant
        Tells the probes of an Op apart.
    compare
        `VALUES`, or ``"types"`` where other values are as right: random draws, uninitialised memory.
    rtol
        Relative to the largest value.
    """

    op: type
    build: Callable[..., Any]
    values: tuple[Any, ...]
    variant: str = ""
    compare: str = VALUES
    rtol: float = 1e-4
    dtypes: frozenset[str] = field(default=frozenset())

    @property
    def name(self) -> str:
        """Op and variant."""
        return f"{self.op.__module__.removeprefix('pytensor.')}.{self.op.__name__}{self.variant and '-' + self.variant}"

    def graph(self):
        """Return new inputs, and the outputs that are made of them."""
        inputs = [variable_for(value) for value in self.values]
        outputs = self.build(*inputs)
        return inputs, list(outputs) if isinstance(outputs, list | tuple) else [outputs]

    def arguments(self):
        """Return the values, copied: a random generator changes when it is used."""
        return [deepcopy(value) for value in self.values]


def probe(op, build, *values, variant="", **options):
    """Make a probe; its dtypes are those of the values."""
    dtypes = frozenset(str(value.dtype) for value in values if hasattr(value, "dtype"))
    return Probe(op, build, values, variant, dtypes=dtypes, **options)


@singledispatch
def variable_for(value):
    """Return an input that takes a value. Extents are not known when the function is compiled."""
    array = np.asarray(value)
    return pt.tensor(dtype=array.dtype.name, shape=(None,) * array.ndim)


@variable_for.register
def _(value: np.random.Generator):
    return random_generator_type()


@variable_for.register
def _(value: list):
    return TypedListType(TensorType(value[0].dtype.name, (None,) * value[0].ndim))()


@variable_for.register(scipy.sparse.csr_matrix)
@variable_for.register(scipy.sparse.csc_matrix)
def _(value):
    return pytensor.sparse.matrix(value.format, dtype=value.dtype.name)
