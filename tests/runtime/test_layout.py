"""Layout arithmetic against NumPy's own views; needs no device."""

import numpy as np
import pytest

from pytensor_cl.runtime.layout import Layout, collapse


def _layout(array, base):
    offset = (array.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // 8
    return Layout(array.shape, tuple(s // 8 for s in array.strides), offset)


def _values(layout, base):
    return np.array(
        [
            base[layout.offset + sum(i * s for i, s in zip(index, layout.strides, strict=True))]
            for index in np.ndindex(layout.shape)
        ]
    ).reshape(layout.shape)


def _random_view(rng):
    shape = tuple(rng.choice([1, 2, 3, 4, 6], size=rng.integers(0, 5)))
    base = np.arange(max(int(np.prod(shape)), 1), dtype="int64")
    view = base.reshape(shape).transpose(rng.permutation(len(shape)))
    steps = tuple(slice(None, None, int(rng.choice([1, 1, 1, -1, 2]))) for _ in shape)
    return base, view[(*steps, ...)]  # the ellipsis keeps a 0-d array from becoming a scalar


def _random_shape(size, rng):
    shape = []
    while size > 1:
        factor = int(rng.choice([d for d in range(2, size + 1) if size % d == 0]))
        shape.append(factor)
        size //= factor
    for _ in range(rng.integers(0, 3)):
        shape.insert(int(rng.integers(0, len(shape) + 1)), 1)
    return tuple(shape)


def test_reshape_is_a_view_exactly_where_numpy_has_one(rng):
    copies = 0
    for _ in range(500):
        base, view = _random_view(rng)
        shape = _random_shape(view.size, rng)
        layout = _layout(view, base).reshape(shape)
        try:
            np.reshape(view, shape, copy=False)
            assert layout is not None
        except ValueError:
            copies += 1
            assert layout is None
        if layout is not None:
            np.testing.assert_array_equal(_values(layout, base), view.reshape(shape))
    assert copies > 20


def test_index_and_transpose_agree_with_numpy(rng):
    for _ in range(300):
        base, view = _random_view(rng)
        items = []
        for n in view.shape[: rng.integers(0, view.ndim + 1)]:
            bounds = [None if rng.random() < 0.3 else int(v) for v in rng.integers(-n - 2, n + 3, size=2)]
            as_slice = slice(*bounds, [None, 1, -1, 2, -3][rng.integers(5)])
            items.append(as_slice if rng.random() < 0.6 else int(rng.integers(-n, n)))
        layout = _layout(view, base).subscript(items)
        np.testing.assert_array_equal(_values(layout, base), view[tuple(items)])
        np.testing.assert_array_equal(_values(layout.transpose(), base), view[tuple(items)].T)


def test_collapse_keeps_the_iteration_order():
    shape, (a, b) = collapse((4, 3, 1, 5), ((15, 5, 5, 1), (5, 0, 7, 1)))
    assert (shape, a, b) == ((4, 3, 5), (15, 5, 1), (5, 0, 1))
    assert collapse((4, 3, 5), ((15, 5, 1), (15, 5, 1))) == ((60,), ((1,), (1,)))
    assert collapse((1, 1), ((9, 9),)) == ((), ((),))


def test_dimshuffle_refuses_to_drop_a_long_dimension():
    with pytest.raises(ValueError, match="not 1"):
        Layout.contiguous((2, 3)).dimshuffle((0,))
    assert Layout.contiguous((2, 1)).dimshuffle(("x", 0)) == Layout((1, 2), (0, 1))


def test_index_out_of_bounds():
    with pytest.raises(IndexError, match="index 5 is out of bounds for axis 1 with size 3"):
        Layout.contiguous((2, 3)).subscript((0, 5))


def test_broadcast_to():
    assert Layout.contiguous((3, 1)).broadcast_to((2, 3, 4)) == Layout((2, 3, 4), (0, 1, 0))
    with pytest.raises(ValueError, match="does not broadcast"):
        Layout.contiguous((3,)).broadcast_to((4,))


def test_reshape_of_nothing_is_a_view():
    for layout in (Layout((0, 3, 4), (24, 8, 2)), Layout((4, 0), (-1, 7), 3), Layout.contiguous((2, 0))):
        assert layout.reshape((5, 0, 2)).shape == (5, 0, 2)
        assert layout.reshape((0,)).shape == (0,)
