"""Results of a loop that are read backwards -> results that the loop stores backwards.

The gradient of a loop goes backwards; what it computes for each element of a sequence is then put into the order of the
sequence. Products would copy such a view.
"""

from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph, Output
from pytensor.tensor.subtensor import Subtensor, indices_from_subtensor

from pytensor_cl.ops.base import DEVICE
from pytensor_cl.ops.indexing.slice_update import GpuSubtensor
from pytensor_cl.ops.scan import GpuScan

_REASON = "opencl_last_first"


def _is_backwards(node: Any) -> bool:
    """Return whether a node reverses the order along the first dimension, and does nothing else."""
    if isinstance(node, Output) or not isinstance(node.op, GpuSubtensor):
        return False
    entries = indices_from_subtensor(node.inputs[1:], node.op.host.idx_list)
    if len(entries) != 1 or not isinstance(entries[0], slice):
        return False
    start, stop, step = (getattr(v, "data", v) for v in (entries[0].start, entries[0].stop, entries[0].step))
    return start is None and stop is None and step is not None and step == -1


def _backwards(result: Variable, context_name: str) -> Variable:
    """Return a view of a result, with the last row first."""
    host = result.type.host_type()[::-1].owner
    return GpuSubtensor(Subtensor(host.op.idx_list), context_name).make_node(result, *host.inputs[1:]).outputs[0]


def _read_backwards(node: Apply, fgraph: FunctionGraph) -> list[int]:
    """Return the numbers of the results without a state that a client reads backwards."""
    info, places = node.op.host.info, node.op.placement.outer_outputs(node.op.host.info)
    first = info.n_mit_mot + info.n_mit_sot + info.n_sit_sot
    return [
        k
        for k in range(first, first + info.n_nit_sot)
        if places[k] is DEVICE and any(_is_backwards(client) for client, _ in fgraph.clients[node.outputs[k]])
    ]


def store_last_first(fgraph: FunctionGraph) -> None:
    """Scan(...)[::-1] -> Scan(...) whose result begins with the last step."""
    for node in fgraph.toposort():
        if not isinstance(node.op, GpuScan) or node.op.last_first:
            continue
        numbers = _read_backwards(node, fgraph)
        if not numbers:
            continue
        op = node.op.with_last_first(tuple(numbers))
        outputs = Apply(op, list(node.inputs), [v.type() for v in node.outputs]).outputs
        pairs = []
        for k, (old, new) in enumerate(zip(node.outputs, outputs, strict=True)):
            if k not in numbers:
                pairs.append((old, new))
                continue
            flips = [client for client, _ in fgraph.clients[old] if _is_backwards(client)]
            pairs += [(flip.outputs[0], flip.outputs[0].type.filter_variable(new)) for flip in flips]
            pairs.append((old, old.type.filter_variable(_backwards(new, op.context_name))))
        fgraph.replace_all_validate(pairs, reason=_REASON)
