"""The tool that makes tables of what a GPU's run has found, and the benchmark that finds it."""

import json
import os
import runpy
import subprocess
import sys

import pytest

from pytensor_cl.runtime.device import discover
from tests.helpers import CHECKOUT

TOOL = CHECKOUT / "tools" / "gpu_results.py"


@pytest.fixture(scope="module")
def tool():
    if not TOOL.is_file():
        pytest.skip("not a checkout")
    return type("tool", (), runpy.run_path(str(TOOL)))


def times(row, **others):
    return {"row_us": row, "single_us": 2 * row, "error": 1e-7, "right": True, "compile": 1.0, **others}


@pytest.fixture
def run(tmp_path):
    """The files of a run in which the doctor failed and a test did."""
    backends = {"opencl": times(40.123456), "cupy": times(80.0), "torch": {"failed": "OutOfMemoryError: x"}}
    entry = {"family": "rows", "bytes": 4_000_000, "flops": 0.0, "shapes": [[1000, 1000]], "backends": backends}
    entry["profile"] = "5 calls\n\ndevice node  launches\n-----------  --------\nGpuExp              1"
    device = {"name": "a card", "driver": "1.2"}
    bench = {"device": device, "scale": 4.0, "results": {"softmax": entry}, "versions": {"cupy": "13"}}
    (tmp_path / "bench.json").write_text(json.dumps(bench))
    (tmp_path / "features.json").write_text(json.dumps({"a": {"works": True}, "b": {"works": False}}))
    (tmp_path / "steps.txt").write_text("devices 0 3\nbench 0 12\n")
    (tmp_path / "doctor.json").write_text("{")
    (tmp_path / "tests.xml").write_text(
        '<testsuites><testsuite tests="2" failures="1" errors="0" skipped="0"><testcase classname="m" name="a"/>'
        '<testcase classname="m" name="b"><failure message="x"/></testcase></testsuite></testsuites>'
    )
    return tmp_path


def test_one_file_of_many(tool, run):
    found = tool.collect(run)
    assert (found["card"], found["driver"], found["scale"]) == ("a card", "1.2", 4.0)
    assert found["steps"] == {"devices": "0 3", "bench": "0 12"}
    assert found["tests"]["failed"] == ["m::b"]
    assert "checks" not in found and "chains" not in found
    workload = found["workloads"]["softmax"]
    assert workload["backends"]["opencl"]["row_us"] == 40.12
    assert workload["kernels"] == ["GpuExp 1"]


def test_tables(tool, run):
    (run / "r.json").write_text(json.dumps(tool.collect(run)))
    page = "text\n" + "".join(f"<!-- table {name} of r.json: begin -->\n{tool.END}\n" for name in tool.TABLES)
    with pytest.raises(KeyError):  # the probe did not run
        tool.refreshed(page, run)
    probe = {"microseconds of commands": {"launch": 5.0}, "bandwidth in GB/s": {"float, 8 groups a unit": 7.0}}
    (run / "probe.json").write_text(json.dumps(probe))
    (run / "r.json").write_text(json.dumps(tool.collect(run)))
    changed = tool.refreshed(page, run)
    assert "| softmax | 1,000 x 1,000 | 40 | 80 |  | failed | 100 GB/s | 1.99 |" in changed
    assert "| CuPy | 1 | 1.99 | 1.99 | 1.99 | 1 |" in changed
    assert "| launch | 5 us |" in changed and "| copy by float | 7 GB/s |" in changed and "| a | b |" in changed
    assert tool.refreshed(changed, run) == changed


def test_the_page_has_the_tables_of_its_files(tool):
    for page in tool.PAGES:
        assert tool.refreshed(page.read_text(), page.parent) == page.read_text()


def test_results_have_no_paths_of_a_machine(tool):
    for file in (CHECKOUT / "docs" / "results").glob("*.json"):
        assert not any(folder in file.read_text() for folder in ("/home/", "/root/", "/tmp/", "/usr/", "/opt/"))


def test_the_benchmark_measures_and_checks(tool, tmp_path):
    device = next(entry.stable_spec for entry in discover() if entry.info.kind == "cpu")
    out = tmp_path / "bench.json"
    options = ["--scale", "0.001", "--backends", "opencl", "--device", device, "--profile"]
    only = ["softmax", "adam", "layer norm, gradients", "normal draws", "conv 3x3 128-128 of 28, gradients"]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "benchmarks/gpu.py", str(out), *options, "--only", *only],
        cwd=CHECKOUT,
        env={**os.environ, "PYTENSOR_FLAGS": "floatX=float32"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(out.read_text())["results"]
    assert len(results) == 7
    for entry in results.values():
        found = entry["backends"]["opencl"]
        assert found["right"] and found["row_us"] > 0, found
    assert "Gpu" in results["softmax"]["profile"]
