"""Structs that are passed by value to raw kernels: the layout that the driver's compiler gives them."""

import re
from collections.abc import Callable, Sequence
from threading import Lock
from typing import NamedTuple

import numpy as np

from pytensor_cl.errors import CompilationError

_MISSING = re.compile(r"no member named '(\w+)'")


class _Layout(NamedTuple):
    """Bytes of a struct, and where its members begin."""

    size: int
    offsets: tuple[int, ...]


class StructLayouts:
    """Layouts of the structs of a program, found by a kernel that asks the compiler.

    A NumPy value need not be aligned as the struct is: its members are put where the struct has them.

    `measure`: builds and runs a kernel that is added to the program, and returns the values of expressions of OpenCL C.
    It raises a `CompilationError` if they do not compile.
    """

    def __init__(self, measure: Callable[[Sequence[str]], list[int]]) -> None:
        self._measure = measure
        self._known: dict[tuple[str, np.dtype], _Layout] = {}
        self._lock = Lock()

    def pack(self, kind: str, value: np.ndarray, where: str) -> bytes:
        """Return the bytes of a struct.

        `kind`: its type in OpenCL C; `value`: 0-d array of a structured dtype; `where`: the argument, for messages.

        Raises `TypeError`: the members are not the struct's.
        """
        with self._lock:
            layout = self._known.get((kind, value.dtype))
            if layout is None:
                layout = self._known[kind, value.dtype] = self._ask(kind, value.dtype, where)
        packed = np.zeros(layout.size, np.uint8)
        for name, offset in zip(value.dtype.names or (), layout.offsets, strict=True):
            data = np.frombuffer(value[name].tobytes(), np.uint8)
            packed[offset : offset + data.size] = data
        return packed.tobytes()

    def _ask(self, kind: str, dtype: np.dtype, where: str) -> _Layout:
        names = dtype.names or ()
        members = [f"((__private {kind} *)0)->{name}" for name in names]
        questions = [f"sizeof({kind})", *(f"&{m}" for m in members), *(f"sizeof({m})" for m in members)]
        try:
            size, *rest = self._measure(questions)
        except CompilationError as error:
            missing = _MISSING.search(error.log)
            what = f"no member {missing[1]!r}" if missing else f"not the members {', '.join(names)}"
            raise TypeError(f"{where}: struct {kind} has {what}, as the value's dtype {dtype} has") from error
        offsets, lengths = rest[: len(names)], rest[len(names) :]
        for name, length in zip(names, lengths, strict=True):
            if dtype[name].itemsize != length:
                raise TypeError(
                    f"{where}: member {name!r} has {length} bytes in struct {kind}, {dtype[name].itemsize} in the "
                    f"value's dtype {dtype}"
                )
        if _has_gap(size, offsets, lengths):
            raise TypeError(f"{where}: struct {kind} has members which the value's dtype {dtype} has not")
        return _Layout(size, tuple(offsets))


def _has_gap(size: int, offsets: Sequence[int], lengths: Sequence[int]) -> bool:
    """Return whether there is more room between members, or after them, than their alignment explains."""
    end, largest = 0, max(lengths, default=1)
    for offset, length in sorted(zip(offsets, lengths, strict=True)):
        if offset - end >= min(length, offset & -offset or 1) and offset > end:
            return True
        end = offset + length
    return size - end >= largest
