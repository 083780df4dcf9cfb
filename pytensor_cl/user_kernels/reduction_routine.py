"""Routines of reductions that users write."""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from pytensor_cl.codegen.dtypes import computed, ctype
from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.template import KernelSource, kernel_source
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.limits import GROUP_ITEMS, GROUPS_PER_UNIT
from pytensor_cl.routines.base.ndrange import index_type, max_offset, power_above
from pytensor_cl.routines.base.routine import KernelVariants, Plans, Routine, ValueArgument, struct_argument
from pytensor_cl.routines.elemwise.routine import common_shape, contiguous
from pytensor_cl.routines.rowwise.program import Map, Operand, Reduce, RowFunction
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout, collapse, contiguous_strides
from pytensor_cl.runtime.program import Kernel
from pytensor_cl.user_kernels.limits import MIN_CHUNK_ELEMENTS, STRANDS
from pytensor_cl.user_kernels.reduction_function import ReductionFunctions


def accumulator_of(operation: str, dtype: str) -> str:
    """Return the dtype in which numbers are added and multiplied: float64 for floats, as NumPy's sums are accurate."""
    return "float64" if operation in ("add", "mul") and np.dtype(dtype).kind == "f" else dtype


def row_function(functions: ReductionFunctions, is_number: Sequence[bool]) -> RowFunction:
    """Return the function of rows that maps, reduces and maps the results.

    `is_number`: whether each input is a number of the host.
    """
    definition, dtype = functions.definition, functions.dtype
    assert dtype is not None and definition.operation is not None
    pairs = zip(functions.input_dtypes, is_number, strict=True)
    operands = [Operand("value" if number else "full", t) for t, number in pairs]
    count = len(operands)
    if len(functions.posted.input_dtypes) > 1:
        operands.append(Operand("value", "int64"))
    first = len(operands)
    steps = (
        Map(functions.mapped, tuple(range(count)), 1, definition.name, True),
        Reduce(definition.operation, first, accumulator_of(definition.operation, dtype), dtype, True),
        Map(functions.posted, (first + 1, *range(count, first)), 1, definition.name),
    )
    return RowFunction(tuple(operands), steps, (first + 2,))


class _Variant(NamedTuple):
    """A kernel: ``stage`` is ``"all"``, or ``"first"`` and ``"final"`` where partial results are combined."""

    stage: str
    index_type: str
    dims: tuple[int, int]
    group: int
    has_initial: bool
    is_unit: bool = False


class _Launch(NamedTuple):
    kernel: Kernel
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    plan: Any


class UserReduction(Routine):
    """Reduce axes by an expression that a user wrote.

    Parameters
    ----------
    context
        Context of the arrays.
    functions
        The C functions.
    ndims
        Dimensions of each input; None: it is a NumPy scalar.
    ndim, axes
        Dimensions to which the inputs are broadcast, and those that are reduced; None: all.
    schedule
        Schedule of `Routine`.
    broadcast
        For `layout`: whether each dimension of each input has length 1 in all calls; nothing: it may be repeated.
    """

    def __init__(
        self,
        context: Context,
        functions: ReductionFunctions,
        ndims: Sequence[int | None],
        ndim: int,
        axes: Sequence[int] | None = None,
        schedule: str | None = None,
        broadcast: Sequence[Sequence[bool]] = (),
    ) -> None:
        super().__init__(context, schedule)
        self.functions = functions
        self._broadcast = broadcast or [(True,) * (ndim or 0) for ndim in ndims]
        self.ndim = ndim
        self.axes = tuple(range(ndim)) if axes is None else tuple(sorted(normalize_axis_tuple(axes, ndim)))
        self.output_dtypes = (functions.output_dtype,)
        parameters = functions.definition.inputs
        self._ndims = tuple(ndims)
        self._kinds = [
            "value" if n is None else "raw" if p.is_raw else "array" for p, n in zip(parameters, ndims, strict=True)
        ]
        scalar = {k: np.dtype(t if t != "bool" else "uint8").type for k, t in enumerate(functions.input_dtypes)}
        self._scalars = [(k, scalar[k]) for k, kind in enumerate(self._kinds) if kind == "value"]
        self.value_arguments = {k: ValueArgument(convert, k) for k, convert in self._scalars}
        self._arrays = [k for k, kind in enumerate(self._kinds) if kind == "array"]
        self._raw = [k for k, kind in enumerate(self._kinds) if kind == "raw"]
        self._places = [k for k, kind in enumerate(self._kinds) if kind != "value"]
        self._offsets = Struct(("long", f"at[{len(self._places) + 1}]"), name="offsets")
        self._kernels = KernelVariants(self._build)
        self._plans: Plans[tuple[tuple[_Launch, ...], int]] = Plans()

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel of rows that one work-group reduces."""
        outer = 1 if len(self.axes) < self.ndim else 0
        return (self._source(_Variant("all", "int", (max(outer, 1), 1), self._group(GROUP_ITEMS), False, True)),)

    def value_kernels(self) -> Any:
        """Return the kernels that take numbers of the host."""
        return self._kernels.values()

    def _group(self, elements: int) -> int:
        return 1 if self.schedule == "cpu" else self.limits.size(min(GROUP_ITEMS, power_above(elements)), 16)

    def _plan_struct(self, variant: _Variant) -> Struct:
        raw = "".join(f" size_i{k} shape_i{k}[{max(1, self._ndims[k] or 0)}]" for k in self._raw)
        outer, inner = variant.dims
        count = len(self._arrays) + 1
        strides = f"outer_stride[{count}][{outer}] inner_stride[{count}][{inner}]"
        numbers = f"inner_elements tasks chunks chunk partials result_stride[{outer}]{raw}"
        return Struct(
            ("long", numbers), (variant.index_type, f"outer_shape[{outer}] inner_shape[{inner}] {strides}"), name="plan"
        )

    def _in_buffer(self, variant: _Variant) -> bool:
        used = 8 * (4 + len(self._kinds)) + self._offsets.size + self._plan_struct(variant).size
        return used > self.context.info.max_parameter_size

    def _source(self, variant: _Variant) -> KernelSource:
        functions = self.functions
        arguments = tuple(
            (f"i{k}", ctype(dtype), kind, self._ndims[k] or 0)
            for k, (dtype, kind) in enumerate(zip(functions.input_dtypes, self._kinds, strict=True))
        )
        output = ctype(functions.output_dtype)
        post = functions.post.call(("sum", "elements"))
        texts = (functions.map, functions.reduce, functions.post)
        identity = functions.definition.identity
        initial = ctype(computed(functions.dtype)) if functions.dtype else ""
        source = kernel_source(
            "user_kernels/reduction",
            preambles=tuple(dict.fromkeys(text for function in texts for text in function.preambles)),
            plan=self._plan_struct(variant),
            offsets=self._offsets,
            arguments=(*arguments, ("o0", output, "array", 0)),
            functions={"reduce": functions.reduce.symbol, "post": f"{output} o0; {{ {post} }}"},
            call=functions.map.call(("&next",)),
            kind=functions.reduce.translate(functions.kind),
            stage=variant.stage,
            identity=None if identity is None else functions.reduce.translate(functions.whole_number(identity)),
            has_initial=variant.has_initial,
            initial_type=initial,
            group=variant.group,
            strands=STRANDS if self.schedule == "cpu" and variant.stage != "final" else 1,
            is_unit=variant.is_unit,
            dims=variant.dims,
            index=variant.index_type,
            plan_in_buffer=self._in_buffer(variant),
        )
        is_isolated = functions.map.definition.is_isolated
        return source._replace(options=functions.definition.options) if is_isolated else source

    def _build(self, variant: _Variant) -> Kernel:
        return self.context.kernel(self._source(variant))

    # Shapes

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the shape of the inputs without the axes that are reduced.

        Raises `ValueError`: the shapes differ, or a dimension that is not known to have length 1 would be repeated, or
        nothing is reduced and there is no identity.
        """
        arrays = self._arrays
        full = common_shape([inputs[k].shape for k in arrays], [self._broadcast[k] for k in arrays]) if arrays else ()
        self.check_identity(full, has_initial=False)
        return (Layout.contiguous([n for d, n in enumerate(full) if d not in self.axes]),)

    def check_identity(self, full: tuple[int, ...], has_initial: bool) -> None:
        """Raise a `ValueError` if nothing is reduced and there is no identity."""
        definition = self.functions.definition
        if definition.identity is None and not has_initial and not all(full[d] for d in self.axes):
            raise ValueError(f"kernel {definition.name!r}: there is no identity, and an axis of length 0 is reduced")

    # Launch

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue the kernels."""
        full = np.broadcast_shapes(*(inputs[k].shape for k in self._arrays))
        self.launch_over(full, outputs[0], inputs, None)

    def launch_over(
        self,
        full: tuple[int, ...],
        output: GpuArray,
        inputs: Sequence[GpuArray | np.generic],
        initial: np.generic | None,
    ) -> None:
        """Enqueue the kernels for inputs that broadcast to a shape; raw inputs that are not contiguous are copied."""
        arguments: list[Any] = list(inputs)
        for k in self._raw:
            arguments[k] = contiguous(arguments[k])
        key = (full, initial is None, output.layout[:2], *(arguments[k].layout[:2] for k in self._places))
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans.store(key, self._plan(full, output, arguments, initial is not None))
        launches, nbytes = plan
        offsets = [*(arguments[k].layout.offset for k in self._places), output.layout.offset]
        for k, convert in self._scalars:
            arguments[k] = convert(arguments[k])
        partials = self.context.memory.allocate(nbytes) if nbytes else None
        passed = [a.buffer if isinstance(a, GpuArray) else a for a in (*arguments, output)]
        more = () if initial is None else (initial,)
        packed = self._offsets.pack_values(*offsets)
        for number, launch in enumerate(launches):
            extra = more if number == len(launches) - 1 else ()
            launch.kernel.launch(
                self.context.queue,
                launch.global_size,
                launch.local_size,
                *passed,
                partials,
                *extra,
                packed,
                launch.plan,
            )

    def _plan(
        self, full: tuple[int, ...], output: GpuArray, arguments: Sequence[Any], has_initial: bool
    ) -> tuple[tuple[_Launch, ...], int]:
        """Return the launches, and the bytes of partial results."""
        layouts = [arguments[k].layout.broadcast_to(full) for k in self._arrays]
        steps = [*(layout.strides for layout in layouts), contiguous_strides(full)]
        outer = [d for d in range(self.ndim) if d not in self.axes]
        rows, (*outer_steps, result) = collapse(
            [full[d] for d in outer], [*([s[d] for d in outer] for s in steps), output.layout.strides]
        )
        length, inner_steps = collapse([full[d] for d in self.axes], [[s[d] for d in self.axes] for s in steps])
        count, elements = prod(rows), prod(full[d] for d in self.axes)
        if not count:
            return (), 0
        chunk, chunks = self._chunks(count, elements)
        index = index_type(max(prod(full), *(max_offset(full, s) for s in steps)))
        numbers = {
            "inner_elements": elements,
            "outer_shape": rows or (1,),
            "inner_shape": length or (1,),
            "outer_stride": [s or (0,) for s in outer_steps],
            "inner_stride": [s or (0,) for s in inner_steps],
            "result_stride": result or (0,),
        }
        for k in self._raw:
            layout = arguments[k].layout
            numbers[f"size_i{k}"], numbers[f"shape_i{k}"] = layout.size, layout.shape or (1,)
        dims = max(1, len(rows)), max(1, len(length))
        is_unit = len(length) == 1 and all(s == (1,) for s in inner_steps[: len(self._arrays)])
        stages = (("all", 1, elements),) if chunks == 1 else (("first", chunks, chunk), ("final", 1, chunks))
        launches = []
        for stage, parts, each in stages:
            variant = _Variant(
                stage, index, dims, self._group(each), has_initial and stage != "first", is_unit and stage != "final"
            )
            work = {"tasks": count * parts, "chunks": parts, "chunk": max(each, 1), "partials": chunks}
            packed = self._plan_struct(variant).pack(**numbers, **work)
            argument = struct_argument(self.context, packed, self._in_buffer(variant))
            launches.append(_Launch(self._kernels[variant], *self._sizes(count * parts, variant.group), argument))
        return tuple(launches), count * chunks * self._bytes_of_kind() if chunks > 1 else 0

    def _chunks(self, rows: int, elements: int) -> tuple[int, int]:
        """Return the elements of a chunk, and the number of chunks of a row."""
        units = self.context.info.compute_units * (GROUPS_PER_UNIT if self.schedule == "simt" else 4)
        wanted = max(1, min(ceil_div(units, rows), elements // MIN_CHUNK_ELEMENTS))
        chunk = max(1, ceil_div(elements, wanted))
        return chunk, max(1, ceil_div(elements, chunk))

    def _sizes(self, tasks: int, group: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        units = self.context.info.compute_units
        if self.schedule == "cpu":
            return (min(tasks, 4 * units),), (1,)
        return (min(tasks, GROUPS_PER_UNIT * units) * group,), (group,)

    def _bytes_of_kind(self) -> int:
        """Return the bytes of a partial result; those of a type of the user's are asked from the device."""
        functions = self.functions
        if functions.dtype is not None:
            return np.dtype(computed(functions.dtype)).itemsize
        key = f"user_kernels.bytes {functions.digest}"
        tables = self.context.tables
        if key not in tables:
            kind = functions.reduce.translate(functions.kind)
            source = kernel_source("user_kernels/size_of", preambles=functions.reduce.preambles, kind=kind)
            result = self.context.empty((1,), "int64")
            kernel = self.context.kernel(source._replace(options=functions.definition.options))
            kernel.launch(self.context.queue, (1,), (1,), result.buffer)
            tables[key] = int(result.to_host()[0])
        found: int = tables[key]
        return found
