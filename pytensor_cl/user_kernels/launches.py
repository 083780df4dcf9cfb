"""Launches of a raw kernel as an operation: shapes by a signature, outputs that are allocated, batches."""

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.routines.base.routine import Plans, ValueArgument
from pytensor_cl.routines.elemwise.routine import Fill
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel
from pytensor_cl.user_kernels.arguments import dense_copy
from pytensor_cl.user_kernels.raw import RawKernel, Size

_GROUP = re.compile(r"\(([^()]*)\)")
Dimensions = tuple[str | int, ...]
"""Lengths of an array: names, and numbers."""


class Signature(NamedTuple):
    """Dimensions of inputs and outputs, such as ``(m,n),(n)->(m)``.

    `text`: the signature without blanks.
    """

    text: str
    inputs: tuple[Dimensions, ...]
    outputs: tuple[Dimensions, ...]

    @classmethod
    def parse(cls, text: str, op: str) -> "Signature":
        """Return the signature of a text.

        Raises `TypeError` or `ValueError`: it is none.
        """
        if not isinstance(text, str):
            raise TypeError(f"op {op}: signature= is a text such as '(m,n),(n)->(m)', not {text!r}")
        plain = "".join(text.split())
        sides = plain.split("->")
        if len(sides) != 2 or not all(re.fullmatch(r"(\((\w+(,\w+)*)?\),?)*", side) for side in sides) or not sides[1]:
            raise ValueError(f"op {op}: signature={text!r} is none; an example is '(m,n),(n)->(m)'")
        inputs, outputs = (tuple(_dimensions(group) for group in _GROUP.findall(side)) for side in sides)
        return cls(plain, inputs, outputs)

    @property
    def unknown(self) -> list[str]:
        """Names of lengths of outputs that no input has."""
        known = {name for dimensions in self.inputs for name in dimensions}
        return [n for dimensions in self.outputs for n in dimensions if isinstance(n, str) and n not in known]

    def lengths(self, op: str, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
        """Return the lengths by name.

        Raises `ValueError`: inputs have different lengths for one name, or another length than a number.
        """
        found: dict[str, int] = {}
        for number, (dimensions, shape) in enumerate(zip(self.inputs, shapes, strict=True)):
            for name, length in zip(dimensions, shape, strict=True):
                expected = name if isinstance(name, int) else found.setdefault(name, length)
                if length != expected:
                    raise ValueError(
                        f"op {op}: input {number} has shape {tuple(shape)}; {self.text} needs {name} to be {expected}"
                    )
        return found


def _dimensions(group: str) -> Dimensions:
    return tuple(int(name) if name.isdigit() else name for name in group.split(",") if name)


class ArrayInfo:
    """An array as functions of the user's see it that compute launches: without its data.

    Attributes
    ----------
    shape
        Extent of each dimension.
    dtype
        NumPy dtype.
    layout
        Shape, strides and offset, in elements.
    """

    __slots__ = ("dtype", "layout", "shape")

    def __init__(self, layout: Layout, dtype: np.dtype) -> None:
        self.layout, self.shape, self.dtype = layout, layout.shape, dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.layout.size

    def _refuse(self, *asked: Any) -> NoReturn:
        raise TypeError(
            "launch= gets arrays without their data: it may use shape, ndim, size, dtype and layout. Later calls "
            "repeat the launch, so it cannot depend on values; a number that the kernel needs is an input of its own, "
            "with the part () in the signature"
        )

    __getitem__ = __iter__ = __array__ = __int__ = __float__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _refuse

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        self._refuse()

    def __repr__(self) -> str:
        return f"ArrayInfo(shape={self.shape}, dtype={self.dtype})"


LaunchFunction = Callable[..., tuple[Size, Size | None, Sequence[Any]]]
"""A function from inputs and outputs, as `ArrayInfo`, to the grid, the block, and the arguments of the kernel."""
ShapeFunction = Callable[[Sequence[tuple[int, ...]]], Sequence[tuple[int, ...]]]
"""A function from the shapes of inputs to the shapes of outputs."""


class _Plan(NamedTuple):
    """A launch for certain layouts; `places`: number of the input, or of the output after them, for each argument."""

    grid: Size
    block: Size | None
    arguments: tuple[Any, ...]
    places: tuple[tuple[int, int], ...]


class RawOperation(NamedTuple):
    """A raw kernel as an operation on arrays.

    `name`: the name, for messages; `inputs`, `outputs`: names of the arrays, of which the kernel takes those in its
    ``strided`` with any strides; `output_dtypes`: dtypes of the outputs; `launch`: computes a launch; None is one
    work-item for each element of the first output; `shapes`: computes the shapes of the outputs; None takes the
    signature's; `value_arguments`: the inputs that are numbers of the host, which the kernel takes by value;
    `initial`: what outputs are filled with before the launch; None: nothing.
    """

    name: str
    kernel: RawKernel
    signature: Signature
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    output_dtypes: tuple[str, ...]
    launch: LaunchFunction | None = None
    shapes: ShapeFunction | None = None
    value_arguments: Mapping[int, ValueArgument] = MappingProxyType({})
    initial: float | None = None


class RawLaunches:
    """Routine of a raw operation: it is called with inputs and returns new outputs.

    `value_arguments`: as those of the operation.
    """

    def __init__(self, context: Context, operation: RawOperation) -> None:
        self.context = context
        self._operation, self._op = operation, operation.name
        self._kernel, self._signature = operation.kernel, operation.signature
        self._names = (*operation.inputs, *operation.outputs)
        self._strided = [name in operation.kernel.strided for name in self._names]
        self._dtypes = [np.dtype(dtype) for dtype in operation.output_dtypes]
        self.value_arguments = operation.value_arguments
        self._built = operation.kernel.built(context)
        initial, dtypes = operation.initial, self._dtypes
        fills = [] if initial is None else [(Fill(context, d.name, 1), d.type(initial)) for d in dtypes]
        self._fills: list[tuple[Fill, np.generic]] = fills
        self._plans: Plans[_Plan] = Plans()
        self._known_shapes: Plans[tuple[tuple[int, ...], ...]] = Plans()

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernels that fill outputs; the program of the user is built already."""
        return tuple(source for fill, _ in self._fills for source in fill.sources())

    def value_kernels(self) -> tuple[Kernel, ...]:
        """Return the kernel that takes `value_arguments`."""
        return (self._built.kernel,)

    def output_shapes(self, shapes: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the outputs for those of inputs without batch dimensions."""
        key = tuple(shapes)
        return self._known_shapes.lookup(key, lambda: self._compute_shapes(key))

    def _compute_shapes(self, shapes: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        lengths = self._signature.lengths(self._op, shapes)
        if self._operation.shapes is not None:
            found = tuple(self._operation.shapes(shapes))
            if any(length < 0 for shape in found for length in shape):
                raise ValueError(f"op {self._op}: infer_shape= returned a negative length, {found}, for {shapes}")
            return found
        return tuple(
            tuple(name if isinstance(name, int) else lengths[name] for name in dimensions)
            for dimensions in self._signature.outputs
        )

    def __call__(self, *inputs: Any) -> tuple[GpuArray, ...]:
        """Enqueue the kernel for each entry of the batch; return new, C-contiguous outputs."""
        cores = [len(dimensions) for dimensions in self._signature.inputs]
        shapes = [getattr(x, "shape", ()) for x in inputs]
        batches = [shape[: len(shape) - core] for shape, core in zip(shapes, cores, strict=True)]
        try:
            batch = np.broadcast_shapes(*batches)
        except ValueError:
            raise ValueError(f"op {self._op}: the batch dimensions {batches} do not fit together") from None
        core_shapes = [shape[len(shape) - core :] for shape, core in zip(shapes, cores, strict=True)]
        results = self.output_shapes(core_shapes)
        outputs = tuple(
            self.context.empty((*batch, *shape), dtype) for shape, dtype in zip(results, self._dtypes, strict=True)
        )
        for k, (fill, value) in enumerate(self._fills):
            fill.launch((outputs[k].with_layout(Layout.contiguous((outputs[k].size,))),), (value,))
        if not batch:
            self._enqueue(inputs, outputs)
            return outputs
        repeated = [_repeated(x, (*batch, *s)) for x, s in zip(inputs, core_shapes, strict=True)]
        for index in np.ndindex(*batch):
            self._enqueue([_entry(x, index) for x in repeated], [_entry(z, index) for z in outputs])
        return outputs

    def _enqueue(self, inputs: Sequence[Any], outputs: Sequence[GpuArray]) -> None:
        """Enqueue the kernel for one entry of the batch."""
        arrays = [
            dense_copy(x) if isinstance(x, GpuArray) and not strided and not x.layout.is_contiguous else x
            for x, strided in zip((*inputs, *outputs), self._strided, strict=True)
        ]
        # Where strides do not matter, the kernel sees an array that begins at 0.
        layouts = [
            (x.layout if strided else Layout.contiguous(x.shape)) if isinstance(x, GpuArray) else None
            for x, strided in zip(arrays, self._strided, strict=True)
        ]
        dtypes = tuple(getattr(x, "dtype", None) for x in arrays)
        plan = self._plans.lookup((tuple(layouts), dtypes), lambda: self._plan(layouts, dtypes, len(inputs)))
        arguments = list(plan.arguments)
        for place, number in plan.places:
            arguments[place] = arrays[number]
        self._kernel.enqueue(self.context, plan.grid, plan.block, arguments)

    # The launch

    def _plan(self, layouts: Sequence[Layout | None], dtypes: Sequence[Any], count: int) -> _Plan:
        infos = [ArrayInfo(layout or Layout((), ()), dtype) for layout, dtype in zip(layouts, dtypes, strict=True)]
        if self._operation.launch is None:
            size = infos[count].size
            parameters = self._built.parameters
            found: Any = (size, None, (*infos, *[size] * (len(parameters) - len(infos))))
        else:
            found = self._operation.launch(*infos)
        if not isinstance(found, tuple | list) or len(found) != 3 or not isinstance(found[2], tuple | list):
            raise TypeError(f"op {self._op}: launch= returns (grid, block, args), not {found!r}")
        grid, block, arguments = found
        numbers = {id(info): number for number, info in enumerate(infos)}
        places = [(place, numbers[id(value)]) for place, value in enumerate(arguments) if id(value) in numbers]
        self._check_places(places, count)
        return _Plan(grid, block, tuple(arguments), tuple(places))

    def _check_places(self, places: Sequence[tuple[int, int]], count: int) -> None:
        """Raise an error if an input may be written, or an output is given to no parameter."""
        parameters = self._built.parameters
        for place, number in places:
            if place < len(parameters) and number < count:
                check_const(self._op, self._names[number], parameters[place])
        given = {number for _, number in places}
        missing = next((n for n in range(count, len(self._names)) if n not in given), None)
        if missing is not None:
            raise ValueError(f"op {self._op}: the arguments of launch= do not have the output {self._names[missing]!r}")


def check_const(op: str, name: str, parameter: Any) -> None:
    """Raise a `TypeError` if a kernel may write an input: other nodes, and later calls, read it too."""
    if parameter.is_pointer and not parameter.is_const:
        raise TypeError(
            f"op {op}: the input {name} is passed to ({parameter.declaration}), which is not const: declare it const, "
            "and write to an output"
        )


def _repeated(value: Any, shape: tuple[int, ...]) -> Any:
    """Return an array, or numbers of the host, repeated along batch dimensions."""
    if isinstance(value, GpuArray):
        return value.with_layout(value.layout.broadcast_to(shape))
    return np.broadcast_to(value, shape)


def _entry(value: Any, index: tuple[int, ...]) -> Any:
    """Return an entry of a batch."""
    return value.with_layout(value.layout.subscript(index)) if isinstance(value, GpuArray) else value[index]
