"""benchmarks/figures.py: the results in the documentation say where they are from, and the pictures are drawn from them."""

import json
import sys
from xml.etree import ElementTree

import pytest

from tests.helpers import ROOT

pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

FOLDER = ROOT / "benchmarks"
RESULTS = ROOT / "docs" / "results" / "figures.json"

pytestmark = pytest.mark.skipif(not RESULTS.is_file(), reason="an installed package has no documentation")


@pytest.fixture
def plots(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    yield __import__("figure_plots")
    sys.modules.pop("figure_plots", None)


def texts_of(path):
    """Return the texts in an SVG picture."""
    return ["".join(text.itertext()) for text in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]


def test_pictures_and_summary_are_those_of_the_results(plots, tmp_path):
    results = json.loads(RESULTS.read_text())
    assert {"date", "machine", "device", "versions", "load_before"} <= set(results)
    assert {"python", "pytensor", "pytensor-cl"} <= set(results["versions"])
    for path in plots.write(results, tmp_path):
        kept = ROOT / "docs" / path.relative_to(tmp_path)
        if path.suffix == ".svg":
            assert texts_of(path) == texts_of(kept)
            assert "prefers-color-scheme" in path.read_text() and plots.INK not in path.read_text()
        else:
            assert path.read_text() == kept.read_text()


def test_the_crossing_is_where_the_ratio_is_one(plots):
    times = {"1": (4.0, 1.0), "10": (4.0, 2.0), "100": (4.0, 8.0), "1000": (4.0, 80.0)}
    by_size = {n: {"device": a, "NUMBA": b} for n, (a, b) in times.items()}
    assert plots.crossing(by_size, "device", "NUMBA") == pytest.approx(10**1.5)  # halfway from 2 to 1/2 in logarithms
    assert plots.crossing(by_size, "NUMBA", "device") is None
    del by_size["1"], by_size["10"]
    assert plots.crossing(by_size, "device", "NUMBA") == 100
    assert plots.short(12_345) == "12,000" and plots.short(2_300_000) == "2.3 million"
