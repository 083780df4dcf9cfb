"""Random generators that calls change in place. A call that fails, or that runs again, restores their states."""

import ctypes
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from pytensor_cl.linker.types import Cell

RngStates = Sequence[tuple[Any, Any]]

SavedState = tuple[Any, ...]
"""A bit generator, the memory of its state or None, and what was read."""

_Memory = tuple[memoryview, memoryview]

_POSITION, _HALF = 32, 16
"""Bytes of the two structures of a PCG64: its number and increment; their address and the pending half of a number."""


def save_rng_states(generators: Iterable[Cell]) -> RngStates:
    """Return the generators in some cells, and their states."""
    return [(cell[0], cell[0].bit_generator.state) for cell in generators]


def restore_rng_states(states: RngStates) -> None:
    """Set generators to the states that `save_rng_states` has returned."""
    for generator, state in states:
        generator.bit_generator.state = state


def rng_state_saver(cell: Cell) -> Callable[[], SavedState]:
    """Return a function that saves the state of the generator in a cell; `restore_saved_state` takes what it returns.

    It is for calls of a few microseconds: NumPy takes 1.5 for the state of a PCG64, a copy of its memory takes 0.2.
    """
    known: tuple[Any, ...] = None, None, None, None  # one value: another thread may call at the same time

    def save() -> SavedState:
        nonlocal known
        bits = cell[0].bit_generator
        found, memory, read_position, read_half = known
        if bits is not found:
            kind: Any = type(bits)
            memory = _state_memory(bits) if _is_copyable(kind) else None
            read_position, read_half = [part.tobytes for part in memory] if memory else (None, None)
            known = bits, memory, read_position, read_half
        if memory is None:
            return bits, None, bits.state
        return bits, memory, read_position(), read_half()

    return save


def restore_saved_state(saved: SavedState) -> None:
    """Set a generator to a state that the function of `rng_state_saver` has returned."""
    bits, memory, *state = saved
    if memory is None:
        (bits.state,) = state
    else:
        _copy(memory, *state)


def _copy(memory: _Memory, position: bytes, half: bytes) -> None:
    """Copy saved bytes into the memory of a bit generator, which the caller holds."""
    for part, saved in zip(memory, (position, half), strict=True):
        target: Any = part.obj
        ctypes.memmove(target, saved, len(saved))


@lru_cache
def _is_copyable(kind: type) -> bool:
    """Return whether a copy of its memory restores a bit generator of a type; it is tried with a new one."""
    if kind not in (np.random.PCG64, np.random.PCG64DXSM):
        return False
    bits: Any = kind(0)
    memory = _state_memory(bits)
    if memory is None:
        return False
    before, position, half = bits.state, memory[0].tobytes(), memory[1].tobytes()
    np.random.Generator(bits).integers(0, 10, 3, dtype="uint32")  # leaves half of a number
    after = bits.state
    _copy(memory, position, half)
    return bool(before != after and bits.state == before)


def _state_memory(bits: Any) -> _Memory | None:
    """Return the memory that holds the state of a PCG64; None if it is not laid out as expected.

    NumPy publishes the address of a structure that begins with the address of another. Both are members of the Python
    object. The addresses are compared with the object's before anything is read.
    """
    if sys.implementation.name != "cpython":
        return None
    begin, end = id(bits), id(bits) + type(bits).__basicsize__
    half = bits.ctypes.state_address
    if not begin <= half <= end - _HALF:
        return None
    position = ctypes.c_void_p.from_address(half).value or 0
    if not begin <= position <= end - _POSITION:
        return None
    return (
        memoryview((ctypes.c_ubyte * _POSITION).from_address(position)),
        memoryview((ctypes.c_ubyte * _HALF).from_address(half)),
    )
