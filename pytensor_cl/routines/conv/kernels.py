"""The kernels of the methods of convolutions, as rendered text."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.routines.base.blas import arithmetic_types
from pytensor_cl.routines.conv.epilogue import ConvEpilogue
from pytensor_cl.routines.conv.im2col import Im2colSchedule
from pytensor_cl.routines.conv.limits import COL2IM_MAX_TAPS, IM2COL_EDGE_COLUMNS
from pytensor_cl.routines.conv.method import Method
from pytensor_cl.routines.conv.plan import plan_preamble
from pytensor_cl.routines.conv.schedule_simt import Tile


class ConvKernels:
    """Renders the kernels of one dtype.

    `lanes`: elements of a vector of schedule cpu; `im2col`: the schedule of kernels that read filters in place;
    `epilogue`: function of each element before it is stored.
    """

    def __init__(self, dtype: np.dtype, lanes: int, im2col: Im2colSchedule, epilogue: ConvEpilogue | None) -> None:
        self.dtype, self.lanes, self.im2col, self.epilogue = dtype, lanes, im2col, epilogue
        self._sources: dict[str, Callable[..., KernelSource]] = {
            "naive": self._naive,
            "dot": self._dot,
            "depthwise": partial(self._direct, "conv/depthwise"),
            "direct": partial(self._direct, "conv/direct"),
            "im2col": self._im2col_gemm,
            "implicit_gemm": self._implicit_gemm,
            "col2im": self._col2im,
            "grad_weights": self._grad_weights,
            "small_m": self._small_m,
            "simt": self._simt,
        }

    def source(self, method: Method) -> KernelSource:
        """Return the kernel of a method that has one of its own."""
        return self._sources[method.name](*method.parameters)

    def _epilogue_arguments(self, lanes: int) -> dict[str, object]:
        return self.epilogue.arguments(lanes) if self.epilogue is not None and self.epilogue.fits else {}

    @property
    def _epilogue_preambles(self) -> tuple[str, ...]:
        return () if self.epilogue is None else self.epilogue.preambles

    def _cpu_source(self, template: str, *functions: str, **extra: object) -> KernelSource:
        types = {"ctype": arithmetic_types(self.dtype)["ctype"]}
        vectors = render("conv/vector_types", **types, itemsize=self.dtype.itemsize, lanes=self.lanes)
        others = self._epilogue_preambles if "statements" in extra else ()
        preambles = (plan_preamble(), vectors, *functions, *others)
        return kernel_source(template, preambles=preambles, **types, lanes=self.lanes, **extra)

    def _naive(self) -> KernelSource:
        return kernel_source("conv/naive", preambles=(plan_preamble(),), **arithmetic_types(self.dtype))

    def _small_m(self, rows: int) -> KernelSource:
        types = arithmetic_types(self.dtype)
        return kernel_source("conv/simt_small_m", preambles=(plan_preamble(),), **types, rows=rows)

    def _direct(self, template: str, rows: int, vectors: int) -> KernelSource:
        return self._cpu_source(template, rows=rows, vectors=vectors)

    def _dot(self, count: int) -> KernelSource:
        return self._cpu_source("conv/dot", count=count)

    def _implicit_gemm(self, gather: str, rows: int, vectors: int) -> KernelSource:
        sizes = {"itemsize": self.dtype.itemsize, "mr": rows, "vectors": vectors}
        return self._cpu_source("conv/implicit_gemm", **sizes, gather=gather, **self._epilogue_arguments(self.lanes))

    @property
    def _tile(self) -> dict[str, Any]:
        return {"itemsize": self.dtype.itemsize, **self.im2col.tile()}

    def _im2col_gemm(self) -> KernelSource:
        final = self._epilogue_arguments(self.lanes)
        return self._cpu_source(
            "conv/im2col_gemm", *self.im2col.preambles(), **self._tile, edge=IM2COL_EDGE_COLUMNS, **final
        )

    def _col2im(self) -> KernelSource:
        sizes, final = {**self._tile, "most": COL2IM_MAX_TAPS}, self._epilogue_arguments(self.lanes)
        return self._cpu_source("conv/col2im", *self.im2col.preambles(), **sizes, **final)

    def _grad_weights(self) -> KernelSource:
        return self._cpu_source("conv/grad_weights", *self.im2col.preambles(), **self._tile)

    def _simt(self, tile: Tile) -> KernelSource:
        arguments = {**arithmetic_types(self.dtype), **self._epilogue_arguments(1), **dict(tile.parameters)}
        preambles = (plan_preamble(), *self._epilogue_preambles)
        return kernel_source(tile.template, preambles=preambles, **arguments)
