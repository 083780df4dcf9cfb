"""The signature of a call: which inputs determine the shapes of all others, and the bucket of each dimension."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.elemwise import DimShuffle, Elemwise

from pytensor_cl.linker.selection.estimate import CostEstimate
from pytensor_cl.linker.types import Cell

Shape = tuple[int, ...]


class SignatureSource(NamedTuple):
    """The cells from which a function's call signatures are made, and the cost estimate of a call from its shapes."""

    dynamic: Sequence[Cell]
    """Cells of all inputs whose shapes are known only when the function is called."""
    distinguishing: Sequence[tuple[Cell, int]]
    """Cells that determine the shapes of all others, and their numbers of dimensions."""
    estimate: Callable[[Sequence[Shape]], CostEstimate]
    context_name: str = ""
    """Name of the device's context; empty if there is none."""


def bucket(shapes: Sequence[Shape]) -> tuple[tuple[int, ...], ...]:
    """Return the signature of shapes: of each dimension the number of bits, so 512 to 1023 are in one bucket."""
    return tuple([tuple([n.bit_length() for n in shape]) for shape in shapes])


def has_dynamic_shape(variable: Variable) -> bool:
    """Return whether the shape of a variable is known only when the function is called."""
    return None in getattr(variable.type, "shape", ())


class _DisjointSets(dict[Variable, Variable]):
    """Sets of variables of the same shape; each variable points to another one of its set, the root to itself."""

    def root(self, variable: Variable) -> Variable:
        """Return the variable that stands for a set."""
        while (other := self.get(variable, variable)) is not variable:
            variable = other
        return variable

    def merge(self, variables: Sequence[Variable]) -> None:
        """Make one set of the sets of several variables."""
        for variable in variables[1:]:
            self[self.root(variable)] = self.root(variables[0])


def distinguishing_inputs(fgraph: FunctionGraph, least_preferred: set[Variable]) -> list[int]:
    """Return the positions of inputs that determine the shapes of all inputs: one of those that must have equal shapes.

    Elementwise nodes join inputs with the same broadcast pattern, and transposes join their input and output. Inputs in
    `least_preferred` are chosen only where no other input will do.
    """
    sets = _DisjointSets()
    for node in fgraph.toposort():
        if isinstance(node.op, Elemwise):
            by_pattern: dict[tuple[bool, ...], list[Variable]] = {}
            for variable in (*node.inputs, *node.outputs):
                by_pattern.setdefault(variable.type.broadcastable, []).append(variable)
            for variables in by_pattern.values():
                sets.merge(variables)
        elif isinstance(node.op, DimShuffle):
            sets.merge([*node.inputs, *node.outputs])
    chosen: dict[Any, Variable] = {}
    for variable in sorted(filter(has_dynamic_shape, fgraph.inputs), key=lambda v: v in least_preferred):
        chosen.setdefault(sets.root(variable), variable)
    return [i for i, v in enumerate(fgraph.inputs) if v in chosen.values()]
