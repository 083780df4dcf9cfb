"""A compiled function as the nodes and edges of a picture."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from pytensor.graph.basic import Apply, Constant, Variable

from pytensor_cl.linker.reports.drawing.expressions import expression
from pytensor_cl.linker.reports.explain import TRANSFERS, inner_graphs, inner_kind, reason_of_node, transfer_of
from pytensor_cl.linker.reports.profile import NodeTime, Profile
from pytensor_cl.ops.base import GpuOp, context_of
from pytensor_cl.ops.names import before_transfers, cut, full_name, short_name
from pytensor_cl.ops.transfer import HostFromGpu

DEVICE, HOST, TRANSFER = "device", "host", "transfer"
INPUT, SHARED, CONSTANT, OUTPUT = "input", "shared", "constant", "output"
_INNER_NAMES = {
    "loop": ("each step",),
    "ifelse": ("if true", "if false"),
    "objective": ("each evaluation",),
}
KINDS = (DEVICE, HOST, TRANSFER, INPUT, SHARED, CONSTANT, OUTPUT)


@dataclass(frozen=True)
class Edge:
    """A value that a node passes to another one: from an output of `source` to an input of `target`."""

    source: int
    output: int
    target: int
    input: int


@dataclass(frozen=True)
class Inner:
    """A graph inside a node, and its name: the steps of a loop, a branch."""

    name: str
    graph: "Graph"


@dataclass(frozen=True)
class Node:
    """A box of the picture.

    Attributes
    ----------
    number, kind
        The position in `Graph.nodes`, and one of `KINDS`.
    title, place
        The first and the second line: what it is, and where.
    full
        The name with all parameters, or the value of a constant.
    outputs
        Dtype, shape and size of each result.
    constants
        Scalar constants among its inputs.
    reason
        The reason why it is on the host.
    expression
        The statements of a fused kernel.
    inner
        Graphs inside it.
    seconds, share
        Time in a call, and its part of the call; None if it was not timed.
    part
        The number of the captured part that it belongs to; None outside of them.
    """

    number: int
    kind: str
    title: str
    place: str
    full: str
    outputs: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    reason: str = ""
    expression: tuple[str, ...] = ()
    inner: tuple[Inner, ...] = ()
    seconds: float | None = None
    share: float | None = None
    part: int | None = None


@dataclass
class Graph:
    """Nodes in the order of execution, edges, and the captions of captured parts."""

    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)

    @property
    def is_timed(self) -> bool:
        """Whether there are times."""
        return any(node.seconds is not None for node in self.nodes)


def size_text(nbytes: float) -> str:
    """Return a number of bytes as text."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" or nbytes >= 100 else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.1f} TiB"


def _type_text(variable: Variable, shape: Sequence[int | None] | None) -> str:
    """Return dtype, shape and bytes; `shape` is that of a call, if one is known."""
    kind = variable.type
    dtype = getattr(kind, "dtype", None)
    if dtype is None or not hasattr(kind, "shape"):
        return cut(str(kind), 30)
    extents = tuple(kind.shape if shape is None or len(shape) != len(kind.shape) else shape)
    text = f"{dtype}({', '.join('?' if n is None else str(n) for n in extents)})"
    itemsize = getattr(getattr(kind, "numpy_dtype", None), "itemsize", 1)
    return text if None in extents else f"{text}, {size_text(prod(extents) * itemsize)}"


class _Builder:
    """Makes the boxes of the nodes and variables of one graph."""

    def __init__(self, shared: frozenset[Variable] = frozenset()) -> None:
        self.graph = Graph()
        self._shared = shared  # inputs that are shared variables
        self._source: dict[Variable, tuple[int, int]] = {}  # box and output that a variable comes from
        self._shapes: dict[Variable, Sequence[int]] = {}

    def learn_shapes(self, times: Iterable[NodeTime]) -> None:
        """Note the shapes of a profiled call."""
        for time in times:
            self._shapes.update(zip((*time.node.inputs, *time.node.outputs), time.shapes, strict=False))

    def _type(self, variable: Variable) -> str:
        return _type_text(variable, self._shapes.get(variable))

    def add(self, kind: str, title: str, place: str, full: str, **more: Any) -> int:
        """Add a box."""
        number = len(self.graph.nodes)
        self.graph.nodes.append(Node(number, kind, title, place, full, **more))
        return number

    def alias(self, variable: Variable, of: Variable) -> None:
        """Take a variable for another one."""
        self._source[variable] = self.source(of)

    def source(self, variable: Variable, name: str = "unnamed") -> tuple[int, int]:
        """Return the box and the output of a variable; one without an owner gets a box, and `name` if it has none."""
        if variable not in self._source:
            self._source[variable] = self._leaf(variable, variable.name or name), 0
        return self._source[variable]

    def _leaf(self, variable: Variable, name: str) -> int:
        outputs = (self._type(variable),)
        if isinstance(variable, Constant):
            value = " ".join(str(variable.data).split())
            return self.add(CONSTANT, variable.name or cut(value, 24), "constant", cut(value, 400), outputs=outputs)
        place = context_of(variable) or "host"
        kind, what = (SHARED, "shared variable") if variable in self._shared else (INPUT, "argument")
        text = what if place == "host" else f"{what} on {place}"
        return self.add(kind, cut(name), text, name, outputs=outputs)

    def node(self, node: Apply, kind: str, place: str, **more: Any) -> int:
        """Add the box of a node and the edges of its inputs."""
        scalars = {k for k, v in enumerate(node.inputs) if _is_scalar_constant(v)}
        sources = {k: self.source(v) for k, v in enumerate(node.inputs) if k not in scalars}
        names = [
            before_transfers(v).name or (_constant_text(v) if isinstance(v, Constant) else f"i{k}")
            for k, v in enumerate(node.inputs)
        ]
        number = self.add(
            kind,
            short_name(node.op),
            place,
            full_name(node.op),
            outputs=tuple(self._type(v) for v in node.outputs),
            constants=tuple(_constant_text(node.inputs[k]) for k in sorted(scalars)),
            expression=tuple(expression(node.op, names)),
            inner=tuple(
                Inner(name, inner_graph(graph))
                for name, graph in zip(_INNER_NAMES[inner_kind(node.op)], inner_graphs(node.op), strict=False)
            ),
            **more,
        )
        self.graph.edges += [Edge(*source, number, k) for k, source in sources.items()]
        self._source.update((v, (number, k)) for k, v in enumerate(node.outputs))
        return number

    def output(self, variable: Variable, title: str, place: str) -> None:
        """Add the box of a result."""
        source = self.source(variable)
        number = self.add(OUTPUT, cut(title), place, title)
        self.graph.edges.append(Edge(*source, number, 0))


def _is_scalar_constant(variable: Variable) -> bool:
    return isinstance(variable, Constant) and getattr(variable.type, "ndim", 0) == 0


def _constant_text(variable: Any) -> str:
    value = " ".join(str(variable.data).split())
    return value if len(value) <= 16 else "constant"


def _kind(node: Apply) -> str:
    if isinstance(node.op, TRANSFERS):
        return TRANSFER
    return DEVICE if isinstance(node.op, GpuOp) or any(map(context_of, node.outputs)) else HOST


def _place(node: Apply, kind: str) -> str:
    if kind == TRANSFER:
        return f"transfer to {getattr(node.op, 'context_name', 'host')}"
    if kind == HOST:
        return "host"
    name = getattr(node.op, "context_name", None) or next(filter(None, map(context_of, node.outputs)), "device")
    return f"view on {name}" if node.op.view_map and not getattr(node.op, "is_compute", True) else f"on {name}"


def inner_graph(fgraph: Any) -> Graph:
    """Return the picture of an inner graph."""
    made = _Builder()
    for k, variable in enumerate(fgraph.inputs):
        made.source(variable, f"input {k}")
    for node in fgraph.toposort():
        kind = _kind(node)
        made.node(node, kind, _place(node, kind), reason=reason_of_node(node) if kind == HOST else "")
    for k, variable in enumerate(fgraph.outputs):
        made.output(variable, variable.name or f"result {k}", "result")
    return made.graph


def _count(number: int, what: str) -> str:
    ending = "" if number == 1 else "es" if what.endswith("h") else "s"
    return f"{number} {what}{ending}"


def _captured(fn: Any) -> tuple[dict[Apply, int], list[str]]:
    """Return the captured part of each node, and the caption of each part."""
    member: dict[Apply, int] = {}
    captions = []
    for k, (nodes, graphs) in enumerate(fn.vm.executor.captured_parts):
        member.update((fn.vm.nodes[at], k) for at in nodes)
        last = graphs[-1]
        captions.append(f"captured and replayed: {_count(last.kernels, 'kernel')} in {_count(last.launches, 'launch')}")
    return member, captions


def _seconds(time: NodeTime | None, kind: str) -> float | None:
    """Return the time that a node needs in a call: without the time to enqueue its kernels, and without waiting."""
    if time is None or not time.calls:
        return None
    if kind == DEVICE:
        spent = time.device_seconds
    elif kind == TRANSFER:
        waits = isinstance(time.node.op, HostFromGpu)
        spent = time.transfer_seconds if waits else time.transfer_seconds or time.host_seconds
    else:
        spent = time.host_seconds
    return spent / time.calls or None


def function_graph(fn: Any, profile: Profile | None) -> Graph:
    """Return the picture of a compiled function, with the times of a profile of it."""
    fgraph, linker = fn.maker.fgraph, fn.maker.linker
    times: dict[Apply, NodeTime] = {}
    if profile is not None:
        number = profile.functions.index(fn)
        times = {n.node: n for n in profile.nodes if n.function == number}
    per_call = profile.seconds / profile.calls if profile is not None and len(profile.functions) == 1 else None
    member, captions = _captured(fn)
    specs = fn.maker.expanded_inputs
    made = _Builder(frozenset(v for v, spec in zip(fgraph.inputs, specs, strict=False) if spec.shared))
    made.learn_shapes(times.values())
    for variable in fgraph.inputs:
        made.source(variable)
    for node in linker.schedule(fgraph):
        kind = _kind(node)
        place = _place(node, kind)
        if kind == TRANSFER:
            transfer = transfer_of(node, fn)
            if transfer.when == "never":  # an update that stays on the device
                made.alias(node.outputs[0], node.inputs[0])
                continue
            place = f"{place}, {transfer.when}"
        seconds = _seconds(times.get(node), kind)
        share = seconds / per_call if seconds is not None and per_call else None
        reason = reason_of_node(node) if kind == HOST else ""
        made.node(node, kind, place, reason=reason, seconds=seconds, share=share, part=member.get(node))
    updates = fgraph.update_mapping or {}
    for k, variable in enumerate(fgraph.outputs):
        if k in updates:
            made.output(variable, f"{fgraph.inputs[updates[k]].name or 'shared variable'}", "new value")
        else:
            made.output(variable, variable.name or f"result {k}", "result")
    made.graph.parts = captions
    return made.graph
