"""The import contract: ``setup.cfg`` as import-linter reads it, and what it cannot say."""

import ast
import configparser
import graphlib
import logging
import re
from functools import cache
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

import pytensor_cl

ROOT = Path(__file__).parents[1]
PACKAGE = Path(pytensor_cl.__file__).parent
# They work without PyTensor, so a kernel is tested and timed without a graph.
DEVICE_SIDE = ("routines", "runtime", "codegen", "errors")


def _module_name(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _contracts():
    """Names of the contracts in ``setup.cfg``."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    return [name.rpartition(":")[2] for name in settings.sections() if ":contract:" in name]


CONTRACTS = _contracts()
MODULES = {_module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
PACKAGES = {_module_name(path) for path in PACKAGE.rglob("__init__.py")}


@cache
def _tree(module):
    return ast.parse(MODULES[module].read_text())


def _imported(module, node):
    """Full names in one import statement; of ``from a import b`` both ``a`` and ``a.b``."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    package = module if module in PACKAGES else module.rpartition(".")[0]
    above = package.rsplit(".", node.level - 1)[0] if node.level else ""
    source = ".".join(filter(None, (above, node.module)))
    return [source, *(f"{source}.{alias.name}" for alias in node.names)]


def _imports(module, nodes):
    """Names imported by the statements among ``nodes``."""
    statements = (node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))
    return {name for node in statements for name in _imported(module, node)}


def _functions(tree):
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.fixture
def _loggers():
    """import-linter configures logging, and so disables every logger that is there."""
    enabled = [log for log in logging.Logger.manager.loggerDict.values() if not getattr(log, "disabled", True)]
    yield
    for log in enabled:
        log.disabled = False


@pytest.mark.usefixtures("_loggers")
def test_import_contract(capsys):
    # Without the folder of PoCL's hooks its contract has nothing to protect.
    present = [name for name in CONTRACTS if name != "pocl" or "pytensor_cl.runtime.pocl" in PACKAGES]
    failed = lint_imports(
        config_filename=str(ROOT / "setup.cfg"), limit_to_contracts=tuple(present), no_cache=True, no_logo=True
    )
    assert not failed, capsys.readouterr().out


def _is_for_types(statement):
    return isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING"


def _dependencies(module):
    """Modules that a module imports, those under ``if TYPE_CHECKING:`` too."""
    names = {name for name in _imports(module, ast.walk(_tree(module))) if name in MODULES} - {module}
    # "from a import b" names the package too; where b is a module, it is b that is meant.
    return {name for name in names if not any(other.startswith(f"{name}.") for other in names)}


def test_no_import_cycles():
    graph = {module: _dependencies(module) for module in MODULES}
    list(graphlib.TopologicalSorter(graph).static_order())


def _in_runtime(module):
    return f"{module}..".split(".")[1] == "runtime"


@pytest.mark.parametrize("module", sorted(filter(_in_runtime, MODULES)))
def test_the_runtime_imports_its_types_like_everything_else(module):
    conditional = [statement for statement in _tree(module).body if _is_for_types(statement)]
    names = set().union(*(_imports(module, ast.walk(statement)) for statement in conditional))
    assert not {name for name in names if name.partition(".")[0] == "pytensor_cl"}


@pytest.mark.parametrize("module", sorted(MODULES))
def test_functions_import_nothing_of_ours(module):
    inside = set().union(*(_imports(module, ast.walk(function)) for function in _functions(_tree(module))))
    assert not {name for name in inside if name.partition(".")[0] == "pytensor_cl"}


def _on_device_side(module):
    return f"{module}..".split(".")[1] in DEVICE_SIDE


@pytest.mark.parametrize("module", sorted(filter(_on_device_side, MODULES)))
def test_device_side_never_names_pytensor(module):
    nodes = list(ast.walk(_tree(module)))
    constants = (node.value for node in nodes if isinstance(node, ast.Constant))
    texts = {text for text in constants if isinstance(text, str)}
    assert not {name for name in _imports(module, nodes) if name.partition(".")[0] == "pytensor"}
    assert not {text for text in texts if text == "pytensor" or text.startswith("pytensor.")}


def test_the_picture_of_the_layers_has_every_package():
    page = (ROOT / "docs" / "architecture.md").read_text()
    picture = page.split("## Layers", 1)[1].split("\n## ", 1)[0]
    inner = {"linker", "rewriting", "runtime"}  # packages whose parts are layers of their own
    shown = {
        name for name in PACKAGES if name.count(".") == 1 or (name.count(".") == 2 and name.split(".")[1] in inner)
    }
    missing = {name for name in shown if not re.search(rf"\b{name.rpartition('.')[2]}\b", picture)}
    assert not missing
