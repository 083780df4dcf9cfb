"""Attention: products of queries and keys, softmax, and the product with values, as one function."""

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.replace import _vectorize_node
from pytensor.scalar.basic import upcast
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.random.variable import RandomGeneratorVariable
from pytensor.tensor.variable import TensorVariable

from pytensor_cl.nn.arguments import as_floats
from pytensor_cl.nn.marker import Marker
from pytensor_cl.nn.windows import as_flag, as_ints, as_variable

CAUSAL = ("upper_left", "lower_right")
_CORE_NDIM = 4  # batch, heads, sequence, features
_WORD = 2**32  # hashes are words of 32 bits
_GOLDEN = 0x9E3779B9  # an odd factor that spreads neighbouring numbers over all words
_MIX = ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, None))  # shifts and factors of MurmurHash3's finaliser


def accumulator(dtype: str) -> str:
    """Return the dtype in which scores and sums are computed."""
    return "float64" if dtype == "float64" else "float32"


# --- dropout, drawn by position ---


def _mixed(word: Variable) -> Variable:
    """Return hashed words of 32 bits, in uint64."""
    for shift, factor in _MIX:
        word = word ^ (word // np.uint64(2**shift))
        if factor is not None:
            word = (word * np.uint64(factor)) % np.uint64(_WORD)
    return word


def _words(count: Variable) -> Variable:
    return pt.arange(count).astype("uint64")


def drop_threshold(dropout: float) -> int:
    """Return the least hash that keeps a probability; `dropout` is the rate of those that are dropped."""
    return min(_WORD - 1, round(dropout * _WORD))


def kept_factors(seed: Variable, scores: Variable, dropout: float, dtype: str) -> Variable:
    """Return for each score 1 / (1 - dropout) or 0: a hash of the seed and of its position decides.

    Batch index, head and query give two words of 32 bits, which are mixed with the key's index. So the forward and the
    backward pass, and each schedule, drop the same without an array of the scores' size.
    """
    batch, heads, queries, keys = scores.shape
    word = np.uint64(_WORD)
    seeds = seed.astype("uint64") % word
    rows = _words(batch)[:, None, None] * heads.astype("uint64") + _words(heads)[None, :, None]
    first = _mixed((rows % word) ^ seeds[0])
    low = _mixed((first + _words(queries)[None, None, :] * np.uint64(_GOLDEN)) % word)
    high = _mixed(low ^ seeds[1])
    hashes = _mixed(_mixed(_words(keys) ^ low[..., None]) ^ high[..., None])
    kept = pt.ge(hashes, np.uint64(drop_threshold(dropout)))
    return kept.astype(dtype) * np.asarray(1 / (1 - dropout), dtype)


# --- the composition ---


class _Attention(Marker):
    """Base class of the forward and the backward marker: it has the properties, and the scores of the composition.

    `causal`: None or how the masked triangle is aligned; `grouped`: whether queries may share keys; `mask`: None,
    "bool" or "float"; `scale`: a number, or None for the root of the features; `dropout`: the rate. The inputs begin
    with query, key, value, then the mask and the seed of the dropout, where there are.
    """

    __props__ = ("causal", "grouped", "mask", "scale", "dropout")
    causal: str | None = None
    grouped: bool = False
    mask: str | None = None
    scale: float | None = None
    dropout: float = 0.0

    def __str__(self) -> str:
        defaults = type(self)
        given = [f"{k}={v!r}" for k, v in self.properties.items() if v != getattr(defaults, k)]
        return type(self).__name__ + (f"{{{', '.join(given)}}}" if given else "")

    @property
    def properties(self) -> dict[str, Any]:
        """The properties by name."""
        return {name: getattr(self, name) for name in self.__props__}

    def split(self, inputs: Sequence[Any]) -> tuple[Any, Any, Any, Any, Any, tuple[Any, ...]]:
        """Return query, key, value, mask or None, seed or None, and the other inputs."""
        query, key, value, *rest = inputs
        mask = rest.pop(0) if self.mask else None
        seed = rest.pop(0) if self.dropout else None
        return query, key, value, mask, seed, tuple(rest)

    def factor(self, query: Variable) -> Variable:
        """Return what the products of queries and keys are multiplied by."""
        dtype = accumulator(query.dtype)
        if self.scale is not None:
            return pt.constant(np.asarray(self.scale, dtype))
        return 1 / pt.sqrt(pt.maximum(query.shape[-1], 1).astype(dtype))

    def scores(self, query: Variable, key: Variable, mask: Variable | None) -> Variable:
        """Return scaled and masked products of queries and keys, -inf where a query does not attend."""
        found = self.product(query * self.factor(query), key.swapaxes(-1, -2))
        if mask is not None:
            is_bool = self.mask == "bool"
            found = pt.switch(mask, found, -np.inf) if is_bool else found + mask.astype(found.dtype)
        if self.causal is not None:
            queries, keys = found.shape[-2:]
            last = pt.arange(queries) + (keys - queries if self.causal == "lower_right" else 0)
            found = pt.switch(pt.le(pt.arange(keys), last[:, None]), found, -np.inf)
        return found

    def product(self, rows: Variable, matrix: Variable) -> Variable:
        """Return products over the last two axes, where successive heads of `rows` may share one of `matrix`.

        `rows`: shape (N, H, L, K); `matrix`: shape (N, Hk, K, M). Returns shape (N, H, L, M).
        """
        if not self.grouped and rows.type.shape[-1]:
            return rows @ matrix
        heads = _lengths(matrix if self.grouped else rows)[1]
        found = _batched(rows, heads) @ _batched(matrix, _lengths(matrix)[1])
        return found.reshape((*_lengths(rows)[:-1], _lengths(matrix)[-1]))

    def product_of_group(self, left: Variable, right: Variable, key: Variable) -> Variable:
        """Return ``left.T @ right`` over the queries of all heads that share a key.

        `left`: shape (N, H, L, S); `right`: shape (N, H, L, K); `key`: shape (N, Hk, S, E). Returns shape (N, Hk, S,
        K).
        """
        if not self.grouped and left.type.shape[-2]:
            return left.swapaxes(-1, -2) @ right
        heads = _lengths(key if self.grouped else left)[1]
        found = _batched(left, heads).swapaxes(-1, -2) @ _batched(right, heads)
        return found.reshape((_lengths(left)[0], heads, _lengths(left)[-1], _lengths(right)[-1]))

    def wide(self, *inputs: Variable) -> list[Variable]:
        """Return arrays in the dtype of sums."""
        dtype = accumulator(inputs[0].dtype)
        return [v.astype(dtype) for v in inputs]


def _lengths(x: Variable) -> tuple[Any, ...]:
    """Return the lengths of an array, as numbers where they are known."""
    return tuple(x.shape[i] if n is None else n for i, n in enumerate(x.type.shape))


def _batched(x: Variable, heads: Any) -> Variable:
    """Return an array (N, H, L, K) as matrices (N * heads, L * H / heads, K).

    PyTensor itself folds batch dimensions by a reshape to -1 rows, which fails for sums without a term.
    """
    batch, count, length, depth = _lengths(x)
    divisor = max(heads, 1) if isinstance(heads, int) else pt.maximum(heads, 1)
    return x.reshape((batch * heads, count // divisor * length, depth))


class Attention(_Attention):
    """Attention of arrays (N, H, L, E), (N, Hk, S, E), (N, Hk, S, Ev): the result, and the log of each row's sum.

    The second output, (N, H, L), is what the backward pass needs of the softmax; zero in rows without a key.
    """

    def build_inner_graph(self, *inputs: Variable) -> list[Variable]:
        """Return the composition."""
        query, key, value, mask, seed, _ = self.split(inputs)
        dtype = query.dtype
        query, key, value = self.wide(query, key, value)
        scores = self.scores(query, key, mask)
        largest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
        largest = pt.switch(pt.eq(largest, -np.inf), 0, largest)  # a row without any key
        parts = pt.exp(scores - largest)
        total = parts.sum(axis=-1, keepdims=True)
        is_empty = pt.eq(total, 0)
        total = pt.switch(is_empty, 1, total)
        log_sums = pt.switch(is_empty, 0, largest + pt.log(total))
        if seed is not None:
            parts = parts * kept_factors(seed, scores, self.dropout, parts.dtype)
        result = self.product(parts / total, value)
        return [result.astype(dtype), log_sums.squeeze(-1)]

    def pullback(
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], output_grads: Sequence[Variable]
    ) -> list[Variable]:
        """Return the gradients, which the marker of the backward pass computes; that of a mask is a composition."""
        result, log_sums = outputs
        grad, log_sums_grad = output_grads
        wide = log_sums.dtype
        correction = pt.zeros_like(log_sums)
        if isinstance(grad.type, DisconnectedType):
            grad = pt.zeros_like(result)
        else:
            correction = (grad.astype(wide) * result.astype(wide)).sum(axis=-1)
        if not isinstance(log_sums_grad.type, DisconnectedType):
            correction = correction - log_sums_grad
        all_inputs = (*inputs, log_sums, correction, grad)
        grads = list(AttentionGrad(**self.properties)(*all_inputs))
        if self.mask == "float":
            grads.append(_mask_gradient(self, all_inputs))
        elif self.mask == "bool":
            grads.append(disconnected_type())
        return grads + [disconnected_type()] * bool(self.dropout)

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Return which outputs depend continuously on each input."""
        return [[v.type.dtype.startswith("float")] * len(node.outputs) for v in node.inputs]

    def predict(self, node: Apply) -> Sequence[Variable | None] | None:
        """Return attention without dropout."""
        if not self.dropout:
            return None
        query, key, value, mask, _, _ = self.split(node.inputs)
        op = Attention(**{**self.properties, "dropout": 0.0})
        outputs: list[Variable] = op(query, key, value, *([] if mask is None else [mask]), return_list=True)
        return outputs


class AttentionGrad(_Attention):
    """Gradients of attention by query, key and value.

    The last inputs are the logs of the sums, the correction (the sum of result times gradient along each row), and the
    gradient of the result.
    """

    def build_inner_graph(self, *inputs: Variable) -> list[Variable]:
        """Return the composition."""
        dtypes = [v.dtype for v in inputs[:3]]
        probabilities, kept, scores_grad, (query, key, _, grad) = _score_gradient(self, inputs)
        factor = self.factor(query)
        dropped = probabilities if kept is None else probabilities * kept
        found = (
            self.product(scores_grad, key) * factor,
            self.product_of_group(scores_grad, query, key) * factor,
            self.product_of_group(dropped, grad, key),
        )
        return [v.astype(dtype) for v, dtype in zip(found, dtypes, strict=True)]


def _score_gradient(
    op: _Attention, inputs: Sequence[Variable]
) -> tuple[Variable, Variable | None, Variable, list[Variable]]:
    """Return probabilities, factors of the dropout, gradient of the scores, and the arrays in the dtype of sums."""
    query, key, value, mask, seed, (log_sums, correction, grad) = op.split(inputs)
    query, key, value, grad = op.wide(query, key, value, grad)
    scores = op.scores(query, key, mask)
    probabilities = pt.exp(scores - log_sums[..., None])
    by_probability = op.product(grad, value.swapaxes(-1, -2))
    kept = None
    if seed is not None:
        kept = kept_factors(seed, scores, op.dropout, scores.dtype)
        by_probability = by_probability * kept
    scores_grad = probabilities * (by_probability - correction[..., None])
    if op.causal is not None or op.mask is not None:  # what is masked may be infinite or NaN
        scores_grad = pt.switch(pt.eq(scores, -np.inf), 0, scores_grad)
    return probabilities, kept, scores_grad, [query, key, value, grad]


def _mask_gradient(op: _Attention, inputs: Sequence[Variable]) -> Variable:
    """Return the gradient of a floating mask: that of the scores, summed along the axes that were broadcast."""
    mask = inputs[3]
    _, _, found, _ = _score_gradient(op, inputs)
    axes = [axis for axis, length in enumerate(mask.type.shape) if length == 1 and found.type.shape[axis] != 1]
    return (found.sum(axis=axes, keepdims=True) if axes else found).astype(mask.dtype)


@_vectorize_node.register(Attention)
@_vectorize_node.register(AttentionGrad)
def _vectorize_attention(op: _Attention, node: Apply, *batched: Variable) -> Sequence[Variable]:
    """A batch of attentions -> one attention, whose batch axis has all of them.

    The seed of dropout stays as it is: each of the batch is at another position, and drops others.
    """
    extra = max(new.type.ndim - old.type.ndim for new, old in zip(batched, node.inputs, strict=True))
    if not extra:
        return list(type(op)(**op.properties)(*batched, return_list=True))
    seed_at = 3 + bool(op.mask) if op.dropout else None
    if seed_at is not None and batched[seed_at].type.ndim > 1:
        raise NotImplementedError("attention with dropout has one seed: it cannot be drawn for each of a batch")
    first = next(v for v, old in zip(batched, node.inputs, strict=True) if v.type.ndim > old.type.ndim)
    lead, length = first.shape[:extra], batched[0].shape[batched[0].type.ndim - _CORE_NDIM]
    folded = []
    for i, (new, old) in enumerate(zip(batched, node.inputs, strict=True)):
        if i == seed_at:
            folded.append(new)
            continue
        core = old.type.ndim
        count = pt.prod(pt.stack([*lead, length]))
        is_single = i == 3 and op.mask and old.type.shape[0] == 1
        if new.type.ndim == core and is_single:
            folded.append(new)
            continue
        whole = pt.broadcast_to(new, (*lead, length, *new.shape[new.type.ndim - core + 1 :]))
        folded.append(whole.reshape((count, *new.shape[new.type.ndim - core + 1 :])))
    outputs = type(op)(**op.properties)(*folded, return_list=True)
    sizes = (batched[0], batched[0]) if isinstance(op, Attention) else batched[:3]
    return [
        v.reshape((*lead, size.shape[size.type.ndim - _CORE_NDIM], *(v.shape[i] for i in range(1, v.type.ndim))))
        for v, size in zip(outputs, sizes, strict=True)
    ]


# --- the functions ---


def as_rng(rng: Any, name: str) -> Variable:
    """Return a random generator.

    Raises `TypeError`: it is none.
    """
    if not isinstance(rng, RandomGeneratorVariable) or not isinstance(rng.type, RandomType):
        raise TypeError(f"{name} must be a random generator such as pt.random.shared_rng(seed=1), not {rng!r}")
    return rng


def as_rate(value: Any, name: str) -> float:
    """Return a number from 0 to 1.

    Raises `TypeError`: it is no number. Raises `ValueError`: it is another one.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name} must be a number from 0 to 1, not {value!r}")
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be a number from 0 to 1, not {value!r}")
    return float(value)


def _as_floating(value: Any, name: str, least: int) -> Variable:
    variable = as_floats(value, name)
    if variable.type.ndim < least:
        raise TypeError(f"{name} needs {least} dimensions or more, and has {variable.type.ndim}")
    return variable


def _as_causal(value: Any) -> str | None:
    if isinstance(value, str):
        if value not in CAUSAL:
            raise ValueError(f"is_causal must be True, False, 'upper_left' or 'lower_right', not {value!r}")
        return value
    return CAUSAL[0] if as_flag(value, "is_causal") else None


def _differ(a: int | None, b: int | None) -> bool:
    """Return whether two static lengths are known and differ."""
    return a is not None and b is not None and a != b


def _check_shapes(query: Variable, key: Variable, value: Variable, enable_gqa: bool) -> None:
    q, k, v = (x.type.shape for x in (query, key, value))
    shapes = f"query {q}, key {k}, value {v}"
    if len({len(q), len(k), len(v)}) > 1:
        raise TypeError(f"query, key and value must have as many dimensions: {shapes}")
    if _differ(q[-1], k[-1]):
        raise ValueError(f"query and key must have the same number of features, the last axis: {shapes}")
    if _differ(k[-2], v[-2]):
        raise ValueError(f"key and value must have the same length: {shapes}")
    heads, shared = (q[-3], k[-3]) if len(q) > 2 else (None, None)
    if enable_gqa and heads is not None and shared is not None and (shared == 0 or heads % shared):
        raise ValueError(f"the heads of the query must be a multiple of those of the key: {shapes}")
    if not enable_gqa and _differ(heads, shared) and 1 not in (heads, shared):
        raise ValueError(f"query and key must have as many heads; enable_gqa=True lets queries share keys: {shapes}")


def _matched(arrays: Sequence[Variable], axes: Sequence[int]) -> list[Variable]:
    """Return arrays whose axes that are one by their static shapes are repeated to the length of the others.

    Raises `ValueError`: other lengths differ.
    """
    arrays = list(arrays)
    for axis in axes:
        full = [x for x in arrays if x.type.shape[axis] != 1]
        static = {x.type.shape[axis] for x in full} - {None}
        if len(static) > 1:
            shapes = ", ".join(str(x.type.shape) for x in arrays)
            raise ValueError(f"leading axes of attention do not match: {shapes}")
        length = static.pop() if static else full[0].shape[axis] if full else 1
        arrays = [_repeated(x, axis, length) if full and x.type.shape[axis] == 1 else x for x in arrays]
    return arrays


def _repeated(x: Variable, axis: int, length: Any) -> Variable:
    shape = list(_lengths(x))
    shape[axis] = length
    return pt.broadcast_to(x, shape)


def _folded(x: Variable) -> Variable:
    """Return an array of four dimensions: more leading axes become one, missing ones have length one."""
    extra = x.type.ndim - _CORE_NDIM
    if extra <= 0:
        return pt.shape_padleft(x, -extra) if extra else x
    lengths = _lengths(x)
    whole: Any = 1
    for n in lengths[: extra + 1]:
        whole = whole * n
    return x.reshape((whole, *lengths[extra + 1 :]))


def _as_mask(mask: Any, query: Variable, key: Variable) -> Variable:
    """Return a mask of four dimensions; its first one is one if the mask is the same for all of a batch."""
    mask, ndim = as_variable(mask, "attn_mask"), query.type.ndim
    if mask.type.dtype != "bool" and not mask.type.dtype.startswith("float"):
        raise TypeError(f"attn_mask must be bool (True attends) or floating (added), not {mask.type.dtype}")
    if mask.type.ndim > ndim:
        raise TypeError(f"attn_mask has {mask.type.ndim} dimensions, more than the query's {ndim}")
    mask = pt.shape_padleft(mask, ndim - mask.type.ndim) if mask.type.ndim < ndim else mask
    wanted = (*query.type.shape[:-1], key.type.shape[-2])
    if any(n != 1 and _differ(n, w) for n, w in zip(mask.type.shape, wanted, strict=True)):
        raise ValueError(f"attn_mask of shape {mask.type.shape} does not broadcast to the scores' shape {wanted}")
    lead = range(max(0, ndim - 3))
    if any(mask.type.shape[axis] != 1 for axis in lead):
        for axis in lead:
            mask = _matched([mask, query], [axis])[0]
    return _folded(mask)


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool | str = False,
    scale: Any = None,
    enable_gqa: bool = False,
    *,
    rng: Any = None,
) -> Any:
    """Return ``softmax(query @ key.T * scale + mask) @ value``, over the last two axes.

    Mode OPENCL computes it, and its gradient, without an array of the scores' size.

    Parameters
    ----------
    query
        Floating, shape (..., H, L, E).
    key, value
        Shapes (..., Hk, S, E) and (..., Hk, S, Ev). Hk = H, unless `enable_gqa`.
    attn_mask
        Broadcasts to (..., H, L, S). Bool: True attends. Floating: added to the scores.
    dropout_p
        Rate at which probabilities are set to zero; the others are divided by ``1 - dropout_p``. Needs `rng`.
    is_causal
        True or "upper_left": query i attends to keys j <= i, as torch's. "lower_right": j <= i + S - L, so that the
        last query attends to all keys, as decoding with a cache needs it. With a mask both hold.
    scale
        Factor of the scores, a number or a 0-d variable; None: ``1 / sqrt(E)``.
    enable_gqa
        Query head h uses key and value head ``h // (H / Hk)``.
    rng
        A random generator, as ``pt.random.shared_rng`` makes it.

    Returns
    -------
    out
        Shape (..., H, L, Ev). A query without any key gives zeros. With `rng`: ``(next_rng, out)``.

    Raises
    ------
    TypeError
        A dtype or a number of dimensions does not fit; `dropout_p` without `rng`.
    ValueError
        Shapes do not fit, or `dropout_p` is not in 0..1.

    Notes
    -----
    The algorithm is that of FlashAttention-2 (Dao 2023) with the online softmax of Milakov and Gimelshein (2018).
    The gradient of a floating mask is computed with an array of the scores' size.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pytensor_cl import nn
    >>> q, k, v = (pt.tensor(name, shape=(2, 8, None, 64), dtype="float32") for name in "qkv")
    >>> nn.scaled_dot_product_attention(q, k, v, is_causal=True).type.shape
    (2, 8, None, 64)
    """
    query, key, value = (_as_floating(x, name, 2) for x, name in ((query, "query"), (key, "key"), (value, "value")))
    dtype = upcast(query.dtype, key.dtype, value.dtype)
    query, key, value = (x.astype(dtype) for x in (query, key, value))
    has_gqa = as_flag(enable_gqa, "enable_gqa")
    _check_shapes(query, key, value, has_gqa)
    causal, dropout = _as_causal(is_causal), as_rate(dropout_p, "dropout_p")
    if dropout and rng is None:
        raise TypeError("dropout_p needs rng, a random generator such as pt.random.shared_rng(seed=1)")
    query, number = _scaled(query, scale)
    arrays = _aligned(query, key, value, has_gqa)
    inputs = [_folded(x) for x in arrays]
    properties: dict[str, Any] = {"causal": causal, "scale": number}
    properties["grouped"] = has_gqa or inputs[0].type.shape[1] != 1 == inputs[1].type.shape[1]
    if attn_mask is not None:
        inputs.append(_as_mask(attn_mask, *arrays[:2]))
        properties["mask"] = "bool" if inputs[-1].type.dtype == "bool" else "float"
    if rng is None:
        return _unfolded(Attention(**properties)(*inputs)[0], arrays[0], value)
    next_rng, seed = as_rng(rng, "rng").integers(0, 2**31 - 1, size=(2,))
    if 0 < dropout < 1:
        inputs.append(seed)
        properties["dropout"] = dropout
    out = _unfolded(Attention(**properties)(*inputs)[0], arrays[0], value)
    return next_rng, pt.zeros_like(out) if dropout == 1 else out


def _aligned(query: Variable, key: Variable, value: Variable, has_gqa: bool) -> list[Variable]:
    """Return arrays whose leading axes match: but for heads of keys and values, which queries may share."""
    ndim = query.type.ndim
    query, key, value = _matched((query, key, value), range(ndim - 3))
    if ndim > 2:
        heads = ndim - 3
        key, value = _matched((key, value), [heads])
        if not has_gqa:
            query = _matched((query, key), [heads])[0]
    return [query, key, value]


def _unfolded(result: Variable, query: Variable, value: Variable) -> Variable:
    """Return a result with the leading axes of the query."""
    ndim = query.type.ndim
    if ndim == _CORE_NDIM:
        return result
    if ndim < _CORE_NDIM:
        return result.squeeze(tuple(range(_CORE_NDIM - ndim)))
    return result.reshape((*_lengths(query)[:-1], _lengths(value)[-1]))


def _scaled(query: Variable, scale: Any) -> tuple[Variable, float | None]:
    """Return the query and the factor of the scores; a symbolic one is multiplied into the query.

    Raises `TypeError` or `ValueError`: it is no finite number and no 0-d variable.
    """
    if scale is None or (isinstance(scale, int | float | np.number) and not isinstance(scale, bool)):
        if scale is not None and not isfinite(scale):
            raise ValueError(f"scale must be finite, not {scale!r}")
        return query, None if scale is None else float(scale)
    factor = as_variable(scale, "scale")
    if factor.type.ndim:
        raise TypeError(f"scale must be a number or a 0-d variable, not {scale!r}")
    return query * factor.astype(query.dtype), 1.0


def multi_head_attention(
    query: Any,
    key: Any,
    value: Any,
    num_heads: int,
    in_proj_weight: Any,
    in_proj_bias: Any,
    out_proj_weight: Any,
    out_proj_bias: Any,
    *,
    num_kv_heads: int | None = None,
    attn_mask: Any = None,
    key_mask: Any = None,
    is_causal: bool | str = False,
    dropout_p: float = 0.0,
    rng: Any = None,
) -> Any:
    """Return attention of several heads between a projection of the inputs and one of the result.

    Parameters
    ----------
    query
        Shape (N, L, E): the batch comes first.
    key, value
        Shape (N, S, E). If the three are one variable, one product makes all projections.
    num_heads
        Heads; it divides E.
    in_proj_weight, in_proj_bias
        Shapes (3 E, E) and (3 E,), torch's layout: the rows of the query, of the key, of the value. With
        `num_kv_heads` there are ``E + 2 num_kv_heads (E / num_heads)`` rows. The bias may be None.
    out_proj_weight, out_proj_bias
        Shapes (E, E) and (E,). The bias may be None.
    num_kv_heads
        Heads of keys and values, if queries share them; it divides `num_heads`.
    attn_mask
        The mask of `scaled_dot_product_attention`; broadcasts to (N, num_heads, L, S).
    key_mask
        Bool, shape (N, S): True attends. torch's ``key_padding_mask`` is its negation.
    is_causal, dropout_p, rng
        The arguments of `scaled_dot_product_attention`.

    Returns
    -------
    out
        Shape (N, L, E). With `rng`: ``(next_rng, out)``.

    Raises
    ------
    TypeError
        A dtype or a number of dimensions does not fit.
    ValueError
        Shapes do not fit.
    """
    query, key, value = (_as_floating(x, name, 3) for x, name in ((query, "query"), (key, "key"), (value, "value")))
    (heads,), (shared,) = as_ints(num_heads, 1, "num_heads"), as_ints(num_kv_heads or num_heads, 1, "num_kv_heads")
    in_weight, out_weight = (
        _as_floating(x, name, 2)
        for x, name in ((in_proj_weight, "in_proj_weight"), (out_proj_weight, "out_proj_weight"))
    )
    biases = [
        None if x is None else _as_floating(x, name, 1)
        for x, name in ((in_proj_bias, "in_proj_bias"), (out_proj_bias, "out_proj_bias"))
    ]
    for x, ndim in ((query, 3), (key, 3), (value, 3), (in_weight, 2), (out_weight, 2)):
        if x.type.ndim != ndim:
            raise TypeError(f"inputs (N, L, E) have three dimensions and weights two, not {x.type.ndim}")
    if heads % shared:
        raise ValueError(f"num_kv_heads ({shared}) must divide num_heads ({heads})")
    q, k, v = _projections(query, key, value, in_weight, biases[0], heads, shared)
    mask = _with_key_mask(attn_mask, key_mask)
    gqa = heads != shared
    result: Any = scaled_dot_product_attention(q, k, v, mask, dropout_p, is_causal, None, gqa, rng=rng)
    next_rng, result = (None, result) if rng is None else result
    batch, _, length, _ = _lengths(result)
    joined = result.swapaxes(1, 2).reshape((batch, length, _lengths(out_weight)[1]))
    out = _affine(joined, out_weight, biases[1])
    return out if rng is None else (next_rng, out)


def _affine(x: Variable, weight: Variable, bias: Variable | None) -> Variable:
    """Return ``x @ weight.T + bias``."""
    product = x @ weight.T
    return product if bias is None else product + bias


def _projections(
    query: Variable,
    key: Variable,
    value: Variable,
    weight: Variable,
    bias: Variable | None,
    heads: int,
    shared: int,
) -> list[Variable]:
    """Return query, key and value, projected, with an axis of heads before that of the sequence."""
    width = query.type.shape[-1] or weight.type.shape[1]
    if width is None:
        raise ValueError("the last axis of query, or of in_proj_weight, needs a static length")
    if width % heads:
        raise ValueError(f"num_heads ({heads}) must divide the features ({width})")
    size = width // heads
    ends = np.cumsum([0, width, shared * size, shared * size])
    if _differ(weight.type.shape[0], int(ends[-1])):
        raise ValueError(f"in_proj_weight needs {ends[-1]} rows for {width} features, not {weight.type.shape[0]}")
    slices = [slice(int(a), int(b)) for a, b in pairwise(ends)]
    if query is key is value:
        whole = _affine(query, weight, bias)
        parts = [whole[..., s] for s in slices]
    else:
        inputs = zip((query, key, value), slices, strict=True)
        parts = [_affine(x, weight[s], None if bias is None else bias[s]) for x, s in inputs]
    counts = (heads, shared, shared)
    return [x.reshape((*_lengths(x)[:2], count, size)).swapaxes(1, 2) for x, count in zip(parts, counts, strict=True)]


def _with_key_mask(attn_mask: Any, key_mask: Any) -> Variable | None:
    """Return one mask for both."""
    if key_mask is None:
        return None if attn_mask is None else as_variable(attn_mask, "attn_mask")
    keys = as_variable(key_mask, "key_mask")
    if keys.type.dtype != "bool" or keys.type.ndim != 2:
        raise TypeError(f"key_mask must be bool of shape (N, S), True attends, not {keys.type}")
    keys = keys[:, None, None, :]
    if attn_mask is None:
        return keys
    mask = as_variable(attn_mask, "attn_mask")
    return mask & keys if mask.type.dtype == "bool" else pt.switch(keys, mask, -np.inf).astype(mask.type.dtype)


def rotary(input: Any, positions: Any = None, base: float = 10000.0, interleaved: bool = False) -> TensorVariable:
    """Return rotary position embeddings: pairs of features turned by angles that grow with the position.

    Parameters
    ----------
    input
        Floating, shape (..., L, E), E even: query or key, before attention.
    positions
        Position of each element of the sequence: shape (L,), or one that broadcasts to (..., L); None: 0, 1, ...
    base
        Pair i turns by ``position * base ** (-2 i / E)``.
    interleaved
        False pairs feature i with i + E / 2 (Hugging Face, GPT-NeoX); True pairs neighbours (the paper, Meta's
        LLaMA). Weights made for one layout are wrong in the other, and show it only from the second token on.

    Returns
    -------
    out
        Shape and dtype of `input`. Angles are computed in float64.

    Raises
    ------
    TypeError
        `input` is not floating, or has no two dimensions.
    ValueError
        E is odd, or `base` is not positive.

    Notes
    -----
    Su et al. (2021), RoFormer.
    """
    x = _as_floating(input, "input", 2)
    flag = as_flag(interleaved, "interleaved")
    if isinstance(base, bool) or not isinstance(base, int | float | np.number):
        raise TypeError(f"base must be a number, not {base!r}")
    if not base > 0 or not isfinite(base):
        raise ValueError(f"base must be positive and finite, not {base!r}")
    features = x.type.shape[-1]
    if features is None:
        features = x.shape[-1]
    elif features % 2:
        raise ValueError(f"rotary needs an even number of features, the last axis, not {features}")
    length = x.shape[-2]
    places = pt.arange(length) if positions is None else as_variable(positions, "positions")
    rates = np.float64(base) ** -(pt.arange(0, features, 2) / features)
    angles = places.astype("float64")[..., None] * rates
    cos, sin = (f(angles).astype(x.dtype) for f in (pt.cos, pt.sin))
    if flag:
        first, second = x[..., 0::2], x[..., 1::2]
        turned = pt.stack([first * cos - second * sin, first * sin + second * cos], axis=-1)
        return turned.reshape(_lengths(x))
    half = features // 2
    first, second = x[..., :half], x[..., half:]
    return pt.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
