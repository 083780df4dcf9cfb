"""Minimisation and root finding by SciPy -> the same, with a function that runs on the device."""

from typing import Any

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import get_active_mode
from pytensor.tensor.blockwise import Blockwise

from pytensor_cl.ops.optimize import with_device_objective
from pytensor_cl.ops.registry import note_reason


def _with_device_objective(node: Apply, mode: Any) -> Any:
    """Return the Op of a node with a function of the mode; None if it is no such Op, or has one."""
    op = node.op
    if not isinstance(op, Blockwise):
        return with_device_objective(op, mode)
    core = with_device_objective(op.core_op, mode)
    return None if core is None else Blockwise(core, signature=op.signature, name=op.name)


def compile_objectives(fgraph: FunctionGraph) -> None:
    """Replace the Ops of `pytensor.tensor.optimize`."""
    mode = get_active_mode(fgraph)
    for node in fgraph.toposort():
        op = _with_device_objective(node, mode)
        if op is not None:
            new = op.make_node(*node.inputs)
            note_reason(new, "SciPy chooses the points; the function of a point runs on the device")
            pairs = list(zip(node.outputs, new.outputs, strict=True))
            fgraph.replace_all(pairs, reason="opencl_compile_objectives")
