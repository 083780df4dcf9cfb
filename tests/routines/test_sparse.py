"""Products with a matrix of compressed rows."""

from itertools import product

import numpy as np
import pytest
from scipy import sparse

from pytensor_cl.routines.base.routine import SCHEDULES
from pytensor_cl.routines.sparse import CsrDot, CsrSampledDot

schedules = pytest.mark.parametrize("schedule", SCHEDULES)


def random_matrix(rng, rows, columns, dtype, density=0.2):
    """With empty rows, and a full one."""
    dense = rng.integers(-4, 5, (rows, columns)) * (rng.random((rows, columns)) < density)
    if rows > 2:
        dense[1], dense[rows // 2] = 0, 3
    return sparse.csr_matrix(dense.astype(dtype))


def parts(context, matrix):
    indices = context.from_host(matrix.indices.astype("int32"))
    return context.from_host(matrix.data), indices, context.from_host(matrix.indptr.astype("int32"))


@schedules
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
def test_dot(context, rng, schedule, dtype):
    dot = CsrDot(context, dtype, schedule)
    shapes = (40, 33), (1, 7), (0, 3), (5, 0), (300, 500)
    for (rows, inner), columns in product(shapes, (None, 1, 5, 16, 150)):
        matrix = random_matrix(rng, rows, inner, dtype)
        dense = rng.integers(-5, 6, (inner,) if columns is None else (inner, columns)).astype(dtype)
        (got,) = dot(*parts(context, matrix), context.from_host(dense), np.int64(inner))
        dot.check()
        np.testing.assert_array_equal(np.asarray(got), (matrix @ dense).astype(dtype), strict=True)


@schedules
@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_sampled_dot(context, rng, schedule, dtype):
    dot = CsrSampledDot(context, dtype, schedule)
    for (rows, columns), depth in product(((40, 33), (1, 7), (3, 0), (200, 100)), (0, 1, 5, 16, 67)):
        matrix = random_matrix(rng, rows, columns, dtype)
        x, y = (rng.integers(-5, 6, (n, depth)).astype(dtype) for n in (rows, columns))
        _, indices, indptr = parts(context, matrix)
        (got,) = dot(indices, indptr, context.from_host(x), context.from_host(y))
        dot.check()
        row = np.repeat(np.arange(rows), np.diff(matrix.indptr))
        np.testing.assert_array_equal(np.asarray(got), (x @ y.T)[row, matrix.indices], strict=True)


@schedules
def test_views(context, rng, schedule):
    matrix = random_matrix(rng, 30, 20, "float32")
    dense = rng.normal(size=(9, 40)).astype("float32")
    data, indices, indptr = parts(context, matrix)
    (got,) = CsrDot(context, "float32", schedule)(
        data, indices, indptr, context.from_host(dense)[::-1, ::2].T, np.int64(20)
    )
    np.testing.assert_allclose(np.asarray(got), matrix @ dense[::-1, ::2].T, rtol=1e-5, atol=1e-5)


@schedules
def test_wrong_parts(context, schedule):
    one, two = context.from_host(np.ones(2, "float32")), context.from_host(np.array([0, 3], "int32"))
    ends, dense = context.from_host(np.array([0, 1, 2], "int32")), context.from_host(np.ones((2, 3), "float32"))
    dot = CsrDot(context, "float32", schedule)
    dot(one, two, ends, dense, np.int64(2))
    with pytest.raises(IndexError, match="column index 3 is out of bounds for size 2"):
        dot.check()
    far = context.from_host(np.array([0, 1, 9], "int32"))
    dot(one, context.from_host(np.zeros(2, "int32")), far, dense, np.int64(2))
    with pytest.raises(ValueError, match="ends at entry 9 of 2"):
        dot.check()
    with pytest.raises(ValueError, match="dimension mismatch"):
        dot(one, two, ends, dense, np.int64(5))
    with pytest.raises(ValueError, match="entries"):
        dot(one[:1], two, ends, dense, np.int64(2))
    with pytest.raises(ValueError, match="rows of the product"):
        CsrSampledDot(context, "float32", schedule)(two, ends, dense[:1], dense)
