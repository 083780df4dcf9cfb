"""Quotients of full values by row values: a reciprocal for each row, and products for each element."""

from dataclasses import dataclass

import numpy as np

from pytensor_cl.codegen.template import render
from pytensor_cl.routines.grouped_rows.limits import MAX_DIVISORS
from pytensor_cl.routines.rowwise.program import Map, Reduce, RowFunction

QUOTIENT = "true_div"
"""Name of the step of a quotient."""


@dataclass(frozen=True)
class _Code:
    """An element function of values of one dtype."""

    dtype: str
    count: int
    operations: int
    preambles: tuple[str, ...] = ()

    @property
    def input_dtypes(self) -> tuple[str, ...]:
        return (self.dtype,) * self.count

    @property
    def output_dtypes(self) -> tuple[str, ...]:
        return (self.dtype,)

    @property
    def itemsize(self) -> int:
        return np.dtype(self.dtype).itemsize

    def statements(self, lanes: int) -> str:
        """Return the reciprocal of ``i0``, or ``i0 / i1`` where ``i2`` is that of ``i1``."""
        if self.count == 1:
            return "o0 = 1 / i0;"
        return render("grouped_rows/quotient", dtype=self.dtype, lanes=lanes)


def _divisor(function: RowFunction, step: Map | Reduce) -> int | None:
    """Return the row value by which a step divides a full value, both of the dtype of the result; None for others."""
    if not isinstance(step, Map) or step.name != QUOTIENT or len(step.inputs) != 2:
        return None
    kinds = tuple(function.kinds[v] for v in step.inputs)
    dtypes = {*step.function.input_dtypes, *step.function.output_dtypes}
    return step.inputs[1] if kinds == ("full", "row") and dtypes in ({"float32"}, {"float64"}) else None


def with_reciprocals(function: RowFunction) -> RowFunction:
    """Return a row function in which full values are multiplied by reciprocals of row values, and corrected.

    A division takes as long as ten to twenty products.
    """
    first = len(function.operands)
    divisors = {divisor for step in function.steps if (divisor := _divisor(function, step)) is not None}
    if not divisors or len(divisors) > MAX_DIVISORS:
        return function
    new = list(range(first))  # the number of each value in the new function
    reciprocals: dict[int, int] = {}
    steps: list[Map | Reduce] = []
    for step in function.steps:
        divisor = _divisor(function, step)
        if isinstance(step, Reduce):
            step = step._replace(source=new[step.source])
        elif divisor is None:
            step = step._replace(inputs=tuple(new[v] for v in step.inputs))
        else:
            dtype = step.function.output_dtypes[0]
            if divisor not in reciprocals:
                reciprocals[divisor] = first + len(steps)
                steps.append(Map(_Code(dtype, 1, 1), (new[divisor],), step.cost, "reciprocal"))
            inputs = new[step.inputs[0]], new[divisor], reciprocals[divisor]
            step = step._replace(function=_Code(dtype, 3, 6), inputs=inputs)
        new.append(first + len(steps))
        steps.append(step)
    return RowFunction(function.operands, tuple(steps), tuple(new[v] for v in function.outputs))
