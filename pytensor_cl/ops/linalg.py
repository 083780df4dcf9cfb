"""Factors of matrices and solutions of linear systems."""

from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor import as_tensor_variable
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.linalg.decomposition.lu import LUFactor as HostLUFactor

from pytensor_cl.ops.adapters import CheckedBatch, CheckedBatches, WithCasts, copy_or_none
from pytensor_cl.ops.base import GpuOp, Routine
from pytensor_cl.routines.linalg.cholesky import Cholesky, PositiveSolve
from pytensor_cl.routines.linalg.jacobi import SVD, SymmetricEigen
from pytensor_cl.routines.linalg.lu import Determinant, Inverse, LUFactor, Permutation, Solve
from pytensor_cl.routines.linalg.powers import Squares
from pytensor_cl.routines.linalg.qr import QR
from pytensor_cl.routines.linalg.triangular import CholeskySolve, TriangularSolve
from pytensor_cl.routines.linalg.tridiagonal import TridiagonalFactor, TridiagonalSolve
from pytensor_cl.runtime.context import Context

__all__ = [
    "GpuCholesky",
    "GpuCholeskySolve",
    "GpuDet",
    "GpuEigh",
    "GpuEigvalsh",
    "GpuLUFactor",
    "GpuLUFactorTridiagonal",
    "GpuMatrixInverse",
    "GpuPivotToPermutations",
    "GpuQR",
    "GpuRepeatedSquares",
    "GpuSLogDet",
    "GpuSVD",
    "GpuSolve",
    "GpuSolveLUFactorTridiagonal",
    "GpuSolveTriangular",
    "PivotedLU",
    "RepeatedSquares",
]


def _core(op: Any) -> Any:
    """Return the Op of one matrix."""
    return op.core_op if isinstance(op, Blockwise) else op


class PivotedLU(HostLUFactor):
    """`LUFactor`, whose factors of a singular matrix are LAPACK's and not NaN, and which has a pivot for each row."""

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Compute with LAPACK."""
        from scipy.linalg import get_lapack_funcs  # loading it takes 0.1 s

        (a,) = inputs
        lu, pivots = a.copy(), np.arange(len(a), dtype="int32")
        if a.size:
            (factor,) = get_lapack_funcs(("getrf",), dtype=node.outputs[0].type.dtype)
            lu, found, _ = factor(a)
            pivots[: len(found)] = found
        output_storage[0][0], output_storage[1][0] = lu, pivots


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


class GpuRepeatedSquares(GpuOp):
    """Device counterpart of `RepeatedSquares`."""

    is_capturable = False  # the host reads the numbers

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the products."""
        return Squares(context, node.outputs[0].type.dtype)


class GpuCholesky(GpuOp):
    """Device counterpart of `Cholesky`, alone or in a Blockwise."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the factorisation."""
        return Cholesky(context, node.outputs[0].type.dtype, lower=_core(self.host).lower)


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


class GpuCholeskySolve(GpuOp):
    """Device counterpart of `CholeskySolve`, alone or in a Blockwise."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return both substitutions."""
        core = _core(self.host)
        solve = CholeskySolve(context, node.outputs[0].type.dtype, lower=core.lower, is_vector=core.b_ndim == 1)
        return CheckedBatch(solve, node, "a linear system", core.b_ndim)


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


class GpuLUFactor(GpuOp):
    """Device counterpart of `LUFactor`, alone or in a Blockwise."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the factorisation."""
        is_ours = isinstance(_core(self.host), PivotedLU)
        dtype = node.outputs[0].type.dtype
        return LUFactor(context, dtype, marks_singular=not is_ours, pivots_of_rows=is_ours)


class GpuPivotToPermutations(GpuOp):
    """Device counterpart of `PivotToPermutations`, alone or in a Blockwise."""

    checks_data = True

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel."""
        return Permutation(context, inverse=_core(self.host).inverse)


class GpuDet(GpuOp):
    """Device counterpart of `Det`, alone or in a Blockwise."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the factorisation and the product."""
        return Determinant(context, node.outputs[0].type.dtype)


class GpuSLogDet(GpuOp):
    """Device counterpart of `SLogDet`, alone or in a Blockwise."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the factorisation and the sum of logarithms."""
        return Determinant(context, node.outputs[0].type.dtype, in_parts=True)


class GpuMatrixInverse(GpuOp):
    """Device counterpart of `MatrixInverse`, alone or in a Blockwise."""

    checks_data = True

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the factorisation and the substitutions."""
        return Inverse(context, node.outputs[0].type.dtype)


class GpuLUFactorTridiagonal(GpuOp):
    """Device counterpart of `LUFactorTridiagonal`, alone or in a Blockwise."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel."""
        factor = TridiagonalFactor(context, node.outputs[0].type.dtype)
        return CheckedBatches(factor, node, (1,) * 3)


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


class GpuQR(GpuOp):
    """Device counterpart of `QR` without pivoting, alone or in a Blockwise."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the factorisation."""
        return QR(context, node.outputs[0].type.dtype, _core(self.host).mode)


class GpuSVD(GpuOp):
    """Device counterpart of `SVD`, alone or in a Blockwise."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the rotations and what follows."""
        core = _core(self.host)
        dtype = node.outputs[0].type.dtype
        return SVD(context, dtype, full_matrices=core.full_matrices, compute_uv=core.compute_uv)


class GpuEigh(GpuOp):
    """Device counterpart of `Eigh` of one matrix, alone or in a Blockwise."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the rotations."""
        return SymmetricEigen(context, node.outputs[0].type.dtype, lower=_core(self.host).lower)


class GpuEigvalsh(GpuOp):
    """Device counterpart of `Eigvalsh` of one matrix, alone or in a Blockwise."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the rotations."""
        lower = _core(self.host).lower
        return SymmetricEigen(context, node.outputs[0].type.dtype, lower=lower, has_vectors=False)
