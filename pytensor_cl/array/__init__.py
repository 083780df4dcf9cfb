"""Functions of device arrays, after the Python array API standard 2024.12.

Use it as NumPy: ``import pytensor_cl.array as xp``. Functions return at once; the device computes in the background.
"""

import typing
from math import e, inf, nan, pi
from types import ModuleType as _ModuleType

from pytensor_cl.array import blas, fft, linalg, numpy_names, random
from pytensor_cl.array.creation import (
    arange,
    asarray,
    astype,
    empty,
    empty_like,
    eye,
    full,
    full_like,
    linspace,
    ones,
    ones_like,
    tril,
    triu,
    zeros,
    zeros_like,
)
from pytensor_cl.array.device import Device, device, to_device
from pytensor_cl.array.dtypes import (
    bool,
    can_cast,
    complex64,
    complex128,
    finfo,
    float16,
    float32,
    float64,
    iinfo,
    int8,
    int16,
    int32,
    int64,
    isdtype,
    result_type,
    uint8,
    uint16,
    uint32,
    uint64,
)
from pytensor_cl.array.elementwise import (
    abs,
    acos,
    acosh,
    add,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    ceil,
    clip,
    conj,
    copysign,
    cos,
    cosh,
    divide,
    equal,
    exp,
    exp2,
    expm1,
    floor,
    floor_divide,
    greater,
    greater_equal,
    hypot,
    imag,
    isfinite,
    isinf,
    isnan,
    less,
    less_equal,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    multiply,
    negative,
    nextafter,
    not_equal,
    positive,
    pow,
    real,
    reciprocal,
    remainder,
    round,
    sign,
    signbit,
    sin,
    sinh,
    sqrt,
    square,
    subtract,
    tan,
    tanh,
    trunc,
    where,
)
from pytensor_cl.array.extras import (
    allclose,
    angle,
    array_equal,
    asnumpy,
    atleast_1d,
    atleast_2d,
    average,
    column_stack,
    copy,
    copyto,
    einsum,
    fliplr,
    flipud,
    inner,
    isclose,
    kron,
    may_share_memory,
    median,
    nan_to_num,
    pad,
    percentile,
    ptp,
    quantile,
)
from pytensor_cl.array.indexing import add_at, nonzero, take
from pytensor_cl.array.info import __array_namespace_info__
from pytensor_cl.array.manipulation import (
    array_split,
    ascontiguousarray,
    asfortranarray,
    broadcast_arrays,
    broadcast_shapes,
    broadcast_to,
    concat,
    concatenate,
    diagonal,
    dsplit,
    dstack,
    expand_dims,
    flip,
    hsplit,
    hstack,
    matrix_transpose,
    meshgrid,
    moveaxis,
    permute_dims,
    ravel,
    reshape,
    roll,
    split,
    squeeze,
    stack,
    swapaxes,
    tile,
    transpose,
    unstack,
    vsplit,
    vstack,
)
from pytensor_cl.array.prepare import prepare
from pytensor_cl.array.printing import printoptions, set_printoptions
from pytensor_cl.array.products import dot, matmul, outer, tensordot, vecdot
from pytensor_cl.array.reductions import all, any, count_nonzero, max, mean, min, prod, std, sum, var
from pytensor_cl.array.sorting import (
    argmax,
    argmin,
    argsort,
    cumulative_prod,
    cumulative_sum,
    diff,
    repeat,
    searchsorted,
    sort,
    take_along_axis,
    unique,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
)
from pytensor_cl.array.statistics import (
    bincount,
    cumprod,
    cumsum,
    histogram,
    isin,
    nanmax,
    nanmean,
    nanmin,
    nanstd,
    nansum,
    nanvar,
)
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.interchange import from_buffer, from_dlpack, from_pyopencl
from pytensor_cl.runtime.registry import sync

__array_api_version__ = "2024.12"
newaxis = None

_PARTS = {"blas", "fft", "linalg", "random"}
__all__ = sorted(
    name
    for name, value in globals().items()
    if not name.startswith("_") and (name in _PARTS or not isinstance(value, _ModuleType))
)

if not typing.TYPE_CHECKING:  # with it, type checkers would take every name for one of this module

    def __getattr__(name: str) -> typing.NoReturn:
        numpy_names.raise_missing(__name__, name)
