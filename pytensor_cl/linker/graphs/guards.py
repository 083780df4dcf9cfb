"""Host values of a captured call: constants, parts of its signature, and guards that each replay checks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.printing import Print
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.shape import Reshape, Shape, Shape_i
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import discrete_dtypes

from pytensor_cl.linker.aliasing import mutated_inputs, view_root
from pytensor_cl.linker.graphs.buffers import BufferBinding
from pytensor_cl.linker.types import Cell, GuardFailure, Thunk
from pytensor_cl.ops.base import GpuOp, Routine, context_of
from pytensor_cl.ops.names import short_name
from pytensor_cl.ops.transfer import GpuFromHost, HostFromGpu
from pytensor_cl.routines.base.routine import ValueArgument
from pytensor_cl.runtime.launch_capture import Launch

MAX_GUARD_BYTES = 256
"""Bytes of a host value that may be part of a signature, or of a guard."""
SHAPES = (Shape, Shape_i)
ARITHMETIC = (
    *(Elemwise, CAReduce, DimShuffle, MakeVector, ScalarFromTensor, TensorFromScalar, Subtensor, Join, Reshape),
    CheckAndRaise,
)
"""Ops that compute shapes: equal inputs give equal results."""


class ValueTooLarge(TypeError):
    """A host value cannot be part of a signature: it is too large, or cannot be compared."""


def freeze_value(value: Any) -> tuple[tuple[int, ...], bytes]:
    """Return the shape and the bytes of a value of at most `MAX_GUARD_BYTES` bytes, as a part of a signature."""
    array = np.asarray(value)
    if array.nbytes > MAX_GUARD_BYTES or array.dtype == object:
        raise ValueTooLarge(
            f"launches depend on a value of the host of {array.nbytes:,} bytes, more than {MAX_GUARD_BYTES}"
        )
    return array.shape, array.tobytes()


def value_guard(cell: Cell, expected: Any) -> Thunk:
    """Return a step that checks that a host value is the same as in the captured call."""

    def check() -> None:
        if freeze_value(cell[0]) != expected:
            raise GuardFailure

    return check


def alias_guard(cell: Cell, binding: BufferBinding) -> Thunk:
    """Return a step that checks that two inputs share their memory, as in the captured call."""

    def check() -> None:
        if cell[0].buffer is not binding.buffer:
            raise GuardFailure

    return check


@dataclass
class HostValues:
    """The host values of a graph by how its captured calls treat them: constant, in the signature, or guarded."""

    # The same in all calls with inputs of the same shapes and with the same `index_inputs`.
    constants: set[Variable] = field(default_factory=set)
    # 0-d integer inputs, such as the index of a minibatch, that are part of the signature. Values that launches depend
    # on are computed from them alone.
    index_inputs: list[Variable] = field(default_factory=list)
    # Other values that launches depend on. They are part of the signature, and so is what they are computed from: the
    # nodes of the prologue need no device, and run before the signature is known.
    specialised: list[Variable] = field(default_factory=list)
    prologue: list[Apply] = field(default_factory=list)
    # Values that launches depend on and that the device computes, or a node that must not run early. Each replay checks
    # them.
    guarded: set[Variable] = field(default_factory=set)
    # Why the graph cannot be captured; empty if it can.
    blocker: str = ""

    def is_known(self, variable: Variable) -> bool:
        """Return whether a variable has the same value in all calls that one captured graph serves."""
        return isinstance(variable, Constant) or variable in self.constants

    def changing_scalars(self, node: Apply, routine: Routine | None) -> list[int]:
        """Return the inputs of a node that its kernels take by value and that differ from call to call."""
        return [] if routine is None else [k for k in scalar_arguments(routine) if not self.is_known(node.inputs[k])]


def scalar_arguments(routine: Routine) -> Mapping[int, ValueArgument]:
    """Return the inputs that kernels of a routine take by value, unchanged."""
    found: Mapping[int, ValueArgument] = getattr(routine, "value_arguments", {})
    return found


def launches_with_scalars(routine: Routine, launches: Sequence[Launch]) -> list[int]:
    """Return the indices of a routine's launches that take values; others, such as copies, do not depend on values."""
    kernels = {kernel.handle.int_ptr for kernel in getattr(routine, "value_kernels", tuple)()}
    return [i for i, launch in enumerate(launches) if launch.kernel.int_ptr in kernels]


def classify_host_values(nodes: Sequence[Apply], routines: Mapping[Apply, Routine]) -> HostValues:
    """Classify the host values of a graph, whose nodes are in the order of execution."""
    values = HostValues(blocker=next(filter(None, map(capture_blocker, nodes)), ""))
    _propagate_constants(nodes, values)
    values.index_inputs = _index_inputs(_launch_dependencies(routines, values))
    values.constants.update(values.index_inputs)
    _propagate_constants(nodes, values)
    dependencies = {v: set(_host_ancestors(v)) for v in _launch_dependencies(routines, values)}
    for variable, before in dependencies.items():
        needs_device = any(isinstance(n.op, HostFromGpu) for n in before)
        if needs_device or any(v.owner is None for v in mutated_inputs(before)):
            values.guarded.add(variable)
        else:
            values.specialised.append(variable)
    while late := _late_variables(nodes, values.specialised, dependencies):
        values.guarded |= late
        values.specialised = [v for v in values.specialised if v not in late]
    prologue = set().union(*(dependencies[v] for v in values.specialised))
    values.prologue = [n for n in nodes if n in prologue]
    if any(isinstance(n.op, Print) for n in prologue):  # calls that are not replayed would print twice
        values.blocker = values.blocker or "a value that is part of the signature is printed"
    return values


def _late_variables(
    nodes: Sequence[Apply], specialised: Iterable[Variable], dependencies: Mapping[Variable, set[Apply]]
) -> set[Variable]:
    """Return the variables whose nodes, run first, would change in place what another node reads before."""
    prologue = set().union(*(dependencies[v] for v in specialised))
    read: set[Variable] = set()
    conflicts: set[Apply] = set()
    for node in nodes:
        if node not in prologue:
            read.update(map(view_root, node.inputs))
        elif not read.isdisjoint(mutated_inputs([node])):
            conflicts.add(node)
    return {v for v in specialised if not conflicts.isdisjoint(dependencies[v])} if conflicts else set()


def _propagate_constants(nodes: Sequence[Apply], values: HostValues) -> None:
    """Add the results of arithmetic on constants."""
    for node in nodes:
        if _is_constant_node(node, values):
            values.constants.update(node.outputs)


def _is_constant_node(node: Apply, values: HostValues) -> bool:
    if isinstance(node.op, SHAPES):
        source = node.inputs[0]
        return source.owner is None or context_of(source) is not None or source in values.constants
    return isinstance(node.op, ARITHMETIC) and all(map(values.is_known, node.inputs))


def _launch_dependencies(routines: Mapping[Apply, Routine], values: HostValues) -> list[Variable]:
    """Return the host values that launches depend on, without constants."""
    dependent: dict[Variable, None] = {}
    for node, routine in routines.items():
        by_value = scalar_arguments(routine)
        for k, variable in enumerate(node.inputs):
            if context_of(variable) is None and k not in by_value and not values.is_known(variable):
                dependent[variable] = None
    return list(dependent)


def _index_inputs(dependencies: Iterable[Variable]) -> list[Variable]:
    """Return 0-d integer inputs from which alone such values are computed.

    With them in the signature, what is computed from them need not be computed in each call.
    """
    inputs: dict[Variable, None] = {}
    for variable in dependencies:
        before = list(_host_ancestors(variable))
        roots = {v: None for v in (variable, *(v for n in before for v in n.inputs)) if v.owner is None}
        is_arithmetic = all(isinstance(n.op, (*ARITHMETIC, *SHAPES)) for n in before)
        numbers = [v for v in roots if not isinstance(v, Constant) and getattr(v.type, "ndim", None) == 0]
        if is_arithmetic and all(v.type.dtype in discrete_dtypes for v in numbers):
            inputs.update(dict.fromkeys(numbers))
    return list(inputs)


def capture_blocker(node: Apply) -> str:
    """Return why a node cannot be captured; empty if that is not known before it runs."""
    if isinstance(node.op, GpuOp) and not node.op.is_capturable:
        return f"{short_name(node.op)} depends on host values that differ in each call"
    if isinstance(node.op, (GpuOp, GpuFromHost, HostFromGpu, *SHAPES)):
        return ""
    if any(context_of(v) for v in (*node.inputs, *node.outputs)):
        return f"{short_name(node.op)} handles device arrays itself"
    return ""


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
