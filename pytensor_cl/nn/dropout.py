"""Dropout: random elements are set to zero during training.

Srivastava, Hinton, Krizhevsky, Sutskever and Salakhutdinov, "Dropout: a simple way to prevent neural networks from
overfitting", 2014. The elements that stay are divided by their probability, so that a prediction needs no dropout.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.replace import _vectorize_node
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.random.op import RandomVariable, RNGConsumerOp
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.random.utils import custom_rng_deepcopy
from pytensor.tensor.type import TensorType, float_dtypes, integer_dtypes
from pytensor.tensor.variable import TensorVariable

from pytensor_cl.nn.arguments import as_floats
from pytensor_cl.nn.marker import Marker
from pytensor_cl.nn.windows import as_variable

PROBABILITY = "p must be a probability: at least 0 and at most 1"
_IS_PROBABILITY = CheckAndRaise(ValueError, PROBABILITY)


def _mask_of(rng: np.random.Generator, p: Any, size: Any) -> np.ndarray:
    """Return for each element whether it stays: a uniform number, from 0 and below 1, is not below `p`."""
    return np.asarray(rng.random(size) >= p)


class MaskRV(RandomVariable):
    """Draw of a mask as a random variable: False with probability p.

    Graphs have a `DropoutMask` until they are compiled.
    """

    name = "dropout_mask"
    signature = "()->()"
    dtype = "bool"

    def rng_fn(self, rng: np.random.Generator, p: Any, size: Any) -> np.ndarray:
        """Draw on the host."""
        return _mask_of(rng, p, np.shape(p) if size is None else size)


class DropoutMask(RNGConsumerOp):
    """Mask of dropout: (rng, p, like) -> (next rng, mask).

    An element of the mask, a bool, is False with probability p: it is ``uniform >= p`` for NumPy's uniform numbers. The
    mask has the shape of `like`, with length 1 along `shared_axes`, which are counted from the last axis (-1).
    """

    __props__ = ("shared_axes",)
    default_output = 1

    def __init__(self, shared_axes: tuple[int, ...] = ()) -> None:
        self.shared_axes = shared_axes

    def make_node(self, rng: Variable, p: Any, like: Any) -> Apply:
        """Make a node; `p` is 0-d, or has dimensions that broadcast to those of `like`."""
        like, p = pt.as_tensor_variable(like), pt.cast(pt.as_tensor_variable(p), "float64")
        shape = [1 if self._is_shared(like, axis) else n for axis, n in enumerate(like.type.shape)]
        return Apply(self, [rng, p, like], [rng.type(), TensorType("bool", shape)()])

    def _is_shared(self, like: Variable, axis: int) -> bool:
        return axis - like.type.ndim in self.shared_axes

    def update(self, node: Apply) -> dict[Variable, Variable]:
        """Return the next generator."""
        return {node.inputs[0]: node.outputs[0]}

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Return the shape of `like`, with length 1 along shared axes."""
        like = node.inputs[2]
        return [None, [pt.constant(1) if self._is_shared(like, k) else n for k, n in enumerate(shapes[2])]]

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        """Draw on the host; compiled graphs have the draw of `lower` instead."""
        rng, p, like = inputs
        following = custom_rng_deepcopy(rng)
        shape = [1 if self._is_shared(node.inputs[2], axis) else n for axis, n in enumerate(like.shape)]
        output_storage[0][0] = following
        output_storage[1][0] = _mask_of(following, p, tuple(shape))

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Return that nothing has a gradient."""
        return [[False, False]] * 3

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        """Return no gradients."""
        return [disconnected_type() for _ in inputs]

    def pushforward(self, inputs: Any, outputs: Any, tangents: Any) -> list[Variable]:
        """Return no derivatives."""
        return [disconnected_type() for _ in outputs]

    def lower(self, node: Apply, keep_draw: bool) -> list[Variable]:
        """DropoutMask(rng, p, like) -> uniform(size=like.shape) >= p; with `keep_draw` one `MaskRV`."""
        rng, p, like = node.inputs
        size = [1 if self._is_shared(like, axis) else like.shape[axis] for axis in range(like.type.ndim)]
        if keep_draw:
            following, mask = MaskRV()(p, size=size, rng=rng, return_next_rng=True)
            return [following, mask]
        options: dict[str, Any] = {"dtype": "float64", "return_next_rng": True}  # float32 rounds some numbers up to 1
        following, uniform = pt.random.uniform(0.0, 1.0, size=size, rng=rng, **options)
        return [following, pt.ge(uniform, p)]


def _with_core(variable: Variable, core: int, batch: int) -> Variable:
    """Return a variable of only `batch` dimensions with further ones of length 1, if there are any."""
    return pt.expand_dims(variable, tuple(range(batch, batch + core))) if batch else variable


@_vectorize_node.register(DropoutMask)
def _vectorize_mask(op: DropoutMask, node: Apply, rng: Variable, p: Variable, like: Variable) -> Apply:
    _, old_p, old_like = node.inputs
    batch = p.type.ndim - old_p.type.ndim
    if batch:
        core = old_like.type.ndim - old_p.type.ndim
        p = pt.expand_dims(p, tuple(range(batch, batch + core)))
        like, _ = pt.broadcast_arrays(like, p)
    return op.make_node(rng, p, like)


class Dropout(Marker):
    """Elements of x for which the mask is True, divided by 1 - p; zeros in place of the others.

    A prediction graph has x in its place.
    """

    def build_inner_graph(self, x: Variable, mask: Variable, p: Variable) -> list[Variable]:
        """Return the definition."""
        kept = pt.switch(pt.lt(p, 1), 1 - p, 1)  # the mask is all False where p is 1
        scale = pt.cast(1 / kept, x.type.dtype)
        return [pt.switch(mask, x * scale, np.zeros((), x.type.dtype))]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Return that only x has a gradient: the mask depends on p too, and is not differentiable."""
        return [[True], [False], [False]]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        """Return the gradient with the same mask."""
        _, mask, p = inputs
        return [Dropout()(cotangents[0], mask, p), disconnected_type(), disconnected_type()]

    def pushforward(self, inputs: Any, outputs: Any, tangents: Any) -> list[Variable]:
        """Return the derivative with the same mask."""
        _, mask, p = inputs
        return [Dropout()(tangents[0], mask, p)]

    def predict(self, node: Apply) -> list[Variable]:
        """Return x."""
        return [node.inputs[0]]


@_vectorize_node.register(Dropout)
def _vectorize_dropout(op: Dropout, node: Apply, x: Variable, mask: Variable, p: Variable) -> Apply:
    old_x, _, old_p = node.inputs
    p = _with_core(p, old_x.type.ndim - old_p.type.ndim, p.type.ndim - old_p.type.ndim)
    is_smaller = x.type.ndim < max(mask.type.ndim, p.type.ndim)
    if is_smaller:  # the gradient has the shape of the output
        x = pt.broadcast_arrays(x, mask, p)[0]
    return Dropout()(x, mask, p).owner


def _as_probability(p: Any) -> Variable:
    """Return a probability as a 0-d variable that is checked in the call, unless it is a constant."""
    value = None if isinstance(p, bool) else as_variable(p, "p")
    if value is None or value.type.ndim or value.type.dtype not in (*float_dtypes, *integer_dtypes):
        raise TypeError(f"p must be a number, or a 0-d variable, not {p!r}")
    if not isinstance(value, Constant):
        value = pt.cast(value, "float64")
        return _IS_PROBABILITY(value, pt.ge(value, 0) & pt.le(value, 1))
    if not 0 <= value.data <= 1:
        raise ValueError(f"{PROBABILITY}, not {p!r}")
    return pt.constant(np.float64(value.data))


def _as_shared_axes(axes: Any, ndim: int) -> tuple[int, ...]:
    """Return axes as numbers that count from the last axis."""
    given = (axes,) if isinstance(axes, int | np.integer) else tuple(axes)
    if not all(isinstance(a, int | np.integer) and not isinstance(a, bool) for a in given):
        raise TypeError(f"shared_axes must be integers, not {axes!r}")
    if not all(-ndim <= a < ndim for a in given):
        raise ValueError(f"shared_axes must be axes of input, which has {ndim} dimensions, not {axes!r}")
    return tuple(sorted({int(a) % ndim - ndim for a in given}))


def check_rng(rng: Any, function: str) -> Variable:
    """Return a random generator of a graph.

    Raises `TypeError`: it is none.
    """
    if not isinstance(getattr(rng, "type", None), RandomType):
        what = "there is none" if rng is None else f"not {rng!r}"
        raise TypeError(f"{function} needs a random generator of the graph, {what}: rng=pt.random.shared_rng(seed=...)")
    return rng


def dropout(
    input: Any, p: Any = 0.5, rng: Any = None, *, shared_axes: int | Sequence[int] = ()
) -> tuple[TensorVariable, TensorVariable]:
    """Set random elements to zero, and divide the others by ``1 - p``.

    The graph is that of training; `inference` removes dropout from it. Each call of a compiled function draws a new
    mask if the function updates the generator, as `state_updates` has it. The mask is ``uniform >= p`` for NumPy's
    uniform numbers, so all modes draw the same one from the same state of the generator.

    Parameters
    ----------
    input
        Array of any shape; float16, float32 or float64.
    p
        Probability of zero for each element: a number or a 0-d variable. 0 leaves `input` as it is; 1 gives zeros.
    rng
        Random generator of the graph, such as ``pt.random.shared_rng(seed=1, name="noise")``.
    shared_axes
        Axes along which all elements have the same mask, as in Lasagne. For images (N, C, H, W), ``(2, 3)`` sets whole
        channels to zero.

    Returns
    -------
    next_rng
        The generator after the draw.
    output
        Shape and dtype of `input`.

    Raises
    ------
    TypeError
        `input` is not of floating point; `p` is no number; there is no `rng`.
    ValueError
        `p` is not from 0 to 1, in the call if it is symbolic; an axis is not one of `input`.

    Notes
    -----
    There is no gradient with respect to `p`, on which the mask depends.

    In a step of `scan` the generator has to be a state of the loop. PyTensor has no gradients through such a loop; for
    training draw the masks of all steps before it, ``dropout(pt.ones((steps, rows, units)), p, rng)``, and multiply by
    one in each step.

    Examples
    --------
    >>> import numpy as np, pytensor, pytensor.tensor as pt
    >>> from pytensor_cl import nn
    >>> x = pt.vector("x", dtype="float64")
    >>> rng = pt.random.shared_rng(seed=1, name="noise")
    >>> next_rng, y = nn.dropout(x, 0.5, rng)
    >>> f = pytensor.function([x], y, updates=nn.state_updates(y))
    >>> sorted(set(f(np.ones(100))))
    [np.float64(0.0), np.float64(2.0)]
    """
    x = as_floats(input, "dropout: input")
    probability, generator = _as_probability(p), check_rng(rng, "dropout")
    axes = _as_shared_axes(shared_axes, x.type.ndim)
    next_rng, mask = DropoutMask(axes).make_node(generator, probability, x).outputs
    return next_rng, Dropout()(x, mask, probability)
