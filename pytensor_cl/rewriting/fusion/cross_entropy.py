"""Losses of rows and their gradient -> one node, which reads the logits once.

It runs before PyTensor fuses elementwise nodes: a Composite would make factors of the gradient depend on the losses.
"""

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Alloc

from pytensor_cl.nn.cross_entropy import CrossEntropy
from pytensor_cl.rewriting.fusion.replace import replace_outputs


def fuse_cross_entropies(fgraph: FunctionGraph) -> None:
    """CrossEntropy(x, t), and its gradient that does not depend on it -> both in one node."""
    nodes = [n for n in fgraph.toposort() if isinstance(n.op, CrossEntropy) and n.op.loss != n.op.gradient]
    losses = [n for n in nodes if n.op.loss]
    for gradient in (n for n in nodes if n.op.gradient):
        found = next((loss for loss in losses if _is_pair(loss, gradient)), None)
        if found is not None:
            losses.remove(found)
            outputs = [*found.outputs, *gradient.outputs]
            inputs = *found.inputs, *map(_without_repetition, gradient.inputs[len(found.inputs) :])
            both = gradient.op.variant(loss=True, gradient=True)(*inputs, return_list=True)
            replace_outputs(fgraph, outputs, both, "opencl_cross_entropy")


def _without_repetition(factor: Variable) -> Variable:
    """Return a factor with an element for each row, or the number that is repeated for all of them."""
    node = factor.owner
    if node is None or not isinstance(node.op, Alloc) or not all(node.inputs[0].type.broadcastable):
        return factor
    number = node.inputs[0].dimshuffle()
    return number.dimshuffle(["x"] * factor.type.ndim)


def _is_pair(loss: Apply, gradient: Apply) -> bool:
    """Return whether a gradient is that of the losses, and can be computed before them."""
    count = len(loss.inputs)
    is_same = (loss.op.axis, loss.op.by_label, loss.op.by_target) == (
        gradient.op.axis,
        gradient.op.by_label,
        gradient.op.by_target,
    )
    if not is_same or gradient.inputs[:count] != loss.inputs:
        return False
    return loss not in {v.owner for v in ancestors(gradient.inputs[count:])}
