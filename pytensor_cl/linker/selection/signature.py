"""Which inputs of a graph have to be looked at to know the sizes of all."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.elemwise import DimShuffle, Elemwise

from pytensor_cl.linker.cost.model import CostEstimate
from pytensor_cl.linker.types import Cell

__all__ = ["Sizes", "has_dynamic_shape", "telling"]


class Sizes(NamedTuple):
    """What tells calls apart.

    Attributes
    ----------
    unknown
        Cells of the inputs whose shapes are not fixed.
    telling
        Those of them that tell the sizes of all, with their numbers of dimensions.
    guess
        Guesses from the shapes of all inputs what a call takes.
    """

    unknown: Sequence[Cell]
    telling: Sequence[tuple[Cell, int]]
    guess: Callable[[Sequence[tuple[Any, ...]]], CostEstimate]


def has_dynamic_shape(variable: Variable) -> bool:
    """Whether its shape is known only when the function is called."""
    return None in getattr(variable.type, "shape", ())


class _Groups(dict[Variable, Variable]):
    """Variables of as many elements: each leads to another of its group, the last one to itself."""

    def of(self, variable: Variable) -> Variable:
        """Return what stands for the group of a variable."""
        while (other := self.get(variable, variable)) is not variable:
            variable = other
        return variable

    def join(self, variables: list[Variable]) -> None:
        """Make one group of several."""
        for variable in variables[1:]:
            self[self.of(variable)] = self.of(variables[0])


def telling(fgraph: FunctionGraph, last: set[Variable]) -> list[int]:
    """Return the positions of the inputs that tell the sizes of all: one of those that must have as many elements.

    Parameters
    ----------
    fgraph
        A graph before any rewrite.
    last
        Inputs that are taken where no others will do.
    """
    groups = _Groups()
    for node in fgraph.toposort():
        if isinstance(node.op, Elemwise):
            alike: dict[tuple[bool, ...], list[Variable]] = {}
            for variable in (*node.inputs, *node.outputs):
                alike.setdefault(variable.type.broadcastable, []).append(variable)
            for variables in alike.values():
                groups.join(variables)
        elif isinstance(node.op, DimShuffle):
            groups.join([*node.inputs, *node.outputs])
    chosen: dict[Variable, Variable] = {}
    for variable in sorted(filter(has_dynamic_shape, fgraph.inputs), key=lambda v: v in last):
        chosen.setdefault(groups.of(variable), variable)
    return [i for i, v in enumerate(fgraph.inputs) if v in chosen.values()]
