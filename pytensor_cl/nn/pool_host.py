"""Pooling and its gradients in NumPy."""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.nn.windows import Window, padded, pool_positions, views


class Geometry(NamedTuple):
    """The parameters of pooling."""

    windows: tuple[Window, ...]
    ceil: bool

    def counts(self, lengths: Sequence[int]) -> tuple[int, ...]:
        """Return how many windows there are along each dimension."""
        return tuple(pool_positions(n, w, self.ceil) for n, w in zip(lengths, self.windows, strict=True))

    def pooled(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the output's shape."""
        leading = len(shape) - len(self.windows)
        return (*shape[:leading], *self.counts(shape[leading:]))


def _lowest(dtype: np.dtype) -> Any:
    """Return the lowest value of a dtype."""
    if dtype.kind == "b":
        return False
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def _seen(x: np.ndarray, g: Geometry, counts: Sequence[int], fill: Any) -> np.ndarray:
    """Return the elements of windows: (..., counts..., elements of a window)."""
    seen = views(padded(x, g.windows, counts, fill), g.windows, counts)
    return seen.reshape(*seen.shape[: x.ndim], -1)


def _chosen(x: np.ndarray, g: Geometry) -> tuple[np.ndarray, np.ndarray]:
    """Return the elements of windows, and the position of the first largest one in each; padding is never chosen."""
    counts = g.counts(x.shape[x.ndim - len(g.windows) :])
    inside = _seen(np.ones(x.shape, bool), g, counts, False)
    seen = _seen(x, g, counts, _lowest(x.dtype))
    best = seen.argmax(-1)
    # Where all elements are the lowest there is, padding may stand before them.
    is_padding = ~np.take_along_axis(inside, best[..., None], -1)[..., 0]
    return seen, np.where(is_padding, inside.argmax(-1), best)


def max_pool(x: np.ndarray, g: Geometry) -> np.ndarray:
    """Return the largest element of each window."""
    return max_gather(x, x, g)


def max_gather(x: np.ndarray, values: np.ndarray, g: Geometry) -> np.ndarray:
    """Return the element of `values` at the position of the first largest element of each window of x."""
    if values.shape != x.shape:
        raise ValueError(f"Shape mismatch: {values.shape} is not the shape {x.shape} that is pooled")
    shape = g.pooled(x.shape)
    if 0 in shape or 0 in x.shape:
        return np.empty(shape, values.dtype)
    _, best = _chosen(x, g)
    seen = _seen(values, g, shape[x.ndim - len(g.windows) :], 0)
    return np.take_along_axis(seen, best[..., None], -1)[..., 0]


def max_scatter(x: np.ndarray, dy: np.ndarray, g: Geometry) -> np.ndarray:
    """Add each element of dy to where the first largest element of its window of x is."""
    shape = g.pooled(x.shape)
    if dy.shape != shape:
        raise ValueError(f"Shape mismatch: the gradient of an output of shape {shape} has shape {dy.shape}")
    dx = np.zeros(x.shape, dy.dtype)
    if 0 in shape or 0 in x.shape:
        return dx
    _, best = _chosen(x, g)
    counts, leading = shape[x.ndim - len(g.windows) :], x.ndim - len(g.windows)
    image = padded(dx, g.windows, counts, 0)
    numbers = views(np.arange(prod(image.shape[leading:])).reshape(image.shape[leading:]), g.windows, counts)
    places = np.broadcast_to(numbers.reshape(*counts, -1), (*best.shape, numbers[(0,) * len(counts)].size))
    target = np.take_along_axis(places, best[..., None], -1)[..., 0].reshape(prod(x.shape[:leading]), -1)
    flat = image.reshape(prod(x.shape[:leading]), -1)
    np.add.at(flat, (np.arange(len(flat))[:, None], target), dy.reshape(target.shape))
    return _cropped(flat.reshape(image.shape), x.shape[leading:], g)


def _cropped(image: np.ndarray, lengths: Sequence[int], g: Geometry) -> np.ndarray:
    inside: list[Any] = [slice(w.before, w.before + n) for w, n in zip(g.windows, lengths, strict=True)]
    return np.ascontiguousarray(image[(..., *inside)])


def _divisors(lengths: Sequence[int], counts: Sequence[int], g: Geometry, inc_pad: bool) -> np.ndarray:
    """Return how many elements each window has: (counts...)."""
    total = np.ones((1,) * len(counts))
    for axis, (n, count, w) in enumerate(zip(lengths, counts, g.windows, strict=True)):
        start = np.arange(count) * w.stride - w.before
        low, high = (-w.before, n + w.after) if inc_pad else (0, n)
        many = np.minimum(start + w.extent, high) - np.maximum(start, low)
        total = total * many.reshape([-1 if a == axis else 1 for a in range(len(counts))])
    return total


def avg_pool(x: np.ndarray, g: Geometry, inc_pad: bool) -> np.ndarray:
    """Return the average of each window."""
    leading = x.ndim - len(g.windows)
    shape = g.pooled(x.shape)
    if 0 in shape:
        return np.empty(shape, x.dtype)
    sums = _seen(x, g, shape[leading:], 0).sum(-1)
    return (sums / _divisors(x.shape[leading:], shape[leading:], g, inc_pad)).astype(x.dtype)


def avg_grad(dy: np.ndarray, lengths: Sequence[int], g: Geometry, inc_pad: bool) -> np.ndarray:
    """Give each element of a window its share of the window's element of dy."""
    leading = dy.ndim - len(g.windows)
    shape = (*dy.shape[:leading], *lengths)
    counts = g.counts(lengths)
    if dy.shape[leading:] != counts:
        raise ValueError(f"Shape mismatch: the gradient of an output of shape {g.pooled(shape)} has shape {dy.shape}")
    dx = np.zeros(shape, dy.dtype)
    if 0 in dy.shape or 0 in shape:
        return dx
    share = (dy / _divisors(lengths, counts, g, inc_pad)).astype(dy.dtype)
    image = padded(dx, g.windows, counts, 0)
    for tap in np.ndindex(*(w.extent for w in g.windows)):
        dims = zip(tap, g.windows, counts, strict=True)
        at: list[Any] = [slice(t, t + (n - 1) * w.stride + 1, w.stride) for t, w, n in dims]
        image[(..., *at)] += share
    return _cropped(image, lengths, g)
