"""First values of weights: random arrays whose scale follows from the numbers of inputs and outputs."""

import math
from collections.abc import Sequence

import numpy as np
import pytensor

GAINS = {"linear": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2), "selu": 0.75}
"""Gains by the name of the function that follows, with PyTorch's factors."""
LAYOUTS = {"io": (0, 1), "oi": (1, 0), "oi...": (1, 0), "io...": (0, 1), "...io": (-2, -1)}
"""The axes of inputs and outputs."""


def _axes(shape: tuple[int, ...], layout: str | None) -> tuple[int, int]:
    """Return the axes of inputs and outputs."""
    if len(shape) < 2:
        raise ValueError(f"the shape {shape} has no inputs and outputs; initialisers by fans need two dimensions")
    if layout is None:
        if len(shape) > 2:
            raise ValueError(f"layout is needed for the shape {shape}: 'oi...' for filters (outputs, inputs, ...)")
        layout = "io"
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}; got {layout!r}")
    if len(shape) > 2 and "." not in layout:
        raise ValueError(f"layout {layout!r} has two dimensions, the shape {shape} has {len(shape)}")
    return LAYOUTS[layout]


def _fans(shape: tuple[int, ...], layout: str | None) -> tuple[int, int]:
    """Return the numbers of inputs and outputs of an element of the result; further axes count in both."""
    inputs, outputs = _axes(shape, layout)
    size = math.prod(shape)
    return size // max(shape[outputs], 1), size // max(shape[inputs], 1)


def _gain(gain: float | str) -> float:
    if isinstance(gain, str):
        if gain not in GAINS:
            raise ValueError(f"gain must be a number or one of {', '.join(GAINS)}; got {gain!r}")
        return GAINS[gain]
    return float(gain)


def _shape_of(shape: int | Sequence[int]) -> tuple[int, ...]:
    return tuple(int(n) for n in (shape if isinstance(shape, Sequence) else (shape,)))


def _draw(rng: np.random.Generator, method: str, scale: float, shape: tuple[int, ...], dtype: str | None) -> np.ndarray:
    """Return draws of mean 0 and deviation `scale`, drawn in float64, so that all dtypes get the same numbers."""
    if not isinstance(rng, np.random.Generator):
        raise TypeError(f"rng must be a numpy.random.Generator, as default_rng(seed) returns it; got {rng!r}")
    if method == "normal":
        return _cast(rng.normal(0.0, scale, shape), dtype)
    limit = math.sqrt(3) * scale
    return _cast(rng.uniform(-limit, limit, shape), dtype)


def _cast(values: np.ndarray, dtype: str | None) -> np.ndarray:
    dtype = pytensor.config.floatX if dtype is None else str(np.dtype(dtype))
    if not dtype.startswith("float"):
        raise TypeError(f"weights are floating-point numbers; got dtype={dtype!r}")
    return np.asarray(values, dtype)


def _scaled(
    rng: np.random.Generator, method: str, variance: float, shape: tuple[int, ...], dtype: str | None
) -> np.ndarray:
    return _draw(rng, method, math.sqrt(variance), shape, dtype)


def glorot_uniform(
    rng: np.random.Generator,
    shape: Sequence[int],
    *,
    gain: float | str = 1.0,
    layout: str | None = None,
    dtype: str | None = None,
) -> np.ndarray:
    """Return uniform numbers of variance gain^2 2 / (inputs + outputs); PyTorch's ``xavier_uniform_``.

    Parameters
    ----------
    rng
        A generator of NumPy.
    shape
        The shape of the weights.
    gain
        A factor, or the name of the function that follows: "relu", "tanh", "sigmoid", "selu", "linear".
    layout
        The order of axes: "io" (inputs, outputs), which matrices have by default, for ``x @ w``; "oi" for `linear`;
        "oi..." for filters of convolutions; "io..." for filters of transposed convolutions; "...io" for channels last.
    dtype
        dtype of the result; None: floatX.
    """
    shape = _shape_of(shape)
    return _scaled(rng, "uniform", _gain(gain) ** 2 * 2 / max(sum(_fans(shape, layout)), 1), shape, dtype)


def glorot_normal(
    rng: np.random.Generator,
    shape: Sequence[int],
    *,
    gain: float | str = 1.0,
    layout: str | None = None,
    dtype: str | None = None,
) -> np.ndarray:
    """Return normal numbers of variance gain^2 2 / (inputs + outputs); PyTorch's ``xavier_normal_``.

    Parameters
    ----------
    rng, shape, gain, layout, dtype
        The same as for `glorot_uniform`.
    """
    shape = _shape_of(shape)
    return _scaled(rng, "normal", _gain(gain) ** 2 * 2 / max(sum(_fans(shape, layout)), 1), shape, dtype)


def he_uniform(
    rng: np.random.Generator,
    shape: Sequence[int],
    *,
    gain: float | str = "relu",
    layout: str | None = None,
    dtype: str | None = None,
) -> np.ndarray:
    """Return uniform numbers of variance gain^2 / inputs; PyTorch's ``kaiming_uniform_``.

    Parameters
    ----------
    rng, shape, gain, layout, dtype
        The same as for `glorot_uniform`. The gain is the root of 2 by default, as PyTorch's; Lasagne's is 1.
    """
    shape = _shape_of(shape)
    return _scaled(rng, "uniform", _gain(gain) ** 2 / max(_fans(shape, layout)[0], 1), shape, dtype)


def he_normal(
    rng: np.random.Generator,
    shape: Sequence[int],
    *,
    gain: float | str = "relu",
    layout: str | None = None,
    dtype: str | None = None,
) -> np.ndarray:
    """Return normal numbers of variance gain^2 / inputs; PyTorch's ``kaiming_normal_``.

    Parameters
    ----------
    rng, shape, gain, layout, dtype
        The same as for `glorot_uniform`. The gain is the root of 2 by default, as PyTorch's; Lasagne's is 1.
    """
    shape = _shape_of(shape)
    return _scaled(rng, "normal", _gain(gain) ** 2 / max(_fans(shape, layout)[0], 1), shape, dtype)


def lecun_uniform(
    rng: np.random.Generator,
    shape: Sequence[int],
    *,
    gain: float | str = 1.0,
    layout: str | None = None,
    dtype: str | None = None,
) -> np.ndarray:
    """Return uniform numbers of variance gain^2 / inputs.

    Parameters
    ----------
    rng, shape, gain, layout, dtype
        The same as for `glorot_uniform`.
    """
    return he_uniform(rng, shape, gain=gain, layout=layout, dtype=dtype)


def lecun_normal(
    rng: np.random.Generator,
    shape: Sequence[int],
    *,
    gain: float | str = 1.0,
    layout: str | None = None,
    dtype: str | None = None,
) -> np.ndarray:
    """Return normal numbers of variance gain^2 / inputs, for `selu`; Keras cuts them off at two deviations.

    Parameters
    ----------
    rng, shape, gain, layout, dtype
        The same as for `glorot_uniform`.
    """
    return he_normal(rng, shape, gain=gain, layout=layout, dtype=dtype)


def orthogonal(
    rng: np.random.Generator,
    shape: Sequence[int],
    *,
    gain: float | str = 1.0,
    layout: str | None = None,
    dtype: str | None = None,
) -> np.ndarray:
    """Return `gain` times a random matrix with orthonormal rows or columns (Saxe et al. 2014), whichever are fewer.

    Weights of more dimensions are matrices of the outputs and all other axes. It is the Q of a QR decomposition of
    normal numbers, with the signs of the diagonal of R, so that all rotations are equally likely.

    Parameters
    ----------
    rng, shape, gain, layout, dtype
        The same as for `glorot_uniform`.
    """
    shape = _shape_of(shape)
    _, outputs = _axes(shape, layout)
    moved = tuple(np.moveaxis(np.empty(shape, "bool"), outputs, 0).shape)
    rows, columns = moved[0], math.prod(moved[1:])
    draws = _draw(rng, "normal", 1.0, (max(rows, columns), min(rows, columns)), "float64")
    q, r = np.linalg.qr(draws)
    q = q * np.where(np.diagonal(r) < 0, -1.0, 1.0)
    matrix = q if rows >= columns else q.T
    return _cast(np.ascontiguousarray(np.moveaxis(_gain(gain) * matrix.reshape(moved), 0, outputs)), dtype)


def normal(
    rng: np.random.Generator,
    shape: int | Sequence[int],
    *,
    mean: float = 0.0,
    std: float = 1.0,
    dtype: str | None = None,
) -> np.ndarray:
    """Return normal numbers; PyTorch's ``normal_``.

    Parameters
    ----------
    rng, shape, dtype
        The same as for `glorot_uniform`.
    mean
        Their mean.
    std
        Their standard deviation; Lasagne's default is 0.01.
    """
    return _cast(mean + _draw(rng, "normal", std, _shape_of(shape), "float64"), dtype)


def uniform(
    rng: np.random.Generator,
    shape: int | Sequence[int],
    *,
    low: float = 0.0,
    high: float = 1.0,
    dtype: str | None = None,
) -> np.ndarray:
    """Return uniform numbers; PyTorch's ``uniform_``.

    Parameters
    ----------
    rng, shape, dtype
        The same as for `glorot_uniform`.
    low, high
        The limits; Lasagne's defaults are -0.01 and 0.01.
    """
    if not high >= low:
        raise ValueError(f"high must not be less than low; got {low} and {high}")
    middle, deviation = (low + high) / 2, (high - low) / math.sqrt(12)
    return _cast(middle + _draw(rng, "uniform", deviation, _shape_of(shape), "float64"), dtype)


def constant(
    rng: np.random.Generator | None, shape: int | Sequence[int], *, value: float = 0.0, dtype: str | None = None
) -> np.ndarray:
    """Return equal numbers; `rng` is not used, it is there so that initialisers can replace each other.

    Parameters
    ----------
    rng, shape, dtype
        The same as for `glorot_uniform`.
    value
        The number.
    """
    return _cast(np.full(_shape_of(shape), value, "float64"), dtype)
