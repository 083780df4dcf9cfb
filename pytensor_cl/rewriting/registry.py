"""Which host Op becomes which device Op."""

from collections.abc import Callable
from typing import NamedTuple

from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.type import Type
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.type import TensorType
from pytensor.tensor.type_other import NoneTypeT

from pytensor_cl import dtypes
from pytensor_cl.ops.base import GpuOp
from pytensor_cl.runtime.device import DeviceInfo

__all__ = ["NoKernel", "device_op", "register_lift"]

Lift = Callable[[Op, Apply, str, DeviceInfo], "GpuOp | NoKernel"]


class NoKernel(NamedTuple):
    """Why a node has no device counterpart.

    Attributes
    ----------
    reason
        A sentence for the user.
    missing_fp64
        Whether all that the device lacks is double precision.
    """

    reason: str
    missing_fp64: bool = False


_lifts: dict[type[Op], Lift] = {}


def register_lift(*op_types: type[Op]) -> Callable[[Lift], Lift]:
    """Register a function ``(op, node, context_name, info)`` that returns a node's device Op, or why there is none."""

    def register(lift: Lift) -> Lift:
        _lifts.update(dict.fromkeys(op_types, lift))
        return lift

    return register


_COPIES = (DeepCopyOp, ViewOp)
_HOST_ONLY = (ScalarType, NoneTypeT)  # indices and absent extents: values that device Ops take from the host


def _unfit(kind: Type, info: DeviceInfo) -> NoKernel | None:
    """Say why a device cannot hold values of a Type."""
    if isinstance(kind, _HOST_ONLY):
        return None
    if type(kind) is not TensorType:
        return NoKernel(f"{type(kind).__name__} values live on the host")
    if not dtypes.is_supported(kind.dtype):
        return NoKernel(f"device arrays cannot hold {kind.dtype}")
    if dtypes.needs_fp64(kind.dtype) and not info.has_fp64:
        return NoKernel(f"{info.name} has no double precision ({kind.dtype})", missing_fp64=True)
    return None


def device_op(node: Apply, context_name: str, info: DeviceInfo) -> GpuOp | NoKernel:
    """Return the device Op that computes `node`, or why there is none."""
    if isinstance(node.op, _COPIES):
        return NoKernel("a copy, so that the function's result does not share memory with something else")
    lift = next((_lifts[c] for c in type(node.op).__mro__ if c in _lifts), None)
    if lift is None:
        return NoKernel(f"no OpenCL kernel for {type(node.op).__name__} yet")
    variables: list[Variable] = [*node.inputs, *node.outputs]
    unfit = next(filter(None, (_unfit(v.type, info) for v in variables)), None)
    return unfit or lift(node.op, node, context_name, info)
