"""No test of the selection depends on what earlier runs have compiled."""

import pytest

from pytensor_cl.linker.selection import compiled_before


@pytest.fixture(autouse=True)
def _no_graph_was_compiled(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled_before, "compiled_folder", lambda: tmp_path / "compiled")
