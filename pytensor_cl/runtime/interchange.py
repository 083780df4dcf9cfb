"""Device arrays over memory of other libraries: the public functions, and the choice of the context."""

from typing import Any

import numpy as np

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.dlpack import HOST, OPENCL, import_opencl
from pytensor_cl.runtime.fork import opened_contexts
from pytensor_cl.runtime.pyopencl_array import from_pyopencl as _from_pyopencl
from pytensor_cl.runtime.pyopencl_array import is_pyopencl_array, over_buffer
from pytensor_cl.runtime.registry import get_context


def queue(name: str | None = None) -> "cl.CommandQueue":
    """Return the in-order pyopencl queue of a context, on which this package enqueues all its commands.

    Arrays of pyopencl that are made with it, or with another queue of its ``context``, share memory with device arrays.
    As long as a reference to it is kept, each wait of this package is a real one: something may have been enqueued.

    Parameters
    ----------
    name
        Name of the context, which is opened if it is not yet; None is the default one.

    Raises
    ------
    ContextNotDefined
        There is no such context.

    Examples
    --------
    >>> import pyopencl.array  # doctest: +SKIP
    >>> a = pyopencl.array.zeros(pytensor_cl.queue(), 10, "float32")  # doctest: +SKIP
    """
    return get_context(name).queue.expose_handle()


def _context_of(device: Any) -> Context:
    """Return the context of a name, of an object with the attribute `name`, or the default one for None."""
    return get_context(device if device is None or isinstance(device, str) else device.name)


def _context_of_memory(owning: "cl.Context", what: str) -> Context:
    """Return the context of this package that has an OpenCL context. Raises `ValueError`: none has."""
    for context in opened_contexts():
        if context.cl_context == owning:
            return context
    raise ValueError(
        f"{what} belongs to an OpenCL context that is not open here: make it with pytensor_cl.queue() and its context, "
        "or let this package use your queue, pytensor_cl.use(queue, 'dev1')"
    )


def from_dlpack(obj: Any, /, *, device: Any = None, copy: bool | None = None, trust_opencl: bool = False) -> GpuArray:
    """Return a device array of an object with ``__dlpack__``: a NumPy array, a tensor of PyTorch, an array of JAX.

    Without a copy, the object and the array are over the same memory. Either may write it, unless it is read-only; the
    host does so only while the device does not use it, after `GpuArray.sync`. The array keeps the object's memory.

    Parameters
    ----------
    obj
        In memory of the host, on an OpenCL device, or a `GpuArray`. Objects elsewhere, as in CUDA's memory, are asked
        for a copy on the host.
    device
        Name of a context; None is that of OpenCL memory, and the default one for memory of the host.
    copy
        None copies if it must: devices with a memory of their own, addresses and strides that are no multiples of an
        element, and parts of memory another part of which an array on the device is over. True always copies, False
        never.
    trust_opencl
        Whether OpenCL memory of other libraries is taken. It must be a ``cl_mem``, which nothing can check: a structure
        of the library in its place, as in TVM's capsules, ends the process.

    Raises
    ------
    BufferError
        It cannot be taken without a copy; or it is OpenCL memory of another library, or of another OpenCL context; or
        its dtype is none of NumPy's, as bfloat16.
    TypeError
        It has no ``__dlpack__``.

    Examples
    --------
    >>> x = np.arange(6.0)  # doctest: +SKIP
    >>> r = pytensor_cl.from_dlpack(x)  # doctest: +SKIP
    """
    if isinstance(obj, GpuArray):
        return _moved(obj, None if device is None else _context_of(device), copy)
    if is_pyopencl_array(obj):
        return _moved(from_pyopencl(obj), None if device is None else _context_of(device), copy)
    if not hasattr(obj, "__dlpack__") or not hasattr(obj, "__dlpack_device__"):
        raise TypeError(f"{type(obj).__name__} has no __dlpack__: pass np.asarray of it")
    kind, _ = obj.__dlpack_device__()
    if int(kind) == OPENCL:
        if not trust_opencl:
            raise BufferError(
                f"the {type(obj).__name__} is in OpenCL memory of another library. Nothing says whether its handle is "
                "a cl_mem, and one that is not ends the process: pass trust_opencl=True if it is, or copy it to the "
                "host"
            )
        made = import_opencl(_opencl_capsule(obj), obj, opened_contexts())
        return _moved(made, None if device is None else _context_of(device), copy)
    return _from_host_memory(_on_host(obj, int(kind), copy), _context_of(device), copy)


def _opencl_capsule(obj: Any) -> Any:
    """Return the capsule of an object in OpenCL memory."""
    try:
        return obj.__dlpack__(max_version=(1, 1), dl_device=obj.__dlpack_device__())
    except TypeError:  # it is of a version without these arguments
        return obj.__dlpack__()


def _on_host(obj: Any, kind: int, copy: bool | None) -> np.ndarray:
    """Return an object as a NumPy array, over its memory if that is the host's."""
    if isinstance(obj, np.ndarray):
        return obj
    if kind == HOST:
        try:
            return np.from_dlpack(obj)
        except RuntimeError as error:  # of NumPy before 2.5, for dtypes that it does not have
            raise BufferError(str(error)) from error
    if copy is False:
        raise BufferError(
            f"the {type(obj).__name__} is on the DLPack device {obj.__dlpack_device__()}, not on the host"
        )
    return np.from_dlpack(obj, device="cpu")


def _from_host_memory(array: np.ndarray, context: Context, copy: bool | None) -> GpuArray:
    """Return a device array of a host array, over its memory unless `copy` is True or it cannot be."""
    context.check_dtype(array.dtype.newbyteorder("="))
    if copy is not True:
        try:
            return context.imports.import_array(context, array)
        except BufferError:
            if copy is False:
                raise
    return context.from_host(array.astype(array.dtype.newbyteorder("="), copy=False))


def _moved(array: GpuArray, context: Context | None, copy: bool | None) -> GpuArray:
    """Return a device array on a context (None: where it is): another view of it, or a copy."""
    if context is None or context is array.context:
        return array.copy() if copy else array.with_layout(array.layout)
    if copy is False:
        raise BufferError(f"an array in context {array.context.name!r} does not get to {context.name!r} without a copy")
    return context.from_host(array.to_host())


def from_pyopencl(array: Any, *, copy: bool | None = None) -> GpuArray:
    """Return a device array over the memory of a ``pyopencl.array.Array``, as long as both last.

    Commands of this package run after what was enqueued for the array, on its queue and by its events. What is enqueued
    later, there or here, is not ordered, unless the array has this package's queue (`queue`): call this again, or
    wait. Either may write.

    Parameters
    ----------
    array
        It is kept, and its memory with it.
    copy
        None copies, through the host to the default context, if the OpenCL context is none of this package's. True
        always copies, False never.

    Raises
    ------
    BufferError
        It cannot be taken without a copy.
    TypeError
        It is no such array, or in shared virtual memory.
    ValueError
        Its strides are no multiples of an element.
    """
    if not is_pyopencl_array(array):
        raise TypeError(f"from_pyopencl takes a pyopencl.array.Array, not {type(array).__name__}")
    context = next((c for c in opened_contexts() if c.cl_context == array.context), None)
    if context is not None:
        made = _from_pyopencl(context, array)
        return made.copy() if copy else made
    if copy is False:
        raise BufferError(
            "the pyopencl.array.Array belongs to another OpenCL context: make it with pytensor_cl.queue(), or let this "
            "package use its queue, pytensor_cl.use(queue, 'dev1')"
        )
    return get_context().from_host(array.get())


def from_buffer(
    buffer: "cl.MemoryObjectHolder",
    shape: Any,
    dtype: Any,
    *,
    strides: Any = None,
    offset: int = 0,
    readonly: bool = False,
    owner: Any = None,
) -> GpuArray:
    """Return a device array over a ``pyopencl.Buffer``, without a copy.

    The context is that of the buffer's OpenCL context. Commands are not ordered with those of other queues than
    `queue`.

    Parameters
    ----------
    buffer
        A buffer, a part of one, or memory of a pool.
    shape
        Shape of the array; an integer for one dimension.
    dtype
        Type of an element.
    strides, offset
        Steps, and position of the first element, in bytes; None is C-contiguous.
    readonly
        Whether assignments to the array are refused; buffers with the flag ``READ_ONLY`` are read-only anyhow.
    owner
        An object that is kept as long as the array, and until commands that use it have run.

    Raises
    ------
    ValueError
        The array reaches past the buffer; the buffer belongs to no context of this package, or cannot be read; strides
        or offset are no multiples of an element.
    TypeError
        `buffer` is no buffer.
    UnsupportedDtype
        The device has no such dtype.

    Examples
    --------
    >>> b = pyopencl.Buffer(pytensor_cl.queue().context, 0, 24)  # doctest: +SKIP
    >>> r = pytensor_cl.from_buffer(b, (2, 3), "float32")  # doctest: +SKIP
    """
    if not isinstance(buffer, cl.MemoryObjectHolder):
        raise TypeError(f"from_buffer takes a pyopencl.Buffer, not {type(buffer).__name__}")
    context = _context_of_memory(buffer.get_info(cl.mem_info.CONTEXT), "the buffer")
    shape = (shape,) if isinstance(shape, int | np.integer) else shape
    return over_buffer(
        context,
        buffer,
        shape,
        np.dtype(dtype),
        strides=strides,
        offset=int(offset),
        readonly=readonly,
        held=buffer if owner is None else (buffer, owner),
    )


def on_device(value: Any) -> GpuArray | None:
    """Return a value as a device array over its memory, if it is in OpenCL memory; None if it is on the host.

    Raises an error if its memory cannot be taken as it is.
    """
    if isinstance(value, GpuArray):
        return value
    if is_pyopencl_array(value):
        return from_pyopencl(value, copy=False)
    device = getattr(type(value), "__dlpack_device__", None)
    if device is not None and not isinstance(value, np.ndarray) and int(value.__dlpack_device__()[0]) == OPENCL:
        return from_dlpack(value)
    return None
