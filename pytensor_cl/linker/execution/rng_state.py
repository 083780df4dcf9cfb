"""Random generators that calls change in place: a call that fails, or that is repeated another way, sets them back."""

from collections.abc import Iterable, Sequence
from typing import Any

from pytensor_cl.linker.steps.host import Cell

__all__ = ["States", "restore_rng_states", "save_rng_states"]

States = Sequence[tuple[Any, Any]]


def save_rng_states(generators: Iterable[Cell]) -> States:
    """Return what `restore_rng_states` needs of the generators in some cells."""
    return [(cell[0], cell[0].bit_generator.state) for cell in generators]


def restore_rng_states(before: States) -> None:
    """Give generators the states that they had."""
    for generator, state in before:
        generator.bit_generator.state = state
