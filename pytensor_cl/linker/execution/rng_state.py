"""Random generators that calls change in place. A call that fails, or that runs again, restores their states."""

from collections.abc import Iterable, Sequence
from typing import Any

from pytensor_cl.linker.types import Cell

__all__ = ["RngStates", "restore_rng_states", "save_rng_states"]

RngStates = Sequence[tuple[Any, Any]]


def save_rng_states(generators: Iterable[Cell]) -> RngStates:
    """Return the generators in some cells, and their states."""
    return [(cell[0], cell[0].bit_generator.state) for cell in generators]


def restore_rng_states(states: RngStates) -> None:
    """Set generators to the states that `save_rng_states` has returned."""
    for generator, state in states:
        generator.bit_generator.state = state
