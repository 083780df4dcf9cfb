"""One node in the place of several."""

from collections.abc import Sequence

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph

__all__ = ["replace_outputs"]


def replace_outputs(fgraph: FunctionGraph, old: Sequence[Variable], new: Sequence[Variable], reason: str) -> None:
    """Put the outputs of a fused node where those of the nodes were that it replaces, with their names and traces.

    Parameters
    ----------
    fgraph
        Changed in place.
    old, new
        Variables that belong together.
    reason
        Name of the rewrite.
    """
    pairs = list(zip(old, new, strict=True))
    for before, after in pairs:
        if not before.type.is_super(after.type):  # a node said more of the shape than its inputs tell: an inner FFT's 2
            after.type = before.type
        after.name = before.name
        after.tag.trace = getattr(before.tag, "trace", [])
    fgraph.replace_all_validate(pairs, reason=reason)
