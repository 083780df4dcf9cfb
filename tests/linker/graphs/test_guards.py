"""Values of the host that a later node of the host changes in place: kernels get those of before."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl.linker.run.graph_cache import WARMUP_CALLS
from tests.helpers import normal, opencl

pytestmark = pytest.mark.usefixtures("on_device")

CALLS = WARMUP_CALLS + 4


def assert_close(got, expected):
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-4, atol=1e-5)


def has_node_in_place(f, op):
    """Return whether a node of the host computes an elementwise function into the memory of an Op's result."""
    nodes = f.maker.fgraph.apply_nodes
    changed = [n.inputs[i].owner for n in nodes for many in n.op.destroy_map.values() for i in many]
    return any(node is not None and type(node.op).__name__ == op for node in changed)


def test_a_value_that_launches_depend_on_is_computed_in_place(context, rng):
    a, b, x = pt.fscalar("a"), pt.fscalar("b"), pt.fmatrix("x")
    h = pt.stack([a, b])
    end = (h * h).sum().astype("int64")
    f = opencl([a, b, x], [x @ h, pt.exp(x[:end]).sum()])
    assert has_node_in_place(f, "MakeVector")
    value = normal(rng, 9, 2)
    for k in range(3 * CALLS):
        first, second = np.float32(1 + k % 2), np.float32(2)
        of_rows, total = f(first, second, value)
        assert_close(of_rows, value @ np.array([first, second]))
        assert_close(total, np.exp(value[: int(first**2 + 4)]).sum())
    assert f.vm.executor.replay_count > CALLS


def test_a_value_of_shapes_is_changed_in_place(context, rng):
    a, b, x = pt.fscalar("a"), pt.fscalar("b"), pt.fmatrix("x")
    size = x.shape[0].astype("float32")
    h = pt.stack([size, 2 * size])
    f = opencl([a, b, x], [x @ h, x @ (h / pt.stack([a, b]))])
    assert has_node_in_place(f, "MakeVector")
    for _ in range(CALLS):
        value, first, second = normal(rng, 5, 2), *rng.uniform(1, 2, 2).astype("float32")
        sizes, ratios = f(first, second, value)
        assert_close(sizes, value @ [5, 10])
        assert_close(ratios, value @ [5 / first, 10 / second])
    assert f.vm.executor.replay_count == CALLS - WARMUP_CALLS - 1


def test_a_value_of_the_index_of_a_minibatch_is_changed_in_place(context, rng):
    length = context.memory.arena.alignment // 32  # a part begins at one of four remainders by the alignment
    data, x, i = pytensor.shared(normal(rng, 16 * length, 2)), pt.fmatrix("x"), pt.lscalar("i")
    index, size = i.astype("float32"), x.shape[0].astype("float32")
    h = pt.stack([index + 1, 3 * index])
    part = data[i * length : (i + 1) * length]
    f = opencl([x, i], [part @ h, part @ (h * pt.stack([size, size + 1]))])
    assert has_node_in_place(f, "MakeVector")
    value, rows = normal(rng, 5, 2), data.get_value()
    for k in [*range(12), *range(12)]:
        first, second = f(value, k)
        expected = rows[k * length : (k + 1) * length]
        assert_close(first, expected @ [k + 1, 3 * k])
        assert_close(second, expected @ [5 * (k + 1), 18 * k])
    assert f.vm.executor.replay_count >= 12
