"""Elementwise kernels that users write, called on arrays."""

from collections.abc import Sequence
from functools import lru_cache
from threading import get_ident, local
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.routines.elemwise.routine import dense_copy
from pytensor_cl.runtime.array import GpuArray, share_memory
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout, collapse
from pytensor_cl.runtime.registry import get_context
from pytensor_cl.user_kernels.function import Definition, UserFunction, digest_of_headers
from pytensor_cl.user_kernels.limits import MAX_CALLS_KEPT
from pytensor_cl.user_kernels.parameters import (
    OF_VARIABLES,
    Parameter,
    bind_placeholders,
    check_array_dtype,
    convert_number,
    is_number,
    is_variable,
    parse_parameters,
    types_of_placeholders,
)
from pytensor_cl.user_kernels.programs import split_options
from pytensor_cl.user_kernels.routine import Indexed, UserElemwise

_KERNEL_NDIMS = (2, 4, 8)  # dimensions of the kernels, after those of the arrays have been merged


@lru_cache(maxsize=1024)
def user_function(definition: Definition, types: tuple[tuple[str, str], ...]) -> UserFunction:
    """Return the function of a kernel for the dtypes of its placeholders."""
    return UserFunction(definition, types)


@lru_cache(maxsize=512)
def _elemwise(
    context: Context, function: UserFunction, last: tuple[bool | None, ...], ndim: int, thread: int
) -> UserElemwise:
    """Return the thread's own routine: a kernel holds its arguments between two calls of the driver.

    `last`: for each input whether it has one element for all along the last dimension; None: it is a number.
    """
    rows = [(True,) * (ndim - 1) + (bool(same),) for same in last]
    return UserElemwise(context, function, rows, ndim, [same is None for same in last])


@lru_cache(maxsize=512)
def _indexed(context: Context, function: UserFunction, ndims: tuple[int | None, ...], thread: int) -> Indexed:
    return Indexed(context, function, ndims)


class _Call(NamedTuple):
    """Routine and plan of a call; they hold for all arguments of the same dtypes and layouts."""

    context: Context
    routine: Any
    shape: tuple[int, ...]
    numbers: tuple[tuple[int, Parameter, str], ...]  # inputs that are numbers, with the dtypes to convert to
    outputs: tuple[np.dtype, ...]
    places: tuple[int, ...]  # inputs that are arrays
    plan: Any  # None for an `Indexed` routine


class ElementwiseKernel:
    """A kernel of one's own that computes each element of its outputs from the same element of its inputs.

    It takes arrays of any shape and strides: inputs are broadcast as NumPy does. Calls do not wait for the device. The
    first call with new dtypes compiles the kernel.

    Parameters
    ----------
    in_params
        Inputs: ``"float32 x, T y, raw T z"``. A type is the name of a NumPy dtype, or one letter, which stands for the
        dtype that the arguments have. A ``raw`` parameter is not broadcast: the operation reads ``z[k]``, in C order;
        ``z_size`` and ``z_shape[d]`` are its sizes.
    out_params
        Outputs, in the same notation.
    operation
        Statements of OpenCL C that assign to the outputs, which are 0 before. ``i`` is the number of the element, in C
        order, and ``n`` how many there are. Literals such as ``0.5`` are float32 unless a parameter is of float64.
        float16 is computed as float, complex numbers are pairs ``float2`` or ``double2`` with the functions `cmul`,
        `cdiv`, `conj`, `cabs`, `carg`, `cexp`, `clog`, `csqrt`, `csin`, `ccos`, `cpow`, `creal`, `cimag`, `cpolar`.
    name
        Name of the kernel in messages and profiles; a name of C.
    reduce_dims
        Taken for CuPy's sake: dimensions are always merged where strides allow it.
    preamble
        OpenCL C before the kernel: functions, constants, macros.
    no_return
        Return None: the outputs are arguments of the call.
    return_tuple
        Return a tuple, of a single output too.
    options
        Build options of the driver, such as ``("-DWIDTH=3",)``. The kernel then has a program of its own.
    vector
        Whether the operation is valid for vectors, such as ``float16``, in place of numbers: it has no conditions, no
        comparisons and no integers beside others. CPUs then compute functions such as ``exp`` several times as fast.
        None finds it out for sums, products, quotients and functions.

    Raises
    ------
    ValueError
        A parameter, the name or the operation is malformed.
    TypeError
        A text is no string, or `loop_prep` or `after_loop` are given, for which there is no place here.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor_cl
    >>> from pytensor_cl.runtime.registry import get_context
    >>> squared = pytensor_cl.ElementwiseKernel("T x, T y", "T z", "z = (x - y) * (x - y)", "squared_difference")
    >>> x = get_context().from_host(np.arange(3, dtype="float32"))
    >>> print(np.asarray(squared(x, 1)))
    [1. 0. 1.]
    """

    __slots__ = ("__weakref__", "_calls", "_nin", "definition", "no_return", "return_tuple")

    def __init__(  # noqa: PLR0913 -- CuPy's order
        self,
        in_params: str,
        out_params: str,
        operation: str,
        name: str = "kernel",
        reduce_dims: bool = True,
        preamble: str = "",
        no_return: bool = False,
        return_tuple: bool = False,
        *,
        options: Sequence[str] = (),
        vector: bool | None = None,
        **others: Any,
    ) -> None:
        _refuse(others, ("loop_prep", "after_loop"), "write the statements into the operation, or into the preamble")
        chosen = split_options(options)
        self._set(
            Definition(
                name,
                parse_parameters(in_params, "in_params"),
                parse_parameters(out_params, "out_params"),
                operation,
                preamble,
                chosen,
                vector,
                headers=digest_of_headers(f"{preamble}\n{operation}", chosen),
            ),
            no_return,
            return_tuple,
        )
        self.definition.check()

    def _set(self, definition: Definition, no_return: bool, return_tuple: bool) -> None:
        self.definition = definition
        self.no_return = no_return
        self.return_tuple = return_tuple
        self._nin = len(definition.inputs)
        self._calls = local()

    @classmethod
    def of(cls, definition: Definition) -> "ElementwiseKernel":
        """Return the kernel of a definition."""
        kernel = cls.__new__(cls)
        kernel._set(definition, no_return=False, return_tuple=False)
        return kernel

    def __getstate__(self) -> tuple[Definition, bool, bool]:
        return self.definition, self.no_return, self.return_tuple

    def __setstate__(self, state: tuple[Definition, bool, bool]) -> None:
        self._set(*state)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ElementwiseKernel) and self.__getstate__() == other.__getstate__()

    def __hash__(self) -> int:
        return hash(self.__getstate__())

    def __repr__(self) -> str:
        taken, made = (", ".join(map(str, p)) for p in (self.definition.inputs, self.definition.outputs))
        return f"ElementwiseKernel({taken!r}, {made!r}, name={self.name!r})"

    @property
    def name(self) -> str:
        """Name of the kernel."""
        return self.definition.name

    @property
    def nin(self) -> int:
        """Number of inputs."""
        return self._nin

    @property
    def nout(self) -> int:
        """Number of outputs."""
        return len(self.definition.outputs)

    @property
    def nargs(self) -> int:
        """Number of inputs and outputs."""
        return self.nin + self.nout

    def source(self, *dtypes: Any, device: str | None = None) -> str:
        """Return the OpenCL C of the kernel, for contiguous arrays of one dimension.

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
        routine = self._plain_routine(dtypes, get_context(device))
        (source,) = routine.sources()
        return "\n".join((*source.preambles, source.source))

    def compile(self, *dtypes: Any, device: str | None = None) -> None:
        """Compile the kernel now, for contiguous arrays; see `source` for the parameters.

        Raises
        ------
        CompilationError
            The driver rejects it; the message shows the lines.
        """
        context = get_context(device)
        context.build(self._plain_routine(dtypes, context).sources())

    def _plain_routine(self, dtypes: Sequence[Any], context: Context) -> UserElemwise | Indexed:
        parameters = (*self.definition.inputs, *self.definition.outputs)
        types = types_of_placeholders(self.name, parameters, dtypes, context)
        function = user_function(self.definition, types)
        if self.definition.is_indexed:
            return _indexed(context, function, (1,) * len(parameters), get_ident())
        return _elemwise(context, function, (False,) * self.nin, 2, get_ident())

    # Calls

    def __call__(
        self, *args: Any, size: int | None = None, block_size: int | None = None, device: str | None = None
    ) -> Any:
        """Compute the outputs; do not wait.

        Parameters
        ----------
        args
            The inputs: arrays of one device, or numbers. Then nothing, or each output: an array of the full shape that
            is written, or None. An output that overlaps an input is safe: the input is copied first if need be.
        size
            Number of elements, if no argument says it: all arrays are raw.
        block_size
            Taken for CuPy's sake; the size of work-groups is chosen for the device.
        device
            Name of the context, if no argument is an array; None is the default one.

        Returns
        -------
        GpuArray or tuple or None
            The output; a tuple of several.

        Raises
        ------
        TypeError
            There are more or fewer arguments than parameters; an array has another dtype than its parameter; a
            placeholder stands for two dtypes; an array is on the host.
        ValueError
            Shapes do not broadcast; an output has another shape, or is read-only; arrays are on several devices.
        OverflowError
            A number does not fit into its parameter.
        CompilationError
            The driver rejects the operation; the message shows the lines.
        """
        key = (size, device, *[key_of(argument) for argument in args])
        calls: dict[Any, _Call] = self._calls.__dict__
        found = calls.get(key)
        if found is None:
            found = self._remember(key, self._prepare(args, size, device))
        inputs: Sequence[Any] = args[: self._nin]
        if found.numbers:
            inputs = list(inputs)
            for k, parameter, dtype in found.numbers:
                inputs[k] = convert_number(parameter, inputs[k], dtype, self.name)
        made = self._new_outputs(found, args)
        disjoint = self._not_overlapping(inputs, args[self._nin :]) if len(args) > self._nin else inputs
        if found.plan is None:
            found.routine.launch_over(found.shape, made, disjoint)
        elif disjoint is not inputs:  # the copies have other layouts
            found.routine.launch(made, disjoint)
        else:
            found.routine.launch_plan(found.plan, [*[inputs[k] for k in found.places], *made], inputs)
        if self.no_return:
            return None
        return made[0] if len(made) == 1 and not self.return_tuple else tuple(made)

    def _remember(self, key: Any, call: "_Call") -> "_Call":
        """Keep what a call needs; forget the oldest ones."""
        calls = self._calls.__dict__
        if len(calls) >= MAX_CALLS_KEPT:
            del calls[next(iter(calls))]
        calls[key] = call
        return call

    def _new_outputs(self, call: "_Call", args: Sequence[Any]) -> list[GpuArray]:
        """Return the outputs that were given, and new arrays for the others."""
        empty, made = call.context.empty, list(args[self._nin :])
        if not made:
            return [empty(call.shape, dtype) for dtype in call.outputs]
        for k, output in enumerate(made):
            if output is None:
                made[k] = empty(call.shape, call.outputs[k])
        return made

    def _not_overlapping(self, inputs: Sequence[Any], outputs: Sequence[GpuArray | None]) -> Sequence[Any]:
        """Return the inputs, with copies of those of which an element may be written before it is read.

        Raises `ValueError`: outputs overlap each other.
        """
        if len(outputs) > 1:
            self._check_overlap_of_outputs(outputs)
        for output in outputs:
            if output is None:
                continue
            for k, array in enumerate(inputs):
                if type(array) is not GpuArray or not share_memory(array, output):
                    continue
                is_in_place = array.layout == output.layout and array.itemsize == output.itemsize
                if self.definition.inputs[k].is_raw or not is_in_place:
                    inputs = [*inputs[:k], dense_copy(array), *inputs[k + 1 :]]
        return inputs

    def _prepare(self, args: Sequence[Any], size: int | None, device: str | None) -> _Call:
        definition, name = self.definition, self.name
        inputs, outputs = args[: self._nin], args[self._nin :]
        if len(inputs) != self.nin or len(outputs) not in (0, self.nout):
            taken, results = (", ".join(map(str, p)) for p in (definition.inputs, definition.outputs))
            raise TypeError(
                f"kernel {name!r} takes its inputs ({taken}), and then all outputs ({results}) or none; number of "
                f"arguments given: {len(args)}"
            )
        outputs = outputs or (None,) * self.nout
        pairs = [*zip(definition.inputs, inputs, strict=True), *zip(definition.outputs, outputs, strict=True)]
        context = context_of_call(name, pairs, device, self.nin)
        types = bind_placeholders(name, [*pairs[self.nin :], *pairs[: self.nin]], context.info.has_fp64)
        function = user_function(definition, types)
        dtypes = (*function.input_dtypes, *function.output_dtypes)
        for (p, argument), dtype in zip(pairs, dtypes, strict=True):
            context.check_dtype(dtype)
            if isinstance(argument, GpuArray):
                check_array_dtype(p, argument, dtype, name)
        self._check_outputs(outputs)
        self._check_overlap_of_outputs(outputs)
        shape = self._shape(pairs, size)
        numbers = tuple((k, p, dtypes[k]) for k, (p, x) in enumerate(pairs[: self.nin]) if not isinstance(x, GpuArray))
        made = tuple(map(np.dtype, function.output_dtypes))
        routine = self._routine(context, function, pairs, shape)
        places = tuple(k for k, x in enumerate(inputs) if isinstance(x, GpuArray))
        plan = None
        if isinstance(routine, UserElemwise):
            written = [x.layout if isinstance(x, GpuArray) else Layout.contiguous(shape) for x in outputs]
            plan = routine.plan_for([*(inputs[k].layout for k in places), *written])
        return _Call(context, routine, shape, numbers, made, places, plan)

    def _routine(
        self, context: Context, function: UserFunction, pairs: Sequence[tuple[Parameter, Any]], shape: tuple[int, ...]
    ) -> UserElemwise | Indexed:
        if self.definition.is_indexed:
            ndims = [x.ndim if isinstance(x, GpuArray) else None for _, x in pairs]
            for k in range(self.nin, self.nargs):
                ndims[k] = len(shape) if ndims[k] is None else ndims[k]
            return _indexed(context, function, tuple(ndims), get_ident())
        layouts = [x.layout.broadcast_to(shape) for _, x in pairs if isinstance(x, GpuArray)]
        strides = [layout.strides for layout in layouts]
        if not all(isinstance(x, GpuArray) for _, x in pairs[self.nin :]):
            strides.append(Layout.contiguous(shape).strides)
        _, strides_left = collapse(shape, strides)
        steps = iter(strides_left)
        last = tuple(not any(next(steps)[-1:]) if isinstance(x, GpuArray) else None for _, x in pairs[: self.nin])
        ndim = len(strides_left[0])
        return _elemwise(context, function, last, next((m for m in _KERNEL_NDIMS if m >= ndim), ndim), get_ident())

    def _shape(self, pairs: Sequence[tuple[Parameter, Any]], size: int | None) -> tuple[int, ...]:
        """Return the shape over which the kernel runs.

        Raises `ValueError`: arrays do not broadcast to it, an output has another one, or nothing says it.
        """
        shaped = [(p, x) for p, x in pairs if isinstance(x, GpuArray) and not p.is_raw]
        given = [(p, x.shape) for p, x in pairs[self.nin :] if isinstance(x, GpuArray) and not p.is_raw]
        shapeless = next((p.name for p, x in pairs[self.nin :] if p.is_raw and x is None), None)
        if shapeless is not None:
            raise ValueError(f"kernel {self.name!r}: the raw output {shapeless} has no shape of its own: pass an array")
        if shaped and size is not None:
            raise ValueError(
                f"kernel {self.name!r}: size= is for calls in which no array says how many elements there are; "
                f"{shaped[0][0].name} has shape {shaped[0][1].shape}"
            )
        if shaped:
            return self._common_shape(shaped, given)
        if size is None and self.definition.is_indexed:
            raise ValueError(f"kernel {self.name!r}: no array says how many elements there are: pass size=")
        return () if size is None else (_checked_size(size, self.name),)

    def _common_shape(
        self, shaped: Sequence[tuple[Parameter, GpuArray]], given: Sequence[tuple[Parameter, tuple[int, ...]]]
    ) -> tuple[int, ...]:
        outputs = {p.name for p, _ in given}
        shapes = [x.shape for p, x in shaped if p.name not in outputs]
        try:
            common = np.broadcast_shapes(*shapes) if shapes else given[0][1]
            if given:
                Layout.contiguous(common).broadcast_to(given[0][1])
        except ValueError:
            listed = ", ".join(f"{p.name}: {x.shape}" for p, x in shaped)
            raise ValueError(f"kernel {self.name!r}: the shapes do not fit together ({listed})") from None
        shape = given[0][1] if given else common
        for p, own in given:
            if own != shape:
                raise ValueError(f"kernel {self.name!r}: output {p.name} has shape {own}, not {shape}")
        return shape

    def _check_outputs(self, outputs: Sequence[GpuArray | None]) -> None:
        """Raise a `ValueError` if an output cannot be written."""
        for p, array in zip(self.definition.outputs, outputs, strict=True):
            if array is not None:
                refuse_writing(self.name, p.name, array)

    def _check_overlap_of_outputs(self, outputs: Sequence[GpuArray | None]) -> None:
        """Raise a `ValueError` if an output overlaps another one; calls with other arrays of the same layouts may."""
        given = [(p.name, x) for p, x in zip(self.definition.outputs, outputs, strict=True) if x is not None]
        for k, (name, array) in enumerate(given):
            other = next((other for other, earlier in given[:k] if share_memory(earlier, array)), None)
            if other is not None:
                raise ValueError(f"kernel {self.name!r}: outputs {other} and {name} overlap")


def key_of(argument: Any) -> Any:
    """Return all of an argument that decides how a kernel is called; its values do not."""
    if type(argument) is GpuArray:
        return argument.context, argument.dtype.num, argument.layout[:2], argument.readonly
    if isinstance(argument, np.ndarray):
        return argument.dtype, argument.shape
    return type(argument)


def refuse_writing(kernel: str, name: str, array: GpuArray) -> None:
    """Raise a `ValueError` if an output cannot be written."""
    if array.readonly:
        raise ValueError(f"kernel {kernel!r}: output {name} is read-only: pass a copy, x.copy()")
    if any(n > 1 and not s for n, s in zip(array.layout.shape, array.layout.strides, strict=True)):
        raise ValueError(f"kernel {kernel!r}: output {name} repeats elements, as a broadcast array does: pass a copy")


def _refuse(others: dict[str, Any], known: Sequence[str], advice: str) -> None:
    for name, value in others.items():
        if name not in known:
            raise TypeError(f"there is no argument {name!r}")
        if value:
            raise TypeError(f"there is no {name} here: {advice}")


def _checked_size(size: Any, name: str) -> int:
    if isinstance(size, bool | np.bool_) or not hasattr(type(size), "__index__"):
        raise TypeError(f"kernel {name!r}: size= is a number of elements, not {size!r}")
    if size < 0:
        raise ValueError(f"kernel {name!r}: size= is a number of elements, not {size}")
    return int(size)


def context_of_call(kernel: str, pairs: Sequence[tuple[Parameter, Any]], device: str | None, inputs: int) -> Context:
    """Return the context of the arrays; that of `device`, or the default one, if there is none.

    `pairs`: parameters and arguments, of which the first `inputs` are inputs. Raises `TypeError`: an argument is
    neither an array of a device nor a number. Raises `ValueError`: arrays are on several devices.
    """
    found: tuple[str, Any] | None = None
    for k, (p, argument) in enumerate(pairs):
        if not isinstance(argument, GpuArray):
            _check_host_argument(kernel, p, argument, is_output=k >= inputs)
        elif found is None:
            found = p.name, argument.context
        elif argument.context is not found[1]:
            raise ValueError(
                f"kernel {kernel!r}: {found[0]} is on {found[1].name!r} and {p.name} on {argument.context.name!r}: "
                "move one of them"
            )
    if found is None:
        return get_context(device)
    if device is not None and found[1].name != device:
        raise ValueError(f"kernel {kernel!r}: {found[0]} is on {found[1].name!r}, not on {device!r}")
    return found[1]


def _check_host_argument(kernel: str, parameter: Parameter, argument: Any, is_output: bool) -> None:
    if is_output:
        if argument is not None:
            raise TypeError(f"kernel {kernel!r}: output {parameter.name} is an array of a device, not {argument!r:.60}")
        return
    if is_variable(argument):
        raise TypeError(f"kernel {kernel!r}: {parameter.name} is the variable {argument}: {OF_VARIABLES}")
    if parameter.is_raw or not is_number(argument):
        kind = "an array of NumPy" if isinstance(argument, np.ndarray) else f"{type(argument).__name__}"
        raise TypeError(
            f"kernel {kernel!r}: {parameter.name} is {kind}, not an array of a device: upload it, "
            "pytensor_cl.array.asarray(x)"
        )
