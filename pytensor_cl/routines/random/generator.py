"""NumPy's generators whose sequences can be entered anywhere: where they are, and how to go elsewhere."""

from typing import Any

import numpy as np

__all__ = ["GENERATORS", "Sequence128", "ziggurat_tables"]

GENERATORS = {"PCG64": "pcg64", "PCG64DXSM": "pcg64dxsm"}
"""Names of bit generators, and what the kernels call them."""

_MULTIPLIERS = {"PCG64": 0x2360ED051FC65DA44385DF649FCCF645, "PCG64DXSM": 0xDA942042E4DD58B5}
_MODULUS = 1 << 128
_WORD = (1 << 64) - 1


def _halves(*numbers: int) -> tuple[np.uint64, ...]:
    """Return the high and the low half of each number of 128 bits."""
    return tuple(np.uint64(half) for n in numbers for half in (n >> 64, n & _WORD))


class Sequence128:
    """Where a Generator is in the sequence of its linear congruential generator of 128 bits.

    Positions count numbers of 64 bits from there.

    Parameters
    ----------
    generator
        Has a bit generator of `GENERATORS`.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self._bits: Any = generator.bit_generator
        self._saved: Any = self._bits.state
        self.name = GENERATORS[self._saved["bit_generator"]]
        self._state: int = self._saved["state"]["state"]
        self._increment: int = self._saved["state"]["inc"]
        self._powers = [(_MULTIPLIERS[self._saved["bit_generator"]], self._increment)]

    @staticmethod
    def is_known(generator: Any) -> bool:
        """Return whether there are kernels for a Generator."""
        return isinstance(generator, np.random.Generator) and type(generator.bit_generator).__name__ in GENERATORS

    @property
    def arguments(self) -> tuple[np.uint64, ...]:
        """State and increment, as kernels take them."""
        return _halves(self._state, self._increment)

    @property
    def pending(self) -> int | None:
        """The half of a number that the next draw of 32 bits takes; None if there is none."""
        return int(self._saved["uinteger"]) if self._saved["has_uint32"] else None

    def stride(self, steps: int) -> tuple[np.uint64, ...]:
        """Return m and c of the function ``m s + c`` that goes so many steps from a state s, as kernels take them."""
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

    def _set(self, state: int, has_half: int, half: int) -> None:
        inner = {"state": state, "inc": self._increment}
        self._bits.state = {**self._saved, "state": inner, "has_uint32": has_half, "uinteger": half}

    def go(self, position: int) -> None:
        """Set the Generator to a position; what is pending stays."""
        self._set(self._jumped(position), self._saved["has_uint32"], self._saved["uinteger"])

    def go_to_half(self, word: int) -> None:
        """Set the Generator to a half of a number: -1 is the pending one, 0 the low half of the first number."""
        if word < 0:
            self.restore()
            return
        self._set(self._jumped(word >> 1), 0, 0)
        if word & 1:
            number = int(self._bits.random_raw())
            self._set(self._jumped((word >> 1) + 1), 1, number >> 32)

    def restore(self) -> None:
        """Set the Generator back."""
        self._bits.state = self._saved


def ziggurat_tables() -> np.ndarray:
    """Return the tables of the ziggurats of normal and exponential numbers, six times 256 words of 64 bits.

    For each: the widths of the layers as integers, the widths, the heights. They are NumPy's, as NUMBA has them.
    """
    from numba.np.random import _constants as tables  # loads NUMBA, which programs without a draw need not do

    names = ("ki_double", "wi_double", "fi_double", "ke_double", "we_double", "fe_double")
    return np.concatenate([np.asarray(getattr(tables, name)).view("uint64") for name in names])
