"""Gradients of a loss, clipped, and summed over the parts of a batch."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.gradient import DisconnectedInputError
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pytensor_cl.optimizers.numbers import as_type_of, nonnegative, numbers_as, working_dtype


def checked_params(params: Iterable[SharedVariable]) -> list[SharedVariable]:
    """Return the parameters as a list; each is a shared variable of floating-point numbers with a name of its own."""
    if isinstance(params, Variable):
        raise TypeError(f"params must be a list of shared variables; got the variable {params}: write [{params}]")
    params = list(params)
    for param in params:
        if not isinstance(param, SharedVariable):
            raise TypeError(f"params must be shared variables, as pytensor.shared returns them; got {param!r}")
        if not str(getattr(param.type, "dtype", "")).startswith("float"):
            raise TypeError(f"the parameter {param.name} is {param.type}; optimizers need floating-point numbers")
    names = [param.name for param in params]
    if None in names:
        raise ValueError(
            f"parameter {names.index(None)} has no name, which is its key in files: pytensor.shared(value, name=...)"
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"the names of parameters are their keys in files, so they must differ; twice there: {twice}")
    return params


def gradients(loss_or_grads: Any, params: Sequence[SharedVariable]) -> list[Variable]:
    """Return the gradients of a loss, or the given ones, after a check that they fit to the parameters."""
    if isinstance(loss_or_grads, list | tuple):
        if len(loss_or_grads) != len(params):
            raise ValueError(f"there are {len(loss_or_grads)} gradients for {len(params)} parameters")
        grads = [pt.as_tensor(grad) for grad in loss_or_grads]
    else:
        grads = _slopes(loss_or_grads, params)
    for param, grad in zip(params, grads, strict=True):
        if grad.type.ndim != param.type.ndim:
            raise TypeError(
                f"the gradient of {param.name} has {grad.type.ndim} dimensions, the parameter {param.type.ndim}"
            )
        if grad.type.dtype.startswith("complex"):
            raise TypeError(f"the gradient of {param.name} is {grad.type.dtype}, which {param.type.dtype} cannot hold")
    return grads


def _slopes(loss: Any, params: Sequence[SharedVariable]) -> list[Variable]:
    loss = pt.as_tensor(loss)
    if loss.type.ndim:
        raise TypeError(f"the loss must be 0-d, such as loss.mean(); got {loss.type}")
    if not loss.type.dtype.startswith("float"):
        raise TypeError(f"the loss must be a floating-point number, so cast it first; got {loss.type}")
    found: list[Variable] = pytensor.grad(loss, list(params), disconnected_inputs="ignore", return_disconnected="none")
    apart = [param.name for param, grad in zip(params, found, strict=True) if grad is None]
    if apart:
        raise DisconnectedInputError(f"the loss does not depend on these parameters: {', '.join(apart)}")
    return found


def all_finite(grads: Sequence[Variable]) -> Variable:
    """Return a 0-d bool: no gradient has an infinity or NaN."""
    return pt.all(pt.stack([pt.isfinite(grad).all() for grad in grads]))


def clip_by_value(grads: Sequence[Variable], limit: float) -> list[TensorVariable]:
    """Return the gradients with each element between `-limit` and `limit`; NaN stays NaN.

    Parameters
    ----------
    grads
        The gradients.
    limit
        The largest absolute value, not negative.

    Examples
    --------
    >>> grads = clip_by_value(pytensor.grad(loss, params), 0.5)
    >>> updates = sgd(grads, params, learning_rate=0.1)
    """
    limit = nonnegative("limit", limit)
    bounds = [np.asarray(limit, grad.type.dtype) for grad in grads]
    return [pt.clip(grad, -bound, bound) for grad, bound in zip(grads, bounds, strict=True)]


def global_norm(grads: Sequence[Variable]) -> Variable:
    """Return the Euclidean norm of all elements of all gradients together; float16 is summed as float32."""
    squares = [pt.sqr(grad.astype(working_dtype(grad.type.dtype))).sum() for grad in grads]
    total = squares[0]
    for square in squares[1:]:
        total = total + square
    return pt.sqrt(total)


def clip_by_global_norm(
    grads: Sequence[Variable], max_norm: float, epsilon: float = 1e-6
) -> tuple[list[TensorVariable], TensorVariable]:
    """Return the gradients, scaled down to a norm of `max_norm` if theirs is larger, and their norm before.

    The norm is that of one vector with all elements. The factor is min(1, max_norm / (norm + epsilon)), as of PyTorch's
    ``clip_grad_norm_``: exactly 1 below the bound. A norm that is infinite or NaN gives NaN, or zeros.

    Parameters
    ----------
    grads
        The gradients.
    max_norm
        The largest norm, not negative.
    epsilon
        It is added to the norm.

    Examples
    --------
    >>> grads, norm = clip_by_global_norm(pytensor.grad(loss, params), 1.0)
    >>> step = pytensor.function([x, y], [loss, norm], updates=adam(grads, params))
    """
    grads = list(grads)
    if not grads:
        raise ValueError("clip_by_global_norm needs at least one gradient")
    max_norm, epsilon = nonnegative("max_norm", max_norm), nonnegative("epsilon", epsilon)
    norm = global_norm(grads)
    with numbers_as(norm.type.dtype):
        factor = pt.minimum(1.0, max_norm / (norm + epsilon))
    scaled = [(grad * factor.astype(working_dtype(grad.type.dtype))).astype(grad.type.dtype) for grad in grads]
    return scaled, norm


def norm_constraint(
    tensor_var: Variable, max_norm: float, norm_axes: Iterable[int] | None = None, epsilon: float = 1e-7
) -> TensorVariable:
    """Return an update or gradient whose vectors have a norm of at most `max_norm`, as Lasagne's function.

    Parameters
    ----------
    tensor_var
        The expression.
    max_norm
        The largest norm.
    norm_axes
        The axes of a vector. None: the first axis of a matrix, and all but the first of three to five dimensions.
    epsilon
        It is added to the norms.
    """
    if norm_axes is None:
        if not 2 <= tensor_var.ndim <= 5:
            raise ValueError(f"norm_axes is needed for {tensor_var.ndim} dimensions")
        norm_axes = (0,) if tensor_var.ndim == 2 else range(1, tensor_var.ndim)
    with numbers_as(tensor_var.type.dtype):
        norms = pt.sqrt(pt.sqr(tensor_var).sum(axis=tuple(norm_axes), keepdims=True))
        return tensor_var * (pt.clip(norms, 0.0, float(max_norm)) / (float(epsilon) + norms))


def total_norm_constraint(
    tensor_vars: Sequence[Variable], max_norm: float, epsilon: float = 1e-7, return_norm: bool = False
) -> Any:
    """Return gradients scaled by min(norm, max_norm) / (norm + epsilon), as Lasagne's function.

    It changes gradients below the bound too, if only by 1e-7 / norm; `clip_by_global_norm` does not.

    Parameters
    ----------
    tensor_vars
        The gradients.
    max_norm
        The largest norm of all together.
    epsilon
        It is added to the norm.
    return_norm
        Return the norm before, too.
    """
    norm = global_norm(tensor_vars)
    with numbers_as(norm.type.dtype):
        factor = pt.minimum(norm, float(max_norm)) / (float(epsilon) + norm)
    scaled = [(v * factor.astype(working_dtype(v.type.dtype))).astype(v.type.dtype) for v in tensor_vars]
    return (scaled, norm) if return_norm else scaled


class Accumulator:
    """Sums gradients over the parts of a batch that is too large for one call.

    Gradients are weighted by what their losses are means of (rows, or labels that count) and divided by the sum of the
    weights once, so parts may differ in size and the result is the gradient of the whole batch.

    Parameters
    ----------
    params
        The parameters.

    Attributes
    ----------
    state
        The shared variables by name: the sums, and the sum of the weights.

    Examples
    --------
    >>> parts = Accumulator(params)
    >>> grads = pytensor.grad(loss, params)  # of a mean over the rows of x
    >>> add = pytensor.function([x, y], loss, updates=parts.add(grads, x.shape[0]))
    >>> means, cleared = parts.finish(grads, x.shape[0])
    >>> last = pytensor.function([x, y], loss, updates={**adam(means, params), **cleared})
    """

    def __init__(self, params: Iterable[SharedVariable]) -> None:
        self._params = checked_params(params)
        self._sums = [
            pytensor.shared(
                np.zeros(param.get_value().shape, working_dtype(param.type.dtype)),
                name=f"accumulated/{param.name}",
                shape=param.type.shape,
            )
            for param in self._params
        ]
        widest = max((total.type.dtype for total in self._sums), default="float32")
        self._weight = pytensor.shared(np.zeros((), widest), name="accumulated_weight")

    @property
    def state(self) -> dict[str, SharedVariable]:
        return {variable.name: variable for variable in (*self._sums, self._weight)}

    def _added(self, grads: Sequence[Variable], weight: Any) -> tuple[list[Variable], Variable]:
        weight = pt.as_tensor(weight)
        sums = [
            as_type_of(total, total + grad.astype(total.type.dtype) * weight.astype(total.type.dtype))
            for total, grad in zip(self._sums, gradients(list(grads), self._params), strict=True)
        ]
        return sums, self._weight + weight.astype(self._weight.type.dtype)

    def add(self, grads: Sequence[Variable], weight: Any) -> dict[SharedVariable, Variable]:
        """Return the updates that add the gradients of a part.

        Parameters
        ----------
        grads
            The gradients of a mean over `weight` items.
        weight
            The number of items of the part, a number or 0-d variable.
        """
        sums, total = self._added(grads, weight)
        return dict(zip((*self._sums, self._weight), (*sums, total), strict=True))

    def finish(self, grads: Sequence[Variable], weight: Any) -> tuple[list[Variable], dict[SharedVariable, Variable]]:
        """Return the gradients of the mean over all parts, with the last one, and the updates that clear the sums.

        Without any weight the gradients are zeros.

        Parameters
        ----------
        grads
            The gradients of the last part.
        weight
            The number of its items.
        """
        sums, total = self._added(grads, weight)
        divisor = pt.switch(pt.eq(total, 0), pt.ones_like(total), total)
        means = [
            (total / divisor.astype(total.type.dtype)).astype(param.type.dtype)
            for total, param in zip(sums, self._params, strict=True)
        ]
        return means, {variable: pt.zeros_like(variable) for variable in (*self._sums, self._weight)}
