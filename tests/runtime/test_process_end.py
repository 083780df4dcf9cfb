"""The process ends while threads that nobody waits for call the driver."""

from tests.helpers import run_script

SCRIPT = """
    import os, threading
    import numpy as np, pytensor_cl
    from pytensor_cl.runtime.registry import get_context
    pytensor_cl.use("opencl:{driver}")
    context, began = get_context(), threading.Barrier(3)
    array = context.from_host(np.zeros(1 << 20, "float32"))

    def compute():
        began.wait()
        while True:
            array.copy()
            context.queue.finish()

    def compile():
        began.wait()
        while True:
            context.programs.build_text("__kernel void f" + os.urandom(8).hex() + "() {{}}")

    for work in (compute, compile):
        threading.Thread(target=work, daemon=True).start()
    began.wait()
    seen["ended"] = True
"""


def test_daemon_threads_in_the_driver_do_no_harm_at_the_end(context):
    seen, _ = run_script(SCRIPT.format(driver=context.name))
    assert seen == {"ended": True}
