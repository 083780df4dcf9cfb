"""Plan of a launch that keeps the elements of its lines in registers: arithmetic without a device.

The length, the radices and the work-group are known to the compiler, so there is a kernel for each length
(kernels/fft/registers.mako).
"""

from functools import cache
from math import prod
from typing import NamedTuple

from pytensor_cl.codegen.structs import Struct
from pytensor_cl.routines.base.limits import INT_LIMIT
from pytensor_cl.routines.base.ndrange import power_above, power_of_two
from pytensor_cl.routines.fft.limits import (
    BANKS_BYTES,
    COLUMN_BYTES,
    MIN_REGISTER_ELEMENTS,
    REGISTER_GROUP_ITEMS,
)
from pytensor_cl.routines.fft.passes import Pass, choose_radices, passes_of, pitch_of
from pytensor_cl.routines.fft.plan import NEVER, Device, LineIO, Step


class Side(NamedTuple):
    """Order and kind of the accesses to lines.

    `is_columns`: neighbouring work-items have neighbouring lines, not neighbouring elements; `mode`: ``"unit"``:
    contiguous complex numbers, ``"pairs"``: complex numbers of any step, ``"parts"``: real and imaginary parts apart,
    some of which may not be there.
    """

    is_columns: bool
    mode: str


class RegisterKernel(NamedTuple):
    """Constants of a kernel: `items` work-items for each of `lines` lines, with `pitch` elements of local memory each.

    `dims`: number of dimensions of the batch; `real_pre`, `real_post`, `twiddle`: as in `Step`.
    """

    length: int
    passes: tuple[Pass, ...]
    items: int
    lines: int
    pitch: int
    dims: int
    read: Side
    write: Side
    real_pre: bool
    real_post: bool
    twiddle: bool

    @property
    def group(self) -> int:
        """Work-items of a work-group."""
        return self.items * self.lines

    @property
    def elements(self) -> int:
        """Complex numbers that a work-item holds."""
        return max(p.slots * p.radix for p in self.passes)

    @property
    def radices(self) -> tuple[int, ...]:
        """The radices of the passes in order."""
        return tuple(p.radix for p in self.passes)


def _side(io: LineIO, steps: list[int], count: int, is_aligned: bool) -> Side:
    """Return how lines are accessed; `steps` are those between lines, innermost first."""
    is_complete = io.re_count == io.im_count == count
    is_pairs = is_aligned and is_complete and io.im == 1 and not any(n % 2 for n in (io.at, io.step, *steps))
    mode = "parts" if not is_pairs else "unit" if io.step == 2 else "pairs"
    return Side(bool(steps) and abs(steps[0]) < abs(io.step), mode)


def _is_worth_a_kernel(step: Step, device: Device) -> bool:
    """Return whether a step is one that the template can make, and large enough."""
    count = prod(n for n, *_ in step.dims)
    is_plain = step.pre is None and step.mid is None and step.post is None
    is_direct = step.read.mirror == NEVER and step.write.mirror == NEVER
    is_large = count * step.length >= MIN_REGISTER_ELEMENTS or step.size > device.capacity
    return is_plain and is_direct and is_large and count < INT_LIMIT


def register_kernel(step: Step, device: Device, aligned: tuple[bool, bool]) -> RegisterKernel | None:
    """Return the kernel that makes a step in registers; None if there is none.

    `aligned`: whether input and output begin with a whole complex number, if they hold such.
    """
    limits = device.registers
    if limits is None or not _is_worth_a_kernel(step, device):
        return None
    chosen = choose_radices(step.length, limits.items)
    if chosen is None:
        return None
    radices, items = chosen
    dims = step.dims[::-1]
    read = _side(step.read, [d[1] for d in dims], step.length + step.real_pre, aligned[0])
    write = _side(step.write, [d[2] for d in dims], step.length + step.real_post, aligned[1])
    is_columns, banks = read.is_columns or write.is_columns, BANKS_BYTES // limits.itemsize
    passes = passes_of(step.length, radices, items, banks)
    wanted = max(REGISTER_GROUP_ITEMS // items, COLUMN_BYTES // (2 * limits.itemsize) if is_columns else 1)
    most = power_of_two(min(wanted, limits.items // items))
    lines = min(most, power_above(prod(d[0] for d in dims)))
    # Work-items of a warp have `banks` / `lines` neighbouring elements of each line, or as many as a line has.
    pitch = pitch_of(step.length, passes, max(1, banks // most) if is_columns else items, banks)
    lines = min(lines, power_of_two(limits.local_bytes // (pitch * limits.itemsize)))
    if lines * pitch * limits.itemsize > limits.local_bytes:
        return None
    return RegisterKernel(
        step.length,
        passes,
        items,
        lines,
        pitch,
        max(1, len(dims)),
        read,
        write,
        step.real_pre,
        step.real_post,
        bool(step.twiddle),
    )


@cache
def register_struct(dims: int) -> Struct:
    """Return the struct that kernels of `dims` batch dimensions take; see kernels/fft/registers.mako."""
    return Struct(
        ("long", "in_at in_step in_im in_re_count in_im_count"),
        ("long", "out_at out_step out_im out_re_count out_im_count"),
        ("long", f"in_steps[{dims}] out_steps[{dims}]"),
        ("uint", f"lines kept[{dims}]"),
        name="fft_registers",
    )


def pack_registers(step: Step, kernel: RegisterKernel) -> bytes:
    """Return the struct of kernels/fft/registers.mako; steps of pairs count pairs."""
    numbers: list[int] = []
    for io, side in ((step.read, kernel.read), (step.write, kernel.write)):
        numbers += [io.at, io.step if side.mode == "parts" else io.step // 2, io.im, io.re_count, io.im_count]
    dims = step.dims[::-1] or ((1, 0, 0),)
    kept, reads, writes = zip(*dims, strict=True)
    return register_struct(kernel.dims).pack_values(*map(int, (*numbers, *reads, *writes, prod(kept), *kept)))
