"""Graphs of small arrays as OpenCL C: each element of an array is a scalar expression.

Operations that only move elements are NumPy's, on object arrays of expressions; all others are written element by
element. A dimension whose length is unknown, or too large to be unrolled, is an *axis*: work-items and vector lanes
share it out, and there is one expression for all of it. Only elementwise operations may touch an axis.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from pytensor import scalar as ps
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.basic import (
    Alloc,
    AllocEmpty,
    ExtractDiag,
    Join,
    MakeVector,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
)
from pytensor.tensor.blas import Dot22, Dot22Scalar, Gemm, Gemv
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Argmax, Dot
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    indices_from_subtensor,
)
from pytensor.tensor.type import TensorType

from pytensor_cl.codegen.dtypes import is_special, is_supported
from pytensor_cl.codegen.emitter import Emitter, Value
from pytensor_cl.disjoint_sets import DisjointSets
from pytensor_cl.scalar.base import emit
from pytensor_cl.scalar.integer_division import divides_integers, is_nonzero

MOST_STATEMENTS = 3000
"""Statements of an unrolled graph; compilers take seconds for more."""

Tags = tuple[int | None, ...]


class CannotUnroll(TypeError):
    """A graph cannot be unrolled; the message is the reason."""


class Cells(NamedTuple):
    """The elements of a variable."""

    values: np.ndarray  # object array of expressions, with length one along axes
    tags: Tags  # axis of each dimension; None if its elements are separate expressions

    @property
    def has_axes(self) -> bool:
        """Whether a dimension is an axis."""
        return any(tag is not None for tag in self.tags)


class Axes(DisjointSets[int]):
    """Numbers of axes. Dimensions that an elementwise operation aligns have one axis: their numbers are joined."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0

    def new(self) -> int:
        """Return the number of a new axis."""
        self._next += 1
        return self._next - 1

    def join(self, first: int, second: int) -> None:
        """Make two axes one; the smaller number stands for both."""
        super().join(*sorted((self.root(first), self.root(second))))


def _objects(shape: Sequence[int], values: Iterable[Any]) -> np.ndarray:
    """Return an object array of expressions; NumPy must not look into them."""
    result = np.empty(tuple(shape), dtype=object)
    flat = result.reshape(-1)
    for k, value in enumerate(values):
        flat[k] = value
    return result


def _core(values: np.ndarray) -> Cells:
    return Cells(values, (None,) * values.ndim)


def _constant_integer(variable: Variable | None, what: str) -> int | None:
    """Return the value of a constant integer; None stays None."""
    if variable is None:
        return None
    while variable.owner is not None and isinstance(variable.owner.op, ScalarFromTensor | TensorFromScalar):
        (variable,) = variable.owner.inputs
    if not isinstance(variable, Constant):
        raise CannotUnroll(f"{what} is not known when the function is compiled")
    return None if variable.data is None else int(variable.data)


class Unroller:
    """Writes the nodes of a graph in turn."""

    def __init__(self, emitter: Emitter, axes: Axes, most: int) -> None:
        self.emitter = emitter
        self.axes = axes
        self._most = most
        self._known: dict[Variable, Cells] = {}

    def run(self, graph: FunctionGraph, inputs: Sequence[Cells]) -> list[Cells]:
        """Write all nodes; return the outputs."""
        self._known = dict(zip(graph.inputs, inputs, strict=True))
        for node in graph.toposort():
            if _computes_lengths(node):
                continue  # read where a length is needed
            outputs = self._rule(node.op)(self, node)
            if len(self.emitter.statements) > self._most:
                raise CannotUnroll(f"a step has more than {self._most} operations on numbers")
            self._known.update(zip(node.outputs, outputs, strict=True))
        return [self.cells(v) for v in graph.outputs]

    @staticmethod
    def _rule(op: Op) -> "Rule":
        core = op.core_op if isinstance(op, Blockwise) else op
        table = _BATCHED if isinstance(op, Blockwise) else _RULES
        for kind in type(core).__mro__:
            if kind in table:
                return table[kind]
        raise CannotUnroll(f"no form of {type(core).__name__} inside a loop yet")

    def cells(self, variable: Variable) -> Cells:
        """Return the elements of a variable."""
        if variable not in self._known:
            if not isinstance(variable, Constant):
                raise CannotUnroll(f"a shape inside the loop, {variable}, is used as a value")
            self._known[variable] = self._constant(variable)
        return self._known[variable]

    def core(self, variable: Variable) -> np.ndarray:
        """Return the elements of a variable that has no axes."""
        cells = self.cells(variable)
        if cells.has_axes:
            raise CannotUnroll("a dimension whose length is unknown or large is used other than elementwise")
        return cells.values

    def _constant(self, variable: Constant) -> Cells:
        dtype = check_dtype(variable.type)
        data = np.asarray(variable.data)
        if data.size > self._most:
            raise CannotUnroll(f"a constant inside the loop has {data.size} elements")
        return _core(_objects(data.shape, (self.emitter.literal(x, dtype) for x in data.reshape(-1))))

    def scalar(self, op: ps.ScalarOp, values: Sequence[Any], dtypes: Sequence[str]) -> tuple[Any, ...]:
        """Write a scalar Op."""
        return emit(self.emitter, op, tuple(values), dtypes)

    def cast(self, value: Any, dtype: str) -> Any:
        """Write a cast."""
        return self.emitter.bind(value.cast(dtype))

    def multiply_add(self, x: Any, y: Any, total: Any) -> Any:
        """Write ``x * y + total``, or ``x * y`` if there is no total."""
        # One statement: the compiler may contract it to a fused multiply-add.
        product = x * y
        return self.emitter.bind(product if total is None else product + total)

    def aligned(self, operands: Sequence[Cells]) -> Tags:
        """Join the axes at each position of operands of one number of dimensions; return the tags of the result."""
        tags: list[int | None] = []
        for position in range(len(operands[0].tags)):
            found = [tag for cells in operands if (tag := cells.tags[position]) is not None]
            lengths = {n for cells in operands if (n := cells.values.shape[position]) != 1}
            if found and lengths:
                raise CannotUnroll("a dimension whose length is unknown meets one of known length")
            for other in found[1:]:
                self.axes.join(found[0], other)
            tags.append(found[0] if found else None)
        return tuple(tags)

    def length(self, variable: Variable) -> tuple[int, int | None]:
        """Return the length and the tag of a dimension that an integer of the graph stands for."""
        while variable.owner is not None and isinstance(variable.owner.op, ScalarFromTensor | TensorFromScalar):
            (variable,) = variable.owner.inputs
        found = _dimension(variable)
        if found is not None:
            cells = self.cells(found[0])
            return cells.values.shape[found[1]], cells.tags[found[1]]
        length = _constant_integer(variable, "the length of an array inside the loop")
        assert length is not None
        return length, None


def _computes_lengths(node: Apply) -> bool:
    parts = node.inputs if isinstance(node.op, MakeVector) else node.outputs
    return isinstance(node.op, Shape) or any(_dimension(v) is not None for v in parts)


def _dimension(variable: Variable) -> tuple[Variable, int] | None:
    """Return the array, and the dimension, whose length a number of the graph is."""
    node = variable.owner
    if node is not None and isinstance(node.op, Shape_i):
        return node.inputs[0], node.op.i
    shape = None if node is None or not node.inputs else node.inputs[0].owner
    if shape is None or not isinstance(shape.op, Shape):
        return None
    if isinstance(node.op, DimShuffle) and not node.op.new_order:
        return shape.inputs[0], 0
    if not isinstance(node.op, Subtensor):
        return None
    (entry,) = indices_from_subtensor(node.inputs[1:], node.op.idx_list)
    at = None if isinstance(entry, slice) else _constant_integer(entry, "an index inside the loop")
    return None if at is None else (shape.inputs[0], at)


Rule = Callable[[Unroller, Apply], list[Cells]]


def check_dtype(kind: Any) -> str:
    """Return the dtype of a Type, if loops can compute with it."""
    if not isinstance(kind, TensorType | ScalarType):
        raise CannotUnroll(f"{type(kind).__name__} values live on the host")
    if not is_supported(kind.dtype) or is_special(kind.dtype):
        raise CannotUnroll(f"no form of {kind.dtype} inside a loop yet")
    return str(kind.dtype)


def _elemwise(run: Unroller, node: Apply) -> list[Cells]:
    operands = [run.cells(v) for v in node.inputs]
    if not operands:
        raise CannotUnroll("an elementwise function without inputs")
    if divides_integers(node) and not is_nonzero(node.inputs[1]):
        raise CannotUnroll("whole numbers inside the loop are divided by what may be zero")
    tags = run.aligned(operands)
    arrays = np.broadcast_arrays(*(cells.values for cells in operands))
    dtypes = [check_dtype(v.type) for v in node.outputs]
    results = [run.scalar(node.op.scalar_op, values, dtypes) for values in zip(*(a.flat for a in arrays), strict=True)]
    shape = arrays[0].shape
    return [Cells(_objects(shape, (r[k] for r in results)), tags) for k in range(len(dtypes))]


def _dimshuffle(run: Unroller, node: Apply) -> list[Cells]:
    cells, order = run.cells(node.inputs[0]), node.op.new_order
    kept = [d for d in order if d != "x"]
    dropped = [d for d in range(cells.values.ndim) if d not in kept]
    if any(cells.tags[d] is not None or cells.values.shape[d] != 1 for d in dropped):
        raise CannotUnroll("a dimension is dropped whose length is not known to be one")
    values = np.squeeze(cells.values, tuple(dropped)) if dropped else cells.values
    remaining = [d for d in range(cells.values.ndim) if d not in dropped]
    values = values.transpose([remaining.index(d) for d in kept])
    index = (..., *(None if d == "x" else slice(None) for d in order))  # with an ellipsis the result is an array
    return [Cells(values[index], tuple(None if d == "x" else cells.tags[d] for d in order))]


def _reduced(run: Unroller, op: ps.ScalarOp, values: Sequence[Any], dtype: str) -> Any:
    """Write the reduction of some expressions: pairs of neighbours first, so that chains of operations are short."""
    while len(values) > 1:
        pairs = [run.scalar(op, values[k : k + 2], [dtype])[0] for k in range(0, len(values) - 1, 2)]
        values = [*pairs, *values[len(pairs) * 2 :]]
    return values[0]


def _careduce(run: Unroller, node: Apply) -> list[Cells]:
    cells, op = run.cells(node.inputs[0]), node.op
    ndim = cells.values.ndim
    axes = tuple(range(ndim)) if op.axis is None else tuple(op.axis)
    if any(cells.tags[d] is not None for d in axes):
        raise CannotUnroll("a dimension whose length is unknown or large is reduced")
    dtype = check_dtype(node.outputs[0].type)
    acc_dtype = getattr(op, "acc_dtype", None) or dtype
    kept = [d for d in range(ndim) if d not in axes]
    values = cells.values.transpose([*kept, *axes])
    shape = values.shape[: len(kept)]
    rows = values.reshape((*shape, -1)) if values.size else values.reshape((*shape, 0))
    if rows.shape[-1] == 0 and getattr(op.scalar_op, "identity", None) is None:
        raise CannotUnroll("a reduction of no elements, which has no value")

    def total(row: np.ndarray) -> Any:
        if not len(row):
            return run.emitter.literal(op.scalar_op.identity, dtype)
        parts = [run.cast(value, acc_dtype) for value in row]
        return run.cast(_reduced(run, op.scalar_op, parts, acc_dtype), dtype)

    result = _objects(shape, (total(rows[index]) for index in np.ndindex(shape)))
    return [Cells(result, tuple(cells.tags[d] for d in kept))]


def _dot_values(run: Unroller, x: np.ndarray, y: np.ndarray, dtype: str) -> np.ndarray:
    """Write a product of matrices or vectors."""
    left = x if x.ndim == 2 else x[None, :]
    right = y if y.ndim == 2 else y[:, None]
    if left.shape[1] != right.shape[0]:
        raise CannotUnroll(f"a product of shapes {x.shape} and {y.shape}")
    result = np.empty((left.shape[0], right.shape[1]), dtype=object)
    left = _objects(left.shape, (run.cast(v, dtype) for v in left.flat))
    right = _objects(right.shape, (run.cast(v, dtype) for v in right.flat))
    for i, j in np.ndindex(result.shape):
        total = run.emitter.literal(0, dtype) if not left.shape[1] else None
        for k in range(left.shape[1]):
            total = run.multiply_add(left[i, k], right[k, j], total)
        result[i, j] = total
    return result.reshape((*x.shape[:-1], *y.shape[1:]))


def _dot(run: Unroller, node: Apply) -> list[Cells]:
    x, y = map(run.core, node.inputs)
    return [_core(_dot_values(run, x, y, check_dtype(node.outputs[0].type)))]


def _scaled_sum(run: Unroller, beta: Any, addend: np.ndarray, alpha: Any, product: np.ndarray, dtype: str) -> Cells:
    """Write ``beta * addend + alpha * product``."""

    def element(a: Any, p: Any) -> Any:
        first, second = (run.scalar(ps.mul, pair, [dtype])[0] for pair in ((beta, a), (alpha, p)))
        return run.scalar(ps.add, (first, second), [dtype])[0]

    pairs = zip(*(a.flat for a in np.broadcast_arrays(addend, product)), strict=True)
    return _core(_objects(product.shape, (element(*pair) for pair in pairs)))


def _gemm(run: Unroller, node: Apply) -> list[Cells]:
    """Gemm(C, alpha, A, B, beta) and Gemv(y, alpha, A, x, beta)."""
    addend, alpha, x, y, beta = map(run.core, node.inputs)
    dtype = check_dtype(node.outputs[0].type)
    return [_scaled_sum(run, beta[()], addend, alpha[()], _dot_values(run, x, y, dtype), dtype)]


def _dot22scalar(run: Unroller, node: Apply) -> list[Cells]:
    x, y, alpha = map(run.core, node.inputs)
    dtype = check_dtype(node.outputs[0].type)
    product = _dot_values(run, x, y, dtype)
    return [_core(_objects(product.shape, (run.scalar(ps.mul, (alpha[()], p), [dtype])[0] for p in product.flat)))]


def _matmul(run: Unroller, node: Apply) -> list[Cells]:
    """Blockwise(Dot) with batch dimensions, which may be axes."""
    x, y = map(run.cells, node.inputs)
    batch = node.op.batch_ndim(node)
    if any(tag is not None for cells in (x, y) for tag in cells.tags[batch:]):
        raise CannotUnroll("a product along a dimension whose length is unknown or large")
    heads = [Cells(_objects(c.values.shape[:batch], [None] * c.values.size), c.tags[:batch]) for c in (x, y)]
    tags = run.aligned(heads)
    shape = np.broadcast_shapes(*(c.values.shape[:batch] for c in (x, y)))
    left, right = (np.broadcast_to(c.values, (*shape, *c.values.shape[batch:])) for c in (x, y))
    dtype = check_dtype(node.outputs[0].type)
    products = [_dot_values(run, left[index], right[index], dtype) for index in np.ndindex(shape)]
    if not products:
        raise CannotUnroll("a product of no matrices")
    values = _objects((*shape, *products[0].shape), (v for p in products for v in p.flat))
    return [Cells(values, (*tags, *(None,) * products[0].ndim))]


def _index(run: Unroller, node: Apply, source: Cells, first: int) -> tuple[Any, ...]:
    """Return an index of constants, for all dimensions; axes may only be taken whole."""
    entries = indices_from_subtensor(node.inputs[first:], node.op.idx_list)
    index = [_constant_entry(entry) for entry in entries]
    index += [slice(None)] * (source.values.ndim - len(index))
    wholes = (slice(None), slice(0, None, 1), slice(None, None, 1))
    for tag, entry in zip(source.tags, index, strict=True):
        if tag is not None and not (isinstance(entry, slice) and entry in wholes):
            raise CannotUnroll("a dimension whose length is unknown or large is indexed")
    return tuple(index)


def _constant_entry(entry: Any) -> Any:
    """Return an entry of an index: a slice of constants, an integer, or an array of them."""
    what = "an index inside the loop"
    if isinstance(entry, slice):
        return slice(*(_constant_integer(v, what) for v in (entry.start, entry.stop, entry.step)))
    if getattr(entry.type, "ndim", 0):
        if not isinstance(entry, Constant):
            raise CannotUnroll(f"{what} is not known when the function is compiled")
        return np.asarray(entry.data)
    return _constant_integer(entry, what)


def _places(index: tuple[Any, ...], source: Cells) -> Cells:
    """Return the positions of the elements that an index takes, and the tags of its result."""
    positions = np.arange(source.values.size).reshape(source.values.shape)
    try:
        places = np.asarray(positions[index])
    except IndexError as error:
        raise CannotUnroll(f"an index inside the loop is out of bounds: {error}") from error
    if any(isinstance(entry, np.ndarray) for entry in index):
        if source.has_axes:
            raise CannotUnroll("an array is indexed by an array along a dimension whose length is unknown or large")
        return Cells(places, (None,) * places.ndim)
    return Cells(places, tuple(t for t, entry in zip(source.tags, index, strict=True) if isinstance(entry, slice)))


def _subtensor(run: Unroller, node: Apply) -> list[Cells]:
    source = run.cells(node.inputs[0])
    places = _places(_index(run, node, source, 1), source)
    flat = source.values.reshape(-1)
    return [Cells(_objects(places.values.shape, (flat[k] for k in places.values.flat)), places.tags)]


def _inc_subtensor(run: Unroller, node: Apply) -> list[Cells]:
    source, value = run.cells(node.inputs[0]), run.cells(node.inputs[1])
    places = _places(_index(run, node, source, 2), source)
    missing = places.values.ndim - value.values.ndim
    value = Cells(value.values[(None,) * missing], (*(None,) * missing, *value.tags))
    if any((a is None) != (b is None) for a, b in zip(run.aligned([places, value]), places.tags, strict=True)):
        raise CannotUnroll("an update gives a dimension another length")
    dtype = check_dtype(node.outputs[0].type)
    result = _objects(source.values.shape, source.values.flat)
    flat = result.reshape(-1)
    for place, given in zip(places.values.flat, np.broadcast_to(value.values, places.values.shape).flat, strict=True):
        new = run.cast(given, dtype)
        flat[place] = new if node.op.set_instead_of_inc else run.scalar(ps.add, (flat[place], new), [dtype])[0]
    return [Cells(result, source.tags)]


def _join(run: Unroller, node: Apply) -> list[Cells]:
    parts = [run.cells(v) for v in node.inputs]
    axis = node.op.axis
    heads = [Cells(c.values.take([0], axis) if c.values.shape[axis] else c.values, c.tags) for c in parts]
    if any(c.tags[axis] is not None for c in parts):
        raise CannotUnroll("arrays are joined along a dimension whose length is unknown or large")
    tags = run.aligned(heads)
    dtype = check_dtype(node.outputs[0].type)
    joined = np.concatenate([c.values for c in parts], axis)
    return [Cells(_objects(joined.shape, (run.cast(v, dtype) for v in joined.flat)), tags)]


def _make_vector(run: Unroller, node: Apply) -> list[Cells]:
    dtype = check_dtype(node.outputs[0].type)
    return [_core(_objects((len(node.inputs),), (run.cast(run.core(v)[()], dtype) for v in node.inputs)))]


def _reshape(run: Unroller, node: Apply) -> list[Cells]:
    values = run.core(node.inputs[0])
    return [_core(values.reshape(_lengths(run, node.inputs[1], "a shape inside the loop is")))]


def _lengths(run: Unroller, variable: Variable, what: str) -> list[int]:
    """Return the values of a vector of lengths."""
    if isinstance(variable, Constant):
        return [int(n) for n in variable.data]
    if variable.owner is None or not isinstance(variable.owner.op, MakeVector):
        raise CannotUnroll(f"{what} not known when the function is compiled")
    found = [run.length(v) for v in variable.owner.inputs]
    if any(tag is not None for _, tag in found):
        raise CannotUnroll(f"{what} unknown or large")
    return [length for length, _ in found]


def _alloc(run: Unroller, node: Apply) -> list[Cells]:
    value = run.cells(node.inputs[0])
    lengths, tags = zip(*map(run.length, node.inputs[1:]), strict=True) if len(node.inputs) > 1 else ((), ())
    missing = len(lengths) - value.values.ndim
    padded = Cells(value.values[(None,) * missing], (*(None,) * missing, *value.tags))
    shape = Cells(_objects(lengths, [None] * int(np.prod(lengths))), tuple(tags))
    return [Cells(np.broadcast_to(padded.values, lengths), run.aligned([padded, shape]))]


def _alloc_empty(run: Unroller, node: Apply) -> list[Cells]:
    lengths, tags = zip(*map(run.length, node.inputs), strict=True) if node.inputs else ((), ())
    zero = run.emitter.literal(0, check_dtype(node.outputs[0].type))
    return [Cells(_objects(lengths, [zero] * int(np.prod(lengths))), tuple(tags))]


def _extract_diag(run: Unroller, node: Apply) -> list[Cells]:
    op = node.op
    return [_core(run.core(node.inputs[0]).diagonal(op.offset, op.axis1, op.axis2))]


def _split(run: Unroller, node: Apply) -> list[Cells]:
    source = run.cells(node.inputs[0])
    axis: int = node.op.axis
    sizes = _lengths(run, node.inputs[-1], "the lengths of parts inside the loop are")
    if source.tags[axis] is not None:
        raise CannotUnroll("an array is split along a dimension whose length is unknown or large")
    parts = np.split(source.values, np.cumsum(sizes)[:-1], axis)
    return [Cells(part, source.tags) for part in parts]


def _argmax(run: Unroller, node: Apply) -> list[Cells]:
    values, op = run.core(node.inputs[0]), node.op
    axes = tuple(range(values.ndim)) if op.axis is None else tuple(op.axis)
    kept = [d for d in range(values.ndim) if d not in axes]
    dtype = check_dtype(node.inputs[0].type)
    ordered = values.transpose([*kept, *axes])
    shape = ordered.shape[: len(kept)]
    rows = ordered.reshape((*shape, -1))
    if not rows.shape[-1]:
        raise CannotUnroll("the largest of no elements")

    def place(row: np.ndarray) -> Any:
        best, where = row[0], run.emitter.literal(0, "int64")
        for k in range(1, len(row)):
            # The first NaN, or else the first of the largest, as NumPy has it.
            larger = row[k] > best
            is_new = larger if np.dtype(dtype).kind != "f" else (larger | (row[k].is_nan() & ~best.is_nan()))
            chosen = run.emitter.bind(is_new.as_bool()).is_true()
            where = run.emitter.bind(run.emitter.select(chosen, run.emitter.literal(k, "int64"), where))
            best = run.emitter.bind(run.emitter.select(chosen, row[k], best))
        return where

    return [_core(_objects(shape, (place(rows[index]) for index in np.ndindex(shape))))]


def _same(run: Unroller, node: Apply) -> list[Cells]:
    """Ops that hand on their first input."""
    return [run.cells(node.inputs[0])]


_RULES: dict[type[Op], Rule] = {
    AdvancedIncSubtensor: _inc_subtensor,
    AdvancedSubtensor: _subtensor,
    Alloc: _alloc,
    AllocEmpty: _alloc_empty,
    Argmax: _argmax,
    CAReduce: _careduce,
    DeepCopyOp: _same,
    DimShuffle: _dimshuffle,
    Dot: _dot,
    Dot22: _dot,
    Dot22Scalar: _dot22scalar,
    Elemwise: _elemwise,
    ExtractDiag: _extract_diag,
    Gemm: _gemm,
    Gemv: _gemm,
    IncSubtensor: _inc_subtensor,
    Join: _join,
    MakeVector: _make_vector,
    Reshape: _reshape,
    ScalarFromTensor: _same,
    SpecifyShape: _same,
    Split: _split,
    Subtensor: _subtensor,
    TensorFromScalar: _same,
    ViewOp: _same,
}
_BATCHED: dict[type[Op], Rule] = {Dot: _matmul}


def unroll(
    graph: FunctionGraph, inputs: Sequence[Cells], emitter: Emitter, axes: Axes, most: int = MOST_STATEMENTS
) -> list[Cells]:
    """Write a graph of tensors element by element.

    `inputs`: the elements of its inputs. `axes`: the axes of the inputs; elementwise operations join some. Returns the
    elements of the outputs. Raises `CannotUnroll`: an Op has no such form, or there would be too many statements.
    Raises `pytensor_cl.scalar.base.Unsupported`: a scalar Op has no OpenCL C.
    """
    return Unroller(emitter, axes, most).run(graph, inputs)


def input_value(emitter: Emitter, name: str, dtype: str) -> Value:
    """Return the expression of an element of an input."""
    value = emitter.input(name, dtype)
    assert isinstance(value, Value)
    return value
