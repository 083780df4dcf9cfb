"""Device graphs of inner graphs: the branches of a conditional, the steps of a loop."""

from collections.abc import Sequence

from pytensor.compile.aliasing import add_supervisor_to_fgraph
from pytensor.compile.io import In
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.basic import get_active_mode

from pytensor_cl.ops.base import DEVICE, context_of
from pytensor_cl.ops.transfer import GpuFromHost, host_from_gpu
from pytensor_cl.rewriting.host_graph.graph import state_of
from pytensor_cl.type import GpuArrayType


def place_inner_graph(
    graph: FunctionGraph, input_placements: Sequence[str], output_placements: Sequence[str], context_name: str
) -> FunctionGraph:
    """Return a copy of an inner graph with its inputs and outputs at their placements, `DEVICE` or `HOST`."""

    def new_input(variable: Variable, placement: str) -> Variable:
        kind = variable.type
        new = GpuArrayType(kind.dtype, kind.shape, context_name)() if placement is DEVICE else kind()
        new.name = variable.name
        return new

    inputs = [new_input(v, placement) for v, placement in zip(graph.inputs, input_placements, strict=True)]
    host_inputs = [host_from_gpu(v) if context_of(v) else v for v in inputs]
    typed = [old.type.filter_variable(new) for old, new in zip(graph.inputs, host_inputs, strict=True)]
    outputs = clone_replace(graph.outputs, replace=dict(zip(graph.inputs, typed, strict=True)))
    placed = [
        GpuFromHost(context_name)(v) if placement is DEVICE else v
        for v, placement in zip(outputs, output_placements, strict=True)
    ]
    return FunctionGraph(inputs, placed, clone=False)


def compile_inner_graph(inner: FunctionGraph, fgraph: FunctionGraph) -> FunctionGraph:
    """Rewrite an inner graph, in place, by the mode of the outer graph; raise what a rewrite has found wrong in it."""
    mode = get_active_mode(fgraph)
    inner._compile_mode = mode
    specs = [In(v, borrow=True, mutable=False) for v in inner.inputs]
    add_supervisor_to_fgraph(fgraph=inner, input_specs=specs, accept_inplace=True)
    mode.optimizer.rewrite(inner)
    state = state_of(inner)
    inner.remove_feature(state)  # only whole functions have a host graph
    if state.error is not None:
        raise state.error
    return inner
