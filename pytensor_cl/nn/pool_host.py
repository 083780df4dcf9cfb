"""Pooling and its gradients in NumPy."""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.basic import Variable

from pytensor_cl.integers import ceil_div
from pytensor_cl.nn.windows import Window, padded, pool_positions, views


class Sliding(NamedTuple):
    """Windows of one length, a step apart. `ceil`: whether the last may reach out of the padded input."""

    windows: tuple[Window, ...]
    ceil: bool = False

    def __str__(self) -> str:
        columns = [column[0] if len(set(column)) == 1 else column for column in zip(*self.windows, strict=True)]
        names = {name: value for name, value in zip(Window._fields, columns, strict=True) if value != PLAIN[name]}
        text = ", ".join(f"{name}={value}" for name, value in names.items())
        return f"{text}, ceil" if self.ceil else text

    def counts(self, lengths: Sequence[Any]) -> tuple[Any, ...]:
        """Return how many windows there are along each dimension; lengths may be symbolic."""
        return tuple(pool_positions(n, w, self.ceil) for n, w in zip(lengths, self.windows, strict=True))

    def sizes(self, d: int, length: int, count: int, inc_pad: bool) -> np.ndarray:
        """Return how many elements each window has along dimension d."""
        w = self.windows[d]
        taps = (np.arange(count) * w.stride - w.before)[:, None] + np.arange(w.extent) * w.dilation
        low, high = (-w.before, length + w.after) if inc_pad else (0, length)
        result: np.ndarray = ((taps >= low) & (taps < high)).sum(1)
        return result


PLAIN = {"extent": None, "stride": None, "dilation": 1, "before": 0, "after": 0}
"""Values of arguments that a text on windows leaves out."""


class Bins(NamedTuple):
    """So many windows along each dimension: number i of m has elements floor(i n / m) to ceil((i + 1) n / m)."""

    numbers: tuple[int, ...]

    def __str__(self) -> str:
        return f"bins={self.numbers}"

    @property
    def windows(self) -> tuple[int, ...]:
        """One entry for each dimension."""
        return self.numbers

    def counts(self, lengths: Sequence[Any]) -> tuple[Any, ...]:
        """Return how many windows there are along each dimension.

        Raises `ValueError`: there is nothing to pool.
        """
        if any(not isinstance(n, Variable) and n == 0 for n in lengths):
            raise ValueError(f"adaptive pooling of nothing: the pooled dimensions have the lengths {tuple(lengths)}")
        return self.numbers

    def sizes(self, d: int, length: int, count: int, inc_pad: bool) -> np.ndarray:
        """Return how many elements each window has along dimension d."""
        return np.array([ceil_div((i + 1) * length, count) - i * length // count for i in range(count)])

    def slices(self, lengths: Sequence[int]) -> Iterator[tuple[Any, Any]]:
        """Yield for each window its number, and where its elements are."""
        for at in np.ndindex(*self.numbers):
            dims = zip(at, lengths, self.numbers, strict=True)
            yield at, tuple(slice(i * n // m, ceil_div((i + 1) * n, m)) for i, n, m in dims)


Geometry = Sliding | Bins


def pooled(shape: Sequence[Any], g: Geometry) -> tuple[Any, ...]:
    """Return the output's shape, which may be symbolic."""
    leading = len(shape) - len(g.windows)
    return (*shape[:leading], *g.counts(shape[leading:]))


def _lowest(dtype: np.dtype) -> Any:
    """Return the lowest value of a dtype."""
    if dtype.kind == "b":
        return False
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def _seen(x: np.ndarray, g: Sliding, counts: Sequence[int], fill: Any) -> np.ndarray:
    """Return the elements of windows: (..., counts..., elements of a window)."""
    seen = views(padded(x, g.windows, counts, fill), g.windows, counts)
    return seen.reshape(*seen.shape[: x.ndim], -1)


def _chosen(x: np.ndarray, g: Geometry) -> np.ndarray:
    """Return the number in its plane of the first largest element of each window; -1 if a window has no element."""
    leading = x.ndim - len(g.windows)
    lengths = x.shape[leading:]
    counts = g.counts(lengths)
    best = np.empty((*x.shape[:leading], *counts), np.int64)
    if isinstance(g, Bins):
        for at, where in g.slices(lengths):
            seen = x[(..., *where)]
            place: Any = np.unravel_index(seen.reshape(*x.shape[:leading], -1).argmax(-1), seen.shape[leading:])
            places = tuple(t + s.start for t, s in zip(place, where, strict=True))
            best[(..., *at)] = np.ravel_multi_index(places, lengths)
        return best
    inside = _seen(np.ones(x.shape, bool), g, counts, False)
    first = _seen(x, g, counts, _lowest(x.dtype)).argmax(-1)
    # Where all elements are the lowest there is, padding may stand before them.
    is_padding = ~np.take_along_axis(inside, first[..., None], -1)[..., 0]
    taps = np.unravel_index(np.where(is_padding, inside.argmax(-1), first), [w.extent for w in g.windows])
    best[...] = 0
    for axis, (tap, w, n, count) in enumerate(zip(taps, g.windows, lengths, counts, strict=True)):
        start = (np.arange(count) * w.stride - w.before).reshape(-1, *(1,) * (len(counts) - axis - 1))
        best = best * n + start + tap * w.dilation
    return np.where(inside.any(-1), best, -1)


def max_pool(x: np.ndarray, g: Geometry) -> np.ndarray:
    """Return the largest element of each window; the lowest value that there is for a window without elements."""
    return _gathered(x, x, g, _lowest(x.dtype))


def max_indices(x: np.ndarray, g: Geometry) -> np.ndarray:
    """Return the number in its plane of the first largest element of each window."""
    shape = pooled(x.shape, g)
    return np.empty(shape, np.int64) if 0 in shape or 0 in x.shape else _chosen(x, g)


def max_gather(x: np.ndarray, values: np.ndarray, g: Geometry) -> np.ndarray:
    """Return the element of `values` at the position of the first largest element of each window of x."""
    return _gathered(x, values, g, 0)


def _gathered(x: np.ndarray, values: np.ndarray, g: Geometry, otherwise: Any) -> np.ndarray:
    if values.shape != x.shape:
        raise ValueError(f"Shape mismatch: {values.shape} is not the shape {x.shape} that is pooled")
    shape = pooled(x.shape, g)
    if 0 in shape or 0 in x.shape:
        return np.empty(shape, values.dtype)
    best, leading = _chosen(x, g), x.ndim - len(g.windows)
    flat = np.take_along_axis(values.reshape(*x.shape[:leading], -1), best.reshape(*x.shape[:leading], -1), -1)
    return np.where(best < 0, values.dtype.type(otherwise), flat.reshape(shape))


def max_scatter(x: np.ndarray, dy: np.ndarray, g: Geometry) -> np.ndarray:
    """Add each element of dy to where the first largest element of its window of x is."""
    shape = _check_gradient(x.shape, dy.shape, g)
    dx = np.zeros(x.shape, dy.dtype)
    if 0 in shape or 0 in x.shape:
        return dx
    best, planes = _chosen(x, g), prod(x.shape[: x.ndim - len(g.windows)])
    target = best.reshape(planes, -1)
    given = np.where(target < 0, dy.dtype.type(0), dy.reshape(target.shape))
    np.add.at(dx.reshape(planes, -1), (np.arange(planes)[:, None], target), given)
    return dx


def _check_gradient(shape: Sequence[int], dy: Sequence[int], g: Geometry) -> tuple[int, ...]:
    """Return the shape of the output; refuse a gradient of another one."""
    expected = pooled(shape, g)
    if tuple(dy) != expected:
        raise ValueError(f"Shape mismatch: the gradient of an output of shape {expected} has shape {tuple(dy)}")
    return expected


def _divisors(lengths: Sequence[int], counts: Sequence[int], g: Geometry, mode: str) -> np.ndarray | None:
    """Return how many elements each window has, at least one: (counts...); None for sums."""
    if mode == "sum":
        return None
    total = np.ones((1,) * len(counts))
    for d, (n, count) in enumerate(zip(lengths, counts, strict=True)):
        sizes = g.sizes(d, n, count, mode == "average_inc_pad")
        total = total * sizes.reshape([-1 if axis == d else 1 for axis in range(len(counts))])
    return np.maximum(total, 1)


def sum_pool(x: np.ndarray, g: Geometry, mode: str) -> np.ndarray:
    """Return the sum of each window, or its average."""
    leading = x.ndim - len(g.windows)
    shape = pooled(x.shape, g)
    if 0 in shape:
        return np.empty(shape, x.dtype)
    if isinstance(g, Bins):
        sums = np.empty(shape, x.dtype)
        for at, inside in g.slices(x.shape[leading:]):
            sums[(..., *at)] = x[(..., *inside)].sum(tuple(range(leading, x.ndim)), dtype=x.dtype)
    else:
        sums = _seen(x, g, shape[leading:], 0).sum(-1, dtype=x.dtype)
    divisors = _divisors(x.shape[leading:], shape[leading:], g, mode)
    return sums if divisors is None else (sums / divisors).astype(x.dtype)


def sum_grad(dy: np.ndarray, lengths: Sequence[int], g: Geometry, mode: str) -> np.ndarray:
    """Give each element of a window its share of the window's element of dy."""
    leading = dy.ndim - len(g.windows)
    shape = (*dy.shape[:leading], *lengths)
    counts = _check_gradient(shape, dy.shape, g)[leading:]
    dx = np.zeros(shape, dy.dtype)
    if 0 in dy.shape or 0 in shape:
        return dx
    divisors = _divisors(lengths, counts, g, mode)
    share = dy if divisors is None else (dy / divisors).astype(dy.dtype)
    if isinstance(g, Bins):
        for number, inside in g.slices(lengths):
            dx[(..., *inside)] += share[(..., *number)].reshape(*dy.shape[:leading], *(1,) * len(counts))
        return dx
    image = padded(dx, g.windows, counts, 0)
    for tap in np.ndindex(*(w.extent for w in g.windows)):
        dims = zip(tap, g.windows, counts, strict=True)
        at: list[Any] = [slice(t * w.dilation, t * w.dilation + (n - 1) * w.stride + 1, w.stride) for t, w, n in dims]
        image[(..., *at)] += share
    middle: list[Any] = [slice(w.before, w.before + n) for w, n in zip(g.windows, lengths, strict=True)]
    return np.ascontiguousarray(image[(..., *middle)])
