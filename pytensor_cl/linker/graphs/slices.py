"""Slices whose offset differs from call to call, such as minibatches: one captured graph serves them all.

A slice of a shared variable, or of an argument, is a sub-buffer of its buffer. As long as shape and strides stay the
same, and the distance from the last address at which a sub-buffer may begin, every kernel does the same with another
sub-buffer. Numbers that are computed from the index of a minibatch are passed to kernels by value. All other values
that depend on it must be as in the captured call.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import ref

from pytensor.graph.basic import Apply, Variable

from pytensor_cl.linker.aliasing import mutated_inputs, view_root, views_of
from pytensor_cl.linker.graphs.buffers import BufferBinding
from pytensor_cl.linker.graphs.guards import HostValues, freeze_value
from pytensor_cl.linker.types import Cell, StepProgram, Thunk, peeking
from pytensor_cl.ops.indexing.slice_update import GpuSubtensor
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.memory.parts import parts_of


def split_offset(layout: Layout, itemsize: int, alignment: int) -> tuple[int, Layout]:
    """Return the first byte of an array's sub-buffer, a multiple of `alignment`, and the array's layout in it."""
    if not layout.size:
        return 0, layout._replace(offset=0)
    step = alignment // itemsize
    begin = layout.span[0] // step * step
    return begin * itemsize, layout._replace(offset=layout.offset - begin)


class SliceBinding:
    """Binds a slice of the array that `source` binds, at another offset in each call."""

    def __init__(
        self, binding: BufferBinding, source: BufferBinding, source_layout: Layout, itemsize: int, alignment: int
    ) -> None:
        self._binding, self._source = binding, source
        self._source_layout = source_layout
        self._itemsize, self._alignment = itemsize, alignment
        self._bound_offset = -1  # byte offset of the sub-buffer that kernels have; -1: none
        self._array_ref: Callable[[], GpuArray | None] = lambda: None

    def locate(self, routine: Any, indices: Sequence[Any]) -> tuple[int, Layout]:
        """Return the offset of the sub-buffer for some values of the indices, and the layout of the slice in it."""
        return split_offset(routine.layout(self._source_layout, *indices), self._itemsize, self._alignment)

    def rebind(self, offset: int) -> None:
        """Bind the sub-buffer that begins at a byte."""
        array, buffer = self._source.array_ref(), self._source.buffer
        part = parts_of(buffer).part(offset, buffer.size - offset)
        if array is None:
            self._binding.bind(part)
            self._bound_offset = -1  # the kernels do not have that of the last array any more
            return
        if self._array_ref() is not array:
            self._array_ref, self._bound_offset = ref(array), -1
        if self._bound_offset == offset:
            self._binding.buffer = part
        else:
            self._binding.bind(part)
            self._bound_offset = offset


class ParameterValues(NamedTuple):
    """The values of a captured graph's parameters in one call."""

    offsets: tuple[int, ...]  # offset of each slice's sub-buffer, in bytes
    numbers: tuple[Any, ...]
    host_values: tuple[Any, ...]


@dataclass
class GraphParameters:
    """Slices, numbers and host values that a replay sets in a graph captured for calls with different indices."""

    slices: list[tuple[Apply, SliceBinding]] = field(default_factory=list)
    numbers: list[tuple[Variable, Callable[[Any], None]]] = field(default_factory=list)  # kernel arguments by value
    host_values: list[tuple[Variable, Cell]] = field(default_factory=list)  # values that steps or results read
    guarded: list[Variable] = field(default_factory=list)  # variables that must have the values of the captured call
    captured_values: dict[Variable, Any] = field(default_factory=dict)  # host values that `DynamicSlices` reads
    layout_signature: Any = None  # layouts of the slices, and the guarded values
    current: ParameterValues | None = None  # values that the graph has now

    def apply(self, values: ParameterValues) -> None:
        """Set the host values and the numbers for a call."""
        for (_, cell), value in zip(self.host_values, values.host_values, strict=True):
            cell[0] = value.copy() if hasattr(value, "copy") else value
        if values is not self.current:
            for (_, set_value), value in zip(self.numbers, values.numbers, strict=True):
                set_value(value)
            self.current = values

    def slice_step(self, number: int) -> Thunk:
        """Return a step that binds a slice at the offset of the call."""
        _, binding = self.slices[number]

        def rebind() -> None:
            assert self.current is not None
            binding.rebind(self.current.offsets[number])

        return rebind


class DynamicSlices:
    """The slices of a function whose offset may differ from call to call."""

    def __init__(self, program: StepProgram, nodes: set[Apply], variables: set[Variable], slices: set[Apply]) -> None:
        self.variables, self.slices = variables, slices  # indices and what is computed from them; nodes that slice
        self._storage, self._routines = program.storage, program.routines
        inputs = {v for node in nodes for v in node.inputs}
        mutated = mutated_inputs(nodes)
        # Values of the captured call, and whether a node changes them in place.
        self._captured = [(v, view_root(v) in mutated) for v in inputs if v.owner is not None and v not in variables]
        # Each host node with its results that a later node changes in place; values are read after all nodes.
        self._steps = [
            (thunk, [v for v in node.outputs if view_root(v) in mutated])
            for node, thunk in zip(program.nodes, program.thunks, strict=True)
            if node in nodes
        ]
        self._saved: dict[Variable, Any] = {}

    def layout_signature(self, parameters: GraphParameters) -> Any:
        """Return the key shared by all calls that one captured graph serves; host nodes may raise their errors.

        The parameters are the same for every captured graph for inputs of the same shapes.
        """
        for variable, is_mutated in self._captured:
            value = parameters.captured_values[variable]
            self._storage[variable][0] = copy(value) if is_mutated else value
        for thunk, mutated in self._steps:
            thunk()
            self._saved.update((v, copy(self._storage[v][0])) for v in mutated)
        layouts = tuple(layout for _, layout in self._locations(parameters))
        return layouts, tuple(freeze_value(self._value(v)) for v in parameters.guarded)

    def parameter_values(self, parameters: GraphParameters) -> ParameterValues:
        """Return the values for a call whose host nodes `layout_signature` has run."""
        offsets = tuple(offset for offset, _ in self._locations(parameters))
        numbers = tuple(self._value(v)[()] for v, _ in parameters.numbers)
        return ParameterValues(offsets, numbers, tuple(self._value(v) for v, _ in parameters.host_values))

    def _locations(self, parameters: GraphParameters) -> list[tuple[int, Layout]]:
        return [
            binding.locate(self._routines[node], [self._value(v) for v in node.inputs[1:]])
            for node, binding in parameters.slices
        ]

    def _value(self, variable: Variable) -> Any:
        return self._saved[variable] if variable in self._saved else peeking(self._storage[variable])[0]


def find_dynamic_slices(program: StepProgram, values: HostValues) -> DynamicSlices | None:
    """Return the slices whose offset may differ from call to call; None if there are none."""
    results = {id(cell) for cell in program.results}
    returned = {v for v, cell in program.storage.items() if id(cell) in results}
    variables = set(values.index_inputs)
    nodes: set[Apply] = set()  # host nodes that compute with the indices
    slices: set[Apply] = set()
    for node in program.nodes:
        if isinstance(node.op, GpuSubtensor):
            bounds = node.inputs[1:]
            is_dynamic = all(map(values.is_known, bounds)) and not variables.isdisjoint(bounds)
            if is_dynamic and returned.isdisjoint(views_of(node.outputs[0], program.nodes)):
                slices.add(node)
        elif not variables.isdisjoint(node.inputs) and values.constants.issuperset(node.outputs):
            nodes.add(node)
            variables.update(node.outputs)
    return DynamicSlices(program, nodes, variables, slices) if slices else None
