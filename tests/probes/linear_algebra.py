"""Dense linear algebra: decompositions, solvers, inverses."""

from collections.abc import Iterator

import numpy as np
import pytensor.tensor as pt
import pytensor.tensor.linalg as ptl
from pytensor.tensor.linalg import constructors, inverse, products, summary
from pytensor.tensor.linalg.decomposition import cholesky, eigen, lu, qr, schur, svd
from pytensor.tensor.linalg.solvers import general, linear_control, lstsq, psd, triangular, tridiagonal

from tests.probes.probe import Probe, probe

RNG = np.random.default_rng(5)
FLOATS = ("float32", "float64")
FULL = RNG.uniform(-1, 1, (4, 4)) + 3 * np.eye(4)
SPD = FULL @ FULL.T
RHS = RNG.uniform(-1, 1, (4, 2))
SMALL = FULL / 20
_FACTORISE = tridiagonal.LUFactorTridiagonal()
_SOLVE = tridiagonal.SolveLUFactorTridiagonal(b_ndim=2, transposed=False)


def _signless(function):
    """Compare what does not depend on the signs that the eigenvectors got."""
    return lambda *inputs: [abs(x) for x in function(*inputs)]


def _values(x):
    """Compare the eigenvalues by their size, in order."""
    return pt.sort(abs(ptl.eig(x)[0]))


def _product(x):
    """Compare what the factors of a Schur form make up, and the eigenvalues by their size."""
    t, z = ptl.schur(x)
    return [z @ t @ pt.conj(z.mT), pt.sort(abs(pt.diag(t)))]


def _decompositions() -> Iterator[Probe]:
    for dtype in FLOATS:
        full, spd = FULL.astype(dtype), SPD.astype(dtype)
        yield probe(cholesky.Cholesky, ptl.cholesky, spd, variant=dtype)
        yield probe(eigen.Eig, _values, full, variant=dtype, rtol=1e-3)
        yield probe(eigen.Eigh, _signless(ptl.eigh), spd, variant=dtype, rtol=1e-3)
        yield probe(eigen.Eigvalsh, lambda x: ptl.eigvalsh(x, None), spd, variant=dtype)
        yield probe(lu.LU, lambda x: ptl.lu(x), full, variant=dtype)
        yield probe(lu.LUFactor, lambda x: ptl.lu_factor(x), full, variant=dtype)
        yield probe(qr.QR, lambda x: ptl.qr(x), full, variant=dtype)
        yield probe(schur.Schur, _product, spd, variant=dtype, rtol=1e-3)
        yield probe(schur.QZ, _signless(ptl.qz), full, full + spd, variant=dtype, rtol=1e-2)
        yield probe(svd.SVD, lambda x: ptl.svd(x, compute_uv=False), full, variant=dtype)
        yield probe(svd.SVD, _signless(ptl.svd), full, variant=f"vectors-{dtype}", rtol=1e-3)
    pivots = np.array([1, 2, 2, 3], dtype="int32")
    yield probe(lu.PivotToPermutations, lambda p: lu.pivot_to_permutation(p), pivots)


def _solvers() -> Iterator[Probe]:
    for dtype in FLOATS:
        full, spd, rhs = (x.astype(dtype) for x in (FULL, SPD, RHS))
        small, factor = SMALL.astype(dtype), np.linalg.cholesky(SPD).astype(dtype)
        yield probe(general.Solve, lambda a, b: ptl.solve(a, b), full, rhs, variant=dtype)
        yield probe(psd.CholeskySolve, lambda c, b: ptl.cho_solve((c, True), b, b_ndim=2), factor, rhs, variant=dtype)
        yield probe(
            triangular.SolveTriangular, lambda a, b: ptl.solve_triangular(a, b, lower=True), factor, rhs, variant=dtype
        )
        yield probe(lstsq.Lstsq, lambda a, b: lstsq.lstsq(a, b, -1.0)[0], full, rhs, variant=dtype)
        yield probe(
            lstsq.TensorSolve, lstsq.tensorsolve, full.reshape(2, 2, 2, 2), rhs[:, :1].reshape(2, 2), variant=dtype
        )
        yield probe(
            linear_control.SolveSylvester, linear_control.solve_sylvester, full, spd, full, variant=dtype, rtol=1e-3
        )
        yield probe(linear_control.TRSYL, linear_control.TRSYL(), np.triu(full), np.triu(spd), full, variant=dtype)
        yield probe(
            linear_control.SolveBilinearDiscreteLyapunov,
            lambda a, q: linear_control.solve_discrete_lyapunov(a, q, method="bilinear"),
            small,
            spd,
            variant=dtype,
            rtol=1e-3,
        )
        identity = np.eye(4, dtype=dtype)
        are = linear_control.solve_discrete_are
        yield probe(linear_control.SolveDiscreteARE, are, small, identity, identity, identity, variant=dtype, rtol=1e-2)
        low, middle, up = (RNG.uniform(0.1, 1, n).astype(dtype) for n in (3, 4, 3))
        bands = (low, middle + 3, up)
        yield probe(tridiagonal.LUFactorTridiagonal, _FACTORISE, *bands, variant=dtype)
        yield probe(
            tridiagonal.SolveLUFactorTridiagonal,
            lambda a, b, c, r: _SOLVE(*_FACTORISE(a, b, c), r),
            *bands,
            rhs,
            variant=dtype,
        )


def _products() -> Iterator[Probe]:
    for dtype in FLOATS:
        full, rhs = FULL.astype(dtype), RHS.astype(dtype)
        yield probe(inverse.MatrixInverse, ptl.inv, full, variant=dtype)
        yield probe(inverse.MatrixPinv, ptl.pinv, full, variant=dtype)
        yield probe(inverse.TensorInv, lambda x: ptl.tensorinv(x, ind=1), full.reshape(4, 2, 2), variant=dtype)
        yield probe(summary.Det, pt.linalg.det, full, variant=dtype)
        yield probe(summary.SLogDet, lambda x: ptl.slogdet(x), full, variant=dtype)
        yield probe(products.Expm, ptl.expm, full / 4, variant=dtype)
        yield probe(products.KroneckerProduct, ptl.kron, full, rhs, variant=dtype)
        yield probe(constructors.BlockDiagonal, lambda a, b: ptl.block_diag(a, b), full, rhs, variant=dtype)


def _complex() -> Iterator[Probe]:
    full, rhs = ((x + 1j * RNG.uniform(-1, 1, x.shape)).astype("complex64") for x in (FULL, RHS))
    spd = full @ full.conj().T
    factor = np.linalg.cholesky(spd)
    cases = (
        (cholesky.Cholesky, ptl.cholesky, spd),
        (eigen.Eigvalsh, lambda x: ptl.eigvalsh(x, None), spd),
        (eigen.Eig, _values, full),
        (lu.LU, lambda x: ptl.lu(x), full),
        (lu.LUFactor, lambda x: ptl.lu_factor(x), full),
        (qr.QR, lambda x: ptl.qr(x), full),
        (schur.Schur, _product, full),
        (linear_control.TRSYL, linear_control.TRSYL(), np.triu(full), np.triu(spd), full),
        (svd.SVD, lambda x: ptl.svd(x, compute_uv=False), full),
        (general.Solve, lambda a, b: ptl.solve(a, b), full, rhs),
        (psd.CholeskySolve, lambda c, b: ptl.cho_solve((c, True), b, b_ndim=2), factor, rhs),
        (triangular.SolveTriangular, lambda a, b: ptl.solve_triangular(a, b, lower=True), factor, rhs),
        (inverse.MatrixInverse, ptl.inv, full),
        (inverse.MatrixPinv, ptl.pinv, full),
        (products.Expm, ptl.expm, full / 4),
        (inverse.TensorInv, lambda x: ptl.tensorinv(x, ind=1), full.reshape(4, 2, 2)),
        (summary.Det, pt.linalg.det, full),
        (summary.SLogDet, lambda x: ptl.slogdet(x), full),
    )
    for case in cases:
        yield probe(*case, variant="complex64", rtol=1e-4)


PROBES = (*_decompositions(), *_solvers(), *_products(), *_complex())
