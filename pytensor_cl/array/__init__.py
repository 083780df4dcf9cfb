"""Functions of device arrays, after the Python array API standard 2024.12.

Use it as NumPy: ``import pytensor_cl.array as xp``. Functions return at once; the device computes in the background.
"""

from math import e, inf, nan, pi

from pytensor_cl.array.creation import (
    arange,
    asarray,
    astype,
    empty,
    empty_like,
    eye,
    full,
    full_like,
    ones,
    ones_like,
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
    bitwise_or,
    bitwise_xor,
    ceil,
    clip,
    conj,
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
    imag,
    isinf,
    isnan,
    less,
    less_equal,
    log,
    log1p,
    log2,
    log10,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    multiply,
    negative,
    not_equal,
    positive,
    pow,
    real,
    reciprocal,
    remainder,
    round,
    sign,
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
from pytensor_cl.array.info import __array_namespace_info__
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.registry import sync

__array_api_version__ = "2024.12"
newaxis = None

__all__ = sorted(name for name in globals() if not name.startswith("_") and name not in {"elementwise", "annotations"})
