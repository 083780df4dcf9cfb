"""Replacement of several nodes by one."""

from collections.abc import Sequence

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph


def replace_outputs(fgraph: FunctionGraph, old: Sequence[Variable], new: Sequence[Variable], reason: str) -> None:
    """Replace variables by the outputs of a fused node, which get their names and traces."""
    pairs = list(zip(old, new, strict=True))
    for before, after in pairs:
        if not before.type.is_super(after.type):  # an inner Op may have more static lengths, such as an FFT's 2
            after.type = before.type
        after.name = before.name
        after.tag.trace = getattr(before.tag, "trace", [])
    fgraph.replace_all_validate(pairs, reason=reason)
