"""One line of a report."""

from typing import NamedTuple

__all__ = ["Finding"]


class Finding(NamedTuple):
    """The result of one check.

    Attributes
    ----------
    status
        ``"ok"``, ``"warn"`` or ``"FAIL"``.
    subject
        The thing.
    text
        What there is to say.
    value
        A measured number, for JSON.
    """

    status: str
    subject: str
    text: str
    value: float | None = None
