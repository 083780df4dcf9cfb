"""A random graph and the values that it must give, call by call.

Every variable is computed when it is made, by the Python code of each Op, for each of several calls with arguments of
different sizes. The generator so knows shapes and values, and takes nothing whose result rounding could change by more
than rounding: comparisons, ``floor``, casts to integers and orders act on exact values only, and nothing overflows.
"""

from dataclasses import dataclass
from math import prod

import numpy as np
import pytensor
from hypothesis import strategies as st
from pytensor.compile.builders import OpFromGraph
from pytensor.conditional.op import IfElse
from pytensor.graph.basic import Constant
from pytensor.tensor.type import TensorType

from tests.differential.data import COMPLEX, DTYPES, FLOATS, UNSIGNED, draw_values, repeated_along

CALLS = 3
LARGEST = {"float16": 1e2, "float32": 1e4, "float64": 1e4, "complex64": 1e4, "complex128": 1e4}
RTOL = {"float16": 1e-2, "float32": 5e-4, "complex64": 5e-4}  # through half a dozen Ops; float64 has its own
RTOL64 = 1e-9
EXTENTS = (3, 1, 0, 2, 4, 5, 8, 17, 3, 130, 33, 257)
MOST_ELEMENTS = 20_000


class Rejected(Exception):
    """A draw that does not fit; another one follows."""


@dataclass(frozen=True)
class Raised:
    """An error that a call raises instead of giving a value."""

    error: Exception


@dataclass(frozen=True, eq=False)
class Term:
    """A variable and what is known of it.

    Attributes
    ----------
    variable
        Of the graph.
    values
        One for each call; a `Raised` where its Op fails.
    exact
        Whether no rounding went into it.
    wild
        Whether there may be extremes among the values.
    rtol
        How far rounding may take it, relative to `scales`.
    scales
        The largest number on the way to it, one for each call.
    """

    variable: object
    values: tuple
    exact: bool
    wild: bool
    rtol: float
    scales: tuple

    @property
    def dtype(self):
        return self.variable.type.dtype

    @property
    def kind(self):
        return np.dtype(self.dtype).kind

    @property
    def ndim(self):
        return self.variable.type.ndim

    @property
    def extents(self):
        """For each axis the extents in all calls."""
        return tuple(zip(*(value.shape for value in self.values), strict=True)) if self.ndim else ()

    @property
    def shortest(self):
        """The smallest extent of any call."""
        return min((min(extent) for extent in self.extents), default=1)

    @property
    def largest(self):
        return max((_largest(value) for value in self.values), default=0)

    @property
    def is_float(self):
        return self.kind == "f"

    @property
    def is_tame_real(self):
        return self.kind in "fiu" and not self.wild

    @property
    def fails(self):
        return any(isinstance(value, Raised) for value in self.values)


def _is_too_large(extents):
    return any(prod(shape) > MOST_ELEMENTS for shape in zip(*extents, strict=True))


def _largest(value):
    value = np.asarray(value)
    if value.dtype.kind not in "fciu" or not value.size:
        return 0
    with np.errstate(all="ignore"):
        sizes = np.abs(value.astype("complex128" if value.dtype.kind == "c" else "float64"))
    return float(sizes[np.isfinite(sizes)].max(initial=0))


class Graph:
    """A function's worth of random graph.

    Parameters
    ----------
    draw
        Hypothesis's, of a composite strategy.
    """

    def __init__(self, draw):
        self._draw = draw
        self.rng = np.random.default_rng(draw(st.integers(0, 2**16)))
        self.inputs = []
        self.shared = []
        self.pool = []
        self.results = []
        self.symbols = [self._symbol() for _ in range(3)]
        self._values = [{} for _ in range(CALLS)]

    # Draws: the first of each is the simplest

    def pick(self, options):
        return options[self._draw(st.integers(0, len(options) - 1))]

    def chance(self, probability):
        return self._draw(st.integers(0, 99)) >= 100 - 100 * probability

    def number(self, low, high):
        """An integer of a range with both ends."""
        return self._draw(st.integers(low, high))

    def order(self, count):
        return list(self._draw(st.permutations(range(count))))

    def _symbol(self):
        return tuple(self.pick(EXTENTS) for _ in range(CALLS))

    def any(self, fits=lambda term: True):
        found = [term for term in self.pool if not term.fails and fits(term)]
        if not found:
            raise Rejected
        return found[-1 - self.number(0, len(found) - 1)]

    def some(self, fits, dtypes=DTYPES, ndim=None):
        """A variable that fits, or a new input of one of the dtypes."""
        try:
            return self.any(fits)
        except Rejected:
            term = self.input(self.extents(ndim), self.pick(dtypes), wild=False)
            if not fits(term):
                raise
            return term

    # Inputs

    def extents(self, ndim=None):
        """Extents of an array: those of the graph's few names for most, so that arrays fit together."""
        count = self.pick((2, 1, 3, 2, 0, 4)) if ndim is None else ndim
        few = (self.pick((1, 2, 3)),) * CALLS
        found = [self.pick(self.symbols) if self.chance(0.8) else few for _ in range(count)]
        while _is_too_large(found):
            found[found.index(max(found, key=max))] = few
        return tuple(found)

    def _is_known(self, extent):
        return len(set(extent)) == 1 and (extent[0] == 1 or self.chance(0.2))

    def input(self, extents, dtype=None, wild=None, values=None):
        """A new argument, or shared variable, whose shapes are given as those of `Term.extents`."""
        dtype = dtype or self.pick(DTYPES)
        wild = (self.chance(0.1) and dtype != "bool") if wild is None else wild
        shapes = list(zip(*extents, strict=True)) if extents else [()] * CALLS
        if _is_too_large(extents):
            raise Rejected
        values = values or [draw_values(self.rng, dtype, shape, wild) for shape in shapes]
        values = [np.asarray(value, dtype) for value in values]
        if extents and self.chance(0.1):
            axis = self.number(0, len(extents) - 1)
            values = [repeated_along(value, axis) for value in values]
        kind = TensorType(dtype, tuple(e[0] if self._is_known(e) else None for e in extents))
        variable = self._leaf(kind, values)
        for known, value in zip(self._values, values, strict=True):
            known[variable] = value
        rtol = RTOL.get(dtype, RTOL64)
        term = Term(variable, tuple(values), True, wild, rtol, tuple(map(_largest, values)))
        self.pool.append(term)
        return term

    def _leaf(self, kind, values):
        if self.chance(0.15):
            variable = pytensor.shared(np.array(values[0]), shape=kind.shape)
            self.shared.append((variable, values))
        else:
            variable = kind()
            self.inputs.append((variable, values))
        return variable

    def partner(self, extents, fits=lambda term: True, dtypes=DTYPES):
        """A variable that broadcasts with an array of some extents; made if there is none."""

        def broadcasts(term):
            pairs = zip(term.extents[::-1], term.variable.type.shape[::-1], extents[::-1], strict=False)
            return term.ndim <= len(extents) and all(e == o or s == 1 for e, s, o in pairs) and fits(term)

        if self.chance(0.6):
            try:
                return self.any(broadcasts)
            except Rejected:
                pass
        kept = extents[self.number(0, len(extents)) :]
        return self.input(tuple((1,) * CALLS if self.chance(0.25) else e for e in kept), self.pick(dtypes), wild=False)

    def index(self, values):
        """A 0-d integer that is an argument of the function."""
        return self.input((), "int64", False, [np.asarray(v) for v in values]).variable

    # Values

    def peek(self, variable):
        """The values of a variable that is not kept."""
        values = [compute(variable, dict(known)) for known in self._values]
        if any(isinstance(value, Raised) for value in values):
            raise Rejected
        return [np.asarray(value) for value in values]

    def _evaluate(self, variable, plain):
        values = tuple(compute(variable if plain is None else plain, known) for known in self._values)
        values = tuple(v if isinstance(v, Raised) else np.asarray(v) for v in values)
        if all(isinstance(v, Raised) for v in values):
            raise Rejected
        for known, value in zip(self._values, values, strict=True):
            known[variable] = value
        return values

    def add(self, variable, exact, plain=None):
        """Compute a variable for each call, and keep it, unless its values would tell nothing.

        Its Ops may have no Python code of their own: `plain` then is a variable with the same values.
        """
        values = self._evaluate(variable, plain)
        before = [term for term in self.pool if term.variable in _ancestors(variable)]
        wild = any(term.wild for term in before)
        self._check(variable, values, wild)
        rtol = max([RTOL.get(variable.type.dtype, RTOL64), *(term.rtol for term in before)])
        scales = tuple(
            max([0 if isinstance(value, Raised) else _largest(value), *(term.scales[call] for term in before)])
            for call, value in enumerate(values)
        )
        term = Term(variable, values, exact, wild, rtol, scales)
        self.pool.append(term)
        self.results.append(term)
        return term

    def _check(self, variable, values, wild):
        dtype = variable.type.dtype
        if dtype not in DTYPES or variable.type.ndim > 5:
            raise Rejected
        for value in values:
            if isinstance(value, Raised):
                continue
            if value.dtype != dtype or value.ndim != variable.type.ndim:
                raise Rejected  # some of PyTensor's Ops do not keep their promise
            if value.size > MOST_ELEMENTS or (dtype in LARGEST and _largest(value) > LARGEST[dtype]):
                raise Rejected
            if dtype in (*FLOATS, *COMPLEX) and not wild and not np.isfinite(value).all():
                raise Rejected
            if dtype not in UNSIGNED and np.dtype(dtype).kind == "i" and not wild and np.iinfo(dtype).min in value:
                raise Rejected  # it has no negative, and PyTensor turns -max(-x) into min(x)

    def step(self, emit):
        """Apply one step; return whether it fitted. PyTensor itself refuses some graphs when they are made."""
        try:
            for found in emit(self):
                self.add(*found)
        except (Rejected, TypeError, ValueError, IndexError, NotImplementedError):
            return False
        return True


def _ancestors(variable):
    found, stack = set(), [variable]
    while stack:
        v = stack.pop()
        if v not in found:
            found.add(v)
            stack.extend(v.owner.inputs if v.owner else ())
    return found


def compute(variable, known):
    """Compute a variable by the Ops' Python code, and all before it that is not known yet."""
    if isinstance(variable, Constant):
        return variable.data
    if variable not in known:
        node = variable.owner
        values = [compute(v, known) for v in node.inputs]
        raised = next((v for v in values if isinstance(v, Raised)), None)
        results = _perform(node, values) if raised is None else [raised] * len(node.outputs)
        known.update(zip(node.outputs, results, strict=True))
    return known[variable]


def _perform(node, values):
    """The Python implementation of one Op, on arrays that nothing changes afterwards."""
    if isinstance(node.op, OpFromGraph):
        inner = dict(zip(node.op.inner_inputs, values, strict=True))
        return [compute(v, inner) for v in node.op.inner_outputs]
    if isinstance(node.op, IfElse):
        count = node.op.n_outs
        return values[1 : 1 + count] if values[0] else values[1 + count :]
    storage = [[None] for _ in node.outputs]
    try:
        node.op.prepare_node(node, None, None, "py")
        with np.errstate(all="ignore"):
            node.op.perform(node, values, storage)
    except Exception as error:  # whatever it is, the device is to raise the same
        return [Raised(error)] * len(node.outputs)
    return [np.array(r) if isinstance(r, np.ndarray) else r for (r,) in storage]
