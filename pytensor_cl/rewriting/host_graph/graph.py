"""The graph that NUMBA and C run where a device is slower: a copy in canonical form."""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any

from pytensor.compile.aliasing import Supervisor
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply
from pytensor.graph.features import AlreadyThere, Feature
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import get_active_mode
from pytensor.tensor.random.op import RNGConsumerOp
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.subtensor import AdvancedIncSubtensor
from pytensor.tensor.type import TensorType

from pytensor_cl.errors import OpenCLError
from pytensor_cl.ops.user_kernels.op import has_kernel_op
from pytensor_cl.rewriting.host_graph.inner_guards import guard_for_numba
from pytensor_cl.rewriting.host_graph.known_faults import C, fault_of
from pytensor_cl.rewriting.host_graph.numba_ops import is_equal_in_numba
from pytensor_cl.type import GpuArrayType

SELECTION_OFF = "opencl__select_backend=False"
PLACEMENT_NOT_AUTO = "opencl__placement is not auto"
CUSTOM_REWRITES = "the mode has rewrites of its own"
OTHER_DRAWS = "opencl__random: other backends draw other numbers"
HAS_DEVICE_VALUES = "the graph itself has values on a device"
HAS_USER_KERNELS = "the graph has kernels of the user's"


@dataclass(frozen=True)
class Eligibility:
    """Eligibility of the host backends, as found before the graph is in canonical form."""

    numba_excluded: str
    c_eligible: bool
    mode: Mode
    mutable_rngs: tuple[int, ...]


@dataclass(frozen=True)
class HostGraph:
    """Everything needed to compile a graph for the host.

    The graph is a copy in canonical form, taken before the rewrites for devices. `numba_excluded` is the reason why
    NUMBA must not run it, or empty. `mutable_rngs` are the positions of the random generators among the inputs whose
    state a call may change in place, `scattered_inputs` those of the shared variables that an update replaces by
    themselves with other values at some indices, such as the table of an embedding.
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


class OpenCLState(Feature):
    """Results of the rewrites of mode OPENCL that the linker reads from the graph."""

    def __init__(self) -> None:
        self.error: OpenCLError | None = None
        self.host_graph: HostGraph | Eligibility | str = PLACEMENT_NOT_AUTO

    def on_attach(self, fgraph: FunctionGraph) -> None:
        """Make the state an attribute of the graph, as PyTensor's features do."""
        if hasattr(fgraph, "opencl_state"):
            raise AlreadyThere("OpenCLState is attached already")
        fgraph.opencl_state = self

    def on_detach(self, fgraph: FunctionGraph) -> None:
        """Remove the attribute."""
        del fgraph.opencl_state

    def clone(self) -> "OpenCLState":
        """Return the state of a copy of the graph."""
        return copy(self)


def state_of(fgraph: FunctionGraph) -> OpenCLState:
    """Return the state of a graph; a new one is attached if there is none."""
    if not hasattr(fgraph, "opencl_state"):
        # `Function.copy` makes a graph without features, but copies the tags of variables.
        known = getattr(fgraph.outputs[0].tag, "opencl_state", None) if fgraph.outputs else None
        fgraph.attach_feature(OpenCLState() if known is None else known.clone())
    state: OpenCLState = fgraph.opencl_state
    return state


def keep_for_copies(fgraph: FunctionGraph) -> None:
    """Note the state of a graph where `state_of` finds it for copies of the function."""
    if fgraph.outputs:
        fgraph.outputs[0].tag.opencl_state = state_of(fgraph)


def check_host_backends(fgraph: FunctionGraph, placement: str, select_backend: bool) -> None:
    """Note on a graph, before all rewrites, which host backends may run it, or why none may."""
    state_of(fgraph).host_graph = _eligibility(fgraph, placement, select_backend)


def keep_host_graph(fgraph: FunctionGraph) -> None:
    """Keep a copy of a graph in canonical form that a host backend may run.

    The canonical form has a fraction of the nodes of the user's graph, above all where there are gradients. The host
    backends need not compute it again.
    """
    state = state_of(fgraph)
    found = state.host_graph
    if isinstance(found, Eligibility):
        facts = found.numba_excluded, found.c_eligible, found.mode, found.mutable_rngs
        state.host_graph = HostGraph(_copied(fgraph), *facts, _scattered_inputs(fgraph))


def host_graph_of(fgraph: FunctionGraph) -> "HostGraph | str":
    """Return the host graph that was kept of a graph, or the reason why there is none."""
    found = state_of(fgraph).host_graph
    return CUSTOM_REWRITES if isinstance(found, Eligibility) else found


def _eligibility(fgraph: FunctionGraph, placement: str, select_backend: bool) -> Eligibility | str:
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
    if has_kernel_op(nodes):
        return HAS_USER_KERNELS
    if config.opencl__random != "numpy" and any(isinstance(n.op, RNGConsumerOp) for n in nodes):
        return OTHER_DRAWS
    numba_excluded = _reason_against_numba(fgraph, nodes)
    c_fault = next(filter(None, (fault_of(C, node) for node in nodes)), None)
    c_eligible = c_fault is None
    if numba_excluded and c_fault is not None:
        return f"{numba_excluded}, and under C {c_fault.what}"
    return Eligibility(numba_excluded, c_eligible, mode, _mutable_rngs(fgraph))


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
    positions = []
    for output, position in (fgraph.update_mapping or {}).items():
        variable, new = fgraph.inputs[position], fgraph.outputs[output]
        is_scatter = new.owner is not None and isinstance(new.owner.op, AdvancedIncSubtensor)
        if is_scatter and new.owner.inputs[0] is variable and variable not in protected:
            positions.append(position)
    return tuple(positions)


def _nodes(fgraph: Any) -> Iterator[Apply]:
    """Yield the nodes of a graph, and those inside its OpFromGraph nodes."""
    for node in fgraph.toposort():
        if isinstance(node.op, OpFromGraph):
            yield from _nodes(node.op.fgraph)
        else:
            yield node
