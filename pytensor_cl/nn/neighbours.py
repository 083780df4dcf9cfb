"""Neighbourhoods of images as rows of a matrix, and images of such rows."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.variable import TensorVariable

from pytensor_cl.integers import ceil_div
from pytensor_cl.nn.resampling import MakeTable, Table, WeightedTake, tables_of, transpose, transposed_tables
from pytensor_cl.nn.windows import as_variable

MAX_PLANE_ENTRIES = 1 << 20
"""The most entries of a table for both axes at once, 4 MB: larger images are taken along one axis after the other."""
MODES = ("valid", "half", "full", "ignore_borders", "wrap_centered")
_BEFORE: dict[str, Callable[[int], int]] = {
    "half": lambda k: k // 2,
    "full": lambda k: k - 1,
    "wrap_centered": lambda k: k // 2,
}
"""For each mode, how far the first neighbourhood begins before the image."""


def _check_lengths(mode: str, n: int, k: int, step: int, room: int) -> None:
    """Refuse lengths along an axis that do not fit together, as Theano does."""
    what = f"neighbourhoods of length {k} with step {step} along an axis of length {n}"
    if k < 1 or step < 1:
        raise ValueError(f"{what}: the length and the step must be positive")
    if mode == "wrap_centered" and k % 2 == 0:
        raise ValueError(f"{what}: mode 'wrap_centered' needs an odd length")
    if mode != "ignore_borders" and n < k:
        raise ValueError(f"{what}: mode {mode!r} needs an axis that is not shorter")
    if mode in ("valid", "half", "full") and room % step:
        raise ValueError(
            f"{what}: mode {mode!r} needs neighbourhoods that end with the image; 'ignore_borders' does not"
        )


def neighbours_table(mode: str, n: int, k: int, step: int) -> Table:
    """Return which of n elements along an axis are in the neighbourhoods, one after the other.

    Raises `ValueError`: the lengths do not fit together.
    """
    before = _BEFORE[mode](k) if mode in _BEFORE else 0
    room = n + (0 if mode == "wrap_centered" else 2 * before) - k
    _check_lengths(mode, n, k, step, room)
    count = ceil_div(n, step) if mode == "wrap_centered" else max(0, room // step + 1)
    index = (np.arange(count)[:, None] * step + np.arange(k) - before).reshape(1, -1)
    index = index % n if mode == "wrap_centered" else np.where((index >= 0) & (index < n), index, -1)
    return index.astype("int32"), None


def _of_planes(tables: Sequence[Variable], windows: Sequence[tuple[Any, Any]], width: Any) -> np.ndarray | None:
    """Return the table of all neighbourhoods of a plane; None if lengths are not known, or it would be large."""
    if not isinstance(width, int) or not all(isinstance(table, Constant) for table in tables):
        return None
    rows, columns = (t.data.reshape(-1, int(k)) for t, (k, _) in zip(tables, windows, strict=True))
    if rows.size * columns.size > MAX_PLANE_ENTRIES:
        return None
    r, c = rows[:, None, :, None], columns[None, :, None, :]
    return np.where((r < 0) | (c < 0), -1, r * width + c).reshape(1, -1).astype("int32")


def _numbers(value: Any, count: int, name: str) -> list[Any]:
    """Return integers of Python, or 0-d variables, of a sequence or a vector."""
    if isinstance(value, Variable) and not isinstance(value, Constant):
        if value.type.ndim != 1 or value.type.dtype not in pt.type.integer_dtypes:
            raise TypeError(f"{name} must have {count} integers, not the type {value.type}")
        return [value[k] for k in range(count)]
    entries = list(np.asarray(value.data) if isinstance(value, Constant) else value)
    if len(entries) != count:
        raise ValueError(f"{name} must have {count} entries, not {value!r}")
    for entry in entries:
        symbolic = isinstance(entry, Variable) and entry.type.ndim == 0 and entry.type.dtype in pt.type.integer_dtypes
        if not symbolic and (not isinstance(entry, int | np.integer) or isinstance(entry, bool)):
            raise TypeError(f"{name} must be integers, or 0-d integer variables, not {value!r}")
    return [v if isinstance(v, Variable) else int(v) for v in entries]


def _windows(neib_shape: Any, neib_step: Any, mode: str) -> list[tuple[Any, Any]]:
    """Return the length and the step along both axes."""
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(map(repr, MODES))}, not {mode!r}")
    lengths = _numbers(neib_shape, 2, "neib_shape")
    steps = lengths if neib_step is None else _numbers(neib_step, 2, "neib_step")
    return list(zip(lengths, steps, strict=True))


def _table(mode: str, n: Any, window: tuple[Any, Any]) -> Variable:
    return tables_of(MakeTable(neighbours_table, (mode,), 1, False), n, *window)[0]


def _is_identity(index: Variable, length: Any) -> bool:
    """Return whether a table is known to name each element once, in order."""
    return isinstance(index, Constant) and np.array_equal(
        index.data[0], np.arange(length if isinstance(length, int) else -1)
    )


def _has_gaps(mode: str) -> bool:
    return mode in ("half", "full")


def _lengths_of(x: Variable) -> list[Any]:
    """Return the lengths of the axes: numbers where they are known."""
    return [x.shape[a] if n is None else n for a, n in enumerate(x.type.shape)]


def _results(index: Variable) -> Any:
    """Return how many results a table has: a number if it is known."""
    return index.shape[1] if index.type.shape[1] is None else index.type.shape[1]


def images2neibs(ten4: Any, neib_shape: Any, neib_step: Any = None, mode: str = "valid") -> TensorVariable:
    """Return the neighbourhoods of the pixels of images as the rows of a matrix.

    The function of ``theano.tensor.nnet.neighbours``, with a gradient for every step.

    Parameters
    ----------
    ten4
        Images, shape (N, C, H, W); any dtype.
    neib_shape
        Height and width of a neighbourhood: two integers or 0-d variables, or a vector.
    neib_step
        Distance from one neighbourhood to the next along both axes; None: they touch each other.
    mode
        ``"valid"``: neighbourhoods inside of the image, the last of which must end with it; ``"ignore_borders"``:
        what is left over at the end is ignored; ``"half"`` and ``"full"``: as ``"valid"`` of the image with half a
        neighbourhood, or one less a pixel, of zeros around it; ``"wrap_centered"``: one around each pixel, or each that
        the step leads to, of an image that continues on the other side.

    Returns
    -------
    Variable
        Matrix with a row for each neighbourhood, in the order of images, channels, rows and columns; the pixels of one
        are in the order of rows and columns.

    Raises
    ------
    TypeError
        `ten4` has not four dimensions, or a length is no integer.
    ValueError
        There is no such mode, or the lengths do not fit together, in the call if they are not known before.

    Examples
    --------
    >>> import numpy as np, pytensor.tensor as pt
    >>> from pytensor_cl import nn
    >>> image = pt.constant(np.arange(16).reshape(1, 1, 4, 4))
    >>> nn.images2neibs(image, (2, 2)).eval()
    array([[ 0,  1,  4,  5],
           [ 2,  3,  6,  7],
           [ 8,  9, 12, 13],
           [10, 11, 14, 15]])
    """
    x = as_variable(ten4, "ten4")
    if x.type.ndim != 4:
        raise TypeError(f"ten4 must have 4 dimensions, (N, C, H, W), not {x.type.ndim}")
    windows, (images, channels, height, width) = _windows(neib_shape, neib_step, mode), _lengths_of(x)
    (kh, _), (kw, _) = windows
    tables = [_table(mode, n, window) for n, window in zip((height, width), windows, strict=True)]
    rows, columns = map(_results, tables)
    plane = _of_planes(tables, windows, width)
    if plane is not None:
        taken = WeightedTake(axis=-1, has_gaps=_has_gaps(mode))(x.reshape((images, channels, height * width)), plane)
    else:
        for axis, n, index in zip((-2, -1), (height, width), tables, strict=True):
            x = x if _is_identity(index, n) else WeightedTake(axis=axis, has_gaps=_has_gaps(mode))(x, index)
        taken = x.reshape((images, channels, rows // kh, kh, columns // kw, kw)).transpose(0, 1, 2, 4, 3, 5)
    return taken.reshape((images * channels * (rows // kh) * (columns // kw), kh * kw))


def neibs2images(
    neibs: Any, neib_shape: Any, original_shape: Any, mode: str = "valid", neib_step: Any = None
) -> TensorVariable:
    """Return images of the neighbourhoods that `images2neibs` makes of them.

    Pixels that are in several neighbourhoods are added up, as ``torch.nn.functional.fold`` does; those in none are
    zero. Where neighbourhoods touch each other this is the inverse of `images2neibs`, as in Theano.

    Parameters
    ----------
    neibs
        Matrix with a row for each neighbourhood; any dtype.
    neib_shape, mode, neib_step
        Arguments that `images2neibs` had.
    original_shape
        Shape of the images, (N, C, H, W): four integers or 0-d variables, or a vector.

    Returns
    -------
    Variable
        Images of `original_shape`.

    Raises
    ------
    TypeError
        `neibs` is no matrix, or a length is no integer.
    ValueError
        There is no such mode, or the lengths do not fit together, in the call if they are not known before.
    """
    matrix = as_variable(neibs, "neibs")
    if matrix.type.ndim != 2:
        raise TypeError(f"neibs must be a matrix, not of {matrix.type.ndim} dimensions")
    windows, shape = _windows(neib_shape, neib_step, mode), _numbers(original_shape, 4, "original_shape")
    images, channels, height, width = shape
    (kh, _), (kw, _) = windows
    tables = [_table(mode, n, window) for n, window in zip((height, width), windows, strict=True)]
    rows, columns = map(_results, tables)
    plane = _of_planes(tables, windows, width)
    if plane is not None:
        taken = matrix.reshape((images, channels, rows * columns))
        table = pt.constant(transpose(plane, height * width)[0])
        return WeightedTake(axis=-1, has_gaps=True)(taken, table).reshape(tuple(shape))
    parts = matrix.reshape((images, channels, rows // kh, columns // kw, kh, kw))
    x = parts.transpose(0, 1, 2, 4, 3, 5).reshape((images, channels, rows, columns))
    for axis, n, index in zip((-2, -1), (height, width), tables, strict=True):
        if not _is_identity(index, n):
            x = WeightedTake(axis=axis, has_gaps=True)(x, *transposed_tables(index, [], pt.as_tensor_variable(n)))
    return x
