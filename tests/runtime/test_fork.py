"""Forked children get an error instead of a hang."""

import pytest

from tests.helpers import on_one_driver, run_script

FORK = """
    import os, numpy as np, pytensor_cl
    from pytensor_cl.runtime.registry import define_contexts, get_context
    define_contexts({{"dev0": "opencl:{driver}"}}, "dev0")
    context = get_context()
    array = context.from_host(np.ones(5000))
    reader, writer = os.pipe()
    if os.fork() == 0:
        texts = []
        for touch in (lambda: get_context(), lambda: array.to_host(), lambda: context.from_host(np.ones(5000)),
                      lambda: array.copy(), array.sync, array.to_pyopencl, array.to_buffer, array.host_view,
                      array.__dlpack__, lambda: array.map().__enter__(), pytensor_cl.queue,
                      lambda: pytensor_cl.from_dlpack(np.ones(3))):
            try:
                touch()
                texts.append("no error")
            except Exception as error:
                texts.append(type(error).__name__ + " " + str("spawn" in str(error)))
        os.write(writer, json.dumps(texts).encode())
        os._exit(0)
    os.close(writer)
    seen["child"] = json.loads(os.fdopen(reader).read())
    os.wait()
    seen["parent"] = float(array.to_host().sum())
"""


def test_a_forked_child_that_touches_the_device_gets_an_error(context):
    seen, _ = run_script(FORK.format(driver=context.name))
    assert seen["child"] == ["ForkedProcessError True"] * 12
    assert seen["parent"] == 5000


def test_a_fork_before_the_device_is_opened_is_free(context):
    script = f"""
        import os, numpy as np, pytensor_cl
        from pytensor_cl.runtime.registry import define_contexts, get_context
        define_contexts({{"dev0": "opencl:{context.name}"}}, "dev0")
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.write(writer, str(get_context().from_host(np.ones(5000)).to_host().sum()).encode())
            os._exit(0)
        os.close(writer)
        seen["child"] = float(os.fdopen(reader).read())
        os.wait()
    """
    seen, _ = run_script(script)
    assert seen["child"] == 5000


def test_a_fork_after_the_drivers_were_loaded(context):
    """PoCL starts its threads then: the child waited for them for ever."""
    script = f"""
        import os, signal, numpy as np, pytensor, pytensor.tensor as pt, pytensor_cl
        from pytensor_cl.runtime.registry import get_context
        pytensor_cl.use("opencl:{context.name}")
        assert pytensor_cl.devices()
        reader, writer = os.pipe()
        if os.fork() == 0:
            signal.alarm(60)  # what does not hang ends long before
            try:
                text = str(get_context().from_host(np.ones(5000)).to_host().sum())
            except Exception as error:
                text = type(error).__name__
            x = pt.vector("x", dtype="float32")
            total = pytensor.function([x], pt.exp(x).sum(), mode="OPENCL")(np.zeros(5000, "float32"))
            os.write(writer, json.dumps([text, float(total), len(pytensor_cl.devices()) > 0]).encode())
            os._exit(0)
        os.close(writer)
        seen["child"] = json.loads(os.fdopen(reader).read() or "null")
        os.wait()
        seen["parent"] = float(get_context().from_host(np.ones(5000)).to_host().sum())
    """
    seen, _ = run_script(script)
    assert seen == {"child": ["ForkedProcessError", 5000, True], "parent": 5000}


@on_one_driver
def test_a_forked_child_releases_no_object_of_the_driver(context):
    """Neither as garbage of the parent, nor at its end, where events were waited for."""
    script = f"""
        import gc, os, sys, weakref
        import numpy as np, pytensor_cl
        from pytensor_cl.runtime.registry import get_context
        pytensor_cl.use("opencl:{context.name}")
        array, garbage = (get_context().from_host(np.full(5000, n, "float32")) for n in (1, 2))
        gc.disable()
        loop = [garbage]
        loop.append(loop)
        reader, writer = os.pipe()
        released = [weakref.ref(one, lambda _: os.write(writer, b"released ")) for one in (array, garbage)]
        del loop, garbage
        if os.fork() == 0:
            gc.collect()
            os.write(writer, b"collected ")
            sys.exit()
        os.wait()
        seen["child"] = os.read(reader, 100).decode()
        gc.collect()
        seen["parent"] = os.read(reader, 100).decode()
    """
    seen, _ = run_script(script)
    assert seen == {"child": "collected ", "parent": "released "}


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_other_start_methods_work_after_the_device_was_opened(context, method, tmp_path):
    (tmp_path / "work.py").write_text(
        "import numpy as np, pytensor, pytensor.tensor as pt, pytensor_cl\n"
        "def work(x):\n"
        f"    pytensor_cl.use('opencl:{context.name}')\n"
        "    v = pt.vector('v', dtype='float32')\n"
        "    return pytensor.function([v], pt.exp(v).sum(), mode='OPENCL')(x).item()\n"
    )
    script = f"""
        import sys, multiprocessing
        sys.path.insert(0, {str(tmp_path)!r})
        import numpy as np, work
        zeros = np.zeros(5, "float32")
        here = work.work(zeros)
        with multiprocessing.get_context({method!r}).Pool(1) as pool:
            seen["values"] = [here, pool.apply(work.work, (zeros,))]
    """
    seen, _ = run_script(script)
    assert seen["values"] == [5, 5]


def test_a_fork_while_another_thread_compiles_with_numba():
    """The child had NUMBA's lock as the other thread held it, and waited for ever."""
    script = """
        import os, signal, threading
        import numba, numpy as np, pytensor, pytensor.tensor as pt, pytensor_cl
        from numba.core.compiler_lock import global_compiler_lock
        from pytensor_cl._compat import numba_lock

        def child_of_a_fork(run, seconds):
            entered, forked = threading.Event(), threading.Event()

            def compile():
                with global_compiler_lock:
                    entered.set()
                    forked.wait(seconds)

            thread = threading.Thread(target=compile)
            thread.start()
            entered.wait()
            reader, writer = os.pipe()
            if os.fork() == 0:
                signal.alarm(60)  # what does not hang ends long before
                try:
                    text = run()
                except Exception as error:
                    text = type(error).__name__
                os.write(writer, text.encode())
                os._exit(0)
            forked.set()
            os.close(writer)
            thread.join()
            with os.fdopen(reader) as result:
                return result.read()

        def compile_with_numba():
            return str(numba.njit(lambda x: x + 1)(1))

        def call():
            x = pt.vector("x", dtype="float32")
            f = pytensor.function([x], pt.exp(x).sum(), mode="OPENCL")
            return f"{f(np.zeros(5000, 'float32')):.0f}"

        def check():
            numba_lock.check_numba()
            return "compiles"

        seen["waiting"] = [child_of_a_fork(compile_with_numba, 0.2) for _ in range(3)]
        seen["parent"] = compile_with_numba()
        numba_lock.WAIT_SECONDS = 0.1
        seen["without"] = [child_of_a_fork(run, 600) for run in (check, call)]
        check()
    """
    seen, _ = run_script(script, flags="cxx=")
    assert seen == {"waiting": ["2"] * 3, "parent": "2", "without": ["NumbaLockedError", "5000"]}
