"""Timed calls: when the host ran each step, and what the devices did and when."""

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any, NamedTuple

from pytensor.graph.basic import Apply

from pytensor_cl.linker.types import Cell
from pytensor_cl.ops.base import GpuOp, context_of
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.registry import get_context
from pytensor_cl.runtime.timed_queue import Command, CommandLog, read_commands, timed
from pytensor_cl.sharedvar import DeviceCell

Shapes = tuple[tuple[int, ...], ...]


class TimedStep(NamedTuple):
    """A node in one call; times are the host's ``perf_counter_ns``. Steps of device nodes only enqueue."""

    node: int  # index in the order of execution
    start: int
    end: int
    shapes: Shapes  # shapes of inputs and outputs


class TimedCall:
    """A timed call. The devices' time stamps are read when `commands` is read first."""

    def __init__(self, start: int, logs: Sequence[CommandLog]) -> None:
        self.start = start
        self.end = start  # when the devices had finished, as soon as they have
        self.steps: list[TimedStep] = []
        self._logs = list(logs)
        self._commands: list[Command] | None = None

    @property
    def commands(self) -> list[Command]:
        """The commands of the devices; `Command.step` is the index of the node."""
        if self._commands is None:
            self._commands = [c for log in self._logs for c in read_commands(log)]
            self._logs = []
        return self._commands


def _contexts(nodes: Sequence[Apply]) -> list[Context]:
    names = {n.op.context_name for n in nodes if isinstance(n.op, GpuOp)}
    names |= {c for n in nodes for v in (*n.inputs, *n.outputs) if (c := context_of(v))}
    return [get_context(name) for name in sorted(names)]


def _shape(cell: Cell) -> tuple[int, ...]:
    # np.shape would import the namespace of arrays for the first device array, within the time of a call.
    shape: tuple[int, ...] = getattr(cell.anywhere() if isinstance(cell, DeviceCell) else cell[0], "shape", ())
    return shape


class Timer:
    """Times the calls of a function."""

    def __init__(self, nodes: Sequence[Apply], storage: dict[Any, Cell]) -> None:
        self._cells = [tuple(storage[v] for v in (*node.inputs, *node.outputs)) for node in nodes]
        self._contexts = _contexts(nodes)

    def __call__(self, run: Callable[[Callable[[int], None]], None], finish: Callable[[], None]) -> TimedCall:
        """Run a call and time it; the cost of the measurement is included.

        `run` calls its argument with the index of each node that has run, while its values are there; `finish` ends the
        call.
        """
        start = perf_counter_ns()
        with timed(self._contexts) as logs:
            call = TimedCall(start, logs)
            begin = perf_counter_ns()

            def note(at: int) -> None:
                nonlocal begin
                end = perf_counter_ns()
                call.steps.append(TimedStep(at, begin, end, tuple(map(_shape, self._cells[at]))))
                for log in logs:
                    log.step = at + 1
                begin = perf_counter_ns()

            run(note)
            finish()
        call.end = perf_counter_ns()
        return call


def node_seconds(call: TimedCall) -> dict[int, float]:
    """Return the seconds of each node: on the device, or on the host where it enqueued nothing."""
    seconds = {step.node: 0.0 for step in call.steps}
    for command in call.commands:
        if command.step in seconds:  # the others read error flags after the last node
            seconds[command.step] += 1e-9 * (command.end - command.start)
    return {s.node: seconds[s.node] or 1e-9 * (s.end - s.start) for s in call.steps}
