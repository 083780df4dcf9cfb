"""DLPack: capsules over device arrays, and device arrays over the capsules of other libraries.

Capsules of memory that the host sees are NumPy's. A capsule of OpenCL memory (kDLOpenCL) is NumPy's as well, made of an
array whose address is the handle of the buffer, and then changed: so what deletes it, in any thread and at the end of
the process too, is NumPy's code. Versions of DLPack up to 1.1 are read: https://dmlc.github.io/dlpack/latest/c_api.html
"""

from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    addressof,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
    cast,
    py_object,
    pythonapi,
)
from typing import Any

import numpy as np

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.array import GpuArray, MemoryOwner
from pytensor_cl.runtime.device import discover
from pytensor_cl.runtime.host_import import HostRanges
from pytensor_cl.runtime.host_view import host_view, normalised, overlaps
from pytensor_cl.runtime.interfaces import DeviceContext
from pytensor_cl.runtime.layout import Layout, contiguous_strides
from pytensor_cl.runtime.memory.host_mapping import HeldMemory, HostMappings

HOST, OPENCL = 1, 4
"""Types of devices: kDLCPU and kDLOpenCL."""
_READ_ONLY, _IS_COPIED = 1, 2  # flags
_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}  # kinds of NumPy's dtypes by DLPack's codes
_NAME, _USED_NAME = b"dltensor", b"used_dltensor"
_VERSIONED_NAME, _USED_VERSIONED_NAME = b"dltensor_versioned", b"used_dltensor_versioned"


class _Tensor(Structure):
    _fields_ = (
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


class _Managed(Structure):
    _fields_ = (("tensor", _Tensor), ("manager", c_void_p), ("deleter", c_void_p))


class _Versioned(Structure):
    _fields_ = (
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    )


_DELETER = CFUNCTYPE(None, c_void_p)
_capsule_name, _capsule_pointer = pythonapi.PyCapsule_GetName, pythonapi.PyCapsule_GetPointer
_set_capsule_name = pythonapi.PyCapsule_SetName
_capsule_name.argtypes, _capsule_name.restype = (py_object,), c_char_p
_capsule_pointer.argtypes, _capsule_pointer.restype = (py_object, c_char_p), c_void_p
_set_capsule_name.argtypes, _set_capsule_name.restype = (py_object, c_char_p), c_int


def _contents(capsule: Any) -> "_Managed | _Versioned":
    """Return the structure in a capsule that nobody has consumed.

    Raises `BufferError`: it is no such capsule, or of a later version.
    """
    name = _capsule_name(capsule) if type(capsule).__name__ == "PyCapsule" else None
    if name == _NAME:
        return cast(_capsule_pointer(capsule, name), POINTER(_Managed)).contents
    if name != _VERSIONED_NAME:
        consumed = name in (_USED_NAME, _USED_VERSIONED_NAME)
        what = "a DLPack capsule that was consumed before" if consumed else f"no DLPack capsule: {capsule!r}"
        raise BufferError(f"__dlpack__ returned {what}")
    found = cast(_capsule_pointer(capsule, name), POINTER(_Versioned)).contents
    if found.major > 1:
        raise BufferError(f"the capsule is of version {found.major}.{found.minor} of DLPack; versions up to 1 are read")
    return found


# Exports


def opencl_device(device: "cl.Device") -> tuple[int, int]:
    """Return the type and the number of a device: its place among `pytensor_cl.devices()`."""
    handles = [entry.handle for entry in discover()]
    return OPENCL, handles.index(device) if device in handles else 0


def export(
    array: GpuArray,
    mappings: HostMappings,
    ranges: HostRanges,
    device: tuple[int, int],
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """Return a capsule over a device array (`GpuArray.__dlpack__`); `device`: its `opencl_device`."""
    is_visible = mappings.are_supported()
    if dl_device is None and not is_visible and not isinstance(stream, cl.CommandQueue):
        # PyTorch 2.13 asks so for a copy on the host, takes the handle for an address, and ends the process.
        raise BufferError(
            f"the array is in OpenCL memory of {array.context.name!r}, which a library must ask for: "
            "np.from_dlpack(r, device='cpu') and np.asarray(r) are copies on the host, "
            "r.__dlpack__(dl_device=r.__dlpack_device__()) has the OpenCL buffer"
        )
    target = ((HOST, 0) if is_visible else device) if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
    if target == device:
        return _opencl_capsule(array, device, stream, max_version, copy)
    if target[0] != HOST:
        raise BufferError(
            f"the array cannot be exported to the DLPack device {target}, only to the host (1, 0) and to {device}"
        )
    if stream is not None:
        raise BufferError(f"memory of the host has no stream: pass stream=None, not {stream!r}")
    is_negative = any(step < 0 for step in normalised(array.layout).strides)
    if is_visible and copy is not True and not is_negative:
        writeable = not (array.readonly or overlaps(array.layout))
        return host_view(array, mappings, ranges, writeable).__dlpack__(max_version=max_version)
    if copy is False:
        reason = (
            "has negative strides, with which PyTorch ends the process: r.host_view() is a NumPy array with them"
            if is_visible
            else "is in a memory that the host cannot see: pass copy=None, or write np.asarray(r)"
        )
        raise BufferError(f"the array cannot be exported without a copy: it {reason}")
    capsule = array.to_host().__dlpack__(max_version=max_version)
    _mark_copied(capsule)
    return capsule


def _mark_copied(capsule: Any) -> None:
    found = _contents(capsule)
    if isinstance(found, _Versioned):
        found.flags |= _IS_COPIED


def _opencl_capsule(
    array: GpuArray, device: tuple[int, int], stream: Any, max_version: tuple[int, int] | None, copy: bool | None
) -> Any:
    """Return a capsule with the handle of the buffer."""
    if copy:
        array = array.copy()
    _order_for(array.context, stream)
    layout, dtype = normalised(array.layout), array.dtype
    strides = tuple(step * dtype.itemsize for step in layout.strides)
    readonly = bool(array.readonly or overlaps(layout))
    data = {"data": (array.buffer.int_ptr, readonly), "shape": layout.shape, "strides": strides, "version": 3}
    stand_in = np.asarray(HeldMemory((array.buffer, array.owner), {**data, "typestr": dtype.str}))  # never read
    capsule = stand_in.__dlpack__(max_version=max_version)
    tensor = _contents(capsule).tensor
    tensor.device_type, tensor.device_id = device
    tensor.data = array.buffer.int_ptr if layout.size else None
    tensor.byte_offset = layout.offset * dtype.itemsize if layout.size else 0
    if copy:
        _mark_copied(capsule)
    return capsule


def _order_for(context: DeviceContext, stream: Any) -> None:
    """Let the consumer's commands run after those enqueued so far."""
    if stream is None:
        context.queue.wait()
        context.deferred_errors.check()
    elif isinstance(stream, cl.CommandQueue):
        if stream.context != context.cl_context:
            raise BufferError(f"the queue belongs to another OpenCL context than {context.name!r}")
        context.queue.order_before(stream)
    elif stream != -1:
        raise BufferError(f"the stream of OpenCL memory is None, -1 or a pyopencl.CommandQueue, not {stream!r}")


# Imports


class _Consumed:
    """A capsule's structure that was consumed; the producer's memory is given back with the last reference."""

    __slots__ = ("_structure", "producer")

    def __init__(self, structure: "_Managed | _Versioned", producer: Any) -> None:
        self._structure, self.producer = structure, producer

    def __del__(self) -> None:
        deleter = self._structure.deleter
        if deleter:
            _DELETER(deleter)(addressof(self._structure))


def _consume(capsule: Any, structure: "_Managed | _Versioned", producer: Any) -> _Consumed:
    name = _USED_VERSIONED_NAME if isinstance(structure, _Versioned) else _USED_NAME
    _set_capsule_name(capsule, name)
    return _Consumed(structure, producer)


def _dtype_of(tensor: _Tensor) -> np.dtype:
    """Return the dtype of a tensor. Raises `BufferError`: NumPy has none."""
    kind, nbytes = _KINDS.get(tensor.code), tensor.bits // 8
    if kind is None or tensor.lanes != 1 or tensor.bits % 8 or not nbytes:
        what = "bfloat16" if tensor.code == 4 else f"code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes"
        raise BufferError(f"no dtype of device arrays is that of the capsule, {what}")
    return np.dtype(f"{kind}{nbytes}")


def import_opencl(capsule: Any, producer: Any, contexts: list[Any]) -> GpuArray:
    """Return a device array over the buffer in a capsule, whose producer is trusted to put a ``cl_mem`` there.

    `contexts`: the open contexts, of which the one of the buffer is chosen. Raises `BufferError`: there is none, or the
    capsule is malformed, or its array reaches past the buffer.
    """
    structure = _contents(capsule)
    tensor = structure.tensor
    if tensor.device_type != OPENCL:
        raise BufferError(f"the capsule is of device type {tensor.device_type}, and not of OpenCL memory ({OPENCL})")
    dtype = _dtype_of(tensor)
    shape = tuple(tensor.shape[k] for k in range(tensor.ndim))
    strides = tuple(tensor.strides[k] for k in range(tensor.ndim)) if tensor.strides else contiguous_strides(shape)
    readonly = isinstance(structure, _Versioned) and bool(structure.flags & _READ_ONLY)
    if not tensor.data or 0 in shape:
        if not contexts or 0 not in shape:
            raise BufferError("the capsule has no buffer")
        empty: GpuArray = contexts[0].empty(shape, contexts[0].check_dtype(dtype))
        return empty
    buffer = cl.Buffer.from_int_ptr(tensor.data, retain=True)
    owning = buffer.get_info(cl.mem_info.CONTEXT)
    context = next((c for c in contexts if c.cl_context == owning), None)
    if context is None:
        raise BufferError(
            "the buffer in the capsule belongs to an OpenCL context that is not open here: make it with the queue of "
            "pytensor_cl.queue(), or adopt its queue by pytensor_cl.use(queue, name)"
        )
    if tensor.byte_offset % dtype.itemsize:
        raise BufferError(f"the offset of {tensor.byte_offset} bytes is no multiple of an element of {dtype}")
    layout = Layout(shape, strides, tensor.byte_offset // dtype.itemsize)
    low, high = layout.span
    if low < 0 or high * dtype.itemsize > buffer.size:
        raise BufferError(f"an array of shape {shape} reaches past the {buffer.size} bytes of its buffer")
    consumed = _consume(capsule, structure, producer)
    owner = MemoryOwner(consumed)
    context.queue.keep_for(owner, consumed)
    return GpuArray(context, buffer, context.check_dtype(dtype), layout, readonly, owner)
