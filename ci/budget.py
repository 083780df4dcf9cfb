"""Check the size of functions, files and templates: ``budget.py [checkout]``.

A function counts without its docstring. The numbers are what the best comparable projects reach.
"""

import ast
import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

FUNCTION_MEDIAN, FUNCTION_95, FUNCTION_MAX = 10, 35, 80
FILE_MAX, TEMPLATE_MAX = 500, 150
PYTHON_SHARE_MAX, PYTHON_LINES_FREE = 0.10, 8  # of a template; the first lines of a short one are no excess


def function_lengths(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the length and the place of each function of a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
            yield (body[-1].end_lineno or 0) - body[0].lineno + 1, f"{path}:{node.lineno} {node.name}"


def line_count(path: Path) -> int:
    """Return the number of lines of a file."""
    return len(path.read_text().splitlines())


def python_lines(template: Path) -> int:
    """Return the number of lines of code in a template's ``<% %>`` blocks."""
    blocks = re.findall(r"<%!?\s(.*?)%>", template.read_text(), re.DOTALL)
    return sum(bool(line.strip()) for block in blocks for line in block.splitlines())


def python_allowed(template: Path) -> float:
    """Return how many such lines a template of its length may have."""
    return max(PYTHON_LINES_FREE, PYTHON_SHARE_MAX * line_count(template))


def excesses(root: Path) -> Iterator[str]:
    """Yield what is larger than it may be."""
    files = sorted((root / "pytensor_cl").rglob("*.py"))
    templates = sorted((root / "kernels").rglob("*.mako"))
    functions = sorted(function for path in files for function in function_lengths(path))
    lengths = [length for length, _ in functions]
    middle, high = statistics.median(lengths), lengths[int(0.95 * (len(lengths) - 1))]
    print(f"{len(lengths)} functions: median {middle}, 95 % up to {high}, longest {lengths[-1]} lines")
    if middle > FUNCTION_MEDIAN or high > FUNCTION_95:
        yield f"all functions: median {middle} (at most {FUNCTION_MEDIAN}), 95 % {high} ({FUNCTION_95})"
    yield from (f"{place}: {length} lines" for length, place in functions if length > FUNCTION_MAX)
    yield from (f"{path}: {line_count(path)} lines" for path in files if line_count(path) > FILE_MAX)
    yield from (f"{path}: {line_count(path)} lines" for path in templates if line_count(path) > TEMPLATE_MAX)
    python = ((path, python_lines(path)) for path in templates)
    yield from (f"{path}: {lines} lines of Python" for path, lines in python if lines > python_allowed(path))


if __name__ == "__main__":
    sys.exit("\n".join(excesses(Path(sys.argv[1] if len(sys.argv) > 1 else "."))) or None)
