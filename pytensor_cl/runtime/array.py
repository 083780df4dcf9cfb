"""Arrays on a device: a buffer, a layout and the context that both belong to."""

import operator
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, NoReturn

import numpy as np

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.array_operators import ArrayOperators
from pytensor_cl.runtime.layout import Layout

_BASIC = frozenset({int, slice, type(None), type(Ellipsis)})


def basic_index(array: "GpuArray", items: tuple[Any, ...]) -> "GpuArray":
    """Return the view that integers, slices, ``None`` and ``...`` select.

    Raises `IndexError`: an integer is out of bounds, there are too many, or there are two ``...``.
    """
    ellipses = [i for i, item in enumerate(items) if item is Ellipsis]
    if ellipses:
        if len(ellipses) > 1:
            raise IndexError("an index can only have a single ellipsis ('...')")
        at, taken = ellipses[0], sum(item is not None for item in items) - 1
        items = (*items[:at], *(slice(None),) * (array.ndim - taken), *items[at + 1 :])
    if None not in items:
        return array.with_layout(array.layout.subscript(items))
    view = array.layout.subscript([item for item in items if item is not None])
    # An integer drops its dimension; every other one is still there, in the same order.
    kept = iter(range(view.ndim))
    order: list[int | str] = ["x" if i is None else next(kept) for i in items if not isinstance(i, int)]
    return array.with_layout(view.dimshuffle((*order, *kept)))


class MemoryOwner:
    """The owner of memory that this package has not allocated; all arrays over the memory have the same one.

    `held`: the object that has the memory.
    """

    __slots__ = ("__weakref__", "held")

    def __init__(self, held: object) -> None:
        self.held = held


def share_memory(x: "GpuArray", y: "GpuArray") -> bool:
    """Return whether elements of two arrays may be in the same place: one memory, and spans that meet."""
    own, other = x.buffer, y.buffer
    if own is not other and (x.owner is None or x.owner is not y.owner) and own.int_ptr != other.int_ptr:
        return False
    (low, high), (begin, end) = x.layout.span, y.layout.span
    return low * x.itemsize < end * y.itemsize and begin * y.itemsize < high * x.itemsize


class GpuArray(ArrayOperators):
    """An n-dimensional array in device memory, made by `pytensor_cl.array.asarray` and other functions.

    Operators, indices and assignments are NumPy's, and views share memory with the array, also for writes. The
    functions are in `pytensor_cl.array`. Nothing waits for the device but what needs values in Python: ``in``, `item`,
    `tolist`, conversion to a number or to a NumPy array, and operations whose shape depends on values.

    Parameters
    ----------
    context
        The open context that owns the buffer.
    buffer
        Device memory; several arrays may be views of one buffer.
    dtype
        Type of an element.
    layout
        Shape, strides and offset, in elements.
    readonly
        Whether assignments to the array are refused. Views inherit it.
    owner
        The owner of memory that this package has not allocated, else None. Views inherit it.
    """

    __slots__ = ("__weakref__", "buffer", "context", "dtype", "layout", "owner", "readonly")
    __array_priority__ = 1000.0

    def __init__(
        self,
        context: Any,
        buffer: "cl.Buffer",
        dtype: np.dtype,
        layout: Layout,
        readonly: bool = False,
        owner: MemoryOwner | None = None,
    ) -> None:
        self.context = context
        self.buffer = buffer
        self.dtype = dtype
        self.layout = layout
        self.readonly = readonly
        self.owner = owner

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each dimension."""
        return self.layout.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Step of each dimension, in bytes, as NumPy's."""
        return tuple(s * self.dtype.itemsize for s in self.layout.strides)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.layout.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.layout.size

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * self.dtype.itemsize

    @property
    def T(self) -> "GpuArray":
        """The array with its dimensions reversed; a view."""
        return self.with_layout(self.layout.transpose())

    def with_layout(self, layout: Layout) -> "GpuArray":
        """Return a view of the same buffer with another layout."""
        return GpuArray(self.context, self.buffer, self.dtype, layout, self.readonly, self.owner)

    def __getitem__(self, items: Any) -> "GpuArray":
        """Return what an index selects, as NumPy does.

        Integers, slices, ``None`` and ``...`` give a view. Arrays and lists of integers or bools give a new array;
        masks of the device wait for the number of their true elements.

        Raises
        ------
        IndexError
            The index does not fit, or an index of the host is out of bounds. One in a device array is found by the next
            wait.
        """
        if type(items) in _BASIC:
            return basic_index(self, (items,))
        if type(items) is tuple and all(type(item) in _BASIC for item in items):
            return basic_index(self, items)
        return self._take_index(items)

    def __getattr__(self, name: str) -> NoReturn:
        """Name what is there in place of methods of other libraries' arrays."""
        hint = ""
        if name in ("get", "numpy", "cpu"):
            hint = ": a copy on the host is np.asarray(r)"
        elif not name.startswith("_") and hasattr(np.ndarray, name):
            hint = f": on the host it is np.asarray(r).{name}"
        raise AttributeError(f"'GpuArray' object has no attribute {name!r}{hint}", name=name, obj=self)

    def __len__(self) -> int:
        if not self.layout.shape:
            raise TypeError("len() of a 0-d array")
        return self.layout.shape[0]

    def __iter__(self) -> Iterator["GpuArray"]:
        if not self.layout.shape:
            raise TypeError("iteration over a 0-d array: its value is r.item()")
        return map(self.__getitem__, range(self.layout.shape[0]))

    def sync(self) -> None:
        """Wait until the device has computed the array (and all that was enqueued before it)."""
        self.context.queue.wait()
        self.context.deferred_errors.check()

    def to_host(self) -> np.ndarray:
        """Copy the array into a new NumPy array; waits until it is there."""
        host = self.context.download(self)
        self.context.deferred_errors.check()
        found: np.ndarray = host
        return found

    def item(self, *index: Any) -> Any:
        """Return one element as a Python number; waits for it.

        Parameters
        ----------
        index
            Index of `numpy.ndarray.item`: none for an array of one element, a flat index, or one per dimension.
        """
        return self.to_host().item(*index)

    def tolist(self) -> Any:
        """Return the elements as nested lists of Python numbers; waits for them."""
        return self.to_host().tolist()

    def copy(self) -> "GpuArray":
        """Return a copy on the same device; does not wait."""
        made: GpuArray = self.context.copy(self) if self.layout.is_contiguous else self._dense_copy()
        return made

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> "GpuArray":
        copied = memo[id(self)] = self.copy()
        return copied

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return a copy as a NumPy array; with ``copy=False`` a read-only view, where the host sees the memory.

        Raises `ValueError`: ``copy=False``, and the device has a memory of its own, or `dtype` differs.
        """
        found: np.ndarray = self.context.exports.to_numpy(self, dtype, copy)
        return found

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a DLPack capsule over the memory of the array, which must not be donated or reused meanwhile.

        Where the host sees the memory, as that of a CPU, the capsule is one of host memory, and commands have ended. It
        is a copy if strides are negative. Elsewhere it is one of OpenCL memory, if `dl_device` or a queue as `stream`
        asks for that: its ``data`` is the ``cl_mem``, and views have a ``byte_offset``.

        Parameters
        ----------
        stream
            For host memory None. For OpenCL memory None waits for the device, -1 does nothing, and a
            ``pyopencl.CommandQueue`` of the same OpenCL context is made to wait.
        max_version
            The latest version that the consumer reads; None is a version without a flag for read-only memory.
        dl_device
            ``(1, 0)``, the host: a copy if it does not see the memory. ``(4, k)``: OpenCL memory of device number `k`
            of `pytensor_cl.devices`, on CPUs too. None is where the array is; for memory that the host does not see it
            must be given, or `stream`, because other libraries take the handle for an address.
        copy
            True copies, False never does.

        Raises
        ------
        BufferError
            It cannot be exported without a copy, or to that device; or it is read-only, and the version has no flag; or
            nothing asks for OpenCL memory.
        """
        return self.context.exports.dlpack(self, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return ``(1, 0)``, the host, where it sees the memory; else ``(4, k)``, number `k` of the devices."""
        found: tuple[int, int] = self.context.exports.dlpack_device()
        return found

    def __float__(self) -> float:
        return float(self.to_host())

    def __int__(self) -> int:
        return int(self.to_host())

    def __complex__(self) -> complex:
        return complex(self.to_host())

    def __index__(self) -> int:
        return operator.index(self.to_host())

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(
                f"the truth value of an array of {self.size} elements is ambiguous: use r.any(), r.all() or r.size > 0"
            )
        return bool(self.to_host())

    def __repr__(self) -> str:
        shown = self._representation()
        return shown or f"GpuArray(shape={self.shape}, dtype={self.dtype}, context={self.context.name!r})"

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        if spec == "v":
            return self._values_text()
        if self.layout.shape:
            raise TypeError(
                f"the format {spec!r} is for one number, this array has shape {self.shape}: use np.asarray(r)"
            )
        return format(self.item(), spec)

    def to_pyopencl(self, queue: "cl.CommandQueue | None" = None) -> Any:
        """Return a ``pyopencl.array.Array`` over the same memory; both may write, and each sees what the other wrote.

        Parameters
        ----------
        queue
            The queue of the array; its commands from now on run after those of this package so far. What either side
            enqueues later is not ordered: export again, or wait. None is this package's own queue, `pytensor_cl.queue`,
            on which all commands are ordered.

        Raises
        ------
        ValueError
            The array is read-only, or the queue belongs to another OpenCL context.

        Examples
        --------
        >>> a = r.to_pyopencl()  # doctest: +SKIP
        >>> a += 1  # r has changed  # doctest: +SKIP
        """
        return self.context.exports.to_pyopencl(self, queue)

    def to_buffer(self, queue: "cl.CommandQueue | None" = None) -> tuple[Any, int]:
        """Return the buffer of the array and the offset of its first element in bytes, for kernels of one's own.

        The buffer may be larger than the array, whose steps are `strides`. The memory is not used for anything else as
        long as the buffer object is kept.

        Parameters
        ----------
        queue
            The queue that will use the buffer, as of `to_pyopencl`. None orders nothing: use `pytensor_cl.queue`, or
            call `sync` first.

        Raises
        ------
        ValueError
            The array is read-only, or the queue belongs to another OpenCL context.
        """
        found: tuple[Any, int] = self.context.exports.to_buffer(self, queue)
        return found

    def host_view(self, *, writeable: bool = False) -> np.ndarray:
        """Wait, and return a NumPy array over the memory of the array, on devices whose memory the host sees.

        It shows what the device computes later, after `sync`. ``memoryview(r.host_view())`` works, and so does anything
        that takes ``__array_interface__``.

        Parameters
        ----------
        writeable
            Whether the host may write it. It does so only while the device does not use the array, after `sync`.

        Raises
        ------
        ValueError
            The device has a memory of its own; or `writeable` is set for an array that is read-only or broadcast.
        """
        found: np.ndarray = self.context.exports.host_view(self, writeable)
        return found

    def map(self, mode: str = "rw") -> "AbstractContextManager[np.ndarray]":
        """Return a context manager whose value is a NumPy array with the values of the array.

        Where the host sees the memory it is a view, elsewhere a copy that is uploaded at the end of the block. It
        cannot be written after the block.

        Parameters
        ----------
        mode
            ``"r"``, ``"w"`` (the values are arbitrary before they are written) or ``"rw"``.

        Raises
        ------
        ValueError
            The mode is another one, or the array cannot be written: it is read-only or broadcast.

        Examples
        --------
        >>> with r.map("rw") as a:  # doctest: +SKIP
        ...     a[0] = 1
        """
        found: AbstractContextManager[np.ndarray] = self.context.exports.map(self, mode)
        return found
