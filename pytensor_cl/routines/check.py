"""Checks of conditions on the device."""

from typing import Any

import numpy as np

from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.routines.base.routine import Checked
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.error_flag import ErrorRecord
from pytensor_cl.runtime.program import Kernel


class Check(Checked):
    """Return an array, and report a 0-d condition that does not hold, without waiting for it."""

    def __init__(self, context: Context, exception: type[Exception], message: str) -> None:
        super().__init__(context)
        self._exception, self._message = exception, message
        self._kernel: Kernel | None = None

    def sources(self) -> tuple[KernelSource, ...]:
        return (kernel_source("check/condition", preambles=(render("runtime/error_flag"),)),)

    def __call__(self, *inputs: Any) -> tuple[GpuArray, ...]:
        array, condition = inputs
        if self._kernel is None:
            self._kernel = self.context.kernel(self.sources()[0])
        where = condition.buffer, np.int64(condition.layout.offset)
        self._kernel.launch(self.context.queue, (1,), (1,), *where, self.error_flag.buffer, self.number)
        return (array,)

    def error(self, finding: ErrorRecord) -> Exception:
        return self._exception(self._message)
