"""The inner graph of a loop: its nodes run step by step, and write their results to the loop's buffers."""

from collections.abc import Callable, Sequence
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.link.utils import map_storage
from pytensor.tensor.type import TensorType

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.linker.aliasing import views_of
from pytensor_cl.linker.link.graph_linker import GraphLinker
from pytensor_cl.linker.link.node_order import order_nodes
from pytensor_cl.linker.types import Cell, Thunk
from pytensor_cl.ops.adapters import Forwarding
from pytensor_cl.ops.base import CheckedRoutine, is_checked
from pytensor_cl.ops.base import Routine as AnyRoutine
from pytensor_cl.ops.scan import register_step_linker
from pytensor_cl.routines.base.routine import Routine, layout_of
from pytensor_cl.runtime.array import GpuArray


class InnerStep:
    """An inner graph that is linked (`pytensor_cl.ops.scan.LinkedStep`); it stays as it is. Outputs may be inputs."""

    def __init__(self, graph: FunctionGraph) -> None:
        copied = graph.clone()
        computed = list(dict.fromkeys(v for v in copied.outputs if v not in copied.inputs))
        fgraph = FunctionGraph(copied.inputs, computed, clone=False)
        self._returned = copied.outputs
        nodes = order_nodes(fgraph)
        inputs, outputs, storage = map_storage(fgraph, nodes, None, None, None)
        linker = GraphLinker(fgraph, nodes, storage, ())
        self._fgraph, self._linker = fgraph, linker
        self._inputs, self._outputs, self._storage = inputs, outputs, storage
        self._targets: dict[Variable, GpuArray | None] = dict.fromkeys(computed)
        self._positions = {node: at for at, node in enumerate(linker.nodes)}
        self._writers = {v: v.owner for v in computed if v.owner is not None and self._writes_directly(v.owner)}
        self._may_write: dict[tuple[int, tuple[int, ...]], bool] = {}
        thunks = [self._thunk(node) for node in linker.nodes]
        self._steps = list(zip(thunks, linker.free_after(allow_gc=True), strict=True))
        self._result_cells = [storage[v] for v in copied.outputs]
        self.routines: Sequence[AnyRoutine] = list(linker.routines.values())
        self.kernel_count = sum(n.op.is_compute for n in linker.routines)

    def sources(self) -> list[KernelSource]:
        """Return the kernels of the device nodes."""
        return [source for routine in self.routines for source in routine.sources()]

    def checked(self) -> list[CheckedRoutine]:
        """Return the routines whose kernels check their data."""
        return [routine for node, routine in self._linker.routines.items() if is_checked(routine, node.op)]

    # Results that are written where they belong

    def _writes_directly(self, node: Apply) -> bool:
        """Return whether the routine of a node takes any arrays for its results."""
        routine = _innermost(self._linker.routines.get(node))
        return isinstance(routine, Routine) and type(routine).__call__ is Routine.__call__

    def may_write(self, output: int, overwritten: tuple[int, ...]) -> bool:
        """Return whether an output may be written while these inputs, which share its memory, are in use."""
        key = output, overwritten
        found = self._may_write.get(key)
        if found is None:
            found = self._may_write[key] = self._is_writable(output, overwritten)
        return found

    def _is_writable(self, output: int, overwritten: tuple[int, ...]) -> bool:
        variable = self._returned[output]
        writer = self._writers.get(variable)
        if writer is None or self._returned.count(variable) > 1:
            return False
        return all(self._is_read_before(self._fgraph.inputs[k], writer) for k in overwritten)

    def _is_read_before(self, variable: Variable, writer: Apply) -> bool:
        """Return whether all nodes that read an input run before another node, or are it and read each element once."""
        views = views_of(variable, self._linker.nodes)
        if not views.isdisjoint(self._returned):
            return False
        for node in self._linker.nodes:
            indices = [k for k, v in enumerate(node.inputs) if v in views]
            if not indices:
                continue
            if node is writer:
                if len(views) > 1 or not all(node.op.accepts_donation(k) for k in indices) or len(node.outputs) > 1:
                    return False
            elif self._positions[node] > self._positions[writer]:
                return False
        return True

    def _thunk(self, node: Apply) -> Thunk:
        if not any(v in self._writers for v in node.outputs):
            return self._linker.thunk(node)
        routine = self._linker.routines[node]
        cells = [self._storage[v] for v in node.inputs]
        by_value = [isinstance(v.type, TensorType) and v.type.ndim == 0 for v in node.inputs]
        outputs = [self._storage[v] for v in node.outputs]
        return _writing_thunk(routine, list(zip(cells, by_value, strict=True)), outputs, self._target_getter(node))

    def _target_getter(self, node: Apply) -> Callable[[], list[GpuArray | None]]:
        targets, variables = self._targets, node.outputs
        return lambda: [targets.get(v) for v in variables]

    def __call__(self, values: Sequence[Any], targets: Sequence[GpuArray | None]) -> list[Any]:
        """Compute the outputs; those with a target are written there, if the node that computes them can."""
        for cell, value in zip(self._inputs, values, strict=True):
            cell[0] = value
        for variable, target in zip(self._returned, targets, strict=True):
            if target is not None:
                self._targets[variable] = target
        try:
            self._run()
            return [cell[0] for cell in self._result_cells]
        finally:
            for cell in (*self._inputs, *self._outputs):
                cell[0] = None
            self._targets.update(dict.fromkeys(self._targets))

    def _run(self) -> None:
        """Run the nodes."""
        at = 0
        try:
            for thunk, freed in self._steps:
                thunk()
                for cell in freed:
                    cell[0] = None
                at += 1
        except Exception as error:
            error.add_note(f"\nRaised by node {self._linker.nodes[at]} in a step of a loop")
            raise


def _innermost(routine: Any) -> Any:
    """Return the routine that computes, without those that check or reorder its inputs."""
    while isinstance(routine, Forwarding):
        routine = routine.routine
    return routine


def _writing_thunk(
    routine: Any,
    inputs: Sequence[tuple[Cell, bool]],
    outputs: Sequence[Cell],
    targets: Callable[[], list[GpuArray | None]],
) -> Thunk:
    """Return the thunk of a device node whose results are written to arrays that the loop has chosen."""
    checks = []
    while isinstance(routine, Forwarding):
        checks.append(routine.prepare)
        routine = routine.routine
    empty, dtypes = routine.context.empty, routine.output_dtypes

    def run() -> None:
        values: Any = [cell[0][()] if scalar else cell[0] for cell, scalar in inputs]
        for prepare in checks:
            values = prepare(*values)
        layouts = routine.layout(*map(layout_of, values))
        wanted = zip(layouts, dtypes, targets(), strict=True)
        results = [
            target if target is not None and target.shape == layout.shape else empty(layout.shape, dtype)
            for layout, dtype, target in wanted
        ]
        routine.launch(results, values)
        for cell, value in zip(outputs, results, strict=True):
            cell[0] = value

    return run


register_step_linker(InnerStep)
