"""Draws from the prior, where sequential Monte Carlo begins."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pymc.exceptions import SamplingError
from pymc.pytensorf import compile as compile_with_updates
from pymc.pytensorf import find_rng_nodes, replace_rng_nodes, reseed_rngs
from pytensor.compile.mode import FAST_COMPILE
from pytensor.graph.replace import vectorize_graph

from pytensor_cl.pymc.named_axes import as_tensor_graphs, with_named_axes, without_named_axes
from pytensor_cl.pymc.progress import warn

ROUNDS = 100
"""The most draws of a particle until its likelihood is positive."""


def _to_unbounded(transform: Any, rv: Any) -> tuple[Any, Any]:
    """Return a transformed value, and where a neighbour was transformed instead because the value itself cannot be.

    A Beta distribution of small parameters, for example, has many draws that are 1.0 in floating point.
    """

    def forward(value: Any) -> Any:
        return without_named_axes(transform.forward(with_named_axes(value, rv), *rv.owner.inputs))

    value = without_named_axes(rv)
    if transform is None:
        return value, pt.zeros_like(value, dtype="bool")
    dtype = value.type.dtype
    tiny = np.asarray(np.finfo(dtype).tiny, dtype)
    spacing = np.asarray(np.finfo(dtype).eps, dtype) * pt.abs(value)
    positive = pt.switch(pt.eq(value, 0), tiny, value)
    exact = found = forward(value)
    for neighbour in (positive, value - spacing, value + spacing):
        found = pt.switch(_is_finite(found), found, forward(neighbour))
    return found.astype(dtype), _is_finite(found) & ~_is_finite(exact)


def _is_finite(value: Any) -> Any:
    return ~(pt.isnan(value) | pt.isinf(value))


class PriorDraws:
    """Draws from the prior of a model, in the unbounded space; initial values of variables play no part.

    `is_rounded` says whether a draw was at a bound of its variable in floating point, and was moved from there.
    """

    def __init__(self, model: Any) -> None:
        improper = [rv.name for rv in model.free_RVs if isinstance(rv.owner.op, FlatRV | HalfFlatRV)]
        if improper:
            raise ValueError(
                f"sampler 'smc' begins with draws from the prior, and the prior of {', '.join(improper)} is improper"
            )
        self.is_rounded = False
        self._names = [value.name for value in model.value_vars]
        variables = [model.values_to_rvs[value] for value in model.value_vars]
        self._function = compile_with_updates([], replace_rng_nodes(variables), mode=FAST_COMPILE)
        self._rngs = find_rng_nodes(self._function.maker.fgraph.outputs)
        pairs = [_to_unbounded(model.rvs_to_transforms[rv], rv) for rv in variables]
        variables, parts = as_tensor_graphs(variables, [part for pair in pairs for part in pair])
        inputs = [pt.tensor(rv.name, dtype=rv.type.dtype, shape=(None, *rv.type.shape)) for rv in variables]
        outputs = vectorize_graph(parts, dict(zip(variables, inputs, strict=True)))
        self._transform = pytensor.function(inputs, outputs, mode=FAST_COMPILE, on_unused_input="ignore", name="prior")

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of each value variable."""
        points, _ = self._draw(ROUNDS)
        return {name: value.shape[1:] for name, value in zip(self._names, points, strict=True)}

    def find(
        self, seed: int, chains: int, log_density: Callable[[Sequence[np.ndarray]], np.ndarray]
    ) -> tuple[list[np.ndarray], float]:
        """Return draws from the prior whose likelihood is positive, and the share that they are of all draws.

        Draws are made until there are as many as chains. With m of n draws, where the last one is kept, the share is
        (m - 1) / (n - 1), which has no bias. A draw that the transform of a variable does not allow, such as one
        that is not ordered, has a density of zero in PyMC, and counts as one whose likelihood is zero; so does one with
        a parameter that is not allowed.
        """
        reseed_rngs(self._rngs, seed)
        parts: list[list[np.ndarray]] = []
        kept = total = undefined = 0
        for _ in range(ROUNDS):
            drawn, allowed = self._draw(chains)
            density = np.where(allowed, log_density(drawn), -np.inf)
            good = np.flatnonzero(np.isfinite(density))[: chains - kept]
            parts.append([values[good] for values in drawn])
            kept += len(good)
            looked_at = int(good[-1]) + 1 if kept == chains else chains
            total += looked_at
            undefined += int(np.sum(np.isnan(density[:looked_at]) | np.isposinf(density[:looked_at])))
            if kept == chains:
                break
        if undefined:
            warn(
                f"the log density is NaN or infinite at {undefined:,} of {total:,} draws from the prior, which count "
                "as draws whose likelihood is zero"
            )
        if not kept:
            point = {name: values[-1] for name, values in zip(self._names, drawn, strict=True)}
            raise SamplingError(f"the likelihood is zero at all of {total:,} draws from the prior; the last: {point}")
        log_share = float(np.log((kept - 1) / (total - 1) if kept == chains else kept / total))
        if kept < chains:
            warn(
                f"the likelihood is zero at all but {kept:,} of {total:,} draws from the prior, so that {chains:,} "
                f"particles begin at {kept:,} points: the evidence is not precise"
            )
        points = [np.concatenate(values)[np.arange(chains) % kept] for values in zip(*parts, strict=True)]
        log_density(points)
        return points, log_share

    def _draw(self, number: int) -> tuple[list[np.ndarray], np.ndarray]:
        """Return draws in the unbounded space, and which of them exist and are allowed by their transforms."""
        drawn, exists = [], np.zeros(number, bool)
        for i in range(number):
            try:
                drawn.append(self._function())
                exists[i] = True
            except NotImplementedError as error:  # an ICAR, or a CustomDist without random=
                raise ValueError(
                    f"sampler 'smc' begins with draws from the prior, which cannot be drawn: {error}"
                ) from error
            except ValueError as error:  # a parameter that is not allowed, such as a negative scale
                failed = error
        if not drawn:
            raise failed
        # Values that do not exist are drawn in some other way; they do not count.
        index = np.where(exists, np.cumsum(exists) - 1, 0)
        stacked = [np.stack(values)[index] for values in zip(*drawn, strict=True)]
        found = [np.asarray(value) for value in self._transform(*stacked)]
        points, rounded = found[::2], found[1::2]
        axes = [tuple(range(1, point.ndim)) for point in points]
        allowed = [np.isfinite(point).all(axis=axis) for point, axis in zip(points, axes, strict=True)]
        self.is_rounded |= any(bool(flags.any()) for flags in rounded)
        return points, np.logical_and.reduce([exists, *allowed])
