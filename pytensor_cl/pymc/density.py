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
from pytensor_cl.pymc.joint_numbers import Block, join_numbers
from pytensor_cl.pymc.named_axes import as_tensor_graphs


def check_continuous(model: Any) -> None:
    """Raise if a model has no free variable, or a discrete one."""
    if not model.value_vars:
        raise ValueError("the model has no free variable to sample")
    discrete = [value.name for value in model.value_vars if value.type.dtype not in ("float32", "float64")]
    if discrete:
        raise ValueError(f"only continuous variables can be sampled by gradients, not {', '.join(discrete)}")


class ModelDensity:
    """The log density of a model in the space where no parameter is bounded.

    If it is `tempered`, the observed part is multiplied by the shared variable `temperature`, an inverse temperature.
    """

    def __init__(self, model: Any, shapes: Mapping[str, tuple[int, ...]], tempered: bool = False) -> None:
        check_continuous(model)
        terms = [*model.logp(vars=model.free_RVs, sum=False), model.datalogp]
        self.values, terms = as_tensor_graphs(model.value_vars, terms)
        self.names = [value.name for value in self.values]
        self.is_periodic = [
            getattr(model.rvs_to_transforms[model.values_to_rvs[value]], "name", "") == CircularTransform.name
            for value in model.value_vars
        ]
        self.dtype = pytensor.config.floatX
        self.dtypes = [value.type.dtype for value in self.values]
        self.shapes = [tuple(shapes[name]) for name in self.names]
        if not self.size:
            raise ValueError(f"the model has no parameter to sample: {', '.join(self.names)} has no element")
        sizes = [int(np.prod(shape)) for shape in self.shapes]
        self.parameter_is_periodic = np.repeat(np.array(self.is_periodic), sizes)
        self.temperature: Any = None
        *terms, observed = replace_parameter_checks(terms)
        self._blocks, priors = join_numbers(self.values, terms)
        prior = pt.add(*priors) if len(priors) > 1 else priors[0]
        if tempered:
            one = np.asarray(1, self.dtype)
            self.temperature = pytensor.shared(one, name="inverse_temperature", shape=())
            # A likelihood of zero to the power 0 is 1.
            powered = pt.switch(self.temperature > 0, self.temperature * observed, np.asarray(0, observed.dtype))
            total = prior + powered
        else:
            total = prior + observed
        self._total, self._observed = total, observed
        variables = [*self.values, *(block.vector for block in self._blocks if block.vector is not None)]
        gradient = pytensor.grad(total, variables, disconnected_inputs="ignore", return_disconnected="none")
        # Without those that are zero. The derivative by joint numbers is the sum of that by their vector and by them.
        self._gradient = {v: part for v, part in zip(variables, gradient, strict=True) if part is not None}

    @property
    def size(self) -> int:
        """Number of parameters of one chain."""
        return sum(int(np.prod(shape)) for shape in self.shapes)

    @property
    def parameter_names(self) -> list[str]:
        """Name of the value variable of each parameter."""
        return [name for name, shape in zip(self.names, self.shapes, strict=True) for _ in range(int(np.prod(shape)))]

    def split(self, flat: Any, *batch: Any) -> Iterator[Any]:
        """Yield the part of each value variable, in its shape and dtype, of an array of shape (*batch, parameters)."""
        offset = 0
        for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
            size = int(np.prod(shape))
            # A number and a vector are views without a reshape, which a graph would have as a node of its own.
            part = flat[..., offset : offset + size] if shape else flat[..., offset]
            yield (part.reshape((*batch, *shape)) if len(shape) > 1 else part).astype(dtype)
            offset += size

    def join(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Return the parts of all value variables as one array of shape (chains, parameters) and dtype floatX."""
        return np.concatenate([np.reshape(part, (len(part), -1)) for part in parts], axis=1, dtype=self.dtype)

    def __call__(self, position: TensorVariable) -> tuple[TensorVariable, TensorVariable]:
        """Return the graphs of the log density of all chains, minus infinity at bad parameters, and of its gradient.

        Their shapes are (chains,) and (chains, parameters), as `position` has; their dtype is floatX.
        """
        chains = self._chains(position)
        total, *found = self._of_all_chains([self._total, *self._gradient.values()], position)
        gradient = dict(zip(self._gradient, found, strict=True))
        blocks = [self._block_gradient(block, gradient, chains) for block in self._blocks]
        return self._for_each_chain(total, chains), pt.concatenate(blocks, axis=1).astype(self.dtype)

    def _block_gradient(self, block: Block, gradient: Mapping[Any, TensorVariable], chains: Any) -> TensorVariable:
        """Return the columns of the gradient that belong to a block."""
        members = range(block.start, block.stop)
        parts = [_columns(gradient.get(self.values[k]), self.shapes[k], chains) for k in members]
        if block.vector is None:
            return parts[0]
        of_vector = _columns(gradient.get(block.vector), (len(members),), chains)
        if not any(self.values[k] in gradient for k in members):
            return of_vector
        return of_vector + pt.concatenate(parts, axis=1)

    def observed(self, position: TensorVariable) -> TensorVariable:
        """Return the graph of the observed part alone, of shape (chains,) and dtype floatX."""
        (part,) = self._of_all_chains([self._observed], position)
        return self._for_each_chain(part, self._chains(position))

    @staticmethod
    def _chains(position: TensorVariable) -> Any:
        """Return the number of chains, which is a number where the type says it."""
        return position.shape[0] if position.type.shape[0] is None else position.type.shape[0]

    def _of_all_chains(self, graphs: Sequence[TensorVariable], position: TensorVariable) -> list[TensorVariable]:
        """Return graphs of one point for the positions of all chains."""
        parts = dict(zip(self.values, self.split(position, self._chains(position)), strict=True))
        starts = np.cumsum([0, *(int(np.prod(shape)) for shape in self.shapes)])
        for start, stop, vector in self._blocks:
            if vector is not None:
                parts[vector] = position[:, int(starts[start]) : int(starts[stop])].astype(vector.type.dtype)
        batched: list[TensorVariable] = vectorize_graph(graphs, parts)
        return batched

    def _for_each_chain(self, total: TensorVariable, chains: Any) -> TensorVariable:
        """Return a log density of shape (chains,) and dtype floatX. With floatX=float32, counts make it float64."""
        return (total if total.type.ndim else pt.broadcast_to(total, (chains,))).astype(self.dtype)


def _columns(part: TensorVariable | None, shape: tuple[int, ...], chains: Any) -> TensorVariable:
    """Return a part of the gradient as columns of a matrix; None is zero."""
    if part is None:
        return pt.zeros((chains, int(np.prod(shape))))
    part = part if part.type.ndim > len(shape) else pt.broadcast_to(part, (chains, *shape))
    if not shape:
        # PyTensor moves an axis that is added, part[:, None], to the inputs of the gradient, and then no longer finds
        # the functions that it replaces by ones without cancellation.
        return part.reshape((chains, -1))
    return part if len(shape) == 1 else part.reshape((chains, int(np.prod(shape))))
