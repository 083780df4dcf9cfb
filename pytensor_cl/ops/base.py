"""What every device Op has in common: Types from its host Op, a routine for the linker, a plain ``perform``."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeGuard
from weakref import WeakKeyDictionary

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor.type import TensorType

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context, get_context
from pytensor_cl.runtime.error_flag import DeviceErrorFlag, ErrorRecord
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.type import GpuArrayType, convert_to_device

__all__ = [
    "DEVICE",
    "EITHER",
    "HOST",
    "CheckedRoutine",
    "GpuOp",
    "ViewRoutine",
    "as_host_variable",
    "context_of",
    "is_checked",
]

DEVICE = "device"
"""An input that must be a device array."""
HOST = "host"
"""An input that must be a value of the host: a shape, an index."""
EITHER = "either"
"""A 0-d input that may be a device array, or a value of the host that is passed to the kernel by value."""


class Routine(Protocol):
    """What the linker asks of a device node: kernels to build, and a call that enqueues them."""

    def sources(self) -> tuple[KernelSource, ...]:
        """Kernels of an ordinary call."""

    def __call__(self, *inputs: Any) -> tuple[GpuArray, ...]:
        """Work out the outputs' layouts, allocate them, enqueue the kernels."""


class CheckedRoutine(Routine, Protocol):
    """A routine whose kernels look whether their data is right; see `pytensor_cl.routines.base.routine.Checked`."""

    is_checked: bool

    def watch(self, alarm: DeviceErrorFlag, number: int) -> None:
        """Make the kernels use an alarm that several routines share."""

    def error(self, finding: ErrorRecord) -> Exception:
        """Return the exception that a finding means."""

    def check(self) -> None:
        """Wait, and raise what was found."""


class ViewRoutine:
    """A routine that only makes views: no kernel, no new memory.

    Subclasses define `layout`, which gets the first input's layout and the values of the others.
    """

    def sources(self) -> tuple[KernelSource, ...]:
        """No kernels."""
        return ()

    def layout(self, layout: Layout, *values: Any) -> Layout:
        """Return the view's layout."""
        raise NotImplementedError

    def __call__(self, array: GpuArray, *values: Any) -> tuple[GpuArray, ...]:
        return (GpuArray(array.context, array.buffer, array.dtype, self.layout(array.layout, *values)),)


def as_host_variable(variable: Variable) -> Variable:
    """Return a variable that host Ops take in place of a device variable; others come back as they are."""
    kind = variable.type
    if not isinstance(kind, GpuArrayType):
        return variable
    # The static shape of a Reshape or Alloc comes from the values of constants: keep those, make up the rest.
    return kind.host_type()


_routines: WeakKeyDictionary[Apply, Routine] = WeakKeyDictionary()


class GpuOp(Op):
    """Device counterpart of a host Op.

    Parameters
    ----------
    host
        The Op of PyTensor that computes the same; gives Types, shape inference and the name.
    context_name
        Where it runs.
    """

    __props__: tuple[str, ...] = ("host", "context_name")
    demands: Sequence[str] | None = None
    """Per input DEVICE, HOST or EITHER; the last one stands for all that follow. None: all DEVICE."""
    works: bool = True
    """Whether it computes (a view does not): decides whether moving data to the device can pay."""
    creates: bool = False
    """Whether its values come from nowhere, so that none ever need to be moved."""
    hands_on: bool = False
    """Whether a result may be an input as it is although the Op works, as a branch of a conditional does it."""
    streams: bool = False
    """Whether it only reads and writes each element once, as an elementwise function does."""
    loads_numbers: bool = False
    """Whether its kernels read numbers that change from call to call on the device: launches with others by value are
    not repeated."""
    checks: bool = False
    """Whether its kernels look for errors in the data: its routine has what `routines.base.Checked` has."""

    def __init__(self, host: Op, context_name: str) -> None:
        self.host = host
        self.context_name = context_name

    def __str__(self) -> str:
        text = str(self.host)
        own = type(self).__name__
        return text if text.startswith(own) else f"Gpu{text}"

    def demand(self, index: int) -> str:
        """Return where input number `index` must be."""
        if self.demands is None:
            return DEVICE
        return self.demands[min(index, len(self.demands) - 1)]

    def may_overwrite(self, index: int) -> bool:
        """Return whether an output may lie where input number `index`, of the same layout, does."""
        return False

    def make_node(self, *inputs: Variable) -> Apply:
        """Make a node; tensors of the host are transferred where the device needs them."""
        placed = [self.on_device(v) if self.demand(i) is DEVICE else v for i, v in enumerate(inputs)]
        host_node = self.host.make_node(*map(as_host_variable, placed))
        return self.apply(placed, [o.type for o in host_node.outputs])

    def on_device(self, variable: Variable) -> Variable:
        """Return the variable on this Op's device, transferred if need be.

        Raises
        ------
        TypeError
            There is no transfer for its Type.
        """
        if context_of(variable) == self.context_name:
            return variable
        moved = convert_to_device(variable.type, variable, self.context_name)
        if moved is None:
            raise TypeError(f"{self} cannot take {variable} of Type {variable.type}")
        return moved

    def apply(self, inputs: Sequence[Variable], types: Sequence[TensorType]) -> Apply:
        """Make a node whose outputs are the device counterparts of `types`."""
        outputs = [GpuArrayType(t.dtype, t.shape, self.context_name)() for t in types]
        return Apply(self, list(inputs), outputs)

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> Any:
        """Ask the host Op."""
        host_inputs = [as_host_variable(v) for v in node.inputs]
        return self.host.infer_shape(self.host.make_node(*host_inputs), shapes)

    def do_constant_folding(self, fgraph: Any, node: Apply) -> bool:
        """Never: constants of the host were folded before the graph came here."""
        return False

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return what computes `node` on an open context."""
        raise NotImplementedError

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        """Compute one node by itself, for linkers that are not ours."""
        routine = _routines.get(node)
        if routine is None:
            routine = _routines[node] = self.routine(node, get_context(self.context_name))
        values = [_by_value(v) if isinstance(v, np.ndarray) else v for v in inputs]
        for storage, value in zip(output_storage, routine(*values), strict=True):
            storage[0] = value
        if is_checked(routine, self):
            routine.check()


def is_checked(routine: Routine, op: GpuOp) -> TypeGuard[CheckedRoutine]:
    """Whether somebody must ask the device, after a node has run, if its data was right."""
    return op.checks and bool(getattr(routine, "is_checked", False))


def _by_value(array: np.ndarray) -> Any:
    """A 0-d array as the NumPy scalar that routines take."""
    return array if array.ndim else array[()]


def context_of(variable: Variable) -> str | None:
    """Return the context that holds a variable, None if the host does."""
    return variable.type.context_name if isinstance(variable.type, GpuArrayType) else None
