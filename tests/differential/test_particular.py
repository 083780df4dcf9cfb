"""Facts that random programs do not show: that errors come from values of the device, where nodes run, how often programs are built."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.raise_op import Assert, CheckAndRaise
from pytensor.xtensor import xtensor
from pytensor.xtensor.basic import TensorFromXTensor

import pytensor_cl
from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.gemm import GpuDot, GpuGemm, GpuMatmul
from pytensor_cl.ops.reduction import GpuCAReduce
from pytensor_cl.runtime.program import ProgramCache
from tests.helpers import assert_close, assert_on_device, check_against_python, host_ops, opencl


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel():
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


CHECKS = {
    "assert": (Assert("too large"), AssertionError),
    "overflow": (CheckAndRaise(OverflowError, "too large"), OverflowError),
}


@pytest.mark.parametrize("kind", CHECKS)
def test_checks_of_values_that_the_device_computes(context, rng, kind):
    check, error = CHECKS[kind]
    x = pt.fmatrix("x")
    y = pt.exp(x)
    f = opencl([x], pt.tanh(check(y, pt.all(y < 5), y.sum() < 100)).sum(axis=0))
    assert_on_device(f, GpuElemwise, GpuCAReduce)
    fits = np.zeros((4, 5), "float32")
    assert_close(f(fits), np.tanh(np.exp(fits)).sum(axis=0))
    for wrong in (np.full((4, 5), 2, "float32"), np.zeros((20, 20), "float32")):
        with pytest.raises(error, match="too large"):
            f(wrong)
    assert_close(f(fits), np.tanh(np.exp(fits)).sum(axis=0))


def test_a_check_that_fails_changes_no_shared_variable(context):
    s, x = pytensor.shared(np.ones(20, "float32")), pt.fvector("x")
    total = s + x
    f = opencl([x], None, updates={s: Assert("too large")(total, total.max() < 5)})
    f(np.ones(20, "float32"))
    with pytest.raises(AssertionError, match="too large"):
        f(np.full(20, 9, "float32"))
    assert_close(s.get_value(), np.full(20, 2, "float32"))


def test_specify_shape(context):
    x = pt.fmatrix("x")
    f = opencl([x], pt.specify_shape(pt.exp(x), (3, None)) * 2)
    assert_on_device(f, GpuElemwise)
    assert_close(f(np.zeros((3, 9), "float32")), np.full((3, 9), 2, "float32"))
    with pytest.raises(AssertionError):
        f(np.zeros((4, 9), "float32"))


def test_batches_without_a_kernel(context, rng):
    x = pt.ftensor3("x")
    value = rng.normal(size=(3, 4, 4)).astype("float32")
    f = check_against_python([x], [pt.sqr(pt.linalg.qz(pt.exp(x), x)[0]).sum(axis=(1, 2))], (GpuElemwise,), (value,))
    [batch] = [node for node in pytensor_cl.explain(f).host_nodes if "QZ" in str(node.op)]
    assert batch.reason == "no batched OpenCL kernel for QZ yet"


def test_einsum_is_a_product(context, rng):
    x, y = pt.fmatrices("x", "y")
    b, c = pt.ftensor3s("b", "c")
    draw = lambda *shape: rng.normal(size=shape).astype("float32")  # noqa: E731
    f = check_against_python([x, y], [pt.einsum("ij,kj->ik", x, y)], (), (draw(5, 7), draw(4, 7)))
    assert_on_device(f)
    assert any(isinstance(n.op, GpuDot | GpuGemm) for n in pytensor_cl.explain(f).device_nodes)
    f = check_against_python([b, c], [pt.einsum("bij,bjk->bik", b, c)], (GpuMatmul,), (draw(2, 3, 4), draw(2, 4, 5)))
    assert host_ops(f) == []


def test_named_dimensions(context, rng):
    x, w = xtensor("x", dims=("row", "in"), dtype="float32"), xtensor("w", dims=("in", "out"), dtype="float32")
    h = (x.dot(w, dim="in") ** 2).transpose("out", "row")
    f = opencl([x, w], (h - h.max("row")).values)
    assert {type(op) for op in host_ops(f)} == {TensorFromXTensor}  # the same array under another Type
    assert_on_device(f, GpuDot, GpuElemwise, GpuCAReduce)
    a, b = (rng.normal(size=shape).astype("float32") for shape in ((6, 4), (4, 3)))
    expected = ((a @ b) ** 2).T
    assert_close(f(a, b), expected - expected.max(axis=1, keepdims=True))


def _several_families():
    x, w, i = pt.fmatrix("x"), pt.fmatrix("w"), pt.lvector("i")
    h = pt.tanh(x @ w)
    parts = [
        h.sum(axis=0),
        h[i].cumsum(axis=0),
        pt.sort(h, axis=0),
        pt.concatenate([h, x], axis=1),
        h[::-1, 1:].argmax(axis=1),
    ]
    return [x, w, i], [*parts, pt.special.softmax(h, axis=1)]


def test_other_sizes_build_no_programs(context, rng, monkeypatch):
    built = []
    compile_ = ProgramCache.build_text
    monkeypatch.setattr(ProgramCache, "build_text", lambda self, text: built.append(text) or compile_(self, text))
    f = opencl(*_several_families())
    counts = []
    for size in range(1, 31):
        n, m, k = 3 * size + 1, size, 2 * size + 1
        arguments = rng.normal(size=(n, m)), rng.normal(size=(m, k))
        f(*(a.astype("float32") for a in arguments), rng.integers(0, n, size=size))
        counts.append(len(built))
    # Longer rows have a variant of their own, built when it is first needed.
    assert counts[9] == counts[-1], counts
