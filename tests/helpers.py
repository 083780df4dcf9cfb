"""Functions that tests of compiled functions share."""

import json
import os
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytensor
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

import pytensor_cl
from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.epilogue import GpuEpilogue
from pytensor_cl.ops.reduction import GpuCAReduce
from pytensor_cl.ops.rowwise import GpuRowwise
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.registry import defined_contexts, get_context
from tests.conftest import ALL, DRIVERS

ROOT = Path(pytensor_cl.__file__).parents[1]
"""The place of the package that is tested: a checkout, or an installation."""
CHECKOUT = Path(__file__).parents[1]
"""The place of the tests, with the documents, tools and templates."""
on_one_driver = pytest.mark.parametrize("context", DRIVERS if ALL else DRIVERS[:1], indirect=True)
"""For what PyTensor's own backends compute: NUMBA and C compilers take seconds, and the driver has no part in it."""


def cases_on(driver, every, elsewhere):
    """The cases of a sweep that run on a driver: every one on the first, and those of `elsewhere` on the others."""
    return every if driver == DRIVERS[0] or ALL else elsewhere


def _name(part):
    """Return what a part of a case is called in the name of a test."""
    return "-".join(map(str, part)) if isinstance(part, tuple) else getattr(part, "__name__", str(part))


def sweep(names, every, elsewhere):
    """Parametrise a test whose kernels take long to build.

    Drivers get the same text, so that a few cases show what another one makes of it; PYTENSOR_CL_SWEEPS=all takes all.
    """
    cases = [(driver, *case) for driver in DRIVERS for case in cases_on(driver, every, elsewhere)]
    marked = [pytest.param(*case, id="-".join(map(_name, case))) for case in cases]

    def decorate(test):
        test.is_sweep = True  # conftest.py leaves out no more
        return pytest.mark.parametrize(("context", *names), marked, indirect=["context"])(test)

    return decorate


class HostSort(Op):
    """Sorts, and has no kernel: a stand-in for whatever Ops no device has."""

    __props__ = ("axis", "inplace")

    def __init__(self, axis=-1, inplace=False):
        self.axis = axis
        self.inplace = inplace
        if inplace:
            self.destroy_map = {0: [0]}

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def infer_shape(self, node, shapes):
        return shapes

    def perform(self, node, inputs, output_storage):
        (x,) = inputs
        ordered = x if self.inplace else x.copy()
        ordered.sort(self.axis)
        output_storage[0][0] = ordered


def host_sort(x, axis=-1):
    """Sort on the host."""
    return HostSort(axis)(x)


def opencl(inputs, outputs, **options):
    """Compile a function of mode OPENCL."""
    return pytensor.function(inputs, outputs, mode="OPENCL", **options)


def device_ops(f):
    """The device Ops of a function, in the order of execution."""
    return [node.op for node in pytensor_cl.explain(f).device_nodes]


def host_ops(f):
    """The Ops of a function that run on the host."""
    return [node.op for node in pytensor_cl.explain(f).host_nodes]


def skip_without_double(f):
    """Skip a test if some of a function is on the host for the reason that the device has no double precision."""
    reasons = {node.reason for node in pytensor_cl.explain(f).host_nodes}
    lacking = sorted(
        reason
        for reason in reasons
        if "has no double precision" in reason or "float64, which the device does not have" in reason
    )
    if lacking:
        pytest.skip("; ".join(lacking))


def assert_on_device(f, *kinds):
    """Each class of device Op occurs in the function, or was fused into one that works on rows, or into an epilogue."""
    ops = device_ops(f)
    found = {type(op) for op in ops} | {type(op.producer) for op in ops if isinstance(op, GpuEpilogue)}
    found |= {GpuElemwise} if GpuEpilogue in found else set()
    found |= {GpuElemwise, GpuCAReduce} if GpuRowwise in found else set()
    if not set(kinds) <= found:
        skip_without_double(f)
    assert set(kinds) <= found, f"{[k.__name__ for k in kinds]} expected; there are {[c.__name__ for c in found]}"


def assert_all_on_device(f, *kinds):
    """Nothing runs on the host, and each class of device Op occurs."""
    if host_ops(f):
        skip_without_double(f)
    assert host_ops(f) == []
    assert_on_device(f, *kinds)


def normal(rng, *shape):
    """Return normal numbers of float32."""
    return rng.normal(size=shape).astype("float32")


def assert_close(got, expected, rtol=2e-5):
    """Same dtype, shape and values to rounding; `expected` has the dtype that PyTensor gives."""
    got, expected = np.asarray(got), np.asarray(expected)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    if expected.dtype == "float16":
        got, expected, rtol = got.astype("float32"), expected.astype("float32"), max(rtol, 2e-3)
    if expected.dtype.kind in "fc":
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol * np.abs(expected).max(initial=1e-30))
    else:
        np.testing.assert_array_equal(got, expected)


def check_against_python(inputs, outputs, kinds, *arguments):
    """Compile for the device and for PyTensor's Python Ops; compare each call; return the device's function."""
    f = opencl(inputs, outputs)
    assert_on_device(f, *kinds)
    with pytensor.config.change_flags(cxx=""):  # inner graphs would be compiled
        host = pytensor.function(inputs, outputs, mode="FAST_COMPILE")
    for values in arguments:
        for got, wanted in zip(f(*values), host(*values), strict=True):
            assert_close(got, wanted)
    return f


def another_context(context):
    """A context on another driver than `context`."""
    others = [name for name in defined_contexts() if name != context.name]
    if not others:
        pytest.skip("needs two OpenCL drivers")
    return get_context(others[0])


class Traffic:
    """Counts uploads and downloads."""

    def __init__(self):
        self.up = self.down = 0

    def reset(self):
        self.up = self.down = 0

    @property
    def both(self):
        return self.up, self.down


@contextmanager
def counted_traffic():
    """Count what crosses between host and devices inside the block."""
    traffic = Traffic()
    with pytest.MonkeyPatch.context() as patch:
        upload, download = Context.from_host, Context.download

        def counted_upload(self, *args, **kwargs):
            traffic.up += 1
            return upload(self, *args, **kwargs)

        def counted_download(self, *args, **kwargs):
            traffic.down += 1
            return download(self, *args, **kwargs)

        patch.setattr(Context, "from_host", counted_upload)
        patch.setattr(Context, "download", counted_download)
        yield traffic


def run_script(script, flags="", **variables):
    """Run a script in an interpreter of its own; return what it stored in ``seen``, and its stderr."""
    script = "import json\nseen = {}\n" + textwrap.dedent(script) + "\nprint('seen', json.dumps(seen))\n"
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    flags = ",".join(filter(None, ("opencl__progress=never", flags)))  # a busy machine compiles for long
    own = {"PYTHONPATH": path, "PYTENSOR_FLAGS": flags, "PYTENSOR_CL_TREE": "", "PYTEST_XDIST_WORKER": ""}
    environment = {**os.environ, **own, **variables}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.rpartition("seen ")[2]), done.stderr
