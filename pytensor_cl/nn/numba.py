"""NUMBA runs the Ops of this package: most on the host's NumPy, without a warning for each."""

from typing import Any

from pytensor.compile.mode import optdb
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter

from pytensor_cl._compat.numba_backend import run_in_object_mode
from pytensor_cl._compat.numba_draws import draw_with_numba
from pytensor_cl.nn.conv import Conv, ConvGradInput, ConvGradWeight
from pytensor_cl.nn.dropout import MaskRV
from pytensor_cl.nn.pool import MaxPool, MaxPoolGather, MaxPoolIndices, MaxPoolScatter, SumPool, SumPoolGrad
from pytensor_cl.nn.resampling import MakeTable, TransposeTable

CONVOLUTIONS = (Conv, ConvGradInput, ConvGradWeight)
OPS = (
    *(*CONVOLUTIONS, MaxPool, MaxPoolGather, MaxPoolIndices, MaxPoolScatter, SumPool, SumPoolGrad),
    *(MakeTable, TransposeTable),
)


class _RegisterWithNumba(GraphRewriter):
    """Registers the Ops with NUMBA when they first occur, so that importing them does not load it; changes no graph."""

    _is_done = False
    _has_masks = False

    def apply(self, fgraph: FunctionGraph) -> Any:
        """Look whether there is such an Op."""
        if not self._is_done and any(isinstance(node.op, OPS) for node in fgraph.apply_nodes):
            run_in_object_mode(*OPS)
            self._is_done = True
        if not self._has_masks and any(isinstance(node.op, MaskRV) for node in fgraph.apply_nodes):
            draw_with_numba(MaskRV, lambda rng, p: rng.random() >= p)
            self._has_masks = True


optdb.register("pytensor_cl_nn_numba", _RegisterWithNumba(), "numba", position=0)
