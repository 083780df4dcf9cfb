"""Compiled functions where a driver lacks a feature: the substitutes give the same values, in first and in repeated calls."""

from dataclasses import replace

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import pytensor_cl
from pytensor_cl.errors import UnusableDevice
from pytensor_cl.runtime import registry
from pytensor_cl.runtime.compilation.struct_arguments import by_reference
from pytensor_cl.runtime.features.features import Features
from pytensor_cl.runtime.registry import define_contexts, get_context
from tests.helpers import CHECKOUT

WITHOUT = {
    "structs": {"struct_arguments": False},
    "maps": {"maps": False},
    "compiler": {"prefetch": False, "nontemporal_stores": False},
    "one-memory": {"private_as_global": False},
    "comparisons": {"long_comparisons": False},
    "host-pointers": {"host_alignment": 0},
    "everything": {
        "struct_arguments": False,
        "maps": False,
        "prefetch": False,
        "nontemporal_stores": False,
        "private_as_global": False,
        "host_alignment": 0,
        "profiling": False,
        "long_comparisons": False,
    },
}
CALLS = 6
"""Calls of a function: step by step first, then replays."""


@pytest.fixture(params=WITHOUT)
def lacking(request, context, monkeypatch):
    """The default context, on a driver without some features."""
    name = f"{context.name}-without-{request.param}"
    features = replace(context.info.features, **WITHOUT[request.param])
    monkeypatch.setitem(registry._registry.overrides, "features", features)
    define_contexts({name: context.entry.stable_spec}, name)
    return get_context(name)


def _graphs():
    x, y, i = pt.fmatrix("x"), pt.fmatrix("y"), pt.lvector("i")
    scale = pt.fscalar("scale")
    row = pt.special.softmax(x, axis=1)
    yield "elementwise", [x, scale], [pt.exp(-x) * scale + x.T.sum(), (x > scale) & (x < 1)]
    yield "reductions", [x], [x.sum(axis=0), x.mean(axis=1), x.max(), x.argmax(axis=1), row]
    yield "products", [x, y], [pt.tanh(x @ y.T + 1), x @ y[0], pt.outer(x[0], y[1])]
    yield "indices", [x, i], [x[i], pt.set_subtensor(x[i], 0), x[::-2, 1:], pt.concatenate([x, x[i]])]
    k, narrow = pt.ivector("k"), pt.bvector("narrow")
    wide = pt.cast(k, "int64")
    yield (
        "integers",
        [x, k, narrow],
        [
            *(x[k], x[:, k], x[k, abs(k)], pt.inc_subtensor(x[k], 1), pt.exp(x[k]), x[k].sum(0), x[:, k].max(1)),
            *(pt.ravel_multi_index((k, k), (9, 9), mode=mode) for mode in ("wrap", "clip")),
            *(wide < 0, wide >= 5, pt.clip(wide, -3, 3), pt.sign(wide), pt.cast(k, "uint64") > 5, (wide < 0).sum()),
            *(pt.maximum(pt.cast(narrow, dtype), 5) for dtype in ("int16", "int32", "int64")),
        ],
    )
    yield "orders", [x], [pt.sort(x, axis=1), pt.argsort(x, axis=0, kind="stable"), pt.cumsum(x, axis=1), x[x > 0]]


def _values(rng, inputs, rows):
    made = {
        "x": rng.normal(size=(rows, 40)).astype("float32"),
        "y": rng.normal(size=(9, 40)).astype("float32"),
        "i": rng.integers(-9, 9, 7),
        "k": rng.integers(-9, 9, 7).astype("int32"),
        "narrow": rng.integers(-9, 9, 50).astype("int8"),
        "scale": np.float32(rng.normal()),
    }
    return [made[v.name] for v in inputs]


CASES = [("everything", name) for name, *_ in _graphs()] + [
    ("structs", "indices"),
    ("maps", "reductions"),
    ("compiler", "elementwise"),
    ("comparisons", "integers"),
    ("one-memory", "products"),
]


@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize(("lacking", "name"), CASES, indirect=["lacking"])
def test_values(lacking, rng, name):
    inputs, outputs = next((i, o) for n, i, o in _graphs() if n == name)
    f = pytensor.function(inputs, outputs, mode="OPENCL")
    reference = pytensor.function(inputs, outputs, mode="FAST_COMPILE")
    assert pytensor_cl.explain(f).device_nodes
    for call in range(CALLS):
        values = _values(rng, inputs, 33 if call % 2 else 700)
        for got, wanted in zip(f(*values), reference(*values), strict=True):
            assert got.dtype == wanted.dtype
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize("lacking", ["maps", "compiler", "everything"], indirect=True)
def test_large_results_and_copies(lacking, rng):
    """Results without a copy where the host can access them, and stores past the cache."""
    x = pt.fmatrix("x")
    f = pytensor.function([x], [x * 2, x.T + 1], mode="OPENCL")
    for _ in range(3):
        value = rng.random((1 << 10, 1 << 12), "float32")
        doubled, turned = f(value)
        np.testing.assert_array_equal(doubled, value * 2)
        np.testing.assert_array_equal(turned, value.T + 1)
        doubled[:] = 0  # it is the caller's own


@pytest.mark.usefixtures("on_device")
def test_updates(lacking, rng):
    start = rng.normal(size=(60, 50)).astype("float32")
    w, step = pytensor.shared(start, "w"), pt.fmatrix("step")
    f = pytensor.function([step], w.sum(), updates={w: w - 0.5 * step}, mode="OPENCL")
    expected = start.astype("float64")
    for _ in range(CALLS):
        value = rng.normal(size=start.shape).astype("float32")
        np.testing.assert_allclose(f(value), expected.sum(), rtol=1e-3, atol=1e-2)
        expected -= 0.5 * value
    np.testing.assert_allclose(w.get_value(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("on_device")
def test_errors_of_kernels(lacking):
    x, i = pt.fvector("x"), pt.lvector("i")
    f = pytensor.function([x, i], x[i] * 2, mode="OPENCL")
    value = np.arange(100, dtype="float32")
    for _ in range(CALLS):
        np.testing.assert_array_equal(f(value, np.array([3, -1])), [6, 198])
        with pytest.raises(IndexError, match="100"):
            f(value, np.array([3, 100]))


def test_what_is_switched_off_is_not_used(lacking, request):
    features = lacking.info.features
    assert lacking.mappings.are_supported() is (features.maps and lacking.info.kind == "cpu")
    assert lacking.info.schedule == ("cpu" if features.has_cpu_schedule else "simt")
    if not features.struct_arguments:
        assert lacking.batch_launcher is None
    if not features.host_alignment:
        assert lacking.misalignment(np.zeros(1 << 16, "float32")) is None


def test_structs_by_reference():
    text = """
typedef struct { long m; } plan;
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void f(const plan p /* (the plan), */, __global float *x, const int n,
                                                               more q, const float4 v, const unsigned char c)
{ if (n) { x[0] = p.m; } }
__kernel void g(__global const plan *p, const size_t n) { }
static void h(const plan p) { }
"""
    changed, places = by_reference(text)
    assert places == {"f": frozenset({0, 3})}
    assert (
        "f(__global const plan *p_at_, __global float *x, const int n, __global const more *q_at_, const float4 v"
        in changed
    )
    body = changed[changed.index("f(__global") :]
    assert "const plan p = *p_at_;" in body and "more q = *q_at_;" in body and "if (n) { x[0] = p.m; } }" in body
    assert changed.endswith(text[text.index("__kernel void g") :])


def test_private_memory_becomes_global_in_one_template():
    casts = [p.name for p in (CHECKOUT / "kernels").rglob("*.mako") if "(ulong)space" in p.read_text()]
    assert casts == []
    assert "private_as_global" in (CHECKOUT / "kernels" / "common" / "private.mako").read_text()


@pytest.fixture
def unusable(context, monkeypatch):
    """A default context on a device that fails its self-check."""
    monkeypatch.setattr(
        "pytensor_cl.runtime.context.features_of", lambda *_: Features(problem="plain arithmetic (1 != 2)")
    )
    define_contexts({"unusable": context.entry.stable_spec}, "unusable")
    yield
    define_contexts({context.name: context.entry.stable_spec}, context.name)


@pytest.mark.usefixtures("unusable")
def test_auto_computes_on_the_host_where_the_device_fails_its_self_check(capfd):
    x = pt.fvector("x")
    f = pytensor.function([x], pt.exp(x).sum(), mode="OPENCL")
    np.testing.assert_allclose(f(np.ones(8, "float32")), 8 * np.e, rtol=1e-6)
    report = pytensor_cl.explain(f)
    assert not report.device_nodes
    assert all("failed its self-check" in node.reason for node in report.host_nodes)
    written = capfd.readouterr().err
    assert written.count("to no device") == 1 and "plain arithmetic (1 != 2)" in written


@pytest.mark.usefixtures("unusable", "on_device")
def test_forced_placement_reports_the_failure():
    x = pt.fvector("x")
    with pytest.raises(UnusableDevice, match=r"failed its self-check \(driver: .*plain arithmetic \(1 != 2\).*doctor"):
        pytensor.function([x], pt.exp(x).sum(), mode="OPENCL")
