"""Operations of Python and NumPy on a device array: comparison, membership, iteration, conversion, formatting."""

import copy
import operator
import pickle

import numpy as np
import pytest

from pytensor_cl.runtime.array import GpuArray


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
def test_comparison_is_that_of_the_elements_on_the_device(context, array, value, compare):
    changed = value.copy()
    changed[1, 2] = 0
    for other in (3.0, np.float32(3), True, np.array(3), 10**30):
        for got in (compare(array, other), compare(other, array)):
            assert isinstance(got, GpuArray) and got.dtype == "bool"
            np.testing.assert_array_equal(got, compare(value, np.asarray(other)))
    np.testing.assert_array_equal(compare(array, context.from_host(changed)), compare(value, changed))
    np.testing.assert_array_equal(compare(array.T, array.T), compare(value.T, value.T))


def test_comparison_with_what_is_no_array(array):
    for other in (None, "a", object(), {}, [1, 2, 3]):
        assert (array == other) is False and (other == array) is False
        assert (array != other) is True and (other != array) is True
    with pytest.raises(TypeError, match="asarray"):
        operator.eq(array, np.zeros(7))
    assert pytest.approx(np.array([[1, 2, 3], [4, 5, 6]])) == np.asarray(array)


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


@pytest.mark.parametrize("items", [1.0, "a", (..., ...), [0.5], np.array([0.5])], ids=repr)
def test_other_indices_are_refused(array, items):
    with pytest.raises(IndexError, match="integers|ellipsis"):
        array[items]


def test_new_axes_and_integers_of_any_kind(array, value, scalar):
    for items in (None, (None, 1), (slice(None), None, 2), (..., None), (np.int8(1),), (1, None, ..., None)):
        np.testing.assert_array_equal(array[items], value[items])
    np.testing.assert_array_equal(array[scalar(1, "int32")], value[1])
    np.testing.assert_array_equal(array[scalar(0, "int32") : scalar(1, "int64")], value[0:1])


def test_read_only_arrays_refuse_assignment(array):
    array.readonly = True
    for view in (array, array[0], array.T):
        with pytest.raises(ValueError, match=r"read-only.*x.copy\(\)"):
            view[0] = 1


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
    with pytest.raises(ValueError, match=r"r.any\(\), r.all\(\)"):
        bool(array)
    with pytest.raises(ValueError, match="size"):
        bool(array[:0])
    with pytest.raises(TypeError, match="format"):
        format(array, ".3f")
    assert format(array, "") == str(array)


def test_host_arrays_are_refused_in_operators(array, value):
    for function in (operator.add, operator.mul, operator.lt, operator.matmul):
        for left, right in ((array, value), (value, array)):
            with pytest.raises(TypeError, match="asarray"):
                function(left, right)


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
    is_shared = array.context.mappings.are_supported()
    for options in ({"device": "cpu"}, *([{}, {"copy": True}, {"copy": None}] if is_shared else [])):
        np.testing.assert_array_equal(np.from_dlpack(array, **options), value)


def test_printing_does_not_wait_for_the_device(context, scalar, monkeypatch):
    one = scalar(2.5)
    monkeypatch.setattr(type(context), "download", lambda *_: 1 / 0)
    assert repr(one) == f"GpuArray(shape=(), dtype=float32, context={context.name!r})" == str(one)


def test_copies_and_pickles_compare_equal(array):
    for made in (copy.copy(array), copy.deepcopy({"a": array})["a"], pickle.loads(pickle.dumps(array))):
        assert made is not array and bool((made == array).all())
    np.testing.assert_array_equal(array, np.asarray(array))
    np.testing.assert_allclose(array, np.asarray(array))


def test_methods_of_other_arrays_are_named_with_what_to_write(array):
    for name in ("partition", "tobytes", "choose"):
        with pytest.raises(AttributeError, match=rf"no attribute '{name}'.*np.asarray\(r\).{name}"):
            getattr(array, name)
    for name in ("get", "numpy", "cpu"):
        with pytest.raises(AttributeError, match=rf"no attribute '{name}'.*np.asarray\(r\)"):
            getattr(array, name)
    with pytest.raises(AttributeError, match=r"no attribute 'nosuch'$"):
        array.nosuch
    assert not hasattr(array, "__array_interface__")
