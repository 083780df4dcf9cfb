"""Routines that compute in another dtype than that of their array."""

from collections.abc import Sequence

import numpy as np

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.routines.base.routine import Routine
from pytensor_cl.routines.elemwise.routine import Copy
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.layout import Layout

__all__ = ["Computed"]


class Computed(Routine):
    """A routine of one array that is cast before, and whose result may be cast after.

    Parameters
    ----------
    routine
        What computes, with one output.
    before
        Casts the input.
    after
        Casts the output; None leaves it as it is.
    """

    def __init__(self, routine: Routine, before: Copy, after: Copy | None = None) -> None:
        super().__init__(routine.context, routine.schedule)
        self._routine = routine
        self._before = before
        self._after = after
        self.output_dtypes = routine.output_dtypes if after is None else after.output_dtypes

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernels of the routine and of the casts."""
        return tuple(s for r in (self._before, self._routine, self._after) if r is not None for s in r.sources())

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layout of the output, as the routine does."""
        return self._routine.layout(*inputs)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue the routine between the casts; the output may have any strides."""
        (cast,) = self._before(*inputs)
        if self._after is None:
            self._routine.launch(outputs, (cast,))
        else:
            self._after.launch(outputs, self._routine(cast))
