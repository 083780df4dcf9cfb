"""Gradients of Ops of users' kernels: an expression, another kernel, or either for each input."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pytensor.configdefaults import config
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor import as_tensor_variable, cast, second
from pytensor.tensor.type import discrete_dtypes

Known = dict[str, Variable]
"""Inputs, outputs and cotangents by their names: ``x``, ``z`` and ``gz``."""


class Names(NamedTuple):
    """Names of the inputs and outputs of an Op."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        """Names of all variables of a gradient, in the order of the arguments of an expression."""
        return (*self.inputs, *self.outputs, *(f"g{name}" for name in self.outputs))


def check_gradient(op: str, gradient: Any, names: Names, is_kernel: Callable[[Any], bool]) -> None:
    """Raise an error if a gradient does not fit an Op.

    Raises `TypeError`: it is no function, kernel or dict, or takes other arguments. Raises `ValueError`: a kernel, or a
    dict, has a parameter that the Op has not.
    """
    if isinstance(gradient, Mapping):
        unknown = sorted(set(gradient) - set(names.inputs))
        if unknown:
            raise ValueError(f"op {op}: grad= has {unknown[0]!r}, the inputs are {', '.join(names.inputs)}")
        for one in gradient.values():
            if one is not None:
                check_gradient(op, one, names, is_kernel)
    elif is_kernel(gradient):
        _check_kernel(op, gradient.definition, names)
    elif callable(gradient):
        _check_arguments(op, gradient, names)
    else:
        raise TypeError(f"op {op}: grad= is a function, a kernel, or a dict of them by input, not {gradient!r}")


def _check_kernel(op: str, definition: Any, names: Names) -> None:
    taken = [p.name for p in definition.inputs if p.name not in names.all]
    made = [p.name for p in definition.outputs if p.name not in {f"g{name}" for name in names.inputs}]
    if taken:
        raise ValueError(
            f"op {op}: kernel {definition.name!r} of grad= takes {taken[0]!r}; there are {', '.join(names.all)}"
        )
    if made:
        possible = ", ".join(f"g{name}" for name in names.inputs)
        raise ValueError(f"op {op}: kernel {definition.name!r} of grad= makes {made[0]!r}; there are {possible}")


def _check_arguments(op: str, function: Callable[..., Any], names: Names) -> None:
    try:
        inspect.signature(function).bind(*names.all)
    except TypeError as error:
        raise TypeError(f"op {op}: grad= is called with ({', '.join(names.all)}): {error}") from None
    except ValueError:  # a callable without a signature
        return


def gradients(op: str, gradient: Any, names: Names, known: Known, as_op: Callable[[Any], Any]) -> list[Variable | None]:
    """Return the gradient with respect to each input; None: none flows.

    `as_op`: makes an Op of a kernel.
    """
    if isinstance(gradient, Mapping):
        return [_of_input(op, gradient.get(name), name, names, known, as_op) for name in names.inputs]
    if not hasattr(gradient, "definition"):
        results = _called(op, gradient, names, known)
        if len(results) != len(names.inputs):
            raise ValueError(
                f"op {op}: grad= returned {len(results)} gradients for {len(names.inputs)} inputs "
                f"({', '.join(names.inputs)}): return a list with one for each, None where none flows"
            )
        return results
    made = _by_kernel(gradient, known, as_op)
    return [made.get(f"g{name}") for name in names.inputs]


def _of_input(
    op: str, gradient: Any, name: str, names: Names, known: Known, as_op: Callable[[Any], Any]
) -> Variable | None:
    if gradient is None:
        return None
    if hasattr(gradient, "definition"):
        return _by_kernel(gradient, known, as_op).get(f"g{name}")
    found = _called(op, gradient, names, known)
    if len(found) != 1:
        raise ValueError(f"op {op}: grad= returned {len(found)} gradients for the input {name}")
    return found[0]


def _called(op: str, function: Callable[..., Any], names: Names, known: Known) -> list[Any]:
    """Return what a function of the user's returns, as a list."""
    found = function(*(known[name] for name in names.all))
    if found is None:
        raise TypeError(
            f"op {op}: grad= returned None: is there a return in it? It returns a list with an expression for each "
            f"input ({', '.join(names.inputs)}), [None] where none flows"
        )
    return list(found) if isinstance(found, list | tuple) else [found]


def _by_kernel(kernel: Any, known: Known, as_op: Callable[[Any], Any]) -> Known:
    """Return the outputs of a kernel that is called with the variables of its parameters' names."""
    results = as_op(kernel)(*(known[p.name] for p in kernel.definition.inputs), return_list=True)
    return {p.name: result for p, result in zip(kernel.definition.outputs, results, strict=True)}


def cotangents_of(outputs: Sequence[Variable], cotangents: Sequence[Variable]) -> list[Variable]:
    """Return the cotangents; zeros where the cost does not depend on an output."""
    return [
        zeros_like(output) if isinstance(cotangent.type, DisconnectedType) else cotangent
        for output, cotangent in zip(outputs, cotangents, strict=True)
    ]


def zeros_like(variable: Any) -> Variable:
    """Return zeros of the shape of a variable, of floatX if it has integers."""
    return variable.zeros_like(dtype=config.floatX if variable.type.dtype in discrete_dtypes else variable.type.dtype)


def fitted(where: str, gradient: Any, variable: Any, output: Any, repeats: bool) -> Variable:
    """Return a gradient in the dtype and shape of an input, which may have been broadcast to the output's.

    `where`: the Op and the input, for messages; `repeats`: whether a gradient of length 1 holds for each element of the
    output along an axis along which the input has length 1; else it is the sum of them.

    Raises `TypeError`: the gradient is no expression, or has integers. Raises `ValueError`: its shape is another one.
    """
    if gradient is None or variable.type.dtype in discrete_dtypes:
        return zeros_like(variable)
    try:
        result: Any = as_tensor_variable(gradient)
    except (TypeError, NotImplementedError):
        raise TypeError(f"{where} is {gradient!r:.60}, which is no expression of PyTensor") from None
    if isinstance(result, Constant) and not result.type.ndim:
        result = second(output, cast(result, variable.type.dtype))
    if result.type.dtype in discrete_dtypes:
        raise TypeError(f"{where} has dtype {result.type.dtype}: cast it to {variable.type.dtype}, pt.cast(...)")
    _check_shape(where, result, variable, output)
    lengths = zip(variable.type.shape, output.type.shape, result.type.shape, strict=True)
    if any(other == 1 != (full if repeats else own) for own, full, other in lengths):
        result = second(output, result)
    pairs = zip(variable.type.shape, result.type.shape, strict=True)
    axes = [axis for axis, (own, other) in enumerate(pairs) if own == 1 != other]
    result = result.sum(axis=axes, keepdims=True) if axes else result
    return cast(result, variable.type.dtype) if result.type.dtype != variable.type.dtype else result


def _check_shape(where: str, gradient: Any, variable: Any, output: Any) -> None:
    """Raise a `ValueError` if a gradient has neither the shape of an input nor that to which it was broadcast."""
    ndim = variable.type.ndim
    if gradient.type.ndim != ndim:
        raise ValueError(f"{where} has {gradient.type.ndim} dimensions, not the {ndim} of the input")
    lengths = zip(gradient.type.shape, variable.type.shape, output.type.shape, strict=True)
    if any(n is not None and n != 1 and None not in (own, full) and n not in (own, full) for n, own, full in lengths):
        raise ValueError(f"{where} has shape {gradient.type.shape}, not that of the input, {variable.type.shape}")
