"""GpuScanLoop without unused memory: rows of a trace that are not read, and room for rows before the first step."""

from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.subtensor import indices_from_subtensor

from pytensor_cl.ops.alloc import GpuAlloc, GpuAllocEmpty
from pytensor_cl.ops.indexing.slice_update import GpuIncSubtensor, GpuSubtensor
from pytensor_cl.ops.scan_loop import GpuScanLoop, started_dims
from pytensor_cl.rewriting.fusion.replace import replace_outputs
from pytensor_cl.routines.scan_loop.program import STATE, SUM, TIME, LoopArray, LoopProgram

_REASON = "opencl_shorten_loops"
MOST_KEPT = 16
"""Last rows of a trace that are kept instead of all."""


def _number(variable: Any) -> int | None:
    """Return the value of a constant integer; None if it is no constant."""
    return int(variable.data) if isinstance(variable, Constant) and variable.data is not None else None


def _is_whole(entry: Any) -> bool:
    """Return whether an entry of an index takes all of a dimension."""
    if not isinstance(entry, slice):
        return False
    parts = (entry.start, entry.stop, entry.step)
    return all(v is None or (isinstance(v, Constant) and v.data is None) for v in parts)


def _last_rows(node: Apply, at: int) -> int | None:
    """Return how many of the last rows along dimension `at` an indexing node reads; None if it may be any."""
    if not isinstance(node.op, GpuSubtensor):
        return None
    entries = indices_from_subtensor(node.inputs[1:], node.op.host.idx_list)
    if len(entries) <= at:
        return None
    entry = entries[at]
    if not isinstance(entry, slice):
        index = _number(entry)
        return -index if index is not None and index < 0 else None
    start, stop, step = _number(entry.start), _number(entry.stop), _number(entry.step)
    is_forward = entry.step is None or (step is not None and step > 0)
    ends_last = entry.stop is None or (stop is not None and stop < 0)
    return -start if start is not None and start < 0 and is_forward and ends_last else None


def _kept(output: Variable, array: LoopArray, is_while: bool, fgraph: FunctionGraph) -> int | None:
    """Return how many of the last rows of an output are read; None for all."""
    if array.role not in (STATE, SUM) or is_while:
        return None
    clients = fgraph.clients[output]
    counts = [_last_rows(node, array.out_dims.index(TIME)) for node, _ in clients]
    known = [n for n in counts if n is not None]
    if not known or len(known) < len(clients) or max(known) > MOST_KEPT:
        return None
    return max(known)


def _initial_values(variable: Variable, array: LoopArray) -> tuple[Variable, Variable] | None:
    """Return the initial values of a trace and its number of rows, if the rest of the array is only room."""
    update = variable.owner
    if update is None or not isinstance(update.op, GpuIncSubtensor) or not update.op.host.set_instead_of_inc:
        return None
    room, values = update.inputs[:2]
    if room.owner is None or not isinstance(room.owner.op, GpuAlloc | GpuAllocEmpty):
        return None
    at = array.dims.index(TIME)
    entries = indices_from_subtensor(update.inputs[2:], update.op.host.idx_list)
    if len(entries) != at + 1 or not all(map(_is_whole, entries[:at])):
        return None
    rows = entries[at]
    if not isinstance(rows, slice) or _number(rows.start) not in (None, 0) or _number(rows.stop) != array.window:
        return None
    lengths = room.owner.inputs[len(room.owner.inputs) - room.type.ndim :]
    is_stepped = rows.step is not None and _number(rows.step) != 1
    return None if is_stepped or not _fits(values, array, at) else (values, lengths[at])


def _fits(values: Variable, array: LoopArray, at: int) -> bool:
    """Return whether initial values have the shape of their place in the trace, apart from batch dimensions of one."""
    shape: Sequence[int | None] = getattr(values.type, "shape", ())
    if len(shape) != len(array.dims) or shape[at] not in (1, array.window):
        return False
    inner = zip(array.dims[at + 1 :], shape[at + 1 :], strict=True)
    return all(n == dim.number if dim.kind == "core" else n != 1 for dim, n in inner)


def _starts(node: Apply, program: LoopProgram) -> tuple[dict[int, Variable], dict[int, Variable]]:
    """Return the initial values and the numbers of rows of arrays of a loop, by number."""
    values: dict[int, Variable] = {}
    rows: dict[int, Variable] = {}
    arrays = list(program.arrays)
    for number, array in enumerate(program.arrays):
        found = _initial_values(node.inputs[1 + number], array) if array.role == STATE else None
        if found is None:
            continue
        dims = started_dims(array, found[0].type.shape)
        changed = [*arrays[:number], array._replace(dims=dims, has_rows=True), *arrays[number + 1 :]]
        if program.changed(changed).sized == program.sized:
            arrays = changed
            values[number], rows[number] = found
    return values, rows


def shorten_loops(fgraph: FunctionGraph) -> None:
    """GpuScanLoop(.., x[:m] = start, ..)[-1] -> GpuScanLoop(.., start, .., rows) with the last row as its output."""
    for node in fgraph.toposort():
        if not isinstance(node.op, GpuScanLoop) or node.op.starts:
            continue
        program = node.op.program(True)
        outputs = zip(node.outputs, program.outputs, strict=True)
        is_while = program.condition is not None
        kept = tuple(_kept(v, program.arrays[number], is_while, fgraph) for v, number in outputs)
        values, rows = _starts(node, program)
        if not values and not any(kept):
            continue
        inputs = [values.get(k - 1, v) for k, v in enumerate(node.inputs)]
        op = node.op.with_kept(kept).with_starts(tuple(rows))
        new = op.apply([*inputs, *rows.values()], [v.type for v in node.outputs])
        replace_outputs(fgraph, node.outputs, new.outputs, _REASON)
