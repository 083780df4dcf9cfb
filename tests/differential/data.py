"""Values of the arguments: every dtype, awkward numbers, awkward strides."""

import numpy as np

FLOATS = ("float32", "float64", "float16")
COMPLEX = ("complex64", "complex128")
SIGNED = ("int64", "int32", "int8", "int16")
UNSIGNED = ("uint8", "uint64", "uint16", "uint32")
INTEGERS = (*SIGNED, *UNSIGNED)
DTYPES = ("float32", "float64", "float32", *SIGNED, *UNSIGNED, "bool", "float32", "float16", *COMPLEX)

_AWKWARD = {"f": (np.nan, np.inf, -np.inf, -0.0), "c": (complex(np.nan, 1), complex(0, np.inf), complex(-0.0, -0.0))}


def _plain(rng, dtype, shape):
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.random(shape) < 0.5
    if kind in "iu":
        return rng.integers(-9 if kind == "i" else 0, 10, size=shape)
    value = np.asarray(rng.normal(size=shape) * 2)
    value = np.where(rng.random(shape) < 0.3, np.round(value), value)
    return value + 1j * rng.normal(size=shape) if kind == "c" else value


def _awkward(dtype):
    kind = np.dtype(dtype).kind
    if kind in "iu":
        info = np.iinfo(dtype)
        return (info.min, info.max)
    return _AWKWARD.get(kind, (True,))


def draw_values(rng, dtype, shape, wild=False):
    """Return small numbers; `wild` ones have extremes among them: NaN, infinities, the largest integers."""
    value = np.asarray(_plain(rng, dtype, shape)).astype(dtype)
    if wild and value.size:
        chosen = rng.integers(0, value.size, size=max(1, value.size // 4))
        value.reshape(-1)[chosen] = rng.choice(np.array(_awkward(dtype), dtype), size=chosen.size)
    return value


def repeated_along(value, axis):
    """The first element along an axis, repeated with a stride of zero."""
    first = value[(slice(None),) * axis + (slice(0, 1),)]
    return np.broadcast_to(first, value.shape)


def with_other_strides(value, rng):
    """The same values: transposed, reversed, every other element, off the start of their memory."""
    if not value.ndim or (0 in value.strides and value.size > 1):
        return value
    axes = rng.permutation(value.ndim)
    store = np.empty([2 * n + 1 for n in np.asarray(value.shape)[axes]], value.dtype)
    cuts = (slice(None, 2 * n, 2) if rng.random() < 0.5 else slice(2 * n, 0, -2) for n in np.asarray(value.shape)[axes])
    view = store[tuple(cuts)].transpose(np.argsort(axes))
    view[...] = value
    return view
