"""One step of a training, compiled: gradients, updates, running statistics, random states and metrics."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import get_mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.tensor.random.type import RandomGeneratorType

from pytensor_cl import nn
from pytensor_cl.linker.linker import OpenCLLinker
from pytensor_cl.optimizers import Accumulator, Optimizer, Updates, clip_by_global_norm, ema
from pytensor_cl.optimizers.gradients import checked_params, gradients
from pytensor_cl.runtime.registry import default_context_name, get_context

RESERVED = ("loss", "weight")
"""Names of results that no metric may have."""


@runtime_checkable
class TrainingStep(Protocol):
    """The interface of a step, which `fit` calls for each batch: any callable, with attributes for checkpoints.

    A call takes the arrays of a batch. It returns a number, the loss, or a dict with ``"loss"`` and the metrics, which
    are means over the rows of the batch, or over ``"weight"`` items if the dict has that number. Values may still be
    under way: `fit` reads them later, by ``float(numpy.asarray(value))``. An exception leaves the variables as they
    were before the call.

    These attributes and methods may be missing:

    - ``variables``: what a checkpoint holds, in a form that `save` takes, in fixed order;
    - ``weights``: shared variables of the network alone, which `EarlyStopping` restores;
    - ``optimizer``: the optimizer, whose rate `ReduceOnPlateau` changes;
    - ``inputs``: the variables of a batch, whose names and types the data must have;
    - ``evaluate``: a callable that returns the same results of a batch and updates nothing;
    - ``settings``: a dict of numbers and texts, on which a checkpoint and the run that continues it must agree;
    - ``pull()``: is called before variables are read; brings them from where the training runs;
    - ``push()``: is called after variables were set; brings them there.
    """

    def __call__(self, *batch: Any) -> Any: ...


class Step:
    """A compiled step of a training; `step` makes it.

    A call with the arrays of a batch does one step of the optimizer and returns a dict of 0-d results by name, which
    are means over the batch before the step: ``"loss"``, the metrics, and ``"weight"`` if the step has one. On a device
    with memory of its own they are device arrays, and reading one waits for the step.

    Attributes
    ----------
    inputs
        The variables of a batch.
    params
        The parameters.
    optimizer
        The optimizer, or None if a plain function made the updates.
    averages
        The moving averages by name; empty without `ema`.
    weights
        The shared variables of the network: parameters and running statistics.
    variables
        All that a checkpoint holds: `weights`, random generators, the optimizer's state, `averages`.
    function
        The compiled function that updates the parameters.
    settings
        Values that a checkpoint and the run that continues it must have in common.
    """

    def __init__(
        self,
        inputs: Sequence[Variable],
        results: Mapping[str, Variable],
        params: Sequence[SharedVariable],
        rule: "_Rule",
        states: Mapping[SharedVariable, Variable],
        accumulate: int,
        mode: Any,
    ) -> None:
        self.inputs, self.params, self._results, self._mode = list(inputs), list(params), dict(results), mode
        self.settings = {"accumulate": accumulate}
        grads = gradients(results["loss"], self.params)
        weight = results.get("weight", _rows(self.inputs))
        self._add: Callable[..., Any] | None = None
        self._partial: list[SharedVariable] = []
        if accumulate > 1:
            parts = _Parts(self.params, results, weight)
            self._partial = parts.variables
            self._add = _compiled(inputs, [], {**parts.add(grads), **states}, mode)
            grads, results, cleared = parts.finish(grads)
        else:
            cleared = {}
        updates = rule.updates(grads, self.params)
        self.optimizer, self.averages = updates.optimizer, rule.averages
        other = _without_overlap("the optimizer", updates, states)
        self.function = _compiled(inputs, _where_read(results.values(), mode), {**updates, **other, **cleared}, mode)
        arrays = [variable for variable in states if not isinstance(variable.type, RandomGeneratorType)]
        self.weights = [*self.params, *arrays]
        kept = {*self.weights, *self.averages.values(), *(self.optimizer.state.values() if self.optimizer else ())}
        rest = [variable for variable in {**updates, **states} if variable not in kept]
        self.variables = [*self.weights, *rest, *filter(None, [self.optimizer]), self.averages]

    def __call__(self, *batch: Any) -> dict[str, Any]:
        """Do one step.

        Parameters
        ----------
        batch
            Arrays for `inputs`.
        """
        if len(batch) != len(self.inputs):
            raise TypeError(f"a batch of this step has {len(self.inputs)} arrays: {self.inputs}; got {len(batch)}")
        results = self.function(*batch) if self._add is None else self._sum(self._cut(batch))
        return dict(zip(self._results, results, strict=True))

    def _cut(self, batch: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return the parts of a batch, none of them without rows unless the batch has none."""
        arrays = [np.asarray(array) for array in batch]
        lengths = {array.shape[0] for array in arrays if array.ndim}
        if len(lengths) > 1:
            raise ValueError(f"accumulate cuts a batch along axis 0, where its arrays differ: {sorted(lengths)} rows")
        rows = lengths.pop() if lengths else 1
        parts = max(1, min(rows, self.settings["accumulate"]))
        bounds = [rows * i // parts for i in range(parts + 1)]
        return [tuple(array[begin:end] if array.ndim else array for array in arrays) for begin, end in pairwise(bounds)]

    def _sum(self, parts: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
        """Return the results of all parts; clear the sums if one raises, or the next step would have them."""
        assert self._add is not None
        try:
            for part in parts[:-1]:
                self._add(*part)
            return self.function(*parts[-1])
        except BaseException:
            for variable in self._partial:
                variable.set_value(np.zeros_like(variable.get_value()))
            raise

    @cached_property
    def evaluate(self) -> "Evaluation":
        """A callable that returns the results of a batch from the prediction graph, and updates nothing."""
        outputs = nn.inference(list(self._results.values()))
        return Evaluation(list(self._results), _compiled(self.inputs, outputs, {}, self._mode))


class Evaluation:
    """Results by name of a compiled function."""

    def __init__(self, names: Sequence[str], function: Callable[..., Sequence[Any]]) -> None:
        self._names, self.function = list(names), function

    def __call__(self, *batch: Any) -> dict[str, Any]:
        return dict(zip(self._names, self.function(*batch), strict=True))


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


class _Parts:
    """Sums over the parts of a batch: weighted gradients and weighted results."""

    def __init__(self, params: Sequence[SharedVariable], results: Mapping[str, Variable], weight: Variable) -> None:
        self._gradients, self._weight = Accumulator(params), weight
        self._total = self._gradients.state["accumulated_weight"]
        self._values = {name: _as_float(value) for name, value in results.items() if name != "weight"}
        self._sums = {
            name: pytensor.shared(np.zeros((), value.type.dtype), name=f"accumulated_result/{name}")
            for name, value in self._values.items()
        }
        self._names = list(results)

    @property
    def variables(self) -> list[SharedVariable]:
        return [*self._gradients.state.values(), *self._sums.values()]

    def _added(self) -> dict[str, Variable]:
        return {
            name: self._sums[name] + value * self._weight.astype(value.type.dtype)
            for name, value in self._values.items()
        }

    def add(self, grads: Sequence[Variable]) -> dict[SharedVariable, Variable]:
        """Return the updates that add a part."""
        sums = {self._sums[name]: value for name, value in self._added().items()}
        return {**self._gradients.add(grads, self._weight), **sums}

    def finish(
        self, grads: Sequence[Variable]
    ) -> tuple[list[Variable], dict[str, Variable], dict[SharedVariable, Variable]]:
        """Return gradients and results of the mean over all parts, with the last one, and updates that clear."""
        total = self._total + self._weight.astype(self._total.type.dtype)
        divisor = pt.switch(pt.eq(total, 0), pt.ones_like(total), total)
        means = {name: value / divisor.astype(value.type.dtype) for name, value in self._added().items()}
        results = {name: total if name == "weight" else means[name] for name in self._names}
        gradients_of_all, cleared = self._gradients.finish(grads, self._weight)
        return gradients_of_all, results, {**cleared, **{s: pt.zeros_like(s) for s in self._sums.values()}}


def _as_float(value: Variable) -> Variable:
    return value if value.type.dtype.startswith("float") else value.astype(pytensor.config.floatX)


def _rows(inputs: Sequence[Variable]) -> Variable:
    """Return the number of rows of the first input."""
    return inputs[0].shape[0] if inputs[0].type.ndim else pt.as_tensor(np.int64(1))


def _compiled(inputs: Sequence[Variable], outputs: Sequence[Variable], updates: Mapping, mode: Any) -> Any:
    # A choice by time of the device or of another backend for a call would give other last digits in another run.
    with pytensor.config.change_flags(opencl__select_backend=False):
        return pytensor.function(list(inputs), list(outputs), updates=dict(updates), mode=mode)


def _has_own_memory() -> bool:
    return not get_context(None).info.shares_host_memory


def _where_read(results: Iterable[Variable], mode: Any) -> list[Variable]:
    """Return results that stay on a device with its own memory, where bringing one to the host waits for the step."""
    is_on_device = isinstance(get_mode(mode).linker, OpenCLLinker) and pytensor.config.opencl__placement != "host"
    if not is_on_device or not _has_own_memory():
        return list(results)
    return [result.transfer(default_context_name()) for result in results]


def _without_overlap(what: str, first: Mapping, second: Mapping) -> Mapping:
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


def step(
    inputs: Sequence[Variable],
    loss: Variable,
    optimizer: Any,
    params: Iterable[SharedVariable] | None = None,
    *,
    metrics: Mapping[str, Variable] | None = None,
    weight: Variable | None = None,
    accumulate: int = 1,
    max_norm: float | None = None,
    ema: float | None = None,
    updates: Mapping[SharedVariable, Variable] | None = None,
    mode: Any = None,
    devices: Sequence[str] | None = None,
) -> Step:
    """Compile one step of a training.

    Running statistics and random generators that the loss or the metrics use are updated too, as `nn.state_updates`
    finds them. In mode OPENCL the choice between the device and other backends by time is off, so that each run has
    the same digits.

    Parameters
    ----------
    inputs
        The variables of a batch.
    loss
        A 0-d variable, the mean over `weight` items.
    optimizer
        An optimizer such as ``optimizers.Adam(1e-3)``, or a function of gradients and parameters that returns updates.
    params
        The shared variables to be trained. None: those of floating-point numbers that the loss uses, without running
        statistics (`nn.parameters`).
    metrics
        0-d variables by name, means over the same items as the loss.
    weight
        A 0-d variable: the number of items, such as labels that count. None: the rows of the first input.
    accumulate
        The number of parts into which a batch is cut along axis 0, to save memory. Gradients and results are weighted
        sums over the parts, divided once, so the step is that of the whole batch up to rounding. Statistics of a batch
        are those of a part.
    max_norm
        The norm of all gradients together above which they are scaled down.
    ema
        The decay of moving averages of the parameters, such as 0.999. None: there are none.
    updates
        Further updates, one for each part of a batch.
    mode
        The mode to compile for. None: PyTensor's default.
    devices
        Not implemented: the names of several devices.

    Returns
    -------
    Step
        A callable.

    Raises
    ------
    TypeError
        If the loss, a metric or the weight has dimensions, or is no real number.
    ValueError
        If there are no parameters, names are missing or occur twice, or two updates are for one variable.
    DisconnectedInputError
        If the loss does not depend on a parameter.

    Examples
    --------
    >>> step = train.step([x, y], loss, optimizers.Adam(1e-3), metrics={"accuracy": accuracy})
    >>> step(images, labels)["loss"]
    """
    if devices is not None:
        raise NotImplementedError("a step on several devices; leave out devices")
    inputs = [inputs] if isinstance(inputs, Variable) else list(inputs)
    if not inputs:
        raise ValueError("a step needs at least one input")
    if isinstance(accumulate, bool) or not isinstance(accumulate, int | np.integer) or accumulate < 1:
        raise ValueError(f"accumulate must be a positive number of parts; got {accumulate!r}")
    if not callable(optimizer):
        raise TypeError(f"optimizer must be one of pytensor_cl.optimizers, or a function; got {optimizer!r}")
    results = _checked_results(loss, metrics, weight)
    params = checked_params(nn.parameters(results["loss"]) if params is None else params)
    if not params:
        raise ValueError("there are no parameters: the loss uses no shared variables of floating-point numbers")
    states = {
        **_without_overlap("updates=", updates or {}, nn.state_updates(list(results.values()))),
        **(updates or {}),
    }
    return Step(inputs, results, params, _Rule(optimizer, max_norm, ema), states, int(accumulate), mode)
