"""The measured workloads: each in NumPy's and in PyTensor's terms, with its least bytes and arithmetic."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

__all__ = ["WORKLOADS", "Workload"]

Arrays = list[np.ndarray]


class Workload(NamedTuple):
    """One thing to measure."""

    # name, family: for the tables
    name: str
    family: str
    # takes a random generator and a scale, returns the input arrays
    make: Callable[[np.random.Generator, float], Arrays]
    # takes a module like NumPy (``numpy`` or ``jax.numpy``) and the arrays, returns the result; None where there is
    # only `cost`
    numeric: Callable[..., Any]
    # takes PyTensor's module ``tensor`` and the variables, returns the result; None where it is that of `numeric`
    # written with PyTensor's functions
    graph: Callable[..., Any] | None = None
    cost: bool = False  # whether the result is a number whose gradients are computed too
    wanted: tuple[int, ...] = ()
    # nbytes, flops: take the inputs and the results; what cannot be avoided
    flops: Callable[[Arrays], float] = lambda inputs: 0.0
    tolerance: float = 1e-4  # relative to the largest element, against float64


def _normal(*shapes: tuple[int | str, ...]) -> Callable[[np.random.Generator, float], Arrays]:
    """Arrays of normal numbers; lengths that are written as text grow with the scale."""

    def length(n: int | str, scale: float) -> int:
        return max(1, round(int(n) * scale)) if isinstance(n, str) else n

    def make(rng: np.random.Generator, scale: float) -> Arrays:
        return [rng.normal(size=[length(n, scale) for n in shape]).astype("float32") for shape in shapes]

    return make


def _squares(n: int) -> Callable[[np.random.Generator, float], Arrays]:
    """Two square matrices; the number of elements grows with the scale."""

    def make(rng: np.random.Generator, scale: float) -> Arrays:
        m = max(1, round(n * scale**0.5))
        return [rng.normal(size=(m, m)).astype("float32") for _ in range(2)]

    return make


def _chain(xp: Any, x: Any) -> Any:
    return xp.exp(-x * x) * xp.tanh(x) + xp.log(1 + x * x) * xp.sin(x)


def _softmax(xp: Any, x: Any) -> Any:
    e = xp.exp(x - xp.max(x, axis=1, keepdims=True))
    return e / xp.sum(e, axis=1, keepdims=True)


def _logsumexp(xp: Any, x: Any) -> Any:
    m = xp.max(x, axis=1, keepdims=True)
    return xp.log(xp.sum(xp.exp(x - m), axis=1)) + m[:, 0]


def _layer_norm(xp: Any, x: Any, scale: Any, shift: Any) -> Any:
    centred = x - xp.mean(x, axis=1, keepdims=True)
    return centred / xp.sqrt(xp.mean(centred * centred, axis=1, keepdims=True) + 1e-5) * scale + shift


def _make_gather(rng: np.random.Generator, scale: float) -> Arrays:
    n = max(2, round(100_000 * scale))
    return [rng.normal(size=(n, 32)).astype("float32"), rng.integers(0, n, 4 * n)]


def _scatter(xp: Any, x: Any, i: Any) -> Any:
    if xp is np:
        out = np.zeros_like(x[: len(x) // 8])
        np.add.at(out, i, x)
        return out
    return xp.zeros_like(x[: x.shape[0] // 8]).at[i].add(x)


def _scatter_graph(pt: Any, x: Any, i: Any) -> Any:
    return pt.inc_subtensor(pt.zeros_like(x[: x.shape[0] // 8])[i], x)


def _make_scatter(rng: np.random.Generator, scale: float) -> Arrays:
    n = max(16, round(400_000 * scale))
    return [rng.normal(size=(n, 32)).astype("float32"), rng.integers(0, n // 8, n)]


def _logistic(xp: Any, x: Any, y: Any, w: Any) -> Any:
    z = xp.dot(x, w)
    return xp.sum(xp.log1p(xp.exp(-xp.abs(z))) + xp.maximum(z, 0) - y * z) + 0.5 * xp.sum(w * w)


def _make_logistic(rng: np.random.Generator, scale: float) -> Arrays:
    n = max(1, round(100_000 * scale))
    x = rng.normal(size=(n, 32)).astype("float32")
    return [x, (rng.random(n) < 0.5).astype("float32"), (0.1 * rng.normal(size=32)).astype("float32")]


def _mlp(xp: Any, x: Any, y: Any, w1: Any, b1: Any, w2: Any, b2: Any, w3: Any, b3: Any) -> Any:
    h = xp.maximum(xp.dot(x, w1) + b1, 0)
    h = xp.maximum(xp.dot(h, w2) + b2, 0)
    z = xp.dot(h, w3) + b3
    z = z - xp.max(z, axis=1, keepdims=True)
    return -xp.sum(y * (z - xp.log(xp.sum(xp.exp(z), axis=1, keepdims=True)))) / x.shape[0]


def _make_mlp(rng: np.random.Generator, scale: float) -> Arrays:
    batch = max(1, round(256 * scale))
    sizes = 784, 512, 256, 10
    arrays = [rng.normal(size=(batch, 784)), np.eye(10)[rng.integers(0, 10, batch)]]
    for rows, columns in pairwise(sizes):
        arrays += [rng.normal(size=(rows, columns)) / np.sqrt(rows), np.zeros(columns)]
    return [a.astype("float32") for a in arrays]


def _eight_schools(xp: Any, mu: Any, log_tau: Any, eta: Any) -> Any:
    effect, spread = _SCHOOLS
    z = (effect - (mu + xp.exp(log_tau) * eta)) / spread
    return -0.5 * (xp.sum(z * z) + xp.sum(eta * eta) + mu * mu / 25) - xp.log(1 + xp.exp(2 * log_tau) / 25) + log_tau


_SCHOOLS = (
    np.array([28, 8, -3, 7, -1, 1, 18, 12], "float32"),
    np.array([15, 10, 16, 11, 9, 11, 10, 18], "float32"),
)


def _make_schools(rng: np.random.Generator, scale: float) -> Arrays:
    return [np.asarray(rng.normal(size=n), "float32") for n in ((), (), 8)]


def _mixture(xp: Any, x: Any, mu: Any, log_sd: Any, weight: Any) -> Any:
    z = (x[:, None, :] - mu[None]) * xp.exp(-log_sd)[None]
    t = xp.sum(-0.5 * z * z - log_sd[None], axis=2) + weight[None]
    m = xp.max(t, axis=1, keepdims=True)
    return xp.sum(xp.log(xp.sum(xp.exp(t - m), axis=1)) + m[:, 0])


def _random_walk(xp: Any, y: Any, x: Any, log_sd: Any) -> Any:
    step = x[1:] - x[:-1]
    return -0.5 * (xp.sum(step * step) * xp.exp(-2 * log_sd) + xp.sum((y - x) ** 2)) - x.shape[0] * log_sd


def _bag(xp: Any, words: Any, table: Any, w: Any) -> Any:
    return xp.sum(xp.tanh(xp.dot(xp.mean(table[words], axis=1), w)) ** 2)


def _make_bag(rng: np.random.Generator, scale: float) -> Arrays:
    words = rng.integers(0, 5000, (max(1, round(10_000 * scale)), 20))
    return [words, *_normal((5000, 32), (32, 8))(rng, scale)]


def _slopes(xp: Any, group: Any, x: Any, y: Any, a: Any, b: Any, log_sd: Any) -> Any:
    z = (y - a[group] - b[group] * x) * xp.exp(-log_sd)
    return -0.5 * (xp.sum(z * z) + xp.sum(a * a) + xp.sum(b * b)) - x.shape[0] * log_sd


def _make_slopes(rng: np.random.Generator, scale: float) -> Arrays:
    n = max(1, round(300_000 * scale))
    return [rng.integers(0, 85, n), *_normal((n,), (n,), (85,), (85,), ())(rng, scale)]


def _product_flops(inputs: Arrays) -> float:
    a, b = inputs[0], inputs[1]
    return 2.0 * a.size * b.shape[-1]


def _times(count: float) -> Callable[[Arrays], float]:
    return lambda inputs: count * inputs[0].size


def _vector(n: int) -> tuple[str]:
    return (str(n),)


def _mlp_flops(inputs: Arrays) -> float:  # without the gradient of the images
    return 2.0 * len(inputs[0]) * (2 * 784 * 512 + 3 * 512 * 256 + 3 * 256 * 10)


def _dot(xp: Any, a: Any, b: Any) -> Any:
    return xp.dot(a, b)


ROWS = _normal(("16000", 1000))
LINE = _normal(_vector(16_000_000))
MLP = "network 784-512-256-10, gradient"

WORKLOADS = (
    Workload("add", "elementwise", _normal(*[_vector(16_000_000)] * 2), lambda xp, x, y: x + y),
    Workload("exp", "elementwise", LINE, lambda xp, x: xp.exp(x)),
    Workload("chain of transcendentals", "elementwise", _normal(_vector(4_000_000)), _chain),
    Workload("add transposed", "elementwise", _squares(2000), lambda xp, x, y: x + y.T),
    Workload("add row and column", "elementwise", _normal(("4000", 1), (1, 4000)), lambda xp, x, y: x + y),
    Workload("sum of all", "reduction", LINE, lambda xp, x: xp.sum(x)),
    Workload("sum of rows", "reduction", ROWS, lambda xp, x: xp.sum(x, axis=1)),
    Workload("sum of columns", "reduction", ROWS, lambda xp, x: xp.sum(x, axis=0)),
    Workload("softmax", "rows", _normal(("4096", 1000)), _softmax),
    Workload("logsumexp", "rows", _normal(("4096", 1000)), _logsumexp),
    Workload("layer norm", "rows", _normal(("4096", 1024), (1024,), (1024,)), _layer_norm),
    Workload("gemm 1024", "gemm", _squares(1024), _dot, flops=_product_flops),
    Workload("gemm 20000 x 64 x 64", "gemm", _normal(("20000", 64), (64, 64)), _dot, flops=_product_flops),
    Workload("gemv", "gemm", _normal(("4096", 4096), (4096,)), _dot, flops=_times(2)),
    Workload(
        "batched products",
        "gemm",
        _normal(*[("64", 128, 128)] * 2),
        lambda xp, a, b: xp.matmul(a, b),
        flops=_product_flops,
    ),
    Workload("transpose", "copies", _normal(("4000", 4000)), lambda xp, x: x.T + 0),
    Workload("gather rows", "indexing", _make_gather, lambda xp, x, i: x[i]),
    Workload("scatter-add rows", "indexing", _make_scatter, _scatter, _scatter_graph, tolerance=1e-3),
    Workload("prefix sum", "scans", LINE, lambda xp, x: xp.cumsum(x), tolerance=1e-2),
    Workload("argmax of rows", "scans", ROWS, lambda xp, x: xp.argmax(x, axis=1)),
    Workload("sort", "scans", _normal(_vector(4_000_000)), lambda xp, x: xp.sort(x)),
    Workload(
        "logistic regression, gradient",
        "models",
        _make_logistic,
        _logistic,
        None,
        True,
        (2,),
        lambda i: 4.0 * i[0].size,
    ),
    Workload(MLP, "models", _make_mlp, _mlp, None, True, (2, 3, 4, 5, 6, 7), _mlp_flops),
    Workload("eight schools, gradient", "models", _make_schools, _eight_schools, None, True, (0, 1, 2)),
    Workload(
        "mixture of 6, gradient",
        "models",
        _normal(("50000", 5), (6, 5), (6, 5), (6,)),
        _mixture,
        None,
        True,
        (1, 2, 3),
    ),
    Workload(
        "random walk, gradient",
        "models",
        _normal(_vector(1_000_000), _vector(1_000_000), ()),
        _random_walk,
        None,
        True,
        (1, 2),
    ),
    Workload("mean of looked up rows, gradient", "models", _make_bag, _bag, None, True, (1, 2)),
    Workload("varying slopes, gradient", "models", _make_slopes, _slopes, None, True, (3, 4, 5)),
)
