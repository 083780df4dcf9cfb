"""Arrays on a device: a buffer, a layout and the context that both belong to."""

import operator
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NoReturn

import numpy as np

from pytensor_cl.errors import UnsupportedIndex
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.interfaces import DeviceContext
from pytensor_cl.runtime.layout import Layout

_PLAIN = (bool, int, float, complex, np.generic, list, tuple)


def _host_operand(other: Any) -> Any:
    """Return the operand as NumPy compares it with a device array; NotImplemented if its class defines comparisons."""
    if isinstance(other, GpuArray):
        return other.to_host()
    if isinstance(other, _PLAIN):
        return other
    is_array = hasattr(type(other), "__array__") and getattr(type(other), "__array_ufunc__", True) is not None
    return np.asarray(other) if is_array else NotImplemented


def _basic_index(item: Any) -> Any:
    """Return an item of a basic index, integers as Python's.

    Raises `UnsupportedIndex`: it is an array, a list, a boolean, or nothing that NumPy takes either.
    """
    if item is None or isinstance(item, slice):
        return item
    is_integer = hasattr(type(item), "__index__") and getattr(item, "ndim", 0) == 0
    if is_integer and not isinstance(item, bool | np.bool_):
        dtype = getattr(item, "dtype", None)
        if dtype is None or dtype.kind in "iu":
            return operator.index(item)
    raise UnsupportedIndex(
        f"a GpuArray takes integers, slices, None and one ... as indices, not {item!r}: index in the graph of a "
        "function, or a copy on the host, np.asarray(r)[...]"
    )


def _unsupported(symbol: str) -> Callable[..., Any]:
    """Return the method of an operator that device arrays do not have. It raises an error with the alternative."""

    def raise_type_error(self: "GpuArray", other: Any = 0) -> Any:
        if _host_operand(other) is NotImplemented:
            return NotImplemented
        raise TypeError(
            f"a GpuArray has no operator {symbol}: compute in a function, "
            "pytensor.function(..., mode='OPENCL'), or on the host with np.asarray(r)"
        )

    return raise_type_error


class MemoryOwner:
    """The owner of memory that this package has not allocated; all arrays over the memory have the same one.

    `held`: the object that has the memory.
    """

    __slots__ = ("__weakref__", "held")

    def __init__(self, held: object) -> None:
        self.held = held


class GpuArray:
    """An n-dimensional array in device memory.

    It has views, conversions and comparisons by value, but no arithmetic: that is what functions are for. What needs
    the values in Python (``==``, ``!=``, ``in``, `item`, `tolist`, conversion to a number, ``repr`` of a 0-d array)
    waits for the device and copies the array to the host.

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
        context: DeviceContext,
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
        """Apply basic indexing (integers, slices, ``None``, ``...``); a view.

        Raises `UnsupportedIndex`: there is another kind of index among them, or more than one ``...``. Raises
        `IndexError`: an integer is out of bounds, or there are too many.
        """
        items = items if isinstance(items, tuple) else (items,)
        ellipses = [i for i, item in enumerate(items) if item is Ellipsis]
        if ellipses:
            at, taken = ellipses[0], sum(item is not None for item in items) - 1
            fill = (slice(None),) * (self.ndim - taken)
            items = (*items[:at], *fill, *items[at + 1 :])
        items = tuple(map(_basic_index, items))
        view = self.layout.subscript([item for item in items if item is not None])
        if None in items:
            # An integer drops its dimension; every other one is still there, in the same order.
            kept = iter(range(view.ndim))
            order: list[int | str] = ["x" if i is None else next(kept) for i in items if not isinstance(i, int)]
            view = view.dimshuffle((*order, *kept))
        return self.with_layout(view)

    def __getattr__(self, name: str) -> NoReturn:
        """Name what is there in place of methods of other libraries' arrays."""
        hint = ""
        if name in ("get", "numpy", "cpu"):
            hint = ": a copy on the host is np.asarray(r)"
        elif not name.startswith("_") and hasattr(np.ndarray, name):
            hint = f": on the host it is np.asarray(r).{name}, on the device part of a function, pytensor.function(...)"
        raise AttributeError(f"'GpuArray' object has no attribute {name!r}{hint}", name=name, obj=self)

    def __setitem__(self, items: Any, value: Any) -> NoReturn:
        raise TypeError(
            "a GpuArray does not change: make a new one in a function, with x[...].set(value) or "
            "pytensor.tensor.set_subtensor(x[...], value)"
        )

    def __len__(self) -> int:
        if not self.layout.shape:
            raise TypeError("len() of a 0-d array")
        return self.layout.shape[0]

    def __iter__(self) -> Iterator["GpuArray"]:
        if not self.layout.shape:
            raise TypeError("iteration over a 0-d array: its value is r.item()")
        return map(self.__getitem__, range(self.layout.shape[0]))

    def __contains__(self, item: Any) -> bool:
        host = _host_operand(item)
        return host is not NotImplemented and host in self.to_host()

    def __eq__(self, other: Any) -> Any:
        """Compare elements, as NumPy does, on the host; return a NumPy array of booleans.

        What is neither a number nor an array is not equal, as None.
        """
        host = _host_operand(other)
        return NotImplemented if host is NotImplemented else np.equal(self.to_host(), host)

    def __ne__(self, other: Any) -> Any:
        """Compare elements, as ``==`` does."""
        host = _host_operand(other)
        return NotImplemented if host is NotImplemented else np.not_equal(self.to_host(), host)

    # Arrays that are equal would need the same hash; NumPy's have none either.
    __hash__ = None  # type: ignore[assignment]

    def sync(self) -> None:
        """Wait until the device has computed the array (and all that was enqueued before it)."""
        self.context.queue.wait()

    def to_host(self) -> np.ndarray:
        """Copy the array into a new NumPy array; waits until it is there."""
        return self.context.download(self)

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
        return self.context.copy(self)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> "GpuArray":
        copied = memo[id(self)] = self.copy()
        return copied

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return a copy as a NumPy array; with ``copy=False`` a read-only view, where the host sees the memory.

        Raises `ValueError`: ``copy=False``, and the device has a memory of its own, or `dtype` differs.
        """
        return self.context.exports.to_numpy(self, dtype, copy)

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
        is a copy if strides are negative. Elsewhere it is one of OpenCL memory: its ``data`` is the ``cl_mem``, and
        views have a ``byte_offset``.

        Parameters
        ----------
        stream
            For host memory None. For OpenCL memory None waits for the device, -1 does nothing, and a
            ``pyopencl.CommandQueue`` of the same OpenCL context is made to wait.
        max_version
            The latest version that the consumer reads; None is a version without a flag for read-only memory.
        dl_device
            ``(1, 0)``, the host: a copy if it does not see the memory. ``(4, k)``: OpenCL memory of device number `k`
            of `pytensor_cl.devices`, on CPUs too. None is where the array is.
        copy
            True copies, False never does.

        Raises
        ------
        BufferError
            It cannot be exported without a copy, or to that device; or it is read-only, and the version has no flag.
        """
        return self.context.exports.dlpack(self, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return ``(1, 0)``, the host, where it sees the memory; else ``(4, k)``, number `k` of the devices."""
        return self.context.exports.dlpack_device()

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
                f"the truth value of an array of {self.size} elements is ambiguous: use np.asarray(r).any(), "
                "np.asarray(r).all() or r.size > 0"
            )
        return bool(self.to_host())

    def __repr__(self) -> str:
        rest = f"dtype={self.dtype}, context={self.context.name!r})"
        if not self.layout.shape:
            try:
                return f"GpuArray({self.item()}, {rest}"
            except Exception:
                pass  # a failing device must still be able to print its arrays
        return f"GpuArray(shape={self.shape}, {rest}"

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        if self.layout.shape:
            raise TypeError(
                f"the format {spec!r} is for one number, this array has shape {self.shape}: use np.asarray(r)"
            )
        return format(self.item(), spec)

    __add__ = __radd__ = _unsupported("+")
    __sub__ = __rsub__ = _unsupported("-")
    __mul__ = __rmul__ = _unsupported("*")
    __truediv__ = __rtruediv__ = _unsupported("/")
    __floordiv__ = __rfloordiv__ = _unsupported("//")
    __mod__ = __rmod__ = _unsupported("%")
    __pow__ = __rpow__ = _unsupported("**")
    __matmul__ = __rmatmul__ = _unsupported("@")
    __and__ = __rand__ = _unsupported("&")
    __or__ = __ror__ = _unsupported("|")
    __xor__ = __rxor__ = _unsupported("^")
    __lshift__ = __rlshift__ = _unsupported("<<")
    __rshift__ = __rrshift__ = _unsupported(">>")
    __lt__, __le__, __gt__, __ge__ = map(_unsupported, ("<", "<=", ">", ">="))
    __neg__, __pos__, __invert__, __abs__ = map(_unsupported, ("-", "+", "~", "abs()"))

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
        return self.context.exports.to_buffer(self, queue)

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
        return self.context.exports.host_view(self, writeable)

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
        return self.context.exports.map(self, mode)
