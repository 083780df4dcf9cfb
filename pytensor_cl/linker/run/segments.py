"""Graph breaks: nodes that cannot be captured, and the segments of nodes between them that can.

The shape of such a node's result depends on values, or the node handles device arrays itself. It runs step by step,
between the captured graphs of the segments before and after it. A segment's results are arrays of their own, so the
signatures of the segments after such a node hold the shapes that it has computed.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pytensor.graph.basic import Apply, Constant, Variable

from pytensor_cl.linker.graphs.graph import CapturedGraph
from pytensor_cl.linker.graphs.guards import capture_blocker
from pytensor_cl.linker.run.graph_cache import GraphCache
from pytensor_cl.linker.types import StepProgram, StepRunner
from pytensor_cl.ops.base import GpuOp


class _Segment(NamedTuple):
    """Nodes that are replayed together; without a graph cache they run step by step."""

    start: int
    stop: int
    cache: GraphCache | None

    def run(self, vm: StepRunner) -> None:
        """Run the nodes."""
        if self.cache is not None and self.cache.run(vm):
            vm.free(self.start, self.stop)
            return
        vm.run(start=self.start, stop=self.stop)
        if self.cache is not None:
            self.cache.confirm()


class GraphExecutor:
    """Replays and captures the calls of a function, as a whole or in segments."""

    def __init__(self, program: StepProgram) -> None:
        self._program = program
        # Nodes that run step by step, and why
        self.graph_breaks: dict[int, str] = {
            at: why for at, node in enumerate(program.nodes) if (why := capture_blocker(node))
        }
        self._segmented_replays = 0
        self._segments: list[_Segment] = []
        self._new_breaks: dict[int, str] = {}
        self._whole: GraphCache | None = GraphCache(program, self._break_whole)
        # Runs a call (`GraphCache.run`). While there are no graph breaks it is that method itself: one call less.
        self.run: Callable[[StepRunner], bool] = self._whole.run
        if self.graph_breaks and not self._whole.unsupported_reason:
            self._split()

    def confirm(self) -> None:
        """Note that a call has run step by step without an error."""
        for cache in self.caches:
            cache.confirm()

    def restore_recorded_shapes(self) -> None:
        """Restore the shapes that nodes have read where a call was a replay, for an error message."""
        for cache in self.caches:
            cache.restore_recorded_shapes()

    def _break_whole(self, at: int) -> None:
        assert self._whole is not None
        self.graph_breaks[at] = self._whole.unsupported_reason
        self._split()

    def _split(self) -> None:
        """Make the segments between the nodes that run step by step."""
        self._whole, self.run = None, self._run_segments
        self._segments = []
        start, last = 0, len(self._program.nodes)
        for at in (*sorted(self.graph_breaks), last):
            if start < at:
                self._segments.append(_Segment(start, at, self._segment_cache(start, at)))
            if at < last:
                self._segments.append(_Segment(at, at + 1, None))
            start = at + 1

    def _segment_cache(self, start: int, stop: int) -> GraphCache | None:
        """Return the graph cache of a range of nodes; None if they compute nothing on the device."""
        nodes = self._program.nodes[start:stop]
        if not any(isinstance(node.op, GpuOp) and node.op.is_compute for node in nodes):
            return None

        def note_break(at: int) -> None:
            self._new_breaks[start + at] = cache.unsupported_reason

        cache = GraphCache(_extract_subgraph(self._program, start, stop), note_break)
        return cache

    def _run_segments(self, vm: StepRunner) -> bool:
        before = sum(cache.replay_count for cache in self.caches)
        for segment in self._segments:
            segment.run(vm)
        self._segmented_replays += sum(cache.replay_count for cache in self.caches) > before
        if self._new_breaks:
            self.graph_breaks |= self._new_breaks
            self._new_breaks = {}
            self._split()
        return True

    # For reports

    @property
    def caches(self) -> Sequence[GraphCache]:
        """The graph caches: one, or one for each segment."""
        if self._whole is not None:
            return [self._whole]
        return [segment.cache for segment in self._segments if segment.cache is not None]

    @property
    def replay_count(self) -> int:
        """Number of calls that replayed a captured graph, of the whole function or of its segments."""
        return self._segmented_replays if self._whole is None else self._whole.replay_count

    @property
    def graphs(self) -> dict[Any, CapturedGraph]:
        """The captured graphs by signature."""
        return {signature: graph for cache in self.caches for signature, graph in cache.graphs.items()}

    @property
    def captured_parts(self) -> list[tuple[range, list[CapturedGraph]]]:
        """The nodes of each graph cache that has captured graphs, and the graphs."""
        whole = [] if self._whole is None else [_Segment(0, len(self._program.nodes), self._whole)]
        return [
            (range(s.start, s.stop), list(s.cache.graphs.values()))
            for s in whole or self._segments
            if s.cache is not None and s.cache.graphs
        ]

    @property
    def unsupported_reason(self) -> str:
        """Why no call is captured; empty if calls are."""
        reasons = [c.unsupported_reason or ("" if c.replay_count else c.too_large_reason) for c in self.caches]
        if all(reasons):
            return next(iter(reasons), "") or next(iter(self.graph_breaks.values()), "")
        return ""

    @property
    def problems(self) -> list[str]:
        """Defects that made calls run step by step."""
        return list(dict.fromkeys(cache.problem for cache in self.caches if cache.problem))


def _extract_subgraph(program: StepProgram, start: int, stop: int) -> StepProgram:
    """Return a range of nodes, with new variables for what other nodes compute.

    It has no updates: a node after it may fail, which must change nothing.
    """
    old = program.nodes[start:stop]
    made = {v for node in old for v in node.outputs}
    new: dict[Variable, Variable] = {}
    for variable in (v for node in old for v in node.inputs if v not in made):
        new[variable] = variable if variable.owner is None else variable.clone()
    inputs = [v for v in dict.fromkeys(new.values()) if not isinstance(v, Constant)]
    nodes: dict[Apply, Apply] = {}
    for node in old:
        new.update((v, v.clone()) for v in node.outputs)
        nodes[node] = Apply(node.op, [new[v] for v in node.inputs], [new[v] for v in node.outputs])
    results = {id(cell) for cell in program.results}
    later = {v for node in program.nodes[stop:] for v in node.inputs}
    outputs = [v for node in old for v in node.outputs if v in later or id(program.storage[v]) in results]
    return StepProgram(
        nodes=list(nodes.values()),
        thunks=program.thunks[start:stop],
        storage={mine: program.storage[v] for v, mine in new.items()},
        routines={mine: program.routines[node] for node, mine in nodes.items() if node in program.routines},
        contexts=program.contexts,
        inputs=inputs,
        updates={},
        results=[program.storage[v] for v in outputs],
        exclusive_downloads=[mine for node, mine in nodes.items() if node in program.exclusive_downloads],
        checks_at_end=True,
        importers={new[v]: importer for v, importer in program.importers.items() if v in new},
        first=start,
    )
