"""How matrix products are shared out among the work-groups of a GPU."""

from math import prod
from typing import NamedTuple

import numpy as np

from pytensor_cl.runtime.device import DeviceInfo

__all__ = ["Blocks", "Shape", "blocks_of"]

# Width of the work-group and steps along k; the first that the device can run.
_GROUPS = ((16, 16), (8, 8), (4, 4), (2, 2), (1, 1))
_LARGE = 128  # width of a tile of kernels/gemm_simt_large.mako
_LARGE_STEP = 8
_LARGE_ITEMS = 256
_LARGE_BYTES = 2 * 2 * _LARGE_STEP * (_LARGE + 4) * 4  # of local memory
_PART = 256  # elements along k that are worth a work-group of their own
_GROUPS_PER_UNIT = 2  # work-groups per compute unit, where k is split


class Shape(NamedTuple):
    """What of a product matters here: sizes, and lengths of the batch dimensions."""

    m: int
    n: int
    k: int
    batch: tuple[int, ...]


class Blocks(NamedTuple):
    """A kernel, and how many parts there are of each sum.

    Attributes
    ----------
    template
        Of the kernel.
    group
        Work-items along each side of a work-group.
    step
        Elements along k between barriers.
    tile
        Elements along each side of what a work-group computes.
    splits
        Parts of the sums; each has work-groups of its own.
    """

    template: str
    group: int
    step: int
    tile: int
    splits: int = 1

    def tiles(self, m: int, n: int) -> int:
        """Return the number of tiles of a matrix."""
        return -(-m // self.tile) * -(-n // self.tile)

    @property
    def parameters(self) -> dict[str, int]:
        """What the template takes."""
        return {} if self.template == "gemm_simt_large" else {"group": self.group, "step": self.step}


_BLOCKS_OF_LARGE = Blocks("gemm_simt_large", 16, _LARGE_STEP, _LARGE)


def _general(info: DeviceInfo, dtype: np.dtype, widest: int) -> Blocks:
    """Return the largest work-group that the device can run, of those no wider than `widest`."""
    fits = (
        Blocks("gemm_simt", g, s, 4 * g)
        for g, s in _GROUPS
        if g <= widest
        and g * g <= info.max_work_group_size
        and 2 * s * (4 * g + 1) * dtype.itemsize <= info.local_memory
    )
    return next(fits)


def _can_be_large(info: DeviceInfo, dtype: np.dtype) -> bool:
    return dtype == np.float32 and info.max_work_group_size >= _LARGE_ITEMS and info.local_memory >= _LARGE_BYTES


def blocks_of(shape: Shape | None, info: DeviceInfo, dtype: np.dtype, widest: int) -> Blocks:
    """Choose the kernel and the parts of k for a product.

    Parameters
    ----------
    shape
        Of the product; None asks for the kernel that most products run.
    info
        The device.
    dtype
        Of the operands.
    widest
        Work-items along a side of a work-group, at most.
    """
    general = _general(info, dtype, widest)
    if shape is None:
        return general
    units, batches = info.compute_units, prod(shape.batch)
    if _can_be_large(info, dtype) and batches * _BLOCKS_OF_LARGE.tiles(shape.m, shape.n) >= units:
        return _BLOCKS_OF_LARGE
    groups = general.tiles(shape.m, shape.n)
    if shape.batch or groups >= units:
        return general
    return general._replace(splits=max(1, min(_GROUPS_PER_UNIT * units // groups, shape.k // _PART)))
