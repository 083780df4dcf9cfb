"""Shared variables: resident on the device, with the behaviour of host variables."""

import copy
import itertools
import pickle

import cloudpickle
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.sharedvar import TensorSharedVariable

import pytensor_cl
from pytensor_cl import GpuArray
from pytensor_cl.errors import ContextNotDefined, UnsupportedDtype
from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.gemm import GpuGemm
from pytensor_cl.sharedvar import DeviceCell, GpuArraySharedVariable, adopt
from tests.helpers import (
    another_context,
    assert_all_on_device,
    assert_close,
    assert_on_device,
    counted_traffic,
    host_sort,
    opencl,
    run_script,
)


def shared(value, dtype="float32", **options):
    return pytensor.shared(np.asarray(value, dtype), **options)


def resident(variable):
    return variable.container.storage.resident


@pytest.fixture
def weights(context, rng):
    return shared(rng.normal(size=(5, 4)), name="weights")


def test_a_plain_shared_variable_keeps_its_class(weights):
    assert type(weights) is TensorSharedVariable and isinstance(weights, pt.TensorVariable)
    assert isinstance(weights.container.storage, DeviceCell)
    assert isinstance(weights.container.storage, list) and len(weights.container.storage) == 1


def test_reading_uploads_once(context, weights):
    f = opencl([], pt.exp(weights))
    assert_all_on_device(f, GpuElemwise)
    with counted_traffic() as traffic:
        for _ in range(4):
            assert_close(f(), np.exp(weights.get_value()))
    assert traffic.up == 1 and resident(weights) == (context.name,)


def training(weights, x, y):
    error = pt.dot(x, weights) - y
    gradient = pt.grad((error**2).mean(), weights)
    return [(weights, weights - np.float32(0.1) * gradient)]


def test_a_training_loop_uploads_once_and_never_downloads(context, rng):
    weights = shared(np.zeros((4, 2)))
    x, y = shared(rng.normal(size=(50, 4))), shared(rng.normal(size=(50, 2)))
    step = opencl([], None, updates=training(weights, x, y))
    assert_on_device(step, GpuGemm)
    with counted_traffic() as traffic:
        step()
        assert traffic.both == (3, 0)
        for _ in range(20):
            step()
    assert traffic.both == (3, 0)
    twin = shared(np.zeros((4, 2)))
    reference = pytensor.function([], None, updates=training(twin, x, y), mode="FAST_COMPILE")
    for _ in range(21):
        reference()
    assert_close(weights.get_value(), twin.get_value())


MODES = ("OPENCL", "NUMBA", "FAST_COMPILE")


@pytest.fixture(scope="module")
def actions():
    """Functions of every mode that read and update one shared variable, compiled once."""
    made = {}

    def of(context):
        if context.name not in made:
            s = shared(np.zeros(3), name="s")
            made[context.name] = s, dict(_actions(s))
        return made[context.name]

    return of


def _actions(s):
    for mode in MODES:
        yield f"read {mode}", _reader(s, mode)
        yield f"update {mode}", pytensor.function([], None, updates={s: s * 2 + 1}, mode=mode)
        part = pt.set_subtensor(s[1], s[1] + 10)
        yield f"update one element {mode}", pytensor.function([], None, updates={s: part}, mode=mode)
    yield "set value", lambda: s.set_value(np.array([4, 5, 6], "float32"))
    yield "set borrowed value, change it", lambda: _set_borrowed(s)
    yield "change in place", lambda: s.get_value(borrow=True).__setitem__(0, 9)
    yield "get value, change it", lambda: s.get_value().__setitem__(0, 99)


def _reader(s, mode):
    f = pytensor.function([], [pt.exp(s * 0.1), s[::-1]], mode=mode)

    def read():
        value = s.get_value()
        exponential, backwards = f()
        assert_close(exponential, np.exp(value * np.float32(0.1)).astype(exponential.dtype))
        assert_close(backwards, value[::-1])

    return read


def _set_borrowed(s):
    array = np.array([7, 8, 9], "float32")
    s.set_value(array, borrow=True)
    array[2] = 1


EFFECTS = {
    "update": lambda v: v * 2 + 1,
    "update one element": lambda v: v + np.array([0, 10, 0], "float32"),
    "set value": lambda v: np.array([4, 5, 6], "float32"),
    "set borrowed value, change it": lambda v: np.array([7, 8, 1], "float32"),
    "change in place": lambda v: np.array([9, *v[1:]], "float32"),
}


def test_every_interleaving_of_readers_and_writers(context, actions):
    s, functions = actions(context)
    readers = [name for name in functions if name.startswith("read")]
    for sequence in itertools.product(functions, functions, readers):
        s.set_value(np.array([1, 2, 3], "float32"))
        expected = s.get_value()
        for name in sequence:
            functions[name]()
            kind = name if name in EFFECTS else name.rpartition(" ")[0]
            expected = EFFECTS.get(kind, lambda v: v)(expected)
            assert_close(s.get_value(), expected)
        functions["read OPENCL"]()


def test_changes_of_a_borrowed_array_are_seen(context):
    f_of = lambda s: opencl([], pt.exp(s * 2))  # noqa: E731
    array = np.arange(4, dtype="float32")
    for value in (array, array[1:], array.reshape(2, 2)):
        s = pytensor.shared(value, borrow=True)
        f = f_of(s)
        for _ in range(3):
            assert_close(f(), np.exp(value * 2))
            array[1] -= 0.5
        changed = s.get_value(borrow=True)
        changed[...] = 3
        assert_close(f(), np.exp(np.full_like(value, 6)))


def test_get_value_is_a_copy(context, weights):
    f = opencl([], None, updates={weights: weights + 1})
    f()
    first = weights.get_value()
    first[:] = 0
    assert weights.get_value().any()
    borrowed = weights.get_value(borrow=True)
    assert borrowed is weights.get_value(borrow=True)
    assert weights.get_value(return_internal_type=True) is not borrowed


def test_two_functions_share_without_traffic(context, weights):
    x = pt.matrix(dtype="float32")
    update = opencl([x], None, updates={weights: weights + x})
    read = opencl([], (weights * 2).sum(0).transfer(context.name))
    value = weights.get_value()
    with counted_traffic() as traffic:
        for _ in range(3):
            update(np.ones((5, 4), "float32"))
            result = read()
    assert traffic.both == (4, 0) and isinstance(result, GpuArray)
    assert_close(result, ((value + 3) * 2).sum(0))


def test_updates_are_simultaneous(context):
    a, b, c = shared([1, 2]), shared([10, 20]), shared([100, 200])
    updates = {a: b, b: a, c: a + b + c}
    f = opencl([], [a + b, c * 1], updates=updates)
    for _ in range(3):
        before = [v.get_value() for v in (a, b, c)]
        total, same = f()
        assert_close(total, before[0] + before[1])
        assert_close(same, before[2])
        for got, wanted in zip((a, b, c), (before[1], before[0], sum(before)), strict=True):
            assert_close(got.get_value(), wanted)


def test_swap_of_computed_values(context):
    a, b = shared([1, 2, 3]), shared([4, 5, 6])
    f = opencl([], None, updates={a: b + 1, b: a[::-1] * 2})
    assert_all_on_device(f, GpuElemwise)
    f(), f()
    assert_close(a.get_value(), np.array([7, 5, 3], "float32"))
    assert_close(b.get_value(), np.array([14, 12, 10], "float32"))


def test_shared_views_do_not_alias(context):
    a, b = shared([1, 2, 3]), shared([4, 5, 6])
    f = opencl([], None, updates={a: b[::-1], b: b + 1})
    g = opencl([], None, updates={a: a + 1})
    f(), g(), f()
    assert_close(b.get_value(), np.array([6, 7, 8], "float32"))
    assert_close(a.get_value(), np.array([7, 6, 5], "float32"))
    g()
    assert_close(b.get_value(), np.array([6, 7, 8], "float32"))


def test_an_update_that_is_also_an_output(context):
    s = shared([1, 2, 3])
    new = s * 2
    f = opencl([], [new, new.transfer(context.name), new.sum()], updates={s: new})
    kept = [f() for _ in range(3)]
    s.get_value(borrow=True)[:] = 0
    for i, (host, device, total) in enumerate(kept, 1):
        expected = np.array([1, 2, 3], "float32") * 2**i
        assert_close(host, expected)
        assert_close(device, expected)
        assert_close(total, expected.sum())
        host[:] = 0
    assert_close(s.get_value(), np.zeros(3, "float32"))


def test_scalars_and_counters(context):
    loss, count, small = shared(0.5), shared(0, "int64"), shared(3, "int8")
    x = pt.vector(dtype="float32")
    f = opencl([x], [loss * 2, count + 1], updates={loss: loss * 0.5 + x.sum(), count: count + 1, small: -small})
    for i in range(3):
        before = loss.get_value()
        double, following = f(np.ones(3, "float32"))
        assert_close(double, before * 2)
        assert_close(following, np.int64(i + 1))
        assert_close(loss.get_value(), np.float32(before * 0.5 + 3))
        assert isinstance(loss.get_value(), np.ndarray) and loss.get_value().shape == ()
    assert_close(count.get_value(), np.int64(3))
    assert_close(small.get_value(), np.int8(-3))


def test_a_counter_that_indexes(context):
    at, data = shared(0, "int64"), shared(np.arange(12).reshape(4, 3))
    f = opencl([], pt.exp(data[at]), updates={at: (at + 1) % 4})
    for i in range(5):
        assert_close(f(), np.exp(data.get_value()[i % 4]))


def test_in_two_contexts(context, weights):
    other = another_context(context)
    here, there = (pytensor_cl.gpu_from_host(weights, c.name) for c in (context, other))
    f = opencl([], [pt.exp(here), pt.tanh(there)])
    g = opencl([], None, updates={weights: pytensor_cl.gpu_from_host(pt.tanh(there), other.name).transfer("cpu")})
    for _ in range(2):
        value = weights.get_value()
        exponential, tangent = f()
        assert_close(exponential, np.exp(value))
        assert_close(tangent, np.tanh(value))
        assert set(resident(weights)) == {context.name, other.name}
        g()
        assert resident(weights) == (other.name,)
        assert_close(weights.get_value(), np.tanh(value))


def test_shared_variables_pickle_with_their_current_value(context, weights):
    opencl([], None, updates={weights: weights + 1})()
    assert resident(weights) == (context.name,)
    value = weights.get_value()
    copies = [pickle.loads(pickle.dumps(weights)), cloudpickle.loads(cloudpickle.dumps(weights))]
    assert resident(weights) == (context.name,)
    for again in (*copies, copy.deepcopy(weights)):
        assert type(again) is TensorSharedVariable and again.container.storage is not weights.container.storage
        assert_close(again.get_value(), value)
        f = opencl([], again * 2, updates={again: again - 1})
        assert_close(f(), value * 2)
        assert_close(again.get_value(), value - 1)
    assert_close(weights.get_value(), value)


def test_functions_with_shared_variables_pickle_and_copy(context):
    s = shared([1, 2, 3])
    f = opencl([], s.sum(), updates={s: s * 2})
    f()
    for again in (pickle.loads(pickle.dumps(f)), cloudpickle.loads(cloudpickle.dumps(f)), copy.deepcopy(f)):
        assert_close(again(), np.float32(12))
        assert_close(again(), np.float32(24))
    assert_close(f(), np.float32(12))


def test_copy_with_swap_and_shared_memory(context):
    s, t = shared([1, 2, 3]), shared([10, 20, 30])
    f = opencl([], (s * 2).sum(), updates={s: s + 1})
    assert_close(f(), np.float32(12))
    other = f.copy(swap={s: t})
    assert_close(other(), np.float32(120))
    assert_close(t.get_value(), np.array([11, 21, 31], "float32"))
    still, sharing = f.copy(delete_updates=True), f.copy(share_memory=True)
    assert_close(still(), np.float32(18))
    assert_close(still(), np.float32(18))
    assert_close(sharing(), np.float32(18))
    assert_close(f(), np.float32(24))
    assert_close(s.get_value(), np.array([4, 5, 6], "float32"))


def test_variables_from_before_are_adopted(context):
    s = shared([1, 2, 3])
    s.container.storage = [s.get_value()]
    adopt(s)
    adopt(s)
    assert isinstance(s.container.storage, DeviceCell)
    assert_close(opencl([], s * 2)(), np.array([2, 4, 6], "float32"))


def test_set_value_of_another_shape(context):
    s = shared([1, 2, 3])
    f = opencl([], [pt.exp(s), s.shape[0]], updates={s: s[:-1] * 1})
    for n in (3, 2, 5, 0, 7):
        s.set_value(np.arange(n, dtype="float32"))
        exponential, length = f()
        assert_close(exponential, np.exp(np.arange(n, dtype="float32")))
        assert int(length) == n
    assert s.get_value().shape == (6,)


def test_bad_values_leave_the_old_one(context, weights):
    opencl([], None, updates={weights: weights + 1})()
    before = weights.get_value()
    for bad in (np.zeros(3, "float32"), np.zeros((5, 4)), "text"):
        with pytest.raises((TypeError, ValueError)):
            weights.set_value(bad)
    assert_close(weights.get_value(), before)


def test_device_shared_variables(context, rng):
    value = rng.normal(size=(3, 4)).astype("float32")
    w = pytensor_cl.shared(value, name="w", target=context.name)
    assert type(w) is GpuArraySharedVariable and w.name == "w" and w.type.context_name == context.name
    f = opencl([], [w, pt.exp(w), w.T], updates={w: w - 0.5 * pt.grad((w**2).sum(), w)})
    assert_all_on_device(f, GpuElemwise)
    with counted_traffic() as traffic:
        same, exponential, _ = f()
    assert traffic.both == (0, 2) and isinstance(same, GpuArray)
    assert_close(same, value)
    assert_close(exponential, np.exp(value))
    assert_close(w.get_value(), np.zeros_like(value))
    w.set_value(value)
    inside = w.get_value(borrow=True, return_internal_type=True)
    assert inside is w.get_value(borrow=True, return_internal_type=True)
    assert inside is not w.get_value(return_internal_type=True)
    for again in (pickle.loads(pickle.dumps(w)), copy.deepcopy(w)):
        assert type(again) is GpuArraySharedVariable
        assert_close(again.get_value(), value)


def test_shared_of_a_device_array(context):
    array = context.from_host(np.ones(3, "float32"))
    copied, borrowed = pytensor.shared(array), pytensor.shared(array, borrow=True)
    assert isinstance(copied, GpuArraySharedVariable)
    assert copied.get_value(borrow=True, return_internal_type=True).buffer is not array.buffer
    assert borrowed.get_value(borrow=True, return_internal_type=True) is array
    f = opencl([], None, updates={borrowed: borrowed + copied})
    f()
    assert_close(borrowed.get_value(), np.full(3, 2, "float32"))
    assert_close(array, np.ones(3, "float32"))


def test_host_updates_of_a_device_shared_variable(context):
    w = pytensor_cl.shared(np.ones(3, "float32"))
    x = pt.vector(dtype="float32")
    f = opencl([x], None, updates={w: pytensor_cl.gpu_from_host(host_sort(x))})
    f(np.array([3, 1, 2], "float32"))
    assert_close(w.get_value(), np.array([1, 2, 3], "float32"))
    plain = pytensor.function([], w.sum(), mode="FAST_COMPILE")
    assert_close(plain(), np.float32(6))


def test_device_shared_variables_refuse(context):
    with pytest.raises(ContextNotDefined, match="nowhere"):
        pytensor_cl.shared([1.0], target="nowhere")
    with pytest.raises(UnsupportedDtype, match="cannot hold float128"):
        pytensor_cl.shared([np.longdouble(1)])
    w = pytensor_cl.shared(np.ones(3, "float32"))
    with pytest.raises(TypeError):
        w.set_value(np.ones((3, 3), "float32"))
    assert_close(w.get_value(), np.ones(3, "float32"))


def test_sparse_and_generator_shared_variables(context):
    from scipy import sparse

    matrix = pytensor.shared(sparse.csr_matrix(np.eye(3, dtype="float32")))
    generator = pytensor.shared(np.random.default_rng(0))
    assert type(generator.container.storage) is list
    x = pt.matrix(dtype="float32")
    f = opencl([x], pt.exp(pytensor.sparse.structured_dot(matrix, x)))
    assert_close(f(np.eye(3, dtype="float32")), np.exp(np.eye(3, dtype="float32")))


def test_loads_where_the_package_is_unknown(context):
    s = shared([1, 2, 3])  # the pickle quotes this line
    assert b"pytensor_cl" not in pickle.dumps(s)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("calls", [0, 2])
def test_function_and_variable_stay_together_through_a_pickle(context, order, calls):
    s = shared([1, 2, 3])
    x = pt.vector("x", dtype="float32")
    f = opencl([x], s + x, updates={s: s + x})
    for _ in range(calls):
        f(np.ones(3, "float32"))
    pair = [(f, s)[i] for i in order]
    loaded = pickle.loads(pickle.dumps(pair))
    g, t = (loaded[i] for i in order)
    start = t.get_value()
    g(np.ones(3, "float32"))
    assert_close(t.get_value(), start + 1)
    t.set_value(np.full(3, 10, "float32"))
    assert_close(g(np.zeros(3, "float32")), np.full(3, 10, "float32"))
    assert t.container.storage.resident == (context.name,)
    assert_close(s.get_value(), start)


def test_values_that_other_functions_computed_stay_on_the_device(context):
    s = shared([1, 2, 3])
    step = pytensor.function([], [], updates={s: s + 1}, mode="FAST_COMPILE")
    read = opencl([], s * 2)
    step()
    read()
    assert s.container.storage.resident == (context.name,)
    borrowed = s.get_value(borrow=True)
    read()
    borrowed += 1
    assert_close(read(), s.get_value() * 2)


def test_function_in_a_spawned_process(context, tmp_path):
    s = shared([1, 2, 3])
    x = pt.vector("x", dtype="float32")
    f = opencl([x], [pt.exp(x + s), (x * s).transfer(context.name)], updates={s: s + 1})
    f(np.zeros(3, "float32"))
    (tmp_path / "f.pkl").write_bytes(pickle.dumps(f))
    script = f"""
        import pickle, numpy as np, pytensor, pytensor_cl
        pytensor_cl.use("opencl:{context.name}", "{context.name}")
        f = pickle.load(open({str(tmp_path / "f.pkl")!r}, "rb"))
        e, d = f(np.ones(3, "float32"))
        seen["values"] = [e.tolist(), np.asarray(d).tolist(), type(d).__name__]
    """
    seen, _ = run_script(script)
    exponential, product, kind = seen["values"]
    assert_close(np.float32(exponential), np.exp(np.array([3, 4, 5], "float32")))
    assert (product, kind) == ([2, 3, 4], "GpuArray")


def test_host_ops_read_without_driving_the_value_off_the_device(context, weights):
    f = opencl([], [pt.exp(weights), host_sort(weights.ravel())], updates={weights: weights * 2})
    assert_on_device(f, GpuElemwise)
    for _ in range(3):
        value = weights.get_value()
        exponential, ordered = f()
        assert_close(exponential, np.exp(value))
        assert_close(ordered, np.sort(value.ravel()))
        assert resident(weights) == (context.name,)


def test_c_code_raises_an_error(context, weights):
    cell = weights.container.storage
    opencl([], None, updates={weights: weights + 1})()
    assert "OpenCL device" in repr(list.__getitem__(cell, 0))
    cell[0]
    assert isinstance(list.__getitem__(cell, 0), np.ndarray) and cell.resident == ()


def test_the_shape_of_a_resident_value_is_known_without_a_download(context, weights):
    f = opencl([], [weights.shape[0], weights.shape], updates={weights: weights[1:] * 2})
    f()
    with counted_traffic() as traffic:
        rows, shape = f()
    assert traffic.both == (0, 0)
    assert int(rows) == 4 and list(shape) == [4, 4]
