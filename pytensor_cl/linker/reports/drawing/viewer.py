"""Graphs as an interactive page of HTML: script, style and drawing are inside."""

import json
from html import escape
from typing import Any

from pytensor_cl.linker.reports.drawing.layout import FEW, GAP_POINT, GAP_X, GAP_Y, LARGE, SWEEPS
from pytensor_cl.linker.reports.drawing.model import KINDS, Graph, Node
from pytensor_cl.linker.reports.drawing.svg import (
    DEFS,
    LABELS,
    box_of,
    floors_of,
    movable_markup,
    sample,
    time_text,
)
from pytensor_cl.linker.reports.page import asset, page

BLOCK = 25
"""Boxes of a block. Graphs of more than twice as many are shown as blocks first, which unfold."""
HEIGHT = 620  # pixels of the picture in a notebook


def _details(node: Node) -> dict[str, Any]:
    """Return what the side panel shows of a node."""
    rows = [("name", node.full), ("where", node.place), *(("result", text) for text in node.outputs)]
    if node.reason:
        rows.append(("why on the host", node.reason))
    if node.seconds is not None:
        share = f", {100 * node.share:.1f} % of it" if node.share is not None else ""
        rows.append(("time in a call", f"{time_text(node.seconds)}{share}"))
    return {"rows": rows, "code": list(node.expression)}


def _blocks(graph: Graph) -> list[int]:
    """Return the block of each node; blocks are successive in the order of execution, so that they form no cycle.

    Boxes without inputs belong to the block of their first reader.
    """
    is_read = {e.target for e in graph.edges}
    computed = [n.number for n in graph.nodes if n.number in is_read]
    if len(computed) <= 2 * BLOCK:
        return [-1] * len(graph.nodes)
    block = [-1] * len(graph.nodes)
    for k, number in enumerate(computed):
        block[number] = k // BLOCK
    for edge in reversed(graph.edges):
        if edge.source not in is_read:
            block[edge.source] = (
                block[edge.target] if block[edge.source] < 0 else min(block[edge.source], block[edge.target])
            )
    return block


def _data(graph: Graph, heat: float) -> dict[str, Any]:
    """Return what the script needs to place and to find boxes."""
    floors, blocks = floors_of(graph), _blocks(graph)
    nodes = []
    for node in graph.nodes:
        folded, unfolded = (box_of(node, heat, unfolded=state) for state in (False, True))
        nodes.append(
            {
                "kind": node.kind,
                "title": node.title,
                "size": [list(folded[:2]), list(unfolded[:2])],
                "ports": [folded.ports, unfolded.ports],
                "folds": bool(node.expression or node.inner),
                "floor": floors[node.number],
                "block": blocks[node.number],
                "part": node.part,
                "seconds": node.seconds or 0,
                **_details(node),
            }
        )
    return {
        "nodes": nodes,
        "edges": [[e.source, e.output, e.target, e.input] for e in graph.edges],
        "parts": graph.parts,
        "heat": heat,
        "gaps": [GAP_X, GAP_POINT, GAP_Y],
        "sweeps": SWEEPS,
        "few": FEW,
        "large": LARGE,
    }


def _body(graph: Graph, title: str) -> str:
    heat = max((node.seconds or 0.0 for node in graph.nodes), default=0.0)
    data = json.dumps(_data(graph, heat), separators=(",", ":")).replace("<", "\\u003c")
    kinds = [kind for kind in KINDS if any(node.kind == kind for node in graph.nodes)]
    boxes = "".join(
        f'<label class="kind {kind}"><input type="checkbox" data-kind="{kind}" checked>'
        f'<svg width="30" height="16" viewBox="-15 -8 30 16"><g class="node {kind}">{sample(kind)}</g></svg>'
        f"{LABELS[kind]}</label>"
        for kind in kinds
    )
    blocks = '<button data-do="fold">fold all</button><button data-do="unfold">unfold all</button>'
    return (
        f'<div class="viewer"><header><strong>{escape(title)}</strong>'
        f'<input type="search" placeholder="search" aria-label="search for a node"><span class="found"></span>'
        f'<span class="buttons"><button data-do="in" aria-label="larger">+</button>'
        f'<button data-do="out" aria-label="smaller">&minus;</button><button data-do="fit">fit</button>{blocks}'
        f"</span></header><div class='kinds'>{boxes}</div>"
        f'<div class="stage"><svg class="canvas" viewBox="0 0 800 600">{DEFS}'
        f"<g class='world'>{movable_markup(graph, heat)}</g></svg>"
        f'<aside hidden><button data-do="close" aria-label="close">&times;</button><h2></h2><table></table><pre></pre>'
        f'<button data-do="near">only what is near</button> <button data-do="everything">show everything</button>'
        f'</aside></div></div><script type="application/json" class="graph">{data}</script>'
        f"<script>{asset('draw.js')}</script>"
    )


def viewer(graph: Graph, title: str) -> str:
    """Return the page."""
    style = f"<style>{asset('draw.css')}{asset('viewer.css')}</style>"
    return page(title, style + _body(graph, title))


def notebook(graph: Graph, title: str) -> str:
    """Return the page in a frame, so that it and the notebook do not disturb each other."""
    inside = escape(viewer(graph, title), quote=True)
    style = f"width:100%;height:{HEIGHT}px;border:1px solid #8884"
    return f'<iframe title="picture of {escape(title, quote=True)}" style="{style}" srcdoc="{inside}"></iframe>'
