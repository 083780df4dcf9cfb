"""Write, or check, the tables of measurements in the documentation: what the code above them prints.

usage: python tools/doc_tables.py [--check] [page ...]

A page marks such a table so:

    <!-- printed by the code above: tools/doc_tables.py -->
    ```text
    ...
    ```

The Python blocks of the page up to the mark are run, and what the last of them prints is the table. With ``--check``
nothing is written: the exit status is 1 if a table has other lines, names or columns than what the code prints now.
Numbers, units of time, the order of rows and the name of the device are not compared: they differ from run to run and
between machines.
"""

import argparse
import contextlib
import difflib
import io
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
MARK = "<!-- printed by the code above: tools/doc_tables.py -->"
TABLE = re.compile(rf"(?<={re.escape(MARK)}\n)```text\n(.*?)```", re.DOTALL)
CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.(])[\d,.]*\d(?: (?:ns|us|ms|s|min)\b)?")
_DEVICE = re.compile(r"^(dev0) .*(?:\([^)\n]*\)|\.\.\.)", re.MULTILINE)  # a long name is cut


def structure(text: str) -> list[str]:
    """Return the lines of tables with ``#`` for each number and without the spaces that align columns.

    Rows are in the order of the alphabet below the line of dashes: reports sort them by time.
    """
    text = _NUMBER.sub("#", _DEVICE.sub(r"\1 device", text))
    found: list[str] = []
    for table in text.strip().split("\n\n"):
        lines = [re.sub(r"-+", "-", " ".join(line.split())) for line in table.splitlines()]
        body = next((i + 1 for i, line in enumerate(lines) if set(line) == {"-", " "}), len(lines))
        found += [*lines[:body], *sorted(lines[body:]), ""]
    return found


def printed(page: str, name: str) -> list[str]:
    """Run the code of a page; return the output of the block above each mark."""
    names: dict[str, object] = {"__name__": "__main__"}
    blocks, tables, text = list(CODE.finditer(page)), [], ""
    for mark in TABLE.finditer(page):
        while blocks and blocks[0].start() < mark.start():
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(blocks.pop(0)[1], name, "exec"), names)
            text = output.getvalue()
        tables.append(text)
    return tables


def refreshed(page: str, tables: list[str]) -> str:
    """Return a page with other tables."""
    left = iter(tables)
    return TABLE.sub(lambda _: f"```text\n{next(left)}```", page)


def differences(page: str, tables: list[str]) -> list[str]:
    """Return the lines in which the structure of the tables of a page is not what the code prints."""
    found = []
    for old, new in zip(TABLE.findall(page), tables, strict=True):
        found += difflib.unified_diff(structure(old), structure(new), "on the page", "printed now", lineterm="", n=0)
    return found


def main() -> int:
    """Write the tables, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a table has another structure")
    parser.add_argument("pages", nargs="*", type=Path, help="default: every page with a mark")
    options = parser.parse_args()
    pages = options.pages or [p for p in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")) if MARK in p.read_text()]
    problems = 0
    for path in pages:
        text = path.read_text()
        tables = printed(text, str(path))
        if not options.check:
            path.write_text(refreshed(text, tables))
            continue
        lines = differences(text, tables)
        problems += len(lines)
        if lines:
            message = f"{path}: tables are stale; python tools/doc_tables.py writes them"
            sys.stdout.write("\n".join((message, *lines, "")))
    return int(problems > 0)


if __name__ == "__main__":
    sys.exit(main())
