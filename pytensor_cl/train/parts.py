"""Batches in parts: the sums of a part, their tree of additions, and the update from the sums of all parts.

A part gives weighted sums: of gradients, of results and of the next running statistics. They are added in a binary
tree whose form depends on the number of parts alone, and divided once. So the numbers are the same, bit for bit,
wherever each part was computed.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import get_mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable

from pytensor_cl.linker.linker import OpenCLLinker
from pytensor_cl.optimizers.numbers import as_type_of, working_dtype
from pytensor_cl.optimizers.state import value_of
from pytensor_cl.runtime.registry import default_context, default_context_name, get_context
from pytensor_cl.train.definition import Definition

Sums = list[Any]
"""Arrays of a part, or of several, in the order of `PartGraph.outputs`."""
Keys = list[list[int]]
"""Random numbers of a step, for each of its generators, from which those of its parts are seeded."""
KEY_WORDS = 4
"""Numbers of 32 bits in a key."""


def cut(batch: Sequence[Any], most: int) -> list[tuple[Any, ...]]:
    """Return the parts of a batch, none of them without rows unless the batch has none."""
    arrays = [np.asarray(array) for array in batch]
    lengths = {array.shape[0] for array in arrays if array.ndim}
    if len(lengths) > 1:
        raise ValueError(f"accumulate cuts a batch along axis 0, where its arrays differ: {sorted(lengths)} rows")
    rows = lengths.pop() if lengths else 1
    parts = max(1, min(rows, most))
    bounds = [rows * i // parts for i in range(parts + 1)]
    return [tuple(array[begin:end] if array.ndim else array for array in arrays) for begin, end in pairwise(bounds)]


def tree_sum[T](first: int, last: int, known: Callable[[int, int], T | None], add: Callable[[T, T], T]) -> T:
    """Return the sum of the parts from `first` to before `last`.

    The left half has the largest power of two of parts that is less than all. `known` returns the sum of a range if
    another one has it or it is a single part, else None.
    """
    found = known(first, last)
    if found is not None:
        return found
    middle = first + (1 << ((last - first - 1).bit_length() - 1))
    left = tree_sum(first, middle, known, add)
    return add(left, tree_sum(middle, last, known, add))


def blocks(parts: int, owners: int) -> list[range]:
    """Return the parts of each owner: neighbours, as equal in number as possible."""
    bounds = [parts * i // owners for i in range(owners + 1)]
    return [range(begin, end) for begin, end in pairwise(bounds)]


def whole_ranges(block: range, first: int, last: int) -> list[tuple[int, int]]:
    """Return the largest ranges of the tree from `first` to before `last` that are inside a block."""
    if first >= block.stop or last <= block.start:
        return []
    if block.start <= first and last <= block.stop:
        return [(first, last)]
    middle = first + (1 << ((last - first - 1).bit_length() - 1))
    return [*whole_ranges(block, first, middle), *whole_ranges(block, middle, last)]


def next_keys(generators: Sequence[SharedVariable]) -> tuple[Keys, list[np.random.Generator]]:
    """Return the keys of a step, and the generators after it; the variables stay as they are."""
    following = [variable.get_value(borrow=False) for variable in generators]
    return [generator.integers(0, 2**32, KEY_WORDS, np.uint32).tolist() for generator in following], following


class PartGraph:
    """The graphs of a step that cuts its batches: the sums of a part, and the update from those of all parts.

    Attributes
    ----------
    definition
        The step.
    outputs
        The sums of a part.
    sums
        The inputs of the update, of the same types.
    results
        The means of the results, in the order of the definition's.
    updates
        The updates of all variables but generators and those of the caller's own updates.
    """

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        params, statistics = definition.params, definition.statistics
        widest = max(working_dtype(param.type.dtype) for param in params)
        weight, rows = definition.weight.astype(widest), definition.rows.astype(widest)
        values = {name: _as_float(value) for name, value in definition.results.items() if name != "weight"}
        gradients = [
            as_type_of(_in_working_dtype(param), _times(weight, grad.astype(working_dtype(param.type.dtype))))
            for param, grad in zip(params, definition.gradients, strict=True)
        ]
        moved = [
            as_type_of(_in_working_dtype(state), _times(rows, following.astype(working_dtype(state.type.dtype))))
            for state, following in statistics.items()
        ]
        self.outputs = [*gradients, *moved, *(_times(weight, value) for value in values.values()), weight, rows]
        self.sums = [output.type() for output in self.outputs]
        *arrays, all_weight, all_rows = self.sums
        means = [_divided(total, all_weight, param) for total, param in zip(arrays, params, strict=False)]
        of_states = arrays[len(params) : len(params) + len(statistics)]
        states = {
            state: pt.switch(pt.eq(all_rows, 0), state, _divided(total, all_rows, state))
            for total, state in zip(of_states, statistics, strict=True)
        }
        of_results = dict(zip(values, arrays[len(params) + len(statistics) :], strict=True))
        self.results = [
            all_weight if name == "weight" else _divided(of_results[name], all_weight, of_results[name])
            for name in definition.results
        ]
        self.updates = {**definition.update(means), **{state: as_type_of(state, v) for state, v in states.items()}}


def _in_working_dtype(variable: Variable) -> Variable:
    """Return a variable of the same shape with the dtype in which sums are computed."""
    return variable.type.clone(dtype=working_dtype(variable.type.dtype))()


def _times(weight: Variable, value: Variable) -> Variable:
    """Return a mean times its weight; a mean over nothing, which may be NaN, counts as 0."""
    return pt.switch(pt.eq(weight, 0), pt.zeros_like(value), value * weight.astype(value.type.dtype))


def _divided(total: Variable, weight: Variable, like: Variable) -> Variable:
    """Return a mean in the dtype of a variable."""
    divisor = pt.switch(pt.eq(weight, 0), pt.ones_like(weight), weight)
    return (total / divisor.astype(total.type.dtype)).astype(like.type.dtype)


def _as_float(value: Variable) -> Variable:
    return value if value.type.dtype.startswith("float") else value.astype(pytensor.config.floatX)


def compiled(
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    updates: Mapping[Any, Any],
    mode: Any,
    **options: Any,
) -> Any:
    """Compile a function whose digits are the same in each run; the options are those of `pytensor.function`."""
    # A choice by time of the device or of another backend for a call would give other last digits in another run.
    with pytensor.config.change_flags(opencl__select_backend=False):
        return pytensor.function(list(inputs), list(outputs), updates=dict(updates), mode=mode, **options)


def has_own_memory() -> bool:
    """Return whether the default device has memory of its own."""
    return get_context(None).info.has_own_memory


def is_on_device(mode: Any) -> bool:
    """Return whether functions of a mode run on a device."""
    return isinstance(get_mode(mode).linker, OpenCLLinker) and pytensor.config.opencl__placement != "host"


def where_read(results: Sequence[Variable], mode: Any) -> list[Variable]:
    """Return results that stay on a device with its own memory, where bringing one to the host waits for the step."""
    if not is_on_device(mode) or not has_own_memory():
        return list(results)
    return [result.transfer(default_context_name()) for result in results]


class PartDevice:
    """Computes sums of parts on one device.

    Parameters
    ----------
    graph
        The graphs.
    name
        The context. None: the default.
    is_first
        Whether the functions use the definition's own variables and do the update. Else they have copies, which
        `refresh` sets.
    """

    def __init__(self, graph: PartGraph, name: str | None = None, is_first: bool = True) -> None:
        self._graph, definition = graph, graph.definition
        self._mode = definition.mode
        read = [] if is_first else [*definition.params, *definition.statistics]
        self._copies = {variable: _copy(variable) for variable in read}
        self._generators = [pytensor.shared(variable.get_value()) for variable in definition.generators]
        givens = {**self._copies, **dict(zip(definition.generators, self._generators, strict=True))}
        with default_context(name) if name else nullcontext():
            outputs = where_read(graph.outputs, self._mode)
            self._compute = compiled(definition.inputs, outputs, definition.further, self._mode, givens=givens)
            self.update: Any = None
            if is_first:
                results = where_read(graph.results, self._mode)
                self.update = compiled(graph.sums, results, graph.updates, self._mode, on_unused_input="ignore")
            self._add: Any = None
            if any(output is not own for output, own in zip(outputs, graph.outputs, strict=True)):
                others = [total.type() for total in graph.sums]
                added = [first + second for first, second in zip(graph.sums, others, strict=True)]
                self._add = compiled([*graph.sums, *others], where_read(added, self._mode), {}, self._mode)

    def refresh(self) -> None:
        """Copy the parameters and running statistics to this device."""
        for variable, copy in self._copies.items():
            copy.set_value(value_of(variable), borrow=True)

    def sums(self, part: Sequence[Any], keys: Keys, k: int) -> Sums:
        """Return the sums of part number `k`."""
        for variable, key in zip(self._generators, keys, strict=True):
            kind = type(variable.get_value(borrow=True).bit_generator)
            variable.set_value(np.random.Generator(kind(np.random.SeedSequence([*key, k]))), borrow=True)
        sums: Sums = self._compute(*part)
        return sums

    def add(self, first: Sums, second: Sums) -> Sums:
        """Return the sums of two ranges of parts that this device computed."""
        return add(first, second) if self._add is None else self._add(*first, *second)

    def total(self, parts: Mapping[int, Sequence[Any]], keys: Keys, first: int, last: int) -> Sums:
        """Return the sums of the parts from `first` to before `last`."""
        return tree_sum(first, last, lambda i, j: self.sums(parts[i], keys, i) if j == i + 1 else None, self.add)


def add(first: Sums, second: Sums) -> Sums:
    """Return the sums of two ranges of parts in the host's memory."""
    return [np.add(one, other) for one, other in zip(first, second, strict=True)]


def _copy(variable: SharedVariable) -> SharedVariable:
    return pytensor.shared(value_of(variable), name=variable.name, shape=variable.type.shape)
