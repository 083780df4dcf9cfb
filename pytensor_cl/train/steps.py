"""One step of a training, compiled: gradients, updates, running statistics, random states and metrics."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable

from pytensor_cl import kept_threads, nn
from pytensor_cl.runtime.registry import default_context, defined_contexts, undefined_context
from pytensor_cl.train.definition import Definition
from pytensor_cl.train.parts import (
    Keys,
    PartDevice,
    PartGraph,
    Sums,
    add,
    blocks,
    compiled,
    cut,
    is_on_device,
    next_keys,
    tree_sum,
    where_read,
    whole_ranges,
)


@runtime_checkable
class TrainingStep(Protocol):
    """The interface of a step, which `fit` calls for each batch: any callable, with attributes for checkpoints.

    A call takes the arrays of a batch. It returns a number, the loss, or a dict with ``"loss"`` and the metrics, which
    are means over the rows of the batch, or over ``"weight"`` items if the dict has that number. Values may still be
    under way: `fit` reads them later, by ``float(numpy.asarray(value))``. An exception leaves the variables as they
    were before the call. `fit` writes a checkpoint after it only if it has a true attribute ``is_state_whole``.

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

    def __init__(self, definition: Definition, accumulate: int, devices: Sequence[str] | None) -> None:
        self._definition = definition
        self.inputs, self.params = definition.inputs, definition.params
        self.settings = {"accumulate": accumulate}
        self._parts: _Parts | None = None
        if accumulate > 1:
            self._parts = _Parts(definition, devices)
            self.function = self._parts.update
        else:
            updates = {**definition.update(definition.gradients), **definition.states}
            with default_context(devices[0]) if devices else nullcontext():
                outputs = where_read(list(definition.results.values()), definition.mode)
                self.function = compiled(self.inputs, outputs, updates, definition.mode)
        self.optimizer, self.averages = definition.optimizer, definition.averages
        self.weights, self.variables = definition.weights, definition.variables

    def __call__(self, *batch: Any) -> dict[str, Any]:
        """Do one step.

        Parameters
        ----------
        batch
            Arrays for `inputs`.
        """
        check_batch(batch, self.inputs)
        results = self.function(*batch) if self._parts is None else self._parts(cut(batch, self.settings["accumulate"]))
        return dict(zip(self._definition.results, results, strict=True))

    @cached_property
    def evaluate(self) -> "Evaluation":
        """A callable that returns the results of a batch from the prediction graph, and updates nothing."""
        return Evaluation(self._definition)


class Evaluation:
    """The results by name from the prediction graph of a step, which updates nothing."""

    def __init__(self, definition: Definition) -> None:
        self._names = list(definition.results)
        outputs = nn.inference(list(definition.results.values()))
        self.function = compiled(definition.inputs, outputs, {}, definition.mode)

    def __call__(self, *batch: Any) -> dict[str, Any]:
        return dict(zip(self._names, self.function(*batch), strict=True))


class _Parts:
    """Does steps of batches in parts, on one device or several."""

    def __init__(self, definition: Definition, names: Sequence[str] | None) -> None:
        graph = PartGraph(definition)
        self._generators = list(definition.generators)
        self._devices = [PartDevice(graph, name, i == 0) for i, name in enumerate(names or [None])]
        self._threads = kept_threads.pool(len(self._devices), "pytensor-cl-parts") if names else None
        self.update = self._devices[0].update

    def __call__(self, parts: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
        """Return the results of a batch; nothing is updated if a part raises, but for the caller's own updates."""
        keys, following = next_keys(self._generators)
        numbered = dict(enumerate(parts))
        if self._threads is None:
            total = self._devices[0].total(numbered, keys, 0, len(parts))
        else:
            total = self._divided(numbered, keys)
        results: Sequence[Any] = self.update(*total)
        for variable, generator in zip(self._generators, following, strict=True):
            variable.set_value(generator, borrow=True)
        return results

    def _divided(self, parts: Mapping[int, tuple[Any, ...]], keys: Keys) -> Sums:
        """Return the sums of all parts, of which each device computes a block."""
        assert self._threads is not None
        owned = blocks(len(parts), len(self._devices))

        def of_device(index: int) -> dict[tuple[int, int], Sums]:
            device, block = self._devices[index], owned[index]
            if block:
                device.refresh()
            ranges = whole_ranges(block, 0, len(parts))
            sums = {(first, last): device.total(parts, keys, first, last) for first, last in ranges}
            return {key: [np.asarray(array) for array in total] for key, total in sums.items()}

        known: dict[tuple[int, int], Sums] = {}
        for found in list(self._threads.map(of_device, range(len(self._devices)))):
            known |= found
        return tree_sum(0, len(parts), lambda *ends: known.get(ends), add)


def check_batch(batch: Sequence[Any], inputs: Sequence[Variable]) -> None:
    """Raise if a batch has another number of arrays than the step has inputs."""
    if len(batch) != len(inputs):
        raise TypeError(f"a batch of this step has {len(inputs)} arrays: {list(inputs)}; got {len(batch)}")


def _checked_devices(devices: Sequence[str], mode: Any, further: Mapping[Any, Any] | None) -> list[str]:
    """Return the names of contexts, all of which are defined."""
    devices = [devices] if isinstance(devices, str) else list(devices)
    if not devices or len(set(devices)) < len(devices):
        raise ValueError(f"devices must be different names of contexts; got {devices}")
    for name in devices:
        if name not in defined_contexts():
            raise undefined_context(name)
    if not is_on_device(mode):
        raise ValueError("devices= needs a mode that runs on devices, such as mode='OPENCL'")
    if further and len(devices) > 1:
        raise ValueError("updates= are made part after part, which several devices cannot do; leave out one of both")
    return devices


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
        are those of a part, and the next running statistics are means over the parts. Each part has random numbers of
        its own, which depend on the generator's state before the step and on the number of the part.
    max_norm
        The norm of all gradients together above which they are scaled down.
    ema
        The decay of moving averages of the parameters, such as 0.999. None: there are none.
    updates
        Further updates. They are made for each part of a batch, one after the other; not with several devices.
    mode
        The mode to compile for. None: PyTensor's default.
    devices
        Names of contexts, such as ``["dev0", "dev1"]``, each of which computes some of the parts. There are as many
        parts as devices, or more with `accumulate`; the numbers are those of the same parts on one device. The first
        one does the update. The mode must be OPENCL.

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
    if isinstance(accumulate, bool) or not isinstance(accumulate, int | np.integer) or accumulate < 1:
        raise ValueError(f"accumulate must be a positive number of parts; got {accumulate!r}")
    names = None if devices is None else _checked_devices(devices, mode, updates)
    definition = Definition(
        inputs,
        loss,
        optimizer,
        params,
        metrics=metrics,
        weight=weight,
        max_norm=max_norm,
        ema=ema,
        updates=updates,
        mode=mode,
    )
    return Step(definition, max(int(accumulate), len(names or ())), names)
