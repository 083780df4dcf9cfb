"""Transforms of small convolutions to products, after Toom and Cook: exact matrices, and C that applies them."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from math import prod
from typing import NamedTuple

from pytensor_cl.codegen.dtypes import literal

Matrix = tuple[tuple[Fraction, ...], ...]
Code = tuple[int, tuple[str, ...], tuple[str, ...]]  # length of the column, statements, an expression for each result


class Transforms(NamedTuple):
    """Matrices with ``y = outputs @ ((filters @ g) * (inputs @ d))``: y[j] is the sum over k of g[k] * d[j + k]."""

    outputs: Matrix
    filters: Matrix
    inputs: Matrix


def _times(roots: Sequence[Fraction]) -> list[Fraction]:
    """Coefficients of the monic polynomial with these roots, from that of degree zero on."""
    coefficients = [Fraction(1)]
    for root in roots:
        coefficients = [
            a - root * b for a, b in zip([Fraction(0), *coefficients], [*coefficients, Fraction(0)], strict=True)
        ]
    return coefficients


def transforms(count: int, taps: int, points: Sequence[Fraction]) -> Transforms:
    """Return the transforms for `count` neighbouring elements of a correlation with `taps` taps.

    d and g are evaluated as polynomials at the points and at infinity, which is the transposed algorithm of Toom and
    Cook; as many products are left as there are elements of d.

    `count`, `taps`: lengths of y and of g; `points`: ``count + taps - 2`` different numbers. Small ones, of which none
    is much nearer to zero than the others, keep rounding errors small.
    """
    others = [[q for q in points if q != p] for p in points]
    scales = [prod(p - q for q in rest) for p, rest in zip(points, others, strict=True)]
    output = [*(_powers(p, count) for p in points), _last(count)]
    filters = [*(tuple(v / s for v in _powers(p, taps)) for p, s in zip(points, scales, strict=True)), _last(taps)]
    inputs = [*((*_times(rest), Fraction(0)) for rest in others), tuple(_times(points))]
    return Transforms(tuple(zip(*output, strict=True)), tuple(filters), tuple(inputs))


def _powers(base: Fraction, count: int) -> tuple[Fraction, ...]:
    return tuple(base**n for n in range(count))


def _last(count: int) -> tuple[Fraction, ...]:
    """Return the value at the point at infinity: the highest of `count` coefficients."""
    return tuple(Fraction(n == count - 1) for n in range(count))


def _differ_in_signs(a: Sequence[Fraction], b: Sequence[Fraction]) -> bool:
    """Return whether two rows differ in the signs of some elements, and in nothing else."""
    return list(map(abs, a)) == list(map(abs, b)) and a != b


def _pairs(rows: Sequence[Sequence[Fraction]]) -> list[tuple[int, int]]:
    """Return pairs of rows that are opposed; none is in two of them."""
    pairs: list[tuple[int, int]] = []
    for i, j in combinations(range(len(rows)), 2):
        if _differ_in_signs(rows[i], rows[j]) and not {i, j} & {n for pair in pairs for n in pair}:
            pairs.append((i, j))
    return pairs


def _sum(row: Sequence[Fraction], names: Sequence[str], dtype: str) -> str:
    """Return an expression for the product of a row and the named column."""
    terms = [
        name if a == 1 else f"{literal(float(a), dtype)} * {name}" for a, name in zip(row, names, strict=True) if a != 0
    ]
    return " + ".join(terms) or literal(0, dtype)


def code(matrix: Matrix, dtype: str, ctype: str) -> Code:
    """Return C that multiplies the matrix by a column ``x0``, ``x1``, ...

    Where columns, or rows, are the same but for signs, what they share is computed once.

    `ctype`: type of the column's elements; may be a vector type.
    """
    columns = list(zip(*matrix, strict=True))
    names, lines = [f"x{i}" for i in range(len(columns))], []
    for i, j in _pairs(columns):
        lines.append(f"const {ctype} s{i} = x{i} + x{j}, d{i} = x{i} - x{j};")
        names[i], names[j] = f"s{i}", f"d{i}"
        same = tuple(a if a == b else Fraction(0) for a, b in zip(columns[i], columns[j], strict=True))
        columns[j] = tuple(a - b for a, b in zip(columns[i], same, strict=True))
        columns[i] = same
    rows = list(zip(*columns, strict=True))
    results = [_sum(row, names, dtype) for row in rows]
    for i, j in _pairs(rows):
        same = tuple(a if a == b else Fraction(0) for a, b in zip(rows[i], rows[j], strict=True))
        rest = tuple(a - b for a, b in zip(rows[i], same, strict=True))
        lines.append(f"const {ctype} e{i} = {_sum(same, names, dtype)}, o{i} = {_sum(rest, names, dtype)};")
        results[i], results[j] = f"e{i} + o{i}", f"e{i} - o{i}"
    return len(columns), tuple(lines), tuple(results)
