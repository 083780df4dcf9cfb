"""Scan as a loop program: which arrays it reads and writes, and one step as OpenCL C."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.scan.op import Scan, ScanInfo
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.type import TensorType

from pytensor_cl._compat import inner_graphs
from pytensor_cl.codegen.dtypes import needs_fp64
from pytensor_cl.codegen.emitter import Emitter, Value
from pytensor_cl.routines.scan_loop.program import (
    CONSTANT,
    LAST,
    OUTPUT,
    SEQUENCE,
    STATE,
    SUM,
    TIME,
    Carried,
    Dim,
    LinearStep,
    LoopArray,
    LoopProgram,
)
from pytensor_cl.scalar.base import Unsupported
from pytensor_cl.scalar.linear_step import Form, Root, form_of, is_float, unroll_forms
from pytensor_cl.scalar.unrolled import Axes, CannotUnroll, Cells, check_dtype, input_value, unroll

LARGE = 16
"""Length of a dimension from which it may be an axis although it is known."""
MOST_WINDOW = 16
"""Rows of an array that a work-item holds at a time, at most."""
MOST_HELD = 512
"""Values that a work-item holds from step to step, at most."""

# Dimensions that are axes, by their static length, in the order of preference.
_CHOICES: tuple[Callable[[int | None], bool], ...] = (
    lambda n: n != 1,
    lambda n: n is None,
    lambda n: n is None or n >= LARGE,
)


class _Names:
    """Names of the elements of inputs, and the axes of their dimensions."""

    def __init__(self, is_axis: Callable[[int | None], bool]) -> None:
        self._is_axis = is_axis

    def cells(self, number: int, kind: TensorType, emitter: Emitter, axes: Axes) -> Cells:
        """Return the elements of an input of the step."""
        dtype = check_dtype(kind)
        tags = tuple(axes.new() if self._is_axis(n) else None for n in kind.shape)
        shape = tuple(1 if tag is not None else n for tag, n in zip(tags, kind.shape, strict=True))
        if prod(n or 0 for n in shape) > MOST_HELD:
            raise CannotUnroll(f"an array inside the loop has {prod(n or 0 for n in shape)} elements")
        values = np.empty(shape, dtype=object)
        for e, index in enumerate(np.ndindex(*shape)):
            values[index] = input_value(emitter, f"x{number}_{e}", dtype)
        return Cells(values, tags)


@dataclass(frozen=True)
class _Written:
    """A step as text."""

    emitter: Emitter
    axes: Axes
    inputs: list[Cells]
    outputs: list[Cells]


@dataclass(frozen=True)
class LoopStep:
    """One step of a Scan as a step function (see `routines.scan_loop.program.StepFunction`)."""

    graph: FunctionGraph  # the inner graph, rewritten
    is_axis: Callable[[int | None], bool]  # tells from its static length whether a dimension of an input is an axis
    written: _Written = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "written", self._write(1))

    def _write(self, lanes: int) -> _Written:
        emitter, axes, names = Emitter(lanes), Axes(), _Names(self.is_axis)
        inputs = [names.cells(k, v.type, emitter, axes) for k, v in enumerate(self.graph.inputs)]
        outputs = unroll(self.graph, inputs, emitter, axes)
        return _Written(emitter, axes, inputs, outputs)

    @property
    def preambles(self) -> tuple[str, ...]:
        """Helper functions of the statements."""
        return tuple(self.written.emitter.preambles)

    @property
    def dtypes(self) -> frozenset[str]:
        """Every dtype that takes part."""
        variables = (*self.graph.inputs, *self.graph.outputs)
        return frozenset(self.written.emitter.dtypes).union(v.type.dtype for v in variables)

    @property
    def itemsize(self) -> int:
        """Bytes of the widest type that takes part."""
        return max((np.dtype(dtype).itemsize for dtype in self.dtypes), default=8)

    def statements(self, lanes: int) -> str:
        """Return statements that assign ``y<k>_<e>`` from ``x<k>_<e>``."""
        written = self._write(lanes)
        ends = [
            f"y{k}_{e} = {value.cast(v.type.dtype).text};"
            for k, (cells, v) in enumerate(zip(written.outputs, self.graph.outputs, strict=True))
            for e, value in enumerate(cells.values.flat)
        ]
        return "\n".join((*written.emitter.statements, *ends))

    def linear(self, arrays: Sequence[LoopArray], lanes: int) -> LinearStep | str:
        """Return the step as an affine map of the states, or the reason why it is none."""
        carried = [
            Carried(a, q, e)
            for a, array in enumerate(arrays)
            for q in _rows_between_steps(array)
            for e in range(len(array.elements))
        ]
        dtypes = {arrays[c.array].dtype for c in carried}
        if len(dtypes) != 1 or not is_float(*dtypes):
            return "its states are not floating-point numbers of one dtype" if dtypes else "it has no states"
        try:
            found = self._forms(arrays, carried, frozenset(), lanes)
            if not isinstance(found, LinearStep):
                found = self._forms(arrays, carried, found, lanes)
        except CannotUnroll as error:
            return str(error)
        return found if isinstance(found, LinearStep) else "a step is not an affine function of its states"

    def _forms(
        self, arrays: Sequence[LoopArray], carried: Sequence[Carried], roots: frozenset[int], lanes: int
    ) -> LinearStep | frozenset[int]:
        """Return the step as a map, `roots` by their squares, or else the states that are no affine functions."""
        emitter, axes, names = Emitter(lanes), Axes(), _Names(self.is_axis)
        inputs = [names.cells(k, v.type, emitter, axes) for k, v in enumerate(self.graph.inputs)]
        plain = [Form(arrays[c.array].dtype, None, {k: None}) for k, c in enumerate(carried)]
        states = {c: Root(plain[k]) if k in roots else plain[k] for k, c in enumerate(carried)}
        for a, array in enumerate(arrays):
            for k, tap in zip(array.reads, array.taps, strict=False):
                for e in range(len(array.elements)):
                    inputs[k].values.flat[e] = states.get(Carried(a, tap, e), inputs[k].values.flat[e])
        outputs = unroll_forms(self.graph, inputs, emitter)
        new = [_next_value(arrays[c.array], c, states, outputs, emitter) for c in carried]
        dtype = arrays[carried[0].array].dtype
        forms = [form_of(value, dtype, emitter, k in roots) for k, value in enumerate(new)]
        known = [form for form in forms if form is not None]
        if len(known) < len(forms):
            return frozenset(k for k, form in enumerate(forms) if form is None)
        # A state that only stays as it is keeps its sign, which its square has not; a square to which another state
        # is added may become negative.
        refused = {k for k in roots if new[k] in states.values() or not roots.issuperset(known[k].terms or ())}
        return frozenset(refused) or _linear_step(dtype, carried, known, roots, emitter)


def _rows_between_steps(array: LoopArray) -> range:
    """Return the rows of an array that one step hands to the next, as the kernel numbers them."""
    if array.role == SUM:
        return range(array.window - 1)
    return range(1, array.window + 1) if array.role in (STATE, LAST) else range(0)


def _next_value(
    array: LoopArray, state: Carried, states: Mapping[Carried, Form], outputs: Sequence[Cells], emitter: Emitter
) -> Any:
    """Return what a state is after a step."""
    number, row, e = state
    if array.role != SUM:
        return outputs[array.writes[0]].values.flat[e] if row == 1 else states[Carried(number, row - 1, e)]
    for k, tap in zip(array.writes, array.write_taps, strict=True):
        if tap == row + 1:
            return outputs[k].values.flat[e]
    return states.get(Carried(number, row + 1, e), input_value(emitter, f"l{number}_{e}", array.dtype))


def _linear_step(
    dtype: str, carried: Sequence[Carried], forms: Sequence[Form], roots: frozenset[int], emitter: Emitter
) -> LinearStep:
    def text(value: Value | None) -> str:
        return "" if value is None else emitter.bind(value).text

    bases = tuple(text(form.base) for form in forms)
    terms = tuple(tuple((k, text(c)) for k, c in (form.terms or {}).items()) for form in forms)
    read = {k for i, own in enumerate(terms) for k, c in own if k != i or c}
    columns = tuple(k for k in range(len(carried)) if k in read or not any(j == k for j, _ in terms[k]))
    statements, preambles = "\n".join(emitter.statements), tuple(emitter.preambles)
    return LinearStep(dtype, tuple(carried), columns, bases, terms, tuple(sorted(roots)), statements, preambles)


def _inner_graph(op: Scan) -> FunctionGraph:
    """Return the inner graph as PyTensor specialises it, without fusion."""
    graph = op.fgraph.unfreeze()
    inner_graphs.inline_op_from_graphs(graph)
    rewrite_graph(graph, include=("merge", "canonicalize", "stabilize", "specialize"), exclude=("inplace", "fusion"))
    inner_graphs.inline_op_from_graphs(graph)
    return graph


class _Builder:
    """Puts the arrays of a Scan together."""

    def __init__(
        self, info: ScanInfo, step: LoopStep, batch_axes: Sequence[int | None], input_types: Sequence[TensorType]
    ) -> None:
        self._info = info
        self._step = step
        self._batch_axes = tuple(batch_axes)
        self._types = iter(input_types[1:])
        self._numbers: dict[int, int] = {}  # axis of the step -> axis of the program
        self._first = sum(axis is not None for axis in batch_axes)

    @property
    def axes(self) -> int:
        """Number of axes."""
        return self._first + len(self._numbers)

    def _axis(self, tag: int) -> int:
        root = self._step.written.axes.root(tag)
        return self._numbers.setdefault(root, self._first + len(self._numbers))

    def _inner_dims(self, cells: Cells) -> tuple[Dim, ...]:
        return tuple(
            Dim("core", n) if tag is None else Dim("axis", self._axis(tag))
            for tag, n in zip(cells.tags, cells.values.shape, strict=True)
        )

    def _batch_dims(self, kind: TensorType | None) -> tuple[Dim, ...]:
        """Return the batch dimensions of an input, or (None) of an output."""
        lengths = [None] * len(self._batch_axes) if kind is None else kind.shape[: len(self._batch_axes)]
        return tuple(
            Dim("one", 1) if axis is None or n == 1 else Dim("axis", axis)
            for axis, n in zip(self._batch_axes, lengths, strict=True)
        )

    def _array(
        self,
        role: str,
        reads: Sequence[int],
        taps: Sequence[int] = (),
        writes: Sequence[int] = (),
        write_taps: Sequence[int] = (),
    ) -> LoopArray:
        kind, graph = next(self._types), self._step.graph
        inputs = [self._step.written.inputs[k] for k in reads]
        outputs = [self._step.written.outputs[k] for k in writes]
        self._agree([*inputs, *outputs])
        time = () if role in (CONSTANT, LAST) else (TIME,)
        inner = self._inner_dims((*inputs, *outputs)[0])
        dtype = (graph.inputs[reads[0]] if reads else graph.outputs[writes[0]]).type.dtype
        dims = (*self._batch_dims(kind), *time, *inner) if reads else ()
        out_dims = (*self._batch_dims(None), *time, *inner) if writes else ()
        array = LoopArray(role, dtype, dims, out_dims, tuple(reads), tuple(taps), tuple(writes), tuple(write_taps))
        if array.window > MOST_WINDOW:
            raise CannotUnroll(f"a step reads values of up to {array.window} steps ago")
        return array

    def _agree(self, cells: Sequence[Cells]) -> None:
        """Join the axes of what one array holds.

        Raises `CannotUnroll`: their shapes differ.
        """
        first, *others = cells
        for other in others:
            if first.values.shape != other.values.shape:
                raise CannotUnroll("an output of the step has another shape than the state that it becomes")
            for mine, its in zip(first.tags, other.tags, strict=True):
                if (mine is None) != (its is None):
                    raise CannotUnroll("an output of the step has another shape than the state that it becomes")
                if mine is not None and its is not None:
                    self._step.written.axes.join(mine, its)

    def arrays(self) -> tuple[list[LoopArray], list[int]]:
        """Return the arrays in the order of the inputs, and which are outputs, in their order."""
        info = self._info
        inputs, outputs = iter(range(info.n_inner_inputs)), iter(range(info.n_inner_outputs))

        def take(numbers: Iterator[int], count: int) -> list[int]:
            return [next(numbers) for _ in range(count)]

        found = [self._array(SEQUENCE, take(inputs, 1)) for _ in range(info.n_seqs)]
        found += [
            self._array(SUM, take(inputs, len(into)), into, take(outputs, len(out)), out)
            for into, out in zip(info.normalized_mit_mot_in_slices, info.normalized_mit_mot_out_slices, strict=True)
        ]
        found += [
            self._array(STATE, take(inputs, len(taps)), [-tap for tap in taps], take(outputs, 1))
            for taps in (*info.mit_sot_in_slices, *info.sit_sot_in_slices)
        ]
        traced = [k for k, a in enumerate(found) if a.role != SEQUENCE]
        nit_sot = take(outputs, info.n_nit_sot)
        last = [self._array(LAST, take(inputs, 1), [1], take(outputs, 1)) for _ in range(info.n_untraced_sit_sot)]
        results = [self._array(OUTPUT, (), (), [k]) for k in nit_sot]
        first = len(found)
        found += [*last, *results]
        found += [self._array(CONSTANT, take(inputs, 1), [0]) for _ in range(info.n_non_seqs)]
        order = [*traced, *(first + len(last) + k for k in range(len(results))), *(first + k for k in range(len(last)))]
        return found, order


def _batch_axes(op: Any, input_types: Sequence[TensorType]) -> list[int | None]:
    """Return the axis of each batch dimension of a Blockwise.

    Raises `CannotUnroll`: members of the batch may have different numbers of steps.
    """
    if not isinstance(op, Blockwise):
        return []
    core: Scan = op.core_op
    ndim = input_types[0].ndim
    info = core.info
    first = 1 + info.n_seqs + info.n_mit_mot + info.n_mit_sot + info.n_sit_sot + info.n_untraced_sit_sot
    for kind in (input_types[0], *input_types[first : first + info.n_nit_sot]):
        if any(n != 1 for n in kind.shape):
            raise CannotUnroll("members of a batch may have different numbers of steps")
    numbers = iter(range(ndim))
    is_axis = [any(kind.shape[d] != 1 for kind in input_types) for d in range(ndim)]
    return [next(numbers) if axis else None for axis in is_axis]


def loop_program(op: Any, input_types: Sequence[TensorType], has_fp64: bool = True) -> LoopProgram:
    """Return a Scan, or a Blockwise of one, as a loop in one kernel.

    Raises `CannotUnroll`: there is no such form; the message is the reason.
    """
    scan: Scan = op.core_op if isinstance(op, Blockwise) else op
    if scan.info.as_while and isinstance(op, Blockwise):
        raise CannotUnroll("members of a batch may have different numbers of steps")
    if scan.info.as_while and scan.info.n_mit_mot:
        raise CannotUnroll("a loop with a condition adds up gradients")
    for v in (*scan.fgraph.inputs, *scan.fgraph.outputs):
        check_dtype(v.type)
    batch_axes = _batch_axes(op, input_types)
    graph = _inner_graph(scan)
    reason = ""
    for is_axis in _CHOICES:
        try:
            return _program(scan.info, LoopStep(graph, is_axis), batch_axes, input_types, has_fp64)
        except (CannotUnroll, Unsupported) as error:
            reason = str(error) if not reason or is_axis is _CHOICES[1] else reason
    raise CannotUnroll(reason)


def _condition(info: ScanInfo, step: LoopStep) -> tuple[int | None, str]:
    """Return the number and the dtype of the output that ends a loop.

    Raises `CannotUnroll`: it is not the same for all members of the loop.
    """
    if not info.as_while:
        return None, "bool"
    number = info.n_inner_outputs - 1
    cells = step.written.outputs[number]
    if cells.values.size != 1 or any(tag is not None for tag in cells.tags):
        raise CannotUnroll("the condition is not a single number")
    return number, step.graph.outputs[number].type.dtype


def _program(
    info: ScanInfo,
    step: LoopStep,
    batch_axes: Sequence[int | None],
    input_types: Sequence[TensorType],
    has_fp64: bool,
) -> LoopProgram:
    if not has_fp64 and any(map(needs_fp64, step.dtypes)):
        raise CannotUnroll("it computes in float64, which the device does not have")
    builder = _Builder(info, step, batch_axes, input_types)
    builder.arrays()  # joins axes, so that the second time all numbers are final
    builder = _Builder(info, step, batch_axes, input_types)
    arrays, outputs = builder.arrays()
    program = LoopProgram(arrays, outputs, builder.axes, step, *_condition(info, step))
    if program.held > MOST_HELD:
        raise CannotUnroll(f"a step keeps {program.held} numbers, more than {MOST_HELD}")
    sized = {d.number for a in arrays for d in a.dims if d.kind == "axis"}
    if any(d.kind == "axis" and d.number not in sized for a in arrays for d in a.out_dims):
        raise CannotUnroll("an output and an input differ in length")
    return program
