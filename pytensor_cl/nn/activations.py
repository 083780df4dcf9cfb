"""Activation functions.

They are compositions of elementwise Ops, which mode OPENCL fuses with their neighbours. Values and gradients at
infinity are the limits, and NaN comes through. Numbers among the arguments never change the dtype, and float16 is
computed as float32.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor import special
from pytensor.tensor.variable import TensorVariable

from pytensor_cl.nn.arguments import as_axis, as_floats, as_number
from pytensor_cl.nn.composed import cast, composed

SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805
"""The constants of Klambauer et al., 2017: activations keep mean 0 and variance 1."""

SILU_LOW, SILU_HIGH = -1000.0, 100.0
"""Arguments outside of which float64 cannot tell silu from 0 or from its argument."""

GELU_LIMIT = 40.0
"""The same for both forms of gelu."""


def _gated(x: Any, low: float, high: float, gate: Callable[[Any], Any]) -> Any:
    """Return x times its gate, which is 0 below `low` and 1 above `high`.

    Elements outside are kept from the product: infinity times 0 would be NaN, there or in the gradient.
    """
    lower, upper = as_number(low, x), as_number(high, x)
    inside = pt.clip(x, lower, upper)
    return pt.switch(x > upper, x, inside * gate(inside))


def relu(x: Any, alpha: Any = 0) -> TensorVariable:
    """Return x where it is positive, else alpha times x.

    Parameters
    ----------
    x
        Floats of any shape.
    alpha
        Slope for negative x: a number, or an array that broadcasts with `x`. The gradient at 0 is `alpha`.

    Raises
    ------
    TypeError
        `x` is no array of floats.
    """
    x = as_floats(x, "relu: x")
    if not isinstance(alpha, Variable) and np.ndim(alpha) == 0 and alpha == 0:
        return composed(_relu, x)
    return composed(_leaky_relu, x, as_number(alpha, x))


def _relu(x: Any) -> Any:
    return pt.switch(x <= 0, 0, x)  # 0 times x would be NaN for minus infinity


def _leaky_relu(x: Any, alpha: Any) -> Any:
    return pt.switch(x <= 0, alpha * x, x)


def leaky_relu(input: Any, negative_slope: Any = 0.01) -> TensorVariable:
    """Return ``relu(input, negative_slope)``.

    Raises
    ------
    TypeError
        `input` is no array of floats.
    """
    return relu(input, negative_slope)


def elu(x: Any, alpha: Any = 1) -> TensorVariable:
    """Return x where it is positive, else alpha (exp(x) - 1) (Clevert et al., 2016).

    Parameters
    ----------
    x
        Floats of any shape.
    alpha
        A number, or an array that broadcasts with `x`: minus the limit for x to minus infinity.

    Raises
    ------
    TypeError
        `x` is no array of floats.
    """
    x = as_floats(x, "elu: x")
    return composed(_elu, x, as_number(alpha, x))


def _elu(x: Any, alpha: Any) -> Any:
    # Without the minimum the gradient of the branch that is not taken would be infinity times 0.
    return pt.switch(x > 0, x, alpha * pt.expm1(pt.minimum(x, 0)))


def selu(x: Any) -> TensorVariable:
    """Return 1.0507 elu(x, 1.6733), which normalises itself (Klambauer et al., 2017).

    Raises
    ------
    TypeError
        `x` is no array of floats.
    """
    x = as_floats(x, "selu: x")
    return composed(_selu, x)


def _selu(x: Any) -> Any:
    return as_number(SELU_SCALE, x) * _elu(x, as_number(SELU_ALPHA, x))


def softplus(x: Any) -> TensorVariable:
    """Return log(1 + exp(x)), without a threshold above which it would be x.

    Raises
    ------
    TypeError
        `x` is no array of floats.
    """
    return composed(pt.softplus, as_floats(x, "softplus: x"))


def sigmoid(x: Any) -> TensorVariable:
    """Return 1 / (1 + exp(-x)).

    Raises
    ------
    TypeError
        `x` is no array of floats.
    """
    return composed(pt.sigmoid, as_floats(x, "sigmoid: x"))


def hard_sigmoid(x: Any) -> TensorVariable:
    """Return 0.2 x + 0.5 within 0 and 1, as Theano and Keras 1; the slope of torch's ``hardsigmoid`` is 1/6.

    Raises
    ------
    TypeError
        `x` is no array of floats.
    """
    return composed(_hard_sigmoid, as_floats(x, "hard_sigmoid: x"))


def _hard_sigmoid(x: Any) -> Any:
    return pt.clip(as_number(0.2, x) * x + as_number(0.5, x), as_number(0, x), as_number(1, x))


def softsign(x: Any) -> TensorVariable:
    """Return x / (1 + abs(x)).

    Raises
    ------
    TypeError
        `x` is no array of floats.
    """
    return composed(_softsign, as_floats(x, "softsign: x"))


def _softsign(x: Any) -> Any:
    largest = as_number(np.finfo(x.type.dtype).max, x)
    x = pt.clip(x, -largest, largest)  # infinity over infinity would be NaN
    return x / (1 + pt.abs(x))


def silu(x: Any) -> TensorVariable:
    """Return x sigmoid(x), also known as swish (Elfwing et al., 2018).

    Raises
    ------
    TypeError
        `x` is no array of floats.
    """
    return composed(_silu, as_floats(x, "silu: x"))


def _silu(x: Any) -> Any:
    return _gated(x, SILU_LOW, SILU_HIGH, pt.sigmoid)


def hardswish(x: Any) -> TensorVariable:
    """Return x times (x + 3) / 6 within 0 and 1 (Howard et al., 2019).

    Raises
    ------
    TypeError
        `x` is no array of floats.
    """
    return composed(_hardswish, as_floats(x, "hardswish: x"))


def _hardswish(x: Any) -> Any:
    return _gated(x, -3.0, 3.0, lambda inside: (inside + 3) / 6)


def gelu(input: Any, approximate: str = "none") -> TensorVariable:
    """Return x times the distribution function of the normal distribution at x (Hendrycks and Gimpel, 2016).

    Parameters
    ----------
    input
        Floats of any shape.
    approximate
        ``"none"``: by the error function; ``"tanh"``: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x**3))), off by up to
        5e-4. The defaults of torch; JAX's is the second.

    Raises
    ------
    TypeError
        `input` is no array of floats.
    ValueError
        `approximate` is neither of the two.
    """
    forms = {"none": _gelu, "tanh": _gelu_tanh}
    if approximate not in forms:
        raise ValueError(f"gelu: approximate must be 'none' or 'tanh', not {approximate!r}")
    return composed(forms[approximate], as_floats(input, "gelu: input"))


def _gelu(x: Any) -> Any:
    return _gated(x, -GELU_LIMIT, GELU_LIMIT, _normal_distribution)


def _gelu_tanh(x: Any) -> Any:
    return _gated(x, -GELU_LIMIT, GELU_LIMIT, _tanh_gate)


def _normal_distribution(x: Any) -> Any:
    """Return the distribution function by erfc: 1 + erf cancels for negative x."""
    return as_number(0.5, x) * pt.erfc(as_number(-np.sqrt(0.5), x) * x)


def _tanh_gate(x: Any) -> Any:
    """Return (1 + tanh(z)) / 2 as sigmoid(2 z), which does not cancel for negative z."""
    z = as_number(np.sqrt(2 / np.pi), x) * (x + as_number(0.044715, x) * x**3)
    return pt.sigmoid(2 * z)


def softmax(x: Any, axis: int = -1) -> TensorVariable:
    """Return exp(x) divided by its sum along an axis.

    Parameters
    ----------
    x
        Floats.
    axis
        Axis of the sum. The default is the last one; that of ``pytensor.tensor.special.softmax`` is all of them.

    Raises
    ------
    TypeError
        `x` is no array of floats, or `axis` no integer.
    ValueError
        `x` has no such axis.
    """
    x = as_floats(x, "softmax: x")
    return _along(special.softmax, x, as_axis(axis, x.type.ndim, "softmax"))


def log_softmax(x: Any, axis: int = -1) -> TensorVariable:
    """Return the logarithm of ``softmax(x, axis)`` without computing the quotient.

    Raises
    ------
    TypeError, ValueError
        As `softmax`.
    """
    x = as_floats(x, "log_softmax: x")
    return _along(special.log_softmax, x, as_axis(axis, x.type.ndim, "log_softmax"))


def _along(function: Callable[..., Any], x: Any, axis: int) -> Any:
    """Return a function along an axis, computed as float32 for float16."""
    if x.type.dtype != "float16":
        return function(x, axis=axis)
    return cast(function(cast(x, "float32"), axis=axis), "float16")
