"""The start-up hook, in interpreters of their own that run scripts without an import of the package.

A throw-away virtual environment has ``pytensor_cl.pth`` in its site-packages and finds everything else
where this test run finds it, so the tests are the same for a checkout, a wheel and an editable install.
Importing PyTensor takes a second or two: each script checks several things.
"""

import json
import os
import subprocess
import sysconfig
import textwrap
import venv
from pathlib import Path

import pytest

import pytensor_cl

ROOT = Path(__file__).parents[1]
CONTEXTS = "dev0->opencl0:0;dev1->opencl0:1"


class Interpreter:
    """Runs scripts in the environment ``prefix``; what a script stores in ``seen`` comes back."""

    def __init__(self, prefix, home):
        self.python = prefix / "bin" / "python"
        self.home = home

    def finish(self, script, *options, flags="", **variables):
        """Run a script to its end, whatever that is."""
        prologue = "import json, sys, warnings\nseen = {}\n"
        epilogue = "\nprint('seen', json.dumps(seen))\n"
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTENSOR"))}
        environment |= {"HOME": str(self.home), "PYTENSOR_FLAGS": flags, **variables}
        return subprocess.run(
            [self.python, *options, "-c", prologue + textwrap.dedent(script) + epilogue],
            capture_output=True,
            text=True,
            env=environment,
            cwd=self.home,
            check=False,
        )

    def see(self, script, *options, flags="", **variables):
        """Run a script that must succeed, without a word on stderr, and return its ``seen``."""
        done = self.finish(script, *options, flags=flags, **variables)
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout.rpartition("seen ")[2])


def _make(prefix, start_up_line):
    venv.create(prefix, symlinks=True)
    [site_packages] = prefix.glob("lib/python*/site-packages")
    roots = [sysconfig.get_path(name) for name in ("purelib", "platlib")]
    roots.append(str(Path(pytensor_cl.__file__).parents[1]))
    (site_packages / "_paths.pth").write_text("\n".join(roots) + "\n")
    if start_up_line:
        (site_packages / "pytensor_cl.pth").write_text(start_up_line)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """An interpreter with the start-up hook, as after ``pip install``."""
    folder = tmp_path_factory.mktemp("installed")
    _make(folder / "venv", (ROOT / "pytensor_cl.pth").read_text())
    return Interpreter(folder / "venv", folder)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """An interpreter that only has the package on its path, as with ``PYTHONPATH``."""
    folder = tmp_path_factory.mktemp("checkout")
    _make(folder / "venv", None)
    return Interpreter(folder / "venv", folder)


CONFIG = """
    import pytensor
    from pytensor.compile.mode import get_mode, predefined_linkers, predefined_modes

    config = pytensor.config
    seen.update(
        device=config.device,
        mode=config.mode,
        is_opencl=get_mode(None) is predefined_modes["OPENCL"],
        linker=config.linker,
        contexts=config.contexts,
        placement=config.opencl__placement,
        on_host=config.opencl__on_host,
        sync_debug=config.opencl__sync_debug,
        registered="opencl" in predefined_linkers,
        driver="pyopencl" in sys.modules,
    )
"""


def test_interpreter_starts_without_anything_heavy(installed):
    script = "seen['modules'] = sorted({m.partition('.')[0] for m in sys.modules})"
    modules = installed.see(script)["modules"]
    assert "pytensor_cl" in modules
    assert not {"pytensor", "numpy", "pyopencl", "mako", "numba"} & set(modules)


@pytest.mark.parametrize("options", [["-I"], ["-W", "error"], ["-S"], ["-OO", "-E"]], ids=" ".join)
def test_interpreter_options_do_not_matter(installed, options):
    seen = installed.see("seen['hook'] = 'pytensor_cl._autoload' in sys.modules", *options)
    assert seen["hook"] is (options != ["-S"])


def test_without_flags_nothing_changes(installed):
    seen = installed.see(
        CONFIG
        + """
    x = pytensor.tensor.vector("x")
    seen["linkers"] = [type(pytensor.function([x], x + 1, mode=mode).maker.linker).__name__
                       for mode in (None, "FAST_COMPILE")]
    seen["driver"] = "pyopencl" in sys.modules
    """,
        "-W",
        "error",
    )
    assert seen == {
        "device": "cpu",
        "mode": "Mode",
        "is_opencl": False,
        "linker": "auto",
        "contexts": "",
        "placement": "auto",
        "on_host": "allow",
        "sync_debug": False,
        "registered": True,
        "driver": False,
        "linkers": ["NumbaLinker", "VMLinker"],
    }


def test_flags_from_the_environment(installed):
    flags = (
        f"device=opencl0:0,floatX=float32,contexts={CONTEXTS},opencl__placement=device,"
        "opencl__on_host=raise,opencl__sync_debug=True"
    )
    seen = installed.see(
        CONFIG
        + """
    seen["floatX"] = config.floatX
    """,
        "-W",
        "error",
        flags=flags,
    )
    assert seen == {
        "device": "opencl0:0",
        "mode": "OPENCL",
        "is_opencl": True,
        "linker": "auto",
        "contexts": CONTEXTS,
        "placement": "device",
        "on_host": "raise",
        "sync_debug": True,
        "registered": True,
        "driver": False,
        "floatX": "float32",
    }


def test_flags_from_an_rc_file(installed, tmp_path):
    rc = tmp_path / "pytensorrc"
    rc.write_text(
        f"[global]\ndevice = opencl:pocl\ncontexts = {CONTEXTS}\n"
        "[opencl]\nplacement = host\non_host = warn\nsync_debug = True\n"
    )
    seen = installed.see(CONFIG, "-W", "error", PYTENSORRC=str(rc))
    assert seen["device"] == "opencl:pocl"
    assert seen["is_opencl"]
    assert seen["contexts"] == CONTEXTS
    assert (seen["placement"], seen["on_host"], seen["sync_debug"]) == ("host", "warn", True)


@pytest.mark.parametrize("mode", ["OPENCL", "opencl", "OpenCL"])
def test_mode_flag_takes_opencl_in_any_case(installed, mode):
    seen = installed.see(CONFIG, "-W", "error", flags=f"mode={mode}")
    assert (seen["mode"], seen["is_opencl"], seen["device"]) == ("OPENCL", True, "cpu")


@pytest.mark.parametrize("spelling", ["opencl", "OPENCL"])
def test_linker_flag_takes_opencl(installed, spelling):
    script = (
        CONFIG
        + """
    seen["of_mode"] = type(get_mode("Mode").linker).__name__
    seen["same"] = get_mode("FAST_RUN") is predefined_modes["OPENCL"]
    """
    )
    seen = installed.see(script, "-W", "error", flags=f"linker={spelling}")
    assert (seen["mode"], seen["linker"], seen["of_mode"]) == ("Mode", "opencl", "OpenCLLinker")
    assert seen["same"]


@pytest.mark.parametrize(("flags", "mode"), [("mode=NUMBA", "NUMBA"), ("linker=py", "Mode")])
def test_a_chosen_mode_or_linker_is_kept(installed, flags, mode):
    seen = installed.see(CONFIG, "-W", "error", flags=f"device=opencl0:0,{flags}")
    assert (seen["mode"], seen["is_opencl"]) == (mode, False)


def test_mode_can_be_assigned_and_changed(installed):
    seen = installed.see(
        """
    import pytensor
    config = pytensor.config
    config.mode = "opencl"
    seen["assigned"] = config.mode
    with config.change_flags(mode="NUMBA"):
        seen["within"] = config.mode
    seen["after"] = config.mode
    for name, value in (("mode", "OPENGL"), ("device", "opencl:pocl")):
        try:
            setattr(config, name, value)
        except Exception as error:
            seen[name] = str(error)
    """
    )
    assert (seen["assigned"], seen["within"], seen["after"]) == ("OPENCL", "NUMBA", "OPENCL")
    assert "Instead got: OPENGL" in seen["mode"]
    assert "the flag device is 'cpu' and cannot change" in seen["device"]
    assert "pytensor_cl.use('opencl:...')" in seen["device"] and "PYTENSOR_FLAGS=device=opencl:pocl" in seen["device"]


@pytest.mark.parametrize(
    "flags",
    ["device=opencl97:5", "device=frobnicate", "device=", "contexts=a-b;;->"],
)
def test_a_malformed_device_does_not_break_the_import(installed, flags):
    script = "import pytensor\nseen.update(device=pytensor.config.device, contexts=pytensor.config.contexts)"
    name, value = flags.split("=")
    assert installed.see(script, "-W", "error", flags=flags)[name] == value


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("mode=OPENGL", "Instead got: OPENGL"),
        ("linker=opengl", "Invalid value ('opengl') for configuration variable 'linker'"),
        ("floatX=float31", "Invalid value ('float31') for configuration variable 'floatX'"),
        ("opencl__placement=moon", "Invalid value ('moon') for configuration variable 'opencl__placement'"),
        ("opencl__sync_debug=perhaps", "Invalid value (perhaps) for configuration variable"),
    ],
)
def test_wrong_values_are_still_rejected(installed, flags, message):
    done = installed.finish("import pytensor", flags=flags)
    assert done.returncode == 1
    assert "ValueError" in done.stderr
    assert message in done.stderr


def test_an_unknown_flag_is_still_reported(installed):
    done = installed.finish("import pytensor", flags="opencl__palcement=device")
    assert done.returncode == 0
    assert "does not recognise this flag: opencl__palcement" in done.stderr


def test_the_parser_is_left_as_it_was(installed):
    seen = installed.see(
        """
    import inspect
    import pytensor
    from pytensor import configparser
    seen["add"] = configparser.PyTensorConfigParser.add.__qualname__
    seen["warn"] = configparser.PyTensorConfigParser.warn_unused_flags.__qualname__
    seen["source"] = "def add(self" in inspect.getsource(configparser.PyTensorConfigParser)
    seen["loader"] = type(pytensor.__spec__.loader).__name__
    """,
        flags="device=opencl0:0",
    )
    assert seen == {
        "add": "PyTensorConfigParser.add",
        "warn": "PyTensorConfigParser.warn_unused_flags",
        "source": True,
        "loader": "SourceFileLoader",
    }


def test_a_second_try_after_a_failed_import(installed):
    seen = installed.see(
        """
    import os
    try:
        import pytensor
    except ValueError as error:
        seen["error"] = str(error)
    os.environ["PYTENSOR_FLAGS"] = "device=opencl0:0"
    import pytensor
    seen.update(device=pytensor.config.device, mode=pytensor.config.mode)
    """,
        flags="device=opencl0:0,floatX=float31",
    )
    assert "float31" in seen["error"]
    assert (seen["device"], seen["mode"]) == ("opencl0:0", "OPENCL")


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_child_processes_get_the_flags(installed, tmp_path, method):
    script = tmp_path / "parent.py"
    script.write_text(
        textwrap.dedent(
            """
        import multiprocessing, sys

        def ask():
            import pytensor
            return pytensor.config.device, pytensor.config.mode

        if __name__ == "__main__":
            with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:
                print(*pool.apply(ask))
        """
        )
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTENSOR"))}
    environment["PYTENSOR_FLAGS"] = "device=opencl0:0"
    command = [installed.python, script, method]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.split() == ["opencl0:0", "OPENCL"]


FIRST = "import pytensor_cl\n"
LATE = "import pytensor\nimport pytensor_cl\n"


@pytest.mark.parametrize("imports", [FIRST, LATE], ids=["before", "after"])
def test_import_of_the_package_does_it_too(checkout, imports):
    script = imports + textwrap.dedent(CONFIG)
    seen = checkout.see(script, "-W", "ignore", flags="device=opencl:pocl,opencl__on_host=warn")
    assert (seen["device"], seen["on_host"]) == ("opencl:pocl", "warn")
    assert seen["is_opencl"]
    assert seen["registered"]


def test_late_import_leaves_a_changed_default_mode(checkout):
    script = 'import pytensor\npytensor.config.mode = "NUMBA"\nimport pytensor_cl\n' + textwrap.dedent(CONFIG)
    seen = checkout.see(script, "-W", "ignore", flags="device=opencl:pocl")
    assert (seen["device"], seen["mode"]) == ("opencl:pocl", "NUMBA")


COMPILE = """
    import traceback
    import pytensor
    x = pytensor.tensor.vector("x")
    for name, mode in (("default", None), ("asked", "OPENCL"), ("numba", "NUMBA")):
        try:
            pytensor.function([x], x + 1, mode=mode)
        except Exception as error:
            seen[name] = "".join(traceback.format_exception_only(error))
    """
# What an import of it then finds is that it cannot be had.
BROKEN = """
    sys.modules["pytensor_cl.mode"] = None"""


@pytest.mark.parametrize(("flags", "failing"), [("device=opencl0:0", ["asked", "default"]), ("", ["asked"])])
def test_a_broken_installation_is_reported_by_the_first_compilation(installed, flags, failing):
    seen = installed.see(BROKEN + COMPILE, "-W", "error", flags=flags)
    assert sorted(seen) == failing
    assert seen["asked"].startswith("ModuleNotFoundError: ")
    assert "pytensor_cl met this while PyTensor was imported" in seen["asked"]


def test_malformed_contexts_are_reported_by_the_first_compilation(installed):
    seen = installed.see(COMPILE, "-W", "error", flags="device=opencl:pocl,contexts=a-b;;->")
    assert sorted(seen) == ["asked", "default"]
    assert seen["asked"].startswith("pytensor_cl.errors.ContextNotDefined: ")
    assert "contexts" in seen["asked"]
