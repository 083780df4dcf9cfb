"""The log density of a PyMC model and its gradient, for all chains at once."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.logprob.transforms import CircularTransform
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.variable import TensorVariable

from pytensor_cl.pymc.checks import replace_parameter_checks

__all__ = ["ModelDensity", "check_continuous"]


def check_continuous(model: Any) -> None:
    """Raise if a model has no free variable, or a discrete one.

    Parameters
    ----------
    model
        A `pymc.Model`.

    Raises
    ------
    ValueError
        With the names of the discrete variables.
    """
    if not model.value_vars:
        raise ValueError("the model has no free variable to sample")
    discrete = [value.name for value in model.value_vars if value.type.dtype not in ("float32", "float64")]
    if discrete:
        raise ValueError(f"only continuous variables can be sampled by gradients, not {', '.join(discrete)}")


class ModelDensity:
    """The log density of a model in the space where no parameter is bounded.

    Parameters
    ----------
    model
        A `pymc.Model` whose free random variables are all continuous.
    shapes
        Shape of each free variable in that space, by the name of its value variable.
    tempered
        Whether the observed part is multiplied by an inverse temperature.

    Attributes
    ----------
    names, shapes, dtypes
        Of the value variables, in the order of ``model.value_vars``.
    is_periodic
        Whether each is an angle: the density has the period 2 pi in it.
    temperature
        Shared variable: the inverse temperature; None if the density is not tempered.

    Raises
    ------
    ValueError
        If the model has no free variable, or a discrete one.
    """

    def __init__(self, model: Any, shapes: Mapping[str, tuple[int, ...]], tempered: bool = False) -> None:
        self.values = list(model.value_vars)
        check_continuous(model)
        self.names = [value.name for value in self.values]
        self.is_periodic = [
            isinstance(model.rvs_to_transforms[model.values_to_rvs[value]], CircularTransform) for value in self.values
        ]
        self.dtypes = [value.type.dtype for value in self.values]
        self.shapes = [tuple(shapes[name]) for name in self.names]
        if not self.size:
            raise ValueError(f"the model has no parameter to sample: {', '.join(self.names)} has no element")
        self.temperature: Any = None
        if not tempered:
            (total,) = replace_parameter_checks([model.logp()])
            parts = []
        else:
            one = np.asarray(1, pytensor.config.floatX)
            self.temperature = pytensor.shared(one, name="inverse_temperature", shape=())
            prior, observed = replace_parameter_checks([model.varlogp, model.datalogp])
            # A likelihood of zero to the power 0 is 1.
            total = prior + pt.switch(self.temperature > 0, self.temperature * observed, np.asarray(0, observed.dtype))
            parts = [observed]
        self._total = total
        self._parts = [*pytensor.grad(total, self.values, disconnected_inputs="ignore"), *parts]

    @property
    def size(self) -> int:
        """Number of parameters of one chain."""
        return sum(int(np.prod(shape)) for shape in self.shapes)

    @property
    def parameter_names(self) -> list[str]:
        """Name of the value variable of each parameter."""
        return [name for name, shape in zip(self.names, self.shapes, strict=True) for _ in range(int(np.prod(shape)))]

    def split(self, flat: Any, *batch: int) -> Iterator[Any]:
        """Yield the part of each value variable, in its shape and dtype.

        Parameters
        ----------
        flat
            An array or a variable of shape (*batch, parameters).
        batch
            The first lengths of `flat`.
        """
        offset = 0
        for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
            size = int(np.prod(shape))
            yield flat[..., offset : offset + size].reshape((*batch, *shape)).astype(dtype)
            offset += size

    def __call__(self, positions: Sequence[TensorVariable]) -> tuple[TensorVariable, list[TensorVariable]]:
        """Return the graph of the log density of all chains and of its gradient.

        Parameters
        ----------
        positions
            One variable for each value variable, of shape (chains, *shape).

        Returns
        -------
        log_density : TensorVariable
            Shape (chains,). Minus infinity where a parameter is bad.
        gradient : list of TensorVariable
            Shapes as `positions`.
        """
        replaced = dict(zip(self.values, positions, strict=True))
        total, *gradient = vectorize_graph([self._total, *self._parts[: len(self.values)]], replaced)
        if not total.type.ndim:
            total = pt.broadcast_to(total, (positions[0].shape[0],))
        return total, [
            pt.broadcast_to(part, position.shape) if part.type.ndim < position.type.ndim else part
            for part, position in zip(gradient, positions, strict=True)
        ]

    def observed(self, positions: Sequence[TensorVariable]) -> TensorVariable:
        """Return the graph of the observed part alone, of shape (chains,).

        Parameters
        ----------
        positions
            See `__call__`.
        """
        (part,) = vectorize_graph(self._parts[len(self.values) :], dict(zip(self.values, positions, strict=True)))
        return part if part.type.ndim else pt.broadcast_to(part, (positions[0].shape[0],))
