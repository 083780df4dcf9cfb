"""Position in the sequences of NumPy's generators, and the jump to any other position."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

GENERATORS = {"PCG64": "pcg64", "PCG64DXSM": "pcg64dxsm", "Philox": "philox4x64"}
"""Names of bit generators, and what the kernels call them."""
ARGUMENTS = {
    "pcg64": ("s_hi", "s_lo", "c_hi", "c_lo"),
    "pcg64dxsm": ("s_hi", "s_lo", "c_hi", "c_lo"),
    "philox4x64": ("c_0", "c_1", "c_2", "c_3", "k_0", "k_1", "skipped"),
}
"""Names of the kernel arguments, of 64 bits, that say where a generator is."""

_MULTIPLIERS = {"PCG64": 0x2360ED051FC65DA44385DF649FCCF645, "PCG64DXSM": 0xDA942042E4DD58B5}
_MODULUS = 1 << 128
_WORD = (1 << 64) - 1
_BLOCK = 4  # numbers of a block of Philox


def _halves(*numbers: int) -> tuple[np.uint64, ...]:
    """Return the high and the low half of each number of 128 bits."""
    return tuple(np.uint64(half) for n in numbers for half in (n >> 64, n & _WORD))


class RawSequence(ABC):
    """Position of a Generator in the sequence of its bit generator. Positions count 64-bit numbers from there.

    `generator`: has a bit generator of `GENERATORS`; `name`: the kernels' name of the bit generator.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self._bits: Any = generator.bit_generator
        self._saved: Any = self._bits.state
        self.name = GENERATORS[self._saved["bit_generator"]]

    @property
    @abstractmethod
    def arguments(self) -> tuple[np.uint64, ...]:
        """Arguments of the kernels: see `ARGUMENTS`."""

    @property
    def pending(self) -> int | None:
        """The half of a number that the next draw of 32 bits takes; None if there is none."""
        return int(self._saved["uinteger"]) if self._saved["has_uint32"] else None

    @abstractmethod
    def stride(self, steps: int) -> tuple[np.uint64, ...]:
        """Return the additional arguments of kernels whose work-items go `steps` positions ahead at once."""

    @abstractmethod
    def _set(self, position: int, has_half: int, half: int) -> None:
        """Set the Generator to a position, with a half of a number that is pending or not."""

    def go(self, position: int) -> None:
        """Set the Generator to a position; a pending half of a number stays."""
        self._set(position, self._saved["has_uint32"], self._saved["uinteger"])

    def go_to_half(self, word: int) -> None:
        """Set the Generator to a half of a number: -1 is the pending one, 0 the low half of the first number."""
        if word < 0:
            self.restore()
            return
        self._set(word >> 1, 0, 0)
        if word & 1:
            number = int(self._bits.random_raw())
            self._set((word >> 1) + 1, 1, number >> 32)

    def restore(self) -> None:
        """Set the Generator back."""
        self._bits.state = self._saved


class Sequence128(RawSequence):
    """The sequence of a linear congruential generator of 128 bits: see `RawSequence`."""

    def __init__(self, generator: np.random.Generator) -> None:
        super().__init__(generator)
        self._state: int = self._saved["state"]["state"]
        self._increment: int = self._saved["state"]["inc"]
        self._powers = [(_MULTIPLIERS[self._saved["bit_generator"]], self._increment)]

    @property
    def arguments(self) -> tuple[np.uint64, ...]:
        """State and increment."""
        return _halves(self._state, self._increment)

    def stride(self, steps: int) -> tuple[np.uint64, ...]:
        """Return m and c of the function ``m s + c`` that advances a state s by `steps`."""
        self._jumped(steps)  # makes the powers that are needed
        multiplier, addend = 1, 0
        for at, (m, c) in enumerate(self._powers):
            if steps >> at & 1:
                multiplier, addend = multiplier * m % _MODULUS, (m * addend + c) % _MODULUS
        return _halves(multiplier, addend)

    def _jumped(self, steps: int) -> int:
        """Return the state after some steps, by those that are powers of two: ``m s + c`` applied again and again."""
        state, at = self._state, 0
        while steps >> at:
            if at == len(self._powers):
                m, c = self._powers[-1]
                self._powers.append((m * m % _MODULUS, (m + 1) * c % _MODULUS))
            if steps >> at & 1:
                m, c = self._powers[at]
                state = (m * state + c) % _MODULUS
            at += 1
        return state

    def _set(self, position: int, has_half: int, half: int) -> None:
        inner = {"state": self._jumped(position), "inc": self._increment}
        self._bits.state = {**self._saved, "state": inner, "has_uint32": has_half, "uinteger": half}


class BlockSequence(RawSequence):
    """The sequence of Philox4x64-10, which makes blocks of four numbers: see `RawSequence`."""

    def __init__(self, generator: np.random.Generator) -> None:
        super().__init__(generator)
        self._counter = sum(int(word) << 64 * k for k, word in enumerate(self._saved["state"]["counter"]))
        self._used = int(self._saved["buffer_pos"])  # numbers of the block that come before position 0

    @property
    def arguments(self) -> tuple[np.uint64, ...]:
        """The counter of the present block, the key, and how many numbers of the block have been used."""
        inner = self._saved["state"]
        return *map(np.uint64, inner["counter"]), *map(np.uint64, inner["key"]), np.uint64(self._used)

    def stride(self, steps: int) -> tuple[np.uint64, ...]:
        """Return nothing: each block is computed from its counter."""
        return ()

    def _set(self, position: int, has_half: int, half: int) -> None:
        if not position:
            self._bits.state = {**self._saved, "has_uint32": has_half, "uinteger": half}
            return
        # NumPy makes the block that holds the last number before the position, so that its buffer is NumPy's.
        block, last = divmod(self._used + position - 1, _BLOCK)
        self._bits.state = self._before(block)
        self._bits.random_raw(last + 1)
        self._bits.state = {**self._bits.state, "has_uint32": has_half, "uinteger": half}

    def _before(self, block: int) -> dict[str, Any]:
        """Return the state of which the next number is the first one of a block; the present block is number 0."""
        counter = (self._counter + block - 1) % (1 << 256)
        words = np.array([counter >> 64 * k & _WORD for k in range(4)], "uint64")
        return {**self._saved, "state": {**self._saved["state"], "counter": words}, "buffer_pos": _BLOCK}

    @property
    def is_consistent(self) -> bool:
        """Whether the numbers that are left in the buffer are those of the counter. A state may be set to others."""
        if self._used >= _BLOCK:
            return True
        self._bits.state = self._before(0)
        numbers = self._bits.random_raw(_BLOCK)
        self.restore()
        return bool((numbers[self._used :] == self._saved["buffer"][self._used :]).all())


def is_known(generator: Any) -> bool:
    """Return whether there are kernels for a Generator."""
    return isinstance(generator, np.random.Generator) and type(generator.bit_generator).__name__ in GENERATORS


def sequence_of(generator: np.random.Generator) -> RawSequence | None:
    """Return the sequence of a known Generator; None if its state is not a place in a sequence."""
    if type(generator.bit_generator).__name__ != "Philox":
        return Sequence128(generator)
    sequence = BlockSequence(generator)
    return sequence if sequence.is_consistent else None


def ziggurat_tables() -> np.ndarray:
    """Return the tables of the ziggurats of normal and exponential numbers, six times 256 words of 64 bits.

    For each: the widths of the layers as integers, the widths, the heights. They are NumPy's, as NUMBA has them.
    """
    from numba.np.random import _constants as tables  # loads NUMBA, which programs without a draw need not do

    names = ("ki_double", "wi_double", "fi_double", "ke_double", "we_double", "fe_double")
    return np.concatenate([np.asarray(getattr(tables, name)).view("uint64") for name in names])
