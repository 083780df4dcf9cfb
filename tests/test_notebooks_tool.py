"""tools/notebooks.py: which outputs of a notebook count as the same."""

import pytest

pytest.importorskip("nbclient")

import nbformat

from tools import notebooks


def notebook(*cells):
    """Return a notebook of cells with a text and tags."""
    made = [nbformat.v4.new_code_cell("...", metadata={"tags": list(tags)}) for _, *tags in cells]
    for cell, (text, *_) in zip(made, cells, strict=True):
        cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=text)]
    return nbformat.v4.new_notebook(cells=made)


@pytest.mark.parametrize(
    ("old", "new", "tags", "is_same"),
    [
        ("loss 1.0000 of 3", "loss 1.0004  of 3", (), True),
        ("loss 1.0000 of 3", "loss 1.01 of 3", (), False),
        ("loss 1.0000 of 3", "loss 1.1 of 3", ("random",), True),
        ("loss 1.0000 of 3", "loss 1.5 of 3", ("random",), False),
        ("loss 1.0 of 3", "gain 1.0 of 3", ("random",), False),
        ("[1. 2.]", "[1. 2. 3.]", (), False),
        ("0.2 ms", "17 ms and more", ("varies",), True),
    ],
)
def test_numbers_may_differ_as_much_as_the_tags_of_a_cell_say(old, new, tags, is_same):
    found = notebooks.differences(notebook((old, *tags)), notebook((new, *tags)))
    assert (found == []) == is_same
    assert is_same or (old in found[0] and new in found[0])


def test_what_goes_to_stderr_is_not_compared():
    before, after = notebook(("1",)), notebook(("1",))
    after.cells[0].outputs.append(nbformat.v4.new_output("stream", name="stderr", text="a warning"))
    assert notebooks.differences(before, after) == []
