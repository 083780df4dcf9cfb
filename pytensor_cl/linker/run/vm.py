"""The virtual machine: replays calls, or runs the steps of a function in order."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from pytensor.graph.fg import FunctionGraph

from pytensor_cl.linker.run.errors import ErrorMonitor, NodeErrors
from pytensor_cl.linker.run.rng_state import restore_rng_states, save_rng_states
from pytensor_cl.linker.run.segments import GraphExecutor
from pytensor_cl.linker.run.timed_call import TimedCall, Timer, node_seconds
from pytensor_cl.linker.types import Cell, Hook, StepProgram, Thunk
from pytensor_cl.ops.base import GpuOp
from pytensor_cl.ops.transfer import GpuFromHost
from pytensor_cl.runtime.memory.device_memory import is_lack_of_memory
from pytensor_cl.runtime.progress import calling
from pytensor_cl.runtime.registry import get_context


@dataclass(frozen=True, kw_only=True)
class LinkedGraph:
    """A rewritten graph that is ready to run."""

    fgraph: FunctionGraph
    program: StepProgram
    input_storage: Sequence[Cell]
    free_after: Sequence[Sequence[Cell]]  # cells to empty after each node: nothing reads them later
    allow_gc: bool  # whether PyTensor empties the cells of inputs and outputs after a call
    mutable_rngs: Sequence[Cell]  # random generators that a call changes in place
    monitor: ErrorMonitor
    finish: Thunk  # waits for the devices
    build_kernels: Thunk  # called before the first run


class OpenCLVM:
    """Virtual machine of a function: `pytensor.compile.executor.Function` calls it for each call."""

    need_update_inputs = True

    def __init__(self, linked: LinkedGraph) -> None:
        program = linked.program
        self.fgraph = linked.fgraph
        self.nodes, self.thunks = list(program.nodes), list(program.thunks)
        self.routines = program.routines
        self.storage_map = program.storage
        self.input_storage, self.output_storage = list(linked.input_storage), list(program.results)
        self.allow_gc = linked.allow_gc
        self.is_timed = False  # timed calls run step by step, on the device, and wait for it
        self.call_listeners: list[Callable[[TimedCall], None]] = []  # called with each timed call
        # The lock that a call of the function takes, and the locks of its shared variables; `call_lock.assign_lock`
        # sets both.
        self.call_lock: Any = None
        self.cell_locks: list[Any] = []
        self.copy_for_nested_calls: Any = None  # copy of the function, made by its first nested call
        # The types of arguments that the function takes as they are, and the functions that run calls with device
        # arrays (`device_arguments`).
        self.accepted_types: frozenset[type] = frozenset()
        self.device_variants: dict[Any, Any] = {}
        self.executor = GraphExecutor(program)
        self.mutable_rngs = list(linked.mutable_rngs)
        self._last_timed_call: TimedCall | None = None
        self._timer: Timer | None = None
        self._finish = linked.finish
        self._build_kernels: Thunk | None = linked.build_kernels
        self._has_checks = bool(linked.monitor)
        self._errors = NodeErrors(
            linked.fgraph, self.nodes, self.storage_map, linked.monitor, self.executor.restore_recorded_shapes
        )
        outputs = [self.storage_map[v] for v in linked.fgraph.outputs]
        # Cells that PyTensor does not empty, or that are no outputs: their values are the caller's.
        self._emptied = [c for c in self.output_storage if not self.allow_gc or not any(c is o for o in outputs)]
        self._steps = list(zip(self.thunks, linked.free_after, strict=True))

    @property
    def time_thunks(self) -> bool:
        """Whether calls are timed. PyTensor sets it for ``profile=True``."""
        return self.is_timed

    @time_thunks.setter
    def time_thunks(self, value: bool) -> None:
        self.is_timed = value

    def __call__(self) -> list[Any]:
        rng_states = save_rng_states(self.mutable_rngs) if self.mutable_rngs else ()
        runs_steps = False
        try:
            if self.is_timed:
                self._run_timed()
            elif not self.executor.run(self):
                runs_steps = True
                self.run()
            if self._has_checks:
                self._errors.raise_device_error()  # before shared variables get their updates
            results = [cell[0] for cell in self.output_storage]
            for cell in self._emptied:
                cell[0] = None
            if runs_steps:
                self.executor.confirm()
            return results
        except BaseException:
            restore_rng_states(rng_states)
            raise

    def build(self) -> None:
        """Build the kernels, if that was left to the first call."""
        if self._build_kernels is not None:
            self._build_kernels()
            self._build_kernels = None

    def run(
        self,
        before: Hook = None,
        after: Hook = None,
        start: int = 0,
        stop: int | None = None,
    ) -> None:
        """Run the nodes from `start` up to `stop` step by step.

        `before` and `after` are called with the index of each node, while the values that it reads are there.
        """
        with calling(getattr(self.fgraph, "name", None)):
            if self._build_kernels is not None:
                self.build()
            self._run_steps(before, after, start, stop)

    def _run_steps(
        self,
        before: Hook,
        after: Hook,
        start: int,
        stop: int | None,
    ) -> None:
        at = start
        try:
            for at, (thunk, freed) in enumerate(self._steps[start:stop], start):
                if before is not None:
                    before(at)
                try:
                    thunk()
                except Exception as error:
                    if not is_lack_of_memory(error):
                        raise
                    self._retry_with_more_memory(at, thunk, error)
                if after is not None:
                    after(at)
                for cell in freed:
                    cell[0] = None
        except Exception:
            self.raise_at_node(at)

    def _retry_with_more_memory(self, at: int, thunk: Thunk, error: Exception) -> None:
        """Run a step again after idle buffers were freed: some drivers allocate memory when it is used."""
        op = self.nodes[at].op
        if not isinstance(op, GpuOp | GpuFromHost) or op.destroy_map:
            raise error
        get_context(op.context_name).memory.retry_after_freeing(thunk, error)

    def free(self, start: int, stop: int) -> None:
        """Empty the cells that are read for the last time by nodes from `start` up to `stop`."""
        for _, freed in self._steps[start:stop]:
            for cell in freed:
                cell[0] = None

    def _run_timed(self) -> None:
        """Run a call step by step and time it; times of kernels come from the device's clock."""
        self.build()
        if self._timer is None:
            self._timer = Timer(self.nodes, self.storage_map)
        self._last_timed_call = self._timer(lambda note: self.run(after=note), self._errors.raise_device_error)
        for listener in self.call_listeners:
            listener(self._last_timed_call)

    def raise_at_node(self, at: int) -> NoReturn:
        """Re-raise the current exception, or an error that a kernel has reported before, with the node's name."""
        self._errors.raise_at_node(at)

    def update_profile(self, profile: Any) -> None:
        """Add the times of the last call to PyTensor's profile; a device node has the time of its kernels."""
        if self._last_timed_call is None:
            return
        for at, seconds in node_seconds(self._last_timed_call).items():
            key = self.fgraph, self.nodes[at]
            profile.apply_time[key] += seconds
            profile.apply_callcount[key] += 1
            profile.apply_cimpl[self.nodes[at]] = True
        self._last_timed_call = None
