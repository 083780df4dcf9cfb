"""A layered layout of a directed acyclic graph, after Sugiyama: layers, order within layers, coordinates.

Edges go down. Each one that spans several layers is a chain of points, one in each layer between. The result depends on
the graph alone. `draw.js` has the same steps for graphs whose parts the reader folds.
"""

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

GAP_X = 26.0  # between boxes of a layer
GAP_POINT = 12.0  # beside a point of an edge
GAP_Y = 44.0  # between layers
SWEEPS, FEW = 12, 4  # passes over the layers that reorder them, and passes that move boxes: of small and large graphs
LARGE = 4000  # boxes and points of a large graph
EXACT = 3000  # edges up to which crossings are counted and the best order is kept


class Layout(NamedTuple):
    """The result: the centre of each box, the points between the ends of each edge, and the size of the whole."""

    centres: list[tuple[float, float]]
    bends: list[list[tuple[float, float]]]
    width: float
    height: float


def _layers(count: int, edges: Sequence[tuple[int, int]], floors: Sequence[int]) -> list[int]:
    """Return the layer of each node: below its sources, and all nodes of one floor below those of lower floors.

    Nodes without sources come just above their first target.
    """
    sources, targets = defaultdict(list), defaultdict(list)
    for a, b in edges:
        sources[b].append(a)
        targets[a].append(b)
    layer = [0] * count
    order = _topological(count, sources, targets)
    start = 0
    for floor in sorted(set(floors)):
        members = [n for n in order if floors[n] == floor]
        for n in members:
            layer[n] = max([start, *(layer[a] + 1 for a in sources[n])])
        start = max((layer[n] for n in members), default=start - 1) + 1
    for n in reversed(order):
        if not sources[n] and targets[n]:
            layer[n] = min(layer[b] for b in targets[n]) - 1
    used = {old: new for new, old in enumerate(sorted(set(layer)))}
    return [used[k] for k in layer]


def _topological(count: int, sources: dict[int, list[int]], targets: dict[int, list[int]]) -> list[int]:
    waiting = [len(sources[n]) for n in range(count)]
    ready = [n for n in range(count) if not waiting[n]]
    order = []
    while ready:
        n = ready.pop(0)
        order.append(n)
        for b in targets[n]:
            waiting[b] -= 1
            if not waiting[b]:
                insort(ready, b)
    return order


def _crossings(rows: Sequence[Sequence[int]], below: dict[int, list[int]]) -> int:
    """Return the number of crossings of the edges between adjacent layers."""
    total = 0
    for upper, lower in pairwise(rows):
        at = {n: k for k, n in enumerate(lower)}
        seen: list[int] = []
        for n in upper:
            ends = sorted(at[b] for b in below[n])
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total


def _sweeps(rows: Sequence[Sequence[int]]) -> int:
    return SWEEPS if sum(map(len, rows)) <= LARGE else FEW


def _ordered(rows: list[list[int]], above: dict[int, list[int]], below: dict[int, list[int]]) -> list[list[int]]:
    """Order the items of each layer by the mean position of their neighbours, downwards and upwards by turns."""
    count_them = sum(map(len, below.values())) <= EXACT
    best, least = [list(row) for row in rows], _crossings(rows, below) if count_them else 0
    for sweep in range(_sweeps(rows)):
        down = sweep % 2 == 0
        neighbours = above if down else below
        for k in range(1, len(rows)) if down else range(len(rows) - 2, -1, -1):
            fixed = rows[k - 1 if down else k + 1]
            at = {n: (i + 0.5) / len(fixed) for i, n in enumerate(fixed)}
            own = {n: (i + 0.5) / len(rows[k]) for i, n in enumerate(rows[k])}
            mean = {n: sum(at[m] for m in neighbours[n]) / len(neighbours[n]) for n in rows[k] if neighbours[n]}
            rows[k].sort(key=lambda n: (mean.get(n, own[n]), own[n]))
        crossings = _crossings(rows, below) if count_them else -sweep
        if crossings < least:
            best, least = [list(row) for row in rows], crossings
    return best


def _packed(wanted: Sequence[float], gaps: Sequence[float]) -> list[float]:
    """Return the positions closest to the wanted ones, by least squares, with these gaps or larger ones."""
    offsets = [0.0]
    for gap in gaps:
        offsets.append(offsets[-1] + gap)
    blocks: list[tuple[float, int]] = []  # mean and number of items
    for want, offset in zip(wanted, offsets, strict=True):
        mean, size = want - offset, 1
        while blocks and blocks[-1][0] >= mean:
            before, length = blocks.pop()
            mean, size = (before * length + mean * size) / (length + size), length + size
        blocks.append((mean, size))
    flat = [mean for mean, size in blocks for _ in range(size)]
    return [mean + offset for mean, offset in zip(flat, offsets, strict=True)]


def _columns(
    rows: Sequence[Sequence[int]], widths: Sequence[float], above: dict[int, list[int]], below: dict[int, list[int]]
) -> list[float]:
    """Return the x of each item."""
    x = [0.0] * len(widths)
    gaps = []
    for row in rows:
        between = [
            (widths[a] + widths[b]) / 2 + (GAP_X if widths[a] and widths[b] else GAP_POINT) for a, b in pairwise(row)
        ]
        gaps.append(between)
        left = -sum(between) / 2
        for n, step in zip(row, [0.0, *between], strict=True):
            left += step
            x[n] = left
    for sweep in range(_sweeps(rows)):
        down = sweep % 2 == 0
        for k in range(len(rows)) if down else range(len(rows) - 1, -1, -1):
            wanted = []
            for n in rows[k]:
                near = (above if down else below)[n] or below[n] or above[n]
                wanted.append(sum(x[m] for m in near) / len(near) if near else x[n])
            for n, at in zip(rows[k], _packed(wanted, gaps[k]), strict=True):
                x[n] = at
    return x


def layout(
    sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]], floors: Sequence[int] | None = None
) -> Layout:
    """Place boxes.

    Parameters
    ----------
    sizes
        Width and height of each box.
    edges
        Pairs of boxes, from above to below; there is no cycle.
    floors
        Boxes of a higher floor come below all boxes of lower ones.
    """
    if not sizes:
        return Layout([], [], 0.0, 0.0)
    count = len(sizes)
    layer = _layers(count, edges, floors or [0] * count)
    rows: list[list[int]] = [[] for _ in range(max(layer) + 1)]
    for n, k in enumerate(layer):
        rows[k].append(n)
    widths = [w for w, _ in sizes]
    above: dict[int, list[int]] = defaultdict(list)
    below: dict[int, list[int]] = defaultdict(list)
    chains: list[list[int]] = []
    shared: dict[tuple[int, int], int] = {}  # edges of one source to the same layer use the same points
    for a, b in edges:
        chain = []
        for k in range(layer[a] + 1, layer[b]):
            if (a, k) not in shared:
                shared[a, k] = len(widths)
                widths.append(0.0)
                rows[k].append(shared[a, k])
            chain.append(shared[a, k])
        chains.append(chain)
        for upper, lower in zip([a, *chain], [*chain, b], strict=True):
            if lower not in below[upper]:
                below[upper].append(lower)
                above[lower].append(upper)
    rows = _ordered(rows, above, below)
    x = _columns(rows, widths, above, below)
    y: dict[int, float] = {}
    spans: dict[int, tuple[float, float]] = {}
    top = 0.0
    for row in rows:
        height = max((sizes[n][1] for n in row if n < count), default=0.0)
        y.update((n, top + height / 2) for n in row)
        spans.update((n, (top, top + height)) for n in row)
        top += height + GAP_Y
    left = min(x[n] - widths[n] / 2 for n in range(len(x)))
    right = max(x[n] + widths[n] / 2 for n in range(len(x)))
    centres = [(round(x[n] - left, 1), round(y[n], 1)) for n in range(count)]
    bends = [[(round(x[n] - left, 1), round(at, 1)) for n in chain for at in spans[n]] for chain in chains]
    return Layout(centres, bends, round(right - left, 1), round(top - GAP_Y, 1))
