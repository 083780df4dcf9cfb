"""Blockwise(Scan) -> one Scan whose steps compute all batches.

PyTensor makes Blockwise(Scan) where `vectorize_graph` meets a loop. It runs the loop once for each batch.
"""

from collections.abc import Sequence

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.op import Scan
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type import TensorType

from pytensor_cl.ops.registry import NoKernel, batched_lift
from pytensor_cl.rewriting.decompose.batch import Batch, repeated
from pytensor_cl.rewriting.decompose.loop_indices import with_selections
from pytensor_cl.runtime.registry import default_context_name, get_context


class _BatchedLoop:
    """A Blockwise(Scan) node."""

    def __init__(self, batch: Batch) -> None:
        self._batch, self._scan = batch, batch.core
        self._info = batch.core.info
        self._ndim = batch.ndim
        self._graph = batch.core.fgraph.unfreeze()

    def outputs(self) -> list[Variable]:
        """Return the replacements of the node's outputs."""
        outer = self._outer_inputs()
        inner, results = self._inner_graph(outer)
        scan = self._scan
        op = Scan(
            inner,
            results,
            self._info,
            mode=scan.mode,
            truncate_gradient=scan.truncate_gradient,
            name=scan.name,
            allow_gc=scan.allow_gc,
            strict=scan.strict,
        )
        count = self._info.n_outer_outputs - self._info.n_untraced_sit_sot
        made = op.make_node(*outer).outputs
        return [self._with_batches_first(v) if k < count else v for k, v in enumerate(made)]

    def _outer_inputs(self) -> list[Variable]:
        """Return the inputs of the new node, with the batch dimensions after that of the steps."""
        batch, scan = self._batch, self._scan
        first_state, first_untraced = scan.seqs_arg_offset, scan.untraced_sit_sot_arg_offset
        first_length, first_non_seq = scan.nit_sot_arg_offset, scan.nit_sot_arg_offset + self._info.n_nit_sot
        found = []
        for k, variable in enumerate(batch.node.inputs):
            if k == 0 or first_length <= k < first_non_seq:
                found.append(batch.uniform(variable))
            elif first_state <= k < first_untraced:
                found.append(self._with_steps_first(batch.broadcast(variable)))
            elif first_untraced <= k < first_length:
                found.append(batch.broadcast(variable))
            elif batch.is_same(variable):
                found.append(batch.squeezed(variable))
            else:
                found.append(self._with_steps_first(variable) if k < first_state else variable)
        return found

    def _with_steps_first(self, variable: Variable) -> Variable:
        n = self._ndim
        return variable.dimshuffle(n, *range(n), *range(n + 1, variable.type.ndim))

    def _with_batches_first(self, variable: Variable) -> Variable:
        n = self._ndim
        return variable.dimshuffle(*range(1, n + 1), 0, *range(n + 1, variable.type.ndim))

    # The steps

    def _row_types(self, outer: Sequence[Variable]) -> list[TensorType]:
        """Return the Types of the new inputs of a step."""
        scan, info = self._scan, self._info
        seqs = outer[1 : scan.seqs_arg_offset]
        states = outer[scan.seqs_arg_offset : scan.untraced_sit_sot_arg_offset]
        rows = [*seqs, *(state for state, taps in zip(states, info.tap_array, strict=True) for _ in taps)]
        whole = [
            *outer[scan.untraced_sit_sot_arg_offset : scan.nit_sot_arg_offset],
            *outer[scan.nit_sot_arg_offset + info.n_nit_sot :],
        ]
        return [
            *(TensorType(v.type.dtype, v.type.shape[1:]) for v in rows),
            *(TensorType(v.type.dtype, v.type.shape) for v in whole),
        ]

    def _inner_graph(self, outer: Sequence[Variable]) -> tuple[list[Variable], list[Variable]]:
        """Return inputs and outputs of a step for all batches."""
        types = self._row_types(outer)
        inputs = [kind() for kind in types]
        pairs = zip(self._graph.inputs, inputs, strict=True)
        replace = {old: old.type.filter_variable(new) if new.type.ndim == old.type.ndim else new for old, new in pairs}
        results = vectorize_graph(list(self._graph.outputs), replace)
        lengths = self._batch_lengths(outer, inputs)
        return inputs, [self._whole(v, old, lengths) for v, old in zip(results, self._graph.outputs, strict=True)]

    def _batch_lengths(self, outer: Sequence[Variable], inputs: Sequence[Variable]) -> list[Variable]:
        """Return the lengths of the batch dimensions inside a step."""
        lengths = []
        for axis in range(self._ndim):
            batched = [v for v, old in zip(inputs, self._graph.inputs, strict=True) if v.type.ndim > old.type.ndim]
            free = [v for v in batched if not v.type.broadcastable[axis]]
            lengths.append(free[0].shape[axis] if free else pt.constant(1, dtype="int64"))
        return lengths

    def _whole(self, result: Variable, old: Variable, lengths: Sequence[Variable]) -> Variable:
        """Return a result of a step that has all batches."""
        n = self._ndim
        wanted = self._batch.node.outputs[0].type.broadcastable[:n]
        if result.type.ndim == old.type.ndim + n and result.type.broadcastable[:n] == wanted:
            return result
        core = [result.shape[axis] for axis in range(result.type.ndim - old.type.ndim, result.type.ndim)]
        return pt.alloc(result, *lengths, *core)


def _is_batched(node: Apply) -> bool:
    """Return whether a node is a loop that runs once for each batch, and may run once for all."""
    op = node.op
    if not isinstance(op, Blockwise) or not isinstance(op.core_op, Scan) or op.core_op.info.as_while:
        return False
    graph = op.core_op.fgraph
    is_random = any(isinstance(n.op, RandomVariable) for n in graph.apply_nodes)
    is_tensor = all(isinstance(v.type, TensorType) for v in (*graph.inputs, *graph.outputs))
    return is_tensor and not is_random and op.batch_ndim(node) > 0


def _has_one_length(node: Apply) -> bool:
    """Return whether a graph shows that all batches have the same numbers of steps and of rows."""
    op = node.op
    scan, ndim = op.core_op, op.batch_ndim(node)
    first = scan.nit_sot_arg_offset
    lengths = (node.inputs[0], *node.inputs[first : first + scan.info.n_nit_sot])
    return all(repeated(v, ndim) is not None for v in lengths)


def _for_one_kernel(batch: Batch) -> list[Variable]:
    """Return the outputs of a loop for which a device has one kernel for all batches and steps; none if it has none."""
    op, scan = batch.node.op, batch.core
    first, count = scan.nit_sot_arg_offset, scan.info.n_nit_sot
    inputs = list(batch.node.inputs)
    for k in (0, *range(first, first + count)):
        if any(n != 1 for n in inputs[k].type.shape):
            inputs[k] = pt.expand_dims(batch.uniform(inputs[k]), tuple(range(batch.ndim)))
    if _has_one_kernel(node := op.make_node(*inputs)):
        return list(node.outputs)
    selecting = with_selections(scan, inputs, batch.ndim)
    if selecting is None:
        return []
    node = Blockwise(selecting[0], signature=op.signature).make_node(*selecting[1])
    return list(node.outputs) if _has_one_kernel(node) else []


def _has_one_kernel(node: Apply) -> bool:
    lift, name = batched_lift(node.op.core_op, node), default_context_name()
    return lift is not None and not isinstance(lift(node, name, get_context(name).info), NoKernel)


def batch_loops(fgraph: FunctionGraph) -> None:
    """Replace loops that run once for each batch by loops whose steps compute all batches.

    While-loops stay, and so do loops whose batches may have different numbers of steps: PyTensor runs each batch on its
    own. Loops stay that become one kernel as they are.
    """
    for node in fgraph.toposort():
        if not _is_batched(node) or not _has_one_length(node):
            continue
        batch = Batch(fgraph, node)
        new = _for_one_kernel(batch) or _BatchedLoop(batch).outputs()
        pairs = [(old, old.type.filter_variable(v)) for old, v in zip(node.outputs, new, strict=True)]
        fgraph.replace_all(pairs, reason="opencl_batch_loops", import_missing=True)
