"""Routines around the routine of an Op: they cast its arrays, check what the Op forbids, or reorder its arguments."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.ops.base import Routine
from pytensor_cl.routines.elemwise.routine import Copy, Elemwise
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context


def copy_or_none(context: Context, source: str, ndim: int, target: str) -> Copy | None:
    """Return the routine that casts arrays of a dtype to another; None if the dtypes are equal."""
    return None if source == target else Copy(context, source, ndim, target)


def methods_of(routine: Any) -> tuple[str, ...]:
    """Return the names of the methods that calls so far have taken, of a routine or of the one that it calls."""
    if hasattr(routine, "methods"):
        return tuple(sorted(routine.methods))
    inner = getattr(routine, "_routine", None) or getattr(routine, "routine", None)
    return () if inner is None else methods_of(inner)


class WithCasts:
    """A routine of one output whose first inputs, and whose result, are cast where there is a routine for it.

    Host scalars among these inputs are cast to `scalar_type`; None passes them on unchanged, as all other inputs are.
    """

    def __init__(
        self, routine: Any, casts: Sequence[Elemwise | None], result: Copy | None = None, scalar_type: Any = None
    ) -> None:
        self._routine = routine
        self._casts = tuple(casts)
        self._result = result
        self._scalar_type = scalar_type

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernels of the routine and of the casts."""
        routines = (self._routine, *filter(None, (*self._casts, self._result)))
        return tuple(source for routine in routines for source in routine.sources())

    def __call__(self, *inputs: Any) -> tuple[GpuArray, ...]:
        values = list(inputs)
        for i, cast in enumerate(self._casts):
            if not isinstance(values[i], GpuArray):
                values[i] = values[i] if self._scalar_type is None else self._scalar_type(values[i])
            elif cast is not None:
                (values[i],) = cast(values[i])
        results: tuple[GpuArray, ...] = self._routine(*values)
        return results if self._result is None else self._result(*results)


def with_casts(
    routine: Any, inputs: Sequence[Variable], dtype: str, target: Any, context: Context, has_epilogue: bool = False
) -> Routine:
    """Return a routine that computes in one dtype, with casts of `inputs` and of the result where they are needed.

    The routine takes arrays and host scalars of `dtype`; other inputs may follow them. An epilogue makes results that
    need no cast.
    """
    casts = [copy_or_none(context, v.type.dtype, v.type.ndim, dtype) for v in inputs]
    result = None if has_epilogue else copy_or_none(context, dtype, target.ndim, target.dtype)
    return WithCasts(routine, casts, result, np.dtype(dtype).type) if any((*casts, result)) else routine


class IntegerTuple:
    """A routine that takes integers of the host as one tuple, where the Op has an input for each.

    The integers stand after the `first` inputs and before the `last` ones.
    """

    def __init__(self, routine: Any, first: int, last: int = 0) -> None:
        self._routine = routine
        self._first = first
        self._last = last
        self.sources = routine.sources

    def __call__(self, *inputs: Any) -> tuple[GpuArray, ...]:
        end = len(inputs) - self._last
        integers = tuple(int(np.asarray(n)) for n in inputs[self._first : end])
        packed = (integers,) if integers else ()
        result: tuple[GpuArray, ...] = self._routine(*inputs[: self._first], *packed, *inputs[end:])
        return result


class Forwarding:
    """A routine that checks or reorders its inputs and calls another one."""

    def __init__(self, routine: Any) -> None:
        self.routine = routine
        self.sources = routine.sources

    def prepare(self, *inputs: Any) -> tuple[Any, ...]:
        """Return the inputs of the other routine."""
        raise NotImplementedError

    def __call__(self, *inputs: Any) -> tuple[GpuArray, ...]:
        results: tuple[GpuArray, ...] = self.routine(*self.prepare(*inputs))
        return results


class Reordered(Forwarding):
    """A routine that takes its first inputs in another order than the Op: `order` has their positions in the Op's."""

    def __init__(self, routine: Any, order: Sequence[int]) -> None:
        super().__init__(routine)
        self._order = tuple(order)

    def prepare(self, *inputs: Any) -> tuple[Any, ...]:
        """Return the inputs in the order of the routine."""
        return (*(inputs[i] for i in self._order), *inputs[len(self._order) :])


class CheckedAddend(Forwarding):
    """A product with an addend, which is broadcast only along dimensions known to be one when the graph is compiled.

    The routine is called with ``(C, alpha, A, B, beta)``, which are the inputs of the node.
    """

    def __init__(self, routine: Any, node: Apply) -> None:
        super().__init__(routine)
        c, _, a, b, _ = (v.type for v in node.inputs)
        product = (a.shape[0] == 1, *b.broadcastable[1:])
        self._may_broadcast = [m or n for m, n in zip(c.broadcastable, product, strict=True)]

    def prepare(self, *inputs: Any) -> tuple[Any, ...]:
        """Return the inputs.

        Raises `ValueError`: the addend does not fit.
        """
        c, _, a, b, *_ = inputs
        product = (a.shape[0], *b.shape[1:])
        dims = zip(c.shape, product, self._may_broadcast, strict=True)
        if c.shape != product and any(n != m and not allowed for n, m, allowed in dims):
            raise ValueError(
                f"an addend of shape {c.shape} does not fit a product of shape {product} (no run-time broadcasting)"
            )
        return inputs


class CheckedBatch(Forwarding):
    """A batched routine, which broadcasts only along batch dimensions known to be one when the graph is compiled.

    The first of its two operands is a matrix; the second has `core_ndim` dimensions besides the batch dimensions.
    """

    def __init__(self, routine: Any, node: Apply, what: str = "a product", core_ndim: int = 2) -> None:
        super().__init__(routine)
        self._operand_name = what
        self._last = -3, -1 - core_ndim  # the last batch dimension of each operand
        a, b = (v.type.broadcastable[last::-1] for v, last in zip(node.inputs, self._last, strict=True))
        self._may_broadcast = [m or n for m, n in zip(a, b, strict=False)]

    def prepare(self, *inputs: Any) -> tuple[Any, ...]:
        """Return the inputs.

        Raises `ValueError`: batch dimensions do not match.
        """
        a, b, *_ = inputs
        first, second = self._last
        dims = zip(a.shape[first::-1], b.shape[second::-1], strict=False)
        for (n, m), allowed in zip(dims, self._may_broadcast, strict=True):
            if n != m and not allowed:
                raise ValueError(
                    f"the batch dimensions of {self._operand_name} do not match (no run-time broadcasting): "
                    f"{a.shape} and {b.shape}"
                )
        return inputs


class CheckedBatches:
    """A batched routine of any number of operands, which broadcasts only along batch dimensions known to be one.

    Each operand has a number of `core_ndims` besides the batch dimensions, which are as many for all.
    """

    def __init__(self, routine: Any, node: Apply, core_ndims: Sequence[int]) -> None:
        self._routine = routine
        kinds = zip((v.type for v in node.inputs), core_ndims, strict=True)
        self._free = [[not b for b in kind.broadcastable[: kind.ndim - core]] for kind, core in kinds]
        self.sources = routine.sources

    def __call__(self, *inputs: GpuArray) -> tuple[GpuArray, ...]:
        for axis in range(len(self._free[0])):
            lengths = {v.shape[axis] for v, free in zip(inputs, self._free, strict=True) if free[axis]}
            if len(lengths) > 1:
                shapes = [v.shape for v in inputs]
                raise ValueError(f"batch dimensions do not match (no run-time broadcasting): {shapes}")
        return self._routine(*inputs)
