"""Numbers of a model whose log densities are the same function of other constants: one vector has all of them."""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.variable import TensorVariable


class Block(NamedTuple):
    """A value variable, or several numbers that follow each other and whose terms of the density are one."""

    start: int
    stop: int
    vector: TensorVariable | None


class _Term(NamedTuple):
    """The log density of a number, what it is a function of, and the numbers in it that may differ."""

    graph: TensorVariable
    value: Variable
    form: Hashable
    constants: list[Constant]


def join_numbers(
    values: Sequence[Variable], terms: Sequence[TensorVariable]
) -> tuple[list[Block], list[TensorVariable]]:
    """Replace terms of one form by a term of a vector.

    A model of a hundred named numbers then has as many nodes as one of a vector.
    """
    described = [_describe(value, term) for value, term in zip(values, terms, strict=True)]
    blocks: list[Block] = []
    result: list[TensorVariable] = []
    while (start := blocks[-1].stop if blocks else 0) < len(values):
        members = _same_form(described[start:])
        if len(members) > 1:
            name, dtype = f"joint_{values[start].name}", values[start].type.dtype
            vector = pt.tensor(name, dtype=dtype, shape=(len(members),))
            blocks.append(Block(start, start + len(members), vector))
            result.append(_of_vector(members, vector).sum())
        else:
            blocks.append(Block(start, start + 1, None))
            result.append(terms[start].sum())
    return blocks, result


def _same_form(terms: Sequence[_Term | None]) -> list[_Term]:
    """Return the first terms that have one form."""
    found: list[_Term] = []
    for term in terms:
        if term is None or (found and term.form != found[0].form):
            break
        found.append(term)
    return found


def _of_vector(terms: Sequence[_Term], vector: TensorVariable) -> TensorVariable:
    """Return the terms as one vector."""
    replaced: dict[Variable, Variable] = {terms[0].value: vector}
    for constants in zip(*(term.constants for term in terms), strict=True):
        data = np.stack([constant.data for constant in constants])
        if (data != data[0]).any():
            replaced[constants[0]] = pt.constant(data)
    (joined,) = vectorize_graph([terms[0].graph], replaced)
    return joined


def _describe(value: Variable, term: TensorVariable) -> _Term | None:
    """Return the form of a term; None if it is not the term of a number, or does not depend on it."""
    if value.type.ndim or term.type.ndim:
        return None
    codes: dict[Variable, Hashable] = {value: "value"}
    constants: dict[Constant, None] = {}
    form: list[Hashable] = [value.type]
    nodes = io_toposort([], [term])
    for number, node in enumerate(nodes):
        for variable in node.inputs:
            if variable not in codes:
                codes[variable] = _code(variable, isinstance(node.op, Elemwise), constants)
        form.append((node.op, *(codes[variable] for variable in node.inputs)))
        codes.update((variable, (number, k)) for k, variable in enumerate(node.outputs))
    if not any(value in node.inputs for node in nodes):
        return None
    return _Term(term, value, (*form, codes[term]), list(constants))


def _code(variable: Variable, is_elementwise: bool, constants: dict[Constant, None]) -> Hashable:
    """Return what inputs of two graphs must have in common."""
    same: Hashable = variable
    if not isinstance(variable, Constant):
        return same
    if is_elementwise and variable.type.ndim == 0 and variable not in constants:
        constants[variable] = None
        # PyTensor gives a constant the smallest dtype that has its value: 0.5 and 0.1 have different ones.
        return "number", np.dtype(variable.type.dtype).kind, len(constants)
    signature: Hashable = variable.signature()
    return signature
