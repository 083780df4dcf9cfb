"""Factors, solutions, determinants and inverses, alone and in a Blockwise -> their device Ops."""

from pytensor.configdefaults import config
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.decomposition.eigen import Eigh, Eigvalsh
from pytensor.tensor.linalg.decomposition.lu import LU, LUFactor, PivotToPermutations
from pytensor.tensor.linalg.decomposition.qr import QR
from pytensor.tensor.linalg.decomposition.svd import SVD
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
    GpuEigh,
    GpuEigvalsh,
    GpuLUFactor,
    GpuLUFactorTridiagonal,
    GpuMatrixInverse,
    GpuPivotToPermutations,
    GpuQR,
    GpuRepeatedSquares,
    GpuSLogDet,
    GpuSolve,
    GpuSolveLUFactorTridiagonal,
    GpuSolveTriangular,
    GpuSVD,
    PivotedLU,
    RepeatedSquares,
)
from pytensor_cl.ops.registry import NoKernel, register_batched_lift, register_lift
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


@register_batched_lift(LU)
@register_lift(LU)
def lift_lu(op: Op, node: Apply, context_name: str, info: DeviceInfo) -> GpuOp | NoKernel:
    """LU(A) has been replaced by Ops that have kernels, unless the shape of A is known and not square."""
    rows, columns = node.inputs[0].type.shape[-2:]
    if rows != columns and rows is not None and columns is not None:
        return NoKernel("PyTensor's types of the factors of a matrix that is not square have wrong shapes")
    return NoKernel(f"no OpenCL kernel for LU of {node.inputs[0].type.dtype}")


LARGEST = 128
"""Length of a side from which LAPACK is faster than rotations, whatever the device."""

_ROTATIONS: dict[type[Op], type[GpuOp]] = {Eigh: GpuEigh, Eigvalsh: GpuEigvalsh, SVD: GpuSVD}


@register_batched_lift(*_ROTATIONS)
@register_lift(*_ROTATIONS)
def lift_rotations(op: Op, node: Apply, context_name: str, info: DeviceInfo) -> GpuOp | NoKernel:
    """Eigh(A) -> GpuEigh(A), SVD(A) -> GpuSVD(A), unless A is known to be large."""
    name = type(_core(op)).__name__
    if len(node.inputs) > 1:
        return NoKernel(f"no OpenCL kernel for {name} of two matrices yet")
    sides = node.inputs[0].type.shape[-2:]
    if config.opencl__placement != "device" and None not in sides and min(sides) > LARGEST:
        return NoKernel(f"LAPACK is faster for {name} of large matrices ({sides[0]} x {sides[1]})")
    return _ROTATIONS[type(_core(op))](op, context_name)


@register_batched_lift(QR)
@register_lift(QR)
def lift_qr(op: Op, node: Apply, context_name: str, info: DeviceInfo) -> GpuOp | NoKernel:
    """QR(A) -> GpuQR(A), without pivoting and with separate factors."""
    core = _core(op)
    if core.pivoting or core.mode == "raw":
        return NoKernel("no OpenCL kernel for QR with pivoting, or with its factors in one array, yet")
    return GpuQR(op, context_name)
