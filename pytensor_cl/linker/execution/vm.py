"""The virtual machine: runs the steps of a function in order."""

import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.link.utils import raise_with_op
from pytensor.tensor.type import TensorType

from pytensor_cl.errors import BroadcastError, OutOfDeviceMemory
from pytensor_cl.linker.execution.errors import ErrorMonitor
from pytensor_cl.linker.execution.rng_state import restore_rng_states, save_rng_states
from pytensor_cl.linker.execution.segments import GraphExecutor
from pytensor_cl.linker.execution.timed_call import Call, Timer, node_seconds
from pytensor_cl.linker.steps.host import Cell, Thunk
from pytensor_cl.ops.base import GpuOp, context_of
from pytensor_cl.ops.transfer import GpuFromHost
from pytensor_cl.runtime.memory.device_memory import is_lack_of_memory
from pytensor_cl.runtime.progress import calling
from pytensor_cl.runtime.registry import get_context

__all__ = ["OpenCLVM"]

_BROADCAST = "Could not broadcast dimensions"  # what PyTensor's own assertions on shapes say


class OpenCLVM:
    """What `pytensor.compile.executor.Function` calls.

    Parameters
    ----------
    fgraph
        The rewritten graph.
    nodes, thunks
        Its nodes in the order of execution, and what computes each.
    storage_map
        Variable to storage cell.
    input_storage, output_storage
        Cells of the graph's inputs, and of what a call returns.
    dead
        Per node the cells to be emptied after it: nobody reads them any more.
    finish
        Waits for the devices.
    allow_gc
        Whether PyTensor empties the cells of inputs and outputs after a call.
    checks
        What the kernels may find wrong with their data.
    replays
        Calls that were recorded.
    generators
        Cells of the random generators that a call changes in place.
    prepare
        Called before the first run: builds the kernels.
    programs
        What the kernels are from, now or when they have been built.

    Attributes
    ----------
    time_thunks
        Whether calls are timed: they run node by node, on the device, and wait for it. PyTensor sets it for
        ``profile=True``.
    watchers
        What gets each timed call.
    generators
        Cells of the random generators that a call changes in place.
    call_lock
        What a call of the function takes; `call_lock.give_lock` sets it.
    uses
        What `call_lock` knows of its shared variables.
    copy_for_nested_calls
        Copy of the function for calls within a call, once there has been one.
    """

    need_update_inputs = True

    def __init__(
        self,
        fgraph: FunctionGraph,
        nodes: Sequence[Apply],
        thunks: Sequence[Thunk],
        storage_map: dict[Any, Cell],
        input_storage: Sequence[Cell],
        output_storage: Sequence[Cell],
        dead: Sequence[Sequence[Cell]],
        finish: Thunk,
        allow_gc: bool,
        checks: ErrorMonitor,
        replays: GraphExecutor,
        generators: Sequence[Cell],
        prepare: Thunk | None = None,
        programs: Sequence[Any] = (),
    ) -> None:
        self.fgraph = fgraph
        self.nodes = list(nodes)
        self.thunks = list(thunks)
        self.storage_map = storage_map
        self.input_storage = list(input_storage)
        self.output_storage = list(output_storage)
        self.allow_gc = allow_gc
        self.time_thunks = False
        self.watchers: list[Callable[[Call], None]] = []
        self.call_lock: Any = None
        self.uses: list[Any] = []
        self.copy_for_nested_calls: Any = None
        self._last: Call | None = None
        self._timer: Timer | None = None
        self._finish = finish
        self._checks = checks or None
        self.replays = replays
        self.generators = list(generators)
        self._prepare = prepare
        self._programs = programs  # as long as the function may create kernels
        outputs = [storage_map[v] for v in fgraph.outputs]
        # Cells that PyTensor does not know as outputs, or does not empty: what they hold is the caller's.
        self._handed_over = [c for c in output_storage if not allow_gc or not any(c is o for o in outputs)]
        self._steps = list(zip(self.thunks, dead, strict=True))

    def __call__(self) -> list[Any]:
        before = save_rng_states(self.generators) if self.generators else ()
        try:
            if self.time_thunks:
                return self._timed()
            if self.replays(self):
                return self._results()
            self.run()
            results = self._results()
            self.replays.confirm()
            return results
        except BaseException:
            restore_rng_states(before)
            raise

    def _results(self) -> list[Any]:
        """End a call."""
        if self._checks is not None:
            self._raise_found()  # before the caller gets the results, and shared variables their updates
        results = [cell[0] for cell in self.output_storage]
        for cell in self._handed_over:
            cell[0] = None
        return results

    def build(self) -> None:
        """Build the kernels, if that was left to the first call."""
        if self._prepare is not None:
            self._prepare()
            self._prepare = None

    def run(
        self,
        before: Callable[[int], None] | None = None,
        after: Callable[[int], None] | None = None,
        start: int = 0,
        stop: int | None = None,
    ) -> None:
        """Run step by step; `before` and `after` are told of each, while the values that it reads are there."""
        with calling(getattr(self.fgraph, "name", None)):
            if self._prepare is not None:
                self.build()
            self._run(before, after, start, stop)

    def _run(
        self,
        before: Callable[[int], None] | None,
        after: Callable[[int], None] | None,
        start: int,
        stop: int | None,
    ) -> None:
        at = start
        try:
            for at, (thunk, dead) in enumerate(self._steps[start:stop], start):
                if before is not None:
                    before(at)
                try:
                    thunk()
                except Exception as error:
                    if not is_lack_of_memory(error):
                        raise
                    self._insist(at, thunk, error)
                if after is not None:
                    after(at)
                for cell in dead:
                    cell[0] = None
        except Exception:
            self.fail(at)

    def _insist(self, at: int, thunk: Thunk, error: Exception) -> None:
        """Repeat a step when its device gave back what no array uses: some drivers allocate memory when it is used."""
        op = self.nodes[at].op
        if not isinstance(op, GpuOp | GpuFromHost) or op.destroy_map:
            raise error
        get_context(op.context_name).memory.insist(thunk, error)

    def drop(self, start: int, stop: int) -> None:
        """Drop what nobody reads after some nodes."""
        for _, dead in self._steps[start:stop]:
            for cell in dead:
                cell[0] = None

    def _timed(self) -> list[Any]:
        """Run and note what takes how long; the device's times come from its own clock."""
        self.build()
        if self._timer is None:
            self._timer = Timer(self.nodes, self.storage_map)
        self._last, results = self._timer(lambda note: self.run(after=note), self._results)
        for watcher in self.watchers:
            watcher(self._last)
        return results

    def fail(self, at: int) -> NoReturn:
        """Re-raise the current exception at a node, or what kernels found before: it may have failed for that."""
        self._raise_found()
        self._fail(at)
        raise AssertionError

    def _raise_found(self) -> None:
        """Raise what kernels found; what failed after them may have failed for that."""
        found = self._checks.failure() if self._checks is not None else None
        if found is None:
            return
        self.replays.restore()
        node, error = found
        try:
            raise error
        except Exception:
            self._fail(self.nodes.index(node))

    def _fail(self, at: int) -> None:
        """Re-raise the current exception with a note that names the node; drop what was computed."""
        error = sys.exception()
        assert error is not None
        is_told = isinstance(error, BroadcastError)  # by a branch
        if isinstance(error, AssertionError) and not is_told and str(error).startswith(_BROADCAST):
            error = BroadcastError(*error.args).with_traceback(error.__traceback__)
        elif isinstance(error, TypeError | AttributeError) and (text := self._untyped_argument(at)):
            error = AttributeError(text).with_traceback(error.__traceback__)
        elif is_lack_of_memory(error):
            error = self._lack(at, error).with_traceback(error.__traceback__)
        error.add_note(f"\nRaised by node {self._describe(at)}")
        raised = type(error), error, error.__traceback__
        try:
            raise_with_op(self.fgraph, self.nodes[at], _Described(self, at), raised, self.storage_map)
        finally:
            for variable, cell in self.storage_map.items():
                if variable.owner is not None:
                    cell[0] = None

    def _lack(self, at: int, error: BaseException) -> OutOfDeviceMemory:
        """Return what to raise where a driver had no memory for a command of a node."""
        node = self.nodes[at]
        name = next((c for v in (*node.outputs, *node.inputs) if (c := context_of(v))), None)
        return OutOfDeviceMemory(str(error) if name is None else get_context(name).memory.refusal(error))

    def _untyped_argument(self, at: int) -> str:
        """Say which argument of a node is no array: a function that trusts its arguments does not convert them."""
        node = self.nodes[at]
        for variable, cell in zip(node.inputs, self.inputs_of(node), strict=True):
            is_bare = isinstance(variable.type, TensorType) and cell[0] is not None and not hasattr(cell[0], "dtype")
            if is_bare and variable in self.fgraph.inputs:
                given, wanted = type(cell[0]).__name__, variable.type
                return f"argument {variable} is of class {given}: with trust_input=True it must be an array, {wanted}"
        return ""

    def _describe(self, at: int) -> str:
        """Name a node and the shapes of its inputs: PyTensor's own notes do so only at a higher verbosity."""
        node = self.nodes[at]
        shapes = (getattr(cell[0], "shape", None) for cell in self.inputs_of(node))
        told = ("no shape" if shape is None else str(shape) for shape in shapes)
        return f"{node.op}({', '.join(map(str, node.inputs))}), input shapes: {', '.join(told)}"

    def inputs_of(self, node: Apply) -> list[Cell]:
        """Return what a node reads; of what was dropped already, what is known of it."""
        dropped = self._checks.dropped(node) if self._checks is not None else {}
        cells = [(v, self.storage_map[v]) for v in node.inputs]
        return [[dropped.get(v)] if cell[0] is None else cell for v, cell in cells]

    def update_profile(self, profile: Any) -> None:
        """Add the times of the last call to PyTensor's profile: a device node's is that of its kernels."""
        if self._last is None:
            return
        for at, seconds in node_seconds(self._last).items():
            key = self.fgraph, self.nodes[at]
            profile.apply_time[key] += seconds
            profile.apply_callcount[key] += 1
            profile.apply_cimpl[self.nodes[at]] = True
        self._last = None


class _Described:
    """A node's storage cells, in the form in which PyTensor's error notes want them."""

    def __init__(self, vm: OpenCLVM, at: int) -> None:
        node = vm.nodes[at]
        self.inputs = vm.inputs_of(node)
        self.outputs = [vm.storage_map[v] for v in node.outputs]
