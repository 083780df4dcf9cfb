"""Elementwise operations: dtypes as NumPy's ufuncs have them, kernels of PyTensor's scalar Ops.

The first call with certain dtypes finds NumPy's loop and makes a `Launcher`; later calls find it in a dictionary.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor
from pytensor import scalar as ps

from pytensor_cl.array.dtypes import narrowed
from pytensor_cl.array.launches import Launcher, copy_into, fill, thread_cache, unaliased
from pytensor_cl.errors import UnsupportedDtype
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.scalar.base import NamedOp, ScalarOp, Unsupported, element_function
from pytensor_cl.scalar.named import NAMED

_NUMBERS = frozenset({bool, int, float, complex})


class Operation(NamedTuple):
    """An elementwise function.

    `name`: the name in messages; `resolve`: takes a dtype, or a class of Python's numbers, for each operand, and
    returns the dtypes that they are computed in, and that of the result; `scalar`: determines the OpenCL C;
    `is_copy_of_ints`: whether integers are returned as they are.
    """

    name: str
    resolve: Callable[[tuple[Any, ...]], tuple[np.dtype, ...]]
    scalar: ScalarOp
    is_copy_of_ints: bool = False


def _of_ufunc(ufunc: np.ufunc) -> Callable[[tuple[Any, ...]], tuple[np.dtype, ...]]:
    """Return the function that finds NumPy's loop."""
    return lambda kinds: ufunc.resolve_dtypes((*kinds, None))


def _of_where(kinds: tuple[Any, ...]) -> tuple[np.dtype, ...]:
    """Return the dtypes of ``where``: the condition keeps its own."""
    examples = [kind if isinstance(kind, np.dtype) else kind(0) for kind in kinds]
    common = np.result_type(*examples[1:])
    return np.result_type(examples[0]), common, common, common


def _of_clip(kinds: tuple[Any, ...]) -> tuple[np.dtype, ...]:
    """Return the dtypes of ``clip``: those of the array and both limits promote."""
    common = np.result_type(*(kind if isinstance(kind, np.dtype) else kind(0) for kind in kinds))
    return common, common, common, common


class Variant(NamedTuple):
    """An operation for fixed classes of operands, on a context.

    `dtype`: dtype of the result; `types`: for each operand that is a number, the NumPy type it is converted to; None
    for arrays; `floatx`: the flag floatX if it determines the dtypes, else empty.
    """

    launcher: Launcher
    dtype: np.dtype
    types: tuple[Any, ...]
    has_numbers: bool
    floatx: str


class NotAnOperand(TypeError):
    """An operand is neither a device array nor a number."""


def number_of(value: Any) -> Any:
    """Return a number of the host as Python's or a NumPy scalar.

    Raises `NotAnOperand`: it is an array of one or more dimensions, or no number.
    """
    if isinstance(value, np.generic):
        return value
    if isinstance(value, bool | int | float | complex):
        return value
    if isinstance(value, np.ndarray):
        if value.ndim == 0:
            return value[()]
        raise NotAnOperand(
            f"an operand is a NumPy array of shape {value.shape}: upload it, pytensor_cl.array.asarray(x), or take the "
            "device array to the host, np.asarray(r)"
        )
    raise NotAnOperand(f"an operand is neither a GpuArray nor a number, but of class {type(value).__name__}")


def _kind_of(number: Any) -> Any:
    """Return what determines the dtypes of an operation with a number: a dtype in a tuple, or a class of Python's."""
    return (number.dtype,) if isinstance(number, np.generic) else type(number)


def different_contexts(name: str, x: GpuArray, y: GpuArray) -> ValueError:
    """Return the error of an operation of arrays on two contexts."""
    first, second = x.context.name, y.context.name
    return ValueError(f"{name} of arrays on {first!r} and {second!r}: move one, y.to_device({first!r})")


def common_context(name: str, arrays: Sequence[GpuArray]) -> Context:
    """Return the context of all arrays of an operation.

    Raises `ValueError`: they are on several.
    """
    first = arrays[0]
    for other in arrays:
        if other.context is not first.context:
            raise different_contexts(name, first, other)
    return first.context


def _resolved(operation: Operation, kinds: tuple[Any, ...], context: Context) -> tuple[tuple[np.dtype, ...], np.dtype]:
    """Return the dtypes of NumPy's loop: those of the inputs, and that of the result."""
    plain = tuple(k[0] if isinstance(k, tuple) else np.dtype(bool) if k is bool else k for k in kinds)
    if operation.is_copy_of_ints and isinstance(plain[0], np.dtype) and plain[0].kind in "iub":
        return (plain[0],), plain[0]
    *inputs, result = (narrowed(dtype, plain, context) for dtype in operation.resolve(plain))
    return tuple(inputs), result


def _variant(operation: Operation, kinds: tuple[Any, ...], context: Context) -> Variant:
    loop, result = _resolved(operation, kinds, context)
    read = tuple(kind if isinstance(kind, np.dtype) else dtype for kind, dtype in zip(kinds, loop, strict=True))
    for dtype in (*loop, result):
        _check_dtype(operation.name, dtype, kinds, context)
    try:
        scalar = operation.scalar if context.info.has_fp64 else _without_fp64(operation, read, loop)
        function = element_function(scalar, tuple(map(str, read)), (str(result),))
    except Unsupported as error:
        raise TypeError(f"{operation.name} of {', '.join(map(str, read))}: {error}") from None
    by_value = tuple(not isinstance(kind, np.dtype) for kind in kinds)
    types = tuple(dtype.type if value else None for dtype, value in zip(read, by_value, strict=True))
    is_of_floats = any(isinstance(kind, np.dtype) and kind.kind in "fc" for kind in kinds)
    follows_flag = not is_of_floats and any(dtype.kind in "fc" for dtype in (*loop, result))
    floatx = pytensor.config.floatX if follows_flag else ""
    return Variant(Launcher(context, function, by_value), result, types, any(by_value), floatx)


def _without_fp64(operation: Operation, read: Sequence[np.dtype], loop: Sequence[np.dtype]) -> ScalarOp:
    """Return the function that is computed in the dtypes `loop`: comparisons of other ones would be in float64."""
    scalar = operation.scalar
    if operation.name not in COMPARISONS or isinstance(scalar, NamedOp) or tuple(read) == tuple(loop):
        return operation.scalar
    operands = [ps.get_scalar_type(str(dtype))() for dtype in read]
    cast = [ps.cast(x, str(dtype)) for x, dtype in zip(operands, loop, strict=True)]
    return ps.Composite(operands, [scalar(*cast)])


def variant_of(operation: Operation, kinds: tuple[Any, ...], context: Context) -> Variant:
    """Return the thread's variant of an operation for operands of these classes."""
    cache = thread_cache()
    key = (context, operation.name, kinds)
    variant = cache.get(key)
    if variant is None or (variant.floatx and variant.floatx != pytensor.config.floatX):
        variant = cache[key] = _variant(operation, kinds, context)
    return variant


def _check_dtype(name: str, dtype: np.dtype, kinds: Sequence[Any], context: Context) -> None:
    """Raise `UnsupportedDtype` if the device cannot compute in a dtype."""
    try:
        context.check_dtype(dtype)
    except UnsupportedDtype as error:
        given = ", ".join(str(k[0]) if isinstance(k, tuple) else getattr(k, "__name__", str(k)) for k in kinds)
        raise UnsupportedDtype(
            f"{name} of {given} is computed in {dtype}, as NumPy does: {error}. Cast an operand, x.astype(...)"
        ) from None


def _broadcast(name: str, operands: Sequence[Any]) -> tuple[int, ...]:
    """Return the common shape of the arrays among the operands."""
    shapes = [x.layout.shape for x in operands if isinstance(x, GpuArray)]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ValueError(
            f"{name}: operands could not be broadcast together with shapes {' '.join(map(str, shapes))}"
        ) from None


def _examined(name: str, operands: Sequence[Any]) -> tuple[Context, tuple[Any, ...], tuple[int, ...] | None]:
    """Return the context of the operands, what determines the dtypes, and the shape of all arrays, None if they differ.

    Raises `NotAnOperand`, or `TypeError`: there is no array among them. Raises `ValueError`: they are on two contexts.
    """
    kinds: list[Any] = []
    first: GpuArray | None = None
    has_one_shape = True
    for operand in operands:
        kind = type(operand)
        if kind is GpuArray:
            kinds.append(operand.dtype)
            if first is None:
                first = operand
            elif operand.context is not first.context:
                raise different_contexts(name, first, operand)
            elif operand.layout.shape != first.layout.shape:
                has_one_shape = False
        else:
            kinds.append(kind if kind in _NUMBERS else _kind_of(number_of(operand)))
    if first is None:
        raise TypeError(f"{name} needs at least one GpuArray among its operands")
    return first.context, tuple(kinds), first.layout.shape if has_one_shape else None


def apply(operation: Operation, operands: Sequence[Any], out: GpuArray | None = None) -> GpuArray:
    """Compute an operation; return the result, or `out`, into which it has been written.

    Raises
    ------
    NotAnOperand
        An operand is neither a device array nor a number.
    ValueError
        The arrays are on several contexts, do not broadcast, or `out` has another shape or is read-only.
    """
    context, kinds, shape = _examined(operation.name, operands)
    variant = variant_of(operation, kinds, context)
    if variant.has_numbers:
        operands, constant = _converted(operation, operands, variant)
        if constant is not None:
            return _constant(operation, operands, constant, context, out)
    if shape is None:
        shape = _broadcast(operation.name, operands)
    if out is not None:
        return _into(operation, variant, operands, shape, out)
    result = context.empty(shape, variant.dtype)
    if result.layout.size:
        variant.launcher.launch(result, operands)
    return result


def _converted(operation: Operation, operands: Sequence[Any], variant: Variant) -> tuple[list[Any], bool | None]:
    """Return the operands with NumPy scalars for numbers, and the truth of a comparison that is always the same.

    Raises `OverflowError`: a Python integer is out of the bounds of the dtype.
    """
    converted: list[Any] = []
    for operand, kind in zip(operands, variant.types, strict=True):
        if kind is None:
            converted.append(operand)
            continue
        value = operand if type(operand) in _NUMBERS else number_of(operand)
        try:
            converted.append(kind(value))
        except OverflowError:
            if operation.name not in COMPARISONS:
                raise OverflowError(
                    f"{operation.name}: the Python integer {value} is out of bounds for {np.dtype(kind)}"
                ) from None
            # All numbers of the dtype compare in the same way with a number outside its range.
            sides = [value if k is not None else np.dtype(kind).type(0).item() for k in variant.types]
            return list(operands), COMPARISONS[operation.name](*sides)
    return converted, None


def _constant(
    operation: Operation, operands: Sequence[Any], value: bool, context: Any, out: GpuArray | None
) -> GpuArray:
    result = context.empty(_broadcast(operation.name, operands), np.dtype(bool))
    fill(result, np.bool_(value))
    return result if out is None else assign_result(operation.name, out, result)


def check_writable(array: GpuArray) -> None:
    """Raise NumPy's error if an array may not be written.

    Raises `ValueError`: it is read-only, or several of its elements are in the same place.
    """
    if array.readonly:
        raise ValueError("assignment destination is read-only: take a copy, x.copy()")
    layout = array.layout
    if 0 not in layout.strides or not layout.size:
        return
    if any(step == 0 and n > 1 for n, step in zip(layout.shape, layout.strides, strict=True)):
        raise ValueError(
            "assignment destination is read-only: several of its elements are in the same place, as broadcast_to makes "
            "them; take a copy, x.copy()"
        )


def _check_out(name: str, out: Any, shape: tuple[int, ...], dtype: np.dtype, context: Any) -> None:
    if not isinstance(out, GpuArray):
        raise TypeError(f"{name}: out must be a GpuArray, not {type(out).__name__}")
    if out.context is not context:
        raise ValueError(f"{name}: out is on {out.context.name!r}, the operands are on {context.name!r}")
    check_writable(out)
    if out.shape != shape:
        raise ValueError(f"{name}: out has shape {out.shape}, the result has shape {shape}")
    if dtype != out.dtype and not np.can_cast(dtype, out.dtype, "same_kind"):
        raise TypeError(
            f"{name}: cannot cast the result from {dtype} to {out.dtype} with casting rule 'same_kind': cast it "
            f"yourself, x.astype({str(out.dtype)!r})"
        )


def assign_result(name: str, out: GpuArray, result: GpuArray) -> GpuArray:
    """Write a result into `out`, which a caller has passed for it.

    Raises `TypeError` or `ValueError`: `out` has another shape or context, an incompatible dtype, or is read-only.
    """
    _check_out(name, out, result.shape, result.dtype, result.context)
    copy_into(out, result)
    return out


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Return whether an array of a shape broadcasts to another shape."""
    last = target[len(target) - len(shape) :]
    return len(shape) <= len(target) and all(n in (1, m) for n, m in zip(shape, last, strict=True))


def _into(
    operation: Operation, variant: Variant, operands: Sequence[Any], shape: tuple[int, ...], out: GpuArray
) -> GpuArray:
    first = next(x for x in operands if isinstance(x, GpuArray))
    if isinstance(out, GpuArray) and shape != out.shape and _broadcasts(shape, out.shape):
        shape = out.shape  # as NumPy, which repeats a result that is smaller
    _check_out(operation.name, out, shape, variant.dtype, first.context)
    if not out.layout.size:
        return out
    if out.dtype != variant.dtype:
        result = first.context.empty(shape, variant.dtype)
        variant.launcher.launch(result, operands)
        copy_into(out, result)
        return out
    variant.launcher.launch(out, [unaliased(x, out) if isinstance(x, GpuArray) else x for x in operands])
    return out


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}
"""Comparisons, and their meaning for Python's numbers."""

OPERATIONS: dict[str, Operation] = (
    {
        name: Operation(name, _of_ufunc(ufunc), scalar)
        for name, ufunc, scalar in (
            ("abs", np.absolute, ps.abs),
            ("acos", np.arccos, ps.arccos),
            ("acosh", np.arccosh, ps.arccosh),
            ("add", np.add, ps.add),
            ("asin", np.arcsin, ps.arcsin),
            ("asinh", np.arcsinh, ps.arcsinh),
            ("atan", np.arctan, ps.arctan),
            ("atan2", np.arctan2, ps.arctan2),
            ("atanh", np.arctanh, ps.arctanh),
            ("bitwise_and", np.bitwise_and, ps.and_),
            ("bitwise_invert", np.invert, ps.invert),
            ("bitwise_left_shift", np.left_shift, NAMED["bitwise_left_shift"]),
            ("bitwise_or", np.bitwise_or, ps.or_),
            ("bitwise_right_shift", np.right_shift, NAMED["bitwise_right_shift"]),
            ("bitwise_xor", np.bitwise_xor, ps.xor),
            ("conj", np.conjugate, ps.conj),
            ("copysign", np.copysign, NAMED["copysign"]),
            ("cos", np.cos, ps.cos),
            ("cosh", np.cosh, ps.cosh),
            ("divide", np.true_divide, ps.true_div),
            ("equal", np.equal, ps.eq),
            ("exp", np.exp, ps.exp),
            ("exp2", np.exp2, ps.exp2),
            ("expm1", np.expm1, ps.expm1),
            ("floor_divide", np.floor_divide, ps.int_div),
            ("greater", np.greater, ps.gt),
            ("greater_equal", np.greater_equal, ps.ge),
            ("hypot", np.hypot, NAMED["hypot"]),
            ("isfinite", np.isfinite, NAMED["isfinite"]),
            ("isinf", np.isinf, ps.isinf),
            ("isnan", np.isnan, ps.isnan),
            ("less", np.less, ps.lt),
            ("less_equal", np.less_equal, ps.le),
            ("log", np.log, ps.log),
            ("log10", np.log10, ps.log10),
            ("log1p", np.log1p, ps.log1p),
            ("log2", np.log2, ps.log2),
            ("logaddexp", np.logaddexp, NAMED["logaddexp"]),
            ("logical_and", np.logical_and, ps.and_),
            ("logical_not", np.logical_not, ps.invert),
            ("logical_or", np.logical_or, ps.or_),
            ("logical_xor", np.logical_xor, ps.xor),
            ("maximum", np.maximum, ps.maximum),
            ("minimum", np.minimum, ps.minimum),
            ("multiply", np.multiply, ps.mul),
            ("negative", np.negative, ps.neg),
            ("nextafter", np.nextafter, NAMED["nextafter"]),
            ("not_equal", np.not_equal, ps.neq),
            ("positive", np.positive, ps.identity),
            ("pow", np.power, ps.pow),
            ("reciprocal", np.reciprocal, ps.reciprocal),
            ("remainder", np.remainder, ps.mod),
            ("sign", np.sign, ps.sign),
            ("signbit", np.signbit, NAMED["signbit"]),
            ("sin", np.sin, ps.sin),
            ("sinh", np.sinh, ps.sinh),
            ("sqrt", np.sqrt, ps.sqrt),
            ("square", np.square, ps.sqr),
            ("subtract", np.subtract, ps.sub),
            ("tan", np.tan, ps.tan),
            ("tanh", np.tanh, ps.tanh),
        )
    }
    | {
        name: Operation(name, _of_ufunc(ufunc), scalar, is_copy_of_ints=True)
        for name, ufunc, scalar in (
            ("ceil", np.ceil, NAMED["ceil"]),
            ("floor", np.floor, NAMED["floor"]),
            ("round", np.rint, NAMED["round"]),
            ("trunc", np.trunc, NAMED["trunc"]),
        )
    }
    | {
        "clip": Operation("clip", _of_clip, NAMED["clip"]),
        "where": Operation("where", _of_where, ps.switch),
    }
)
"""The functions of one or two operands that have a name of the array API standard, or one of NumPy's besides."""
