"""NumPy's functions of device arrays: those of the namespace, or a TypeError that says what to write."""

import io
import warnings

import numpy as np
import pytest

import pytensor_cl.array as xp
from pytensor_cl.array.protocols import FUNCTIONS
from pytensor_cl.runtime.array import GpuArray

CALLS = [
    "np.exp(X)",
    "np.add(X,1)",
    "np.sum(X,axis=0)",
    "np.mean(X)",
    "np.std(X,ddof=1)",
    "np.max(X,axis=1,keepdims=True)",
    "np.add.reduce(X)",
    "np.add.reduce(X,axis=1)",
    "np.add.accumulate(X,axis=1)",
    "np.multiply.outer(X,X)",
    "np.concatenate([X,X])",
    "np.stack([X,X],axis=1)",
    "np.reshape(X,(4,3))",
    "np.transpose(X)",
    "np.where(X>0,X,0)",
    "np.clip(X,0,1)",
    "np.sort(X,axis=0)",
    "np.sort(X,axis=None)",
    "np.argsort(X,axis=None)",
    "np.add(B,B,dtype='int32')",
    "np.average(B,weights=B)",
    "np.reshape(X,(2,6),order='F')",
    "np.ravel(X,order='F')",
    "np.concatenate([X,X],dtype='float64')",
    "np.diff(X,prepend=0)",
    "np.einsum('ij,kj->ik',X,X,optimize=True)",
    "np.take(X,[5,-7],axis=0,mode='wrap')",
    "np.take(X,[5,-7],axis=1,mode='clip')",
    "np.median(X,axis=(0,1))",
    "np.linalg.eigvalsh(S,'U')",
    "np.sort(np.linalg.eigvals(S).real)",
    "np.linalg.svd(S,compute_uv=False)",
    "np.abs(np.linalg.qr(S,mode='r'))",
    "np.outer(X,B)",
    "np.bincount(B//50+2,minlength=3)",
    "np.bincount(B//50+2,weights=X[:,0])",
    "np.histogram(X,5)[0]",
    "np.histogram(X,[-1.0,0.0,0.5,2.0],density=True)[0]",
    "np.histogram(X,4,(-1,1))[1]",
    "np.isin(B,[100,3])",
    "np.isin(X,X[0],invert=True)",
    "np.nansum(N,axis=0)",
    "np.nanmean(N,axis=0)",
    "np.nanmean(N,axis=1,keepdims=True)",
    "np.nanstd(N,axis=1,ddof=1)",
    "np.nanvar(N+1j*X,axis=1)",
    "np.nanmax(N,axis=0)",
    "np.nanmin(N)",
    "np.nanmin(B)",
    "np.linalg.norm(X,1,axis=(1,0),keepdims=True)",
    "np.fft.fft2(X)",
    "np.fft.irfft2(np.fft.rfft2(X))",
    "np.argsort(X)",
    "np.unique(X)",
    "np.percentile(X,30)",
    "np.median(X,axis=0)",
    "np.quantile(X,[.1,.9],axis=1)",
    "np.linalg.norm(X)",
    "np.linalg.norm(X,axis=1)",
    "np.linalg.norm(X,ord=1)",
    "np.linalg.inv(S)",
    "np.linalg.solve(S,S)",
    "np.linalg.det(S)",
    "np.fft.fft(X)",
    "np.fft.irfft(X,axis=0)",
    "np.cumsum(X)",
    "np.diff(X)",
    "np.isclose(X,X)",
    "np.dot(X,X.T)",
    "np.inner(X,X)",
    "np.outer(X[0],X[1])",
    "np.tensordot(X,X,axes=((0,),(0,)))",
    "np.einsum('ij,kj->ik',X,X)",
    "np.pad(X,1)",
    "np.kron(X,X)",
    "np.tile(X,2)",
    "np.repeat(X,2)",
    "np.roll(X,1)",
    "np.flip(X,0)",
    "np.trace(S)",
    "np.diagonal(S)",
    "np.tril(S)",
    "np.ones_like(X)",
    "np.nan_to_num(X)",
    "np.average(X,axis=0)",
    "np.ptp(X)",
    "np.round(X,1)",
    "np.meshgrid(X[0],X[1])[0]",
    "np.split(X,2,axis=1)[1]",
    "np.hsplit(X,2)[1]",
    "np.count_nonzero(X>0)",
    "np.argmax(X)",
    "np.nonzero(X>0)[0]",
    "np.take(X,[0,1],axis=1)",
    "np.squeeze(X[None])",
    "np.moveaxis(X,0,1)",
    "np.vstack([X,X])",
    "np.hstack([X,X])",
    "np.matmul(X,X.T)",
    "np.divmod(X,2)[0]",
    "np.float32(2)*X",
    "np.expand_dims(X,0)",
    "np.broadcast_to(X[0],(2,4))",
    "np.copy(X)",
    "np.angle(X)",
    "np.searchsorted(np.sort(X[0]),X[1])",
    "np.var(X,axis=1)",
    "np.all(X>0)",
    "np.linalg.svdvals(X)",
    "np.argmin(X,axis=0)",
]
"""Calls without blanks; X is a matrix, S a square one."""
OF_SHAPES = [
    "np.shape(X)",
    "np.ndim(X)",
    "np.size(X)",
    "np.result_type(X,1.0)",
    "np.iscomplexobj(X)",
    "np.array2string(X)",
]


@pytest.fixture
def arrays(context, rng):
    host = {
        "X": rng.standard_normal((3, 4)).astype("float32"),
        "S": rng.standard_normal((4, 4)) + 4 * np.eye(4),
        "B": np.array([100, 100, -100], "int8"),
        "N": np.array([[1, np.nan, 3, np.nan], [0, 2, np.nan, np.nan], [5, -1, 2, np.nan]], "float32"),
    }
    return host, {name: context.from_host(v) for name, v in host.items()}


def test_functions_compute_on_the_device(arrays):
    host, device = arrays
    for call in CALLS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's, of columns that are all NaN
            expected, found = (eval(call, {"np": np, **names}) for names in (host, device))
        assert isinstance(found, GpuArray), call
        assert found.shape == np.shape(expected), call
        np.testing.assert_allclose(np.asarray(found), expected, rtol=2e-4, atol=2e-5, err_msg=call)
    for call in OF_SHAPES:
        assert eval(call, {"np": np, **device}) == eval(call, {"np": np, **host}), call


def test_results_are_written_into_outputs(arrays):
    host, device = arrays
    for call, shape, dtype in (
        ("np.concatenate([X,X],out=O)", (6, 4), "float32"),
        ("np.argmax(X,axis=0,out=O)", (4,), "int64"),
        ("np.median(X,axis=0,out=O)", (4,), "float32"),
        ("np.round(X,1,out=O)", (3, 4), "float32"),
        ("np.cumsum(X,axis=0,out=O)", (3, 4), "float32"),
        ("np.trace(X,out=O)", (), "float32"),
        ("np.ptp(X,axis=1,out=O)", (3,), "float32"),
        ("np.dot(X,X.T,out=O)", (3, 3), "float32"),
        ("np.einsum('ij,kj->ik',X,X,out=O)", (3, 3), "float32"),
    ):
        expected, found = np.zeros(shape, dtype), xp.zeros(shape, dtype, device=device["X"].device)
        eval(call, {"np": np, "O": expected, **host})
        assert eval(call, {"np": np, "O": found, **device}) is found, call
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=1e-6, err_msg=call)


def test_options_without_a_kernel_are_refused(arrays):
    _, device = arrays
    for call, option in (
        ("np.add.reduce(X,axis=0,initial=5)", "initial"),
        ("np.add.reduce(X,axis=0,where=X>0)", "where"),
        ("np.sum(X,initial=5)", "initial"),
        ("np.std(X,where=X>0)", "where"),
        ("np.clip(X,0,1,where=X>0)", "where"),
    ):
        with pytest.raises(TypeError, match=f"has no option {option}"):
            eval(call, {"np": np, **device})
    for call in ("np.add(X,1,dtype='int32')", "np.copyto(B,X)"):
        with pytest.raises(TypeError, match="(?i)cannot cast"):
            eval(call, {"np": np, **device})


def test_what_has_no_kernel_is_an_error_that_says_what_to_write(arrays):
    _, device = arrays
    x = device["X"]
    for function, name in (
        (np.gradient, "gradient"),
        (np.linalg.tensorinv, "linalg.tensorinv"),
        (np.cbrt, "cbrt"),
    ):
        with pytest.raises(TypeError, match=rf"numpy.{name} has no OpenCL kernel: np.{name}\(np.asarray\(r\)\)"):
            function(x)
    host = np.ones((3, 4), "float32")
    for wrong in (lambda: host + x, lambda: np.add(x, 1, out=host), lambda: np.exp(x, where=host > 0)):
        with pytest.raises(TypeError, match=r"asarray|no option where"):
            wrong()


def test_every_function_that_numpy_hands_over_answers_or_refuses(arrays):
    """A call with one array of the device never computes on the host in silence."""
    from numpy.testing.overrides import get_overridable_numpy_array_functions

    x = arrays[1]["X"]
    answers_with_host_values = {np.save, np.savez, np.savez_compressed, np.savetxt, np.copyto}
    # These copy to the host on request; NumPy hands them over for the argument ``like`` only.
    answers_with_host_values |= {
        np.array,
        np.asarray,
        np.asanyarray,
        np.ascontiguousarray,
        np.asfortranarray,
        np.require,
    }
    for function in get_overridable_numpy_array_functions():
        if function in answers_with_host_values:
            continue
        try:
            found = function(x)
        except (TypeError, ValueError, IndexError, AttributeError, np.linalg.LinAlgError):
            continue
        leaves = found if isinstance(found, tuple | list) else [found]
        assert not any(isinstance(v, np.ndarray) for v in leaves), function


def test_saving_and_copying_to_the_host(arrays):
    host, device = arrays
    file = io.BytesIO()
    np.save(file, device["X"])
    file.seek(0)
    np.testing.assert_array_equal(np.load(file), host["X"])
    target = np.zeros((3, 4))
    np.copyto(target, device["X"])
    np.testing.assert_array_equal(target, host["X"])
    assert np.may_share_memory(device["X"], device["X"][1:]) and not np.may_share_memory(device["X"], device["S"])


def test_the_table_has_functions_that_numpy_hands_over():
    from numpy.testing.overrides import allows_array_function_override

    assert all(allows_array_function_override(function) for function in FUNCTIONS)


def test_printing(context, rng):
    host = rng.standard_normal((3, 4))
    x = context.from_host(host)
    assert f"{x:v}" == np.array2string(host, separator=", ")
    with xp.printoptions(values=True):
        assert repr(x) == f"GpuArray({np.array2string(host, separator=', ')}, dtype=float64, context={context.name!r})"
    assert repr(x) == f"GpuArray(shape=(3, 4), dtype=float64, context={context.name!r})"
    large = np.arange(60_000).reshape(300, 200)
    assert f"{context.from_host(large):v}" == np.array2string(large, separator=", ")
