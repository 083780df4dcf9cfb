"""Indexing with arrays: gathers, and scatters that set or add."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from pytensor import config
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.scalar import add
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.ops.base import ANY, DEVICE, HOST, GpuOp, Routine, context_of
from pytensor_cl.ops.elemwise import is_by_value
from pytensor_cl.ops.indexing.slice_update import reason_against_casting
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.ops.transfer import GpuFromHost
from pytensor_cl.routines.elemwise.routine import Elemwise, contiguous
from pytensor_cl.routines.indexing.gather_scatter import Gather, Scatter
from pytensor_cl.routines.indexing.plan import UNCHECKED_BOUNDS, Bounds, Entry
from pytensor_cl.routines.nonzero import Expand, Flatnonzero, Select, mask_mismatch
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.runtime.error_flag import DeviceErrorFlag
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.scalar.base import element_function
from pytensor_cl.type import GpuArrayType


def _is_mask(variable: Variable) -> bool:
    return variable.type.dtype == "bool"


def _is_constant_mask(variable: Variable) -> bool:
    return _is_mask(variable) and isinstance(variable, Constant)


def index_placements(entries: Sequence[Entry], variables: Sequence[Variable]) -> tuple[str, ...]:
    """Return where each index input must be: bounds of slices on the host, index arrays and masks on the device."""
    arrays = {entry for entry in entries if isinstance(entry, int)}

    def placement_of(at: int, variable: Variable) -> str:
        if at not in arrays or _is_constant_mask(variable):
            return HOST
        return ANY if variable.type.ndim == 0 else DEVICE

    return tuple(placement_of(at, v) for at, v in enumerate(variables))


def _constant_behind(variable: Variable) -> Constant | None:
    """Return the constant of which a variable is the upload; None if it is none."""
    owner = variable.owner
    uploaded = owner is not None and isinstance(owner.op, GpuFromHost) and isinstance(owner.inputs[0], Constant)
    return owner.inputs[0] if uploaded else None


def _is_fixed(variable: Variable) -> bool:
    """Return whether an index input is no array that may change. Scalars are part of a plan's key."""
    if _is_mask(variable):
        return isinstance(variable, Constant)
    return is_by_value(variable) or _constant_behind(variable) is not None


def _array_type(variable: Variable) -> tuple[str, int] | None:
    """Return dtype and number of dimensions of an index array; None for a host scalar."""
    if _is_mask(variable):
        return "int64", 1
    return None if is_by_value(variable) else (variable.type.dtype, variable.type.ndim)


def _bounds(variable: Variable) -> Bounds | None:
    """Return the bounds of a constant index array or of the positions of a mask; None if they are unknown."""
    if _is_mask(variable):
        return UNCHECKED_BOUNDS
    constant = _constant_behind(variable)
    if constant is None:
        return None
    data = np.asarray(constant.data).astype("int64")
    return (int(data.min()), int(data.max())) if data.size else UNCHECKED_BOUNDS


def index_arguments(variables: Sequence[Variable]) -> tuple[list[tuple[str, int] | None], list[Bounds | None], bool]:
    """Return types and bounds of index inputs, and whether they are the same in every call."""
    return [_array_type(v) for v in variables], [_bounds(v) for v in variables], all(map(_is_fixed, variables))


class _Index:
    """The index of a node. Each mask is replaced by the positions where it is true, and its axes by one axis."""

    def __init__(self, context: Context, entries: Sequence[Entry], variables: Sequence[Variable]) -> None:
        self._context = context
        self._masks: dict[int, tuple[int, int]] = {}  # input -> the first axis that it indexes, and how many
        self._places: dict[int, Flatnonzero] = {}
        self._known: dict[int, tuple[tuple[int, ...], GpuArray]] = {}  # shape and places of constant masks
        axis = 0
        for entry in entries:
            count = 1
            if isinstance(entry, int) and _is_mask(variables[entry]):
                count = variables[entry].type.ndim
                self._masks[entry] = axis, count
                self._prepare(entry, variables[entry])
            axis += count
        types, bounds, self.constant = index_arguments(variables)
        self.arguments = tuple(entries), types, bounds

    def _prepare(self, at: int, mask: Variable) -> None:
        if isinstance(mask, Constant):
            self._known[at] = mask.data.shape, self._context.from_host(np.flatnonzero(mask.data))
        else:
            self._places[at] = Flatnonzero(self._context, "bool", mask.type.ndim)

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernels that find the positions."""
        return tuple(source for places in self._places.values() for source in places.sources())

    def joined(self, ndim: int) -> int:
        """Return the number of dimensions after the axes of each mask are merged."""
        return ndim - sum(count - 1 for _, count in self._masks.values())

    def values(self, array: GpuArray, values: Sequence[Any]) -> Sequence[Any]:
        """Replace the masks among the index inputs by positions."""
        return [self._value(array, at, v) if at in self._masks else v for at, v in enumerate(values)]

    def _value(self, array: GpuArray, at: int, mask: Any) -> GpuArray:
        shape, places = self._known.get(at, (mask.shape, None))
        error = mask_mismatch(array.shape, shape, self._masks[at][0])
        if error is not None:
            raise error
        return self._places[at](mask)[0] if places is None else places

    def join(self, array: GpuArray) -> GpuArray:
        """Merge the axes of each mask; copies only where the strides do not allow a view."""
        shape = list(array.shape)
        for first, count in sorted(self._masks.values(), reverse=True):
            shape[first : first + count] = [prod(shape[first : first + count])]
        layout = array.layout.reshape(shape)
        return contiguous(array).with_layout(Layout.contiguous(shape)) if layout is None else array.with_layout(layout)


class _Indexed:
    """A routine that is called with the index inputs of the host Op: ``(array, *others, *index)``."""

    def __init__(self, routine: Gather | Scatter, index: _Index, others: int) -> None:
        self._routine = routine
        self._index = index
        self._first = 1 + others
        self.is_checked = routine.is_checked
        self.set_error_flag, self.error, self.check = routine.set_error_flag, routine.error, routine.check

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernels of the routine and of the masks."""
        return (*self._routine.sources(), *self._index.sources())

    def __call__(self, *inputs: Any) -> tuple[GpuArray, ...]:
        array, *others = inputs[: self._first]
        index = self._index.values(array, inputs[self._first :])
        (result,) = self._routine(self._index.join(array), *others, *index)
        return (result.with_layout(Layout.contiguous(array.shape)),) if others else (result,)


class _GpuIndexing(GpuOp):
    """Common part of the gather and the scatter."""

    __props__ = ("host", "context_name", "operand_placements")
    is_memory_bound = True
    checks_data = True

    def __init__(self, host: Op, context_name: str, operand_placements: tuple[str, ...]) -> None:
        super().__init__(host, context_name)
        self.operand_placements = operand_placements


def _is_whole_mask(op: Op, ndim: int, variables: Sequence[Variable]) -> bool:
    """Return whether the index is one mask of all dimensions, and no constant."""
    return (
        op.idx_list == (0,)
        and _is_mask(variables[0])
        and context_of(variables[0]) is not None
        and (variables[0].type.ndim == ndim)
    )


class GpuAdvancedSubtensor(_GpuIndexing):
    """Device counterpart of `AdvancedSubtensor`."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the gather."""
        array, *variables = node.inputs
        dtype, ndim = array.type.dtype, array.type.ndim
        if _is_whole_mask(self.host, ndim, variables):
            return Select(context, dtype, ndim)
        index = _Index(context, self.host.idx_list, variables)
        gather = Gather(context, dtype, index.joined(ndim), *index.arguments, constant=index.constant)
        return _Indexed(gather, index, 0)


class _Fitted:
    """A scatter that broadcasts values only where the host Op does, and takes a single host value.

    `known` tells for each dimension of the values, from the right, whether its length is known to be one; None lets all
    be repeated.
    """

    def __init__(self, context: Context, routine: Any, known: Sequence[bool] | None) -> None:
        self._context = context
        self._routine = routine
        self._known = known
        self.sources = routine.sources
        self.is_checked = routine.is_checked
        self.set_error_flag, self.error, self.check = routine.set_error_flag, routine.error, routine.check

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
    """``x[i] += y`` as in NumPy, by a gather, a sum and a scatter: of repeated indices only the last one counts."""

    def __init__(self, gather: _Indexed, add: Elemwise, scatter: _Indexed) -> None:
        self._gather = gather
        self._add = add
        self._scatter = scatter
        self.is_checked = gather.is_checked
        self.error, self.check = gather.error, gather.check

    def sources(self) -> tuple[KernelSource, ...]:
        """Kernels of the three."""
        return (*self._gather.sources(), *self._add.sources(), *self._scatter.sources())

    def set_error_flag(self, error_flag: DeviceErrorFlag, number: int) -> None:
        """Make both kernels that read the indices use the error flag."""
        self._gather.set_error_flag(error_flag, number)
        self._scatter.set_error_flag(error_flag, number)

    def __call__(self, array: GpuArray, value: GpuArray, *index: Any) -> tuple[GpuArray, ...]:
        (selected,) = self._gather(array, *index)
        if selected.size:
            repeated = value.with_layout(value.layout.broadcast_to(selected.shape))
            self._add.launch((selected,), (selected, repeated))
        return self._scatter(array, selected, *index)


class GpuAdvancedIncSubtensor(_GpuIndexing):
    """Device counterpart of `AdvancedIncSubtensor`: sets or adds, in a copy."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the scatter."""
        array, value, *variables = node.inputs
        is_set = self.host.set_instead_of_inc
        if _is_whole_mask(self.host, array.type.ndim, variables) and Expand.takes(array.type.dtype, not is_set):
            values: dict[str, Any] = {"value_dtype": value.type.dtype, "value_ndim": value.type.ndim}
            return Expand(context, array.type.dtype, array.type.ndim, accumulate=not is_set, **values)
        index = _Index(context, self.host.idx_list, variables)
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
        values["atomics"] = accumulate and config.opencl__float_atomics
        scatter = Scatter(
            context, kind.dtype, index.joined(kind.ndim), *index.arguments, constant=index.constant, **values
        )
        return _Indexed(scatter, index, 1)

    def _last_wins(self, node: Apply, index: _Index, context: Context) -> _LastWins:
        kind, dtype = node.inputs[0].type, node.inputs[1].type.dtype
        gather = Gather(context, kind.dtype, index.joined(kind.ndim), *index.arguments, constant=index.constant)
        ndim = gather.result_ndim
        function = element_function(add, (kind.dtype, dtype), (kind.dtype,))
        plus = Elemwise(context, function, ((False,) * ndim, (True,) * ndim), ndim, (False, False))
        scatter = self._scatter(kind, kind.dtype, ndim, index, context, accumulate=False)
        return _LastWins(_Indexed(gather, index, 0), plus, scatter)

    def _known(self, value: Variable, index: Variable) -> tuple[bool, ...] | None:
        """Return, for a single vector that indexes the first axis, where values may broadcast; None: everywhere."""
        if self.host.idx_list != (0,) or index.type.ndim != 1 or _is_mask(index):
            return None
        return tuple(n == 1 for n in reversed(value.type.shape))


@register_lift(AdvancedSubtensor, numba_safe=False, every_dtype=True)
def lift_advanced_subtensor(node: Apply, context_name: str, info: DeviceInfo) -> GpuAdvancedSubtensor:
    """x[i, :, j] -> a gather on the device; bounds of slices stay on the host."""
    placements = DEVICE, *index_placements(node.op.idx_list, node.inputs[1:])
    return GpuAdvancedSubtensor(node.op, context_name, placements)


@register_lift(AdvancedIncSubtensor, numba_safe=False, every_dtype=True)
def lift_advanced_inc_subtensor(node: Apply, context_name: str, info: DeviceInfo) -> GpuAdvancedIncSubtensor | NoKernel:
    """x[i, :, j] = y, or += y -> a scatter into a copy."""
    op: Any = node.op
    array, value, *index = node.inputs
    missing = None if op.set_instead_of_inc else reason_against_casting(array.type.dtype, value.type.dtype)
    host = AdvancedIncSubtensor(
        op.idx_list, set_instead_of_inc=op.set_instead_of_inc, ignore_duplicates=op.ignore_duplicates
    )
    return missing or GpuAdvancedIncSubtensor(host, context_name, (DEVICE, ANY, *index_placements(op.idx_list, index)))
