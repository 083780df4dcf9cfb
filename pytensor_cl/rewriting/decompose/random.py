"""Draws of vectors and of composed distributions -> draws that have kernels, and arithmetic.

A multivariate normal number is made of normal ones as NumPy makes it, so it is NumPy's to rounding, and beta-binomial
numbers of few trials are made as SciPy makes them. The others are made only with ``opencl__random=philox``, whose
numbers are not NumPy's anyway.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.random import basic as draws
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type_other import NoneTypeT

from pytensor_cl.ops.random import has_few_trials, is_one_number

_DEFINITE = CheckAndRaise(np.linalg.LinAlgError, "Matrix is not positive definite")
_POSITIVE = CheckAndRaise(ValueError, "alpha < 0")
_CHECK_PROBABILITIES = CheckAndRaise(ValueError, "pvals < 0, pvals > 1, pvals contains NaNs, or sum(pvals[:-1]) > 1")
_CHECK_COUNTS = CheckAndRaise(ValueError, "n < 0")
_SMALLER = CheckAndRaise(ValueError, "Cannot take a larger sample than population when replace is False")
_ENOUGH = CheckAndRaise(ValueError, "Fewer non-zero entries in p than size")

Form = Callable[[Any, Apply], "tuple[Variable, Variable] | None"]
"""An Op and its node -> the generator after the draws, and the draws; None if the node stays."""


def _parameters(node: Apply) -> tuple[Variable, Variable | None, list[Variable]]:
    rng, size, *parameters = node.inputs
    return rng, None if isinstance(size.type, NoneTypeT) else size, parameters


def _lengths(size: Variable | None, arrays: Sequence[Variable]) -> tuple[Variable, ...]:
    """Return the lengths of batch dimensions: those of the size, or those of arrays that broadcast."""
    if size is not None:
        return tuple(size[k] for k in range(size.type.shape[0]))
    ndim = max(v.type.ndim for v in arrays)
    padded = [pt.expand_dims(v, tuple(range(ndim - v.type.ndim))) for v in arrays]

    def length(axis: int) -> Variable:
        return next((v.shape[axis] for v in padded if not v.type.broadcastable[axis]), pt.constant(np.int64(1)))

    return tuple(length(axis) for axis in range(ndim))


def _draw(op: RandomVariable, rng: Variable, size: Sequence[Variable], *parameters: Any) -> tuple[Variable, Variable]:
    """Return the generator after draws in double precision, and the draws."""
    dtype = "int64" if op.dtype == "int64" else "float64"
    following, drawn = op(*parameters, size=tuple(size), rng=rng, dtype=dtype, return_next_rng=True)
    return following, drawn


def _normal(op: Any, node: Apply) -> tuple[Variable, Variable] | None:
    """MvNormalRV(mean, covariance) -> mean + L z for normal z."""
    if op.method != "cholesky":
        return None
    rng, size, (mean, covariance) = _parameters(node)
    mean, covariance = (pt.cast(v, "float64") for v in (mean, covariance))
    batch = _lengths(size, [mean[..., 0], covariance[..., 0, 0]])
    factor = pt.linalg.cholesky(covariance, lower=True, on_error="nan")
    factor = _DEFINITE(factor, pt.invert(pt.isnan(factor)).all())
    rng, z = _draw(draws.normal, rng, (*batch, mean.shape[-1]), 0.0, 1.0)
    if factor.type.ndim == 2:
        return rng, mean + z @ factor.T
    return rng, mean + (factor @ z[..., None])[..., 0]


def _dirichlet(op: Any, node: Apply) -> tuple[Variable, Variable]:
    """DirichletRV(a) -> softmax of the logarithms of gamma numbers, which do not underflow where a is small.

    A gamma number of shape a is one of shape a + 1, times a uniform one to the power of 1 / a.
    """
    rng, size, (shapes,) = _parameters(node)
    shapes = pt.cast(shapes, "float64")
    shapes = _POSITIVE(shapes, pt.ge(shapes, 0).all())
    lengths = (*_lengths(size, [shapes[..., 0]]), shapes.shape[-1])
    rng, larger = _draw(draws.GammaRV(), rng, lengths, shapes + 1, 1.0)
    rng, uniform = _draw(draws.uniform, rng, lengths, 0.0, 1.0)
    return rng, pt.special.softmax(pt.log(larger) + pt.log(uniform) / shapes, axis=-1)


def _multinomial(op: Any, node: Apply) -> tuple[Variable, Variable] | None:
    """MultinomialRV(n, p) -> binomial numbers: of a range of categories, the share of its first half.

    The ranges are halved until each is one category, so there is one draw for each bit of a category's number. The last
    category takes what is left, as in NumPy, whatever its probability says.
    """
    rng, size, (n, p) = _parameters(node)
    categories = p.type.shape[-1]
    if not categories:
        return None
    p = pt.cast(p, "float64")
    are_probabilities = pt.ge(p, 0).all() & pt.le(p, 1).all() & pt.le(p[..., :-1].sum(axis=-1), 1 + 1e-12).all()
    p, n = _CHECK_PROBABILITIES(p, are_probabilities), _CHECK_COUNTS(n, pt.ge(n, 0).all())
    batch = _lengths(size, [n, p[..., 0]])
    levels = _sums_of_pairs(p, categories)
    counts = (pt.alloc(pt.cast(n, "int64"), *batch) if batch else pt.cast(n, "int64"))[..., None]
    for level in range(len(levels) - 1, 0, -1):
        ranges = 1 << (len(levels) - 1 - level)
        whole, first = levels[level], levels[level - 1][..., ::2]
        share = pt.switch(whole > 0, pt.clip(first / whole, 0.0, 1.0), 0.0)
        rng, taken = _draw(draws.binomial, rng, (*batch, pt.constant(np.int64(ranges))), counts, share)
        counts = pt.stack([taken, counts - taken], axis=-1).reshape((*batch, 2 * ranges))
    return rng, counts[..., :categories]


def _sums_of_pairs(p: Variable, categories: int) -> list[Variable]:
    """Return probabilities with zeros after them, to a power of two; the sums of their pairs; and so on, to one sum."""
    last = pt.maximum(1.0 - p[..., :-1].sum(axis=-1, keepdims=True), 0.0)
    width = 1 << (categories - 1).bit_length()
    missing = pt.zeros_like(p[..., :1]).repeat(width - categories, axis=-1)
    levels = [pt.concatenate([p[..., :-1], last, missing], axis=-1)]
    while width > 1:
        levels.append(levels[-1][..., ::2] + levels[-1][..., 1::2])
        width //= 2
    return levels


def _beta_binomial(op: Any, node: Apply) -> tuple[Variable, Variable]:
    """BetaBinomialRV(n, a, b) -> BinomialRV(n, BetaRV(a, b))."""
    rng, size, (n, a, b) = _parameters(node)
    batch = _lengths(size, [n, a, b])
    rng, probability = _draw(draws.beta, rng, batch, *(pt.cast(v, "float64") for v in (a, b)))
    return _draw(draws.binomial, rng, batch, n, probability)


def _beta_binomial_of_numbers(op: Any, node: Apply) -> tuple[Variable, Variable] | None:
    """BetaBinomialRV(n, a, b) -> the same two draws as SciPy makes, if both have kernels for NumPy's numbers."""
    n, a, b = _parameters(node)[2]
    return _beta_binomial(op, node) if has_few_trials(n) and is_one_number(a) and is_one_number(b) else None


def _permutation(op: Any, node: Apply) -> tuple[Variable, Variable] | None:
    """PermutationRV(x) -> x in the order of uniform numbers."""
    rng, size, (x,) = _parameters(node)
    if x.type.ndim > max(1, op.ndims_params[0]) or size is not None or (not op.ndims_params[0] and x.type.ndim):
        return None
    values = x if x.type.ndim else pt.arange(x, dtype=x.type.dtype)
    rng, uniform = _draw(draws.uniform, rng, (values.shape[0],), 0.0, 1.0)
    return rng, values[pt.argsort(uniform)]


def _choice(op: Any, node: Apply) -> tuple[Variable, Variable] | None:
    """ChoiceWithoutReplacement(a, p, shape) -> the elements with the smallest exponential numbers of rate p.

    P. Efraimidis and P. Spirakis, Weighted random sampling with a reservoir, 2006.
    """
    rng, size, (a, *chances, shape) = _parameters(node)
    if size is not None or a.type.ndim > max(1, op.ndims_params[0]) or (not op.ndims_params[0] and a.type.ndim):
        return None
    if shape.type.ndim != 1 or shape.type.shape[0] is None or any(p.type.ndim != 1 for p in chances):
        return None
    values = a if a.type.ndim else pt.arange(a, dtype=a.type.dtype)
    lengths = [shape[k] for k in range(shape.type.shape[0])]
    count = pt.prod(shape) if lengths else pt.constant(np.int64(1))
    rng, waiting = _draw(draws.exponential, rng, (values.shape[0],), 1.0)
    for p in chances:
        p = _ENOUGH(p, pt.neq(p, 0).sum() >= count)
        p = _CHECK_PROBABILITIES(p, pt.ge(p, 0).all())
        waiting = waiting / pt.cast(p, "float64")
    count = _SMALLER(count, count <= values.shape[0])
    taken = values[pt.argsort(waiting)[:count]]
    return rng, taken.reshape((*lengths, *(values.shape[k] for k in range(1, values.type.ndim))))


_EXACT: dict[type[RandomVariable], Form] = {
    draws.BetaBinomialRV: _beta_binomial_of_numbers,
    draws.MvNormalRV: _normal,
}
_COUNTED: dict[type[RandomVariable], Form] = {
    draws.BetaBinomialRV: _beta_binomial,
    draws.ChoiceWithoutReplacement: _choice,
    draws.DirichletRV: _dirichlet,
    draws.MultinomialRV: _multinomial,
    draws.PermutationRV: _permutation,
}


def decompose_random(fgraph: FunctionGraph) -> None:
    """Replace draws that other draws make up."""
    forms = _EXACT | _COUNTED if config.opencl__random == "philox" else _EXACT
    for node in fgraph.toposort():
        form = forms.get(type(node.op))
        new = form(node.op, node) if form is not None else None
        if new is None:
            continue
        drawn = pt.cast(new[1], node.outputs[1].type.dtype)
        pairs = [(node.outputs[0], new[0]), (node.outputs[1], node.outputs[1].type.filter_variable(drawn))]
        fgraph.replace_all(pairs, reason="opencl_decompose", import_missing=True)
