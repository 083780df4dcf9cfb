"""Factors of matrices and solutions of linear systems."""

from typing import Any

from pytensor.graph.basic import Apply
from pytensor.tensor.blockwise import Blockwise

from pytensor_cl.ops.adapters import CheckedBatch
from pytensor_cl.ops.base import GpuOp, Routine
from pytensor_cl.routines.linalg.cholesky import Cholesky, PositiveSolve
from pytensor_cl.routines.linalg.lu import Determinant, Inverse, LUFactor, Permutation, Solve
from pytensor_cl.routines.linalg.triangular import CholeskySolve, TriangularSolve
from pytensor_cl.runtime.context import Context

__all__ = [
    "GpuCholesky",
    "GpuCholeskySolve",
    "GpuDet",
    "GpuLUFactor",
    "GpuMatrixInverse",
    "GpuPivotToPermutations",
    "GpuSLogDet",
    "GpuSolve",
    "GpuSolveTriangular",
]


def _core(op: Any) -> Any:
    """Return the Op of one matrix."""
    return op.core_op if isinstance(op, Blockwise) else op


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
        return LUFactor(context, node.outputs[0].type.dtype)


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
