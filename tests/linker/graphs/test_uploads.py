"""Arguments of repeated calls: kernels of a batch get the address of the caller's memory."""

import gc
import weakref

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl.linker.run.graph_cache import WARMUP_CALLS
from pytensor_cl.runtime import context as opening
from tests.helpers import assert_on_device, normal, opencl

pytestmark = pytest.mark.usefixtures("on_device")

CALLS = WARMUP_CALLS + 3
SMALL, LARGE = 50, 50_000


@pytest.fixture(autouse=True)
def _only_where_chains_are(context):
    if context.batch_launcher is None:
        pytest.skip("kernels are launched one by one")


def made_for(f, *example):
    """Call a function until its calls are repeated."""
    for _ in range(CALLS):
        f(*example)
    calls = f.vm.executor.replay_count
    f(*example)
    assert f.vm.executor.replay_count == calls + 1
    assert_on_device(f)
    return f


@pytest.fixture
def f(rng):
    x, s = pt.fvector("x"), pt.fvector("s")
    return made_for(opencl([x, s], (x * x.sum() + s.sum()).sum()), normal(rng, LARGE), normal(rng, SMALL))


def expected(x, s):
    x = x.astype("float64")
    return (x * x.sum() + s.sum(dtype="float64")).sum()


def repeats(f, *values):
    """Check a call, and whether it repeated a captured graph."""
    before = f.vm.executor.replay_count
    np.testing.assert_allclose(f(*values), expected(*values), rtol=1e-3)
    return f.vm.executor.replay_count > before


def test_no_buffers_are_made_of_them(f, rng, monkeypatch):
    values = [(normal(rng, LARGE), normal(rng, SMALL)) for _ in range(3)]
    while not all(map(repeats, [f] * 3, *zip(*values, strict=True))):  # where each begins may matter to a driver
        pass
    made, buffer_over = [], opening.buffer_over
    monkeypatch.setattr(opening, "buffer_over", lambda *args: made.append(args) or buffer_over(*args))
    assert all(map(repeats, [f] * 3, *zip(*values, strict=True)))
    assert not made


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x[::-1],
        lambda x: np.repeat(x, 2)[::2],
        lambda x: np.concatenate([x[:1], x])[1:],
        np.copy,
    ],
    ids=["reversed", "strided", "elsewhere", "another"],
)
@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_they_may_have_any_strides(f, rng, size, change):
    x, s = normal(rng, LARGE), normal(rng, SMALL)
    for _ in range(CALLS):
        values = (change(x), s) if size == LARGE else (x, change(s))
        repeats(f, *values)
        x, s = x + np.float32(1), s - np.float32(1)


def test_they_may_be_read_only(f, rng):
    x, s = normal(rng, LARGE), normal(rng, SMALL)
    x.flags.writeable = s.flags.writeable = False
    for _ in range(CALLS):
        repeats(f, x, s)


def test_other_lengths_and_types(f, rng):
    for size in (0, 1, SMALL + 1):
        repeats(f, normal(rng, LARGE), normal(rng, size))
    f.trust_input = True
    with pytest.raises(TypeError, match="dtype=float32"):
        f(normal(rng, LARGE), normal(rng, SMALL).astype("float64"))
    with pytest.raises(TypeError, match="dtype=float32"):
        f(normal(rng, LARGE).astype("float64"), normal(rng, SMALL))
    repeats(f, normal(rng, LARGE), normal(rng, SMALL))


def test_no_reference_to_them_is_kept(f, rng):
    class Watched(np.ndarray):
        """An array to which there may be weak references."""

    f.trust_input = True
    x, s = normal(rng, LARGE).view(Watched), normal(rng, SMALL)
    watch = weakref.ref(x)
    f(x, s)
    del x
    gc.collect()
    assert watch() is None


def test_the_caller_may_change_them_after_the_call(context, rng):
    """A call that updates shared variables has no wait."""
    x, w = pt.fvector("x"), pytensor.shared(np.zeros(SMALL, "float32"))
    f = opencl([x], [], updates={w: w + x * 2})
    data, total = normal(rng, SMALL), np.zeros(SMALL, "float32")
    for _ in range(CALLS + 20):
        total += data * 2
        f(data)
        data += np.float32(1)
    np.testing.assert_allclose(w.get_value(), total, rtol=1e-4, atol=1e-4)


def test_an_argument_that_is_a_result_too(context, rng):
    x = pt.fvector("x")
    f = opencl([x], [x.transfer(context.name), (x * 2).sum()])
    for _ in range(CALLS):
        data = normal(rng, SMALL)
        kept, total = f(data)
        before = data.copy()
        data[:] = 0
        np.testing.assert_array_equal(np.asarray(kept), before)
        np.testing.assert_allclose(total, 2 * before.sum(), rtol=1e-3, atol=1e-4)


def test_a_result_is_the_callers_own(context, rng):
    """A large one is memory of the pool, which is released with its last reference."""
    x = pt.fvector("x")
    f = made_for(opencl([x], pt.exp(x)), normal(rng, LARGE))
    data = normal(rng, LARGE)
    results = [f(data + np.float32(k)) for k in range(4)]
    for k, result in enumerate(results):
        assert result.flags.writeable and result.dtype == np.float32
        np.testing.assert_allclose(result, np.exp(data + np.float32(k)), rtol=1e-5)
    part = results[0][10:20]
    wanted = part.copy()
    del results, result
    gc.collect()
    for _ in range(4):
        f(data - np.float32(5))
    np.testing.assert_array_equal(part, wanted)
