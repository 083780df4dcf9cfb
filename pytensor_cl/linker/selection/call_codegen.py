"""The function that runs a call of `SelectingVM`, generated for the number of its arguments.

A call of one small node takes a microsecond by the C backend. A loop over the arguments, or one more Python function,
would add a tenth of that. So the text below is filled in and compiled once for each function. For a function of a
vector and a matrix it reads::

    def call():
        nonlocal stats, s0, s1
        if (
            type(v := c0[0]) is not ndarray or len(v) != s0
            or type(v := c1[0]) is not ndarray or v.shape != s1
        ):
            found = find_stats()
            if found is None:
                return run_without_selection()
            stats = found
            s0 = len(c0[0])
            s1 = c1[0].shape
        stats.calls_left = left = stats.calls_left - 1
        if left < 0:
            results = run_slowly(stats)
        else:
            ...run the present backend
        return results

`c0` and `c1` are the storage cells of the arguments; `s0` and `s1` are their shapes in the last call.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.linker.types import Cell
from pytensor_cl.sharedvar import DeviceCell

_CALL = """
def make(find_stats, run_slowly, run_after_failure, run_without_selection, ndarray, get_item, {cells}):
    stats = None
    {initial_shapes}
    def call():
        nonlocal {state}
        if {is_other_signature}:
            found = find_stats()
            if found is None:
                return run_without_selection()
            stats = found
            {note_shapes}
        stats.calls_left = left = stats.calls_left - 1
        if left < 0{or_needs_host_arrays}:
            results = run_slowly(stats)
        else:
            try:
                results = stats.run()
            except Exception as error:
                failure = error
            else:
                {empty_cells}
                return results
            try:
                results = run_after_failure(stats, failure)  # outside the except clause: its error has no context
            finally:
                failure = None
        {empty_cells}
        return results
    return call
"""

_WITH_HOST_ARRAYS = """
def make(run, run_with_copies, ndarray, {cells}):
    def with_host_arrays():
        return run_with_copies() if {needs_host_arrays} else run()
    return with_host_arrays
"""


class SlowPaths(NamedTuple):
    """The rare cases of a call that generated code hands to the virtual machine."""

    find_stats: Callable[[], Any]
    """Returns the statistics of the arguments' signature; None if an argument has no shape."""
    run_slowly: Callable[[Any], list[Any]]
    """Runs a call that belongs to a comparison, or that has values which compiled code cannot read."""
    run_after_failure: Callable[[Any, Exception], list[Any]]
    """Runs a call again that has failed on the present backend, or raises the error."""
    run_without_selection: Callable[[], list[Any]]
    """Runs a call whose arguments have no signature."""


def compile_call(
    paths: SlowPaths,
    distinguishing: Sequence[tuple[Cell, int]],
    emptied: Sequence[Cell],
    host_array_cells: Sequence[Cell] = (),
    context_name: str = "",
) -> Callable[[], list[Any]]:
    """Return the function that runs a call.

    `distinguishing` are the cells of the arguments that make the signature, with their numbers of dimensions; `emptied`
    are empty after each call; compiled code of the host reads `host_array_cells`, see `with_host_arrays`. The device
    of the context may hold copies of shared variables, which have the shape too.
    """
    cells = {f"c{i}": getattr(cell, "shared", cell) for i, (cell, _) in enumerate(distinguishing)}
    cells |= {f"d{i}": cell for i, cell in enumerate(emptied)}
    cells |= {f"e{i}": cell for i, cell in enumerate(host_array_cells)}
    differs = ["stats is None"] if not distinguishing else []
    note = []
    for i, (cell, ndim) in enumerate(distinguishing):
        # The length of a vector takes half as long as its shape.
        if type(cell) is not list:
            on_device = f"a.layout.shape if (a := c{i}.devices.get({context_name!r})) is not None"
            # No variable may hold the array: the device copy of an array that other code refers to is not kept.
            on_host = f"get_item(c{i}, 0).shape if type(get_item(c{i}, 0)) is ndarray"
            differs.append(f"({on_device} else {on_host} else c{i}.anywhere().shape) != s{i}")
            note.append(f"s{i} = c{i}.anywhere().shape")
        elif ndim == 1:
            differs.append(f"type(v := c{i}[0]) is not ndarray or len(v) != s{i}")
            note.append(f"s{i} = len(c{i}[0])")
        else:
            differs.append(f"type(v := c{i}[0]) is not ndarray or v.shape != s{i}")
            note.append(f"s{i} = c{i}[0].shape")
    shapes = [f"s{i}" for i in range(len(distinguishing))]
    tests = _needs_host_array(host_array_cells)
    text = _CALL.format(
        cells=", ".join(cells),
        initial_shapes=" = ".join([*shapes, "None"]),
        state=", ".join(["stats", *shapes]),
        is_other_signature=" or ".join(differs),
        note_shapes="; ".join(note) or "pass",
        or_needs_host_arrays=f" or not stats.is_on_device and ({' or '.join(tests)})" if tests else "",
        empty_cells="".join(f"d{i}[0] = " for i in range(len(emptied))) + "None",
    )
    return _compiled(text)(*paths, np.ndarray, list.__getitem__, *cells.values())


def with_host_arrays(run: Callable[[], list[Any]], cells: Sequence[Cell]) -> Callable[[], list[Any]]:
    """Return a function that runs with a NumPy array in each cell, as compiled code of the host reads it.

    Arguments may be NumPy scalars or have another byte order, and shared variables may be on a device.
    """

    def run_with_copies() -> list[Any]:
        held = [_put_host_array(cell) for cell in cells]
        try:
            return run()
        finally:
            for cell, value in zip(cells, held, strict=True):
                if isinstance(cell, DeviceCell):
                    cell.restore(value)

    names = ", ".join(f"e{i}" for i in range(len(cells)))
    text = _WITH_HOST_ARRAYS.format(cells=names, needs_host_arrays=" or ".join(_needs_host_array(cells)))
    return _compiled(text)(run, run_with_copies, np.ndarray, *cells)


def _needs_host_array(cells: Sequence[Cell]) -> list[str]:
    """Return for each cell the test whether compiled code cannot read its value as it is."""
    return [
        f"e{i}.devices"
        if isinstance(cell, DeviceCell)
        else f"type(v := e{i}[0]) is not ndarray or not v.dtype.isnative"
        for i, cell in enumerate(cells)
    ]


def _put_host_array(cell: Cell) -> Any:
    if isinstance(cell, DeviceCell):
        return cell.expose()
    value = np.asarray(cell[0])
    cell[0] = value.astype(value.dtype.newbyteorder("="), copy=False)
    return None


def _compiled(text: str) -> Callable[..., Any]:
    namespace: dict[str, Any] = {}
    exec(compile(text, __file__, "exec"), namespace)
    return namespace["make"]
