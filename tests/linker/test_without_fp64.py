"""Devices without double precision: float32 graphs never mention it, float64 stays on the host, with a reason."""

import dataclasses
import os
import re

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import pytensor_cl
from pytensor_cl.codegen.announcement import TREE, _remove
from pytensor_cl.errors import UnsupportedDtype
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import resolve


@pytest.fixture
def texts(context, monkeypatch):
    """Make the default context one that has no fp64; collect the programs that it builds."""
    entry = resolve(f"opencl:{context.name}")
    poor = Context(context.name, dataclasses.replace(entry, info=dataclasses.replace(entry.info, has_fp64=False)))
    monkeypatch.setattr("pytensor_cl.runtime.registry._registry.contexts", {context.name: poor})
    collected = []
    compile_text = poor.programs.build_text
    monkeypatch.setattr(poor.programs, "build_text", lambda text: collected.append(text) or compile_text(text))
    return collected


def test_float32_graphs_never_mention_double(texts, rng):
    x, y = pt.fmatrix("x"), pt.fvector("y")
    n = pt.imatrix("n")
    outputs = [
        pt.exp(x) + y,
        pt.switch(x > 0, x, -x) ** np.float32(3.7),
        x.sum(),
        x.mean(axis=0),
        x.var(axis=1),
        x.prod(axis=0),
        x.max(axis=1),
        pt.dot(x, y),
        x @ x.T,
        pt.erf(x) + pt.sigmoid(x) + pt.softplus(x) + pt.tanh(x),
        pt.gammaln(pt.abs(x) + 1),
        n // 3 + n % 5,
        n.sum(axis=0),
    ]
    function = pytensor.function([x, y, n], outputs, mode="OPENCL")
    values = (
        rng.normal(size=(5, 7)).astype("float32"),
        rng.normal(size=7).astype("float32"),
        rng.integers(-9, 9, (3, 4)).astype("int32"),
    )
    expected = pytensor.function([x, y, n], outputs, mode="FAST_COMPILE")(*values)
    for got, want in zip(function(*values), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)
    missing = [n for n in pytensor_cl.explain(function).host_nodes if re.search("precision|no OpenCL", n.reason)]
    assert not missing
    assert texts
    assert not [found for text in texts for found in re.findall(r"\bdouble\w*", text)]


def test_float64_stays_on_the_host_with_a_reason(texts):
    d = pt.dmatrix("d")
    function = pytensor.function([d], pt.exp(d), mode="OPENCL")
    (node,) = pytensor_cl.explain(function).host_nodes
    assert "no double precision" in node.reason
    np.testing.assert_allclose(function(np.eye(2)), np.exp(np.eye(2)))


def test_a_line_says_that_a_graph_of_float64_is_on_the_host(texts, monkeypatch, capsys):
    monkeypatch.setenv(TREE, f"test-{os.getpid()}")
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # of these the first one alone writes lines
    d, x = pt.dmatrix("d"), pt.fmatrix("x")
    pytensor.function([x], pt.exp(x), mode="OPENCL")
    assert capsys.readouterr().err == ""
    for _ in range(2):
        pytensor.function([d], pt.exp(d), mode="OPENCL")
    (line,) = capsys.readouterr().err.splitlines()
    assert "the host computes a graph, because" in line and "has no double precision (float64)" in line
    assert "float64 comes from d. Make them float32, by floatX=float32" in line
    _remove(os.getpid())


def test_float64_raises_if_the_flag_requires_it(texts):
    d = pt.dmatrix("d")
    flag = pytensor.config.change_flags(opencl__float64="raise")
    with flag, pytest.raises(UnsupportedDtype, match="opencl__float64=raise"):
        pytensor.function([d], pt.exp(d), mode="OPENCL")


def test_the_origin_of_float64_is_named(texts):
    y, n = pt.fvector("y"), pt.lvector("n")
    for result, origin in (
        (y * n, "Mul of float32 and int64"),
        (pt.cast(y, "float64") + 1, "Cast{float64} of float32"),
        (y * np.arange(3.0), r"the constant \[0. 1. 2.\]"),
    ):
        flag = pytensor.config.change_flags(opencl__float64="raise")
        with flag, pytest.raises(UnsupportedDtype, match=rf"float64 comes from {origin}.*x.astype\('float32'\)"):
            pytensor.function([y, n], result, mode="OPENCL", on_unused_input="ignore")
    with pytest.raises(UnsupportedDtype, match=r"float64 cannot be used on it. Give it float32, by x.astype"):
        pytensor_cl.shared(np.ones(3))


@pytest.mark.parametrize("float64", ["auto", "raise"])
def test_float32_draws_are_numpys(texts, float64):
    """NumPy's numbers are computed in double precision: on the host, and that is no float64 of the user's."""
    n = pt.lscalar("n")
    generator = pytensor.shared(np.random.default_rng(3))
    following, z = pt.random.normal(size=(n,), rng=generator, dtype="float32", return_next_rng=True)
    with pytensor.config.change_flags(opencl__float64=float64, opencl__placement="device"):
        f = pytensor.function([n], pt.exp(z), updates={generator: following}, mode="OPENCL")
    np.testing.assert_allclose(f(50), np.exp(np.random.default_rng(3).normal(size=50)), rtol=1e-5)
    (node,) = [m for m in pytensor_cl.explain(f).host_nodes if "normal" in str(m.op)]
    assert "double precision" in node.reason
