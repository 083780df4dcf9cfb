"""The report on a compiled function: where each node runs and why, and what is transferred."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf, prod
from os import PathLike
from typing import Any

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.tensor.blockwise import Blockwise

from pytensor_cl.linker.graphs.graph import CapturedGraph
from pytensor_cl.linker.graphs.memory import Allocation
from pytensor_cl.linker.linker import OpenCLLinker
from pytensor_cl.linker.reports.page import fragment, page, save
from pytensor_cl.linker.reports.tables import UNLIMITED, Table, html, lines, to_scale
from pytensor_cl.linker.selection.backends import DEVICE, HOST
from pytensor_cl.linker.selection.vm import SelectedSignature, SelectingVM
from pytensor_cl.ops.adapters import methods_of
from pytensor_cl.ops.base import GpuOp, context_of
from pytensor_cl.ops.ifelse import GpuLazyIfElse
from pytensor_cl.ops.names import full_name, short_name, variable_name
from pytensor_cl.ops.optimize import DeviceObjectiveOp
from pytensor_cl.ops.registry import noted_reason
from pytensor_cl.ops.scan import GpuScan
from pytensor_cl.ops.transfer import GpuFromHost, GpuToGpu, HostFromGpu
from pytensor_cl.rewriting.host_graph.graph import host_graph_of
from pytensor_cl.rewriting.host_graph.known_faults import NUMBA, C
from pytensor_cl.rewriting.placement.placement import reason_of
from pytensor_cl.runtime.registry import default_context_name
from pytensor_cl.sharedvar import DeviceCell

WIDEST = 100  # characters of a cell
SHOWN = 5  # number of the largest intermediate results in the report
TRANSFERS = (GpuFromHost, HostFromGpu, GpuToGpu)


@dataclass(frozen=True)
class DeviceNode:
    """A node that runs on a device.

    Attributes
    ----------
    op, node
        The device Op and its node.
    context
        Name of the context.
    methods
        The methods by which calls so far have computed a convolution: they depend on the shapes.
    """

    op: GpuOp
    node: Apply
    context: str
    methods: tuple[str, ...] = ()


@dataclass(frozen=True)
class HostNode:
    """A node that runs on the host.

    Attributes
    ----------
    op, node
        The Op and its node.
    reason
        The reason why it is not on a device.
    """

    op: Any
    node: Apply
    reason: str


@dataclass(frozen=True)
class InnerNode:
    """A node of an inner graph: of the steps of a loop, of a branch of a conditional, or of SciPy's objective.

    Attributes
    ----------
    outer
        The Op that has the inner graph.
    op, node
        The Op and its node.
    place
        The context's name, or ``"host"``.
    reason
        The reason why it is on the host; empty for other nodes.
    """

    outer: Op
    op: Any
    node: Apply
    place: str
    reason: str


@dataclass(frozen=True)
class Transfer:
    """A value that crosses between host and device, or between devices.

    Attributes
    ----------
    node
        The transfer.
    direction
        ``"to dev0"``, ``"to host"``.
    what
        Name or description of the value.
    nbytes
        Bytes per call; None where the shape is not known when the function is compiled.
    when
        ``"each call"``; ``"once"`` for constants; ``"when changed"`` for shared variables that follow their value;
        ``"never"`` for updates that stay on the device.
    """

    node: Apply
    direction: str
    what: str
    nbytes: int | None
    when: str


@dataclass(frozen=True)
class Choice:
    """The backend of the calls with inputs of about the same sizes.

    Attributes
    ----------
    shapes
        Shapes of the inputs, except fixed ones, in the first such call.
    side
        ``"device"``, or ``"host"``: the whole function by another backend.
    backend
        The backend of the calls on the host, or the fastest one there: ``"NUMBA"`` or ``"C"``.
    device_seconds, host_seconds
        Measured time of a call on the device, and on that backend of the host; None where it was not measured.
    seconds
        Measured time of a call on each backend that was tried.
    why
        The reason for the side, the errors of the other backends, and the next trial.
    next_backend, next_calls
        The backend that is tried or timed again next, ``"device"``, ``"NUMBA"`` or ``"C"``, and the number of calls
        until then; None if there is none.
    """

    shapes: tuple[tuple[int, ...], ...]
    side: str
    backend: str
    device_seconds: float | None
    host_seconds: float | None
    seconds: Mapping[str, float]
    why: str
    next_backend: str | None = None
    next_calls: int | None = None


@dataclass(frozen=True)
class GraphReport:
    """A captured graph, which later calls replay.

    Attributes
    ----------
    signature
        Shapes of the inputs, and values that launches depend on, of the calls that it serves.
    kernels
        Number of kernels of a call.
    launches
        Number of OpenCL launches that run them.
    syncs
        Number of times that a call waits for the device.
    arena_bytes, live_bytes
        Memory of intermediate results, which all captured graphs of a context share, and the most of it that is live at
        the same time: no memory plan needs less.
    peak_bytes
        All memory that a call uses at once: also arguments, shared variables, constants and results.
    allocations
        Intermediate results, the largest first.
    """

    signature: str
    kernels: int
    launches: int
    syncs: int
    arena_bytes: int = 0
    live_bytes: int = 0
    peak_bytes: int = 0
    allocations: tuple[Allocation, ...] = ()

    @property
    def nbytes(self) -> tuple[int, int, int]:
        """Bytes of the arena, those that are live at once, and the peak."""
        return self.arena_bytes, self.live_bytes, self.peak_bytes


@dataclass(frozen=True)
class Explanation:
    """The report on a function; ``print`` shows it as a table, notebooks as HTML.

    Attributes
    ----------
    device_nodes, host_nodes, transfers
        Nodes and transfers of calls that run on the device, in the order of execution.
    choices
        The backends that the calls so far have selected, for each class of sizes.
    fixed
        The reason why all calls run on one backend; empty if they do not.
    captured_graphs
        The captured graphs that calls replay.
    not_captured
        The reason why no call can be captured; empty if calls can.
    graph_breaks
        Nodes that run step by step between captured graphs of the others, and why.
    inner_nodes
        Nodes of the steps of loops, of the branches of conditionals and of functions that SciPy minimises, and of those
        inside them.
    problems
        Internal errors that made no call fail: of estimates, and of the comparison of calls.
    full_names
        Whether names of nodes are not shortened.
    """

    device_nodes: tuple[DeviceNode, ...]
    host_nodes: tuple[HostNode, ...]
    transfers: tuple[Transfer, ...]
    choices: tuple[Choice, ...] = ()
    fixed: str = ""
    captured_graphs: tuple[GraphReport, ...] = ()
    not_captured: str = ""
    graph_breaks: tuple[tuple[str, str], ...] = ()
    problems: tuple[str, ...] = ()
    inner_nodes: tuple[InnerNode, ...] = ()
    full_names: bool = False

    def _head(self) -> str:
        each_call = [t for t in self.transfers if t.when == "each call"]
        known = sum(t.nbytes or 0 for t in each_call)
        unknown = sum(t.nbytes is None for t in each_call)
        size = f"{known:,} bytes" + (f" and {unknown} of unknown size" if unknown else "")
        return (
            f"{len(self.device_nodes)} nodes on devices, {len(self.host_nodes)} on the host, "
            f"{len(each_call)} transfers per call ({size})"
        )

    def _parts(self) -> list[Table | str]:
        """Return the report: tables, and sentences between them."""
        breaks = Table(("graph break", "reason"), self.graph_breaks if self.captured_graphs else ())
        parts: tuple[Table | str, ...] = (
            *(self._head(), self._device_table(), self._host_table(), *self._inner_tables()),
            *(self._transfer_table(), self._choice_table()),
            *(self._graph_table(), self._allocation_table(), breaks),
            f"Every call runs where these tables say: {self.fixed}." if self.device_nodes and self.fixed else "",
            self.not_captured and f"Calls are not captured: {self.not_captured}.",
            *(f"A defect of pytensor-cl: {problem}." for problem in self.problems),
        )
        return [part for part in parts if (part.rows if isinstance(part, Table) else part)]

    def __str__(self) -> str:
        widest = UNLIMITED if self.full_names else WIDEST
        return "\n\n".join(p if isinstance(p, str) else "\n".join(lines(p, widest)) for p in self._parts())

    def _repr_html_(self) -> str:
        return fragment(html(self._parts()))

    def to_html(self, path: str | PathLike[str]) -> None:
        """Write the report as a page of HTML, which needs no other file.

        Parameters
        ----------
        path
            A file, ``.html``.
        """
        save(path, page("Explanation of a function", html(self._parts())))

    def _name(self, op: Any) -> str:
        return full_name(op) if self.full_names else short_name(op)

    def _device_table(self) -> Table:
        rows = [
            (n.context, self._name(n.op), ", ".join(_type(v) for v in n.node.outputs), ", ".join(n.methods))
            for n in self.device_nodes
        ]
        if any(n.methods for n in self.device_nodes):
            return Table(("context", "device node", "result", "method so far"), rows)
        return Table(("context", "device node", "result"), [row[:3] for row in rows])

    def _host_table(self) -> Table:
        return Table(("host node", "reason"), [(self._name(n.op), n.reason) for n in self.host_nodes])

    def _inner_tables(self) -> tuple[Table, Table]:
        """The nodes of inner graphs, and refused loops; the Op that has a graph by its number among them."""
        outer = list({id(n.outer): n.outer for n in self.inner_nodes}.values())
        names = {id(op): f"{inner_kind(op)} {k}" for k, op in enumerate(outer, 1)}
        rows = [(names[id(n.outer)], self._name(n.op), n.place, n.reason) for n in self.inner_nodes]
        refused = [(names[id(op)], op.refusal) for op in outer if isinstance(op, GpuScan) and op.refusal]
        return (
            Table(("inside", "node", "place", "reason"), rows),
            Table(("launched step by step", "why it is not one kernel"), refused),
        )

    def _transfer_table(self) -> Table:
        rows = [(t.direction, t.what, "?" if t.nbytes is None else f"{t.nbytes:,}", t.when) for t in self.transfers]
        bars = {2: to_scale(t.nbytes for t in self.transfers)}
        return Table(("transfer", "value", "bytes", "when"), rows, bars)

    def _choice_table(self) -> Table:
        rows = [
            (
                ", ".join(map(str, c.shapes)) or "fixed",
                c.side if c.side == DEVICE else f"host ({c.backend})",
                *(_time(c.seconds.get(name)) for name in (DEVICE, NUMBA, C)),
                c.why,
            )
            for c in self.choices
        ]
        by_row = [to_scale(c.seconds.get(name) for name in (DEVICE, NUMBA, C)) for c in self.choices]
        bars = {2 + k: [scaled[k] for scaled in by_row] for k in range(3)}
        return Table(("calls with shapes like", "run on", "device", "NUMBA", "C", "why"), rows, bars)

    def _graph_table(self) -> Table:
        rows = [
            (g.signature, *(f"{n:,}" for n in (g.kernels, g.launches, g.syncs, *g.nbytes)))
            for g in self.captured_graphs
        ]
        head = "captured graph for inputs like", "kernels", "launches", "syncs", "arena", "live bytes", "peak bytes"
        return Table(head, rows)

    def _allocation_table(self) -> Table:
        """The largest intermediate results of the captured graph that needs most memory."""
        graphs = self.captured_graphs
        largest = max(graphs, key=lambda g: g.arena_bytes).allocations[:SHOWN] if graphs else ()
        rows = [(a.name, "" if a.shape is None else f"{a.dtype}{a.shape}", f"{a.nbytes:,}") for a in largest]
        bars = {2: to_scale(a.nbytes for a in largest)}
        return Table(("largest in the arena", "result", "bytes"), rows, bars)

    __repr__ = __str__


def _type(variable: Variable) -> str:
    kind = variable.type
    extents = ", ".join("?" if n is None else str(n) for n in getattr(kind, "shape", ()))
    return f"{getattr(kind, 'dtype', kind)}({extents})"


def _time(seconds: float | None) -> str:
    return "not measured" if seconds is None else f"{1e6 * seconds:,.1f} us"


def reason_of_node(node: Apply) -> str:
    """Return why a node is on the host: the reason of its placement, or the registry's if it was added after it."""
    return noted_reason(node) or reason_of(node, default_context_name())


def _nbytes(variable: Variable) -> int | None:
    kind = variable.type
    return None if None in kind.shape else prod(kind.shape) * kind.numpy_dtype.itemsize


def transfer_of(node: Apply, fn: Any) -> Transfer:
    source = node.inputs[0]
    target = getattr(node.op, "context_name", "host")
    if isinstance(fn.vm.storage_map.get(source), DeviceCell):
        when = "when changed"
    elif isinstance(source, Constant):
        when = "once"
    elif isinstance(node.op, HostFromGpu) and node not in fn.vm.nodes:
        when = "never"
    else:
        when = "each call"
    shown = node.outputs[0] if isinstance(node.op, HostFromGpu) else source
    return Transfer(node, f"to {target}", variable_name(source), _nbytes(shown), when)


def _choices_of(vm: Any) -> tuple[Choice, ...]:
    if not isinstance(vm, SelectingVM):
        return ()
    return tuple(_choice(stats, vm.backends) for stats in vm.signatures)


def _fixed(fn: Any) -> str:
    found = host_graph_of(fn.maker.fgraph)
    return found if isinstance(found, str) else ""


def _choice(stats: SelectedSignature, backends: list[str]) -> Choice:
    seconds = dict(stats.seconds)
    best = min(backends, key=lambda name: seconds.get(name, inf))  # the first one if none was measured
    backend = best if stats.backend == DEVICE else stats.backend
    side = DEVICE if stats.backend == DEVICE else HOST
    next_comparison = stats.next_comparison or (None, None)
    measured = seconds.get(DEVICE), seconds.get(backend), seconds
    return Choice(stats.shapes, side, backend, *measured, _why(stats), *next_comparison)


def _why(stats: SelectedSignature) -> str:
    """Return why calls of a signature run where they do, and when the next comparison comes."""
    parts = list(dict.fromkeys((*stats.excluded.values(), *stats.failures.values())))
    if stats.backend in stats.seconds and len(stats.seconds) > 1:
        parts.insert(0, "fastest of those measured")
    elif len(stats.candidates.keys() - stats.excluded) > 1 and not stats.failures:
        parts.insert(0, "fastest by estimate")
    if stats.next_comparison is not None:
        name, calls = stats.next_comparison
        verb = "timed again" if name in stats.seconds else "tried"
        parts.append(f"{'the device' if name == DEVICE else name} is {verb} in {calls:,} calls")
    return "; ".join(parts)


def _without_misalignment(part: Any) -> Any:
    """Return the shape alone of an argument that the device reads in host memory."""
    return part[0] if isinstance(part, tuple) and part and isinstance(part[0], tuple) and len(part) == 2 else part


def _graph_report(signature: tuple[Any, ...], graph: CapturedGraph) -> GraphReport:
    parts = [str(getattr(part, "shape", part)) for part in map(_without_misalignment, signature)]
    plan = graph.memory.plan
    return GraphReport(
        signature=", ".join(parts),
        kernels=graph.kernels,
        launches=graph.launches,
        syncs=graph.sync_count,
        arena_bytes=plan.nbytes,
        live_bytes=plan.lower_bound,
        peak_bytes=graph.memory.peak,
        allocations=plan.largest,
    )


def inner_kind(op: Op) -> str:
    """Return the report's name for an Op with an inner graph."""
    return "loop" if isinstance(op, GpuScan) else "ifelse" if isinstance(op, GpuLazyIfElse) else "objective"


def inner_graphs(op: Any) -> Sequence[Any]:
    """Return the graphs of the steps of a loop, of branches or of an objective; none for other Ops."""
    if isinstance(op, GpuScan):
        return (op.graph,)
    if isinstance(op, GpuLazyIfElse):
        return op.graphs
    host = op.core_op if isinstance(op, Blockwise) else op
    return (host.fn.maker.fgraph,) if isinstance(host, DeviceObjectiveOp) else ()


def _inner_nodes(op: Any) -> list[InnerNode]:
    """Return the nodes of inner graphs, and of those inside them."""
    found: list[InnerNode] = []
    graphs = inner_graphs(op)
    for node in chain.from_iterable(graph.toposort() for graph in graphs):
        if isinstance(node.op, GpuOp):
            found.append(InnerNode(op, node.op, node, node.op.context_name, ""))
            found += _inner_nodes(node.op)
        elif not isinstance(node.op, TRANSFERS):
            found.append(InnerNode(op, node.op, node, HOST, reason_of_node(node)))
            found += _inner_nodes(node.op)
    return found


def explain(fn: Any, full_names: bool = False) -> Explanation:
    """Report the nodes of a compiled function on devices and on the host, with reasons, and its transfers.

    Parameters
    ----------
    fn
        A function of mode OPENCL.
    full_names
        Whether names of nodes have all their functions and parameters; without it they have 60 characters at most.

    Returns
    -------
    Explanation
        Printed, it is tables; a notebook shows it as HTML. Its attributes have the same as objects.

    Raises
    ------
    TypeError
        The function was compiled for another linker.

    Examples
    --------
    >>> f = pytensor.function([x], pt.exp(x), mode="OPENCL")
    >>> [str(node.op) for node in pytensor_cl.explain(f).device_nodes]
    ['GpuExp']
    """
    linker = getattr(getattr(fn, "maker", None), "linker", None)
    if not isinstance(linker, OpenCLLinker):
        raise TypeError(
            f"explain takes compiled functions of mode OPENCL; got {fn!r} with linker {linker!r}: compile it with "
            "pytensor.function(..., mode='OPENCL')"
        )
    order = linker.schedule(fn.maker.fgraph)
    device = [
        DeviceNode(n.op, n, n.op.context_name, methods_of(fn.vm.routines.get(n)))
        for n in order
        if isinstance(n.op, GpuOp)
    ]
    moved = [transfer_of(n, fn) for n in order if isinstance(n.op, TRANSFERS)]
    rest = (n for n in order if not isinstance(n.op, (GpuOp, *TRANSFERS)))
    host = [HostNode(n.op, n, reason_of_node(n)) for n in rest if not any(context_of(v) for v in n.outputs)]
    executor = fn.vm.executor
    name = full_name if full_names else short_name
    return Explanation(
        device_nodes=tuple(device),
        host_nodes=tuple(host),
        transfers=tuple(moved),
        choices=_choices_of(fn.vm),
        fixed=_fixed(fn),
        captured_graphs=tuple(_graph_report(signature, graph) for signature, graph in executor.graphs.items()),
        not_captured=executor.unsupported_reason,
        graph_breaks=tuple((name(fn.vm.nodes[at].op), why) for at, why in sorted(executor.graph_breaks.items())),
        problems=tuple(filter(None, (getattr(fn.vm, "problem", ""), *executor.problems))),
        inner_nodes=tuple(chain.from_iterable(_inner_nodes(n.op) for nodes in (device, host) for n in nodes)),
        full_names=full_names,
    )
