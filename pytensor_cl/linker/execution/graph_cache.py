"""Which calls are recorded, and which recording a call repeats."""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.type import TensorType

from pytensor_cl.errors import OutOfDeviceMemory
from pytensor_cl.linker.capture.capturer import CaptureFailure, Capturer, StepProgram, StepRunner
from pytensor_cl.linker.capture.host_values import HostValueClasses, assign, changed
from pytensor_cl.linker.execution.errors import Noting
from pytensor_cl.linker.execution.rng_state import restore_rng_states, save_rng_states
from pytensor_cl.linker.replay.bindings import GuardFailure, TooLarge, frozen
from pytensor_cl.linker.replay.graph import CapturedGraph
from pytensor_cl.linker.replay.slices import DynamicSlices, ParameterResolver, ReplayParameters, find_dynamic_slices
from pytensor_cl.linker.steps.device import read_only
from pytensor_cl.linker.steps.host import Cell, Thunk
from pytensor_cl.ops.base import context_of
from pytensor_cl.ops.transfer import GpuFromHost
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.memory.device_memory import is_lack_of_memory
from pytensor_cl.runtime.registry import get_context
from pytensor_cl.sharedvar import DeviceCell

__all__ = ["GraphCache"]

WARMUP_CALLS = 2
"""Calls with the same key that run step by step: they build kernels and tables, and most functions are called once."""
MAX_GRAPHS, MAX_SIGNATURES = 64, 1024
"""How many are kept, and how many keys are counted, of a function: minibatches that are slices differ in their keys."""
MAX_GUARD_FAILURES = 8
"""Calls that may turn out to differ from a recording before it is forgotten."""
MAX_CAPTURE_ATTEMPTS = 3
"""Recordings that may fail before the function is left alone."""

_log = logging.getLogger("pytensor_cl")


class GraphCache:
    """The recordings of a function, or of some of its nodes in a row.

    Parameters
    ----------
    parts
        What they are.

    Attributes
    ----------
    refusal
        Why calls are not recorded, if they are not.
    break_at
        The node that is to blame, if it is one.
    calls
        How many were repeated.
    too_large
        Why the last calls had no key.
    problem
        What was raised when a key was made, although the call was right: a defect.
    """

    def __init__(self, parts: StepProgram) -> None:
        self._parts = parts
        self._recordings: dict[Any, CapturedGraph] = {}
        self._variants: dict[Any, tuple[CapturedGraph, ReplayParameters]] = {}
        self._moving = DynamicSlices()
        self._finder: ParameterResolver | None = None
        self._counts: dict[Any, int] = {}
        self._roles: HostValueClasses | None = None
        self._early: list[Thunk] = []
        self._keyed: list[Cell] = []
        self._numbers: list[Cell] = []
        self._alike: Any = None  # what this call has in common with those that one recording serves
        self._generators: list[Cell] = []  # that calls change in place
        self._readers: list[Callable[[], Any]] = []
        self._tries = MAX_CAPTURE_ATTEMPTS
        self._context: Context | None = None
        self._last: tuple[Any, tuple[CapturedGraph, ReplayParameters | None]] | None = None
        self.refusal = "" if len(parts.contexts) < 2 else "it runs on several devices"
        self.break_at: int | None = None
        self.calls = 0
        self.too_large = self.problem = ""
        self._outcome: CapturedGraph | Exception | None = None  # what this call repeats, or why it has no key

    @property
    def recordings(self) -> dict[Any, CapturedGraph]:
        """What is kept, by key."""
        return {(*key, *numbers): recording for (key, numbers), recording in self._recordings.items()}

    def release(self) -> None:
        """Let go of the arena."""
        for recording in list(self._recordings.values()):
            recording.release()

    def clear(self) -> None:
        """Forget all recordings: their memory goes."""
        self._recordings.clear()
        self._variants.clear()
        self._last = self._outcome = None

    def __call__(self, vm: StepRunner) -> bool:
        """Run a call by a recording, or make one of it; False if it must run step by step."""
        if self.refusal or not self._parts.contexts:
            return False
        if self._roles is None and not self._prepare():
            return False
        self._outcome = None
        try:
            key = self._key()
            found = self._recorded(key)
        except Exception as error:  # wrong data, as a rule: the steps say what is wrong, and where
            self._outcome = error
            return False
        if found is None and not self._is_due():
            return False
        context = self._context
        assert context is not None
        mine, waiting = object(), context.replays
        try:
            waiting.append(mine)
            if waiting[0] is not mine or context.queue.recorder is not None:
                return False  # another thread repeats a call, or a node of this very call calls a function
            return self._record(vm, key) if found is None else self._repeat(vm, *found)
        finally:  # unlike a lock, right wherever a signal interrupts: what is in the list is known, not remembered
            if mine in waiting:
                waiting.remove(mine)

    def confirm(self) -> None:
        """Note that the steps of a call have run: if it had no key, its data were not wrong."""
        error = self._outcome
        if not isinstance(error, Exception):
            return
        self._outcome = None
        if isinstance(error, TooLarge):
            self.too_large = str(error)
        elif not self.problem:
            self.problem = f"the comparison of calls failed: {type(error).__name__}: {error}"
            _log.warning("The comparison of calls failed; they run step by step.", exc_info=error)

    def restore(self) -> None:
        """If this call was a repetition, tell the nodes that check their data what they read in it."""
        if isinstance(self._outcome, CapturedGraph):
            for noting, shapes in self._outcome.noted:
                noting.shapes = shapes

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
        self._keyed = [read_only(parts.storage[v]) for v in roles.keyed]
        self._numbers = [read_only(parts.storage[v]) for v in roles.numbers]
        results = {id(cell) for cell in parts.results}
        kept = {v for v, cell in parts.storage.items() if id(cell) in results}
        self._moving = find_dynamic_slices(parts.nodes, roles.numbers, roles.fixed, kept)
        if self._moving.slices:
            thunks = [parts.thunks[position[n]] for n in self._moving.nodes]
            self._finder = ParameterResolver(self._moving, thunks, parts.storage, parts.routines)
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
            arrival, context = self._parts.arrivals.get(variable), self._context
            if arrival is None or context is None or context.info.host_alignment < 2:
                return lambda: cell[0].shape
            return lambda: (cell[0].shape, arrival.slack(cell[0]))  # where it is read in place, its offset
        name = self._parts.contexts[0]
        if any(isinstance(n.op, GpuFromHost) and n.inputs[0] is variable for n in self._parts.nodes):
            return lambda: _layout_on(cell, name)
        return lambda: np.shape(cell.anywhere())

    def _key(self) -> tuple[Any, ...]:
        for thunk in self._early:
            thunk()
        key = [read() for read in self._readers]
        key.extend([frozen(cell[0]) for cell in self._keyed])
        return tuple(key), tuple([frozen(cell[0]) for cell in self._numbers]) if self._numbers else ()

    def _recorded(self, key: Any) -> tuple[CapturedGraph, ReplayParameters | None] | None:
        """Return what repeats a call."""
        last = self._last
        if last is not None and last[0] == key:
            return last[1]
        found: Any = self._variants.get(key)
        if found is None:
            found = self._found(key)
        if found is not None:
            self._last = key, found
            self._refresh(found[0])
        return found

    def _refresh(self, recording: CapturedGraph) -> None:
        """Make a recording the last one that goes: the oldest is the first."""
        self._recordings[recording.key] = self._recordings.pop(recording.key, recording)

    def _found(self, key: Any) -> tuple[CapturedGraph, ReplayParameters | None] | None:
        """Look for a recording of the key, or one that serves a call whose slices begin elsewhere."""
        self._alike = key
        if self._finder is None:
            return (self._recordings[key], None) if key in self._recordings else None
        like = [r for (others, _), r in self._recordings.items() if others == key[0]]
        if not like:
            self._alike = key[0]  # the first recording may serve them all
            return None
        if not like[-1].variation.windows:
            return (self._recordings[key], None) if key in self._recordings else None
        signature = self._finder.signature(like[-1].variation)
        self._alike = key[0], signature
        for recording in like:
            if recording.variation.signature == signature:
                found = recording, self._finder.variant(recording.variation)
                self._remember(key, found)
                return found
        return None

    def _remember(self, key: Any, found: tuple[CapturedGraph, ReplayParameters]) -> None:
        if len(self._variants) >= MAX_SIGNATURES:
            self._variants.clear()
        self._variants[key] = found

    def _is_due(self) -> bool:
        """Count a call; tell whether to record it."""
        count = self._counts.get(self._alike, 0)
        if len(self._counts) >= MAX_SIGNATURES:
            self._counts.clear()
        self._counts[self._alike] = count + 1
        return count >= WARMUP_CALLS

    # Repeating

    def _repeat(self, vm: StepRunner, recording: CapturedGraph, variant: ReplayParameters | None) -> bool:
        before = save_rng_states(self._generators)
        self._outcome = recording
        try:
            recording(variant)
        except (GuardFailure, OutOfDeviceMemory):
            restore_rng_states(before)
            self._outcome = None
            self._missed(recording)
            return False
        except Exception as error:
            # What kernels of this call have written to old values must not be computed with again.
            if not is_lack_of_memory(error) or recording.donations:
                vm.fail(recording.at)
            restore_rng_states(before)
            self._outcome = None
            return False
        finally:
            recording.let_go()
        self.calls += 1
        return True

    def _missed(self, recording: CapturedGraph) -> None:
        """Forget a recording that calls do not match again and again."""
        recording.misses += 1
        if recording.misses >= MAX_GUARD_FAILURES:
            self._drop(recording.key)
            self._counts.clear()

    def _drop(self, key: Any) -> None:
        gone = self._recordings.pop(key, None)  # others forget all when memory runs out
        self._variants = {k: found for k, found in self._variants.items() if found[0] is not gone}
        self._last = None

    # CapturedGraph

    def _record(self, vm: StepRunner, key: Any) -> bool:
        context = self._context
        assert context is not None and self._roles is not None
        try:
            made = Capturer(self._parts, self._roles, self._moving, context).record(vm)
        except Exception as error:
            if not is_lack_of_memory(error):
                raise
            # An OutOfDeviceMemory would be the call's: its results are there, the tables of a launch are not.
            made = CaptureFailure("the device ran out of memory", None)
        if isinstance(made, CaptureFailure):
            self._tries -= 1
            if not self._tries or made.is_lasting:
                self.refusal, self.break_at = made.what, made.at
            self._counts.clear()
        else:
            self._keep(key, made)
            context.memory.give_back()
        return True

    def _keep(self, key: Any, recording: CapturedGraph) -> None:
        while len(self._recordings) >= MAX_GRAPHS:
            self._drop(next(iter(self._recordings)))
        self._recordings[key] = recording
        recording.key = key
        recording.noted = [(t, t.shapes) for t in self._parts.thunks if isinstance(t, Noting)]
        self._last = None


def _layout_on(cell: DeviceCell, name: str) -> Layout:
    """Return the layout that a shared variable has on a device, or gets by an upload."""
    array = cell.devices.get(name)
    return Layout.contiguous(np.shape(cell.anywhere())) if array is None else array.layout
