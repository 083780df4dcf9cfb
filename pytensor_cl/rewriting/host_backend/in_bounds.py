"""Indices that are looked at in one pass before NUMBA's code uses them: it reads and writes wherever they point."""

from typing import Any, ClassVar

import numpy as np
from pytensor.compile.mode import optdb
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.tensor.basic import as_tensor_variable

from pytensor_cl._compat import compile_op_with_numba

__all__ = ["InBounds", "in_bounds"]

MESSAGE = "index out of bounds"
VERSION = 1
"""Of what NUMBA compiles, which it keeps between processes."""


class InBounds(Op):
    """An array of integers, if each of them is an index of all the axes whose lengths are given.

    A condition made of comparisons would write an array of its own, and one for each table keeps NUMBA from looking
    several tables up in one loop.
    """

    __props__ = ()
    view_map: ClassVar = {0: [0]}

    def make_node(self, index: Any, *extents: Any) -> Apply:
        """Take the indices and lengths of axes, which are 0-d integers."""
        index = as_tensor_variable(index)
        return Apply(self, [index, *map(as_tensor_variable, extents)], [index.type()])

    def infer_shape(self, node: Apply, shapes: list[Any]) -> list[Any]:
        """Return the shape of the indices."""
        return [shapes[0]]

    def perform(self, node: Apply, inputs: list[Any], output_storage: list[Any]) -> None:
        """Look at all indices; raise IndexError."""
        index, *extents = inputs
        least = min(map(int, extents))
        if index.size and (int(index.min()) < -least or int(index.max()) >= least):
            raise IndexError(MESSAGE)
        output_storage[0][0] = index


in_bounds = InBounds()


def _for_numba(op: Op, node: Apply, njit: Any) -> tuple[Any, str]:
    """Return what NUMBA compiles: a loop that LLVM turns into vector instructions, which others are not."""
    lowest = 0 if node.inputs[0].type.numpy_dtype.kind == "u" else -1
    wide = np.int64 if lowest else np.uint64

    @njit
    def look(index: Any, *extents: Any) -> Any:
        least = extents[0].item()
        for extent in extents:
            least = min(least, extent.item())
        flat = index.ravel()
        low, high = wide(0), wide(0)
        for i in range(flat.size):
            value = wide(flat[i])
            low = value if value < low else low
            high = value if value > high else high
        if flat.size and (high >= wide(least) or low < wide(lowest * least)):
            raise IndexError(MESSAGE)
        return index

    return look, f"pytensor_cl_in_bounds_{VERSION}_{lowest}"


class _TellNumba(GraphRewriter):
    """Changes no graph: tells NUMBA about the Op when it first occurs, so that importing it does not load NUMBA."""

    _is_done = False

    def apply(self, fgraph: FunctionGraph) -> Any:
        """Look whether the Op is there."""
        if not self._is_done and any(isinstance(node.op, InBounds) for node in fgraph.apply_nodes):
            compile_op_with_numba(InBounds, _for_numba)
            self._is_done = True


optdb.register("pytensor_cl_in_bounds_numba", _TellNumba(), "numba", position=0)
