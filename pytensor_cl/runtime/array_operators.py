"""Operators and methods of device arrays that compute. The functions are in `pytensor_cl.array`, a layer above."""

import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any, Self

Axis = int | Sequence[int] | None


@cache
def _above(name: str) -> Any:
    """Return a module of `pytensor_cl.array`, loaded at the first use: it imports PyTensor."""
    return import_module(f"pytensor_cl.array.{name}")


def _binary(name: str) -> Any:
    """Return the method of an operator."""

    def method(self: Any, other: Any, /) -> Any:
        return _above("operators").binary(name, self, other)

    method.__name__ = f"__{name}__"
    return method


def _reflected(name: str) -> Any:
    """Return the method of an operator whose left operand does not know device arrays."""

    def method(self: Any, other: Any, /) -> Any:
        return _above("operators").binary(name, other, self)

    method.__name__ = f"__r{name}__"
    return method


def _inplace(name: str) -> Any:
    """Return the method of an operator that changes its left operand."""

    def method(self: Any, other: Any, /) -> Any:
        return _above("operators").inplace(name, self, other)

    method.__name__ = f"__i{name}__"
    return method


def _unary(name: str) -> Any:
    def method(self: Any, /) -> Any:
        return _above("operators").unary(name, self)

    method.__name__ = f"__{name}__"
    return method


class ArrayOperators:
    """Operators, indexing, assignment and methods of `GpuArray`."""

    __slots__ = ()

    context: Any  # a Context

    __add__, __radd__, __iadd__ = _binary("add"), _reflected("add"), _inplace("add")
    __sub__, __rsub__, __isub__ = _binary("sub"), _reflected("sub"), _inplace("sub")
    __mul__, __rmul__, __imul__ = _binary("mul"), _reflected("mul"), _inplace("mul")
    __truediv__, __rtruediv__, __itruediv__ = _binary("truediv"), _reflected("truediv"), _inplace("truediv")
    __floordiv__, __rfloordiv__, __ifloordiv__ = _binary("floordiv"), _reflected("floordiv"), _inplace("floordiv")
    __mod__, __rmod__, __imod__ = _binary("mod"), _reflected("mod"), _inplace("mod")
    __pow__, __rpow__, __ipow__ = _binary("pow"), _reflected("pow"), _inplace("pow")
    __matmul__, __rmatmul__, __imatmul__ = _binary("matmul"), _reflected("matmul"), _inplace("matmul")
    __and__, __rand__, __iand__ = _binary("and"), _reflected("and"), _inplace("and")
    __or__, __ror__, __ior__ = _binary("or"), _reflected("or"), _inplace("or")
    __xor__, __rxor__, __ixor__ = _binary("xor"), _reflected("xor"), _inplace("xor")
    __lshift__, __rlshift__, __ilshift__ = _binary("lshift"), _reflected("lshift"), _inplace("lshift")
    __rshift__, __rrshift__, __irshift__ = _binary("rshift"), _reflected("rshift"), _inplace("rshift")
    __eq__, __ne__, __lt__, __le__, __gt__, __ge__ = map(_binary, ("eq", "ne", "lt", "le", "gt", "ge"))
    __neg__, __pos__, __invert__, __abs__ = map(_unary, ("neg", "pos", "invert", "abs"))
    # Arrays that are equal would need the same hash; NumPy's have none either.
    __hash__ = None  # type: ignore[assignment]

    def __divmod__(self, other: Any, /) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any, /) -> Any:
        return other // self, other % self

    def __setitem__(self, index: Any, value: Any, /) -> None:
        """Assign to elements, as NumPy does; nothing waits.

        Parameters
        ----------
        index
            An index, as indexing takes it.
        value
            A number, a device array, or an array of the host, which is uploaded; it broadcasts, and is cast.

        Raises
        ------
        IndexError
            An index of the host is out of bounds. One in a device array is found by the next wait.
        ValueError
            The array is read-only, or the shapes do not fit.
        """
        _above("indexing").assign(self, index, value)

    def _representation(self) -> str:
        """Return the text of ``repr`` if it shows values; empty if it does not."""
        printing = sys.modules.get("pytensor_cl.array.printing")  # not loaded: nobody has asked for values
        return printing.representation(self) if printing is not None and printing.shows_values() else ""

    def _values_text(self) -> str:
        return _above("printing").values_text(self)

    def _dense_copy(self) -> Self:
        """Return a C-contiguous copy, by a kernel that tiles what is transposed."""
        return _above("launches").copied(self)

    def _take_index(self, index: Any) -> Self:
        """Return what an index with arrays, or other integers than Python's, selects."""
        return _above("indexing").take_index(self, index)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """Return the module of functions of the Python array API standard, `pytensor_cl.array`.

        Raises `ValueError`: it has not that version of the standard.
        """
        return _above("info").namespace(api_version)

    def __contains__(self, item: Any, /) -> bool:
        found = _above("operators").binary("eq", self, item)
        return found is not NotImplemented and bool(found.any())

    # NumPy's functions

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Compute a ufunc of NumPy's on the device; raises a TypeError if it has no kernel."""
        return _above("protocols").array_ufunc(ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        """Compute a function of NumPy's on the device; raises a TypeError if it has no kernel."""
        return _above("protocols").array_function(function, types, arguments, options)

    # Types and devices

    @property
    def device(self) -> Any:
        """The device of the array, a `pytensor_cl.array.Device`."""
        return _above("device").Device(self.context.name)

    def to_device(self, device: Any, /, *, stream: None = None) -> Self:
        """Return the array on a device; itself if it is there (`pytensor_cl.array.to_device`)."""
        return _above("device").to_device(self, device, stream=stream)

    def astype(self, dtype: Any, /, *, copy: bool = True) -> Self:
        """Return the array with another dtype (`pytensor_cl.array.astype`)."""
        return _above("creation").astype(self, dtype, copy=copy)

    def fill(self, value: Any, /) -> None:
        """Set every element to a number; nothing waits."""
        _above("indexing").assign(self, ..., value)

    @property
    def real(self) -> Self:
        """The real parts, a view; a real array itself."""
        return _above("elementwise").real(self)

    @real.setter
    def real(self, value: Any) -> None:
        self.real[...] = value

    @property
    def imag(self) -> Self:
        """The imaginary parts, a view; zeros of a real array."""
        return _above("elementwise").imag(self)

    @imag.setter
    def imag(self, value: Any) -> None:
        if self.dtype.kind != "c":  # type: ignore[attr-defined]
            raise TypeError("a real array has no imaginary part to set")
        self.imag[...] = value

    def conj(self) -> Self:
        """Return complex conjugates; a real array itself."""
        return _above("elementwise").conj(self) if self.dtype.kind == "c" else self  # type: ignore[attr-defined]

    def clip(self, min: Any = None, max: Any = None) -> Self:
        """Limit elements to a range (`pytensor_cl.array.clip`)."""
        return _above("elementwise").clip(self, min, max)

    # Reductions, with NumPy's parameters

    def sum(self, axis: Axis = None, dtype: Any = None, out: Self | None = None, keepdims: bool = False) -> Self:
        """Return sums along dimensions (`pytensor_cl.array.sum`)."""
        return _above("reductions").sum(self, axis=axis, dtype=dtype, out=out, keepdims=keepdims)

    def prod(self, axis: Axis = None, dtype: Any = None, out: Self | None = None, keepdims: bool = False) -> Self:
        """Return products along dimensions (`pytensor_cl.array.prod`)."""
        return _above("reductions").prod(self, axis=axis, dtype=dtype, out=out, keepdims=keepdims)

    def max(self, axis: Axis = None, out: Self | None = None, keepdims: bool = False) -> Self:
        """Return the greatest elements along dimensions (`pytensor_cl.array.max`)."""
        return _above("reductions").max(self, axis=axis, out=out, keepdims=keepdims)

    def min(self, axis: Axis = None, out: Self | None = None, keepdims: bool = False) -> Self:
        """Return the least elements along dimensions (`pytensor_cl.array.min`)."""
        return _above("reductions").min(self, axis=axis, out=out, keepdims=keepdims)

    def mean(self, axis: Axis = None, dtype: Any = None, out: Self | None = None, keepdims: bool = False) -> Self:
        """Return means along dimensions (`pytensor_cl.array.mean`)."""
        return _above("reductions").mean(self, axis=axis, dtype=dtype, out=out, keepdims=keepdims)

    def var(self, axis: Axis = None, out: Self | None = None, ddof: float = 0, keepdims: bool = False) -> Self:
        """Return variances along dimensions (`pytensor_cl.array.var`, whose correction is `ddof`)."""
        return _above("reductions").var(self, axis=axis, out=out, correction=ddof, keepdims=keepdims)

    def std(self, axis: Axis = None, out: Self | None = None, ddof: float = 0, keepdims: bool = False) -> Self:
        """Return standard deviations along dimensions (`pytensor_cl.array.std`, whose correction is `ddof`)."""
        return _above("reductions").std(self, axis=axis, out=out, correction=ddof, keepdims=keepdims)

    def all(self, axis: Axis = None, out: Self | None = None, keepdims: bool = False) -> Self:
        """Return whether all elements along dimensions are true (`pytensor_cl.array.all`)."""
        return _above("reductions").all(self, axis=axis, out=out, keepdims=keepdims)

    def any(self, axis: Axis = None, out: Self | None = None, keepdims: bool = False) -> Self:
        """Return whether an element along dimensions is true (`pytensor_cl.array.any`)."""
        return _above("reductions").any(self, axis=axis, out=out, keepdims=keepdims)

    def argmax(self, axis: int | None = None, *, keepdims: bool = False) -> Self:
        """Return the indices of greatest elements (`pytensor_cl.array.argmax`)."""
        return _above("sorting").argmax(self, axis=axis, keepdims=keepdims)

    def argmin(self, axis: int | None = None, *, keepdims: bool = False) -> Self:
        """Return the indices of least elements (`pytensor_cl.array.argmin`)."""
        return _above("sorting").argmin(self, axis=axis, keepdims=keepdims)

    def argsort(self, axis: int = -1) -> Self:
        """Return the indices that sort the array (`pytensor_cl.array.argsort`)."""
        return _above("sorting").argsort(self, axis=axis)

    def sort(self, axis: int = -1) -> None:
        """Sort the array itself along a dimension, as NumPy's method does."""
        self[...] = _above("sorting").sort(self, axis=axis)

    def cumsum(self, axis: int | None = None, dtype: Any = None) -> Self:
        """Return cumulative sums; None is that of the flattened array (`pytensor_cl.array.cumsum`)."""
        return _above("statistics").cumsum(self, axis, dtype)

    def cumprod(self, axis: int | None = None, dtype: Any = None) -> Self:
        """Return cumulative products; None is that of the flattened array (`pytensor_cl.array.cumprod`)."""
        return _above("statistics").cumprod(self, axis, dtype)

    # Shapes

    @property
    def mT(self) -> Self:
        """The array with its last two dimensions exchanged; a view."""
        return _above("manipulation").matrix_transpose(self)

    def reshape(self, *shape: Any, copy: bool | None = None, order: str = "C") -> Self:
        """Return the elements in another shape: integers, or one sequence (`pytensor_cl.array.reshape`)."""
        wanted = shape[0] if len(shape) == 1 and not hasattr(shape[0], "__index__") else shape
        return _above("manipulation").reshape(self, wanted, copy=copy, order=order)

    def ravel(self, order: str = "C") -> Self:
        """Return the elements as a vector: a view where one is possible (`pytensor_cl.array.ravel`)."""
        return _above("manipulation").ravel(self, order)

    def flatten(self, order: str = "C") -> Self:
        """Return a copy of the elements as a vector."""
        return _above("manipulation").reshape(self, (-1,) if self.size else (0,), copy=True, order=order)  # type: ignore[attr-defined]

    def transpose(self, *axes: Any) -> Self:
        """Return a view with the dimensions in another order; reversed without arguments."""
        order = axes[0] if len(axes) == 1 and not hasattr(axes[0], "__index__") else axes or None
        return _above("manipulation").transpose(self, order)

    def squeeze(self, axis: Axis = None) -> Self:
        """Return a view without dimensions of length 1 (`pytensor_cl.array.squeeze`)."""
        return _above("manipulation").squeeze(self, axis)

    def swapaxes(self, axis1: int, axis2: int, /) -> Self:
        """Return a view with two dimensions exchanged."""
        return _above("manipulation").swapaxes(self, axis1, axis2)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Self:
        """Return a view of diagonals (`pytensor_cl.array.diagonal`)."""
        return _above("manipulation").diagonal(self, offset=offset, axis1=axis1, axis2=axis2)

    def trace(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Self:
        """Return the sums of diagonals."""
        return self.diagonal(offset, axis1, axis2).sum(axis=-1)

    def repeat(self, repeats: Any, axis: int | None = None) -> Self:
        """Repeat each element along a dimension (`pytensor_cl.array.repeat`)."""
        return _above("sorting").repeat(self, repeats, axis=axis)

    def take(self, indices: Any, axis: int | None = None) -> Self:
        """Return elements, or slices along a dimension, by number (`pytensor_cl.array.take`)."""
        return _above("indexing").take(self, indices, axis=axis)

    def nonzero(self) -> tuple[Self, ...]:
        """Return the indices of elements that are not zero; waits for the device."""
        return _above("indexing").nonzero(self)

    def searchsorted(self, values: Any, side: str = "left", sorter: Self | None = None) -> Self:
        """Return where values belong in a sorted vector (`pytensor_cl.array.searchsorted`)."""
        return _above("sorting").searchsorted(self, values, side=side, sorter=sorter)

    def dot(self, other: Any, /) -> Self:
        """Return the product with another array (`pytensor_cl.array.dot`)."""
        return _above("products").dot(self, other)

    def round(self, decimals: int = 0) -> Self:
        """Round to a number of decimals (`pytensor_cl.array.round`)."""
        return _above("elementwise").round(self, decimals)
