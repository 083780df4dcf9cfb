"""Wrong arguments of every public function: the class of the error, and that it names the argument."""

import inspect

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.signal import convolve

import pytensor_cl
from pytensor_cl import nn
from tests.helpers import CHECKOUT

CONVS = {1: nn.conv1d, 2: nn.conv2d, 3: nn.conv3d}
TRANSPOSED = {1: nn.conv1d_transpose, 2: nn.conv2d_transpose, 3: nn.conv3d_transpose}


def tensor(*shape, dtype="float32"):
    return pt.tensor("x", shape=shape, dtype=dtype)


def pair(ndim, is_transposed, channels=(3, 3), features=(4, 4)):
    """x and w that fit: 3 channels, 4 features."""
    rows = (channels[1], features[1]) if is_transposed else (features[1], channels[1])
    return tensor(2, channels[0], *(8,) * ndim), tensor(*rows, *(3,) * ndim)


FUNCTIONS = [(f, n, is_t) for is_t, table in ((False, CONVS), (True, TRANSPOSED)) for n, f in table.items()]
every_convolution = pytest.mark.parametrize(
    ("function", "ndim", "is_transposed"), FUNCTIONS, ids=lambda v: getattr(v, "__name__", "")
)
every_pool = pytest.mark.parametrize(("function", "ndim"), [(nn.pool_1d, 1), (nn.pool_2d, 2), (nn.pool_3d, 3)])

X = pt.iscalar("n")
WRONG_INTS = [
    (1.5, TypeError),
    (2.0, TypeError),
    (True, TypeError),
    ("2", TypeError),
    (X, TypeError),
    (np.float32(2), TypeError),
    ({2}, TypeError),
    (0, ValueError),
    (-1, ValueError),
    ((1,) * 4, ValueError),
    ((), ValueError),
]
"""Wrong values of arguments that are positive integers, one or one for each dimension."""


@every_convolution
@pytest.mark.parametrize("name", ["subsample", "filter_dilation"])
def test_integers_of_convolutions(function, ndim, is_transposed, name):
    x, w = pair(ndim, is_transposed)
    name = "input_dilation" if is_transposed and name == "subsample" else name
    for value, error in [
        *(row for row in WRONG_INTS if row[0] is not X),
        (pt.fscalar(), TypeError),
        (pt.lvector(), TypeError),
        (pt.constant(0), ValueError),
        (None, TypeError),
        ((1.5,) * ndim, TypeError),
        ((None,) * ndim, TypeError),
        ((0,) * ndim, ValueError),
    ]:
        with pytest.raises(error, match=f"{name} must be"):
            function(x, w, **{name: value})
    for value in (1, np.int64(1), (1,) * ndim, [1] * ndim, np.ones(ndim, "int8"), pt.constant(1), X, (X,) * ndim):
        assert function(x, w, **{name: value}).type.ndim == ndim + 2


@every_convolution
def test_groups(function, ndim, is_transposed):
    x, w = pair(ndim, is_transposed)
    for value, error in [
        (None, TypeError),
        (1.0, TypeError),
        ("1", TypeError),
        ((1, 1), TypeError),
        (True, TypeError),
        (X, TypeError),
        (0, ValueError),
        (-2, ValueError),
    ]:
        with pytest.raises(error, match="num_groups must be"):
            function(x, w, num_groups=value)
    with pytest.raises(ValueError, match=r"3 channels of input.*num_groups=2"):
        function(x, w, num_groups=2)
    if not is_transposed:
        with pytest.raises(ValueError, match=r"input has 3 channels, but filters are for 9"):
            function(x, w, num_groups=3)


@every_convolution
def test_static_channels_and_features(function, ndim, is_transposed):
    x, w = pair(ndim, is_transposed, channels=(3, 2))
    with pytest.raises(ValueError, match=rf"{function.__name__}: input has 3 channels.*filters"):
        function(x, w)
    if not is_transposed:
        x, w = pair(ndim, False, channels=(4, 2), features=(3, 3))
        with pytest.raises(ValueError, match=r"3 features of filters.*num_groups=2"):
            function(x, w, num_groups=2)
        x, w = pair(ndim, False, channels=(None, 2), features=(3, 3))
        with pytest.raises(ValueError, match=r"3 features of filters.*num_groups=2"):
            function(x, w, num_groups=2)
    x, w = pair(ndim, is_transposed, channels=(3, None))
    with pytest.raises(ValueError, match=r"3 channels of input.*num_groups=2"):
        function(x, w, num_groups=2)


@every_convolution
def test_border_modes(function, ndim, is_transposed):
    x, w = pair(ndim, is_transposed)
    for value, error in [
        (None, TypeError),
        (1.5, TypeError),
        (1.0, TypeError),
        (True, TypeError),
        ({1: 2}, TypeError),
        (pt.fscalar(), TypeError),
        (pt.lvector(), TypeError),
        ((1.5,) * ndim, TypeError),
        ((None,) * ndim, TypeError),
        (((1, "half"),) * ndim, TypeError),
        ("same", ValueError),
        ("HALF", ValueError),
        (("halff",) * ndim, ValueError),
        (("half",) * (ndim - 1) + ("valdi",), ValueError),
        ((1,) * 4, ValueError),
        (((1, 1, 1),) * ndim, ValueError),
        (-1, ValueError),
        (((0, -1),) * ndim, ValueError),
    ]:
        with pytest.raises(error, match="border_mode"):
            function(x, w, border_mode=value)


@every_convolution
def test_border_modes_by_name_in_a_tuple_and_by_position(function, ndim, is_transposed):
    x, w = pair(ndim, is_transposed)
    for mode in ("valid", "half", "full"):
        shape = function(x, w, border_mode=mode).type.shape
        assert function(x, w, border_mode=(mode,) * ndim).type.shape == shape
        assert function(x, w, None, None, mode).type.shape == shape
    assert function(x, w, border_mode=("valid",) * ndim).type.shape == function(x, w, border_mode=0).type.shape


@every_convolution
def test_arrays_of_convolutions(function, ndim, is_transposed):
    x, w = pair(ndim, is_transposed)
    for value in (None, "a", object(), tensor(8, 8), tensor(*(3,) * (ndim + 1)), tensor(*(3,) * (ndim + 3))):
        with pytest.raises(TypeError, match=rf"{function.__name__}: input must"):
            function(value, w)
        with pytest.raises(TypeError, match=rf"{function.__name__}: filters must"):
            function(x, value)


@every_convolution
def test_flags_of_convolutions(function, ndim, is_transposed):
    x, w = pair(ndim, is_transposed)
    for value in ("no", None, 2, 0.0):
        with pytest.raises(TypeError, match="filter_flip must be True or False"):
            function(x, w, filter_flip=value)
    for value in (True, False, 0, 1, np.True_):
        assert function(x, w, filter_flip=value).owner.op.flip == bool(value)


@pytest.mark.parametrize("ndim", TRANSPOSED)
def test_output_padding(ndim):
    function, (x, w) = TRANSPOSED[ndim], pair(ndim, True)
    for value, error in [
        (1.0, TypeError),
        (None, TypeError),
        ("a", TypeError),
        (True, TypeError),
        (X, TypeError),
        (-1, ValueError),
        (2, ValueError),
        ((1,) * 4, ValueError),
    ]:
        with pytest.raises(error, match="output_padding must be"):
            function(x, w, input_dilation=2, output_padding=value)


@pytest.mark.parametrize("mode", ["FAST_COMPILE", "OPENCL"])
@pytest.mark.parametrize("ndim", TRANSPOSED)
def test_padding_that_leaves_nothing_of_a_transposed_convolution(context, ndim, mode):
    function, (x, w) = TRANSPOSED[ndim], pair(ndim, True)
    with pytest.raises(ValueError, match=r"border_mode.*20 elements.*length 10"):
        function(x, w, border_mode=10)
    assert 0 in function(x, w, border_mode=5).type.shape
    x, w = tensor(*(None,) * (ndim + 2)), tensor(*(None,) * (ndim + 2))
    with pytensor.config.change_flags(opencl__placement="device"):
        f = pytensor.function([x, w], function(x, w, border_mode=10), mode=mode)
    with pytest.raises(ValueError, match="padding"):
        f(np.ones((2, 3, *(8,) * ndim), "float32"), np.ones((3, 4, *(3,) * ndim), "float32"))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "bool", "int64"])
def test_integers_do_not_wrap(context, rng, dtype):
    """They accumulate as NumPy's and PyTensor's sums of integers do."""
    x, w = tensor(1, 2, 9, dtype=dtype), tensor(1, 2, 4, dtype=dtype)
    high = 2 if dtype == "bool" else np.iinfo(dtype).max if dtype != "int64" else 1000
    a, b = (rng.integers(high // 2, high, v.type.shape, endpoint=dtype != "bool").astype(dtype) for v in (x, w))
    y = nn.conv1d(x, w)
    assert y.dtype == np.sum(np.zeros(1, dtype)).dtype
    wanted = sum(convolve(a[0, c].astype("int64"), b[0, c].astype("int64"), "valid") for c in range(2))
    big = nn.conv1d_transpose(x, w.dimshuffle(1, 0, 2))
    assert big.dtype == y.dtype
    full = sum(convolve(a[0, c].astype("int64"), b[0, c].astype("int64"), "full") for c in range(2))
    for mode in ("FAST_COMPILE", "OPENCL"):
        with pytensor.config.change_flags(opencl__placement="device"):
            f = pytensor.function([x, w], [y, big], mode=mode)
        got = f(a, b)
        np.testing.assert_array_equal(got[0], wanted[None, None])
    used = {type(node.op).__name__ for node in pytensor_cl.explain(f).device_nodes}
    assert "GpuConv" in used
    # A transposed convolution with flipped kernels is a correlation.
    np.testing.assert_array_equal(got[1].sum(), full.sum())


def test_mixed_integers_and_floats():
    assert nn.conv1d(tensor(1, 2, 9, dtype="uint8"), tensor(1, 2, 4, dtype="int8")).dtype == "int64"
    assert nn.conv1d(tensor(1, 2, 9, dtype="uint8"), tensor(1, 2, 4, dtype="uint16")).dtype == "uint64"
    assert nn.conv1d(tensor(1, 2, 9, dtype="uint8"), tensor(1, 2, 4)).dtype == "float32"
    assert nn.conv1d(tensor(1, 2, 9, dtype="float16"), tensor(1, 2, 4, dtype="float16")).dtype == "float16"


@every_pool
@pytest.mark.parametrize("name", ["ws", "stride", "dilation"])
def test_windows(function, ndim, name):
    x = tensor(2, 3, 8, 8, 8)
    for value, error in [
        *WRONG_INTS,
        ((2.5,) * ndim, TypeError),
        ((None,) * ndim, TypeError),
        ((0,) * ndim, ValueError),
    ]:
        with pytest.raises(error, match=f"{function.__name__}: {name} must be"):
            function(x, **({"ws": 2} | {name: value}))
    with pytest.raises(TypeError, match="ws must be"):
        function(x, None)


@every_pool
def test_leading_dimensions_of_pools(function, ndim):
    assert function(tensor(*(8,) * ndim), 2).type.shape == (4,) * ndim
    assert function(tensor(2, 3, 5, *(8,) * ndim), 2).type.shape == (2, 3, 5, *(4,) * ndim)
    with pytest.raises(TypeError, match=rf"{function.__name__}: input must have {ndim} dimension"):
        function(tensor(*(8,) * (ndim - 1)), 2)


@every_pool
def test_paddings(function, ndim):
    x = tensor(2, 3, 8, 8, 8)
    for value, error in [
        (None, TypeError),
        (0.5, TypeError),
        (True, TypeError),
        ((None,) * ndim, TypeError),
        ("half", TypeError),
        ("valid", TypeError),
        (("half",) * ndim, TypeError),
        (2, ValueError),
        (-1, ValueError),
        ((1,) * (ndim + 1), ValueError),
        (((0, 2),) * ndim, ValueError),
    ]:
        with pytest.raises(error, match=rf"{function.__name__}: pad must"):
            function(x, 2, pad=value)
    assert function(x, 3, pad=((1, 2),) * ndim).type.shape[-ndim:] == (3,) * ndim


@every_pool
def test_flags_of_pools(function, ndim):
    for value in ("no", None, 2, 0.0):
        with pytest.raises(TypeError, match="ignore_border must be True or False"):
            function(tensor(2, 3, 8, 8, 8), 2, value)
        with pytest.raises(TypeError, match="return_indices must be True or False"):
            function(tensor(2, 3, 8, 8, 8), 2, return_indices=value)
    with pytest.raises(ValueError, match="return_indices is only for mode='max'"):
        function(tensor(2, 3, 8, 8, 8), 2, mode="sum", return_indices=True)
    for value, error in (("average", ValueError), ("MAX", ValueError), (None, TypeError), (1, TypeError)):
        with pytest.raises(error, match="mode must be one of"):
            function(tensor(2, 3, 8, 8, 8), 2, mode=value)


@every_pool
def test_arrays_of_pools(function, ndim):
    for value in (None, "a", object()):
        with pytest.raises(TypeError, match=f"{function.__name__}: input must"):
            function(value, 2)


@every_pool
def test_names_of_other_libraries_for_pools(function, ndim):
    x = tensor(2, 3, 8, 8, 8)
    for keyword, hint in (("ds", "ws"), ("st", "stride"), ("padding", "pad"), ("strides", "stride")):
        with pytest.raises(TypeError, match=rf"{function.__name__}\(\) .*'{keyword}': it is {hint} here"):
            function(x, 2, **{keyword: 1})
    with pytest.raises(TypeError, match="unexpected keyword argument 'size'$"):
        function(x, 2, size=1)


def test_arguments_of_adaptive_and_global_pools():
    x = tensor(2, 3, 8, 8)
    wrong = [row for row in WRONG_INTS if not isinstance(row[0], tuple)]
    for value, error in [*wrong, ((2, 2.5), TypeError), ((2, 0), ValueError), ((), ValueError), ((1,) * 4, ValueError)]:
        with pytest.raises(error, match="adaptive_pool: output_size"):
            nn.adaptive_pool(x, value)
    with pytest.raises(ValueError, match="output_size=2 is for 0 dimensions"):
        nn.adaptive_pool(tensor(8, 8), 2)
    with pytest.raises(ValueError, match="has no number"):
        nn.adaptive_pool(x, (None, None))
    with pytest.raises(TypeError, match=r"global_pool.*three dimensions"):
        nn.global_pool(tensor(8, 8))
    for function, more in ((nn.adaptive_pool, (2,)), (nn.global_pool, ())):
        with pytest.raises(ValueError, match="mode must be one of"):
            function(x, *more, mode="mean")
        with pytest.raises(TypeError, match=f"{function.__name__}: input must"):
            function("a", *more)


def test_complex_numbers_have_no_largest():
    with pytest.raises(TypeError, match="complex"):
        nn.pool_2d(tensor(2, 3, 8, 8, dtype="complex64"), 2)


@every_convolution
def test_names_of_other_libraries_for_convolutions(function, ndim, is_transposed):
    x, w = pair(ndim, is_transposed)
    for keyword, name in (("image_shape", "input_shape"), ("stride", "subsample"), ("groups", "num_groups")):
        with pytest.raises(TypeError, match=rf"{function.__name__}\(\) .*'{keyword}': it is {name} here"):
            function(x, w, **{keyword: None})
    with pytest.raises(TypeError, match="unexpected keyword argument 'size'$"):
        function(x, w, size=1)
    with pytest.raises(NotImplementedError, match="unshared"):
        function(x, w, unshared=True)
    assert function(x, w, unshared=False).type.ndim == ndim + 2


@every_convolution
def test_static_shapes_that_are_given(function, ndim, is_transposed):
    x, w = (pt.tensor(shape=(None,) * (ndim + 2), dtype="float32") for _ in range(2))
    rows = (3, 4) if is_transposed else (4, 3)
    shapes = {"filter_shape": (*rows, *(3,) * ndim)}
    if is_transposed:
        shapes["output_shape"] = (2, 4, *(10,) * ndim)
    else:
        shapes["input_shape"] = (2, 3, *(8,) * ndim)
    y = function(x, w, **shapes)
    assert y.type.shape == ((None, 4, *(10,) * ndim) if is_transposed else (2, 4, *(6,) * ndim))
    f = pytensor.function([x, w], y, mode="FAST_COMPILE")
    one = np.ones((2, 3, *(8,) * ndim), "float32")
    assert f(one, np.ones(shapes["filter_shape"], "float32")).shape[1] == 4
    with pytest.raises((AssertionError, ValueError), match="shape"):
        f(one, np.ones((*rows, *(2,) * ndim), "float32"))
    x, w = pair(ndim, is_transposed)
    for value, error in (
        (5, TypeError), ((1.5,) * (ndim + 2), TypeError), ((2,) * 9, ValueError), ((7,) * (ndim + 2), ValueError)
    ):  # fmt: skip
        with pytest.raises(error, match="filter_shape"):
            function(x, w, filter_shape=value)


@pytest.mark.parametrize("ndim", TRANSPOSED)
def test_output_shapes(ndim):
    function, (x, w) = TRANSPOSED[ndim], pair(ndim, True)
    assert function(x, w, input_dilation=3).type.shape == (2, 4, *(24,) * ndim)
    assert function(x, w, (2, None, *(26,) * ndim), input_dilation=3).type.shape == (2, 4, *(26,) * ndim)
    lengths = pt.lvector("lengths")
    assert function(x, w, lengths, input_dilation=3).type.ndim == ndim + 2
    spatial = (24,) * ndim
    for value, error in [
        (24, TypeError),
        (pt.lscalar(), TypeError),
        (pt.fvector(), TypeError),
        ((2, 4.0, *spatial), TypeError),
        ((2, True, *spatial), TypeError),
        (spatial, ValueError),
        ((2, 4, *(-1,) * ndim), ValueError),
        ((2, 4, *(27,) * ndim), ValueError),
        ((2, 4, *(23,) * ndim), ValueError),
        ((5, 4, *spatial), ValueError),
        ((2, 5, *spatial), ValueError),
    ]:
        with pytest.raises(error, match="output_shape"):
            function(x, w, value, input_dilation=3)
    with pytest.raises(ValueError, match="output_padding and output_shape"):
        function(x, w, (2, 4, *spatial), input_dilation=3, output_padding=1)


def test_the_pages_have_every_public_name():
    text = "".join(page.read_text() for page in (CHECKOUT / "docs").glob("nn*.md"))
    for name in nn.__all__:
        assert f".. autofunction:: pytensor_cl.nn.{name}\n" in text
        raises_nothing = name in ("parameters", "recognise")
        assert inspect.getdoc(getattr(nn, name)).count("Raises") == (not raises_nothing)
