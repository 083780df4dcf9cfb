"""Raw kernels: OpenCL C of the user's, launched on arrays with a grid, a work-group size and arguments."""

import operator
import re
from collections.abc import Sequence
from math import prod
from typing import Any

from pytensor_cl.errors import OpenCLError
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.registry import get_context
from pytensor_cl.user_kernels.arguments import KernelArguments, copy_into
from pytensor_cl.user_kernels.c_text import KEYWORDS
from pytensor_cl.user_kernels.programs import BuiltKernel, UserProgram, split_options, user_program
from pytensor_cl.user_kernels.signature import Parameter, parsed_parameters

Size = int | Sequence[int]
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_MOST_ITEMS = 2**48
"""Work-items of a launch in any dimension, in a size of the driver without overflow."""
_MOST_SIZES = 256
"""Checked NDRanges that a kernel keeps."""


class RawKernel:
    """A kernel in OpenCL C, launched on arrays with CuPy's order of arguments.

    The program is built at the first call on each device, and kept: equal texts with equal options are built once in a
    process, and drivers or this package keep what was compiled on disk. The types of the parameters are read from the
    program, so that arguments are checked and numbers are converted.

    Parameters
    ----------
    code
        OpenCL C, with one or several kernels.
    name
        Name of the kernel, a function marked ``__kernel`` in the code.
    options
        Build options, such as ``("-DN=16", "-I", "headers")``. A changed header is seen. ``"-Icluda"`` has a header
        ``cluda.h`` with the words of libgpuarray.
    strided
        Names of pointer parameters that get the whole buffer of an array with any strides. The kernel then needs
        ``x.layout.offset`` and ``x.layout.strides`` as further arguments, which count elements.

    Raises
    ------
    TypeError
        `code` or `name` is no text.
    ValueError
        `name` cannot be the name of a kernel.

    Notes
    -----
    ``kernel(grid, block, args, *, shared_mem=0)`` enqueues the kernel, and does not wait:

    - `grid` is the number of work-groups in each dimension, `block` the number of work-items of each; numbers or
      tuples of up to three. With ``block=None``, `grid` counts work-items, and the driver chooses the work-groups.
    - `args` is a tuple with one value for each parameter. For pointers it has arrays that are C-contiguous, of the
      declared dtype and of one device, or None; for ``__local`` pointers `LocalMemory`; for numbers Python or NumPy
      numbers, which are converted to the declared type; for structs NumPy values of a structured dtype.
    - `shared_mem` is there for CuPy's signature and must be 0.

    An array that does not begin at an address that the device takes is copied, and written back if the parameter is
    not const. What the kernel does outside of its arrays is not checked.

    Examples
    --------
    >>> code = "__kernel void scale(__global float *x, float a) { x[get_global_id(0)] *= a; }"
    >>> scale = pytensor_cl.RawKernel(code, "scale")
    >>> x = pytensor_cl.array.asarray(np.ones(4, "float32"))
    >>> scale(4, None, (x, 2))
    >>> np.asarray(x)
    array([2., 2., 2., 2.], dtype=float32)
    """

    def __init__(
        self, code: str, name: str, options: str | Sequence[str] = (), *, strided: str | Sequence[str] = ()
    ) -> None:
        if not isinstance(code, str):
            raise TypeError(
                f"the code of a kernel is a text, not {type(code).__name__}; RawModule(path=...) reads files"
            )
        self._set(code, name, options, strided, "")

    def _set(
        self, code: str | bytes, name: str, options: str | Sequence[str], strided: str | Sequence[str], module: str
    ) -> None:
        self.code: str | bytes = code
        self.name = _checked_name(name)
        self.options = split_options(options)
        self.strided = (strided,) if isinstance(strided, str) else tuple(strided)
        self._module = module
        self._built: dict[Context, tuple[BuiltKernel, KernelArguments]] = {}

    @classmethod
    def of_module(
        cls, code: str | bytes, name: str, options: Sequence[str], strided: str | Sequence[str], module: str
    ) -> "RawKernel":
        """Return a kernel of a module; `module` is what messages call it."""
        kernel = cls.__new__(cls)
        kernel._set(code, name, options, strided, module)
        return kernel

    # Identity: text and parameters

    @property
    def _key(self) -> tuple[Any, ...]:
        return self.code, self.name, self.options, self.strided

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, RawKernel) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"<RawKernel {self.name!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return RawKernel.of_module, (self.code, self.name, self.options, self.strided, self._module)

    # The built kernel

    def _program(self, context: Context) -> UserProgram:
        return user_program(context, self.code, self.options, self._module or f"kernel {self.name!r}")

    def built(self, context: Context) -> BuiltKernel:
        """Return the kernel on a context, built now if it is not yet.

        Raises `CompilationError`: the driver rejects the code. Raises `ValueError`: it has no kernel of the name.
        """
        built, _ = self._built.get(context) or self._build(context)
        return built

    def _build(self, context: Context) -> tuple[BuiltKernel, KernelArguments]:
        built = self._program(context).kernel(self.name)
        found = self._built[context] = built, built.arguments(self.strided)
        return found

    def compile(self, device: str | None = None) -> None:
        """Build the kernel for a device now.

        Parameters
        ----------
        device
            Name of a context, such as ``"dev0"``; None is the default one.

        Raises
        ------
        CompilationError
            The driver rejects the code; the message shows the lines.
        ValueError
            The code has no kernel of that name.
        """
        self.built(get_context(device))

    def source(self) -> str:
        """Return the code with line numbers, as build errors count them; ``kernel.code`` has it without."""
        lines = self.code.splitlines() if isinstance(self.code, str) else []
        return "\n".join(f"{i:5d} | {line}".rstrip() for i, line in enumerate(lines, 1))

    @property
    def cached_code(self) -> str | bytes:
        """The code; the name that CuPy has for it."""
        return self.code

    @property
    def attributes(self) -> dict[str, Any]:
        """Facts about the compiled kernel, from the driver of the default device.

        ``max_work_group_size`` and ``preferred_work_group_size_multiple`` count work-items, ``local_memory`` (of a
        work-group) and ``private_memory`` (of a work-item) bytes; ``compile_work_group_size`` is what
        ``reqd_work_group_size`` says, else zeros; ``parameters`` are the declarations.
        """
        return self.built(get_context()).attributes()

    def parameters(self, device: str | None = None) -> tuple[Parameter, ...]:
        """Return the parameters as they are declared, from the program that is built for a device."""
        return tuple(self.built(get_context(device)).parameters)

    def declared(self) -> list[Parameter]:
        """Return the parameters from the text; where macros hide them, from the program of the default device."""
        code = self.code if isinstance(self.code, str) else ""
        return parsed_parameters(code, self.name, self.options) or self.built(get_context()).parameters

    # The launch

    def __call__(self, grid: Size, block: Size | None, args: Sequence[Any], *others: Any, shared_mem: int = 0) -> None:
        if shared_mem:
            raise TypeError(
                "OpenCL has local memory as an argument of its own: declare a parameter __local float *t, and pass "
                f"pytensor_cl.LocalMemory({shared_mem}) in its place"
            )
        if others or not isinstance(args, (tuple, list)):
            raise TypeError(
                "a raw kernel is called with three arguments, kernel(grid, block, args): args is a tuple with all "
                f"arguments of the kernel, such as (x, n), not {type(args).__name__}"
            )
        context = None
        for value in args:
            if type(value) is GpuArray:
                context = value.context
                break
        self.enqueue(context or get_context(), grid, block, args)

    def enqueue(self, context: Context, grid: Size, block: Size | None, args: Sequence[Any]) -> None:
        """Enqueue the kernel on a context. Parameters and errors are those of a call."""
        built, converters = self._built.get(context) or self._build(context)
        arguments, backs = converters.convert(args)
        try:
            sizes = built.sizes[grid, block]
        except (KeyError, TypeError):  # TypeError: a list
            sizes = _remember(built, grid, block, checked_sizes(built, grid, block))
        if sizes is None:
            return
        try:
            built.kernel.launch(context.queue, *sizes, *arguments)
        except cl.Error as error:
            raise OpenCLError(
                f"kernel {self.name!r} was not launched with {sizes[0]} work-items in work-groups of "
                f"{sizes[1] or 'any size'}: {error}"
            ) from error
        for copy, array in backs:
            copy_into(array, copy)


def _checked_name(name: str) -> str:
    """Return the name of a kernel.

    Raises `TypeError` or `ValueError`: it cannot be one.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of a kernel is a text, not {type(name).__name__}: RawKernel(code, name)")
    if not _IDENTIFIER.fullmatch(name):
        raise ValueError(f"{name!r} cannot be the name of a kernel: names have letters, digits and _")
    if name.removeprefix("__") in KEYWORDS:
        raise ValueError(f"{name!r} is a word of OpenCL C: choose another name")
    return name


NDRange = tuple[tuple[int, ...], tuple[int, ...] | None] | None
"""Work-items in each dimension, and of a work-group (None: as the driver likes); None: there are no work-items."""


def _remember(built: BuiltKernel, grid: Any, block: Any, sizes: NDRange) -> NDRange:
    try:
        if len(built.sizes) >= _MOST_SIZES:
            built.sizes.clear()
        built.sizes[grid, block] = sizes
    except TypeError:  # lists are not kept
        pass
    return sizes


def _numbers(what: str, value: Size) -> tuple[int, ...]:
    """Return up to three numbers.

    Raises `TypeError` or `ValueError`: they are no sizes.
    """
    try:
        numbers = tuple(map(operator.index, value if isinstance(value, Sequence) else (value,)))
    except TypeError:
        raise TypeError(f"{what} is an integer or a tuple of integers, not {value!r}") from None
    if not 1 <= len(numbers) <= 3 or min(numbers) < 0:
        raise ValueError(f"{what} has one to three numbers that are not negative, not {value!r}")
    if prod(numbers) > _MOST_ITEMS:
        raise ValueError(f"{what} is more than a launch can have, {value!r}")
    return numbers


def checked_sizes(built: BuiltKernel, grid: Size, block: Size | None) -> NDRange:
    """Return the NDRange of a launch.

    Raises `ValueError`: the kernel or the device does not take it.
    """
    groups, required = _numbers("grid", grid), built.required_size
    if block is None and not any(required):
        return None if 0 in groups else (groups, None)
    items = _numbers("block", block) if block is not None else required[: len(groups)]
    dimensions = max(len(groups), len(items))
    groups += (1,) * (dimensions - len(groups))
    items += (1,) * (dimensions - len(items))
    _check_group(built, items)
    if block is None:
        if any(n % m for n, m in zip(groups, items, strict=True)):
            raise ValueError(f"kernel {built.name!r} has work-groups of {items}, of which {groups} is no multiple")
        return None if 0 in groups else (groups, items)
    return None if 0 in groups else (tuple(n * m for n, m in zip(groups, items, strict=True)), items)


def _check_group(built: BuiltKernel, items: tuple[int, ...]) -> None:
    """Raise a `ValueError` if a kernel does not run with work-groups of a size."""
    required = built.required_size
    if any(required) and (*items, 1, 1)[:3] != (*required, 1, 1)[:3]:
        raise ValueError(f"kernel {built.name!r} is declared for work-groups of {required}, not of {items}")
    if 0 in items:
        raise ValueError(f"block has numbers from 1 on, not {items}")
    if prod(items) > built.max_work_group_size:
        raise ValueError(
            f"block={items} has {prod(items)} work-items; kernel {built.name!r} takes at most "
            f"{built.max_work_group_size} in a work-group on this device"
        )
    most = built.max_item_sizes
    if any(n > m for n, m in zip(items, most, strict=False)):
        raise ValueError(f"block={items} is more than the device takes in one dimension, {tuple(most)}")
