"""A copy of the graph in canonical form, for the NUMBA and C backends.

Where a device is slower, one of them runs the function instead.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pytensor.compile.aliasing import Supervisor
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import get_active_mode
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.subtensor import AdvancedIncSubtensor
from pytensor.tensor.type import TensorType

from pytensor_cl.rewriting.host_graph.inner_guards import guard_for_numba
from pytensor_cl.rewriting.host_graph.known_faults import C, fault_of
from pytensor_cl.rewriting.host_graph.numba_ops import is_equal_in_numba
from pytensor_cl.type import GpuArrayType

__all__ = [
    "HostGraph",
    "attach_host_graph",
    "check_host_backends",
    "host_graph_of",
    "keep_host_graph",
]

SELECTION_OFF = "opencl__select_backend=False"
PLACEMENT_NOT_AUTO = "opencl__placement is not auto"
CUSTOM_REWRITES = "the mode has rewrites of its own"
OTHER_DRAWS = "opencl__random: other backends draw other numbers"
HAS_DEVICE_VALUES = "the graph itself has values on a device"


@dataclass(frozen=True)
class _Eligibility:
    """What is known of the host backends before the graph is in canonical form."""

    numba_excluded: str
    c_eligible: bool
    mode: Mode
    mutable_rngs: tuple[int, ...]


@dataclass(frozen=True)
class HostGraph:
    """What is needed to compile a graph for the host.

    Attributes
    ----------
    graph
        A copy of the graph in canonical form, taken before the rewrites for devices.
    numba_excluded
        Why NUMBA must not run it; empty if it may.
    c_eligible
        Whether the C backend may run it.
    mode
        The mode for which it was compiled.
    mutable_rngs
        Positions of the random generators among the inputs whose state a call may change in place.
    scattered_inputs
        Positions of the shared variables among the inputs that an update replaces by themselves with other values at
        some indices, such as the table of an embedding.
    """

    graph: FunctionGraph
    numba_excluded: str
    c_eligible: bool
    mode: Mode
    mutable_rngs: tuple[int, ...]
    scattered_inputs: tuple[int, ...] = ()

    def with_guards(self) -> FunctionGraph:
        """Return a copy of the graph with the checks that NUMBA leaves out; a plain copy if it needs none."""
        graph = _copied(self.graph)
        guard_for_numba(graph)
        return graph


def check_host_backends(fgraph: FunctionGraph, placement: str, select_backend: bool) -> None:
    """Note on a graph which host backends may run it, or why none may.

    Parameters
    ----------
    fgraph
        The graph of a function, before all rewrites.
    placement, adapt
        The flags ``opencl__placement`` and ``opencl__select_backend``.
    """
    fgraph.opencl_host_graph = _eligibility(fgraph, placement, select_backend)


def keep_host_graph(fgraph: FunctionGraph) -> None:
    """Keep a copy of a graph that a host backend may run.

    The canonical form has a fraction of the nodes of the user's graph, above all where there are gradients. The host
    backends need not compute it again.

    Parameters
    ----------
    fgraph
        A graph that `check_host_backends` has seen, in canonical form.
    """
    found = getattr(fgraph, "opencl_host_graph", None)
    if isinstance(found, _Eligibility):
        facts = found.numba_excluded, found.c_eligible, found.mode, found.mutable_rngs
        fgraph.opencl_host_graph = HostGraph(_copied(fgraph), *facts, _scattered_inputs(fgraph))


def attach_host_graph(fgraph: FunctionGraph) -> None:
    """Move the copy to the tag of an output: clones of a graph copy the tags of variables, but not attributes."""
    found = fgraph.__dict__.pop("opencl_host_graph", None)
    if found is not None and fgraph.outputs:
        fgraph.outputs[0].tag.opencl_host_graph = found


def host_graph_of(fgraph: FunctionGraph) -> "HostGraph | str":
    """Return the copy that was kept of a graph, or the reason why there is none."""
    found: HostGraph | _Eligibility | str = PLACEMENT_NOT_AUTO
    if fgraph.outputs:
        found = getattr(fgraph.outputs[0].tag, "opencl_host_graph", found)
    return CUSTOM_REWRITES if isinstance(found, _Eligibility) else found


def _eligibility(fgraph: FunctionGraph, placement: str, select_backend: bool) -> _Eligibility | str:
    """Return which host backends may run a graph, or why none may."""
    if placement != "auto":
        return PLACEMENT_NOT_AUTO
    if not select_backend:
        return SELECTION_OFF
    mode = get_active_mode(fgraph)
    if not hasattr(mode, "provided_optimizer"):
        return CUSTOM_REWRITES
    nodes = list(_nodes(fgraph))
    if any(isinstance(v.type, GpuArrayType) for v in (*fgraph.inputs, *(v for n in nodes for v in n.outputs))):
        return HAS_DEVICE_VALUES
    if config.opencl__random != "numpy" and any(isinstance(n.op, RandomVariable) for n in nodes):
        return OTHER_DRAWS
    numba_excluded = _reason_against_numba(fgraph, nodes)
    c_fault = next(filter(None, (fault_of(C, node) for node in nodes)), None)
    c_eligible = c_fault is None
    if numba_excluded and c_fault is not None:
        return f"{numba_excluded}, and under C {c_fault.what}"
    return _Eligibility(numba_excluded, c_eligible, mode, _mutable_rngs(fgraph))


def _copied(fgraph: FunctionGraph) -> FunctionGraph:
    """Return a copy without the features of the graph: attaching ShapeFeature to a copy takes long."""
    return fgraph.clone_get_equiv(check_integrity=False, attach_feature=False)[0]


def _reason_against_numba(fgraph: FunctionGraph, nodes: list[Apply]) -> str:
    """Return why NUMBA must not run a graph; an empty text if it may."""
    if not all(type(v.type) in (TensorType, RandomGeneratorType) for v in (*fgraph.inputs, *fgraph.outputs)):
        return "inputs or results that are no tensors"
    other = next((n for n in nodes if not is_equal_in_numba(n)), None)
    return "" if other is None else f"NUMBA may treat errors in the data of {other.op} differently"


def _mutable_rngs(fgraph: FunctionGraph) -> tuple[int, ...]:
    """Return the positions of the random generators among the inputs that PyTensor's Supervisor does not protect."""
    protected = {v for f in fgraph._features if isinstance(f, Supervisor) for v in f.protected}
    return tuple(
        i for i, v in enumerate(fgraph.inputs) if isinstance(v.type, RandomGeneratorType) and v not in protected
    )


def _scattered_inputs(fgraph: FunctionGraph) -> tuple[int, ...]:
    """Return the positions of the inputs that updates replace by a scatter into themselves."""
    protected = {v for f in fgraph._features if isinstance(f, Supervisor) for v in f.protected}
    found = []
    for output, position in (fgraph.update_mapping or {}).items():
        variable, new = fgraph.inputs[position], fgraph.outputs[output]
        is_scatter = new.owner is not None and isinstance(new.owner.op, AdvancedIncSubtensor)
        if is_scatter and new.owner.inputs[0] is variable and variable not in protected:
            found.append(position)
    return tuple(found)


def _nodes(fgraph: Any) -> Iterator[Apply]:
    """Yield the nodes of a graph, and those inside its OpFromGraph nodes."""
    for node in fgraph.toposort():
        if isinstance(node.op, OpFromGraph):
            yield from _nodes(node.op.fgraph)
        else:
            yield node
