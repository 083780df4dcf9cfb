"""The base class of device Ops: it takes Types and shape inference from a host Op, and a kernel from a routine."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeGuard, runtime_checkable
from weakref import WeakKeyDictionary

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor.type import TensorType

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.ops.names import Show, full_name, host_name, short_name
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.error_flag import DeviceErrorFlag, ErrorRecord
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.registry import get_context
from pytensor_cl.type import GpuArrayType, convert_to_device

DEVICE = "device"
"""An input that must be a device array."""
HOST = "host"
"""An input that must be a host value: a shape, an index."""
ANY = "either"
"""An input that may be a device array or, if it is 0-d, a host value that the kernel takes by value."""


class Routine(Protocol):
    """Interface of a device node to the linker: the kernels to build, and a call that enqueues them."""

    def sources(self) -> tuple[KernelSource, ...]:
        """Kernels of an ordinary call."""

    def __call__(self, *inputs: Any) -> tuple[GpuArray, ...]:
        """Compute the layouts of the outputs, allocate them, and enqueue the kernels."""


class CheckedRoutine(Routine, Protocol):
    """A routine whose kernels check their data; see `pytensor_cl.routines.base.routine.Checked`."""

    is_checked: bool

    def set_error_flag(self, error_flag: DeviceErrorFlag, number: int) -> None:
        """Make the kernels report to an error flag that several routines share."""

    def error(self, finding: ErrorRecord) -> Exception:
        """Return the exception for an error record."""

    def check(self) -> None:
        """Wait for the device, and raise the error that a kernel reported."""


@runtime_checkable
class AcceptsDonations(Protocol):
    """A routine that can use the memory of inputs for its results."""

    def accept_donations(self, inputs: Sequence[int]) -> None:
        """Use the memory of these inputs: nothing else reads them, now or later."""


class ViewRoutine:
    """A routine that only makes views: it has no kernel and allocates no memory.

    Subclasses define `layout`, which gets the first input's layout and the values of the others.
    """

    def sources(self) -> tuple[KernelSource, ...]:
        """No kernels."""
        return ()

    def layout(self, layout: Layout, *values: Any) -> Layout:
        """Return the view's layout."""
        raise NotImplementedError

    def __call__(self, array: GpuArray, *values: Any) -> tuple[GpuArray, ...]:
        return (array.with_layout(self.layout(array.layout, *values)),)


def as_host_variable(variable: Variable) -> Variable:
    """Return a host variable of the same dtype and static shape; host variables are returned unchanged."""
    kind = variable.type
    if not isinstance(kind, GpuArrayType):
        return variable
    return kind.host_type()


_routines: WeakKeyDictionary[Apply, Routine] = WeakKeyDictionary()


class GpuOp(Op):
    """Device counterpart of a host Op.

    Parameters
    ----------
    host
        The PyTensor Op that computes the same; it gives Types, shape inference and the name.
    context_name
        Name of the context on which it runs.
    """

    __props__: tuple[str, ...] = ("host", "context_name")
    operand_placements: Sequence[str] | None = None
    """DEVICE, HOST or ANY for each input; the last entry holds for the inputs that follow. None: all DEVICE."""
    is_compute: bool = True
    """Whether the Op computes; a view does not. Placement moves data to a device only for Ops that compute."""
    is_source: bool = False
    """Whether the Op creates an array without reading one, so that no array has to be transferred for it."""
    may_alias: bool = False
    """Whether a result may be one of the inputs although `view_map` does not say so: a conditional returns a branch."""
    is_memory_bound: bool = False
    """Whether the Op reads and writes each element once, so that memory bandwidth limits its speed."""
    scalars_on_device: bool = False
    """Whether the kernels load scalars that change between calls from device memory. A captured graph stays valid then;
    it is specialised to scalars that are passed by value."""
    is_capturable: bool = True
    """Whether launches of its routine can be replayed in later calls."""
    checks_data: bool = False
    """Whether the kernels check their data; the routine is then a `CheckedRoutine`."""

    def __init__(self, host: Op, context_name: str) -> None:
        self.host = host
        self.context_name = context_name

    def named(self, show: Show) -> str:
        """Return the name; `show` joins the names of parts."""
        text = host_name(self.host, show)
        own = type(self).__name__
        return text if text.startswith(own) else f"Gpu{text}"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = vars(cls).get("__str__")
        if own is not None and own.__qualname__.startswith("MetaType."):  # PyTensor's, for each class with __props__
            cls.__str__ = GpuOp.__str__  # type: ignore[method-assign]

    def __str__(self) -> str:
        return short_name(self)

    @property
    def full_name(self) -> str:
        """Name with all functions and parameters; ``str(op)`` is shorter."""
        return full_name(self)

    def placement_of(self, index: int) -> str:
        """Return where input number `index` must be."""
        if self.operand_placements is None:
            return DEVICE
        return self.operand_placements[min(index, len(self.operand_placements) - 1)]

    def prefers_row_major(self, index: int) -> bool:
        """Return whether kernels read an input, a matrix, by rows, and copy it first if its rows are not contiguous."""
        return False

    def accepts_donation(self, index: int) -> bool:
        """Return whether an output may share the memory of an input of the same layout."""
        return False

    def make_node(self, *inputs: Variable) -> Apply:
        """Make a node; tensors of the host are transferred where the device needs them."""
        placed = [self.on_device(v) if self.placement_of(i) is DEVICE else v for i, v in enumerate(inputs)]
        host_node = self.host.make_node(*map(as_host_variable, placed))
        return self.apply(placed, [o.type for o in host_node.outputs])

    def source(self, variable: Variable) -> Variable:
        """Return the variable that this Op reads for an input of its host Op."""
        return variable

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
        """Return the shapes that the host Op infers."""
        host_inputs = [as_host_variable(v) for v in node.inputs]
        return self.host.infer_shape(self.host.make_node(*host_inputs), shapes)

    def do_constant_folding(self, fgraph: Any, node: Apply) -> bool:
        """Return False: host constants are folded before nodes are placed on devices."""
        return False

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the routine that computes `node` on an open context."""
        raise NotImplementedError

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        """Compute one node by itself, for PyTensor's own linkers."""
        routine = _routines.get(node)
        if routine is None:
            routine = _routines[node] = self.routine(node, get_context(self.context_name))
        values = [_by_value(v) if isinstance(v, np.ndarray) else v for v in inputs]
        for storage, value in zip(output_storage, routine(*values), strict=True):
            storage[0] = value
        if is_checked(routine, self):
            routine.check()


def is_checked(routine: Routine, op: GpuOp) -> TypeGuard[CheckedRoutine]:
    """Return whether the device's error flag must be read after a node has run."""
    return op.checks_data and bool(getattr(routine, "is_checked", False))


def _by_value(array: np.ndarray) -> Any:
    """Return a 0-d array as the NumPy scalar that routines take."""
    return array if array.ndim else array[()]


def context_of(variable: Variable) -> str | None:
    """Return the name of the context that holds a variable; None for a host variable."""
    return variable.type.context_name if isinstance(variable.type, GpuArrayType) else None
