"""What runs a call of a function that has a choice, written for its number of arguments.

A call of one small node takes a microsecond, and each loop, each lookup of a name, and each function on the way to it a
twentieth of that. So this is text, compiled once for each function: sizes are compared with those of the last call, and
what is left is the call itself.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.linker.types import Cell
from pytensor_cl.sharedvar import DeviceCell

__all__ = ["SlowPaths", "generate", "with_arrays"]

_TEXT = """
def make(classify, otherwise, on_device, without_choice, ndarray, {names}):
    size = None
    {unknown}
    def call():
        nonlocal {state}
        try:
            is_other = {differs}
        except (AttributeError, TypeError):
            return without_choice()
        if is_other:
            found = classify()
            if found is None:
                return without_choice()
            size = found
            {note}
        size.left = left = size.left - 1
        if left < 0{doubts}:
            results = otherwise(size)
        else:
            try:
                results = size.run()
            except Exception:
                if size.is_on_device:
                    raise
            else:
                {drop}
                return results
            results = on_device()
        {drop}
        return results
    return call
"""

_WITH_ARRAYS = """
def make(run, exposed, ndarray, {names}):
    def with_arrays():
        return exposed() if {doubts} else run()
    return with_arrays
"""

_LENGTH = {True: "len(c{}[0])", False: "c{}[0].shape"}
"""Of a vector of NumPy's, and the shape of all else, which takes twice as long."""
_EXPOSED = {True: "e{}.devices", False: "type(e{}[0]) is not ndarray"}
"""Whether compiled code cannot read the value of a shared variable, or of an argument."""


class SlowPaths(NamedTuple):
    """What a call needs of the virtual machine.

    Attributes
    ----------
    classify
        Returns the class of the arguments' sizes; None if they have none.
    otherwise
        Runs a call of a class that is due to be timed, or that has what compiled code cannot read.
    on_device
        Repeats there a call that has failed elsewhere.
    without_choice
        Runs a call whose arguments have no sizes.
    """

    classify: Callable[[], Any]
    otherwise: Callable[[Any], list[Any]]
    on_device: Callable[[], list[Any]]
    without_choice: Callable[[], list[Any]]


def generate(
    hooks: SlowPaths, sized: Sequence[tuple[Cell, int]], dropped: Sequence[Cell], doubtful: Sequence[Cell] = ()
) -> Callable[[], list[Any]]:
    """Return what runs a call.

    Parameters
    ----------
    hooks
        Of the virtual machine.
    sized
        Cells of the arguments that tell sizes apart, and their numbers of dimensions.
    dropped
        Cells that are to be empty after a call.
    doubtful
        Cells that may hold what compiled code cannot read; see `with_arrays`.
    """
    cells = {f"c{i}": cell for i, (cell, _) in enumerate(sized)} | {f"d{i}": cell for i, cell in enumerate(dropped)}
    cells |= {f"e{i}": cell for i, cell in enumerate(doubtful)}
    last = [f"n{i}" for i in range(len(sized))]
    given = [_LENGTH[type(cell) is list and ndim == 1].format(i) for i, (cell, ndim) in enumerate(sized)]
    text = _TEXT.format(
        names=", ".join(cells),
        unknown="".join(f"{n} = " for n in last) + "-1",
        state=", ".join(["size", *last]),
        differs=" or ".join(f"{new} != {old}" for new, old in zip(given, last, strict=True)) or "size is None",
        note="; ".join(f"{old} = {new}" for new, old in zip(given, last, strict=True)) or "pass",
        doubts="".join(f" or {test}" for test in _tests(doubtful)),
        drop="".join(f"d{i}[0] = " for i in range(len(dropped))) + "None",
    )
    return _made(text)(*hooks, np.ndarray, *cells.values())


def with_arrays(run: Callable[[], list[Any]], cells: Sequence[Cell]) -> Callable[[], list[Any]]:
    """Return a function that runs with an array in each cell, as compiled code wants it.

    Parameters
    ----------
    run
        What wants it.
    cells
        Of arguments that may be numbers of NumPy's, and of shared variables that may be on a device.
    """

    def exposed() -> list[Any]:
        held = [_expose(cell) for cell in cells]
        try:
            return run()
        finally:
            for cell, value in zip(cells, held, strict=True):
                if isinstance(cell, DeviceCell):
                    cell.conceal(value)

    names = ", ".join(f"e{i}" for i in range(len(cells)))
    make = _made(_WITH_ARRAYS.format(names=names, doubts=" or ".join(_tests(cells))))
    return make(run, exposed, np.ndarray, *cells)


def _tests(cells: Sequence[Cell]) -> list[str]:
    return [_EXPOSED[isinstance(cell, DeviceCell)].format(i) for i, cell in enumerate(cells)]


def _made(text: str) -> Callable[..., Any]:
    space: dict[str, Any] = {}
    exec(compile(text, __file__, "exec"), space)
    return space["make"]


def _expose(cell: Cell) -> Any:
    if isinstance(cell, DeviceCell):
        return cell.expose()
    cell[0] = np.asarray(cell[0])
    return None
