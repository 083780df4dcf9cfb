"""Factors, solutions, determinants and inverses, alone and in a Blockwise -> their device Ops."""

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.decomposition.lu import LUFactor, PivotToPermutations
from pytensor.tensor.linalg.inverse import MatrixInverse
from pytensor.tensor.linalg.solvers.general import Solve
from pytensor.tensor.linalg.solvers.psd import CholeskySolve
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.linalg.solvers.tridiagonal import LUFactorTridiagonal, SolveLUFactorTridiagonal
from pytensor.tensor.linalg.summary import Det, SLogDet

from pytensor_cl.ops.base import GpuOp
from pytensor_cl.ops.linalg import (
    GpuCholesky,
    GpuCholeskySolve,
    GpuDet,
    GpuLUFactor,
    GpuLUFactorTridiagonal,
    GpuMatrixInverse,
    GpuPivotToPermutations,
    GpuRepeatedSquares,
    GpuSLogDet,
    GpuSolve,
    GpuSolveLUFactorTridiagonal,
    GpuSolveTriangular,
    PivotedLU,
    RepeatedSquares,
)
from pytensor_cl.rewriting.placement.registry import NoKernel, register_batched_lift, register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []

_OPS: dict[type[Op], type[GpuOp]] = {
    Cholesky: GpuCholesky,
    CholeskySolve: GpuCholeskySolve,
    Det: GpuDet,
    LUFactor: GpuLUFactor,
    LUFactorTridiagonal: GpuLUFactorTridiagonal,
    MatrixInverse: GpuMatrixInverse,
    PivotToPermutations: GpuPivotToPermutations,
    PivotedLU: GpuLUFactor,
    RepeatedSquares: GpuRepeatedSquares,
    SLogDet: GpuSLogDet,
    SolveLUFactorTridiagonal: GpuSolveLUFactorTridiagonal,
    SolveTriangular: GpuSolveTriangular,
}


def _core(op: Op) -> Op:
    return getattr(op, "core_op", op)


@register_batched_lift(*_OPS)
@register_lift(*_OPS)
def lift_linalg(op: Op, node: Apply, context_name: str, info: DeviceInfo) -> GpuOp | NoKernel:
    """Cholesky(A) -> GpuCholesky(A), SolveTriangular(A, b) -> GpuSolveTriangular(A, b), and so on."""
    core = _core(op)
    if isinstance(core, LUFactor) and node.inputs[0].type.dtype not in ("float32", "float64"):
        return NoKernel(f"no OpenCL kernel for LUFactor of {node.inputs[0].type.dtype}")
    if isinstance(core, PivotToPermutations) and node.inputs[0].type.dtype != "int32":
        return NoKernel(f"no OpenCL kernel for PivotToPermutations of {node.inputs[0].type.dtype}")
    return _OPS[type(core)](op, context_name)


@register_batched_lift(Solve)
@register_lift(Solve)
def lift_solve(op: Op, node: Apply, context_name: str, info: DeviceInfo) -> GpuOp | NoKernel:
    """Solve(A, b) -> GpuSolve(A, b), for matrices of no structure and for positive definite ones."""
    structure = _core(op).assume_a
    if structure not in ("gen", "pos"):
        return NoKernel(f"no OpenCL kernel for Solve with assume_a={structure!r} yet")
    return GpuSolve(op, context_name)
