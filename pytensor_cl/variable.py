"""Variables whose values live on a device."""

from typing import Any

from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.variable import _tensor_py_operators

from pytensor_cl.type import GpuArrayType

__all__ = ["GpuArrayConstant", "GpuArrayVariable"]


class GpuArrayVariable(_tensor_py_operators, Variable):
    """A symbolic device array with the methods and operators of tensors.

    Operators see it as ``host_from_gpu`` of it; the rewrites take that transfer out again.
    """

    # Variables are compared by identity; the mixin's operators must not change that.
    __hash__ = Variable.__hash__


class GpuArrayConstant(GpuArrayVariable, Constant):
    """A device array that is part of a graph."""

    def signature(self) -> tuple[Any, ...]:
        """Return what merges equal constants: the Type and the identity of the array."""
        return (self.type, id(self.data))


GpuArrayType.variable_type = GpuArrayVariable
GpuArrayType.constant_type = GpuArrayConstant
