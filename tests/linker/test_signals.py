"""A real SIGINT while something compiles in the course of a call: the KeyboardInterrupt reaches the caller."""

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from tests.helpers import ROOT, on_one_driver

START = """
    import ctypes, json, os, signal, sys, threading
    import numpy as np, pytensor, pytensor.tensor as pt, pytensor_cl
    from pytensor_cl.linker.selection import vm as selecting_vm

    def inside():
        os.write({told}, b"inside")

    seen = {{"interrupts": 0}}
    pytensor.config.cxx = ""
    pytensor.config.floatX = "float32"
    pytensor_cl.use("opencl:{driver}")
    x = pt.vector("x")

    def call(f, *values):
        try:
            f(*values)
        except KeyboardInterrupt:
            seen["interrupts"] += 1

    def end():
        print("seen", json.dumps(seen), flush=True)
        os._exit(0)
"""


def interrupted(context, script, flags=""):
    """Run a script, which calls ``inside()`` once; send it a signal then; return what it has stored in ``seen``."""
    reader, writer = os.pipe()
    text = textwrap.dedent(START.format(told=writer, driver=context.name)) + textwrap.dedent(script) + "\nend()\n"
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "PYTENSOR_FLAGS": flags}
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", text],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        pass_fds=(writer,),
    )
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        was_inside = pipe.read(6)
    if was_inside:
        child.send_signal(signal.SIGINT)
    try:
        out, err = child.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        child.kill()
        out, err = child.communicate()
    assert was_inside, err
    assert child.returncode == 0, err
    return json.loads(out.rpartition("seen ")[2])


TRIAL = """
    selecting_vm.POLICY = selecting_vm.SelectionPolicy(trial_budget=0.0)
    f = pytensor.function([x], [pt.exp(x), x.sum()], mode="OPENCL")
    value = np.zeros(5, "float32")

    def calls():
        for _ in range(200):
            f(value)
"""

IN_A_CALLBACK = """
    from numba.core import codegen

    library = codegen.JITCodeLibrary
    compiled = library._object_compiled_hook.__func__

    def hook(cls, module, buffer):  # LLVM calls it; what it raises is printed, and lost
        library._object_compiled_hook = classmethod(compiled)
        waits = not seen.get("called")
        seen["called"] = True
        if waits:
            inside()
            while True:
                pass

    codegen.CodeLibrary._object_compiled_hook = classmethod(hook)
    codegen.CPUCodeLibrary._object_compiled_hook = classmethod(hook)
"""


@on_one_driver
def test_a_trial_of_numba_where_the_interrupt_comes_to_code_that_c_calls(context):
    seen = interrupted(
        context,
        IN_A_CALLBACK
        + TRIAL
        + """
    call(calls)
    calls()
    seen["right"] = bool((f(value)[0] == 1).all())
    seen["handler"] = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    """,
    )
    assert seen == {"called": True, "interrupts": 1, "right": True, "handler": True}


@on_one_driver
@pytest.mark.parametrize("backend", ["NumbaFunction", "CFunction"])
def test_a_trial_in_python(context, backend):
    """While PyTensor rewrites the graph."""
    seen = interrupted(
        context,
        f"""
    from pytensor_cl.linker.selection import backends
    kind = backends.{backend}
    compiling = kind._compile

    def compile_slowly(self):
        kind._compile = compiling
        inside()
        while True:
            pass

    kind._compile = compile_slowly
    """
        + TRIAL
        + """
    call(calls)
    calls()
    seen["right"] = bool((f(value)[0] == 1).all())
    """,
    )
    assert seen == {"interrupts": 1, "right": True}


def test_a_driver_that_compiles_without_handling_signals(context):
    """In C, for ever: as a lock that is never released."""
    seen = interrupted(
        context,
        """
    from pytensor_cl.runtime.program import ProgramCache
    compiled = ProgramCache._compiled
    libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    libc.pthread_mutex_lock(mutex)

    def compile_for_ever(self, text, options):
        ProgramCache._compiled = compiled
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # it shall not come before the thread is in C
        inside()
        libc.pthread_mutex_lock(mutex)

    ProgramCache._compiled = compile_for_ever
    value = np.zeros(5, "float32")
    factor = np.float32(os.getpid() + 0.5)  # a kernel that no cache has

    def first():
        f = pytensor.function([x], pt.exp(x * factor), mode="OPENCL")
        return f(value)

    call(first)
    seen["right"] = bool((first() == 1).all())
    """,
        flags="opencl__placement=device,opencl__select_backend=False",
    )
    assert seen == {"interrupts": 1, "right": True}


LONG_WAIT = """
    from pytensor_cl.runtime.queue import Queue
    from pytensor_cl.runtime.registry import get_context
    finish = Queue._finish
    libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    libc.pthread_mutex_lock(mutex)

    def wait_for_ever(self):
        Queue._finish = finish
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # it shall not come before the thread is in C
        inside()
        libc.pthread_mutex_lock(mutex)

    f = pytensor.function([x], pt.exp(x), mode="OPENCL")
    seen["kernels"] = len(pytensor_cl.explain(f).device_nodes)
    value = np.zeros(5, "float32")
"""


def interrupted_long_wait(context, body):
    """Return what `interrupted` has seen, where a wait of `body` takes as long as the signal does."""
    return interrupted(context, LONG_WAIT + body, flags="opencl__placement=device,opencl__select_backend=False")


def test_a_driver_that_compiles_a_kernel_when_it_is_launched(context):
    """The call waits in C for the kernel, as long as the compiler takes."""
    seen = interrupted_long_wait(
        context,
        """
    Queue._finish = wait_for_ever
    call(f, value)
    seen["right"] = bool((f(value) == 1).all())
    """,
    )
    assert seen == {"kernels": 1, "interrupts": 1, "right": True}


def test_a_first_call_with_other_shapes(context):
    """The time that the device takes for them is not known."""
    seen = interrupted_long_wait(
        context,
        """
    for _ in range(6):
        f(value)
    Queue._finish = wait_for_ever
    call(f, np.zeros(7, "float32"))
    seen["right"] = bool((f(value) == 1).all())
    """,
    )
    assert seen == {"kernels": 1, "interrupts": 1, "right": True}


def test_a_repeated_call_that_takes_long(context):
    """The last wait was long, so the next one is expected to be long too."""
    seen = interrupted_long_wait(
        context,
        """
    for _ in range(6):
        f(value)
    replays = f.vm.executor.replay_count
    get_context().queue.expect_long_wait()
    Queue._finish = wait_for_ever
    call(f, value)
    seen["right"] = all(bool((f(value) == 1).all()) for _ in range(3))
    seen["replays"] = f.vm.executor.replay_count - replays
    """,
    )
    assert seen == {"kernels": 1, "interrupts": 1, "right": True, "replays": 3}
