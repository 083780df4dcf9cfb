"""Factors of products over axes and of powers -> factors of a type in which PyTensor's rewrites are right.

``prod(a * x) -> a ** n * prod(x)`` computes the number n in the type of x: 200 as int8 is -56. ``x ** 2.0 -> sqr(x)``
computes the square in the type of x, not in that of the power: the one of 46341 as int32 is negative.
"""

from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace
from pytensor.scalar.basic import Mul, Pow, TrueDiv
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Prod

NARROW = {"bool", "int8", "uint8", "int16", "uint16", "float16"}


def widen_factors(fgraph: FunctionGraph) -> None:
    """Change the factors of products over axes, and of powers, that PyTensor's rewrites would compute wrongly."""
    for node in fgraph.toposort():
        if isinstance(node.op, Prod) and (product := node.inputs[0].owner) is not None and _has_narrow_factor(product):
            new = node.op(_widened(product, node.op.acc_dtype or node.outputs[0].type.dtype))
        elif _is_power_of_another_type(node):
            new = node.op(pt.cast(node.inputs[0], node.outputs[0].type.dtype), node.inputs[1])
        else:
            continue
        copy_stack_trace(node.outputs[0], new)
        fgraph.replace(node.outputs[0], new, reason="opencl_widen_factors", import_missing=True)


def _is_power_of_another_type(node: Apply) -> bool:
    is_power = isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Pow)
    return is_power and node.inputs[0].type.dtype != node.outputs[0].type.dtype


def _has_narrow_factor(node: Apply) -> bool:
    is_product = isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Mul | TrueDiv)
    return is_product and any(v.type.dtype in NARROW for v in node.inputs)


def _widened(product: Apply, accumulated: str) -> Variable:
    """Return a product of wide factors; a narrow product wraps round first, and is then no product for the rewrite."""
    op: Any = product.op
    dtype = product.outputs[0].type.dtype
    if dtype in NARROW:
        return pt.cast(product.outputs[0], accumulated)
    return op(*(pt.cast(v, dtype) for v in product.inputs))
