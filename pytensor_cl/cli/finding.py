"""One line of a report."""

from typing import NamedTuple


class Finding(NamedTuple):
    """The result of one check."""

    status: str  # ``"ok"``, ``"warn"`` or ``"FAIL"``
    subject: str  # the thing
    text: str
    value: float | None = None  # a measured number, for JSON
