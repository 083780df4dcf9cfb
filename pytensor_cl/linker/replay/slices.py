"""Slices that begin elsewhere in each call: minibatches. One recording serves them all.

A slice of a shared variable, or of an argument, is a part of its buffer. As long as shape and strides stay the same,
and the distance from the last address at which a part may begin, every kernel does the same: it is given another part.
Numbers that are computed from that of the minibatch are set where kernels take them by value. All else that depends on
it must be what it was when the call was recorded.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import ref

from pytensor.graph.basic import Apply, Constant, Variable

from pytensor_cl.linker.replay.bindings import frozen
from pytensor_cl.linker.replay.buffer_bindings import BufferBinding
from pytensor_cl.linker.steps.device import read_only
from pytensor_cl.linker.steps.host import Cell, Thunk
from pytensor_cl.ops.base import Routine
from pytensor_cl.ops.indexing.slice_update import GpuSubtensor
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.layout import Layout

__all__ = [
    "DynamicSlices",
    "ParameterResolver",
    "ReplayParameterSpec",
    "ReplayParameters",
    "SliceBinding",
    "find_dynamic_slices",
    "move_step",
    "part_of",
    "split",
]


def split(layout: Layout, itemsize: int, alignment: int) -> tuple[int, Layout]:
    """Return the byte at which a part of the buffer can begin that holds an array, and the layout in that part."""
    if not layout.size:
        return 0, layout._replace(offset=0)
    step = alignment // itemsize
    begin = layout.span[0] // step * step
    return begin * itemsize, layout._replace(offset=layout.offset - begin)


def part_of(buffer: Any, begin: int) -> "cl.Buffer":
    """Return the rest of a buffer from a byte on."""
    whole = cl.Buffer.from_int_ptr(buffer.int_ptr, retain=True)  # the pool's type has no parts
    return whole.get_sub_region(begin, buffer.size - begin)


@dataclass
class DynamicSlices:
    """What of a graph depends on numbers such as that of a minibatch.

    Attributes
    ----------
    numbers
        Inputs of the graph.
    nodes
        Of the host, that compute with them.
    variables
        The numbers, and results of these nodes.
    slices
        Nodes whose results may be windows.
    """

    numbers: list[Variable] = field(default_factory=list)
    nodes: list[Apply] = field(default_factory=list)
    variables: set[Variable] = field(default_factory=set)
    slices: set[Apply] = field(default_factory=set)


def find_dynamic_slices(
    nodes: Sequence[Apply], numbers: Iterable[Variable], fixed: set[Variable], kept: set[Variable]
) -> DynamicSlices:
    """Look for slices that begin elsewhere in each call.

    Parameters
    ----------
    nodes
        In the order of execution.
    numbers
        Inputs from which values that launches depend on are computed.
    fixed
        Host values that are the same in all calls with the same numbers.
    kept
        Variables that outlive the call.
    """
    found = DynamicSlices(list(numbers))
    found.variables.update(found.numbers)
    for node in nodes:
        if isinstance(node.op, GpuSubtensor):
            indices = node.inputs[1:]
            known = all(v in fixed or isinstance(v, Constant) for v in indices)
            if known and not found.variables.isdisjoint(indices) and kept.isdisjoint(_views(node.outputs[0], nodes)):
                found.slices.add(node)
        elif not found.variables.isdisjoint(node.inputs) and fixed.issuperset(node.outputs):
            found.nodes.append(node)
            found.variables.update(node.outputs)
    return found


def _views(variable: Variable, nodes: Iterable[Apply]) -> set[Variable]:
    """Return a variable and all that may be its memory."""
    found = {variable}
    for node in nodes:
        may_alias = getattr(node.op, "may_alias", False)
        viewed = node.inputs if may_alias else [node.inputs[i] for many in node.op.view_map.values() for i in many]
        if not found.isdisjoint(viewed):
            found.update(node.outputs)
    return found


class SliceBinding:
    """A slice in a recording.

    Parameters
    ----------
    slot, source
        Its own, and that of the array of which it is a slice.
    whole
        Layout of the source.
    itemsize
        Bytes of an element.
    alignment
        Bytes at whose multiples a part may begin.
    """

    def __init__(
        self, slot: BufferBinding, source: BufferBinding, whole: Layout, itemsize: int, alignment: int
    ) -> None:
        self._slot, self._source = slot, source
        self._whole = whole
        self._itemsize, self._alignment = itemsize, alignment
        self._parts: dict[int, Any] = {}
        self._bound = -1  # where the part begins that kernels have
        self._array: Callable[[], GpuArray | None] = lambda: None

    def place(self, routine: Any, values: Sequence[Any]) -> tuple[int, Layout]:
        """Return at which byte the part begins for other values of the indices, and the layout of the slice in it."""
        return split(routine.layout(self._whole, *values), self._itemsize, self._alignment)

    def move(self, begin: int) -> None:
        """Bind the part that begins at a byte."""
        array = self._source.array
        if array is None:
            self._slot.bind(part_of(self._source.buffer, begin))
            return
        if self._array() is not array:
            parts = self._parts = {}
            self._array, self._bound = ref(array, lambda _: parts.clear()), -1  # parts keep the memory
        part = self._parts.get(begin)
        if part is None:
            part = self._parts[begin] = part_of(self._source.buffer, begin)
        if self._bound == begin:
            self._slot.buffer = part
        else:
            self._slot.bind(part)
            self._bound = begin


class ReplayParameters(NamedTuple):
    """What differs between calls that one recording serves.

    Attributes
    ----------
    begins
        Per window, at which byte it begins.
    numbers
        Per number that a kernel takes by value.
    constants
        Host values that somebody reads.
    """

    begins: tuple[int, ...]
    numbers: tuple[Any, ...]
    constants: tuple[Any, ...]


@dataclass
class ReplayParameterSpec:
    """How the calls that a recording serves may differ.

    Attributes
    ----------
    windows
        Nodes and their windows.
    numbers
        Variable, and what sets it where a kernel takes it by value.
    constants
        Variables whose values somebody reads, and their cells.
    pinned
        Variables that must have the recorded values.
    values
        Other host values that the nodes of `DynamicSlices` read.
    signature
        Layouts of the windows, and the pinned values.
    """

    windows: list[tuple[Apply, SliceBinding]] = field(default_factory=list)
    numbers: list[tuple[Variable, Callable[[Any], None]]] = field(default_factory=list)
    constants: list[tuple[Variable, Cell]] = field(default_factory=list)
    pinned: list[Variable] = field(default_factory=list)
    values: dict[Variable, Any] = field(default_factory=dict)
    signature: Any = None
    last: ReplayParameters | None = None

    def apply(self, variant: ReplayParameters) -> None:
        """Set the numbers for a call."""
        for (_, cell), value in zip(self.constants, variant.constants, strict=True):
            cell[0] = value.copy() if hasattr(value, "copy") else value
        if variant is not self.last:
            for (_, set_value), value in zip(self.numbers, variant.numbers, strict=True):
                set_value(value)
            self.last = variant


def move_step(window: SliceBinding, variation: ReplayParameterSpec, number: int) -> Thunk:
    """Return what moves a window to where it is in a call."""

    def run() -> None:
        assert variation.last is not None
        window.move(variation.last.begins[number])

    return run


class ParameterResolver:
    """Finds out which recording serves a call, and how.

    Parameters
    ----------
    moving
        Of the graph.
    thunks
        Of the nodes of `moving`.
    storage, routines
        Of the function.
    """

    def __init__(
        self,
        moving: DynamicSlices,
        thunks: Sequence[Thunk],
        storage: Mapping[Variable, Cell],
        routines: Mapping[Apply, Routine],
    ) -> None:
        self._thunks, self._routines, self._storage = thunks, routines, storage
        own = {v for node in moving.nodes for v in node.inputs}
        self._others = [v for v in own if v.owner is not None and v not in moving.variables]

    def signature(self, variation: ReplayParameterSpec) -> Any:
        """Return what calls have in common that one recording serves; raises what the nodes of the host raise.

        Parameters
        ----------
        variation
            Of any recording for inputs of the same shapes.
        """
        for variable in self._others:
            self._storage[variable][0] = variation.values[variable]
        for thunk in self._thunks:
            thunk()
        layouts = tuple(layout for _, layout in self._places(variation))
        return layouts, tuple(frozen(self._value(v)) for v in variation.pinned)

    def _places(self, variation: ReplayParameterSpec) -> list[tuple[int, Layout]]:
        return [
            window.place(self._routines[node], [self._value(v) for v in node.inputs[1:]])
            for node, window in variation.windows
        ]

    def _value(self, variable: Variable) -> Any:
        return read_only(self._storage[variable])[0]

    def variant(self, variation: ReplayParameterSpec) -> ReplayParameters:
        """Return how the call differs, after `signature` has computed its values."""
        begins = tuple(begin for begin, _ in self._places(variation))
        numbers = tuple(self._value(v)[()] for v, _ in variation.numbers)
        return ReplayParameters(begins, numbers, tuple(self._value(v) for v, _ in variation.constants))
