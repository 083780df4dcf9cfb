"""Ops and rewrites of PyTensor's own backends whose results are wrong: a backend does not run them.

The table is consulted where the backends of a function are chosen, and where they compile it. docs/cpu-faults.md
lists the same faults for users.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.scalar.basic import IntDiv, Maximum, Minimum, Mod, Pow, ScalarInnerGraphOp, ScalarOp
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.linalg.decomposition.eigen import Eigh
from pytensor.tensor.linalg.decomposition.svd import SVD

from pytensor_cl._compat.inner_graphs import graphs_inside
from pytensor_cl.scalar.integer_division import without_view

NUMBA, C = "NUMBA", "C"


def _nowhere(node: Apply) -> bool:
    return False


@dataclass(frozen=True)
class KnownFault:
    """A fault of a backend of PyTensor's."""

    backend: str  # "C" or "NUMBA"
    ops: str  # names of PyTensor's Ops, as the documentation writes them
    what: str  # description of the fault
    seen_on: str  # versions of PyTensor that have it
    occurs: Callable[[Apply], bool] = _nowhere  # the backend is not handed a graph with such a node
    rewrites: tuple[str, ...] = ()  # PyTensor's rewrites that make the faulty Ops; the backend compiles without them


def _is_extreme_of_wide_integers(node: Apply) -> bool:
    op = getattr(node.op, "scalar_op", node.op)
    is_wide = any(getattr(v.type, "dtype", "") in ("int64", "uint64") for v in node.outputs)
    return is_wide and isinstance(op, Maximum | Minimum)


def _is_of_half_precision(node: Apply) -> bool:
    is_elementwise = isinstance(node.op, Elemwise | CAReduce)
    return is_elementwise and any(v.type.dtype == "float16" for v in node.outputs)


def _scalar_op_of(node: Apply) -> Any:
    return getattr(node.op, "scalar_op", node.op)


def _dtypes(variables: Iterable[Variable]) -> list[np.dtype]:
    return [np.dtype(v.type.dtype) for v in variables if hasattr(v.type, "dtype")]


def _is_constant_that_is_not_negative(variable: Variable) -> bool:
    source = without_view(variable)
    return isinstance(source, Constant) and bool(np.all(np.asarray(source.data) >= 0))


def _mixes_signs(node: Apply) -> bool:
    """Return whether C converts signed integers to unsigned ones first; those of 8 and 16 bits become int."""
    op = _scalar_op_of(node)
    if not isinstance(op, ScalarOp) or isinstance(op, ScalarInnerGraphOp):
        return False
    kinds = _dtypes(v for v in node.inputs if not _is_constant_that_is_not_negative(v))
    signed = max((dtype.itemsize for dtype in kinds if dtype.kind == "i"), default=0)
    unsigned = max((dtype.itemsize for dtype in kinds if dtype.kind == "u"), default=0)
    return signed > 0 and unsigned >= max(4, signed)


def _divides_the_least_integer(node: Apply) -> bool:
    if not isinstance(_scalar_op_of(node), IntDiv | Mod) or isinstance(without_view(node.inputs[0]), Constant):
        return False
    is_length = getattr(node.outputs[0].type, "ndim", 1) == 0
    return not is_length and node.inputs[0].type.dtype in ("int32", "int64")


def _is_power_of_integers(node: Apply) -> bool:
    is_power = isinstance(_scalar_op_of(node), Pow)
    return is_power and all(dtype.kind in "iub" for dtype in _dtypes(node.inputs))


def _accumulates_narrow_integers(node: Apply) -> bool:
    if not isinstance(node.op, CumOp):
        return False
    kind = node.outputs[0].type
    return kind.dtype != "int64" and kind.numpy_dtype.kind not in "fc"


FAULTS: tuple[KnownFault, ...] = (
    KnownFault(
        C,
        "`MulSDCSC`, `MulSDCSR`",
        "the product of a sparse and a dense matrix, and with it the gradient of `dense_from_sparse`, reads wrong "
        "elements of a dense matrix whose rows are not contiguous, such as a transpose or what csc matrices become",
        "3.3.8",
        rewrites=("local_mul_s_d",),
    ),
    KnownFault(
        C,
        "`AddSparseDenseC`",
        "the sum of a sparse and a dense matrix writes to wrong elements if the dense matrix is not in C order",
        "3.3.8",
        rewrites=("local_addsd_ccode",),
    ),
    KnownFault(
        C,
        "`Gemm`",
        "an addend whose shape does not fit is broadcast without an error",
        "3.3.8",
        rewrites=("gemm_optimizer",),
    ),
    KnownFault(
        C,
        "`maximum`, `minimum`",
        "64-bit integers are compared as float64, which has 53 bits",
        "3.3.8",
        occurs=_is_extreme_of_wide_integers,
    ),
    KnownFault(
        C,
        "Ops of an unsigned and a signed integer",
        "where the unsigned one has at least 32 bits and is as wide as the other, negative numbers are taken for large "
        "ones: -1 is not below 1, and -7 // 3 is 4294967293; `//` by zero ends the process if the result is float64",
        "3.3.8",
        occurs=_mixes_signs,
    ),
    KnownFault(
        C,
        "`//`, `%`",
        "quotients and remainders of the least int32 and int64 are wrong, and its remainder by -1 may end the process",
        "3.3.8",
        occurs=_divides_the_least_integer,
    ),
    KnownFault(
        C,
        "`Pow` of integers",
        "powers are computed as float64, and those that overflow do not wrap round",
        "3.3.8",
        occurs=_is_power_of_integers,
    ),
    KnownFault(
        C,
        "`Elemwise`, `CAReduce`",
        "there is no code for float16: Python computes each element, a million in ten seconds",
        "3.3.8",
        occurs=_is_of_half_precision,
    ),
    KnownFault(
        NUMBA,
        "`CumOp`",
        "cumulative sums and products of integers other than int64 are accumulated as int64",
        "3.3.8",
        occurs=_accumulates_narrow_integers,
    ),
    KnownFault(
        NUMBA,
        "`Eigh`, `SVD`",
        "a decomposition that does not converge gives NaN in place of an error",
        "3.3.8",
        occurs=lambda node: isinstance(getattr(node.op, "core_op", node.op), Eigh | SVD),
    ),
)
"""Wherever PyTensor's backends miss an error that a check can find (`guards`), they run with the check instead."""


def fault_of(backend: str, node: Apply) -> KnownFault | None:
    """Return a fault of a backend that a node, or one in its inner graphs, has; None if none is known."""
    own = (fault for fault in FAULTS if fault.backend == backend and fault.occurs(node))
    scalar_op: Any = getattr(node.op, "scalar_op", None)
    graphs = [scalar_op.fgraph] if hasattr(scalar_op, "fgraph") else list(graphs_inside(node.op))
    inside = (fault_of(backend, inner) for graph in graphs for inner in graph.toposort())
    return next(own, None) or next(filter(None, inside), None)


def excluded_rewrites(backend: str) -> tuple[str, ...]:
    """Return the names of PyTensor's rewrites without which a backend compiles."""
    return tuple(name for fault in FAULTS if fault.backend == backend for name in fault.rewrites)
