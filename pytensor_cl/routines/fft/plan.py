"""Plan of a Fourier transform as launches of one kernel: arithmetic without a device.

A launch transforms many lines: it loads elements, runs the passes of Stockham's algorithm, and stores. Around the
passes it can do what the longer ways need: real transforms of even length go through complex ones of half the length
(real_pre, real_post); long ones are split in two (the four-step method of Gentleman and Sande, Bailey 1990); lengths
with large prime factors become convolutions (Bluestein 1970). An inverse transform is the forward one between two
conjugations.
"""

from collections.abc import Sequence
from functools import cache
from math import isqrt, prod
from typing import Any, NamedTuple

from pytensor_cl.codegen.structs import Struct
from pytensor_cl.integers import ceil_div, round_up
from pytensor_cl.routines.fft.butterfly import RADICES
from pytensor_cl.routines.fft.limits import FOUR_STEP_COST, MIN_SPLIT_ELEMENTS
from pytensor_cl.routines.fft.passes import RegisterLimits, fits
from pytensor_cl.routines.fft.tables import Table
from pytensor_cl.runtime.layout import collapse

INPUT, OUTPUT = 0, 1  # slots of arrays; those that follow are temporary
NEVER = 1 << 62

Dim = tuple[int, int, int]  # extent, step in the input, step in the output


class LineIO(NamedTuple):
    """Positions of the elements of a line in the input or output; steps count real numbers."""

    at: int
    step: int
    im: int
    re_count: int
    im_count: int
    mirror: int = NEVER
    total: int = 0
    mirror_step: int = 0


class Step(NamedTuple):
    """A launch. `dims` are the lines', innermost last; `inner` lines form a group, of which the lanes are."""

    source: int
    target: int
    dims: tuple[Dim, ...]
    inner: int
    length: int
    size: int
    read: LineIO
    write: LineIO
    signs: tuple[int, int] = (1, 1)
    real_pre: bool = False
    real_post: bool = False
    radices: tuple[int, ...] = ()
    pre: Table | None = None
    pre_steps: tuple[int, int] = (1, 0)
    mid: Table | None = None
    mid_steps: tuple[int, int] = (1, 0)
    post: Table | None = None
    twiddle: int = 0  # n of w_n^(line * output)


class Device(NamedTuple):
    """Properties of a device that plans depend on: lanes of a vector, work-items, elements that fit in fast memory.

    `registers`: limits of the launches that keep lines in registers; None if there are no such launches.
    """

    lanes: int
    units: int
    capacity: int
    is_simt: bool = False
    registers: RegisterLimits | None = None


class Lines(NamedTuple):
    """The transforms along one axis: ``"fft"``, ``"rfft"`` or ``"irfft"`` of length `n`.

    `signs` are those of the imaginary parts at the input and at the output; `read` and `write` say where the first
    line is, with the number of elements that are there, or are computed.
    """

    kind: str
    n: int
    source: int
    target: int
    dims: tuple[Dim, ...]
    read: LineIO
    write: LineIO
    signs: tuple[int, int]

    @property
    def number(self) -> int:
        """Number of lines."""
        return prod(n for n, *_ in self.dims)


class Plan(NamedTuple):
    """Launches in order, and how many real numbers each temporary array has."""

    steps: tuple[Step, ...]
    temporaries: tuple[int, ...]


@cache
def factorise(n: int) -> tuple[int, ...] | None:
    """Return the radices of the passes for length `n`; None if there is a prime factor without a butterfly."""
    radices = []
    for radix in RADICES:
        while n % radix == 0:
            radices.append(radix)
            n //= radix
    return tuple(radices) if n == 1 else None


@cache
def _convolution_size(n: int) -> int:
    """Return the least length with short passes of a circular convolution that does not wrap."""
    wanted = 2 * n - 1
    return min(f << max(0, (ceil_div(wanted, f) - 1).bit_length()) for f in (1, 3, 5, 7, 9, 15))


@cache
def _split(n: int) -> tuple[int, int]:
    """Return the two factors nearest to the root, the even one first if only one is."""
    least = next(k for k in range(isqrt(n), 0, -1) if n % k == 0)
    pair = n // least, least
    return pair if pair[0] % 2 == 0 else pair[::-1]


def _merged(dims: Sequence[Dim]) -> tuple[Dim, ...]:
    shape, (reads, writes) = collapse([d[0] for d in dims], [[d[1] for d in dims], [d[2] for d in dims]])
    return tuple(zip(shape, reads, writes, strict=True))


def _folded(lines: Lines) -> Step:
    """Return the launch all but its passes: a real transform of even length becomes a complex one of half of it."""
    n, read, write = lines.n, lines.read, lines.write
    is_even = n % 2 == 0
    length, real_post, real_pre = n, is_even and lines.kind == "rfft", is_even and lines.kind == "irfft"
    if real_post:
        length, valid = n // 2, read.re_count
        read = read._replace(step=2 * read.step, im=read.step, re_count=ceil_div(valid, 2), im_count=valid // 2)
    elif real_pre:
        length = n // 2
        write = write._replace(step=2 * write.step, im=write.step, re_count=length, im_count=length)
    elif lines.kind == "irfft":
        read = read._replace(re_count=n, im_count=n, mirror=n // 2 + 1, total=n * read.step)
    inner = lines.number
    return Step(
        lines.source, lines.target, lines.dims, inner, length, length, read, write, lines.signs, real_pre, real_post
    )


def _direct(lines: Lines) -> Step:
    """Return the one launch that makes whole transforms."""
    step = _folded(lines)
    radices = factorise(step.length)
    if radices is not None:
        return step._replace(radices=radices)
    size = _convolution_size(step.length)
    chirp = Table("chirp", (step.length,))
    mid = Table("chirp_filter", (step.length, size))
    return step._replace(size=size, radices=factorise(size) or (), pre=chirp, mid=mid, post=chirp)


def _every(side: LineIO, n: int, length: int, is_half: bool) -> LineIO:
    """Return every (n / length)-th element; those past the end of half a spectrum are conjugates of others."""
    counts = {"re_count": length, "im_count": length if side.im_count else 0}
    if is_half:
        side = side._replace(mirror=(length + 1) // 2, total=n * side.step, mirror_step=side.step)
    return side._replace(step=n // length * side.step, **counts)


class _Builder:
    """Collects the launches of a plan."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.steps: list[Step] = []
        self.temporaries: list[int] = []

    def temporary(self, size: int) -> int:
        """Return the slot of a new array."""
        self.temporaries.append(size)
        return OUTPUT + len(self.temporaries)

    def lines(self, lines: Lines) -> None:
        """Add the launches of the transforms along an axis."""
        if not lines.number:
            return
        step = _direct(lines)
        is_short = lines.kind == "irfft" and lines.read.re_count < lines.n // 2 + 1
        if self._is_worth_splitting(step, lines.number):
            (self._four_step if step.mid is None else self._long_chirp)(lines)
        elif is_short and lines.n % 2:
            self.steps.append(_direct(self._padded(lines, lines.n // 2 + 1)))
        else:
            self.steps.append(step)

    def _is_worth_splitting(self, step: Step, count: int) -> bool:
        device, blocks = self.device, ceil_div(count, self.device.lanes)
        is_plain = step.mid is None and step.read.mirror == NEVER
        if is_plain and device.registers is not None and fits(step.length, device.registers):
            return False
        if step.size < MIN_SPLIT_ELEMENTS or device.is_simt:
            return step.size > device.capacity
        spent = round_up(blocks, device.units) * device.lanes
        return spent > FOUR_STEP_COST * count or step.size > device.capacity

    def _copy(self, lines: Lines, count: int, first: int = 0, **changes: Any) -> None:
        """Add a launch without passes: elements `first` and so on of each line, one a lane."""
        read, write = lines.read, lines.write
        dims = (*lines.dims, (count, read.step, write.step))
        read = read._replace(
            at=read.at + first * read.step, re_count=min(1, read.re_count), im_count=min(1, read.im_count)
        )
        write = write._replace(at=write.at + first * write.step, re_count=1, im_count=min(1, write.im_count))
        one = Step(lines.source, lines.target, dims, count, 1, 1, read, write, lines.signs)
        if count > 0:
            self.steps.append(one._replace(**changes))

    def _stored(self, lines: Lines, size: int) -> Lines:
        """Return the same lines, written to a temporary array of `size` complex numbers a line."""
        extents = [n for n, *_ in lines.dims]
        dims = tuple((n, s, 2 * size * prod(extents[k + 1 :])) for k, (n, s, _) in enumerate(lines.dims))
        slot = self.temporary(2 * size * lines.number)
        return lines._replace(target=slot, dims=dims, write=LineIO(0, 2, 1, size, size))

    def _fetched(self, lines: Lines, stored: Lines, size: int) -> Lines:
        """Return the lines, read from where `stored` wrote them; their sign has been taken into account."""
        pairs = zip(lines.dims, stored.dims, strict=True)
        dims = tuple((n, s, t) for (n, _, t), (_, _, s) in pairs)
        side, signs = LineIO(0, 2, 1, size, size), (1, lines.signs[1])
        return lines._replace(source=stored.target, dims=dims, read=side, signs=signs)

    def _padded(self, lines: Lines, size: int) -> Lines:
        """Copy the lines and append zeros, up to `size` elements."""
        stored = self._stored(lines, size)._replace(signs=(lines.signs[0], 1))
        valid = min(lines.read.re_count, size)
        self._copy(stored, valid)
        zeros = stored._replace(read=LineIO(0, 0, 0, 0, 0))
        self._copy(zeros, size - valid, valid)
        return self._fetched(lines, stored, size)

    def _four_step(self, lines: Lines) -> None:
        """Split the length into a * b: transforms of length a, a factor for each result, transforms of length b."""
        n, (a, b) = lines.n, _split(lines.n)
        rows = a // 2 + 1 if lines.kind == "rfft" else a
        columns = b // 2 + 1 if lines.kind == "irfft" else b
        wanted = n // 2 + 1 if lines.kind == "irfft" else n
        if lines.read.re_count < wanted:
            lines = self._padded(lines, wanted)
        stored = self._stored(lines, rows * columns)
        fetched = self._fetched(lines, stored, rows * columns)
        first = stored._replace(
            kind="rfft" if lines.kind == "rfft" else "fft",
            n=a,
            dims=(*stored.dims, (columns, lines.read.step, 2 * rows)),
            read=_every(lines.read, n, a, lines.kind == "irfft"),
            write=LineIO(0, 2, 1, rows, rows),
            signs=(lines.signs[0], 1),
        )
        second = fetched._replace(
            kind="irfft" if lines.kind == "irfft" else "fft",
            n=b,
            dims=(*fetched.dims, (rows, 2, lines.write.step)),
            read=LineIO(0, 2 * rows, 1, columns, columns),
            write=_every(lines.write, n, b, lines.kind == "rfft"),
        )
        self.steps.append(_direct(first)._replace(inner=columns, twiddle=n))
        self.steps.append(_direct(second)._replace(inner=rows))

    def _expanded(self, lines: Lines) -> Lines:
        """Append the conjugate half to half spectra; returns complex transforms whose real part is the result."""
        n = lines.n
        half = n // 2 + 1
        lines = self._padded(lines, half)
        stored = self._stored(lines, n)._replace(signs=(1, 1))
        self._copy(stored, half)
        back = stored.read._replace(at=2 * n, step=-2)  # element j is the conjugate of element n - j
        self._copy(stored._replace(read=back, signs=(-1, 1)), n - half, half)
        return self._fetched(lines, stored, n)._replace(kind="fft")

    def _long_chirp(self, lines: Lines) -> None:
        """Bluestein's convolution by the four-step method; the order of the frequencies does not matter to it."""
        if lines.kind == "irfft":
            lines = self._expanded(lines)
        n, size = lines.n, _convolution_size(lines.n)
        (a, b), chirp = _split(size), Table("chirp", (n,))
        stored = self._stored(lines, size)._replace(signs=(lines.signs[0], 1))
        valid = min(lines.read.re_count, n)
        self._copy(stored, valid, pre=chirp, pre_steps=(0, 1))
        self._copy(stored._replace(read=LineIO(0, 0, 0, 0, 0)), size - valid, valid)
        p, q, count = stored.target, self.temporary(2 * size * lines.number), (lines.number, 2 * size, 2 * size)
        signs, mid = (1, 1), Table("chirp_filter", (n, size))
        columns, whole = LineIO(0, 2 * b, 1, a, a), LineIO(0, 2, 1, a, a)
        first = Lines("fft", a, p, q, (count, (b, 2, 2 * a)), columns, whole, signs)
        self.steps.append(_direct(first)._replace(inner=b, twiddle=size))
        middle = Lines("fft", b, q, p, (count, (a, 2, 2 * b)), LineIO(0, 2 * a, 1, b, b), LineIO(0, 2, 1, b, b), signs)
        self.steps.append(_direct(middle)._replace(inner=a, twiddle=size, mid=mid, mid_steps=(a, 1)))
        last = Lines("fft", a, p, q, (count, (b, 2, 2)), columns, columns, signs)
        self.steps.append(_direct(last)._replace(inner=b))
        done = self._fetched(lines, stored._replace(target=q), n)._replace(signs=(-1, lines.signs[1]))
        self._copy(done, lines.write.re_count, pre=chirp, pre_steps=(0, 1))


def plan_lines(device: Device, axes: Sequence[Lines], temporaries: Sequence[int] = ()) -> Plan:
    """Return the launches of transforms along several axes, one after the other.

    `axes`: their lines; `temporaries`: real numbers of the temporary arrays that `axes` use.
    """
    builder = _Builder(device)
    builder.temporaries = list(temporaries)
    for lines in axes:
        builder.lines(lines._replace(dims=_merged(lines.dims)))
    return Plan(tuple(builder.steps), tuple(builder.temporaries))


def _pack_radices(radices: Sequence[int]) -> tuple[int, int]:
    words = [sum(radix << 4 * k for k, radix in enumerate(radices[at : at + 16])) for at in (0, 16)]
    low, high = (word - (1 << 64) if word >> 63 else word for word in words)
    return low, high


LINE_IO = Struct(("long", "at step im re_count im_count"), ("long", "mirror total mirror_step"), name="fft_io")


@cache
def geometry_struct(kept_dims: int) -> Struct:
    """Return the struct that kernels take, for lines with `kept_dims` batch dimensions; see kernels/fft/plan.mako."""
    return Struct(
        ("long", "blocks tiles inner"),
        ("long", "length size passes radix[2]"),
        ("long", "real_pre real_post twiddle"),
        ("long", "pre pre_step pre_lane mid mid_step mid_lane post"),
        (LINE_IO, "in out"),
        ("long", f"kept[{kept_dims}] kept_in[{kept_dims}] kept_out[{kept_dims}]"),
        name="fft_geometry",
    )


def pack(step: Step, lanes: int, kept_dims: int) -> bytes:
    """Return the struct of kernels/fft/plan.mako."""
    groups = prod(n for n, *_ in step.dims) // step.inner
    tiles = ceil_div(step.inner, lanes)
    flags = [step.real_pre, step.real_post, bool(step.twiddle)]
    tables = [step.pre is not None, *step.pre_steps, step.mid is not None, *step.mid_steps, step.post is not None]
    dims = [*reversed(step.dims), *((1, 0, 0),) * (kept_dims - len(step.dims))]
    columns = [value for column in zip(*dims, strict=True) for value in column]
    head = [groups * tiles, tiles, step.inner, step.length, step.size, len(step.radices)]
    values = [*head, *_pack_radices(step.radices), *flags, *tables, *step.read, *step.write, *columns]
    return geometry_struct(kept_dims).pack_values(*map(int, values))
