"""Graphs as SVG."""

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from typing import NamedTuple

from pytensor_cl.linker.reports.drawing.layout import GAP_Y, Layout, layout
from pytensor_cl.linker.reports.drawing.model import (
    CONSTANT,
    DEVICE,
    HOST,
    INPUT,
    KINDS,
    OUTPUT,
    SHARED,
    TRANSFER,
    Graph,
    Inner,
    Node,
)
from pytensor_cl.linker.reports.page import asset, stylesheet
from pytensor_cl.ops.names import cut

CHAR, SMALL = 7.3, 6.1  # widths of a character in titles and in other text
LINE, SMALL_LINE = 16.0, 13.0  # heights of a line
PAD = 9.0
WRAP = 30  # characters of a line of a title
MARGIN = 14.0
LABELS = {
    DEVICE: "computes on a device",
    HOST: "computes on the host",
    TRANSFER: "transfer",
    INPUT: "argument",
    SHARED: "shared variable",
    CONSTANT: "constant",
    OUTPUT: "result",
}


class Box(NamedTuple):
    """The drawing of a node, with its centre at the origin."""

    width: float
    height: float
    markup: str
    ports: tuple[float, ...]  # x of each output


def wrapped(text: str, widest: int = WRAP) -> list[str]:
    """Return the lines of a text, broken after commas, colons and braces where possible."""
    lines = []
    while len(text) > widest:
        cuts = [text.rfind(mark, 0, widest) + len(mark) for mark in (", ", ": ", "{", "(", " ", "=")]
        at = max((c for c in cuts if c >= widest // 2), default=widest)
        lines.append(text[:at].rstrip())
        text = text[at:]
    return [*lines, text]


def time_text(seconds: float) -> str:
    """Return a time as text."""
    scale, unit = next(((s, u) for s, u in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")) if seconds >= s), (1e-6, "us"))
    return f"{seconds / scale:.3g} {unit}"


def outline(kind: str, w: float, h: float) -> str:
    """Return the shape of a kind of node: it says the kind without colours, too."""
    x, y = -w / 2, -h / 2
    if kind == DEVICE:
        return f'<rect class="shape" x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="7"/>'
    if kind == HOST:
        return (
            f'<rect class="shape" x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}"/>'
            f'<path class="mark" d="M{x + 4:.1f} {y:.1f}v{h:.1f}M{-x - 4:.1f} {y:.1f}v{h:.1f}"/>'
        )
    if kind == TRANSFER:
        d = f"M{x:.1f} {y:.1f}h{w:.1f}l8 {h / 2:.1f}l-8 {h / 2:.1f}h{-w:.1f}l-8 {-h / 2:.1f}z"
        return f'<path class="shape" d="{d}"/>'
    if kind == CONSTANT:
        return f'<rect class="shape dashed" x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="3"/>'
    if kind == OUTPUT:
        inner = f'x="{x + 3:.1f}" y="{y + 3:.1f}" width="{w - 6:.1f}" height="{h - 6:.1f}" rx="{h / 2 - 3:.1f}"'
        return (
            f'<rect class="shape" x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="{h / 2:.1f}"/>'
            f'<rect class="mark" {inner}/>'
        )
    pill = f'<rect class="shape" x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="{h / 2:.1f}"/>'
    if kind == SHARED:
        pill += f'<path class="mark" d="M{x + h / 2:.1f} {-y - 4:.1f}h{w - h:.1f}"/>'
    return pill


def sample(kind: str) -> str:
    """Return a small shape of a kind of node, 24 wide, for a key."""
    return outline(kind, 12 if kind == TRANSFER else 24, 14)


def _texts(lines: Sequence[tuple[str, str, float]], top: float, at: float = 0.0) -> str:
    """Return lines of text below each other; each has a class and a height."""
    out = []
    for text, kind, height in lines:
        top += height
        out.append(f'<text class="{kind}" x="{at:.1f}" y="{top - 0.28 * height:.1f}">{escape(text)}</text>')
    return "".join(out)


def _inner_markup(inner: Sequence[Inner], heat: float) -> tuple[float, float, list[tuple[float, str]]]:
    """Return the size of nested graphs below each other, and the x and the markup of each."""
    width = height = 0.0
    parts = []
    for each in inner:
        w, h, markup = graph_markup(each.graph, heat, unfold=True)
        text = f'<text class="caption" x="0" y="{height + 11:.1f}">{escape(each.name)}</text>'
        back = f'<rect class="paper" x="-8" y="-8" width="{w + 16:.1f}" height="{h + 14:.1f}" rx="6"/>'
        parts.append((w, f'{text}<g transform="translate(0 {height + 26:.1f})">{back}{markup}</g>'))
        width, height = max(width, w + 16, CHAR * len(each.name)), height + h + 38
    return width, height, parts


def box_of(node: Node, heat: float, *, unfolded: bool) -> Box:
    """Draw a node; `heat` is the longest time of a node."""
    title = wrapped(node.title)
    place = node.place
    lines = [(text, "title", LINE) for text in title] + [(place, "place", SMALL_LINE)]
    if node.constants:
        lines.append((cut(f"with {', '.join(node.constants)}", 40), "place", SMALL_LINE))
    left: list[tuple[str, str, float]] = []
    inner_width = inner_height = 0.0
    nested: list[tuple[float, str]] = []
    if unfolded:
        left = [(text, "code", SMALL_LINE) for e in node.expression for text in wrapped(e, 64)]
        inner_width, inner_height, nested = _inner_markup(node.inner, heat)
    if node.seconds is not None and heat:
        share = f", {100 * node.share:.0f} %" if node.share is not None and node.share >= 0.005 else ""
        lines.append((f"{time_text(node.seconds)}{share}", "time", SMALL_LINE))
    widest = max(len(t) * (CHAR if kind == "title" else SMALL) for t, kind, _ in (*lines, *left))
    sign = bool(node.expression or node.inner)
    width = max(60.0, widest + 2 * PAD + (18 if sign or node.kind in (HOST, SHARED, OUTPUT) else 0), inner_width + 24)
    labels = [SMALL * len(text) + 10 for text in node.outputs]
    width = round(max(width, sum(labels)), 1)
    is_hot = node.seconds is not None and heat > 0
    text_height = sum(h for *_, h in (*lines, *left)) + 2 * 6 + (6 if left else 0)
    height = round(text_height + (inner_height + 10 if nested else 0) + (8 if is_hot else 0), 1)
    top = -height / 2 + 5
    out = [outline(node.kind, width, height), _texts(lines, top)]
    below = top + sum(h for *_, h in lines) + 4
    out.append(_texts(left, below, -width / 2 + PAD + 2))
    below += sum(h for *_, h in left) + 4
    out += [f'<g transform="translate({-w / 2:.1f} {below:.1f})">{markup}</g>' for w, markup in nested]
    if is_hot and node.seconds is not None:
        length = max(2.0, (width - 2 * PAD) * node.seconds / heat)
        at = f'x="{-width / 2 + PAD:.1f}" y="{height / 2 - 9:.1f}" height="5"'
        out.append(f'<rect class="cold" {at} width="{width - 2 * PAD:.1f}"/>')
        out.append(f'<rect class="heat" {at} width="{length:.1f}"/>')
    if sign:
        at_x, at_y = width / 2 - 15, -height / 2 + 4
        cross = "" if unfolded else f"M{at_x + 5.5:.1f} {at_y + 2.5:.1f}v6"
        out.append(
            f'<g class="fold"><rect x="{at_x:.1f}" y="{at_y:.1f}" width="11" height="11" rx="2"/>'
            f'<path d="M{at_x + 2.5:.1f} {at_y + 5.5:.1f}h6{cross}"/></g>'
        )
    ports, begin = [], -sum(labels) / 2
    for text, label in zip(node.outputs, labels, strict=True):
        ports.append(round(begin + label / 2, 1))
        begin += label
        out.append(f'<text class="value" x="{ports[-1]:.1f}" y="{height / 2 + 12:.1f}">{escape(text)}</text>')
    return Box(width, height, "".join(out), tuple(ports))


def tooltip(node: Node) -> str:
    """Return what is shown when the mouse is over a node."""
    parts = [node.full, node.place, *node.outputs]
    if node.reason:
        parts.append(f"on the host: {node.reason}")
    if node.seconds is not None:
        parts.append(f"{time_text(node.seconds)} per call")
    return "\n".join([*parts, *node.expression])


def _without_straight(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points without those inside of a vertical line."""
    kept = list(points[:1])
    for point, after in pairwise(points[1:]):
        if not kept[-1][0] == point[0] == after[0]:
            kept.append(point)
    return [*kept, *points[1:][-1:]]


def edge_path(start: tuple[float, float], bends: Sequence[tuple[float, float]], end: tuple[float, float]) -> str:
    """Return a smooth line from a port down to a node."""
    points = [start, *_without_straight(bends), end]
    out = [f"M{start[0]:.1f} {start[1]:.1f}"]
    for (x0, y0), (x1, y1) in pairwise(points):
        half = (y1 - y0) / 2
        out.append(f"C{x0:.1f} {y0 + half:.1f} {x1:.1f} {y1 - half:.1f} {x1:.1f} {y1:.1f}")
    return "".join(out)


def floors_of(graph: Graph) -> list[int]:
    """Return numbers that keep the nodes of a captured part apart from those before and after it."""
    floors, floor, part = [0] * len(graph.nodes), 0, None
    targets = {e.source for e in graph.edges}
    is_source = {n.number for n in graph.nodes} - {e.target for e in graph.edges}
    for node in graph.nodes:
        if node.number in is_source and node.part is None:
            continue
        if node.part != part:
            floor, part = floor + 1, node.part
        floors[node.number] = floor
    assert targets <= set(range(len(floors)))
    return floors


def input_offsets(graph: Graph, boxes: Sequence[Box]) -> list[float]:
    """Return where each edge ends, from the middle of its target."""
    count = [0] * len(graph.nodes)
    for edge in graph.edges:
        count[edge.target] = max(count[edge.target], edge.input + 1)
    return [round(boxes[e.target].width * 0.8 * ((e.input + 0.5) / count[e.target] - 0.5), 1) for e in graph.edges]


def _part_boxes(graph: Graph, boxes: Sequence[Box], placed: Layout) -> str:
    out = []
    for number, caption in enumerate(graph.parts):
        inside = [n.number for n in graph.nodes if n.part == number]
        if not inside:
            continue
        top = min(placed.centres[n][1] - boxes[n].height / 2 for n in inside) - 22
        bottom = max(placed.centres[n][1] + boxes[n].height / 2 for n in inside) + 17
        left, right = -12.0, max(placed.width, SMALL * len(caption) + 20) + 12
        out.append(
            f'<g class="part" data-part="{number}"><rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" '
            f'height="{bottom - top:.1f}" rx="10"/><text class="caption" x="{left + 10:.1f}" y="{top + 13:.1f}">'
            f"{escape(caption)}</text></g>"
        )
    return "".join(out)


def graph_markup(graph: Graph, heat: float, *, unfold: bool = False) -> tuple[float, float, str]:
    """Return width, height and elements of a graph whose corner is at the origin."""
    boxes = [box_of(node, heat, unfolded=unfold) for node in graph.nodes]
    placed = layout([box[:2] for box in boxes], [(e.source, e.target) for e in graph.edges], floors_of(graph))
    out = [_part_boxes(graph, boxes, placed)]
    ends = input_offsets(graph, boxes)
    for edge, bends, offset in zip(graph.edges, placed.bends, ends, strict=True):
        (x0, y0), (x1, y1) = placed.centres[edge.source], placed.centres[edge.target]
        source, target = boxes[edge.source], boxes[edge.target]
        port = source.ports[edge.output] if source.ports else 0.0
        end = x1 + offset, y1 - target.height / 2 - 1.5
        line = edge_path((x0 + port, y0 + source.height / 2), bends, end)
        out.append(f'<path class="edge" d="{line}" marker-end="url(#arrow)"/>')
    for node, box, (x, y) in zip(graph.nodes, boxes, placed.centres, strict=True):
        out.append(_node_markup(node, box.markup, f'transform="translate({x:.1f} {y:.1f})"'))
    return placed.width, placed.height + 16, "".join(out)


def _node_markup(node: Node, body: str, attributes: str) -> str:
    return f'<g class="node {node.kind}" {attributes}><title>{escape(tooltip(node))}</title>{body}</g>'


def movable_markup(graph: Graph, heat: float) -> str:
    """Return the elements of a graph, which the script of the page places."""
    out = [f'<path class="edge" data-edge="{k}" d="" marker-end="url(#arrow)"/>' for k in range(len(graph.edges))]
    frame = '<g class="part" data-part="{}"><rect rx="10"/><text class="caption">{}</text></g>'
    out += [frame.format(number, escape(caption)) for number, caption in enumerate(graph.parts)]
    for node in graph.nodes:
        body = box_of(node, heat, unfolded=False).markup
        if node.expression or node.inner:
            other = box_of(node, heat, unfolded=True).markup
            body = f'<g class="folded">{body}</g><g class="unfolded">{other}</g>'
        out.append(_node_markup(node, body, f'data-node="{node.number}" tabindex="0"'))
    return "".join(out)


DEFS = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
    'markerUnits="userSpaceOnUse" orient="auto"><path class="arrow" d="M0 0L8 4L0 8z"/></marker></defs>'
)


def _legend(graph: Graph, top: float) -> tuple[float, float, str]:
    """Return width, height and elements of the key: a sample of each kind that is in the picture."""
    kinds = [kind for kind in KINDS if any(node.kind == kind for node in graph.nodes)]
    out, x = [], 0.0
    for kind in kinds:
        out.append(
            f'<g class="node {kind}" transform="translate({x + 17:.1f} {top + 10:.1f})">{sample(kind)}</g>'
            f'<text class="legend" x="{x + 38:.1f}" y="{top + 14:.1f}">{LABELS[kind]}</text>'
        )
        x += 38 + SMALL * len(LABELS[kind]) + 14
    if graph.is_timed:
        out.append(
            f'<rect class="heat" x="{x + 5:.1f}" y="{top + 8:.1f}" width="24" height="5"/>'
            f'<text class="legend" x="{x + 38:.1f}" y="{top + 14:.1f}">time in a call</text>'
        )
        x += 130
    return x, 26.0, "".join(out)


def svg(graph: Graph, title: str, *, unfold: bool) -> str:
    """Return a graph as a file of SVG."""
    heat = max((node.seconds or 0.0 for node in graph.nodes), default=0.0)
    width, height, markup = graph_markup(graph, heat, unfold=unfold)
    key_width, key_height, key = _legend(graph, 26.0)
    top = 26.0 + key_height + 18 + (GAP_Y / 2 if graph.parts else 0)
    caption = max((SMALL * len(text) + 44 for text in graph.parts), default=0.0)
    whole = max(width + 24, key_width, CHAR * len(title), caption) + 2 * MARGIN
    total = top + height + 2 * MARGIN + (12 if graph.parts else 0)
    centre = (whole - 2 * MARGIN - width) / 2 if caption <= width else 12.0
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="pytensor-cl" width="{whole:.0f}" height="{total:.0f}" '
        f'viewBox="0 0 {whole:.0f} {total:.0f}" role="img"><title>{escape(title)}</title>'
        f"<style>{stylesheet()}{asset('draw.css')}</style>{DEFS}"
        f'<rect class="paper" width="100%" height="100%"/><g transform="translate({MARGIN} {MARGIN})">'
        f'<text class="heading" x="0" y="12">{escape(title)}</text>{key}'
        f'<g transform="translate({centre:.1f} {top:.1f})">{markup}</g></g></svg>\n'
    )
