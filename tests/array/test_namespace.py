"""The names of the namespace, and the table of them in the documentation."""

import re
from pathlib import Path
from types import ModuleType

import pytensor_cl.array as xp

PAGE = Path(__file__).parents[2] / "docs" / "arrays.md"


def test_the_page_has_every_name():
    rows = PAGE.read_text().split("\n## Functions\n")[1].split("\n## ")[0]
    found = set(re.findall(r"`([\w.]+)`", rows))
    parts = {name for name in xp.__all__ if isinstance(getattr(xp, name), ModuleType)}
    names = set(xp.__all__) | {f"{part}.{name}" for part in ("fft", "linalg") for name in getattr(xp, part).__all__}
    assert parts <= {"blas", "fft", "linalg", "random"}
    assert {name for name in found if name.partition(".")[0] not in {"blas", "random"}} == names - {"blas", "random"}
