"""Functions that a kernel applies to its results before it stores them."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.template import render
from pytensor_cl.routines.elemwise.routine import ElementFunction, Elemwise
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout

NO_EPILOGUE: dict[str, Any] = {"starts": Struct(), "inputs": (), "repeated": (), "outputs": (), "statements": ""}
"""The arguments of a kernel that stores what it computed; see `Epilogue.arguments`."""


class Epilogue:
    """An element function of the product of a kernel and of extra arrays; see ``kernels/common/epilogue.mako``.

    `broadcast`: whether the length of each dimension of each input is known to be 1, so that it may be repeated. The
    results have the shape of the product; `unfused`: the function as a kernel of its own, for products to which it
    cannot be applied before they are stored.
    """

    def __init__(
        self,
        context: Context,
        function: ElementFunction,
        broadcast: Sequence[Sequence[bool | None]],
        schedule: str | None = None,
    ) -> None:
        self.function = function
        self.broadcast = tuple(map(tuple, broadcast))
        ndim, by_value = len(broadcast[0]), (False,) * len(broadcast)
        self.unfused = Elemwise(context, function, broadcast, ndim, by_value, schedule)
        self.output_dtypes = self.unfused.output_dtypes
        self._repeated = tuple(bool(flags[-1]) for flags in broadcast[1:])
        counts = max(1, len(self._repeated)), len(self.output_dtypes)
        self._starts = Struct(("long", f"in[{counts[0]}] out[{counts[1]}]"), name="starts")
        self._unused = (0,) * (counts[0] - len(self._repeated))

    @cached_property
    def sum_output(self) -> int | None:
        """Number of an output in which sums of the product's dtype can be kept until they are complete."""
        dtype = self.function.input_dtypes[0]
        return self.output_dtypes.index(dtype) if dtype in self.output_dtypes else None

    def arguments(self, lanes: int) -> dict[str, object]:
        """Return the arguments of the template, for a kernel that stores `lanes` elements at a time."""
        return {
            "starts": self._starts,
            "inputs": tuple(self.function.input_dtypes[1:]),
            "repeated": self._repeated,
            "outputs": self.output_dtypes,
            "statements": self.function.statements(lanes),
        }

    def preambles(self, lanes: int) -> tuple[str, ...]:
        """Return OpenCL C that must precede a kernel with the epilogue."""
        used = dict.fromkeys((*self.function.input_dtypes, *self.output_dtypes)) if lanes > 1 else ()
        return (*(render("common/vector_access", dtype=dtype, lanes=lanes) for dtype in used), *self.function.preambles)

    def layout(self, product: Layout, extra: Sequence[Layout]) -> tuple[Layout, ...]:
        """Return the layouts of the results.

        Raises `ValueError`: the shapes do not fit together.
        """
        return self.unfused.layout(product, *extra)

    def bind(self, outputs: Sequence[GpuArray], extra: Sequence[GpuArray]) -> tuple[Any, ...]:
        """Return the arguments of the kernel: offsets, then buffers."""
        starts = (*(x.layout.offset for x in extra), *self._unused, *(x.layout.offset for x in outputs))
        return (self._starts.pack_values(*starts), *(x.buffer for x in (*extra, *outputs)))

    def sum_in(self, outputs: Sequence[GpuArray]) -> tuple[int, Any]:
        """Return offset and buffer of the output that holds incomplete sums; nothing, if there is none."""
        if self.sum_output is None:
            return 0, None
        found = outputs[self.sum_output]
        return found.layout.offset, found.buffer
