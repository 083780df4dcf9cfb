"""Results of each epoch of a training."""

import math
from collections.abc import Iterator, Mapping
from typing import Any


class History:
    """The results of each epoch, in order.

    ``history["loss"]`` is the list of an epoch's values by name; ``val_loss`` is that of the validation data. A value
    that an epoch does not have is NaN. ``history.epochs`` is the list of dicts, with ``"epoch"``, counted from 1, and
    ``"steps"``, the number of steps done at its end.

    Attributes
    ----------
    epochs
        A dict of results for each epoch.
    """

    def __init__(self, epochs: list[dict[str, Any]] | None = None) -> None:
        self.epochs: list[dict[str, Any]] = list(epochs or [])

    @property
    def names(self) -> list[str]:
        """The names of all results, in the order in which they came."""
        return list(dict.fromkeys(name for row in self.epochs for name in row))

    def __getitem__(self, name: str) -> list[Any]:
        if name not in self.names:
            raise KeyError(f"{name!r}; there are {', '.join(self.names) or 'no results'}")
        return [row.get(name, math.nan) for row in self.epochs]

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.epochs)

    def __len__(self) -> int:
        return len(self.epochs)

    def __repr__(self) -> str:
        last = ", ".join(f"{name} {_short(value)}" for name, value in (self.epochs[-1] if self.epochs else {}).items())
        return f"History({len(self)} epochs{'; ' if last else ''}{last})"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
