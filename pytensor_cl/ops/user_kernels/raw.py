"""Ops of raw kernels that users write."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor import as_tensor_variable, constant
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.type import TensorType

from pytensor_cl.codegen.dtypes import SUPPORTED, is_supported
from pytensor_cl.ops.base import DEVICE, HOST, GpuOp, Routine, as_host_variable
from pytensor_cl.ops.registry import register_lift
from pytensor_cl.ops.user_kernels.elementwise import ElementwiseOp
from pytensor_cl.ops.user_kernels.gradients import Names, check_gradient
from pytensor_cl.ops.user_kernels.op import Gradient, KernelOp
from pytensor_cl.routines.base.routine import ValueArgument
from pytensor_cl.runtime.context import Context
from pytensor_cl.user_kernels.arguments import dtypes_of
from pytensor_cl.user_kernels.elementwise import ElementwiseKernel
from pytensor_cl.user_kernels.launches import RawLaunches, RawOperation, Signature, check_const
from pytensor_cl.user_kernels.parameters import Parameter as ElementParameter
from pytensor_cl.user_kernels.parameters import convert_number
from pytensor_cl.user_kernels.raw import RawKernel
from pytensor_cl.user_kernels.signature import Parameter


class _Operand(NamedTuple):
    """An input or an output, and the parameter that takes it; None if only ``launch`` knows; `place`: its number."""

    name: str
    parameter: Parameter | None
    place: int

    @property
    def is_by_value(self) -> bool:
        """Whether the kernel takes a number."""
        return self.parameter is not None and self.parameter.space == ""

    @property
    def dtypes(self) -> tuple[np.dtype, ...]:
        """The dtypes that it may have; empty if that is unknown."""
        return () if self.parameter is None else dtypes_of(self.parameter)


class RawUse(NamedTuple):
    """Signature, launch, shapes and outputs of an Op of a raw kernel.

    `signature`: dimensions of inputs and outputs; `output_types`: for each output the name of an input or a dtype;
    None: as the kernel declares them; `launch`: computes a launch; `shape_function`: computes the shapes of outputs
    as ``Op.infer_shape`` does; `initial`: what outputs are filled with before the launch; None: nothing.
    """

    signature: str
    output_types: tuple[str, ...] | None
    launch: Callable[..., Any] | None
    shape_function: Callable[..., Any] | None
    initial: float | None


class RawOp(KernelOp):
    """An Op whose results a `RawKernel` computes; `use`: how."""

    kernel: RawKernel

    def __init__(
        self,
        kernel: RawKernel,
        name: str,
        gradient: Gradient,
        perform_on_host: Callable[..., Any] | None,
        use: RawUse,
    ) -> None:
        super().__init__(kernel, name, gradient, perform_on_host)
        self.signature = Signature.parse(use.signature, name)
        self.use = use._replace(signature=self.signature.text)
        self.operands = _operands(name, kernel.declared(), self.signature, use.launch)
        if self.signature.unknown and use.shape_function is None:
            raise ValueError(
                f"op {name}: no input has the length {self.signature.unknown[0]!r} of {self.signature.text}: pass "
                "infer_shape="
            )
        for operand, dimensions in zip(self.inputs, self.signature.inputs, strict=True):
            if operand.is_by_value and dimensions:
                raise TypeError(f"op {name}: ({operand.parameter}) is a number: its part of the signature is ()")
        self._launches: WeakKeyDictionary[Apply, tuple[Context, RawLaunches]] = WeakKeyDictionary()
        self._output_sources = [self._output_source(number) for number in range(len(self.signature.outputs))]

    def _key(self) -> tuple[Any, ...]:
        return (*super()._key(), self.use)

    def __reduce__(self) -> tuple[Any, ...]:
        return RawOp, (self.kernel, self.name, self.gradient, self.perform_on_host, self.use)

    @property
    def gufunc_signature(self) -> str:
        """The signature, by which PyTensor makes batches."""
        return self.signature.text

    @property
    def inputs(self) -> tuple[_Operand, ...]:
        """The inputs."""
        return self.operands[: len(self.signature.inputs)]

    @property
    def names(self) -> Names:
        """Names of the inputs and outputs."""
        names, count = tuple(operand.name for operand in self.operands), len(self.signature.inputs)
        return Names(names[:count], names[count:])

    def _output_source(self, number: int) -> str | int:
        """Return the dtype of an output, or the number of the input that has it.

        Raises `TypeError` or `ValueError`: ``outputs`` does not say it, and the kernel does not either.
        """
        operand = self.operands[len(self.signature.inputs) + number]
        types = self.use.output_types
        if types is None:
            if not operand.dtypes:
                raise TypeError(
                    f"op {self.name}: what dtype is {operand.name}? Name the arguments of launch= as the parameters of "
                    f"the kernel ({', '.join(p.name for p in self.kernel.declared()) or 'unknown'}), or pass "
                    "outputs=['float32'] or another dtype"
                )
            return operand.dtypes[0].name
        if len(types) != len(self.signature.outputs):
            raise ValueError(
                f"op {self.name}: outputs= has {len(types)} entries, the signature has "
                f"{len(self.signature.outputs)} outputs"
            )
        chosen = types[number]
        if chosen in self.names.inputs:
            return self.names.inputs.index(chosen)
        try:
            known = is_supported(chosen)
        except TypeError:
            known = False
        if not known:
            inputs = ", ".join(self.names.inputs)
            raise TypeError(
                f"op {self.name}: outputs= has {chosen!r}, which is neither an input ({inputs}) nor a dtype of device "
                f"arrays: {', '.join(SUPPORTED)}"
            )
        return np.dtype(chosen).name

    # Nodes

    def make_node(self, *inputs: Any) -> Apply:
        """Make a node.

        Raises `TypeError`: there are more or fewer inputs than the signature has, or their dtypes are not those of the
        kernel's parameters. Raises `ValueError`: the numbers of dimensions are not the signature's.
        """
        if len(inputs) != len(self.inputs):
            raise TypeError(
                f"op {self.name} takes {len(self.inputs)} inputs ({self.signature.text}), not {len(inputs)}"
            )
        variables = [self._as_input(k, value) for k, value in enumerate(inputs)]
        lengths = self._static_lengths(variables)
        types = []
        for source, dimensions in zip(self._output_sources, self.signature.outputs, strict=True):
            dtype = variables[source].type.dtype if isinstance(source, int) else source
            if self.use.initial is not None:
                convert_number(ElementParameter("initial", dtype), self.use.initial, dtype, self.name)  # it may not fit
            types.append(TensorType(dtype, tuple(n if isinstance(n, int) else lengths.get(n) for n in dimensions)))
        return Apply(self, variables, [kind() for kind in types])

    def _static_lengths(self, variables: Sequence[Any]) -> dict[str, int]:
        """Return the lengths that are known when the graph is built.

        Raises `ValueError`: two of one name differ, or one is not the number of the signature.
        """
        lengths: dict[str, int] = {}
        for operand, dimensions, variable in zip(self.inputs, self.signature.inputs, variables, strict=True):
            for name, length in zip(dimensions, variable.type.shape, strict=True):
                expected = name if isinstance(name, int) or length is None else lengths.setdefault(name, length)
                if length not in (None, expected):
                    raise ValueError(
                        f"op {self.name}: the input {operand.name} has shape {variable.type.shape}; "
                        f"{self.signature.text} needs {name} to be {expected}"
                    )
        return lengths

    def _as_input(self, number: int, value: Any) -> Any:
        """Return an input as a variable."""
        operand, ndim = self.inputs[number], len(self.signature.inputs[number])
        if operand.is_by_value and isinstance(value, bool | int | float):
            return constant(np.asarray(value, operand.dtypes[0]))
        variable: Any = as_tensor_variable(value)
        if variable.type.ndim != ndim:
            raise ValueError(
                f"op {self.name}: the input {operand.name} has {variable.type.ndim} dimensions, {self.signature.text} "
                f"has {ndim}; a batch is pytensor.tensor.blockwise.Blockwise(op)(...)"
            )
        if operand.dtypes and variable.type.dtype not in {dtype.name for dtype in operand.dtypes}:
            wanted = " or ".join(dtype.name for dtype in operand.dtypes)
            raise TypeError(f"op {self.name}: the input {operand.name} is {variable.type.dtype}, not {wanted}: cast it")
        return variable

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return the shapes of the outputs."""
        if self.use.shape_function is not None:
            return self._shapes_of_user(self.use.shape_function, node, shapes)
        lengths: dict[str | int, Any] = {}
        for dimensions, shape in zip(self.signature.inputs, shapes, strict=True):
            for name, length in zip(dimensions, shape, strict=True):
                lengths.setdefault(name, length)
        return [tuple(n if isinstance(n, int) else lengths[n] for n in d) for d in self.signature.outputs]

    def _shapes_of_user(
        self, function: Callable[..., Any], node: Apply, shapes: Sequence[Any]
    ) -> list[tuple[Any, ...]]:
        """Return the shapes that the user's function returns.

        Raises `ValueError`: they are not those of the signature.
        """
        found, expected = function(node, shapes), self.signature.outputs
        is_list = isinstance(found, list | tuple) and all(isinstance(shape, list | tuple) for shape in found)
        if not is_list or [len(shape) for shape in found] != [len(dimensions) for dimensions in expected]:
            wanted = ", ".join(f"({', '.join(map(str, dimensions))},)" for dimensions in expected)
            raise ValueError(
                f"op {self.name}: infer_shape= returned {found!r}; {self.signature.text} needs a list with a tuple of "
                f"lengths for each output, [{wanted}]"
            )
        return [tuple(shape) for shape in found]

    def _concrete_shapes(self, node: Apply) -> Callable[[Sequence[tuple[int, ...]]], list[tuple[int, ...]]] | None:
        """Return the user's function of shapes, for numbers."""
        function = self.use.shape_function
        if function is None:
            return None

        def shapes(known: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
            found = self._shapes_of_user(function, node, list(known))
            return [tuple(int(n.eval()) if isinstance(n, Variable) else int(n) for n in shape) for shape in found]

        return shapes

    def launches(self, node: Apply, context: Context, batch_ndims: Sequence[int]) -> RawLaunches:
        """Return the routine of a node; `batch_ndims`: batch dimensions of each input."""
        values = {
            k: ValueArgument(operand.dtypes[0].type, operand.place)
            for k, operand in enumerate(self.inputs)
            if operand.is_by_value and operand.dtypes and not batch_ndims[k]
        }
        dtypes = tuple(v.type.dtype for v in node.outputs)
        operation = RawOperation(self.name, self.kernel, self.signature, *self.names, dtypes)
        operation = operation._replace(launch=self.use.launch, shapes=self._concrete_shapes(node))
        return RawLaunches(context, operation._replace(value_arguments=values, initial=self.use.initial))

    def _own_launches(self, node: Apply, context: Context) -> RawLaunches:
        found = self._launches.get(node)
        if found is None or found[0] is not context:
            found = self._launches[node] = context, self.launches(node, context, [0] * len(node.inputs))
        return found[1]

    def output_shapes(self, node: Apply, shapes: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Return the shapes of the outputs."""
        concrete = self._concrete_shapes(node)
        if concrete is not None:
            return concrete(shapes)
        lengths = self.signature.lengths(self.name, shapes)
        return [tuple(n if isinstance(n, int) else lengths[n] for n in d) for d in self.signature.outputs]

    def compute(self, node: Apply, context: Context, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the results for arrays of the host, computed on a device."""
        values = [
            np.asarray(x)[()] if operand.is_by_value else context.from_host(np.asarray(x))
            for x, operand in zip(inputs, self.inputs, strict=True)
        ]
        return [z.to_host() for z in self._own_launches(node, context)(*values)]

    def gradient_op(self, kernel: Any) -> Op:
        """Return the Op of an elementwise kernel that computes gradients."""
        return ElementwiseOp(kernel, kernel.name)

    def gradient_shapes(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Variable]:
        """Return the inputs: nothing is broadcast."""
        return list(inputs)


def _operands(
    op: str, parameters: Sequence[Parameter], signature: Signature, launch: Callable[..., Any] | None
) -> tuple[_Operand, ...]:
    """Return inputs and outputs with the parameters that take them: in order, or by the names of ``launch``.

    Raises `TypeError`: they do not fit, or the kernel may write an input.
    """
    count = len(signature.inputs) + len(signature.outputs)
    if launch is None:
        rest = parameters[count:]
        is_size = len(rest) == 1 and rest[0].space == "" and rest[0].type in ("int", "uint", "long", "ulong")
        if len(parameters) < count or (rest and not is_size):
            declared = ", ".join(p.declaration for p in parameters)
            raise TypeError(
                f"op {op}: the kernel has the parameters ({declared}). Without launch= they are the {count} arrays of "
                f"{signature.text}, and an integer for the number of work-items"
            )
        found = [_Operand(p.name, p, place) for place, p in enumerate(parameters[:count])]
    else:
        places = {p.name: (p, place) for place, p in enumerate(parameters)}
        found = [_Operand(name, *places.get(name, (None, -1))) for name in _names_of(op, launch, count)]
    for operand in found[: len(signature.inputs)]:
        if operand.parameter is not None:
            check_const(op, operand.name, operand.parameter)
    for operand in found[len(signature.inputs) :]:
        if operand.is_by_value or (operand.parameter is not None and operand.parameter.is_const):
            assert operand.parameter is not None
            raise TypeError(
                f"op {op}: the output {operand.name} is ({operand.parameter.declaration}), which no kernel can write"
            )
    return tuple(found)


def _names_of(op: str, launch: Callable[..., Any], count: int) -> list[str]:
    """Return the names of the arrays that ``launch`` takes."""
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        taken = inspect.signature(launch)
        taken.bind(*range(count))
    except TypeError as error:
        raise TypeError(f"op {op}: launch= is called with {count} arrays, inputs and outputs: {error}") from None
    names = [name for name, p in taken.parameters.items() if p.kind in plain][:count]
    return names + [f"array{k}" for k in range(len(names), count)]


def raw_op(
    kernel: RawKernel,
    name: str,
    gradient: Gradient,
    perform: Callable[..., Any] | None,
    signature: str | None,
    outputs: Any,
    launch: Callable[..., Any] | None,
    infer_shape: Callable[..., Any] | None,
    initial: float | None,
) -> RawOp:
    """Return the Op of a raw kernel; the parameters are those of `as_op`."""
    if signature is None:
        raise TypeError(
            f"op {name}: a raw kernel needs signature=, the dimensions of inputs and outputs, such as '(m,n),(n)->(m)'"
        )
    for what, value in (("launch", launch), ("infer_shape", infer_shape), ("perform", perform)):
        if value is not None and not callable(value):
            raise TypeError(f"op {name}: {what}= is a function, not {value!r}")
    gradients = list(gradient.values()) if isinstance(gradient, Mapping) else [gradient]
    if any(isinstance(one, RawKernel) for one in gradients):
        raise TypeError(
            f"op {name}: the parameters of a raw kernel are not matched by name: make an Op of the kernel of grad=, "
            "grad=lambda x, z, gz: [gradient_op(x, gz)]"
        )
    if isinstance(outputs, str) or (outputs is not None and not isinstance(outputs, Sequence)):
        raise TypeError(f"op {name}: outputs= is a list, with an input's name or a dtype for each output: ['x']")
    chosen = None if outputs is None else tuple(t if isinstance(t, str) else np.dtype(t).name for t in outputs)
    if initial is not None and not isinstance(initial, bool | int | float | np.number | np.bool_):
        raise TypeError(f"op {name}: initial= is a number with which outputs are filled, not {initial!r}")
    op = RawOp(kernel, name, gradient, perform, RawUse(signature, chosen, launch, infer_shape, initial))
    if gradient is not None:
        check_gradient(name, gradient, op.names, lambda other: isinstance(other, ElementwiseKernel))
    return op


@register_lift(RawOp, numba_safe=False, every_dtype=True, batched=True)
class GpuRaw(GpuOp):
    """Device counterpart of `RawOp`, and of its batches."""

    def __init__(self, host: Op, context_name: str) -> None:
        super().__init__(host, context_name)
        self.core: RawOp = host.core_op if isinstance(host, Blockwise) else host
        self.operand_placements = tuple(HOST if operand.is_by_value else DEVICE for operand in self.core.inputs)

    def apply(self, inputs: Sequence[Any], types: Sequence[TensorType]) -> Apply:
        """Make a node; a number that is the same in the whole batch loses the batch's dimensions."""
        plain = [
            v.dimshuffle(()) if operand.is_by_value and v.type.ndim and all(n == 1 for n in v.type.shape) else v
            for v, operand in zip(inputs, self.core.inputs, strict=True)
        ]
        return super().apply(plain, types)

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> Any:
        """Return the shapes that the host Op infers."""
        host_node = self.host.make_node(*map(as_host_variable, node.inputs))
        ndims = [getattr(v.type, "ndim", 0) for v in host_node.inputs]
        padded = [(*(1,) * (ndim - len(s)), *s) for ndim, s in zip(ndims, shapes, strict=True)]
        return self.host.infer_shape(host_node, padded)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the routine of the kernel; it is built now."""
        host_inputs = [as_host_variable(v) for v in node.inputs]
        dimensions = self.core.signature.inputs
        batch_ndims = [v.type.ndim - len(d) for v, d in zip(host_inputs, dimensions, strict=True)]
        cores = [
            TensorType(v.type.dtype, v.type.shape[batch:])() for v, batch in zip(host_inputs, batch_ndims, strict=True)
        ]
        return self.core.launches(self.core.make_node(*cores), context, batch_ndims)
