"""Kernels of one's own: the exercises of PyTensor's tutorial on GPUs, with gradients, and a reduction.

Each kernel is tried on arrays and in a graph, and compared with NumPy.
"""

import argparse
import sys
from collections.abc import Callable, Sequence

import numpy as np
import pytensor
import pytensor.tensor as pt

import pytensor_cl
import pytensor_cl.array as xp

SEED = 4
TOLERANCE = 1e-5


def double(rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    """Double a matrix of any shape; return pairs of results and what NumPy computes."""
    kernel = pytensor_cl.ElementwiseKernel("T x", "T z", "z = 2 * x", "twice")
    twice = pytensor_cl.as_op(kernel, grad=lambda x, z, gz: [2 * gz])
    value = rng.normal(size=(20, 10)).astype("float32")
    x = pt.fmatrix("x")
    f = pytensor.function([x], [twice(x), pt.grad(twice(x).sum(), x)], mode="OPENCL")
    result, gradient = f(value)
    on_array = np.asarray(kernel(xp.asarray(value)))
    return [(on_array, 2 * value), (result, 2 * value), (gradient, np.full_like(value, 2))]


def product(rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    """Multiply two matrices element by element; the gradient is a kernel too, and ``exp`` is computed in the same."""
    kernel = pytensor_cl.ElementwiseKernel("T x, T y", "T z", "z = x * y", "product")
    slope = pytensor_cl.ElementwiseKernel("T x, T y, T gz", "T gx, T gy", "gx = gz * y; gy = gz * x", "product_grad")
    op = pytensor_cl.as_op(kernel, grad=slope)
    a, b = rng.normal(size=(2, 4, 6)).astype("float32")
    x, y = pt.fmatrices("xy")
    f = pytensor.function([x, y], pt.exp(op(x, y)), mode="OPENCL")
    print("  kernels of exp(product(x, y)):", *(node.op for node in pytensor_cl.explain(f).device_nodes))
    g = pytensor.function([x, y], pt.grad(op(x, y).sum(), [x, y]), mode="OPENCL")
    return [(f(a, b), np.exp(a * b)), *zip(g(a, b), (b, a), strict=True)]


def two_outputs(rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    """Compute a sum and a difference at once."""
    kernel = pytensor_cl.ElementwiseKernel("T x, T y", "T s, T d", "s = x + y; d = x - y", "sum_and_difference")
    op = pytensor_cl.as_op(kernel, grad=lambda x, y, s, d, gs, gd: [gs + gd, gs - gd])
    a, b = rng.normal(size=(2, 4, 6)).astype("float32")
    x, y = pt.fmatrices("xy")
    s, d = op(x, y)
    f = pytensor.function([x, y], [s, d, pt.grad((s * d).sum(), y)], mode="OPENCL")
    return list(zip(f(a, b), (a + b, a - b, -2 * b), strict=True))


def strides(rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    """Take arrays of any strides: an elementwise kernel does, and a raw kernel gets them as arguments."""
    kernel = pytensor_cl.ElementwiseKernel("T x", "T z", "z = 2 * x", "twice")
    value = rng.normal(size=(6, 8)).astype("float32")
    view = xp.asarray(value)[::-1, ::2].T
    code = """
    __kernel void twice(__global const float *x, long x0, long r, long c, __global float *z, long rows, long columns) {
        long j = get_global_id(0), i = get_global_id(1);
        if (i < rows && j < columns) z[i * columns + j] = 2 * x[x0 + i * r + j * c];
    }"""
    raw = pytensor_cl.RawKernel(code, "twice", strided=("x",))
    z = xp.empty(view.shape, dtype=xp.float32)
    raw(z.shape[::-1], None, (view, view.layout.offset, *view.layout.strides, z, *z.shape))
    expected = 2 * value[::-1, ::2].T
    return [(np.asarray(kernel(view)), expected), (np.asarray(z), expected)]


def reduction(rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    """Compute the norm of each row, with its gradient."""
    kernel = pytensor_cl.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "norm")
    op = pytensor_cl.as_op(kernel, grad=lambda x, y, gy: [gy * x / y])
    value = rng.normal(size=(5, 100)).astype("float32")
    expected = np.sqrt((value**2).sum(axis=1))
    x = pt.fmatrix("x")
    norm = op(x, axis=1)
    f = pytensor.function([x], [norm, pt.grad(norm.sum(), x)], mode="OPENCL")
    length, gradient = f(value)
    on_array = np.asarray(kernel(xp.asarray(value), axis=1))
    return [(on_array, expected), (length, expected), (gradient, value / expected[:, None])]


EXERCISES: tuple[Callable[[np.random.Generator], list[tuple[np.ndarray, np.ndarray]]], ...] = (
    double,
    product,
    two_outputs,
    strides,
    reduction,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the exercises; return 0 if all results are those of NumPy."""
    argparse.ArgumentParser(description=__doc__).parse_args(argv)
    rng = np.random.default_rng(SEED)
    worst = 0.0
    for exercise in EXERCISES:
        results = exercise(rng)
        difference = max(float(np.abs(got - expected).max()) for got, expected in results)
        worst = max(worst, difference)
        print(f"{exercise.__name__}: {len(results)} results, largest difference {difference:.1e}")
    return 0 if worst < TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
