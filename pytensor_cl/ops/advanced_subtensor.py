"""Indexing with arrays: selecting elements, setting them, adding to them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.scalar import add
from pytensor.tensor.subtensor import AdvancedIncSubtensor

from pytensor_cl.ops.base import DEVICE, EITHER, HOST, GpuOp, Routine
from pytensor_cl.ops.elemwise import is_by_value
from pytensor_cl.ops.transfer import GpuFromHost
from pytensor_cl.routines.advanced_subtensor import Gather, Scatter
from pytensor_cl.routines.advanced_subtensor_plan import TRUSTED, Bounds, Entry
from pytensor_cl.routines.elemwise import Elemwise
from pytensor_cl.runtime.alarm import Alarm
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.scalar import element_function
from pytensor_cl.template import KernelSource
from pytensor_cl.type import GpuArrayType

__all__ = ["GpuAdvancedIncSubtensor", "GpuAdvancedSubtensor", "index_demands"]


def _is_mask(variable: Variable) -> bool:
    return variable.type.dtype == "bool"


def index_demands(entries: Sequence[Entry], variables: Sequence[Variable]) -> tuple[str, ...]:
    """Return where each index input must be: bounds of slices and masks on the host, index arrays on the device."""
    arrays = {entry for entry in entries if isinstance(entry, int)}

    def demand(at: int, variable: Variable) -> str:
        if at not in arrays or _is_mask(variable):
            return HOST
        return EITHER if variable.type.ndim == 0 else DEVICE

    return tuple(demand(at, v) for at, v in enumerate(variables))


def _constant_behind(variable: Variable) -> Constant | None:
    """Return the constant that is uploaded when the function is linked."""
    owner = variable.owner
    uploaded = owner is not None and isinstance(owner.op, GpuFromHost) and isinstance(owner.inputs[0], Constant)
    return owner.inputs[0] if uploaded else None


def _is_fixed(variable: Variable) -> bool:
    """Whether an index input is no array that may change; numbers are part of a plan's key."""
    return not _is_mask(variable) and (is_by_value(variable) or _constant_behind(variable) is not None)


def _bounds(variable: Variable) -> Bounds | None:
    """Return the bounds of an index array that is a constant."""
    constant = _constant_behind(variable)
    if constant is None:
        return None
    data = np.asarray(constant.data).astype("int64")
    return (int(data.min()), int(data.max())) if data.size else TRUSTED


class _Index:
    """The index of a node, its masks replaced by the index arrays that they mean.

    Parameters
    ----------
    context
        Where the index arrays live.
    entries
        What indexes each axis, as PyTensor has it.
    variables
        The index inputs.

    Attributes
    ----------
    arguments, constant
        What the routines are made with.
    """

    def __init__(self, context: Context, entries: Sequence[Entry], variables: Sequence[Variable]) -> None:
        self._context = context
        self.masks: dict[int, int] = {}  # input -> the first axis that it indexes
        self._types: list[tuple[str, int] | None] = []
        self._bounds: list[Bounds | None] = []
        self.constant = all(map(_is_fixed, variables))
        starts = [self._add(variable) for variable in variables]
        self._entries: list[Entry] = []
        for entry in entries:
            if isinstance(entry, slice):
                numbers = (None if at is None else starts[at] for at in (entry.start, entry.stop, entry.step))
                self._entries.append(slice(*numbers))
                continue
            count = 1
            if _is_mask(variables[entry]):
                self.masks[entry] = len(self._entries)
                count = variables[entry].type.ndim
            self._entries.extend(range(starts[entry], starts[entry] + count))

    @property
    def arguments(self) -> tuple[Sequence[Entry], Sequence[tuple[str, int] | None], Sequence[Bounds | None]]:
        """The entries, and per index input its dtype and dimensions, and its bounds."""
        return self._entries, self._types, self._bounds

    def _add(self, variable: Variable) -> int:
        """Note the inputs that a variable becomes; return the number of the first."""
        start = len(self._types)
        if _is_mask(variable):
            self._types.extend([("int64", 1)] * variable.type.ndim)
            self._bounds.extend([TRUSTED] * variable.type.ndim)
        else:
            self._types.append(None if is_by_value(variable) else (variable.type.dtype, variable.type.ndim))
            self._bounds.append(_bounds(variable))
        return start

    def values(self, array: GpuArray, values: Sequence[Any]) -> Sequence[Any]:
        """Replace the masks among the values of the index inputs."""
        if not self.masks:
            return values
        expanded: list[Any] = []
        for at, value in enumerate(values):
            expanded.extend(self._places(array, self.masks[at], value) if at in self.masks else (value,))
        return expanded

    def _places(self, array: GpuArray, first: int, mask: np.ndarray) -> list[GpuArray]:
        for axis, (n, m) in enumerate(zip(array.shape[first:], mask.shape, strict=False), start=first):
            if n != m:
                raise IndexError(
                    f"boolean index did not match indexed array along axis {axis}; size of axis is {n} but size of "
                    f"corresponding boolean axis is {m}"
                )
        return [self._context.from_host(places) for places in np.nonzero(mask)]


class _Indexed:
    """A routine that is called with the index inputs of the host Op: ``(array, *others, *index)``."""

    def __init__(self, routine: Gather | Scatter, index: _Index, others: int) -> None:
        self._routine = routine
        self._index = index
        self._first = 1 + others
        self.sources = routine.sources
        self.is_checked = routine.is_checked
        self.watch, self.error, self.check = routine.watch, routine.error, routine.check

    def __call__(self, *inputs: Any) -> tuple[GpuArray, ...]:
        index = self._index.values(inputs[0], inputs[self._first :])
        return self._routine(*inputs[: self._first], *index)


class _GpuIndexing(GpuOp):
    """What the Ops share.

    Parameters
    ----------
    host, context_name
        See `GpuOp`.
    demands
        Per input, where it must be.
    """

    __props__ = ("host", "context_name", "demands")
    streams = True
    checks = True

    def __init__(self, host: Op, context_name: str, demands: tuple[str, ...]) -> None:
        super().__init__(host, context_name)
        self.demands = demands


class GpuAdvancedSubtensor(_GpuIndexing):
    """Device counterpart of `AdvancedSubtensor`."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the gather."""
        array, *variables = node.inputs
        index = _Index(context, self.host.idx_list, variables)
        gather = Gather(context, array.type.dtype, array.type.ndim, *index.arguments, constant=index.constant)
        return _Indexed(gather, index, 0)


class _Fitted:
    """A scatter that refuses to repeat values where the host Op does, and takes a single value from the host.

    Parameters
    ----------
    context
        Where the arrays live.
    routine
        The scatter.
    known
        Per dimension of the values, from the right, whether its length is known to be one; None lets all be repeated.
    """

    def __init__(self, context: Context, routine: Any, known: Sequence[bool] | None) -> None:
        self._context = context
        self._routine = routine
        self._known = known
        self.sources = routine.sources
        self.is_checked = routine.is_checked
        self.watch, self.error, self.check = routine.watch, routine.error, routine.check

    def __call__(self, array: GpuArray, value: Any, *index: Any) -> tuple[GpuArray, ...]:
        if not isinstance(value, GpuArray):
            value = self._context.from_host(np.asarray(value))
        if self._known is not None:
            self._refuse_to_repeat(value.shape, (index[0].shape[0], *array.shape[1:]))
        return self._routine(array, value, *index)

    def _refuse_to_repeat(self, have: tuple[int, ...], want: tuple[int, ...]) -> None:
        assert self._known is not None
        pairs = zip(reversed(have), reversed(want), self._known, strict=False)
        if any(n == 1 != m and not known for n, m, known in pairs):
            raise ValueError(AdvancedIncSubtensor._runtime_broadcast_error_msg)


class _LastWins:
    """``x[i] += y`` as NumPy's statement means it: repeated indices do not add up, the last one wins.

    Parameters
    ----------
    gather, add, scatter
        Reads the elements, adds the values, writes them back.
    """

    def __init__(self, gather: _Indexed, add: Elemwise, scatter: _Indexed) -> None:
        self._gather = gather
        self._add = add
        self._scatter = scatter
        self.is_checked = gather.is_checked
        self.error, self.check = gather.error, gather.check

    def sources(self) -> tuple[KernelSource, ...]:
        """Kernels of the three."""
        return (*self._gather.sources(), *self._add.sources(), *self._scatter.sources())

    def watch(self, alarm: Alarm, number: int) -> None:
        """Make both kernels that read the indices use the alarm."""
        self._gather.watch(alarm, number)
        self._scatter.watch(alarm, number)

    def __call__(self, array: GpuArray, value: GpuArray, *index: Any) -> tuple[GpuArray, ...]:
        (selected,) = self._gather(array, *index)
        if selected.size:
            repeated = value.view(value.layout.broadcast_to(selected.shape))
            self._add.launch((selected,), (selected, repeated))
        return self._scatter(array, selected, *index)


class GpuAdvancedIncSubtensor(_GpuIndexing):
    """Device counterpart of `AdvancedIncSubtensor`: sets or adds, in a copy."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the scatter."""
        array, value, *variables = node.inputs
        index = _Index(context, self.host.idx_list, variables)
        is_set = self.host.set_instead_of_inc
        if self.host.ignore_duplicates and not is_set:
            routine: Any = self._last_wins(node, index, context)
        else:
            routine = self._scatter(array.type, value.type.dtype, value.type.ndim, index, context, not is_set)
        return _Fitted(context, routine, self._known(value, variables[0]))

    @staticmethod
    def _scatter(
        kind: GpuArrayType, dtype: str, ndim: int, index: _Index, context: Context, accumulate: bool
    ) -> _Indexed:
        values: dict[str, Any] = {"accumulate": accumulate, "value_dtype": dtype, "value_ndim": ndim}
        scatter = Scatter(context, kind.dtype, kind.ndim, *index.arguments, constant=index.constant, **values)
        return _Indexed(scatter, index, 1)

    def _last_wins(self, node: Apply, index: _Index, context: Context) -> _LastWins:
        kind, dtype = node.inputs[0].type, node.inputs[1].type.dtype
        gather = Gather(context, kind.dtype, kind.ndim, *index.arguments, constant=index.constant)
        ndim = gather.result_ndim
        function = element_function(add, (kind.dtype, dtype), (kind.dtype,))
        plus = Elemwise(context, function, ((False,) * ndim, (True,) * ndim), ndim, (False, False))
        scatter = self._scatter(kind, kind.dtype, ndim, index, context, accumulate=False)
        return _LastWins(_Indexed(gather, index, 0), plus, scatter)

    def _known(self, value: Variable, index: Variable) -> tuple[bool, ...] | None:
        """Only a single vector that indexes the first axis forbids to repeat the values unseen, on the host too."""
        if self.host.idx_list != (0,) or index.type.ndim != 1 or _is_mask(index):
            return None
        return tuple(n == 1 for n in reversed(value.type.shape))
