"""Resizing of images: sums of weighted elements along one axis after the other.

Where each element comes from, and with which weight, is in tables, which do not depend on the data. So the gradient is
an operation of the same kind with the transposed tables: nothing is scattered.
"""

from collections.abc import Callable, Sequence
from math import floor
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.replace import _vectorize_node
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.blockwise import vectorize_node_fallback
from pytensor.tensor.type import TensorType, float_dtypes, integer_dtypes
from pytensor.tensor.variable import TensorVariable

from pytensor_cl.nn.batches import shared_entry
from pytensor_cl.nn.marker import Marker
from pytensor_cl.nn.windows import as_flag, as_variable

Table = tuple[np.ndarray, np.ndarray | None]
"""Two arrays (taps, length): the element that each tap of each result reads, -1 for none, and its weight, or None."""

MAX_SEPARATE_TAPS = 8
"""The most taps that are terms of a sum in the graph; more are summed by one reduction."""


_SAME_LENGTH = CheckAndRaise(ValueError, "arrays of a batch made by vectorize_graph need one length for all entries")

# Weighted sums along an axis


def working_dtype(dtype: str) -> str:
    """Return the dtype in which sums of a dtype are computed."""
    return "float32" if dtype == "float16" else dtype


class WeightedTake(Marker):
    """Sums of weighted elements along an axis: (x, index[, weight]) -> y.

    ``y[..., i, ...]`` is the sum over k of ``weight[k, i] * x[..., index[k, i], ...]``; without `weight` each weight is
    one. `axis` is counted from the last one (-1). An index of -1 stands for no element if `has_gaps`; other negative
    ones are not allowed.
    """

    __props__ = ("axis", "has_gaps")
    axis: int
    has_gaps: bool

    def build_inner_graph(self, x: Variable, index: Variable, *weights: Variable) -> list[Variable]:
        """Return the sum of the taps, in their order."""
        work = working_dtype(x.type.dtype)
        taps = index.type.shape[0]
        x = self._with_an_element(x) if self.has_gaps else x
        if taps is None or taps > MAX_SEPARATE_TAPS:
            return [pt.cast(self._sum_of_many(pt.cast(x, work), index, *weights), x.type.dtype)]
        terms = [self._taps(pt.cast(x, work), index[k], *(w[k] for w in weights)) for k in range(taps)]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return [pt.cast(total, x.type.dtype)]

    def _with_an_element(self, x: Variable) -> Variable:
        """Return x with a zero along the axis if nothing is there: gaps read an element before they drop it."""
        if x.type.shape[self.axis]:
            return x
        shape = list(x.shape)
        shape[self.axis] = 1 - pt.minimum(shape[self.axis], 1)
        return pt.join(x.type.ndim + self.axis, x, pt.zeros(shape, dtype=x.type.dtype))

    def _sum_of_many(self, x: Variable, index: Variable, *weights: Variable) -> Variable:
        """Return the sum of many taps, or of a number that is known in the call only."""
        taken = self._taps(x, index.ravel(), *(w.ravel() for w in weights))
        axis = x.type.ndim + self.axis
        shape = [*x.shape[:axis], index.shape[0], index.shape[1], *x.shape[axis + 1 :]]
        return taken.reshape(shape, ndim=x.type.ndim + 1).sum(axis=axis, dtype=x.type.dtype)

    def _taps(self, x: Variable, index: Variable, *weights: Variable) -> Variable:
        """Return one weighted element for each index of a vector."""
        leading = (slice(None),) * (x.type.ndim + self.axis)
        behind = tuple(range(1, -self.axis))
        taken = x[(*leading, pt.maximum(index, 0) if self.has_gaps else index)]
        for weight in weights:
            taken = taken * pt.cast(pt.expand_dims(weight, behind), x.type.dtype)
        if self.has_gaps:
            taken = pt.switch(pt.expand_dims(pt.ge(index, 0), behind), taken, np.zeros((), taken.type.dtype))
        return taken

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Return the shape of x with the number of results along the axis."""
        shape = list(shapes[0])
        shape[self.axis] = shapes[1][1]
        return [tuple(shape)]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Return that only x has a gradient."""
        return [[i == 0] for i in range(len(node.inputs))]

    def _transposed(self, inputs: Sequence[Variable], gradient: Variable) -> Variable:
        x, index, *weights = inputs
        length = x.type.shape[self.axis]
        tables = transposed_tables(index, weights, x.shape[self.axis] if length is None else pt.constant(length))
        return WeightedTake(axis=self.axis, has_gaps=True)(gradient, *tables)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        """Return the same operation with transposed tables."""
        tables = [disconnected_type() for _ in inputs[1:]]
        return [self._transposed(inputs, cotangents[0]), *tables]

    def pushforward(self, inputs: Any, outputs: Any, tangents: Any) -> list[Variable]:
        """Return the same operation: it is linear."""
        return [WeightedTake(axis=self.axis, has_gaps=self.has_gaps)(tangents[0], *inputs[1:])]


@_vectorize_node.register(WeightedTake)
def _vectorize_take(op: WeightedTake, node: Apply, x: Variable, *tables: Variable) -> Any:
    if any(new.type.ndim != old.type.ndim for new, old in zip(tables, node.inputs[1:], strict=True)):
        return vectorize_node_fallback(op, node, x, *tables)
    return WeightedTake(axis=op.axis, has_gaps=op.has_gaps)(x, *tables).owner


# Tables


class MakeTable(Op):
    """Tables of numbers that are known in the call only: (integers, ...) -> index[, weight].

    `function`: returns them; `arguments`: its first arguments; `taps`: their number.
    """

    __props__ = ("function", "arguments", "taps", "has_weights")

    def __init__(
        self, function: Callable[..., Table], arguments: tuple[Any, ...], taps: int, has_weights: bool
    ) -> None:
        self.function = function
        self.arguments = arguments
        self.taps = taps
        self.has_weights = has_weights

    def make_node(self, *numbers: Any) -> Apply:
        """Make a node; the numbers are 0-d integers."""
        inputs = [pt.cast(pt.as_tensor_variable(n), "int64") for n in numbers]
        dtypes = ("int32", "float64") if self.has_weights else ("int32",)
        return Apply(self, inputs, [TensorType(dtype, (self.taps, None))() for dtype in dtypes])

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        """Make the tables."""
        made = self.function(*self.arguments, *map(int, inputs))
        for storage, table in zip(output_storage, made, strict=False):
            storage[0] = table


class TransposeTable(Op):
    """Tables of the transposed operation: (index, length[, weight]) -> index[, weight]."""

    __props__ = ()

    def make_node(self, index: Any, length: Any, *weights: Any) -> Apply:
        """Make a node; `length` is that of the axis that `index` refers to."""
        inputs = [*map(pt.as_tensor_variable, (index, length, *weights))]
        outputs = [TensorType(v.type.dtype, (None, None))() for v in (inputs[0], *inputs[2:])]
        return Apply(self, inputs, outputs)

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        """Sort the entries by the elements that they read."""
        index, length, *weights = inputs
        for storage, table in zip(output_storage, transpose(index, int(length), *weights), strict=True):
            storage[0] = table


@_vectorize_node.register(MakeTable)
@_vectorize_node.register(TransposeTable)
def _vectorize_table(op: Op, node: Apply, *inputs: Variable) -> Any:
    """Return the tables that all entries of a batch have in common: their arrays have the same lengths."""
    pairs = list(zip(inputs, node.inputs, strict=True))
    if any(new.type.ndim != old.type.ndim and old.type.ndim for new, old in pairs):
        return vectorize_node_fallback(op, node, *inputs)
    return op.make_node(*(_one_number(new) if not old.type.ndim else new for new, old in pairs))


def _one_number(numbers: Variable) -> Variable:
    """Return the number that all elements must be, with a check in the call."""
    if not numbers.type.ndim:
        return numbers
    first = shared_entry(numbers)
    return _SAME_LENGTH(first, pt.eq(numbers, first).all())


def transpose(index: np.ndarray, length: int, *weights: np.ndarray) -> list[np.ndarray]:
    """Return the tables of the transposed operation; a row has its entries in the order of what they belonged to."""
    reads = index.T.ravel()  # the results, and the taps of each
    entries = np.flatnonzero(reads >= 0)
    entries = entries[np.argsort(reads[entries], kind="stable")]
    elements = reads[entries]
    counts = np.bincount(elements, minlength=length)
    taps = max(1, int(counts.max(initial=0)))
    tap = np.arange(len(entries)) - (np.cumsum(counts) - counts)[elements]
    made = np.full((taps, length), -1, index.dtype)
    made[tap, elements] = entries // max(1, index.shape[0])
    tables = [made]
    for weight in weights:
        moved = np.zeros((taps, length), weight.dtype)
        moved[tap, elements] = weight.T.ravel()[entries]
        tables.append(moved)
    return tables


def transposed_tables(index: Variable, weights: Sequence[Variable], length: Variable) -> list[Variable]:
    """Return tables of the transposed operation: constants if the tables are and the length is known."""
    known = _constant(length)
    if known is not None and all(isinstance(v, Constant) for v in (index, *weights)):
        return [pt.constant(t) for t in transpose(index.data, known, *(w.data for w in weights))]
    tables: list[Variable] = TransposeTable().make_node(index, length, *weights).outputs
    return tables


def _constant(length: Any) -> int | None:
    """Return a length that is known when the graph is built; None if it is not."""
    if isinstance(length, int):
        return length
    value = pt.get_underlying_scalar_constant_value(length, raise_not_constant=False)
    return None if isinstance(value, Variable) else int(value)


def tables_of(op: MakeTable, *numbers: Any) -> list[Variable]:
    """Return tables: constants if all numbers are known."""
    known = [_constant(n) for n in numbers]
    if any(n is None for n in known):
        tables: list[Variable] = op.make_node(*numbers).outputs
        return tables
    made = op.function(*op.arguments, *known)
    return [pt.constant(table) for table in made if table is not None]


def _nearest(n: int, m: int, factor: float | None, shift: int) -> np.ndarray:
    """Return which of n elements each of m results is; `shift`: 1 for the nearest to centres, else 0."""
    i = np.arange(m)
    found = (2 * i + shift) * n // (2 * m) if factor is None else np.floor((i + shift / 2) / factor).astype("int64")
    return np.minimum(found, n - 1)


def _positions(n: int, m: int, factor: float | None, align_corners: bool) -> np.ndarray:
    """Return the positions of m results between n elements, which are at 0 to n - 1."""
    i = np.arange(m)
    if align_corners:
        return i * ((n - 1) / (m - 1)) if m > 1 else np.zeros(m)
    return (i + 0.5) * (n / m if factor is None else 1 / factor) - 0.5


_CUBIC = -0.75
"""The parameter of Keys' cubic convolution that torch and OpenCV use; others use -0.5."""


def _cubic_weights(t: np.ndarray) -> list[np.ndarray]:
    """Return the weights of four neighbours for positions t from 0 to 1 behind the second one (Keys 1981)."""

    def near(x: np.ndarray) -> np.ndarray:
        result: np.ndarray = ((_CUBIC + 2) * x - (_CUBIC + 3)) * x * x + 1
        return result

    def far(x: np.ndarray) -> np.ndarray:
        result: np.ndarray = ((_CUBIC * x - 5 * _CUBIC) * x + 8 * _CUBIC) * x - 4 * _CUBIC
        return result

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def resize_table(kind: str, align_corners: bool, factor: float | None, n: int, m: int) -> Table:
    """Return the tables of resizing n elements to m.

    Raises `ValueError`: a length is not positive.
    """
    if n < 1 or m < 1:
        raise ValueError(f"resize makes {m} elements of {n} along an axis: both numbers must be positive")
    if kind == "nearest of images" and m in (n, 2 * n):  # torch's kernel for two axes alone does so
        factor = None
    if kind.startswith("nearest"):
        return _nearest(n, m, factor, int(kind == "nearest-exact"))[None].astype("int32"), None
    positions = _positions(n, m, None if kind == "linear" and m == n else factor, align_corners)  # as torch
    if kind == "linear":
        positions = np.maximum(positions, 0)
    first = np.minimum(np.floor(positions).astype("int64"), n - 1)
    t = np.clip(positions - first, 0, 1)
    offsets, weights = ((0, 1), [1 - t, t]) if kind == "linear" else (range(-1, 3), _cubic_weights(t))
    index = np.stack([np.clip(first + k, 0, n - 1) for k in offsets])
    return index.astype("int32"), np.stack(weights)


# The function


_KINDS = {
    "nearest": ("nearest", (1, 2, 3)),
    "nearest-exact": ("nearest-exact", (1, 2, 3)),
    "linear": ("linear", (1,)),
    "bilinear": ("linear", (2,)),
    "trilinear": ("linear", (3,)),
    "bicubic": ("cubic", (2,)),
}
"""For each mode, the interpolation along an axis, and the numbers of axes that the mode is for."""

_TAPS = {"nearest": 1, "nearest of images": 1, "nearest-exact": 1, "linear": 2, "cubic": 4}


def _per_axis(value: Any, ndim: int, name: str) -> list[Any]:
    """Return one entry for each axis.

    Raises `ValueError`: there is another number of them.
    """
    entries = list(value) if isinstance(value, list | tuple | np.ndarray) and np.ndim(value) else [value] * ndim
    if len(entries) != ndim:
        raise ValueError(f"{name} must have an entry for each of the {ndim} axes behind the second, not {value!r}")
    return entries


def _as_length(value: Any) -> Any:
    """Return a length of the output, a number or a 0-d variable."""
    if isinstance(value, Variable):
        if value.type.ndim == 0 and value.type.dtype in integer_dtypes:
            return value
    elif isinstance(value, int | np.integer) and not isinstance(value, bool):
        if value < 1:
            raise ValueError(f"lengths in size must be positive, not {value}")
        return int(value)
    raise TypeError(f"size must be integers, or 0-d integer variables, not {value!r}")


def _as_factor(value: Any) -> float:
    """Return a factor as a number."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"scale_factor must be numbers, not {value!r}")
    if not 0 < value < float("inf"):
        raise ValueError(f"scale_factor must be positive and finite, not {value!r}")
    return float(value)


def _resized(n: Any, factor: float) -> Any:
    """Return the length after a factor; `n` may be symbolic."""
    known = _constant(n)
    if known is None:
        return pt.cast(pt.floor(pt.cast(n, "float64") * factor), "int64")
    if floor(known * factor) < 1:
        raise ValueError(f"scale_factor {factor} leaves nothing of an axis of length {known}")
    return floor(known * factor)


def _targets(x: Variable, size: Any, scale_factor: Any) -> list[tuple[Any, float | None]]:
    """Return for each axis the length of the output, and the factor if it is given."""
    ndim = x.type.ndim - 2
    if (size is None) == (scale_factor is None):
        given = "neither" if size is None else "both"
        raise ValueError(f"resize takes one of size and scale_factor; {given} of them was given")
    if size is not None:
        return [(_as_length(m), None) for m in _per_axis(size, ndim, "size")]
    factors = [_as_factor(f) for f in _per_axis(scale_factor, ndim, "scale_factor")]
    lengths = [x.shape[2 + k] if n is None else n for k, n in enumerate(x.type.shape[2:])]
    return [(_resized(n, f), f) for n, f in zip(lengths, factors, strict=True)]


def _growth(length: Any, target: Any) -> float:
    """Return by how much an axis grows; 1 if that is not known."""
    n, m = _constant(length), _constant(target)
    return 1.0 if n is None or m is None else m / max(n, 1)


def resize(
    input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool = False
) -> TensorVariable:
    """Resize images, or arrays of one or three dimensions, by interpolation.

    The results are those of ``torch.nn.functional.interpolate`` without antialiasing. Where images shrink by more than
    a half, blur them before, or use `adaptive_pool`.

    Parameters
    ----------
    input
        Shape (N, C, W), (N, C, H, W) or (N, C, D, H, W); float16, float32 or float64, for the modes of nearest elements
        any other dtype too.
    size
        Length of the output along each axis behind the second, or one for all: integers or 0-d variables.
    scale_factor
        Factor for each of these axes, or one for all, instead of `size`: numbers. The length is ``floor(n * factor)``;
        positions are computed from the factor as it is.
    mode
        ``"nearest"``, element ``floor(i * n / m)`` of n for result i of m; ``"nearest-exact"``, the element nearest to
        the centre of the result; ``"linear"``, ``"bilinear"`` and ``"trilinear"`` for one, two and three axes;
        ``"bicubic"`` for two, by Keys' convolution with a = -0.75.
    align_corners
        Whether the centres of the first and the last elements of the input and the output are at the same places, in
        place of their outer edges; not for the modes of nearest elements.

    Returns
    -------
    Variable
        Shape (N, C, ...) of the new lengths, in the dtype of `input`.

    Raises
    ------
    TypeError
        `input` has a number of dimensions that is not that of `mode`, or has to be cast to floating point; an argument
        is of the wrong kind.
    ValueError
        There is no such mode; neither or both of `size` and `scale_factor` are given; a length is not positive, in the
        call if it is symbolic.

    Examples
    --------
    >>> import numpy as np, pytensor.tensor as pt
    >>> from pytensor_cl import nn
    >>> nn.resize(pt.constant(np.array([[[0.0, 4.0]]])), size=4, mode="linear").eval()
    array([[[0., 1., 3., 4.]]])
    """
    x = as_variable(input, "input")
    if mode not in _KINDS:
        raise ValueError(f"mode must be one of {', '.join(map(repr, _KINDS))}, not {mode!r}")
    kind, ndims = _KINDS[mode]
    is_nearest, is_aligned = kind.startswith("nearest"), as_flag(align_corners, "align_corners")
    if x.type.ndim - 2 not in ndims:
        wanted = " to ".join(str(2 + n) for n in sorted({ndims[0], ndims[-1]}))
        raise TypeError(f"mode {mode!r} takes an input of {wanted} dimensions, (N, C, ...), not of {x.type.ndim}")
    if is_aligned and is_nearest:
        raise ValueError(f"align_corners has no meaning with mode {mode!r}, which takes elements as they are")
    if not is_nearest and x.type.dtype not in float_dtypes:
        raise TypeError(
            f"input of resize must be of floating point for mode {mode!r}, not {x.type.dtype}: cast it first"
        )
    kind = "nearest of images" if kind == "nearest" and x.type.ndim == 4 else kind
    targets = _targets(x, size, scale_factor)
    lengths = [x.shape[2 + k] if n is None else n for k, n in enumerate(x.type.shape[2:])]
    result = x
    # Axes that shrink come first: the others have fewer elements then.
    for k in sorted(range(len(targets)), key=lambda k: _growth(lengths[k], targets[k][0])):
        (target, factor), axis = targets[k], k - len(targets)
        make = MakeTable(resize_table, (kind, is_aligned, factor), _TAPS[kind], not is_nearest)
        tables = tables_of(make, lengths[k], target)
        weights = [pt.cast(w, working_dtype(x.type.dtype)) for w in tables[1:]]
        result = WeightedTake(axis=axis, has_gaps=False)(result, tables[0], *weights)
    return result
