"""Base class of symbolic Ops that keep a function of a network recognisable until the graph is compiled."""

from collections.abc import Sequence

from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.symbolic import TensorSymbolicOp


class Marker(TensorSymbolicOp):
    """Symbolic Op whose inner graph is the definition of the function.

    Every mode replaces a marker by its inner graph before all other rewrites. Mode OPENCL keeps the markers that have a
    device kernel. A subclass overrides ``pullback`` so that the gradient is a marker too, or a graph that is as good.

    `states` are pairs of the positions of an input and an output: the output is the next value of the state, such as a
    running mean, that is the input.
    """

    states: tuple[tuple[int, int], ...] = ()

    def predict(self, node: Apply) -> Sequence[Variable | None] | None:
        """Return what replaces each output in a prediction graph; None for the node, or an output, that stays."""
        return None
