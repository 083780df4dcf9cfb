"""Functions that the tests of matrix products and of matrix-vector products share."""

import numpy as np

FLOATS = ("float32", "float64")
_routines = {}


def maker(context, schedule):
    """Return what builds a routine, once in the whole session."""

    def get(kind, dtype, **flags):
        key = (context.name, schedule, kind, str(dtype), *sorted(flags.items()))
        if key not in _routines:
            _routines[key] = kind(context, dtype, schedule=schedule, **flags)
        return _routines[key]

    return get


def draw(rng, dtype, *shape):
    """Random numbers: normal ones, or any integers of the dtype."""
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


def check(got, alpha, a, b, beta=0, c=None):
    """Compare ``alpha * a @ b + beta * c`` with NumPy, in float64, to within the rounding of the sums."""
    wide = [np.asarray(x, "float64") for x in (alpha, a, b)]
    expected = wide[0] * (wide[1] @ wide[2])
    bound = abs(wide[0]) * (abs(wide[1]) @ abs(wide[2]))
    if c is not None:
        expected, bound = expected + beta * c.astype("float64"), bound + abs(beta * c)
    got = np.asarray(got)
    assert got.shape == expected.shape
    assert np.all(abs(got - expected) <= (a.shape[-1] + 8) * np.finfo(got.dtype).eps * bound)
