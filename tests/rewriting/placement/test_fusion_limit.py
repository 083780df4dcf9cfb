"""Composites of very many arrays are split into several."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.elemwise import Elemwise

from pytensor_cl.linker.link.graph_linker import GraphLinker
from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.rewriting.placement.fusion_limit import MAX_ARRAYS
from tests.helpers import assert_all_on_device, assert_close, assert_on_device, opencl, skip_without_double


def linear_model(count, rng):
    """The log density of a linear model with many scalars, each a variable of its own, and its gradient."""
    x, y = rng.normal(size=(30, count)), rng.normal(size=30)
    scalars = [pt.dscalar(f"b{i}") for i in range(count)]
    residual = y - sum(b * x[:, i] for i, b in enumerate(scalars))
    density = -pt.sum(residual**2) / 2 - sum(b**2 for b in scalars) / 2
    return scalars, [density, *pytensor.grad(density, scalars)], (x, y)


@pytest.fixture(autouse=True)
def _fuses_without_a_limit(c_compiler):
    """PyTensor fuses at most 31 arrays if it has no C compiler."""


@pytest.fixture
def kernels(monkeypatch):
    """Names of the kernels of each function, in the order of compilation; a kernel is built when it is launched first."""
    names = []
    monkeypatch.setattr(GraphLinker, "build", lambda linker: names.append(_kernels_of(linker)))
    return names


def _kernels_of(linker):
    return {source.name for routine in linker.routines.values() for source in routine.sources()}


def test_the_number_of_kernels_is_bounded(context, rng, kernels):
    nodes = []
    for count in (10, 20, 40):
        scalars, outputs, _ = linear_model(count, rng)
        f = opencl(scalars, outputs)
        skip_without_double(f)
        found = [n for n in f.maker.fgraph.toposort() if isinstance(n.op, GpuElemwise)]
        assert max(len(n.inputs) + len(n.outputs) for n in found) <= MAX_ARRAYS
        nodes.append(len(found))
    assert nodes[2] > nodes[1] > nodes[0]
    assert max(map(len, kernels)) <= 10


def test_parts_compute_what_the_whole_does(context, rng):
    scalars, outputs, (x, y) = linear_model(20, rng)
    f = opencl(scalars, outputs)
    skip_without_double(f)
    assert_on_device(f, GpuElemwise)
    b = rng.normal(size=20)
    residual = y - x @ b
    density, *gradient = f(*b)
    assert_close(density, -(residual @ residual + b @ b) / 2, rtol=1e-12)
    assert_close(np.array(gradient), x.T @ residual - b, rtol=1e-10)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_long_sum_is_added_in_its_order(context, rng, dtype):
    """Sums of whole numbers have intermediate values of a wider type, so they stay whole."""
    arrays = [pt.tensor(f"x{i}", dtype=dtype, shape=(None,)) for i in range(50)]
    total = sum(a * a for a in arrays)
    values = [rng.integers(-3, 4, size=20).astype(dtype) for _ in arrays]
    f = opencl(arrays, pt.tanh(total))
    assert_all_on_device(f, GpuElemwise)
    got = f(*values)
    assert_close(got, np.tanh(sum(v * v for v in values).astype(got.dtype)))


def test_outputs_without_inputs_in_common(context, rng):
    arrays = [pt.fvector(f"x{i}") for i in range(40)]
    f = opencl(arrays, [pt.exp(a) - b for a, b in zip(arrays[:20], arrays[20:], strict=True)])
    values = [rng.normal(size=9).astype("float32") for _ in arrays]
    for got, a, b in zip(f(*values), values[:20], values[20:], strict=True):
        assert_close(got, np.exp(a) - b)
    assert not [n for n in f.maker.fgraph.toposort() if isinstance(n.op, Elemwise)]


def test_a_chain_with_its_gradients_stays_whole(context, kernels):
    """Most of its values are alive at a time, so that parts would have more arrays in all, and compile for longer."""
    factors = [pt.fvector(f"a{i}") for i in range(20)]
    total = pt.exp(-(factors[0] ** 2))
    for v in factors:
        total = total * pt.cos(v) + v
    f = opencl(factors, [total, *pytensor.grad(total.sum(), factors)])
    arrays = [len(n.inputs) + len(n.outputs) for n in f.maker.fgraph.toposort() if isinstance(n.op, GpuElemwise)]
    assert max(arrays) > MAX_ARRAYS and len(arrays) < 5
