"""What of a graph's host values a recording may take for granted, and what it must look at in each call."""

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

from pytensor_cl.ops.base import GpuOp, Routine, context_of
from pytensor_cl.ops.transfer import GpuFromHost, HostFromGpu
from pytensor_cl.routines.base.routine import ValueArgument
from pytensor_cl.runtime.launch_capture import Launch

__all__ = ["HostValueClasses", "assign", "changed", "root_of", "takes_values", "trouble_of", "values_of"]

SHAPES = (Shape, Shape_i)
ARITHMETIC = (
    *(Elemwise, CAReduce, DimShuffle, MakeVector, ScalarFromTensor, TensorFromScalar, Subtensor, Join, Reshape),
    CheckAndRaise,
)
"""Ops whose results are the same whenever their inputs are: what shapes are computed with."""


@dataclass
class HostValueClasses:
    """What becomes of host values.

    Attributes
    ----------
    fixed
        The same in all calls with inputs of the same shapes.
    numbers
        Inputs from which alone such values are computed that launches depend on in ways that nobody told: what depends
        on them is fixed for calls with the same numbers.
    keyed
        Other such values: calls with other values are other recordings.
    early
        Nodes that compute them, and need no device for it: they run before the recording is chosen.
    late
        Those of `keyed` that are known in the course of a call only.
    trouble
        Why the graph cannot be recorded, if it cannot.
    """

    fixed: set[Variable] = field(default_factory=set)
    numbers: list[Variable] = field(default_factory=list)
    keyed: list[Variable] = field(default_factory=list)
    early: list[Apply] = field(default_factory=list)
    late: list[Variable] = field(default_factory=list)
    trouble: str = ""


def values_of(routine: Routine) -> Mapping[int, ValueArgument]:
    """Return the inputs that kernels of a routine take by value, as they are."""
    found: Mapping[int, ValueArgument] = getattr(routine, "value_arguments", {})
    return found


def takes_values(routine: Routine, launches: Sequence[Launch]) -> list[int]:
    """Return which launches of a routine take values; the others, such as copies, do not depend on them."""
    kernels = {kernel.handle.int_ptr for kernel in getattr(routine, "value_kernels", tuple)()}
    return [i for i, launch in enumerate(launches) if launch.kernel.int_ptr in kernels]


def assign(nodes: Sequence[Apply], routines: Mapping[Apply, Routine]) -> HostValueClasses:
    """Work out the roles of a graph's host values.

    Parameters
    ----------
    nodes
        In the order of execution.
    routines
        What computes each device node.
    """
    roles = HostValueClasses(trouble=next(filter(None, map(trouble_of, nodes)), ""))
    _fix(nodes, roles.fixed)
    roles.numbers = _numbers(_wanted(routines, roles.fixed))
    roles.fixed.update(roles.numbers)
    _fix(nodes, roles.fixed)
    for variable in _wanted(routines, roles.fixed):
        _sort(variable, roles)
    early = {*roles.early}
    roles.early = [n for n in nodes if n in early]
    if any(isinstance(n.op, Print) for n in early):  # calls that are no repetition would print twice
        roles.trouble = roles.trouble or "what tells calls apart is printed"
    return roles


def _fix(nodes: Sequence[Apply], fixed: set[Variable]) -> None:
    """Add the results of arithmetic of what is fixed."""
    for node in nodes:
        if _is_fixed(node, fixed):
            fixed.update(node.outputs)


def _wanted(routines: Mapping[Apply, Routine], fixed: set[Variable]) -> list[Variable]:
    """Return the host values that launches depend on."""
    found: dict[Variable, None] = {}
    for node, routine in routines.items():
        by_value = values_of(routine)
        for k, variable in enumerate(node.inputs):
            if context_of(variable) is None and k not in by_value and not _is_known(variable, fixed):
                found[variable] = None
    return list(found)


def _numbers(wanted: Iterable[Variable]) -> list[Variable]:
    """Return inputs, whole numbers such as that of a minibatch, from which alone such values are computed.

    With these in the key what is computed from them need not be computed in each call.
    """
    found: dict[Variable, None] = {}
    for variable in wanted:
        before = list(_before(variable))
        roots = {v: None for v in (variable, *(v for n in before for v in n.inputs)) if v.owner is None}
        plain = all(isinstance(n.op, (*ARITHMETIC, *SHAPES)) for n in before)
        numbers = [v for v in roots if not isinstance(v, Constant) and getattr(v.type, "ndim", None) == 0]
        if plain and all(v.type.dtype in discrete_dtypes for v in numbers):
            found.update(dict.fromkeys(numbers))
    return list(found)


def changed(nodes: Iterable[Apply]) -> set[Variable]:
    """Return the variables whose memory nodes change in place: inputs of the graph, or of the node that made it."""
    return {root_of(n.inputs[i]) for n in nodes for many in n.op.destroy_map.values() for i in many}


def root_of(variable: Variable) -> Variable:
    """Return whose memory a variable is."""
    while variable.owner is not None:
        op, index = variable.owner.op, variable.owner.outputs.index(variable)
        sources = op.view_map.get(index) or op.destroy_map.get(index)
        if not sources:
            break
        variable = variable.owner.inputs[sources[0]]
    return variable


def trouble_of(node: Apply) -> str:
    """Return why a node cannot be recorded; empty if nothing tells so before it runs."""
    if isinstance(node.op, GpuOp) and not node.op.is_recordable:
        return f"{node.op} depends on values of the host that differ in each call"
    if isinstance(node.op, (GpuOp, GpuFromHost, HostFromGpu, *SHAPES)):
        return ""
    if any(context_of(v) for v in (*node.inputs, *node.outputs)):
        return f"{node.op} handles device arrays itself"
    return ""


def _is_known(variable: Variable, fixed: set[Variable]) -> bool:
    return isinstance(variable, Constant) or variable in fixed


def _is_fixed(node: Apply, fixed: set[Variable]) -> bool:
    if isinstance(node.op, SHAPES):
        source = node.inputs[0]
        return source.owner is None or context_of(source) is not None or source in fixed
    return isinstance(node.op, ARITHMETIC) and all(_is_known(v, fixed) for v in node.inputs)


def _sort(variable: Variable, roles: HostValueClasses) -> None:
    """Note how a value becomes known."""
    before = list(_before(variable))
    if any(isinstance(n.op, HostFromGpu) for n in before) or any(v.owner is None for v in changed(before)):
        roles.late.append(variable)
    else:
        roles.keyed.append(variable)
        roles.early.extend(before)


def _before(variable: Variable) -> Iterable[Apply]:
    """Nodes of the host that compute a variable."""
    todo, seen = [variable], set()
    while todo:
        node = todo.pop().owner
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        if not isinstance(node.op, HostFromGpu):
            todo.extend(node.inputs)
