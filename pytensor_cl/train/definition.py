"""The definition of a step of a training: its graphs, before anything is compiled."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.tensor.random.type import RandomGeneratorType

from pytensor_cl import nn
from pytensor_cl.optimizers import Optimizer, Updates, clip_by_global_norm, ema
from pytensor_cl.optimizers.gradients import checked_params, gradients

RESERVED = ("loss", "weight")
"""Names of results that no metric may have."""


class Definition:
    """The graphs of a step; the arguments are those of `step`.

    Attributes
    ----------
    inputs
        The variables of a batch.
    results
        The loss, the metrics and the weight by name.
    weight
        The number of items of which results are means.
    rows
        The number of rows of a batch.
    params
        The parameters.
    gradients
        The gradients of the loss.
    statistics
        The next values of running statistics.
    generators
        The next states of random generators.
    further
        The caller's own updates.
    mode
        The mode to compile for.
    """

    def __init__(
        self,
        inputs: Sequence[Variable],
        loss: Variable,
        optimizer: Any,
        params: Iterable[SharedVariable] | None = None,
        *,
        metrics: Mapping[str, Variable] | None = None,
        weight: Variable | None = None,
        max_norm: float | None = None,
        ema: float | None = None,
        updates: Mapping[SharedVariable, Variable] | None = None,
        mode: Any = None,
    ) -> None:
        self.inputs = [inputs] if isinstance(inputs, Variable) else list(inputs)
        if not self.inputs:
            raise ValueError("a step needs at least one input")
        if not callable(optimizer):
            raise TypeError(f"optimizer must be one of pytensor_cl.optimizers, or a function; got {optimizer!r}")
        self.results, self.mode = _checked_results(loss, metrics, weight), mode
        self.rows = _rows(self.inputs)
        self.weight = self.results.get("weight", self.rows)
        self.params = checked_params(nn.parameters(self.results["loss"]) if params is None else params)
        if not self.params:
            raise ValueError("there are no parameters: the loss uses no shared variables of floating-point numbers")
        self.further = dict(updates or {})
        found = _without_overlap("updates=", self.further, nn.state_updates(list(self.results.values())))
        self.generators = {v: following for v, following in found.items() if _is_generator(v)}
        self.statistics = {v: following for v, following in found.items() if not _is_generator(v)}
        self.gradients = gradients(self.results["loss"], self.params)
        self._rule = _Rule(optimizer, max_norm, ema)
        self._of_rule: Updates | None = None

    @property
    def states(self) -> dict[SharedVariable, Variable]:
        """The updates that are not the optimizer's."""
        return {**self.statistics, **self.generators, **self.further}

    def update(self, grads: list[Variable]) -> Updates:
        """Return the updates of parameters, optimizer and averages from gradients; it may be called once."""
        assert self._of_rule is None
        self._of_rule = self._rule.updates(grads, self.params)
        _without_overlap("the optimizer", self._of_rule, self.states)
        return self._of_rule

    @property
    def optimizer(self) -> Optimizer | None:
        """The optimizer, if it is one of this package; after `update`."""
        assert self._of_rule is not None
        return self._of_rule.optimizer

    @property
    def averages(self) -> dict[str, SharedVariable]:
        """The moving averages by name; after `update`."""
        return self._rule.averages

    @property
    def weights(self) -> list[SharedVariable]:
        """The parameters, running statistics and other arrays that the step changes."""
        return [*self.params, *self.statistics, *(v for v in self.further if not _is_generator(v))]

    @property
    def variables(self) -> list[Any]:
        """The variables and optimizer that a checkpoint holds; after `update`."""
        assert self._of_rule is not None
        state = self.optimizer.state.values() if self.optimizer else ()
        kept = {*self.weights, *self.averages.values(), *state}
        rest = [variable for variable in {**self._of_rule, **self.states} if variable not in kept]
        return [*self.weights, *rest, *filter(None, [self.optimizer]), self.averages]

    @property
    def arrays(self) -> list[SharedVariable]:
        """All variables that the step changes but generators; after `update`."""
        assert self._of_rule is not None
        state = self.optimizer.state.values() if self.optimizer else ()
        changed = [*self.weights, *self._of_rule, *self.states, *state, *self.averages.values()]
        return [variable for variable in dict.fromkeys(changed) if not _is_generator(variable)]


def _is_generator(variable: Variable) -> bool:
    return isinstance(variable.type, RandomGeneratorType)


class _Rule:
    """The updates of an optimizer from gradients, with clipping and averages."""

    def __init__(self, optimizer: Any, max_norm: float | None, decay: float | None) -> None:
        self._optimizer, self._max_norm, self._decay = optimizer, max_norm, decay
        self.averages: dict[str, SharedVariable] = {}

    def updates(self, grads: list[Variable], params: list[SharedVariable]) -> Updates:
        """Return the updates of the parameters, of the optimizer's state and of the averages."""
        if self._max_norm is not None:
            grads, _ = clip_by_global_norm(grads, self._max_norm)
        found = self._optimizer(grads, params)
        updates = found if isinstance(found, Updates) else Updates(found)
        if updates.optimizer is None and isinstance(self._optimizer, Optimizer):
            updates.optimizer = self._optimizer
        if self._decay is not None:
            updates, self.averages = ema(updates, params, self._decay)
        return updates


def _rows(inputs: Sequence[Variable]) -> Variable:
    """Return the number of rows of the first input."""
    return inputs[0].shape[0] if inputs[0].type.ndim else pt.as_tensor(np.int64(1))


def _without_overlap(what: str, first: Mapping[Any, Any], second: Mapping[Any, Any]) -> Mapping[Any, Any]:
    both = [str(variable) for variable in second if variable in first]
    if both:
        raise ValueError(f"two updates for one variable, by {what} and by others: {', '.join(both)}")
    return second


def _checked_results(loss: Any, metrics: Mapping[str, Any] | None, weight: Any) -> dict[str, Variable]:
    """Return the results by name, each a 0-d number."""
    taken = [name for name in metrics or () if name in RESERVED]
    if taken:
        raise ValueError(f"metrics cannot be named {' or '.join(taken)}, which step itself returns")
    results = {"loss": loss, **(metrics or {}), **({} if weight is None else {"weight": weight})}
    results = {name: pt.as_tensor(value) for name, value in results.items()}
    for name, value in results.items():
        if value.type.ndim:
            raise TypeError(f"{name} must be 0-d, such as a mean; got {value.type}")
        if value.type.dtype.startswith("complex"):
            raise TypeError(f"{name} must be a real number; got {value.type}")
    return results
