"""Shapes of the arrays of a row function, and their layouts over the dimensions of a full value."""

from collections.abc import Sequence

from pytensor_cl.routines.reduction.routine import OPERATIONS
from pytensor_cl.routines.rowwise.program import Reduce, RowFunction
from pytensor_cl.runtime.layout import Layout

Shape = tuple[int, ...]


class RowLayouts:
    """Checks of the operands' shapes, and the shapes of the outputs.

    `function`: its operands of kind "value" are no arrays; `ndim`, `axes`: dimensions of a full value, and those along
    rows; `is_dropped`: for each operand and then each output, whether it is a row value that lacks the dimensions along
    rows; `broadcast`: for each operand and dimension, whether its length is known to be 1.
    """

    def __init__(
        self,
        function: RowFunction,
        ndim: int,
        axes: frozenset[int],
        is_dropped: Sequence[bool],
        broadcast: Sequence[Sequence[bool]],
    ) -> None:
        self._function = function
        self._ndim = ndim
        self._axes = axes
        operands = [k for k, operand in enumerate(function.operands) if operand.kind != "value"]
        self._count = len(operands)
        self._output_is_dropped = list(is_dropped[len(function.operands) :])
        self._is_dropped = [is_dropped[k] for k in operands] + self._output_is_dropped
        self._broadcast = [self._over_all(broadcast[k], is_dropped[k], fill=True) for k in operands]

    def _over_all[T](self, values: Sequence[T], is_dropped: bool, fill: T) -> tuple[T, ...]:
        """Return a value for each dimension, from those for the dimensions that an array has."""
        rest = iter(values)
        return tuple(fill if is_dropped and d in self._axes else next(rest) for d in range(self._ndim))

    def spread(self, layouts: Sequence[Layout]) -> list[Layout]:
        """Give the arrays all dimensions: the operands, or these and the outputs.

        Raises `ValueError`: an operand has another number of dimensions.
        """
        all_dims = []
        for layout, is_dropped in zip(layouts, self._is_dropped, strict=False):
            if is_dropped:
                layout = layout.dimshuffle(self._over_all(range(layout.ndim), is_dropped, fill="x"))
            all_dims.append(layout)
        shapes = [layout.shape for layout in all_dims[: self._count]]
        if any(len(shape) != self._ndim for shape in shapes):
            raise ValueError(f"rows of {self._ndim} dimensions, not of shapes {', '.join(map(str, shapes))}")
        return all_dims

    def full_shape(self, spread: Sequence[Layout]) -> Shape:
        """Return the common shape of the operands, which `spread` has returned.

        Raises `ValueError`: the shapes differ.
        """
        shapes = [layout.shape for layout in spread[: self._count]]
        full = tuple(
            next((s[d] for s, known in zip(shapes, self._broadcast, strict=True) if not known[d]), 1)
            for d in range(self._ndim)
        )
        for shape, known in zip(shapes, self._broadcast, strict=True):
            if any(n != (1 if one else m) for n, m, one in zip(shape, full, known, strict=True)):
                raise ValueError(f"Input dimension mismatch: the input shapes are {', '.join(map(str, shapes))}")
        return full

    def output_layouts(self, full: Shape) -> tuple[Layout, ...]:
        """Return the layouts of the outputs, C-contiguous.

        Raises `ValueError`: ``maximum`` or ``minimum`` of nothing is asked for.
        """
        if not all(full[d] for d in self._axes):
            self._check_identities()
        rows = tuple(1 if d in self._axes else n for d, n in enumerate(full))
        dropped = tuple(n for d, n in enumerate(full) if d not in self._axes)
        outputs = zip(self._function.outputs, self._output_is_dropped, strict=True)
        kinds = self._function.kinds
        shapes = (full if kinds[v] == "full" else dropped if drop else rows for v, drop in outputs)
        return tuple(map(Layout.contiguous, shapes))

    def _check_identities(self) -> None:
        for step in self._function.steps:
            if isinstance(step, Reduce) and not (step.initial or OPERATIONS[step.operation].has_identity):
                raise ValueError(f"zero-size array to reduction operation {step.operation} which has no identity")

    def contiguous(self, full: Shape) -> list[Layout]:
        """Return layouts of all arrays for a full value of this shape, C-contiguous and spread."""
        operands = [[1 if one else n for n, one in zip(full, known, strict=True)] for known in self._broadcast]
        kinds = self._function.kinds
        rows = [1 if d in self._axes else n for d, n in enumerate(full)]
        outputs = [rows if kinds[v] == "row" else full for v in self._function.outputs]
        return [Layout.contiguous(shape) for shape in (*operands, *outputs)]
