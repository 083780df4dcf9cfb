"""Functions with many new kernels are built in parts, the last ones by worker processes."""

import sys
import time
from collections import deque

import numpy as np
import pyopencl as cl
import pytest

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.errors import CompilationError
from pytensor_cl.runtime import parallel_build, worker_processes
from pytensor_cl.runtime.compilation.variants import default_variants
from pytensor_cl.runtime.parallel_build import ParallelBuild
from pytensor_cl.runtime.program import ProgramCache


def kernel(k, body=""):
    """A kernel that adds k."""
    return KernelSource(f"p{k}", f"__kernel void p{k}(__global int *x)\n{{ x[get_global_id(0)] += {k}; {body} }}\n", ())


@pytest.fixture
def eager(monkeypatch):
    """Workers start for any part that is not on disk, on a machine of three cores; the numbers of them are counted."""
    monkeypatch.setattr(parallel_build, "QUICK_SECONDS", -1.0)
    monkeypatch.setattr(parallel_build, "WORTH_SECONDS", -1.0)
    monkeypatch.setattr(parallel_build, "granted_cores", lambda: 3)
    started, start = [], worker_processes.start_for_device

    def counted(*arguments, **options):
        started.extend(start(*arguments, **options))
        return list(started)

    monkeypatch.setattr(worker_processes, "start_for_device", counted)
    return started


def caches(context, folder, parallel=True):
    own = ParallelBuild(context.device, [], str(folder), False) if parallel else None
    return ProgramCache(context.cl_context, [], str(folder), default_variants(context.device), parallel=own)


def check(context, programs, sources):
    """Each kernel computes what it should."""
    kernels = [programs.kernel(source) for source in sources]
    x = context.from_host(np.zeros(4, "int32"))
    for one in kernels:
        one.set_buffer(0, x.buffer)
        context.queue.mark_submitted()
        cl.enqueue_nd_range_kernel(context.queue.handle, one.handle, (4,), (1,))
    total = sum(int(source.name[1:]) for source in sources)
    assert x.to_host().tolist() == [total] * 4


def test_parts(context):
    build = ParallelBuild(context.device, [], None, False)
    for count in range(parallel_build.MIN_KERNELS - 1, 21):
        sources = [kernel(k) for k in range(count)]
        parts = build.parts(sources)
        assert [source for part in parts for source in part] == sources
        assert (len(parts) > 1) == (count >= parallel_build.MIN_KERNELS)
        assert len(parts) == 1 or max(map(len, parts)) <= parallel_build.PART_KERNELS


class Noted(parallel_build.SimpleQueue):
    """A queue that keeps what was put."""

    def __init__(self):
        self.items = []
        kept.append(self)

    def put(self, item):
        self.items.append(item)
        super().put(item)


kept = []


def test_programs_of_workers(context, tmp_path, eager, monkeypatch):
    monkeypatch.setattr(parallel_build, "SimpleQueue", Noted)
    kept.clear()
    programs, sources = caches(context, tmp_path), [kernel(k) for k in range(1, 30)]
    sleep, text = time.sleep, programs.build_text

    def slow(source):  # as a driver that compiles for long, so that workers have their share
        sleep(0.4)
        return text(source)

    programs.build_text = slow
    assert len({id(program) for program in programs.build(sources)}) == 8
    assert len(eager) == 2
    assert kept[0].items and all(is_built for _, is_built in kept[0].items)
    check(context, programs, sources)
    for process in eager:
        assert process.wait(20) == 0


def test_quick_builds_start_no_worker(context, tmp_path, eager, monkeypatch):
    monkeypatch.setattr(parallel_build, "QUICK_SECONDS", 60.0)
    programs, sources = caches(context, tmp_path), [kernel(k) for k in range(31, 45)]
    check(context, programs, sources)
    assert not eager


def test_workers_that_fail(context, tmp_path, eager, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    programs, sources = caches(context, tmp_path), [kernel(k) for k in range(50, 70)]
    programs.build(sources)
    check(context, programs, sources)


def test_an_error_is_raised(context, tmp_path, eager):
    programs = caches(context, tmp_path)
    for bad in (0, 19):
        sources = [kernel(100 * (bad + 1) + k, "this is no C" * (k == bad)) for k in range(20)]
        with pytest.raises(CompilationError):
            programs.build(sources)


class FakeWorkers:
    """Workers that took the last two parts; the first of these failed."""

    def __init__(self, device, settings, count, texts, left):
        taken = [left.pop(), left.pop()]
        self.reports = parallel_build.SimpleQueue()
        self.reports.put((taken[0], True))
        self.reports.put((taken[1], False))


class SilentWorkers:
    """Workers of which one took a part, and never answers."""

    def __init__(self, device, settings, count, texts, left):
        left.pop()
        self.reports = parallel_build.SimpleQueue()


def test_no_more_workers_where_they_do_not_help(context, eager, monkeypatch):
    monkeypatch.setattr(parallel_build, "_Workers", FakeWorkers)
    for seconds, is_useful in (({"e": 0.0}, True), ({}, False)):
        build = ParallelBuild(context.device, [], None, False)
        built = []

        def compiled(text, seconds=seconds, built=built):
            time.sleep(seconds.get(text, 0.05))
            built.append(text)
            return text.upper()

        assert build.build(list("abcde"), compiled) == list("ABCDE")
        assert built == list("abced")
        assert build._is_useful == is_useful
        assert (build._start_workers(1.0, list("abcde"), deque(range(1, 5))) is not None) == is_useful


def test_a_worker_that_never_answers(context, eager, monkeypatch):
    monkeypatch.setattr(parallel_build, "_PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(parallel_build, "_Workers", SilentWorkers)
    build = ParallelBuild(context.device, [], None, False)
    assert build.build(list("abcde"), str.upper) == list("ABCDE")


def test_contexts_of_cpus_build_one_program(context):
    if context.info.kind == "cpu":
        assert context.programs._parallel is None
