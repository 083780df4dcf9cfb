"""Products of sparse and dense matrices; the sparse matrix is given by its CSR vectors, which devices can hold."""

from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.scalar import upcast
from pytensor.tensor import as_tensor_variable
from pytensor.tensor.type import tensor

from pytensor_cl.ops.base import DEVICE, HOST, GpuOp, Routine
from pytensor_cl.ops.registry import register_lift
from pytensor_cl.routines.sparse import CsrDot as CsrDotRoutine
from pytensor_cl.routines.sparse import CsrSampledDot as CsrSampledDotRoutine
from pytensor_cl.runtime.context import Context


def _tensors(*variables: Any) -> list[Variable]:
    return [as_tensor_variable(v) for v in variables]


class CsrDot(Op):
    """Sparse matrix of compressed rows times dense matrix or vector.

    Inputs are entries, columns and row pointers (int32), the dense factor, and the number of columns (0-d integer).
    """

    __props__ = ()

    def make_node(self, *inputs: Any) -> Apply:
        """Make a node; the entries and the dense factor have one dtype."""
        data, indices, indptr, dense, inner = _tensors(*inputs)
        rows = indptr.type.shape[0]
        shape = (None if rows is None else rows - 1, *dense.type.shape[1:])
        dtype = upcast(data.type.dtype, dense.type.dtype)
        return Apply(self, [data, indices, indptr, dense, inner], [tensor(dtype=dtype, shape=shape)])

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """One row for each row pointer but the last."""
        return [(shapes[2][0] - 1, *shapes[3][1:])]

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Compute with SciPy."""
        from scipy import sparse  # loading it takes 0.1 s

        data, indices, indptr, dense, inner = inputs
        matrix = sparse.csr_matrix((data, indices, indptr), shape=(len(indptr) - 1, int(inner)))
        output_storage[0][0] = np.asarray(matrix @ dense, dtype=node.outputs[0].type.dtype)


class CsrSampledDot(Op):
    """SDDMM: the entries of ``X @ Y.T`` at the positions of a matrix of compressed rows.

    Inputs are columns and row pointers (int32), ``X`` and ``Y``.
    """

    __props__ = ()

    def make_node(self, *inputs: Any) -> Apply:
        """Make a node; the two matrices have one dtype."""
        indices, indptr, left, right = _tensors(*inputs)
        dtype = upcast(left.type.dtype, right.type.dtype)
        return Apply(self, [indices, indptr, left, right], [tensor(dtype=dtype, shape=indices.type.shape)])

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Return one result for each entry."""
        return [shapes[0]]

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Gather rows of both, and sum their products."""
        indices, indptr, left, right = inputs
        row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        products = np.einsum("nk,nk->n", left[row], right[indices])
        output_storage[0][0] = products.astype(node.outputs[0].type.dtype)


class RowsOfColumns(Op):
    """Conversion of the index arrays of compressed columns (CSC) to index arrays of compressed rows (CSR).

    Inputs are the rows of the entries and the column pointers (int32), and the number of rows (0-d integer). Outputs
    are where each entry comes from, its column, and the row pointers (int32).
    """

    __props__ = ()

    def make_node(self, *inputs: Any) -> Apply:
        """Make a node."""
        indices, indptr, rows = _tensors(*inputs)
        entries = indices.type.shape
        outputs = [tensor(dtype="int32", shape=s) for s in (entries, entries, (None,))]
        return Apply(self, [indices, indptr, rows], outputs)

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Return the number of entries, and of rows plus one."""
        return [shapes[0], shapes[0], (node.inputs[2] + 1,)]

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Convert with SciPy, with the position of each entry as its value."""
        from scipy import sparse

        indices, indptr, rows = inputs
        numbers = np.arange(len(indices), dtype="int32")
        matrix = sparse.csc_matrix((numbers, indices, indptr), shape=(int(rows), len(indptr) - 1)).tocsr()
        for storage, part in zip(output_storage, (matrix.data, matrix.indices, matrix.indptr), strict=True):
            storage[0] = np.asarray(part, "int32")


@register_lift(CsrDot, numba_safe=False)
class GpuCsrDot(GpuOp):
    """Device counterpart of `CsrDot`."""

    operand_placements = (DEVICE, DEVICE, DEVICE, DEVICE, HOST)
    checks_data = True

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel."""
        return CsrDotRoutine(context, node.outputs[0].type.dtype)


@register_lift(CsrSampledDot, numba_safe=False)
class GpuCsrSampledDot(GpuOp):
    """Device counterpart of `CsrSampledDot`."""

    checks_data = True

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel."""
        return CsrSampledDotRoutine(context, node.outputs[0].type.dtype)
