"""Recurrent layers: the products of the inputs of all steps at once, and one loop over the steps."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Constant, Variable
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.variable import TensorVariable

from pytensor_cl.nn.arguments import as_floats
from pytensor_cl.nn.recurrent_loop import GRULoop, LSTMLoop, RecurrentLoop, ReluLoop, TanhLoop, loop_of, masked, split
from pytensor_cl.nn.windows import as_flag, as_variable

State = Any  # an array, of lstm a pair of arrays; None for zeros

_NONLINEARITIES: dict[str, type[RecurrentLoop]] = {"tanh": TanhLoop, "relu": ReluLoop}
_PARAMETERS = "weight_ih", "weight_hh", "bias_ih", "bias_hh"
_DIMENSIONS = {
    "input": ("T", "N", "I"),
    "h0": ("N", "H"),
    "c0": ("N", "H"),
    "weight_ih": ("gates", "I"),
    "weight_hh": ("gates", "H"),
    "bias_ih": ("gates",),
    "bias_hh": ("gates",),
    "lengths": ("N",),
}


class _Kind(NamedTuple):
    """A kind of layer: its name, its numbers of gates and states, and its loop."""

    name: str
    gates: int
    states: tuple[str, ...]
    loop: type[RecurrentLoop] | None  # None for the GRU that resets before the product

    @property
    def adds_in_loop(self) -> bool:
        """Return whether `bias_hh` is added in each step: its sum with `bias_ih` is not all that counts."""
        return self.loop is GRULoop


# Arguments


def _array(value: Any, name: str, where: str) -> Variable:
    """Return an array of real floating-point numbers, or lengths.

    Raises `TypeError`: of another type, or another number of dimensions.
    """
    if name == "lengths":
        found = as_variable(value, f"{where}: lengths")
        if not np.issubdtype(found.type.dtype, np.integer):
            raise TypeError(f"{where}: lengths must be integers, not {found.type.dtype}")
    else:
        found = as_floats(value, f"{where}: {name}")
    ndim = len(_DIMENSIONS[name])
    if found.type.ndim != ndim:
        shape = ", ".join(_DIMENSIONS[name])
        raise TypeError(f"{where}: {name} must have {ndim} dimensions, ({shape}), not {found.type.ndim}")
    return found


def _fits(value: Variable, other: Variable, at: int, where: int, factor: int) -> bool | Variable:
    """Return whether a length of `value` is `factor` times that of `other`; symbolic if it is not known."""
    known = value.type.shape[at], other.type.shape[where]
    if None not in known:
        return known[0] == factor * known[1]
    return pt.eq(value.shape[at], factor * other.shape[where])


def _pairs(arrays: dict[str, Variable], gates: int) -> Iterator[tuple[str, int, str, int, int]]:
    """Yield lengths that must be equal: an array and its axis, another one and its axis, and the factor."""
    source = {"T": ("input", 0), "N": ("input", 1), "I": ("input", 2), "H": ("weight_hh", 1), "gates": ("weight_hh", 1)}
    for name in arrays:
        for axis, dimension in enumerate(_DIMENSIONS[name]):
            if (name, axis) != source[dimension]:
                yield name, axis, *source[dimension], gates if dimension == "gates" else 1


def _checked(arrays: dict[str, Variable], gates: int, where: str) -> dict[str, Variable]:
    """Return the arrays, whose lengths are compared now, or in the call if they are not known yet.

    Raises `TypeError`: there are no weights. Raises `ValueError`: the arrays do not fit.
    """
    missing = [name for name in ("weight_ih", "weight_hh") if name not in arrays]
    if missing:
        raise TypeError(f"{where}: {missing[0]} is missing")
    found = dict(arrays)
    for name, axis, other, other_axis, factor in _pairs(arrays, gates):
        fits = _fits(arrays[name], arrays[other], axis, other_axis, factor)
        shapes = [f"({', '.join(_DIMENSIONS[n])})".replace("gates", f"{gates} * H") for n in (name, other)]
        message = f"{where}: {name} does not fit {other}: their shapes must be {shapes[0]} and {shapes[1]}"
        if fits is False:
            given = [tuple("?" if n is None else n for n in arrays[v].type.shape) for v in (name, other)]
            raise ValueError(f"{message}, not {given[0]} and {given[1]}")
        if fits is not True:
            found[name] = CheckAndRaise(ValueError, message)(found[name], fits)
    return found


def _checked_lengths(lengths: Variable, steps: Variable, where: str) -> Variable:
    """Return lengths, which are compared with the number of steps.

    Raises `ValueError`: one is negative, or larger.
    """
    message = f"{where}: lengths must be from 0 to the number of steps, input.shape[0]"
    if isinstance(lengths, Constant) and isinstance(steps, Constant):
        if np.any((lengths.data < 0) | (lengths.data > steps.data)):
            raise ValueError(f"{message}, {int(steps.data)}, not {lengths.data.tolist()}")
        return lengths
    return CheckAndRaise(ValueError, message)(lengths, pt.all(pt.ge(lengths, 0) & pt.le(lengths, steps)))


def _states(kind: _Kind, value: State, where: str) -> dict[str, Any]:
    """Return the states that are given, by name.

    Raises `TypeError`: it is no pair, where there must be two.
    """
    if value is None:
        return {}
    if len(kind.states) == 1:
        return {"h0": value}
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise TypeError(f"{where}: the state must be a pair (h0, c0), or None, not {value!r}")
    return {name: v for name, v in zip(kind.states, value, strict=True) if v is not None}


# Layers


def _run(
    kind: _Kind,
    input: Any,
    states: Sequence[State],
    parameters: Sequence[Sequence[Any]],
    backward: Sequence[bool],
    lengths: Any,
) -> list[tuple[Variable, State]]:
    """Return outputs (T, N, H) and last states of each direction."""
    where = kind.name
    given = [
        {
            "input": input,
            **_states(kind, state, where),
            **{n: v for n, v in zip(_PARAMETERS, values, strict=False) if v is not None},
            **({} if lengths is None else {"lengths": lengths}),
        }
        for state, values in zip(states, parameters, strict=True)
    ]
    arrays = [{n: _array(v, n, where) for n, v in values.items()} for values in given]
    dtype = np.result_type(*(v.type.dtype for found in arrays for n, v in found.items() if n != "lengths")).name
    arrays = [
        {n: v if n == "lengths" else v.astype(dtype) for n, v in _checked(found, kind.gates, where).items()}
        for found in arrays
    ]
    x, mask = arrays[0]["input"], None
    if lengths is not None:
        steps = pt.as_tensor(x.type.shape[0] if x.type.shape[0] is not None else x.shape[0])
        ends = disconnected_grad(_checked_lengths(arrays[0]["lengths"], steps, where))
        mask = pt.lt(pt.arange(steps)[:, None], ends)
        x = masked(mask[:, :, None], x)
    products = _products(kind, x, arrays)
    return [
        _layer(kind, product, found, mask, is_backward)
        for product, found, is_backward in zip(products, arrays, backward, strict=True)
    ]


def _products(kind: _Kind, x: Variable, arrays: Sequence[dict[str, Variable]]) -> list[Variable]:
    """Return the products of all inputs with the weights of each direction, with the biases: one product."""

    def side_by_side(values: Sequence[Variable]) -> Variable:
        return values[0] if len(values) == 1 else pt.concatenate(values)

    weights = side_by_side([found["weight_ih"] for found in arrays])
    flat = pt.dot(x.reshape((x.shape[0] * x.shape[1], x.shape[2])), weights.T)
    names = ["bias_ih"] if kind.adds_in_loop else ["bias_ih", "bias_hh"]
    biases = [sum(found[n] for n in names if n in found) for found in arrays]
    if any(isinstance(v, Variable) for v in biases):
        full = [
            v if isinstance(v, Variable) else pt.zeros(found["weight_ih"].shape[0], dtype=flat.dtype)
            for v, found in zip(biases, arrays, strict=True)
        ]
        flat = flat + side_by_side(full)
    whole = flat.reshape((x.shape[0], x.shape[1], weights.shape[0]))
    width = arrays[0]["weight_ih"].shape[0]
    return [whole] if len(arrays) == 1 else [whole[:, :, :width], whole[:, :, width:]]


def _layer(
    kind: _Kind, product: Variable, arrays: dict[str, Variable], mask: Variable | None, is_backward: bool
) -> tuple[Variable, State]:
    """Return outputs (T, N, H) and the last states of one direction."""
    weights = arrays["weight_hh"]
    shape = product.shape[1], weights.shape[1]
    starts = [arrays[n] if n in arrays else pt.zeros(shape, dtype=product.type.dtype) for n in kind.states]
    product, starts, weights, mask = _with_static_shapes(product, starts, weights, mask, kind.gates)
    order = slice(None, None, -1 if is_backward else None)
    masks = [] if mask is None else [mask[order]]
    if kind.loop is None:
        out, *last = _reset_before(product[order], starts[0], weights, *masks[:1])
    else:
        biases = [arrays["bias_hh"]] if kind.adds_in_loop and "bias_hh" in arrays else []
        loop = kind.loop(has_bias=bool(biases), has_mask=bool(masks))
        found = loop(product[order], *starts, weights, *biases, *masks, return_list=True)
        out, last = found[0], found[len(starts) : 2 * len(starts)]
    out = out[order]
    if mask is not None:
        out = masked(mask[:, :, None], out)
    return out, last[0] if len(last) == 1 else tuple(last)


def _with_static_shapes(
    product: Variable, starts: Sequence[Variable], weights: Variable, mask: Variable | None, gates: int
) -> tuple[Variable, list[Variable], Variable, Variable | None]:
    """Return the inputs of a loop with all that is known of N and H: its types must agree in lengths of 1."""

    def known(*lengths: int | None) -> int | None:
        return next((n for n in lengths if n is not None), None)

    def specified(variable: Variable, *shape: int | None) -> Variable:
        return variable if shape == variable.type.shape else pt.specify_shape(variable, shape)

    steps, n, width = product.type.shape
    n = known(n, *(v.type.shape[0] for v in starts), *([] if mask is None else mask.type.shape[1:]))
    width = known(width, weights.type.shape[0])
    h = known(weights.type.shape[1], *(v.type.shape[1] for v in starts), None if width is None else width // gates)
    width = None if h is None else gates * h
    return (
        specified(product, steps, n, width),
        [specified(v, n, h) for v in starts],
        specified(weights, width, h),
        None if mask is None else specified(mask, mask.type.shape[0], n),
    )


def _reset_before(x: Variable, h0: Variable, weights: Variable, mask: Variable | None = None) -> list[Variable]:
    """Return all states and the last one of the GRU that resets the state before the product."""
    width = weights.shape[1]

    def step(x_t: Variable, *rest: Variable) -> list[Variable]:
        *live, h, w_rz, w_n = rest
        xr, xz, xn = split(x_t, 3)
        pr, pz = split(pt.dot(h, w_rz), 2)
        r, z = pt.sigmoid(xr + pr), pt.sigmoid(xz + pz)
        n = pt.tanh(xn + pt.dot(r * h, w_n))
        new = n + z * (h - n)
        return [pt.switch(live[0][:, None], new, h) if live else new]

    def one_at_least(array: Variable) -> Variable:
        """Return an array with a step more if there is none: PyTensor's gradient of a loop needs one."""
        more = pt.zeros((pt.eq(steps, 0).astype("int64"), *array.shape[1:]), dtype=array.type.dtype)
        return array if array.type.shape[0] else pt.concatenate([array, more])

    steps = x.shape[0]
    sequences = [one_at_least(v) for v in ([x] if mask is None else [x, mask])]
    loop = loop_of(step, sequences, [h0], [weights[: 2 * width].T, weights[2 * width :].T], 0, "ResetBeforeLoop")
    return [loop.states[0][:steps], loop.whole[0][steps]]


_RNNS = {n: _Kind("rnn", 1, ("h0",), loop) for n, loop in _NONLINEARITIES.items()}
_GRU, _GRU_BEFORE = _Kind("gru", 3, ("h0",), GRULoop), _Kind("gru", 3, ("h0",), None)
_LSTM = _Kind("lstm", 4, ("h0", "c0"), LSTMLoop)


def _rnn_kind(nonlinearity: Any = "tanh") -> _Kind:
    """Return the kind of a layer; raise `ValueError` if there is no such nonlinearity."""
    if nonlinearity not in _RNNS:
        raise ValueError(f"rnn: nonlinearity must be one of {', '.join(map(repr, _RNNS))}, not {nonlinearity!r}")
    return _RNNS[nonlinearity]


def _gru_kind(reset_after: Any = True) -> _Kind:
    return _GRU if as_flag(reset_after, "gru: reset_after") else _GRU_BEFORE


def rnn(
    input: Any,
    h0: State,
    weight_ih: Any,
    weight_hh: Any,
    bias_ih: Any = None,
    bias_hh: Any = None,
    *,
    nonlinearity: str = "tanh",
    lengths: Any = None,
    go_backwards: bool = False,
) -> tuple[TensorVariable, TensorVariable]:
    """Elman layer: h' = tanh(W_ih x + b_ih + W_hh h + b_hh).

    T is the number of steps, N that of rows of a batch, I and H are the lengths of an input and of a state.

    Parameters
    ----------
    input
        Shape (T, N, I).
    h0
        The state before the first step, shape (N, H); None: zeros.
    weight_ih, weight_hh
        Shapes (H, I) and (H, H), as torch's.
    bias_ih, bias_hh
        Shape (H,), or None.
    nonlinearity
        "tanh" or "relu".
    lengths
        Integers, shape (N,): the numbers of steps of the rows, from 0 to T. Behind its end a row keeps its state, and
        its outputs are zeros; what the input has there has no influence. None: all rows have T steps.
    go_backwards
        Whether the steps begin at the end of each row. Outputs stay in the order of the inputs.

    Returns
    -------
    outputs
        The states, shape (T, N, H).
    h_n
        The state after the last step of each row, shape (N, H); `h0` where there are no steps.

    All have the upcast type of the arrays, of which float16, float32 and float64 are taken.

    Raises
    ------
    TypeError
        An array of another type, or with another number of dimensions.
    ValueError
        Shapes that do not fit, in the call if they are not known before; a length above T; no such nonlinearity.
    """
    kind, is_backward = _rnn_kind(nonlinearity), as_flag(go_backwards, "rnn: go_backwards")
    return _run(kind, input, [h0], [(weight_ih, weight_hh, bias_ih, bias_hh)], [is_backward], lengths)[0]


def gru(
    input: Any,
    h0: State,
    weight_ih: Any,
    weight_hh: Any,
    bias_ih: Any = None,
    bias_hh: Any = None,
    *,
    reset_after: bool = True,
    lengths: Any = None,
    go_backwards: bool = False,
) -> tuple[TensorVariable, TensorVariable]:
    """Layer of gated recurrent units.

    With a = W_ih x + b_ih, p = W_hh h + b_hh and three parts of each, in the order r z n::

        r = sigmoid(a_r + p_r)
        z = sigmoid(a_z + p_z)
        n = tanh(a_n + r * p_n)
        h' = (1 - z) * n + z * h

    Parameters
    ----------
    input
        Shape (T, N, I).
    h0
        The state before the first step, shape (N, H); None: zeros.
    weight_ih, weight_hh
        Shapes (3 * H, I) and (3 * H, H), gates in the order r z n, as torch's.
    bias_ih, bias_hh
        Shape (3 * H,), or None.
    reset_after
        Whether the product is computed before it is multiplied by r, as torch and cuDNN do. False: p_n is computed from
        r * h, and r * p_n above is p_n, as in the paper and in Keras 1.
    lengths, go_backwards
        Numbers of steps of the rows, and the order of the steps, as `rnn` takes them.

    Returns
    -------
    outputs, h_n
        The states, shape (T, N, H), and the last one of each row, shape (N, H).

    Raises
    ------
    TypeError
        An array of another type, or with another number of dimensions.
    ValueError
        Shapes that do not fit, in the call if they are not known before; a length above T.

    References
    ----------
    Cho and others, Learning phrase representations using RNN encoder-decoder, EMNLP 2014.
    """
    kind, is_backward = _gru_kind(reset_after), as_flag(go_backwards, "gru: go_backwards")
    return _run(kind, input, [h0], [(weight_ih, weight_hh, bias_ih, bias_hh)], [is_backward], lengths)[0]


def lstm(
    input: Any,
    states: tuple[Any, Any] | None,
    weight_ih: Any,
    weight_hh: Any,
    bias_ih: Any = None,
    bias_hh: Any = None,
    *,
    lengths: Any = None,
    go_backwards: bool = False,
) -> tuple[TensorVariable, tuple[TensorVariable, TensorVariable]]:
    """Layer of long short-term memory.

    With a = W_ih x + b_ih + W_hh h + b_hh and four parts of it, in the order i f g o::

        c' = sigmoid(a_f) * c + sigmoid(a_i) * tanh(a_g)
        h' = sigmoid(a_o) * tanh(c')

    There are no peepholes, which Lasagne's `LSTMLayer` has by default.

    Parameters
    ----------
    input
        Shape (T, N, I).
    states
        The pair (h0, c0) before the first step, each of shape (N, H) or None: zeros; or None.
    weight_ih, weight_hh
        Shapes (4 * H, I) and (4 * H, H), gates in the order i f g o, as torch's.
    bias_ih, bias_hh
        Shape (4 * H,), or None.
    lengths, go_backwards
        Numbers of steps of the rows, and the order of the steps, as `rnn` takes them.

    Returns
    -------
    outputs
        The states h, shape (T, N, H).
    (h_n, c_n)
        The states after the last step of each row, each of shape (N, H).

    Raises
    ------
    TypeError
        An array of another type, or with another number of dimensions.
    ValueError
        Shapes that do not fit, in the call if they are not known before; a length above T.

    References
    ----------
    Hochreiter and Schmidhuber, Long short-term memory, Neural Computation 9, 1997; with the gate f of Gers and others,
    Learning to forget, Neural Computation 12, 2000.
    """
    is_backward = as_flag(go_backwards, "lstm: go_backwards")
    return _run(_LSTM, input, [states], [(weight_ih, weight_hh, bias_ih, bias_hh)], [is_backward], lengths)[0]


_KINDS: dict[Any, Callable[..., _Kind]] = {rnn: _rnn_kind, gru: _gru_kind, lstm: lambda: _LSTM}


def bidirectional(
    layer: Callable[..., Any],
    input: Any,
    states: tuple[State, State] | None,
    forward: Sequence[Any],
    backward: Sequence[Any],
    *,
    lengths: Any = None,
    **options: Any,
) -> tuple[TensorVariable, tuple[State, State]]:
    """Two layers over the same input, one of which goes backwards.

    The products of the input with the weights of both are one product.

    Parameters
    ----------
    layer
        `rnn`, `gru` or `lstm`.
    input
        Shape (T, N, I).
    states
        A pair: the state before the first step forwards, and the one before the first step backwards, as the layer
        takes them; or None: zeros.
    forward, backward
        The parameters of each direction: (weight_ih, weight_hh), and bias_ih and bias_hh if there are any.
    lengths
        Numbers of steps of the rows, as `rnn` takes them. Backwards, the steps begin at the end of each row.
    **options
        `nonlinearity` of `rnn`, `reset_after` of `gru`.

    Returns
    -------
    outputs
        The outputs of both directions side by side, shape (T, N, 2 * H).
    (forward, backward)
        The last states of each direction, as the layer returns them.

    Raises
    ------
    TypeError
        Another layer, or no pair of states; see also `rnn`.
    ValueError
        A direction without two to four parameters; see also `rnn`.
    """
    if layer not in _KINDS:
        raise TypeError(f"bidirectional: layer must be nn.rnn, nn.gru or nn.lstm, not {layer!r}")
    pair = (None, None) if states is None else states
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(f"bidirectional: states must be a pair, of both directions, or None, not {states!r}")
    for name, values in (("forward", forward), ("backward", backward)):
        if not isinstance(values, tuple | list) or not 2 <= len(values) <= len(_PARAMETERS):
            raise ValueError(f"bidirectional: {name} must be ({', '.join(_PARAMETERS)}), not {values!r}")
    kind = _KINDS[layer](**options)
    found = _run(kind, input, pair, [forward, backward], [False, True], lengths)
    return pt.concatenate([out for out, _ in found], axis=2), (found[0][1], found[1][1])
