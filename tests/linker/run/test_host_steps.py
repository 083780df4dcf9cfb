"""Nodes that stay on the host."""

import warnings

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor import scan
from pytensor.compile.mode import Mode, get_mode
from pytensor.conditional.op import IfElse, ifelse
from pytensor.scalar import float32, int8, int64
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.linalg import cholesky

from pytensor_cl.linker.linker import OpenCLLinker
from pytensor_cl.linker.run import host_steps
from pytensor_cl.ops.elemwise import GpuElemwise
from tests.helpers import assert_close, assert_on_device, host_ops, opencl


@pytest.mark.parametrize("value", [0, 1])
def test_ifelse_of_what_is_there_anyway(context, value):
    c, x, y = pt.iscalar("c"), pt.fvector("x"), pt.fvector("y")
    f = opencl([c, x, y], [ifelse(c, x, y), *ifelse(c, [x, y], [y, x])])
    assert any(isinstance(op, IfElse) for op in host_ops(f))
    one, two = np.float32([1, 2, 3]), np.float32([4, 5])
    found = f(value, one, two)
    wanted = (one, one, two) if value else (two, two, one)
    for got, expected in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_ifelse_returns_no_shared_memory(context):
    c, s = pt.iscalar("c"), pytensor.shared(np.float32([1, 2, 3]))
    f = opencl([c], ifelse(c, s, pt.zeros_like(s)))
    f(1)[...] = 7
    np.testing.assert_array_equal(s.get_value(), [1, 2, 3])
    np.testing.assert_array_equal(f(1), [1, 2, 3])


def test_inner_graphs_get_numbas_rewrites(context, rng):
    """NUMBA compiles batches of factorizations where a rewrite has said what shape each has; else it calls Python."""
    matrices = pt.tensor("matrices", shape=(None, 2, 3, 3), dtype="float64")
    total = scan(lambda a, acc: acc + cholesky(a).sum(), [matrices], pt.zeros(()), return_updates=False)
    value = rng.normal(size=(4, 2, 3, 3))
    value = value @ value.transpose(0, 1, 3, 2) + 3 * np.eye(3)
    f = opencl([matrices], total)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_close(f(value), np.cumsum(np.linalg.cholesky(value).sum((1, 2, 3))))


def test_inner_graphs_in_a_mode_with_rewrites_of_its_own(context):
    """Such a mode has no list of rewrites that could be changed."""
    x = pt.dvector("x")
    total = scan(lambda a, acc: acc + a, [x], pt.zeros(()), return_updates=False)
    mode = Mode(OpenCLLinker(), get_mode("OPENCL").optimizer)
    assert_close(pytensor.function([x], total, mode=mode)(np.ones(3)), np.arange(1.0, 4))


def test_arithmetic_of_shapes_is_compiled_when_it_saves_time(context, monkeypatch):
    compiled = []
    link = host_steps.compile_node_with_numba
    monkeypatch.setattr(host_steps, "compile_node_with_numba", lambda node: (compiled.append(node), link(node))[1])
    monkeypatch.setattr(host_steps, "INTERPRETED_CALLS", 3)
    n, m, y = pt.lvector("n"), pt.lvector("m"), pt.fmatrix("y")
    with pytensor.config.change_flags(opencl__placement="host"):
        f = opencl([n, m, y], [n * m * 2 + m, pt.exp(y)])
        g = opencl([n, m], n * m * 2 + m)
    small, large, one = np.arange(4), np.arange(100), np.float32([[1]])
    for calls in range(1, 6):
        np.testing.assert_array_equal(f(small, small + 3, one)[0], small * (small + 3) * 2 + small + 3)
        assert len(compiled) == 1 + (calls > 3)  # exp at once
    np.testing.assert_array_equal(g(large, large + 3), large * (large + 3) * 2 + large + 3)
    assert len(compiled) == 3


def test_copies_keep_the_order_of_their_source(context, rng):
    x = pt.fmatrix("x")
    f = opencl([x], x.T)
    value = rng.normal(size=(3, 4)).astype("float32")
    result = f(value)
    np.testing.assert_array_equal(result, value.T)
    assert not np.shares_memory(result, value) and result.flags.f_contiguous


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("name", ["exp", "log1p", "sqrt", "sign", "neg", "tanh", "true_div", "maximum", "pow", "lt"])
def test_arithmetic_of_numbers(name, dtype):
    """NumPy's functions do it where PyTensor's `impl` would; results are those of `perform`, and of its dtype."""
    op = getattr(pt, name)
    x, y = pt.scalar("x", dtype=dtype), pt.scalar("y", dtype=dtype)
    node = (op(x, y) if name in ("true_div", "maximum", "pow", "lt") else op(x)).owner
    for pair in ((3, 2), (0, 1), (1, 5)):
        cells = [[np.asarray(v, dtype)] for v in pair][: len(node.inputs)]
        out, wanted = [None], [[None]]
        host_steps.host_thunk(node, cells, [out])()
        node.op.perform(node, [c[0] for c in cells], wanted)
        assert out[0].dtype == wanted[0][0].dtype and out[0].shape == ()
        np.testing.assert_allclose(out[0], wanted[0][0], rtol=1e-6)


def test_composites_of_numbers(monkeypatch):
    """Each Op of a composite runs on NumPy scalars; results are those of the composite's `perform`."""
    x, n, b = float32("x"), int64("n"), int8("b")
    y = x * np.float32(1.5) - ps.cast(n, "float32") ** np.float32(0.5)
    outputs = [
        ps.switch(ps.lt(y, x), y, ps.sqrt(ps.abs(y))), ps.cast(y, "int16"), b * b, n // 3 + b, ps.true_div(n, b)
    ]  # fmt: skip
    outputs.append((n + b) * (n + b) - n)  # a node twice
    composite = ps.Composite([x, n, b], outputs)
    node = Elemwise(composite)(*(pt.scalar(dtype=v.dtype) for v in (x, n, b)), return_list=True)[0].owner
    for values in ((2.25, 16, 100), (-1e3, 7, -3), (0.5, 0, 1)):
        given = [[np.asarray(value, v.dtype)] for value, v in zip(values, (x, n, b), strict=True)]
        cells, wanted = ([[None] for _ in outputs] for _ in range(2))
        node.op.perform(node, [c[0] for c in given], wanted)
        with monkeypatch.context() as patched:
            patched.setattr(ps.Composite, "impl", lambda *_: pytest.fail("each Op was interpreted"))
            host_steps.host_thunk(node, given, cells)()
        for out, (got,), (right,) in zip(outputs, cells, wanted, strict=True):
            assert got.dtype == out.dtype and got.shape == ()
            np.testing.assert_array_equal(got, right)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8"])
def test_softplus_of_small_integers(context, dtype):
    """Numbers of NumPy, which PyTensor's function does not take."""
    x = pt.scalar("x", dtype=dtype)
    outputs = [pt.softplus(x), pt.softplus(x) * 2]
    value = np.asarray(1, dtype)
    np.testing.assert_allclose(opencl([x], outputs)(value), [np.log1p(np.e), 2 * np.log1p(np.e)], rtol=2e-3)


def test_numbers_that_are_not_finite_give_no_warnings(context):
    """As on a device, by NUMBA and by C: a step of NUTS that is too large is no news for the user."""
    x, v = pt.dscalar("x"), pt.dvector("v")
    f = opencl([x, v], [pt.exp(x), pt.log(-x), pt.exp(x) * v])
    assert_on_device(f, GpuElemwise)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exp, log, product = f(1e3, [1.0, -1.0])
    assert exp == np.inf and np.isnan(log)
    np.testing.assert_array_equal(product, [np.inf, -np.inf])


def test_multinomial_draws_of_float32(context):
    """Probabilities that are above 1 in sum by rounding; NumPy refuses them, and PyTensor's NUMBA backend does not."""
    rng, p = pytensor.shared(np.random.default_rng(1)), pt.fmatrix("p")
    _, drawn = pt.random.multinomial(10, p, rng=rng, return_next_rng=True)
    f = opencl([p], [drawn, p * 2])
    assert_on_device(f, GpuElemwise)
    exact, rounded = [0.25, 0.25, 0.5], [0.5, 0.50000012, 0]
    draws, _ = f(np.array([exact, rounded], "float32"))
    expected = np.random.default_rng(1)
    np.testing.assert_array_equal(draws, [expected.multinomial(10, row) for row in (exact, [0.5, 0.5, 0])])
    with pytest.raises(ValueError, match=r"> 1\.0"):
        f(np.array([[0.5, 0.6, 0]], "float32"))
