"""The linker of mode OPENCL."""

from collections.abc import Callable
from typing import Any

from pytensor.configdefaults import config
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.link.basic import Container, Linker
from pytensor.link.utils import map_storage

import pytensor_cl.linker.link.loops  # noqa: F401 (registers what links the inner graphs of loops)
from pytensor_cl.errors import OpenCLError
from pytensor_cl.linker.link.graph_linker import GraphLinker
from pytensor_cl.linker.link.make_vm import make_vm
from pytensor_cl.linker.link.node_order import order_nodes
from pytensor_cl.linker.run.vm import OpenCLVM
from pytensor_cl.ops.ifelse import register_branch_linker
from pytensor_cl.rewriting.host_graph.graph import keep_for_copies, state_of


def report_error(fgraph: FunctionGraph, error: OpenCLError) -> None:
    """Make the linker raise an error that a rewrite of the graph met."""
    state_of(fgraph).error = error


class OpenCLLinker(Linker):
    """Runs graphs whose nodes are on OpenCL devices and on the host.

    The tags below select all rewrites of mode OPENCL, because PyMC and ``Mode.clone`` rebuild the mode around the
    linker.

    `allow_gc`: free intermediate results after their last use; None is PyTensor's flag. `scheduler`: returns the nodes
    in the order of execution; None is `order_nodes`.
    """

    required_rewrites = ("minimum_compile", "opencl", "lazy_ifelse", "scan_save_mem_no_prealloc")
    incompatible_rewrites = (
        "cxx_only",
        "local_careduce_fusion",
        "scan_reduce_trace_prealloc",
        # The batched product broadcasts and merges batches itself; the reshapes of these rewrites refuse empty arrays.
        "specialize_matmul_to_batched_dot",
        "local_batched_matmul_to_core_matmul_with_reshape",
    )

    def __init__(self, allow_gc: bool | None = None, scheduler: Any = None) -> None:
        super().__init__(allow_gc=config.allow_gc if allow_gc is None else allow_gc, scheduler=scheduler)
        self.fgraph: FunctionGraph | None = None
        self.no_recycling: list[Variable] = []
        self.profile: Any = None

    def accept(self, fgraph: FunctionGraph, no_recycling: Any = None, profile: Any = None) -> "OpenCLLinker":
        """Return a linker of this graph."""
        if self.fgraph is not None and self.fgraph is not fgraph:
            return type(self)(self.allow_gc, self._scheduler).accept(fgraph, no_recycling, profile)
        error = state_of(fgraph).error
        if error is not None:
            raise error
        keep_for_copies(fgraph)
        self.fgraph = fgraph
        self.no_recycling = [] if no_recycling is None or isinstance(no_recycling, bool) else list(no_recycling)
        self.profile = profile
        return self

    def schedule(self, fgraph: FunctionGraph) -> list[Apply]:
        """Return the nodes in the order of execution."""
        return self._scheduler(fgraph) if callable(self._scheduler) else order_nodes(fgraph)

    def make_thunk(
        self, input_storage: Any = None, output_storage: Any = None, storage_map: Any = None, **_: Any
    ) -> tuple[OpenCLVM, list[Container], list[Container]]:
        """Link the graph; see `pytensor.link.basic.Linker`."""
        fgraph = self.fgraph
        assert fgraph is not None
        nodes = self.schedule(fgraph)
        inputs, outputs, storage = map_storage(fgraph, nodes, input_storage, output_storage, storage_map)
        into = [Container(v, c) for v, c in zip(fgraph.inputs, inputs, strict=True)]
        out = [Container(v, c, readonly=True) for v, c in zip(fgraph.outputs, outputs, strict=True)]
        graph_linker = GraphLinker(fgraph, nodes, storage, self.no_recycling)
        return make_vm(graph_linker, inputs=into, outputs=out, allow_gc=bool(self.allow_gc)), into, out

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "profile": None}


def link_branch(graph: FunctionGraph) -> Callable[..., list[Any]]:
    """Return a callable that takes the values of the inputs of a conditional's branch and returns its outputs' values.

    The rewritten graph stays as it is. Its outputs may be inputs.
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
