"""The layout of pictures: boxes that do not overlap, edges that go down, the same result each time."""

import numpy as np
import pytest

from pytensor_cl.linker.reports.drawing.layout import _crossings, _ordered, _packed, layout


def random_graph(rng, count):
    sizes = [(float(w), float(h)) for w, h in rng.integers(20, 120, (count, 2))]
    edges = [(int(rng.integers(0, b)), b) for b in range(1, count) for _ in range(rng.integers(0, 3))]
    return sizes, edges


def overlaps(sizes, centres):
    boxes = [(x - w / 2, x + w / 2, y - h / 2, y + h / 2) for (w, h), (x, y) in zip(sizes, centres, strict=True)]
    return [
        (a, b)
        for a in range(len(boxes))
        for b in range(a)
        if boxes[a][0] < boxes[b][1] - 0.2
        and boxes[b][0] < boxes[a][1] - 0.2
        and boxes[a][2] < boxes[b][3] - 0.2
        and boxes[b][2] < boxes[a][3] - 0.2
    ]


@pytest.mark.parametrize("count", [1, 2, 40, 150])
def test_random_graphs(rng, count):
    sizes, edges = random_graph(rng, count)
    floors = [0 if k < count // 2 else 1 for k in range(count)]
    for more in (None, floors):
        placed = layout(sizes, edges, more)
        assert placed == layout(sizes, edges, more) and len(placed.bends) == len(edges)
        assert overlaps(sizes, placed.centres) == []
        for (a, b), bends in zip(edges, placed.bends, strict=True):
            heights = [placed.centres[a][1], *(y for _, y in bends), placed.centres[b][1]]
            assert heights == sorted(heights) and heights[0] < heights[-1]
        for (w, h), (x, y) in zip(sizes, placed.centres, strict=True):
            assert x - w / 2 >= -0.2 and x + w / 2 <= placed.width + 0.2
            assert y - h / 2 >= -0.2 and y + h / 2 <= placed.height + 0.2


def test_a_higher_floor_is_below(rng):
    sizes, edges = random_graph(rng, 60)
    floors = [min(k // 20, 2) for k in range(60)]
    fed = {b for _, b in edges}  # boxes without sources stay near their readers
    placed = layout(sizes, edges, floors)
    y = [[placed.centres[n][1] for n in fed if floors[n] == floor] for floor in range(3)]
    assert max(y[0]) < min(y[1]) and max(y[1]) < min(y[2])


def test_nothing_to_place():
    assert layout([], []) == ([], [], 0.0, 0.0)


def test_edges_that_need_not_cross_do_not():
    rows = [[0, 1, 2], [5, 4, 3]]
    below = {0: [3], 1: [4], 2: [5], 3: [], 4: [], 5: []}
    above = {3: [0], 4: [1], 5: [2], 0: [], 1: [], 2: []}
    assert _crossings(rows, below) == 3
    assert _crossings(_ordered(rows, above, below), below) == 0


def test_positions_are_the_closest_that_keep_the_gaps(rng):
    from scipy.optimize import minimize

    wanted, gaps = rng.normal(size=6) * 3, rng.uniform(0.5, 2, 5)
    found = np.array(_packed(list(wanted), list(gaps)))
    assert (np.diff(found) >= gaps - 1e-9).all()
    limits = {"type": "ineq", "fun": lambda x: np.diff(x) - gaps}
    best = minimize(lambda x: ((x - wanted) ** 2).sum(), np.cumsum([0, *gaps]), constraints=[limits], method="SLSQP")
    np.testing.assert_allclose(found, best.x, atol=1e-4)
