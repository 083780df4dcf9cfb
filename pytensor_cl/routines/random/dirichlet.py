"""Draws from a Dirichlet distribution whose shapes are all equal."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pytensor_cl.codegen.dtypes import ctype
from pytensor_cl.codegen.template import KernelSource, kernel_source
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.limits import SMALL_GROUP_ITEMS
from pytensor_cl.routines.random.draw import Draw, HostDraw, Request
from pytensor_cl.routines.random.limits import MIN_ITEM_DIRICHLET
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context

LEAST_SHAPE = 0.1
"""Below this largest shape NumPy draws beta numbers, which depend on the category."""


class DirichletDraw(Draw):
    """Draw vectors from a Dirichlet distribution: gamma numbers of the same shape, divided by their sum.

    NumPy makes a vector of gamma numbers one after the other, so equal shapes make them one stream. Unequal shapes, and
    those below `LEAST_SHAPE`, are left to NumPy on the host.
    """

    def __init__(self, context: Context, name: str, dtype: str, host: HostDraw, schedule: str | None = None) -> None:
        super().__init__(context, name, dtype, host, schedule)
        self._gamma = Draw(context, "GammaRV", "float64", host, self.schedule)

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernels of NumPy's default generator."""
        return *self._gamma.sources(), self._normalize_source()

    def _normalize_source(self) -> KernelSource:
        return kernel_source("random/normalize", result=ctype(self.dtype), schedule=self.schedule)

    def _shape(self, size: tuple[int, ...] | None, parameters: Sequence[Any]) -> tuple[int, ...] | None:
        shapes = np.shape(parameters[0])
        batch = super()._shape(size, [np.empty(shapes[:-1])])
        return None if batch is None else (*batch, shapes[-1])

    def _drawn(self, request: Request) -> GpuArray | None:
        (shape,) = self._fixed(request.parameters)
        if shape is None or not shape >= LEAST_SHAPE:
            return None
        numbers = self._gamma._drawn(request._replace(parameters=(shape, 1.0)))
        if numbers is None:
            return None
        length = request.shape[-1]
        rows = numbers.size // length
        kernel = self._kernel("normalize", self._normalize_source)
        out = self.context.empty(request.shape, self.dtype)
        units, cpu = self.context.info.compute_units, self.schedule == "cpu"
        group = 1 if cpu else SMALL_GROUP_ITEMS
        items = (
            min(ceil_div(out.size, MIN_ITEM_DIRICHLET), 8 * units)
            if cpu
            else min(ceil_div(rows, group), 64 * units) * group
        )
        arguments = np.int64(rows), np.int64(length), numbers.buffer, out.buffer
        kernel.launch(self.context.queue, (items,), (group,), *arguments)
        return out
