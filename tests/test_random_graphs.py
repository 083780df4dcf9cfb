"""Random graphs against the Python implementation of each Op; ``PYTENSOR_CL_RANDOM_GRAPHS=300`` runs more of them."""

import os
import warnings

import numpy as np
import pytensor
import pytest

from pytensor_cl import explain
from tests.random_graphs import RandomGraph, shuffled_strides

COUNT = int(os.environ.get("PYTENSOR_CL_RANDOM_GRAPHS", "40"))
CHUNKS = 8  # tests, so that workers share them
RTOL = 5e-4  # float32 through a dozen Ops


def _assert_same(got, known, at):
    expected = known.value
    assert isinstance(got, np.ndarray)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape), at
    if expected.dtype.kind != "f":
        np.testing.assert_array_equal(got, expected, err_msg=at)
        return
    scale = np.abs(expected).max(initial=1)
    np.testing.assert_allclose(got, expected, rtol=RTOL, atol=RTOL * scale, err_msg=at)


def _check(graph, placement):
    inputs = [variable for variable, _ in graph.inputs]
    results = graph.results[-6:]
    with pytensor.config.change_flags(opencl__placement=placement):
        f = pytensor.function(inputs, [r.variable for r in results], mode="OPENCL", on_unused_input="ignore")
    values = [value for _, value in graph.inputs]
    for arguments in (values, [shuffled_strides(v, graph.rng) for v in values]):
        for i, (got, known) in enumerate(zip(f(*arguments), results, strict=True)):
            _assert_same(got, known, f"output {i} of {len(results)}: {known.variable.owner}\n{f.maker.fgraph}")
    return len(explain(f).device_nodes)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_graphs(context, rng, chunk):
    device_nodes = 0
    for number in range(chunk, COUNT, CHUNKS):
        seed = int(rng.integers(2**32))
        print(f"graph {number}: seed {seed}")  # noqa: T201
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the reference: overflow of integers, empty means
            graph = RandomGraph(np.random.default_rng(seed))
        device_nodes += _check(graph, "device" if number % 2 else "auto")
    assert device_nodes > 0
