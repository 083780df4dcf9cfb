"""NumPy's names that the namespace does not have, and what takes their place."""

from typing import NoReturn

import numpy as np

_NAMES_HERE = {
    "pytensor_cl.array": {
        "array": "asarray, which copies arrays of the host",
        "frombuffer": "asarray(np.frombuffer(...))",
        "fromiter": "asarray(np.fromiter(...))",
        "load": "asarray(np.load(...))",
        "ndarray": "GpuArray",
        "get": "asnumpy",
        "absolute": "abs",
        "fabs": "abs",
        "power": "pow",
        "float_power": "pow",
        "true_divide": "divide",
        "mod": "remainder",
        "fmod": "remainder, which has the sign of the divisor",
        "invert": "bitwise_invert",
        "bitwise_not": "bitwise_invert",
        "left_shift": "bitwise_left_shift",
        "right_shift": "bitwise_right_shift",
        "amax": "max",
        "amin": "min",
        "conjugate": "conj",
        "rint": "round",
        "fix": "trunc",
        "argwhere": "stack(nonzero(x), axis=-1)",
        "flatnonzero": "nonzero(x.ravel())[0]",
        "row_stack": "vstack",
    }
    | {f"arc{name}": f"a{name}" for name in ("cos", "cosh", "sin", "sinh", "tan", "tan2", "tanh")},
    "pytensor_cl.array.linalg": {"lstsq": "pinv(a) @ b"},
    "pytensor_cl.array.random": {
        "seed": "default_rng(seed)",
        "rand": "default_rng(seed).random(shape)",
        "random_sample": "default_rng(seed).random(shape)",
        "randn": "default_rng(seed).standard_normal(shape)",
        "randint": "default_rng(seed).integers(low, high, shape)",
        "RandomState": "default_rng",
    },
}
_NUMPY = {"pytensor_cl.array": np, "pytensor_cl.array.linalg": np.linalg, "pytensor_cl.array.random": np.random}


def raise_missing(module: str, name: str) -> NoReturn:
    """Raise the `AttributeError` of `module` for `name`, with what takes its place."""
    numpy_module, hint = _NUMPY[module], ""
    if name in _NAMES_HERE[module]:
        hint = f": it is {_NAMES_HERE[module][name]} here"
    elif numpy_module is np.random and hasattr(np.random.Generator, name):
        hint = f": draws are methods of a generator, default_rng(seed).{name}(...)"
    elif not name.startswith("_") and hasattr(numpy_module, name):
        hint = f": on the host it is {numpy_module.__name__.replace('numpy', 'np')}.{name}(np.asarray(x))"
    raise AttributeError(f"module {module!r} has no attribute {name!r}{hint}")
