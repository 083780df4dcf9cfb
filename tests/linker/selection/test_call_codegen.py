"""Calls by generated code: nothing stays behind, and whatever an argument or a shared variable is, it is found."""

import pickle
import weakref

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl.linker.selection.backends import DEVICE, NUMBA, C
from pytensor_cl.linker.selection.call_codegen import SlowPaths, compile_call, with_host_arrays
from pytensor_cl.ops import scan_loop
from pytensor_cl.sharedvar import DeviceCell
from tests.helpers import assert_close, opencl

pytestmark = pytest.mark.usefixtures("c_compiler")

x, y = pt.fvector("x"), pt.fvector("y")


@pytest.fixture(autouse=True)
def _adapt():
    with pytensor.config.change_flags(opencl__select_backend=True):
        yield


def settle(f, side, *arguments):
    """Make a function run on a backend."""
    f(*arguments)
    host = f.vm._host_backends.get(side)
    (stats,) = f.vm.signatures
    if host is not None:
        for cell, value in zip(f.vm.input_storage, arguments, strict=False):
            cell[0] = value
        host.run()
    stats.backend = side
    f.vm._apply(stats)
    stats.calls_left = 1 << 40
    return stats


@pytest.mark.parametrize("side", [DEVICE, NUMBA, C])
def test_nothing_of_a_call_stays_behind(context, side):
    f = opencl([x, y], [x * 2, x + y])
    one = np.ones(5, "float32")
    settle(f, side, one, one)
    value = np.arange(5, dtype="float32")
    results = f(value, one)
    assert_close(results[1], value + 1)
    gone = [weakref.ref(r) for r in (value, *results)]
    del value, results
    assert [r() for r in gone] == [None] * 3


@pytest.mark.parametrize("side", [DEVICE, NUMBA, C])
def test_with_allow_gc_off_results_are_the_caller_s_too(context, side):
    with pytensor.config.change_flags(allow_gc=False):
        f = opencl([x], x + 1)
    settle(f, side, np.zeros(3, "float32"))
    results = [f(np.full(3, k, "float32")) for k in range(4)]
    assert [float(r[0]) for r in results] == [1, 2, 3, 4]


def test_other_sizes_have_other_signatures(context, rng):
    f = opencl([x, y], x + y)
    settle(f, C, np.zeros(3, "float32"), np.zeros(3, "float32"))
    for n in (3, 5, 3, 1000, 3, 2):
        value = rng.normal(size=n).astype("float32")
        assert_close(f(value, value), 2 * value)
    assert [c.shapes for c in f.vm.signatures] == [((k,), (k,)) for k in (5, 1000, 3)]  # by their last use
    with pytest.raises(ValueError, match="input shapes"):
        f(np.zeros(3, "float32"), np.zeros(4, "float32"))


def test_arguments_that_are_no_arrays_go_to_the_device(context):
    f = opencl([x], x + 1)
    f.trust_input = True
    settle(f, C, np.zeros(3, "float32"))
    for wrong in (None, 3.0):
        with pytest.raises(Exception, match=r"\+|GpuFromHost|array"):
            f(wrong)
    assert_close(f(np.ones(3, "float32")), np.full(3, 2, "float32"))


def test_profiling_can_be_switched_on_and_off(context):
    f = opencl([x], x + 1)
    stats = settle(f, C, np.zeros(3, "float32"))
    left = stats.calls_left
    seen = []
    f.vm.call_listeners.append(seen.append)
    for value in (False, True, True, False):
        f.vm.time_thunks = value
        assert_close(f(np.ones(3, "float32")), np.full(3, 2, "float32"))
    assert len(seen) == 2 and left - stats.calls_left == 2


@pytest.mark.parametrize("side", [NUMBA, C])
def test_shared_variables_that_are_on_a_device(context, side):
    w = pytensor.shared(np.arange(3, dtype="float32"), "w")
    with pytensor.config.change_flags(opencl__placement="device"):
        double = opencl([], None, updates={w: w * 2})
    f = opencl([x], x + w)
    one = np.ones(3, "float32")
    settle(f, side, one)
    for k in range(4):
        assert_close(f(one), 1 + 2.0**k * np.arange(3, dtype="float32"))
        double()
        assert w.container.storage.resident
    assert w.container.storage.resident
    w.set_value(np.full(3, 7, "float32"))
    assert_close(f(one), np.full(3, 8, "float32"))


def test_a_shared_variable_is_uploaded_once(context):
    """The copy of an array that other code refers to is not kept, so the call itself must not refer to it."""
    w = pytensor.shared(np.linspace(0, 1, 1 << 20, dtype="float32"), "w")
    f = opencl([], pt.exp(w))  # without an argument, the shape of the shared variable is the signature
    for _ in range(3):
        assert_close(f(), np.exp(np.linspace(0, 1, 1 << 20, dtype="float32")))
    (stats,) = f.vm.signatures
    assert stats.is_on_device
    assert w.container.storage.resident == (context.name,)


def test_a_call_that_fails_leaves_shared_variables_where_they_are(context):
    w = pytensor.shared(np.arange(3, dtype="float32"), "w")
    with pytensor.config.change_flags(opencl__placement="device"):
        double = opencl([], None, updates={w: w * 2})
    f = opencl([x], x * w)
    settle(f, C, np.ones(3, "float32"))
    double()
    with pytest.raises(ValueError):
        f(np.ones(4, "float32"))
    assert w.container.storage.resident
    assert w.get_value().tolist() == [0, 2, 4]


def test_pickling_compiles_no_inner_graph(context, monkeypatch):
    monkeypatch.setattr(
        scan_loop, "known_program", lambda *_: "no kernel of the whole loop"
    )  # the loop stays on the host
    total = pytensor.scan(lambda a, s: s + a, [x], pt.constant(np.float32(0)), return_updates=False)
    f = opencl([x], total[-1])
    value = np.ones(3, "float32")
    assert float(f(value)) == 3
    assert f.vm.allow_gc  # PyTensor would else compile what is inside
    assert float(pickle.loads(pickle.dumps(f))(value)) == 3


def slow_paths(**others):
    def unexpected(*_):
        raise AssertionError

    return SlowPaths(**(dict.fromkeys(SlowPaths._fields, unexpected) | others))


def test_a_function_without_arguments_has_one_signature():
    class Stats:
        calls_left, run, is_on_device = 2, list, False

    found = []
    paths = slow_paths(find_stats=lambda: found.append(1) or Stats, run_slowly=lambda stats: ["measured"])
    call = compile_call(paths, [], [])
    assert [call() for _ in range(3)] == [[], [], ["measured"]] and len(found) == 1


def test_a_call_that_fails_is_left_to_the_virtual_machine():
    class Stats:
        calls_left, is_on_device = 9, True

        @staticmethod
        def run():
            raise KeyError("broken")

    def after_failure(stats, failure):
        assert stats is Stats and failure.__context__ is None
        if stats.is_on_device:
            raise failure
        return ["repeated"]

    cell = [1]
    call = compile_call(slow_paths(find_stats=lambda: Stats, run_after_failure=after_failure), [], [cell])
    with pytest.raises(KeyError):
        call()
    Stats.is_on_device = False
    assert call() == ["repeated"] and cell == [None]


def test_numbers_become_arrays_for_compiled_code():
    number, shared = [np.float32(2)], DeviceCell(np.ones(2, "float32"))
    run = with_host_arrays(lambda: [type(number[0]), list.__getitem__(shared, 0)], [number, shared])
    kind, value = run()
    assert kind is np.ndarray and value.tolist() == [1, 1]


def test_an_argument_without_a_shape_is_no_error_of_the_generated_call():
    cell, found = [None], []
    paths = slow_paths(find_stats=lambda: found.append(1), run_without_selection=lambda: ["without"])
    call = compile_call(paths, [(cell, 1)], [])
    for value in (None, 3.0, [1.0]):
        cell[0] = value
        assert call() == ["without"]
    assert len(found) == 3


def test_an_error_of_a_shape_is_not_hidden():
    """An AttributeError inside the machine is a defect, and nothing to go on with."""

    def broken():
        raise AttributeError("a defect")

    call = compile_call(slow_paths(find_stats=broken), [([np.ones(3)], 1)], [])
    with pytest.raises(AttributeError, match="a defect"):
        call()
