"""Calls of which parts are repeated: some nodes cannot be recorded, those between them can.

How large a result of such a node is depends on values, or it handles device arrays itself. It runs by itself, between
recordings of what stands before and after it. What these hand on are arrays of their own, so the recordings after such
a node are told apart by the shapes that it made.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from pytensor.graph.basic import Apply, Constant, Variable

from pytensor_cl.linker.capture.capturer import StepProgram
from pytensor_cl.linker.capture.host_values import trouble_of
from pytensor_cl.linker.execution.graph_cache import GraphCache
from pytensor_cl.linker.replay.graph import CapturedGraph
from pytensor_cl.ops.base import GpuOp

if TYPE_CHECKING:
    from pytensor_cl.linker.execution.vm import OpenCLVM

__all__ = ["GraphExecutor"]


class _Span(NamedTuple):
    """Some nodes of a virtual machine, as one of its own."""

    vm: "OpenCLVM"
    start: int
    stop: int

    def run(self, before: Callable[[int], None] | None = None, after: Callable[[int], None] | None = None) -> None:
        """Run them step by step."""
        self.vm.run(self._local(before), self._local(after), self.start, self.stop)

    def _local(self, told: Callable[[int], None] | None) -> Callable[[int], None] | None:
        start = self.start
        return None if told is None else lambda at: told(at - start)

    def fail(self, at: int) -> NoReturn:
        """Re-raise the current exception at a node."""
        self.vm.fail(self.start + at)


class _Piece(NamedTuple):
    """Nodes that are repeated together, or that run step by step: then there is no stretch."""

    start: int
    stop: int
    stretch: GraphCache | None

    def __call__(self, vm: "OpenCLVM") -> None:
        span = _Span(vm, self.start, self.stop)
        if self.stretch is not None and self.stretch(span):
            vm.drop(self.start, self.stop)
        else:
            span.run()
            if self.stretch is not None:
                self.stretch.confirm()


class GraphExecutor:
    """The recordings of one function.

    Parameters
    ----------
    parts
        Of its virtual machine.

    Attributes
    ----------
    apart
        Nodes that run by themselves, and why.
    """

    def __init__(self, parts: StepProgram) -> None:
        self._parts = parts
        self.apart: dict[int, str] = {at: why for at, node in enumerate(parts.nodes) if (why := trouble_of(node))}
        self._calls = 0
        self._pieces: list[_Piece] = []
        self._whole: GraphCache | None = GraphCache(parts)
        if self.apart and not self._whole.refusal:
            self._split()

    def __call__(self, vm: "OpenCLVM") -> bool:
        """Run a call by recordings, or make some of it; False if all of it must run step by step."""
        whole = self._whole
        if whole is not None:
            done = whole(vm)
            if whole.break_at is not None:
                self.apart[whole.break_at] = whole.refusal
                self._split()
            return done
        before = self._repeated()
        for piece in self._pieces:
            piece(vm)
        self._calls += self._repeated() > before
        self._look_for_breaks()
        return True

    def confirm(self) -> None:
        """Note that a call has run step by step, and that its data were right."""
        for stretch in self._stretches:
            stretch.confirm()

    def restore(self) -> None:
        """Tell the nodes that check their data what they have read, where a call was a repetition."""
        for stretch in self._stretches:
            stretch.restore()

    def _look_for_breaks(self) -> None:
        found = [p for p in self._pieces if p.stretch is not None and p.stretch.break_at is not None]
        for piece in found:
            assert piece.stretch is not None and piece.stretch.break_at is not None
            self.apart[piece.start + piece.stretch.break_at] = piece.stretch.refusal
        if found:
            self._split()

    def _split(self) -> None:
        """Make the pieces between the nodes that run by themselves."""
        self._whole = None
        self._pieces = []
        start, last = 0, len(self._parts.nodes)
        for at in (*sorted(self.apart), last):
            if start < at:
                self._pieces.append(_Piece(start, at, self._stretch(start, at)))
            if at < last:
                self._pieces.append(_Piece(at, at + 1, None))
            start = at + 1

    def _stretch(self, start: int, stop: int) -> GraphCache | None:
        """Return the recordings of some nodes; None if they compute nothing."""
        nodes = self._parts.nodes[start:stop]
        computes = any(isinstance(node.op, GpuOp) and node.op.is_compute for node in nodes)
        return GraphCache(_cut(self._parts, start, stop)) if computes else None

    # What the report and tests want to know

    @property
    def _stretches(self) -> Iterable[GraphCache]:
        return [self._whole] if self._whole is not None else [p.stretch for p in self._pieces if p.stretch is not None]

    def _repeated(self) -> int:
        return sum(stretch.calls for stretch in self._stretches)

    @property
    def calls(self) -> int:
        """How many were repeated, at least in parts."""
        return self._calls if self._whole is None else self._whole.calls

    @property
    def recordings(self) -> dict[Any, CapturedGraph]:
        """What is kept, by key."""
        return {key: found for stretch in self._stretches for key, found in stretch.recordings.items()}

    @property
    def refusal(self) -> str:
        """Why no call is recorded, if none is."""
        reasons = [stretch.refusal or ("" if stretch.calls else stretch.too_large) for stretch in self._stretches]
        if all(reasons):
            return next(iter(reasons), "") or next(iter(self.apart.values()), "")
        return ""

    @property
    def problems(self) -> list[str]:
        """Defects that made calls run step by step."""
        return list(dict.fromkeys(stretch.problem for stretch in self._stretches if stretch.problem))


def _cut(parts: StepProgram, start: int, stop: int) -> StepProgram:
    """Return some nodes with fresh variables for what other nodes compute.

    Updates are no updates for them: a node after them may fail, which must change nothing.
    """
    old = parts.nodes[start:stop]
    made = {v for node in old for v in node.outputs}
    new: dict[Variable, Variable] = {}
    for variable in (v for node in old for v in node.inputs if v not in made):
        new[variable] = variable if variable.owner is None else variable.clone()
    inputs = [v for v in dict.fromkeys(new.values()) if not isinstance(v, Constant)]
    nodes: dict[Apply, Apply] = {}
    for node in old:
        new.update((v, v.clone()) for v in node.outputs)
        nodes[node] = Apply(node.op, [new[v] for v in node.inputs], [new[v] for v in node.outputs])
    results = {id(cell) for cell in parts.results}
    later = {v for node in parts.nodes[stop:] for v in node.inputs}
    kept = [v for node in old for v in node.outputs if v in later or id(parts.storage[v]) in results]
    return StepProgram(
        nodes=list(nodes.values()),
        thunks=parts.thunks[start:stop],
        storage={mine: parts.storage[v] for v, mine in new.items()},
        routines={mine: parts.routines[node] for node, mine in nodes.items() if node in parts.routines},
        contexts=parts.contexts,
        inputs=inputs,
        updates={},
        results=[parts.storage[v] for v in kept],
        sole=[mine for node, mine in nodes.items() if node in parts.sole],
        may_fail=True,
        arrivals={new[v]: arrival for v, arrival in parts.arrivals.items() if v in new},
    )
