"""NumPy's functions of device arrays: ``np.exp(r)`` and ``np.sum(r)`` are those of `pytensor_cl.array`.

What has no kernel raises a TypeError with the alternative on the host. Nothing computes on the host in silence.
Functions that read shapes and dtypes alone answer from these, and functions that write or print values copy the array
to the host.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from pytensor_cl.array import (
    creation,
    elementwise,
    extras,
    fft,
    indexing,
    linalg,
    manipulation,
    products,
    reductions,
    sorting,
    statistics,
)
from pytensor_cl.array.dispatch import OPERATIONS, assign_result, number_of
from pytensor_cl.array.dtypes import can_cast, result_type
from pytensor_cl.runtime.array import GpuArray

_OF_UFUNCS: dict[str, str] = {
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "conjugate": "conj",
    "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift",
    "power": "pow",
    "right_shift": "bitwise_right_shift",
    "rint": "round",
}
"""Names of ufuncs that are called otherwise here."""

_REDUCED: dict[str, Callable[..., GpuArray]] = {
    "add": reductions.sum,
    "logical_and": reductions.all,
    "logical_or": reductions.any,
    "maximum": reductions.max,
    "minimum": reductions.min,
    "multiply": reductions.prod,
}
_ACCUMULATED: dict[str, Callable[..., GpuArray]] = {"add": sorting.cumulative_sum, "multiply": sorting.cumulative_prod}


def _no_kernel(name: str) -> TypeError:
    return TypeError(
        f"numpy.{name} has no OpenCL kernel: np.{name}(np.asarray(r)) computes on the host, and pytensor_cl.array has "
        "the functions that device arrays have"
    )


def _elementwise(ufunc: np.ufunc) -> Callable[..., Any] | None:
    """Return the function of a ufunc; None if there is none."""
    name = _OF_UFUNCS.get(ufunc.__name__, ufunc.__name__)
    if ufunc.__name__ == "matmul":
        return products.matmul
    if ufunc.__name__ == "vecdot":
        return products.vecdot
    if ufunc.__name__ == "divmod":
        return lambda x, y: (elementwise.floor_divide(x, y), elementwise.remainder(x, y))
    if ufunc.__name__ == "fabs":
        return elementwise.abs
    return getattr(elementwise, name) if name in OPERATIONS else None


def _cast_for(ufunc: np.ufunc, inputs: tuple[Any, ...], dtype: np.dtype) -> list[Any]:
    """Return the operands in the dtypes of the ufunc's loop whose result has a dtype, as the option ``dtype`` asks.

    Raises `TypeError`: there is no such loop, or a cast would not be of the same kind.
    """
    kinds = tuple(x.dtype if isinstance(x, GpuArray) else type(number_of(x)) for x in inputs)
    plain = tuple(k if isinstance(k, np.dtype) or k in (int, float, complex) else np.dtype(k) for k in kinds)
    loop = ufunc.resolve_dtypes((*plain, None), signature=(*[None] * len(inputs), dtype), casting="same_kind")
    return [
        x.astype(wanted, copy=False) if isinstance(x, GpuArray) else wanted.type(x)
        for x, wanted in zip(inputs, loop, strict=False)
    ]


def _options(name: str, options: dict[str, Any]) -> None:
    """Raise `TypeError` if options are left that a function of device arrays does not have."""
    for option, value in options.items():
        if value is not None and value is not np._NoValue:
            raise TypeError(f"numpy.{name} of a device array has no option {option}")


def _with_out(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that writes its result into an array that is passed as ``out``."""

    def compute(*arguments: Any, out: Any = None, **options: Any) -> Any:
        result = function(*arguments, **options)
        return result if out is None else assign_result(name, out, result)

    return compute


def array_ufunc(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Compute a ufunc, or one of its methods.

    Raises `TypeError`: it has no kernel, or there is an option that has none.
    """
    out = options.pop("out", None)
    if out is not None:
        (target,) = out if len(out) == 1 else (None,)
        if not isinstance(target, GpuArray):
            raise TypeError(
                f"numpy.{ufunc.__name__} of a device array does not write into one of the host: take np.asarray(r)"
            )
        options["out"] = target
    if method == "__call__":
        function = _elementwise(ufunc)
        dtype = options.pop("dtype", None)
        for name in ("where", "casting", "order", "subok"):
            if not isinstance(option := options.pop(name, True), bool | str) or option not in (True, "same_kind", "K"):
                raise TypeError(f"numpy.{ufunc.__name__} of a device array has no option {name}")
        if function is None:
            raise _no_kernel(ufunc.__name__)
        return function(*(inputs if dtype is None else _cast_for(ufunc, inputs, np.dtype(dtype))), **options)
    if method == "at" and ufunc is np.add:
        return indexing.add_at(*inputs)
    if method == "outer" and _elementwise(ufunc) is not None and ufunc.nin == 2:
        first, second = (x if isinstance(x, GpuArray) else creation.asarray(x) for x in inputs)
        lengths = (*first.shape, *(1,) * second.ndim)
        return _elementwise(ufunc)(manipulation.reshape(first, lengths), second, **options)  # type: ignore[misc]
    table = {"reduce": _REDUCED, "accumulate": _ACCUMULATED}.get(method, {})
    if ufunc.__name__ not in table:
        raise _no_kernel(f"{ufunc.__name__}.{method}")
    axis = options.pop("axis", inputs[1] if len(inputs) > 1 else 0)
    given = {k: options.pop(k) for k in ("dtype", "keepdims", "out") if options.get(k) is not None}
    if options.get("where") is True:
        del options["where"]
    _options(f"{ufunc.__name__}.{method}", options)
    if method == "accumulate":
        return _with_out(f"{ufunc.__name__}.accumulate", table[ufunc.__name__])(inputs[0], axis=axis, **given)
    return table[ufunc.__name__](inputs[0], axis=axis, **given)


# Functions


def _host(x: Any) -> Any:
    """Return arguments with copies on the host in place of device arrays."""
    if isinstance(x, GpuArray):
        return x.to_host()
    if isinstance(x, list | tuple):
        return type(x)(map(_host, x))
    return {k: _host(v) for k, v in x.items()} if isinstance(x, dict) else x


_PRINTS_OR_WRITES = (
    np.array2string,
    np.array_repr,
    np.array_str,
    np.save,
    np.savetxt,
    np.savez,
    np.savez_compressed,
)
"""Functions that need values on the host."""


def _without(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that drops options of NumPy's that mean nothing here."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments, **options: function(
            *arguments, **{k: v for k, v in options.items() if k not in names}
        )

    return decorate


def _reduction(function: Callable[..., Any], has_dtype: bool = True) -> Callable[..., Any]:
    """Return a reduction with the parameters of NumPy's function."""

    def reduce(
        x: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, **options: Any
    ) -> Any:
        _options(function.__name__, options)
        more = {"dtype": dtype} if has_dtype else {}
        return function(x, axis=axis, out=out, keepdims=keepdims is True, **more)

    def reduce_without_dtype(x: Any, axis: Any = None, out: Any = None, keepdims: Any = False, **options: Any) -> Any:
        return reduce(x, axis, None, out, keepdims, **options)

    return reduce if has_dtype else reduce_without_dtype


def _deviation(function: Callable[..., Any]) -> Callable[..., Any]:
    def deviate(
        x: Any,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        ddof: float = 0,
        keepdims: Any = False,
        *,
        correction: Any = np._NoValue,
        **options: Any,
    ) -> Any:
        _options(function.__name__, options)
        ddof = ddof if correction is np._NoValue else correction
        return function(
            x if dtype is None else x.astype(dtype), axis=axis, out=out, correction=ddof, keepdims=keepdims is True
        )

    return deviate


def _unique(
    x: GpuArray,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: None = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,
) -> Any:
    if axis is not None:
        raise TypeError("numpy.unique of a device array has no option axis")
    return sorting.unique(x, equal_nan, return_index, return_inverse, return_counts)


def _stacked(function: Callable[..., Any]) -> Callable[..., Any]:
    def stack(arrays: Any, axis: Any = 0, out: Any = None, dtype: Any = None, casting: Any = "same_kind") -> Any:
        result = function(arrays, axis=axis)
        if dtype is not None:
            if not np.can_cast(result.dtype, dtype, casting):
                raise TypeError(f"cannot cast {result.dtype} to {np.dtype(dtype)} with casting rule {casting!r}")
            result = result.astype(dtype, copy=False)
        return result if out is None else assign_result(function.__name__, out, result)

    return stack


def _triangle(symmetric: Callable[[GpuArray], Any]) -> Callable[..., Any]:
    """Return a function of symmetric matrices with NumPy's argument for the triangle that is read."""

    def compute(x: GpuArray, UPLO: str = "L") -> Any:
        if UPLO.upper() not in ("L", "U"):
            raise ValueError("UPLO argument must be 'L' or 'U'")
        return symmetric(x if UPLO.upper() == "L" else x.mT)

    return compute


def _svd(x: GpuArray, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    _options("linalg.svd", {"hermitian": hermitian or None})
    return linalg.svd(x, full_matrices) if compute_uv else linalg.svdvals(x)


def _qr(x: GpuArray, mode: str = "reduced") -> Any:
    return linalg.qr(x).R if mode == "r" else linalg.qr(x, mode)


def _pinv(x: GpuArray, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> GpuArray:
    """A matrix is taken as one that may not be symmetric, also with `hermitian`, which only saves time."""
    return linalg.pinv(x, rtol if rcond is None else rcond)


def _clip(
    x: Any,
    a_min: Any = None,
    a_max: Any = None,
    out: GpuArray | None = None,
    *,
    min: Any = None,
    max: Any = None,
    **options: Any,
) -> GpuArray:
    _options("clip", options)
    return elementwise.clip(x, a_min if min is None else min, a_max if max is None else max, out=out)


def _nan_to_num(x: GpuArray, copy: bool, *values: Any) -> GpuArray:
    names = ("nan", "posinf", "neginf")
    result = extras.nan_to_num(x, **dict(zip(names, values, strict=True)))
    return result if copy else assign_result("nan_to_num", x, result)


def _of_flattened(function: Callable[..., GpuArray], x: GpuArray, axis: int | None) -> GpuArray:
    return function(manipulation.ravel(x)) if axis is None else function(x, axis=axis)


def _same_module() -> dict[Any, Callable[..., Any]]:
    """Return the functions whose parameters are those of NumPy's, by NumPy's function."""
    table: dict[Any, Callable[..., Any]] = {}
    for module, theirs in ((linalg, np.linalg), (fft, np.fft)):
        for name in module.__all__:
            if hasattr(theirs, name) and name not in ("fftfreq", "rfftfreq"):
                table[getattr(theirs, name)] = getattr(module, name)
    for module, names in (
        (
            manipulation,
            (
                "broadcast_arrays broadcast_to concat diagonal expand_dims matrix_transpose moveaxis permute_dims"
                " ravel squeeze swapaxes tile transpose unstack dstack hstack vstack"
            ),
        ),
        (
            sorting,
            (
                "repeat searchsorted take_along_axis unique_all unique_counts unique_inverse unique_values"
                " cumulative_sum cumulative_prod"
            ),
        ),
        (products, "tensordot"),
        (indexing, "nonzero take"),
        (
            extras,
            (
                "allclose angle array_equal atleast_1d atleast_2d average column_stack copyto einsum fliplr flipud"
                " inner isclose kron may_share_memory pad"
            ),
        ),
        (creation, "astype tril triu"),
        (statistics, "bincount cumprod cumsum isin nansum"),
    ):
        for name in names.split():
            if hasattr(np, name):
                table[getattr(np, name)] = getattr(module, name)
    return table


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    **_same_module(),
    np.all: _reduction(reductions.all, has_dtype=False),
    np.amax: _reduction(reductions.max, has_dtype=False),
    np.amin: _reduction(reductions.min, has_dtype=False),
    np.any: _reduction(reductions.any, has_dtype=False),
    np.argmax: _reduction(_with_out("argmax", sorting.argmax), has_dtype=False),
    np.argmin: _reduction(_with_out("argmin", sorting.argmin), has_dtype=False),
    np.argsort: lambda x, axis=-1, kind=None, order=None, stable=None: _of_flattened(sorting.argsort, x, axis),
    np.around: elementwise.round,
    np.array_split: lambda x, sections, axis=0: manipulation.array_split(x, sections, axis=axis),
    np.clip: _clip,
    np.concatenate: _stacked(manipulation.concat),
    np.copy: lambda x, order="K", subok=False: extras.copy(x),
    np.count_nonzero: lambda x, axis=None, *, keepdims=False: reductions.count_nonzero(x, axis=axis, keepdims=keepdims),
    np.diff: lambda x, n=1, axis=-1, prepend=np._NoValue, append=np._NoValue: sorting.diff(
        x, n, axis, *(None if part is np._NoValue else part for part in (prepend, append))
    ),
    np.empty_like: _without("order", "subok")(creation.empty_like),
    np.flip: lambda x, axis=None: manipulation.flip(x, axis=axis),
    np.full_like: _without("order", "subok")(creation.full_like),
    np.imag: elementwise.imag,
    np.iscomplexobj: lambda x: x.dtype.kind == "c",
    np.isrealobj: lambda x: x.dtype.kind != "c",
    np.dot: _with_out("dot", products.dot),
    np.linalg.eigh: _triangle(linalg.eigh),
    np.linalg.eigvalsh: _triangle(linalg.eigvalsh),
    np.linalg.pinv: _pinv,
    np.linalg.qr: _qr,
    np.linalg.svd: _svd,
    np.histogram: statistics.histogram,
    np.nanmax: _reduction(_with_out("nanmax", statistics.nanmax), has_dtype=False),
    np.nanmean: _with_out("nanmean", statistics.nanmean),
    np.nanmin: _reduction(_with_out("nanmin", statistics.nanmin), has_dtype=False),
    np.nanstd: _with_out("nanstd", statistics.nanstd),
    np.nanvar: _with_out("nanvar", statistics.nanvar),
    np.nan_to_num: lambda x, copy=True, nan=0.0, posinf=None, neginf=None: _nan_to_num(x, copy, nan, posinf, neginf),
    np.outer: _with_out("outer", lambda x, y: products.outer(manipulation.ravel(x), manipulation.ravel(y))),
    np.max: _reduction(reductions.max, has_dtype=False),
    np.mean: _reduction(reductions.mean),
    np.median: _with_out(
        "median", lambda x, axis=None, overwrite_input=False, keepdims=False: extras.median(x, axis, keepdims=keepdims)
    ),
    np.meshgrid: lambda *arrays, **options: tuple(manipulation.meshgrid(*arrays, **options)),
    np.min: _reduction(reductions.min, has_dtype=False),
    np.ndim: lambda x: x.ndim,
    np.ones_like: _without("order", "subok")(creation.ones_like),
    np.percentile: lambda x, q, axis=None, keepdims=False: extras.percentile(x, q, axis=axis, keepdims=keepdims),
    np.prod: _reduction(reductions.prod),
    np.ptp: _reduction(_with_out("ptp", extras.ptp), has_dtype=False),
    np.quantile: lambda x, q, axis=None, keepdims=False: extras.quantile(x, q, axis=axis, keepdims=keepdims),
    np.real: elementwise.real,
    np.reshape: lambda x, shape, order="C", *, copy=None: manipulation.reshape(x, shape, copy=copy, order=order),
    np.result_type: result_type,
    np.can_cast: lambda x, to, casting="safe": (
        can_cast(x, to) if casting == "safe" else np.can_cast(x.dtype, to, casting)
    ),
    np.roll: lambda x, shift, axis=None: manipulation.roll(x, shift, axis=axis),
    np.round: elementwise.round,
    np.shape: lambda x: x.shape,
    np.shares_memory: extras.may_share_memory,
    np.size: lambda x, axis=None: x.size if axis is None else x.shape[axis],
    np.sort: lambda x, axis=-1, kind=None, order=None, stable=None: _of_flattened(sorting.sort, x, axis),
    np.split: lambda x, sections, axis=0: manipulation.split(x, sections, axis=axis),
    np.dsplit: manipulation.dsplit,
    np.hsplit: manipulation.hsplit,
    np.vsplit: manipulation.vsplit,
    np.stack: _stacked(manipulation.stack),
    np.std: _deviation(reductions.std),
    np.sum: _reduction(reductions.sum),
    np.trace: lambda x, offset=0, axis1=0, axis2=1, dtype=None, out=None: x.diagonal(offset, axis1, axis2).sum(
        axis=-1, dtype=dtype, out=out
    ),
    np.unique: _unique,
    np.var: _deviation(reductions.var),
    np.where: elementwise.where,
    np.zeros_like: _without("order", "subok")(creation.zeros_like),
}
"""The function of device arrays for each of NumPy's functions."""


def array_function(function: Any, types: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Compute a function of NumPy's; NotImplemented if a class that is neither NumPy's nor this package's takes part.

    Raises `TypeError`: there is no kernel.
    """
    if not all(issubclass(kind, GpuArray | np.ndarray) for kind in types):
        return NotImplemented
    if function in FUNCTIONS:
        return FUNCTIONS[function](*arguments, **options)
    if function in _PRINTS_OR_WRITES:
        return function(*_host(arguments), **_host(options))
    name = f"{function.__module__.removeprefix('numpy').lstrip('.')}.{function.__name__}".lstrip(".")
    raise _no_kernel(name)
