"""Facts of one graph that is linked: last uses, zero-copy arguments, device updates, and the step of each node."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.type import TensorType

from pytensor_cl.linker.aliasing import mutated_inputs, view_root
from pytensor_cl.linker.run.device_steps import (
    ArgumentImporter,
    device_thunk,
    download_thunk,
    upload_thunk,
)
from pytensor_cl.linker.run.host_steps import host_thunk
from pytensor_cl.linker.types import Cell, CopyOnReadCell, PeekCell, ShapeOnlyCell, StepProgram, Thunk
from pytensor_cl.ops.base import AcceptsDonations, GpuOp, context_of
from pytensor_cl.ops.indexing.slice_update import GpuSubtensor
from pytensor_cl.ops.transfer import GpuFromHost, HostFromGpu
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.progress import calling
from pytensor_cl.runtime.registry import get_context
from pytensor_cl.sharedvar import DeviceCell

__all__ = ["GraphLinker"]


class GraphLinker:
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
        Variables whose storage is visible to the user after the call.

    Attributes
    ----------
    nodes
        Those that run: downloads that only update shared variables are left out.
    device_updates
        Positions of outputs that update a shared variable by a download, and the device array that it takes instead.
    routines
        The routine of each device node.
    contexts
        Names of the contexts.
    """

    def __init__(
        self, fgraph: FunctionGraph, nodes: Sequence[Apply], storage: dict[Variable, Cell], keep: Sequence[Variable]
    ) -> None:
        self.fgraph = fgraph
        self.storage = storage
        self.device_updates = self._find_device_updates()
        for cell in storage.values():
            if isinstance(cell, DeviceCell):
                cell.use()
        self.nodes = nodes = [n for n in nodes if self._is_read(n)]
        self.keep = {*keep, *self.device_updates.values()}
        self.contexts = sorted({c for n in nodes for v in n.outputs if (c := context_of(v))})
        self.routines = {n: n.op.routine(n, get_context(n.op.context_name)) for n in nodes if isinstance(n.op, GpuOp)}
        for node, routine in self.routines.items():
            if isinstance(routine, AcceptsDonations):
                routine.accept_donations([k for k, v in enumerate(node.inputs) if self._is_only_reader(v)])
        self._mutated = mutated_inputs(nodes)
        self._importers: dict[Variable, ArgumentImporter] = {}
        self._programs: list[Any] = []  # kept as long as the function may create kernels

    def build(self) -> None:
        """Build the kernels of all nodes: one program for each context."""
        for name in self.contexts:
            routines = (r for n, r in self.routines.items() if n.op.context_name == name)
            with calling(getattr(self.fgraph, "name", None)):
                self._programs.extend(get_context(name).build([s for routine in routines for s in routine.sources()]))

    def finish(self) -> None:
        """Wait for every device of the function."""
        for name in self.contexts:
            get_context(name).queue.wait()

    def program(self, thunks: Sequence[Thunk], results: Sequence[Cell], checks_at_end: bool) -> StepProgram:
        """Return the steps, as capturing a call needs them.

        Parameters
        ----------
        thunks
            Of the nodes.
        results
            Cells of what a call returns.
        checks_at_end
            Whether kernels report errors in the data.
        """
        downloads = (n for n in self.nodes if isinstance(n.op, HostFromGpu))
        return StepProgram(
            nodes=self.nodes,
            thunks=thunks,
            storage=self.storage,
            routines=self.routines,
            contexts=self.contexts,
            inputs=self.fgraph.inputs,
            updates={self.fgraph.inputs[i]: k for k, i in (self.fgraph.update_mapping or {}).items()},
            results=results,
            exclusive_downloads={n for n in downloads if self._is_last_use(n)},
            checks_at_end=checks_at_end,
            importers=self._importers,
        )

    # Cells

    def mutable_rngs(self) -> list[Cell]:
        """Return the cells of the random generators that nodes change in place."""
        inputs = (v for v in self.fgraph.inputs if isinstance(v.type, RandomGeneratorType))
        return [self.storage[v] for v in inputs if v in self._mutated]

    def free_after(self, allow_gc: bool) -> list[list[Cell]]:
        """Return for each node the cells of intermediate results that it reads as the last node.

        Host Ops compute into the arrays in the cells of their results. So the cells of arrays that the user may see
        through a view are emptied in any case.

        Parameters
        ----------
        allow_gc
            Whether all intermediate results are freed.
        """
        last = {v: at for at, node in enumerate(self.nodes) for v in (*node.outputs, *node.inputs)}
        kept = {*self.device_updates.values(), *self.fgraph.outputs, *self.fgraph.inputs}
        cells: list[list[Cell]] = [[] for _ in self.nodes]
        for variable, at in last.items():
            is_visible = variable in self.keep
            if variable not in kept and not isinstance(variable, Constant) and (allow_gc or is_visible):
                cells[at].append(self.storage[variable])
        return cells

    def results(self, output_storage: Sequence[Cell]) -> list[Cell]:
        """Return the cells of what a call returns; shared variables get device arrays."""
        return [
            self.storage[self.device_updates[i]] if i in self.device_updates else cell
            for i, cell in enumerate(output_storage)
        ]

    def _input_cell(self, node: Apply, index: int) -> Cell:
        """Return the cell from which a node reads an input; a failed call must not change a shared variable."""
        cell = self.storage[node.inputs[index]]
        destroyed = {i for many in node.op.destroy_map.values() for i in many}
        if not isinstance(cell, DeviceCell):
            return cell
        if index in destroyed:
            return CopyOnReadCell(cell)
        return ShapeOnlyCell(cell) if isinstance(node.op, (Shape, Shape_i)) else PeekCell(cell)

    # Updates of shared variables on the device

    def _find_device_updates(self) -> dict[int, Variable]:
        updates = self.fgraph.update_mapping or {}
        found = {}
        for position, of_input in updates.items():
            owner = self.fgraph.outputs[position].owner
            has_device_copy = isinstance(self.storage[self.fgraph.inputs[of_input]], DeviceCell)
            if has_device_copy and owner is not None and isinstance(owner.op, HostFromGpu):
                found[position] = owner.inputs[0]
        return found

    def _is_read(self, node: Apply) -> bool:
        """Whether a node runs; not so a download that only shared variables read, which take the device array."""
        clients = self.fgraph.clients[node.outputs[0]] if isinstance(node.op, HostFromGpu) else ()
        return not clients or any(not _is_output(c, self.device_updates.keys()) for c, _ in clients)

    # Zero-copy arguments

    def _upload_function(self, context: Context, upload: Apply) -> Callable[[Any], GpuArray]:
        """Return how an argument gets to the device: imported, copied by the device, or copied by the host first."""
        if not self._is_unchanged_until_wait(upload):
            return lambda value: context.from_host(value)
        if self._is_kernel_only(upload):
            return self._importers.setdefault(upload.inputs[0], ArgumentImporter(context))
        return lambda value: context.from_host(value, borrow=True)

    def _is_unchanged_until_wait(self, upload: Apply) -> bool:
        """Whether the host array cannot change before the device has read it: the call waits, no node writes to it."""
        at = self.nodes.index(upload)
        is_mutated = view_root(upload.inputs[0]) in mutated_inputs(self.nodes[at:])
        return self._is_synchronised_after({at}, upload) and not is_mutated

    def _is_kernel_only(self, upload: Apply) -> bool:
        """Whether only kernels read the uploaded array, and the call waits after all of them."""
        readers, todo = set(), [upload.outputs[0]]
        while todo:
            variable = todo.pop()
            clients = [n for n, _ in self.fgraph.clients[variable]]
            if variable in self.keep or not all(isinstance(n.op, GpuOp) for n in clients):
                return False
            readers.update(clients)
            todo.extend(v for n in clients if not _has_own_results(n) for v in n.outputs)
        return self._is_synchronised_after({self.nodes.index(n) for n in readers}, upload)

    def _is_synchronised_after(self, positions: Collection[int], upload: Apply) -> bool:
        """Whether a download from the upload's device follows the nodes at these positions."""
        later = self.nodes[max(positions, default=len(self.nodes)) :]
        return any(isinstance(n.op, HostFromGpu) and context_of(n.inputs[0]) == upload.op.context_name for n in later)

    def _is_last_use(self, download: Apply) -> bool:
        """Whether nothing reads an array on the device after its download."""
        source = download.inputs[0]
        if source in self.keep or source in self.fgraph.outputs:
            return False
        is_view = source.owner is not None and source.owner.op.view_map
        is_only_client = len(self.fgraph.clients[source]) == 1
        return download.outputs[0] not in self._mutated or (is_only_client and not is_view)

    # Steps

    def _is_only_reader(self, variable: Variable) -> bool:
        """Whether a device array, or the one of which it is a view, was computed for one client alone, a node."""
        while self._has_one_client(variable):
            owner = variable.owner
            if _has_own_results(owner):
                return True
            if not isinstance(owner.op, GpuSubtensor):
                break
            variable = owner.inputs[0]
        return False

    def _has_one_client(self, variable: Variable) -> bool:
        """Whether a result of a device node has one client, a node."""
        is_visible = variable in self.keep or variable in self.fgraph.outputs
        is_result = variable.owner is not None and isinstance(variable.owner.op, GpuOp)
        return is_result and not is_visible and len(self.fgraph.clients[variable]) == 1

    def thunk(self, node: Apply) -> Thunk:
        """Return the step of a node."""
        inputs = [self.storage[v] for v in node.inputs]
        outputs = [self.storage[v] for v in node.outputs]
        if isinstance(node.op, GpuOp):
            cells = [self._input_cell(node, i) for i in range(len(inputs))]
            return device_thunk(self.routines[node], cells, outputs, [_is_scalar_array(v) for v in node.inputs])
        if isinstance(node.op, GpuFromHost):
            context = get_context(node.op.context_name)
            return upload_thunk(context, node, inputs[0], outputs[0], self._upload_function(context, node))
        if isinstance(node.op, HostFromGpu):
            return download_thunk(inputs[0], outputs[0], self._is_last_use(node))
        return host_thunk(node, [self._input_cell(node, i) for i in range(len(inputs))], outputs)


def _has_own_results(node: Apply) -> bool:
    """Whether no result of a node shares the memory of an input."""
    return isinstance(node.op, GpuOp) and node.op.is_compute and not node.op.view_map and not node.op.may_alias


def _is_output(client: Apply, positions: Collection[int]) -> bool:
    """Whether a client of a variable is one of these outputs of the graph."""
    return getattr(client.op, "idx", None) in positions and type(client.op).__name__ == "Output"


def _is_scalar_array(variable: Variable) -> bool:
    """Whether the value is a 0-d NumPy array, of which a kernel takes the scalar."""
    return isinstance(variable.type, TensorType) and variable.type.ndim == 0
