"""NumPy arrays beside device arrays through random operations: a write is seen by exactly those that NumPy says.

The values of functions, shared variables, constants and copies do not change by it. By hand, longer:
``PYTENSOR_CL_SWEEPS=all``, or a number of programs, ``EXAMPLES=1000``.
"""

import gc
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import pytensor_cl
import pytensor_cl.array as xp
from pytensor_cl.runtime.array import GpuArray
from tests.conftest import ALL, DRIVERS, context_of

SHAPES = [(), (1,), (4,), (3, 4), (2, 3), (2, 0, 3), (2, 3, 2)]
DTYPES = ["float32", "int32", "float64", "bool"]
_MOST = 12
"""Pairs that are kept; the oldest ones go."""


class Pair:
    """A NumPy array, the device array that must equal it, and an array of the host over the same memory, or None."""

    def __init__(self, host, device, seen=None):
        assert isinstance(device, GpuArray)
        self.host, self.device, self.seen = host, device, seen

    def check(self):
        """Compare values, dtypes and shapes."""
        values = np.asarray(self.device)
        assert (values.dtype, values.shape) == (self.host.dtype, self.host.shape)
        np.testing.assert_array_equal(values, self.host)
        if self.seen is not None:
            np.testing.assert_array_equal(self.seen, self.host)


@cache
def _function(kind, context_name):
    """Return a compiled function, whose results are on the device, and what it computes."""
    x, y = pt.fmatrix("x"), pt.fmatrix("y")
    d = pytensor_cl.GpuArrayType("float32", (None, None))("d")
    graphs = {
        "two": ([x, y], [x + y, x * 2]),
        "itself": ([x], [x, x.T, x[1:]]),
        "device": ([d], [d, d[:, ::-1], d - 1]),
        "set": ([x], [pt.set_subtensor(x[0], 7.0)]),
    }
    inputs, outputs = graphs[kind]
    return pytensor.function(inputs, [o.transfer(context_name) for o in outputs], mode="OPENCL")


@cache
def _stored(context_name):
    """Return a shared variable, and a function that sets it to its argument."""
    x = pt.fmatrix("x")
    variable = pytensor_cl.shared(np.zeros((1, 1), "float32"), target=context_name)
    return variable, pytensor.function([x], [], updates={variable: x.transfer(context_name)}, mode="OPENCL")


@cache
def _increment(context_name):
    """Return a function that adds one to the variable of `_stored`."""
    variable, _ = _stored(context_name)
    return pytensor.function([], [], updates={variable: variable + 1}, mode="OPENCL")


EXPECTED = {
    "two": lambda x, y: [x + y, x * np.float32(2)],
    "itself": lambda x: [x, x.T, x[1:]],
    "device": lambda x: [x, x[:, ::-1], x - np.float32(1)],
    "set": lambda x: [np.concatenate([np.full_like(x[:1], 7), x[1:]])],
}


def _raised(call, *arguments):
    """Call a function; return its result, and the class of its error. Which of two mistakes is found is no matter."""
    try:
        return call(*arguments), None
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        return None, IndexError if isinstance(error, IndexError) else ValueError


def _both(host, device):
    """Check the same error of NumPy and here, and return both results."""
    (first, expected), (second, found) = host, device
    assert expected is found, (expected, found)
    return first, second


@st.composite
def _item(draw):
    """Draw an item of an index."""
    part = st.none() | st.integers(-3, 3)
    return draw(
        st.integers(-2, 2) | st.none() | st.just(...) | st.builds(slice, part, part, st.sampled_from([None, 2, -1]))
    )


INDEX = st.lists(_item(), max_size=3).map(tuple).filter(lambda index: sum(i is ... for i in index) < 2)
NUMBER = st.integers(0, 100)
WHICH = st.integers(0, 10**6)


class Arrays(RuleBasedStateMachine):
    """The state: pairs of arrays, shared variables with their values, and values that must not change."""

    driver = DRIVERS[0]

    @initialize()
    def start(self):
        """Begin with two arrays."""
        self.context = context_of(self.driver)
        self.pairs = []
        self.fixed = []  # what was computed or downloaded, and its value then
        self.shared = []  # variables, and their values
        self.constants = []  # functions of constants, and their values
        self.imports = []  # arrays of the host whose memory device arrays are over
        for shape in ((3, 4), (4,)):
            self.make(shape, "float32", 1)

    def add(self, host, device, seen=None):
        """Keep a pair."""
        pair = Pair(host, device, seen)
        self.pairs = [*self.pairs, pair][-_MOST:]
        return pair

    def pick(self, which):
        """Return one of the pairs."""
        return self.pairs[which % len(self.pairs)]

    def settle(self, *pairs):
        """Wait before the host writes or reads memory that it shares."""
        for pair in pairs:
            pair.device.sync()

    # Creation, views and copies

    @rule(shape=st.sampled_from(SHAPES), dtype=st.sampled_from(DTYPES), seed=NUMBER)
    def make(self, shape, dtype, seed):
        """Upload an array, which the host changes later."""
        host = np.random.default_rng(seed).integers(0, 50, shape).astype(dtype)
        given = host.copy()
        device = xp.asarray(given, device=self.driver)
        given[...] = 99
        self.add(host, device)

    @rule(which=WHICH, index=INDEX)
    def view(self, which, index):
        """Take a view."""
        pair = self.pick(which)
        viewing = index if ... in index else (*index, ...)  # else NumPy returns a number in place of a 0-d view
        host, device = _both(_raised(pair.host.__getitem__, viewing), _raised(pair.device.__getitem__, index))
        if device is not None:
            self.add(host, device)

    @rule(which=WHICH, kind=st.sampled_from(["T", "reshape", "broadcast", "ravel", "flip"]))
    def reshaped(self, which, kind):
        """Take another view, or a copy where NumPy takes one."""
        pair = self.pick(which)
        call = {
            "T": lambda x, m: x.T,
            "reshape": lambda x, m: m.reshape(x, (-1,) if x.size else (0,)),
            "broadcast": lambda x, m: m.broadcast_to(x, (2, *x.shape)),
            # NumPy's ravel copies what is backwards, of which its reshape makes a view, as ravel does here.
            "ravel": lambda x, m: m.ravel(x) if m is xp else x.reshape(-1 if x.size else 0),
            "flip": lambda x, m: m.flip(x) if x.ndim else x,  # NumPy returns a number
        }[kind]
        host, device = call(pair.host, np), call(pair.device, xp)
        assert np.may_share_memory(host, pair.host) == xp.may_share_memory(device, pair.device)
        self.add(host, device)

    @rule(which=WHICH, kind=st.sampled_from(["copy", "astype", "array", "mask", "pickle", "asarray"]))
    def copied(self, which, kind):
        """Take a copy."""
        pair = self.pick(which)
        host, device = pair.host, pair.device
        if kind == "copy":
            made = host.copy(), device.copy()
        elif kind == "astype":
            made = host.astype("float64"), device.astype("float64")
        elif kind == "pickle":
            made = host.copy(), pickle.loads(pickle.dumps(device))
        elif kind == "asarray":
            made = host.copy(), xp.asarray(device, copy=True)
        elif not host.ndim or not len(host):
            return
        elif kind == "array":
            made = host[[0, -1]], device[xp.asarray([0, -1], device=self.driver)]
        else:
            made = host[host > 20], device[device > 20]
        # NumPy keeps the order of dimensions in memory where new arrays here are in C order.
        self.add(np.array(made[0], order="C"), made[1])

    # Writes

    @rule(which=WHICH, index=INDEX, value=NUMBER)
    def assign_number(self, which, index, value):
        """Assign a number through an index."""
        pair = self.pick(which)
        self.settle(pair)
        _both(_raised(pair.host.__setitem__, index, value), _raised(pair.device.__setitem__, index, value))

    @rule(which=WHICH, other=WHICH, index=INDEX)
    def assign_array(self, which, other, index):
        """Assign an array, which may overlap, through an index."""
        pair, source = self.pick(which), self.pick(other)
        _both(
            _raised(pair.host.__setitem__, index, source.host), _raised(pair.device.__setitem__, index, source.device)
        )

    @rule(which=WHICH, other=WHICH, kind=st.sampled_from(["scalar", "array", "first", "rows", "values"]), value=NUMBER)
    def assign_selected(self, which, other, kind, value):
        """Assign by masks and index arrays."""
        pair, source = self.pick(which), self.pick(other)
        x, r = pair.host, pair.device
        if kind == "array" and x.ndim:
            index = xp.asarray([-1, 0], device=self.driver)
            if len(x):
                _both(_raised(x.__setitem__, [-1, 0], value), _raised(r.__setitem__, index, value))
        elif kind == "first" and x.ndim > 1:
            mask = np.arange(len(x)) % 2 == 0
            on_device = xp.asarray(mask, device=self.driver)
            _both(_raised(x.__setitem__, mask, value), _raised(r.__setitem__, on_device, value))
        elif kind == "rows" and x.ndim > 1 and len(x):
            _both(_raised(x.__setitem__, [0, -1], x[::-1][:1]), _raised(r.__setitem__, [0, -1], r[::-1][:1]))
        elif kind == "values" and source.host.ndim < 2:  # NumPy raises TypeError or ValueError where shapes differ
            if x.dtype.kind != "b":
                values = source.host.copy()  # NumPy reads what it has written where both overlap
                _both(_raised(x.__setitem__, x > 10, values), _raised(r.__setitem__, r > 10, source.device))
        elif kind == "scalar":
            _both(_raised(x.__setitem__, x == 3, value), _raised(r.__setitem__, r == 3, value))

    @rule(which=WHICH, other=WHICH, kind=st.sampled_from(["add", "multiply", "maximum"]), to=st.booleans())
    def in_place(self, which, other, kind, to):
        """Compute in place, or into an ``out=``."""
        pair, source = self.pick(which), self.pick(other)
        if kind == "multiply" and max(np.abs(pair.host).max(initial=0), np.abs(source.host).max(initial=0)) > 2e4:
            kind = "maximum"  # without overflow of integers
        ufunc = getattr(np, kind)
        if not to and kind == "add":
            host = _raised(pair.host.__iadd__, source.host)
            device = _raised(pair.device.__iadd__, source.device)
        else:
            host = _raised(lambda x, y: ufunc(x, y, out=x), pair.host, source.host)
            device = _raised(lambda x, y: ufunc(x, y, out=x), pair.device, source.device)
        _both(host, device)

    @rule(which=WHICH, value=NUMBER)
    def fill(self, which, value):
        """Fill an array."""
        pair = self.pick(which)
        _both(_raised(pair.host.fill, value), _raised(pair.device.fill, value))

    # Functions

    @rule(which=WHICH, other=WHICH)
    def eager(self, which, other):
        """Compute a new array."""
        pair, source = self.pick(which), self.pick(other)
        host, device = _both(
            _raised(np.maximum, pair.host, source.host), _raised(np.maximum, pair.device, source.device)
        )
        if device is not None:
            self.add(np.array(host, order="C"), device)

    @rule(which=WHICH, other=WHICH, kind=st.sampled_from(sorted(EXPECTED)), times=st.integers(1, 4))
    def call(self, which, other, kind, times):
        """Call a compiled function several times, so that a captured graph is replayed; keep all results."""
        function = _function(kind, self.driver)
        arguments = [p for p in (self.pick(which), self.pick(other)) if p.host.ndim == 2 and p.host.dtype == "float32"]
        count = 2 if kind == "two" else 1
        if len(arguments) < count or (count == 2 and arguments[0].host.shape != arguments[1].host.shape):
            return
        if not all(p.host.shape[0] for p in arguments):
            return
        for _ in range(times):
            results = function(*(p.device for p in arguments[:count]))
            expected = EXPECTED[kind](*(p.host for p in arguments[:count]))
            for host, device in zip(expected, results, strict=True):
                self.add(host.copy(), device)

    @rule(which=WHICH, on_device=st.booleans())
    def make_shared(self, which, on_device):
        """Make a shared variable of an array, and a function that updates it."""
        pair = self.pick(which)
        if pair.host.dtype != "float32" or len(self.shared) > 2:
            return
        value = pair.host.copy()
        variable = pytensor_cl.shared(pair.device) if on_device else pytensor.shared(value.copy())
        update = pytensor.function([], [], updates={variable: variable + 1}, mode="OPENCL")
        self.shared.append([variable, value, update])

    @rule(which=WHICH, action=st.sampled_from(["update", "set", "set_host", "get", "get_internal", "drop"]))
    def use_shared(self, which, action):
        """Update, set and get shared variables."""
        if not self.shared:
            return
        entry = self.shared[which % len(self.shared)]
        variable, value, update = entry
        if action == "update":
            update()
            entry[1] = value + np.float32(1)
        elif action in ("set", "set_host"):
            fitting = [p for p in self.pairs if p.host.dtype == "float32" and p.host.ndim == value.ndim]
            if fitting:
                pair = fitting[which % len(fitting)]
                entry[1] = pair.host.copy()
                if action == "set":
                    variable.set_value(pair.device)
                else:
                    given = pair.host.copy()
                    variable.set_value(given)
                    given[...] = 77
        elif action == "get":
            self.fixed = [*self.fixed, (variable.get_value(), value.copy())][-6:]
        elif action == "get_internal":
            got = variable.get_value(return_internal_type=True)
            if isinstance(got, GpuArray):
                self.add(value.copy(), got)
        else:
            self.shared.remove(entry)

    @rule(which=WHICH, other=WHICH)
    def store(self, which, other):
        """Set a shared variable to an argument, by an update."""
        pair = self.pick(which)
        if pair.host.dtype == "float32" and pair.host.ndim == 2:
            variable, function = _stored(self.driver)
            function(pair.device)
            self.shared = [entry for entry in self.shared if entry[0] is not variable]
            self.shared.append([variable, pair.host.copy(), _increment(self.driver)])

    @rule(which=WHICH)
    def constant(self, which):
        """Compile a function with a device array as a constant."""
        pair = self.pick(which)
        if pair.host.dtype != "float32" or pair.host.ndim != 2 or len(self.constants) > 1:
            return
        x = pt.fscalar("x")
        function = pytensor.function([x], (x + pair.device).transfer(self.driver), mode="OPENCL")
        self.constants.append((function, pair.host.copy()))

    # Other libraries

    def look(self, pair, writes, kind):
        """Look at memory that the host sees; return whether it was written, if it was to be."""
        if kind == "host_view":
            pair.seen = pair.device.host_view(writeable=writes)
            if writes:
                pair.seen[...] = 1
            return True
        pair.device.sync()
        seen = np.from_dlpack(pair.device)
        np.testing.assert_array_equal(seen, pair.host)
        if any(s < 0 for s in pair.host.strides):
            return False
        pair.seen = seen
        if writes and seen.flags.writeable:
            seen[...] = 1
            return True
        return False

    def refused(self, pair):
        """Look at memory that the host does not see."""
        with pytest.raises(ValueError, match="has a memory of its own"):
            pair.device.host_view()
        with pytest.raises(BufferError, match="a library must ask for"):
            np.from_dlpack(pair.device)
        np.testing.assert_array_equal(np.from_dlpack(pair.device, device="cpu"), pair.host)

    @rule(which=WHICH, writes=st.booleans(), kind=st.sampled_from(["host_view", "dlpack", "map", "pyopencl"]))
    def export(self, which, writes, kind):
        """Look at the memory from outside, and write it."""
        pair = self.pick(which)
        may_write = pair.host.flags.writeable and 0 not in pair.host.strides
        if not pair.host.size or (writes and not may_write) or pair.device.readonly:
            return
        if kind == "map":
            with pair.device.map("rw" if writes else "r") as seen:
                np.testing.assert_array_equal(seen, pair.host)
                if writes:
                    seen[...] = 1
        elif kind == "pyopencl":
            if pair.host.dtype != "float32" or not pair.host.flags.c_contiguous or not may_write:
                return
            array = pair.device.to_pyopencl()
            np.testing.assert_array_equal(array.get(), pair.host)
            if writes:
                array.fill(1)
        elif not self.context.mappings.are_supported():
            self.refused(pair)
            return
        elif not self.look(pair, writes, kind):
            return
        if writes:
            pair.host[...] = 1

    @rule(shape=st.sampled_from(SHAPES[2:5]), seed=NUMBER, frozen=st.booleans())
    def take_in(self, shape, seed, frozen):
        """Make an array over memory of NumPy, if the device sees it."""
        room = np.zeros(512, "uint8")
        memory = room[-room.ctypes.data % 128 :][: int(np.prod(shape)) * 4].view("float32").reshape(shape)
        memory[...] = np.random.default_rng(seed).integers(0, 50, shape)
        memory.flags.writeable = not frozen
        device = xp.from_dlpack(memory, device=self.driver)
        is_shared = self.context.mappings.view(device) is not None and np.may_share_memory(device.host_view(), memory)
        host = memory.copy()
        assert device.readonly == (frozen and self.context.mappings.are_supported())  # a copy may be written
        host.flags.writeable = not device.readonly
        self.imports = [*self.imports, memory][-3:]
        self.add(host, device, memory if is_shared else None)

    @rule(which=WHICH, value=NUMBER)
    def host_writes(self, which, value):
        """Write the memory of an import by the host."""
        imported = [p for p in self.pairs if p.seen is not None and p.seen.flags.writeable]
        if imported:
            pair = imported[which % len(imported)]
            self.settle(pair)
            pair.seen[...] = value
            pair.host[...] = value

    # Lifetime and threads

    @rule(which=WHICH, collects=st.booleans())
    def drop(self, which, collects):
        """Delete an array."""
        if len(self.pairs) > 1:
            del self.pairs[which % len(self.pairs)]
        if collects:
            gc.collect()

    @rule(which=WHICH, other=WHICH)
    def threads(self, which, other):
        """Two threads compute from the same arrays, and each writes an array of its own."""
        pair, source = self.pick(which), self.pick(other)
        if pair.host.dtype.kind == "b" or source.host.dtype.kind == "b" or not pair.host.ndim:
            return  # NumPy's results of 0-d arrays are numbers, which cannot be assigned to

        def work(x, y):
            z = x + 1
            for _ in range(3):
                z[...] = np.maximum(z, 1)
                z += x
            return z * 2, y * 3

        with ThreadPoolExecutor(2) as pool:
            found = [pool.submit(work, pair.device, source.device) for _ in range(2)]
        expected = work(pair.host, source.host)
        for results in found:
            for host, device in zip(expected, results.result(), strict=True):
                np.testing.assert_array_equal(np.asarray(device), host)
        self.add(np.array(expected[0], order="C"), found[1].result()[0])

    @precondition(lambda self: len(self.pairs) % 3 == 0)
    @rule()
    def check_all(self):
        """Compare everything."""
        self.check()

    @invariant()
    def limits(self):
        """Keep values in range, so that integers do not overflow."""
        for pair in getattr(self, "pairs", ()):
            if pair.host.dtype.kind in "if" and pair.host.size and np.abs(pair.host).max() > 1e6:
                self.check()
                if pair.host.flags.writeable and 0 not in pair.host.strides:
                    self.settle(pair)
                    pair.host[...] = 1
                    pair.device[...] = 1
                else:
                    self.pairs.remove(pair)

    def check(self):
        """Compare each pair, each variable and each value that must not have changed."""
        for pair in self.pairs:
            pair.check()
        for variable, value, _ in self.shared:
            np.testing.assert_array_equal(variable.get_value(), value)
        for found, value in self.fixed:
            np.testing.assert_array_equal(found, value)
        for function, value in self.constants:
            np.testing.assert_array_equal(np.asarray(function(2)), value + np.float32(2))

    def teardown(self):
        """Compare at the end."""
        if hasattr(self, "pairs"):
            self.check()


@pytest.mark.parametrize("driver", DRIVERS)
def test_writes_are_seen_by_exactly_those_that_numpy_says(driver):
    machine = type(f"ArraysOn{driver}", (Arrays,), {"driver": driver})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=int(os.environ.get("EXAMPLES", 300 if ALL else 10)),
            phases=[Phase.generate],
            stateful_step_count=60 if ALL else 25,
            deadline=None,
            derandomize=not ALL,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
