"""Statistics of the chains for adaptation, computed part by part where the chains are, and put together.

A part answers questions about its last state with numbers for each of its chains, or with moments of all of them.
Moments of parts are added in the order of the parts, so that they do not depend on where a part is.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

LEAST_STATES = 4
"""Fewest states of a chain that say something about where it moves."""


class Moments(NamedTuple):
    """Moments of some chains; differences are those from the mean of these chains."""

    chains: int
    mean: np.ndarray  # mean position; all arrays have the shape (parameters,)
    squares: np.ndarray  # sum of squared differences of positions
    slope_mean: np.ndarray  # mean gradient
    slope_squares: np.ndarray
    along: np.ndarray  # sum of differences of positions times their products with a direction; empty without one


def moments(positions: np.ndarray, gradients: np.ndarray, direction: np.ndarray | None) -> Moments:
    """Return the moments of positions and gradients of shape (chains, parameters)."""
    if not len(positions):
        zero = np.zeros(positions.shape[1])
        return Moments(0, zero, zero, zero, zero, zero[:0] if direction is None else zero)
    mean, slope_mean = positions.mean(axis=0), gradients.mean(axis=0)
    moved, slopes = positions - mean, gradients - slope_mean
    # Sums by einsum: those of a BLAS depend on its threads, of which each machine may have another number.
    along = mean[:0] if direction is None else np.einsum("i,ij->j", np.einsum("ij,j->i", moved, direction), moved)
    squares, slope_squares = (np.square(part, out=part).sum(axis=0) for part in (moved, slopes))
    return Moments(len(positions), mean, squares, slope_mean, slope_squares, along)


def combined(parts: Sequence[Moments], direction: np.ndarray | None = None) -> Moments:
    """Return the moments of all chains of several parts (Chan, Golub, LeVeque 1983)."""
    parts = [part for part in parts if part.chains] or list(parts[:1])
    first, *others = parts
    if not others:
        return first
    count = sum(part.chains for part in parts)
    mean = sum((part.chains * part.mean for part in others), first.chains * first.mean) / count
    slope_mean = sum((part.chains * part.slope_mean for part in others), first.chains * first.slope_mean) / count
    squares, slope_squares, along = (np.zeros_like(mean) for _ in range(3))
    for part in parts:
        moved = part.mean - mean
        squares += part.squares + part.chains * moved**2
        slope_squares += part.slope_squares + part.chains * (part.slope_mean - slope_mean) ** 2
        if direction is not None:
            along += part.along + (part.chains * np.einsum("i,i", moved, direction)) * moved
    return Moments(count, mean, squares, slope_mean, slope_squares, mean[:0] if direction is None else along)


def chain_squares(
    positions: np.ndarray, gradients: np.ndarray, centre: np.ndarray, inverse_mass: np.ndarray
) -> np.ndarray:
    """Return each chain's squared gradient and squared distance from a centre, in units of the mass matrix.

    The shape of the result is (2, chains).
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return np.stack(
            [
                np.einsum("ij,j->i", np.square(gradients), inverse_mass),
                np.einsum("ij,j->i", np.square(positions - centre), 1 / inverse_mass),
            ]
        )


def usual_deviations(deviations: np.ndarray) -> np.ndarray | None:
    """Return the median deviation of each parameter, over chains that move; None if none does."""
    moves = (deviations > 0).any(axis=1)
    return np.median(deviations[moves], axis=0) if moves.any() else None


def log_volumes(deviations: np.ndarray, usual: np.ndarray) -> np.ndarray:
    """Return for each chain the sum of the logarithms of its deviations."""
    # A parameter that no chain moves does not count.
    found: np.ndarray = np.log(np.maximum(deviations, 1e-10 * usual)[:, usual > 0]).sum(axis=1)
    return found


def mass_excess(deviations: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """Return by how much the logarithm of the mass of each chain's region is overestimated by deviations, at most.

    The volume of a distribution (the exponential of its entropy) is at most the volume of independent normal variables
    with the same deviations, and at least the volume of independent normal variables with the same root mean squared
    gradients (Stam's inequality).
    """
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        product = deviations * slopes
        logs = np.where(product > 0, np.log(product), 0.0)
    result: np.ndarray = np.maximum(logs.sum(axis=1), 0.0)
    return result


class Part:
    """The last state of some chains, and the sums of their states over a part of the warm-up."""

    def __init__(self) -> None:
        self._positions = self._gradients = np.zeros((0, 0))
        self.forget()

    def forget(self) -> None:
        """Begin another part of the warm-up."""
        self._count = 0
        self._origin = self._sums = self._log_density = np.zeros(0)

    def see(
        self, positions: np.ndarray, gradients: np.ndarray, log_density: np.ndarray, is_watched: bool = True
    ) -> None:
        """Take a state: questions are about it, and it is added to the sums if it is watched.

        Positions and gradients are float64, of shape (chains, parameters).
        """
        self._positions, self._gradients = positions, gradients
        if not is_watched:
            return
        if not self._count:
            self._origin = positions.copy()
            self._sums = np.zeros((3, *positions.shape))
            self._log_density = np.zeros(len(positions))
        self._count += 1
        moved = positions - self._origin
        self._sums[0] += moved
        self._sums[1] += np.square(moved, out=moved)
        with np.errstate(over="ignore"):
            self._sums[2] += gradients * gradients
        self._log_density += log_density

    def medians(self) -> np.ndarray:
        """Return the median position."""
        found: np.ndarray = np.median(self._positions, axis=0)
        return found

    def squares(self, centre: np.ndarray, inverse_mass: np.ndarray) -> np.ndarray:
        """Return numbers that say which chains are far outside (`chain_squares`)."""
        return chain_squares(self._positions, self._gradients, centre, inverse_mass)

    def moments(self, usual: np.ndarray | None, direction: np.ndarray | None) -> Moments:
        """Return the moments of the chains that a mask selects; None selects all."""
        positions, gradients = self._positions, self._gradients
        if usual is not None:
            positions, gradients = positions[usual], gradients[usual]
        return moments(positions, gradients, direction)

    def _deviations(self) -> np.ndarray:
        result: np.ndarray = np.sqrt(np.maximum(self._sums[1] / self._count - (self._sums[0] / self._count) ** 2, 0))
        return result

    def usual_deviations(self) -> np.ndarray | None:
        """Return the median deviation of each parameter; None if it is not known yet."""
        return None if self._count < LEAST_STATES else usual_deviations(self._deviations())

    def regions(self, usual: np.ndarray) -> np.ndarray:
        """Return four numbers for each chain, shape (4, chains).

        They are the mean log density, the logarithm of the volume of the region where it moves, by how much that is too
        large at most (`mass_excess`), and whether it moves.
        """
        deviations = self._deviations()
        excess = mass_excess(deviations, np.sqrt(self._sums[2] / self._count))
        moves = (deviations > 0).any(axis=1)
        return np.stack([self._log_density / self._count, log_volumes(deviations, usual), excess, moves])

    def state_dict(self) -> dict[str, Any]:
        """Return the sums; the last state belongs to one iteration."""
        arrays = {"origin": self._origin, "sums": self._sums, "log_density": self._log_density}
        return {"count": self._count, **{name: array.copy() for name, array in arrays.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take sums from `state_dict`."""
        self._count = state["count"]
        self._origin, self._sums, self._log_density = (
            np.array(state[name]) for name in ("origin", "sums", "log_density")
        )


class AnyParts(Protocol):
    """All parts of the chains, wherever they are."""

    def ask(self, question: str, *arguments: Any, masks: Sequence[Any] | None = None) -> list[Any]:
        """Return what each part's method of that name returns; `masks` has a first argument for each part."""

    def divided(self, mask: np.ndarray) -> list[np.ndarray | None]:
        """Return the piece of a mask of all chains for each part, None where it selects all chains."""

    def see(
        self, positions: np.ndarray, gradients: np.ndarray, log_density: np.ndarray, is_watched: bool = True
    ) -> None:
        """Give the parts a state (`Part.see`)."""

    def forget(self) -> None:
        """Begin another part of the warm-up (`Part.forget`)."""


class Parts:
    """Parts of equal size of chains of this process."""

    def __init__(self, number: int = 1) -> None:
        self._parts = [Part() for _ in range(number)]

    def see(
        self, positions: np.ndarray, gradients: np.ndarray, log_density: np.ndarray, is_watched: bool = True
    ) -> None:
        """Give the parts a state (`Part.see`)."""
        pieces = zip(*(np.split(a, len(self._parts)) for a in (positions, gradients, log_density)), strict=True)
        for part, (q, g, density) in zip(self._parts, pieces, strict=True):
            part.see(q, g, density, is_watched)

    def ask(self, question: str, *arguments: Any, masks: Sequence[Any] | None = None) -> list[Any]:
        """Return what each part's method of that name returns; `masks` has a first argument for each part."""
        own: Sequence[tuple[Any, ...]] = [()] * len(self._parts) if masks is None else [(mask,) for mask in masks]
        return [getattr(part, question)(*o, *arguments) for part, o in zip(self._parts, own, strict=True)]

    def divided(self, mask: np.ndarray) -> list[np.ndarray | None]:
        """Return the piece of a mask of all chains for each part, None where it selects all chains."""
        return divided(mask, len(self._parts))

    def forget(self) -> None:
        """Begin another part of the warm-up."""
        for part in self._parts:
            part.forget()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of each part."""
        return {"parts": [part.state_dict() for part in self._parts]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Give each part a state."""
        for part, saved in zip(self._parts, state["parts"], strict=True):
            part.load_state_dict(saved)


def divided(mask: np.ndarray, number: int) -> list[np.ndarray | None]:
    """Return a mask of all chains in pieces of equal size; None for one that selects all."""
    return [None if piece.all() else piece for piece in np.split(mask, number)]
