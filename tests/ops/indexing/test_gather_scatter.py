"""Indexing with arrays, against PyTensor's own implementation."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl.linker.run.vm import OpenCLVM
from pytensor_cl.ops.indexing.gather_scatter import GpuAdvancedIncSubtensor, GpuAdvancedSubtensor
from pytensor_cl.routines.indexing.gather_scatter import Scatter
from pytensor_cl.runtime.error_flag import DeviceErrorFlag
from tests.helpers import assert_all_on_device, assert_on_device, opencl

GATHER, SCATTER = GpuAdvancedSubtensor, GpuAdvancedIncSubtensor


class Inputs:
    """Variables of an index, and values for them."""

    def __init__(self, rng):
        self.x, self.c = pt.fmatrix("x"), pt.ftensor3("c")
        self.i, self.j, self.k = pt.lvector("i"), pt.bvector("j"), pt.lscalar("k")
        self.m, self.m2 = pt.vector("m", dtype="bool"), pt.matrix("m2", dtype="bool")
        self.y, self.s = pt.fmatrix("y"), pt.fscalar("s")
        self.all = [self.x, self.c, self.i, self.j, self.k, self.m, self.m2, self.y, self.s]
        floats = [rng.normal(size=shape).astype("float32") for shape in [(6, 7), (6, 7, 5), (9, 7), ()]]
        self.values = [
            *floats[:2],
            rng.integers(-6, 6, 9),
            rng.integers(-5, 5, 9).astype("int8"),
            np.int64(-2),
            rng.random(6) < 0.5,
            rng.random((6, 7)) < 0.5,
            *floats[2:],
        ]

    def compare(self, outputs):
        """Compile and call on the device and by FAST_COMPILE; return the device function."""
        f = opencl(self.all, outputs, on_unused_input="ignore")
        g = pytensor.function(self.all, outputs, mode="FAST_COMPILE", on_unused_input="ignore")
        for got, want, output in zip(f(*self.values), g(*self.values), outputs, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, strict=True, err_msg=str(output))
        return f


@pytest.fixture
def given(rng):
    return Inputs(rng)


def test_gather(context, given):
    x, c, i, j, k = given.x, given.c, given.i, given.j, given.k
    fixed = np.array([0, 2, -1, 2])
    outputs = [
        x[i],
        x[:, j],
        c[:, :, j],
        c[i, :, j],
        c[i, None, j],
        c[i[:, None], k:, j],
        c[0, j],
        c[k, :, j],
        c[i, 1:k, j],
        c[..., ::-2, j],
        c[fixed, :, fixed[:, None]],
        x[(x[:, 0] > 0).astype("int64")],
        pt.take(x, i, axis=0),
        pt.take(c, j, axis=2),
        x[pt.zeros((0,), dtype="int64")],
    ]
    assert_on_device(given.compare(outputs), GATHER)


def test_masks(context, given):
    x, c, i, k, m, m2, s = given.x, given.c, given.i, given.k, given.m, given.m2, given.s
    outputs = [
        x[m],
        x[m2],
        c[m2],
        c[m, :, k],
        c[m2, 1],
        x[x > 0],
        pt.set_subtensor(x[m2], s),
        pt.inc_subtensor(x[m], 2 * x[m]),
        pt.set_subtensor(x[x < 0], 0),
        c[:, :, i[:5] % 5][m],
    ]
    assert_on_device(given.compare(outputs), GATHER, SCATTER)


def test_scatter(context, given):
    x, c, i, j, k, y, s = given.x, given.c, given.i, given.j, given.k, given.y, given.s
    targets = [
        (x[i], y),
        (x[i], s),
        (x[i], y[0]),
        (x[i], 1),
        (x[i, j], y[:, 0]),
        (x[i[:, None], j], y[:, :1]),
        (x[:, j], s),
        (c[i, :, j], y),
        (c[k, j], y[:, :5]),
        (c[j, 1:3, k], y[:, 1:3]),
    ]
    outputs = [change(*t) for t in targets for change in (pt.set_subtensor, pt.inc_subtensor)]
    outputs += [pt.inc_subtensor(*t, ignore_duplicates=True) for t in targets[:5]]
    assert_on_device(given.compare(outputs), SCATTER)


def test_gradients(context, given):
    x, c, i, j, m = given.x, given.c, given.i, given.j, given.m
    costs = [(x[i] ** 2).sum(), (c[:, i, j] ** 3).sum(), (c[j, :, j] * c[i, :, 0]).sum(), (x[m] ** 2).sum()]
    outputs = [pytensor.grad(cost, wrt) for cost, wrt in zip(costs, [x, c, c, x], strict=True)]
    outputs.append(pytensor.grad((pt.set_subtensor(x[i], given.y) ** 2).sum(), given.y))
    assert_on_device(given.compare(outputs), GATHER, SCATTER)


@pytest.mark.parametrize("flag", [False, True])
def test_flag_of_atomic_additions(context, given, monkeypatch, flag):
    made = []

    def scatter(*arguments, **options):
        made.append(options)
        return Scatter(*arguments, **options)

    monkeypatch.setattr("pytensor_cl.ops.indexing.gather_scatter.Scatter", scatter)
    with pytensor.config.change_flags(opencl__float_atomics=flag):
        given.compare([pt.inc_subtensor(given.x[given.i], given.y), pt.set_subtensor(given.x[given.i], 2)])
    assert {(options["accumulate"], options["atomics"]) for options in made} == {(True, flag), (False, False)}


def test_values_may_not_be_repeated_unseen(context):
    x, y, i = pt.fmatrix("x"), pt.fmatrix("y"), pt.lvector("i")
    f = opencl([x, y, i], pt.inc_subtensor(x[i], y))
    f(np.ones((3, 4), "float32"), np.ones((2, 4), "float32"), np.array([0, 0]))
    with pytest.raises(ValueError, match="Runtime broadcasting not allowed"):
        f(np.ones((3, 4), "float32"), np.ones((1, 4), "float32"), np.array([0, 0]))


def test_mask_of_another_shape(context):
    x, m = pt.fmatrix("x"), pt.vector("m", dtype="bool")
    f = opencl([x, m], x[m])
    with pytest.raises(IndexError, match="boolean index did not match indexed array along axis 0; size of axis is 3"):
        f(np.ones((3, 4), "float32"), np.array([True, False]))


def described(error):
    """Return the line of an error that names the node."""
    text = "\n".join((str(error), *getattr(error, "__notes__", ())))
    return next(line for line in text.splitlines() if line.startswith("Apply node that caused the error"))


def test_bad_index_raises_at_its_node(context):
    x, i, j = pt.fmatrix("x"), pt.lvector("i"), pt.lvector("j")
    f = opencl([x, i, j], (x[i] + 1)[:, j])
    assert_all_on_device(f, GATHER)
    value = np.arange(12, dtype="float32").reshape(3, 4)
    good = np.array([0, -1])
    with pytensor.config.change_flags(exception_verbosity="medium"):
        with pytest.raises(IndexError, match="index 5 is out of bounds for axis 1 with size 4") as caught:
            f(value, good, np.array([1, 5]))
        assert "idx_list=(slice(None, None, None), 0)" in described(caught.value)
        with pytest.raises(IndexError, match="index -4 is out of bounds for axis 0 with size 3") as caught:
            f(value, np.array([-4, 0]), np.array([9]))  # the first node's comes first
        assert "idx_list=(0,)" in described(caught.value)
    np.testing.assert_array_equal(f(value, good, good), (value[good] + 1)[:, good])


def test_bad_index_updates_nothing(context):
    w, count = pytensor.shared(np.zeros(4, "float32")), pytensor.shared(np.zeros((), "int64"))
    i = pt.lvector("i")
    f = opencl([i], [], updates=[(w, pt.inc_subtensor(w[i], 1)), (count, count + 1)])
    f(np.array([0, 0, 3]))
    with pytest.raises(IndexError, match="index 4 is out of bounds for axis 0 with size 4"):
        f(np.array([0, 4]))
    np.testing.assert_array_equal(w.get_value(), [2, 0, 0, 1])
    assert count.get_value() == 1
    f(np.array([-1]))
    np.testing.assert_array_equal(w.get_value(), [2, 0, 0, 2])


def test_bad_index_where_the_result_stays_on_the_device(context):
    x, i = pt.fvector("x"), pt.lvector("i")
    f = opencl([x, i], x[i].transfer(context.name))
    with pytest.raises(IndexError, match="index 3 is out of bounds"):
        f(np.ones(3, "float32"), np.array([3]))
    assert f(np.ones(3, "float32"), np.array([2])).shape == (1,)


def test_bad_constant_index_needs_no_device(context, monkeypatch):
    x = pt.fvector("x")
    f = opencl([x], x[np.array([2, 0, 0])] + 1)
    monkeypatch.setattr(DeviceErrorFlag, "read", None)
    np.testing.assert_array_equal(f(np.ones(3, "float32")), [2, 2, 2])
    with pytest.raises(IndexError, match="index 2 is out of bounds for axis 0 with size 2"):
        f(np.ones(2, "float32"))


def test_host_failures_that_follow_from_a_bad_index(context):
    x, i = pt.fvector("x"), pt.lvector("i")
    checked = pt.specify_shape(pt.sort(x[i]), 3)  # sorting waits for the device; the shape fails on the host
    f = opencl([x, i], checked + 1)
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        f(np.ones(3, "float32"), np.array([7, 0]))
    with pytest.raises(AssertionError, match="shape"):
        f(np.ones(3, "float32"), np.array([1, 0]))


def test_functions_without_checks_read_no_alarm(context):
    x = pt.fvector("x")
    f = opencl([x], x * 2)
    assert isinstance(f.vm, OpenCLVM)
    assert not f.vm._has_checks


def test_perform_checks_too(context):
    x, i = pt.fvector("x"), pt.lvector("i")
    f = opencl([x, i], x[i])
    (node,) = [n for n in f.maker.fgraph.apply_nodes if isinstance(n.op, GATHER)]
    values, out = [context.from_host(np.ones(3, "float32")), context.from_host(np.array([1, 3]))], [[None]]
    with pytest.raises(IndexError, match="index 3 is out of bounds for axis 0 with size 3"):
        node.op.perform(node, values, out)
    node.op.perform(node, [values[0], context.from_host(np.array([1, 2]))], out)
    np.testing.assert_array_equal(out[0][0].to_host(), [1, 1])


def test_profiled_calls_check_too(context):
    x, i = pt.fvector("x"), pt.lvector("i")
    f = opencl([x, i], x[i], profile=True)
    with pytest.raises(IndexError, match="index 3 is out of bounds"):
        f(np.ones(3, "float32"), np.array([3]))


def _random_graph(rng):
    """Return inputs, outputs and values: an array, what a random index of it selects, sets, adds, and its gradient."""
    shape = tuple(int(n) for n in rng.choice([1, 2, 3, 5], size=rng.integers(1, 5)))
    x, adv = pt.tensor("x", dtype="float32", shape=(None,) * len(shape)), int(rng.integers(1, 5))
    inputs, values, index = [x], [rng.normal(size=shape).astype("float32")], []
    for n in shape[: rng.integers(1, len(shape) + 1)]:
        if rng.random() < 0.5:
            index.append(slice(*(rng.choice([None, 1, 0, -1, 2]) for _ in range(2)), rng.choice([None, 1, -1, 2])))
            continue
        inputs.append(pt.vector(dtype=str(rng.choice(["int8", "int32", "int64"]))))
        values.append(rng.integers(-n, n, adv).astype(inputs[-1].dtype))
        index.append(inputs[-1])
    selected = x[tuple(index)]
    y = selected.type()
    target = x[tuple(index)]
    outputs = [selected, pt.set_subtensor(target, y), pt.inc_subtensor(target, y)]
    reference = values[0][tuple(values[1 + inputs[1:].index(e)] if e in inputs[1:] else e for e in index)]
    values.append(rng.normal(size=reference.shape).astype("float32"))
    outputs.append(pytensor.grad((selected**2).sum(), x))
    return [*inputs, y], outputs, values


def test_random(context, rng):
    graphs = [_random_graph(rng) for _ in range(8)]
    inputs, outputs, values = ([item for graph in graphs for item in graph[part]] for part in range(3))
    got = opencl(inputs, outputs)(*values)
    want = pytensor.function(inputs, outputs, mode="FAST_COMPILE")(*values)
    for g, w, output in zip(got, want, outputs, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6, strict=True, err_msg=str(output.owner))
