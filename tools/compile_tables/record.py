"""Record the kernels that a GPU would get from the tests and the benchmarks, without running any.

As a plug-in of pytest (``-p tools.compile_tables.record``) it makes each device look like a GPU, replaces the driver's
programs and kernels by objects that do nothing, and writes each kernel's text, and the work-groups that it was launched
with, to the folder ``PYTENSOR_CL_RECORD``. ``PYTENSOR_CL_RECORD_DEVICE`` names the GPU (`DEVICES`).

Results of such tests mean nothing: they are run with ``python -O`` and ``--assert=plain``, so that no assertion ends a
test early, and NumPy's assertions do nothing.

usage, without pytest: python -m tools.compile_tables.record [workload ...]
"""

import atexit
import importlib.util
import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.routines.base.routine import Routine
from pytensor_cl.runtime import context as contexts
from pytensor_cl.runtime import device, opencl
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.runtime.features.features import Features
from pytensor_cl.runtime.program import ProgramCache

__all__ = ["COMPILED", "DEVICES", "Recorder", "benchmark", "draws", "install", "linear_algebra"]

ROOT = Path(__file__).parents[2]
_COMMON = {
    "kind": "gpu",
    "name": "recorded GPU",
    "compute_units": 40,
    "max_work_group_size": 1024,
    "max_parameter_size": 4096,
    "shares_host_memory": False,
    "correctly_rounded_divide_sqrt": True,
    "host_alignment": 0,
}
DEVICES: dict[str, dict[str, Any]] = {
    "full": {**_COMMON, "has_fp64": True, "has_fp16": True, "local_memory": 48 << 10},
    "no-fp16": {**_COMMON, "has_fp64": True, "has_fp16": False, "local_memory": 64 << 10},
    "small": {
        **_COMMON, "has_fp64": False, "has_fp16": False, "local_memory": 32 << 10, "max_work_group_size": 256,
        "correctly_rounded_divide_sqrt": False,
    },
    "h200": {
        **_COMMON, "has_fp64": True, "has_fp16": False, "local_memory": 48 << 10, "compute_units": 132,
        "max_parameter_size": 4352, "features": {
            "prefetch": False, "private_as_global": False, "fp16": False, "maps": False, "warp_shuffles": True,
            "half_conversions": True, "matrix_f64": 8, "warp_votes": True, "float_atomics": True, "last_group": True,
        },
    },
}  # fmt: skip
"""Attributes of the devices that differ from the one at hand, and from the features of a driver with all of them.
NVIDIA's driver and Intel's older ones have no fp16."""
COMPILED = ("full", "no-fp16", "small")
"""The devices whose kernels are compiled."""


class Recorder:
    """Collects kernels and their work-groups; writes them to a folder.

    `device`: name in `DEVICES` of the device that the texts were made for.
    """

    def __init__(self, folder: Path, device: str) -> None:
        self.folder, self.device = folder, device
        self.origin = ""
        self._seen: set[tuple[str, str]] = set()
        self._groups: defaultdict[str, set[tuple[int, ...]]] = defaultdict(set)
        folder.mkdir(parents=True, exist_ok=True)

    def built(self, sources: Iterable[KernelSource]) -> None:
        """Write those texts that are new. A name holds the digest of the text, so that it stands for it."""
        for source in sources:
            key = source.name, self.origin
            if key not in self._seen:
                self._seen.add(key)
                self._write(source)

    def _write(self, source: KernelSource) -> None:
        path = self.folder / self.device / f"{source.name}.json"
        path.parent.mkdir(exist_ok=True)
        known = json.loads(path.read_text()) if path.exists() else {"origins": []}
        origins = sorted({*known["origins"], self.origin})
        text = json.dumps({**source._asdict(), "origins": origins})
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w") as file:
            file.write(text)
        Path(name).replace(path)

    def launched(self, name: str, local_size: tuple[int, ...] | None) -> None:
        """Note the work-group of a launch."""
        self._groups[name].add(tuple(local_size or ()))

    def finish(self) -> None:
        """Write the work-groups."""
        groups = {name: sorted(sizes) for name, sizes in self._groups.items()}
        path = self.folder / self.device / f"launches.{os.getpid()}.json"
        if groups:
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(groups))


class _Program:
    """Stands in for a driver's program."""

    def __init__(self, _context: Any, text: str) -> None:
        self.text = text

    def build(self, **_options: Any) -> "_Program":
        return self


class _Kernel:
    """Stands in for a driver's kernel."""

    num_args = 0

    def __init__(self, program: _Program, name: str) -> None:
        self.program, self.function_name = program, name
        self.int_ptr = id(self)

    def set_arg(self, index: int, value: Any) -> None:
        pass

    _set_arg_buf = set_arg

    def get_info(self, what: int) -> Any:
        is_program = what == opencl.kernel_info.PROGRAM
        return self.program if is_program else self.function_name

    def get_work_group_info(self, what: int, _device: Any) -> Any:
        sizes = opencl.kernel_work_group_info
        values = {sizes.WORK_GROUP_SIZE: 1024, sizes.PREFERRED_WORK_GROUP_SIZE_MULTIPLE: 32}
        return values.get(what, 0)


def _as_gpu(describe: Callable[[Any], DeviceInfo], name: str) -> Callable[[Any], DeviceInfo]:
    facts = {key: value for key, value in DEVICES[name].items() if key != "features"}
    return lambda handle: replace(describe(handle), **facts)


def install(folder: Path, name: str) -> Recorder:
    """Replace the driver's programs and kernels in this process, and return the recorder."""
    recorder = Recorder(folder, name)
    build = ProgramCache.build

    def recorded_build(cache: ProgramCache, sources: Iterable[KernelSource]) -> Any:
        sources = list(sources)
        recorder.built(sources)
        return build(cache, sources)

    def enqueue(queue: Any, kernel: _Kernel, _global_size: Any, local_size: Any, *_: Any, **__: Any) -> Any:
        recorder.launched(kernel.function_name, local_size)
        return opencl.enqueue_marker(queue)

    made = Routine.__init__

    def as_simt(self: Routine, context: Any, schedule: str | None = None) -> None:
        made(self, context, "simt" if schedule == "cpu" else schedule)

    device.discover.cache_clear()
    device._describe = _as_gpu(device._describe, name)  # type: ignore[assignment]
    ProgramCache.build = recorded_build  # type: ignore[method-assign]
    Routine.__init__ = as_simt  # type: ignore[method-assign]
    if "features" in DEVICES[name]:
        contexts.features_of = lambda *_: Features(**DEVICES[name]["features"])
    vars(opencl).update(Program=_Program, Kernel=_Kernel, enqueue_nd_range_kernel=enqueue)
    atexit.register(recorder.finish)
    return recorder


# --- as a plug-in of pytest ---

_recorder: Recorder | None = None


def pytest_load_initial_conftests(early_config: Any) -> None:
    """Begin to record, before the tests' own conftest.py looks at the devices."""
    global _recorder
    _recorder = install(Path(os.environ["PYTENSOR_CL_RECORD"]), os.environ["PYTENSOR_CL_RECORD_DEVICE"])
    for name in dir(np.testing):
        if name.startswith("assert_"):
            setattr(np.testing, name, lambda *_, **__: None)


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Leave out tests of schedule cpu, which GPUs never run; keep a share of the others."""
    share = int(os.environ.get("PYTENSOR_CL_RECORD_SHARE", "1"))
    left_out = {
        item
        for item in items
        if (hasattr(item, "callspec") and item.callspec.params.get("schedule") == "cpu")
        or crc32(item.nodeid.encode()) % share
    }
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


def pytest_runtest_setup(item: Any) -> None:
    """Note where the next kernels come from."""
    assert _recorder is not None
    _recorder.origin = item.path.relative_to(ROOT).as_posix()


# --- the benchmarks ---


def benchmark(name: str) -> Any:
    """Import a file of the benchmarks, which are no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    sys.modules[name] = module
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module


def draws(count: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the distributions of benchmarks/draws.py, and functions that draw them; none on devices without fp64."""
    from pytensor_cl.routines.random.draw import Draw, HostDraw
    from pytensor_cl.runtime.registry import get_context

    context, bench = get_context(), benchmark("draws")
    if not context.info.has_fp64:
        return
    for name, parameters in bench.DISTRIBUTIONS.items():
        kind = getattr(bench.basic, name)
        dtype = "int64" if kind.dtype == "int64" else "float64"
        routine = Draw(context, name, dtype, HostDraw(kind(dtype=dtype).rng_fn, None))
        yield name, partial(routine, np.random.default_rng(bench.SEED), (count,), *parameters)


def linear_algebra(sizes: Iterable[tuple[int, int, int]]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the functions of benchmarks/linalg.py with float32 matrices of these sizes: their number, rows, columns."""
    for case in benchmark("linalg").CASES:
        for size in sizes:
            yield case.name, partial(_call_linalg, case, *size)


def _call_linalg(case: Any, count: int, n: int, m: int) -> None:
    import pytensor
    import pytensor.tensor as pt

    x = np.random.default_rng(0).normal(size=(count, n, n))
    a = (x @ x.swapaxes(-1, -2) / n + np.eye(n)).astype("float32")
    matrix, right = (pt.tensor(name, shape=(None,) * 3, dtype="float32") for name in "ab")
    f = pytensor.function([matrix, right], case.function(matrix, right), mode="OPENCL", on_unused_input="ignore")
    f(a, np.ones((count, n, m), "float32"))


def _record_workloads(recorder: Recorder, chosen: Iterable[str]) -> None:
    """Compile and call each workload of the benchmarks; those of models with gradients."""
    import pytensor

    workloads = benchmark("workloads").WORKLOADS
    backend = benchmark("worker").PyTensor("")
    pytensor.config.opencl__placement = "device"
    for workload in workloads:
        if chosen and workload.name not in chosen:
            continue
        recorder.origin = f"benchmark: {workload.name}"
        arrays = workload.make(np.random.default_rng(0), 1.0)
        variables, results = backend.graph(workload, arrays)
        function = pytensor.function(variables, results, mode="OPENCL")
        for _ in range(2):
            function(*arrays)


def _record_layers(recorder: Recorder) -> None:
    """Draws, linear algebra, convolutions of an image network, pooling, and the products of benchmarks/gemm.py."""
    from pytensor_cl.runtime.registry import get_context

    context = get_context()
    conv, pool, gemm = (benchmark(name) for name in ("conv", "pool", "gemm"))
    for name, call in draws(100_000):
        recorder.origin = f"benchmark: draws, {name}"
        call()
    for name, call in linear_algebra(((2000, 16, 1), (1, 256, 256))):
        recorder.origin = f"benchmark: {name}"
        call()
    conv_calls = _conv_calls(conv, context)
    for kind in ("forward", "input", "weight"):
        for layer in conv.LAYERS:
            recorder.origin = f"benchmark: convolution, {kind}"
            conv_calls(kind, layer)
    for case in pool.cases(context):
        recorder.origin = "benchmark: pooling"
        case.call()
    for dtype in ("float32", "float64")[: 1 + context.info.has_fp64]:
        recorder.origin = f"benchmark: products, {dtype}"
        gemm.compare = lambda calls: calls["device"]() or {"numpy": [1.0], "device": [1.0]}
        gemm.report = lambda *_: None
        bench = gemm.Bench(context, dtype)
        for part in (bench.products, bench.vectors, bench.batches):
            part()


def _conv_calls(conv: Any, context: Any) -> Callable[[str, Any], Any]:
    """Return a function that calls one layer of benchmarks/conv.py."""
    kept, contexts.open_context = contexts.open_context, lambda *_: context
    try:
        make = conv.opencl_calls("")
    finally:
        contexts.open_context = kept
    return lambda kind, layer: make(kind, layer, 16)()


def main(chosen: list[str]) -> None:
    """Record the benchmarks."""
    recorder = install(Path(os.environ["PYTENSOR_CL_RECORD"]), os.environ["PYTENSOR_CL_RECORD_DEVICE"])
    _record_workloads(recorder, chosen)
    if not chosen:
        _record_layers(recorder)


if __name__ == "__main__":
    main(sys.argv[1:])
