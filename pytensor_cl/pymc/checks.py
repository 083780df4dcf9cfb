"""Parameter checks of log-probabilities that hold for one point of a batch each."""

from collections.abc import Sequence

from pymc.logprob.utils import local_check_parameter_to_ninf_switch
from pytensor.graph.basic import Apply, Constant, Variable, clone_get_equiv
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.elemwise import CAReduce

from pytensor_cl._compat.inner_graphs import rewrite_compiled_inner_graphs


def replace_parameter_checks(outputs: Sequence[Variable]) -> list[Variable]:
    """Replace PyMC's parameter checks by switches: where a condition does not hold, the value is ``-inf``.

    PyMC puts a `CheckParameterValue` around each log-density, and replaces it by such a switch when it compiles a
    function. `vectorize_graph` of a graph with checks joins the conditions of all points of the batch: one bad point
    then gives an error, or ``-inf``, for all of them. After this function only the bad point has ``-inf``. Call it
    before `vectorize_graph`, and take gradients of what it returns: gradients at a bad point are zero, or NaN where the
    density is.

    Checks of ``icdf``, which PyMC does not replace either, stay. They raise `ParameterValueError` for the whole
    batch.

    Parameters
    ----------
    outputs
        Variables of any shape, such as a model's ``logp()``.

    Returns
    -------
    list
        The same variables, of a copy of the graph. It has the same inputs, shared variables and constants. The graph
        of `outputs` is not changed.

    Examples
    --------
    >>> (logp,) = replace_parameter_checks([model.logp()])
    >>> batched = vectorize_graph(logp, {value: batch_of_values})
    """
    inputs = [variable for variable in graph_inputs(outputs) if not isinstance(variable, Constant)]
    copies = clone_get_equiv(inputs, outputs, copy_inputs=False, copy_orphans=False)
    graph = FunctionGraph(inputs, [copies[output] for output in outputs], clone=False)
    _replace_checks(graph)
    return list(graph.outputs)


def _replace_checks(graph: FunctionGraph) -> None:
    """Replace the checks of a graph, and those in the steps of its loops, where time series have theirs."""
    dfs_rewriter(local_check_parameter_to_ninf_switch, _without_axis_of_a_number, ignore_newtrees=False).rewrite(graph)
    rewrite_compiled_inner_graphs(graph, _replace_checks)


@node_rewriter([CAReduce])
def _without_axis_of_a_number(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Leave the axis of a number's sum out, such as `CAR` has of a single precision: `vectorize_graph` refuses it."""
    (number,) = node.inputs
    return None if number.type.ndim or node.op.axis is None else [node.op.clone(axis=None)(number)]
