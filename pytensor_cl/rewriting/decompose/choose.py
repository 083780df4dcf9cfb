"""Choose from a list of tensors -> `ChooseOf`, whose inputs are the tensors."""

from typing import Any

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.basic import Choose
from pytensor.typed_list.basic import MakeList

from pytensor_cl.ops.indexing.take_along_axis import ChooseOf


def _items(node: Apply) -> list[Any] | None:
    """Return the tensors of a list that the graph makes; None if there is no such list, or they exceed the result."""
    index, choices = node.inputs
    if choices.owner is None or not isinstance(choices.owner.op, MakeList):
        return None
    items = list(choices.owner.inputs)
    excess = index.type.ndim - items[0].type.ndim
    if excess < 0:
        return None
    pairs = (zip(index.type.shape[excess:], item.type.shape, strict=True) for item in items)
    is_inside = all(n != 1 or m == 1 for pair in pairs for n, m in pair)
    return items if is_inside else None


def expand_choose_lists(fgraph: FunctionGraph) -> None:
    """Replace Choose nodes whose list is made in the graph."""
    for node in fgraph.toposort():
        items = _items(node) if isinstance(node.op, Choose) else None
        if items is not None:
            new = ChooseOf(node.op.mode).make_node(node.inputs[0], *items).outputs[0]
            fgraph.replace(node.outputs[0], node.outputs[0].type.filter_variable(new), reason="opencl_decompose")
