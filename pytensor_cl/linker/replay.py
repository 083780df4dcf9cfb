"""Which calls are recorded, and which recording a call repeats."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.type import TensorType

from pytensor_cl.errors import OutOfDeviceMemory
from pytensor_cl.linker.host import Cell, Thunk
from pytensor_cl.linker.plan import Lives, make_plan
from pytensor_cl.linker.recording import Mismatch, Recording, Slot, Tape
from pytensor_cl.linker.roles import Roles, assign, changed, values_of
from pytensor_cl.linker.steps import ReadCell
from pytensor_cl.ops.base import GpuOp, Routine, context_of
from pytensor_cl.ops.transfer import GpuFromHost, HostFromGpu
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context, get_context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.recorder import Launch, Recorder
from pytensor_cl.sharedvar import DeviceCell

if TYPE_CHECKING:
    from pytensor_cl.linker.vm import OpenCLVM

__all__ = ["Parts", "Replays"]

AFTER = 2
"""Calls with the same key that run step by step: they build kernels and tables, and most functions are called once."""
RECORDINGS, KEYS = 64, 1024
"""How many are kept, and how many keys are counted, of a function: minibatches that are slices differ in their keys."""
TRIES = 3
"""Recordings that may fail before the function is left alone."""
LARGEST_KEY = 256
"""Bytes of a value that may tell calls apart."""


class Parts(NamedTuple):
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
    inputs, updated
        Of the graph; those of them that a call replaces.
    results
        Cells of what a call returns.
    sole
        Downloads whose memory may become the host's.
    """

    nodes: Sequence[Apply]
    thunks: Sequence[Thunk]
    storage: Mapping[Variable, Cell]
    routines: Mapping[Apply, Routine]
    contexts: Sequence[str]
    inputs: Sequence[Variable]
    updated: Collection[Variable]
    results: Sequence[Cell]
    sole: Collection[Apply]


class Replays:
    """The recordings of one function.

    Parameters
    ----------
    parts
        Of its virtual machine.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._recordings: dict[Any, Recording] = {}
        self._counts: dict[Any, int] = {}
        self._roles: Roles | None = None
        self._early: list[Thunk] = []
        self._keyed: list[Cell] = []
        self._late: set[Variable] = set()
        self._generators: list[Cell] = []  # that calls change in place
        self._readers: list[Callable[[], Any]] = []
        self._tries = TRIES
        self._context: Context | None = None
        self._last: tuple[Any, Recording] | None = None
        self.refusal = "" if len(parts.contexts) < 2 else "it runs on several devices"
        self.calls = 0  # that were repeated

    @property
    def recordings(self) -> dict[Any, Recording]:
        """What is kept, by key."""
        return dict(self._recordings)

    def release(self) -> None:
        """Let go of the arena."""
        for recording in list(self._recordings.values()):
            recording.release()

    def clear(self) -> None:
        """Forget all recordings: their memory goes."""
        self._recordings.clear()
        self._last = None

    def __call__(self, vm: "OpenCLVM") -> bool:
        """Run a call by a recording, or make one of it; False if it must run step by step."""
        if self.refusal or not self._parts.contexts:
            return False
        if self._roles is None and not self._prepare():
            return False
        try:
            key = self._key()
        except Exception:  # wrong data, or no value that tells calls apart: the steps say what is wrong, and where
            return False
        recording = self._recorded(key)
        if recording is None and not self._is_due(key):
            return False
        context = self._context
        assert context is not None
        if context.queue.recorder is not None or not context.replays.acquire(blocking=False):
            return False  # another thread repeats a call, or a node of this very call calls a function
        try:
            return self._record(vm, key) if recording is None else self._repeat(vm, recording)
        finally:
            context.replays.release()

    # Keys

    def _prepare(self) -> bool:
        """Look at the graph, at the first call."""
        parts = self._parts
        roles = self._roles = assign(parts.nodes, parts.routines)
        context = self._context = get_context(parts.contexts[0])
        self.refusal = roles.trouble or ("each command is waited for" if context.queue.synchronous else "")
        self._note_changed()
        self._readers = [self._reader(v) for v in parts.inputs if isinstance(v.type, TensorType) or context_of(v)]
        position = {node: at for at, node in enumerate(parts.nodes)}
        self._early = [parts.thunks[position[n]] for n in roles.early]
        self._late = set(roles.late)
        cells = [parts.storage[v] for v in roles.keyed]
        self._keyed = [ReadCell(c) if isinstance(c, DeviceCell) else c for c in cells]
        context.memory.serve(self)
        return not self.refusal

    def _note_changed(self) -> None:
        """Note what a call that does not match its recording must restore before it runs step by step."""
        storage = self._parts.storage
        given = [v for v in changed(self._parts.nodes) if v.owner is None and not isinstance(storage[v], DeviceCell)]
        generators = [v for v in given if isinstance(v.type, RandomGeneratorType)]
        self._generators = [storage[v] for v in generators]
        if len(generators) < len(given):
            self.refusal = self.refusal or "it changes an argument in place"

    def _reader(self, variable: Variable) -> Callable[[], Any]:
        """Return what reads the part of an input that tells recordings apart: its layout or shape."""
        cell = self._parts.storage[variable]
        if isinstance(variable, Constant):
            return tuple
        if not isinstance(cell, DeviceCell):
            if context_of(variable):
                return lambda: cell[0].layout
            context = self._context
            if context is None or context.info.host_alignment < 2:
                return lambda: cell[0].shape
            return lambda: (cell[0].shape, context.slack(cell[0]))  # where it is read in place, its offset
        name = self._parts.contexts[0]
        if any(isinstance(n.op, GpuFromHost) and n.inputs[0] is variable for n in self._parts.nodes):
            return lambda: cell.device(name).layout
        return lambda: np.shape(cell.anywhere())

    def _key(self) -> tuple[Any, ...]:
        for thunk in self._early:
            thunk()
        key = [read() for read in self._readers]
        key.extend([_frozen(cell[0]) for cell in self._keyed])
        return tuple(key)

    def _recorded(self, key: Any) -> Recording | None:
        last = self._last
        if last is not None and last[0] == key:
            return last[1]
        found = self._recordings.pop(key, None)
        if found is not None:
            self._recordings[key] = found  # the oldest is the first one
            self._last = key, found
        return found

    def _is_due(self, key: Any) -> bool:
        count = self._counts.get(key, 0)
        if len(self._counts) >= KEYS:
            self._counts.clear()
        self._counts[key] = count + 1
        return count >= AFTER

    # Repeating

    def _repeat(self, vm: "OpenCLVM", recording: Recording) -> bool:
        before = [(cell[0], cell[0].bit_generator.state) for cell in self._generators]
        try:
            recording()
        except (Mismatch, OutOfDeviceMemory):
            for generator, state in before:
                generator.bit_generator.state = state
            return False
        except Exception:
            vm.fail(recording.at)
        finally:
            recording.let_go()
        self.calls += 1
        return True

    # Recording

    def _record(self, vm: "OpenCLVM", key: Any) -> bool:
        context = self._context
        assert context is not None
        recorder, heard = Recorder(), Heard(Tape(context))
        context.queue.recorder = recorder
        try:
            self._listen(vm, recorder, heard)
        finally:
            context.queue.recorder = None
        results = self._results()
        self._let_go(results)
        trouble = recorder.trouble or heard.doubt
        if trouble:
            self._tries -= 1
            self.refusal = "" if self._tries else trouble
            self._counts.clear()
        else:
            self._keep(key, self._build(heard, results))
            context.memory.give_back()
        return True

    def _keep(self, key: Any, recording: Recording) -> None:
        while len(self._recordings) >= RECORDINGS:
            del self._recordings[next(iter(self._recordings))]
        self._recordings[key] = recording
        self._last = key, recording

    def _listen(self, vm: "OpenCLVM", recorder: Recorder, heard: "Heard") -> None:
        """Run the call step by step, and note what it does."""
        parts = self._parts
        for variable in parts.inputs:
            if context_of(variable) and not isinstance(variable, Constant):
                self._vary(heard, variable, parts.storage[variable][0], True)

        def before(at: int) -> None:
            recorder.listens = isinstance(parts.nodes[at].op, GpuOp)
            recorder.launches = []

        def after(at: int) -> None:
            recorder.listens = False
            heard.launches.append(recorder.launches)
            self._note(parts.nodes[at], heard)

        vm.run(before, after)

    def _note(self, node: Apply, heard: "Heard") -> None:
        """Note where a node's results are, or what they are."""
        storage, source = self._parts.storage, node.inputs[0] if node.inputs else None
        changes = isinstance(node.op, GpuFromHost) and not isinstance(source, Constant)
        for variable in node.outputs:
            value = storage[variable][0]
            if not context_of(variable):
                if self._is_known(variable) or variable in self._late:
                    heard.values[variable] = value
            elif changes:
                resident = isinstance(storage[source], DeviceCell) and source not in self._parts.updated
                self._vary(heard, variable, value, not resident)
            else:
                heard.tape.note(variable, value)
        if len(heard.launches[-1]) > 1 and self._changing(node):
            heard.doubt = f"{node.op} has several kernels that take a value"

    def _vary(self, heard: "Heard", variable: Variable, array: GpuArray, transient: bool) -> None:
        try:
            heard.tape.vary(variable, array, transient)
        except Mismatch:
            heard.doubt = "two inputs share their memory"

    def _is_known(self, variable: Variable) -> bool:
        assert self._roles is not None
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

    def _build(self, heard: "Heard", results: list[tuple[Cell, Variable]]) -> Recording:
        parts, tape = self._parts, heard.tape
        self._renew(tape, [v for _, v in results])
        self._plan(heard)
        needed = self._needed()
        for variable in filter(tape.places.__contains__, parts.inputs):
            tape.step(0, _input_step(parts.storage[variable], tape.places[variable].memory))
        for at, node in enumerate(parts.nodes):
            if isinstance(node.op, GpuOp):
                self._add_launches(heard, at, node)
            elif isinstance(node.op, GpuFromHost):
                self._add_upload(tape, at, node)
            elif isinstance(node.op, HostFromGpu):
                tape.read(at, node.inputs[0], parts.storage[node.outputs[0]])
                self._add_guards(heard, at, node)
            elif node in needed:
                self._add_host(heard, at, node)
        mine = {id(cell) for cell in parts.results}
        cells = (parts.storage[v] for n in parts.nodes for v in n.outputs)
        return tape.end(results, [c for c in cells if id(c) not in mine])

    def _renew(self, tape: Tape, results: Sequence[Variable]) -> None:
        """Results get new memory in each call; so do large downloads, unless two of them are the same memory."""
        reads = [n.inputs[0] for n in self._parts.nodes if isinstance(n.op, HostFromGpu)]
        owners = Counter(tape.places[v].memory for v in (*reads, *results))
        for variable in results:
            tape.renew(variable)
        for node in self._parts.nodes:
            if node in self._parts.sole and owners[tape.places[node.inputs[0]].memory] == 1:
                tape.renew_large(node.inputs[0])

    def _plan(self, heard: "Heard") -> None:
        """Choose where in the arena intermediate results lie."""
        tape, lives = heard.tape, Lives()
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
        assert self._roles is not None
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

    def _add_launches(self, heard: "Heard", at: int, node: Apply) -> None:
        kernels = heard.tape.launch(at, heard.launches[at])
        converts = values_of(self._parts.routines[node])
        for k in self._changing(node) if kernels else ():
            cell, convert, set_bytes = self._parts.storage[node.inputs[k]], converts[k], kernels[0].set_bytes
            heard.tape.step(at, _value_step(cell, convert, set_bytes, k))

    def _add_upload(self, tape: Tape, at: int, node: Apply) -> None:
        variable = node.outputs[0]
        memory, _, layout = tape.places[variable]
        if isinstance(memory, Slot):
            tape.step(at, _upload_step(self._parts.thunks[at], self._parts.storage[variable], memory, layout))

    def _add_host(self, heard: "Heard", at: int, node: Apply) -> None:
        parts = self._parts
        if all(map(self._is_known, node.outputs)):
            for variable in node.outputs:
                heard.tape.step(at, _constant_step(parts.storage[variable], heard.values[variable]))
            return
        if any(getattr(v.type, "ndim", 1) for v in node.outputs):
            heard.tape.flush()  # what takes long runs beside the device
        heard.tape.step(at, parts.thunks[at])
        self._add_guards(heard, at, node)

    def _add_guards(self, heard: "Heard", at: int, node: Apply) -> None:
        for variable in self._late.intersection(node.outputs):
            heard.tape.step(at, _guard_step(self._parts.storage[variable], _frozen(heard.values[variable])))


class Heard:
    """What was noted during the recorded call.

    Attributes
    ----------
    tape
        Where the arrays were.
    launches
        Per node.
    values
        Host values that are the same in each call, or must be.
    doubt
        What makes the recording useless.
    """

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.launches: list[list[Launch]] = []
        self.values: dict[Variable, Any] = {}
        self.doubt = ""


def _frozen(value: Any) -> Any:
    """Return a value as a part of a key.

    Raises
    ------
    TypeError
        It is too large, or nothing that can be compared.
    """
    array = np.asarray(value)
    if array.nbytes > LARGEST_KEY or array.dtype == object:
        raise TypeError("no value that tells calls apart")
    return array.shape, array.tobytes()


def _value_step(cell: Cell, convert: Any, set_bytes: Callable[[int, Any], None], index: int) -> Thunk:
    return lambda: set_bytes(index, convert(cell[0][()]))


def _constant_step(cell: Cell, value: Any) -> Thunk:
    return lambda: cell.__setitem__(0, np.array(value))


def _upload_step(thunk: Thunk, cell: Cell, slot: Slot, layout: Layout) -> Thunk:
    def run() -> None:
        thunk()
        array = cell[0]
        if array.layout != layout:
            raise Mismatch
        slot.bind(array.buffer)

    return run


def _input_step(cell: Cell, slot: Slot) -> Thunk:
    return lambda: slot.bind(cell[0].buffer)


def _guard_step(cell: Cell, expected: Any) -> Thunk:
    def run() -> None:
        if _frozen(cell[0]) != expected:
            raise Mismatch

    return run
