"""Errors in the data of graphs inside other Ops: a loop raises what PyTensor's C backend raises, and changes nothing."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.conditional.op import ifelse
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.graph.traversal import applys_between
from pytensor.scan.op import Scan
from pytensor.tensor.optimize import minimize_scalar, root

from pytensor_cl.linker.selection.backends import NUMBA
from pytensor_cl.ops.scan_loop import GpuScanLoop
from pytensor_cl.ops.shape import GpuCheck
from pytensor_cl.rewriting.host_graph.guards import may_need_guard
from pytensor_cl.rewriting.host_graph.inner_guards import guard_inner_graph
from tests.helpers import ALL as SWEEP
from tests.helpers import assert_all_on_device, device_ops, on_one_driver, opencl

TABLE = np.arange(6.0) + 1
table, codes = pt.dvector("table"), pt.lvector("codes")
C = Mode("cvm", "fast_run")


def _rng():
    return pytensor.shared(np.random.default_rng(1))


def _index_of_row(c):
    return pt.unravel_index(c, (2, 3))[1]


def _doubled(t, steps):
    return pytensor.scan(lambda s: 2 * s, outputs_info=[t], n_steps=steps, return_updates=False)[-1].sum()


LENGTH_ERRORS = ValueError, MemoryError  # the C backend raises the latter where it allocates first, in `root`

# What is computed of a table and three codes, codes without an error, wrong ones, and what the C backend raises.
FAULTS = {
    "lookup": (lambda t, c: t[c].sum(), (0, 5, -6), (0, 6, 1), IndexError),
    "lookup before the start": (lambda t, c: t[c].sum(), (0, 5, -6), (0, -7, 1), IndexError),
    "number": (lambda t, c: t[c[0]], (-6, 0, 0), (6, 0, 0), IndexError),
    "set": (lambda t, c: pt.set_subtensor(t[c], 9.0)[::2].sum(), (0, 5, -6), (0, 6, 1), IndexError),
    "increment": (lambda t, c: pt.inc_subtensor(t[c], 9.0)[::2].sum(), (0, 5, -6), (0, 600, 1), IndexError),
    "columns": (lambda t, c: pt.set_subtensor(t.reshape((2, 3))[:, c], 9.0).sum(), (1, 2, -3), (0, 3, 0), IndexError),
    "values": (lambda t, c: pt.set_subtensor(t[c], t[: c[0]]).sum(), (3, 5, -6), (2, 5, 1), ValueError),
    "maximum": (lambda t, c: t[: c[0]].max(), (3, 0, 0), (0, 0, 0), ValueError),
    "minimum": (lambda t, c: c[: c[0]].min(), (3, 0, 0), (0, 0, 0), ValueError),
    "argmax": (lambda t, c: t[: c[0]].argmax(), (3, 0, 0), (0, 0, 0), ValueError),
    "division": (lambda t, c: (7 // c).sum(), (3, -1, -2), (3, 0, 2), ZeroDivisionError),
    "remainder": (lambda t, c: (7 % c).sum(), (3, -1, -2), (3, 0, 2), ZeroDivisionError),
    "mask": (lambda t, c: t[: c[0]][c > 0].sum(), (3, 0, 1), (4, 0, 2), IndexError),
    "set by a mask": (lambda t, c: pt.set_subtensor(t[: c[0]][c > 0], 9.0).sum(), (3, 0, 1), (4, 0, 2), IndexError),
    "reshape": (lambda t, c: t.reshape((c[0], 2)).sum(), (3, 0, 0), (4, 0, 0), ValueError),
    "split": (lambda t, c: pt.split(t, c, n_splits=3)[1].sum(), (3, 1, 2), (4, 0, 3), ValueError),
    "split below zero": (lambda t, c: pt.split(t, c, n_splits=3)[0].sum(), (3, 1, 2), (7, -4, 3), LENGTH_ERRORS),
    "sum": (lambda t, c: (t[: c[0]] + t[: c[1]]).sum(), (3, 3, 0), (4, 1, 0), ValueError),
    "product": (lambda t, c: pt.dot(t[: c[0]], t[: c[1]]), (3, 3, 0), (4, 2, 0), ValueError),
    "repeat": (lambda t, c: pt.repeat(t[:3], c).sum(), (3, 0, 2), (4, -1, 3), ValueError),
    "position of a flat index": (lambda t, c: _index_of_row(c).sum(), (2, 5, 0), (0, 6, 0), ValueError),
    "steps": (lambda t, c: _doubled(t, c[0]), (3, 0, 0), (-1, 0, 0), OverflowError),
    "draw": (lambda t, c: pt.random.normal(0, c[0], rng=_rng()) > -1e9, (0, 0, 0), (-1, 0, 0), ValueError),
}


def _loop(step, sequence, t):
    return pytensor.scan(step, sequences=[sequence], non_sequences=[t], return_updates=False).sum()


def _scan(body, t, c):
    return _loop(lambda c, t: body(t, c).astype("float64"), pt.stack([c, c]), t)


def _state(body, t, c):
    def step(c, state, t):
        return state * 0.5 + body(t, c).astype("float64")

    return pytensor.scan(step, [pt.stack([c, c])], [pt.constant(0.0, dtype="float64")], [t], return_updates=False)[-1]


def _nested(body, t, c):
    return _loop(lambda c, t: _scan(body, t, c), pt.stack([c, c]), t)


def _from_graph(body, t, c):
    inputs = pt.dvector(), pt.lvector()
    return OpFromGraph(list(inputs), [body(*inputs).astype("float64")])(t, c)


def _conditional(body, t, c):
    return ifelse(t[0] > 0, body(t, c).astype("float64"), t.sum())


def _unused_branch(body, t, c):
    return ifelse(t[0] < 0, body(t, c).astype("float64"), t.sum())


def _moved(t, x):
    """The table, by an expression that depends on a parameter."""
    return t + pt.exp(-1000 - (x**2).sum())


def _minimum(body, t, c):
    x = pt.dscalar("x")
    found = minimize_scalar((x - body(_moved(t, x), c).astype("float64")) ** 2, x)[0]
    return graph_replace([found], {x: t[0]})[0]


def _root(body, t, c):
    x = pt.dvector("x")
    found = root(x - body(_moved(t, x), c).astype("float64"), x)[0]
    return graph_replace([found], {x: t[:1]})[0].sum()


def _within(outer, inner):
    return lambda body, t, c: outer(lambda t, c: inner(body, t, c), t, c)


def _batch(body, t, c):
    return vectorize_graph([_scan(body, t, c)], {c: pt.stack([c, c])})[0].sum()


KINDS = {
    "scan": _scan,
    "state": _state,
    "nested": _nested,
    "graph in scan": _within(_scan, _from_graph),
    "scan in graph": _within(_from_graph, _scan),
    "conditional": _conditional,
    "conditional in scan": _within(_scan, _conditional),
    "scan in conditional": _within(_conditional, _scan),
    "minimum": _minimum,
    "root": _root,
    "minimum of scan": _within(_minimum, _scan),
    "minimum in scan": _within(_scan, _minimum),
    "batch of scans": _batch,
}


def _several(names):
    """Several faults in one graph, each with codes of its own, so that one compilation shows them all."""
    return lambda t, c: sum(FAULTS[name][0](t, c[3 * k : 3 * k + 3]).astype("float64") for k, name in enumerate(names))


def _codes(names, wrong=None):
    return np.concatenate([FAULTS[name][2 if name == wrong else 1] for name in names]).astype("int64")


def compiled(kind, names, placement, mode="OPENCL"):
    with pytensor.config.change_flags(opencl__placement=placement, opencl__select_backend=placement == "auto"):
        outputs = KINDS[kind](_several(names), table, codes)
        return pytensor.function([table, codes], outputs, mode=mode, on_unused_input="ignore")


def check(f, names, wanted):
    """Each fault raises its error, and the next call with good codes is right."""
    good = _codes(names)
    np.testing.assert_allclose(f(TABLE, good), wanted, rtol=1e-6)
    for name in names:
        with pytest.raises(FAULTS[name][3]):
            f(TABLE, _codes(names, name))
        np.testing.assert_allclose(f(TABLE, good), wanted, rtol=1e-6)


NAMES = tuple(FAULTS)
UNCHECKED = ("lookup", "set", "maximum", "division", "set by a mask")
"""Kinds of errors that NUMBA itself does not find, and that do not take too long to compile."""
CHOSEN = NAMES if SWEEP else UNCHECKED


def in_python(names):
    """Return what NumPy computes of the good codes, without a loop."""
    with pytensor.config.change_flags(cxx=""):
        mode, given = Mode("vm", "fast_compile"), [table, codes]
        f = pytensor.function(given, _several(names)(table, codes), mode=mode, on_unused_input="ignore")
    return float(f(TABLE, _codes(names)))


@on_one_driver
def test_the_errors_of_the_table_are_those_of_the_c_backend(context, c_compiler):
    check(compiled("scan", CHOSEN, "auto", C), CHOSEN, 2 * in_python(CHOSEN))


@on_one_driver
def test_a_loop_of_numba_raises_what_the_c_backend_raises(context):
    f = compiled("scan", CHOSEN, "auto")
    check(f, CHOSEN, 2 * in_python(CHOSEN))
    assert f.vm.backends[0] == NUMBA and not f.vm._host_backends[NUMBA].compile_failed


@on_one_driver
def test_steps_on_a_device(context):
    check(compiled("scan", NAMES, "device"), NAMES, 2 * in_python(NAMES))


REPEATS = {"state": 1.5, "nested": 4, "batch of scans": 4, "conditional": 1, "minimum": 1, "root": 1}
"""The number of times that a kind adds the body; the others do it twice."""
FEW = ("lookup", "maximum")
PLACED = [
    ("conditional in scan", "auto", FEW[:1]),
    ("minimum in scan", "auto", ("set by a mask",)),
    ("state", "auto", ("position of a flat index",)),
    ("nested", "device", UNCHECKED),
    ("root", "device", UNCHECKED),
    ("batch of scans", "device", FEW),
]
EVERY = [(kind, placement, UNCHECKED) for kind in KINDS for placement in ("auto", "device")]


@on_one_driver
@pytest.mark.parametrize(("kind", "placement", "names"), EVERY if SWEEP else PLACED)
def test_kinds_of_inner_graphs(context, kind, placement, names):
    value = in_python(names) * REPEATS.get(kind, 2)
    if SWEEP:
        check(compiled(kind, names, "auto", C), names, value)
    check(compiled(kind, names, placement), names, value)


@pytest.mark.skipif(not SWEEP, reason="compiles for minutes")
@on_one_driver
@pytest.mark.parametrize("placement", ["auto", "device"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_in_each_kind(context, name, kind, placement):
    reference = compiled(kind, [name], "auto", C)
    value = reference(TABLE, _codes([name]))
    check(reference, [name], value)
    check(compiled(kind, [name], placement), [name], value)


@on_one_driver
def test_a_branch_that_is_not_taken_is_not_checked(context):
    kinds = {"auto": _within(_scan, _unused_branch), "device": _unused_branch}
    for placement, kind in kinds.items() if SWEEP else [("device", _unused_branch)]:
        with pytensor.config.change_flags(opencl__placement=placement, opencl__select_backend=placement == "auto"):
            f = opencl([table, codes], kind(FAULTS["lookup"][0], table, codes))
        assert f(TABLE, np.array([0, 6, 1])) in (TABLE.sum(), 2 * TABLE.sum())


@on_one_driver
@pytest.mark.parametrize("placement", ["auto", "device"])
def test_a_failed_call_leaves_shared_variables(context, placement):
    counts = pytensor.shared(np.zeros(6), "counts")
    step = lambda c, counts: pt.inc_subtensor(counts[c], 1.0)  # noqa: E731
    with pytensor.config.change_flags(opencl__placement=placement, opencl__select_backend=placement == "auto"):
        new = pytensor.scan(step, [pt.stack([codes, codes])], [counts], return_updates=False)[-1]
        f = opencl([codes], new.sum(), updates=[(counts, new)])
    assert f([0, 5, -1]) == 6
    for _ in range(2):
        with pytest.raises(IndexError):
            f([1, 2, 6])
        np.testing.assert_array_equal(counts.get_value(), [2, 0, 0, 0, 0, 4])
    assert f([1, 1, 1]) == 12
    np.testing.assert_array_equal(counts.get_value(), [2, 6, 0, 0, 0, 4])


def test_ops_with_rewrites_of_their_own_are_rewritten_before_they_are_guarded():
    """Otherwise log(softmax(x)) is minus infinity, and the Cholesky factor of a semidefinite diagonal matrix is NaN."""
    factor = pt.linalg.cholesky(pt.diag(pt.log(table[codes])), on_error="nan")
    inner = FunctionGraph([table, codes], [pt.log(pt.special.softmax(1000 * table[codes])), factor.sum()], clone=True)
    guard_inner_graph(inner)
    f = pytensor.function(inner.inputs, inner.outputs, mode=Mode("py", None))
    logs, total = f(TABLE, [0, 2, -1])
    np.testing.assert_allclose(logs, [-5000, -3000, 0])
    np.testing.assert_allclose(total, np.sqrt(np.log([1, 3, 6])).sum())
    with pytest.raises(IndexError):
        f(TABLE, [0, 2, 6])


@pytest.mark.parametrize("error", [OverflowError, IndexError])
def test_a_negative_number_of_steps_on_the_host(context, error):
    """PyTensor's C backend raises the one, its Python backend the other, and NUMBA's loop would run no step."""
    with pytensor.config.change_flags(opencl__placement="host"):
        f = opencl([table, codes], _doubled(table, codes[0]))
    assert not device_ops(f)
    with pytest.raises(error, match="negative number of step"):
        f(TABLE, [-1])


def test_where_the_number_of_steps_is_checked():
    loops = _doubled(table, codes[0]), _scan(lambda t, c: t[0], table, codes), _doubled(table, codes.shape[0] - 3)
    nodes = [next(n for n in applys_between([], [loop]) if isinstance(n.op, Scan)) for loop in loops]
    assert [may_need_guard(node) for node in nodes] == [True, False, True]


def test_whole_numbers_are_divided_in_a_loop_of_one_kernel_only_by_what_is_not_zero(context):
    x, period = pt.lvector("x"), pt.lscalar("period")

    def divided(by):
        return pytensor.scan(lambda a, s: s + a % by, [x], [pt.constant(0, dtype="int64")], return_updates=False)

    with pytensor.config.change_flags(opencl__placement="device"):
        fixed, free = opencl([x], divided(3)), opencl([x, period], divided(period))
    assert any(isinstance(op, GpuScanLoop) for op in device_ops(fixed))
    np.testing.assert_array_equal(fixed([4, 5, -1]), [1, 3, 5])
    np.testing.assert_array_equal(free([4, 5, -1], 3), [1, 3, 5])
    with pytest.raises(ZeroDivisionError):
        free([4, 5, -1], 0)


def test_whole_numbers_outside_of_loops(context):
    n, d = pt.lvector("n"), pt.bvector("d")
    f = opencl([n, d], [n // d, n % d])
    values, divisors = np.array([7, -7, 8]), np.array([2, -1, -3], "int8")
    for got, right in zip(f(values, divisors), (values // divisors, values % divisors), strict=True):
        np.testing.assert_array_equal(got, right)
    with pytest.raises(ZeroDivisionError, match="by zero"):
        f(values, divisors * 0)
    assert not any("CheckAndRaise" in str(op) for op in device_ops(opencl([n], [n // 3, n % pt.maximum(n, 1)])))


def test_divisors_on_a_device_are_checked_without_a_wait(context):
    """The check is a kernel, in a captured graph too; the error is raised at the end of the call."""
    n, d = pt.ivector("n"), pt.fmatrix("d")
    counts = pytensor.shared(np.zeros(2, "int32"), "counts")
    quotient = n // pt.cast(pt.exp(d).sum(axis=0), "int32")
    with pytensor.config.change_flags(opencl__placement="device"):
        f = opencl([n, d], quotient, updates=[(counts, counts + quotient)])
    assert_all_on_device(f)
    assert any(isinstance(op, GpuCheck) for op in device_ops(f))
    values, logs = np.array([7, -9], "int32"), np.log(np.array([[1, 2], [1.1, 2.1]], "float32"))
    for call in range(1, 7):
        np.testing.assert_array_equal(f(values, logs), [3, -3])
        with pytest.raises(ZeroDivisionError, match="by zero"):
            f(values, logs - 9)
        np.testing.assert_array_equal(counts.get_value(), np.array([3, -3]) * call)
