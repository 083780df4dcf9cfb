"""The linker: from a rewritten graph to steps that are executed in order."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from pytensor.configdefaults import config
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.link.basic import Container, Linker
from pytensor.link.utils import map_storage
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.type import TensorType

from pytensor_cl.errors import OpenCLError
from pytensor_cl.linker.capture.capturer import StepProgram
from pytensor_cl.linker.capture.host_values import changed, root_of
from pytensor_cl.linker.cost.model import estimate_call
from pytensor_cl.linker.execution.errors import ErrorMonitor
from pytensor_cl.linker.execution.segments import GraphExecutor
from pytensor_cl.linker.execution.vm import OpenCLVM
from pytensor_cl.linker.node_order import schedule
from pytensor_cl.linker.selection.backends import host_functions
from pytensor_cl.linker.selection.signature import SignatureSource, distinguishing_inputs, has_dynamic_shape
from pytensor_cl.linker.selection.vm import SelectingVM
from pytensor_cl.linker.steps.device import (
    CopyOnReadCell,
    HostImporter,
    PeekCell,
    ShapeOnlyCell,
    device_thunk,
    download_thunk,
    upload_thunk,
)
from pytensor_cl.linker.steps.host import Cell, Thunk, host_thunk
from pytensor_cl.ops.base import GpuOp, context_of
from pytensor_cl.ops.transfer import GpuFromHost, HostFromGpu
from pytensor_cl.rewriting.host_backend.canonical_copy import attach_canonical_copy, canonical_copy_of
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context, get_context
from pytensor_cl.runtime.progress import calling
from pytensor_cl.sharedvar import DeviceCell

__all__ = ["OpenCLLinker", "report_error"]


class _Link:
    """One graph with its storage: makes the step of each node.

    Parameters
    ----------
    fgraph
        The rewritten graph.
    nodes
        Its nodes in the order of execution.
    storage
        Variable to storage cell.
    keep
        Variables whose storage the user sees after the call.
    """

    def __init__(
        self, fgraph: FunctionGraph, nodes: Sequence[Apply], storage: dict[Variable, Cell], keep: Sequence[Variable]
    ) -> None:
        self.fgraph = fgraph
        self.storage = storage
        self.arrivals: dict[Variable, HostImporter] = {}
        self.device_updates = self._takers()
        for cell in storage.values():
            if isinstance(cell, DeviceCell):
                cell.use()
        self.nodes = nodes = [n for n in nodes if self._is_needed(n)]
        self.changed = changed(nodes)
        self.keep = {*keep, *self.device_updates.values()}
        self.contexts = sorted({c for n in nodes for v in n.outputs if (c := context_of(v))})
        self.programs: list[Any] = []
        self.routines = {n: n.op.routine(n, get_context(n.op.context_name)) for n in nodes if isinstance(n.op, GpuOp)}

    def build(self) -> None:
        """Build the kernels of all nodes: one program for each context; kept as long as the routines."""
        for name in self.contexts:
            routines = (r for n, r in self.routines.items() if n.op.context_name == name)
            with calling(getattr(self.fgraph, "name", None)):
                self.programs.extend(get_context(name).build([s for routine in routines for s in routine.sources()]))

    def _takers(self) -> dict[int, Variable]:
        """Outputs that update a shared variable with a download, and the device array that it can take instead."""
        updates = self.fgraph.update_mapping or {}
        found = {}
        for position, of_input in updates.items():
            owner = self.fgraph.outputs[position].owner
            takes = isinstance(self.storage[self.fgraph.inputs[of_input]], DeviceCell)
            if takes and owner is not None and isinstance(owner.op, HostFromGpu):
                found[position] = owner.inputs[0]
        return found

    def _is_needed(self, node: Apply) -> bool:
        """Whether anybody but shared variables that take the device array reads a download."""
        clients = self.fgraph.clients[node.outputs[0]] if isinstance(node.op, HostFromGpu) else ()
        return not clients or any(not _is_output(c, self.device_updates.keys()) for c, _ in clients)

    def _bringing(self, context: Context, upload: Apply) -> Callable[[Any], GpuArray]:
        """How an argument gets to the device: with no copy, one by the device, or one by the host."""
        if not self._may_borrow(upload):
            return lambda value: context.from_host(value)
        if self._is_only_read(upload):
            return self.arrivals.setdefault(upload.inputs[0], HostImporter(context))
        return lambda value: context.from_host(value, borrow=True)

    def _is_only_read(self, upload: Apply) -> bool:
        """Whether nobody but kernels sees the uploaded array, all of them before the call waits for the last time."""
        readers, todo = set(), [upload.outputs[0]]
        while todo:
            variable = todo.pop()
            clients = [n for n, _ in self.fgraph.clients[variable]]
            if variable in self.keep or not all(isinstance(n.op, GpuOp) for n in clients):
                return False
            readers.update(clients)
            todo.extend(v for n in clients if not _only_reads(n) for v in n.outputs)
        return self._waits({self.nodes.index(n) for n in readers}, upload)

    def _waits(self, positions: Collection[int], upload: Apply) -> bool:
        """Whether a download from the device of an upload follows the nodes at these positions."""
        later = self.nodes[max(positions, default=len(self.nodes)) :]
        return any(isinstance(n.op, HostFromGpu) and context_of(n.inputs[0]) == upload.op.context_name for n in later)

    def is_sole(self, node: Apply) -> bool:
        """Whether a download is the last that is seen of an array."""
        source = node.inputs[0]
        if source in self.keep or source in self.fgraph.outputs:
            return False
        is_view = source.owner is not None and source.owner.op.view_map
        return node.outputs[0] not in self.changed or (len(self.fgraph.clients[source]) == 1 and not is_view)

    def parts(self, thunks: Sequence[Thunk], results: Sequence[Cell], may_fail: bool) -> StepProgram:
        """Return what recordings of calls are made from."""
        updates = {self.fgraph.inputs[i]: k for k, i in (self.fgraph.update_mapping or {}).items()}
        sole = {n for n in self.nodes if isinstance(n.op, HostFromGpu) and self.is_sole(n)}
        order = self.nodes, thunks, self.storage, self.routines, self.contexts
        return StepProgram(*order, self.fgraph.inputs, updates, results, sole, may_fail, self.arrivals)

    def _may_borrow(self, upload: Apply) -> bool:
        """Whether an array cannot change before the device has read it: the call waits, and no node writes to it."""
        at = self.nodes.index(upload)
        return self._waits({at}, upload) and root_of(upload.inputs[0]) not in changed(self.nodes[at:])

    def _read(self, node: Apply, index: int) -> Cell:
        """The cell that a node reads an input from: shared variables stay as they are until the call has succeeded."""
        cell = self.storage[node.inputs[index]]
        destroyed = {i for many in node.op.destroy_map.values() for i in many}
        if not isinstance(cell, DeviceCell):
            return cell
        if index in destroyed:
            return CopyOnReadCell(cell)
        return ShapeOnlyCell(cell) if isinstance(node.op, (Shape, Shape_i)) else PeekCell(cell)

    def thunk(self, node: Apply) -> Thunk:
        """Return the step of a node."""
        inputs = [self.storage[v] for v in node.inputs]
        outputs = [self.storage[v] for v in node.outputs]
        if isinstance(node.op, GpuOp):
            reads = [self._read(node, i) for i in range(len(inputs))]
            return device_thunk(self.routines[node], reads, outputs, [_is_scalar_array(v) for v in node.inputs])
        if isinstance(node.op, GpuFromHost):
            context = get_context(node.op.context_name)
            return upload_thunk(context, node, inputs[0], outputs[0], self._bringing(context, node))
        if isinstance(node.op, HostFromGpu):
            return download_thunk(inputs[0], outputs[0], self.is_sole(node))
        return host_thunk(node, [self._read(node, i) for i in range(len(inputs))], outputs)

    def generators(self) -> list[Cell]:
        """Cells of the random generators that nodes change in place."""
        inputs = (v for v in self.fgraph.inputs if isinstance(v.type, RandomGeneratorType))
        return [self.storage[v] for v in inputs if v in self.changed]

    def dead(self, allow_gc: bool) -> list[list[Cell]]:
        """Per node, the cells of intermediate results that are read there for the last time.

        Host Ops compute into what they find in the cells of their results. So the cells of what the user may see by a
        view are emptied in any case.
        """
        last = {v: at for at, node in enumerate(self.nodes) for v in (*node.outputs, *node.inputs)}
        kept = {*self.device_updates.values(), *self.fgraph.outputs, *self.fgraph.inputs}
        cells: list[list[Cell]] = [[] for _ in self.nodes]
        for variable, at in last.items():
            is_seen = variable in self.keep
            if variable not in kept and not isinstance(variable, Constant) and (allow_gc or is_seen):
                cells[at].append(self.storage[variable])
        return cells

    def results(self, output_storage: Sequence[Cell]) -> list[Cell]:
        """Return the cells of what a call returns; shared variables get device arrays."""
        return [
            self.storage[self.device_updates[i]] if i in self.device_updates else cell
            for i, cell in enumerate(output_storage)
        ]

    def finish(self) -> None:
        """Wait for every device of the function."""
        for name in self.contexts:
            get_context(name).queue.wait()


def _only_reads(node: Apply) -> bool:
    """Whether no result of a node is, or looks at, the memory of an input."""
    return isinstance(node.op, GpuOp) and node.op.is_compute and not node.op.view_map and not node.op.may_alias


def _is_output(client: Apply, positions: Collection[int]) -> bool:
    """Whether a client of a variable is one of these outputs of the graph."""
    return getattr(client.op, "idx", None) in positions and type(client.op).__name__ == "Output"


def _is_scalar_array(variable: Variable) -> bool:
    """Whether the value is a 0-d NumPy array, of which a kernel takes the scalar."""
    return isinstance(variable.type, TensorType) and variable.type.ndim == 0


def report_error(fgraph: FunctionGraph, error: OpenCLError) -> None:
    """Make the linker raise an error that a rewrite of the graph met."""
    fgraph.opencl_error = error


def _machine(link: _Link, into: Sequence[Container], out: Sequence[Container], allow_gc: bool) -> OpenCLVM:
    """Return what runs a graph: on the device, or where its sizes want it."""
    fgraph = link.fgraph
    inputs, outputs = [c.storage for c in into], [c.storage for c in out]
    checks = ErrorMonitor(link.routines)
    thunks = [checks.noting(node, link.thunk(node), link.storage) for node in link.nodes]
    results = link.results(outputs)
    replays = GraphExecutor(link.parts(thunks, results, bool(checks)))
    rest = link.dead(allow_gc), link.finish, allow_gc, checks, replays, link.generators()
    parts = fgraph, link.nodes, thunks, link.storage, inputs, results, *rest
    alternative = canonical_copy_of(fgraph)
    if isinstance(alternative, str):
        link.build()
        return OpenCLVM(*parts, programs=link.programs)
    hosts = host_functions(alternative, inputs, outputs)
    for host in hosts:
        host.function_name = getattr(fgraph, "name", None)
    source = _signature_source(alternative.graph, inputs, link)
    return SelectingVM(*parts, link.build, link.programs, hosts=hosts, source=source, arguments=into, results=out)


def _signature_source(graph: FunctionGraph, inputs: Sequence[Cell], link: _Link) -> SignatureSource:
    """Return what the signatures of calls are made from, for the canonical graph that the host would run."""
    shared = {v for v, c in zip(graph.inputs, inputs, strict=True) if isinstance(c, DeviceCell)}
    cells = [ShapeOnlyCell(c) if isinstance(c, DeviceCell) else c for c in inputs]
    dynamic = [c for v, c in zip(graph.inputs, cells, strict=True) if has_dynamic_shape(v)]
    distinguishing = [(cells[i], graph.inputs[i].type.ndim) for i in distinguishing_inputs(graph, shared)]
    info = get_context(link.contexts[0]).info if link.contexts else None
    return SignatureSource(dynamic, distinguishing, partial(estimate_call, graph, info=info, nodes=link.nodes))


class OpenCLLinker(Linker):
    """Runs graphs whose nodes are on OpenCL devices and on the host.

    All that mode OPENCL does hangs on the tags below: PyMC and ``Mode.clone`` rebuild the mode around the linker.

    Parameters
    ----------
    allow_gc
        Drop intermediate results as soon as nobody needs them; None is PyTensor's flag.
    scheduler
        Order of the nodes; None is ours.
    """

    required_rewrites = ("minimum_compile", "opencl", "lazy_ifelse")
    incompatible_rewrites = (
        "cxx_only",
        "local_careduce_fusion",
        "scan_reduce_trace_prealloc",
        # Our batched product broadcasts and merges batches itself; the reshapes of these refuse arrays of nothing.
        "specialize_matmul_to_batched_dot",
        "local_batched_matmul_to_core_matmul_with_reshape",
    )

    def __init__(self, allow_gc: bool | None = None, scheduler: Any = None) -> None:
        super().__init__(allow_gc=config.allow_gc if allow_gc is None else allow_gc, scheduler=scheduler)
        self.fgraph: FunctionGraph | None = None
        self.no_recycling: list[Variable] = []
        self.profile: Any = None

    def accept(self, fgraph: FunctionGraph, no_recycling: Any = None, profile: Any = None) -> "OpenCLLinker":
        """Return a linker of this graph."""
        if self.fgraph is not None and self.fgraph is not fgraph:
            return type(self)(self.allow_gc, self._scheduler).accept(fgraph, no_recycling, profile)
        error = getattr(fgraph, "opencl_error", None)
        if error is not None:
            raise error
        attach_canonical_copy(fgraph)
        self.fgraph = fgraph
        self.no_recycling = [] if no_recycling is None or isinstance(no_recycling, bool) else list(no_recycling)
        self.profile = profile
        return self

    def schedule(self, fgraph: FunctionGraph) -> list[Apply]:
        """Return the nodes in the order of execution."""
        return self._scheduler(fgraph) if callable(self._scheduler) else schedule(fgraph)

    def make_thunk(
        self, input_storage: Any = None, output_storage: Any = None, storage_map: Any = None, **_: Any
    ) -> tuple[OpenCLVM, list[Container], list[Container]]:
        """Link the graph; see `pytensor.link.basic.Linker`."""
        fgraph = self.fgraph
        assert fgraph is not None
        nodes = self.schedule(fgraph)
        inputs, outputs, storage = map_storage(fgraph, nodes, input_storage, output_storage, storage_map)
        into = [Container(v, c) for v, c in zip(fgraph.inputs, inputs, strict=True)]
        out = [Container(v, c, readonly=True) for v, c in zip(fgraph.outputs, outputs, strict=True)]
        return _machine(_Link(fgraph, nodes, storage, self.no_recycling), into, out, bool(self.allow_gc)), into, out

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "profile": None}
