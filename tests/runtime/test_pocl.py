"""Names of CPUs that PoCL's compiler gets."""

import os
import threading

import pytest

from pytensor_cl.runtime import pocl

AVX2 = frozenset({"avx", "avx2", "fma", "bmi2"})
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"}


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-znver3", "znver3"),
        ("OpenCL 3.0 PoCL HSTR: pthread-x86_64-pc-linux-gnu-skylake-avx512 ", "skylake-avx512"),
        ("OpenCL 3.0 PoCL HSTR: pthread-aarch64-unknown-linux-gnu-generic", None),
        ("OpenCL 3.1 (Build 0)", None),
    ],
)
def test_the_name_is_read_from_the_version(version, name):
    assert pocl._name_in(version) == name


@pytest.mark.parametrize(
    ("name", "have", "right"),
    [
        ("generic", AVX2, False),
        ("znver3", AVX2, True),
        ("znver3", AVX512, False),  # Zen 4
        ("skylake-avx512", AVX512, True),
        ("icelake-server", AVX512, True),
        ("haswell", AVX2, True),
    ],
)
def test_a_name_must_have_the_instructions_of_the_cpu(name, have, right):
    assert pocl._is_right(name, have) is right


@pytest.fixture
def sleepers():
    """As many threads as this process has cores."""
    if not hasattr(os, "sched_getaffinity") or not pocl.thread_ids():
        pytest.skip("threads cannot be tied to cores here")
    end = threading.Event()
    threads = [threading.Thread(target=end.wait) for _ in os.sched_getaffinity(0)]
    for thread in threads:
        thread.start()
    yield frozenset(t.native_id for t in threads)
    end.set()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("count", [1, 2])
def test_each_thread_may_use_a_few_cores(sleepers, monkeypatch, count):
    monkeypatch.delenv("POCL_AFFINITY", raising=False)
    monkeypatch.setattr(pocl, "_CORES_OF_A_THREAD", count)
    assert sleepers <= pocl.thread_ids()
    assert pocl.spread_threads(sleepers)
    allowed = [os.sched_getaffinity(thread) for thread in sleepers]
    available = os.sched_getaffinity(0)
    assert all(len(cores) == min(count, len(available)) for cores in allowed)
    assert all(sum(core in cores for cores in allowed) == min(count, len(available)) for core in available)


def test_threads_are_left_alone_where_the_user_decides_or_their_number_is_not_that_of_the_cores(sleepers, monkeypatch):
    monkeypatch.delenv("POCL_AFFINITY", raising=False)
    assert not pocl.spread_threads(frozenset())
    assert not pocl.spread_threads(sleepers | {0})
    monkeypatch.setenv("POCL_AFFINITY", "0")
    assert not pocl.spread_threads(sleepers)
    assert {frozenset(os.sched_getaffinity(t)) for t in sleepers} == {frozenset(os.sched_getaffinity(0))}
