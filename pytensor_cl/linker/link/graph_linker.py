"""The steps of a graph that is linked: the storage and the thunk of each node, and the kernels of all."""

from collections.abc import Callable, Sequence
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.type import TensorType

from pytensor_cl.linker.link.facts import GraphFacts
from pytensor_cl.linker.run.device_steps import ArgumentImporter, device_thunk, download_thunk, upload_thunk
from pytensor_cl.linker.run.host_steps import host_thunk
from pytensor_cl.linker.types import Cell, CopyOnReadCell, PeekCell, ShapeOnlyCell, StepProgram, Thunk
from pytensor_cl.ops.base import AcceptsDonations, GpuOp, context_of
from pytensor_cl.ops.transfer import GpuFromHost, HostFromGpu
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.error_flag import DeviceErrorFlag
from pytensor_cl.runtime.progress import calling
from pytensor_cl.runtime.registry import get_context
from pytensor_cl.sharedvar import DeviceCell


class GraphLinker:
    """A graph with its storage: makes the step of each node. `keep` is visible to the user after the call."""

    def __init__(
        self, fgraph: FunctionGraph, nodes: Sequence[Apply], storage: dict[Variable, Cell], keep: Sequence[Variable]
    ) -> None:
        self.fgraph, self.storage = fgraph, storage
        shared = {v: cell for v, cell in storage.items() if isinstance(cell, DeviceCell)}
        for cell in shared.values():
            cell.use()
        self._facts = GraphFacts(fgraph, nodes, shared, keep)
        self.nodes = nodes = self._facts.nodes
        self.contexts = sorted({c for n in nodes for v in n.outputs if (c := context_of(v))})
        self.routines = {n: n.op.routine(n, get_context(n.op.context_name)) for n in nodes if isinstance(n.op, GpuOp)}
        for node, routine in self.routines.items():
            if isinstance(routine, AcceptsDonations):
                routine.accept_donations([k for k, v in enumerate(node.inputs) if self._facts.is_only_reader(v)])
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

    def program(
        self, thunks: Sequence[Thunk], results: Sequence[Cell], error_flags: Sequence[DeviceErrorFlag]
    ) -> StepProgram:
        """Return the steps, as capturing a call needs them."""
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
            exclusive_downloads={n for n in downloads if self._facts.is_last_use(n)},
            checks_at_end=bool(error_flags),
            importers=self._importers,
            error_flags=error_flags,
        )

    # Cells

    def mutable_rngs(self) -> list[Cell]:
        """Return the cells of the random generators that nodes change in place."""
        inputs = (v for v in self.fgraph.inputs if isinstance(v.type, RandomGeneratorType))
        return [self.storage[v] for v in inputs if v in self._facts.mutated]

    def free_after(self, allow_gc: bool) -> list[list[Cell]]:
        """Return for each node the cells that are emptied after it (`GraphFacts.last_reads`)."""
        return [[self.storage[v] for v in variables] for variables in self._facts.last_reads(allow_gc)]

    def results(self, output_storage: Sequence[Cell]) -> list[Cell]:
        """Return the cells of what a call returns; shared variables get device arrays."""
        updates = self._facts.device_updates
        return [self.storage[updates[i]] if i in updates else cell for i, cell in enumerate(output_storage)]

    def _input_cell(self, node: Apply, index: int) -> Cell:
        """Return the cell from which a node reads an input; a failed call must not change a shared variable."""
        cell = self.storage[node.inputs[index]]
        destroyed = {i for many in node.op.destroy_map.values() for i in many}
        if not isinstance(cell, DeviceCell):
            return cell
        if index in destroyed:
            return CopyOnReadCell(cell)
        return ShapeOnlyCell(cell) if isinstance(node.op, (Shape, Shape_i)) else PeekCell(cell)

    # Steps

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
            return download_thunk(inputs[0], outputs[0], self._facts.is_last_use(node))
        return host_thunk(node, [self._input_cell(node, i) for i in range(len(inputs))], outputs)

    def _upload_function(self, context: Context, upload: Apply) -> Callable[[Any], GpuArray]:
        """Return how an argument gets to the device: imported, copied by the device, or copied by the host first."""
        if not self._facts.is_unchanged_until_wait(upload):
            return lambda value: context.from_host(value)
        if self._facts.is_kernel_only(upload):
            return self._importers.setdefault(upload.inputs[0], ArgumentImporter(context))
        return lambda value: context.from_host(value, borrow=True)


def _is_scalar_array(variable: Variable) -> bool:
    """Return whether the value is a 0-d NumPy array, of which a kernel takes the scalar."""
    return isinstance(variable.type, TensorType) and variable.type.ndim == 0
