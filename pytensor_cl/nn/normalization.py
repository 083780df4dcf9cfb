"""Normalisation of batches, layers, groups of channels, images and neighbouring channels."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.lib.array_utils import normalize_axis_tuple
from pytensor.graph.basic import Variable
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar import upcast
from pytensor.tensor.variable import TensorVariable

from pytensor_cl.nn.arguments import as_floats
from pytensor_cl.nn.batch_normalization import (
    BatchNormalization,
    GivenNormalization,
    RunningBatchNormalization,
    align,
    compact,
)
from pytensor_cl.nn.composed import cast
from pytensor_cl.nn.standardize import Normalization, WindowSum, working_dtype
from pytensor_cl.nn.windows import as_flag, as_ints, as_variable


def _as_number(value: Any, function: str, name: str, least: float = 0.0, is_open: bool = True) -> float:
    """Return a number that is larger than `least`, or equal to it if the interval is not open there."""
    kind = f"a number {'larger than' if is_open else 'from'} {least:g}"
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not is_number and not (isinstance(value, np.ndarray) and value.ndim == 0):
        hint = ": it has to be known when the graph is built" if isinstance(value, Variable) else ""
        raise TypeError(f"{function}: {name} must be {kind}, not {value!r}{hint}")
    if not (value > least or (value == least and not is_open)) or np.isinf(value):
        raise ValueError(f"{function}: {name} must be {kind}, not {value!r}")
    return float(value)


def _checked(value: Variable, function: str, text: str, *conditions: Variable) -> Variable:
    """Return a value whose computation raises `ValueError` where a condition does not hold."""
    return CheckAndRaise(ValueError, f"{function}: {text}")(value, *conditions)


def _with_lengths(parameter: Variable, function: str, name: str, dims: Sequence[int], x: Variable) -> Variable:
    """Return a parameter whose dimensions have the lengths of the dimensions `dims` of x.

    Raises `ValueError`: static lengths differ. Of lengths that are not known the arithmetic that follows reports those
    that differ, except a static one, which it would broadcast.
    """
    given = parameter.type.shape
    _check_lengths(function, name, given, dims, x)
    broadcast = [pt.eq(x.shape[d], 1) for d, n in zip(dims, given, strict=True) if n == 1 and x.type.shape[d] is None]
    text = f"{name} has the lengths {given}, but the input's dimensions {tuple(dims)} have others"
    return _checked(parameter, function, text, *broadcast) if broadcast else parameter


def _check_lengths(function: str, name: str, given: Sequence[int | None], dims: Sequence[int], x: Variable) -> None:
    """Refuse static lengths that are not those of the dimensions `dims` of x."""
    wanted = tuple(x.type.shape[d] for d in dims)
    if any(None not in (n, m) and n != m for n, m in zip(given, wanted, strict=True)):
        raise ValueError(
            f"{function}: {name} has the lengths {tuple(given)}, but the input's dimensions {tuple(dims)} have {wanted}"
        )


def _normalized(
    x: Variable,
    axes: Sequence[int],
    parameters: Sequence[Variable | None],
    epsilon: float,
    is_centred: bool = True,
) -> Variable:
    """Return x, normalised along some axes; `parameters` are the scale and the shift, with the dimensions of x."""
    given = [p for p in parameters if p is not None]
    op = Normalization(
        axes=tuple(axes),
        epsilon=epsilon,
        is_centred=is_centred,
        has_scale=parameters[0] is not None,
        has_shift=parameters[1] is not None,
        dtype=upcast(x.type.dtype, *(p.type.dtype for p in given)),
    )
    return op(x, *given, return_list=True)[0]


# Batch normalisation


def _batch_axes(function: str, axes: Any, ndim: int) -> tuple[int, ...]:
    """Return the axes that are normalised, sorted."""
    if isinstance(axes, str):
        if axes not in ("per-activation", "spatial"):
            raise ValueError(
                f"{function}: axes must be 'per-activation', 'spatial' or a tuple of dimensions, not {axes!r}"
            )
        if axes == "spatial" and ndim < 2:
            raise ValueError(f"{function}: 'spatial' needs an input of two dimensions or more, not {ndim}")
        given: Any = (0,) if axes == "per-activation" else (0, *range(2, ndim))
    else:
        given = (axes,) if isinstance(axes, int | np.integer) else tuple(axes)
    try:
        sorted_axes = tuple(sorted(normalize_axis_tuple(given, ndim)))
    except TypeError as error:
        raise TypeError(f"{function}: axes must be integers, not {axes!r}") from error
    except ValueError as error:
        raise ValueError(f"{function}: axes {axes!r} do not fit an input of {ndim} dimensions") from error
    if not sorted_axes:
        raise ValueError(f"{function}: axes must name a dimension at least, not {axes!r}")
    return sorted_axes


def _batch_parameter(function: str, name: str, value: Any, x: Variable, axes: Sequence[int]) -> Variable | None:
    """Return a parameter in the form in which it was given: with the dimensions of x, or without the axes."""
    if value is None:
        return None
    parameter = as_floats(value, f"{function}: {name}")
    ndim, kept = x.type.ndim, x.type.ndim - len(axes)
    if parameter.type.ndim not in (ndim, kept):
        raise TypeError(
            f"{function}: {name} must have {kept} dimensions, those of the input without the axes {tuple(axes)}, "
            f"or {ndim} with length one there, not {parameter.type.ndim}"
        )
    if parameter.type.ndim == ndim and any(parameter.type.shape[a] not in (None, 1) for a in axes):
        raise ValueError(f"{function}: {name} must have length one along the axes {tuple(axes)}, not {parameter.type}")
    shape = [n for a, n in enumerate(parameter.type.shape) if parameter.type.ndim == kept or a not in axes]
    _check_lengths(function, name, shape, [a for a in range(ndim) if a not in axes], x)
    return parameter


class _Batch:
    """The arguments that both functions of batch normalisation take, checked."""

    def __init__(self, function: str, inputs: Any, axes: Any, **parameters: Any) -> None:
        self.function = function
        self.x = as_floats(inputs, f"{function}: inputs")
        self.axes = _batch_axes(function, axes, self.x.type.ndim)
        self.parameters = {
            name: _batch_parameter(function, name, value, self.x, self.axes) for name, value in parameters.items()
        }
        self.given = [v for v in self.parameters.values() if v is not None]

    def is_full(self) -> bool:
        """Return whether statistics keep the normalised dimensions, as the first parameter does."""
        return bool(self.given) and self.given[0].type.ndim == self.x.type.ndim

    def aligned(self, *names: str) -> list[Variable]:
        """Return those of the parameters that were given, with the dimensions of the input."""
        ndim, kept = self.x.type.ndim, [a for a in range(self.x.type.ndim) if a not in self.axes]
        chosen = {name: self.parameters[name] for name in names}
        full = {name: align(v, ndim, self.axes) for name, v in chosen.items() if v is not None}
        lengths = {name: compact(v, self.axes) for name, v in full.items()}
        checked = [_with_lengths(v, self.function, name, kept, self.x) for name, v in lengths.items()]
        return [align(v, ndim, self.axes) for v in checked]

    def properties(self, epsilon: Any, *others: str) -> dict[str, Any]:
        """Return the properties that all markers have."""
        named = [self.parameters[name] for name in ("gamma", "beta", *others)]
        return {
            "axes": self.axes,
            "epsilon": _as_number(epsilon, self.function, "epsilon"),
            "has_scale": self.parameters["gamma"] is not None,
            "has_shift": self.parameters["beta"] is not None,
            "dtype": upcast(self.x.type.dtype, *(v.type.dtype for v in named if v is not None)),
        }


def _as_factor(value: Any, function: str) -> Variable:
    """Return the weight of the new value in running statistics as a 0-d variable."""
    factor = as_variable(value, "running_average_factor")
    if factor.type.ndim or factor.type.dtype.startswith("complex"):
        raise TypeError(f"{function}: running_average_factor must be a 0-d real number, not {factor.type}")
    if not isinstance(value, Variable) and not 0 <= value <= 1:
        raise ValueError(f"{function}: running_average_factor must be in 0..1, not {value!r}")
    return factor


def batch_normalization_train(
    inputs: Any,
    gamma: Any,
    beta: Any,
    axes: Any = "per-activation",
    epsilon: float = 1e-4,
    running_average_factor: Any = 0.1,
    running_mean: Any = None,
    running_var: Any = None,
) -> tuple[TensorVariable, ...]:
    """Normalise a batch by its own mean and variance: ``(x - mean) / sqrt(var + epsilon) * gamma + beta``.

    The variance is the biased one, the mean of squared differences from the mean. The function is that of Theano and
    Lasagne. With torch's ``momentum``, `running_average_factor` is the weight of the new value; Keras's `momentum` is
    one minus it.

    Parameters
    ----------
    inputs
        A batch of any number of dimensions; float16, float32 or float64.
    gamma, beta
        Scale and shift: without the normalised axes, or with length one there. None: one and zero.
    axes
        The axes that are normalised: ``"per-activation"`` is the first one, ``"spatial"`` all but the second one, as
        for images; or a tuple of integers.
    epsilon
        A number larger than zero that is added to the variance.
    running_average_factor
        The weight of the batch in the running statistics: a number from 0 to 1, or a 0-d variable.
    running_mean, running_var
        Running statistics, in the form of `gamma`; both or neither.

    Returns
    -------
    out
        The normalised batch; its dtype is the upcast of those of `inputs`, `gamma` and `beta`.
    mean, invstd
        The mean of the batch and ``1 / sqrt(var + epsilon)``, in the form of `gamma`.
    new_running_mean, new_running_var
        If running statistics are given: ``running * (1 - factor) + batch * factor``, in their dtype. The variance of
        the batch that enters is the unbiased one, times m / (m - 1) for m elements. `pytensor_cl.nn` collects them as
        updates; they have no gradient.

    Raises
    ------
    TypeError
        An argument has not the right dtype or number of dimensions.
    ValueError
        Lengths do not fit, `epsilon` is not larger than zero, or one element is normalised along axes whose static
        lengths say so. In the call, one element gives `beta`, and the running variance stays as it is. Of no elements
        both running statistics stay, the mean is zero and the variance too.

    Examples
    --------
    >>> import numpy as np, pytensor, pytensor.tensor as pt
    >>> from pytensor_cl import nn
    >>> images = pt.tensor4("images", dtype="float32")
    >>> gamma, mean, var = (pytensor.shared(np.ones(3, "float32")) for _ in range(3))
    >>> out, _, _, new_mean, new_var = nn.batch_normalization_train(
    ...     images, gamma, None, "spatial", running_mean=mean, running_var=var
    ... )
    >>> step = pytensor.function([images], out, updates={mean: new_mean, var: new_var})
    """
    function = "batch_normalization_train"
    batch = _Batch(function, inputs, axes, gamma=gamma, beta=beta, running_mean=running_mean, running_var=running_var)
    x, statistics = batch.x, [batch.parameters[n] for n in ("running_mean", "running_var")]
    if (statistics[0] is None) != (statistics[1] is None):
        raise ValueError(f"{function}: running_mean and running_var must be given both, or neither")
    if prod(x.type.shape[a] or (1 if x.type.shape[a] == 0 else 2) for a in batch.axes) == 1:
        raise ValueError(
            f"{function}: one element has no variance: the input {x.type} has length one along the axes {batch.axes}"
        )
    parameters = batch.aligned("gamma", "beta")
    properties = {**batch.properties(epsilon), "is_centred": True}
    factor = _as_factor(running_average_factor, function)
    if statistics[0] is None:
        results = BatchNormalization(**properties)(x, *parameters, return_list=True)
    else:
        results = RunningBatchNormalization(**properties)(*statistics, factor, x, *parameters, return_list=True)
    out, *found = results[:3]
    found = [pt.cast(v if batch.is_full() else compact(v, batch.axes), out.type.dtype) for v in found]
    return (out, *found, *results[3:])


def batch_normalization_test(
    inputs: Any,
    gamma: Any,
    beta: Any,
    mean: Any,
    var: Any,
    axes: Any = "per-activation",
    epsilon: float = 1e-4,
) -> TensorVariable:
    """Normalise by given statistics: ``(x - mean) / sqrt(var + epsilon) * gamma + beta``.

    The function is that of Theano, for predictions with running statistics. `nn.inference` puts it in the place of
    `batch_normalization_train`.

    Parameters
    ----------
    inputs, gamma, beta, axes, epsilon
        They are those of `batch_normalization_train`.
    mean, var
        Statistics in the form of `gamma`: without the normalised axes, or with length one there.

    Returns
    -------
    out
        The normalised batch; its dtype is the upcast of all arrays.

    Raises
    ------
    TypeError, ValueError
        They are those of `batch_normalization_train`.
    """
    function = "batch_normalization_test"
    batch = _Batch(function, inputs, axes, gamma=gamma, beta=beta, mean=mean, var=var)
    for name in ("mean", "var"):
        if batch.parameters[name] is None:
            raise TypeError(f"{function}: {name} must be a tensor or an array, not None")
    op = GivenNormalization(**batch.properties(epsilon, "mean", "var"))
    return op(batch.x, *batch.aligned("mean", "var", "gamma", "beta"))


def batch_normalization(inputs: Any, gamma: Any, beta: Any, mean: Any, std: Any) -> TensorVariable:
    """Return ``(inputs - mean) * (gamma / std) + beta``, as Theano's function of this name.

    The arguments are broadcast as by NumPy, so parameters for the channels of images have shape (1, C, 1, 1). Nothing
    is added to the standard deviation.

    Raises
    ------
    TypeError
        If an argument has no floating dtype.
    """
    function = "batch_normalization"
    named = {"inputs": inputs, "gamma": gamma, "beta": beta, "mean": mean, "std": std}
    arrays = [as_floats(v, f"{function}: {name}") for name, v in named.items()]
    dtype = upcast(*(v.type.dtype for v in arrays))
    x, scale, shift, center, deviation = (cast(v, working_dtype(dtype)) for v in arrays)
    return pt.cast((x - center) * (scale / deviation) + shift, dtype)


# Layers, groups of channels, images


def _trailing(function: str, x: Variable, normalized_shape: Any) -> tuple[Variable, tuple[int, ...]]:
    """Return the input and the last axes, whose lengths `normalized_shape` gives; None: the last one."""
    if normalized_shape is None:
        lengths: tuple[int | None, ...] = (None,)
    else:
        count = 1 if isinstance(normalized_shape, int | np.integer) else len(normalized_shape)
        lengths = as_ints(normalized_shape, count, f"{function}: normalized_shape", least=0)
    if not 0 < len(lengths) <= x.type.ndim:
        raise ValueError(
            f"{function}: normalized_shape {normalized_shape!r} needs from 1 to as many lengths as the input has "
            f"dimensions, {x.type.ndim}"
        )
    axes = tuple(range(x.type.ndim - len(lengths), x.type.ndim))
    found = [x.type.shape[a] for a in axes]
    text = f"the last lengths of the input must be those of normalized_shape, {lengths}"
    if any(None not in (n, m) and n != m for n, m in zip(found, lengths, strict=True)):
        raise ValueError(f"{function}: {text}, not {tuple(found)}")
    pairs = zip(axes, lengths, found, strict=True)
    conditions = [pt.eq(x.shape[a], n) for a, n, m in pairs if m is None and n is not None]
    return (_checked(x, function, text, *conditions) if conditions else x), axes


def _over_trailing(value: Any, function: str, name: str, x: Variable, axes: Sequence[int]) -> Variable | None:
    """Return a weight or a bias of the last axes with the dimensions of x."""
    if value is None:
        return None
    parameter = as_floats(value, f"{function}: {name}")
    if parameter.type.ndim != len(axes):
        raise TypeError(
            f"{function}: {name} must have the {len(axes)} dimensions that are normalised, not {parameter.type.ndim}"
        )
    checked = _with_lengths(parameter, function, name, axes, x)
    return checked.dimshuffle(["x"] * axes[0] + list(range(len(axes))))


def layer_norm(
    input: Any, normalized_shape: Any = None, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> TensorVariable:
    """Normalise the last axes: ``(x - mean) / sqrt(var + eps) * weight + bias``, as torch's function of this name.

    Parameters
    ----------
    input
        An array with the axes that are normalised and any number of axes before them; float16, float32 or float64.
    normalized_shape
        The lengths of the last axes, an integer or a tuple; None: the last axis, of any length.
    weight, bias
        Scale and shift of shape `normalized_shape`. None: one and zero.
    eps
        A number larger than zero that is added to the variance, the biased one.

    Returns
    -------
    output
        The normalised array; its dtype is the upcast of all arrays. Sums of float16 are computed as float32. A row of
        one element gives `bias`.

    Raises
    ------
    TypeError
        An argument has not the right dtype or number of dimensions.
    ValueError
        Lengths differ, or `eps` is not larger than zero.
    """
    function = "layer_norm"
    x = as_floats(input, f"{function}: input")
    epsilon = _as_number(eps, function, "eps")
    x, axes = _trailing(function, x, normalized_shape)
    parameters = [_over_trailing(v, function, n, x, axes) for n, v in (("weight", weight), ("bias", bias))]
    return _normalized(x, axes, parameters, epsilon)


def rms_norm(input: Any, normalized_shape: Any = None, weight: Any = None, eps: float | None = None) -> TensorVariable:
    """Divide the last axes by their root mean square: ``x / sqrt(mean(x**2) + eps) * weight``, as torch's function.

    Parameters
    ----------
    input, normalized_shape, weight
        They are those of `layer_norm`.
    eps
        A number larger than zero; None: the machine epsilon of the dtype, of float32 for float16.

    Returns
    -------
    output
        The result; its dtype is the upcast of all arrays. Squares of float16 are computed as float32.

    Raises
    ------
    TypeError, ValueError
        They are those of `layer_norm`.
    """
    function = "rms_norm"
    x = as_floats(input, f"{function}: input")
    x, axes = _trailing(function, x, normalized_shape)
    scale = _over_trailing(weight, function, "weight", x, axes)
    dtype = x.type.dtype if scale is None else upcast(x.type.dtype, scale.type.dtype)
    epsilon = float(np.finfo(working_dtype(dtype)).eps) if eps is None else _as_number(eps, function, "eps")
    return _normalized(x, axes, (scale, None), epsilon, is_centred=False)


def _images(value: Any, function: str, least: int) -> Variable:
    """Return an array of shape (N, C, ...)."""
    x = as_floats(value, f"{function}: input")
    if x.type.ndim < least:
        shape = "(N, C, ...)" if least == 2 else "(N, C, length, ...)"
        raise TypeError(f"{function}: input must have shape {shape}, not {x.type.ndim} dimensions")
    return x


def _per_channel(value: Any, function: str, name: str, x: Variable) -> Variable | None:
    """Return a weight or a bias of shape (C,)."""
    if value is None:
        return None
    parameter = as_floats(value, f"{function}: {name}")
    if parameter.type.ndim != 1:
        raise TypeError(f"{function}: {name} must have shape (C,), not {parameter.type.ndim} dimensions")
    return _with_lengths(parameter, function, name, (1,), x)


def group_norm(input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> TensorVariable:
    """Normalise each group of channels of each sample, as torch's function of this name.

    Parameters
    ----------
    input
        Shape (N, C, ...); float16, float32 or float64.
    num_groups
        Into how many groups of neighbouring channels the C channels are divided. Mean and variance are those of a group
        and all dimensions behind the channels.
    weight, bias
        Scale and shift of each channel, shape (C,). None: one and zero.
    eps
        A number larger than zero that is added to the variance, the biased one.

    Returns
    -------
    output
        The normalised array, of the input's shape; its dtype is the upcast of all arrays.

    Raises
    ------
    TypeError
        An argument has not the right dtype or number of dimensions.
    ValueError
        The channels do not divide into the groups, `weight` or `bias` has another length, or `eps` is not larger than
        zero.
    """
    function = "group_norm"
    x, epsilon = _images(input, function, 2), _as_number(eps, function, "eps")
    (groups,) = as_ints(num_groups, 1, f"{function}: num_groups")
    channels = x.type.shape[1]
    text = f"the number of channels must be a multiple of num_groups, {groups}"
    if channels is None:
        x = _checked(x, function, text, pt.eq(x.shape[1] % groups, 0))
    elif channels % groups:
        raise ValueError(f"{function}: {text}, not {channels}")
    inside = x.shape[1] // groups if channels is None else channels // groups
    parameters = [_per_channel(v, function, n, x) for n, v in (("weight", weight), ("bias", bias))]
    grouped = [None if v is None else v.reshape((groups, inside, 1)).dimshuffle("x", 0, 1, 2) for v in parameters]
    rows = x.reshape((x.shape[0], groups, inside, _length(x, range(2, x.type.ndim))))
    result = _normalized(rows, (2, 3), grouped, epsilon)
    return pt.specify_shape(result.reshape(x.shape), x.type.shape)


def _length(x: Variable, axes: Sequence[int]) -> Any:
    """Return the product of lengths; a number if they are known."""
    known = [x.type.shape[a] for a in axes]
    return prod((x.shape[a] for a in axes), start=pt.constant(1, dtype="int64")) if None in known else prod(known)


def instance_norm(input: Any, *, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> TensorVariable:
    """Normalise each channel of each sample over its dimensions, as torch's function of this name without statistics.

    Parameters
    ----------
    input
        Shape (N, C, length, ...); float16, float32 or float64.
    weight, bias
        Scale and shift of each channel, shape (C,). None: one and zero.
    eps
        A number larger than zero that is added to the variance, the biased one.

    Returns
    -------
    output
        The normalised array; its dtype is the upcast of all arrays. A single element gives `bias`.

    Raises
    ------
    TypeError, ValueError
        They are those of `group_norm`.
    """
    function = "instance_norm"
    x, epsilon = _images(input, function, 3), _as_number(eps, function, "eps")
    given = [_per_channel(v, function, n, x) for n, v in (("weight", weight), ("bias", bias))]
    axes = tuple(range(2, x.type.ndim))
    return _normalized(x, axes, [None if v is None else align(v, x.type.ndim, (0, *axes)) for v in given], epsilon)


# Neighbouring channels


def local_response_normalization(
    input: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0, divide: bool = True
) -> TensorVariable:
    """Divide by a power of the sum of squares over neighbouring channels, for networks of the years before 2015.

    ``x / (k + alpha / size * sum(x**2)) ** beta``, where the sum is over `size` channels around each one; channels
    that do not exist are zero. Of an even `size` one channel more is before than behind.

    Parameters
    ----------
    input
        Shape (N, C, ...); float16, float32 or float64.
    size
        The number of channels.
    alpha, beta, k
        Numbers; `k` is not negative.
    divide
        Whether `alpha` is divided by `size`, as torch and Caffe do. False is AlexNet's formula and Lasagne's, whose
        default of `k` is 2.

    Returns
    -------
    output
        The result, of the shape and dtype of the input. float16 is computed as float32.

    Raises
    ------
    TypeError
        An argument has not the right dtype or number of dimensions.
    ValueError
        `size` is smaller than one, or `k` is negative.
    """
    function = "local_response_normalization"
    x = _images(input, function, 2)
    (width,) = as_ints(size, 1, f"{function}: size")
    offset = _as_number(k, function, "k", is_open=False)
    factor, power = (_as_number(v, function, n, -np.inf) for n, v in (("alpha", alpha), ("beta", beta)))
    if as_flag(divide, f"{function}: divide"):
        factor /= width
    work = working_dtype(x.type.dtype)
    wide = cast(x, work)
    sums = WindowSum(before=width // 2, after=(width - 1) // 2)(pt.sqr(wide))
    base = sums * pt.constant(factor, dtype=work) + pt.constant(offset, dtype=work)
    return pt.cast(wide * base ** pt.constant(-power, dtype=work), x.type.dtype)
