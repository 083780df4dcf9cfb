"""Rules of CONTRIBUTING.md for texts, as far as a test can hold them."""

import ast
import itertools
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted(path for folder in ("pytensor_cl", "tools", "benchmarks") for path in (ROOT / folder).rglob("*.py"))
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
WRITTEN_BY_TOOLS = "do not edit -->"
SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n(.*?)(?=^\w[\w ]*\n-{3,}\n|\Z)", re.MULTILINE | re.DOTALL)
FRAGMENT = re.compile(r"(Of|What|Which|As|Per|Where|How|That|Those|See|From which|In which|With which)\b")


def _documented(path):
    """The module, classes and functions of a file, with their docstrings."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node, getattr(node, "name", path.stem), ast.get_docstring(node) or ""


def _is_property(node):
    decorators = (ast.unparse(d) for d in getattr(node, "decorator_list", ()))
    return any(d in ("property", "cached_property", "functools.cached_property") for d in decorators)


def _descriptions(docstring):
    """The first line of each description of a parameter, an attribute or a result."""
    for section in SECTION.finditer(docstring):
        if section[1] in ("Parameters", "Attributes", "Returns", "Yields"):
            yield from re.findall(r"^\S.*\n +(\S.*)", section[2], re.MULTILINE)


def test_descriptions_are_no_fragments():
    found = [
        f"{path.relative_to(ROOT)}: {name}: {text}"
        for path in SOURCES
        for _, name, docstring in _documented(path)
        for text in _descriptions(docstring)
        if FRAGMENT.match(text)
    ]
    assert not found, "\n".join(found)


def test_first_sentences_are_no_fragments():
    """A docstring begins with its subject or a verb. Only a property that is true or false begins with "Whether"."""
    found = [
        f"{path.relative_to(ROOT)}: {name}: {docstring.splitlines()[0]}"
        for path in SOURCES
        for node, name, docstring in _documented(path)
        if FRAGMENT.match(docstring) or (docstring.startswith("Whether ") and not _is_property(node))
    ]
    assert not found, "\n".join(found)


def _commented_values(path):
    """The fields of classes and the constants of a module that have a comment or a docstring, with that text."""
    with tokenize.open(path) as file:
        comments = {t.start[0]: t.string for t in tokenize.generate_tokens(file.readline) if t.type == tokenize.COMMENT}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef):
            for statement, after in itertools.pairwise((*node.body, None)):
                if isinstance(statement, ast.Assign | ast.AnnAssign):
                    if statement.end_lineno in comments:
                        yield statement.lineno, comments[statement.end_lineno].lstrip("#: ")
                    if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                        yield after.lineno, str(after.value.value)


def test_comments_of_fields_and_constants_are_no_fragments():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {comment}"
        for path in SOURCES
        for line, comment in _commented_values(path)
        if FRAGMENT.match(comment[:1].upper() + comment[1:])
    ]
    assert not found, "\n".join(found)


def _prose(text):
    """The lines outside of code, tables and what cannot be divided, with their numbers."""
    fence = None
    for number, line in enumerate(text.splitlines(), 1):
        marker = re.match(r"\s*(`{3,}|:{3,})", line)
        if marker and (fence is None or line.strip() == fence):
            fence = marker[1] if fence is None else None
        elif fence is None and not line.lstrip().startswith("|") and " " in line.strip()[:120]:
            yield number, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_of_pages_are_at_most_120_characters(page):
    text = page.read_text()
    if WRITTEN_BY_TOOLS not in text:
        found = [f"{page.name}:{number}: {len(line)}" for number, line in _prose(text) if len(line) > 120]
        assert not found, "\n".join(found)
