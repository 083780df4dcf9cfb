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
)
from pytensor_cl.array.dispatch import OPERATIONS
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
        result = function(*inputs, **options)
        return result if dtype is None else result.astype(dtype, copy=False)
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
    options = {k: v for k, v in options.items() if k in ("dtype", "keepdims", "out") and v is not None}
    return table[ufunc.__name__](inputs[0], axis=axis, **options)


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
        options = {k: v for k, v in options.items() if v is not np._NoValue}
        if options:
            raise TypeError(f"numpy.{function.__name__} of a device array has no option {next(iter(options))}")
        more = {"dtype": dtype} if has_dtype else {}
        return function(x, axis=axis, out=out, keepdims=keepdims is True, **more)

    def reduce_without_dtype(x: Any, axis: Any = None, out: Any = None, keepdims: Any = False, **options: Any) -> Any:
        return reduce(x, axis, None, out, keepdims, **options)

    return reduce if has_dtype else reduce_without_dtype


def _deviation(function: Callable[..., Any]) -> Callable[..., Any]:
    def deviate(
        x: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: Any = False
    ) -> Any:
        return function(
            x if dtype is None else x.astype(dtype), axis=axis, out=out, correction=ddof, keepdims=keepdims is True
        )

    return deviate


def _norm(x: GpuArray, ord: Any = None, axis: Any = None, keepdims: bool = False) -> GpuArray:
    is_matrix = (axis is None and x.ndim == 2 and ord is not None) or (isinstance(axis, tuple) and len(axis) == 2)
    if not is_matrix:
        return linalg.vector_norm(x, axis=axis, keepdims=keepdims, ord=2 if ord is None else ord)
    if isinstance(axis, tuple) and tuple(a % x.ndim for a in axis) != (x.ndim - 2, x.ndim - 1):
        x = manipulation.moveaxis(x, axis, (-2, -1))
    return linalg.matrix_norm(x, keepdims=keepdims, ord="fro" if ord is None else ord)


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
    found = sorting.unique(x, equal_nan, return_index, return_inverse, return_counts)
    return found[0] if len(found) == 1 else found


def _stacked(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda arrays, axis=0, out=None, **_: function(arrays, axis=axis)


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
        (products, "dot outer tensordot"),
        (indexing, "nonzero take"),
        (
            extras,
            (
                "allclose angle array_equal atleast_1d atleast_2d average column_stack copyto einsum fliplr flipud"
                " inner isclose kron may_share_memory nan_to_num pad"
            ),
        ),
        (creation, "astype tril triu"),
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
    np.argmax: lambda x, axis=None, out=None, keepdims=False: sorting.argmax(x, axis=axis, keepdims=keepdims is True),
    np.argmin: lambda x, axis=None, out=None, keepdims=False: sorting.argmin(x, axis=axis, keepdims=keepdims is True),
    np.argsort: lambda x, axis=-1, kind=None, order=None, stable=None: sorting.argsort(x, axis=axis),
    np.around: lambda x, decimals=0, out=None: elementwise.round_to(x, decimals),
    np.array_split: lambda x, sections, axis=0: manipulation.array_split(x, sections, axis=axis),
    np.clip: lambda x, a_min=None, a_max=None, out=None, **more: elementwise.clip(
        x, more.get("min", a_min), more.get("max", a_max), out=out
    ),
    np.concatenate: _stacked(manipulation.concat),
    np.copy: lambda x, order="K", subok=False: extras.copy(x),
    np.count_nonzero: lambda x, axis=None, *, keepdims=False: reductions.count_nonzero(x, axis=axis, keepdims=keepdims),
    np.cumprod: lambda x, axis=None, dtype=None, out=None: x.cumprod(axis, dtype),
    np.cumsum: lambda x, axis=None, dtype=None, out=None: x.cumsum(axis, dtype),
    np.diff: lambda x, n=1, axis=-1: sorting.diff(x, n=n, axis=axis),
    np.empty_like: _without("order", "subok")(creation.empty_like),
    np.flip: lambda x, axis=None: manipulation.flip(x, axis=axis),
    np.full_like: _without("order", "subok")(creation.full_like),
    np.imag: elementwise.imag,
    np.iscomplexobj: lambda x: x.dtype.kind == "c",
    np.isrealobj: lambda x: x.dtype.kind != "c",
    np.linalg.norm: _norm,
    np.max: _reduction(reductions.max, has_dtype=False),
    np.mean: _reduction(reductions.mean),
    np.median: lambda x, axis=None, out=None, overwrite_input=False, keepdims=False: extras.median(
        x, axis=axis, keepdims=keepdims
    ),
    np.meshgrid: lambda *arrays, **options: tuple(manipulation.meshgrid(*arrays, **options)),
    np.min: _reduction(reductions.min, has_dtype=False),
    np.ndim: lambda x: x.ndim,
    np.ones_like: _without("order", "subok")(creation.ones_like),
    np.percentile: lambda x, q, axis=None, keepdims=False: extras.percentile(x, q, axis=axis, keepdims=keepdims),
    np.prod: _reduction(reductions.prod),
    np.ptp: lambda x, axis=None, out=None, keepdims=False: extras.ptp(x, axis=axis, keepdims=keepdims is True),
    np.quantile: lambda x, q, axis=None, keepdims=False: extras.quantile(x, q, axis=axis, keepdims=keepdims),
    np.real: elementwise.real,
    np.reshape: lambda x, shape, order="C", *, copy=None: manipulation.reshape(x, shape, copy=copy),
    np.result_type: result_type,
    np.can_cast: lambda x, to, casting="safe": (
        can_cast(x, to) if casting == "safe" else np.can_cast(x.dtype, to, casting)
    ),
    np.roll: lambda x, shift, axis=None: manipulation.roll(x, shift, axis=axis),
    np.round: lambda x, decimals=0, out=None: elementwise.round_to(x, decimals),
    np.shape: lambda x: x.shape,
    np.shares_memory: extras.may_share_memory,
    np.size: lambda x, axis=None: x.size if axis is None else x.shape[axis],
    np.sort: lambda x, axis=-1, kind=None, order=None, stable=None: (
        sorting.sort(manipulation.ravel(x)) if axis is None else sorting.sort(x, axis=axis)
    ),
    np.split: lambda x, sections, axis=0: manipulation.split(x, sections, axis=axis),
    np.dsplit: manipulation.dsplit,
    np.hsplit: manipulation.hsplit,
    np.vsplit: manipulation.vsplit,
    np.stack: _stacked(manipulation.stack),
    np.std: _deviation(reductions.std),
    np.sum: _reduction(reductions.sum),
    np.trace: lambda x, offset=0, axis1=0, axis2=1, dtype=None, out=None: x.trace(offset, axis1, axis2),
    np.unique: _unique,
    np.var: _deviation(reductions.var),
    np.where: elementwise.where,
    np.zeros_like: _without("order", "subok")(creation.zeros_like),
}
"""What NumPy's functions are of device arrays."""


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
