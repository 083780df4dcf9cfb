"""Worker processes that compile kernels ahead."""

import io
import json
import os
import subprocess
import sys
from functools import partial
from itertools import chain
from typing import ClassVar

import numpy as np
import pytest

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.errors import CompilationError
from pytensor_cl.runtime.compilation.variants import BuildVariant
from pytensor_cl.runtime.context import Settings, open_context
from pytensor_cl.runtime.pocl import compile_worker, compile_workers
from pytensor_cl.runtime.pocl.outlining import outline, outlined_kernels

HEAD = "__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))\nvoid"


def add(k):
    """A kernel with arguments of all sorts; it crashes if it runs with null pointers."""
    types = f"typedef struct {{ long n; int3 a; char c; }} t{k};"
    body = f"(__global float *x, const t{k} p, int n, __global const char *y)\n{{ x[0] = {k} + 1 / n + p.n + y[0]; }}\n"
    return KernelSource(f"k{k}", f"{types}\n{HEAD} k{k}{body}", ())


def always_new(text):
    yield BuildVariant(outline(text), (), True)


class FakeProcess:
    """A process that only keeps its job."""

    made: ClassVar[list["FakeProcess"]] = []

    def __init__(self, command, **options):
        assert options["stdout"] == options["stderr"] == subprocess.DEVNULL
        self.command, self.job = command, None
        self.made.append(self)

    def communicate(self, job):
        self.job = job


@pytest.fixture
def fresh(context, monkeypatch):
    """A context for which every program is new; a machine of four cores, whose processes are fakes."""
    fresh = open_context(f"opencl:{context.name}", "fresh")
    monkeypatch.setattr(fresh.programs, "_variants", always_new)
    monkeypatch.setattr(fresh.programs, "_parallel", None)  # on GPUs a program has few kernels
    monkeypatch.setattr(fresh.programs, "_precompile", partial(compile_workers.precompile, fresh.device))
    monkeypatch.setattr(compile_workers, "granted_cores", lambda: 4)
    monkeypatch.setattr(compile_workers, "Thread", lambda target, args, daemon: Now(target, args))
    monkeypatch.setattr(subprocess, "Popen", FakeProcess)
    monkeypatch.setattr(FakeProcess, "made", [])
    return fresh


class Now:
    """A thread that runs when it is started."""

    def __init__(self, target, args):
        self.start = lambda: target(*args)


def test_each_worker_gets_a_share_of_the_kernels(fresh):
    fresh.build([add(k) for k in range(12)])
    jobs = [json.loads(process.job) for process in FakeProcess.made]
    assert len(jobs) == 3 and jobs[0]["text"].count("_body(") == 24
    assert sorted(chain.from_iterable(job["kernels"] for job in jobs)) == sorted(f"k{k}" for k in range(12))
    assert sorted(job["kernels"][0] for job in jobs) == ["k10", "k11", "k9"]
    assert FakeProcess.made[0].command[-3:-1] == [fresh.info.platform, fresh.device.platform.version]


def test_few_kernels_start_no_worker(fresh):
    fresh.build([add(k) for k in range(compile_workers.MIN_KERNELS - 1)])
    fresh.build([KernelSource(f"g{k}", f"__kernel void g{k}(__global int *x) {{ }}", ()) for k in range(9)])
    assert not FakeProcess.made


def test_a_program_in_the_cache_starts_no_worker(fresh, monkeypatch):
    monkeypatch.setattr(fresh.programs, "_variants", lambda text: iter((BuildVariant(outline(text)),)))
    fresh.build([add(k) for k in range(12)])
    assert not FakeProcess.made


def test_a_failed_build_ends_the_workers(fresh):
    bad = KernelSource("bad", "__kernel void bad() { oops }", ())
    with pytest.raises(CompilationError, match="oops"):
        fresh.build([bad, *(add(k) for k in range(12))])
    assert [process.job for process in FakeProcess.made] == [b""] * 3


@pytest.mark.parametrize("missing", ["cores", "processes", "interpreter", "cache"])
def test_without_workers_kernels_are_compiled_here(fresh, monkeypatch, missing):
    def refuse(*_, **__):
        raise OSError("no more processes")

    change = {
        "cores": (compile_workers, "granted_cores", lambda: 1),
        "processes": (subprocess, "Popen", refuse),
        "interpreter": (sys, "executable", "/usr/bin/editor"),
    }
    if missing == "cache":
        monkeypatch.setenv("POCL_KERNEL_CACHE", "0")
    else:
        monkeypatch.setattr(*change[missing])
    sources = [add(k) for k in range(9)]
    fresh.build(sources)
    assert not FakeProcess.made
    out = fresh.from_host(np.zeros(1, "float32"))
    struct = np.zeros(48, "uint8").tobytes()
    fresh.kernel(sources[3]).launch(fresh.queue, (1,), (1,), out.buffer, struct, np.int32(1), out.buffer)
    assert out.to_host() == [4]


def test_the_setting(context, monkeypatch):
    quiet = open_context(f"opencl:{context.name}", "quiet", Settings(parallel_compile=False))
    ready = open_context(f"opencl:{context.name}", "ready")
    started = []
    monkeypatch.setattr(compile_workers, "_start", lambda device, count: started.append(device) or [])
    for opened in (quiet, ready):
        monkeypatch.setattr(opened.programs, "_variants", always_new)
        opened.build([add(k) for k in range(12)])
    assert started == ([ready.device] if "Portable" in context.info.platform else [])


def test_kernels_do_nothing_without_arrays(context):
    text = outline("\n".join(add(k).source for k in range(2)))
    assert outlined_kernels(text) == ["k0", "k1"]
    compile_worker.compile_all(context.cl_context, text, ["-w"], outlined_kernels(text))
    compile_worker.compile_all(context.cl_context, text, ["-w"], ["not compiled, as the parent has ended"], parent=-1)


def test_the_worker_reads_its_job(context, monkeypatch):
    done = []
    monkeypatch.setattr(compile_worker, "compile_all", lambda *context, **job: done.append(job))
    monkeypatch.setattr(compile_worker, "NICENESS", 0)
    for text in ("", '{"text": "x"}'):
        monkeypatch.setattr(compile_worker.sys, "stdin", io.StringIO(text))
        compile_worker.main(context.info.platform, context.device.platform.version, "0")
    assert done == [{"text": "x", "parent": os.getppid()}]


def test_a_real_worker(context, monkeypatch, tmp_path):
    if "Portable" not in context.info.platform:
        pytest.skip("other drivers compile kernels in the build")
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path))
    text = outline(add(7).source)
    (process,) = compile_workers._start(context.device, 1)
    process.communicate(json.dumps({"text": text, "options": ["-w"], "kernels": ["k7"]}).encode())
    assert process.returncode == 0
    assert [file.stem for file in tmp_path.rglob("*.so")] == ["k7"]
