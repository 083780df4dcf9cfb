"""Thunks of nodes that stay on the host.

A table chooses one of seven implementations. The scalar Op itself computes 0-d values. NUMBA compiles Ops whose
``perform`` would loop in Python; arithmetic of shapes only after some calls. IfElse, which has no ``perform``, and
copies are implemented here, and multinomial draws round their probabilities. All other Ops run their own ``perform``,
which calls NumPy or SciPy.
"""

import warnings
from collections.abc import Callable, Sequence
from contextvars import Context
from copy import deepcopy
from itertools import count
from typing import Any

import numpy as np
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.ops import DeepCopyOp
from pytensor.conditional.op import IfElse, LazyIfElse
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.scalar.basic import Composite
from pytensor.scan.op import Scan
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.basic import MultinomialRV

from pytensor_cl._compat.numba_backend import compile_node_with_numba, numba_unsupported_errors
from pytensor_cl.errors import NegativeStepsError
from pytensor_cl.linker.types import Cell, Thunk
from pytensor_cl.runtime.host_copy import LARGE, copy_by_device
from pytensor_cl.runtime.interrupts import reraising_interrupts

LOOPS: tuple[type[Op], ...] = (Elemwise, OpFromGraph, LazyIfElse)
"""Ops whose perform interprets a graph or calls a Python function for each element."""
INTERPRETED_ELEMENTS, INTERPRETED_CALLS = 64, 200
"""Largest arithmetic of shapes, in elements, that runs in Python first, and the number of its calls before NUMBA
compiles it. The first use of NUMBA takes a second, such a call 20 us."""
HOST_COPIES = 3
"""Copies of large arrays that NumPy makes before a kernel does: the kernel takes 0.1 s to build."""


def _function_of(scalar_op: Any, node: Apply) -> Callable[..., Any]:
    """Return NumPy's function for a scalar Op of floats, else its `impl`, which compares dtype names in each call.

    `node`: has the dtypes, of scalars or of arrays.
    """
    if isinstance(scalar_op, Composite):
        return _composite_function(scalar_op)
    name, *counts = getattr(scalar_op, "nfunc_spec", None) or ("", 0, 0)
    is_float = all(np.dtype(v.type.dtype).char in "fd" for v in (*node.inputs, *node.outputs))
    function = getattr(np, name, None) if is_float and counts == [len(node.inputs), 1] else None
    return function or scalar_op.impl


def _composite_function(composite: Composite) -> Callable[..., Any]:
    """Return a function of NumPy scalars: 1 us for each Op of the composite, where its `impl` takes 7."""
    graph = composite.fgraph
    if any(len(node.outputs) > 1 for node in graph.apply_nodes):
        return composite.impl
    places = {v: k for k, v in enumerate(graph.inputs)}
    constants: list[Any] = []
    steps = []
    nodes = graph.toposort()
    for variable in (*graph.outputs, *(v for n in nodes for v in n.inputs)):
        if variable.owner is None and variable not in places:
            places[variable] = len(graph.inputs) + len(constants)
            constants.append(np.dtype(variable.type.dtype).type(variable.data))
    for number, node in enumerate(nodes, len(graph.inputs) + len(constants)):
        (out,) = node.outputs
        where = [places[v] for v in node.inputs]
        steps.append((_function_of(node.op, node), where, np.dtype(out.type.dtype).type))
        places[out] = number  # results of equal nodes are equal variables
    results = [places[v] for v in graph.outputs]

    def function(*inputs: Any) -> Any:
        values = [*inputs, *constants]
        for step, where, kind in steps:
            value = step(*[values[k] for k in where])
            values.append(value if type(value) is kind else np.asarray(value).astype(kind)[()])
        found = [values[k] for k in results]
        return found if len(found) > 1 else found[0]

    return function


def _without_warnings() -> Context:
    """Return a context in which NumPy does not warn of numbers.

    Kernels, NUMBA and C do not, and whether a number is computed by one of them or by NumPy is not the user's choice.
    To enter it takes 0.1 us, and `np.errstate` 1 us, as long as the arithmetic.
    """
    context = Context()
    context.run(np.seterr, all="ignore")
    return context


def _scalar_thunk(node: Apply, inputs: Sequence[Cell], outputs: Sequence[Cell]) -> Thunk:
    """Call the scalar Op on NumPy scalars: 1 us where Elemwise.perform takes 26."""
    scalar_op = node.op.scalar_op
    dtypes = [v.type.numpy_dtype for v in node.outputs]
    impl = _function_of(scalar_op, node)
    scalar_op.prepare_node(scalar_op.make_node(*(v.type.to_scalar_type()() for v in node.inputs)), None, None, "py")
    cell, dtype = outputs[0], dtypes[0]

    def one() -> None:
        cell[0] = np.asarray(impl(*[c[0][()] for c in inputs]), dtype=dtype)

    def several() -> None:
        values = impl(*[c[0][()] for c in inputs])
        for out, value, kind in zip(outputs, values, dtypes, strict=True):
            out[0] = np.asarray(value, dtype=kind)

    compute = one if len(dtypes) == 1 else several
    quiet = _without_warnings()

    def run() -> None:
        try:
            quiet.run(compute)
        except TypeError:  # PyTensor's softplus takes Python's numbers, which `perform` passes, but no int8 of NumPy
            quiet.run(_perform_thunk(node, inputs, outputs))

    return run


def _in_native_order(value: Any) -> Any:
    """Return an array in the machine's byte order: NUMBA's code reads an argument of a trusting function as it is."""
    if not isinstance(value, np.ndarray) or value.dtype.isnative:
        return value
    return value.astype(value.dtype.newbyteorder("="))


class _LazyNumbaThunk:
    """Compiles its node with NUMBA when that saves time. Calls ``perform`` before, and if NUMBA cannot compile it."""

    def __init__(self, node: Apply, inputs: Sequence[Cell], outputs: Sequence[Cell]) -> None:
        self._node = node
        self._inputs = inputs
        self._outputs = outputs
        self._function: Callable[..., Any] | None = None
        self._fallback: Thunk | None = None
        self._perform = _perform_thunk(node, inputs, outputs) if _is_integer_arithmetic(node) else None
        self._calls = 0

    def _should_compile(self) -> bool:
        """Return whether to compile now."""
        self._calls += 1
        return self._perform is None or self._calls > INTERPRETED_CALLS or self._element_count() > INTERPRETED_ELEMENTS

    def _element_count(self) -> int:
        return sum(np.size(c[0]) for c in self._inputs)

    def _first_call(self) -> None:
        if not self._should_compile():
            assert self._perform is not None
            self._perform()
            return
        try:
            with reraising_interrupts():
                function = compile_node_with_numba(self._node)
                self._store(function)
            self._function = function
        except numba_unsupported_errors() as error:  # no implementation, or none for these dtypes
            warnings.warn(f"{self._node.op} runs in Python, NUMBA cannot compile it: {error}", stacklevel=3)
            self._fallback = _perform_thunk(self._node, self._inputs, self._outputs)
            self._fallback()

    def _store(self, function: Callable[..., Any]) -> None:
        values = function(*[_in_native_order(c[0]) for c in self._inputs])
        for cell, value in zip(self._outputs, values, strict=True):
            cell[0] = value

    def __call__(self) -> None:
        if self._function is not None:
            self._store(self._function)
        elif self._fallback is not None:
            self._fallback()
        else:
            self._first_call()


def _scan_thunk(node: Apply, inputs: Sequence[Cell], outputs: Sequence[Cell]) -> Thunk:
    """Check the number of steps first: NUMBA's loop runs none if it is negative."""
    steps, loop = inputs[0], _LazyNumbaThunk(node, inputs, outputs)

    def run() -> None:
        if steps[0] < 0:
            raise NegativeStepsError(f"Scan was asked to run for negative number of step {steps[0]}")
        loop()

    return run


def _ifelse_thunk(node: Apply, inputs: Sequence[Cell], outputs: Sequence[Cell]) -> Thunk:
    """Return the values of one branch. Both are computed; a LazyIfElse is used where skipping one is faster."""
    count, as_view = node.op.n_outs, node.op.as_view
    condition, then, otherwise = inputs[0], inputs[1 : 1 + count], inputs[1 + count :]

    def run() -> None:
        is_true = bool(condition[0])
        for cell, chosen in zip(outputs, then if is_true else otherwise, strict=True):
            # IfElse declares views of its first branch only.
            cell[0] = chosen[0] if is_true and as_view else deepcopy(chosen[0])

    return run


def _copy_thunk(node: Apply, inputs: Sequence[Cell], outputs: Sequence[Cell]) -> Thunk:
    """Copy an array in its own memory order. `deepcopy` copies in C order, which is slow for a transposed array."""
    (cell,), (out,) = inputs, outputs
    large = count()

    def run() -> None:
        value = cell[0]
        copied = None
        if isinstance(value, np.ndarray):
            if value.nbytes >= LARGE and next(large) >= HOST_COPIES:
                copied = copy_by_device(value)
            out[0] = value.copy("K") if copied is None else copied
        else:
            out[0] = deepcopy(value)

    return run


def _perform_thunk(node: Apply, inputs: Sequence[Cell], outputs: Sequence[Cell]) -> Thunk:
    perform = node.op.perform
    node.op.prepare_node(node, None, None, "py")

    def run() -> None:
        perform(node, [c[0] for c in inputs], outputs)

    return run


def _multinomial_thunk(node: Apply, inputs: Sequence[Cell], outputs: Sequence[Cell]) -> Thunk:
    """Draw as NUMBA does where float32 probabilities are above 1 in sum by rounding, which NumPy refuses."""
    perform, epsilon = node.op.perform, np.finfo("float32").eps

    def run() -> None:
        *others, p = (c[0] for c in inputs)
        wide = p.astype("float64")
        total = wide[..., :-1].sum(-1, keepdims=True)  # NumPy adds those before the last one
        is_rounding = (total > 1) & (total < 1 + p.shape[-1] * epsilon)
        perform(node, [*others, wide / np.where(is_rounding, total, 1)], outputs)

    return run


def _is_scalar_arithmetic(node: Apply) -> bool:
    return (
        isinstance(node.op, Elemwise)
        and all(v.type.ndim == 0 for v in (*node.inputs, *node.outputs))
        and hasattr(node.op.scalar_op, "impl")
    )


def _is_integer_arithmetic(node: Apply) -> bool:
    kinds = {v.type.numpy_dtype.kind for v in (*node.inputs, *node.outputs)} if isinstance(node.op, Elemwise) else {"f"}
    return kinds <= set("biu")


_IMPLEMENTATIONS: tuple[tuple[Callable[[Apply], bool], Callable[..., Thunk]], ...] = (
    (_is_scalar_arithmetic, _scalar_thunk),
    (lambda node: isinstance(node.op, Scan), _scan_thunk),
    (lambda node: isinstance(node.op, LOOPS), _LazyNumbaThunk),
    (lambda node: isinstance(node.op, IfElse), _ifelse_thunk),
    (lambda node: isinstance(node.op, DeepCopyOp), _copy_thunk),
    (lambda node: isinstance(node.op, MultinomialRV) and node.inputs[-1].type.dtype == "float32", _multinomial_thunk),
    (lambda node: True, _perform_thunk),
)


def host_thunk(node: Apply, inputs: Sequence[Cell], outputs: Sequence[Cell]) -> Thunk:
    """Return the thunk of a node whose inputs and outputs are values of the host."""
    return next(make for fits, make in _IMPLEMENTATIONS if fits(node))(node, inputs, outputs)
