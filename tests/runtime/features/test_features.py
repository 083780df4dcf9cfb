"""The features of a driver: the file of results, the probes, and processes that end during a probe."""

import json
import os
import sys
import weakref
from dataclasses import replace
from pathlib import Path

import pytest

from pytensor_cl.codegen.announcement import TREE, _remove
from pytensor_cl.errors import UnusableDevice
from pytensor_cl.runtime import device, worker_processes
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.context import open_context
from pytensor_cl.runtime.features import probe_process, probes, self_check
from pytensor_cl.runtime.features.features import FeatureFile, Features
from pytensor_cl.runtime.features.self_check import check_usable, features_of, with_features
from tests.helpers import CHECKOUT

NAMES = [probe.name for probe in probes.PROBES]
FOUND = Features(prefetch=False, vectors=(2, 4), host_alignment=128, reasons=(("prefetch", "signal 6"),))
# A process whose probes succeed, but for those at which it ends or hangs; it logs their names.
CHILD = """
import json, os, signal, sys
job = json.loads(sys.stdin.read())
with open({log!r}, "a") as file:
    file.write(json.dumps([job["names"], job["together"]]) + "\\n")
sys.stdout.write("a driver says something\\n")
for name in ["", *job["names"]]:
    if name in {ends_at!r}:
        sys.stderr.write("no such intrinsic")
        sys.stderr.flush()
        os._exit(8)
    if name in {crashes_at!r}:
        os.kill(os.getpid(), signal.SIGABRT)
    if name in {killed_at!r}:
        os.kill(os.getpid(), signal.SIGKILL)
    if name in {hangs_at!r}:
        signal.pause()
    value = [2, 4, 8, 16] if name == "vectors" else 64 if name in ("host_alignment", "matrix_f64") else True
    fails = name in {fails_at!r}
    print("{mark}" + json.dumps([name, not fails and value, "{error}" if fails else ""]), flush=True)
"""


@pytest.fixture
def child(tmp_path, monkeypatch):
    """Return a function that replaces the process of the probes."""
    log = tmp_path / "log"

    def put(error="", **places):
        names = ("ends_at", "hangs_at", "crashes_at", "killed_at", "fails_at")
        places = {name: tuple(places.get(name, ())) for name in names}
        text = CHILD.format(log=str(log), mark=probe_process.MARK, error=error, **places)
        (tmp_path / "child.py").write_text(text)
        monkeypatch.setattr(self_check, "_COMMAND", (sys.executable, str(tmp_path / "child.py")))
        return lambda: [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    return put


@pytest.fixture
def features_again(context, tmp_path):
    """Probe the device again, with a new cache folder."""

    def probe_again():
        self_check._features_of.cache_clear()
        return features_of(context.entry, str(tmp_path / "cache"))

    yield probe_again
    self_check._features_of.cache_clear()


def test_file_returns_what_was_written(tmp_path):
    file = FeatureFile(("a driver", "1.0"), tmp_path)
    assert file.read() is None
    assert file.write(FOUND)
    assert file.read() == FOUND
    assert FeatureFile(("a driver", "1.1"), tmp_path).read() is None
    assert len(list((tmp_path / "features").iterdir())) == 1


@pytest.mark.parametrize("text", ["garbage", "{}", "[]", "null"])
def test_files_without_features_are_ignored(tmp_path, text):
    file = FeatureFile(("a driver",), tmp_path)
    file._folder.write(file._key(), text.encode())
    assert file.read() is None


def test_changed_files_are_ignored(tmp_path):
    file = FeatureFile(("a driver",), tmp_path)
    file.write(FOUND)
    (path,) = (tmp_path / "features").iterdir()
    whole = path.read_bytes()
    for changed in (b"", whole[:-20], whole.replace(b"false", b"true"), whole.partition(b"\n")[2]):
        assert changed != whole
        path.write_bytes(changed)
        assert file.read() is None
    path.write_bytes(whole)
    assert file.read() == FOUND


def test_results_of_other_probes_are_ignored(tmp_path, monkeypatch):
    file = FeatureFile(("a driver",), tmp_path)
    file.write(FOUND)
    monkeypatch.setattr("pytensor_cl.runtime.features.features.probes_digest", lambda: "another")
    assert file.read() is None
    other = FeatureFile(("a driver",), tmp_path)
    other.write(Features())
    monkeypatch.undo()
    assert file.read() == FOUND  # both versions have theirs


def test_values_of_another_type_are_refused():
    good = FOUND.as_dict()
    assert Features.from_dict(good) == FOUND
    for bad in ({**good, "maps": 1}, {**good, "vectors": ["2"]}, {**good, "new": True}, {"maps": True}):
        with pytest.raises(ValueError, match="differ|type"):
            Features.from_dict(bad)


def test_a_cpu_driver_has_all(context):
    """The drivers that kernels of schedule cpu are made for have all that these need."""
    features = context.info.features
    assert features.problem == "" and features.atomics and features.local_memory
    if context.name in ("pocl", "intel"):
        assert features.missing == ()
        assert features.has_cpu_schedule and features.fp64
        assert context.info.host_alignment == (1 if context.name == "pocl" else 128)


def test_a_device_is_probed_once(child, features_again):
    asked = child()
    first = features_again()
    assert first.maps and first.host_alignment == 64 and not first.reasons
    assert asked() == [[NAMES, True]]
    assert features_again() == first
    assert len(asked()) == 1  # the file had the results


def test_without_a_cache_folder_each_process_probes(child, context, tmp_path):
    asked = child()
    (tmp_path / "file").write_text("")  # no folder can be made there
    self_check._features_of.cache_clear()
    for _ in range(2):
        assert features_of(context.entry, str(tmp_path / "file" / "cache")).maps
    assert len(asked()) == 1
    self_check._features_of.cache_clear()


def test_the_end_of_a_process_fails_one_probe(child, features_again):
    asked = child(ends_at=("maps", "prefetch"))
    found = features_again()
    assert not found.maps and not found.prefetch
    assert found.struct_arguments and found.private_as_global and found.nontemporal_stores and not found.problem
    assert dict(found.reasons) == dict.fromkeys(
        ("maps", "prefetch"), "the process ended with exit status 8: no such intrinsic"
    )
    before, after = NAMES[NAMES.index("maps") :], NAMES[NAMES.index("maps") + 1 :]
    last = NAMES[NAMES.index("prefetch") + 1 :]
    assert asked() == [[NAMES, True], [before, False], [after, False], [last, False]]


def test_a_process_that_hangs_fails_one_probe(child, features_again, monkeypatch):
    monkeypatch.setattr(self_check, "_NEXT", 0.5)
    child(hangs_at=("private_as_global",))
    found = features_again()
    assert not found.private_as_global and found.prefetch
    assert dict(found.reasons) == {"private_as_global": "no result within 0.5 s"}
    assert not found.has_cpu_schedule


PASSING = {
    "a busy machine": (lambda child: child(hangs_at=["maps"]), "no result within 0.5 s"),
    "a process that is killed": (lambda child: child(killed_at=["maps"]), "ended with signal 9"),
    "no memory": (lambda child: child("MemoryError: out of memory", fails_at=["maps"]), "out of memory"),
    "drivers that do not load": (lambda child: child(killed_at=[""]), "ended with signal 9"),
}


@pytest.mark.parametrize("fault", PASSING)
def test_what_is_no_answer_of_the_driver_is_not_kept(child, features_again, context, fault, monkeypatch, capsys):
    monkeypatch.setattr(self_check, "_NEXT", 0.5)
    monkeypatch.setenv(TREE, f"{os.getpid()}-{context.name}-{fault}".replace(" ", "-"))
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # of these the first one alone writes lines
    prepare, reason = PASSING[fault]
    asked = prepare(child)
    found = features_again()
    assert not found.maps and reason in found.passing
    if found.problem:
        with pytest.raises(UnusableDevice, match="could not be finished: .*The next process repeats it"):
            check_usable(context.entry, found)
    else:
        (line,) = capsys.readouterr().err.splitlines()
        assert "is repeated by the next process. This one does without: maps" in line and reason in line
    before = len(asked())
    child()
    assert features_again() == features_again() and not features_again().reasons
    assert len(asked()) == before + 1  # probed again, and kept then
    _remove(os.getpid())


def test_a_full_disk_is_no_answer_of_the_driver(child, features_again, monkeypatch):
    """A compiler that cannot write ends its process as if it had crashed."""
    monkeypatch.setattr(self_check, "free_bytes", lambda folder: 80 << 10)
    child(crashes_at=["plain"])
    assert "there is no space left in" in features_again().passing
    monkeypatch.undo()
    child()
    assert not features_again().reasons


def test_crashes_are_answers(child, features_again):
    asked = child(crashes_at=["maps"])
    found = features_again()
    assert not found.maps and not found.passing and "signal 6" in dict(found.reasons)["maps"]
    before = len(asked())
    assert features_again() == found and len(asked()) == before


def test_without_processes_the_probes_run_in_this_one(features_again, context, monkeypatch):
    monkeypatch.setattr(worker_processes, "can_start", lambda: False)
    found = features_again()
    assert found.problem == "" and found.atomics and found.fp64 == context.info.has_fp64
    assert set(found.missing) >= {"prefetch", "nontemporal_stores", "private_as_global"}
    assert not list((Path(self_check.__file__).parents[3]).glob("*.json"))


def test_what_has_no_substitute_is_a_problem(child, features_again, context):
    child(ends_at=("plain",))
    found = features_again()
    assert found.problem.startswith("plain arithmetic (the process ended with exit status 8")
    with pytest.raises(UnusableDevice, match=r"failed its self-check \(driver: .*\): plain arithmetic"):
        check_usable(context.entry, found)


def test_wrong_values_are_a_no(context):
    if not context.info.features.maps:
        pytest.skip("the driver has no maps")
    text = probes._PRIVATE.replace("tile[i * 5 % n] += x[i]", "tile[i * 5 % n] -= x[i]")
    probe = next(p for p in probes.PROBES if p.name == "private_as_global")
    result = probe_process._run(context.device, probe._replace(text=text))
    assert result.value is False and "a private array" in result.why


def test_facts_are_less_what_fails(context):
    info = context.entry.info
    assert with_features(info, Features(fp64=False)).has_fp64 is False
    assert with_features(replace(info, kind="gpu"), Features(host_alignment=1)).host_alignment == 0
    assert with_features(replace(info, kind="cpu"), Features(private_as_global=False)).schedule == "simt"
    assert with_features(replace(info, kind="cpu"), Features()).schedule == "cpu"


def test_wrong_comparisons_are_a_no(context):
    probe = next(p for p in probes.PROBES if p.name == "long_comparisons")
    text = probe.text.replace("(long)x[at]", "(long)(uint)x[at]")
    result = probe_process._run(context.device, probe._replace(text=text))
    assert result.value is False and "a long compared with constants" in result.why


def test_build_options():
    assert Features().options() == []
    switched_off = ["-DWITHOUT_PREFETCH", "-DWITHOUT_NONTEMPORAL_STORES"]
    assert Features(prefetch=False, nontemporal_stores=False).options() == switched_off
    assert Features(long_comparisons=False).options() == ["-DWITHOUT_LONG_COMPARISONS"]
    assert Features(warp_shuffles=True, half_conversions=True).options() == ["-DWARP_SHUFFLES", "-DHALF_CONVERSIONS"]


def test_prefetches_are_in_one_template():
    holding = [p.name for p in (CHECKOUT / "kernels").rglob("*.mako") if "__builtin_prefetch" in p.read_text()]
    assert holding == ["prefetch.mako"]


class Broken:
    """A device whose driver lacks some of its properties."""

    name, vendor, version, type, extensions = "old", "vendor", "OpenCL 1.1", 2, "cl_khr_fp16"
    global_mem_size, max_work_group_size = 1 << 30, 64

    class platform:
        name = "an old driver"

    def __getattr__(self, name):
        raise cl.LogicError(f"clGetDeviceInfo failed: INVALID_VALUE ({name})")


def test_devices_that_lack_properties_do_not_hide_others():
    info = device._describe(Broken())
    assert (info.name, info.kind, info.has_fp64, info.has_fp16) == ("old", "cpu", False, True)
    assert info.max_allocation == 1 << 28 and info.max_work_group_size == 64


def test_contexts_are_not_opened_on_a_device_with_a_problem(context, monkeypatch):
    monkeypatch.setattr("pytensor_cl.runtime.context.features_of", lambda *_: Features(problem="plain arithmetic (0)"))
    with pytest.raises(UnusableDevice, match="plain arithmetic"):
        open_context(context.entry.stable_spec, "bad")


def test_a_driver_that_opens_no_context_has_an_error_of_ours(context, monkeypatch):
    def fail(*_):
        raise cl.LogicError("clCreateContext failed: DEVICE_NOT_AVAILABLE")

    monkeypatch.setattr(cl, "Context", fail)
    with pytest.raises(UnusableDevice, match=r"driver: .*cannot be opened: .*DEVICE_NOT_AVAILABLE"):
        open_context(context.entry.stable_spec, "bad")


def test_instructions_for_matrices_are_probed_one_by_one(context, monkeypatch):
    """A device without them has none; where the larger one does not build, the smaller one is tried."""
    built = []

    def build(_, text):
        built.append(text)
        raise RuntimeError("ptxas fatal")

    monkeypatch.setattr(probes.Device, "build", build)
    probe = next(p for p in probes.PROBES if p.name == "matrix_f64")
    result = probe_process._run(context.device, probe)
    assert result.value == 0 and "ptxas fatal" in result.why
    assert ["mma.sync.aligned.m16n8k8." in built[0], "mma.sync.aligned.m8n8k4." in built[1]] == [True, True]
    assert not any(word in text for text in built for word in ("ROWS", "DEPTH", "INSTRUCTION"))


PRODUCT = """
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
__kernel void probe_matrix_f64(__global const double *a, __global const double *b, __global double *o)
{
    const int n = get_local_id(1) * %(rows)d;
    for (int e = get_local_id(0); e < %(rows)d * 8; e += 32) {
        double sum = 0;
        for (int k = 0; k < %(rows)d; ++k)
            sum += a[(n + e / 8) * %(rows)d + k] * b[(n + k) * 8 + e %% 8];
        o[n * 8 + e] = sum;
    }
}
"""


def test_the_probe_of_instructions_for_matrices_keeps_its_buffers(context, monkeypatch):
    """A kernel keeps none of its arguments, and NVIDIA's driver refuses buffers that are gone."""
    if not context.info.has_fp64:
        pytest.skip("no double precision")
    buffers, enqueue = [], cl.enqueue_nd_range_kernel

    class Kept(cl.Buffer):
        """A buffer that may have weak references."""

    def buffer(self, array):
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        result = Kept(self.context, flags, hostbuf=array)
        buffers.append(weakref.ref(result))
        return result

    def enqueue_with_buffers(*arguments):
        assert len(buffers) == 3 and all(b() is not None for b in buffers)
        return enqueue(*arguments)

    monkeypatch.setattr(probes.Device, "buffer", buffer)
    monkeypatch.setattr(cl, "enqueue_nd_range_kernel", enqueue_with_buffers)
    monkeypatch.setattr(probes, "matrix_f64_text", lambda depth: PRODUCT % {"rows": 2 * depth})
    assert probes._matrix_f64(probes.Device(context.device), "") == 8
