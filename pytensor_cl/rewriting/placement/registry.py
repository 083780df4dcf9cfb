"""Which host Op becomes which device Op."""

from collections.abc import Callable
from typing import NamedTuple

from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.type import Type
from pytensor.scalar.basic import ScalarType
from pytensor.scan.op import Scan
from pytensor.tensor.basic import ScalarFromTensor
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.type import TensorType
from pytensor.tensor.type_other import NoneTypeT

from pytensor_cl.codegen import dtypes
from pytensor_cl.ops.base import GpuOp
from pytensor_cl.runtime.device import DeviceInfo

__all__ = ["NoKernel", "batched_lift", "device_op", "register_batched_lift", "register_lift"]

Lift = Callable[[Op, Apply, str, DeviceInfo], "GpuOp | NoKernel"]


class NoKernel(NamedTuple):
    """Why a node has no device counterpart.

    Attributes
    ----------
    reason
        A sentence for the user.
    missing_fp64
        Whether all that the device lacks is double precision.
    is_free
        Whether there is nothing to compute, so that neighbours can be anywhere.
    """

    reason: str
    missing_fp64: bool = False
    is_free: bool = False


_lifts: dict[type[Op], Lift] = {}
_of_every_dtype: set[type[Op]] = set()


def register_lift(*op_types: type[Op], every_dtype: bool = False) -> Callable[[Lift], Lift]:
    """Register a function ``(op, node, context_name, info)`` that returns a node's device Op, or why there is none.

    Parameters
    ----------
    op_types
        Classes of host Ops.
    every_dtype
        Whether the function takes nodes of float16 and of complex numbers too.
    """

    def register(lift: Lift) -> Lift:
        _lifts.update(dict.fromkeys(op_types, lift))
        if every_dtype:
            _of_every_dtype.update(op_types)
        return lift

    return register


_batched_lifts: dict[type[Op], Lift] = {}
_batched_of_every_dtype: set[type[Op]] = set()


def register_batched_lift(*core_types: type[Op], every_dtype: bool = False) -> Callable[[Lift], Lift]:
    """Register a function, as `register_lift` does, for Blockwise nodes whose core Op is of these classes."""

    def register(lift: Lift) -> Lift:
        _batched_lifts.update(dict.fromkeys(core_types, lift))
        if every_dtype:
            _batched_of_every_dtype.update(core_types)
        return lift

    return register


def batched_lift(core_op: Op, node: Apply) -> Lift | None:
    """Return the lift of a Blockwise node of a core Op; None if there is none."""
    is_refused = type(core_op) not in _batched_of_every_dtype and _special_dtype(node) is not None
    return None if is_refused else _batched_lifts.get(type(core_op))


_COPIES = (DeepCopyOp, ViewOp)
_HOST_ONLY = (ScalarType, NoneTypeT)  # indices and absent extents: values that device Ops take from the host


def _names_dimensions(op: Op) -> bool:
    """Whether an Op turns a tensor into one with named dimensions, or back; that package is loaded where it is used."""
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


def _special_dtype(node: Apply) -> str | None:
    """Return the first dtype of a node for which a kernel must be written specially; None if there is none."""
    kinds = (v.type for v in (*node.inputs, *node.outputs) if isinstance(v.type, TensorType))
    return next((kind.dtype for kind in kinds if dtypes.is_special(kind.dtype)), None)


def device_op(node: Apply, context_name: str, info: DeviceInfo) -> GpuOp | NoKernel:
    """Return the device Op that computes `node`, or why there is none."""
    if isinstance(node.op, _COPIES):
        return NoKernel("a copy, so that the function's result does not share memory with something else")
    if _names_dimensions(node.op):
        return NoKernel("gives dimensions names or takes them away: nothing is computed", is_free=True)
    if isinstance(node.op, ScalarFromTensor):
        return NoKernel("passes a number to the host", is_free=True)
    kind = next((c for c in type(node.op).__mro__ if c in _lifts), None)
    if kind is None:
        known = getattr(node.tag, "opencl_no_kernel", None)  # why a lowering left the node as it is
        return NoKernel(known or f"no OpenCL kernel for {type(node.op).__name__} yet")
    variables: list[Variable] = [*node.inputs, *node.outputs]
    if isinstance(node.op, RandomVariable | Scan):  # a generator stays on the host
        variables = [v for v in variables if not isinstance(v.type, RandomType)]
    refusal = next(filter(None, (_unsupported_type(v.type, info) for v in variables)), None)
    if refusal is not None:
        return refusal
    special = None if kind in _of_every_dtype else _special_dtype(node)
    if special is not None:
        return NoKernel(f"no OpenCL kernel for {type(node.op).__name__} of {special} yet")
    return _lifts[kind](node.op, node, context_name, info)
