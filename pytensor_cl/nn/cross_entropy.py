"""Cross entropy of logits, or of their logarithms of probabilities, with labels or with probabilities."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, disconnected_grad, disconnected_type, pullback
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.replace import _vectorize_node
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.special import log_softmax, softmax
from pytensor.tensor.variable import TensorVariable

from pytensor_cl.nn.arguments import as_axis, as_floats, as_number, one_shape, working
from pytensor_cl.nn.composed import cast
from pytensor_cl.nn.marker import Marker
from pytensor_cl.nn.windows import as_variable

REDUCTIONS = ("mean", "sum", "none")


class LabelCheck(CheckAndRaise):
    """Check of labels whose kernels take any value, so that the device raises the error at the end of the call."""


class Arguments(NamedTuple):
    """The inputs of a `CrossEntropy` node after the logits; None for those that it does not have.

    `classes`: the numbers of the classes, int32, with length 1 along the axes of the rows; `labels`: int32, without the
    axis, -1 in rows that are ignored; `target`: a weight for each element, of the dimensions of the logits;
    `by_label`, `by_target`: the factors of the gradients of the two losses.
    """

    classes: Variable | None = None
    labels: Variable | None = None
    target: Variable | None = None
    by_label: Variable | None = None
    by_target: Variable | None = None


class CrossEntropy(Marker):
    """Losses of rows of logits along an axis, and the gradients of their sums.

    With q = -log(softmax(x)) they are q[label], and sum(target * q). A row whose label is -1 has the loss 0 and the
    gradient 0.

    Parameters
    ----------
    axis
        Axis of the classes, not negative.
    by_label, by_target
        Whether there is the loss of that kind.
    loss, gradient
        Whether the outputs are the losses, in this order, and the gradient with respect to the logits.
    """

    __props__ = ("axis", "by_label", "by_target", "loss", "gradient")
    axis: int
    by_label: bool
    by_target: bool
    loss: bool
    gradient: bool

    def arguments(self, rest: Sequence[Variable]) -> Arguments:
        """Return the inputs after the logits by their names."""
        names = ["classes", "labels"] * self.by_label + ["target"] * self.by_target
        if self.gradient:
            names += ["by_label"] * self.by_label + ["by_target"] * self.by_target
        return Arguments(**dict(zip(names, rest, strict=True)))

    def variant(self, *, loss: bool, gradient: bool) -> "CrossEntropy":
        """Return the Op of the same losses with other outputs."""
        return CrossEntropy(
            axis=self.axis, by_label=self.by_label, by_target=self.by_target, loss=loss, gradient=gradient
        )

    def build_inner_graph(self, x: Variable, *rest: Variable) -> list[Variable]:
        """Return the definition in ordinary Ops."""
        given = self.arguments(rest)
        outputs = self._losses(x, given) if self.loss else []
        return [*outputs, self._slope(x, given)] if self.gradient else outputs

    def _losses(self, x: Any, given: Any) -> list[Variable]:
        surprise, losses = -log_softmax(x, axis=self.axis), []
        if self.by_label:
            place = pt.expand_dims(pt.maximum(given.labels, 0), self.axis)
            losses.append(pt.take_along_axis(surprise, place, self.axis).squeeze(self.axis))
        if self.by_target:
            losses.append(pt.switch(pt.eq(given.target, 0), 0, given.target * surprise).sum(self.axis))
        return [self._without_ignored(loss, given.labels) for loss in losses]

    def _slope(self, x: Any, given: Any) -> Variable:
        """Return the gradient of the sum of the losses, each times its factor."""
        probability, terms = softmax(x, axis=self.axis), []
        labels = given.labels if given.labels is None else pt.expand_dims(given.labels, self.axis)
        if self.by_label:
            factor = pt.expand_dims(given.by_label, self.axis)
            terms.append(factor * probability - pt.switch(pt.eq(given.classes, labels), factor, 0))
        if self.by_target:
            factor, target = pt.expand_dims(given.by_target, self.axis), given.target
            terms.append(factor * (probability * target.sum(self.axis, keepdims=True) - target))
        return self._without_ignored(pt.add(*terms) if len(terms) > 1 else terms[0], labels)

    @staticmethod
    def _without_ignored(value: Any, labels: Any) -> Variable:
        return value if labels is None else pt.switch(pt.lt(labels, 0), 0, value)

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Return the shape of the logits, without the axis for losses."""
        full = tuple(shapes[0])
        rows = full[: self.axis] + full[self.axis + 1 :]
        return [full if v.type.ndim == len(full) else rows for v in node.outputs]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Return that classes and labels have no gradient."""
        given = self.arguments(node.inputs[1:])
        return [[v is not given.classes and v is not given.labels] * len(node.outputs) for v in node.inputs]

    def pullback(
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], output_grads: Sequence[Any]
    ) -> list[Any]:
        """Return the gradient's node for the losses alone, else the gradient of the definition."""
        (x, *rest), given = inputs, self.arguments(inputs[1:])
        if self.gradient:
            floats = [v for v in inputs if v is not given.classes and v is not given.labels]
            used = [(o, g) for o, g in zip(self.build_inner_graph(*inputs), output_grads, strict=True) if _is_given(g)]
            options = {"disconnected_inputs": "ignore", "return_disconnected": "disconnected"}
            with pytensor.config.change_flags(floatX=x.type.dtype):  # the dtype of zeros in gradients of switch
                inner = pullback([o for o, _ in used], floats, [g for _, g in used], **options)
            found = dict(zip(floats, inner, strict=True))
            return [found.get(v, disconnected_type()) for v in inputs]
        factors = [
            pt.cast(g, x.type.dtype) if _is_given(g) else pt.zeros_like(loss)
            for g, loss in zip(output_grads, outputs, strict=True)
        ]
        slopes: list[Any] = [disconnected_type()] * len(inputs)
        slopes[0] = self.variant(loss=False, gradient=True)(x, *rest, *factors)
        if self.by_target:
            factor = self._without_ignored(factors[-1], given.labels)
            surprise = -log_softmax(x, axis=self.axis)
            slopes[-1] = _unbroadcast(pt.expand_dims(factor, self.axis) * surprise, inputs[-1])
        return slopes


def _is_given(gradient: Any) -> bool:
    return not isinstance(gradient.type, DisconnectedType)


def _unbroadcast(slope: Any, variable: Variable) -> Variable:
    """Return a gradient, summed over the dimensions along which a variable is repeated."""
    pairs = zip(variable.type.broadcastable, slope.type.broadcastable, strict=True)
    axes = [d for d, (own, full) in enumerate(pairs) if own and not full]
    return slope.sum(axes, keepdims=True) if axes else slope


@_vectorize_node.register(CrossEntropy)
def _vectorize_cross_entropy(op: CrossEntropy, node: Apply, *batched: Variable) -> Any:
    """Rows of a batch -> more rows."""
    extra = max(new.type.ndim - old.type.ndim for new, old in zip(batched, node.inputs, strict=True))
    given = op.arguments(node.inputs[1:])
    widened = [
        pt.expand_dims(new, tuple(range(extra - new.type.ndim + old.type.ndim)))
        for new, old in zip(batched, node.inputs, strict=True)
    ]
    is_row = [v is not given.classes and v is not given.target for v in node.inputs]
    rows = [v for v, row in zip(widened, is_row, strict=True) if row]
    shape = [pt.broadcast_shape(*(v[(..., *[0] * (v.type.ndim - extra))] for v in rows))] if extra else []
    inputs = [
        pt.broadcast_to(v, (*shape[0], *v.shape[extra:])) if row and extra else v
        for v, row in zip(widened, is_row, strict=True)
    ]
    moved = CrossEntropy(**{name: getattr(op, name) for name in op.__props__ if name != "axis"}, axis=op.axis + extra)
    return moved(*inputs, return_list=True)


class PickedLosses(Marker):
    """The negative elements of x at labels along an axis; 0 in rows whose label is -1, which are ignored.

    Inputs: x, the classes and the labels of `Arguments`.
    """

    __props__ = ("axis",)
    axis: int

    def build_inner_graph(self, x: Any, classes: Variable, labels: Any) -> list[Variable]:
        """Return the definition in ordinary Ops."""
        place = pt.expand_dims(pt.maximum(labels, 0), self.axis)
        picked = pt.take_along_axis(x, place, self.axis).squeeze(self.axis)
        return [pt.switch(pt.lt(labels, 0), 0, -picked)]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Return that classes and labels have no gradient."""
        return [[True], [False], [False]]

    def pullback(self, inputs: Sequence[Any], outputs: Sequence[Variable], output_grads: Sequence[Any]) -> list[Any]:
        """Return a comparison with the labels: it writes the gradient once, where a scatter would fill it first."""
        x, classes, labels = inputs
        slope = pt.expand_dims(pt.cast(output_grads[0], x.type.dtype), self.axis)
        is_label = pt.eq(classes, pt.expand_dims(labels, self.axis))
        return [-slope * is_label, disconnected_type(), disconnected_type()]


class _Labels(NamedTuple):
    """Labels of rows: `classes` and `labels` of `Arguments`, and whether each row counts."""

    classes: Variable
    labels: Any
    counts: Any


class _Options(NamedTuple):
    """Options of a cross entropy; `name` is that of the function."""

    name: str
    weight: Any
    ignore_index: int
    reduction: str
    axis: int


def classes_along(x: Any, axis: int) -> Variable:
    """Return the numbers of the classes of `x`, int32, with length 1 in the other dimensions."""
    length = x.type.shape[axis]
    numbers = (
        pt.arange(x.shape[axis], dtype="int32") if length is None else pt.constant(np.arange(length, dtype="int32"))
    )
    return pt.expand_dims(numbers, [d for d in range(x.type.ndim) if d != axis])


def _labels(x: Any, target: Any, options: _Options) -> _Labels:
    """Return labels that are checked, -1 where they are ignored."""
    axis, ignored = options.axis, options.ignore_index
    rows = [n for d, n in enumerate(x.type.shape) if d != axis]
    target = one_shape(x, target, [d for d in range(x.type.ndim) if d != axis], rows, options.name)
    if target.type.dtype == "uint64":
        raise TypeError(f"{options.name}: target is uint64, which int64 cannot hold: cast it to int64 first")
    target = pt.cast(disconnected_grad(target), "int64")
    counts = pt.neq(target, ignored)
    length = x.type.shape[axis]
    fits = pt.and_(pt.ge(target, 0), pt.lt(target, x.shape[axis] if length is None else length))
    last = "C - 1" if length is None else str(length - 1)
    check = LabelCheck(
        IndexError,
        f"{options.name}: target has a label outside of 0 to {last}, the classes along axis {axis} of input, that is "
        f"not ignore_index={ignored}",
    )
    safe = check(pt.cast(pt.switch(counts, target, -1), "int32"), pt.all(pt.or_(fits, pt.invert(counts))))
    return _Labels(classes_along(x, axis), safe, counts)


def _class_weight(x: Any, options: _Options) -> Any:
    """Return the weights of the classes as a vector of the dtype of `x`.

    Raises `TypeError`: they are no floats. Raises `ValueError`: there is not one for each class.
    """
    weight = as_floats(options.weight, f"{options.name}: weight")
    if weight.type.ndim != 1:
        raise ValueError(
            f"{options.name}: weight has {weight.type.ndim} dimensions: it needs one number for each class"
        )
    return cast(
        one_shape(x, weight, [options.axis], [x.type.shape[options.axis]], options.name, "weight"), x.type.dtype
    )


def _total(losses: Any, weights: Any, reduction: str) -> Variable:
    """Return the losses, their sum, or their sum over that of the weights; 0 where the weights are 0."""
    if reduction != "mean":
        return losses if reduction == "none" else losses.sum()
    divisor = pt.cast(weights.sum(), losses.type.dtype)
    return losses.sum() / pt.switch(pt.eq(divisor, 0), 1, divisor)


def _checked_options(x: Any, options: _Options) -> _Options:
    """Return the options with an axis that is not negative."""
    name = options.name
    if options.reduction not in REDUCTIONS:
        raise ValueError(f"{name}: reduction must be 'mean', 'sum' or 'none', not {options.reduction!r}")
    index = options.ignore_index
    if isinstance(index, bool | np.bool_) or not isinstance(index, int | np.integer):
        raise TypeError(f"{name}: ignore_index must be an integer, not {index!r}")
    axis = as_axis(options.axis, x.type.ndim, name)
    return options._replace(ignore_index=int(index), axis=axis)


def _is_labels(target: Any, name: str) -> bool:
    """Return whether a target has labels; else it has probabilities."""
    kind = target.type.numpy_dtype.kind
    if kind not in "iuf":
        raise TypeError(
            f"{name}: target has dtype {target.type.dtype}: it must be labels of an integer dtype, or floats"
        )
    return kind in "iu"


def _aligned(x: Any, vector: Any, axis: int) -> Variable:
    """Return a vector along an axis of `x`."""
    return pt.expand_dims(vector, [d for d in range(x.type.ndim) if d != axis])


def _by_label(x: Any, target: Any, options: _Options, smoothing: float | None) -> tuple[Any, Any]:
    """Return the loss of each row for labels, and the weights that divide their sum.

    `smoothing`: None for logarithms of probabilities instead of logits.
    """
    axis, labels = options.axis, _labels(x, target, options)
    weight = None if options.weight is None else _class_weight(x, options)
    weights = labels.counts if weight is None else weight[pt.maximum(labels.labels, 0)] * labels.counts
    if smoothing is None:
        losses: Any = PickedLosses(axis=axis)(x, labels.classes, labels.labels)
    elif smoothing == 0:
        losses = cross_entropy_of(x, labels.classes, labels.labels, axis)
    else:
        uniform = pt.ones_like(labels.classes, dtype=x.type.dtype) if weight is None else _aligned(x, weight, axis)
        op = CrossEntropy(axis=axis, by_label=True, by_target=True, loss=True, gradient=False)
        losses, spread = op(x, labels.classes, labels.labels, uniform)
        length = pt.cast(pt.maximum(x.shape[axis], 1), x.type.dtype)
        weighted = losses if weight is None else losses * weights
        return as_number(1 - smoothing, x) * weighted + as_number(smoothing, x) / length * spread, weights
    return (losses if weight is None else losses * weights), weights


def cross_entropy_of(x: Any, classes: Variable, labels: Variable, axis: int) -> Variable:
    """Return -log(softmax(x)) at labels that are checked; 0 where they are -1."""
    return CrossEntropy(axis=axis, by_label=True, by_target=False, loss=True, gradient=False)(x, classes, labels)


def cross_entropy_with(x: Any, target: Variable, axis: int) -> Variable:
    """Return the sum of -target * log(softmax(x)) along an axis."""
    return CrossEntropy(axis=axis, by_label=False, by_target=True, loss=True, gradient=False)(x, target)


def _probabilities(x: Any, target: Any, options: _Options, smoothing: float) -> Variable:
    """Return the factor of each element of -log(softmax(x))."""
    if options.ignore_index != IGNORED:
        raise ValueError(f"{options.name}: ignore_index is for labels, and target has probabilities")
    dims = range(x.type.ndim)
    probability: Any = cast(one_shape(x, target, list(dims), list(x.type.shape), options.name), x.type.dtype)
    if smoothing:
        length = pt.cast(pt.maximum(x.shape[options.axis], 1), x.type.dtype)
        probability = as_number(1 - smoothing, x) * probability + as_number(smoothing, x) / length
    if options.weight is not None:
        probability = probability * _aligned(x, _class_weight(x, options), options.axis)
    return probability


IGNORED = -100
"""The label that is ignored, as in torch."""


def softmax_cross_entropy(
    input: Any,
    target: Any,
    *,
    weight: Any = None,
    ignore_index: int = IGNORED,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    axis: int = 1,
) -> TensorVariable:
    """Return the cross entropy of the softmax of logits with labels or probabilities.

    Parameters
    ----------
    input
        Logits, floats of shape (N, C, ...) with C classes along `axis`.
    target
        Labels 0 to C - 1, integers of the shape of `input` without `axis`; or probabilities, floats of its shape. It is
        never broadcast.
    weight
        A factor for each class, floats of shape (C,).
    ignore_index
        A label whose rows count nowhere: not in the sum, not in the mean's divisor, not in smoothing.
    reduction
        ``"mean"``: the sum of the losses over the sum of the weights of the labels; for probabilities, over the number
        of rows. ``"sum"``, or ``"none"``: the loss of each row.
    label_smoothing
        Part, from 0 to 1, of the target that is divided equally among the classes.
    axis
        Axis of the classes.

    Returns
    -------
    Variable
        0-d, or for ``"none"`` of the shape of `input` without `axis`; dtype that of the arrays. It is 0, with gradient
        0, if all labels are ignored, or there are none.

    Raises
    ------
    TypeError
        `input` or `weight` are no floats; `target` is neither integers nor floats.
    ValueError
        The shapes do not fit; `reduction` or `label_smoothing` is none of the values above; `ignore_index` is given for
        probabilities.
    IndexError
        In the call: a label is not one of 0 to C - 1 and not `ignore_index`. Mode JAX does not check labels.

    Examples
    --------
    >>> import numpy as np
    >>> from pytensor_cl import nn
    >>> logits = np.log([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]])
    >>> float(nn.softmax_cross_entropy(logits, np.array([0, -100])).eval().round(4))
    0.6931
    """
    name = "softmax_cross_entropy"
    given, target = as_floats(input, f"{name}: input"), as_variable(target, f"{name}: target")
    options = _checked_options(given, _Options(name, weight, ignore_index, reduction, axis))
    if isinstance(label_smoothing, Variable) or not 0 <= label_smoothing <= 1:
        raise ValueError(f"{name}: label_smoothing must be a number from 0 to 1, not {label_smoothing!r}")
    smoothing = float(label_smoothing)
    others = [v for v in (weight, None if _is_labels(target, name) else target) if v is not None]
    x, dtype = working(given, *others)
    if _is_labels(target, name):
        losses, weights = _by_label(x, target, options, smoothing)
    else:
        losses = cross_entropy_with(x, _probabilities(x, target, options, smoothing), options.axis)
        weights = pt.ones_like(losses)
    return cast(_total(losses, weights, reduction), dtype)


def nll(
    input: Any,
    target: Any,
    *,
    weight: Any = None,
    ignore_index: int = IGNORED,
    reduction: str = "mean",
    axis: int = 1,
) -> TensorVariable:
    """Return the negative log-likelihood of labels or probabilities, for logarithms of probabilities.

    ``nll(log_softmax(x, axis), target)`` is ``softmax_cross_entropy(x, target)``, which takes one kernel instead of
    several. Parameters and result are those of `softmax_cross_entropy`; `input` has logarithms of probabilities.

    Raises
    ------
    TypeError, ValueError, IndexError
        As `softmax_cross_entropy`.

    Examples
    --------
    >>> import numpy as np
    >>> from pytensor_cl import nn
    >>> float(nn.nll(np.log([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]), np.array([0, 2])).eval().round(4))
    0.4581
    """
    name = "nll"
    given, target = as_floats(input, f"{name}: input"), as_variable(target, f"{name}: target")
    options = _checked_options(given, _Options(name, weight, ignore_index, reduction, axis))
    others = [v for v in (weight, None if _is_labels(target, name) else target) if v is not None]
    x, dtype = working(given, *others)
    if _is_labels(target, name):
        losses, weights = _by_label(x, target, options, None)
    else:
        factor = _probabilities(x, target, options, 0.0)
        losses = -pt.switch(pt.eq(factor, 0), 0, factor * x).sum(options.axis)
        weights = pt.ones_like(losses)
    return cast(_total(losses, weights, reduction), dtype)
