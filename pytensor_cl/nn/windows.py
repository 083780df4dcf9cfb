"""Sliding windows along the dimensions of an array: their number and elements."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor import as_tensor_variable
from pytensor.tensor.type import integer_dtypes

from pytensor_cl.integers import ceil_div

Pad = tuple[Any, Any] | str
Pads = tuple[Pad, ...]
"""The padding before and after in each dimension, which may be symbolic, or the name of a border mode."""

BORDER_MODES = ("valid", "half", "full")


class Window(NamedTuple):
    """A window along one dimension; all may be symbolic."""

    extent: Any
    stride: Any = 1
    dilation: Any = 1
    before: Any = 0
    after: Any = 0

    @property
    def reach(self) -> Any:
        """Elements from the first to the last of a window."""
        return (self.extent - 1) * self.dilation + 1


def _is_integer(value: Any) -> bool:
    """Return whether a value is a number of Python or NumPy that is an integer by its type."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _items(value: Any) -> tuple[Any, ...] | None:
    """Return the elements of a list, a tuple or a NumPy array; None of anything else."""
    if isinstance(value, np.ndarray):
        return tuple(value) if value.ndim else None
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str | bytes) else None


def _is_symbolic(value: Any) -> bool:
    """Return whether a value is a 0-d integer variable."""
    return isinstance(value, Variable) and getattr(value.type, "ndim", None) == 0 and value.type.dtype in integer_dtypes


def _entry(value: Any, message: str, least: int) -> Any:
    """Return an integer, or a 0-d integer variable that is checked in the call; a constant is an integer.

    Raises `TypeError`: it is neither.
    """
    if _is_integer(value):
        return int(value)
    if not _is_symbolic(value):
        raise TypeError(message)
    if getattr(value, "data", None) is not None:
        return int(value.data)
    problem = message.partition(", not ")[0]
    return CheckAndRaise(ValueError, problem)(pt.cast(value, "int64"), pt.ge(value, least))


def as_symbolic_ints(value: Any, ndim: int, name: str) -> tuple[Any, ...]:
    """Return one positive integer per dimension, or a 0-d integer variable, which is checked in the call.

    Raises `TypeError`: one is neither. Raises `ValueError`: there are not so many, or one is too small.
    """
    is_one = _is_integer(value) or isinstance(value, Variable)
    values = (value,) * ndim if is_one else _items(value)
    each = f", or {ndim} of them, one for each dimension" if ndim > 1 else ""
    message = f"{name} must be a positive integer or a 0-d integer variable{each}, not {value!r}"
    if values is None:
        raise TypeError(message)
    entries = tuple(_entry(v, message, 1) for v in values)
    if len(values) != ndim or any(isinstance(v, int) and v < 1 for v in entries):
        raise ValueError(message)
    return entries


def split(value: Any) -> tuple[Any, list[Variable]]:
    """Return nested tuples with None in place of each variable, and the variables in order."""
    if isinstance(value, Variable):
        return None, [value]
    if not isinstance(value, tuple):
        return value, []
    parts = [split(v) for v in value]
    return tuple(template for template, _ in parts), [v for _, variables in parts for v in variables]


def filled(template: Any, values: Iterator[Any]) -> Any:
    """Return nested tuples with the next value in place of each None."""
    if template is None:
        return next(values)
    return tuple(filled(t, values) for t in template) if isinstance(template, tuple) else template


def as_ints(value: Any, ndim: int, name: str, least: int = 1) -> tuple[int, ...]:
    """Return one integer per dimension.

    Raises `TypeError`: one is no integer, or symbolic. Raises `ValueError`: there are not so many, or one is too small.
    """
    values = (value,) * ndim if _is_integer(value) else _items(value)
    kind = "a positive integer" if least == 1 else f"an integer from {least}"
    each = f", or {ndim} of them, one for each dimension" if ndim > 1 else ""
    message = f"{name} must be {kind}{each}, not {value!r}"
    if values is None or not all(map(_is_integer, values)):
        hint = ": it has to be known when the graph is built" if isinstance(value, Variable) else ""
        raise TypeError(message + hint)
    if len(values) != ndim or any(v < least for v in values):
        raise ValueError(message)
    return tuple(map(int, values))


def as_flag(value: Any, name: str) -> bool:
    """Return a boolean.

    Raises `TypeError`: it is neither True nor False, nor 1 or 0.
    """
    if not isinstance(value, bool | np.bool_) and not (_is_integer(value) and value in (0, 1)):
        raise TypeError(f"{name} must be True or False, not {value!r}")
    return bool(value)


def as_variable(value: Any, name: str) -> Variable:
    """Return an array as a tensor variable.

    Raises `TypeError`: PyTensor makes no tensor of it.
    """
    try:
        return as_tensor_variable(value)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise TypeError(f"{name} must be a tensor or an array, not {value!r}") from error


def refuse_keywords(name: str, given: dict[str, Any], known_elsewhere: dict[str, str]) -> None:
    """Refuse keyword arguments that a function does not have; `known_elsewhere`: what to say of those of others.

    Raises `TypeError`: there is one.
    """
    for keyword in given:
        hint = f": {known_elsewhere[keyword]}" if keyword in known_elsewhere else ""
        raise TypeError(f"{name}() got an unexpected keyword argument {keyword!r}{hint}")


def with_static_shape(x: Variable, shape: Any, name: str) -> Variable:
    """Return `x` with the lengths that a shape knows, checked in the call.

    Raises `TypeError`: the shape is no sequence of integers and None. Raises `ValueError`: it contradicts `x`.
    """
    if shape is None:
        return x
    message = f"{name} must be None, or {x.type.ndim} integers or None, not {shape!r}"
    lengths = _items(shape)
    if lengths is None:
        raise TypeError(message)
    lengths = tuple(getattr(n, "data", n) for n in lengths)
    if not all(n is None or _is_integer(n) or (isinstance(n, np.ndarray) and n.dtype.kind in "iu") for n in lengths):
        raise TypeError(message)
    lengths = tuple(n if n is None else int(n) for n in lengths)
    if len(lengths) != x.type.ndim or any(n is not None and n < 0 for n in lengths):
        raise ValueError(message)
    pairs = list(zip(lengths, x.type.shape, strict=True))
    if any(known(n, m) and n != m for n, m in pairs):
        raise ValueError(f"{name}={shape!r}, but the array has the static shape {x.type.shape}")
    return pt.specify_shape(x, lengths) if any(n is not None and m is None for n, m in pairs) else x


def _as_pad(value: Any, ndim: int, name: str, modes: Sequence[str], whole: Any) -> Pad:
    """Return the padding of one dimension; `whole` is the argument that it is from."""
    plain = f"{', '.join(map(repr, modes))} or an integer from 0" if modes else "an integer from 0"
    each = f"for each of the {ndim} dimensions" if ndim > 1 else "a sequence of one entry that is"
    message = f"{name} must be {plain}, or {each} one of these or a pair (before, after), not {whole!r}"
    if isinstance(value, str) and modes:
        if value not in modes:
            raise ValueError(message)
        return (0, 0) if value == "valid" else value
    pad = (value, value) if _is_integer(value) or isinstance(value, Variable) else _items(value)
    if pad is None or not (modes or all(map(_is_integer, pad))):
        hint = ": it has to be known when the graph is built" if isinstance(value, Variable) else ""
        raise TypeError(message + hint)
    entries = tuple(_entry(p, message, 0) for p in pad)
    if len(entries) != 2 or any(isinstance(p, int) and p < 0 for p in entries):
        raise ValueError(message)
    return entries


def as_pads(value: Any, ndim: int, name: str = "border_mode", modes: Sequence[str] = BORDER_MODES) -> Pads:
    """Return per dimension the padding before and after, or a border mode from which it follows for known lengths.

    `modes`: the names that it may be; if there are any, integers may be 0-d integer variables, which are checked in the
    call. Raises `TypeError`: one is no integer. Raises `ValueError`: there are not so many, one is negative, or there
    is no such border mode.
    """
    values = _items(value)
    if values is None:
        return (_as_pad(value, ndim, name, modes, value),) * ndim
    if len(values) != ndim:
        raise ValueError(f"{name} must have {ndim} entries, one for each dimension, not {value!r}")
    return tuple(_as_pad(v, ndim, name, modes, value) for v in values)


def resolve(pad: Pad, extent: Any, dilation: Any) -> tuple[Any, Any]:
    """Return the padding before and after for a window of that extent."""
    if not isinstance(pad, str):
        return pad
    reach = (extent - 1) * dilation + 1
    width = reach // 2 if pad == "half" else reach - 1
    return width, width


def known(*values: Any) -> bool:
    """Return whether none is None, as unknown static lengths are."""
    return all(v is not None for v in values)


def _at_least_zero(count: Any, is_possible: Any) -> Any:
    """Return a number of places; zero where it is not possible."""
    if isinstance(count, Variable) or isinstance(is_possible, Variable):
        return pt.switch(is_possible & pt.ge(count, 0), count, 0)
    return max(count, 0) if is_possible else 0


def positions(length: Any, window: Window) -> Any:
    """Return how many places a kernel has along a dimension; `length` may be symbolic."""
    room = length + window.before + window.after - window.reach
    return _at_least_zero(room // window.stride + 1, window.extent > 0)


def pool_positions(length: Any, window: Window, ceil: bool) -> Any:
    """Return how many places a pooling window has along a dimension; `length` may be symbolic.

    With `ceil` the last window may reach out of the padded dimension, if it begins before its end and not in the
    padding behind it. There is none where there is nothing to pool.
    """
    room = length + window.before + window.after - window.reach
    if not ceil:
        return _at_least_zero(room // window.stride + 1, length > 0)
    count = ceil_div(room, window.stride) + 1
    begins_behind = (count - 1) * window.stride >= length + window.before
    one = pt.cast(begins_behind, "int64") if isinstance(count, Variable) else int(begins_behind)
    return _at_least_zero(count - one, length > 0)


def padded(x: np.ndarray, windows: Sequence[Window], counts: Sequence[int], fill: Any) -> np.ndarray:
    """Return `x` with padding about its last dimensions, so that the given numbers of windows fit into each."""
    leading = x.ndim - len(windows)
    widths = [(0, 0)] * leading
    for n, w, count in zip(x.shape[leading:], windows, counts, strict=True):
        end = (count - 1) * w.stride + w.reach
        widths.append((w.before, max(w.after, end - n - w.before)))
    return np.pad(x, widths, constant_values=fill) if np.any(widths) else x


def views(x: np.ndarray, windows: Sequence[Window], counts: Sequence[int]) -> np.ndarray:
    """Return the elements of windows along the last dimensions of a padded array.

    `x`: shape (..., n1, n2...); all windows fit. Returns shape (..., counts..., extents...); a view.
    """
    leading, strides = x.ndim - len(windows), x.strides
    steps = [s * w.stride for s, w in zip(strides[leading:], windows, strict=True)]
    inside = [s * w.dilation for s, w in zip(strides[leading:], windows, strict=True)]
    shape = (*x.shape[:leading], *counts, *(w.extent for w in windows))
    return np.lib.stride_tricks.as_strided(x, shape, (*strides[:leading], *steps, *inside), writeable=x.flags.writeable)
