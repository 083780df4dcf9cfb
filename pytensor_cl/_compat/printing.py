"""Colours of device Ops in PyTensor's pictures: `pytensor.printing.pydotprint` and `pytensor.d3viz`.

Both have a table of colours by parts of the names of Op classes, of which the last that fits counts. That of d3viz is
made for each formatter.
"""

from functools import wraps
from typing import Any

from pytensor import printing
from pytensor.d3viz.formatting import PyDotFormatter


def register_colours(colours: dict[str, str]) -> None:
    """Add colours to both tables: a part of the names of Op classes -> a colour. The function can be called again."""
    for name in colours:
        printing.default_colorCodes.pop(name, None)  # so that it comes last
    printing.default_colorCodes.update(colours)
    original = getattr(PyDotFormatter.__init__, "__wrapped__", PyDotFormatter.__init__)

    @wraps(original)
    def initialise(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.apply_colors.update(colours)

    PyDotFormatter.__init__ = initialise
