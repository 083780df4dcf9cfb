"""Registry of the functions that turn host Ops into device Ops."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.type import Type
from pytensor.scalar.basic import ScalarType
from pytensor.scan.op import Scan
from pytensor.tensor.basic import ScalarFromTensor
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.type import TensorType
from pytensor.tensor.type_other import NoneTypeT

from pytensor_cl.codegen import dtypes
from pytensor_cl.ops.base import GpuOp
from pytensor_cl.runtime.device import DeviceInfo

Lift = Callable[[Apply, str, DeviceInfo], "GpuOp | NoKernel"]


class NoKernel(NamedTuple):
    """Why a node has no device counterpart."""

    reason: str  # a sentence for the user
    missing_fp64: bool = False  # the device lacks double precision, and nothing else
    is_free: bool = False  # there is nothing to compute, so that neighbours can be anywhere


class Registration(NamedTuple):
    """Registration of a class of host Ops; see `register_lift`."""

    lift: Lift
    every_dtype: bool
    numba_safe: bool
    complex_too: bool = False


_registered: dict[type[Op], Registration] = {}
_batched: dict[type[Op], Registration] = {}


def register_lift[Made: Callable[..., GpuOp | NoKernel]](
    *op_types: type[Op],
    numba_safe: bool,
    every_dtype: bool = False,
    complex_too: bool = False,
    batched: bool = False,
    refuse: Callable[[Apply, DeviceInfo], NoKernel | None] | None = None,
) -> Callable[[Made], Made]:
    """Register what computes host Ops on a device: a class of device Ops, or a function that returns one.

    The class is called with the host Op and the context's name. The function is called with ``(node, context_name,
    info)`` and returns a device Op, or a `NoKernel`.

    Parameters
    ----------
    op_types
        Classes of host Ops; subclasses that are not registered themselves count as well.
    numba_safe
        Whether NUMBA's code for the Ops reports the errors in data that the device's kernels report, with the checks
        that `rewriting/host_graph/guards.py` adds. Only then NUMBA may run a function with such a node.
    every_dtype
        Whether nodes of float16 and of complex numbers are taken too.
    complex_too
        Whether nodes of complex numbers are taken too.
    batched
        Whether Blockwise nodes of the Ops are taken too.
    refuse
        Called with a node and the device; returns why the class does not compute the node, or None.
    """

    def register(made: Made) -> Made:
        lift = _construct(made, refuse) if isinstance(made, type) else made
        _add(_registered, op_types, Registration(lift, every_dtype, numba_safe, complex_too))
        if batched:
            _add(_batched, op_types, Registration(lift, every_dtype, numba_safe, complex_too))
        return made

    return register


def register_batched_lift[Made: Callable[..., GpuOp | NoKernel]](
    *core_types: type[Op], every_dtype: bool = False
) -> Callable[[Made], Made]:
    """Register, as `register_lift` does, what computes Blockwise nodes whose core Op is of these classes."""

    def register(made: Made) -> Made:
        lift = _construct(made, None) if isinstance(made, type) else made
        _add(_batched, core_types, Registration(lift, every_dtype, numba_safe=False))
        return made

    return register


def _add(table: dict[type[Op], Registration], op_types: Sequence[type[Op]], registration: Registration) -> None:
    for kind in op_types:
        if kind in table:
            raise ValueError(f"{kind.__name__} is registered already")
        table[kind] = registration


def _construct(kind: Callable[[Op, str], GpuOp], refuse: Callable[..., NoKernel | None] | None) -> Lift:
    """Return the function that makes a device Op of a class, unless `refuse` has a reason against it."""

    def lift(node: Apply, context_name: str, info: DeviceInfo) -> GpuOp | NoKernel:
        refusal = None if refuse is None else refuse(node, info)
        return refusal or kind(node.op, context_name)

    return lift


def batched_lift(core_op: Op, node: Apply) -> Lift | None:
    """Return the function that makes the device Op of a Blockwise node of a core Op; None if there is none."""
    found = _batched.get(type(core_op))
    return None if found is None or _special_dtype(node, found) else found.lift


def is_numba_safe(op: Op) -> bool:
    """Return whether an Op is registered as one that NUMBA may run."""
    found = _registration_of(op)
    return found is not None and found.numba_safe


def _registration_of(op: Op) -> Registration | None:
    return next((_registered[kind] for kind in type(op).__mro__ if kind in _registered), None)


_COPIES = (DeepCopyOp, ViewOp)
_HOST_ONLY = (ScalarType, NoneTypeT)  # indices and absent extents: values that device Ops take from the host


def _names_dimensions(op: Op) -> bool:
    """Return whether an Op adds or removes names of dimensions; that package is loaded where it is used."""
    return any(c.__name__ == "XTypeCastOp" and c.__module__ == "pytensor.xtensor.basic" for c in type(op).__mro__)


def _unsupported_type(kind: Type, info: DeviceInfo) -> NoKernel | None:
    """Return why a device cannot hold values of a Type; None if it can."""
    if isinstance(kind, _HOST_ONLY):
        return None
    if type(kind) is not TensorType:
        return NoKernel(f"{type(kind).__name__} values are on the host")
    if any(length is not None and length < 0 for length in kind.shape):
        return NoKernel("a length is negative: every call raises an error", is_free=True)
    if not dtypes.is_supported(kind.dtype):
        return NoKernel(f"device arrays cannot hold {kind.dtype}")
    if dtypes.needs_fp64(kind.dtype) and not info.has_fp64:
        return NoKernel(f"{info.name} has no double precision ({kind.dtype})", missing_fp64=True)
    return None


def _special_dtype(node: Apply, found: Registration) -> str | None:
    """Return the first dtype of a node for which what is registered has no kernel; None if there is none."""
    if found.every_dtype:
        return None
    names = [v.type.dtype for v in (*node.inputs, *node.outputs) if isinstance(v.type, TensorType)]
    is_taken = dtypes.is_complex if found.complex_too else (lambda name: False)
    return next((name for name in names if dtypes.is_special(name) and not is_taken(name)), None)


def device_op(node: Apply, context_name: str, info: DeviceInfo) -> GpuOp | NoKernel:
    """Return the device Op that computes `node`, or why there is none."""
    if isinstance(node.op, _COPIES):
        return NoKernel("a copy, so that the function's result does not share memory with something else")
    if _names_dimensions(node.op):
        return NoKernel("gives dimensions names or takes them away: nothing is computed", is_free=True)
    if isinstance(node.op, ScalarFromTensor):
        return NoKernel("passes a number to the host", is_free=True)
    found = _registration_of(node.op)
    if found is None:
        return _no_kernel(node, f"no OpenCL kernel for {type(node.op).__name__} yet")
    variables: list[Variable] = [*node.inputs, *node.outputs]
    if isinstance(node.op, RandomVariable | Scan):  # a generator stays on the host
        variables = [v for v in variables if not isinstance(v.type, RandomType)]
    refusal = next(filter(None, (_unsupported_type(v.type, info) for v in variables)), None)
    if refusal is not None:
        return refusal
    special = _special_dtype(node, found)
    if special is not None:
        return NoKernel(f"no OpenCL kernel for {type(node.op).__name__} of {special} yet")
    return found.lift(node, context_name, info)


def has_kernel(node: Apply, context_name: str, info: DeviceInfo) -> bool:
    """Return whether a device of a context has a kernel for `node`."""
    is_registered = _registration_of(node.op) is not None
    return is_registered and not isinstance(device_op(node, context_name, info), NoKernel)


def note_reason(node: Apply, reason: str) -> None:
    """Note why a node is on the host, on its tag: PyTensor copies tags with nodes, also where it drops features."""
    node.tag.opencl_reason = reason


def noted_reason(node: Apply) -> str | None:
    """Return the reason that `note_reason` has put on a node."""
    reason: str | None = getattr(node.tag, "opencl_reason", None)
    return reason


def _no_kernel(node: Apply, reason: str) -> NoKernel:
    """Return why a node has no kernel: what a decomposition has noted, or else `reason`."""
    return NoKernel(noted_reason(node) or reason)


@register_lift(Blockwise, numba_safe=False, every_dtype=True)
def lift_blockwise(node: Apply, context_name: str, info: DeviceInfo) -> GpuOp | NoKernel:
    """Blockwise(op)(x) -> the device Op of a batch; without batch dimensions the device Op of ``op(x)``."""
    op: Any = node.op
    if op.batch_ndim(node) == 0:
        core = op.core_op.make_node(*node.inputs)
        if [o.type.dtype for o in core.outputs] == [o.type.dtype for o in node.outputs]:
            return device_op(core, context_name, info)
    lift = batched_lift(op.core_op, node)
    if lift is not None:
        return lift(node, context_name, info)
    return _no_kernel(node, f"no batched OpenCL kernel for {type(op.core_op).__name__} yet")
