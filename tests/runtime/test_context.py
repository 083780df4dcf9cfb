"""Contexts: uploads, downloads, dtypes, names, settings."""

import copy
import pickle
import re
import threading
from weakref import ref

import numpy as np
import pytest

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.errors import CompilationError, ContextNotDefined, DeviceNotFound, UnsupportedDtype
from pytensor_cl.runtime import fork
from pytensor_cl.runtime import registry as module
from pytensor_cl.runtime.context import Settings, open_context
from pytensor_cl.runtime.registry import (
    add_context,
    default_context_name,
    define_contexts,
    defined_contexts,
    get_context,
    parse_contexts,
    sync,
)
from tests.helpers import normal

DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64")


def variants(value):
    """A value under many layouts."""
    yield from (
        value,
        value.T,
        np.asfortranarray(value),
        value[::-1, ::2],
        value[1:, -1:],
        value[:0],
        value[0],
        value[0, 0],
    )
    yield np.broadcast_to(value[:1], (7, *value.shape[1:]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_are_kept_by_a_round_trip(context, rng, dtype):
    value = (rng.normal(size=(4, 6)) * 50).astype(dtype)
    for host in variants(value):
        there = context.from_host(host)
        assert (there.shape, there.dtype, there.layout.is_contiguous or not there.size) == (
            np.shape(host),
            host.dtype,
            True,
        )
        back = there.to_host()
        assert (back.flags.c_contiguous and back.flags.owndata) or not back.size or back.ndim == 0
        np.testing.assert_array_equal(back, host)


def test_large_and_small_uploads_do_not_alias_the_host(context, rng):
    for size in (1, 3, 100, 1000, 4097, 300_000):
        host = rng.normal(size=size)
        expected = host.copy()
        there = context.from_host(host)
        host[:] = 0
        np.testing.assert_array_equal(there.to_host(), expected)
        borrowed = context.from_host(expected, borrow=True)
        np.testing.assert_array_equal(borrowed.to_host(), expected)
        result = borrowed.to_host()
        result[:] = -1
        np.testing.assert_array_equal(borrowed.to_host(), expected)


def test_a_temporary_may_die_before_it_is_uploaded(context):
    there = [context.from_host(np.full(100_000, i, "float32"), borrow=True) for i in range(20)]
    for i, array in enumerate(there):
        assert (array.to_host() == i).all()


def test_other_byte_order_and_subclasses(context):
    with pytest.raises(UnsupportedDtype, match="cannot hold >f4"):
        context.from_host(np.arange(5, dtype=">f4"))
    np.testing.assert_array_equal(context.from_host([1, 2]).to_host(), [1, 2])
    np.testing.assert_array_equal(context.from_host(np.matrix([[1.0, 2.0]])).to_host(), [[1, 2]])


@pytest.mark.parametrize("dtype", ["U4", "O", "datetime64[s]"])
def test_dtypes_that_no_device_holds(context, dtype):
    with pytest.raises(UnsupportedDtype, match="device arrays cannot hold"):
        context.from_host(np.zeros(2, dtype))
    with pytest.raises(TypeError):
        context.check_dtype(dtype)


def test_empty_arrays_have_shape_and_no_elements(context):
    for shape in ((0,), (3, 0), (0, 0, 5)):
        array = context.empty(shape, "float32")
        assert (array.shape, array.size, array.nbytes) == (shape, 0, 0)
        assert array.to_host().shape == shape


def test_a_program_that_does_not_build_shows_log_and_numbered_source(context):
    source = KernelSource("broken", "__kernel void broken(__global float *x) { x[0] = nonsense; }", ())
    with pytest.raises(CompilationError) as caught:
        context.build([source])
    assert "nonsense" in caught.value.source and "nonsense" in caught.value.log
    assert "> 1 | __kernel void broken" in str(caught.value)


def test_a_typing_error_in_a_long_program_shows_its_line_alone(context):
    fine = [
        KernelSource(f"fine_{i}", f"__kernel void fine_{i}(__global float *x) {{\n  x[0] = {i};\n}}", ())
        for i in range(60)
    ]
    broken = KernelSource("broken", "__kernel void broken(__global float *x) {\n  x[0] = nonsense;\n}", ())
    with pytest.raises(CompilationError) as caught:
        context.build([*fine[:30], broken, *fine[30:]])
    shown = [line for line in str(caught.value).splitlines() if re.match(r"[> ] +\d+ \| ", line)]
    (marked,) = [line for line in shown if line.startswith(">")]
    assert marked.endswith("|   x[0] = nonsense;")
    assert len(shown) <= 8 and len(caught.value.source.splitlines()) > 180


def test_contexts_do_not_pickle(context):
    with pytest.raises(TypeError, match="pickle its name"):
        pickle.dumps(context)


def test_arrays_pickle_by_name(context):
    array = context.from_host(np.arange(6.0).reshape(2, 3))[::-1]
    again = pickle.loads(pickle.dumps(array))
    assert again.context is context
    np.testing.assert_array_equal(again.to_host(), array.to_host())
    for same in (copy.copy(array), copy.deepcopy(array), array.copy()):
        assert same.buffer is not array.buffer
        np.testing.assert_array_equal(same.to_host(), array.to_host())


def test_the_registry(context):
    assert get_context() is get_context(context.name) is context
    assert default_context_name() == context.name and context.name in defined_contexts()
    with pytest.raises(ContextNotDefined, match=f"no context is called 'nowhere'; defined are: .*{context.name}"):
        get_context("nowhere")
    with pytest.raises(ValueError, match=f"context '{context.name}' is 'opencl:{context.name}' already"):
        add_context(context.name, "opencl7:3")
    add_context(context.name, f"opencl:{context.name}")
    sync()


def test_two_threads_open_a_context_once(context, monkeypatch):
    monkeypatch.setattr(module, "_registry", module._Registry({"twice": f"opencl:{context.name}"}, default="twice"))
    opened, found, original = [], [], module._open
    second = threading.Thread(target=lambda: found.append(get_context("twice")))

    def slowly(name):
        opened.append(name)
        if len(opened) == 1:
            second.start()
            second.join(0.1)  # it waits for the first, or would be done by now
        return original(name)

    monkeypatch.setattr(module, "_open", slowly)
    found.append(get_context("twice"))
    second.join()
    assert len(opened) == 1 and found[0] is found[1]


def test_a_device_that_is_missing_is_reported_when_it_is_opened(context):
    specs = {name: f"opencl:{name}" for name in defined_contexts()}
    try:
        define_contexts({**specs, "ghost": "opencl9:9"}, context.name)
        with pytest.raises(DeviceNotFound, match=r"(?s)no OpenCL device matches 'opencl9:9'. There are:.*opencl"):
            get_context("ghost")
    finally:
        define_contexts(specs, context.name)


def test_parse_contexts():
    assert parse_contexts("") == {} and parse_contexts(" ; ") == {}
    assert parse_contexts("a->opencl0:0; b -> opencl:pocl ;") == {"a": "opencl0:0", "b": "opencl:pocl"}
    for bad in ("a", "a->", "->b", "a->b;a->c", "cpu->opencl0:0", "a=b"):
        with pytest.raises(ValueError, match="name->device"):
            parse_contexts(bad)


def test_settings(context):
    assert "-cl-fast-relaxed-math" not in Settings().options(context.entry)
    assert {"-cl-fast-relaxed-math", "-cl-denorms-are-zero"} < {*Settings(fast_math=True).options(context.entry)}
    waiting = open_context(f"opencl:{context.name}", "waiting", Settings(synchronous=True))
    assert waiting.queue.synchronous
    np.testing.assert_array_equal(waiting.from_host(np.arange(5000.0)).to_host(), np.arange(5000.0))
    assert waiting in fork.opened_contexts() and "waiting" not in defined_contexts()
    assert repr(waiting).startswith("<Context 'waiting': ")


def read_in_place(context, rng):
    """An array of the host that kernels read where it is, and a weak reference to it."""
    host = normal(rng, 1 << 16)
    if context.misalignment(host) is None:
        pytest.skip("the device does not read the host's memory")
    return context.from_host_zero_copy(host), ref(host), host.copy()


def test_memory_of_the_host_stays_until_kernels_have_read_it_though_another_thread_waits_before(context, rng):
    array, host, expected = read_in_place(context, rng)
    context.queue.finish()  # as another thread may, before this one has enqueued a kernel
    copied = context.copy(array)
    del array
    assert host() is not None
    np.testing.assert_array_equal(copied.to_host(), expected)
    context.queue.finish()
    assert host() is None


def test_memory_of_the_host_stays_for_a_kernel_after_a_wait(context, rng):
    array, host, expected = read_in_place(context, rng)
    first = context.copy(array)
    context.queue.finish()
    second = context.copy(array)
    del array
    context.queue.end_wait()
    assert host() is not None
    np.testing.assert_array_equal(first.to_host(), expected)
    np.testing.assert_array_equal(second.to_host(), expected)
    context.queue.finish()
    assert host() is None
