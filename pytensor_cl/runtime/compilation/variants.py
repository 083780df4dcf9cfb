"""Build variants: the texts and options with which a program may be built, the best one first."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from pytensor_cl.runtime import opencl as cl

_REGISTERS = re.compile(r"at most (\d+) registers")
_GROUP = re.compile(r"__attribute__\(\(reqd_work_group_size\([^()]*\)\)\)")


class BuildVariant(NamedTuple):
    """One way to build a program.

    `text`: OpenCL C; `options`: build options besides every build's; `is_new`: whether the text is probably in
    no cache on disk.
    """

    text: str
    options: tuple[str, ...] = ()
    is_new: bool = False


BuildVariants = Callable[[str], Iterator[BuildVariant]]
"""From a program's text to its build variants. The first that builds is used. If none does, the last one's error is
raised."""


def plain(text: str) -> Iterator[BuildVariant]:
    """Yield the unchanged text."""
    yield BuildVariant(text)


def nvidia_variants(text: str) -> Iterator[BuildVariant]:
    """Yield the text with a limit on registers, if a comment in it has one ("at most N registers"), then without.

    Two work-groups of 256 work-items fit on a multiprocessor if each work-item uses at most 128 registers. Without a
    limit the compiler uses more. OpenCL C cannot express the limit, a build option can. The assembler ignores the
    option for kernels that declare the size of their work-groups: the declaration is left out.
    """
    limits = _REGISTERS.findall(text)
    if limits:
        yield BuildVariant(_GROUP.sub("", text), (f"-cl-nv-maxrregcount={min(map(int, limits))}",))
    yield BuildVariant(text)


def default_variants(device: "cl.Device") -> BuildVariants:
    """Return the build variants of a device whose driver has none of its own."""
    return nvidia_variants if "cl_nv_compiler_options" in device.extensions.split() else plain
