"""Pictures of functions: each node and edge is there once, texts are escaped, nothing is read from elsewhere."""

import json
import shutil
import subprocess
from html import unescape
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.conditional.op import ifelse

import pytensor_cl
from pytensor_cl.linker.reports.drawing.expressions import expression
from pytensor_cl.linker.reports.drawing.model import Node
from pytensor_cl.linker.reports.drawing.svg import LABELS, wrapped
from pytensor_cl.linker.reports.drawing.viewer import _blocks
from pytensor_cl.linker.reports.page import asset
from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.rowwise import GpuRowwise
from tests.helpers import host_sort, opencl

SVG = "{http://www.w3.org/2000/svg}"
EVIL = '</script><script>alert("x")</script>&amp;'
x = pt.fmatrix("x")


@pytest.fixture(autouse=True)
def everywhere():
    """Small graphs go to the device too."""
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


@pytest.fixture
def value(rng):
    return rng.normal(size=(8, 8)).astype("float32")


_made = {}


@pytest.fixture
def drawn(context, value):
    """A function with every kind of node, captured and profiled, and its profile; the same one for all tests."""
    if context.name not in _made:
        w = pytensor.shared(value.T.copy(), name=EVIL)
        rows = pt.special.softmax(pt.tanh(x) @ w, axis=1)
        outputs = [host_sort(rows).sum(1), rows * np.arange(8, dtype="float32")]
        f = opencl([x], outputs, updates={w: w * 2 + 1}, name=EVIL)
        for _ in range(4):
            f(value)
        with pytensor_cl.profile(f) as p:
            f(value)
        _made[context.name] = f, p
    return _made[context.name]


class Page(HTMLParser):
    """Tags of a page with their attributes, and the texts of its scripts."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self._is_script = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self._is_script = tag == "script"
        if self._is_script:
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._is_script = self._is_script and tag != "script"

    def handle_data(self, data):
        if self._is_script:
            self.scripts[-1] += data

    def numbers(self, attribute):
        return [int(a[attribute]) for _, a in self.tags if attribute in a]


def test_every_kind_of_node_is_in_the_graph(drawn):
    f, _ = drawn
    graph = pytensor_cl.draw(f).graph
    report = pytensor_cl.explain(f)
    kinds = [node.kind for node in graph.nodes]
    assert set(kinds) == set(LABELS)
    assert kinds.count("device") == len(report.device_nodes) and kinds.count("host") == len(report.host_nodes)
    assert kinds.count("transfer") == sum(t.when != "never" for t in report.transfers)
    assert kinds.count("output") == len(f.maker.fgraph.outputs)
    host = next(n for n in graph.nodes if "HostSort" in n.title)
    assert host.reason == "no OpenCL kernel for HostSort yet"


def test_edges_are_those_of_the_function(drawn):
    f, _ = drawn
    graph = pytensor_cl.draw(f).graph
    taken = {(e.target, e.input) for e in graph.edges}
    assert len(taken) == len(graph.edges)
    for edge in graph.edges:
        assert edge.output < len(graph.nodes[edge.source].outputs)
    reads = {e.target for e in graph.edges}
    for node in graph.nodes:
        if node.kind in ("device", "transfer", "output"):
            assert node.number in reads or node.constants, node
    [new] = [n for n in graph.nodes if n.place == "new value"]
    [edge] = [e for e in graph.edges if e.target == new.number]
    assert graph.nodes[edge.source].kind == "device"  # the update stays there


def test_shapes_bytes_and_times_are_those_of_the_profiled_call(drawn, value):
    f, p = drawn
    graph = pytensor_cl.draw(f, profile=p).graph
    [argument] = [n for n in graph.nodes if n.title == "x"]
    assert argument.outputs == ("float32(8, 8), 256 B",) and argument.place == "argument"
    kernels = {n.node.op: n.device_seconds / n.calls for n in p.nodes if n.launches}
    timed = [n.seconds for n in graph.nodes if n.kind == "device" and n.seconds]
    assert sorted(timed) == pytest.approx(sorted(kernels.values())) and graph.is_timed
    assert all(n.share == pytest.approx(n.seconds / (p.seconds / p.calls)) for n in graph.nodes if n.seconds)


def test_captured_parts_are_boxed(drawn):
    graph = pytensor_cl.draw(drawn[0]).graph
    assert graph.parts and all("kernel" in caption for caption in graph.parts)
    members = [n for n in graph.nodes if n.part is not None]
    assert {n.part for n in members} == set(range(len(graph.parts)))
    assert all(n.part is not None for n in graph.nodes if n.kind == "device" and n.seconds)
    assert '<g class="part" data-part="0">' in pytensor_cl.draw(drawn[0]).to_svg()


def test_svg_has_each_node_and_edge_once(drawn):
    picture = pytensor_cl.draw(drawn[0])
    root = ElementTree.fromstring(picture.to_svg())
    nodes = [
        g for g in root.iter(f"{SVG}g") if "node" in g.get("class", "").split() and g.find(f"{SVG}title") is not None
    ]
    titles = [g.find(f"{SVG}title").text.splitlines()[0] for g in nodes]
    assert titles == [n.full.splitlines()[0] for n in picture.graph.nodes]
    assert len([p for p in root.iter(f"{SVG}path") if p.get("class") == "edge"]) == len(picture.graph.edges)
    assert [g.get("class").split()[1] for g in nodes] == [n.kind for n in picture.graph.nodes]
    text = "".join(root.itertext())
    assert EVIL in text and not list(root.iter(f"{SVG}script"))


def test_page_has_each_node_and_edge_once(drawn):
    picture = pytensor_cl.draw(drawn[0])
    page = Page(picture.to_html())
    assert sorted(page.numbers("data-node")) == list(range(len(picture.graph.nodes)))
    assert sorted(page.numbers("data-edge")) == list(range(len(picture.graph.edges)))
    assert len(page.scripts) == 2  # no name has made a third
    data = json.loads(page.scripts[0])
    assert [n["title"] for n in data["nodes"]] == [n.title for n in picture.graph.nodes]
    assert len(data["edges"]) == len(picture.graph.edges)
    assert page.scripts[1] == asset("draw.js")


def test_page_reads_nothing_from_elsewhere(drawn):
    text = pytensor_cl.draw(drawn[0]).to_html()
    for tag, attributes in Page(text).tags:
        assert tag != "link" and not {"src", "href", "xlink:href"} & attributes.keys(), (tag, attributes)
    assert "@import" not in text and text.replace("http://www.w3.org/2000/svg", "").count("http") == 0


def test_it_is_the_same_each_time(drawn):
    f, _ = drawn
    a, b = pytensor_cl.draw(f), pytensor_cl.draw(f)
    assert a.to_svg() == b.to_svg() and a.to_html() == b.to_html()


def test_notebooks_show_it(drawn):
    picture = pytensor_cl.draw(drawn[0])
    [(tag, attributes)] = Page(picture._repr_html_()).tags
    assert tag == "iframe" and attributes["srcdoc"] == picture.to_html()
    assert unescape(attributes["title"]).startswith("picture of ")
    assert picture._repr_svg_() == picture.to_svg() and "edges" in repr(picture)


def test_files(drawn, tmp_path):
    f, _ = drawn
    picture = pytensor_cl.draw(f, tmp_path / "f.svg")
    picture.save(tmp_path / "f.html")
    assert (tmp_path / "f.svg").read_text() == picture.to_svg()
    assert (tmp_path / "f.html").read_text() == picture.to_html()
    with pytest.raises(ValueError, match=r"as \.svg or \.html, not \.png"):
        pytensor_cl.draw(f, tmp_path / "f.png")


def test_unfolded_it_shows_what_kernels_compute(drawn):
    f, _ = drawn
    graph = pytensor_cl.draw(f).graph
    [rows] = [n for n in graph.nodes if "GpuRowwise" in n.title]
    assert any("max of" in line for line in rows.expression) and rows.expression[-1].startswith("results: ")
    folded, unfolded = (pytensor_cl.draw(f, unfold=u).to_svg() for u in (False, True))
    shown = [f">{line}</text>" in unfolded for line in rows.expression]
    assert all(shown) and not any(f">{line}</text>" in folded for line in rows.expression)


def run_lines(lines, names):
    """Compute what the lines of an expression say."""
    functions = {"exp": np.exp, "tanh": np.tanh, "sqr": np.square, "neg": np.negative}
    values = {**functions, **names}
    for line in lines[:-1]:
        exec(line, values)
    return [values[name] for name in lines[-1].removeprefix("results: ").split(", ")]


def test_expressions_are_what_the_kernels_compute(context, value):
    y = pt.fmatrix("y")
    f = opencl([x, y], [pt.exp(x) * 2 + y, -((pt.tanh(y) - 3 * x) ** 2)])
    fused = [n for n in f.maker.fgraph.toposort() if isinstance(n.op, GpuElemwise)]
    found = []
    for node in fused:
        names = [v.name or v.owner.inputs[0].name for v in node.inputs]
        found += run_lines(expression(node.op, names), {"x": value, "y": value.T})
    for wanted in f(value, value.T):
        assert any(np.allclose(got, wanted, rtol=1e-5) for got in found)


def test_expressions_of_rows_name_reductions(context):
    f = opencl([x], pt.special.softmax(x, axis=1))
    [op] = [n.op for n in f.maker.fgraph.toposort() if isinstance(n.op, GpuRowwise)]
    lines = expression(op, ["x"])
    assert lines[0] == "v0 = max of x along the row" and any("sum of" in line for line in lines)


def test_loops_and_branches_unfold(context):
    steps = pytensor.scan(lambda v, u: pt.tanh(v @ u), outputs_info=x, non_sequences=x, n_steps=3, return_updates=False)
    f = opencl([x], ifelse(pt.gt(x.shape[0], 3), steps[-1], pt.exp(x)))
    graph = pytensor_cl.draw(f).graph
    [branches] = [n for n in graph.nodes if "IfElse" in n.title]
    assert [inner.name for inner in branches.inner] == ["if true", "if false"]
    inner = [n for each in branches.inner for n in each.graph.nodes]
    loop = next(n for n in inner if "Scan" in n.title)
    if loop.inner:  # else the loop is one kernel
        assert loop.inner[0].name == "each step" and any(n.kind == "device" for n in loop.inner[0].graph.nodes)
    svg = ElementTree.fromstring(pytensor_cl.draw(f, unfold=True).to_svg())
    texts = {t.text for t in svg.iter(f"{SVG}text")}
    assert {"if true", "if false"} <= texts


def test_many_nodes_are_in_blocks_that_form_no_cycle(drawn):
    picture = pytensor_cl.draw(drawn[0])
    assert set(_blocks(picture.graph)) == {-1}  # few are not
    graph = picture.graph
    nodes = [Node(k, "device", "GpuExp", "on dev0", "GpuExp", ("float32()",)) for k in range(120)]
    edges = [type(graph.edges[0])(k // 2, 0, k, 0) for k in range(1, 120)]
    large = type(graph)(nodes, edges)
    blocks = _blocks(large)
    assert max(blocks) >= 3 and all(blocks[e.source] <= blocks[e.target] for e in edges)


def test_what_it_refuses(drawn):
    with pytest.raises(TypeError, match="draw takes compiled functions of mode OPENCL"):
        pytensor_cl.draw(pytensor.function([x], x + 1, mode="FAST_COMPILE"))
    with pytest.raises(ValueError, match="the profile is of other functions"):
        pytensor_cl.draw(opencl([x], x + 1), profile=drawn[1])


def test_an_empty_function(context):
    picture = pytensor_cl.draw(opencl([], []))
    assert ElementTree.fromstring(picture.to_svg()) is not None and Page(picture.to_html()).numbers("data-node") == []


def test_long_titles_are_wrapped():
    text = "GpuRowwise{axes=(1,): add, max, sub, exp, sum x2, +8}"
    assert "".join(wrapped(text)).replace(" ", "") == text.replace(" ", "")
    assert all(len(line) <= 30 for line in wrapped(text)) and wrapped("a" * 65) == ["a" * 30, "a" * 30, "a" * 5]


def test_the_script_is_valid():
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node to check it")
    assert subprocess.run([node, "--check", "-"], input=asset("draw.js"), text=True, check=False).returncode == 0
