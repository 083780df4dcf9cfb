"""Construction of the virtual machine of a graph: with fixed placement, or with a choice among backends."""

from collections.abc import Sequence

from pytensor.graph.fg import FunctionGraph
from pytensor.link.basic import Container

from pytensor_cl.linker.link.graph_linker import GraphLinker
from pytensor_cl.linker.run.errors import ErrorMonitor
from pytensor_cl.linker.run.vm import LinkedGraph, OpenCLVM
from pytensor_cl.linker.selection.backends import host_functions
from pytensor_cl.linker.selection.compiled_before import CompiledBefore
from pytensor_cl.linker.selection.estimate import Estimator
from pytensor_cl.linker.selection.signature import SignatureSource, distinguishing_inputs, has_dynamic_shape
from pytensor_cl.linker.selection.vm import SelectingVM
from pytensor_cl.linker.types import Cell, ShapeOnlyCell
from pytensor_cl.rewriting.host_graph.graph import host_graph_of
from pytensor_cl.runtime.registry import get_context
from pytensor_cl.sharedvar import DeviceCell


def make_vm(
    graph_linker: GraphLinker, *, inputs: Sequence[Container], outputs: Sequence[Container], allow_gc: bool
) -> OpenCLVM:
    """Return the virtual machine of a graph, whose intermediate results are freed if `allow_gc` is set."""
    fgraph = graph_linker.fgraph
    input_storage, output_storage = [c.storage for c in inputs], [c.storage for c in outputs]
    monitor = ErrorMonitor(graph_linker.routines)
    steps = ((node, graph_linker.thunk(node)) for node in graph_linker.nodes)
    thunks = [monitor.record_shapes(node, thunk, graph_linker.storage) for node, thunk in steps]
    linked = LinkedGraph(
        fgraph=fgraph,
        program=graph_linker.program(thunks, graph_linker.results(output_storage), monitor.flags),
        input_storage=input_storage,
        free_after=graph_linker.free_after(allow_gc),
        allow_gc=allow_gc,
        mutable_rngs=graph_linker.mutable_rngs(),
        monitor=monitor,
        finish=graph_linker.finish,
        build_kernels=graph_linker.build,
    )
    host_graph = host_graph_of(fgraph)
    if isinstance(host_graph, str):  # the reason why no other backend may run the graph
        vm = OpenCLVM(linked)
        vm.build()
        return vm
    compiled_before = CompiledBefore(host_graph.graph)
    host_backends = host_functions(host_graph, input_storage, output_storage, compiled_before)
    for host in host_backends:
        host.function_name = getattr(fgraph, "name", None)
    source = _signature_source(host_graph.graph, input_storage, graph_linker)
    return SelectingVM(
        linked,
        host_backends=host_backends,
        compiled_before=compiled_before,
        source=source,
        arguments=inputs,
        results=outputs,
    )


def _signature_source(graph: FunctionGraph, inputs: Sequence[Cell], graph_linker: GraphLinker) -> SignatureSource:
    """Return the source of call signatures, for the canonical graph that a host backend would run."""
    shared = {v for v, c in zip(graph.inputs, inputs, strict=True) if isinstance(c, DeviceCell)}
    cells = [ShapeOnlyCell(c) if isinstance(c, DeviceCell) else c for c in inputs]
    dynamic = [c for v, c in zip(graph.inputs, cells, strict=True) if has_dynamic_shape(v)]
    distinguishing = [(cells[i], graph.inputs[i].type.ndim) for i in distinguishing_inputs(graph, shared)]
    context_name = graph_linker.contexts[0] if graph_linker.contexts else ""
    info = get_context(context_name).info if context_name else None
    return SignatureSource(dynamic, distinguishing, Estimator(graph, info, graph_linker.nodes), context_name)
