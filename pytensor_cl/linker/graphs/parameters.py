"""Replay parameters: how the calls differ that one captured graph serves, such as those of different minibatches.

Offsets of slices are bound again. Numbers that are computed from the index of a minibatch are passed to kernels by
value. All other values that depend on it must be those of the captured call.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pytensor.graph.basic import Apply, Variable

from pytensor_cl.linker.graphs.guards import freeze_value
from pytensor_cl.linker.graphs.slices import SliceBinding
from pytensor_cl.linker.types import Cell, Thunk, peeking
from pytensor_cl.ops.base import Routine
from pytensor_cl.runtime.layout import Layout

__all__ = ["ParameterResolver", "ReplayParameterSpec", "ReplayParameters", "slice_step"]


class ReplayParameters(NamedTuple):
    """The values of one call.

    Attributes
    ----------
    offsets
        Per slice, the first byte of its sub-buffer.
    numbers
        Per number that a kernel takes by value.
    host_values
        Host values that steps or results read.
    """

    offsets: tuple[int, ...]
    numbers: tuple[Any, ...]
    host_values: tuple[Any, ...]


@dataclass
class ReplayParameterSpec:
    """How the calls may differ that a captured graph serves.

    Attributes
    ----------
    slices
        Nodes and the bindings of their results.
    numbers
        Variable, and the function that passes it to a kernel by value.
    host_values
        Variables whose values steps or results read, and their cells.
    guarded
        Variables that must have the values of the captured call.
    captured_values
        Other host values of the captured call that the nodes of `DynamicSlices` read.
    layout_signature
        Layouts of the slices, and the guarded values.
    current
        The parameters that are set.
    """

    slices: list[tuple[Apply, SliceBinding]] = field(default_factory=list)
    numbers: list[tuple[Variable, Callable[[Any], None]]] = field(default_factory=list)
    host_values: list[tuple[Variable, Cell]] = field(default_factory=list)
    guarded: list[Variable] = field(default_factory=list)
    captured_values: dict[Variable, Any] = field(default_factory=dict)
    layout_signature: Any = None
    current: ReplayParameters | None = None

    def apply(self, parameters: ReplayParameters) -> None:
        """Set the host values and the numbers for a call."""
        for (_, cell), value in zip(self.host_values, parameters.host_values, strict=True):
            cell[0] = value.copy() if hasattr(value, "copy") else value
        if parameters is not self.current:
            for (_, set_value), value in zip(self.numbers, parameters.numbers, strict=True):
                set_value(value)
            self.current = parameters


def slice_step(binding: SliceBinding, spec: ReplayParameterSpec, number: int) -> Thunk:
    """Return a step that binds slice number `number` at the offset of the call."""

    def rebind() -> None:
        assert spec.current is not None
        binding.rebind(spec.current.offsets[number])

    return rebind


class ParameterResolver:
    """Computes, for a call, the signature of the captured graph that serves it, and its replay parameters.

    Parameters
    ----------
    nodes
        Host nodes that compute with the indices of slices.
    dynamic
        The indices, and the results of these nodes.
    thunks
        Of the nodes.
    storage, routines
        Of the function.
    """

    def __init__(
        self,
        nodes: Sequence[Apply],
        dynamic: set[Variable],
        thunks: Sequence[Thunk],
        storage: Mapping[Variable, Cell],
        routines: Mapping[Apply, Routine],
    ) -> None:
        self._thunks, self._routines, self._storage = thunks, routines, storage
        inputs = {v for node in nodes for v in node.inputs}
        self._captured = [v for v in inputs if v.owner is not None and v not in dynamic]

    def layout_signature(self, spec: ReplayParameterSpec) -> Any:
        """Return what the calls have in common that one captured graph serves.

        Parameters
        ----------
        spec
            Of any captured graph for inputs of the same shapes.

        Raises
        ------
        Exception
            What the host nodes raise.
        """
        for variable in self._captured:
            self._storage[variable][0] = spec.captured_values[variable]
        for thunk in self._thunks:
            thunk()
        layouts = tuple(layout for _, layout in self._locations(spec))
        return layouts, tuple(freeze_value(self._value(v)) for v in spec.guarded)

    def _locations(self, spec: ReplayParameterSpec) -> list[tuple[int, Layout]]:
        return [
            binding.locate(self._routines[node], [self._value(v) for v in node.inputs[1:]])
            for node, binding in spec.slices
        ]

    def _value(self, variable: Variable) -> Any:
        return peeking(self._storage[variable])[0]

    def resolve(self, spec: ReplayParameterSpec) -> ReplayParameters:
        """Return the parameters of the call, whose values `layout_signature` has computed."""
        offsets = tuple(offset for offset, _ in self._locations(spec))
        numbers = tuple(self._value(v)[()] for v, _ in spec.numbers)
        return ReplayParameters(offsets, numbers, tuple(self._value(v) for v, _ in spec.host_values))
