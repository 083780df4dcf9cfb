"""The start of PoCL's compiler, which takes 0.4 s in each process: it reads a library of all built-in functions.

A program that nobody needs starts it. Its text must be new, because PoCL does not compile what is in its cache.
"""

import os
from contextlib import suppress
from threading import Thread

from pytensor_cl.codegen.rendered import rendered_folder
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.pocl.builtin_headers import SKIP_HEADER


def start_compiler(device: "cl.Device") -> None:
    """Build a program in a context of its own; it does not matter whether that succeeds."""
    text = f"__kernel void start_{os.getpid()}(__global int *x) {{ *x = {os.getpid()}; }}"
    with suppress(cl.Error):
        cl.Program(cl.Context([device]), text).build(options=["-w", SKIP_HEADER], cache_dir=False)


def start_if_cold(device: "cl.Device") -> None:
    """Start the compiler in a thread, while graphs are rewritten, if no text of a kernel is on disk yet."""
    with suppress(OSError):  # a path that cannot be looked at
        if rendered_folder().is_dir():
            return
    with suppress(RuntimeError):  # no new threads while the interpreter shuts down
        Thread(target=start_compiler, args=(device,)).start()
