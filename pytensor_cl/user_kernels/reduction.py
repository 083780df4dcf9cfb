"""Reductions that users write, called on arrays."""

from collections.abc import Sequence
from functools import lru_cache
from threading import get_ident, local
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from pytensor_cl.routines.elemwise.routine import dense_copy
from pytensor_cl.routines.rowwise.routine import Rowwise
from pytensor_cl.runtime.array import GpuArray, share_memory
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.registry import get_context
from pytensor_cl.user_kernels.elementwise import context_of_call, key_of, refuse_writing
from pytensor_cl.user_kernels.function import digest_of_headers
from pytensor_cl.user_kernels.limits import MAX_CALLS_KEPT
from pytensor_cl.user_kernels.parameters import (
    Parameter,
    bind_placeholders,
    check_array_dtype,
    convert_number,
    parse_parameters,
    types_of_placeholders,
)
from pytensor_cl.user_kernels.programs import split_options
from pytensor_cl.user_kernels.reduction_function import ReductionDefinition, ReductionFunctions, reduction_functions
from pytensor_cl.user_kernels.reduction_routine import UserReduction, row_function

Axes = int | Sequence[int] | None


@lru_cache(maxsize=512)
def _user_reduction(
    context: Context,
    functions: ReductionFunctions,
    ndims: tuple[int | None, ...],
    ndim: int,
    axes: tuple[int, ...],
    thread: int,
) -> UserReduction:
    """Return the thread's own routine: a kernel holds its arguments between two calls of the driver."""
    return UserReduction(context, functions, ndims, ndim, axes)


@lru_cache(maxsize=512)
def _rowwise(
    context: Context,
    functions: ReductionFunctions,
    broadcast: tuple[tuple[bool, ...] | None, ...],
    ndim: int,
    axes: tuple[int, ...],
    thread: int,
) -> Rowwise:
    """Return the thread's own routine; `broadcast`: for each input its dimensions of length 1, None: a number."""
    function = row_function(functions, [flags is None for flags in broadcast])
    count = len(function.operands)
    flags = [() if own is None else own for own in broadcast] + [()] * (count - len(broadcast))
    return Rowwise(context, function, ndim, axes, [False] * count + [True], flags)


class _Call(NamedTuple):
    """Routine of a call; it holds for all arguments of the same dtypes and layouts."""

    context: Context
    functions: ReductionFunctions
    routine: Any
    full: tuple[int, ...]
    axes: tuple[int, ...]
    numbers: tuple[tuple[int, Parameter, str], ...]
    reduced: int  # elements of a result

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(n for d, n in enumerate(self.full) if d not in self.axes)


class ReductionKernel:
    """A kernel of one's own that reduces axes of arrays.

    For each element it computes an expression of the inputs, combines these values, and makes a result of what is left.
    Sums, products, minima, maxima and the operations of bits are as fast, and sums as accurate, as those of this
    package; other expressions are computed by kernels of a plainer form. Calls do not wait for the device.

    Parameters
    ----------
    in_params
        Inputs, as those of `ElementwiseKernel`; they are broadcast, but for raw ones.
    out_params
        The output.
    map_expr
        Expression of the inputs for an element. ``i`` is its number, ``n`` the number of elements of a result.
    reduce_expr
        Expression that combines ``a`` and ``b``; it is associative and commutative: values are combined in any order,
        which is the same in each call.
    post_map_expr
        Statement that assigns to the output what it makes of ``a``, the reduced value; ``n`` is as above.
    identity
        Result of reducing nothing, before `post_map_expr`: a number or an expression of C; None: that is an error. It
        enters no other reduction.
    name
        Name of the kernel in messages and profiles; a name of C.
    reduce_type
        Type of the values that are combined: a NumPy dtype, a placeholder, or a type of C, such as ``float2`` or one
        that the preamble defines. None: that of the output.
    reduce_dims
        Taken for CuPy's sake: dimensions are always merged where strides allow it.
    preamble
        OpenCL C before the kernel.
    options
        Build options of the driver. The kernel then has a program of its own.

    Raises
    ------
    ValueError
        A parameter, the name or an expression is malformed.
    TypeError
        A text is no string.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor_cl
    >>> from pytensor_cl.runtime.registry import get_context
    >>> norm = pytensor_cl.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "norm")
    >>> x = get_context().from_host(np.array([[3, 4], [5, 12]], "float32"))
    >>> print(np.asarray(norm(x, axis=1)))
    [ 5. 13.]
    """

    __slots__ = ("__weakref__", "_calls", "_nin", "definition")

    def __init__(  # noqa: PLR0913 -- CuPy's order
        self,
        in_params: str,
        out_params: str,
        map_expr: str,
        reduce_expr: str,
        post_map_expr: str,
        identity: str | float | None,
        name: str = "reduce_kernel",
        reduce_type: str | None = None,
        reduce_dims: bool = True,
        preamble: str = "",
        options: Sequence[str] = (),
    ) -> None:
        chosen = split_options(options)
        self._set(
            ReductionDefinition(
                name,
                parse_parameters(in_params, "in_params"),
                parse_parameters(out_params, "out_params"),
                map_expr,
                reduce_expr,
                post_map_expr,
                _identity(identity),
                reduce_type or "",
                preamble,
                chosen,
                digest_of_headers(preamble, chosen),
            )
        )
        self.definition.check()

    def _set(self, definition: ReductionDefinition) -> None:
        self.definition = definition
        self._nin = len(definition.inputs)
        self._calls = local()

    def __getstate__(self) -> tuple[ReductionDefinition]:
        return (self.definition,)

    def __setstate__(self, state: tuple[ReductionDefinition]) -> None:
        self._set(*state)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReductionKernel) and self.definition == other.definition

    def __hash__(self) -> int:
        return hash(self.definition)

    def __repr__(self) -> str:
        taken, made = (", ".join(map(str, p)) for p in (self.definition.inputs, self.definition.outputs))
        return f"ReductionKernel({taken!r}, {made!r}, name={self.name!r})"

    @property
    def name(self) -> str:
        """Name of the kernel."""
        return self.definition.name

    @property
    def nin(self) -> int:
        """Number of inputs."""
        return self._nin

    def source(self, *dtypes: Any, device: str | None = None) -> str:
        """Return the OpenCL C of the kernel, for the rows of a matrix.

        Parameters
        ----------
        dtypes
            One for each placeholder, in the order in which they come in the parameters.
        device
            Name of a context; None is the default one.

        Raises
        ------
        TypeError
            There are more or fewer dtypes than placeholders.
        """
        (source,) = self._matrix_routine(dtypes, get_context(device)).sources()
        return "\n".join((*source.preambles, source.source))

    def compile(self, *dtypes: Any, device: str | None = None) -> None:
        """Compile the kernel now, for the rows of a matrix; see `source` for the parameters.

        Raises
        ------
        CompilationError
            The driver rejects it; the message shows the lines.
        """
        context = get_context(device)
        context.build(self._matrix_routine(dtypes, context).sources())

    def _matrix_routine(self, dtypes: Sequence[Any], context: Context) -> Any:
        parameters = (*self.definition.inputs, *self.definition.outputs)
        types = types_of_placeholders(self.name, parameters, dtypes, context)
        functions = reduction_functions(self.definition, types)
        if functions.is_row_function:
            return _rowwise(context, functions, ((False, False),) * self.nin, 2, (1,), get_ident())
        return _user_reduction(context, functions, (2,) * self.nin, 2, (1,), get_ident())

    def __call__(
        self,
        *args: Any,
        axis: Axes = None,
        keepdims: bool = False,
        out: GpuArray | None = None,
        initial: Any = None,
        device: str | None = None,
    ) -> GpuArray:
        """Reduce arrays; do not wait.

        Parameters
        ----------
        args
            The inputs: arrays of one device, or numbers; at least one is an array that is not raw. The output may
            follow them, as with CuPy's kernels.
        axis
            The axes that are reduced; None: all.
        keepdims
            Keep the reduced axes, with length 1.
        out
            Array that is written, of the shape of the result. It may overlap an input, which is copied then.
        initial
            Value that is combined with each result before `post_map_expr`.
        device
            Name of the context, which is that of the arrays.

        Returns
        -------
        GpuArray
            The result.

        Raises
        ------
        TypeError
            There are more or fewer inputs than parameters; an array has another dtype than its parameter; a
            placeholder stands for two dtypes; an array is on the host.
        ValueError
            Shapes do not broadcast; `out` has another shape, or is read-only; nothing is reduced and there is no
            identity; arrays are on several devices.
        numpy.exceptions.AxisError
            There is no such axis.
        CompilationError
            The driver rejects an expression; the message shows the lines.
        """
        inputs, out = self._split(args, out)
        axes = tuple(axis) if isinstance(axis, list | tuple) else axis
        key = (axes, device, initial is None, *map(key_of, inputs), key_of(out))
        calls: dict[Any, _Call] = self._calls.__dict__
        found = calls.get(key)
        if found is None:
            found = self._prepare(inputs, axes, out, initial is not None, device)
            if len(calls) >= MAX_CALLS_KEPT:
                del calls[next(iter(calls))]
            calls[key] = found
        values = list(inputs)
        for k, parameter, dtype in found.numbers:
            values[k] = convert_number(parameter, values[k], dtype, self.name)
        target = self._target(found, out, keepdims)
        if out is not None:
            values = [dense_copy(x) if isinstance(x, GpuArray) and share_memory(x, out) else x for x in values]
        self._run(found, target, values, initial)
        if out is not None:
            return out
        return target.with_layout(_kept(target.layout, found)) if keepdims else target

    def _split(self, args: Sequence[Any], out: GpuArray | None) -> tuple[Sequence[Any], GpuArray | None]:
        if len(args) == self._nin + 1 and out is None:
            return args[:-1], args[-1]
        if len(args) != self._nin:
            taken = ", ".join(map(str, self.definition.inputs))
            raise TypeError(f"kernel {self.name!r} takes its inputs ({taken}); number of arguments given: {len(args)}")
        return args, out

    def _run(self, call: _Call, target: GpuArray, values: list[Any], initial: Any) -> None:
        if isinstance(call.routine, UserReduction):
            start = None if initial is None else self._start(initial, call.functions)
            call.routine.launch_over(call.full, target, values, start)
            return
        ndim = len(call.full)
        padded = [x.with_layout(_padded(x.layout, ndim)) if isinstance(x, GpuArray) else x for x in values]
        if len(call.functions.posted.input_dtypes) > 1:
            padded.append(np.int64(call.reduced))
        call.routine.launch((target,), padded)

    def _start(self, initial: Any, functions: ReductionFunctions) -> np.generic:
        if functions.dtype is None:
            raise TypeError(f"kernel {self.name!r}: initial= is for numbers, and {functions.kind} is a type of C")
        dtype = "float32" if functions.dtype == "float16" else functions.dtype
        return convert_number(Parameter("initial", dtype), initial, dtype, self.name)

    def _target(self, call: _Call, out: GpuArray | None, keepdims: bool) -> GpuArray:
        if out is None:
            return call.context.empty(call.shape, call.functions.output_dtype)
        expected = tuple(1 if d in call.axes else n for d, n in enumerate(call.full)) if keepdims else call.shape
        if out.shape != expected:
            raise ValueError(f"kernel {self.name!r}: out has shape {out.shape}, not {expected}")
        if not keepdims:
            return out
        return out.with_layout(out.layout.dimshuffle([d for d in range(out.ndim) if d not in call.axes]))

    def _prepare(
        self, inputs: Sequence[Any], axis: Axes, out: GpuArray | None, has_initial: bool, device: str | None
    ) -> _Call:
        definition, name = self.definition, self.name
        pairs = [*zip(definition.inputs, inputs, strict=True), (definition.outputs[0], out)]
        context = context_of_call(name, pairs, device, self._nin)
        types = bind_placeholders(name, [*pairs[-1:], *pairs[:-1]], context.info.has_fp64)
        functions = reduction_functions(definition, types)
        dtypes = (*functions.input_dtypes, functions.output_dtype)
        for (p, argument), dtype in zip(pairs, dtypes, strict=True):
            context.check_dtype(dtype)
            if isinstance(argument, GpuArray):
                check_array_dtype(p, argument, dtype, name)
        if out is not None:
            refuse_writing(name, definition.outputs[0].name, out)
        full = self._full_shape(pairs[:-1])
        axes = tuple(range(len(full))) if axis is None else tuple(sorted(normalize_axis_tuple(axis, len(full))))
        numbers = tuple((k, p, dtypes[k]) for k, (p, x) in enumerate(pairs[:-1]) if not isinstance(x, GpuArray))
        reduced = int(np.prod([full[d] for d in axes], dtype=object))
        is_fused = functions.is_row_function and reduced > 0 and not has_initial
        if is_fused:
            flags = tuple(_ones(x, full) if isinstance(x, GpuArray) else None for x in inputs)
            routine: Any = _rowwise(context, functions, flags, len(full), axes, get_ident())
        else:
            ndims = tuple(x.ndim if isinstance(x, GpuArray) else None for x in inputs)
            routine = _user_reduction(context, functions, ndims, len(full), axes, get_ident())
            routine.check_identity(full, has_initial)
        return _Call(context, functions, routine, full, axes, numbers, reduced)

    def _full_shape(self, pairs: Sequence[tuple[Parameter, Any]]) -> tuple[int, ...]:
        shaped = [(p, x.shape) for p, x in pairs if isinstance(x, GpuArray) and not p.is_raw]
        if not shaped:
            raise ValueError(f"kernel {self.name!r}: no array says what is reduced: one input is an array and not raw")
        try:
            return np.broadcast_shapes(*(shape for _, shape in shaped))
        except ValueError:
            listed = ", ".join(f"{p.name}: {shape}" for p, shape in shaped)
            raise ValueError(f"kernel {self.name!r}: the shapes do not fit together ({listed})") from None


def _identity(identity: Any) -> str | None:
    if identity is None or isinstance(identity, str):
        return identity
    if isinstance(identity, bool | int | float | np.generic):
        return (
            repr(np.asarray(identity).item())
            .replace("inf", "INFINITY")
            .replace("nan", "NAN")
            .replace("True", "1")
            .replace("False", "0")
        )
    raise TypeError(f"identity is a number, an expression of C or None, not {identity!r}")


def _padded(layout: Layout, ndim: int) -> Layout:
    missing = ndim - layout.ndim
    return Layout((1,) * missing + layout.shape, (0,) * missing + layout.strides, layout.offset) if missing else layout


def _ones(array: GpuArray, full: tuple[int, ...]) -> tuple[bool, ...]:
    """Return for each dimension of a shape whether an array repeats one element along it."""
    own = (1,) * (len(full) - array.ndim) + array.shape
    return tuple(n == 1 and m != 1 for n, m in zip(own, full, strict=True))


def _kept(layout: Layout, call: _Call) -> Layout:
    rest = iter(range(layout.ndim))
    return layout.dimshuffle(["x" if d in call.axes else next(rest) for d in range(len(call.full))])
