"""The names of the namespace, and the table of them in the documentation."""

import re
from pathlib import Path
from types import ModuleType

import pytensor_cl.array as xp
from tools import numpy_table

PAGE = Path(__file__).parents[2] / "docs" / "arrays.md"


def test_the_page_has_every_name():
    rows = PAGE.read_text().split("\n## Functions\n")[1].split("\n## ")[0]
    found = set(re.findall(r"`([\w.]+)`", rows))
    parts = {name for name in xp.__all__ if isinstance(getattr(xp, name), ModuleType)}
    names = set(xp.__all__) | {f"{part}.{name}" for part in ("fft", "linalg") for name in getattr(xp, part).__all__}
    assert parts <= {"blas", "fft", "linalg", "random"}
    assert {name for name in found if name.partition(".")[0] not in {"blas", "random"}} == names - {"blas", "random"}


def test_the_page_of_numpys_functions_is_the_code():
    kept, made = numpy_table.PAGE.read_text(), numpy_table.page()
    assert len(re.findall(r"`[\w.]+`", kept)) > 400
    if kept.partition("\n## ")[0] == made.partition("\n## ")[0]:  # of the same version of NumPy
        assert kept == made
    for text in numpy_table.WRITE.values():
        for module, name in re.findall(r"xp\.((?:linalg\.|fft\.)?)(\w+)", text):
            assert hasattr(getattr(xp, module[:-1]) if module else xp, name), text
