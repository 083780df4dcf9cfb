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
    parameter_is_periodic : ndarray
        The same for each parameter.
    dtype
        That of joined positions and gradients: floatX.
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
        self.dtype = pytensor.config.floatX
        self.dtypes = [value.type.dtype for value in self.values]
        self.shapes = [tuple(shapes[name]) for name in self.names]
        if not self.size:
            raise ValueError(f"the model has no parameter to sample: {', '.join(self.names)} has no element")
        sizes = [int(np.prod(shape)) for shape in self.shapes]
        self.parameter_is_periodic = np.repeat(np.array(self.is_periodic), sizes)
        self.temperature: Any = None
        if not tempered:
            (total,) = replace_parameter_checks([model.logp()])
            parts = []
        else:
            one = np.asarray(1, self.dtype)
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

    def split(self, flat: Any, *batch: Any) -> Iterator[Any]:
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
            # A number and a vector are views without a reshape, which a graph would have as a node of its own.
            part = flat[..., offset : offset + size] if shape else flat[..., offset]
            yield (part.reshape((*batch, *shape)) if len(shape) > 1 else part).astype(dtype)
            offset += size

    def join(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Return the parts of all value variables as one array of shape (chains, parameters) and dtype floatX.

        Parameters
        ----------
        parts
            Arrays of shape (chains, *shape).
        """
        return np.concatenate([np.reshape(part, (len(part), -1)) for part in parts], axis=1, dtype=self.dtype)

    def __call__(self, position: TensorVariable) -> tuple[TensorVariable, TensorVariable]:
        """Return the graph of the log density of all chains and of its gradient.

        Parameters
        ----------
        position
            Shape (chains, parameters), dtype floatX.

        Returns
        -------
        log_density : TensorVariable
            Shape (chains,), dtype floatX. Minus infinity where a parameter is bad.
        gradient : TensorVariable
            Shape (chains, parameters), dtype floatX.
        """
        chains = self._chains(position)
        total, *gradient = self._of_all_chains([self._total, *self._parts[: len(self.values)]], position)
        columns = []
        for part, shape in zip(gradient, self.shapes, strict=True):
            part = part if part.type.ndim > len(shape) else pt.broadcast_to(part, (chains, *shape))
            columns.append(part.reshape((chains, -1)) if len(shape) != 1 else part)
        return self._for_each_chain(total, chains), pt.concatenate(columns, axis=1).astype(self.dtype)

    def observed(self, position: TensorVariable) -> TensorVariable:
        """Return the graph of the observed part alone, of shape (chains,) and dtype floatX.

        Parameters
        ----------
        position
            See `__call__`.
        """
        (part,) = self._of_all_chains(self._parts[len(self.values) :], position)
        return self._for_each_chain(part, self._chains(position))

    @staticmethod
    def _chains(position: TensorVariable) -> Any:
        """Return the number of chains, which is a number where the type says it."""
        return position.shape[0] if position.type.shape[0] is None else position.type.shape[0]

    def _of_all_chains(self, graphs: Sequence[TensorVariable], position: TensorVariable) -> list[TensorVariable]:
        """Return graphs of one point for the positions of all chains."""
        parts = self.split(position, self._chains(position))
        return vectorize_graph(graphs, dict(zip(self.values, parts, strict=True)))

    def _for_each_chain(self, total: TensorVariable, chains: Any) -> TensorVariable:
        """Return a log density of shape (chains,) and dtype floatX. With floatX=float32, counts make it float64."""
        return (total if total.type.ndim else pt.broadcast_to(total, (chains,))).astype(self.dtype)
