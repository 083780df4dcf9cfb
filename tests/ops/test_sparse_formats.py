"""Ops of sparse matrices for all formats, pairs of them, transposes and orders of entries.

The expected values come from dense NumPy arrays, so that they are right whatever PyTensor's own backends make of them.
"""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.sparse
from pytensor import sparse
from pytensor.compile.mode import Mode
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import MergeOptimizer
from pytensor.sparse import basic, math
from pytensor.sparse import linalg as sparse_linalg

import pytensor_cl
from pytensor_cl.rewriting.decompose.sparse_forms import decompose_sparse_matrices, mend_sparse_gradients
from pytensor_cl.rewriting.decompose.sparse_products import decompose_sparse_products
from pytensor_cl.rewriting.placement.placement import SCALAR
from tests.helpers import opencl
from tests.ops.test_sparse_matrices import FREE, dense_of

ROWS, COLUMNS = 6, 4
KINDS = "csr", "csc", "csr.T", "csc.T"
"""Kinds of operands: a matrix of a format, or the transpose of one."""


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel():
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


def entries(rng, how, rows=ROWS, columns=COLUMNS):
    """Whole numbers at places, as (row, column, number); see `ORDERS`."""
    count = {"empty": 0, "one": 1}.get(how, rows * columns // 2)
    places = rng.choice(rows * columns, count, replace=False)
    row, column = places // columns, places % columns
    number = rng.integers(-3, 4, count).astype("float64")
    if how == "empty rows":
        kept = (row % 2 == 1) & (column != 1)
        row, column, number = row[kept], column[kept], number[kept]
    if how in ("sorted", "one"):
        order = np.argsort(places)
        row, column, number = row[order], column[order], number[order]
    if how == "duplicates":
        again = rng.permutation(np.repeat(np.arange(count), 2))
        row, column, number = row[again], column[again], number[again] + rng.integers(-1, 2, 2 * count)
    return row, column, number


def stored(places, kind, dtype):
    """The value of the variable of an operand, whose entries keep their order within each row or column."""
    row, column, number = places
    form, _, transpose = kind.partition(".")
    lengths = (ROWS, COLUMNS)
    if transpose:
        row, column, lengths = column, row, lengths[::-1]
    outer, inner = (row, column) if form == "csr" else (column, row)
    order = np.argsort(outer, kind="stable")
    outer_length = lengths[0] if form == "csr" else lengths[1]
    pointers = np.searchsorted(outer[order], np.arange(outer_length + 1)).astype("int32")
    make = scipy.sparse.csr_matrix if form == "csr" else scipy.sparse.csc_matrix
    return make((number[order].astype(dtype), inner[order].astype("int32"), pointers), shape=lengths)


def operand(kind, name, dtype):
    """A variable, and the matrix of ROWS x COLUMNS that it stands for."""
    form, _, transpose = kind.partition(".")
    variable = (sparse.csr_matrix if form == "csr" else sparse.csc_matrix)(name=name, dtype=dtype)
    return variable, variable.T if transpose else variable


def compiled(inputs, outputs):
    """A function that computes nothing on the host."""
    f = opencl(inputs, outputs, on_unused_input="ignore")
    report = pytensor_cl.explain(f)
    assert any(node.op.is_compute for node in report.device_nodes)
    computed = [n for n in report.host_nodes if not isinstance(n.op, FREE) and n.reason != SCALAR]
    assert not computed, [(str(n.op), n.reason) for n in computed]
    return f


def lowered(inputs, outputs):
    """Return what takes the place of sparse Ops, run by PyTensor's Python Ops: compiling for a device takes longer."""
    graph = FunctionGraph(inputs, outputs)
    mend_sparse_gradients(graph)
    decompose_sparse_matrices(graph)
    decompose_sparse_products(graph)
    sparse_ops = [n.op for n in graph.apply_nodes if type(n.op).__module__.startswith("pytensor.sparse")]
    assert all(isinstance(op, FREE) for op in sparse_ops), sparse_ops
    return pytensor.function(
        graph.inputs, graph.outputs, mode=Mode(linker="py", optimizer=MergeOptimizer()), on_unused_input="ignore"
    )


def weighted(w, matrix):
    return (w * basic.dense_from_sparse(matrix)).sum()


# Name -> what is built from x and y, and the same with dense arrays.
PAIRS = {
    "add": (math.add, np.add),
    "subtract": (math.subtract, np.subtract),
    "multiply": (math.multiply, np.multiply),
    "dot": (lambda x, y: math.dot(x, y.T), lambda x, y: x @ y.T),
    "structured_dot": (lambda x, y: math.structured_dot(x.T, y), lambda x, y: x.T @ y),
    "true_dot": (lambda x, y: math.true_dot(x, y.T), lambda x, y: x @ y.T),
    "hstack": (lambda x, y: basic.hstack([x, y], format="csc"), lambda x, y: np.hstack([x, y])),
    "vstack": (lambda x, y: basic.vstack([x, y], format="csr"), lambda x, y: np.vstack([x, y])),
    "block_diag": (
        lambda x, y: sparse_linalg.block_diag(x, y, format="csr"),
        lambda x, y: np.block([[x, np.zeros_like(y)], [np.zeros_like(x), y]]),
    ),
}
COMPARISONS = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less_than": np.less,
    "greater_than": np.greater,
    "less_equal": np.less_equal,
    "greater_equal": np.greater_equal,
}
# The gradients of a weighted sum of the elements of a result, with respect to x and y. That of `dense_from_sparse` is
# zero where the result has no entry, which it has where it is not zero; that of the negative of y has the entries of y,
# of which there are n at each place.
GRADIENTS = {
    "add": (math.add, lambda x, y, w, n: (w * (x + y != 0),) * 2),
    "subtract": (math.subtract, lambda x, y, w, n: (w * (x != y), -w * (x != y) * n)),
    "multiply": (math.multiply, lambda x, y, w, n: (w * y * (x != 0), w * x * (y != 0))),
}


def outputs_of(x, y, w, names=None):
    """Outputs by name: results, and gradients by `name x` and `name y`."""
    table = {name: build(x, y) for name, (build, _) in PAIRS.items() if names is None or name in names}
    if names is None and x.type.format == y.type.format:
        table |= {name: getattr(math, f"{name}_s_s")(x, y) for name in COMPARISONS}
    for name, (build, _) in GRADIENTS.items():
        gradients = pytensor.grad(weighted(w, build(x, y)), [x, y])
        table |= {f"{name} {which}": g for which, g in zip("xy", gradients, strict=True)}
    return {name: v for name, v in table.items() if names is None or name in names}


# Name -> what is built from a matrix x, dense d of its shape, vectors v of a row and c of a column, and rows i; the same
# with dense arrays.
SINGLES = {
    "dense": (lambda x, d, v, c, i: basic.dense_from_sparse(x), lambda x, d, v, c, i: x),
    "transpose": (lambda x, d, v, c, i: x.T, lambda x, d, v, c, i: x.T),
    "cast": (
        lambda x, d, v, c, i: basic.Cast("int32")(math.multiply(x, pt.constant(0.5))),
        lambda x, d, v, c, i: np.trunc(x / 2),
    ),
    "sum": (lambda x, d, v, c, i: math.sp_sum(x), lambda x, d, v, c, i: x.sum()),
    "sum 0": (lambda x, d, v, c, i: math.sp_sum(x, axis=0), lambda x, d, v, c, i: x.sum(0)),
    "sum 1": (lambda x, d, v, c, i: math.sp_sum(x, axis=1), lambda x, d, v, c, i: x.sum(1)),
    "remove0": (lambda x, d, v, c, i: basic.remove0(x), lambda x, d, v, c, i: x),
    "sorted": (lambda x, d, v, c, i: basic.ensure_sorted_indices(x), lambda x, d, v, c, i: x),
    "col_scale": (lambda x, d, v, c, i: basic.col_scale(x, v), lambda x, d, v, c, i: x * v),
    "row_scale": (lambda x, d, v, c, i: basic.row_scale(x, c), lambda x, d, v, c, i: x * c[:, None]),
    "rows": (lambda x, d, v, c, i: basic.get_item_list(x, i), lambda x, d, v, c, i: x[i]),
    "elements": (lambda x, d, v, c, i: basic.get_item_2lists(x, i, i), lambda x, d, v, c, i: x[i, i]),
    "element": (lambda x, d, v, c, i: x[1, 2], lambda x, d, v, c, i: x[1, 2]),
    "slices": (lambda x, d, v, c, i: x[1:, ::2], lambda x, d, v, c, i: x[1:, ::2]),
    "diagonal": (lambda x, d, v, c, i: basic.diag(x[:4]), lambda x, d, v, c, i: np.diag(x)),
    "times dense": (lambda x, d, v, c, i: math.multiply(x, d), lambda x, d, v, c, i: x * d),
    "plus dense": (lambda x, d, v, c, i: math.add(x, d), lambda x, d, v, c, i: x + d),
    "times vector": (lambda x, d, v, c, i: math.mul_s_v(x, v), lambda x, d, v, c, i: x * v),
    "plus vector": (lambda x, d, v, c, i: math.structured_add_s_v(x, v), lambda x, d, v, c, i: x + v * (x != 0)),
    "sampling dot": (lambda x, d, v, c, i: math.sampling_dot(d, d.T @ d, x), lambda x, d, v, c, i: x * (d @ d.T @ d)),
    "dot": (lambda x, d, v, c, i: math.dot(x, d.T), lambda x, d, v, c, i: x @ d.T),
    "dot of dense": (lambda x, d, v, c, i: math.dot(d.T, x), lambda x, d, v, c, i: d.T @ x),
    "true dot": (lambda x, d, v, c, i: math.true_dot(x, d.T), lambda x, d, v, c, i: x @ d.T),
    "less": (lambda x, d, v, c, i: math.lt(x, d), lambda x, d, v, c, i: x < d),
    "equal": (lambda x, d, v, c, i: math.eq(x, d), lambda x, d, v, c, i: x == d),
}


ORDERS = "sorted", "unsorted", "duplicates", "empty rows", "empty", "one"
"""Orders in which the entries of an operand are stored, and numbers of them."""


def check_of_two(compiler, rng, kinds, dtype="float64", names=None):
    """Compare results and gradients with those of dense arrays."""
    (x_input, x), (y_input, y) = (operand(k, name, dtype) for k, name in zip(kinds, "xy", strict=True))
    w = pt.matrix("w", dtype=dtype)
    table = outputs_of(x, y, w, names)
    f = compiler([x_input, y_input, w], list(table.values()))
    reference = {name: dense for name, (_, dense) in PAIRS.items()} | COMPARISONS
    for how in ORDERS:
        places = [entries(rng, how) for _ in kinds]
        values = [stored(p, k, dtype) for p, k in zip(places, kinds, strict=True)]
        dense = [(v.T if k.endswith("T") else v).toarray() for v, k in zip(values, kinds, strict=True)]
        weights = rng.integers(1, 5, (ROWS, COLUMNS)).astype(dtype)
        count = np.zeros_like(weights)
        np.add.at(count, places[1][:2], 1)
        for name, got in zip(table, f(*values, weights), strict=True):
            op, _, which = name.partition(" ")
            expected = GRADIENTS[op][1](*dense, weights, count)["xy".index(which)] if which else reference[name](*dense)
            if scipy.sparse.issparse(got):
                got.check_format()
            np.testing.assert_allclose(dense_of(got), expected, rtol=1e-6, err_msg=f"{name}, {how}")


ELEMENTWISE = (*GRADIENTS, *(f"{name} {which}" for name in GRADIENTS for which in "xy"))


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
def test_lowered_graphs_of_two(rng, first, second):
    has_transpose = first.endswith("T") or second.endswith("T")
    check_of_two(lowered, rng, (first, second), names=ELEMENTWISE if has_transpose else None)


@pytest.mark.parametrize("kinds", [("csr", "csc"), ("csc", "csc.T")], ids="-".join)
def test_sums_and_products_on_the_device(context, rng, kinds):
    check_of_two(compiled, rng, kinds, "float32", ("add", "multiply", "multiply y"))


def test_subtraction_of_two_formats_on_the_device(context, rng):
    check_of_two(compiled, rng, ("csc", "csr"), "float64", ("subtract", "subtract y"))


@pytest.mark.parametrize("kind", KINDS)
def test_lowered_graphs_of_one(rng, kind):
    x_input, x = operand(kind, "x", "float64")
    d, v, c, i = pt.dmatrix("d"), pt.dvector("v"), pt.dvector("c"), pt.lvector("i")
    skipped = set() if x.type.format == "csc" else {"diagonal"}  # PyTensor has it for compressed columns only
    table = {name: build(x, d, v, c, i) for name, (build, _) in SINGLES.items() if name not in skipped}
    f = lowered([x_input, d, v, c, i], list(table.values()))
    for how in ORDERS:
        value = stored(entries(rng, how), kind, "float64")
        dense = (value.T if kind.endswith("T") else value).toarray()
        others = [rng.integers(-2, 3, n).astype("float64") for n in ((ROWS, COLUMNS), COLUMNS, ROWS)]
        others.append(rng.integers(-COLUMNS, COLUMNS, 5))
        for name, got in zip(table, f(value, *others), strict=True):
            if scipy.sparse.issparse(got):
                got.check_format()
            np.testing.assert_allclose(dense_of(got), SINGLES[name][1](dense, *others), err_msg=f"{name}, {how}")


def test_gradients_of_two_formats_whatever_runs_them(context, rng):
    """PyTensor's own backends are wrong: the graph that they get has another form."""
    x, y = sparse.csr_matrix("x"), sparse.csc_matrix("y")
    w = pt.dmatrix("w")
    gradient = pytensor.grad(weighted(w, math.subtract(x, y)), y)
    with pytensor.config.change_flags(opencl__placement="host"):
        f = opencl([x, y, w], gradient)
    values = [stored(entries(rng, "unsorted"), form, "float64") for form in ("csr", "csc")]
    weights = rng.integers(1, 5, (ROWS, COLUMNS)).astype("float64")
    has_entry = values[1].astype(bool).toarray()
    expected = -weights * (values[0].toarray() != values[1].toarray()) * has_entry
    np.testing.assert_allclose(f(*values, weights).toarray() * has_entry, expected)
