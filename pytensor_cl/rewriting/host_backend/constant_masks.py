"""Constant masks as positions, for the NUMBA backend.

NUMBA checks neither the shape of a mask nor the shape of the values that are written where it is true.
"""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, indices_from_subtensor

from pytensor_cl.rewriting.host_backend.axis_lengths import length_conditions

__all__ = ["has_constant_masks", "replace_constant_masks"]

MASK = CheckAndRaise(IndexError, "a mask does not have the shape of the array")
"""Users do not see this message: a call that fails on the host is repeated on the device."""


def _is_mask(index: Any) -> bool:
    return isinstance(index, Variable) and getattr(index.type, "dtype", "") == "bool"


def _entries(node: Apply) -> tuple[Any, ...]:
    """Return the index of a node, one entry for each slice and each array; empty for other Ops."""
    if not isinstance(node.op, AdvancedSubtensor | AdvancedIncSubtensor):
        return ()
    first = 1 if isinstance(node.op, AdvancedSubtensor) else 2
    return indices_from_subtensor(node.inputs[first:], node.op.idx_list)


def has_constant_masks(node: Apply) -> bool:
    """Return whether a node reads or writes an array by masks that are all constants."""
    masks = list(filter(_is_mask, _entries(node)))
    return bool(masks) and all(isinstance(mask, Constant) and mask.type.ndim for mask in masks)


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
        positions.extend(pt.constant(found) for found in np.nonzero(entry.data))
        for at in range(entry.type.ndim):
            same += length_conditions(x, axis + at, entry, at)
        axis += entry.type.ndim
    selected = (MASK(x, *same) if same else x)[tuple(positions)]
    if isinstance(op, AdvancedSubtensor):
        return selected
    return selected.set(node.inputs[1]) if op.set_instead_of_inc else selected.inc(node.inputs[1])


def replace_constant_masks(fgraph: FunctionGraph) -> None:
    """Replace constant masks by the positions where they are true.

    Parameters
    ----------
    fgraph
        A graph before the checks of `guards` are added; changed in place.
    """
    for node in fgraph.toposort():
        if has_constant_masks(node):
            fgraph.replace(node.outputs[0], _by_positions(node), import_missing=True)
