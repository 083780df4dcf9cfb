"""Start-up hook: registers OpenCL when a script imports PyTensor, without a change of the script.

``pytensor_cl.pth`` imports this module in every interpreter, and with it the package, which calls
``install``. So both stay tiny: this one imports nothing but ``sys``, and never lets an exception of
its own reach the program. PyTensor has no plug-in mechanism: it reads its flags while
``pytensor.configdefaults`` is imported and refuses a mode, a linker or a flag that is not declared
by then. So a finder waits for two modules:

``pytensor.configparser``
    its ``add`` then accepts ``mode=OPENCL`` and ``linker=opencl`` and declares our flags;
``pytensor``
    ``pytensor_cl.mode`` is imported, which registers the mode and the linker.

Our modules are loaded by name, through ``importlib``, because this file is below all of them.
"""

import sys

TYPE_CHECKING = False  # typing's own constant would import typing in every interpreter
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any


# The tables of pytensor.compile.mode that have an entry for each backend, and our key there.
_REGISTRIES = (
    ("predefined_modes", "OPENCL"),
    ("predefined_linkers", "opencl"),
    ("fast_run_linkers_to_mode", "opencl"),
)


class _Finder:
    """Meta-path finder that runs a function right after certain modules were executed.

    It stays in ``sys.meta_path`` when it has nothing left to do: taking it out would make an
    import that runs in another thread at that moment skip the next finder.
    """

    def __init__(self, hooks: "dict[str, Callable[[ModuleType], None]]") -> None:
        self.hooks = hooks

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        """Return the spec the other finders give, its loader extended by the hook."""
        if name not in self.hooks:
            return None
        others = (getattr(finder, "find_spec", None) for finder in sys.meta_path if finder is not self)
        specs = (find(name, path, target) for find in others if find)
        spec = next((spec for spec in specs if spec is not None), None)
        self._extend(name, getattr(spec, "loader", None))
        return spec

    def _extend(self, name: str, loader: "Any") -> None:
        execute = getattr(loader, "exec_module", None)
        if execute is None or not hasattr(loader, "__dict__"):
            return  # an unknown kind of loader: PyTensor is imported without our flags

        def exec_module(module: "ModuleType") -> None:
            execute(module)
            if module.__name__ == name:  # some loaders serve several modules
                self._run_hook(module)

        # On the instance, so that the loader keeps its type (inspect and pkgutil look at it).
        loader.exec_module = exec_module

    def _run_hook(self, module: "ModuleType") -> None:
        hook = self.hooks.pop(module.__name__, None)
        try:
            if hook is not None:
                hook(module)
        except Exception:  # an unsupported version of PyTensor: import it as it is
            return


def _extend_parser(module: "ModuleType") -> None:
    """Make ``PyTensorConfigParser.add`` accept our names; ``_finish`` puts the old one back."""
    parser = module.PyTensorConfigParser
    original = parser.add

    def add(self: "Any", name: str, doc: str, configparam: "Any", in_c_key: bool) -> None:
        _accept(name, configparam)
        original(self, name, doc, configparam, in_c_key)
        if name == "floatX":  # the first one: ours come next to it
            _declare(self, module)

    add.original = original  # type: ignore[attr-defined]
    parser.add = add


def _accept(name: str, parameter: "Any") -> None:
    """Let the flags ``mode`` and ``linker`` take OpenCL's names besides PyTensor's."""
    if name == "mode" and callable(parameter._apply):
        parameter._apply = _accepting("OPENCL", parameter._apply)
    elif name == "linker" and hasattr(parameter, "all"):
        parameter.all.add("opencl")
        parameter._apply = _accepting("opencl", parameter._apply)


def _accepting(name: str, apply: "Callable[[Any], Any]") -> "Callable[[Any], Any]":
    """Take our name in capitals or without, and list it where PyTensor lists the names."""

    def accept(value: "Any") -> "Any":
        if isinstance(value, str) and value.upper() == "OPENCL":
            return name
        try:
            return apply(value)
        except ValueError as error:
            text = str(error)
            if repr(name) not in text:
                error.args = (text.replace("]", f", {name!r}]", 1),)
            raise

    return accept


def _declare(config: "Any", parameters: "ModuleType") -> None:
    """Declare our flags. A value out of range is the user's error and is raised, as PyTensor does.

    Anything else means that PyTensor or our installation is not what we know. Then the flags stay
    unknown, which PyTensor itself reports ("does not recognise this flag").
    """
    try:
        _load("pytensor_cl.flags").declare(config, parameters)
    except ValueError:
        raise
    except Exception:
        return


def _finish(pytensor: "ModuleType") -> None:
    """Register mode and linker, now that ``pytensor`` is there, and choose the default mode."""
    parser = type(pytensor.config)
    parser.add = getattr(parser.add, "original", parser.add)
    try:
        _load("pytensor_cl.mode")
    except Exception as reason:
        _register_unusable(reason)
    try:
        if _load("pytensor_cl.flags").wants_opencl_mode(pytensor.config):
            pytensor.config.mode = "OPENCL"
    except AttributeError:  # no flags of ours: see _declare
        return


class _Unusable:
    """Stands for the mode and the linker where they could not be set up: using it raises why."""

    def __init__(self, reason: Exception) -> None:
        reason.add_note("pytensor_cl met this while PyTensor was imported: there is no mode OPENCL.")
        self._reason, self._traceback = reason, reason.__traceback__

    def __getattr__(self, name: str) -> "Any":
        if name.startswith("_"):  # looked up by copy, pickle and the like, which can do without
            raise AttributeError(name)
        raise self._reason.with_traceback(self._traceback)


def _register_unusable(reason: Exception) -> None:
    """Keep ``import pytensor`` whole; the first compilation with mode OPENCL raises the reason."""
    modes = sys.modules.get("pytensor.compile.mode")
    unusable = _Unusable(reason)
    for table, name in _REGISTRIES:
        getattr(modes, table, {})[name] = unusable


def _adopt(pytensor: "ModuleType") -> None:
    """Do all of it at once for a PyTensor that was imported before us."""
    config = pytensor.config
    if "device" not in config._config_var_dict:
        for name in ("mode", "linker"):
            _accept(name, config._config_var_dict[name])
        _declare(config, sys.modules["pytensor.configparser"])
    _finish(pytensor)


def _load(name: str) -> "Any":
    import importlib  # not in every interpreter: only where PyTensor is imported

    return importlib.import_module(name)


def install() -> None:
    """Wait for ``import pytensor``, or adopt a PyTensor that is there already."""
    loaded = sys.modules.get("pytensor")
    if loaded is not None:
        _adopt(loaded)
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder({"pytensor.configparser": _extend_parser, "pytensor": _finish}))
