"""Division of whole numbers -> the same with a check for zero, as PyTensor's C backend has.

NumPy, NUMBA and OpenCL divide by zero without an error.
"""

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph

from pytensor_cl.scalar.integer_division import checked_divisor, divides_integers


def check_divisors(fgraph: FunctionGraph) -> None:
    """Check the divisors of elementwise divisions and remainders that may be zero."""
    checked: dict[Variable, Variable] = {}
    for node in filter(divides_integers, fgraph.toposort()):
        divisor = node.inputs[1]
        if divisor not in checked:
            checked[divisor] = checked_divisor(divisor)
        if checked[divisor] is not divisor:
            fgraph.change_node_input(node, 1, checked[divisor], reason="opencl_decompose", import_missing=True)
