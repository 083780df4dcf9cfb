"""The Type of device arrays."""

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import numpy as np
from pytensor.graph.basic import Variable
from pytensor.graph.type import HasDataType, HasShape, Type
from pytensor.tensor.type import TensorType

from pytensor_cl.codegen import dtypes
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.interchange import on_device
from pytensor_cl.runtime.pyopencl_array import from_pyopencl, is_pyopencl_array
from pytensor_cl.runtime.registry import default_context_name, get_context


@singledispatch
def convert_to_device(kind: Type, variable: Variable, context_name: str) -> Variable | None:
    """Transfer a variable of another Type to a context; None if the Type has no transfer.

    The transfer Ops, which are in a layer above, register themselves here.
    """
    return None


class GpuArrayType(Type[GpuArray], HasDataType, HasShape):
    """Arrays on a device.

    It is no `TensorType`: rewrites and Ops of the host must not accept its variables.

    Parameters
    ----------
    dtype
        One of ``pytensor_cl.codegen.dtypes.SUPPORTED``.
    shape
        Static extents; None where they are unknown.
    context_name
        The context that holds the arrays; None is the default one.
    name
        Name of the Type.

    Raises
    ------
    TypeError
        Device arrays cannot hold `dtype`, or `shape` is no sequence.
    ValueError
        A length is negative.
    """

    __props__ = ("dtype", "shape", "context_name")

    def __init__(
        self, dtype: Any, shape: Sequence[int | None], context_name: str | None = None, name: str | None = None
    ) -> None:
        try:
            shape = tuple(shape)
        except TypeError as error:
            message = f"shape must be a tuple with a length or None for each dimension, not {shape!r}"
            raise TypeError(message) from error
        if any(n is not None and n < 0 for n in shape):
            raise ValueError(f"shape must have no negative lengths; None is for those that are unknown: {shape!r}")
        self.dtype = str(np.dtype(dtype))
        if not dtypes.is_supported(self.dtype):
            raise TypeError(f"device arrays cannot hold {self.dtype}")
        self.shape = tuple(None if n is None else int(n) for n in shape)
        self.ndim = len(self.shape)
        self.context_name = context_name or default_context_name()
        self.name = name
        self.numpy_dtype = np.dtype(self.dtype)

    @property
    def broadcastable(self) -> tuple[bool, ...]:
        """A bool for each dimension: its length is known to be one."""
        return tuple(n == 1 for n in self.shape)

    @property
    def host_type(self) -> TensorType:
        """The TensorType of the same dtype and static shape."""
        return TensorType(self.dtype, self.shape)

    def clone(
        self,
        dtype: Any = None,
        shape: Sequence[int | None] | None = None,
        context_name: str | None = None,
        **_: Any,
    ) -> "GpuArrayType":
        """Return a copy of the Type with the given attributes."""
        shape = self.shape if shape is None else shape
        return type(self)(dtype or self.dtype, shape, context_name or self.context_name)

    def filter(self, data: Any, strict: bool = False, allow_downcast: bool | None = None) -> GpuArray:
        """Return `data` as a device array of this Type.

        An array of pyopencl (`pyopencl.array.Array`) in the same OpenCL context is used where it is, after its
        commands. Arrays of the host are uploaded, unless `strict`.

        Raises
        ------
        TypeError
            The dtype, the number of dimensions, a static extent or the context differ.
        """
        if not isinstance(data, GpuArray):
            pyopencl = is_pyopencl_array(data)
            found = from_pyopencl(get_context(self.context_name), data) if pyopencl else on_device(data)
            if found is None and strict:
                raise TypeError(f"{self} expected a GpuArray (got {type(data)})")
            if found is None:
                host = self.host_type.filter(data, strict=False, allow_downcast=allow_downcast)
                return get_context(self.context_name).from_host(host)
            data = found
        self._check(data)
        array: GpuArray = data
        return array

    def _check(self, data: GpuArray) -> None:
        if data.context.name != self.context_name:
            raise TypeError(f"{self} expected an array in context {self.context_name!r}, got {data!r}")
        if data.dtype != self.numpy_dtype:
            raise TypeError(f"{self} expected an array with dtype={self.dtype} (got {data.dtype})")
        if data.ndim != self.ndim:
            raise TypeError(
                f"Wrong number of dimensions: expected {self.ndim}, got {data.ndim} with shape {data.shape}"
            )
        if any(n not in (None, m) for n, m in zip(self.shape, data.shape, strict=True)):
            raise TypeError(f"The type's shape ({self.shape}) is not compatible with the data's ({data.shape})")

    def in_same_class(self, otype: Type) -> bool:
        """Return whether arrays of the other Type can replace those of this one everywhere."""
        return (
            isinstance(otype, GpuArrayType)
            and (otype.dtype, otype.context_name) == (self.dtype, self.context_name)
            and otype.broadcastable == self.broadcastable
        )

    def is_super(self, otype: Type) -> bool:
        """Return whether every array of the other Type is one of this Type."""
        return (
            isinstance(otype, GpuArrayType)
            and (otype.dtype, otype.context_name, otype.ndim) == (self.dtype, self.context_name, self.ndim)
            and all(n in (None, m) for n, m in zip(self.shape, otype.shape, strict=True))
        )

    def convert_variable(self, var: Variable) -> Variable | None:
        """Return `var` as a variable of this Type: transferred, if it is a tensor of the host."""
        if self.is_super(var.type):
            return var
        moved = convert_to_device(var.type, var, self.context_name)
        return moved if moved is not None and self.is_super(moved.type) else None

    @staticmethod
    def values_eq(a: GpuArray, b: GpuArray, force_same_dtype: bool = True) -> bool:
        """Return whether two arrays hold the same values (NaN equals NaN); reads the device."""
        host_a, host_b = a.to_host(), b.to_host()
        comparable = host_a.dtype == host_b.dtype or not force_same_dtype
        return comparable and np.array_equal(host_a, host_b, equal_nan=True)

    @staticmethod
    def values_eq_approx(a: Any, b: Any, **options: Any) -> bool:
        """Return whether two arrays hold the same values to rounding; reads the device."""
        is_equal: bool = TensorType.values_eq_approx(np.asarray(a), np.asarray(b), **options)
        return is_equal

    @staticmethod
    def may_share_memory(a: Any, b: Any) -> bool:
        """Return whether two arrays are views of one buffer."""
        return isinstance(a, GpuArray) and isinstance(b, GpuArray) and a.buffer.int_ptr == b.buffer.int_ptr

    def get_shape_info(self, obj: GpuArray) -> tuple[int, ...]:
        """Return the shape, for PyTensor's memory profile."""
        return obj.shape

    def get_size(self, shape_info: Sequence[int]) -> int:
        """Return the bytes of an array of that shape, for PyTensor's memory profile."""
        return int(np.prod(shape_info)) * self.numpy_dtype.itemsize

    def __str__(self) -> str:
        return f"GpuArray<{self.context_name}>({self.dtype}, shape={self.shape})"

    __repr__ = __str__


def is_value_of(kind: TensorType, array: GpuArray) -> bool:
    """Return whether a device array has the dtype and the shape of a Type."""
    is_fitting = array.dtype == kind.numpy_dtype and array.ndim == kind.ndim
    return is_fitting and all(n in (None, m) for n, m in zip(kind.shape, array.shape, strict=True))
