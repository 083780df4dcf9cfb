"""Masks as positions, for the NUMBA backend.

NUMBA checks neither the shape of a mask nor the shape of the values that are written where it is true.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, indices_from_subtensor

from pytensor_cl.rewriting.host_graph.axis_lengths import length_conditions

MASK = CheckAndRaise(IndexError, "boolean index did not match indexed array: their shapes differ")


def _is_mask(index: Any) -> bool:
    return isinstance(index, Variable) and getattr(index.type, "dtype", "") == "bool"


def _entries(node: Apply) -> tuple[Any, ...]:
    """Return the index of a node, one entry for each slice and each array; empty for other Ops."""
    if not isinstance(node.op, AdvancedSubtensor | AdvancedIncSubtensor):
        return ()
    first = 1 if isinstance(node.op, AdvancedSubtensor) else 2
    return indices_from_subtensor(node.inputs[first:], node.op.idx_list)


def is_mask_selection(node: Apply) -> bool:
    """Return whether a node selects the elements of an array where a mask is true, and does nothing else."""
    return isinstance(node.op, AdvancedSubtensor) and node.op.idx_list == (0,) and node.inputs[1].type.dtype == "bool"


def has_masks(node: Apply) -> bool:
    """Return whether a node reads or writes an array by masks that `replace_masks` can replace."""
    masks = list(filter(_is_mask, _entries(node)))
    return bool(masks) and all(mask.type.ndim for mask in masks) and not getattr(node.op, "ignore_duplicates", False)


def has_constant_masks(node: Apply) -> bool:
    """Return whether a node reads or writes an array by masks that are all constants."""
    return has_masks(node) and all(isinstance(mask, Constant) for mask in filter(_is_mask, _entries(node)))


def _positions(mask: Variable) -> Sequence[Variable]:
    """Return the indices where a mask is true, one vector for each dimension."""
    return [pt.constant(i) for i in np.nonzero(mask.data)] if isinstance(mask, Constant) else pt.nonzero(mask)


def _by_positions(node: Apply) -> Variable:
    """Return the result of a node by positions in place of masks."""
    op: Any = node.op
    x = node.inputs[0]
    positions: list[Any] = []
    same: list[Variable] = []
    axis = 0
    for entry in _entries(node):
        if not _is_mask(entry):
            positions.append(entry)
            axis += 1
            continue
        positions.extend(_positions(entry))
        for at in range(entry.type.ndim):
            same += length_conditions(x, axis + at, entry, at)
        axis += entry.type.ndim
    selected = (MASK(x, *same) if same else x)[tuple(positions)]
    if isinstance(op, AdvancedSubtensor):
        return selected
    return selected.set(node.inputs[1]) if op.set_instead_of_inc else selected.inc(node.inputs[1])


def replace_masks(fgraph: FunctionGraph) -> None:
    """Replace masks by the positions where they are true, but for selections by a mask that is no constant."""
    for node in fgraph.toposort():
        if has_constant_masks(node) or (has_masks(node) and not is_mask_selection(node)):
            fgraph.replace(node.outputs[0], _by_positions(node), import_missing=True)
