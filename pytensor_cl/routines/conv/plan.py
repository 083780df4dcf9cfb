"""Convolutions and their gradients as one kind of problem: arithmetic without data."""

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from math import gcd, prod
from typing import NamedTuple

from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.template import render
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.conv.limits import LONG_RUN_ELEMENTS, MIN_POINTWISE_POSITIONS
from pytensor_cl.runtime.layout import Layout, collapse

Ints = tuple[int, ...]
_DIMS = 3  # spatial dimensions of conv_plan
# Images, groups, channels of y (m) and of x (c), and three spatial dimensions.
_STRIDES = tuple(
    Struct(("long", dims), name=f"conv_{array}_strides")
    for array, dims in (("x", "n g c d h w"), ("w", "g m c d h w"), ("y", "n g m d h w"))
)
_PLAN = Struct(
    ("long", "batch groups m c"),
    ("long", "out[3] taps[3] image[3]"),
    ("long", "stride[3] dilation[3] pad[3]"),
    *zip(_STRIDES, "xwy", strict=True),
    ("long", "x_low x_high w_low w_high"),
    ("long", "w_inner w_step w_outer"),
    ("long", "mc nc kc k_step workspace_size"),
    ("long", "split_k partial_stride"),
    name="conv_plan",
)
CALL = Struct(("long", "x w y"), name="conv_call")
"""First elements of the arrays, which may change from call to call."""


def plan_preamble() -> str:
    """Return the OpenCL C that kernels of the conv family share: structs, indices of positions and taps."""
    return render("conv/plan", strides=_STRIDES, plan=_PLAN, call=CALL)


class Window(NamedTuple):
    """One spatial dimension of a convolution: how the kernel slides along the input."""

    stride: int
    dilation: int
    before: int
    after: int

    def positions(self, extent: int, taps: int) -> int:
        """Return the extent of the output; zero where the kernel does not fit into the padded input."""
        room = extent + self.before + self.after - (taps - 1) * self.dilation - 1
        return room // self.stride + 1 if room >= 0 and taps else 0


class Geometry(NamedTuple):
    """The parameters of a convolution.

    `windows`: one for each spatial dimension; `groups`: number of groups of channels, which are convolved apart;
    `flip`: whether the kernel is flipped, as in a mathematical convolution.
    """

    windows: tuple[Window, ...]
    groups: int
    flip: bool

    def positions(self, image: Sequence[int], taps: Sequence[int]) -> Ints:
        """Return the spatial shape of the output."""
        return tuple(w.positions(n, k) for w, n, k in zip(self.windows, image, taps, strict=True))


class Axis(NamedTuple):
    """One spatial dimension of a problem: position q and tap t meet at ``q * stride + t * dilation - pad`` of x."""

    out: int
    taps: int
    image: int
    stride: int
    dilation: int
    pad: int
    x: int  # x, w, y: strides of the arrays, in elements
    w: int
    y: int


class Problem(NamedTuple):
    """The convolution that one launch computes.

    ``y[n, g, m, q] = sum over c, t of w[g, m, c, t] * x[n, g, c, q * stride + t * dilation - pad]``, with x zero
    outside of its image.

    `batch`, `groups`, `m`, `c`: extents of n, g, m and c; `axes`: spatial dimensions; `x`, `w`, `y`: strides along n,
    g, c; along g, m, c; along n, g, m; `starts`: first elements of x, w and y, relative to the offsets of the arrays.
    """

    batch: int
    groups: int
    m: int
    c: int
    axes: tuple[Axis, ...]
    x: Ints
    w: Ints
    y: Ints
    starts: Ints = (0, 0, 0)

    @property
    def columns(self) -> int:
        """Number of positions in the whole batch."""
        return self.batch * prod(a.out for a in self.axes)

    @property
    def depth(self) -> int:
        """Number of terms of each sum."""
        return self.c * prod(a.taps for a in self.axes)

    @property
    def size(self) -> int:
        """Number of elements of y."""
        return self.columns * self.groups * self.m

    @property
    def target(self) -> Layout:
        """Layout of y, with dimensions n, g, m and the spatial ones."""
        shape = (self.batch, self.groups, self.m, *(a.out for a in self.axes))
        return Layout(shape, (*self.y, *(a.y for a in self.axes)), self.starts[2])

    def into(self, target: Layout) -> "Problem":
        """Return the same problem with another layout of y."""
        axes = tuple(a._replace(y=s) for a, s in zip(self.axes, target.strides[3:], strict=True))
        return self._replace(axes=axes, y=target.strides[:3], starts=(*self.starts[:2], target.offset))


def _flipped(axes: Sequence[Axis], w: bool) -> tuple[tuple[Axis, ...], int]:
    """Reverse the kernel, which is w or y; return where it starts then, too."""
    if w:
        return tuple(a._replace(w=-a.w) for a in axes), sum((a.taps - 1) * a.w for a in axes)
    return tuple(a._replace(y=-a.y) for a in axes), sum((a.out - 1) * a.y for a in axes)


def _spatial(geometry: Geometry, x: Layout, w: Layout, y: Layout) -> tuple[Axis, ...]:
    rows = zip(geometry.windows, x.shape[2:], w.shape[2:], y.shape[2:], strict=True)
    strides = zip(x.strides[2:], w.strides[2:], y.strides[2:], strict=True)
    return tuple(
        Axis(q, t, n, v.stride, v.dilation, v.before, *s) for (v, n, t, q), s in zip(rows, strides, strict=True)
    )


def forward(geometry: Geometry, x: Layout, w: Layout, y: Layout) -> Problem:
    """Return the convolution y of x with w."""
    groups, m, c = geometry.groups, w.shape[0] // geometry.groups, w.shape[1]
    axes, start = _spatial(geometry, x, w, y), 0
    if geometry.flip:
        axes, start = _flipped(axes, True)
    strides = (
        (x.strides[0], x.strides[1] * c, x.strides[1]),
        (w.strides[0] * m, *w.strides[:2]),
        (y.strides[0], y.strides[1] * m, y.strides[1]),
    )
    return Problem(x.shape[0], groups, m, c, axes, *strides, (0, start, 0))


def grad_weight(geometry: Geometry, x: Layout, dy: Layout, dw: Layout) -> Problem:
    """Return the gradient dw with respect to w.

    It is a convolution too: of x with dy, whose batch is summed over in place of channels; stride and dilation change
    places.
    """
    groups, m, c = geometry.groups, dw.shape[0] // geometry.groups, dw.shape[1]
    axes, start = _spatial(geometry, x, dw, dy), 0
    axes = tuple(Axis(a.taps, a.out, a.image, a.dilation, a.stride, a.pad, a.x, a.y, a.w) for a in axes)
    if geometry.flip:
        axes, start = _flipped(axes, False)
    strides = (
        (x.strides[1], x.strides[1] * c, x.strides[0]),
        (dy.strides[1] * m, dy.strides[1], dy.strides[0]),
        (dw.strides[1], dw.strides[0] * m, dw.strides[0]),
    )
    return Problem(c, groups, m, x.shape[0], axes, *strides, (0, 0, start))


def grad_input(geometry: Geometry, w: Layout, dy: Layout, dx: Layout) -> Iterator[Problem]:
    """Return the gradient dx with respect to x, as one problem per phase of the strides.

    Elements of dx that are a stride apart meet the same taps, so each such phase is a convolution of dy of stride one.
    """
    groups, c, m = geometry.groups, w.shape[0] // geometry.groups, w.shape[1]
    axes, start = _spatial(geometry, dx, w, dy), 0
    if geometry.flip:
        axes, start = _flipped(axes, True)
    strides = (
        (dy.strides[0], dy.strides[1] * c, dy.strides[1]),
        (w.strides[0] * c, w.strides[1], w.strides[0]),
        (dx.strides[0], dx.strides[1] * m, dx.strides[1]),
    )
    for phases in product(*map(_phases, axes)):
        starts = (0, start + sum(p[1] for p in phases), sum(p[2] for p in phases))
        yield Problem(dx.shape[0], groups, m, c, tuple(p[0] for p in phases), *strides, starts)


def _phases(a: Axis) -> Iterator[tuple[Axis, int, int]]:
    """Split one dimension of dx; with each axis come the starts in w and in dx."""
    common = gcd(a.stride, a.dilation)
    period = a.stride // common  # distance between the taps of one phase
    for r in range(min(a.stride, a.image)):
        # a.taps: no tap meets the elements of this phase, whose gradient is zero.
        first = next((t for t in range(period) if (r + a.pad - t * a.dilation) % a.stride == 0), a.taps)
        taps = max(0, ceil_div(a.taps - first, period))
        shift = (r + a.pad - first * a.dilation) // a.stride if taps else 0
        extent = ceil_div(a.image - r, a.stride)
        strides = a.y, a.w * period, a.x * a.stride
        axis = Axis(extent, taps, a.out, 1, -(a.dilation // common), -shift, *strides)
        yield axis, first * a.w if taps else 0, r * a.x


def signals(ndim: int, x: Layout, w: Layout, y: Layout, padding: Sequence[int]) -> Problem | None:
    """Return the batched convolution y of x with w, over their last `ndim` dimensions.

    A dimension of the batch along which x repeats becomes one of filters, and one along which w repeats becomes a
    batch; None if there would be several of a kind.

    `ndim`: number of spatial dimensions; `x`, `w`, `y`: layouts with the same dimensions of the batch in front;
    `padding`: zeros on either side of x, per spatial dimension.
    """
    shape, strides = collapse(x.shape[:-ndim], [layout.strides[:-ndim] for layout in (x, w, y)])
    kinds = {"m": (1, 0, 0, 0), "batch": (1, 0, 0, 0), "groups": (1, 0, 0, 0)}
    for n, *steps in zip(shape, *strides, strict=True):
        kind = "m" if steps[0] == 0 else "batch" if steps[1] == 0 else "groups"
        if kinds[kind][0] != 1:
            return None
        kinds[kind] = (n, *steps)
    m, batch, groups = kinds.values()
    rows = zip(y.shape[-ndim:], w.shape[-ndim:], x.shape[-ndim:], padding, strict=True)
    spatial = zip(*(layout.strides[-ndim:] for layout in (x, w, y)), strict=True)
    plain = (Axis(q, t, n, 1, 1, p, *s) for (q, t, n, p), s in zip(rows, spatial, strict=True))
    axes, start = _flipped(tuple(plain), True)  # a convolution in the sense of mathematics, not a correlation
    extents = batch[0], groups[0], m[0], 1
    return Problem(
        *extents, axes, (batch[1], groups[1], 0), (groups[2], m[2], 0), (batch[3], groups[3], m[3]), (0, start, 0)
    )


def _merge(outer: Axis, inner: Axis) -> Axis | None:
    """Make one dimension of two, if every position of the one meets every position of the other in one stride."""
    if outer.pad or inner.pad or outer.x != inner.x * inner.image:
        return None
    length = outer.image * inner.image
    plain = all(a.taps == 1 and a.stride == 1 and a.out == a.image for a in (outer, inner))
    if plain and outer.y == inner.y * inner.out:
        return Axis(length, 1, length, 1, 1, 0, inner.x, 0, inner.y)
    whole = all(a.out == 1 and a.dilation == 1 and a.taps == a.image for a in (outer, inner))
    if whole and outer.w == inner.w * inner.taps:
        return Axis(1, length, length, 1, 1, 0, inner.x, inner.w, 0)
    return None


def with_ascending_taps(problem: Problem, array: str) -> Problem:
    """Return the same problem with taps in the order of positions in ``"w"`` or ``"x"``: the order of a sum is free."""
    axes, start = list(problem.axes), problem.starts[1]
    for i, a in enumerate(axes):
        if (a.w if array == "w" else a.dilation) < 0:
            reach = a.taps - 1
            axes[i] = a._replace(dilation=-a.dilation, pad=a.pad - reach * a.dilation, w=-a.w)
            start += reach * a.w
    return problem._replace(axes=tuple(axes), starts=(problem.starts[0], start, problem.starts[2]))


def simplify(problem: Problem) -> Problem:
    """Return the same problem with three spatial dimensions, as few of them used as can be."""
    if problem.depth == 0:  # sums of no terms: kernels need one tap, but no channel
        problem = problem._replace(c=0, axes=tuple(a._replace(taps=1, w=0) for a in problem.axes))
    problem = with_ascending_taps(problem, "w")
    axes: list[Axis] = []
    for axis in problem.axes:
        if (axis.out, axis.taps, axis.image, axis.pad) == (1, 1, 1, 0):
            continue
        merged = _merge(axes[-1], axis) if axes else None
        axes[-1:] = [merged] if merged else [*axes[-1:], axis]
    lead = [Axis(1, 1, 1, 1, 1, 0, 0, 0, 0)] * (_DIMS - len(axes))
    return problem._replace(axes=(*lead, *axes))


def is_large_pointwise(p: Problem, least: int = MIN_POINTWISE_POSITIONS) -> bool:
    """Return whether a simplified problem multiplies a matrix by each image as it is, of `least` positions or more."""
    *outer, last = p.axes
    return (
        all(a.out == a.taps == a.image == 1 for a in outer)
        and last[:4] == (last.image, 1, last.image, 1)
        and not last.pad
        and last.out >= least
    )


def spans_of(p: Problem, x: Layout, w: Layout) -> tuple[int, ...]:
    """Return first and one past the last elements of x and w, relative to where the problem starts in them."""
    arrays = zip((x, w), p.starts, strict=False)
    return tuple(end - layout.offset - start for layout, start in arrays for end in layout.span)


def runs_of(p: Problem) -> tuple[int, int, int]:
    """Return how w's channels and taps make one index k: ``inner, step, outer``.

    Element k is at ``k // inner * outer + k % inner * step``. Zeros where that is not so, or in short runs only.
    """
    dims = [(a.taps, a.w) for a in p.axes if a.taps != 1]
    taps = prod(n for n, _ in dims)
    if any(outer != n * inner for (_, outer), (n, inner) in pairwise(dims)):
        return 0, 0, 0
    if not dims:
        return max(1, p.c), p.w[2], 0
    step = dims[-1][1]
    if p.w[2] == step * taps:
        return p.c * taps, step, 0
    return (taps, step, p.w[2]) if taps >= LONG_RUN_ELEMENTS else (0, 0, 0)


def encode(
    p: Problem,
    span: Sequence[int],
    blocks: Sequence[int] = (0,) * 5,
    split_k: int = 1,
    partial_stride: int | None = None,
) -> bytes:
    """Pack a conv_plan.

    `p`: a simplified problem; `span`: first and one past the last element of x, then of w, relative to where the
    problem starts in them; `blocks`: along m, n and k what is packed at a time; what is read at a time along k; the
    elements of the workspace; `split_k`: into how many parts, one after the other in y, the sums fall;
    `partial_stride`: distance of the parts in elements; None: the size of y.
    """
    columns = tuple(zip(*p.axes, strict=True))  # out, taps, ..., strides of y
    shape = (p.batch, p.groups, p.m, p.c, *(v for column in columns[:6] for v in column))
    strides = (*p.x, *columns[6], *p.w, *columns[7], *p.y, *columns[8])
    partial_stride = p.size if partial_stride is None else partial_stride
    return _PLAN.pack_values(*shape, *strides, *span, *runs_of(p), *blocks, split_k, partial_stride)
