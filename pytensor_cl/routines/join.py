"""Concatenation: each input is copied, and cast if need be, into its part of the output, or computed there."""

from collections.abc import Iterable, Sequence

import numpy as np

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.routines.base.routine import Routine
from pytensor_cl.routines.elemwise.routine import Copy, Elemwise, Fill
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel


class Join(Routine):
    """Concatenate arrays along an axis.

    `ndim`: dimensions of every array, at least one; `axis`: not negative.
    """

    def __init__(
        self,
        context: Context,
        dtypes: Sequence[str],
        dtype: str,
        ndim: int,
        axis: int,
        schedule: str | None = None,
    ) -> None:
        super().__init__(context, schedule)
        self.output_dtypes = (dtype,)
        self.axis = axis
        by_dtype = {source: Copy(context, source, ndim, dtype, schedule) for source in dict.fromkeys(dtypes)}
        self._copies = [by_dtype[source] for source in dtypes]

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernels of the copies."""
        return tuple(source for copy in dict.fromkeys(self._copies) for source in copy.sources())

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layout of the output.

        Raises `ValueError`: the inputs differ in a dimension other than the axis.
        """
        at, first = self.axis, inputs[0].shape
        for layout in inputs:
            if layout.shape[:at] + layout.shape[at + 1 :] != first[:at] + first[at + 1 :]:
                shapes = ", ".join(str(x.shape) for x in inputs)
                raise ValueError(
                    "all the input array dimensions except for the concatenation axis must match exactly, "
                    f"but along axis {at} the shapes to join are {shapes}"
                )
        total = sum(layout.shape[at] for layout in inputs)
        return (Layout.contiguous((*first[:at], total, *first[at + 1 :])),)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue a copy for each input; the output may have any strides."""
        (out,) = outputs
        start, before = 0, (slice(None),) * self.axis
        for copy, source in zip(self._copies, inputs, strict=True):
            stop = start + source.shape[self.axis]
            part = out.with_layout(out.layout.subscript((*before, slice(start, stop))))
            if part.size:
                copy.launch((part,), (source,))
            start = stop


class JoinedElemwise(Routine):
    """Apply an element function of several outputs, and store some of them side by side in one array.

    `parts`: numbers of the function's outputs that are concatenated along `axis`, in their order. The outputs are the
    concatenation, and then the other outputs of the function.
    """

    def __init__(self, elemwise: Elemwise, axis: int, parts: Sequence[int]) -> None:
        super().__init__(elemwise.context, elemwise.schedule)
        self._elemwise, self._axis, self._parts = elemwise, axis, tuple(parts)
        dtypes = elemwise.output_dtypes
        self._others = [k for k in range(len(dtypes)) if k not in self._parts]
        self.output_dtypes = (dtypes[self._parts[0]], *(dtypes[k] for k in self._others))
        self.value_arguments = elemwise.value_arguments

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel of the element function."""
        return self._elemwise.sources()

    def value_kernels(self) -> Iterable[Kernel]:
        """Return the kernels that take numbers of the host."""
        return self._elemwise.value_kernels()

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layouts of the outputs."""
        found, at = self._elemwise.layout(*inputs), self._axis
        shape = found[0].shape
        joined = Layout.contiguous((*shape[:at], shape[at] * len(self._parts), *shape[at + 1 :]))
        return (joined, *(found[k] for k in self._others))

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue the kernel of the element function; the outputs may have any strides."""
        joined, *others = outputs
        width = joined.shape[self._axis] // len(self._parts)
        before = (slice(None),) * self._axis
        parts = (slice(k * width, (k + 1) * width) for k in range(len(self._parts)))
        views = [joined.with_layout(joined.layout.subscript((*before, part))) for part in parts]
        numbered = dict(zip((*self._parts, *self._others), (*views, *others), strict=True))
        self._elemwise.launch([numbered[k] for k in range(len(numbered))], inputs)


class Stack(Routine):
    """Make a vector of scalars: 0-d arrays, or NumPy scalars of the host."""

    def __init__(self, context: Context, dtype: str, schedule: str | None = None) -> None:
        super().__init__(context, schedule)
        self.output_dtypes = (dtype,)
        self._copy = Copy(context, dtype, 0, None, schedule)
        self._fill = Fill(context, dtype, 0, schedule)

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernels that write one element."""
        return (*self._copy.sources(), *self._fill.sources())

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layout of the vector."""
        return (Layout.contiguous((len(inputs),)),)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue a copy for each element; the output may have any strides."""
        (out,) = outputs
        for i, source in enumerate(inputs):
            write = self._copy if isinstance(source, GpuArray) else self._fill
            write.launch((out.with_layout(out.layout.subscript((i,))),), (source,))
