"""Arguments of raw kernels: checks, and conversions to what OpenCL takes, by the declared parameters."""

import operator
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from threading import get_ident
from typing import Any, NamedTuple, NoReturn

import numpy as np

from pytensor_cl.routines.elemwise.routine import Copy
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.array import GpuArray, share_memory
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.memory.parts import parts_of
from pytensor_cl.runtime.pyopencl_array import from_pyopencl, is_pyopencl_array
from pytensor_cl.user_kernels.parameters import OF_VARIABLES, is_variable
from pytensor_cl.user_kernels.signature import Parameter
from pytensor_cl.user_kernels.structs import StructLayouts

MOST_PARTS = 1024
"""Parts of a buffer that kernels of one's own make at most: they exist as long as the buffer."""
_TYPE = re.compile(r"(u?(?:char|short|int|long)|half|float|double)(2|3|4|8|16)?")
_DTYPES = {
    "char": ("int8", "bool"),
    "uchar": ("uint8", "bool"),
    "short": ("int16",),
    "ushort": ("uint16",),
    "int": ("int32",),
    "uint": ("uint32",),
    "long": ("int64",),
    "ulong": ("uint64",),
    "half": ("float16",),
    "float": ("float32",),
    "double": ("float64",),
}
"""NumPy dtypes of arrays to which a pointer to an OpenCL C type may point; the first one is that of a number."""
_COMPLEX = {"float2": "complex64", "double2": "complex128"}


def dtypes_of(parameter: Parameter) -> tuple[np.dtype, ...]:
    """Return the dtypes that arrays of a pointer, or a number, may have, the usual one first; empty if any will do."""
    found = _TYPE.fullmatch(parameter.type)
    if found is None:
        return ()
    complex_name = _COMPLEX.get(parameter.type)
    names = (*([complex_name] if complex_name else []), *_DTYPES[found[1]])
    return tuple(map(np.dtype, names))


_is_dense = lru_cache(1024)(Layout.is_contiguous.fget)  # type: ignore[attr-defined]


class LocalMemory:
    """Local memory of a work-group, the argument of a ``__local`` pointer of a raw kernel.

    Parameters
    ----------
    nbytes
        Bytes for each work-group, at least one.

    Raises
    ------
    ValueError
        `nbytes` is not positive.

    Examples
    --------
    >>> pytensor_cl.LocalMemory(256 * 4)
    LocalMemory(1024)
    """

    __slots__ = ("argument", "nbytes")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = operator.index(nbytes)
        if self.nbytes < 1:
            raise ValueError(f"local memory has at least one byte, not {nbytes}")
        self.argument: Any = None  # pyopencl's object, made at the first use

    def __repr__(self) -> str:
        return f"LocalMemory({self.nbytes})"

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalMemory, (self.nbytes,)


class WriteBack(NamedTuple):
    """A copy that the kernel gets in place of an array, and the array into which it is written back."""

    copy: GpuArray
    array: GpuArray


WriteBacks = list[WriteBack]
Converter = Callable[[Any, WriteBacks], Any]
"""A function from a value to an OpenCL argument; it adds to the list what must be written back after the launch."""


@lru_cache(256)
def _copier(context: Context, dtype: str, ndim: int, thread: int) -> Copy:
    """Return the thread's own routine: a kernel holds its arguments between two calls of the driver."""
    return Copy(context, dtype, ndim)


def copy_into(target: GpuArray, source: GpuArray) -> None:
    """Enqueue a copy of the elements of an array into another one of the same shape and dtype."""
    _copier(source.context, source.dtype.name, source.ndim, get_ident()).launch((target,), (source,))


def dense_copy(array: GpuArray) -> GpuArray:
    """Return a C-contiguous copy at offset 0."""
    result = array.context.empty(array.shape, array.dtype)
    if array.size:
        copy_into(result, array)
    return result


class KernelArguments:
    """Converts the arguments of a kernel on one context.

    `kernel`: the name of the kernel, for messages; `strided`: names of the parameters that get the whole buffer of an
    array with any strides; `structs`: finds the layouts of structs.

    Raises `ValueError`: a name in `strided` is no pointer parameter.
    """

    def __init__(
        self,
        context: Context,
        kernel: str,
        parameters: Sequence[Parameter],
        strided: Sequence[str],
        structs: StructLayouts,
    ) -> None:
        self.parameters = tuple(parameters)
        self._kernel = kernel
        pointers = [p.name for p in parameters if p.space in ("__global", "__constant", None)]
        for name in strided:
            if name not in pointers:
                known = ", ".join(pointers) or "none"
                raise ValueError(f"strided={name!r} names no pointer parameter of kernel {kernel!r}; it has: {known}")
        self._converters = [self._converter(context, p, p.name in strided, structs) for p in parameters]

    def _converter(self, context: Context, parameter: Parameter, strided: bool, structs: StructLayouts) -> Converter:
        where = f"argument {parameter.name!r} of kernel {self._kernel!r} ({parameter.declaration})"
        if parameter.space is None:
            return _Unknown(context, where)
        if parameter.space == "__local":
            return _Local(context, where)
        if parameter.space:
            return _Pointer(context, where, parameter, strided)
        found = _TYPE.fullmatch(parameter.type)
        if found is None:
            return _Struct(where, parameter.type, structs if context.info.features.struct_arguments else None)
        if found[2]:
            return _Vector(where, found[1], int(found[2]))
        return (_Float if found[1] in ("half", "float", "double") else _Integer)(where, _DTYPES[found[1]][0])

    def convert(self, values: Sequence[Any]) -> tuple[list[Any], WriteBacks]:
        """Return OpenCL's arguments, and what must be written back after the launch.

        Raises `TypeError`, `ValueError` or `OverflowError`: a value does not fit its parameter, or there are more or
        fewer than the parameters.
        """
        converters = self._converters
        if len(values) != len(converters):
            raise TypeError(
                f"kernel {self._kernel!r} takes {len(converters)} argument{'s' * (len(converters) != 1)} "
                f"({', '.join(p.declaration for p in self.parameters)}), {len(values)} given"
            )
        backs: WriteBacks = []
        converted = [convert(value, backs) for convert, value in zip(converters, values, strict=True)]
        if backs:
            self._check_written(values, backs)
        return converted, backs

    def _check_written(self, values: Sequence[Any], backs: WriteBacks) -> None:
        """Raise a `ValueError` if an array that is written back shares elements with another one that is written.

        One of the two would get its old elements back.
        """
        written = [
            (p, x)
            for p, x in zip(self.parameters, values, strict=True)
            if p.space == "__global" and not p.is_const and isinstance(x, GpuArray)
        ]
        for _, array in backs:
            own = next((p for p, x in written if x is array), None)  # None: an array of pyopencl
            other = next((p for p, x in written if p is not own and share_memory(x, array)), None)
            if own is not None and other is not None:
                raise ValueError(
                    f"kernel {self._kernel!r} writes {own.name!r} and {other.name!r}, which overlap, and {own.name!r} "
                    "begins where the device takes no array: pass the whole array, and the number of its first element"
                )


def _refuse_array(value: Any, where: str) -> None:
    """Raise a TypeError for an array where a number is wanted."""
    if isinstance(value, GpuArray):
        raise TypeError(
            f"{where} is passed by value, not as a GpuArray: pass x.item(), which waits for the device, or declare a "
            "pointer"
        )


class _Number:
    """Converts a number to the declared type."""

    __slots__ = ("_scalar", "_where")

    def __init__(self, where: str, dtype: str) -> None:
        self._where, self._scalar = where, np.dtype(dtype).type

    def _refuse(self, value: Any) -> NoReturn:
        _refuse_array(value, self._where)
        shown = f"an array of shape {value.shape}" if getattr(value, "shape", ()) else repr(value)
        raise TypeError(f"{self._where} must be {self._wanted}, not {shown}")

    _wanted = "a number"


class _Integer(_Number):
    """Converts an integer."""

    __slots__ = ("_high", "_low")
    _wanted = "an integer"

    def __init__(self, where: str, dtype: str) -> None:
        super().__init__(where, dtype)
        bounds = np.iinfo(dtype)
        self._low, self._high = int(bounds.min), int(bounds.max)

    def __call__(self, value: Any, backs: WriteBacks) -> Any:
        if type(value) is self._scalar:
            return value
        if type(value) is not int:
            if isinstance(value, GpuArray):
                self._refuse(value)
            try:
                value = int(value) if isinstance(value, np.bool_) else operator.index(value)
            except TypeError:
                self._refuse(value)
        if not self._low <= value <= self._high:
            raise OverflowError(f"{self._where} must be between {self._low} and {self._high}, not {value}")
        return self._scalar(value)


class _Float(_Number):
    """Converts a real number."""

    __slots__ = ("_largest",)
    _wanted = "a real number"

    def __init__(self, where: str, dtype: str) -> None:
        super().__init__(where, dtype)
        self._largest = float(np.finfo(dtype).max)

    def __call__(self, value: Any, backs: WriteBacks) -> Any:
        if type(value) is self._scalar:
            return value
        if type(value) in (float, int) and -self._largest <= value <= self._largest:
            return self._scalar(value)
        is_array = getattr(value, "ndim", 0) or getattr(getattr(value, "dtype", None), "kind", "f") not in "biuf"
        if isinstance(value, GpuArray | str | bytes | complex) or is_array:
            self._refuse(value)
        try:
            number = float(value)
        except OverflowError:
            number = np.inf  # a Python integer that is too large
        except TypeError:
            self._refuse(value)
        with np.errstate(over="ignore"):
            result = self._scalar(number)
        if np.isinf(result) and not (isinstance(value, float | np.floating) and np.isinf(value)):
            raise OverflowError(f"{self._where} does not hold {value}")
        return result


class _Vector:
    """Converts a vector, such as a ``float4``, from as many numbers; a complex number is a vector of two."""

    __slots__ = ("_dtype", "_lanes", "_number", "_where")

    def __init__(self, where: str, element: str, lanes: int) -> None:
        self._where, self._lanes, self._dtype = where, lanes, np.dtype(_DTYPES[element][0])
        kind = _Float if self._dtype.kind == "f" else _Integer
        self._number = kind(where, self._dtype.name)

    def __call__(self, value: Any, backs: WriteBacks) -> bytes:
        stored = 4 if self._lanes == 3 else self._lanes
        if isinstance(value, np.void) and value.dtype.itemsize == stored * self._dtype.itemsize:
            return value.tobytes()  # a vector of pyopencl.cltypes
        _refuse_array(value, self._where)
        if isinstance(value, complex | np.complexfloating) and self._lanes == 2:
            value = (value.real, value.imag)
        if isinstance(value, str | bytes) or not hasattr(value, "__len__") or len(value) != self._lanes:
            raise TypeError(f"{self._where} must be {self._lanes} numbers, not {value!r}")
        packed = np.zeros(stored, self._dtype)
        packed[: self._lanes] = [self._number(number, backs) for number in value]
        return packed.tobytes()


class _Struct:
    """Converts a struct from a NumPy value of a structured dtype with members of the same names."""

    __slots__ = ("_layouts", "_type", "_where")

    def __init__(self, where: str, kind: str, layouts: StructLayouts | None) -> None:
        self._where, self._type, self._layouts = where, kind, layouts

    def __call__(self, value: Any, backs: WriteBacks) -> bytes:
        _refuse_array(value, self._where)
        dtype = getattr(value, "dtype", None)
        if self._layouts is None:
            raise TypeError(
                f"{self._where}: the driver passes no structs by value: declare __global const {self._type} *, and "
                "pass an array of uint8 with the bytes"
            )
        if isinstance(dtype, np.dtype) and dtype.names and not getattr(value, "ndim", 0):
            return self._layouts.pack(self._type, np.asarray(value), self._where)
        if isinstance(value, np.generic):
            return value.tobytes()  # a type that only a header has
        raise TypeError(
            f"{self._where} must be a NumPy value of a structured dtype with the members of {self._type}, such as "
            f"np.array((1, 2.0), dtype=[('n', 'int32'), ('x', 'float32')]), not {value!r}"
        )


class _Local:
    """Converts `LocalMemory`."""

    __slots__ = ("_limit", "_where")

    def __init__(self, context: Context, where: str) -> None:
        self._where, self._limit = where, context.info.local_memory

    def __call__(self, value: Any, backs: WriteBacks) -> Any:
        if not isinstance(value, LocalMemory):
            raise TypeError(
                f"{self._where} is local memory: pass pytensor_cl.LocalMemory(nbytes), not {_described(value)}"
            )
        if value.nbytes > self._limit:
            raise ValueError(f"{self._where}: the device has {self._limit} bytes of local memory, not {value.nbytes}")
        if value.argument is None:
            value.argument = cl.LocalMemory(value.nbytes)
        return value.argument


class _Unknown:
    """Converts an argument of a parameter of which nothing is known: a program in SPIR-V need not have the types."""

    __slots__ = ("_pointer", "_where")

    def __init__(self, context: Context, where: str) -> None:
        self._where = where
        self._pointer = _Pointer(context, where, Parameter("", "", "__global", False), False)

    def __call__(self, value: Any, backs: WriteBacks) -> Any:
        if isinstance(value, np.generic):
            return value.tobytes() if isinstance(value, np.void) else value
        if isinstance(value, LocalMemory):
            value.argument = value.argument or cl.LocalMemory(value.nbytes)
            return value.argument
        if isinstance(value, bool | int | float | complex):
            raise TypeError(
                f"{self._where}: the driver does not tell the type of this parameter: pass a NumPy scalar of the exact "
                f"type, such as np.int32(3), not {value!r}"
            )
        return self._pointer(value, backs)


def _described(value: Any) -> str:
    """Return what an error calls a value."""
    if isinstance(value, GpuArray):
        return f"a GpuArray of {value.dtype}"
    return f"a NumPy array of {value.dtype}" if isinstance(value, np.ndarray) else repr(value)


class _Pointer:
    """Converts an array to its buffer."""

    __slots__ = ("_context", "_dtypes", "_lanes", "_strided", "_taken", "_type", "_where", "_writes")

    def __init__(self, context: Context, where: str, parameter: Parameter, strided: bool) -> None:
        self._context, self._where, self._type = context, where, parameter.type
        self._strided, self._writes = strided, not parameter.is_const
        found = _TYPE.fullmatch(parameter.type)
        self._lanes = 1 if found is None else {None: 1, "3": 4}.get(found[2]) or int(found[2])
        # Empty: structs, void and types of headers; arrays of any dtype can hold their bytes.
        self._dtypes = frozenset(dtypes_of(parameter))
        # Dtype and layout of the last array whose whole buffer was passed: the next one often has the same objects.
        self._taken: tuple[Any, Any] = (None, None)

    def __call__(self, value: Any, backs: WriteBacks) -> Any:
        dtype, layout = self._taken
        is_known = type(value) is GpuArray and value.layout is layout and value.dtype is dtype
        if is_known and value.context is self._context and not (self._writes and value.readonly):
            return value.buffer
        return self._checked(value, backs)

    def _checked(self, value: Any, backs: WriteBacks) -> Any:
        if type(value) is not GpuArray:
            if value is None:
                return None  # the null pointer
            value = self._from_other(value)
        if value.context is not self._context:
            raise ValueError(
                f"{self._where} is on {value.context.name!r}, the first array on {self._context.name!r}: all arrays of "
                "a call are on one device"
            )
        if self._dtypes and value.dtype not in self._dtypes:
            names = " or ".join(sorted(dtype.name for dtype in self._dtypes))
            raise TypeError(f"{self._where} must be an array of {names}, not of {value.dtype}: {self._advice(value)}")
        if self._writes and value.readonly:
            raise ValueError(
                f"{self._where} is not const, and the array is read-only: declare the parameter const if the kernel "
                "only reads it, or pass x.copy()"
            )
        layout = value.layout
        if self._strided:
            if self._writes and any(n > 1 and not s for n, s in zip(layout.shape, layout.strides, strict=True)):
                raise ValueError(f"{self._where} is written, and several elements of the array are at one place")
            return value.buffer
        if not _is_dense(layout):
            raise ValueError(
                f"{self._where} must be C-contiguous, not of shape {value.shape} with strides {value.strides}: pass a "
                "copy, pytensor_cl.array.ascontiguousarray(x), or name the parameter in RawKernel(..., strided=(...)) "
                "and pass x.layout.offset and x.layout.strides, too"
            )
        if self._lanes > 1 and layout.size % (self._lanes // (2 if value.dtype.kind == "c" else 1)):
            raise ValueError(f"{self._where}: {layout.size} elements are no whole number of {self._type}")
        if layout.offset:
            return self._displaced(value, backs)
        self._taken = value.dtype, layout
        return value.buffer

    def _advice(self, value: GpuArray) -> str:
        declared = next((k for k, names in _DTYPES.items() if value.dtype.name in names), None)
        declared = declared or next((k for k, name in _COMPLEX.items() if value.dtype.name == name), "")
        return f"declare the pointer as {declared} *, or cast the array"

    def _from_other(self, value: Any) -> GpuArray:
        """Return the device array that another value is.

        Raises `TypeError`: it is none.
        """
        if is_pyopencl_array(value):
            return from_pyopencl(self._context, value)
        if isinstance(value, np.ndarray | list | tuple):
            raise TypeError(
                f"{self._where} is a pointer, and host memory is not passed to kernels: pass "
                "pytensor_cl.array.asarray(x), which copies it to the device"
            )
        if is_variable(value):
            raise TypeError(f"{self._where} is the variable {value}: {OF_VARIABLES}")
        raise TypeError(f"{self._where} must be a GpuArray, not {_described(value)}")

    def _displaced(self, array: GpuArray, backs: WriteBacks) -> Any:
        """Return a buffer that begins with the array's first element: a sub-buffer, or a copy to be written back.

        Sub-buffers begin at certain multiples. Captured calls have none: another call has another buffer.
        """
        if not array.size:
            return array.buffer
        context, itemsize = self._context, array.dtype.itemsize
        begin = array.layout.offset * itemsize
        if context.queue.capture is None and begin % (context.device.mem_base_addr_align // 8) == 0:
            parts = parts_of(array.buffer)
            known = parts.known(begin, array.nbytes)
            if known is not None:
                return known
            if len(parts) < MOST_PARTS:
                with suppress(cl.Error):  # it is itself a part of a buffer, of which there are no parts
                    return parts.part(begin, array.nbytes)
        copied = dense_copy(array)
        if self._writes:
            backs.append(WriteBack(copied, array))
        return copied.buffer
