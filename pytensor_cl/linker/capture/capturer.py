"""From a call that runs step by step, and is listened to, to a recording."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

from pytensor.graph.basic import Apply, Constant, Variable

from pytensor_cl.linker.capture.donation import find_donations
from pytensor_cl.linker.capture.host_values import HostValueClasses, takes_values, values_of
from pytensor_cl.linker.capture.memory_plan import LifetimeRecorder, make_plan
from pytensor_cl.linker.replay.bindings import (
    Upload,
    alias_step,
    constant_step,
    frozen,
    guard_step,
    input_step,
    lending,
    number_setter,
    resident_step,
    upload_step,
    value_step,
)
from pytensor_cl.linker.replay.buffer_bindings import ArrayLocation, BufferBinding, BufferDonation
from pytensor_cl.linker.replay.graph import CapturedGraph, GraphBuilder
from pytensor_cl.linker.replay.slices import DynamicSlices, ReplayParameterSpec, SliceBinding, move_step, part_of, split
from pytensor_cl.linker.steps.device import HostImporter, read_only
from pytensor_cl.linker.steps.host import Cell, Thunk
from pytensor_cl.ops.base import GpuOp, Routine, context_of
from pytensor_cl.ops.transfer import GpuFromHost, HostFromGpu
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.interfaces import BoundKernel
from pytensor_cl.runtime.launch_capture import Launch, LaunchCapture
from pytensor_cl.sharedvar import DeviceCell

__all__ = ["CaptureFailure", "Capturer", "StepProgram", "StepRunner"]

LASTING = ("a wait", "a download")
"""What a routine does again and again: the shape of its result depends on values."""


class StepRunner(Protocol):
    """What runs the nodes of a recording step by step."""

    def run(self, before: Callable[[int], None] | None = None, after: Callable[[int], None] | None = None) -> None:
        """Run them; `before` and `after` are told of each."""

    def fail(self, at: int) -> NoReturn:
        """Re-raise the current exception at a node."""


class CaptureFailure(NamedTuple):
    """Why a call cannot be repeated.

    Attributes
    ----------
    what
        In words.
    at
        The node that is to blame; None if none is.
    """

    what: str
    at: int | None

    @property
    def is_lasting(self) -> bool:
        """Whether other calls will have it too."""
        return self.what in LASTING


class StepProgram(NamedTuple):
    """What a virtual machine is made of, as far as a recording needs it.

    Attributes
    ----------
    nodes, thunks
        In the order of execution.
    storage
        Variable to storage cell.
    routines
        What computes each device node.
    contexts
        Names of the contexts.
    inputs, updates
        Of the graph; those of them that a call replaces, and the position of the new value among the results.
    results
        Cells of what a call returns.
    sole
        Downloads whose memory may become the host's.
    may_fail
        Whether something is found wrong at the end of calls only.
    arrivals
        How arguments get to the device that it may read where they are.
    """

    nodes: Sequence[Apply]
    thunks: Sequence[Thunk]
    storage: Mapping[Variable, Cell]
    routines: Mapping[Apply, Routine]
    contexts: Sequence[str]
    inputs: Sequence[Variable]
    updates: Mapping[Variable, int]
    results: Sequence[Cell]
    sole: Collection[Apply]
    may_fail: bool
    arrivals: Mapping[Variable, HostImporter]


class CaptureTrace:
    """What was noted during the recorded call.

    Attributes
    ----------
    tape
        Where the arrays were.
    launches
        Per node.
    values
        Host values that are the same in each call, or must be.
    variation
        How other calls may differ.
    aliases
        Variables that are the memory of another input.
    trouble
        What makes the recording useless.
    """

    def __init__(self, tape: GraphBuilder) -> None:
        self.tape = tape
        self.launches: list[list[Launch]] = []
        self.values: dict[Variable, Any] = {}
        self.variation = ReplayParameterSpec()
        self.aliases: set[Variable] = set()
        self.trouble: CaptureFailure | None = None

    def doubt(self, what: str, at: int | None) -> None:
        """Note what makes the recording useless, if it is the first."""
        if what and self.trouble is None:
            self.trouble = CaptureFailure(what, at)


class Capturer:
    """Makes one recording.

    Parameters
    ----------
    parts
        Of the function's virtual machine.
    roles, moving
        What becomes of the host's values.
    context
        Of the function.
    """

    def __init__(self, parts: StepProgram, roles: HostValueClasses, moving: DynamicSlices, context: Context) -> None:
        self._parts, self._roles, self._moving, self._context = parts, roles, moving, context
        self._late = set(roles.late)

    def record(self, vm: StepRunner) -> CapturedGraph | CaptureFailure:
        """Run a call; return how to repeat it, or why that cannot be."""
        queue = self._context.queue
        recorder, heard = LaunchCapture(), CaptureTrace(GraphBuilder(self._context))
        queue.recorder = recorder
        try:
            self._listen(vm, recorder, heard)
        finally:
            queue.recorder = None
        results = self._results()
        self._let_go(results)
        return heard.trouble or self._build(heard, results)

    def _listen(self, vm: StepRunner, recorder: LaunchCapture, heard: "CaptureTrace") -> None:
        """Run the call step by step, and note what it does."""
        parts = self._parts
        for variable in parts.inputs:
            if context_of(variable) and not isinstance(variable, Constant):
                self._vary(heard, variable, parts.storage[variable][0])

        def before(at: int) -> None:
            recorder.listens = isinstance(parts.nodes[at].op, GpuOp)
            recorder.launches = []

        def after(at: int) -> None:
            recorder.listens = False
            heard.launches.append(recorder.launches)
            self._note(at, parts.nodes[at], heard)
            heard.doubt(recorder.trouble, at)

        vm.run(before, after)
        heard.doubt(recorder.trouble, None)

    def _note(self, at: int, node: Apply, heard: "CaptureTrace") -> None:
        """Note where a node's results are, or what they are."""
        storage, source = self._parts.storage, node.inputs[0] if node.inputs else None
        changes = isinstance(node.op, GpuFromHost) and not isinstance(source, Constant)
        for variable in node.outputs:
            value = storage[variable][0]
            if not context_of(variable):
                if self._is_known(variable) or variable in self._late:
                    heard.values[variable] = value
            elif changes:
                self._vary(heard, variable, value)
            elif not self._is_window(node, heard):
                heard.tape.note(variable, value)
        launches = heard.launches[-1]
        if launches and self._changing(node) and not takes_values(self._parts.routines[node], launches):
            heard.doubt(f"no kernel of {node.op} takes its values", at)

    def _is_window(self, node: Apply, heard: "CaptureTrace") -> bool:
        """Whether a node is a slice that may begin elsewhere; the call goes on with a part of the buffer."""
        if node not in self._moving.slices:
            return False
        tape, cell, source = heard.tape, self._parts.storage[node.outputs[0]], heard.tape.places[node.inputs[0]]
        whole, array, alignment = tape.slot_of(source.memory), cell[0], self._context.memory.arena.alignment
        if whole is None or tape.is_part(source.memory):
            return False
        begin, layout = split(array.layout, array.dtype.itemsize, alignment)
        cell[0] = GpuArray(self._context, part_of(array.buffer, begin), array.dtype, layout)
        slot = tape.vary_part(node.outputs[0], cell[0], whole)
        window = SliceBinding(slot, whole, source.layout, array.dtype.itemsize, alignment)
        heard.variation.windows.append((node, window))
        return True

    def _vary(self, heard: "CaptureTrace", variable: Variable, array: GpuArray) -> None:
        if not heard.tape.vary(variable, array):
            heard.aliases.add(variable)

    def _is_known(self, variable: Variable) -> bool:
        return isinstance(variable, Constant) or variable in self._roles.fixed

    def _changing(self, node: Apply) -> list[int]:
        """Inputs of a node that its kernel takes by value, and that differ from call to call."""
        routine = self._parts.routines.get(node)
        if routine is None:
            return []
        return [k for k in values_of(routine) if not self._is_known(node.inputs[k])]

    def _results(self) -> list[tuple[Cell, Variable]]:
        """Cells of results that are device arrays."""
        device = {id(cell): v for v, cell in self._parts.storage.items() if context_of(v)}
        return [(cell, device[id(cell)]) for cell in self._parts.results if id(cell) in device]

    def _let_go(self, results: list[tuple[Cell, Variable]]) -> None:
        """Drop the intermediate results."""
        mine = {id(cell) for cell, _ in results}
        for variable, cell in self._parts.storage.items():
            if variable.owner is not None and context_of(variable) and id(cell) not in mine:
                cell[0] = None

    # From what was heard to a recording

    def _build(self, heard: "CaptureTrace", results: list[tuple[Cell, Variable]]) -> CapturedGraph:
        parts, tape = self._parts, heard.tape
        needed = self._needed()
        donations = self._donate(heard, needed)
        self._renew(tape, [v for _, v in results])
        self._plan(heard)
        waits = any(isinstance(node.op, HostFromGpu) for node in parts.nodes)
        joins = tape.join([launch for launches in heard.launches for launch in launches], waits)
        lasting = {tape.slot_of(tape.places[v].memory) for _, v in results}
        for variable in filter(tape.places.__contains__, parts.inputs):
            slot, donation = tape.places[variable].memory, donations.get(variable)
            cell = parts.storage[variable]
            step = alias_step(cell, slot) if variable in heard.aliases else input_step(cell, slot, donation)
            tape.step(0, step)
        for at, node in enumerate(parts.nodes):
            if isinstance(node.op, GpuOp):
                self._add_launches(heard, at, node)
            elif isinstance(node.op, GpuFromHost):
                lends = joins and tape.places[node.outputs[0]].memory not in lasting
                self._add_upload(heard, at, node, donations.get(node.outputs[0]), lends)
            elif isinstance(node.op, HostFromGpu):
                tape.read(at, node.inputs[0], parts.storage[node.outputs[0]])
                self._add_guards(heard, at, node)
            elif node in needed:
                self._add_host(heard, at, node)
        mine = {id(cell) for cell in parts.results}
        cells = (parts.storage[v] for n in parts.nodes for v in n.outputs)
        recording = tape.end(results, [c for c in cells if id(c) not in mine])
        if heard.variation.windows:
            heard.variation.values = heard.values
            heard.variation.signature = self._signature(heard)
            recording.variation = heard.variation
        return recording

    def _renew(self, tape: GraphBuilder, results: Sequence[Variable]) -> None:
        """Results get new memory in each call; so do large downloads, unless two of them are the same memory."""
        reads = [n.inputs[0] for n in self._parts.nodes if isinstance(n.op, HostFromGpu)]
        owners = Counter(tape.places[v].memory for v in (*reads, *results))
        for variable in results:
            tape.renew(variable)
        for node in self._parts.nodes:
            if node in self._parts.sole and owners[tape.places[node.inputs[0]].memory] == 1:
                tape.renew_large(node.inputs[0])

    def _donate(self, heard: "CaptureTrace", needed: Collection[Apply]) -> dict[Variable, BufferDonation]:
        """Let updates lie where the old values are; return what must be asked in each call, by old value."""
        parts, tape = self._parts, heard.tape
        if parts.may_fail:
            return {}
        device = {id(cell): v for v, cell in parts.storage.items() if context_of(v)}
        kept = [device[id(cell)] for cell in parts.results if id(cell) in device]
        read = {id(cell) for cell in parts.results}  # when the call ends: an old value among them must still be there
        lasting = {v: k for v, k in parts.updates.items() if id(parts.storage[v]) not in read}
        updates = {v: device[id(c)] for v, k in lasting.items() if id(c := parts.results[k]) in device}
        risk = max((at for at, node in enumerate(parts.nodes) if self._may_fail(node, needed)), default=-1)
        found = {}
        for old, new in find_donations(tape, parts.nodes, heard.launches, updates, kept, risk):
            holders = 1 if old.owner is None else 2  # the shared variable, and the cell of its device array
            found[old] = tape.donate(old, new, parts.storage[new], holders)
        return found

    def _may_fail(self, node: Apply, needed: Collection[Apply]) -> bool:
        """Whether something may go wrong at a node when a call is repeated."""
        if isinstance(node.op, GpuFromHost):
            return not isinstance(node.inputs[0], Constant)
        if isinstance(node.op, HostFromGpu):
            return node.outputs[0] in self._late
        return node in needed or not self._late.isdisjoint(node.outputs)

    def _plan(self, heard: "CaptureTrace") -> None:
        """Choose where in the arena intermediate results lie."""
        tape, lives = heard.tape, LifetimeRecorder()
        for node, launches in zip(self._parts.nodes, heard.launches, strict=True):
            for launch in launches:
                lives.use(node, tape.unsettled(launch.arguments))
            if isinstance(node.op, HostFromGpu):
                lives.use(node, tape.unsettled([tape.places[node.inputs[0]].memory]))
        for variable, place in tape.places.items():
            for memory in tape.unsettled([place.memory]):
                lives.name(memory, variable, place.layout.shape, place.dtype)
        arena = tape.context.memory.arena
        tape.settle(make_plan(lives.tenants(), arena.alignment, arena.limit), lives.numbers)

    def _needed(self) -> set[Apply]:
        """Nodes of the host whose results somebody looks at when a call is repeated."""
        wanted = {v for v, cell in self._parts.storage.items() if any(cell is c for c in self._parts.results)}
        wanted |= self._late
        needed: set[Apply] = set()
        for node in reversed(self._parts.nodes):
            if isinstance(node.op, GpuOp):
                wanted.update(node.inputs[k] for k in self._changing(node))
            elif isinstance(node.op, GpuFromHost):
                wanted.add(node.inputs[0])
            elif wanted.intersection(node.outputs) or not all(map(self._is_known, node.outputs)):
                needed.add(node)
                if not all(map(self._is_known, node.outputs)):
                    wanted.update(node.inputs)
        return needed.difference(self._roles.early)

    def _add_launches(self, heard: "CaptureTrace", at: int, node: Apply) -> None:
        for number, (sliced, window) in enumerate(heard.variation.windows):
            if sliced is node:
                heard.tape.step(at, move_step(window, heard.variation, number))
                return
        kernels, routine = heard.tape.launch(at, heard.launches[at]), self._parts.routines[node]
        taking = [kernels[i] for i in takes_values(routine, heard.launches[at])]
        self._note_moving(heard, node, taking)
        arguments = values_of(routine)
        for k in self._changing(node) if taking else ():
            cell, (convert, place) = read_only(self._parts.storage[node.inputs[k]]), arguments[k]
            for kernel in taking:
                heard.tape.step(at, value_step(cell, convert, kernel.set_bytes, place))

    def _note_moving(self, heard: "CaptureTrace", node: Apply, kernels: Sequence[BoundKernel]) -> None:
        """Note what of a node depends on the number of a minibatch: it is set in each call, or must stay the same."""
        variation, arguments = heard.variation, values_of(self._parts.routines[node])
        for k in (k for k, v in enumerate(node.inputs) if v in self._moving.variables):
            variable = node.inputs[k]
            if k not in arguments or not kernels:
                variation.pinned.append(variable)
                continue
            convert, place = arguments[k]
            variation.numbers += [(variable, number_setter(x.set_bytes, place, convert)) for x in kernels]

    def _signature(self, heard: "CaptureTrace") -> Any:
        storage, tape, variation = self._parts.storage, heard.tape, heard.variation
        layouts = tuple(tape.places[node.outputs[0]].layout for node, _ in variation.windows)
        values = (read_only(storage[v])[0] if v.owner is None else heard.values[v] for v in variation.pinned)
        return layouts, tuple(map(frozen, values))

    def _add_upload(
        self, heard: "CaptureTrace", at: int, node: Apply, donation: BufferDonation | None, lends: bool
    ) -> None:
        variable, storage, tape = node.outputs[0], self._parts.storage, heard.tape
        memory, _, layout = tape.places[variable]
        if isinstance(memory, BufferBinding):
            make = resident_step if isinstance(storage[node.inputs[0]], DeviceCell) else upload_step
            thunk, cell = self._parts.thunks[at], storage[variable]
            if lends:
                thunk = lending(self._context, node, storage[node.inputs[0]], cell, thunk)
            if variable in heard.aliases:
                tape.step(at, thunk)
                tape.step(at, alias_step(cell, memory))
            else:
                step = make(thunk, cell, memory, layout, donation)
                tape.step(at, self._direct(node, step, tape.places[variable]) if lends else step)

    def _direct(self, node: Apply, step: Thunk, place: ArrayLocation) -> Thunk:
        """Return an upload that may do without a buffer, where the value is the caller's."""
        source, arrival = self._parts.storage[node.inputs[0]], self._parts.arrivals.get(node.inputs[0])
        if isinstance(source, DeviceCell) or node.inputs[0].owner is not None:
            return step
        is_in_place = arrival is not None and arrival.slack(source[0]) is not None
        return Upload(step, source, place, self._context, is_in_place)

    def _add_host(self, heard: "CaptureTrace", at: int, node: Apply) -> None:
        parts = self._parts
        if all(map(self._is_known, node.outputs)):
            for variable in node.outputs:
                if heard.variation.windows and variable in self._moving.variables:
                    heard.variation.constants.append((variable, parts.storage[variable]))
                else:
                    heard.tape.step(at, constant_step(parts.storage[variable], heard.values[variable]))
            return
        if any(getattr(v.type, "ndim", 1) for v in node.outputs):
            heard.tape.flush()  # what takes long runs beside the device
        heard.tape.step(at, parts.thunks[at])
        self._add_guards(heard, at, node)

    def _add_guards(self, heard: "CaptureTrace", at: int, node: Apply) -> None:
        for variable in self._late.intersection(node.outputs):
            heard.tape.step(at, guard_step(self._parts.storage[variable], frozen(heard.values[variable])))
