"""Device or host, decided at call time: a virtual machine that measures both sides for each class of sizes.

A class that is new starts on the side that its size suggests. When that side has taken `PATIENCE` seconds, and a lower
bound of what the other one needs does not rule it out, the other one is compiled and measured; the faster one stays.
Both are measured again when so much time has passed that the slower one's share of it is small, each time later.
"""

import sys
from collections.abc import Callable, Sequence
from math import inf, prod
from time import perf_counter
from typing import Any

import numpy as np
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.link.utils import raise_with_op

from pytensor_cl._compat import compile_with_numba, numba_refusals
from pytensor_cl.linker.host import Cell
from pytensor_cl.linker.replay import AFTER
from pytensor_cl.linker.vm import OpenCLVM
from pytensor_cl.linker.work import least_seconds
from pytensor_cl.ops.base import GpuOp
from pytensor_cl.rewriting.alternative import Alternative
from pytensor_cl.sharedvar import DeviceCell

__all__ = ["DEVICE", "HOST", "ChoosingVM", "HostFunction", "SizeClass"]

DEVICE, HOST = "device", "host"

TINY = 4096
"""Elements of all inputs and constants: below, the host goes first."""
PATIENCE = 0.5
"""Seconds that one side may take in all before the other, which must be compiled, is tried."""
SAMPLES = 3
"""Calls that are timed when a side is tried."""
UNTIMED = {DEVICE: AFTER + 2, HOST: 1}
"""Calls before these: the first one compiles, and moves shared variables, and the device's last one is recorded."""
CALL, NODE = 3e-6, 1e-6
"""Seconds that no device call, and no device node, is faster than."""
SHARE = 0.02
"""Part of the time that may be lost by trying again, at first."""
FADE = 1.1
"""By how much a measured time grows until the next trial."""
CLEAR = 0.95
"""How much faster than the chosen side the other one must be to replace it."""
NEVER = 1 << 60
SHAPES, CLASSES = 1024, 256  # how many are remembered

Side = Callable[[], list[Any]]


class HostFunction:
    """The whole graph as PyTensor's own NUMBA function, compiled by the first call.

    Parameters
    ----------
    alternative
        What it is made of.
    cells
        Storage of the inputs.
    count
        How many of the graph's first outputs are wanted.

    Attributes
    ----------
    is_to_blame
        Whether it failed because NUMBA cannot compile it, and not for the data.
    """

    def __init__(self, alternative: Alternative, cells: Sequence[Cell], count: int) -> None:
        self._alternative = alternative
        self._cells = [_Peek(c) if isinstance(c, DeviceCell) else c for c in cells]
        self._count = count
        self._graph: FunctionGraph | None = None
        self.is_to_blame = False
        self._function: Callable[..., Any] = self._compile

    def _compile(self, *values: Any) -> Any:
        graph = self._alternative.graph
        if self._count < len(graph.outputs):  # a copy of a function without its updates
            graph = FunctionGraph(graph.inputs, graph.outputs[: self._count], clone=True)
        self._function, self._graph = compile_with_numba(graph, self._alternative.mode)
        return self._function(*values)

    def __call__(self) -> list[Any]:
        try:
            return list(self._function(*[c[0] for c in self._cells]))
        except Exception as error:
            self.is_to_blame = isinstance(error, numba_refusals())
            self._blame()
            raise

    def _blame(self) -> None:
        """Re-raise the current exception as NUMBA's linker does, with the node of the first result."""
        node = next((o.owner for o in self._graph.outputs if o.owner), None) if self._graph is not None else None
        if node is not None:
            raise_with_op(self._graph, node, None)


class _Peek:
    """Reads a shared variable on the host, and leaves it on the device too."""

    __slots__ = ("_cell",)

    def __init__(self, cell: DeviceCell) -> None:
        self._cell = cell

    def __getitem__(self, index: int) -> Any:
        return self._cell.peek()


class SizeClass:
    """Calls whose inputs have about the same sizes.

    Attributes
    ----------
    shapes
        Of the inputs, in the first such call.
    side
        Where they run.
    seconds
        Measured time of a call on each side; inf where it has not been measured.
    bound
        Less than which it cannot take there.
    why
        Why the other side is out of the question, if it is.
    """

    __slots__ = ("bound", "done", "left", "round", "run", "seconds", "shapes", "side", "trials", "why")

    def __init__(self, shapes: tuple[Any, ...], side: str, run: Side) -> None:
        self.shapes = shapes
        self.side = side
        self.run = run
        self.seconds = {DEVICE: inf, HOST: inf}
        self.bound = {DEVICE: 0.0, HOST: 0.0}
        self.why = ""
        self.left = 0  # calls until something is measured
        self.trials = [side]  # what is to be measured
        self.done = 0  # calls of the first of these
        self.round = 0

    @property
    def other(self) -> str:
        """The side that was not chosen."""
        return HOST if self.side == DEVICE else DEVICE

    def note(self, side: str, seconds: float) -> None:
        """Take in the time of a call."""
        self.done += 1
        timed = self.done - UNTIMED[side]
        if timed == 1:
            # The best of earlier trials counts, but less each time: other programs only ever make a call slower.
            self.seconds[side] = min(seconds, FADE * self.seconds[side])
        elif timed > 1:
            self.seconds[side] = min(self.seconds[side], seconds)
        if timed >= SAMPLES:
            self.trials.pop(0)
            self.done = 0

    def settle(self) -> None:
        """Choose, and say when to measure again."""
        if self.seconds[self.other] < CLEAR * self.seconds[self.side]:
            self.side = self.other
        mine, others = max(self.seconds[self.side], 1e-9), self.seconds[self.other]
        self.round += 1
        if self.why or mine <= self.bound[self.other]:
            self.left = NEVER
        elif others == inf:
            self.left = int(PATIENCE / mine)
        else:
            lost = max(others - mine, SHARE * others) * (UNTIMED[self.other] + SAMPLES)
            self.left = int(min(2 ** min(self.round - 1, 30) * lost / SHARE / mine, NEVER))
        self.trials = [self.side, self.other]


class ChoosingVM(OpenCLVM):
    """Runs each call on the side that is faster for its sizes.

    Parameters
    ----------
    machine
        Arguments of `OpenCLVM`.
    host
        The other side.
    shape_cells
        What tells sizes apart: cells of the inputs whose shapes are not fixed.
    """

    def __init__(self, *machine: Any, host: HostFunction, shape_cells: Sequence[Cell]) -> None:
        super().__init__(*machine)
        self._host = host
        self._shape_cells = list(shape_cells)
        self._by_shape: dict[tuple[Any, ...], SizeClass] = {}
        self._classes: dict[tuple[int, ...], SizeClass] = {}
        self._refusal = ""
        self._sides: dict[str, Side] = {DEVICE: self._on_device, HOST: self._on_host}

    @property
    def size_classes(self) -> list[SizeClass]:
        """What was chosen for the sizes seen so far."""
        return list(self._classes.values())

    def __call__(self) -> list[Any]:
        if self.time_thunks:
            return super().__call__()
        try:
            shapes = tuple([c[0].shape for c in self._shape_cells])
        except AttributeError:  # a function that trusts its inputs got none that is an array
            return super().__call__()
        size = self._by_shape.get(shapes)
        if size is None:
            size = self._class_of(shapes)
        size.left -= 1
        if size.left < 0:
            return self._measured(size)
        return size.run()

    def _on_device(self) -> list[Any]:
        return super().__call__()

    def _on_host(self) -> list[Any]:
        """Run on the host; what NUMBA finds wrong the device says at the node, in the words of other backends."""
        try:
            return self._host()
        except Exception:
            if self._host.is_to_blame:
                raise
        return self._on_device()

    def _class_of(self, shapes: tuple[Any, ...]) -> SizeClass:
        if len(self._by_shape) >= SHAPES:
            self._by_shape.clear()
        if len(self._classes) >= CLASSES:
            self._classes.clear()
        sizes = [prod(s) for s in shapes]
        key = tuple(n.bit_length() for n in sizes)
        size = self._classes.get(key)
        if size is None:
            size = self._classes[key] = self._new(shapes)
        self._by_shape[shapes] = size
        return size

    def _new(self, shapes: tuple[Any, ...]) -> SizeClass:
        inputs = sum(prod(np.shape(_anywhere(c))) for c in self.input_storage)
        constants = sum(np.size(v.data) for v in self.storage_map if isinstance(v, Constant))
        side = HOST if inputs + constants <= TINY else DEVICE
        size = SizeClass(shapes, side, self._sides[side])
        size.bound[DEVICE] = CALL + NODE * sum(isinstance(n.op, GpuOp) and n.op.works for n in self.nodes)
        if any(0 in s for s in shapes):
            self._forbid(size, "no elements")
        elif self._refusal:
            self._forbid(size, self._refusal)
        return size

    def _forbid(self, size: SizeClass, why: str) -> None:
        """Leave a class to the device."""
        size.side, size.run, size.why = DEVICE, self._sides[DEVICE], why
        size.left, size.trials, size.done = NEVER, [], 0

    def _measured(self, size: SizeClass) -> list[Any]:
        """Run a call and time it; the last one of a trial decides."""
        side = size.trials[0]
        failure: Exception | None = None
        start = perf_counter()
        try:
            results = self._trial(size, side)
        except Exception as error:
            if side == size.side and (side == DEVICE or size.seconds[side] < inf):
                raise
            failure = error  # what the other side raises shall not look like a consequence of it
        if failure is not None:
            return self._instead(size, side, failure)
        size.note(side, perf_counter() - start)
        if not size.trials:
            size.settle()
            size.run = self._sides[size.side]
        return results

    def _trial(self, size: SizeClass, side: str) -> list[Any]:
        if side == HOST:
            return self._sides[HOST]()
        if not size.bound[HOST]:
            size.bound[HOST] = self._noting() or sys.float_info.min
            return self._results()
        results = self._sides[DEVICE]()
        self._finish()
        return results

    def _noting(self) -> float:
        """Run on the device; return how long the host would need at least."""
        total = 0.0

        def note(at: int) -> None:
            nonlocal total
            node = self.nodes[at]
            shapes = [[np.shape(_anywhere(self.storage_map[v])) for v in many] for many in (node.inputs, node.outputs)]
            total += least_seconds(node, *shapes)

        self.run(after=note)
        return total

    def _instead(self, size: SizeClass, failed: str, error: Exception) -> list[Any]:
        """The side that was tried has failed: if the other one does not, it is the fault of the side."""
        instead = DEVICE if failed == HOST else HOST
        results = self._sides[instead]()
        if failed == HOST:
            self._refusal = f"NUMBA: {type(error).__name__}: {error}".splitlines()[0]
            self._forbid(size, self._refusal)
        else:
            size.side, size.run, size.left = HOST, self._sides[HOST], NEVER
            size.why = f"the device: {type(error).__name__}: {error}".splitlines()[0]
        return results


def _anywhere(cell: Cell) -> Any:
    """Return a value where it is."""
    return cell.anywhere() if isinstance(cell, DeviceCell) else cell[0]
