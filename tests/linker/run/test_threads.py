"""Functions that several threads call: each result is right, each update counts, each error stays in its thread."""

import copy
import pickle
import sys
import threading
from dataclasses import replace
from itertools import chain

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.executor import Function
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

import pytensor_cl
from pytensor_cl._compat import serial_function
from pytensor_cl.linker.run import call_lock
from pytensor_cl.linker.run.graph_cache import WARMUP_CALLS
from pytensor_cl.linker.selection import vm as selecting_vm
from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.runtime.context import Context
from tests.helpers import assert_on_device, host_ops, normal, opencl, run_script

THREADS, CALLS = 4, 40


@pytest.fixture(autouse=True)
def _switches_anywhere():
    """Let CPython change the thread wherever it can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.fixture(params=["device", "auto"])
def placement(request, context, monkeypatch):
    """Functions that run on the device, and functions that try it, NUMBA and the C backend in turn."""
    adapts = request.param == "auto"
    monkeypatch.setattr(selecting_vm, "POLICY", replace(selecting_vm.POLICY, trial_budget=0.0))
    with pytensor.config.change_flags(opencl__placement=request.param, opencl__select_backend=adapts):
        yield request.param


def in_threads(work, threads=THREADS):
    """Run ``work(number)`` in several threads that begin together; return what they return, or raise their error."""
    results, errors, start = [None] * threads, [], threading.Barrier(threads)

    def run(number):
        start.wait()
        try:
            results[number] = work(number)
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=run, args=(k,)) for k in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]
    return results


def of_one_kernel(rng, trusts):
    """A function, and a reference in NumPy."""
    x, k = pt.vector("x", dtype="float32"), pt.scalar("k", dtype="float32")
    f = opencl([x, k], [pt.exp(x * k), (x + k).sum()], trust_input=trusts)
    return f, lambda x, k: (np.exp(x * k), (x + k).sum())


@pytest.mark.parametrize("trusts", [False, True], ids=["checked", "trusted"])
@pytest.mark.parametrize("alike", [False, True], ids=["shapes", "shape"])
def test_each_thread_gets_its_own_results(placement, rng, trusts, alike):
    """From the first call on: step by step, captured, and replayed, where shapes are alike or not."""
    f, wanted = of_one_kernel(rng, trusts)
    values = [(normal(rng, 6 if alike else 5 + k), np.array(k / 4, "float32")) for k in range(THREADS)]

    def work(number):
        for _ in range(CALLS):
            for got, right in zip(f(*values[number]), wanted(*values[number]), strict=True):
                np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-6)

    in_threads(work)
    if placement == "auto":
        assert all(len(stats.seconds) > 1 for stats in f.vm.signatures)
    else:
        assert f.vm.executor.replay_count > 0


def test_arguments_by_name(placement, rng):
    f, wanted = of_one_kernel(rng, False)
    values = [normal(rng, 5 + k) for k in range(THREADS)]

    def work(number):
        for _ in range(CALLS):
            got = f(k=np.float32(2), x=values[number])
            np.testing.assert_allclose(got[0], wanted(values[number], np.float32(2))[0], rtol=1e-5)

    in_threads(work)


def test_no_update_is_lost(placement, rng):
    x, total = pt.vector("x", dtype="float32"), pytensor.shared(np.zeros(3, "float32"))
    f = opencl([x], total.sum(), updates={total: total + x})

    def work(number):
        return [float(f(np.full(3, number + 1, "float32"))) for _ in range(CALLS)]

    seen = in_threads(work)
    np.testing.assert_array_equal(total.get_value(), CALLS * sum(range(1, THREADS + 1)))
    assert len(set(chain(*seen))) == THREADS * CALLS  # each call has seen another state
    if placement == "device":
        assert_on_device(f, GpuElemwise)


def test_no_update_of_different_functions_is_lost(placement, rng):
    """Each pair shares a variable; one function has all of them, so that it needs several locks."""
    x = pt.vector("x", dtype="float32")
    u, v = (pytensor.shared(np.zeros(3, "float32"), name) for name in "uv")
    first, second = opencl([x], [], updates={u: u + x}), opencl([x], [], updates={v: v + x})
    both = opencl([x], [u.sum(), v.sum()], updates={u: u + x, v: v + 2 * x})
    assert first.vm.call_lock is not second.vm.call_lock
    functions = first, both, second, both

    def work(number):
        for _ in range(CALLS):
            functions[number](np.ones(3, "float32"))

    in_threads(work)
    np.testing.assert_array_equal(u.get_value(), 3 * CALLS)
    np.testing.assert_array_equal(v.get_value(), 5 * CALLS)


def test_a_function_of_several_locks_takes_a_subclass_of_arrays(context, on_device):
    """The call that looks at the argument before it takes the locks is not one that the other is nested in."""
    x = pt.vector("x", dtype="float32")
    u, v = (pytensor.shared(np.zeros(3, "float32"), name) for name in "uv")
    others = [opencl([x], [], updates={w: w + x}) for w in (u, v)]
    both = opencl([x], pt.exp(u + v), updates={u: u + x, v: v + 2 * x})
    assert_on_device(both, GpuElemwise)
    assert both.vm.call_lock.locks == tuple(f.vm.call_lock for f in sorted(others, key=lambda f: id(f.vm.call_lock)))
    value = np.array([0, 0.5, 1], "float32")
    for call in range(WARMUP_CALLS + 2):
        np.testing.assert_allclose(both(value.view(np.memmap)), np.exp(3 * call * value), rtol=1e-5)
    assert both.vm.copy_for_nested_calls is None


def test_each_random_number_is_drawn_once(placement):
    def compiled():
        stream = pytensor.shared(np.random.default_rng(1))
        following, draw = pt.random.normal(0, 1, size=(2,), rng=stream, return_next_rng=True)
        return opencl([], pt.exp(draw), updates={stream: following})

    f, alone = compiled(), compiled()
    seen = in_threads(lambda number: [tuple(f()) for _ in range(CALLS)])
    wanted = [tuple(alone()) for _ in range(THREADS * CALLS)]
    np.testing.assert_allclose(sorted(chain(*seen)), sorted(wanted), rtol=1e-5)


def test_errors_stay_in_their_threads(placement, rng):
    x, at = pt.vector("x", dtype="float32"), pt.lvector("at")
    f = opencl([x, at], pt.exp(x)[at].sum())
    value = normal(rng, 7)

    def work(number):
        failed = 0
        for call in range(CALLS):
            is_wrong = (call + number) % 2
            try:
                got = f(value, np.array([number, 70 + number] if is_wrong else [number, number]))
            except IndexError:
                assert is_wrong
                failed += 1
            else:
                assert not is_wrong
                np.testing.assert_allclose(got, 2 * np.exp(value[number]), rtol=1e-5)
        return failed

    assert in_threads(work) == [CALLS // 2] * THREADS


def test_threads_that_read_and_set_what_a_function_updates(placement):
    """A reader gets one state or another, and a value that was set is there until the next update."""
    x, w = pt.scalar("x", dtype="float32"), pytensor.shared(np.zeros(4, "float32"))
    update = opencl([x], [], updates={w: w + x})
    total = opencl([], [w.sum(), pt.exp(0 * w).sum()])

    def work(number):
        for call in range(CALLS):
            if number == 0:
                update(np.float32(1))
            elif number == 1:
                seen, fours = total()
                assert seen % 4 == 0
                assert fours == 4
            elif number == 2:
                value = w.get_value()
                assert (value == value[0]).all()
            else:
                w.set_value(np.full(4, 1000 * call, "float32"))

    in_threads(work)
    w.set_value(np.full(4, 7, "float32"))
    assert [float(r) for r in total()] == [28, 4]


def test_what_is_set_while_another_thread_moves_the_variable_is_not_lost(placement):
    w = pytensor.shared(np.zeros(4, "float32"))
    total = opencl([], pt.exp(w).sum())

    def work(number):
        for call in range(5 * CALLS):
            if number:
                total()
            else:
                w.set_value(np.full(4, call, "float32"))
                np.testing.assert_array_equal(w.get_value(), call)

    in_threads(work, 2)


def test_a_function_is_copied_and_pickled_while_it_is_called(placement, rng):
    f, wanted = of_one_kernel(rng, False)
    value = normal(rng, 5), np.float32(2)

    def work(number):
        for _ in range(5):
            g = (lambda: f, f.copy, lambda: pickle.loads(pickle.dumps(f)), lambda: copy.deepcopy(f))[number]()
            assert isinstance(g, serial_function.SerialFunction)
            for _ in range(WARMUP_CALLS):
                np.testing.assert_allclose(g(*value)[0], wanted(*value)[0], rtol=1e-5)

    in_threads(work)


def test_a_value_that_is_set_while_the_variable_moves_to_the_device_is_kept(context, on_device, monkeypatch):
    w = pytensor.shared(np.zeros(4, "float32"))
    total = opencl([], pt.exp(w).sum())
    upload = Context.from_host

    def set_meanwhile(self, array, **options):
        moved = upload(self, array, **options)
        monkeypatch.setattr(Context, "from_host", upload)
        w.set_value(np.ones(4, "float32"))  # as another thread may
        return moved

    monkeypatch.setattr(Context, "from_host", set_meanwhile)
    total()
    np.testing.assert_array_equal(w.get_value(), 1)
    np.testing.assert_allclose(total(), 4 * np.e, rtol=1e-5)


def test_a_value_that_is_set_while_the_variable_moves_to_the_host_is_kept(context, on_device, monkeypatch):
    w = pytensor.shared(np.zeros(4, "float32"))
    total = opencl([], pt.exp(w).sum())
    opencl([], [], updates={w: w - 1})()  # the new value is on the device alone
    download = Context.download

    def set_meanwhile(self, array):
        monkeypatch.setattr(Context, "download", download)
        w.set_value(np.ones(4, "float32"))
        return download(self, array)

    monkeypatch.setattr(Context, "download", set_meanwhile)
    w.container.storage[0]
    np.testing.assert_array_equal(w.get_value(), 1)
    np.testing.assert_allclose(total(), 4 * np.e, rtol=1e-5)


class Meanwhile(Op):
    """Does something in another thread until that waits for `lock`, or is done."""

    __props__ = ()
    work = lock = thread = None

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = inputs[0]
        if self.work is not None:
            self.thread = threading.Thread(target=self.work)
            self.thread.start()
            while self.thread.is_alive() and not self.lock.waiting:
                self.thread.join(1e-3)


@pytest.mark.parametrize("is_first", [False, True], ids=["after", "before"])
@pytest.mark.parametrize("kind", ["get", "set", "function"])
def test_a_variable_is_read_and_set_before_or_after_a_call_that_updates_it(on_device, context, kind, is_first):
    """A call writes the new value over the old one if it can: no other thread may read it meanwhile."""
    op, x, seen = Meanwhile(), pt.vector("x", dtype="float32"), []
    w = pytensor.shared(np.zeros(2, "float32"))
    if is_first:
        total = opencl([], pt.exp(w).sum())
    f = opencl([x], op(x), updates={w: w + op(x)})
    if not is_first:
        total = opencl([], pt.exp(w).sum())
    op.work = {
        "get": lambda: seen.append(w.get_value()[0]),
        "set": lambda: w.set_value(np.full(2, 7, "float32")),
        "function": lambda: seen.append(round(float(np.log(total() / 2)))),
    }[kind]
    op.lock = f.vm.call_lock
    f(np.ones(2, "float32"))
    op.thread.join()
    assert seen == ([] if kind == "set" else [1])
    np.testing.assert_array_equal(w.get_value(), 7 if kind == "set" else 1)
    assert total.vm.call_lock is f.vm.call_lock


class Nested(Op):
    """Calls a function with half of its argument; `function` is set afterwards."""

    __props__ = ()
    function = None

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, output_storage):
        (x,) = inputs
        output_storage[0][0] = x if x[0] < 1 else self.function(x / 2)


def test_a_function_whose_node_calls_it_again(placement):
    """The outer call still needs its argument, and what it has computed before."""
    op = Nested()
    x = pt.vector("x", dtype="float32")
    before = pt.sqrt(x)
    op.function = f = opencl([x], op(x) + before + 10 * x)
    assert op in host_ops(f)

    def wanted(x):
        return (x if x[0] < 1 else wanted(x / 2)) + np.sqrt(x) + 10 * x

    value = np.array([9, 30], "float32")
    for _ in range(WARMUP_CALLS + 3):
        np.testing.assert_allclose(f(value), wanted(value), rtol=1e-5)
    in_threads(lambda number: [np.testing.assert_allclose(f(value + number), wanted(value + number), rtol=1e-5)])


def test_a_node_calls_a_function_that_updates_the_same_variable(placement):
    """Both have one lock, which the thread has already."""
    op = Nested()
    x, w = pt.vector("x", dtype="float32"), pytensor.shared(np.zeros(2, "float32"))
    op.function = opencl([x], x * 2, updates={w: w + 1})
    f = opencl([x], op(x) + w, updates={w: w + 2})
    for _ in range(WARMUP_CALLS + 2):
        f(np.array([4, 4], "float32"))
    assert f.vm.call_lock is op.function.vm.call_lock
    assert not f.vm.call_lock.held


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_the_lock_is_free_after_a_call_that_fails(on_device, context, error, monkeypatch):
    x = pt.vector("x", dtype="float32")
    f = opencl([x], pt.exp(x))

    def fail(*_):
        raise error

    with monkeypatch.context() as patch, pytest.raises(error):
        patch.setattr(type(f.vm), "run", fail)
        f(np.zeros(3, "float32"))
    assert not f.vm.call_lock.held
    np.testing.assert_array_equal(f(np.zeros(3, "float32")), 1)


def test_a_wait_for_the_lock_can_be_interrupted_and_no_wake_is_missed(monkeypatch):
    lock = call_lock.CallLock()
    monkeypatch.setattr(call_lock, "POLL_SECONDS", 1e-4)
    lock.held = True
    looks = []

    class Waiter(call_lock._Waiter):
        def __init__(self):
            super().__init__()
            self.woken = self

        def acquire(self, timeout):
            looks.append(timeout)
            if len(looks) == 3:
                raise KeyboardInterrupt
            if len(looks) == 6:
                lock.held = False  # and no thread is woken

    monkeypatch.setattr(call_lock, "_Waiter", Waiter)
    with pytest.raises(KeyboardInterrupt):
        lock.wait_until_free()
    assert not lock.waiting
    lock.wait_until_free()
    assert (len(looks), len(lock.waiting)) == (6, 0)


def test_functions_are_still_those_of_pytensor(context, on_device):
    x = pt.vector("x", dtype="float32")
    f = opencl([x], pt.exp(x))
    assert isinstance(f, Function)
    assert type(pytensor.function([x], pt.exp(x), mode="FAST_COMPILE")) is Function
    assert f.__call__.__doc__ == Function.__call__.__doc__


def test_the_call_without_pytensors_source(monkeypatch):
    def method(self, *args, **kwargs):
        return self, args, kwargs

    class StepRunner:
        call_lock = call_lock.CallLock()

    class Some:
        vm = StepRunner
        modules = sys.modules

    def no_source(_):
        raise OSError("no source")

    some = Some()
    assert serial_function._with_lock(method)(some, 1, k=2) == (some, (1,), {"k": 2})
    monkeypatch.setattr(serial_function.inspect, "getsourcelines", no_source)
    assert serial_function._with_lock(method)(some, 1, k=2) == (some, (1,), {"k": 2})
    assert not StepRunner.call_lock.held


FORK = """
    import os, threading
    import numpy as np, pytensor, pytensor.tensor as pt
    import pytensor_cl
    from pytensor.graph.basic import Apply
    from pytensor.graph.op import Op
    pytensor_cl.use("opencl:{driver}")

    class Waits(Op):
        __props__ = ()
        inside, may_end = threading.Event(), threading.Event()
        def make_node(self, x):
            return Apply(self, [x], [x.type()])
        def perform(self, node, inputs, output_storage):
            output_storage[0][0] = inputs[0]
            if inputs[0].size == 2:
                self.inside.set()
                self.may_end.wait()

    x = pt.fvector("x")
    f = pytensor.function([x], Waits()(x) + 1, mode="OPENCL")
    thread = threading.Thread(target=f, args=(np.zeros(2, "float32"),))
    thread.start()
    Waits.inside.wait()
    child = os.fork()
    if not child:
        os._exit(int(f(np.zeros(3, "float32"))[0]) + 1)
    seen["code"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    Waits.may_end.set()
    thread.join()
    seen["parent"] = float(f(np.zeros(3, "float32"))[0])
"""


def test_a_child_does_not_wait_for_a_thread_of_its_parent(context):
    seen, _ = run_script(FORK.format(driver=context.name))
    assert seen == {"code": 2, "parent": 1}


def test_functions_of_several_threads_on_one_device(placement, rng):
    """A function for each thread: what they have in common is the device."""
    x = pt.matrix("x", dtype="float32")
    weights = [normal(rng, 5, 5) for _ in range(THREADS)]
    functions = [opencl([x], pt.tanh(x @ pytensor.shared(w)).sum(axis=0)) for w in weights]

    def work(number):
        value = np.full((3 + number, 5), 0.1, "float32")
        wanted = np.tanh(value @ weights[number]).sum(axis=0)
        for _ in range(CALLS):
            np.testing.assert_allclose(functions[number](value), wanted, rtol=1e-4, atol=1e-5)

    in_threads(work)
    assert placement == "auto" or pytensor_cl.explain(functions[0]).device_nodes
