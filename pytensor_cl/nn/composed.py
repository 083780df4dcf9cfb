"""Functions whose gradients have the dtype of their arguments.

The gradient of PyTensor's `switch` has a zero of dtype floatX in it, so that with floatX=float64 the gradient of a
float32 array, and what depends on it, would be float64.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor import gradient
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Apply, Variable

from pytensor_cl.nn.marker import Marker

Function = Callable[..., Any]
"""A function of arrays that returns one, or a tuple of them. Equal ones must be the same: nodes are merged by them."""


class Composed(Marker):
    """A function of arrays of floats; its gradient is another one."""

    __props__ = ("function",)
    function: Function

    def build_inner_graph(self, *inputs: Variable) -> list[Variable]:
        """Return the function's results."""
        with pytensor.config.change_flags(floatX=_dtype_of(inputs)):
            results = self.function(*inputs)
        return list(results) if type(results) is tuple else [results]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Return that every result depends on every array."""
        return [[True] * len(node.outputs) for _ in node.inputs]

    def pullback(
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], output_grads: Sequence[Any]
    ) -> list[Any]:
        """Return the gradient as a function of the arguments and of what comes from the results."""
        given = tuple(not isinstance(g.type, DisconnectedType) for g in output_grads)
        if not any(given):
            return [disconnected_type()] * len(inputs)
        slopes = [
            pt.cast(g, o.type.dtype) for g, o, is_given in zip(output_grads, outputs, given, strict=True) if is_given
        ]
        found: list[Any] = Composed(function=_Pullback(self.function, given))(*inputs, *slopes, return_list=True)
        return found


@dataclass(frozen=True)
class _Pullback:
    """The gradient of a composed function.

    `given`: for each result, whether a gradient comes from it.
    """

    of: Function
    given: tuple[bool, ...]

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        count = len(inputs) - sum(self.given)
        arguments, slopes = inputs[:count], inputs[count:]
        results = self.of(*arguments)
        each = results if isinstance(results, tuple) else (results,)
        used = [result for result, is_given in zip(each, self.given, strict=True) if is_given]
        found = gradient.pullback(used, list(arguments), list(slopes), disconnected_inputs="ignore")
        return tuple(pt.cast(slope, v.type.dtype) for slope, v in zip(found, arguments, strict=True))


class _InFloat32(NamedTuple):
    """A function that is computed as float32 where the result is float16."""

    function: Function

    def __call__(self, *inputs: Any) -> Any:
        if any(v.type.dtype != "float16" for v in inputs):
            return self.function(*inputs)
        return pt.cast(self.function(*(pt.cast(v, "float32") for v in inputs)), "float16")


def composed(function: Function, *inputs: Variable) -> Any:
    """Return a function of arrays of floats, computed as float32 if they are float16; it has one result."""
    return Composed(function=_InFloat32(function))(*inputs)


class _Cast(NamedTuple):
    """A change of dtype; the gradient of PyTensor's has the dtype of the result."""

    dtype: str

    def __call__(self, x: Any) -> Any:
        return pt.cast(x, self.dtype)


def cast(x: Any, dtype: str) -> Any:
    """Return floats in another dtype; their gradient has the dtype of `x`."""
    return x if x.type.dtype == dtype else Composed(function=_Cast(dtype))(x)


def _dtype_of(inputs: Sequence[Any]) -> str:
    """Return the dtype for constants: that of the arrays, float32 for float16."""
    dtype = str(np.result_type(*(v.type.dtype for v in inputs)))
    return "float32" if dtype == "float16" else dtype
