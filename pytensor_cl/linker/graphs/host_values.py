"""What becomes of the values on the host when a call is captured: constants, parts of the signature, or guards."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.printing import Print
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.shape import Reshape, Shape, Shape_i
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import discrete_dtypes

from pytensor_cl.linker.aliasing import mutated_inputs
from pytensor_cl.ops.base import GpuOp, Routine, context_of
from pytensor_cl.ops.transfer import GpuFromHost, HostFromGpu
from pytensor_cl.routines.base.routine import ValueArgument
from pytensor_cl.runtime.launch_capture import Launch

__all__ = [
    "HostValueClasses",
    "capture_blocker",
    "classify_host_values",
    "launches_with_scalars",
    "scalar_arguments",
]

SHAPES = (Shape, Shape_i)
ARITHMETIC = (
    *(Elemwise, CAReduce, DimShuffle, MakeVector, ScalarFromTensor, TensorFromScalar, Subtensor, Join, Reshape),
    CheckAndRaise,
)
"""Ops that compute shapes: equal inputs give equal results."""


@dataclass
class HostValueClasses:
    """The classes of a graph's host values.

    Attributes
    ----------
    constants
        The same in all calls with inputs of the same shapes and with the same `index_inputs`.
    index_inputs
        0-d integer inputs, such as the index of a minibatch, that are part of the signature. Values that launches
        depend on are computed from them alone.
    specialised
        Other values that launches depend on, which are part of the signature.
    prologue
        Nodes that compute `specialised`. They need no device, and run before the signature is known.
    guarded
        Values that launches depend on and that the device computes. Each replay checks them.
    blocker
        Why the graph cannot be captured; empty if it can.
    """

    constants: set[Variable] = field(default_factory=set)
    index_inputs: list[Variable] = field(default_factory=list)
    specialised: list[Variable] = field(default_factory=list)
    prologue: list[Apply] = field(default_factory=list)
    guarded: list[Variable] = field(default_factory=list)
    blocker: str = ""


def scalar_arguments(routine: Routine) -> Mapping[int, ValueArgument]:
    """Return the inputs that kernels of a routine take by value, unchanged."""
    found: Mapping[int, ValueArgument] = getattr(routine, "value_arguments", {})
    return found


def launches_with_scalars(routine: Routine, launches: Sequence[Launch]) -> list[int]:
    """Return the indices of a routine's launches that take values; others, such as copies, do not depend on values."""
    kernels = {kernel.handle.int_ptr for kernel in getattr(routine, "value_kernels", tuple)()}
    return [i for i, launch in enumerate(launches) if launch.kernel.int_ptr in kernels]


def classify_host_values(nodes: Sequence[Apply], routines: Mapping[Apply, Routine]) -> HostValueClasses:
    """Classify a graph's host values.

    Parameters
    ----------
    nodes
        In the order of execution.
    routines
        The routine of each device node.
    """
    classes = HostValueClasses(blocker=next(filter(None, map(capture_blocker, nodes)), ""))
    _propagate_constants(nodes, classes.constants)
    classes.index_inputs = _index_inputs(_launch_dependencies(routines, classes.constants))
    classes.constants.update(classes.index_inputs)
    _propagate_constants(nodes, classes.constants)
    prologue: set[Apply] = set()
    for variable in _launch_dependencies(routines, classes.constants):
        before = list(_host_ancestors(variable))
        needs_device = any(isinstance(n.op, HostFromGpu) for n in before)
        if needs_device or any(v.owner is None for v in mutated_inputs(before)):
            classes.guarded.append(variable)
        else:
            classes.specialised.append(variable)
            prologue.update(before)
    classes.prologue = [n for n in nodes if n in prologue]
    if any(isinstance(n.op, Print) for n in prologue):  # calls that are not replayed would print twice
        classes.blocker = classes.blocker or "a value that is part of the signature is printed"
    return classes


def _propagate_constants(nodes: Sequence[Apply], constants: set[Variable]) -> None:
    """Add the results of arithmetic on constants."""
    for node in nodes:
        if _is_constant_node(node, constants):
            constants.update(node.outputs)


def _is_constant_node(node: Apply, constants: set[Variable]) -> bool:
    if isinstance(node.op, SHAPES):
        source = node.inputs[0]
        return source.owner is None or context_of(source) is not None or source in constants
    return isinstance(node.op, ARITHMETIC) and all(_is_known(v, constants) for v in node.inputs)


def _launch_dependencies(routines: Mapping[Apply, Routine], constants: set[Variable]) -> list[Variable]:
    """Return the host values that launches depend on, without constants."""
    found: dict[Variable, None] = {}
    for node, routine in routines.items():
        by_value = scalar_arguments(routine)
        for k, variable in enumerate(node.inputs):
            if context_of(variable) is None and k not in by_value and not _is_known(variable, constants):
                found[variable] = None
    return list(found)


def _index_inputs(dependencies: Iterable[Variable]) -> list[Variable]:
    """Return 0-d integer inputs from which alone such values are computed.

    With them in the signature, what is computed from them need not be computed in each call.
    """
    found: dict[Variable, None] = {}
    for variable in dependencies:
        before = list(_host_ancestors(variable))
        roots = {v: None for v in (variable, *(v for n in before for v in n.inputs)) if v.owner is None}
        is_arithmetic = all(isinstance(n.op, (*ARITHMETIC, *SHAPES)) for n in before)
        numbers = [v for v in roots if not isinstance(v, Constant) and getattr(v.type, "ndim", None) == 0]
        if is_arithmetic and all(v.type.dtype in discrete_dtypes for v in numbers):
            found.update(dict.fromkeys(numbers))
    return list(found)


def capture_blocker(node: Apply) -> str:
    """Return why a node cannot be captured; empty if that is not known before it runs."""
    if isinstance(node.op, GpuOp) and not node.op.is_capturable:
        return f"{node.op} depends on host values that differ in each call"
    if isinstance(node.op, (GpuOp, GpuFromHost, HostFromGpu, *SHAPES)):
        return ""
    if any(context_of(v) for v in (*node.inputs, *node.outputs)):
        return f"{node.op} handles device arrays itself"
    return ""


def _is_known(variable: Variable, constants: set[Variable]) -> bool:
    return isinstance(variable, Constant) or variable in constants


def _host_ancestors(variable: Variable) -> Iterable[Apply]:
    """Yield the host nodes, and the downloads, from which a variable is computed."""
    todo, seen = [variable], set()
    while todo:
        node = todo.pop().owner
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        if not isinstance(node.op, HostFromGpu):
            todo.extend(node.inputs)
