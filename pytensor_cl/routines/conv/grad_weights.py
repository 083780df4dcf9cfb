"""Gradients of weights as products of x, copied to a matrix or read in place, with dy, which is transposed."""

from typing import NamedTuple

from pytensor_cl.routines.conv.col2im import is_dense, positions_of
from pytensor_cl.routines.conv.plan import Problem, runs_of

__all__ = ["GradWeightsBlocks", "is_applicable", "split_blocks"]

_COLUMNS, _ROWS = 448, 96  # positions, and channels and taps, of a block
_MANY, _FEW, _LARGE = 512, 256, 1 << 18  # positions at least, features and elements of w at most
_STEP = 2  # distance of elements of x that vectors can be made of
_IN_PLACE = 256  # positions of an image that are read in place
_TRANSPOSING, _COPYING, _ADDING = 8, 6, 4  # cost of a vector, in multiply-adds of vectors


class GradWeightsBlocks(NamedTuple):
    """How a problem is split: work-items along rows of x, features and positions; then what `encode` takes."""

    grid: tuple[int, int, int]
    rows: int
    columns: int
    row_length: int
    in_place: bool

    def workspace_size(self, lanes: int) -> int:
        """Return how many elements of the workspace a work-item needs."""
        return self.columns * self.row_length + (self.rows + lanes) * (self.columns + lanes)


def _is_plain(p: Problem) -> bool:
    """Whether kernels have one tap, which goes over the image as it is."""
    *outer, last = p.axes
    single = all(a.out == a.taps == a.image == 1 for a in outer)
    return single and last[:4] == (last.image, 1, last.image, 1) and not last.pad and last.x == 1


def is_applicable(p: Problem, lanes: int) -> bool:
    """Whether this is the way to compute the gradient with respect to w of a simplified problem: the convolution.

    Sums should be long, and what they make stay in the cache: it is read and written for each block of positions.
    """
    last = p.axes[-1]
    pays = p.columns >= _MANY and p.m <= _FEW and p.m * p.depth <= _LARGE and last.stride * last.x <= _STEP
    is_contiguous = last.y == 1 and is_dense(p) and runs_of(p) == (p.depth, 1, 0)
    return pays and is_contiguous and min(p.depth, p.m) >= lanes


def split_blocks(p: Problem, lanes: int, items: int) -> GradWeightsBlocks:
    """Split a problem among at most so many work-items, for the least work of the slowest one."""
    units, panels, blocks = p.depth // lanes, -(-p.m // lanes), -(-p.columns // _COLUMNS)
    in_place = _is_plain(p) and positions_of(p) >= _IN_PLACE
    z = min(p.groups, items)

    def cost(grid: tuple[int, int, int]) -> float:
        x, y, parts = grid
        rows, features = -(-units // x) * lanes, -(-panels // y)
        unfolding = 0 if in_place else _COPYING * rows / lanes
        each = rows * features + _TRANSPOSING * features + unfolding
        return -(-blocks // parts) * _COLUMNS * each + _ADDING * (parts > 1) * parts * units * p.m

    left = -(-items // z)
    grids = [(x, y) for x in range(1, min(left, units) + 1) for y in range(1, min(left // x, panels) + 1)]
    parts = [min(left // (x * y), blocks) if z == p.groups else 1 for x, y in grids]
    x, y, q = min(((*xy, q) for xy, most in zip(grids, parts, strict=True) for q in {1, most}), key=cost)
    wide = (-(-panels // y) + 1) * lanes
    return GradWeightsBlocks((x, y, z * q), min(_ROWS, p.depth), _COLUMNS, wide, in_place)
