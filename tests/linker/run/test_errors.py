"""Errors that kernels find in their data: the node, and what it read."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from tests.helpers import opencl


@pytest.fixture(autouse=True)
def everything_on_the_device():
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


@pytest.fixture
def gathered(context):
    """A function with two nodes that check their indices."""
    x, i, j = pt.fmatrix("x"), pt.lvector("i"), pt.lvector("j")
    return opencl([x, i, j], pt.exp(pt.tanh(x[i]).sum(1) * 2)[j])


@pytest.mark.parametrize(("shape", "i", "j"), [((5, 3), [0, 9], [0]), ((4, 2), [0, 1, 1], [2, 7, 2, 2])])
def test_notes_show_the_shapes_of_what_was_dropped(gathered, shape, i, j):
    x, good = np.ones(shape, "float32"), [0]
    gathered(x, good, good)  # other shapes than those of the failing call
    with pytest.raises(IndexError, match="out of bounds") as caught:
        gathered(x, i, j)
    notes = "".join(caught.value.__notes__)
    expected = f"input shapes: {shape}, ({len(i)},)" if 9 in i else f"input shapes: ({len(i)},), ({len(j)},)"
    assert expected in notes


def test_pytensors_own_notes_have_the_shapes_too(gathered):
    with pytensor.config.change_flags(exception_verbosity="medium"), pytest.raises(IndexError) as caught:
        gathered(np.ones((5, 3), "float32"), [0, 9], [0])
    assert "Inputs shapes: [(5, 3), (2,)]" in str(caught.value)


@pytest.mark.parametrize("apart", [False, True])
def test_notes_of_a_repeated_call_show_its_own_shapes(context, apart):
    """Shapes of the intermediate results, although a call with others ran step by step since; in parts of a graph too."""
    x, i, j = pt.fmatrix("x"), pt.lvector("i"), pt.lvector("j")
    rows = pt.tanh(x[i])
    if apart:
        rows = pt.concatenate([rows, x[x[:, 0] > 9]])  # how many rows that are depends on values
    f = opencl([x, i, j], pt.exp(rows.sum(1) * 2)[j])
    x5, x4 = np.ones((5, 3), "float32"), np.ones((4, 2), "float32")
    for _ in range(9):
        f(x5, [0, 1, 2], [0, 1])
    assert f.vm.executor.replay_count
    f(x4, [0, 1], [1])
    before = f.vm.executor.replay_count
    with pytest.raises(IndexError, match="out of bounds") as caught:
        f(x5, [0, 1, 2], [0, 7])
    assert "input shapes: (3,), (2,)" in "".join(caught.value.__notes__)
    f(x5, [0, 1, 2], [0, 1])
    assert f.vm.executor.replay_count > before
    with pytest.raises(IndexError, match="out of bounds") as caught:
        f(x4, [0, 1], [7])
    assert "input shapes: (2,), (1,)" in "".join(caught.value.__notes__)
