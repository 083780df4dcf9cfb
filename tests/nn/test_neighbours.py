"""Neighbourhoods equal those that loops over pixels make."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import verify_grad

from pytensor_cl import nn
from pytensor_cl.nn import neighbours
from pytensor_cl.nn.neighbours import MODES
from pytensor_cl.nn.resampling import WeightedTake
from pytensor_cl.ops.resampling import GpuWeightedTake
from tests.helpers import assert_on_device, host_ops, on_one_driver, opencl

FITTING = {
    "valid": ((2, 3, 6, 7), (2, 3), (2, 1)),
    "half": ((1, 2, 5, 6), (3, 2), (2, 3)),
    "full": ((2, 1, 4, 5), (2, 3), (2, 3)),
    "ignore_borders": ((1, 2, 7, 5), (3, 2), (2, 2)),
    "wrap_centered": ((2, 1, 5, 4), (3, 1), (2, 3)),
}
"""By the mode: a shape, and a length and a step of neighbourhoods that fit into it."""


def grid(n, k, step, mode):
    """Return how many neighbourhoods there are along an axis, and where the first one begins."""
    match mode:
        case "valid":
            return 1 + (n - k) // step, 0
        case "half":
            return 1 + (n - k % 2) // step, -(k // 2)
        case "full":
            return 1 + (n + k - 2) // step, 1 - k
        case "ignore_borders":
            return 1 + (n - k) // step, 0
    return -(-n // step), -(k // 2)


def neighbourhoods(x, shape, step, mode):
    """Return what the loops of Theano's definition give."""
    (rows, top), (columns, left) = (grid(n, k, s, mode) for n, k, s in zip(x.shape[2:], shape, step, strict=True))
    height, width = x.shape[2:]
    found = []
    for image in x.reshape(-1, height, width):
        for a in range(rows):
            for b in range(columns):
                for i in range(shape[0]):
                    for j in range(shape[1]):
                        r, c = a * step[0] + top + i, b * step[1] + left + j
                        if mode == "wrap_centered":
                            r, c = r % height, c % width
                        found.append(image[r, c] if 0 <= r < height and 0 <= c < width else 0)
    return np.array(found, x.dtype).reshape(-1, shape[0] * shape[1])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_static, most_entries", [(True, 1000), (True, 10), (False, 1000)])
def test_neighbourhoods_and_back(rng, monkeypatch, mode, is_static, most_entries):
    monkeypatch.setattr(neighbours, "MAX_PLANE_ENTRIES", most_entries)
    shape, window, step = FITTING[mode]
    x = pt.tensor("x", dtype="int64", shape=shape if is_static else (None,) * 4)
    y = nn.images2neibs(x, window, step, mode)
    back = nn.neibs2images(y, window, shape if is_static else x.shape, mode, step)
    value = rng.integers(-9, 9, shape)
    f = pytensor.function([x], [y, back], mode="FAST_COMPILE")
    got, images = f(value)
    np.testing.assert_array_equal(got, neighbourhoods(value, window, step, mode), strict=True)
    places = neighbourhoods(np.arange(value.size).reshape(shape) + 1, window, step, mode)
    counts = np.bincount(places.ravel(), minlength=value.size + 1)[1:].reshape(shape)
    np.testing.assert_array_equal(images, value * counts)


@pytest.mark.parametrize("mode", ["valid", "full", "wrap_centered"])
def test_on_the_device(context, rng, mode):
    shape, window, step = FITTING[mode]
    x = pt.tensor4("x", dtype="float32")
    y = nn.images2neibs(x, window, step, mode)
    with pytensor.config.change_flags(opencl__placement="device"):
        f = opencl([x], [y, pytensor.grad(pt.sqr(y).sum(), x)])
    assert_on_device(f, GpuWeightedTake)
    assert not any(isinstance(op, WeightedTake) for op in host_ops(f))
    value = rng.normal(size=shape).astype("float32")
    got, slope = f(value)
    np.testing.assert_array_equal(got, neighbourhoods(value, window, step, mode), strict=True)
    inside = neighbourhoods(np.arange(value.size).reshape(shape) + 1, window, step, mode)
    counts = np.bincount(inside.ravel(), minlength=value.size + 1)[1:].reshape(shape)
    np.testing.assert_allclose(slope, 2 * value * counts, rtol=1e-5)


@pytest.mark.parametrize("mode", ["half", "ignore_borders"])
def test_gradient(rng, mode):
    shape, window, step = FITTING[mode]
    value = rng.normal(size=(1, 1, *shape[2:]))
    verify_grad(lambda x: nn.images2neibs(x, window, step, mode) ** 2, [value], rng=rng, mode="FAST_COMPILE")


def test_second_gradient(rng):
    x = pt.tensor("x", shape=(1, 1, 3, 2))
    slope = pytensor.grad((nn.images2neibs(x, (2, 1), (1, 1), "full") ** 3).sum(), x)
    second = pytensor.grad((slope**2).sum() / 2, x)
    value = rng.normal(size=(1, 1, 3, 2))
    got = pytensor.function([x], second, mode="FAST_COMPILE")(value)  # every pixel is in two neighbourhoods
    np.testing.assert_allclose(got, 2 * 6 * value * 2 * 3 * value**2)


def test_gradient_of_images(rng):
    shape, window, step = FITTING["valid"]
    rows = neighbourhoods(np.zeros(shape), window, step, "valid")
    verify_grad(
        lambda y: nn.neibs2images(y, window, shape, neib_step=step) ** 2,
        [rng.normal(size=rows.shape)],
        rng=rng,
        mode="FAST_COMPILE",
    )


def test_inverse_without_overlap(rng):
    value = rng.normal(size=(2, 2, 5, 7))
    x = pt.constant(value)
    back = nn.neibs2images(nn.images2neibs(x, (2, 3), mode="ignore_borders"), (2, 3), value.shape, "ignore_borders")
    expected = value.copy()
    expected[:, :, 4:], expected[:, :, :, 6:] = 0, 0
    np.testing.assert_array_equal(back.eval(mode="FAST_COMPILE"), expected)


@on_one_driver
@pytest.mark.parametrize("mode", ["FAST_COMPILE", "OPENCL", "NUMBA"])
def test_symbolic_lengths(context, mode):
    x, window, step = pt.tensor4("x"), pt.lvector("window"), pt.lscalar("step")
    f = pytensor.function([x, window, step], nn.images2neibs(x, window, (step, step)), mode=mode)
    value = np.arange(24.0).reshape(1, 1, 4, 6)
    np.testing.assert_array_equal(f(value, [2, 4], 2), neighbourhoods(value, (2, 4), (2, 2), "valid"))
    with pytest.raises(ValueError, match="neighbourhoods that end with the image"):
        f(value, [3, 4], 2)
    with pytest.raises(ValueError, match="must be positive"):
        f(value, [2, 4], 0)


def test_no_images():
    x = pt.tensor4("x")
    f = pytensor.function([x], nn.images2neibs(x, (2, 2)), mode="FAST_COMPILE")
    assert f(np.zeros((0, 3, 4, 4))).shape == (0, 4)


def test_images_smaller_than_a_neighbourhood_have_a_gradient():
    x = pt.tensor4("x")
    rows = nn.images2neibs(x, (1, 2), mode="ignore_borders")
    f = pytensor.function([x], [rows, pytensor.grad(rows.sum(), x)], mode="FAST_COMPILE")
    rows, slope = f(np.ones((1, 1, 2, 1)))
    assert rows.shape == (0, 2)
    np.testing.assert_array_equal(slope, np.zeros((1, 1, 2, 1)))


IMAGES = pt.tensor("x", shape=(1, 1, 4, 5))


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"mode": "same"}, ValueError, "mode must be one of"),
        ({"ten4": pt.matrix()}, TypeError, "4 dimensions"),
        ({"neib_shape": (2, 2)}, ValueError, "end with the image"),
        ({"neib_shape": (2, 6)}, ValueError, "not shorter"),
        ({"neib_shape": (3, 2), "mode": "wrap_centered"}, ValueError, "odd length"),
        ({"neib_shape": 2}, TypeError, "not iterable|must be"),
        ({"neib_shape": (2, 1, 1)}, ValueError, "2 entries"),
        ({"neib_shape": (2, 1.0)}, TypeError, "must be integers"),
        ({"neib_shape": pt.dvector()}, TypeError, "2 integers"),
        ({"neib_step": (0, 1)}, ValueError, "must be positive"),
    ],
)
def test_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        nn.images2neibs(**{"ten4": IMAGES, "neib_shape": (2, 5), **arguments})


def test_arguments_of_images():
    with pytest.raises(TypeError, match="must be a matrix"):
        nn.neibs2images(pt.tensor3(), (2, 2), (1, 1, 4, 4))
    with pytest.raises(ValueError, match="4 entries"):
        nn.neibs2images(pt.matrix(), (2, 2), (4, 4))
