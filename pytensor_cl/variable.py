"""Variables whose values are on a device."""

from typing import Any

from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.variable import _tensor_py_operators

from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.type import GpuArrayType


class GpuArrayVariable(_tensor_py_operators, Variable):
    """A symbolic device array with the methods and operators of tensors.

    Operators see it as ``host_from_gpu`` of it; the rewrites take that transfer out again.
    """

    # Variables are compared by identity; the mixin's operators must not change that.
    __hash__ = Variable.__hash__


class GpuArrayConstant(GpuArrayVariable, Constant):
    """A device array that is part of a graph."""

    def signature(self) -> tuple[Any, ...]:
        """Return the key that merges equal constants: the Type and the identity of the array."""
        return (self.type, id(self.data))


GpuArrayType.variable_type = GpuArrayVariable
GpuArrayType.constant_type = GpuArrayConstant


def constant_of(array: GpuArray) -> GpuArrayConstant:
    """Return the present values of a device array as a constant of graphs, of its static shape.

    It has a read-only copy: what is written to the array later does not change functions.
    """
    frozen = array.copy()
    frozen.readonly = True
    return GpuArrayConstant(GpuArrayType(array.dtype, array.shape, array.context.name), frozen)


def refuse_device_variables(linker: object, fgraph: FunctionGraph) -> None:
    """Refuse a graph with values on a device for a linker that compiles functions of host arrays.

    Raises
    ------
    NotImplementedError
        There is such a value; the message has the alternative.
    """
    for variable in (*fgraph.inputs, *fgraph.variables):
        if isinstance(variable.type, GpuArrayType):
            raise NotImplementedError(
                f"{type(linker).__name__} cannot compute with values on a device, as {variable} of Type "
                f"{variable.type} is. Compile for the device, pytensor.function(..., mode='OPENCL') or "
                "x.eval(..., mode='OPENCL'). For every mode: pytensor.shared in place of pytensor_cl.shared, and no "
                "x.transfer('dev0')"
            )
