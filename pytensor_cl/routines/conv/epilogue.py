"""Functions that convolutions apply to each element before they store it."""

from collections.abc import Sequence
from typing import Any

from pytensor_cl.codegen.structs import Struct
from pytensor_cl.routines.elemwise.epilogue import Epilogue
from pytensor_cl.routines.elemwise.routine import contiguous
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout

_BATCH, _CHANNEL = 0, 1  # dimensions


def is_of_channels(known: Sequence[bool | None]) -> bool:
    """Return whether an array has one element for each channel: all other dimensions are known to be 1."""
    return all(one for d, one in enumerate(known) if d != _CHANNEL)


class ConvEpilogue:
    """An element function of a convolution's output and of extra arrays; see ``kernels/conv/epilogue.mako``.

    `whole`: the function; extra arrays have one element for each channel, or the shape of the output. Where dtypes
    differ, or there are several outputs, it is a kernel of its own; `unfused`: the function as a kernel of its own;
    `fits`: whether kernels can apply it; `product`: the same for matrix products over channels, in dimensions n,
    groups, m and positions.
    """

    def __init__(self, context: Context, whole: Epilogue, schedule: str | None = None) -> None:
        self.function = function = whole.function
        self.unfused = whole.unfused
        self.output_dtypes = whole.output_dtypes
        self.of_channels = tuple(map(is_of_channels, whole.broadcast[1:]))
        self.fits = len({*function.input_dtypes, *function.output_dtypes}) == len(function.output_dtypes) == 1
        known = [(each, False, False, each) for each in self.of_channels]
        self.product = Epilogue(context, function, ((False,) * 4, *known), schedule)
        count = max(1, len(known))
        self._struct = Struct(("long", f"at[{count}] step[{count}]"))

    def arguments(self, lanes: int) -> dict[str, object]:
        """Return the arguments of the template, for a kernel that stores `lanes` elements at a time."""
        return {"further": self.of_channels, "offsets": self._struct, "statements": self.function.statements(lanes)}

    @property
    def preambles(self) -> tuple[str, ...]:
        """OpenCL C that must precede a kernel with the epilogue."""
        return self.function.preambles

    def layout(self, output: Layout, extra: Sequence[Layout]) -> tuple[Layout, ...]:
        """Return the layout of the result.

        Raises `ValueError`: the shapes do not fit together.
        """
        return self.unfused.layout(output, *extra)

    def prepared(self, extra: Sequence[GpuArray]) -> tuple[GpuArray, ...]:
        """Return the extra arrays as kernels read them: those of the output's shape have its layout."""
        pairs = zip(extra, self.of_channels, strict=True)
        return tuple(x if each else contiguous(x) for x, each in pairs)

    def bind(self, y: GpuArray, extra: Sequence[GpuArray]) -> tuple[Any, ...]:
        """Return the arguments of the kernel for prepared arrays: where they start and their steps, then buffers."""
        pairs = list(zip(extra, self.of_channels, strict=True))
        starts = [x.layout.offset - (0 if each else y.layout.offset) for x, each in pairs]
        steps = [_step(x) if each else 0 for x, each in pairs]
        unused = [0] * (not pairs)
        return (self._struct.pack_values(*starts, *unused, *steps, *unused), *(x.buffer for x in extra))

    def views(self, y: Layout, extra: Sequence[GpuArray]) -> tuple[GpuArray, ...]:
        """Return prepared arrays in the dimensions of `product`; `y` is the output in them."""
        return tuple(
            x.with_layout(
                Layout(y.shape, (0, _step(x) * y.shape[2], _step(x), 0) if each else y.strides, x.layout.offset)
            )
            for x, each in zip(extra, self.of_channels, strict=True)
        )


def _step(x: GpuArray) -> int:
    """Return how far the elements of channels are apart; an array may have one for all."""
    return x.layout.strides[_CHANNEL] if x.shape[_CHANNEL] != 1 else 0
