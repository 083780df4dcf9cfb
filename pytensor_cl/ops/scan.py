"""Loops: Scan on a device, with an inner graph of device nodes.

The steps of the loop are launched by the host one after the other. They read rows of the sequences and states, which
are views, and write rows of the results. In a captured call all launches of all steps are captured together, so that a
replay runs the whole loop as one sequence of launches.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, Protocol

import numpy as np
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.printing import Print
from pytensor.scan.op import Scan, ScanInfo
from pytensor.tensor.exceptions import ShapeError
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.type import TensorType

from pytensor_cl.codegen import dtypes
from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.errors import NegativeStepsError
from pytensor_cl.ops.base import DEVICE, HOST, CheckedRoutine, GpuOp, Routine, context_of
from pytensor_cl.ops.names import Show
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.ops.transfer import GpuFromHost, HostFromGpu, names_of_nodes
from pytensor_cl.routines.elemwise.routine import Copy, Fill
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.runtime.error_flag import DeviceErrorFlag, ErrorRecord
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.type import GpuArrayType

MAX_CAPTURED_KERNELS = 1 << 14
"""Kernels of a loop up to which a captured call holds all of its steps. To capture one takes about 0.2 ms."""
_STEPS_WORTH_A_COPY = 4
"""Steps from which a matrix is copied once, so that no step has to."""
_INNER_NUMBER = 16
"""Bits of an error record's number for the node of the outer graph. The others are for the node of the step."""


class LinkedStep(Protocol):
    """The inner graph of a loop, ready to run."""

    routines: Sequence[Routine]  # routines of the device nodes
    kernel_count: int  # number of nodes that launch kernels

    def sources(self) -> Sequence[KernelSource]:
        """Return the kernels of the device nodes."""

    def checked(self) -> Sequence[CheckedRoutine]:
        """Return the routines whose kernels check their data."""

    def may_write(self, output: int, overwritten: tuple[int, ...]) -> bool:
        """Return whether an output may be written while these inputs, which share its memory, are in use."""

    def __call__(self, values: Sequence[Any], targets: Sequence[GpuArray | None]) -> list[Any]:
        """Compute the outputs; those with a target are written there, if the node that computes them can."""


_linkers: list[Callable[[FunctionGraph], LinkedStep]] = []


def register_step_linker(link: Callable[[FunctionGraph], LinkedStep]) -> None:
    """Set the function that links an inner graph; the linker, in a layer above, registers itself."""
    _linkers[:] = [link]


class InnerPlacement(NamedTuple):
    """Placement of each value of an inner graph: `DEVICE` or `HOST`."""

    seqs: tuple[str, ...]  # sequences
    states: tuple[str, ...]  # states with a trace: mit-mot, mit-sot, sit-sot
    untraced: tuple[str, ...]  # states without a trace
    non_seqs: tuple[str, ...]  # values that are the same in all steps

    def inner_inputs(self, info: ScanInfo) -> list[str]:
        """Return the placement of each input of the inner graph."""
        taps = [p for p, taps in zip(self.states, info.tap_array, strict=True) for _ in taps]
        return [*self.seqs, *taps, *self.untraced, *self.non_seqs]

    def inner_outputs(self, info: ScanInfo) -> list[str]:
        """Return the placement of each output of the inner graph."""
        counts = [len(s) for s in info.mit_mot_out_slices] + [1] * (info.n_mit_sot + info.n_sit_sot)
        traced = [p for p, count in zip(self.states, counts, strict=True) for _ in range(count)]
        return [*traced, *[DEVICE] * info.n_nit_sot, *self.untraced, *[HOST] * info.as_while]

    def outer_inputs(self, info: ScanInfo) -> list[str]:
        """Return the placement of each input of the node."""
        return [HOST, *self.seqs, *self.states, *self.untraced, *[HOST] * info.n_nit_sot, *self.non_seqs]

    def outer_outputs(self, info: ScanInfo) -> list[str]:
        """Return the placement of each output of the node."""
        return [*self.states, *[DEVICE] * info.n_nit_sot, *self.untraced]


class ScanWithDeviceGraph(Scan):
    """A `Scan` with a device graph of its steps; `refusal` says why the loop is not one kernel."""

    def __init__(
        self, scan: Scan, graph: FunctionGraph, placement: InnerPlacement, context_name: str, refusal: str = ""
    ) -> None:
        self.__dict__.update(scan.__dict__)
        self._fn = None
        self.device_graph = graph
        self.placement = placement
        self.context_name = context_name
        self.refusal = refusal


class GpuScan(GpuOp):
    """Device counterpart of `Scan`; `refusal` says why the loop is not one kernel.

    The number of steps and the lengths of results are read on the host, and so is the condition of a while-loop, after
    each step. The outputs with numbers in `last_first`, which are results without a state, begin with the last step.
    """

    __props__ = ("host", "context_name", "placement", "last_first")

    def __init__(
        self,
        host: Scan,
        context_name: str,
        graph: FunctionGraph,
        placement: InnerPlacement,
        refusal: str = "",
        last_first: tuple[int, ...] = (),
    ) -> None:
        super().__init__(host, context_name)
        self.graph, self.placement, self.refusal, self.last_first = graph, placement, refusal, last_first
        self.operand_placements = placement.outer_inputs(host.info)
        self.view_map = dict(host.view_map)
        self.may_alias = bool(host.info.n_untraced_sit_sot)
        self.checks_data = any(getattr(n.op, "checks_data", False) for n in graph.apply_nodes)
        self.is_capturable = not host.info.as_while and self._repeats_launches

    def named(self, show: Show) -> str:
        """Return the name; `show` joins the names of parts."""
        return f"GpuScan{{{show(names_of_nodes(self.graph, show))}}}"

    def with_last_first(self, last_first: tuple[int, ...]) -> "GpuScan":
        """Return the same loop, of which these results begin with the last step."""
        return GpuScan(self.host, self.context_name, self.graph, self.placement, self.refusal, last_first)

    @property
    def step_kernels(self) -> int:
        """Number of nodes of a step that launch kernels, also in loops inside it, of which one step counts."""
        ops = [node.op for node in self.graph.apply_nodes if isinstance(node.op, GpuOp)]
        return sum(op.step_kernels if isinstance(op, GpuScan) else op.is_compute for op in ops)

    @property
    def _repeats_launches(self) -> bool:
        """Return whether the launches of a call depend on shapes and on the numbers of non-sequences alone."""
        placement = self.placement
        if HOST in (*placement.seqs, *placement.states, *placement.untraced):
            return False
        return all(_repeats(node) for node in self.graph.apply_nodes)

    def apply(self, inputs: Sequence[Variable], types: Sequence[Any]) -> Apply:
        """Make a node; states that the host computes are results on the host."""
        placements = self.placement.outer_outputs(self.host.info)
        outputs = [
            GpuArrayType(t.dtype, t.shape, self.context_name)() if place is DEVICE else t()
            for t, place in zip(types, placements, strict=True)
        ]
        return Apply(self, list(inputs), outputs)

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> Any:
        """Leave the shapes to the results: rewrites before placement have used those of the host Op."""
        raise ShapeError("the shapes of a loop are known when it has run")

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the routine that runs the loop."""
        (link,) = _linkers
        is_array = [isinstance(v.type, TensorType) and not context_of(v) for v in node.inputs]
        return _Loop(self, link(self.graph), context, is_array, self._matrices_by_rows())

    def _matrices_by_rows(self) -> list[int]:
        """Return which of the values that are the same in all steps are matrices that a product reads by rows."""
        inputs = self.graph.inputs
        first = len(inputs) - len(self.placement.non_seqs)
        read = {v for n in self.graph.apply_nodes for k, v in enumerate(n.inputs) if _reads_rows(n, k)}
        return [k - first for k in range(first, len(inputs)) if inputs[k] in read]


def _reads_rows(node: Apply, index: int) -> bool:
    return isinstance(node.op, GpuOp) and node.op.prefers_row_major(index)


_REPEATED_HOST_OPS = frozenset(
    (
        *("Shape", "Shape_i", "Elemwise", "CAReduce", "Sum", "Prod", "DimShuffle", "MakeVector", "ScalarFromTensor"),
        *("TensorFromScalar", "Subtensor", "Join", "Reshape", "CheckAndRaise", "Assert"),
    )
)


def _repeats(node: Apply) -> bool:
    """Return whether a node does the same in each call with the same shapes and numbers of the host."""
    op = node.op
    if isinstance(op, GpuOp):
        return op.is_capturable
    if isinstance(op, GpuFromHost):
        return isinstance(node.inputs[0], Constant)
    if isinstance(op, HostFromGpu | Print) or any(isinstance(v.type, RandomType) for v in node.inputs):
        return False
    return type(op).__name__ in _REPEATED_HOST_OPS


Value = Any  # a device array, or a value of the host


def _row(array: Value, at: int) -> Value:
    """Return a row of an array; a view."""
    if isinstance(array, GpuArray):
        layout = array.layout
        offset = layout.offset + at * layout.strides[0]
        return GpuArray(array.context, array.buffer, array.dtype, Layout(layout.shape[1:], layout.strides[1:], offset))
    return array[at, ...]


def _rows(array: Value, start: int, stop: int) -> Value:
    """Return rows of an array; a view."""
    return array[start:stop]


def _has_separate_rows(array: Value) -> bool:
    """Return whether each row of a device array is contiguous, and none overlaps another one."""
    if not isinstance(array, GpuArray):
        return False
    (_, *shape), (step, *strides), offset = array.layout
    row = Layout(tuple(shape), tuple(strides), offset)
    return row.is_contiguous and abs(step) >= row.size


class _Trace:
    """The buffer of a state or of a result, which holds the rows of the last steps.

    The array is None if its shape follows from the first step. A step reads and writes the rows of the taps, relative
    to the present position. Writes wrap around if it is circular; those of a mit-mot do not. If `is_last_first`, the
    array is a view of memory in which the last step comes first.
    """

    def __init__(
        self,
        array: Value,
        length: int,
        in_taps: Sequence[int],
        out_taps: Sequence[int],
        first_position: int,
        is_circular: bool = True,
        is_last_first: bool = False,
    ) -> None:
        self.array, self.length = array, length
        self.in_taps, self.out_taps = in_taps, out_taps
        self.first_position = first_position
        self.position = first_position % length if length else 0
        self.is_circular = is_circular
        self.is_last_first = is_last_first

    @property
    def result(self) -> Value:
        """Return the rows in the order of the result."""
        return self.array[::-1] if self.is_last_first else self.array

    def read_rows(self) -> list[int]:
        """Return the numbers of the rows that a step reads."""
        return [(self.position + tap) % self.length for tap in self.in_taps]

    def written_rows(self) -> list[int]:
        """Return the numbers of the rows that a step writes."""
        return [self.position + tap for tap in self.out_taps]

    def advance(self) -> None:
        """Go to the next step."""
        self.position = (self.position + 1) % self.length


class _Loop:
    """Runs a loop as `Scan.perform` does.

    `is_array` tells which inputs of the node are arrays of the host, of 0 dimensions too. `by_rows` are the values that
    are the same in all steps and are matrices that the steps read by rows.
    """

    def __init__(
        self, op: GpuScan, step: LinkedStep, context: Context, is_array: Sequence[bool], by_rows: Sequence[int]
    ) -> None:
        self._scan: Scan = op.host
        self._info: ScanInfo = op.host.info
        self._step, self._context = step, context
        self._is_array = tuple(is_array)
        self._by_rows = tuple(by_rows)
        self._owned: frozenset[int] = frozenset()
        self._last_first = frozenset(op.last_first)
        self._output_types = list(op.host.output_types)
        self._places = op.placement.outer_outputs(self._info)
        self._copies: dict[tuple[str, int], Copy] = {}
        self._fills: dict[tuple[str, int], Fill] = {}
        self._checked = list(step.checked())
        self.is_checked = bool(self._checked)
        for kind, place in zip(self._output_types, self._places, strict=True):
            if place is DEVICE:
                self._copy_routine(kind.dtype, kind.ndim)
                self._copy_routine(kind.dtype, max(kind.ndim - 1, 0))

    # Kernels and errors

    def sources(self) -> tuple[KernelSource, ...]:
        """Kernels of the inner graph, and copies."""
        copies = (source for copy in self._copies.values() for source in copy.sources())
        return (*self._step.sources(), *copies)

    @cached_property
    def leaves(self) -> list[CheckedRoutine]:
        """Routines of nodes that check their data, also of loops inside this one."""
        return [leaf for routine in self._checked for leaf in getattr(routine, "leaves", (routine,))]

    def set_error_flag(self, error_flag: DeviceErrorFlag, number: int) -> None:
        """Make the kernels of the steps report to an error flag."""
        for k, leaf in enumerate(self.leaves):
            leaf.set_error_flag(error_flag, number + (k << _INNER_NUMBER))

    def error(self, finding: ErrorRecord) -> Exception:
        """Return the exception for an error record."""
        return self.leaves[finding.number >> _INNER_NUMBER].error(finding)

    def check(self) -> None:
        """Wait for the device, and raise the error that a kernel reported."""
        for leaf in self.leaves:
            leaf.check()

    # The loop

    def __call__(self, *inputs: Value) -> tuple[Value, ...]:
        values = [np.asarray(v) if is_array else v for v, is_array in zip(inputs, self._is_array, strict=True)]
        count = int(values[0])
        seqs, traces, untraced, non_seqs = self._unpack(values, count)
        if not count:
            return (*self._empty(traces), *untraced)
        self._limit_capture(count)
        if count >= _STEPS_WORTH_A_COPY:
            for k in self._by_rows:
                non_seqs[k] = self._with_contiguous_rows(non_seqs[k])
        untraced, steps = self._run(count, seqs, traces, untraced, non_seqs)
        first = self._info.n_mit_mot
        for trace in traces[first:]:
            self._finish(trace, steps, count)
        return (*(trace.result for trace in traces), *untraced)

    def accept_donations(self, inputs: Sequence[int]) -> None:
        """Use the memory of these inputs of the node as that of results: nothing else reads them."""
        self._owned = frozenset(inputs)

    def _with_contiguous_rows(self, matrix: Value) -> Value:
        """Return a matrix as products read it in place: they would copy it in each step."""
        strides = matrix.layout.strides if isinstance(matrix, GpuArray) else (1,)
        return matrix if strides[-1:] == (1,) else self._copy_of(matrix)

    def _limit_capture(self, count: int) -> None:
        """Note in a capture that the loop has too many launches, if it has."""
        capture, kernels = self._context.queue.capture, count * self._step.kernel_count
        if capture is not None and kernels > MAX_CAPTURED_KERNELS:
            capture.note_unsupported(f"a loop of {kernels:,} kernels, more than {MAX_CAPTURED_KERNELS:,}")

    def _unpack(self, values: Sequence[Value], count: int) -> tuple[list, list[_Trace], list, list]:
        """Return sequences, traces, states without a trace, and the values that are the same in all steps.

        Raises `NegativeStepsError`: the number of steps is negative. Raises `ValueError`: a sequence is too short.
        """
        info, scan = self._info, self._scan
        if count < 0:
            raise NegativeStepsError(f"Scan was asked to run for negative number of step {count}")
        seqs = list(values[1 : scan.seqs_arg_offset])
        for k, seq in enumerate(seqs):
            if seq.shape[0] < count:
                raise ValueError(
                    f"Sequence {k} has shape {seq.shape} but the Scan's required number of steps is {count}"
                )
        states = values[scan.seqs_arg_offset : scan.untraced_sit_sot_arg_offset]
        untraced = list(values[scan.untraced_sit_sot_arg_offset : scan.nit_sot_arg_offset])
        lengths = values[scan.nit_sot_arg_offset : scan.nit_sot_arg_offset + info.n_nit_sot]
        traces = list(self._state_traces(states))
        first = info.n_mit_mot + info.n_mit_sot + info.n_sit_sot
        traces += [
            _Trace(None, int(length), (), (0,), 0, is_last_first=k in self._last_first)
            for k, length in enumerate(lengths, first)
        ]
        return seqs, traces, untraced, list(values[scan.nit_sot_arg_offset + info.n_nit_sot :])

    def _state_traces(self, states: Sequence[Value]) -> Iterator[_Trace]:
        """Copy the initial values of states to buffers of their own."""
        info = self._info
        outs = chain(info.mit_mot_out_slices, [(0,)] * (info.n_mit_sot + info.n_sit_sot))
        for k, (state, taps, out) in enumerate(zip(states, info.tap_array, outs, strict=True)):
            is_mit_mot, first = k < info.n_mit_mot, -min(taps)
            initial = state.shape[0] if is_mit_mot else min(first, state.shape[0])
            is_own = self._scan.seqs_arg_offset + k in self._owned and _has_separate_rows(state)
            array = state if is_own else self._copy_of(state, initial)
            yield _Trace(array, state.shape[0], taps, out, first, not is_mit_mot)

    def _run(
        self, count: int, seqs: list, traces: list[_Trace], untraced: list, non_seqs: list
    ) -> tuple[list[Value], int]:
        """Run the steps; return the states without a trace, and the number of steps."""
        info, outputs = self._info, sum(len(t.out_taps) for t in traces)
        for at in range(count):
            values = [_row(seq, at) for seq in seqs]
            for trace in traces:
                values += [_row(trace.array, row) for row in trace.read_rows()]
            targets = self._targets(traces)
            results = self._step(
                [*values, *untraced, *non_seqs], [*targets, *[None] * (info.n_inner_outputs - outputs)]
            )
            results = self._detached(results, traces, targets)
            self._store(traces, results, targets)
            untraced = results[outputs : outputs + info.n_untraced_sit_sot]
            for trace in traces:
                trace.advance()
            if info.as_while and results[-1] != 0:
                return untraced, at + 1
        return untraced, count

    def _targets(self, traces: Sequence[_Trace]) -> list[GpuArray | None]:
        """Return the rows into which the step may write its results."""
        targets: list[GpuArray | None] = []
        number = self._info.n_seqs
        for trace in traces:
            read = trace.read_rows()
            for row in trace.written_rows():
                shared = tuple(number + k for k, other in enumerate(read) if other == row)
                is_possible = isinstance(trace.array, GpuArray) and self._step.may_write(len(targets), shared)
                targets.append(_row(trace.array, row) if is_possible else None)
            number += len(read)
        return targets

    def _detached(self, results: list, traces: Sequence[_Trace], targets: Sequence[GpuArray | None]) -> list[Value]:
        """Return the results, with copies of those that share memory with rows that will be overwritten."""
        buffers = {trace.array.buffer.int_ptr for trace in traces if isinstance(trace.array, GpuArray)}
        known = [*targets, *[None] * (len(results) - len(targets))]

        def detach(value: Value, target: GpuArray | None) -> Value:
            if isinstance(value, np.ndarray):
                return np.array(value)
            is_view = isinstance(value, GpuArray) and value is not target and value.buffer.int_ptr in buffers
            return self._copy_of(value) if is_view else value

        return [detach(value, target) for value, target in zip(results, known, strict=True)]

    def _store(self, traces: Sequence[_Trace], results: Sequence[Value], targets: Sequence[GpuArray | None]) -> None:
        """Write the results that are not in their rows yet."""
        number = 0
        for trace in traces:
            for row in trace.written_rows():
                value, target = results[number], targets[number]
                number += 1
                if target is not None and value is target:
                    continue
                if trace.array is None:
                    buffer = self._new_buffer(value, trace.length)
                    trace.array = buffer[::-1] if trace.is_last_first else buffer
                self._write(_row(trace.array, row), value)

    def _new_buffer(self, value: Value, length: int) -> Value:
        shape = (length, *value.shape)
        if isinstance(value, GpuArray):
            return self._context.empty(shape, value.dtype)
        return np.empty(shape, value.dtype)

    def _write(self, target: Value, value: Value) -> None:
        """Copy a value to a row.

        Raises `ValueError`: it has another shape.
        """
        if not isinstance(target, GpuArray):
            target[...] = value
            return
        if value.shape != target.shape:
            try:
                value = value.with_layout(value.layout.broadcast_to(target.shape))
            except ValueError as error:
                raise ValueError(
                    f"An output of the Scan has changed shape: could not broadcast input array from shape "
                    f"{value.shape} into shape {target.shape}"
                ) from error
        self._copy(target, value)

    # Buffers

    def _copy_routine(self, dtype: str, ndim: int) -> Copy:
        found = self._copies.get((dtype, ndim))
        if found is None:
            found = self._copies[dtype, ndim] = Copy(self._context, dtype, ndim)
        return found

    def _copy(self, target: GpuArray, source: GpuArray) -> None:
        if target.size:
            self._copy_routine(target.dtype.name, target.ndim).launch((target,), (source,))

    def _copy_of(self, array: Value, rows: int | None = None) -> Value:
        """Return a contiguous copy of an array, or a buffer of its shape with a copy of the first rows."""
        if not isinstance(array, GpuArray):
            return np.array(array)
        result = self._context.empty(array.shape, array.dtype)
        part = (result, array) if rows is None else (_rows(result, 0, rows), _rows(array, 0, rows))
        self._copy(*part)
        return result

    def _empty(self, traces: Sequence[_Trace]) -> list[Value]:
        """Return the results of no steps; those without an initial value have no elements, as PyTensor's."""
        found = []
        for kind, trace in zip(self._output_types, traces, strict=False):
            shape = (0,) * kind.ndim
            found.append(self._context.empty(shape, kind.numpy_dtype) if trace.array is None else trace.array)
        return found

    def _finish(self, trace: _Trace, steps: int, count: int) -> None:
        """Order the rows of a buffer that was written more than once around; drop rows that no step has written."""
        used = steps + trace.first_position
        if trace.length < used:
            self._roll(trace)
        elif trace.length > used:
            self._clear(_rows(trace.array, used, trace.length))
            if steps < count:
                trace.array = _rows(trace.array, 0, trace.length - (count - steps))

    def _roll(self, trace: _Trace) -> None:
        """Put the oldest row first."""
        at, old = trace.position, trace.array
        if not at:
            return
        if not isinstance(old, GpuArray):
            trace.array = np.roll(old, -at, axis=0)
            return
        new = self._context.empty(old.shape, old.dtype)
        kept = trace.length - at
        self._copy(_rows(new, 0, kept), _rows(old, at, trace.length))
        self._copy(_rows(new, kept, trace.length), _rows(old, 0, at))
        trace.array = new

    def _clear(self, part: Value) -> None:
        if not isinstance(part, GpuArray):
            part[...] = 0
        elif part.size:
            key = part.dtype.name, part.ndim
            if key not in self._fills:
                self._fills[key] = Fill(self._context, *key)
            zero: np.generic = part.dtype.type(0)
            self._fills[key].launch((part,), (zero,))


NUMBERS = "each step computes with single numbers, which NUMBA's compiled loop does faster"


def unsupported_reason(op: Scan, info: DeviceInfo) -> str:
    """Return why the steps of a loop get no device graph; empty if they may get one."""
    for kind in (v.type for v in op.inner_nitsot_outs(op.fgraph.outputs)):
        if type(kind) is not TensorType or not dtypes.is_supported(kind.dtype):
            return f"device arrays cannot hold {kind}"
        if dtypes.needs_fp64(kind.dtype) and not info.has_fp64:
            return f"{info.name} has no double precision ({kind.dtype})"
    if op.mode is not None:
        return "its steps have a mode of their own"
    return NUMBERS if config.opencl__placement == "auto" and _has_numbers_only(op) else ""


def _has_numbers_only(op: Scan) -> bool:
    """Return whether all sequences, states and results of a step are single numbers."""
    count = op.info.n_inner_inputs - op.info.n_non_seqs
    values = [*op.fgraph.inputs[:count], *op.fgraph.outputs]
    return all(getattr(v.type, "ndim", 0) == 0 for v in values)


@register_lift(ScanWithDeviceGraph, numba_safe=True, every_dtype=True)
def lift_scan_with_graph(node: Apply, context_name: str, info: DeviceInfo) -> GpuScan | NoKernel:
    """ScanWithDeviceGraph -> GpuScan."""
    op: Any = node.op
    if op.context_name != context_name:
        return NoKernel(f"its steps were compiled for another device, {op.context_name}")
    return GpuScan(op, context_name, op.device_graph, op.placement, op.refusal)
