"""Draws of which each element has a stream of its own, by a generator that counts."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pytensor_cl.codegen.dtypes import ctype
from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.limits import SMALL_GROUP_ITEMS
from pytensor_cl.routines.random.distributions import COUNTER_VARIATES
from pytensor_cl.routines.random.draw import Draw, HostDraw
from pytensor_cl.routines.random.limits import DRAW_LANES, MIN_ITEM_DRAWS
from pytensor_cl.routines.random.stream import tables_on
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context


class CounterDraw(Draw):
    """Draw from a distribution with Philox4x32-10: other numbers than NumPy's, the same on every device.

    The key is taken from the Generator, which continues by two numbers of its bit generator for each call. All
    parameters may be arrays. What has no kernel, such as parameters that NumPy refuses, is left to NumPy.
    """

    def __init__(self, context: Context, name: str, dtype: str, host: HostDraw, schedule: str | None = None) -> None:
        super().__init__(context, name, dtype, host, schedule)
        self._counter_variate = COUNTER_VARIATES[self.distribution.variate]
        self._unread: GpuArray | None = (
            None  # where a kernel may note that numbers are improper that are known not to be
        )

    def sources(self) -> tuple[KernelSource, ...]:
        """No kernels: how many parameters are arrays is not known."""
        return ()

    def _each_source(self, varying: tuple[bool, ...]) -> KernelSource:
        distribution, variate = self.distribution, self._counter_variate
        fast = variate.fast if self.schedule == "cpu" else ""
        finish, functions = self._of_lanes(distribution.finish, DRAW_LANES if fast else 1)
        first, others = self._of_lanes(distribution.first, DRAW_LANES if fast else 1)
        conditions = [c for c in (distribution.proper, variate.proper) if c != "1"]
        return kernel_source(
            "random/each",
            preambles=(
                render("random/variates", generator="philox", needed=variate.needed),
                *dict.fromkeys((*functions, *others)),
            ),
            result=ctype(self.dtype),
            draw=variate.draw,
            kind=variate.kind,
            finish=f"(({finish}) != 0) & 1" if self.dtype == "bool" else finish,
            names=tuple(zip("abc", distribution.free, strict=False)),
            first=first,
            varying=varying,
            proper=" && ".join(f"({c})" for c in conditions),
            schedule=self.schedule,
            fast=fast,
        )

    def _are_proper(self, values: Sequence[Any]) -> bool:
        """Return whether all parameters are numbers, of which the kernel is known to draw."""
        distribution = self.distribution
        if distribution.made is not None or any(isinstance(value, GpuArray) for value in values):
            return False
        free = (values[k] for k in distribution.free)
        return self._counter_variate.is_proper(*values) and distribution.is_proper(*free)

    def _note(self, is_read: bool) -> GpuArray:
        """Return the array in which the kernel notes improper parameters."""
        if is_read:
            return self.context.from_host(np.zeros(1, "int32"))
        if self._unread is None:
            self._unread = self.context.from_host(np.zeros(1, "int32"))
        return self._unread

    def __call__(self, generator: np.random.Generator, size: Any, *parameters: Any) -> tuple[Any, GpuArray]:
        """Return the Generator after the draws, and the draws.

        Raises `ValueError`: NumPy refuses the parameters or the size.
        """
        generator = generator if self.host.copy is None else self.host.copy(generator)
        wanted = None if size is None else tuple(int(n) for n in size)
        shape = self._shape(wanted, parameters)
        drawn = None
        if shape is not None and 0 not in shape:
            before = generator.bit_generator.state
            drawn = self._by_key(generator, shape, parameters)
            if drawn is None:
                generator.bit_generator.state = before
        if drawn is None:
            drawn = self._by_host(generator, wanted, parameters)
        return generator, drawn

    def _by_key(
        self, generator: np.random.Generator, shape: tuple[int, ...], parameters: Sequence[Any]
    ) -> GpuArray | None:
        """Return the draws; None where a parameter is not for the kernel."""
        context = self.context
        low, high = (int(n) & 0xFFFFFFFF for n in generator.bit_generator.random_raw(2))
        arrays = [context.from_host(p) if isinstance(p, np.ndarray) and p.size > 1 else p for p in parameters]
        values = [self._free(p, shape) for p in arrays]
        varying = tuple(isinstance(value, GpuArray) for value in values)
        kernel = self._kernel(("each", varying), lambda: self._each_source(varying))
        is_read = not self._are_proper(values)
        out, bad = context.empty(shape, self.dtype), self._note(is_read)
        units, cpu = context.info.compute_units, self.schedule == "cpu"
        group = 1 if cpu else SMALL_GROUP_ITEMS
        items = (
            min(ceil_div(out.size, MIN_ITEM_DRAWS), 8 * units)
            if cpu
            else min(ceil_div(out.size, group), 64 * units) * group
        )
        kernel.launch(
            context.queue,
            (items,),
            (group,),
            *(np.uint32(low), np.uint32(high), np.int64(out.size)),
            *(tables_on(context).buffer, out.buffer, bad.buffer),
            *(value.buffer if isinstance(value, GpuArray) else np.float64(value) for value in values),
        )
        return None if is_read and context.download(bad)[0] else out
