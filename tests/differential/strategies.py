"""Hypothesis strategies of programs: graphs of a family's Ops among others, with outputs and updates."""

import warnings

from hypothesis import reject
from hypothesis import strategies as st

from tests.differential import elementwise, indexing, others, products, reductions, structure
from tests.differential.compare import Program
from tests.differential.graph import Graph

FAMILIES = {
    "elementwise": elementwise.STEPS,
    "special": (elementwise.special,),
    "complex": (elementwise.of_complex,),
    "reductions": reductions.REDUCTIONS,
    "rows": reductions.ROWS,
    "products": products.STEPS,
    "indexing": indexing.STEPS,
    "structure": structure.STEPS,
    "creation": structure.CREATION,
    "orders": others.ORDERS,
    "transforms": others.TRANSFORMS,
    "checks": others.CHECKS,
    "gradients": (others.gradient,),
    "named": (others.named,),
    "matrices": (others.matrices,),
}
BETWEEN = (
    *elementwise.STEPS,
    elementwise.of_complex,
    *reductions.STEPS,
    *indexing.STEPS,
    *structure.STEPS,
    *structure.CREATION,
)
MOST_STEPS = 6
TRIES = 8


def _updates(graph):
    """Now and then a shared variable gets a result of its Type."""
    found = {}
    for shared, _ in graph.shared:
        fitting = [t for t in graph.results if shared.type == t.variable.type and not t.fails]
        if fitting and graph.chance(0.7):
            found[shared] = graph.pick(fitting)
    return found


def _grow(graph, family):
    graph.input(graph.extents())
    before = graph.number(0, 2)
    for _ in range(before):
        graph.step(graph.pick(BETWEEN))
    for _ in range(TRIES):
        if graph.step(graph.pick(FAMILIES[family])):
            break
        graph.step(graph.pick(BETWEEN))
    else:
        reject()
    core = graph.results[-1]
    for _ in range(graph.number(0, MOST_STEPS - 1 - before)):
        graph.step(graph.pick((*BETWEEN, *FAMILIES[family])))
    return core


@st.composite
def programs(draw, family):
    """A function of one to six Ops or so, at least one of a family."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the reference: overflow of integers, empty means, deprecated calls
        graph = Graph(draw)
        core = _grow(graph, family)
    chosen = dict.fromkeys([*graph.results[-2:], core])
    if graph.chance(0.3):
        chosen |= dict.fromkeys(graph.results)
    return Program(graph.inputs, graph.shared, list(chosen), _updates(graph), graph.rng)
