"""Draws of NUMBA that are NumPy's to the last bit.

PyTensor lets NUMBA contract a product and a sum to one operation with one rounding. NumPy rounds twice.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.random.basic import HalfNormalRV, NormalRV, StudentTRV, UniformRV


class _RoundedNormal(NormalRV):
    """Normal numbers without contraction."""


class _RoundedUniform(UniformRV):
    """Uniform numbers without contraction."""


class _RoundedHalfNormal(HalfNormalRV):
    """Half-normal numbers without contraction."""


class _RoundedStudentT(StudentTRV):
    """Numbers of Student's distribution without contraction."""


_ROUNDED = {
    NormalRV: _RoundedNormal,
    UniformRV: _RoundedUniform,
    HalfNormalRV: _RoundedHalfNormal,
    StudentTRV: _RoundedStudentT,
}


@cache
def _register() -> None:
    """Register the NUMBA functions of one draw."""
    import numpy as np
    from pytensor.link.numba.dispatch.basic import numba_njit  # loads NUMBA
    from pytensor.link.numba.dispatch.random import numba_core_rv_funcify

    @numba_core_rv_funcify.register(_RoundedNormal)
    def normal(op: Any, node: Any) -> Any:
        return numba_njit(lambda rng, loc, scale: rng.normal(loc, scale), fastmath=False)

    @numba_core_rv_funcify.register(_RoundedUniform)
    def uniform(op: Any, node: Any) -> Any:
        return numba_njit(lambda rng, low, high: rng.uniform(low, high), fastmath=False)

    @numba_core_rv_funcify.register(_RoundedHalfNormal)
    def halfnormal(op: Any, node: Any) -> Any:
        return numba_njit(lambda rng, loc, scale: loc + scale * np.abs(rng.standard_normal()), fastmath=False)

    @numba_core_rv_funcify.register(_RoundedStudentT)
    def student(op: Any, node: Any) -> Any:
        return numba_njit(lambda rng, df, loc, scale: loc + scale * rng.standard_t(df), fastmath=False)


def draw_with_numba(kind: type, draw: Callable[..., Any]) -> None:
    """Register what NUMBA compiles for one draw of a class of Ops: a function of the generator and the parameters."""
    from pytensor.link.numba.dispatch.basic import numba_njit  # loads NUMBA
    from pytensor.link.numba.dispatch.random import numba_core_rv_funcify

    numba_core_rv_funcify.register(kind)(lambda op, node: numba_njit(draw))


def replace_contracted_draws(fgraph: FunctionGraph) -> None:
    """Replace draws whose last bit depends on contraction by such that are compiled without."""
    for node in fgraph.toposort():
        rounded = _ROUNDED.get(type(node.op))
        if rounded is None:
            continue
        _register()
        op: Any = node.op
        new = Apply(rounded(**op._props_dict()), node.inputs, [v.type() for v in node.outputs])
        pairs = list(zip(node.outputs, new.outputs, strict=True))
        fgraph.replace_all(pairs, reason="opencl_rounded_draws", import_missing=True)
