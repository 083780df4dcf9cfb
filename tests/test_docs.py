"""The code in README.md, CONTRIBUTING.md and docs/ runs and prints what the pages say.

A block fenced as ``python`` is run; a block fenced as ``output`` right after it is what it prints. After the mark of
tools/doc_tables.py there are measurements, which that program compares. The blocks of a page share their names, and each
page has an interpreter of its own.
"""

import contextlib
import doctest
import importlib
import io
import itertools
import json
import operator
import os
import re
import subprocess
import sys
from inspect import ismodule
from pathlib import Path

import pytensor
import pytensor.tensor as pt
import pytest

import pytensor_cl
from pytensor_cl import nn, optimizers
from pytensor_cl.flags import FLAGS

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
PACKAGES = {"array", "array.fft", "array.linalg", "nn", "optimizers", "pymc", "train"}
"""Packages with public names of their own."""
_MARK = "<!-- printed by the code above: tools/doc_tables.py -->"
_FENCE = re.compile(
    rf"^```python\n(.*?)^```$(?:\n*^```output\n(.*?)^```$|\n*^({re.escape(_MARK)})$)?", re.MULTILINE | re.DOTALL
)
_COMPARE = doctest.NORMALIZE_WHITESPACE


def pages():
    """Pages with code, relative to the root."""
    found = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
    return [page.relative_to(ROOT).as_posix() for page in found if _FENCE.search(page.read_text())]


def run_page(path):
    """Run the blocks of a page; return what differs from the page."""
    text, names, problems = path.read_text(), {"__name__": "__main__"}, []
    for block in _FENCE.finditer(text):
        line = text.count("\n", 0, block.start()) + 1
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            # Empty lines in front make tracebacks show the line of the page.
            exec(compile("\n" * line + block[1], str(path), "exec"), names)
        got, wanted = printed.getvalue(), block[2] or ""
        if not block[3] and not doctest.OutputChecker().check_output(wanted, got, _COMPARE):
            problems.append(f"{path}, line {line}: the page says\n{wanted}\nbut the code prints\n{got}")
    return problems


@pytest.mark.parametrize("page", pages())
def test_code_prints_the_output_on_the_page(page, tmp_path):
    # The package under test, whether installed or in the checkout; no flags but the page's own.
    environment = {k: v for k, v in os.environ.items() if k != "PYTENSOR_FLAGS"}
    environment |= {"PYTHONPATH": str(Path(pytensor_cl.__file__).parents[1]), "PYTENSORRC": os.devnull}
    command = [sys.executable, __file__, str(ROOT / page)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _steps_of_walks():
    """Yield the file and the names of each step in the tables of the architecture."""
    for line in (ROOT / "docs" / "architecture.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 4 and cells[0].isdecimal():
            for path in re.findall(r"`([\w/]+(?:\.py|/))`", cells[1]):
                yield path, re.findall(r"`([\w.]+)`", cells[2])


def test_walks_name_files_and_functions_that_exist():
    """Names in a row with a folder may be in any file of it."""
    steps = list(_steps_of_walks())
    assert len(steps) > 20
    for path, names in steps:
        place = ROOT / "pytensor_cl" / path
        files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
        text = "\n".join(file.read_text() for file in files)
        for name in (part for whole in names for part in whole.split(".")):
            assert re.search(rf"\b(def|class) {name}\b|^{name}\b", text, re.MULTILINE), (path, name)


def test_contributing_names_files_and_functions_that_exist():
    """The steps that add a kernel variant name functions too, so that they can be followed as they stand."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    paths = set(re.findall(r"`([\w./-]+\.(?:py|mako|md|json|sh))`", text))
    files = {path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.*") if ".venv" not in path.parts}
    missing = [path for path in paths if not any(f"/{file}".endswith(f"/{path}") for file in files)]
    assert len(paths) > 20
    assert not missing
    steps = text[text.index("## Adding a kernel variant") : text.index("## Adding a driver")]
    code = "".join(path.read_text() for path in (ROOT / "pytensor_cl" / "routines" / "reduction").glob("*.py"))
    for name in ("select_variant", "Variant", "Problem", "split_cpu", "split_simt", "_single_pass"):
        assert name in steps
        assert re.search(rf"\b(def|class) {name}\b|self\.{name} =", code), name


def test_every_flag_is_described():
    text = (ROOT / "docs" / "flags.md").read_text()
    described = set(re.findall(r"^## `(\w+)`$", text, re.MULTILINE))
    assert described == {flag.name for flag in FLAGS}


def _described(text, package):
    """Return the names of a package that directives of a text describe one by one, and whether one takes all of them."""
    name = re.escape(package)
    found = set(re.findall(rf"^\.\. (?!automodule)\S+:: {name}\.(\w+)(?:\(.*)?$", text, re.MULTILINE))
    return found, bool(re.search(rf"^\.\. automodule:: {name}\n   :members:$", text, re.MULTILINE))


@pytest.mark.parametrize("package", ["pytensor_cl", *(f"pytensor_cl.{name}" for name in sorted(PACKAGES))])
def test_every_public_name_is_in_the_reference(package):
    module = pytest.importorskip(package, exc_type=ImportError)  # PyMC may be missing
    text = "\n".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    described, takes_all = _described(text, package)
    names = {name for name in module.__all__ if name != "__version__" and not ismodule(getattr(module, name))}
    assert all(hasattr(module, name) for name in described)
    assert len(names) > 2
    of_the_package, _ = _described(text, "pytensor_cl")  # such as GpuArray, which is in the namespace of arrays too
    assert takes_all or names - described - of_the_package == set()


def _heading_ids(text):
    """Return the anchors of the headings of a page, as MyST and GitHub make them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "") for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in plain}


def _broken(page, text):
    """Return the relative links of a page that lead to no file or to no heading."""
    text, found = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if re.match(r"\w+:", link):
            continue
        if not target.exists() or (anchor and anchor not in _heading_ids(target.read_text())):
            found.append(f"{page.relative_to(ROOT)}: {link}")
    return found


def test_links_lead_to_files_and_headings():
    """Sphinx checks those of its pages; these are also right on a site that shows the files of the repository."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md")]
    broken = [link for page in found for link in _broken(page, page.read_text())]
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text())["cells"]
        text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        broken += _broken(path, text)
    assert len(found) > 50
    assert not broken
    assert _broken(ROOT / "README.md", "[a](docs/nothing.md) [b](docs/flags.md#nothing)") != []


def test_notebooks_are_in_the_tutorials_with_their_outputs():
    """ci/docs.sh runs them and compares the outputs (tools/notebooks.py)."""
    index = (ROOT / "docs" / "tutorials" / "index.md").read_text()
    assert len(NOTEBOOKS) >= 4
    for path in NOTEBOOKS:
        assert re.search(rf"^{path.stem}$", index, re.MULTILINE), path
        cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        outputs = [output for cell in cells for output in cell["outputs"]]
        assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1)), path
        assert outputs and not any(output["output_type"] == "error" for output in outputs), path


def _right_cells(page, titles):
    """Yield the code in the last cells of the tables of some sections of a page."""
    for section in re.split(r"^## ", (ROOT / "docs" / page).read_text(), flags=re.MULTILINE):
        if section.partition("\n")[0].startswith(titles):
            for line in section.splitlines()[1:]:
                cells = re.split(r"(?<!\\)\|", line)[1:-1]
                yield from re.findall(r"`([^`]+)`", cells[-1]) if len(cells) in (2, 3) else ()


def test_what_is_named_for_users_of_other_libraries_exists():
    flags = list(_right_cells("from-theano.md", "Flag by flag"))
    named = [re.match(r"[a-zA-Z]\w+$", text) for text in flags]
    known = {name[0] for name in named if name and name[0] not in ("raise", "True")}
    assert len(known) >= 30
    assert known <= set(pytensor.config._config_var_dict)
    packages = {"pytensor": pytensor, "pt": pt, "pytensor_cl": pytensor_cl, "nn": nn, "optimizers": optimizers}
    packages["xp"] = pytensor_cl.array
    modules = ("pytensor.d3viz", "pytensor.sparse", "pytensor.compile.debug.nanguardmode")
    for module in modules:
        importlib.import_module(module)
    count = 0
    jax = _right_cells("from-jax.md", ("Functions and", "State and", "Devices", "Finding out"))
    for text in [*_right_cells("from-theano.md", "Function by function"), *flags, *jax]:
        name = re.match(r"(pytensor|pt|pytensor_cl|nn|optimizers|xp)((?:\.\w+)+)", text)
        if name:
            operator.attrgetter(name[2][1:])(packages[name[1]])
            count += 1
    assert count > 80


def test_the_messages_on_the_page_of_troubles_are_those_of_the_package():
    sources = "".join(path.read_text() for path in (ROOT / "pytensor_cl").rglob("*.py"))
    strings = re.sub(r'"\s*\n\s*f?"', "", sources)  # literals that follow each other are one
    text = (ROOT / "docs" / "troubleshooting.md").read_text().partition("## Messages of others")[0]
    messages = [re.findall(r"`([^`]+)`", line.split("|")[1]) for line in text.splitlines() if line.startswith("| `")]
    parts = [part.strip() for message in itertools.chain(*messages) for part in message.split("...")]
    assert len(parts) > 80
    assert [part for part in parts if part and part not in strings] == []


def test_programs_that_start_processes_afresh_guard_their_main_part():
    """Workers of spawn and forkserver import the script: without the guard each would start workers itself."""
    blocks = [
        (page.name, block[1])
        for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
        for block in re.finditer(r"^```py(?:thon)?\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
        if re.search(r"mp_ctx|set_start_method|get_context\(.(?:spawn|forkserver)", block[1])
    ]
    assert {name for name, _ in blocks} == {"howto-threads.md", "pymc.md"}
    for name, code in blocks:
        assert 'if __name__ == "__main__":' in code, name


if __name__ == "__main__":
    found = run_page(Path(sys.argv[1]))
    sys.stdout.write("\n\n".join(found))
    sys.exit(bool(found))
