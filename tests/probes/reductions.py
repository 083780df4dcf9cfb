"""Reductions, argmax, cumulative sums, sorting and searching."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.tensor import extra_ops, math
from pytensor.tensor.elemwise import CAReduce
from pytensor.tensor.sort import ArgSortOp, SortOp

from tests.probes.probe import Probe, probe

RNG = np.random.default_rng(3)
X = RNG.uniform(0.5, 1.5, (3, 5, 2))
SIGNED = RNG.permutation(30).reshape(3, 5, 2) - 15.0
AXES = (None, 0, (1, 2))

_REDUCTIONS = {
    math.Sum: (pt.sum, ("float32", "float64", "float16", "int8", "int64", "uint8", "bool", "complex64")),
    math.Prod: (pt.prod, ("float32", "float64", "float16", "int8", "int64", "complex64")),
    math.Max: (pt.max, ("float32", "float64", "float16", "int8", "int64", "uint64", "bool")),
    math.Min: (pt.min, ("float32", "float64", "float16", "int8", "int64", "uint64", "bool")),
    math.All: (pt.all, ("bool", "float32")),
    math.Any: (pt.any, ("bool", "int32")),
    math.Argmax: (pt.argmax, ("float32", "float64", "float16", "int8", "int64", "bool")),
}
_BY_SCALAR = {"add": ps.add, "mul": ps.mul, "maximum": ps.maximum, "minimum": ps.minimum}
_BITWISE = {"and": ps.and_, "or": ps.or_, "xor": ps.xor}


def _over(function, axis):
    return lambda x: function(x, axis=axis)


def _reductions() -> Iterator[Probe]:
    for op, (function, dtypes) in _REDUCTIONS.items():
        source = X if op in (math.Sum, math.Prod) else SIGNED
        for dtype, axis in itertools.product(dtypes, AXES):
            if dtype in dtypes[:2] or axis is None:
                value = (abs(source) if dtype[0] == "u" else source).astype(dtype)
                rtol = 1e-2 if dtype == "float16" else 1e-4
                yield probe(op, _over(function, axis), value, variant=f"{dtype}-{axis}", rtol=rtol)
    for name, scalar_op in _BY_SCALAR.items():
        for dtype, axis in itertools.product(("float32", "int64"), ((0,), (1, 2))):
            yield probe(CAReduce, CAReduce(scalar_op, axis=axis), X.astype(dtype), variant=f"{name}-{dtype}-{axis}")
    for name, scalar_op in _BITWISE.items():
        for dtype in ("bool", "int32"):
            yield probe(CAReduce, CAReduce(scalar_op, axis=(1,)), SIGNED.astype(dtype), variant=f"{name}-{dtype}")
    for dtype in ("float32", "float64"):
        zeros = (X * (X > 0.7)).astype(dtype)
        yield probe(math.ProdWithoutZeros, math.ProdWithoutZeros(axis=(1,)), zeros, variant=dtype)


def _along() -> Iterator[Probe]:
    # Not int32: its cumulative sum is int32 in the graph, which the device keeps, and int64 once NumPy has made it.
    for dtype in ("float32", "float64", "int64", "float16"):
        for axis in (0, 1, None):
            variant = f"{dtype}-{axis}"
            loose = 1e-2 if dtype == "float16" else 1e-4
            yield probe(extra_ops.CumOp, _over(pt.cumsum, axis), X.astype(dtype), variant=f"sum-{variant}", rtol=loose)
            yield probe(
                extra_ops.CumOp, _over(pt.cumprod, axis), X.astype(dtype), variant=f"prod-{variant}", rtol=loose
            )
            yield probe(SortOp, _over(pt.sort, axis), SIGNED.astype(dtype), variant=variant)
            yield probe(ArgSortOp, _over(pt.argsort, axis), SIGNED.astype(dtype), variant=variant)
    for dtype in ("float32", "int64"):
        grid, found = np.arange(0, 20, 2).astype(dtype), RNG.integers(-2, 22, 7).astype(dtype)
        for side in ("left", "right"):
            variant = f"{dtype}-{side}"
            yield probe(
                extra_ops.SearchsortedOp, lambda g, v, s=side: pt.searchsorted(g, v, s), grid, found, variant=variant
            )
        doubles = RNG.integers(0, 6, 20).astype(dtype)
        yield probe(extra_ops.Unique, pt.unique, doubles, variant=dtype)
        everything = extra_ops.Unique(return_index=True, return_inverse=True, return_counts=True)
        yield probe(extra_ops.Unique, everything, doubles, variant=f"{dtype}-all")
        yield probe(extra_ops.Unique, extra_ops.Unique(axis=0), doubles.reshape(10, 2) // 2, variant=f"{dtype}-rows")


PROBES = (*_reductions(), *_along())
