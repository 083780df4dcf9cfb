"""Errors of a call: those that kernels find in the data, and notes that name the node of an error.

Kernels write an error record. It is read where a call ends, and raised with the name of the node whose kernel wrote it.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.link.utils import raise_with_op
from pytensor.tensor.basic import ARange
from pytensor.tensor.type import TensorType

from pytensor_cl._compat.inner_graphs import graphs_inside
from pytensor_cl.errors import BroadcastError, NegativeLengthError, OpenCLError, OutOfDeviceMemory, RangeLengthError
from pytensor_cl.linker.types import Cell, Thunk
from pytensor_cl.ops.base import CheckedRoutine, Routine, context_of, is_checked
from pytensor_cl.ops.names import short_name, variable_name
from pytensor_cl.rewriting.host_graph.in_python import InPython
from pytensor_cl.runtime.error_flag import DeviceErrorFlag
from pytensor_cl.runtime.memory.device_memory import is_lack_of_memory
from pytensor_cl.runtime.registry import get_context

MAX_CHECKED = 1 << 16
"""Nodes that may report errors. The higher bits of a record's number are the node in the steps of a loop."""
_BROADCAST = "Could not broadcast dimensions"  # part of the message of PyTensor's assertions on shapes

_NEGATIVE_LENGTH = "negative dimensions"  # "are not allowed" in NumPy's message, "not allowed" in NUMBA's
_NO_LENGTH = ("division by zero", "float division by zero", "Maximum allowed size exceeded", "arange: ")


class FreedValue(NamedTuple):
    """Placeholder for an intermediate result whose cell was emptied, for error messages."""

    shape: tuple[int, ...] | None  # None for a value without a shape


class ShapeRecorder:
    """The step of a node whose kernel may report an error. It records the shapes of computed inputs."""

    __slots__ = ("_cells", "_thunk", "shapes")

    def __init__(self, thunk: Thunk, cells: Sequence[Cell]) -> None:
        self._thunk, self._cells = thunk, cells
        self.shapes: list[tuple[int, ...] | None] = []  # shapes in the last call that ran step by step

    def __call__(self) -> None:
        """Run the step."""
        self._thunk()
        self.shapes = [getattr(c[0], "shape", None) for c in self._cells]


class ErrorMonitor:
    """The device error flags of one function, one for each context that needs one."""

    def __init__(self, routines: Mapping[Apply, Routine]) -> None:
        self._checked: list[tuple[Apply, CheckedRoutine]] = [
            (node, routine) for node, routine in routines.items() if is_checked(routine, node.op)
        ]
        self._flags = {
            name: DeviceErrorFlag(get_context(name)) for name in {n.op.context_name for n, _ in self._checked}
        }
        self._recorders: dict[Apply, ShapeRecorder] = {}
        for number, (node, routine) in enumerate(self._checked, start=1):
            routine.set_error_flag(self._flags[node.op.context_name], number)

    def __bool__(self) -> bool:
        return bool(self._checked)

    @property
    def flags(self) -> list[DeviceErrorFlag]:
        """The error flags."""
        return list(self._flags.values())

    def first_error(self) -> tuple[Apply, Exception] | None:
        """Wait for the devices; return the first error that a kernel has reported, and its node. Reset the flags."""
        records = [flag.read() for flag in self._flags.values()]
        first = next(filter(None, records), None)
        if first is None:
            return None
        node, routine = self._checked[first.number % MAX_CHECKED - 1]
        return node, routine.error(first)

    def record_shapes(self, node: Apply, thunk: Thunk, storage: Mapping[Variable, Cell]) -> Thunk:
        """Return a step that records what its node has read, if a kernel of the node may report an error.

        The cells of intermediate results are empty when the flags are read.
        """
        if not any(node is checked for checked, _ in self._checked):
            return thunk
        recorder = self._recorders[node] = ShapeRecorder(thunk, [storage[v] for v in _computed_inputs(node)])
        return recorder

    def freed_shapes(self, node: Apply) -> dict[Variable, FreedValue]:
        """Return the shapes of the intermediate results that a node read when it ran last."""
        recorder = self._recorders.get(node)
        if recorder is None:
            return {}
        return dict(zip(_computed_inputs(node), map(FreedValue, recorder.shapes), strict=False))


def _computed_inputs(node: Apply) -> list[Variable]:
    return [v for v in node.inputs if v.owner is not None]


def _length_error(op: Op, error: BaseException) -> Exception | None:
    """Return the error that all of PyTensor's CPU backends would accept where NumPy or NUMBA found no valid length."""
    text = str(error)
    if isinstance(error, OpenCLError):
        return None
    if isinstance(error, ValueError) and text.startswith(_NEGATIVE_LENGTH):
        return NegativeLengthError(text)
    if isinstance(error, ZeroDivisionError | ValueError) and text.startswith(_NO_LENGTH) and _makes_ranges(op):
        return RangeLengthError(f"arange: cannot compute length: {text}")
    return None


def _makes_ranges(op: Op) -> bool:
    if isinstance(op.op if isinstance(op, InPython) else op, ARange):
        return True
    return any(_makes_ranges(node.op) for graph in graphs_inside(op) for node in graph.apply_nodes)


class _NodeCells:
    """A node's storage cells, in the form that `raise_with_op` takes."""

    def __init__(self, inputs: Sequence[Cell], outputs: Sequence[Cell]) -> None:
        self.inputs, self.outputs = inputs, outputs


class NodeErrors:
    """Raises errors of a virtual machine's nodes with a note that names the node."""

    def __init__(
        self,
        fgraph: FunctionGraph,
        nodes: Sequence[Apply],
        storage: dict[Any, Cell],
        monitor: ErrorMonitor,
        on_device_error: Callable[[], None],
    ) -> None:
        self._fgraph, self._nodes, self._storage = fgraph, nodes, storage
        self._monitor = monitor
        self._on_device_error = on_device_error  # called before an error is raised that a kernel has reported

    def raise_device_error(self) -> None:
        """Raise the first error that a kernel has reported, if any has."""
        found = self._monitor.first_error()
        if found is None:
            return
        self._on_device_error()
        node, error = found
        try:
            raise error
        except Exception:
            self._raise_current(self._nodes.index(node))

    def raise_at_node(self, at: int) -> NoReturn:
        """Re-raise the current exception at node number `at`.

        An error that a kernel has reported before is raised instead, as it may be the cause.
        """
        self.raise_device_error()
        self._raise_current(at)

    def _raise_current(self, at: int) -> NoReturn:
        """Re-raise the current exception with a note that names the node; empty the cells of what was computed."""
        error = sys.exception()
        assert error is not None
        is_from_branch = isinstance(error, BroadcastError)  # the branch of a conditional has added the note
        if isinstance(error, AssertionError) and not is_from_branch and str(error).startswith(_BROADCAST):
            error = BroadcastError(*error.args).with_traceback(error.__traceback__)
        elif isinstance(error, TypeError | AttributeError) and (text := self._untyped_argument(at)):
            error = AttributeError(text).with_traceback(error.__traceback__)
        elif is_lack_of_memory(error):
            error = self._out_of_memory(at, error).with_traceback(error.__traceback__)
        elif (length_error := _length_error(self._nodes[at].op, error)) is not None:
            error = length_error.with_traceback(error.__traceback__)
        error.add_note(f"\nRaised by node {self._describe(at)}")
        node = self._nodes[at]
        cells = _NodeCells(self._inputs_of(node), [self._storage[v] for v in node.outputs])
        try:
            raise_with_op(self._fgraph, node, cells, (type(error), error, error.__traceback__), self._storage)
        finally:
            for variable, cell in self._storage.items():
                if variable.owner is not None:
                    cell[0] = None
        raise AssertionError  # `raise_with_op` does not return

    def _out_of_memory(self, at: int, error: BaseException) -> OutOfDeviceMemory:
        """Return the error for a command of a node for which the driver had no memory."""
        node = self._nodes[at]
        name = next((c for v in (*node.outputs, *node.inputs) if (c := context_of(v))), None)
        return OutOfDeviceMemory(str(error) if name is None else get_context(name).memory.describe_failure(error))

    def _untyped_argument(self, at: int) -> str:
        """Return a message if an argument of a node is no array: with trust_input=True it was not converted."""
        node = self._nodes[at]
        for variable, cell in zip(node.inputs, self._inputs_of(node), strict=True):
            is_bare = isinstance(variable.type, TensorType) and cell[0] is not None and not hasattr(cell[0], "dtype")
            if is_bare and variable in self._fgraph.inputs:
                given, wanted = type(cell[0]).__name__, variable.type
                return f"argument {variable} is of class {given}: with trust_input=True it must be an array, {wanted}"
        return ""

    def _describe(self, at: int) -> str:
        """Name a node and the shapes of its inputs; PyTensor's own notes do so only at a higher verbosity."""
        node = self._nodes[at]
        shapes = (getattr(cell[0], "shape", None) for cell in self._inputs_of(node))
        shown = ("no shape" if shape is None else str(shape) for shape in shapes)
        return f"{short_name(node.op)}({', '.join(map(variable_name, node.inputs))}), input shapes: {', '.join(shown)}"

    def _inputs_of(self, node: Apply) -> list[Cell]:
        """Return the cells that a node reads; for those that were emptied, the recorded shapes."""
        freed = self._monitor.freed_shapes(node)
        cells = [(v, self._storage[v]) for v in node.inputs]
        return [[freed.get(v)] if cell[0] is None else cell for v, cell in cells]
