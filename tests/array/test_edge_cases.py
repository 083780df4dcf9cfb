"""Inputs and sequences of operations for which device arrays were, or could be, wrong."""

import operator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event

import numpy as np
import pytest

import pytensor_cl.array as xp
from pytensor_cl.array.dispatch import OPERATIONS, _variant
from pytensor_cl.routines.nonzero import MaskAssign
from pytensor_cl.routines.rowwise.routine import Rowwise
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.error_flag import DeviceErrorFlag
from tests.device_apart import context_apart


@pytest.fixture
def bad(context):
    """An index that is out of bounds, of which only the device knows."""
    return context.from_host(np.array([9]))


@pytest.fixture
def matrix(context):
    return context.from_host(np.arange(12.0, dtype="float32").reshape(3, 4))


def test_an_ellipsis_of_no_dimension_keeps_index_arrays_apart(context):
    host = np.arange(120.0, dtype="float32").reshape(2, 3, 4, 5)
    device = context.from_host(host)
    mask, one = np.array([True, False, True]), np.array([1])
    for index in (
        (slice(None), mask, ..., one, slice(None)),
        (slice(None), mask, slice(None), ..., one),
        (0, ..., one, 2, 3),
        (one, ..., 1),
    ):
        expected = host[index]
        assert device[index].shape == expected.shape, index
        np.testing.assert_array_equal(np.asarray(device[index]), expected)
        copied, changed = device.copy(), host.copy()
        copied[index] = expected + 1
        changed[index] = expected + 1
        np.testing.assert_array_equal(np.asarray(copied), changed)


def test_an_index_out_of_bounds_names_the_axis_of_the_array(context, bad):
    host = np.zeros((2, 3, 4, 5), "float32")
    device, wrong = context.from_host(host), np.array([9])
    for index in (
        (0, wrong),
        (slice(None), wrong),
        (None, 0, wrong),
        (..., wrong),
        (slice(None), [True, False, True], wrong),
    ):
        with pytest.raises(IndexError) as numpy_error:
            host[index]
        with pytest.raises(IndexError) as error:
            device[index]
        assert str(error.value) == str(numpy_error.value)
        device[tuple(bad if item is wrong else item for item in index)]
        with pytest.raises(IndexError, match=str(numpy_error.value)):
            device.sync()


def test_whatever_shows_values_raises_what_was_found(context, matrix, bad):
    def mapped():
        with matrix.map("r"):
            pass

    views = [lambda: np.from_dlpack(matrix, device="cpu"), mapped, matrix.to_host, xp.any(matrix).item]
    is_visible = context.mappings.are_supported()
    for show in [*views, matrix.host_view, *([lambda: np.from_dlpack(matrix)] if is_visible else [])]:
        matrix[bad]
        with pytest.raises(IndexError, match=r"index 9 .*test_edge_cases.py:\d+"):
            show()
        if is_visible or show in views:
            show()  # it is raised once
        else:
            with pytest.raises(ValueError, match="has a memory of its own"):
                show()


def test_another_thread_does_not_forget_an_operation_before_it_runs(context, matrix, bad):
    is_noted, is_checked = Event(), Event()
    errors = context.deferred_errors

    class Routine:
        """A routine that is enqueued late: meanwhile another thread asks for errors."""

        error = staticmethod(lambda found: IndexError(f"number {found.number}"))

        def set_error_flag(self, flag, number):
            self.flag, self.number = flag, number

        def launch(self):
            is_noted.set()
            assert not is_checked.wait(0.05)  # the other thread waits for this one
            record = np.array([self.number, 0, 0, 0, 0, 0], "int32")
            context.queue.write(self.flag.buffer, record)

    def check():
        is_noted.wait()
        try:
            errors.check()
        finally:
            is_checked.set()

    routine = Routine()
    with ThreadPoolExecutor() as threads:
        other = threads.submit(check)
        errors.enqueue(routine, "an operation", routine.launch)
        with pytest.raises(IndexError, match="number 1, in an operation"):
            other.result()


def test_an_interrupted_read_of_the_flag_loses_no_operation(context, matrix, bad, monkeypatch):
    def interrupted(flag):
        raise KeyboardInterrupt

    matrix[bad]
    with monkeypatch.context() as patch:
        patch.setattr(DeviceErrorFlag, "read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            matrix.sync()
    with pytest.raises(IndexError, match="index 9 is out of bounds for axis 0 with size 3"):
        matrix.sync()
    matrix.sync()


def test_means_of_float16_do_not_overflow(context):
    for value, count in ((0.5, 70_000), (30, 70_000), (300, 100)):
        host = np.full(count, value, "float16")
        host[::2] *= -1 if value == 300 else 1
        device = context.from_host(host)
        wide = host.astype("float64")
        for name in ("mean", "std"):
            found = getattr(xp, name)(device)
            assert found.dtype == np.float16
            np.testing.assert_allclose(found.item(), getattr(np, name)(wide), rtol=2e-3, err_msg=f"{name} of {value}")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_variances(context, rng, monkeypatch):
    launched = []
    launch = Rowwise.launch
    monkeypatch.setattr(Rowwise, "launch", lambda self, *given: launched.append(1) or launch(self, *given))
    far = (1e4 + rng.random((6, 5, 4))).astype("float32")
    whole = rng.integers(-5, 5, (6, 5, 4)).astype("int16")
    both = (far[:2] + 1j * whole[:2]).astype("complex64")
    for host in (far, far[::-2, 1:, ::3], whole, both, far[:, :0]):
        device = context.from_host(host)
        for axis in (None, 1, (0, 2)):
            with np.errstate(all="ignore"):
                expected = np.var(host.astype("complex128" if host.dtype.kind == "c" else "float64"), axis=axis, ddof=1)
            for name, root in (("var", expected), ("std", np.sqrt(expected))):
                found = getattr(xp, name)(device, axis=axis, correction=1)
                assert found.shape == np.shape(expected)
                np.testing.assert_allclose(np.asarray(found), root, rtol=1e-4)
    assert launched
    assert np.isnan(xp.var(device, correction=1).item())


def test_quantiles_of_complex_numbers_are_refused(context):
    with pytest.raises(TypeError, match="complex numbers have no order"):
        xp.median(context.from_host(np.array([1 + 2j, 3], "complex64")))


def test_real_and_imaginary_parts_are_set(context):
    device = context.from_host(np.array([1 + 2j, 3 + 4j], "complex64"))
    device.real += device.imag
    device.imag = 7
    np.testing.assert_array_equal(np.asarray(device), [3 + 7j, 7 + 7j])
    with pytest.raises(TypeError, match="no imaginary part"):
        device.real.imag = 1


def test_comparisons_of_integers_need_no_double_precision(context, monkeypatch):
    monkeypatch.setattr(context, "info", replace(context.info, has_fp64=False))
    host = np.array([1, 2, 3], "int32")
    for kinds in ((np.dtype("int32"), float), (float, np.dtype("int64"))):
        variant = _variant(OPERATIONS["less"], kinds, context)
        (source,) = variant.launcher.sources()
        assert "double" not in source.source
        array = context.from_host(host.astype(next(k for k in kinds if k is not float)))
        result = context.empty((3,), variant.dtype)
        operands = [array if k is not float else np.float32(2.5) for k in kinds]
        variant.launcher.launch(result, operands)
        expected = host < 2.5 if kinds[1] is float else host > 2.5
        np.testing.assert_array_equal(np.asarray(result), expected)


def test_arrays_of_two_contexts_do_not_meet(context, matrix):
    with context_apart() as other:
        mask = other.from_host(np.array([True, False, True]))
        number = other.from_host(np.array([1, 2, 1]))
        operations = (
            lambda: matrix[mask],
            lambda: matrix[:, 0][mask],
            lambda: matrix.__setitem__(mask, 1),
            lambda: matrix[number],
            lambda: xp.repeat(matrix, number, axis=0),
            lambda: xp.searchsorted(matrix[0], matrix[0], sorter=number),
        )
        for operation in operations:
            with pytest.raises(ValueError, match=f"{other.name!r}.* move one"):
                operation()
        filled = xp.full(2, number[1], device=context.name)
        assert filled.context is context
        np.testing.assert_array_equal(np.asarray(filled), [2, 2])


def test_arrays_of_the_other_byte_order_are_converted(context):
    for dtype in (">i4", "<i4", ">f4"):
        found = xp.asarray(np.arange(3).astype(dtype), device=context.name)
        assert found.dtype == np.dtype(dtype).newbyteorder("=")
        np.testing.assert_array_equal(np.asarray(found), [0, 1, 2])


def test_functions_of_arrays_refuse_values_of_the_host(context):
    """Without a check NumPy would compute some of them on the host in silence."""
    x, host = xp.ones((2, 2), device=context.name), np.ones((2, 2))
    for call in (
        lambda: xp.sum([1, 2]),
        lambda: xp.diff(host),
        lambda: xp.flip(host),
        lambda: xp.linalg.svd(host),
        lambda: xp.fft.fft([1.0]),
        lambda: xp.tensordot(x, host),
        lambda: xp.vstack([host, host]),
        lambda: xp.einsum("ij->ji", host),
        lambda: xp.allclose(host, host),
    ):
        with pytest.raises(TypeError, match=r"takes device arrays, not \w+: upload it, asarray\(x\)"):
            call()
    for function in (xp.concat, xp.stack):
        with pytest.raises(TypeError, match="as one sequence"):
            function(x, x)
        with pytest.raises(ValueError, match="needs at least one array"):
            function([])
    with pytest.raises(ValueError, match="both or neither"):
        xp.where(x > 0, x)


def test_integers_of_python_are_checked_and_limits_out_of_range_are_none(context):
    x = xp.asarray([-100, 100], "int8", device=context.name)
    for call in (lambda: xp.asarray([300], "int8"), lambda: x.__setitem__(..., [300, 1]), lambda: xp.clip(x, 300)):
        with pytest.raises(OverflowError):
            call()
    assert xp.clip(x, -200, 50).tolist() == [-100, 50]
    assert [xp.searchsorted(x, value).item() for value in (-200, 300)] == [0, 2]


def test_what_is_taken_is_a_copy(context):
    x = xp.ones((2, 2), device=context.name)
    row = xp.take(x, 1, axis=0)
    row += 1
    assert x.tolist() == [[1, 1], [1, 1]]
    with pytest.raises(TypeError, match="a mask is taken by"):
        xp.take(x, x > 0)


def test_medians_of_infinities(context):
    for values in ([1, np.inf, np.inf], [np.inf, np.inf], [-np.inf, np.inf], [-np.inf, 1], [1, 2, np.inf], [np.nan, 1]):
        with np.errstate(invalid="ignore"):
            expected = np.median(values)
        np.testing.assert_equal(xp.median(xp.asarray(values, device=context.name)).item(), expected)


def test_integers_of_numpy_are_integers(context):
    x, one = xp.arange(3, device=context.name), np.int64(1)
    assert xp.roll(x, one).tolist() == xp.roll(x, one, axis=np.int64(0)).tolist() == [2, 0, 1]
    assert xp.expand_dims(x, np.int64(0)).shape == (1, 3)
    for wrong in (lambda: xp.pad(x, 1.5), lambda: xp.roll(x, 1.5), lambda: xp.tile(x, "a")):
        with pytest.raises(TypeError):
            wrong()


def test_numbers_in_place_of_nan_in_both_parts(context):
    host = np.array([complex(np.nan, 1), complex(1, np.inf)])
    np.testing.assert_array_equal(np.asarray(xp.nan_to_num(context.from_host(host))), np.nan_to_num(host))


def test_distinct_elements_come_alone_unless_more_is_asked_for(context):
    x = xp.asarray([3, 1, 3], device=context.name)
    assert xp.unique(x).tolist() == [1, 3]
    assert [part.tolist() for part in xp.unique(x, return_index=True, return_counts=True)] == [[1, 3], [1, 0], [1, 2]]


def test_values_by_masks_that_are_rare_mixed_and_full(context, rng, monkeypatch):
    """A block of the mask is skipped, is copied as a whole, or has its hits listed."""
    calls, whole = [], MaskAssign.update
    monkeypatch.setattr(MaskAssign, "update", lambda *arguments: (calls.append(1), whole(*arguments))[1])
    for dtype in ("float32", "complex128"):
        host = rng.integers(0, 99, 20_011).astype(dtype)
        for share in (0.001, 0.5, 0.998, 1.0):
            mask = rng.random(host.size) < share
            values = rng.integers(0, 99, np.count_nonzero(mask)).astype(dtype)
            device, expected = context.from_host(host), host.copy()
            expected[mask] = values
            device[context.from_host(mask)] = context.from_host(values)
            np.testing.assert_array_equal(np.asarray(device), expected, err_msg=f"{dtype} {share}")
            if dtype == "float32":
                expected[mask] += values
                xp.add_at(device, context.from_host(mask), context.from_host(values))
                np.testing.assert_array_equal(np.asarray(device), expected, err_msg=f"add {share}")
    assert len(calls) == 12


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_variance_of_infinities_is_nan_where_nan_is_left_out(context):
    host = np.array([[1, np.nan, np.inf], [1, np.nan, 4], [np.nan] * 3], "float32")
    found = xp.nanvar(context.from_host(host), axis=1)
    assert isinstance(found, GpuArray)
    np.testing.assert_array_equal(np.asarray(found), np.nanvar(host, axis=1))


def test_totals_of_complex_numbers_keep_the_imaginary_parts(context):
    x = context.from_host(np.array([1 + 2j, 0], "complex64"))
    for total in (xp.sum, xp.prod, xp.cumulative_sum, xp.cumulative_prod):
        with pytest.raises(TypeError, match=r"loses the imaginary parts of complex64 numbers: take real\(x\)"):
            total(x, dtype="int32")
    found = [xp.sum(x, dtype="bool"), xp.prod(x, dtype="bool"), xp.sum(x != 0, dtype="complex64")]
    assert [(str(r.dtype), r.item()) for r in found] == [("bool", True), ("bool", False), ("complex64", 1)]


def test_ranges_of_complex_numbers(context):
    for dtype in ("complex64", "complex128"):
        found = xp.arange(1.5, 7.3, 1, dtype=dtype, device=context.name)
        assert isinstance(found, GpuArray)
        np.testing.assert_array_equal(np.asarray(found), np.arange(1.5, 7.3, 1, dtype=dtype), strict=True)
    with pytest.raises(TypeError, match="not bools"):
        xp.arange(3, dtype="bool", device=context.name)


def test_lists_are_not_repeated_by_an_array_of_an_integer(context):
    two = context.from_host(np.array(2))
    for multiply in (lambda: [1, 2] * two, lambda: two * [1, 2], lambda: (1,) * two, lambda: operator.imul(two, [1])):
        with pytest.raises(TypeError, match="an operand is neither a GpuArray nor a number, but of class (list|tuple)"):
            multiply()


def test_negative_lengths_and_unknown_subscripts(context):
    x = context.from_host(np.ones((1, 3), "float32"))
    for refused, message in (
        (lambda: xp.tile(x, -1), "numbers of copies must not be negative"),
        (lambda: xp.broadcast_to(x, (-1, 3)), "does not broadcast"),
        (lambda: xp.broadcast_to(x[0, 0], -2), "does not broadcast"),
        (lambda: xp.einsum("i$", x), "subscripts are letters of ASCII"),
    ):
        with pytest.raises(ValueError, match=message):
            refused()


def test_arguments_that_numpy_has_besides(context, matrix):
    host = np.asarray(matrix)
    for found, expected in (
        (matrix.var(axis=0, ddof=1), host.var(axis=0, ddof=1)),
        (xp.std(matrix, axis=1, ddof=1), host.std(axis=1, ddof=1)),
    ):
        assert isinstance(found, GpuArray)
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-6)
    with pytest.raises(ValueError, match="two names of one argument"):
        xp.var(matrix, correction=1, ddof=1)
    for order in (xp.sort, xp.argsort):
        with pytest.raises(TypeError, match="axis must be an integer, not None: ravel"):
            order(matrix, axis=None)


def test_totals_of_bytes_as_bools(context):
    host = np.array([2, 0, 4], "int8")
    x = context.from_host(host)
    for found, expected in ((xp.sum(x, dtype="bool"), True), (xp.prod(x, dtype="bool"), False)):
        assert isinstance(found, GpuArray)
        assert (found.dtype, found.item()) == ("bool", expected)
