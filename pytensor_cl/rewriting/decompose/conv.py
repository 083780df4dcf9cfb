"""Convolutions of dtypes without a kernel -> convolutions of float32 or float64; complex ones by parts."""

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.signal.conv import Convolve1d, Convolve2d

from pytensor_cl.codegen.dtypes import is_complex, is_special, part


def _is_convolution(node: Apply) -> bool:
    op = node.op.core_op if isinstance(node.op, Blockwise) else node.op
    if not isinstance(op, Convolve1d | Convolve2d):
        return False
    dtypes = [v.type.dtype for v in (*node.inputs[:2], *node.outputs)]
    return dtypes[2] == "bool" or any(map(is_special, dtypes))


def _split(node: Apply) -> Variable:
    """Return a graph that computes the same."""
    *signals, mode = node.inputs
    dtype = node.outputs[0].type.dtype

    def convolve(*parts: Variable) -> Variable:
        return node.op.make_node(*parts, mode).outputs[0]

    if dtype == "bool":  # a sum of products of truth values is an "or" of "ands"
        return pt.neq(convolve(*(pt.cast(s, "float32") for s in signals)), 0)
    if not is_complex(dtype):
        return pt.cast(convolve(*(pt.cast(s, "float32") for s in signals)), dtype)
    (a, b), (c, d) = (_parts(s, part(dtype)) for s in signals)
    real = convolve(a, c) if b is None or d is None else convolve(a, c) - convolve(b, d)
    crossed = [convolve(x, y) for x, y in ((a, d), (b, c)) if x is not None and y is not None]
    return pt.cast(pt.complex(real, sum(crossed[1:], crossed[0])), dtype)


def _parts(signal: Variable, dtype: str) -> tuple[Variable, Variable | None]:
    """Return real and imaginary parts; None for that of real numbers."""
    if not is_complex(signal.type.dtype):
        return pt.cast(signal, dtype), None
    return pt.cast(pt.real(signal), dtype), pt.cast(pt.imag(signal), dtype)


def split_convolutions(fgraph: FunctionGraph) -> None:
    """Replace convolutions of float16, bool and complex numbers."""
    convolutions = [node for node in fgraph.toposort() if _is_convolution(node)]
    pairs = [(n.outputs[0], n.outputs[0].type.filter_variable(_split(n))) for n in convolutions]
    fgraph.replace_all(pairs, reason="opencl_decompose", import_missing=True)
