"""Run the notebooks of the tutorials, and write or compare their outputs.

usage: python tools/notebooks.py [--check] [notebook ...]

Without ``--check`` the notebooks are written with the outputs of this run. With it nothing is written: the exit status
is 1 if a cell fails, or if its text is not that in the notebook. Numbers may differ by a thousandth; in cells with the
tag ``random``, where rounding decides which draws are made, by a sixth. Cells with the tag ``varies`` (times, names of
devices) and pictures are only run.
"""

import argparse
import math
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials"
TOLERANCE = 1e-3
RANDOM = 1 / 6
SECONDS = 300
"""The time limit of a cell."""
_FILE = re.compile(r"^\S*ipykernel_\d+\S*:\d+: ", re.MULTILINE)
"""The place of a cell in the temporary files of a kernel, before a warning."""
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?", re.IGNORECASE)


def executed(notebook: Any) -> Any:
    """Return a copy of a notebook with the outputs of this run."""
    fresh = nbformat.from_dict(notebook)
    client = NotebookClient(
        fresh, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}
    )
    with tempfile.TemporaryDirectory() as folder:
        kernel = client.create_kernel_manager()
        kernel.transport, kernel.ip = "ipc", f"{folder}/kernel"  # by TCP others on the machine could read along
        client.execute(env={**os.environ, "MPLBACKEND": "module://matplotlib_inline.backend_inline"})
    for cell in fresh.cells:
        cell.metadata.pop("execution", None)  # when it ran
        for output in cell.get("outputs", ()):
            if output.output_type == "stream":
                output.text = _FILE.sub("", output.text)
    fresh.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python", "pygments_lexer": "ipython3"},
    }
    return fresh


def text_of(cell: Any) -> str:
    """Return what a cell prints and what its last expression is, without what goes to stderr."""
    parts = []
    for output in cell.get("outputs", ()):
        if output.output_type == "stream" and output.name == "stdout":
            parts.append(output.text)
        elif output.output_type in ("execute_result", "display_data") and "image/png" not in output.data:
            parts.append(output.data.get("text/plain", ""))
    return "".join(parts)


def is_same(old: str, new: str, tolerance: float) -> bool:
    """Return whether two texts are equal, but for spaces and small differences of numbers."""
    texts = [_NUMBER.sub("#", text).split() for text in (old, new)]
    numbers = [[float(number) for number in _NUMBER.findall(text)] for text in (old, new)]
    close = (math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance) for a, b in zip(*numbers, strict=False))
    return texts[0] == texts[1] and len(numbers[0]) == len(numbers[1]) and all(close)


def differences(old: Any, new: Any) -> list[str]:
    """Return a description of each cell with other text."""
    found = []
    for k, (before, after) in enumerate(zip(old.cells, new.cells, strict=True)):
        tags = before.metadata.get("tags", ())
        if before.cell_type != "code" or "varies" in tags:
            continue
        if not is_same(text_of(before), text_of(after), RANDOM if "random" in tags else TOLERANCE):
            found.append(f"cell {k}: the notebook has\n{text_of(before)}\nbut the code prints\n{text_of(after)}")
    return found


def main() -> int:
    """Write the outputs, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a cell has another output")
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all tutorials")
    options = parser.parse_args()
    problems = 0
    for path in options.notebooks or sorted(FOLDER.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        try:
            fresh = executed(notebook)
        except CellExecutionError as error:
            sys.stdout.write(f"{path.name}: {error}\n")
            problems += 1
            continue
        if not options.check:
            nbformat.write(fresh, path)
            continue
        for text in differences(notebook, fresh):
            sys.stdout.write(f"{path.name}, {text}\n")
            problems += 1
    return int(problems > 0)


if __name__ == "__main__":
    sys.exit(main())
