"""Routines of elementwise kernels that users write."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pytensor_cl.codegen.dtypes import ctype
from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.template import KernelSource, kernel_source
from pytensor_cl.routines.base.limits import GROUP_ITEMS, GROUPS_PER_UNIT
from pytensor_cl.routines.base.ndrange import Sizes, index_type, item_range, max_offset, ndrange
from pytensor_cl.routines.base.routine import KernelVariants, Plans, Routine, ValueArgument, struct_argument
from pytensor_cl.routines.elemwise.routine import NONE, Access, Copy, Elemwise, common_shape, contiguous
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout, collapse
from pytensor_cl.runtime.program import Kernel
from pytensor_cl.user_kernels.function import UserFunction
from pytensor_cl.user_kernels.limits import MIN_ITEM_ELEMENTS, MIN_LONG_ITEM_ELEMENTS


def _isolated(source: KernelSource, function: UserFunction) -> KernelSource:
    """Return a kernel with the build options of its user, if it needs a program of its own."""
    return source._replace(options=function.definition.options) if function.definition.is_isolated else source


class UserElemwise(Elemwise):
    """Apply a function that a user wrote and that needs one element of each input."""

    function: UserFunction

    def _render(self, index: str, access: Access = NONE) -> KernelSource:
        return _isolated(super()._render(index, access), self.function)


class Indexed(Routine):
    """Apply a function that a user wrote and that needs the number of the element, or other elements of raw arrays.

    Parameters
    ----------
    context
        Context of the arrays.
    function
        The function.
    ndims
        Dimensions of each input, then of each output; None: it is a NumPy scalar.
    schedule
        Schedule of `Routine`.
    broadcast
        For `layout`: whether each dimension of each input has length 1 in all calls; nothing: it may be repeated.
    """

    def __init__(
        self,
        context: Context,
        function: UserFunction,
        ndims: Sequence[int | None],
        schedule: str | None = None,
        broadcast: Sequence[Sequence[bool]] = (),
    ) -> None:
        super().__init__(context, schedule)
        self._broadcast = broadcast or [(True,) * (ndim or 0) for ndim in ndims[: len(function.definition.inputs)]]
        definition = function.definition
        self.function, self.ndims = function, tuple(ndims)
        self.output_dtypes = function.output_dtypes
        self._parameters = (*definition.inputs, *definition.outputs)
        self._inputs = len(definition.inputs)
        self._dtypes = (*function.input_dtypes, *function.output_dtypes)
        self._kinds = tuple(
            "value" if ndim is None else "raw" if p.is_raw else "array"
            for p, ndim in zip(self._parameters, self.ndims, strict=True)
        )
        scalar = {k: np.dtype(t if t != "bool" else "uint8").type for k, t in enumerate(function.input_dtypes)}
        self._scalars = [(k, scalar[k]) for k, kind in enumerate(self._kinds) if kind == "value"]
        self.value_arguments = {k: ValueArgument(convert, k) for k, convert in self._scalars}
        self._arrays = [k for k, kind in enumerate(self._kinds) if kind == "array"]
        self._raw = [k for k, kind in enumerate(self._kinds) if kind == "raw"]
        self._places = [k for k, kind in enumerate(self._kinds) if kind != "value"]
        self._offsets = Struct(("long", f"at[{max(1, len(self._places))}]"), name="offsets")
        self._kernels = KernelVariants(self._build)
        self._plans: Plans[tuple[Kernel | None, Sizes | tuple[()], Any]] = Plans()

    def _name(self, k: int) -> str:
        return f"i{k}" if k < self._inputs else f"o{k - self._inputs}"

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel of arrays that are contiguous, of less than 2**31 elements."""
        return (self._source(("int", 1)),)

    def value_kernels(self) -> Any:
        """Return the kernels that take numbers of the host."""
        return self._kernels.values()

    def _plan_struct(self, index: str, ndim: int) -> Struct:
        raw = "".join(f" size_{self._name(k)} shape_{self._name(k)}[{max(1, self.ndims[k] or 0)}]" for k in self._raw)
        dims = (index, f"shape[{ndim}] stride[{len(self._arrays)}][{ndim}]") if self._arrays else (index, "shape[1]")
        return Struct(("long", f"elements{raw}"), dims, name="plan")

    def _in_buffer(self, index: str, ndim: int) -> bool:
        used = 8 * (1 + len(self._kinds)) + self._offsets.size + self._plan_struct(index, ndim).size
        return used > self.context.info.max_parameter_size

    def _source(self, variant: tuple[str, int]) -> KernelSource:
        index, ndim = variant
        arguments = tuple(
            (self._name(k), ctype(dtype), kind, self.ndims[k] or 0)
            for k, (dtype, kind) in enumerate(zip(self._dtypes, self._kinds, strict=True))
        )
        source = kernel_source(
            "user_kernels/indexed",
            preambles=self.function.preambles,
            plan=self._plan_struct(index, ndim),
            offsets=self._offsets,
            arguments=arguments,
            statements=self.function.statements(1),
            ndim=ndim,
            index=index,
            plan_in_buffer=self._in_buffer(index, ndim),
            schedule=self.schedule,
        )
        return _isolated(source, self.function)

    def _build(self, variant: tuple[str, int]) -> Kernel:
        return self.context.kernel(self._source(variant))

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the shape to which the inputs broadcast, C-contiguous, once per output; raw ones do not count.

        Raises `ValueError`: the shapes differ, or a dimension that is not known to have length 1 would be repeated.
        """
        arrays = [k for k in self._arrays if k < self._inputs]
        shape = common_shape([inputs[k].shape for k in arrays], [self._broadcast[k] for k in arrays]) if arrays else ()
        return (Layout.contiguous(shape),) * len(self.output_dtypes)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue the kernel over the elements of the first output that is not raw."""
        first = next((k for k in self._arrays if k >= self._inputs), None)
        layout = outputs[0].layout if first is None else outputs[first - self._inputs].layout
        self.launch_over(layout.shape, outputs, inputs)

    def launch_over(
        self, shape: tuple[int, ...], outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]
    ) -> None:
        """Enqueue the kernel over a shape; raw inputs that are not contiguous are copied, and so are raw outputs."""
        arguments: list[Any] = [*inputs, *outputs]
        strided = [k for k in self._raw if not arguments[k].layout.is_contiguous]
        given = {k: arguments[k] for k in strided if k >= self._inputs}
        for k in strided:
            arguments[k] = contiguous(arguments[k])
        key = (shape, *(arguments[k].layout[:2] for k in self._places))
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans.store(key, self._plan(shape, arguments))
        kernel, sizes, packed = plan
        if kernel is None:
            return
        for k, convert in self._scalars:
            arguments[k] = convert(arguments[k])
        offsets = [arguments[k].layout.offset for k in self._places] or [0]
        passed = [a.buffer if isinstance(a, GpuArray) else a for a in arguments]
        kernel.launch(self.context.queue, *sizes, *passed, self._offsets.pack_values(*offsets), packed)
        for k, array in given.items():
            Copy(self.context, array.dtype.name, array.ndim).launch((array,), (arguments[k],))

    def _plan(self, shape: tuple[int, ...], arguments: Sequence[Any]) -> Any:
        elements = int(np.prod(shape, dtype=object))
        if not elements:
            return None, (), None
        layouts = [arguments[k].layout.broadcast_to(shape) for k in self._arrays]
        sizes, strides = collapse(shape, [layout.strides for layout in layouts])
        sizes, strides = (sizes, strides) if sizes else ((1,), ((0,),) * len(layouts))
        reach = max([elements, *(max_offset(sizes, s) for s in strides)])
        index = index_type(reach)
        ndim = len(sizes) if layouts else 1
        kernel = self._kernels[index, ndim]
        values: dict[str, Any] = {"elements": elements, "shape": sizes if layouts else (1,)}
        if layouts:
            values["stride"] = strides
        for k in self._raw:
            name, layout = self._name(k), arguments[k].layout
            values[f"size_{name}"], values[f"shape_{name}"] = layout.size, layout.shape or (1,)
        packed = self._plan_struct(index, ndim).pack(**values)
        argument = struct_argument(self.context, packed, self._in_buffer(index, ndim))
        if self.schedule == "cpu":
            worth = MIN_LONG_ITEM_ELEMENTS if self.function.is_long else MIN_ITEM_ELEMENTS
            return kernel, item_range(self.context, elements, worth), argument
        return kernel, ndrange(self.context, kernel, elements, GROUP_ITEMS, GROUPS_PER_UNIT), argument


class Batched(Routine):
    """Apply a routine to each entry of a batch: one launch for each, of views at other offsets.

    Parameters
    ----------
    context
        Context of the arrays.
    core
        The routine of one entry.
    ndims
        Dimensions of one entry of each input, without those of the batch.
    """

    def __init__(self, context: Context, core: Routine, ndims: Sequence[int]) -> None:
        super().__init__(context, core.schedule)
        self.core = core
        self.output_dtypes = core.output_dtypes
        self._ndims = tuple(ndims)

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernels of one entry."""
        return self.core.sources()

    def _batch_of(self, layouts: Sequence[Layout]) -> tuple[int, ...]:
        shapes = [layout.shape[: layout.ndim - n] for layout, n in zip(layouts, self._ndims, strict=True)]
        return np.broadcast_shapes(*shapes)

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the shapes of the batch, followed by those of one entry."""
        batch = self._batch_of(inputs)
        cores = (_entry(layout, n, None) for layout, n in zip(inputs, self._ndims, strict=True))
        return tuple(Layout.contiguous((*batch, *one.shape)) for one in self.core.layout(*cores))

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue the kernel once for each entry."""
        arrays = [x for x in inputs if isinstance(x, GpuArray)]
        batch = self._batch_of([x.layout for x in arrays])
        own = [x.ndim - len(batch) for x in outputs]
        for index in np.ndindex(batch):
            read = [x.with_layout(_entry(x.layout, n, index)) for x, n in zip(arrays, self._ndims, strict=True)]
            written = [x.with_layout(_entry(x.layout, n, index)) for x, n in zip(outputs, own, strict=True)]
            self.core.launch(written, read)


def _entry(layout: Layout, ndim: int, index: tuple[int, ...] | None) -> Layout:
    """Return the layout of one entry of a batch; None: of the first."""
    lead = layout.ndim - ndim
    offset = layout.offset
    if index is not None:
        leading = zip(index[len(index) - lead :], layout.shape, layout.strides, strict=False)
        offset += sum(k * stride for k, n, stride in leading if n != 1)
    return Layout(layout.shape[lead:], layout.strides[lead:], offset)
