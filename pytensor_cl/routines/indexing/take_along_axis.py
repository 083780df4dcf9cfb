"""An index at each place picks one of several elements."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from pytensor_cl.codegen.dtypes import carrier, ctype
from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.routines.base.limits import GROUP_ITEMS, MOVE_GROUPS_PER_UNIT, STEPPED_INT_LIMIT
from pytensor_cl.routines.base.ndrange import item_range, max_offset, ndrange
from pytensor_cl.routines.base.routine import Checked, KernelVariants, struct_argument
from pytensor_cl.routines.base.units import MEMBERS, share_out
from pytensor_cl.routines.elemwise.routine import Copy
from pytensor_cl.routines.indexing.limits import MIN_ITEM_LOOKUPS, UNIT_ELEMENTS
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.error_flag import ErrorRecord
from pytensor_cl.runtime.layout import Layout, collapse
from pytensor_cl.runtime.program import Kernel


@cache
def _plan_struct(index: str, ndim: int, schedule: str) -> Struct:
    """Return the struct of the kernel; strides of the output, the array and the index in elements."""
    return Struct(
        (index, f"shape[{ndim}] o[{ndim}] x[{ndim}] i[{ndim}] {'size' if schedule == 'cpu' else MEMBERS}"),
        ("long", "length step at_o at_x at_i"),
        name="plan",
    )


class TakeAlongAxis(Checked):
    """The kernel of the family: ``o[place] = x[place, index[place]]``, or the other way round.

    `index_dtype`: dtype of the indices: an integer or bool; `mode`: treatment of an index that is out of range:
    ``"raise"``, ``"wrap"``, ``"clip"``, or ``"index"``, where a negative one counts from the end; `inverse`: the index
    is that of the destination instead of the source.
    """

    def __init__(
        self,
        context: Context,
        dtype: str,
        index_dtype: str,
        ndim: int,
        mode: str,
        inverse: bool = False,
        schedule: str | None = None,
    ) -> None:
        super().__init__(context, schedule)
        self.output_dtypes = (dtype,)
        self.is_checked = mode in ("raise", "index")
        self._ndim = max(1, ndim)
        self._arguments: dict[str, Any] = {
            "element": carrier(dtype),
            "kind": ctype(index_dtype),
            "mode": mode,
            "inverse": inverse,
            "ndim": self._ndim,
            "schedule": self.schedule,
        }
        self._kernels = KernelVariants(self._build)

    def _source(self, index: str) -> KernelSource:
        return kernel_source(
            "indexing/take_along_axis",
            preambles=(render("runtime/error_flag"), render("common/to_long")),
            plan=_plan_struct(index, self._ndim, self.schedule),
            index=index,
            lanes=UNIT_ELEMENTS,
            in_buffer=self._in_buffer(index),
            **self._arguments,
        )

    def _in_buffer(self, index: str) -> bool:
        """Return whether the kernel's struct leaves no room for the other arguments: buffers, and a number."""
        return _plan_struct(index, self._ndim, self.schedule).size + 36 > self.context.info.max_parameter_size

    def _build(self, word: str) -> Kernel:
        return self.context.kernel(self._source(word))

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel for an ordinary call."""
        return (self._source("long" if self.schedule == "cpu" else "int"),)

    def take(self, output: GpuArray, source: GpuArray, index: GpuArray, length: int, step: int) -> None:
        """Enqueue the kernel; the arrays have the same shape.

        `length`, `step`: number of elements that an index may pick from, and their distance in elements.
        """
        layouts = output.layout, source.layout, index.layout
        reach = max(max_offset(*layout[:2]) for layout in layouts) + (length - 1) * abs(step)
        word = "long" if self.schedule == "cpu" or max(reach, output.size) >= STEPPED_INT_LIMIT else "int"
        kernel, shape, strides = self._kernels[word], output.shape, tuple(layout.strides for layout in layouts)
        if self.schedule == "cpu":
            shares: tuple[int, ...] = (output.size,)
            sizes = item_range(self.context, output.size, MIN_ITEM_LOOKUPS)
        else:
            shape, strides = collapse(shape, strides)
            units = share_out(shape, UNIT_ELEMENTS)
            shares, sizes = units, ndrange(self.context, kernel, units.expected, GROUP_ITEMS, MOVE_GROUPS_PER_UNIT)
        pad = self._ndim - len(shape)
        numbers = [*[1] * pad, *shape, *(s for steps in strides for s in ((0,) * pad + steps)), *shares]
        rest = length, step, *(layout.offset for layout in layouts)
        packed = _plan_struct(word, self._ndim, self.schedule).pack_values(*numbers, *rest)
        plan = struct_argument(self.context, packed, self._in_buffer(word))
        error_flag = self.error_flag.buffer if self.is_checked else None
        buffers = source.buffer, index.buffer, output.buffer
        kernel.launch(self.context.queue, *sizes, *buffers, plan, error_flag, self.number)


class Choose(TakeAlongAxis):
    """The element of the array that the index names at each place: ``choose(index, choices)``, as `numpy.choose`.

    `index_ndim`, `ndim`: dimensions of the index and of the choices, whose first one the index picks from; `mode`:
    ``"raise"``, ``"wrap"`` or ``"clip"``.
    """

    def __init__(
        self,
        context: Context,
        dtype: str,
        index_dtype: str,
        index_ndim: int,
        ndim: int,
        mode: str = "raise",
        schedule: str | None = None,
    ) -> None:
        super().__init__(context, dtype, index_dtype, max(index_ndim, ndim - 1), mode, schedule=schedule)

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the common shape of the index and each choice.

        Raises `ValueError`: they do not broadcast together, or there is nothing to choose from.
        """
        index, choices = inputs
        if not choices.shape[0]:
            raise ValueError("0-length sequence.")
        try:
            return (Layout.contiguous(np.broadcast_shapes(index.shape, choices.shape[1:])),)
        except ValueError as error:
            raise ValueError(
                "shape mismatch: objects cannot be broadcast to a single shape.  Mismatch is between arg 0 with shape "
                f"{index.shape} and arg 1 with shape {choices.shape[1:]}."
            ) from error

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[Any]) -> None:
        """Enqueue the kernel."""
        (output,), (index, choices) = outputs, inputs
        if not output.size:
            return
        shape, (step, *strides), offset = choices.layout
        each = Layout(shape[1:], tuple(strides), offset).broadcast_to(output.shape)
        where = index.with_layout(index.layout.broadcast_to(output.shape))
        self.take(output, choices.with_layout(each), where, shape[0], step)

    def error(self, finding: ErrorRecord) -> Exception:
        """Return NumPy's ValueError."""
        return ValueError("invalid entry in choice array")


class ChooseFromList(Choose):
    """The element of one of several arrays: ``choose(index, (first, second, ..))``; they are copied into one array.

    `ndim`: dimensions of each array.
    """

    def __init__(
        self,
        context: Context,
        dtype: str,
        index_dtype: str,
        index_ndim: int,
        ndim: int,
        mode: str = "raise",
        schedule: str | None = None,
    ) -> None:
        super().__init__(context, dtype, index_dtype, index_ndim, 1 + ndim, mode, schedule)
        self._copy = Copy(context, dtype, ndim, None, schedule)

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel, and that of the copies."""
        return (*super().sources(), *self._copy.sources())

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the common shape of the index and all arrays.

        Raises `ValueError`: they do not broadcast together.
        """
        index, *choices = inputs
        common = np.broadcast_shapes(*(choice.shape for choice in choices))
        return super().layout(index, Layout.contiguous((len(choices), *common)))

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[Any]) -> None:
        """Enqueue the copies and the kernel."""
        index, *choices = inputs
        common = np.broadcast_shapes(*(choice.shape for choice in choices))
        stacked = self.context.empty((len(choices), *common), self.output_dtypes[0])
        for k, choice in enumerate(choices):
            part = stacked.with_layout(stacked.layout.subscript((k,)))
            if part.size:
                self._copy.launch((part,), (choice.with_layout(choice.layout.broadcast_to(common)),))
        super().launch(outputs, (index, stacked))
