"""XTensor: arrays with named dimensions. PyTensor rewrites these Ops to those of tensors."""

import numpy as np
import pytensor.scalar as ps
import pytensor.xtensor as px
from pytensor.tensor.linalg.inverse import MatrixInverse
from pytensor.xtensor import basic, indexing, math, reduction, shape, vectorization
from pytensor.xtensor.random import type as random_type

from tests.probes.probe import probe

X = np.arange(12, dtype="float32").reshape(3, 4) / 7 + 1
SQUARE = np.eye(3, dtype="float32") * 2 + 0.1
ROWS = np.array([2, 0, 1])


def _x(function, dims=("a", "b")):
    """Name the dimensions of the input, and return the result without names."""
    return lambda x, *more: basic.tensor_from_xtensor(function(px.as_xtensor(x, dims=dims), *more))


def _both(function):
    return lambda x, y: basic.tensor_from_xtensor(
        function(px.as_xtensor(x, dims=("a", "b")), px.as_xtensor(y, dims=("b", "c")))
    )


PROBES = (
    probe(basic.TensorFromXTensor, _x(lambda x: x + 1), X),
    probe(basic.XTensorFromTensor, _x(lambda x: x * 2), X),
    probe(basic.Rename, _x(lambda x: x.rename(a="c") + 1), X),
    probe(indexing.Index, _x(lambda x: x.isel(a=slice(1, 3))), X, variant="slice"),
    probe(indexing.Index, _x(lambda x, i: x.isel(a=i)), X, ROWS, variant="vector"),
    probe(indexing.IndexUpdate, _x(lambda x: x.isel(a=1).set(3)), X, variant="set"),
    probe(indexing.IndexUpdate, _x(lambda x: x.isel(a=1).inc(3)), X, variant="inc"),
    probe(math.Dot, _both(lambda x, y: x.dot(y)), X, X.T.copy()),
    probe(reduction.XReduce, _x(lambda x: x.sum("a")), X, variant="sum"),
    probe(reduction.XReduce, _x(lambda x: x.max()), X, variant="max"),
    probe(reduction.XCumReduce, _x(lambda x: x.cumsum("b")), X),
    probe(shape.Stack, _x(lambda x: shape.stack(x, c=("a", "b"))), X),
    probe(shape.UnStack, _x(lambda x: shape.unstack(x, a={"c": 3, "d": 1})), X),
    probe(shape.Transpose, _x(lambda x: x.transpose("b", "a") + 1), X),
    probe(shape.Concat, _x(lambda x: px.concat([x, x + 1], dim="a")), X),
    probe(shape.Squeeze, _x(lambda x: x.isel(a=slice(0, 1)).squeeze("a") * 2), X),
    probe(shape.ExpandDims, _x(lambda x: x.expand_dims("c") * 2), X),
    probe(shape.Broadcast, _both(lambda x, y: px.broadcast(x, y)[0] * 2), X, X.T.copy()),
    probe(vectorization.XElemwise, _both(lambda x, y: vectorization.XElemwise(ps.add)(x, y)), X, X.T.copy()),
    probe(
        vectorization.XBlockwise,
        _x(vectorization.XBlockwise(MatrixInverse(), core_dims=((("a", "b"),), (("a", "b"),)))),
        SQUARE,
    ),
    probe(
        vectorization.XRV,
        lambda rng: basic.tensor_from_xtensor(random_type.rng_to_xrng(rng).normal(0, 1, extra_dims={"a": 3})[1]),
        np.random.default_rng(1),
        compare="types",
    ),
    probe(
        random_type.RNGToXRNG,
        lambda rng: basic.tensor_from_xtensor(random_type.rng_to_xrng(rng).uniform(0, 1, extra_dims={"a": 3})[1]),
        np.random.default_rng(1),
        compare="types",
    ),
    probe(
        random_type.XRNGToRNG,
        lambda rng: random_type.xrng_to_rng(random_type.rng_to_xrng(rng)).normal(size=(3,))[1],
        np.random.default_rng(1),
        compare="types",
    ),
)
