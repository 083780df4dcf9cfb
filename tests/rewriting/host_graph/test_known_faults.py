"""Faults of PyTensor's own backends, and that functions of mode OPENCL do not have them."""

import numpy as np
import pytensor
import pytensor.sparse as ps
import pytensor.tensor as pt
import pytest
import scipy.sparse as sp
from pytensor.compile.mode import Mode, optdb
from pytensor.tensor.rewriting.blas import blas_optdb

from pytensor_cl.rewriting.host_graph.known_faults import FAULTS, NUMBA, C, excluded_rewrites, fault_of
from tests.helpers import CHECKOUT, device_ops, on_one_driver, opencl

C_MODE = Mode("cvm", "fast_run")
DENSE = np.array([[1.0, 2], [3, 4], [5, 6]])


def test_the_rewrites_of_the_table_exist():
    """A release of PyTensor that renames one would bring its fault back."""
    known = {*optdb.__db__, *optdb["specialize"].__db__, *blas_optdb.__db__}
    assert set(excluded_rewrites(C)) <= known


def test_the_documents_list_the_table():
    text = " ".join((CHECKOUT / "docs" / "cpu-faults.md").read_text().split())
    for fault in FAULTS:
        assert fault.what in text and fault.ops in text


@on_one_driver
@pytest.mark.parametrize("fmt", ["csc", "csr"])
def test_gradients_through_sparse_matrices_in_auto(context, c_compiler, fmt):
    x = ps.matrix(fmt, "x", dtype="float64")
    y = ps.matrix(fmt, "y", dtype="float64")
    left, right = sp.csc_matrix(DENSE * [1, 0]).asformat(fmt), sp.csc_matrix(DENSE * [0, 1]).asformat(fmt)
    costs = [(ps.dense_from_sparse(ps.add(x, y)) ** 2).sum(), (ps.dense_from_sparse(ps.add(x, y)).T * DENSE.T).sum()]
    with pytensor.config.change_flags(opencl__select_backend=True, opencl__placement="auto"):
        f = opencl([x, y], [pytensor.grad(cost, x) for cost in costs])
    assert f.vm.backends == [C]
    for got, wanted in zip(f(left, right), (2 * DENSE, DENSE), strict=True):
        np.testing.assert_allclose(got.toarray(), wanted)


@on_one_driver
def test_the_sum_of_a_sparse_matrix_and_a_transpose_in_auto(context, c_compiler):
    x, y = ps.csc_matrix("x", dtype="float64"), pt.dmatrix("y")
    with pytensor.config.change_flags(opencl__select_backend=True, opencl__placement="auto"):
        f = opencl([x, y], x + y.T)
    np.testing.assert_allclose(f(sp.csc_matrix(DENSE), np.ascontiguousarray(DENSE.T)), 2 * DENSE)


def test_where_nodes_are_known_to_be_wrong():
    wide, narrow = pt.lvector("wide"), pt.bvector("narrow")
    found = {
        C: [pt.maximum(wide, 1), pytensor.scan(lambda a: pt.maximum(a, 1), [wide], return_updates=False)],
        NUMBA: [pt.cumsum(narrow), pt.linalg.svd(pt.dmatrix("m"))[1]],
    }
    for backend, results in found.items():
        for result in results:
            nodes = pytensor.graph.traversal.applys_between([], [result])
            assert any(fault_of(backend, node) for node in nodes), result
    least, unsigned = pt.ivector("least"), pt.TensorType("uint32", (None,))()
    for wrong in (least // 7, least % unsigned, least < unsigned, pt.switch(narrow, wide, unsigned.astype("uint64"))):
        assert fault_of(C, wrong.owner) is not None, wrong
    assert fault_of(C, (least**2).owner) is not None
    for right in (wide < unsigned, narrow // 7, narrow % wide[0], unsigned // 3, least.shape[0] // 2, least * least):
        assert fault_of(C, right.owner) is None, right
    assert fault_of(C, pt.maximum(narrow, 1).owner) is None
    assert fault_of(NUMBA, pt.maximum(wide, 1).owner) is None


def test_the_faults_are_still_there(c_compiler):
    """When this fails, a release of PyTensor has repaired one: leave it out of the table."""
    x = ps.csc_matrix("x", dtype="float64")
    y = pt.dmatrix("y")
    product = pytensor.function([x, y], ps.dense_from_sparse(ps.multiply(x, y.T)), mode=C_MODE)
    wrong = product(sp.csc_matrix(np.ones((3, 2))), np.ascontiguousarray(DENSE.T))
    assert not np.array_equal(wrong, DENSE)
    wide = pt.lvector("wide")
    largest = pytensor.function([wide], pt.maximum(wide, 2**62 + 1), mode=C_MODE)
    assert largest(np.array([0])) != 2**62 + 1
    least, unsigned = pt.ivector("least"), pt.TensorType("uint32", (None,))()
    by = pt.ivector("by")
    f = pytensor.function([least, unsigned, by], [least // by, least // unsigned, least < unsigned], mode=C_MODE)
    quotient, mixed, is_less = f(np.array([-(2**31)], "i"), np.array([3], "uint32"), np.array([2**31 - 1], "i"))
    assert quotient != -2 and mixed != -(2**31) // 3 and not is_less
    power = pytensor.function([least, by], least**by, mode=C_MODE)
    assert power(np.array([99], "i"), np.array([99], "i")) != np.array([99], "i") ** 99


@on_one_driver
@pytest.mark.parametrize("placement", ["auto", "device"])
def test_products_of_narrow_factors_over_axes(context, placement):
    """PyTensor's rewrite raises a factor that is the same along an axis to the power of the axis' length as int8."""
    flags, numbers = pt.matrix("flags", dtype="bool"), pt.tensor("numbers", dtype="int8", shape=(None, 1))
    outputs = [(flags * numbers).prod(axis=1), (flags * numbers.astype("float64")).prod(axis=1)]
    outputs += [(numbers * flags.astype("int8")).prod(axis=1), (flags.astype("int16") / numbers).prod(axis=1)]
    with pytensor.config.change_flags(opencl__placement=placement, opencl__select_backend=placement == "auto"):
        f = opencl([flags, numbers], outputs)
    assert placement == "auto" or device_ops(f)
    for length in (5, 200):
        given, factor = np.ones((3, length), bool), np.array([[-1], [1], [-1]], "int8")
        for got, output in zip(f(given, factor), outputs, strict=True):
            assert got.dtype == output.type.dtype
            np.testing.assert_array_equal(got, factor[:, 0].astype("int64") ** length)


@on_one_driver
@pytest.mark.parametrize("placement", ["auto", "device"])
def test_powers_of_narrow_numbers(context, placement):
    """PyTensor's rewrite of a power to squares computes them in the type of the base."""
    byte, whole, half = pt.vector("byte", dtype="uint8"), pt.ivector("whole"), pt.vector("half", dtype="float16")
    outputs = [byte**2, byte**3, (byte**2).sum(), half ** np.float32(2), whole**2.0, whole**-2.0]
    outputs.append(pytensor.scan(lambda n: n**2.0, [whole], return_updates=False))
    with pytensor.config.change_flags(opencl__placement=placement, opencl__select_backend=placement == "auto"):
        f = opencl([byte, whole, half], outputs)
    assert placement == "auto" or device_ops(f)
    n, m = np.array([16, 31]), np.array([46341, -7])
    wanted = [n**2, n**3, (n**2).sum(), [9e4, 4], m**2.0, m**-2.0, m**2.0]
    found = f(n.astype("uint8"), m.astype("int32"), np.array([300, 2], "float16"))
    for got, want, output in zip(found, wanted, outputs, strict=True):
        assert got.dtype == output.type.dtype
        np.testing.assert_allclose(got, np.asarray(want).astype(got.dtype), rtol=1e-6)
