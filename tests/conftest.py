"""Fixtures: a context per OpenCL driver, functions compiled for it, and random numbers whose seed is printed."""

import gc
import os
import re
from collections import defaultdict
from pathlib import Path
from zlib import crc32

import numpy as np
import pytensor
import pytest
from pytensor.tensor.elemwise import Elemwise

from pytensor_cl.errors import CompilationError, UnsupportedDtype
from pytensor_cl.linker.run import host_steps
from pytensor_cl.linker.selection.backends import NumbaFunction
from pytensor_cl.routines.base.routine import Routine
from pytensor_cl.runtime import fork
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.device import discover
from pytensor_cl.runtime.program import ProgramCache
from pytensor_cl.runtime.registry import change_settings, define_contexts, get_context

ALL = os.environ.get("PYTENSOR_CL_SWEEPS") == "all"
"""Whether to take every case, however long it takes."""
SHARE = os.environ.get("PYTENSOR_CL_SHARE")
"""The part of the tests that runs, by their names; where it is not set, `DEFAULT_SHARE`, or all tests that were named."""
DEFAULT_SHARE = "1/4"
"""The part that ``pytest`` without paths, ``-k`` and ``-m`` runs."""
CPU_DRIVERS = ("pocl", "intel")
NumbaFunction.compiles_in_thread = False  # a test counts the calls until another backend is tried
pytensor.config.opencl__select_backend = False  # the arrays of tests are small: the kernels shall see them all the same
change_settings(parallel_compile=False)  # the other cores run other tests

_SIMT = re.compile(r"\bvoid\s+\w*_simt")
BUILT_QUICKLY = {"array", "linker", "nn", "ops", "optimizers", "pymc", "rewriting", "train"}
"""Folders whose tests build kernels without optimisation."""
_build = ProgramCache._call_driver
_quickly = [False]
_FILES: set = set()
TESTS = Path(__file__).parent
QUICK = {"codegen", "linker", "nn", "ops", "rewriting", "routines", "scalar", "test_layers.py", "test_mode.py"}
"""Folders and files of which ``-m quick`` takes the first test of each file."""


def _build_on_cpu(programs, text, options):
    """Build without optimisation, in a quarter of the time, where no kernel is what is tested.

    Those of schedule simt always are built so: a CPU runs them for tests alone.
    """
    is_cpu = programs._context.devices[0].type & cl.device_type.CPU
    more = ["-cl-opt-disable"] if is_cpu and (_quickly[0] or _SIMT.search(text)) else []
    return _build(programs, text, [*options, *more])


def build_quickly():
    """Build every kernel of the process without optimisation."""
    _quickly[0] = True


if not ALL:
    ProgramCache._call_driver = _build_on_cpu


def _drivers():
    present = {e.stable_spec.split(":")[1] for e in discover()}
    required = set(filter(None, os.environ.get("PYTENSOR_CL_REQUIRE_DRIVERS", "").split(",")))
    if required - present:
        missing, there = sorted(required - present), sorted(present)
        raise pytest.UsageError(f"required OpenCL drivers are missing: {missing}; there are {there}")
    chosen = os.environ.get("PYTENSOR_CL_TEST_DRIVERS")
    names = chosen.split(",") if chosen else [d for d in CPU_DRIVERS if d in present] or sorted(present)
    if not names:
        raise pytest.UsageError("no OpenCL driver at all; 'pip install pocl-binary-distribution' brings one")
    return names


DRIVERS = _drivers()


def context_of(driver):
    """The test session's context on a driver, which it makes the default; its name is the driver's."""
    define_contexts({name: f"opencl:{name}" for name in DRIVERS}, driver)
    context = get_context(driver)
    if driver == "oclgrind":
        context.memory._allocate = _without_slack(context)
    return context


def _without_slack(context):
    """Buffers of exactly the requested size: a simulator does not find writes past the end in a larger pooled one."""
    return lambda nbytes: cl.Buffer(context.cl_context, cl.mem_flags.READ_WRITE, nbytes)


@pytest.fixture(params=DRIVERS)
def context(request):
    """An open context, once per driver; functions of mode OPENCL run on it."""
    return context_of(request.param)


def _share(config):
    """The share of the tests that runs; the processes of pytest-xdist have that of the main process."""
    if hasattr(config, "workerinput"):
        return config.workerinput["share"]
    is_chosen = config.args_source is config.ArgsSource.ARGS or config.option.keyword or config.option.markexpr
    return SHARE or ("1/1" if is_chosen else DEFAULT_SHARE)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """Hand the share to a process of pytest-xdist."""
    node.workerinput["share"] = _share(node.config)


def pytest_report_header(config):
    """Return which tests run: without kernels in the caches, drivers compile for most of the time."""
    return (
        f"OpenCL drivers: {', '.join(DRIVERS)}; share of the tests: {_share(config)} (PYTENSOR_CL_SHARE=1/1 for all). "
        "The default of 'pytest' alone is a quarter; 'pytest tests/ops', or a file, runs all tests in it"
    )


def _place(item):
    """The test function, its driver, and the schedule if it is of a routine.

    Instead of the function the file, if it is a test of Ops on a further driver: their kernels are those of routines.
    """
    chosen = item.callspec.params if hasattr(item, "callspec") else {}
    driver = chosen.get("context", DRIVERS[0])
    is_elsewhere = driver != DRIVERS[0] and item.path.parent.name == "ops"
    return item.nodeid.partition("::" if is_elsewhere else "[")[0], driver, chosen.get("schedule")


def _kept(place, cases):
    """Return the cases of a test that run, given in random order. The drivers divide the cases of schedule simt."""
    first, half = place[1] == DRIVERS[0], -(-len(cases) // 2)
    if place[2] == "simt" and len(DRIVERS) > 1:
        return cases[:half] if first else cases[-half:]
    return cases if first else cases[: -(-len(cases) // 4)]


def _chance(item):
    """A number that is the same on each driver."""
    name = item.name
    for driver in DRIVERS:
        name = name.replace(driver, "")
    return crc32(name.encode())


def _is_in_share(item, share):
    """Return whether a test belongs to a share such as 1/24; schedules and drivers have the same."""
    count, parts = map(int, share.split("/"))
    name = re.sub(r"\b(cpu|simt)\b", "", item.nodeid)
    for driver in DRIVERS:
        name = name.replace(driver, "")
    return crc32(name.encode()) % parts < count


def _leave_out(config, items, left_out):
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def pytest_runtest_setup(item):
    """Kernels are what routines are tested for, and scalar functions; Ops launch the same ones."""
    quickly = item.path.relative_to(TESTS).parts[0] in BUILT_QUICKLY
    if quickly != _quickly[0]:
        for context in fork.opened_contexts():  # which shall not hand on what they have built otherwise
            context.programs._recent.clear()
            context.programs._programs.clear()
    _quickly[0] = quickly


def pytest_configure(config):
    config.addinivalue_line("markers", "quick: the first test of each file; run them before each commit")


@pytest.hookimpl(tryfirst=True)  # before -m
def pytest_itemcollected(item):
    """Mark the first test of each file in the folders that need no other process."""
    if item.path not in _FILES and item.path.relative_to(TESTS).parts[0] in QUICK:
        _FILES.add(item.path)
        item.add_marker(pytest.mark.quick)


@pytest.hookimpl(trylast=True)  # after -k and -m
def pytest_collection_modifyitems(config, items):
    """Run every case of a test on the first driver, and a quarter on each other one, which gets the same kernels.

    Of the tests in ``ops/`` it is a quarter of those of a file.
    Schedule simt, which CPUs have for tests alone, gets each case on one of two drivers. Which cases run where depends on
    the names alone. PYTENSOR_CL_SWEEPS=all runs all everywhere.
    """
    share = _share(config)
    _leave_out(config, items, {item for item in items if not _is_in_share(item, share)})
    if ALL:
        return
    groups = defaultdict(list)
    for item in items:
        if not getattr(item.function, "is_sweep", False):
            groups[_place(item)].append(item)
    left_out = set()
    for place, group in groups.items():
        group.sort(key=_chance)
        left_out.update(set(group) - set(_kept(place, group)))
    _leave_out(config, items, left_out)


def pytest_collection():
    """Collect tests without the garbage collector, which takes a third of the time."""
    gc.disable()


def pytest_collection_finish():
    """Spare the garbage collector all modules and tests: with them a full collection takes a second."""
    gc.collect()
    gc.freeze()
    gc.enable()


def _seed(name):
    """The same for a test each time, unless PYTENSOR_CL_SEED is a number, or ``random``."""
    chosen = os.environ.get("PYTENSOR_CL_SEED")
    if chosen == "random":
        return int(np.random.SeedSequence().entropy % 2**32)
    return crc32(name.encode()) if chosen is None else int(chosen)


@pytest.fixture(autouse=True)
def _no_numba_between_kernels(request, monkeypatch):
    """Run the host's elementwise nodes in Python, but where linking is tested: NUMBA compiles each for a second."""
    if "linker" not in request.path.parts and not ALL:
        monkeypatch.setattr(host_steps, "LOOPS", tuple(op for op in host_steps.LOOPS if op is not Elemwise))


@pytest.fixture
def c_compiler():
    """For tests that use PyTensor's C backend."""


@pytest.fixture(autouse=True)
def _references_in_python(request):
    """Compute what results are compared with in Python: the C compiler takes a second for each function."""
    with pytensor.config.change_flags(cxx=pytensor.config.cxx if ALL or "c_compiler" in request.fixturenames else ""):
        yield


@pytest.fixture(params=["cpu", "simt"])
def schedule(request):
    """The schedule of a routine, whatever the device would choose."""
    return request.param


def _context_of(item):
    """The context that a test runs on."""
    chosen = item.callspec.params.get("context") if hasattr(item, "callspec") else None
    return context_of(chosen if chosen in DRIVERS else DRIVERS[0])


def _lacking(error, info):
    """Return what the device lacks, if that is what the error says: double precision, or one address space."""
    if not info.has_fp64 and (isinstance(error, UnsupportedDtype) or "double" in error.source):
        return "has no double precision"
    if isinstance(error, CompilationError) and "private_memory_has_addresses_of_its_own" in error.log:
        return "has private memory with addresses of its own"
    return ""


def _skip_schedule_cpu(context):
    """Skip a test of schedule ``cpu`` where its kernels do not run.

    A simulator runs those that need no more than it has; the others do not compile.
    """
    info = context.info
    if not info.features.has_cpu_schedule and context.name != "oclgrind":
        pytest.skip(f"{info.name} runs no kernels of schedule cpu: {', '.join(info.features.missing)}")


_init_routine = Routine.__init__


def _init_or_skip(routine, context, schedule=None):
    if schedule == "cpu":
        _skip_schedule_cpu(context)
    _init_routine(routine, context, schedule)


Routine.__init__ = _init_or_skip


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Skip what the device does not have: schedule ``cpu``, and double precision."""
    schedule = item.callspec.params.get("schedule") if hasattr(item, "callspec") else None
    if schedule == "cpu":
        _skip_schedule_cpu(_context_of(item))
    try:
        return (yield)
    except (UnsupportedDtype, CompilationError) as error:
        info = _context_of(item).info
        lacking = _lacking(error, info)
        if not lacking:
            raise
        pytest.skip(f"{info.name} {lacking}")


@pytest.fixture
def host_sees_memory(context):
    """For tests of memory that the host and the device share."""
    if not context.mappings.are_supported():
        pytest.skip(f"{context.info.name} has a memory of its own, which the host does not see")


@pytest.fixture
def on_device():
    """Compile functions for the device, however small they are."""
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


@pytest.fixture
def rng(request):
    """A random generator; pytest shows the seed when the test fails. PYTENSOR_CL_SEED sets it."""
    seed = _seed(request.node.name)
    print(f"seed of {request.node.name}: PYTENSOR_CL_SEED={seed}")  # noqa: T201
    return np.random.default_rng(seed)
