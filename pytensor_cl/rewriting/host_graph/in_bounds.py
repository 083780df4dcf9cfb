"""A bounds check of indices in one pass, before NUMBA's code uses them without checking."""

from typing import Any, ClassVar

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.basic import as_tensor_variable

from pytensor_cl._compat.numba_backend import register_when_met

MESSAGE = "index out of bounds"
VERSION = 3
"""Version of the compiled code, which NUMBA caches between processes under the name of this module."""


class InBounds(Op):
    """Returns an array of integers if each of them is a valid index of all axes whose lengths are given.

    Comparisons in the graph would write an array, and one check for each table would keep NUMBA from fusing the loops
    of several lookups.
    """

    __props__ = ()
    view_map: ClassVar = {0: [0]}

    def make_node(self, index: Any, *extents: Any) -> Apply:
        """Make a node of the indices and the lengths of axes, which are 0-d integers."""
        index = as_tensor_variable(index)
        return Apply(self, [index, *map(as_tensor_variable, extents)], [index.type()])

    def infer_shape(self, node: Apply, shapes: list[Any]) -> list[Any]:
        """Return the shape of the indices."""
        return [shapes[0]]

    def perform(self, node: Apply, inputs: list[Any], output_storage: list[Any]) -> None:
        """Check all indices; raise IndexError."""
        index, *extents = inputs
        least = min(map(int, extents))
        if index.size and (int(index.min()) < -least or int(index.max()) >= least):
            raise IndexError(MESSAGE)
        output_storage[0][0] = index


in_bounds = InBounds()


def _for_numba(op: Op, node: Apply, njit: Any) -> tuple[Any, str]:
    """Return the function for NUMBA, with a loop that LLVM vectorises, and its key."""
    lowest = 0 if node.inputs[0].type.numpy_dtype.kind == "u" else -1
    wide = np.int64 if lowest else np.uint64
    # A vector is read as it is: in a loop, a view of it would take as long as the step.
    flattened = njit((lambda index: index) if node.inputs[0].type.ndim == 1 else (lambda index: index.ravel()))

    @njit
    def check(index: Any, *extents: Any) -> Any:
        least = extents[0].item()
        for extent in extents:
            least = min(least, extent.item())
        flat = flattened(index)
        low, high = wide(0), wide(0)
        for i in range(flat.size):
            value = wide(flat[i])
            low = value if value < low else low
            high = value if value > high else high
        if flat.size and (high >= wide(least) or low < wide(lowest * least)):
            raise IndexError(MESSAGE)
        return index

    return check, f"pytensor_cl_in_bounds_{VERSION}_{lowest}_{node.inputs[0].type.ndim == 1}"


register_when_met(InBounds, _for_numba)
