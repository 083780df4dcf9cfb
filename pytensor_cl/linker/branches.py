"""The branches of conditionals: each is a graph that is linked by itself and runs when it is selected."""

from collections.abc import Callable
from typing import Any

from pytensor.graph.fg import FunctionGraph

from pytensor_cl.linker.linker import OpenCLLinker
from pytensor_cl.ops.ifelse import register_branch_linker

__all__ = ["link_branch"]


def link_branch(graph: FunctionGraph) -> Callable[..., list[Any]]:
    """Return a callable that takes the values of a graph's inputs and returns those of its outputs.

    Parameters
    ----------
    graph
        A rewritten graph; stays as it is. Its outputs may be inputs.
    """
    copied = graph.clone()
    computed = list(dict.fromkeys(v for v in copied.outputs if v not in copied.inputs))
    positions = {v: i for i, v in enumerate((*copied.inputs, *computed))}
    returned = [positions[v] for v in copied.outputs]
    inputs: list[list[Any]] = [[None] for _ in copied.inputs]
    outputs: list[list[Any]] = [[None] for _ in computed]
    linker = OpenCLLinker(allow_gc=True).accept(FunctionGraph(copied.inputs, computed, clone=False))
    vm, _, _ = linker.make_thunk(input_storage=inputs, output_storage=outputs)

    def call(*values: Any) -> list[Any]:
        for cell, value in zip(inputs, values, strict=True):
            cell[0] = value
        try:
            available = (*values, *vm())
        finally:
            for cell in (*inputs, *outputs):
                cell[0] = None
        return [available[at] for at in returned]

    return call


register_branch_linker(link_branch)
