"""Cholesky, SolveTriangular and CholeskySolve, alone and in a Blockwise -> their device Ops."""

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.solvers.psd import CholeskySolve
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular

from pytensor_cl.ops.base import GpuOp
from pytensor_cl.ops.linalg import GpuCholesky, GpuCholeskySolve, GpuSolveTriangular
from pytensor_cl.rewriting.placement.registry import NoKernel, register_batched_lift, register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []

_OPS: dict[type[Op], type[GpuOp]] = {
    Cholesky: GpuCholesky,
    CholeskySolve: GpuCholeskySolve,
    SolveTriangular: GpuSolveTriangular,
}


@register_batched_lift(*_OPS)
@register_lift(*_OPS)
def lift_linalg(op: Op, node: Apply, context_name: str, info: DeviceInfo) -> GpuOp | NoKernel:
    """Cholesky(A) -> GpuCholesky(A), SolveTriangular(A, b) -> GpuSolveTriangular(A, b), and so on."""
    core = getattr(op, "core_op", op)
    return _OPS[type(core)](op, context_name)
