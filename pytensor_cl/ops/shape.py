"""Ops that change an array's shape and not its elements; they make views where the strides allow."""

from collections.abc import Sequence
from math import prod
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.raise_op import Assert, CheckAndRaise
from pytensor.tensor.basic import ScalarFromTensor
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.extra_ops import CpuContiguous
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, SpecifyShape

from pytensor_cl.ops.base import DEVICE, HOST, GpuOp, Routine, ViewRoutine
from pytensor_cl.ops.registry import register_lift
from pytensor_cl.routines.check import Check
from pytensor_cl.routines.elemwise.routine import contiguous
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.scalar.integer_division import DIVISOR


class _Dimshuffle(ViewRoutine):
    def __init__(self, order: Sequence[int | str]) -> None:
        self._order = tuple(order)

    def layout(self, layout: Layout, *values: Any) -> Layout:
        return layout.dimshuffle(self._order)


@register_lift(DimShuffle, numba_safe=True, every_dtype=True)
class GpuDimShuffle(GpuOp):
    """Device counterpart of `DimShuffle`."""

    view_map = {0: [0]}
    is_compute = False

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the view."""
        return _Dimshuffle(self.host.new_order)


def target_shape(size: int, shape: Sequence[int], ndim: int) -> tuple[int, ...]:
    """Return `shape` with its negative extent, if it has one, computed from `size`.

    Raises `ValueError`: the length is not `ndim`, or the shape does not fit the size.
    """
    wanted = tuple(int(n) for n in shape)
    if len(wanted) != ndim:
        raise ValueError(f"Shape argument to Reshape has incorrect length: {len(wanted)}, should be {ndim}")
    unknown = sum(n < 0 for n in wanted)
    known = prod(n for n in wanted if n >= 0)
    fits = unknown <= 1
    if fits and unknown:
        fits = known != 0 and size % known == 0
        wanted = tuple(size // known if n < 0 and fits else n for n in wanted)
    elif fits:
        fits = known == size
    if not fits:
        raise ValueError(f"cannot reshape array of size {size} into shape {tuple(int(n) for n in shape)}")
    return wanted


def _reshaped(array: GpuArray, shape: tuple[int, ...]) -> GpuArray:
    layout = array.layout.reshape(shape)
    if layout is None:  # the strides do not allow a view
        array = contiguous(array)
        layout = Layout.contiguous(shape)
    return array.with_layout(layout)


class _Reshape(ViewRoutine):
    def __init__(self, ndim: int) -> None:
        self._ndim = ndim

    def __call__(self, array: GpuArray, *values: Any) -> tuple[GpuArray, ...]:
        return (_reshaped(array, target_shape(array.size, values[0], self._ndim)),)


class _CheckAndRaise(ViewRoutine):
    def __init__(self, exception: type[Exception], message: str) -> None:
        self._exception = exception
        self._message = message

    def __call__(self, array: GpuArray, *values: Any) -> tuple[GpuArray, ...]:
        if not all(values):
            raise self._exception(self._message)
        return (array,)


class GpuCheckAndRaise(GpuOp):
    """Device counterpart of `CheckAndRaise` and `Assert`: waits for the conditions, not for the value."""

    view_map = {0: [0]}
    is_compute = False
    operand_placements = (DEVICE, HOST)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the check."""
        return _CheckAndRaise(self.host.exc_type, self.host.msg)


class GpuCheck(GpuOp):
    """Device counterpart of a `CheckAndRaise` whose value kernels may use before the error is raised.

    It is raised at the end of the call, as errors are that kernels find in their data.
    """

    view_map = {0: [0]}
    is_compute = False
    checks_data = True

    def source(self, variable: Variable) -> Variable:
        """Return a condition as the array of which PyTensor's Op makes a scalar."""
        node = variable.owner
        is_scalar = node is not None and isinstance(node.op, ScalarFromTensor)
        return node.inputs[0] if is_scalar else variable

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the check."""
        return Check(context, self.host.exc_type, self.host.msg)


@register_lift(CheckAndRaise, Assert, numba_safe=True, every_dtype=True)
def lift_check(node: Apply, context_name: str, info: DeviceInfo) -> GpuCheck | GpuCheckAndRaise:
    """CheckAndRaise(x, c) -> a check that does not wait, if kernels take any value: divisors."""
    if node.op == DIVISOR and len(node.inputs) == 2:
        return GpuCheck(node.op, context_name)
    return GpuCheckAndRaise(node.op, context_name)


@register_lift(Reshape, numba_safe=True, every_dtype=True)
class GpuReshape(GpuOp):
    """Device counterpart of `Reshape`; copies only where the strides do not allow a view."""

    view_map = {0: [0]}
    is_compute = False
    operand_placements = (DEVICE, HOST)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the view."""
        return _Reshape(self.host.ndim)


class _JoinDims(ViewRoutine):
    def __init__(self, start: int, count: int) -> None:
        self._start = start
        self._stop = start + count

    def __call__(self, array: GpuArray, *values: Any) -> tuple[GpuArray, ...]:
        shape = array.shape
        joined = prod(shape[self._start : self._stop])
        return (_reshaped(array, (*shape[: self._start], joined, *shape[self._stop :])),)


@register_lift(JoinDims, numba_safe=False, every_dtype=True)
class GpuJoinDims(GpuOp):
    """Device counterpart of `JoinDims`; copies only where the strides do not allow a view."""

    view_map = {0: [0]}
    is_compute = False

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the view."""
        return _JoinDims(self.host.start_axis, self.host.n_axes)


class _SplitDims(ViewRoutine):
    def __init__(self, axis: int) -> None:
        self._axis = axis

    def __call__(self, array: GpuArray, *values: Any) -> tuple[GpuArray, ...]:
        before, after = array.shape[: self._axis], array.shape[self._axis + 1 :]
        shape = (*before, *(int(n) for n in values[0]), *after)
        return (_reshaped(array, target_shape(array.size, shape, len(shape))),)


@register_lift(SplitDims, numba_safe=False, every_dtype=True)
class GpuSplitDims(GpuOp):
    """Device counterpart of `SplitDims`; copies only where the strides do not allow a view."""

    view_map = {0: [0]}
    is_compute = False
    operand_placements = (DEVICE, HOST)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the view."""
        return _SplitDims(self.host.axis)


class _SpecifyShape(ViewRoutine):
    def layout(self, layout: Layout, *values: Any) -> Layout:
        expected = tuple(None if v is None else int(v) for v in values)
        if any(n not in (None, m) for n, m in zip(expected, layout.shape, strict=True)):
            raise AssertionError(f"SpecifyShape: Got shape {layout.shape}, expected {expected}.")
        return layout


@register_lift(SpecifyShape, numba_safe=True, every_dtype=True)
class GpuSpecifyShape(GpuOp):
    """Device counterpart of `SpecifyShape`; raises AssertionError, as it does, where the shape differs."""

    view_map = {0: [0]}
    is_compute = False
    operand_placements = (DEVICE, HOST)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the check."""
        return _SpecifyShape()


class _Contiguous(ViewRoutine):
    def __call__(self, array: GpuArray, *values: Any) -> tuple[GpuArray, ...]:
        return (contiguous(array),)


@register_lift(CpuContiguous, numba_safe=False, every_dtype=True)
class GpuCpuContiguous(GpuOp):
    """Device counterpart of `CpuContiguous`; copies only an array that is not in C order."""

    view_map = {0: [0]}
    is_compute = False

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> Any:
        """Return the input's shape."""
        return [shapes[0]]

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the view, or the copy."""
        return _Contiguous()
