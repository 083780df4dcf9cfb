"""Registration of NUMBA implementations when an Op first occurs, so that importing a module does not load NUMBA."""

from collections.abc import Callable
from typing import Any

from pytensor.compile.mode import optdb
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter

from pytensor_cl._compat.numba_backend import register_numba_implementation

__all__ = ["register_when_met"]


class _RegisterWithNumba(GraphRewriter):
    """Registers an Op with NUMBA."""

    def __init__(self, op_type: type, make: Callable[..., tuple[Any, Any]]) -> None:
        super().__init__()
        self._op_type, self._make, self._is_done = op_type, make, False

    def apply(self, fgraph: FunctionGraph) -> Any:
        """Register the Op if the graph has it; the graph is not changed."""
        if not self._is_done and any(isinstance(node.op, self._op_type) for node in fgraph.apply_nodes):
            register_numba_implementation(self._op_type, self._make)
            self._is_done = True


def register_when_met(op_type: type, make: Callable[..., tuple[Any, Any]]) -> None:
    """Register the NUMBA implementation of an Op when a graph has it."""
    rewriter = _RegisterWithNumba(op_type, make)
    optdb.register(f"pytensor_cl_numba_{op_type.__name__}", rewriter, "numba", position=0)
