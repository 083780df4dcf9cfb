"""Convolutions and their gradients in NumPy: windows side by side, and one matrix product per group."""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.nn.windows import Pads, Window, padded, positions, resolve, views


class Geometry(NamedTuple):
    """The parameters of a convolution; see `pytensor_cl.nn.conv`. Integers may be symbolic in a graph."""

    strides: tuple[Any, ...]
    dilation: tuple[Any, ...]
    groups: Any
    padding: Pads
    flip: bool

    def windows(self, extents: Sequence[int]) -> list[Window]:
        """Return the window per dimension of kernels of spatial shape `extents`."""
        return [
            Window(k, s, d, *resolve(p, k, d))
            for k, s, d, p in zip(extents, self.strides, self.dilation, self.padding, strict=True)
        ]

    def counts(self, lengths: Sequence[int], extents: Sequence[int]) -> tuple[int, ...]:
        """Return the spatial shape of the output."""
        return tuple(positions(n, w) for n, w in zip(lengths, self.windows(extents), strict=True))

    def oriented(self, w: np.ndarray) -> np.ndarray:
        """Return the filters in the orientation of the input."""
        return np.flip(w, tuple(range(2, w.ndim))) if self.flip else w

    def check_parameters(self) -> None:
        """Refuse parameters that make no sense.

        Raises `ValueError`: there are some.
        """
        for name, values in (("subsample", self.strides), ("filter_dilation", self.dilation)):
            if min(values) < 1:
                raise ValueError(f"{name} of a convolution must be positive, not {values}")
        if self.groups < 1:
            raise ValueError("an empty batch of convolutions with filters of their own is not supported")
        if any(min(pad) < 0 for pad in self.padding if not isinstance(pad, str)):
            raise ValueError(f"border_mode of a convolution must not be negative, not {self.padding}")

    def check(self, x: Sequence[int], w: Sequence[int]) -> None:
        """Refuse shapes that do not fit together.

        Raises `ValueError`: they do not.
        """
        self.check_parameters()
        if any(n < 0 for n in x):
            raise ValueError(f"the padding of a transposed convolution is longer than its result, of shape {tuple(x)}")
        if len(x) != len(w) or x[1] != w[1] * self.groups or w[0] % self.groups:
            raise ValueError(
                f"Shape mismatch: input of shape {tuple(x)}, kernels of shape {tuple(w)}, {self.groups} group(s)"
            )

    def check_output(self, x: Sequence[int], w: Sequence[int], dy: Sequence[int]) -> tuple[int, ...]:
        """Return the spatial shape of the output; refuse a gradient of another shape.

        Raises `ValueError`: the shapes do not fit together.
        """
        self.check(x, w)
        counts = self.counts(x[2:], w[2:])
        expected = (x[0], w[0], *counts)
        if tuple(dy) != expected:
            raise ValueError(f"Shape mismatch: the gradient of an output of shape {expected} has shape {tuple(dy)}")
        return counts


def _columns(x: np.ndarray, g: Geometry, extents: Sequence[int], counts: Sequence[int]) -> np.ndarray:
    """Return the elements of the windows: (groups, N * positions, C / groups * extents)."""
    windows = g.windows(extents)
    seen = views(padded(x, windows, counts, 0), windows, counts)
    ndim = len(windows)
    split = seen.reshape(x.shape[0], g.groups, x.shape[1] // g.groups, *seen.shape[2:])
    places, inside = range(3, 3 + ndim), range(3 + ndim, 3 + 2 * ndim)
    return split.transpose(1, 0, *places, 2, *inside).reshape(
        g.groups, x.shape[0] * prod(counts), x.shape[1] // g.groups * prod(extents)
    )


def _grouped(dy: np.ndarray, groups: int) -> np.ndarray:
    """Return (N, O, ...) as (groups, N * places, O / groups)."""
    split = dy.reshape(dy.shape[0], groups, dy.shape[1] // groups, -1)
    return split.transpose(1, 0, 3, 2).reshape(groups, -1, dy.shape[1] // groups)


def conv(x: np.ndarray, w: np.ndarray, g: Geometry) -> np.ndarray:
    """Convolve x (N, C, ...) with w (O, C / groups, ...) to (N, O, ...)."""
    g.check(x.shape, w.shape)
    counts = g.counts(x.shape[2:], w.shape[2:])
    shape = (x.shape[0], w.shape[0], *counts)
    if 0 in shape or 0 in w.shape:
        return np.zeros(shape, np.result_type(x, w))
    kernels = g.oriented(w).reshape(g.groups, w.shape[0] // g.groups, -1)
    product = _columns(x, g, w.shape[2:], counts) @ kernels.transpose(0, 2, 1)
    split = product.reshape(g.groups, x.shape[0], *counts, -1)
    return np.ascontiguousarray(np.moveaxis(split, (0, -1), (1, 2)).reshape(shape))


def conv_grad_weight(x: np.ndarray, dy: np.ndarray, extents: Sequence[int], g: Geometry) -> np.ndarray:
    """Return the gradient for the kernels: x (N, C, ...) and dy (N, O, ...) to (O, C / groups, *extents)."""
    g.check_parameters()
    if x.shape[1] % g.groups:
        raise ValueError(f"Shape mismatch: input of shape {x.shape}, {g.groups} group(s)")
    shape = (dy.shape[1], x.shape[1] // g.groups, *extents)
    counts = g.check_output(x.shape, shape, dy.shape)
    if 0 in dy.shape or 0 in shape:
        return np.zeros(shape, np.result_type(x, dy))
    product = _grouped(dy, g.groups).transpose(0, 2, 1) @ _columns(x, g, extents, counts)
    return np.ascontiguousarray(g.oriented(product.reshape(shape)))


def conv_grad_input(w: np.ndarray, dy: np.ndarray, lengths: Sequence[int], g: Geometry) -> np.ndarray:
    """Return the gradient for the input: w (O, C / groups, ...) and dy (N, O, ...) to (N, C, *lengths)."""
    shape = (dy.shape[0], w.shape[1] * g.groups, *lengths)
    counts = g.check_output(shape, w.shape, dy.shape)
    dx = np.zeros(shape, np.result_type(w, dy))
    if 0 in dy.shape or 0 in w.shape or 0 in shape:
        return dx
    kernels = g.oriented(w).reshape(g.groups, w.shape[0] // g.groups, -1)
    product = (_grouped(dy, g.groups) @ kernels).reshape(g.groups, shape[0], *counts, w.shape[1], *w.shape[2:])
    windows, ndim = g.windows(w.shape[2:]), len(lengths)
    # Each tap of the kernels updates a strided slice of the padded gradient; no slice has an element twice.
    image = padded(dx, windows, counts, 0)
    target = image.reshape(shape[0], g.groups, w.shape[1], *image.shape[2:])
    for tap in np.ndindex(*w.shape[2:]):
        at = tuple(
            slice(t * v.dilation, t * v.dilation + (n - 1) * v.stride + 1, v.stride)
            for t, v, n in zip(tap, windows, counts, strict=True)
        )
        part = np.moveaxis(product[(..., *tap)], (0, -1), (1, 2))
        target[(slice(None), slice(None), slice(None), *at)] += part
    inside = tuple(slice(v.before, v.before + n) for v, n in zip(windows, lengths, strict=True))
    assert len(inside) == ndim
    return np.ascontiguousarray(target.reshape(image.shape)[(slice(None), slice(None), *inside)])
