"""Plots of a profile, and its HTML."""

import sys

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import pytensor_cl
from pytensor_cl.routines.peak import Peak
from tests.helpers import host_sort, opencl

x = pt.fmatrix("x")


@pytest.fixture
def recorded(context, rng):
    with pytensor.config.change_flags(opencl__placement="device"):
        f = opencl([x], [pt.exp(x) @ x, host_sort(x).sum(1)], name="f")
    value = rng.normal(size=(16, 16)).astype("float32")
    f(value)
    with pytensor_cl.profile(f) as p:
        f(value)
        f(value)
    peak = Peak(10e9, {"float32": 100e9, "float64": 50e9})
    p.peaks = lambda: {context.name: peak}  # measuring them takes a second
    return p


@pytest.fixture
def pyplot():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    yield pyplot
    pyplot.close("all")


def test_timeline_has_a_bar_for_each_step_and_command(recorded, pyplot, context):
    axes = recorded.plot_timeline(pyplot.figure().subplots())
    _, call = recorded._traced[-1]
    assert len(axes.patches) == len(call.steps) + len(call.commands)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["host: steps", context.name]
    low, high = axes.get_xlim()
    assert low == 0 and all(p.get_x() >= -1 and p.get_x() + p.get_width() <= 1.1 * high for p in axes.patches)
    assert recorded.plot_timeline(call=0).get_title().startswith("one call of f")
    with pytest.raises(IndexError, match="call 2 was asked for, and 2 calls"):
        recorded.plot_timeline(call=2)


def test_roofline_has_a_point_for_each_counted_node(recorded, pyplot):
    axes = recorded.plot_roofline()
    points = {tuple(np.round(c.get_offsets()[0], 6)) for c in axes.collections}
    counted = [n for n in recorded.nodes if n.flops and n.launches]
    assert points == {tuple(np.round((n.flops / n.nbytes, n.flops / n.device_seconds / 1e9), 6)) for n in counted}
    [roof] = axes.lines
    intensity, rate = roof.get_data()
    np.testing.assert_allclose(rate, np.minimum(10 * intensity, 100), rtol=1e-6)
    assert axes.get_xscale() == axes.get_yscale() == "log"


def test_roofline_of_nothing(context, pyplot, rng):
    f = opencl([x], host_sort(x))
    with pytensor_cl.profile(f) as p:
        f(rng.normal(size=(4, 4)).astype("float32"))
    with pytest.raises(ValueError, match="there is nothing to plot"):
        p.plot_roofline(peaks={})


def test_without_matplotlib_the_error_says_what_to_install(recorded, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for plot in (recorded.plot_timeline, recorded.plot_roofline):
        with pytest.raises(ImportError, match="pip install matplotlib"):
            plot()


def test_html_of_a_profile_has_bars(recorded, tmp_path):
    recorded.to_html(tmp_path / "p.html")
    page = (tmp_path / "p.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and "Profile of f" in page and 'class="number bar"' in page
    widths = [float(part.split("%")[0]) for part in page.split('style="width:')[1:]]
    assert sum(widths) == pytest.approx(100, abs=0.1)
    assert 'class="pytensor-cl"' in recorded._repr_html_() and "<script" not in page


def test_html_of_an_explanation(recorded, tmp_path):
    report = pytensor_cl.explain(recorded.functions[0])
    report.to_html(tmp_path / "e.html")
    page = (tmp_path / "e.html").read_text()
    assert "no OpenCL kernel for HostSort yet" in page and "GpuFromHost" not in page.replace("GpuFromHost&lt;", "")
    for name in ("GpuExp", "HostSort"):
        assert name in report._repr_html_()
