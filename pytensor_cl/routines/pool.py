"""Pooling in one to three dimensions, and its gradients."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.codegen.dtypes import literal
from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.template import KernelSource, kernel_source
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.limits import GROUP_ITEMS, GROUPS_PER_UNIT, ITEMS_PER_UNIT, STEPPED_INT_LIMIT
from pytensor_cl.routines.base.ndrange import Sizes, ndrange
from pytensor_cl.routines.base.routine import Plans, Routine
from pytensor_cl.routines.base.two_pass import KernelLaunch
from pytensor_cl.routines.elemwise.routine import Copy, contiguous
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel

LANES = 8  # windows that schedule cpu looks at side by side
MIN_ROWS_GRADIENT_ELEMENTS = 1 << 14  # elements of a gradient for which rows need not be kept
COMMON = ((2, 2), (3, 2), (3, 1))  # lengths and steps along the last dimension that have kernels of their own
ROWS = {
    "max_grad": "max_grad_rows",
    "sum_grad": "sum_grad_rows",
}  # variants that keep rows of windows
_PLACES = {"int": "int32", "long": "int64"}
_TEMPLATES = dict.fromkeys(("max_grad", "sum_grad"), "pool/grad") | dict.fromkeys(ROWS.values(), "pool/grad_rows")
DIVISORS = {"average_exc_pad": 0, "average_inc_pad": 1, "sum": 2}
"""Numbers of the divisors of a sum in kernels/pool/common.mako."""
_MASKS = {1: "char", 2: "short", 4: "int", 8: "long"}  # bytes of an element: type of a comparison's result


class Window(NamedTuple):
    """Sliding window along one dimension: its length, its step, padding before and after, and from tap to tap."""

    extent: int
    step: int
    pad_lo: int
    pad_hi: int
    dilation: int = 1

    @property
    def reach(self) -> int:
        """Elements from the first to the last of the window."""
        return (self.extent - 1) * self.dilation + 1

    def positions(self, length: int, ceil: bool) -> int:
        """Return how many windows there are; with `ceil` the last may reach out of the padding behind."""
        room = length + self.pad_lo + self.pad_hi - self.reach
        count = max(0, (ceil_div(room, self.step) if ceil else room // self.step) + 1) if length else 0
        # A window that begins in the padding behind the dimension has no element of it.
        return count - 1 if ceil and count and (count - 1) * self.step >= length + self.pad_lo else count

    def whole(self, length: int, count: int) -> tuple[int, int]:
        """Return the first and one past the last window without padding."""
        room = length + self.pad_lo - self.reach
        first = ceil_div(self.pad_lo, self.step)
        return first, max(first, min(count, room // self.step + 1))


class Bin(NamedTuple):
    """So many windows along one dimension: number i of m has elements floor(i n / m) to ceil((i + 1) n / m)."""

    number: int

    def positions(self, length: int, ceil: bool) -> int:
        """Return how many windows there are.

        Raises `ValueError`: there is nothing to pool.
        """
        if not length:
            raise ValueError("adaptive pooling of nothing: a pooled dimension has length 0")
        return self.number

    def window(self, length: int) -> Window:
        """Return the window if it is the same everywhere."""
        return Window(length // self.number, length // self.number, 0, 0)


class _Shape(NamedTuple):
    """Planes of three pooled dimensions, of windows along each and their number.

    `spacing`: where the elements of windows are; see kernels/pool/common.mako.
    """

    planes: int
    lengths: tuple[int, ...]
    counts: tuple[int, ...]
    windows: tuple[Window, ...]
    spacing: str

    @property
    def plane(self) -> int:
        """Number of elements of a plane that is pooled."""
        return prod(self.lengths)

    @property
    def largest(self) -> int:
        """Number of elements, or of windows if they are more."""
        return self.planes * max(self.plane, prod(self.counts))


class _Variant(NamedTuple):
    """A kernel: its operation, its types of indices and of places in a plane, and the spacing of windows' elements."""

    kind: str
    indices: str
    place: str = "int"
    spacing: str = ""

    @property
    def is_gradient(self) -> bool:
        """Whether the output has the shape of the pooled array."""
        return self.kind in _TEMPLATES


@cache
def _geometry_struct(index: str) -> Struct:
    """Return the struct that kernels take, with this type of indices; see kernels/pool/common.mako."""
    return Struct(
        (index, "planes divisor inner_first inner_last"),
        (index, "n[3] count[3] k[3] step[3] pad_lo[3] pad_hi[3] dilation[3]"),
    )


class _Pooling(Routine):
    """Base class of pooling and its gradients.

    The last dimensions of an array are pooled; all in front of them are alike.

    `windows`: one for each dimension that is pooled: 1 to 3, all of one class; `ceil`: whether the last window along a
    dimension may reach out of the padding, if it begins before it; `mode`: a sum, or an average in which padding counts
    as elements or does not; `other`: dtype of the second input, where there is one, and of the output; None: the same.

    Raises `ValueError`: there are too many windows, or one is invalid.
    """

    kind = ""
    place = "int"
    """Type of places in a plane that a kernel writes or reads; the one of large planes is wider."""

    def __init__(
        self,
        context: Context,
        dtype: str,
        windows: Sequence[Window] | Sequence[Bin],
        ceil: bool = False,
        *,
        mode: str = "average_inc_pad",
        other: str | None = None,
        schedule: str | None = None,
    ) -> None:
        super().__init__(context, schedule)
        sliding = [w for w in windows if isinstance(w, Window)]
        if not 1 <= len(windows) <= 3 or any(min(w.extent, w.step, w.dilation) < 1 for w in sliding):
            raise ValueError(f"pooling takes 1 to 3 windows of positive length, stride and dilation, not {windows}")
        if any(not 0 <= pad < w.reach for w in sliding for pad in (w.pad_lo, w.pad_hi)):
            raise ValueError(f"padding must be less than the window: {windows}")
        if len(sliding) not in (0, len(windows)) or any(w.number < 1 for w in windows if isinstance(w, Bin)):
            raise ValueError(f"bins are of positive numbers, and do not go together with windows: {windows}")
        self.windows: tuple[Window | Bin, ...] = tuple(windows)
        self.ceil = ceil
        self.divisor = DIVISORS[mode]
        self.dtype = context.check_dtype(dtype)
        self.other = context.check_dtype(other or dtype)
        self.output_dtypes = (self.other.name,)
        self._kernels: dict[_Variant, Kernel] = {}
        self._plans: Plans[KernelLaunch] = Plans()

    # Shapes

    @property
    def ndim(self) -> int:
        """Number of dimensions that are pooled."""
        return len(self.windows)

    def pooled(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of what comes of pooling an array.

        Raises `ValueError`: it has fewer dimensions.
        """
        lead = len(shape) - self.ndim
        if lead < 0:
            raise ValueError(f"pooling of {self.ndim} dimensions of an array of shape {tuple(shape)}")
        dims = zip(self.windows, shape[lead:], strict=True)
        return (*shape[:lead], *(w.positions(n, self.ceil) for w, n in dims))

    def _normal(self, shape: Sequence[int]) -> _Shape:
        lead, missing = len(shape) - self.ndim, 3 - self.ndim
        lengths = (1,) * missing + tuple(shape[lead:])
        counts = (1,) * missing + self.pooled(shape)[lead:]
        pairs = zip(self.windows, shape[lead:], strict=True)
        windows = tuple(w.window(n) if isinstance(w, Bin) else w for w, n in pairs)
        has_bins = any(isinstance(w, Bin) and n % w.number for w, n in zip(self.windows, shape[lead:], strict=True))
        spacing = "bins" if has_bins else "dilated" if self.is_dilated else ""
        return _Shape(prod(shape[:lead]), lengths, counts, (Window(1, 1, 0, 0),) * missing + windows, spacing)

    @property
    def is_dilated(self) -> bool:
        """Whether elements of a window are not neighbours."""
        return any(isinstance(w, Window) and w.dilation > 1 for w in self.windows)

    @property
    def inner(self) -> tuple[int, int] | None:
        """Length and step along the last dimension; None of bins and of windows that are dilated."""
        last = self.windows[-1]
        return (last.extent, last.step) if isinstance(last, Window) and not self.is_dilated else None

    # Kernels

    def _ordinary(self, kind: str) -> _Variant:
        return _Variant(kind, "long" if self.schedule == "cpu" else "int", self.place, "dilated" * self.is_dilated)

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel of ordinary arrays; the one of 64-bit indices is built when an array needs it."""
        return (self._source(self._ordinary(self.kind)),)

    def _source(self, variant: _Variant) -> KernelSource:
        dtype = "uint8" if self.dtype == "bool" else self.dtype.name
        least = np.iinfo(dtype).min if np.dtype(dtype).kind in "iu" else -np.inf
        template = "pool/simt" if self.schedule == "simt" else _TEMPLATES.get(variant.kind, "pool/cpu")
        compared = self.other if template == "pool/grad" else np.dtype(dtype)
        inner = None if variant.spacing else self.inner
        in_pairs = inner is not None and inner[0] > 1 and inner[1] == 2
        is_simt = self.schedule == "simt"
        extra: dict[str, Any] = {"in_pairs": in_pairs} if is_simt else {}
        return kernel_source(
            template,
            kind=variant.kind,
            index=variant.indices,
            place=variant.place,
            dtype=dtype,
            other=self.other.name,
            mask=_MASKS[compared.itemsize],
            lowest=literal(least, dtype),
            geometry=_geometry_struct(variant.indices),
            inner=inner if inner in COMMON else None,
            square=is_simt and inner in COMMON and self.ndim > 1 and self.windows[-2][:2] == inner,
            skipped=3 - self.ndim if is_simt else 0,
            spacing=variant.spacing,
            **extra,
        )

    def _kernel(self, variant: _Variant) -> Kernel:
        if variant not in self._kernels:
            self._kernels[variant] = self.context.kernel(self._source(variant))
        return self._kernels[variant]

    # Launches

    def _variant(self, kind: str, s: _Shape) -> _Variant:
        ordinary = self._ordinary(kind)._replace(spacing=s.spacing)
        if s.plane < STEPPED_INT_LIMIT and (self.schedule == "cpu" or s.largest < STEPPED_INT_LIMIT):
            return ordinary
        return ordinary._replace(indices="long", place="long")

    def _inner(self, s: _Shape, is_gradient: bool) -> tuple[int, int]:
        """Return the run of the last dimension that schedule cpu works at with vectors, or an empty one."""
        if s.spacing == "bins" or (s.spacing and is_gradient):
            return 0, 0
        window, length = s.windows[2], s.lengths[2]
        first, last = window.whole(length, s.counts[2])
        if s.plane >= STEPPED_INT_LIMIT or (not is_gradient and (window.extent, window.step) == (1, 2)):
            return 0, 0
        if not is_gradient:
            return (first, last) if last - first >= LANES else (0, 0)
        # Elements of as many whole steps: the windows that they are in begin there, or up to `reach` steps before.
        reach = ceil_div(window.extent, window.step) - 1
        room = (length + window.pad_lo) // window.step
        first, last = (n * window.step - window.pad_lo for n in (first + reach, min(last, room)))
        return (first, last) if last - first >= LANES * window.step else (0, 0)

    def _geometry(self, s: _Shape, variant: _Variant) -> bytes:
        columns = (s.lengths, s.counts, *zip(*s.windows, strict=True))
        inner = self._inner(s, variant.kind in ROWS)
        values = [s.planes, self.divisor, *inner, *(v for c in columns for v in c)]
        return _geometry_struct(variant.indices).pack_values(*values)

    def _launch(self, kind: str, shape: tuple[int, ...]) -> KernelLaunch:
        """Return the launch of a kernel for what is pooled of that shape."""
        return self._plans.lookup((kind, shape), partial(self._plan, kind, self._normal(shape)))

    def _plan(self, kind: str, s: _Shape) -> KernelLaunch:
        variant = self._variant(kind, s)
        units, lengths = self.context.info.compute_units, s.lengths if variant.is_gradient else s.counts
        kernel = self._kernel(variant)
        if self.schedule == "cpu":
            sizes: Sizes = (min(s.planes * prod(lengths[:2]), ITEMS_PER_UNIT * units),), (1,)
        else:
            sizes = ndrange(self.context, kernel, s.planes * prod(lengths), GROUP_ITEMS, GROUPS_PER_UNIT)
        return KernelLaunch(kernel, *sizes, self._geometry(s, variant))

    def _run(self, kind: str, shape: tuple[int, ...], *arrays: GpuArray) -> None:
        launch = self._launch(kind, shape)
        arguments: list[Any] = []
        for array in arrays:
            arguments += array.buffer, np.int64(array.layout.offset)
        launch.enqueue(self.context.queue, *arguments, launch.geometry)

    def _write(self, output: GpuArray, write: Callable[[GpuArray], None]) -> None:
        """Call `write` for a C-contiguous array, which the output is or gets."""
        if output.layout.is_contiguous:
            write(output)
            return
        draft = self.context.empty(output.shape, output.dtype)
        write(draft)
        Copy(self.context, self.output_dtypes[0], output.ndim, schedule=self.schedule).launch((output,), (draft,))

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[Any]) -> None:
        """Enqueue the kernels; the arrays may have any strides."""
        (output,) = outputs
        if output.layout.size:
            arrays = tuple(map(contiguous, inputs))
            self._write(output, partial(self._enqueue, arrays))

    def _enqueue(self, inputs: Sequence[GpuArray], output: GpuArray) -> None:
        """Enqueue the kernels for C-contiguous arrays."""
        self._run(self.kind, inputs[0].shape, *inputs, output)


class _Forward(_Pooling):
    """One element of the output for each window."""

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layout of the output.

        Raises `ValueError`: the shapes of the inputs differ.
        """
        x, *others = inputs
        for other in others:
            if other.shape != x.shape:
                raise ValueError(f"Shape mismatch: {other.shape} is not the shape {x.shape} that is pooled")
        return (Layout.contiguous(self.pooled(x.shape)),)


class MaxPool(_Forward):
    """The largest element of each window; NaN if there is one in it."""

    kind = "max"


class SumPool(_Forward):
    """The sum of each window, or its average."""

    kind = "sum"


class MaxPoolIndices(_Forward):
    """Place in its plane of the first largest element of each window, as int64; -1 if a window has no element."""

    kind = "argmax"
    place = "long"

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.output_dtypes = ("int64",)


class MaxPoolGather(_Forward):
    """Gather from v at the position of the first largest element of each window of x."""

    kind = "max_gather"


class _Gradient(_Pooling):
    """Base class of gradients: sums over all windows that an element is in.

    Schedule cpu keeps rows of windows (``kernels/pool/grad_rows.mako``) where that is faster.
    """

    element_kinds: tuple[str, ...] = ()
    """Kernels that compute a gradient element by element, in order."""

    @property
    def _may_keep_rows(self) -> bool:
        """Whether gradients are computed from rows of windows that schedule cpu keeps, but for rare shapes."""
        first = self.windows[0]
        overlap = self.ndim == 2 and isinstance(first, Window) and first.extent > first.step
        pays = self.ndim < 3 if self.kind == "max_grad" else overlap
        return self.schedule == "cpu" and pays and self.inner in COMMON

    def _keeps_rows(self, s: _Shape) -> bool:
        pays = self.kind == "max_grad" or s.planes * s.plane >= MIN_ROWS_GRADIENT_ELEMENTS
        return self._may_keep_rows and pays and s.plane < STEPPED_INT_LIMIT and s.counts[2] > 0

    def _run_rows(self, inputs: Sequence[GpuArray], output: GpuArray) -> None:
        """Compute a gradient from rows of windows."""
        s = self._normal(output.shape)
        launch = self._launch(ROWS[self.kind], output.shape)
        rows, last = ceil_div(s.windows[1].extent, s.windows[1].step), s.windows[2]
        kept = launch.global_size[0] * rows * ((s.lengths[2] + last.pad_lo) // last.step + 1 + 2 * LANES)
        workspace = [self.context.empty((kept,), self.other)]
        if self.kind == "max_grad":
            workspace.append(self.context.empty((kept,), "int32"))
        self._run(ROWS[self.kind], output.shape, *inputs, *workspace, output)

    def _gradient_layout(self, shape: tuple[int, ...], dy: Layout) -> tuple[Layout, ...]:
        """Return the layout of the gradient of an array of a shape; check that of its pooled array."""
        expected = self.pooled(shape)
        if expected != dy.shape:
            raise ValueError(f"Shape mismatch: the gradient of an output of shape {expected} has shape {dy.shape}")
        return (Layout.contiguous(shape),)

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernels of ordinary arrays."""
        kinds = (ROWS[self.kind],) if self._may_keep_rows else self.element_kinds
        return tuple(self._source(self._ordinary(kind)) for kind in kinds)

    def _enqueue(self, inputs: Sequence[GpuArray], output: GpuArray) -> None:
        if self._keeps_rows(self._normal(output.shape)):
            self._run_rows(inputs, output)
        else:
            self._run_elements(inputs, output)

    def _run_elements(self, inputs: Sequence[GpuArray], output: GpuArray) -> None:
        self._run(self.kind, output.shape, *inputs, output)


class MaxPoolScatter(_Gradient):
    """Gradient of max pooling: adds each element of dy at the first largest element of its window of x."""

    kind = "max_grad"
    element_kinds = ("argmax", "max_grad")

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layout of the output.

        Raises `ValueError`: the gradient has not the shape of the pooled x.
        """
        x, dy = inputs
        return self._gradient_layout(x.shape, dy)

    def _run_elements(self, inputs: Sequence[GpuArray], output: GpuArray) -> None:
        x, dy = inputs
        variant = self._variant("argmax", self._normal(x.shape))
        places = self.context.empty(dy.shape, _PLACES[variant.place])
        if dy.layout.size:
            self._run("argmax", x.shape, x, places)
        self._run("max_grad", x.shape, places, dy, output)


class SumPoolGrad(_Gradient):
    """Gradient of `SumPool`, called with ``(dy, lengths)``; `lengths` belong to the pooled array."""

    kind = "sum_grad"
    element_kinds = ("sum_grad",)

    def layout(self, dy: Layout, lengths: Sequence[int]) -> tuple[Layout, ...]:  # type: ignore[override]
        """Return the layout of the output.

        Raises `ValueError`: the gradient has not the shape of the pooled array.
        """
        return self._gradient_layout((*dy.shape[: dy.ndim - self.ndim], *map(int, lengths)), dy)

    def __call__(self, dy: GpuArray, lengths: Sequence[int]) -> tuple[GpuArray, ...]:  # type: ignore[override]
        dx = self.context.empty(self.layout(dy.layout, lengths)[0].shape, self.dtype)
        self.launch((dx,), (dy,))
        return (dx,)
