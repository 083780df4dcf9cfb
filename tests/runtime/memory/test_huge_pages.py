"""Memory in huge pages."""

import mmap

import numpy as np
import pytest

from pytensor_cl.runtime.context import open_context
from pytensor_cl.runtime.memory import host_mapping, huge_pages
from pytensor_cl.runtime.memory.huge_pages import PAGE, advise_huge_pages

SIZE = 3 * PAGE + 4096
knows = pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="the system has no huge pages")


@knows
def test_large_buffers_have_huge_pages(context, monkeypatch):
    asked = []
    monkeypatch.setattr(
        host_mapping, "advise_huge_pages", lambda *where: asked.append((where, advise_huge_pages(*where)))
    )
    fresh = open_context(f"opencl:{context.name}", "fresh")
    for _ in range(2):  # the second one is the first again
        array = fresh.empty((SIZE,), "uint8")
        fresh.empty((100,), "uint8")
        if context.info.kind != "cpu":
            assert not asked
            return
        where = fresh.mappings.address(array.buffer)
        del array
    (((address, nbytes), large),) = asked
    assert address == where and nbytes >= SIZE
    assert nbytes - 2 * PAGE < large <= nbytes and large % PAGE == 0


def test_what_holds_no_large_page():
    memory = np.zeros(PAGE, np.uint8)
    assert advise_huge_pages(memory.ctypes.data + 1, PAGE - 1) == 0


def test_an_arena_has_huge_pages_too(context, monkeypatch):
    asked = []
    monkeypatch.setattr(host_mapping, "advise_huge_pages", lambda *where: asked.append(where))
    fresh = open_context(f"opencl:{context.name}", "fresh")
    fresh.memory.reserve([SIZE, 4096])
    assert [nbytes for _, nbytes in asked] == [SIZE] * (context.info.kind == "cpu")


@pytest.mark.parametrize("result", [None, -1])
def test_systems_that_have_none(monkeypatch, result):
    monkeypatch.setattr(huge_pages, "_madvise", lambda: result and (lambda *arguments: result))
    assert advise_huge_pages(PAGE, PAGE) == 0
