"""Cross entropy of rows of logits, and its gradient, in one kernel."""

from typing import Any

import numpy as np
from pytensor import scalar as ps
from pytensor.graph.basic import Apply

from pytensor_cl.nn.cross_entropy import CrossEntropy, LabelCheck
from pytensor_cl.ops.base import GpuOp, Routine
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.ops.shape import GpuCheck
from pytensor_cl.routines.rowwise.limits import FIXED_BYTES, array_bytes
from pytensor_cl.routines.rowwise.program import Map, Operand, Reduce, RowFunction
from pytensor_cl.routines.rowwise.routine import Rowwise
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.scalar.base import element_function

_DIVISION_COST, _FUNCTION_COST = 4, 10  # in additions

register_lift(LabelCheck, numba_safe=True)(GpuCheck)


class _Steps:
    """The steps of a row function, which methods append; values are their numbers."""

    def __init__(self, operands: list[Operand]) -> None:
        self.operands = operands
        self.steps: list[Map | Reduce] = []
        self._dtypes = [operand.dtype for operand in operands]

    def _add(self, step: Map | Reduce, dtype: str) -> int:
        self.steps.append(step)
        self._dtypes.append(dtype)
        return len(self._dtypes) - 1

    def map(self, op: ps.ScalarOp, *inputs: int, cost: int = 1) -> int:
        """Append an element function."""
        dtypes = [self._dtypes[v] for v in inputs]
        dtype = op.make_node(*(ps.get_scalar_type(t)() for t in dtypes)).outputs[0].type.dtype
        is_positive = isinstance(op, ps.Exp)
        step = Map(element_function(op, dtypes, [dtype]), inputs, cost, str(op), is_positive=is_positive)
        return self._add(step, dtype)

    def formula(self, function: Any, *inputs: int, name: str) -> int:
        """Append the element function that a function of scalar variables makes."""
        variables = [ps.get_scalar_type(self._dtypes[v])() for v in inputs]
        op = ps.Composite(variables, [function(*variables)])
        dtype = op.outputs[0].type.dtype
        return self._add(Map(element_function(op, [v.type.dtype for v in variables], [dtype]), inputs, 2, name), dtype)

    def reduce(self, operation: str, source: int, *, is_exact: bool = False) -> int:
        """Append a reduction; `is_exact`: whether the accumulator need not be wider."""
        dtype = self._dtypes[source]
        acc = dtype if is_exact else "float64"
        return self._add(Reduce(operation, source, acc, dtype, initial=operation == "add"), dtype)


def _zero(like: Any) -> Any:
    return ps.ScalarConstant(like.type, np.zeros((), like.type.dtype)[()])


def _kept(condition: Any, value: Any) -> Any:
    return ps.switch(condition, value, _zero(value))


def _is_ignored(label: Any) -> Any:
    return ps.lt(label, _zero(label))


def _without_ignored(label: Any, value: Any) -> Any:
    return ps.switch(_is_ignored(label), _zero(value), value)


def _is_nonzero(value: Any) -> Any:
    return ps.neq(value, _zero(value))


def row_function(op: CrossEntropy, dtype: str) -> RowFunction:
    """Return the row function of a node: its inputs are the operands, its outputs the outputs.

    A row is read once. The maximum and the sum of the exponentials take a loop each, the gradient a third one, which
    reads the exponentials back. The element at the label is found by comparison with the numbers of the classes, so
    that no label leads out of the row.
    """
    kinds = [("x", "full", dtype)]
    if op.by_label:
        kinds += [("classes", "full", "int32"), ("labels", "row", "int32")]
    kinds += [("target", "full", dtype)] * op.by_target
    if op.gradient:
        kinds += [("g_label", "row", dtype)] * op.by_label + [("g_target", "row", dtype)] * op.by_target
    at = {name: k for k, (name, _, _) in enumerate(kinds)}
    steps = _Steps([Operand(kind, of) for _, kind, of in kinds])
    centred = steps.map(ps.sub, at["x"], steps.reduce("maximum", at["x"], is_exact=True))
    powers = steps.map(ps.exp, centred, cost=_FUNCTION_COST)
    total = steps.reduce("add", powers)
    hits = steps.map(ps.eq, at["classes"], at["labels"]) if op.by_label else None
    mass = steps.reduce("add", at["target"]) if op.by_target else None
    outputs = _losses(op, steps, at, centred, total, hits, mass) if op.loss else []
    if op.gradient:
        outputs.append(_slope(op, steps, at, powers, total, hits, mass))
    return RowFunction(tuple(steps.operands), tuple(steps.steps), tuple(outputs))


def _losses(
    op: CrossEntropy, steps: _Steps, at: dict[str, int], centred: int, total: int, hits: int | None, mass: int | None
) -> list[int]:
    """Append the losses, log(total) - x[label] and mass * log(total) - sum(target * x), for centred x."""
    losses, log_total = [], steps.map(ps.log, total, cost=_FUNCTION_COST)
    if hits is not None:
        picked = steps.reduce("add", steps.formula(_kept, hits, centred, name="pick"), is_exact=True)
        losses.append(steps.map(ps.sub, log_total, picked))
    if mass is not None:
        terms = steps.formula(lambda t, z: _kept(_is_nonzero(t), ps.mul(t, z)), at["target"], centred, name="weigh")
        sums = steps.reduce("add", terms), mass, log_total
        losses.append(steps.formula(lambda s, m, log: ps.sub(ps.mul(m, log), s), *sums, name="loss"))
    if op.by_label:
        losses = [steps.formula(_without_ignored, at["labels"], loss, name="loss") for loss in losses]
    return losses


def _slope(
    op: CrossEntropy, steps: _Steps, at: dict[str, int], powers: int, total: int, hits: int | None, mass: int | None
) -> int:
    """Append the gradient: powers * (g_label + g_target * mass) / total - g_label at the label - g_target * target."""
    factor = at["g_label"] if op.by_label else None
    if mass is not None:
        weighted = steps.map(ps.mul, at["g_target"], mass)
        factor = weighted if factor is None else steps.map(ps.add, factor, weighted)
    assert factor is not None
    slope = steps.map(ps.mul, powers, steps.map(ps.true_div, factor, total, cost=_DIVISION_COST))
    if hits is not None:
        slope = steps.map(ps.sub, slope, steps.formula(_kept, hits, at["g_label"], name="pick"))
    if mass is not None:
        slope = steps.map(ps.sub, slope, steps.map(ps.mul, at["g_target"], at["target"]))
    return steps.formula(_without_ignored, at["labels"], slope, name="gradient") if op.by_label else slope


def _refuse(node: Apply, info: DeviceInfo) -> NoKernel | None:
    op, x = node.op, node.inputs[0].type
    if x.broadcastable[op.axis]:
        return NoKernel("no OpenCL kernel for the cross entropy of one class")
    given = op.arguments(node.inputs[1:])
    if any(v.type.dtype != x.dtype for v in (given.target, given.by_label, given.by_target) if v is not None):
        return NoKernel("no OpenCL kernel for a cross entropy of two dtypes")
    if given.target is not None and given.target.type.broadcastable[op.axis]:
        return NoKernel("no OpenCL kernel for a cross entropy whose target is the same for all classes")
    arrays = len(node.inputs) + len(node.outputs) + 1 + (not op.gradient)  # a node of losses may get a gradient
    if FIXED_BYTES + arrays * array_bytes(x.ndim) > info.max_parameter_size:
        return NoKernel("its arguments have no room in a kernel's")
    return None


@register_lift(CrossEntropy, numba_safe=True, refuse=_refuse)
class GpuCrossEntropy(GpuOp):
    """Device counterpart of `CrossEntropy`."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel of the rows."""
        op: Any = self.host
        x, function = node.inputs[0].type, row_function(op, node.inputs[0].type.dtype)
        dropped = [v.type.ndim < x.ndim for v in (*node.inputs, *node.outputs)]
        return Rowwise(context, function, x.ndim, (op.axis,), dropped, [v.type.broadcastable for v in node.inputs])
