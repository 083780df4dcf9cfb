"""Draws of random numbers."""

from collections.abc import Sequence
from functools import cached_property
from inspect import getattr_static
from typing import Any

import numpy as np
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.basic import (
    BetaBinomialRV,
    ChoiceWithoutReplacement,
    MultinomialRV,
    PermutationRV,
)
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.utils import custom_rng_deepcopy
from pytensor.tensor.type_other import NoneTypeT

from pytensor_cl.nn.dropout import MaskRV
from pytensor_cl.ops.base import ANY, DEVICE, HOST, GpuOp, Routine
from pytensor_cl.ops.names import Show
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.routines.random.counter import CounterDraw
from pytensor_cl.routines.random.dirichlet import LEAST_SHAPE, DirichletDraw
from pytensor_cl.routines.random.distributions import ARRAYS, DISTRIBUTIONS, FEW_TRIALS, is_hypergeometric
from pytensor_cl.routines.random.draw import Draw, HostDraw
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.type import GpuArrayType

MIN_ELEMENTS = 4096
"""Draws that NumPy makes faster than a device, whose kernels take 0.1 to 0.3 ms a call."""

RANDOM_VARIABLES = "pytensor.tensor.random.basic"
_OF_A_DRAW = "name", "perform", "rng_fn", "rng_fn_scipy", "signature"


def distribution_name(op: RandomVariable) -> str:
    """Return which distribution of `DISTRIBUTIONS` an Op draws from; empty if none.

    It is the name of PyTensor's class, or of the class of dropout's masks. A subclass counts if it draws as that class
    does. Classes of other packages with the same name do not count, as PyMC's ``WaldRV``, which adds a parameter.
    """
    op_type = type(op)
    if op_type is MaskRV:
        return MaskRV.__name__
    for kind in op_type.__mro__:
        if kind.__module__ == RANDOM_VARIABLES and kind.__name__ in DISTRIBUTIONS:
            same = (getattr_static(op_type, a, None) == getattr_static(kind, a, None) for a in _OF_A_DRAW)
            return kind.__name__ if all(same) else ""
    return ""


def _source(parameter: Variable) -> Variable:
    """Return the variable that a parameter repeats."""
    while parameter.owner is not None and isinstance(parameter.owner.op, Alloc | DimShuffle):
        parameter = parameter.owner.inputs[0]
    return parameter


def values_of(parameter: Variable) -> np.ndarray | None:
    """Return the values of a parameter that are known when a function is compiled; None if they are not."""
    source = _source(parameter)
    return np.asarray(source.data) if isinstance(source, Constant) else None


def is_one_number(parameter: Variable) -> bool:
    """Return whether all draws have the same value of a parameter: a constant, or one element that may be repeated."""
    values = values_of(parameter)
    if values is not None:
        return bool(values.size and (values == values.flat[0]).all())
    return all(n == 1 for n in _source(parameter).type.shape)


def has_few_trials(trials: Variable) -> bool:
    """Return whether NumPy takes one raw number for each binomial draw, whatever its probability is."""
    values = values_of(trials)
    return values is not None and bool(values.size and values.min() >= 1 and values.max() <= FEW_TRIALS)


class GpuRandomVariable(GpuOp):
    """Device counterpart of a `RandomVariable`: the same numbers, and the same state of the Generator afterwards.

    Parameters for which `by_value` is false are arrays of the device, unless the distribution needs a number. NumPy
    makes less than `min_elements` draws. The Generator is changed if `inplace`, else a copy of it. With `counts` the
    numbers are Philox's and not NumPy's. With `of_arrays`, parameters that must else be numbers may be arrays of the
    device.
    """

    __props__ = ("host", "context_name", "by_value", "min_elements", "inplace", "counts", "of_arrays")
    is_capturable = False

    def __init__(
        self,
        host: RandomVariable,
        context_name: str,
        by_value: tuple[bool, ...],
        min_elements: int = 0,
        inplace: bool = False,
        counts: bool = False,
        of_arrays: bool = False,
    ) -> None:
        super().__init__(host, context_name)
        self.by_value = by_value
        self.min_elements = min_elements
        self.inplace = inplace
        self.counts = counts
        self.of_arrays = of_arrays
        if inplace:
            self.destroy_map = {0: [0]}

    def named(self, show: Show) -> str:
        """Return the name; `show` joins the names of parts."""
        return f"GpuRandomVariable{{{self.host.name}{', inplace' if self.inplace else ''}}}"

    @cached_property
    def _fixed(self) -> tuple[int, ...]:
        return (ARRAYS if self.of_arrays else DISTRIBUTIONS)[distribution_name(self.host)].fixed

    def placement_of(self, index: int) -> str:
        """Return where input number `index` must be."""
        parameter = index - 2
        if parameter < 0 or (parameter in self._fixed and not self.counts):
            return HOST
        return ANY if self.by_value[parameter] else DEVICE

    def apply(self, inputs: Sequence[Variable], types: Sequence[Any]) -> Apply:
        """Make a node: the Generator stays on the host."""
        generator, drawn = types
        return Apply(self, list(inputs), [generator(), GpuArrayType(drawn.dtype, drawn.shape, self.context_name)()])

    def in_place(self) -> "GpuRandomVariable":
        """Return the Op that changes the Generator."""
        return GpuRandomVariable(
            self.host, self.context_name, self.by_value, self.min_elements, True, self.counts, self.of_arrays
        )

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernels of the distribution."""
        host: Any = self.host

        def draw(generator: np.random.Generator, *arguments: Any) -> Any:
            return host.rng_fn(generator, *arguments)

        copy = None if self.inplace else custom_rng_deepcopy
        name, dtype = distribution_name(host), node.outputs[1].type.dtype
        numpys = DirichletDraw if name == "DirichletRV" else Draw
        if self.of_arrays:
            return Draw(context, name, dtype, HostDraw(draw, copy, self.min_elements), of_arrays=True)
        kind = CounterDraw if self.counts else numpys
        return kind(context, name, dtype, HostDraw(draw, copy, self.min_elements))


PARAMETER_ARRAYS = "how many raw numbers a draw takes depends on its parameters, and these are arrays"
TRIALS_ARRAY = f"{PARAMETER_ARRAYS}, unless the number of trials is a constant from 1 to {FEW_TRIALS}"
FEW_ITEMS = "NumPy uses another algorithm for fewer than 10 items, drawn or left"
ONE_BY_ONE = "NumPy draws it one number after the other; with opencl__random=philox it is drawn on the device"
COMPOSED_DRAWS = BetaBinomialRV, ChoiceWithoutReplacement, MultinomialRV, PermutationRV
SMALL_SHAPES = "NumPy draws beta numbers where all shapes are below 0.1"
WITHOUT_COUNTS = "CategoricalRV", "DirichletRV"
"""Distributions that are not drawn by Philox: the numbers are NumPy's."""
NEEDS_DOUBLE = "NumPy's random numbers are computed in double precision"


def _is_small(shapes: Variable) -> bool:
    """Return whether NumPy is known to draw beta numbers for such shapes of a Dirichlet distribution."""
    return isinstance(shapes, Constant) and bool(np.max(shapes.data) < LEAST_SHAPE)


def _is_of_few_items(parameters: Sequence[Variable]) -> bool:
    """Return whether a hypergeometric draw is known to be one that the kernel does not make."""
    values = [values_of(p) for p in parameters]
    numbers = [int(v.flat[0]) for v in values if v is not None and v.size]
    return len(numbers) == len(values) and not is_hypergeometric(*numbers)


def _refusal(name: str, parameters: Sequence[Variable], fixed: Sequence[int]) -> str:
    """Return why NumPy's numbers are drawn by NumPy for such parameters; empty if there is a kernel."""
    if name == "CategoricalRV":
        return ""
    if not all(is_one_number(parameters[k]) for k in fixed):
        if name == "BinomialRV":
            return "" if has_few_trials(parameters[0]) else TRIALS_ARRAY
        return PARAMETER_ARRAYS
    if name == "DirichletRV" and _is_small(parameters[0]):
        return SMALL_SHAPES
    return FEW_ITEMS if name == "HyperGeometricRV" and _is_of_few_items(parameters) else ""


@register_lift(RandomVariable, numba_safe=False)
def lift_random_variable(node: Apply, context_name: str, info: DeviceInfo) -> GpuRandomVariable | NoKernel:
    """RandomVariable(rng, size, p) -> GpuRandomVariable(rng, size, p); the generator and the size stay on the host."""
    op: Any = node.op
    name = distribution_name(op)
    distribution = DISTRIBUTIONS.get(name)
    if isinstance(op, COMPOSED_DRAWS) and config.opencl__random != "philox":
        return NoKernel(ONE_BY_ONE)
    if distribution is None:
        return NoKernel(f"no OpenCL kernel for {type(op).__name__} yet")
    if not info.has_fp64:
        return NoKernel(f"{info.name} has no double precision: {NEEDS_DOUBLE}")  # float32 draws too
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
