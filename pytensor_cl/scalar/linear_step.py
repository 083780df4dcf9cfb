"""One step of a loop as an affine map of the states: its coefficients as OpenCL C.

Values of the step are carried through its operations as *forms*: a part without states, and a coefficient for each
state. Operations on forms are exact algebra on these parts, such as ``(b + a x) c = b c + (a c) x``, so a coefficient
has the rounding errors of its own operations only. A state whose square is such a map of squares, as the volatility of a GARCH process, is a `Root`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from pytensor import scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.tensor.math import Argmax

from pytensor_cl.codegen.emitter import Emitter, Value
from pytensor_cl.scalar.unrolled import MOST_STATEMENTS, Axes, CannotUnroll, Cells, Rule, Unroller

FLOATS = ("float32", "float64")


class Form:
    """A sum of a part without states and of products of states and coefficients.

    `base`: the part without states, None if it is zero; `terms`: coefficients by the number of the state, None of them
    for what is no such sum; a coefficient None is one.
    """

    def __init__(self, dtype: str, base: Value | None, terms: Mapping[int, Value | None] | None) -> None:
        self.dtype = dtype
        self.base = base
        self.terms = terms


class Root(Form):
    """A square root of a form, or a state that is one, with either sign: its square is a form, and nothing else is."""

    def __init__(self, square: Form) -> None:
        super().__init__(square.dtype, None, None)
        self.square = square


class _LinearUnroller(Unroller):
    """Writes the nodes of a graph whose values may be forms."""

    def scalar(self, op: ps.ScalarOp, values: Sequence[Any], dtypes: Sequence[str]) -> tuple[Any, ...]:
        if not any(isinstance(v, Form) for v in values):
            return super().scalar(op, values, dtypes)
        if isinstance(op, ps.Sqr) and isinstance(values[0], Root) and values[0].dtype == dtypes[0]:
            return (values[0].square,)
        rule = _SCALAR_RULES.get(type(op))
        is_known = all(v.terms is not None for v in values if isinstance(v, Form))
        found = rule(self, values, dtypes[0]) if rule and is_known and dtypes[0] in FLOATS else None
        return (found,) if found else tuple(Form(dtype, None, None) for dtype in dtypes)

    def cast(self, value: Any, dtype: str) -> Any:
        return self._cast(value, dtype) if isinstance(value, Form) else super().cast(value, dtype)

    def multiply_add(self, x: Any, y: Any, total: Any) -> Any:
        if not any(isinstance(v, Form) for v in (x, y, total)):
            return super().multiply_add(x, y, total)
        (product,) = self.scalar(ps.mul, (x, y), [x.dtype])
        return product if total is None else self.scalar(ps.add, (product, total), [x.dtype])[0]

    @staticmethod
    def _rule(op: Op) -> Rule:
        return _argmax if isinstance(op, Argmax) else Unroller._rule(op)

    def _cast(self, form: Form, dtype: str) -> Form:
        if dtype not in FLOATS or form.dtype not in FLOATS or form.terms is None:
            return Form(dtype, None, None)
        return self.mapped(form, dtype, lambda value: super(_LinearUnroller, self).cast(value, dtype))

    def mapped(self, form: Form, dtype: str, change: Callable[[Value], Value], of_one: Value | None = None) -> Form:
        """Apply a linear function to all parts of a form; `of_one` is its value at one, if that is not one."""
        assert form.terms is not None
        terms = {k: of_one if c is None else change(c) for k, c in form.terms.items()}
        return Form(dtype, None if form.base is None else change(form.base), terms)

    def form(self, value: Any, dtype: str) -> Form:
        """Return a value in the dtype of an output as a form."""
        value = self.cast(value, dtype)
        return value if isinstance(value, Form) else Form(dtype, value, {})


def _argmax(run: Unroller, node: Apply) -> list[Cells]:
    if any(isinstance(value, Form) for value in run.cells(node.inputs[0]).values.flat):
        raise CannotUnroll("a step compares its states")
    return Unroller._rule(node.op)(run, node)


ScalarRule = Callable[[_LinearUnroller, Sequence[Any], str], Form | None]


def _sum(run: _LinearUnroller, op: ps.ScalarOp, x: Value | None, y: Value | None, dtype: str) -> Value | None:
    if x is None or y is None:
        return y if x is None else x
    return run.scalar(op, (x, y), [dtype])[0]


def _add(run: _LinearUnroller, values: Sequence[Any], dtype: str) -> Form:
    first, *others = (run.form(value, dtype) for value in values)
    one = run.emitter.literal(1, dtype)
    for other in others:
        assert first.terms is not None and other.terms is not None
        terms = dict(first.terms)
        for k, c in other.terms.items():
            terms[k] = c if k not in terms else _sum(run, ps.add, terms[k] or one, c or one, dtype)
        first = Form(dtype, _sum(run, ps.add, first.base, other.base, dtype), terms)
    return first


def _neg(run: _LinearUnroller, values: Sequence[Any], dtype: str) -> Form:
    form = run.form(values[0], dtype)
    return run.mapped(form, dtype, lambda v: run.scalar(ps.neg, (v,), [dtype])[0], run.emitter.literal(-1, dtype))


def _sub(run: _LinearUnroller, values: Sequence[Any], dtype: str) -> Form:
    return _add(run, (values[0], _neg(run, values[1:], dtype)), dtype)


def _mul(run: _LinearUnroller, values: Sequence[Any], dtype: str) -> Form | None:
    forms = [v for v in values if isinstance(v, Form)]
    if len(forms) != 1:
        return None
    form = run.form(forms[0], dtype)
    factors = [run.cast(v, dtype) for v in values if not isinstance(v, Form)]
    factor = run.scalar(ps.mul, factors, [dtype])[0] if len(factors) > 1 else factors[0]
    return run.mapped(form, dtype, lambda v: run.scalar(ps.mul, (v, factor), [dtype])[0], factor)


def _true_div(run: _LinearUnroller, values: Sequence[Any], dtype: str) -> Form | None:
    form, divisor = values
    if isinstance(divisor, Form):
        return None
    divisor = run.cast(divisor, dtype)
    one = run.emitter.literal(1, dtype)

    def divided(value: Value) -> Value:
        return run.scalar(ps.true_div, (value, divisor), [dtype])[0]

    return run.mapped(run.form(form, dtype), dtype, divided, divided(one))


def _switch(run: _LinearUnroller, values: Sequence[Any], dtype: str) -> Form | None:
    condition, *branches = values
    if isinstance(condition, Form):
        return None
    forms = [run.form(branch, dtype) for branch in branches]
    zero, one = run.emitter.literal(0, dtype), run.emitter.literal(1, dtype)

    def chosen(parts: Sequence[Value]) -> Value:
        return run.scalar(ps.switch, (condition, *parts), [dtype])[0]

    numbers = sorted(set().union(*(form.terms or () for form in forms)))
    terms = {k: chosen([(form.terms or {}).get(k, zero) or one for form in forms]) for k in numbers}
    return Form(dtype, chosen([form.base or zero for form in forms]), terms)


def _sqrt(run: _LinearUnroller, values: Sequence[Any], dtype: str) -> Form:
    return Root(run.form(values[0], dtype))


def _same(run: _LinearUnroller, values: Sequence[Any], dtype: str) -> Form | None:
    form = run.cast(values[-1], dtype)
    return form if isinstance(form, Form) else Form(dtype, form, {})


_SCALAR_RULES: dict[type[ps.ScalarOp], ScalarRule] = {
    ps.Add: _add,
    ps.Cast: _same,
    ps.Identity: _same,
    ps.Mul: _mul,
    ps.Neg: _neg,
    ps.Second: _same,
    ps.Sqrt: _sqrt,
    ps.Sub: _sub,
    ps.Switch: _switch,
    ps.TrueDiv: _true_div,
}


def unroll_forms(graph: FunctionGraph, inputs: Sequence[Cells], emitter: Emitter) -> list[Cells]:
    """Write a graph of tensors, of whose inputs some elements are forms, element by element; see `unroll`."""
    return _LinearUnroller(emitter, Axes(), MOST_STATEMENTS).run(graph, inputs)


def form_of(value: Any, dtype: str, emitter: Emitter, is_root: bool) -> Form | None:
    """Return a new state, or (`is_root`) its square, as a form; None if it is no affine function of the states."""
    if is_root:
        return value.square if isinstance(value, Root) else None
    form = _LinearUnroller(emitter, Axes(), MOST_STATEMENTS).form(value, dtype)
    return None if form.terms is None else form


def is_float(dtype: str) -> bool:
    """Return whether maps of this dtype are computed."""
    return np.dtype(dtype).name in FLOATS
