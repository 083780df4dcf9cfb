"""What Python and NumPy do with a device array: comparison, membership, iteration, conversion, formatting."""

import copy
import operator
import pickle

import numpy as np
import pytest

from pytensor_cl.errors import UnsupportedIndex


@pytest.fixture
def value():
    return np.array([[1, 2, 3], [4, 5, 6]], "float32")


@pytest.fixture
def array(context, value):
    return context.from_host(value)


@pytest.fixture
def scalar(context):
    return lambda x, dtype="float32": context.from_host(np.asarray(x, dtype))


@pytest.mark.parametrize("compare", [operator.eq, operator.ne])
def test_comparison_is_that_of_the_elements(context, array, value, compare):
    changed = value.copy()
    changed[1, 2] = 0
    for other in (value, changed, value[0], 3.0, np.float32(3), [1, 2, 3], True, np.array(3)):
        expected = compare(value, np.asarray(other))
        for got in (compare(array, other), compare(other, array)):
            assert isinstance(got, np.ndarray)
            np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(compare(array, context.from_host(changed)), compare(value, changed))
    np.testing.assert_array_equal(compare(array.T, value.T), compare(value.T, value.T))


def test_comparison_with_what_is_no_array(array):
    for other in (None, "a", object(), {}):
        assert (array == other) is False and (other == array) is False
        assert (array != other) is True and (other != array) is True
    with pytest.raises(ValueError, match="broadcast"):
        operator.eq(array, np.zeros(7))
    assert pytest.approx(np.array([[1, 2, 3], [4, 5, 6]])) == array


def test_arrays_are_not_hashable(array):
    with pytest.raises(TypeError, match="unhashable"):
        hash(array)


def test_membership(array, scalar):
    assert 3.0 in array and scalar(3) in array and 99.0 not in array
    assert 3 in scalar(3) and 4 not in scalar(3) and None not in array
    assert array in [array] and array in [None, array]


def test_iteration_gives_views(array, value, scalar):
    rows = list(array)
    assert [row.buffer is array.buffer for row in rows] == [True, True]
    np.testing.assert_array_equal(rows, value)
    np.testing.assert_array_equal(list(reversed(array)), value[::-1])
    first, _ = array
    np.testing.assert_array_equal(first, value[0])
    with pytest.raises(TypeError, match=r"0-d.*item\(\)"):
        iter(scalar(3))
    with pytest.raises(TypeError, match="0-d"):
        len(scalar(3))


@pytest.mark.parametrize("items", [True, np.True_, (0, False), [0, 1], np.array([0]), 1.0, "a", (..., ...)], ids=repr)
def test_other_indices_are_refused(array, items):
    with pytest.raises(UnsupportedIndex, match="np.asarray|graph") as caught:
        array[items]
    assert isinstance(caught.value, TypeError) and isinstance(caught.value, IndexError)


def test_new_axes_and_integers_of_any_kind(array, value, scalar):
    for items in (None, (None, 1), (slice(None), None, 2), (..., None), (np.int8(1),), (1, None, ..., None)):
        np.testing.assert_array_equal(array[items], value[items])
    np.testing.assert_array_equal(array[scalar(1, "int32")], value[1])
    np.testing.assert_array_equal(array[scalar(0, "int32") : scalar(1, "int64")], value[0:1])


def test_assignment_is_refused(array):
    with pytest.raises(TypeError, match="set_subtensor"):
        array[0] = 1


def test_item_and_tolist(array, value, scalar):
    assert array.tolist() == value.tolist() and scalar(2.5).tolist() == 2.5
    assert scalar(2.5).item() == 2.5 and type(scalar(2, "int8").item()) is int
    assert array.item(4) == 5.0 and array.item(1, 2) == 6.0
    with pytest.raises(ValueError, match="size 1"):
        array.item()


def test_conversion_to_python_scalars(scalar, array):
    assert complex(scalar(1 + 2j, "complex64")) == 1 + 2j and complex(scalar(2)) == 2
    assert operator.index(scalar(3, "int16")) == 3 and list(range(scalar(2, "uint8"))) == [0, 1]
    assert f"{scalar(2.5):.3f}" == "2.500" and f"{scalar(2.5):>6}" == "   2.5"
    for convert in (operator.index, float, int, complex):
        with pytest.raises(TypeError):
            convert(array)
    with pytest.raises(TypeError):
        operator.index(scalar(3.0))
    with pytest.raises(ValueError, match=r"np.asarray\(r\).*any.*all"):
        bool(array)
    with pytest.raises(ValueError, match="size"):
        bool(array[:0])
    with pytest.raises(TypeError, match="format"):
        format(array, ".3f")
    assert format(array, "") == str(array)


def test_no_arithmetic_yet(array, value):
    np_value = value
    for name in (
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "matmul",
        "and_",
        "or_",
        "xor",
        "lshift",
        "lt",
        "ge",
    ):
        function = getattr(operator, name)
        for left, right in (
            (array, 1),
            (1, array),
            (array, np_value),
            (np_value, array),
            (array, array),
            (np.float32(2), array),
        ):
            with pytest.raises(TypeError, match=r"pytensor.function|np.asarray"):
                function(left, right)
    for function in (operator.neg, abs, operator.invert, operator.pos):
        with pytest.raises(TypeError, match=r"pytensor.function|np.asarray"):
            function(array)


def test_others_may_still_define_operators_with_arrays(array):
    class Other:
        def __radd__(self, left):
            return "radd"

        def __eq__(self, right):
            return "eq"

        __hash__ = None

    assert array + Other() == "radd"
    assert (array == Other()) == "eq"


def test_export_to_numpy(array, value):
    for options in ({}, {"copy": True}, {"copy": None}, {"device": "cpu"}):
        np.testing.assert_array_equal(np.from_dlpack(array, **options), value)


def test_zero_dimensional_arrays_print_their_value(context, scalar, monkeypatch):
    one = scalar(2.5)
    assert repr(one) == f"GpuArray(2.5, dtype=float32, context={context.name!r})" == str(one)
    monkeypatch.setattr(type(context), "download", lambda *_: 1 / 0)
    assert repr(one) == f"GpuArray(shape=(), dtype=float32, context={context.name!r})"


def test_copies_and_pickles_compare_equal(array):
    for made in (copy.copy(array), copy.deepcopy({"a": array})["a"], pickle.loads(pickle.dumps(array))):
        assert made is not array and (made == array).all()
    np.testing.assert_array_equal(array, np.asarray(array))
    np.testing.assert_allclose(array, np.asarray(array))


def test_methods_of_other_arrays_are_named_with_what_to_write(array):
    for name in ("sum", "mean", "reshape", "astype", "any", "flatten"):
        with pytest.raises(AttributeError, match=rf"no attribute '{name}'.*np.asarray\(r\).{name}.*pytensor.function"):
            getattr(array, name)
    for name in ("get", "numpy", "cpu"):
        with pytest.raises(AttributeError, match=rf"no attribute '{name}'.*np.asarray\(r\)"):
            getattr(array, name)
    with pytest.raises(AttributeError, match=r"no attribute 'nosuch'$"):
        array.nosuch
    assert not hasattr(array, "sum") and not hasattr(array, "__array_interface__")
