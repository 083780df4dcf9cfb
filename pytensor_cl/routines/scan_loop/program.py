"""Description of a loop over time: the arrays it reads, the code of a step, the arrays it writes."""

from collections.abc import Sequence
from functools import cached_property
from itertools import product
from typing import NamedTuple, Protocol

import numpy as np

SEQUENCE = "sequence"
"""Read in each step: row t."""
CONSTANT = "constant"
"""Read before the loop."""
STATE = "state"
"""Its first rows are the initial values; step t reads earlier rows and writes the next one (mit-sot, sit-sot)."""
SUM = "sum"
"""Step t reads and writes rows from t on (mit-mot): gradients are added up in it."""
LAST = "last"
"""A state of which only the last value is kept (untraced sit-sot)."""
OUTPUT = "output"
"""Written in each step (nit-sot)."""


class Dim(NamedTuple):
    """A dimension of an array.

    `kind`: ``"time"``; ``"axis"``: work-items and lanes share it out; ``"core"``: each work-item has all of it;
    ``"one"``: a batch dimension of length one; `number`: number of the axis, or the length of a core or a batch
    dimension.
    """

    kind: str
    number: int = 0


TIME = Dim("time")


class LoopArray(NamedTuple):
    """An array that a loop reads, writes, or both."""

    role: str  # role of the array: one of the constants above
    dtype: str
    dims: tuple[Dim, ...] = ()  # dimensions of the input array; none for OUTPUT, whose input is the number of rows
    out_dims: tuple[Dim, ...] = ()  # dimensions of the output array, with the input's core dimensions
    reads: tuple[int, ...] = ()  # numbers k of the step's inputs ``x<k>_<element>`` that it provides
    # Distance of each read from row t: of a STATE, steps since it was computed; of a SUM, rows after row t.
    taps: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()  # numbers k of the step's outputs ``y<k>_<element>`` that it takes
    write_taps: tuple[int, ...] = ()  # offset of each write after row t, for role SUM, in rows
    # Whether the input of a STATE has the initial values only, and another input states the number of rows.
    has_rows: bool = False
    kept: int | None = None  # the most rows, counted from the last, that the output has; None: all

    @property
    def core(self) -> tuple[int, ...]:
        """Lengths of the core dimensions."""
        return tuple(d.number for d in self.dims or self.out_dims if d.kind == "core")

    @property
    def elements(self) -> list[tuple[int, ...]]:
        """Indices of the elements along the core dimensions, in C order."""
        return list(product(*map(range, self.core)))

    @property
    def window(self) -> int:
        """Number of rows that a work-item holds at a time."""
        if self.role == STATE:
            return max(self.taps)
        return 1 + max((*self.taps, *self.write_taps)) if self.role == SUM else 1

    @property
    def is_read(self) -> bool:
        """Whether there is an input array."""
        return self.role != OUTPUT

    @property
    def is_written(self) -> bool:
        """Whether there is an output array."""
        return self.role not in (SEQUENCE, CONSTANT)


class Carried(NamedTuple):
    """A number that is kept from step to step: ``h<array>_<row>_<element>`` in the kernel."""

    array: int
    row: int
    element: int


class LinearStep(NamedTuple):
    """One step as an affine map of the numbers that it carries: ``new = coefficients * old + base``.

    The states are `carried`, by number. Some states are only added up: no other state depends on them.
    """

    dtype: str  # dtype of all states
    carried: tuple[Carried, ...]
    columns: tuple[int, ...]  # states that are not only added up
    bases: tuple[str, ...]  # C expression for each state; empty for zero
    # For each state, pairs of a state that it depends on and the C expression of the coefficient; empty for one.
    terms: tuple[tuple[tuple[int, str], ...], ...]
    roots: tuple[int, ...]  # states of which the square is mapped; the new state is the square root of the new square
    # C statements for the expressions, from ``x<k>_<e>`` and the new rows ``l<array>_<e>`` of SUM arrays.
    statements: str
    preambles: tuple[str, ...]  # helper functions that the statements call

    @property
    def negligible(self) -> float:
        """Elements of maps below this are set to zero, and states may differ by as much."""
        return 2.0 ** {"float32": -120, "float64": -1000}[self.dtype]

    @property
    def tolerance(self) -> float:
        """Relative difference of a state behind a chunk from that before the next one, at most."""
        return float(np.finfo(self.dtype).eps ** 0.5)

    @property
    def rounding(self) -> float:
        """The same, relative to the state of the step before."""
        return float(1024 * np.finfo(self.dtype).eps)

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        """Places (state, column) that are not zero in the product of many steps, without those that are always one."""
        reach = [{k for k, _ in terms} | {i} for i, terms in enumerate(self.terms)]
        for _ in reach:
            reach = [set().union(*(reach[k] for k in known)) for known in reach]
        return tuple((i, j) for i, known in enumerate(reach) for j in self.columns if j in known)


class StepFunction(Protocol):
    """C code of one step.

    `preambles`: helper functions that the statements call, for any number of lanes; `itemsize`: bytes of the widest
    type that takes part.
    """

    @property
    def preambles(self) -> tuple[str, ...]: ...
    @property
    def itemsize(self) -> int: ...

    def statements(self, lanes: int) -> str:
        """Return statements that assign ``y<k>_<e>`` (declared by the kernel) from ``x<k>_<e>``."""

    def linear(self, arrays: Sequence[LoopArray], lanes: int) -> LinearStep | str:
        """Return the step as an affine map of the states of these arrays, or the reason why it is none."""


class LoopProgram:
    """A loop over time.

    `arrays`: arrays in the order of the inputs, which follow the number of steps. Numbers of rows
    (`LoopArray.has_rows`) follow all arrays, in the same order; `outputs`: numbers of the arrays that are outputs, in
    their order; `axes`: number of axes; `condition`: number k of the step's output ``y<k>_0`` that ends the loop,
    behind this step, if it is not zero; None if all steps run. It is the same for all work-items and lanes. There are
    no SUM arrays then.
    """

    def __init__(
        self,
        arrays: Sequence[LoopArray],
        outputs: Sequence[int],
        axes: int,
        step: StepFunction,
        condition: int | None = None,
        condition_dtype: str = "bool",
    ) -> None:
        self.arrays = tuple(arrays)
        self.outputs = tuple(outputs)
        self.axes = axes
        self.step = step
        self.condition, self.condition_dtype = condition, condition_dtype

    @property
    def sized(self) -> frozenset[int]:
        """Axes of which an input has the length."""
        return frozenset(d.number for a in self.arrays for d in a.dims if d.kind == "axis")

    def changed(self, arrays: Sequence[LoopArray]) -> "LoopProgram":
        """Return the same loop with other arrays."""
        return LoopProgram(arrays, self.outputs, self.axes, self.step, self.condition, self.condition_dtype)

    @cached_property
    def held(self) -> int:
        """Number of values that are kept from step to step, or for all steps."""
        return sum(a.window * len(a.elements) for a in self.arrays if a.role not in (SEQUENCE, OUTPUT))
