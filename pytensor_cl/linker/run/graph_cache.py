"""The captured graphs of a function: which calls are captured, and which graph a call replays."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from pytensor.graph.basic import Constant
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.type import TensorType

from pytensor_cl.errors import OutOfDeviceMemory
from pytensor_cl.linker.aliasing import mutated_inputs
from pytensor_cl.linker.graphs.build import build_graph
from pytensor_cl.linker.graphs.graph import CapturedGraph
from pytensor_cl.linker.graphs.guards import HostValues, ValueTooLarge, classify_host_values, freeze_value
from pytensor_cl.linker.graphs.slices import DynamicSlices, ParameterValues, find_dynamic_slices
from pytensor_cl.linker.graphs.trace import CaptureFailure, trace_call
from pytensor_cl.linker.run.errors import ShapeRecorder
from pytensor_cl.linker.run.rng_state import restore_rng_states, save_rng_states
from pytensor_cl.linker.types import Cell, GuardFailure, HostImporter, StepProgram, StepRunner, peeking
from pytensor_cl.ops.base import context_of
from pytensor_cl.ops.transfer import GpuFromHost
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.memory.device_memory import is_lack_of_memory
from pytensor_cl.runtime.registry import get_context
from pytensor_cl.sharedvar import DeviceCell

WARMUP_CALLS = 2
"""Calls with the same signature that run step by step first. They build kernels and tables, and most functions are
called once only."""
MAX_GRAPHS, MAX_SIGNATURES = 64, 1024
"""Captured graphs that a function keeps, and signatures that it counts. Each minibatch has a signature of its own."""
MAX_GUARD_FAILURES = 8
"""Calls that may differ from the captured one before a graph is dropped."""
MAX_CAPTURE_ATTEMPTS = 3
"""Failed captures after which a function is not captured any more."""

_log = logging.getLogger("pytensor_cl")

Lookup = tuple[CapturedGraph, ParameterValues | None]


class GraphCache:
    """The captured graphs of a function, or of a range of its nodes."""

    def __init__(self, program: StepProgram, on_graph_break: Callable[[int], None] = lambda at: None) -> None:
        self._program = program
        self._on_graph_break = on_graph_break  # called with the index of a node that can never be captured
        self.unsupported_reason = "" if len(program.contexts) < 2 else "it runs on several devices"
        self.replay_count = 0
        self.too_large_reason = ""  # why the last calls had no signature: a value is too large to be part of one
        self.problem = ""  # error while a signature was made for a valid call: a defect
        self._context: Context | None = None  # None until the first call
        self._values = HostValues()
        self._slices: DynamicSlices | None = None
        self._read_signature: Callable[[], Any] = tuple
        self._mutable_rngs: list[Cell] = []  # random generators that calls change in place
        # Captured graphs, in the order of their last use, and what is known of signatures
        self._graphs: dict[Any, CapturedGraph] = {}
        self._lookups: dict[Any, Lookup] = {}  # look-ups for calls with slices at other offsets
        self._last: tuple[Any, Lookup] | None = None
        self._warmup_key: Any = None  # key shared by all calls that one graph serves
        self._warmup_counts: dict[Any, int] = {}
        self._capture_attempts = MAX_CAPTURE_ATTEMPTS
        # State of this call
        self._replayed: CapturedGraph | None = None
        self._signature_error: Exception | None = None  # why it has no signature

    @property
    def graphs(self) -> dict[Any, CapturedGraph]:
        """The captured graphs by signature."""
        return {(*key, *indices): graph for (key, indices), graph in self._graphs.items()}

    @property
    def range_count(self) -> int:
        """Number of ranges of the arena that the captured graphs use."""
        return sum(graph.range_count for graph in list(self._graphs.values()))

    def release_arena(self) -> None:
        """Drop the references to the arena's buffers, which will be replaced."""
        for graph in list(self._graphs.values()):
            graph.release_arena()

    def clear(self) -> None:
        """Drop all captured graphs and their memory."""
        self._graphs.clear()
        self._lookups.clear()
        self._last = self._replayed = None

    # A call

    def run(self, vm: StepRunner) -> bool:
        """Replay a call, or capture it while it runs; return False if it must run step by step."""
        if self.unsupported_reason or (self._context is None and not self._prepare()):
            return False
        context = self._context
        assert context is not None
        self._replayed = self._signature_error = None
        try:
            signature = self._read_signature()
            last = self._last
            found = last[1] if last is not None and last[0] == signature else self._lookup(signature)
        except Exception as error:  # usually wrong data: the step-by-step call raises the error at its node
            self._signature_error = error
            return False
        if found is None and not self._is_warm():
            return False
        token, active = object(), context.active_replays
        try:
            active.append(token)
            if active[0] is not token or context.queue.capture is not None:
                return False  # another thread replays a call, or a node of this call calls a function
            return self._capture(vm, signature) if found is None else self._replay(vm, *found)
        finally:  # unlike a lock this is right wherever a signal interrupts: the list itself is the state
            if token in active:
                active.remove(token)

    def _replay(self, vm: StepRunner, graph: CapturedGraph, values: ParameterValues | None) -> bool:
        rng_states = save_rng_states(self._mutable_rngs) if self._mutable_rngs else ()
        self._replayed = graph
        try:
            graph.replay(values)
        except (GuardFailure, OutOfDeviceMemory):  # the call runs step by step, with the same random numbers
            restore_rng_states(rng_states)
            self._replayed = None
            self._note_guard_failure(graph)
            return False
        except Exception as error:
            # Kernels of this call may have written to the memory of old values: it cannot run again.
            if not is_lack_of_memory(error) or graph.donations:
                vm.raise_at_node(self._program.first + graph.current_node)
            restore_rng_states(rng_states)
            self._replayed = None
            return False
        finally:
            graph.unbind()
        self.replay_count += 1
        return True

    def confirm(self) -> None:
        """Note that a call has run step by step without an error: wrong data are not why it has no signature."""
        error, self._signature_error = self._signature_error, None
        if isinstance(error, ValueTooLarge):
            self.too_large_reason = str(error)
        elif error is not None and not self.problem:
            self.problem = f"the comparison of calls failed: {type(error).__name__}: {error}"
            _log.warning("The comparison of calls failed; they run step by step.", exc_info=error)

    def restore_recorded_shapes(self) -> None:
        """Restore, after a replay, the shapes that its nodes have read, for an error message."""
        if self._replayed is not None:
            for recorder, shapes in self._replayed.recorded_shapes:
                recorder.shapes = shapes

    def _prepare(self) -> bool:
        """Analyse the graph in the first call; return whether calls can be captured."""
        program = self._program
        if not program.contexts:
            return False
        context = get_context(program.contexts[0])
        values = self._values = classify_host_values(program.nodes, program.routines)
        self.unsupported_reason = values.blocker
        if context.queue.synchronous:
            self.unsupported_reason = self.unsupported_reason or "each command is waited for"
        self._note_mutated_inputs()
        self._read_signature = _SignatureReader(program, values, context).read
        self._slices = find_dynamic_slices(program, values)
        context.memory.add_arena_user(self)
        self._context = context  # at the end: a signal may interrupt
        return not self.unsupported_reason

    def _note_mutated_inputs(self) -> None:
        """Note what must be restored if a replay fails a guard, before the call runs step by step."""
        storage = self._program.storage
        inputs = [v for v in mutated_inputs(self._program.nodes) if v.owner is None]
        inputs = [v for v in inputs if not isinstance(storage[v], DeviceCell)]
        generators = [v for v in inputs if isinstance(v.type, RandomGeneratorType)]
        self._mutable_rngs = [storage[v] for v in generators]
        if len(generators) < len(inputs):
            self.unsupported_reason = self.unsupported_reason or "it changes an argument in place"

    # Captured graphs

    def _lookup(self, signature: Any) -> Lookup | None:
        """Return the graph that serves a call, as the one that was used last."""
        found = self._lookups.get(signature)
        if found is None:
            found = self._find_graph(signature)
        if found is not None:
            self._last = signature, found
            graph = found[0]
            self._graphs[graph.signature] = self._graphs.pop(graph.signature, graph)  # to the end: the first is evicted
        return found

    def _find_graph(self, signature: Any) -> Lookup | None:
        """Look for a graph of the signature, or for one that serves a call whose slices begin elsewhere."""
        self._warmup_key = signature
        exact: Lookup | None = (self._graphs[signature], None) if signature in self._graphs else None
        if self._slices is None:
            return exact
        similar = [graph for (key, _), graph in self._graphs.items() if key == signature[0]]
        if not similar:
            self._warmup_key = signature[0]  # the first graph may serve all values of the indices
            return None
        if not similar[-1].parameters.slices:
            return exact
        layout_signature = self._slices.layout_signature(similar[-1].parameters)
        self._warmup_key = signature[0], layout_signature
        for graph in similar:
            if graph.parameters.layout_signature == layout_signature:
                if len(self._lookups) >= MAX_SIGNATURES:
                    self._lookups.clear()
                found = self._lookups[signature] = graph, self._slices.parameter_values(graph.parameters)
                return found
        return None

    def _is_warm(self) -> bool:
        """Count a call; return whether to capture it."""
        count = self._warmup_counts.get(self._warmup_key, 0)
        if len(self._warmup_counts) >= MAX_SIGNATURES:
            self._warmup_counts.clear()
        self._warmup_counts[self._warmup_key] = count + 1
        if not count and self._context is not None:
            self._context.queue.expect_long_wait()  # the device's time for these shapes is not known
        return count >= WARMUP_CALLS

    def _note_guard_failure(self, graph: CapturedGraph) -> None:
        """Drop a graph from which calls differ again and again."""
        graph.guard_failures += 1
        if graph.guard_failures >= MAX_GUARD_FAILURES:
            self._evict(graph.signature)
            self._warmup_counts.clear()

    def _evict(self, signature: Any) -> None:
        graph = self._graphs.pop(signature, None)  # `clear` may have dropped it
        self._lookups = {k: found for k, found in self._lookups.items() if found[0] is not graph}
        self._last = None

    def _capture(self, vm: StepRunner, signature: Any) -> bool:
        """Capture a call while it runs step by step."""
        context = self._context
        assert context is not None
        made: CapturedGraph | CaptureFailure
        try:
            trace = trace_call(self._program, self._values, self._slices, context, vm)
            made = trace.failure or build_graph(self._program, self._values, self._slices, trace)
        except Exception as error:
            if not is_lack_of_memory(error):
                raise
            # The call has run; the memory of the launch sequences is missing. An OutOfDeviceMemory would be the call's.
            made = CaptureFailure("the device ran out of memory", None)
        if isinstance(made, CapturedGraph):
            self._keep(signature, made)
            context.memory.free_idle()
            return True
        self._capture_attempts -= 1
        self._warmup_counts.clear()  # the next attempt comes after WARMUP_CALLS more calls
        if not self._capture_attempts or made.is_permanent:
            self.unsupported_reason = made.reason
            if made.at is not None:
                self._on_graph_break(made.at)
        return True

    def _keep(self, signature: Any, graph: CapturedGraph) -> None:
        while len(self._graphs) >= MAX_GRAPHS:
            self._evict(next(iter(self._graphs)))
        self._graphs[signature] = graph
        graph.signature = signature
        graph.recorded_shapes = [(t, t.shapes) for t in self._program.thunks if isinstance(t, ShapeRecorder)]
        self._last = None


class _SignatureReader:
    """Reads the signature of a call: what distinguishes calls that need different graphs."""

    def __init__(self, program: StepProgram, values: HostValues, context: Context) -> None:
        position = {node: at for at, node in enumerate(program.nodes)}
        uploaded = {n.inputs[0] for n in program.nodes if isinstance(n.op, GpuFromHost)}
        self._prologue = [program.thunks[position[n]] for n in values.prologue]
        self._specialised = [peeking(program.storage[v]) for v in values.specialised]
        self._indices = [peeking(program.storage[v]) for v in values.index_inputs]
        self._device = context.name
        self._shapes: list[Cell] = []  # cells of arguments: the signature has their shapes
        self._shared: list[DeviceCell] = []  # cells of shared variables: it has their layouts
        self._others: list[Callable[[], Any]] = []  # return the parts of other inputs
        for variable in program.inputs:
            is_array = isinstance(variable.type, TensorType) or context_of(variable)
            if isinstance(variable, Constant) or not is_array:
                continue
            cell, importer = program.storage[variable], program.importers.get(variable)
            if isinstance(cell, DeviceCell):
                if variable in uploaded:
                    self._shared.append(cell)
                else:
                    self._others.append(partial(_shape_of_shared, cell))
            elif context_of(variable):
                self._others.append(partial(_layout_of_array, cell))
            elif importer is None or context.info.host_alignment < 2:
                self._shapes.append(cell)
            else:
                self._others.append(partial(_shape_and_misalignment, cell, importer))

    def read(self) -> tuple[Any, Any]:
        """Run the prologue; return the signature, and the values of the index inputs."""
        for thunk in self._prologue:
            thunk()
        name = self._device
        parts = [cell[0].shape for cell in self._shapes]
        parts += [a.layout if (a := c.devices.get(name)) is not None else _future_layout(c) for c in self._shared]
        parts += [read() for read in self._others]
        parts += [freeze_value(cell[0]) for cell in self._specialised]
        return tuple(parts), tuple([freeze_value(cell[0]) for cell in self._indices])


def _shape_of_shared(cell: DeviceCell) -> tuple[int, ...]:
    shape: tuple[int, ...] = cell.anywhere().shape
    return shape


def _future_layout(cell: DeviceCell) -> Layout:
    """Return the layout that a shared variable will get by an upload."""
    return Layout.contiguous(_shape_of_shared(cell))


def _layout_of_array(cell: Cell) -> Layout:
    layout: Layout = cell[0].layout
    return layout


def _shape_and_misalignment(cell: Cell, importer: HostImporter) -> tuple[tuple[int, ...], int | None]:
    """Kernels depend on the misalignment of an array that is read in the caller's memory."""
    return cell[0].shape, importer.misalignment(cell[0])
