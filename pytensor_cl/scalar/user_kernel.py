"""Scalar Op of an elementwise kernel that a user wrote, so that it is fused with other elementwise functions."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pytensor import scalar as ps
from pytensor.graph.basic import Variable
from pytensor.scalar.basic import ScalarInnerGraphOp

from pytensor_cl.runtime.registry import get_context
from pytensor_cl.user_kernels.elementwise import ElementwiseKernel
from pytensor_cl.user_kernels.function import UserFunction


class UserScalar(ps.ScalarOp):
    """An output of a function that a user wrote in OpenCL C, of numbers of fixed dtypes.

    `output`: the number of the output: PyTensor fuses only Ops that have one.
    """

    __props__ = ("function", "name", "output")

    def __init__(self, function: UserFunction, name: str, output: int = 0) -> None:
        super().__init__(name=name)
        self.function = function
        self.output = output
        self.nin = len(function.input_dtypes)
        self.nout = 1

    @property
    def _key(self) -> tuple[UserFunction, str, int]:
        return self.function, str(self.name), self.output

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UserScalar) and self._key == other._key

    def __hash__(self) -> int:
        return hash((UserScalar, self._key))

    def __str__(self) -> str:
        outputs = self.function.definition.outputs
        return str(self.name) if len(outputs) == 1 else f"{self.name}.{outputs[self.output].name}"

    def output_types(self, types: Sequence[Any]) -> list[Any]:
        """Return the Type of the output.

        Raises `TypeError`: the inputs have other dtypes than the function.
        """
        given = tuple(kind.dtype for kind in types)
        if given != self.function.input_dtypes:
            raise TypeError(f"{self.function} takes {self.function.input_dtypes}, not {given}")
        return [ps.get_scalar_type(self.function.output_dtypes[self.output])]

    def supports_c_code(self, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> bool:
        """Return True: PyTensor fuses only Ops with C code. The graph is on a device before C code is needed."""
        return True

    def impl(self, *inputs: Any) -> Any:
        """Compute on the default device: for a graph that is evaluated without being compiled."""
        definition = self.function.definition
        context = get_context()
        values = [context.from_host(np.asarray(x, t)) for x, t in zip(inputs, self.function.input_dtypes, strict=True)]
        outputs = [context.empty((), dtype) for dtype in self.function.output_dtypes]
        ElementwiseKernel.of(definition)(*values, *outputs)
        return outputs[self.output].to_host()[()]


def has_user_function(op: ps.ScalarOp) -> bool:
    """Return whether a scalar Op is a user's function, or a Composite with one."""
    if isinstance(op, ScalarInnerGraphOp):
        return any(has_user_function(node.op) for node in op.fgraph.apply_nodes)
    return isinstance(op, UserScalar)
