"""Ops inside of loops that NUMBA's code calls in Python, because its own code treats errors differently."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op

from pytensor_cl._compat.numba_backend import call_perform, register_when_met


class InPython(Op):
    """Runs another Op by its ``perform``, in a loop that is compiled by NUMBA, too."""

    __props__ = ("op",)

    def __init__(self, op: Op) -> None:
        self.op = op
        self.view_map, self.destroy_map = dict(op.view_map), dict(op.destroy_map)

    def __str__(self) -> str:
        return f"InPython{{{self.op}}}"

    def make_node(self, *inputs: Any) -> Apply:
        """Make a node with the types of the other Op."""
        node = self.op.make_node(*inputs)
        return Apply(self, node.inputs, [v.type() for v in node.outputs])

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: list[list[Any]]) -> None:
        """Run the other Op; its results are arrays of the declared dtypes."""
        inner = getattr(node.tag, "opencl_inner_node", None)
        if inner is None:
            inner = node.tag.opencl_inner_node = Apply(self.op, list(node.inputs), [v.type() for v in node.outputs])
            self.op.prepare_node(inner, None, None, "py")
        self.op.perform(inner, list(inputs), output_storage)
        for cell, variable in zip(output_storage, node.outputs, strict=True):
            cell[0] = np.asarray(cell[0], dtype=variable.type.numpy_dtype)


def can_run_in_python(node: Apply) -> bool:
    """Return whether the values of a node are arrays, which NUMBA's code hands to Python."""
    variables: list[Variable] = [*node.inputs, *node.outputs]
    return all(hasattr(v.type, "numpy_dtype") and hasattr(v.type, "shape") for v in variables)


def _for_numba(op: Any, node: Apply, njit: Any) -> tuple[Any, None]:
    """Return a function that calls Python; NUMBA cannot store it on disk."""
    return call_perform(op, node), None


register_when_met(InPython, _for_numba)
