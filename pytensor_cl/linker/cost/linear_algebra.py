"""The workload of Ops of linear algebra, for the cost model.

Blocked algorithms take a time for each element of a matrix, in panels, and a time for each operation of the products
between them. Rotations take a time for each operation, one matrix on each core.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from pytensor.graph.op import Op
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.decomposition.eigen import Eigh, Eigvalsh
from pytensor.tensor.linalg.decomposition.lu import LU, LUFactor
from pytensor.tensor.linalg.decomposition.qr import QR
from pytensor.tensor.linalg.decomposition.svd import SVD
from pytensor.tensor.linalg.inverse import MatrixInverse, MatrixPinv
from pytensor.tensor.linalg.solvers.general import Solve
from pytensor.tensor.linalg.solvers.psd import CholeskySolve
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.linalg.summary import Det, SLogDet

__all__ = ["COUNTED", "work_of_matrices"]

Shape = Sequence[int]

LANES = 8
"""Matrices from which a batch lies in the lanes of vectors."""


class _Factors(NamedTuple):
    """Work of a blocked algorithm for a matrix of n rows and columns and for m right-hand sides.

    Attributes
    ----------
    panels
        Times that of a Cholesky factor, for each element of the matrix.
    cubes
        Operations for each of n * n * n.
    sides
        Operations for each of n * n * m.
    """

    panels: float
    cubes: float
    sides: float = 0.0


_FACTORS: Mapping[type[Op], _Factors] = {
    Cholesky: _Factors(1, 1 / 3),
    CholeskySolve: _Factors(0.2, 0, 2),
    SolveTriangular: _Factors(0.1, 0, 1),
    Solve: _Factors(3, 2 / 3, 2),
    **dict.fromkeys((LU, LUFactor, Det, SLogDet), _Factors(3, 2 / 3)),
    MatrixInverse: _Factors(3, 2),
    QR: _Factors(6, 8 / 3),
}
_ROTATIONS: Mapping[type[Op], float] = {Eigvalsh: 0.5, Eigh: 1.0, SVD: 1.2, MatrixPinv: 1.2}
"""Work as a multiple of that of eigenvalues with eigenvectors."""

COUNTED = (*_FACTORS, *_ROTATIONS)
"""Classes of the Ops whose work is known."""


def work_of_matrices(op: Any, inputs: Sequence[Shape], width: float) -> Iterable[tuple[str, float]]:
    """Yield kinds and amounts of work.

    Parameters
    ----------
    op
        Of one matrix, of a class in `COUNTED`.
    inputs
        Shapes of the inputs, with batch dimensions.
    width
        Words of four bytes of an element.
    """
    *batch, m, n = inputs[0]
    count = prod(batch)
    is_vector = len(inputs) > 1 and getattr(op, "b_ndim", 2) == 1
    if len(inputs) > 1:
        count = max(count, prod(inputs[1][: -1 if is_vector else -2]))
    kind = "batched_matrix" if count >= LANES else "matrix"
    yield f"{kind}_items", count
    if type(op) in _ROTATIONS:
        smaller, larger = sorted((m, n))
        share = _ROTATIONS[type(op)]
        yield f"{kind}_rotation_elements", share * count * smaller * larger
        yield f"{kind}_rotations", share * count * smaller * smaller * larger
        return
    factors = _FACTORS[type(op)]
    sides = 1 if is_vector else inputs[1][-1] if len(inputs) > 1 else 0
    flops = count * m * n * (factors.cubes * min(m, n) + factors.sides * sides)
    yield f"{kind}_elements", width / 2 * factors.panels * count * m * n
    yield f"{kind}_flops", width / 2 * flops
