"""Names of Ops for reports, graphs and error messages: short ones, and full ones on request."""

import re
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from pytensor import scalar as ps

WIDEST = 60
"""Characters of a short name."""
_ROOM = 36  # characters of a list of names inside of a short name
_EXPRESSION = 32  # characters of an expression that a short name holds; of a longer one it lists the functions

Show = Callable[[Sequence[str]], str]
"""The function that joins names: `listed` for a short name, `", ".join` for a full one."""

# Parameters that say how something is computed, not what.
_INTERNAL = re.compile(
    r"(?:, )?\b(?:(?:no_)?inplace(?:=\w+)?|(?:overwrite_\w+|acc|acc_dtype|destructive|b_ndim|check_finite)=\w+)"
)


def listed(names: Sequence[str]) -> str:
    """Return the first names of a list and the number of the others; equal names in a row are one."""
    runs = [(name, len(list(run))) for name, run in groupby(names)]
    texts = [name if count == 1 else f"{name} x{count}" for name, count in runs]
    if len(", ".join(texts)) <= _ROOM:
        return ", ".join(texts)
    kept = len(texts)
    while kept and len(", ".join(texts[:kept])) > _ROOM - 5:
        kept -= 1
    left_out = sum(count for _, count in runs[kept:])
    return ", ".join([*texts[:kept], f"+{left_out}"]) if kept else f"{left_out} functions"


def _without_internals(text: str) -> str:
    return _INTERNAL.sub("", text).replace("{, ", "{").replace("{}", "")


def cut(text: str, widest: int = WIDEST) -> str:
    """Return a text of at most `widest` characters."""
    return text if len(text) <= widest else f"{text[: widest - 3]}..."


def scalar_op_names(op: ps.ScalarOp) -> list[str]:
    """Return the names of the scalar Ops that an Op consists of."""
    if isinstance(op, ps.Composite):
        return [name for n in op.fgraph.toposort() for name in scalar_op_names(n.op)]
    return [str(op)]


def host_name(op: Any, show: Show) -> str:
    """Return the name of a host Op: PyTensor's, without what says how it is computed if the name is short."""
    text = str(op)
    scalar_op = op if isinstance(op, ps.Composite) else getattr(op, "scalar_op", None)
    if isinstance(scalar_op, ps.Composite):
        is_long = show is listed and len(text) > _EXPRESSION + len("Composite{}")
        if is_long or text == "Composite{...}":  # PyTensor's text of a large one
            return f"Composite{{{show(scalar_op_names(scalar_op))}}}"
    return _without_internals(text) if show is listed else text


def name_of(op: Any, show: Show = listed) -> str:
    """Return the name of a device Op or a host Op, the short one unless `show` says otherwise."""
    named = getattr(op, "named", None)
    return named(show) if callable(named) else host_name(op, show)


def short_name(op: Any) -> str:
    """Return what an Op is and computes, in at most 60 characters."""
    return cut(name_of(op))


def full_name(op: Any) -> str:
    """Return the name of an Op with all functions and parameters."""
    return name_of(op, ", ".join)


def before_transfers(variable: Any) -> Any:
    """Return the variable whose value transfers have brought, if it has no name of its own."""
    while not variable.name and getattr(getattr(variable.owner, "op", None), "is_transfer", False):
        variable = variable.owner.inputs[0]
    return variable


def variable_name(variable: Any) -> str:
    """Return the name of a variable, or that of the Op which computes it, with its number if there are several."""
    variable = before_transfers(variable)
    if variable.name:
        return cut(variable.name)
    owner = variable.owner
    if owner is None:
        return cut(str(variable))
    name = short_name(owner.op)
    return name if len(owner.outputs) == 1 else f"{name}.{owner.outputs.index(variable)}"
