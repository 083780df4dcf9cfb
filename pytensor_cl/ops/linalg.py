"""Factors of matrices and solutions of linear systems."""

from typing import Any

import numpy as np
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor import as_tensor_variable
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.linalg import inverse, summary
from pytensor.tensor.linalg.decomposition import cholesky, eigen, lu, qr, schur, svd
from pytensor.tensor.linalg.solvers import general, linear_control, psd, triangular, tridiagonal

from pytensor_cl.codegen.dtypes import is_complex, part
from pytensor_cl.ops.adapters import CheckedBatch, CheckedBatches, WithCasts, copy_or_none
from pytensor_cl.ops.base import GpuOp, Routine
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.routines.linalg.cholesky import Cholesky, PositiveSolve
from pytensor_cl.routines.linalg.jacobi import SVD, SymmetricEigen
from pytensor_cl.routines.linalg.lu import Determinant, Inverse, LUFactor, Permutation, Solve
from pytensor_cl.routines.linalg.powers import Squares
from pytensor_cl.routines.linalg.qr import QR
from pytensor_cl.routines.linalg.schur import Eigen, Schur
from pytensor_cl.routines.linalg.sylvester import TriangularSylvester
from pytensor_cl.routines.linalg.triangular import CholeskySolve, TriangularSolve
from pytensor_cl.routines.linalg.tridiagonal import TridiagonalFactor, TridiagonalSolve
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo


def _core(op: Any) -> Any:
    """Return the Op of one matrix."""
    return op.core_op if isinstance(op, Blockwise) else op


def _matrix_dtype(node: Apply) -> str:
    """Return the dtype that a matrix is factored in; the first output may be real where it is complex."""
    given: str = node.inputs[0].type.dtype
    return given if is_complex(given) else node.outputs[0].type.dtype


class PivotedLU(lu.LUFactor):
    """`LUFactor`, whose factors of a singular matrix are LAPACK's and not NaN, and which has a pivot for each row."""

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Compute with LAPACK."""
        from scipy.linalg import get_lapack_funcs  # loading it takes 0.1 s

        (a,) = inputs
        factors, pivots = a.copy(), np.arange(len(a), dtype="int32")
        if a.size:
            (factor,) = get_lapack_funcs(("getrf",), dtype=node.outputs[0].type.dtype)
            factors, found, _ = factor(a)
            pivots[: len(found)] = found
        output_storage[0][0], output_storage[1][0] = factors, pivots


class RepeatedSquares(Op):
    """Square each matrix of a batch a number of times: the power ``2 ** k``.

    Inputs are the matrices (..., n, n) and the numbers k (...), of int32.
    """

    __props__ = ()

    def make_node(self, x: Any, squarings: Any) -> Apply:
        """Make a node."""
        x, squarings = as_tensor_variable(x), as_tensor_variable(squarings)
        return Apply(self, [x, squarings], [x.type()])

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Return the shape of the matrices."""
        return [shapes[0]]

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Compute with NumPy."""
        x, squarings = inputs
        for k in range(int(squarings.max(initial=0))):
            x = np.where((squarings > k)[..., None, None], x @ x, x)
        output_storage[0][0] = x


@register_lift(RepeatedSquares, complex_too=True, numba_safe=False, batched=True)
class GpuRepeatedSquares(GpuOp):
    """Device counterpart of `RepeatedSquares`."""

    is_capturable = False  # the host reads the numbers

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the products."""
        return Squares(context, node.outputs[0].type.dtype)


@register_lift(cholesky.Cholesky, complex_too=True, numba_safe=True, batched=True)
class GpuCholesky(GpuOp):
    """Device counterpart of `Cholesky`, alone or in a Blockwise."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the factorisation."""
        return Cholesky(context, node.outputs[0].type.dtype, lower=_core(self.host).lower)


@register_lift(triangular.SolveTriangular, complex_too=True, numba_safe=True, batched=True)
class GpuSolveTriangular(GpuOp):
    """Device counterpart of `SolveTriangular`, alone or in a Blockwise."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the substitution."""
        core = _core(self.host)
        solve = TriangularSolve(
            context,
            node.outputs[0].type.dtype,
            lower=core.lower,
            unit_diagonal=core.unit_diagonal,
            is_vector=core.b_ndim == 1,
        )
        return CheckedBatch(solve, node, "a linear system", core.b_ndim)


@register_lift(psd.CholeskySolve, complex_too=True, numba_safe=True, batched=True)
class GpuCholeskySolve(GpuOp):
    """Device counterpart of `CholeskySolve`, alone or in a Blockwise."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return both substitutions."""
        core = _core(self.host)
        solve = CholeskySolve(context, node.outputs[0].type.dtype, lower=core.lower, is_vector=core.b_ndim == 1)
        return CheckedBatch(solve, node, "a linear system", core.b_ndim)


def _refuse_structure(node: Apply, info: DeviceInfo) -> NoKernel | None:
    structure = _core(node.op).assume_a
    if structure in ("gen", "pos"):
        return None
    return NoKernel(f"no OpenCL kernel for Solve with assume_a={structure!r} yet")


@register_lift(general.Solve, complex_too=True, numba_safe=True, batched=True, refuse=_refuse_structure)
class GpuSolve(GpuOp):
    """Device counterpart of `Solve` for general and for positive definite matrices, alone or in a Blockwise."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the factorisation and the substitutions."""
        core, dtype = _core(self.host), node.outputs[0].type.dtype
        is_vector = core.b_ndim == 1
        solve: Any
        if core.assume_a == "pos":
            solve = PositiveSolve(context, dtype, lower=core.lower, is_vector=is_vector)
        else:
            solve = Solve(context, dtype, is_vector=is_vector)
        return CheckedBatch(solve, node, "a linear system", core.b_ndim)


def _refuse_dtype(node: Apply, info: DeviceInfo) -> NoKernel | None:
    dtype = node.inputs[0].type.dtype
    is_taken = dtype in ("float32", "float64", "complex64", "complex128")
    return None if is_taken else NoKernel(f"no OpenCL kernel for LUFactor of {dtype}")


@register_lift(lu.LU, numba_safe=False, batched=True)
def lift_lu(node: Apply, context_name: str, info: DeviceInfo) -> NoKernel:
    """Return why an LU was not replaced by Ops that have kernels."""
    rows, columns = node.inputs[0].type.shape[-2:]
    if rows != columns and rows is not None and columns is not None:
        return NoKernel("PyTensor's types of the factors of a matrix that is not square have wrong shapes")
    return NoKernel(f"no OpenCL kernel for LU of {node.inputs[0].type.dtype}")


@register_lift(lu.LUFactor, PivotedLU, complex_too=True, numba_safe=False, batched=True, refuse=_refuse_dtype)
class GpuLUFactor(GpuOp):
    """Device counterpart of `LUFactor`, alone or in a Blockwise."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the factorisation."""
        is_ours = isinstance(_core(self.host), PivotedLU)
        dtype = node.outputs[0].type.dtype
        return LUFactor(context, dtype, marks_singular=not is_ours, pivots_of_rows=is_ours)


def _refuse_wide_pivots(node: Apply, info: DeviceInfo) -> NoKernel | None:
    dtype = node.inputs[0].type.dtype
    return None if dtype == "int32" else NoKernel(f"no OpenCL kernel for PivotToPermutations of {dtype}")


@register_lift(lu.PivotToPermutations, numba_safe=False, batched=True, refuse=_refuse_wide_pivots)
class GpuPivotToPermutations(GpuOp):
    """Device counterpart of `PivotToPermutations`, alone or in a Blockwise."""

    checks_data = True

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel."""
        return Permutation(context, inverse=_core(self.host).inverse)


@register_lift(summary.Det, complex_too=True, numba_safe=True, batched=True)
class GpuDet(GpuOp):
    """Device counterpart of `Det`, alone or in a Blockwise."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the factorisation and the product."""
        return Determinant(context, node.outputs[0].type.dtype)


@register_lift(summary.SLogDet, complex_too=True, numba_safe=True, batched=True)
class GpuSLogDet(GpuOp):
    """Device counterpart of `SLogDet`, alone or in a Blockwise."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the factorisation and the sum of logarithms."""
        return Determinant(context, node.outputs[0].type.dtype, in_parts=True)


@register_lift(inverse.MatrixInverse, complex_too=True, numba_safe=True, batched=True)
class GpuMatrixInverse(GpuOp):
    """Device counterpart of `MatrixInverse`, alone or in a Blockwise."""

    checks_data = True

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the factorisation and the substitutions."""
        return Inverse(context, node.outputs[0].type.dtype)


@register_lift(tridiagonal.LUFactorTridiagonal, numba_safe=False, batched=True)
class GpuLUFactorTridiagonal(GpuOp):
    """Device counterpart of `LUFactorTridiagonal`, alone or in a Blockwise."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel."""
        factor = TridiagonalFactor(context, node.outputs[0].type.dtype)
        return CheckedBatches(factor, node, (1,) * 3)


@register_lift(tridiagonal.SolveLUFactorTridiagonal, numba_safe=False, batched=True)
class GpuSolveLUFactorTridiagonal(GpuOp):
    """Device counterpart of `SolveLUFactorTridiagonal`, alone or in a Blockwise."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernels: the inputs are cast to the dtype of the output."""
        core = _core(self.host)
        dtype = node.outputs[0].type.dtype
        is_vector = core.b_ndim == 1
        solve = TridiagonalSolve(context, dtype, transposed=core.transposed, is_vector=is_vector)
        targets = (*(dtype,) * 4, "int32")
        casts = [
            copy_or_none(context, v.type.dtype, v.type.ndim, t) for v, t in zip(node.inputs, targets, strict=False)
        ]
        routine: Any = WithCasts(solve, casts) if any(casts) else solve
        return CheckedBatches(routine, node, (*(1,) * 5, core.b_ndim))


def _refuse_pivoting(node: Apply, info: DeviceInfo) -> NoKernel | None:
    core = _core(node.op)
    if core.pivoting or core.mode == "raw":
        return NoKernel("no OpenCL kernel for QR with pivoting, or with its factors in one array, yet")
    return None


@register_lift(qr.QR, complex_too=True, numba_safe=True, batched=True, refuse=_refuse_pivoting)
class GpuQR(GpuOp):
    """Device counterpart of `QR` without pivoting, alone or in a Blockwise."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the factorisation."""
        return QR(context, node.outputs[0].type.dtype, _core(self.host).mode)


LARGEST_FOR_ITERATIONS = 128
"""Length of the shorter side above which LAPACK is faster than rotations and QR steps, whatever the device."""


def _refuse_large(node: Apply, info: DeviceInfo) -> NoKernel | None:
    name = type(_core(node.op)).__name__
    if len(node.inputs) > 1:
        return NoKernel(f"no OpenCL kernel for {name} of two matrices yet")
    if name == "Eigh" and is_complex(node.inputs[0].type.dtype):
        return NoKernel("PyTensor's type of the eigenvectors of a complex matrix is real")
    sides = node.inputs[0].type.shape[-2:]
    if config.opencl__placement != "device" and None not in sides and min(sides) > LARGEST_FOR_ITERATIONS:
        return NoKernel(f"LAPACK is faster for {name} of large matrices ({sides[0]} x {sides[1]})")
    return None


@register_lift(svd.SVD, complex_too=True, numba_safe=False, batched=True, refuse=_refuse_large)
class GpuSVD(GpuOp):
    """Device counterpart of `SVD`, alone or in a Blockwise."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the rotations and what follows."""
        core = _core(self.host)
        dtype = _matrix_dtype(node)
        return SVD(context, dtype, full_matrices=core.full_matrices, compute_uv=core.compute_uv)


@register_lift(eigen.Eigh, complex_too=True, numba_safe=False, batched=True, refuse=_refuse_large)
class GpuEigh(GpuOp):
    """Device counterpart of `Eigh` of one matrix, alone or in a Blockwise."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the rotations."""
        return SymmetricEigen(context, _matrix_dtype(node), lower=_core(self.host).lower)


@register_lift(eigen.Eigvalsh, complex_too=True, numba_safe=False, batched=True, refuse=_refuse_large)
class GpuEigvalsh(GpuOp):
    """Device counterpart of `Eigvalsh` of one matrix, alone or in a Blockwise."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the rotations."""
        lower = _core(self.host).lower
        return SymmetricEigen(context, _matrix_dtype(node), lower=lower, has_vectors=False)


@register_lift(eigen.Eig, complex_too=True, numba_safe=False, batched=True, refuse=_refuse_large)
class GpuEig(GpuOp):
    """Device counterpart of `Eig`, alone or in a Blockwise."""

    checks_data = True

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the iteration and the substitutions, in real numbers if the matrix is real."""
        dtype = node.outputs[0].type.dtype
        return Eigen(context, dtype if is_complex(node.inputs[0].type.dtype) else part(dtype))


def _refuse_sorted(node: Apply, info: DeviceInfo) -> NoKernel | None:
    sort = _core(node.op).sort
    if sort is not None:
        return NoKernel(f"no OpenCL kernel for Schur with sort={sort!r} yet")
    return _refuse_large(node, info)


@register_lift(schur.Schur, complex_too=True, numba_safe=False, batched=True, refuse=_refuse_sorted)
class GpuSchur(GpuOp):
    """Device counterpart of `Schur` in no order, alone or in a Blockwise."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the iteration."""
        return Schur(context, node.outputs[0].type.dtype)


def _refuse_mixed(node: Apply, info: DeviceInfo) -> NoKernel | None:
    kinds = {is_complex(v.type.dtype) for v in node.inputs[:2]}
    dtype = node.outputs[0].type.dtype
    if len(kinds) > 1 or is_complex(dtype) not in kinds:
        return NoKernel(
            "a real and a complex matrix: LAPACK does not read below the diagonals, where the real one has elements"
        )
    return None if part(dtype) in ("float32", "float64") else NoKernel(f"no OpenCL kernel for TRSYL of {dtype}")


@register_lift(linear_control.TRSYL, complex_too=True, numba_safe=False, batched=True, refuse=_refuse_mixed)
class GpuTRSYL(GpuOp):
    """Device counterpart of `TRSYL`, alone or in a Blockwise."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the substitution."""
        return CheckedBatches(TriangularSylvester(context, node.outputs[0].type.dtype), node, (2,) * 3)
