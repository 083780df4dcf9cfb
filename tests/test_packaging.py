"""The parts of an installation; ``ci/wheel.sh`` builds one and looks inside."""

import ast
import re
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import pytensor_cl

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
GENERATED = {".git", "__pycache__", "build", "dist", ".venv", "venv"}


def _tracked():
    """Files of the repository: those in git's index, else all but generated ones."""
    try:
        command = ["git", "ls-files"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        paths = [ROOT / line for line in done.stdout.splitlines()]
    except (OSError, subprocess.CalledProcessError):  # an unpacked sdist, or no git
        paths = [p for p in ROOT.rglob("*") if not GENERATED & set(p.relative_to(ROOT).parts)]
    return [path for path in paths if path.is_file()]


def _text(path):
    try:
        return path.read_text()
    except UnicodeDecodeError:  # pictures
        return ""


def test_kernels_holds_templates_only():
    files = [path for path in (ROOT / "kernels").rglob("*") if path.is_file()]
    assert files
    assert [path.name for path in files if path.suffix != ".mako"] == []


def test_every_folder_with_code_is_a_package():
    folders = {path.parent for path in (ROOT / "pytensor_cl").rglob("*.py")}
    assert sorted(str(folder) for folder in folders if not (folder / "__init__.py").exists()) == []


def test_package_is_typed():
    assert (ROOT / "pytensor_cl" / "py.typed").exists()


def test_stub_has_the_names_that_are_loaded_on_first_use():
    stub = ast.parse((ROOT / "pytensor_cl" / "__init__.pyi").read_text())
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    found = {alias.name: node.module for node in imports for alias in node.names if alias.asname == alias.name}
    assert found == pytensor_cl._PUBLIC
    assert set(pytensor_cl.__all__) == {*found, "__version__"}


def test_version_has_one_source():
    assert "version" not in PROJECT["project"]
    source = ROOT / PROJECT["tool"]["hatch"]["version"]["path"]
    declared = re.findall(r'^__version__ = "(.+)"$', source.read_text(), re.MULTILINE)
    assert declared == [pytensor_cl.__version__]
    others = set((ROOT / "pytensor_cl").rglob("*.py")) - {source}
    assert [path.name for path in others if "__version__ =" in path.read_text()] == []


def test_installed_metadata_is_of_this_version():
    try:
        installed = metadata.version("pytensor-cl")
    except metadata.PackageNotFoundError:
        pytest.skip("not installed: a plain checkout")
    assert installed == pytensor_cl.__version__


def test_changelog_has_the_version():
    headings = re.findall(r"^## \[([\w.]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert pytensor_cl.__version__ in headings


def test_citation_and_recipe_have_the_version():
    citation, recipe = ((ROOT / name).read_text() for name in ("CITATION.cff", "ci/conda/recipe.yaml"))
    assert re.findall(r"^version: (.+)$", citation, re.MULTILINE) == [pytensor_cl.__version__]
    assert re.findall(r'^  version: "(.+)"$', recipe, re.MULTILINE) == [pytensor_cl.__version__]


def test_recipe_has_the_dependencies():
    recipe = (ROOT / "ci/conda/recipe.yaml").read_text()
    run = recipe.partition("  run:\n")[2].partition("  run_constraints:")[0]
    listed = {line.partition("#")[0].strip().replace(" ", "") for line in run.replace("- ", "").splitlines()}
    wanted = {text.partition(";")[0] for text in PROJECT["project"]["dependencies"]}
    assert wanted - {"pocl-binary-distribution"} | {"pocl", "ocl-icd"} <= listed
    oldest = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert f'python_min: "{oldest}"' in recipe


def test_start_up_file_is_one_import():
    lines = (ROOT / "pytensor_cl.pth").read_text().splitlines()
    assert lines == ["import pytensor_cl._autoload"]


def test_wheel_carries_templates_and_start_up_file():
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included == {"kernels": "pytensor_cl/kernels", "pytensor_cl.pth": "pytensor_cl.pth"}
    assert all((ROOT / source).exists() for source in included)


def test_dependencies_are_what_the_code_imports():
    names = {re.match(r"[\w-]+", requirement)[0] for requirement in PROJECT["project"]["dependencies"]}
    assert names == {"pytensor", "numpy", "pyopencl", "mako", "platformdirs", "pocl-binary-distribution"}


def test_extras_are_those_of_the_manual():
    manual = (ROOT / "docs" / "install.md").read_text()
    described = set(re.findall(r"^\| `\[([a-z]+)\]` \|", manual, re.MULTILINE))
    assert described == set(PROJECT["project"]["optional-dependencies"])


def test_no_file_names_a_place_on_some_machine():
    place = re.compile(r"(?<![\w.])/(?:home|root|Users|work|opt|tmp)/\w")
    found = {str(path.relative_to(ROOT)): place.findall(_text(path)) for path in _tracked()}
    assert {name: places for name, places in found.items() if places} == {}
