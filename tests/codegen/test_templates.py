"""Rules for the text of all kernel templates."""

from pathlib import Path

import pytest

from tests.helpers import CHECKOUT

KERNELS = CHECKOUT / "kernels"
LINE = 120  # characters, as in Python


TEMPLATES = sorted(KERNELS.glob("*/*.mako"))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_lines_are_not_too_long(path: Path):
    assert max(map(len, path.read_text(encoding="utf-8").splitlines()), default=0) <= LINE
