"""RandomVariable -> its device Op, where the numbers are NumPy's."""

from collections.abc import Sequence

import numpy as np
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter
from pytensor.tensor.random.basic import (
    BetaBinomialRV,
    ChoiceWithoutReplacement,
    MultinomialRV,
    PermutationRV,
)
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type_other import NoneTypeT

from pytensor_cl.ops.random import (
    MIN_ELEMENTS,
    GpuRandomVariable,
    distribution_name,
    has_few_trials,
    is_one_number,
    values_of,
)
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.routines.random.dirichlet import LEAST_SHAPE
from pytensor_cl.routines.random.distributions import DISTRIBUTIONS, FEW_TRIALS, is_hypergeometric
from pytensor_cl.runtime.device import DeviceInfo

__all__ = ["draw_in_place"]

ARRAYS = "how many raw numbers a draw takes depends on its parameters, and these are arrays"
TRIALS = f"{ARRAYS}, unless the number of trials is a constant from 1 to {FEW_TRIALS}"
ITEMS = "NumPy takes the items one by one where they, or those that are left, are less than 10"
ONE_BY_ONE = "NumPy draws it one number after the other; with opencl__random=philox it is drawn on the device"
COMPOSED = BetaBinomialRV, ChoiceWithoutReplacement, MultinomialRV, PermutationRV
SMALL = "NumPy draws beta numbers where all shapes are below 0.1"
WITHOUT_COUNTS = "CategoricalRV", "DirichletRV"
"""Distributions that have no draw by Philox: the numbers are NumPy's."""
DOUBLE = "NumPy's random numbers are computed in double precision"


def _is_small(shapes: Variable) -> bool:
    """Whether shapes of a Dirichlet distribution are known to be such as NumPy draws beta numbers for."""
    return isinstance(shapes, Constant) and bool(np.max(shapes.data) < LEAST_SHAPE)


def _is_of_few_items(parameters: Sequence[Variable]) -> bool:
    """Whether a hypergeometric draw is known to be one that the kernel does not make."""
    values = [values_of(p) for p in parameters]
    numbers = [int(v.flat[0]) for v in values if v is not None and v.size]
    return len(numbers) == len(values) and not is_hypergeometric(*numbers)


def _refusal(name: str, parameters: Sequence[Variable], fixed: Sequence[int]) -> str:
    """Return why NumPy's numbers are drawn by NumPy for such parameters; empty if there is a kernel."""
    if name == "CategoricalRV":
        return ""
    if not all(is_one_number(parameters[k]) for k in fixed):
        if name == "BinomialRV":
            return "" if has_few_trials(parameters[0]) else TRIALS
        return ARRAYS
    if name == "DirichletRV" and _is_small(parameters[0]):
        return SMALL
    return ITEMS if name == "HyperGeometricRV" and _is_of_few_items(parameters) else ""


@register_lift(RandomVariable)
def lift_random_variable(
    op: RandomVariable, node: Apply, context_name: str, info: DeviceInfo
) -> GpuRandomVariable | NoKernel:
    """RandomVariable(rng, size, p) -> GpuRandomVariable(rng, size, p); the generator and the size stay on the host."""
    name = distribution_name(op)
    distribution = DISTRIBUTIONS.get(name)
    if isinstance(op, COMPOSED) and config.opencl__random != "philox":
        return NoKernel(ONE_BY_ONE)
    if distribution is None:
        return NoKernel(f"no OpenCL kernel for {type(op).__name__} yet")
    if not info.has_fp64:
        return NoKernel(f"{info.name} has no double precision: {DOUBLE}")  # float32 draws too
    _, size, *parameters = node.inputs
    counts = config.opencl__random == "philox" and name not in WITHOUT_COUNTS
    refusal = "" if counts else _refusal(name, parameters, distribution.fixed)
    if refusal:
        return NoKernel(refusal)
    of_arrays = not counts and name == "BinomialRV" and not all(map(is_one_number, parameters))
    # A parameter of one element that becomes a number takes its dimensions along: they count where no size is given.
    has_size = not isinstance(size.type, NoneTypeT)
    by_value = tuple(has_size or not p.type.ndim for p in parameters)
    min_elements = 0 if counts or config.opencl__placement == "device" else MIN_ELEMENTS
    return GpuRandomVariable(op, context_name, by_value, min_elements, counts=counts, of_arrays=of_arrays)


@node_rewriter([GpuRandomVariable], inplace=True)
def _change_generator(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """GpuRandomVariable(rng) -> the same, changing the generator in place, if no other node uses its old state."""
    if node.op.inplace:
        return None
    new = node.op.in_place().apply(node.inputs, [node.outputs[0].type, node.outputs[1].type])
    return list(new.outputs)


draw_in_place = dfs_rewriter(_change_generator, ignore_newtrees=True)
