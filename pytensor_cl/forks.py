"""Functions that run when a process forks; Windows has no forks."""

import os
from collections.abc import Callable
from typing import Any


def at_fork(**functions: Callable[[], Any]) -> None:
    """Register functions as `os.register_at_fork` does, where processes can fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**functions)
