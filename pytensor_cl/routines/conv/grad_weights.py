"""Gradients of weights as products of x, copied to a matrix or read in place, with dy, which is transposed."""

from typing import NamedTuple

from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.conv.col2im import is_dense, positions_of
from pytensor_cl.routines.conv.limits import (
    GRAD_WEIGHTS_ADD_COST,
    GRAD_WEIGHTS_BLOCK_POSITIONS,
    GRAD_WEIGHTS_BLOCK_ROWS,
    GRAD_WEIGHTS_COPY_COST,
    GRAD_WEIGHTS_IN_PLACE_POSITIONS,
    GRAD_WEIGHTS_MAX_ELEMENTS,
    GRAD_WEIGHTS_MAX_FEATURES,
    GRAD_WEIGHTS_MAX_STEP,
    GRAD_WEIGHTS_MIN_POSITIONS,
    GRAD_WEIGHTS_TRANSPOSE_COST,
)
from pytensor_cl.routines.conv.plan import Problem, runs_of


class GradWeightsBlocks(NamedTuple):
    """Split of a problem: work-items along rows of x, features and positions, then the arguments of `encode`."""

    grid: tuple[int, int, int]
    rows: int
    columns: int
    row_length: int
    in_place: bool

    def workspace_size(self, lanes: int) -> int:
        """Return how many elements of the workspace a work-item needs."""
        return self.columns * self.row_length + (self.rows + lanes) * (self.columns + lanes)


def _is_plain(p: Problem) -> bool:
    """Return whether kernels have one tap, which goes over the image as it is."""
    *outer, last = p.axes
    single = all(a.out == a.taps == a.image == 1 for a in outer)
    return single and last[:4] == (last.image, 1, last.image, 1) and not last.pad and last.x == 1


def is_applicable(p: Problem, lanes: int) -> bool:
    """Return whether this method suits the gradient with respect to w of a simplified problem.

    Sums should be long, and their results fit in the cache: these are read and written for each block of positions.
    """
    last = p.axes[-1]
    pays = (
        p.columns >= GRAD_WEIGHTS_MIN_POSITIONS
        and p.m <= GRAD_WEIGHTS_MAX_FEATURES
        and p.m * p.depth <= GRAD_WEIGHTS_MAX_ELEMENTS
        and last.stride * last.x <= GRAD_WEIGHTS_MAX_STEP
    )
    is_contiguous = last.y == 1 and is_dense(p) and runs_of(p) == (p.depth, 1, 0)
    return pays and is_contiguous and min(p.depth, p.m) >= lanes


def split_blocks(p: Problem, lanes: int, items: int) -> GradWeightsBlocks:
    """Split a problem among at most `items` work-items, for the least work of the slowest one."""
    units, panels, blocks = p.depth // lanes, ceil_div(p.m, lanes), ceil_div(p.columns, GRAD_WEIGHTS_BLOCK_POSITIONS)
    in_place = _is_plain(p) and positions_of(p) >= GRAD_WEIGHTS_IN_PLACE_POSITIONS
    z = min(p.groups, items)

    def cost(grid: tuple[int, int, int]) -> float:
        x, y, parts = grid
        rows, features = ceil_div(units, x) * lanes, ceil_div(panels, y)
        unfolding = 0 if in_place else GRAD_WEIGHTS_COPY_COST * rows / lanes
        each = rows * features + GRAD_WEIGHTS_TRANSPOSE_COST * features + unfolding
        return (
            ceil_div(blocks, parts) * GRAD_WEIGHTS_BLOCK_POSITIONS * each
            + GRAD_WEIGHTS_ADD_COST * (parts > 1) * parts * units * p.m
        )

    left = ceil_div(items, z)
    grids = [(x, y) for x in range(1, min(left, units) + 1) for y in range(1, min(left // x, panels) + 1)]
    parts = [min(left // (x * y), blocks) if z == p.groups else 1 for x, y in grids]
    x, y, q = min(((*xy, q) for xy, most in zip(grids, parts, strict=True) for q in {1, most}), key=cost)
    wide = (ceil_div(panels, y) + 1) * lanes
    return GradWeightsBlocks(
        (x, y, z * q), min(GRAD_WEIGHTS_BLOCK_ROWS, p.depth), GRAD_WEIGHTS_BLOCK_POSITIONS, wide, in_place
    )
