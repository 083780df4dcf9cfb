"""Random graphs against the Python implementation of each Op; ``PYTENSOR_CL_RANDOM_GRAPHS=300`` runs more of them."""

import os
import warnings

import numpy as np
import pytensor
import pytest
from pytensor.compile.mode import Mode

from pytensor_cl import explain
from tests.random_graphs import RandomGraph, shuffled_strides

COUNT = int(os.environ.get("PYTENSOR_CL_RANDOM_GRAPHS", "40"))
CHUNKS = 8  # tests, so that workers share them
RTOL = 5e-4  # float32 through a dozen Ops


def _is_same(got, expected):
    if (got.dtype, got.shape) != (expected.dtype, expected.shape):
        return False
    if expected.dtype.kind != "f":
        return np.array_equal(got, expected)
    return np.allclose(got, expected, rtol=RTOL, atol=RTOL * np.abs(expected).max(initial=1), equal_nan=True)


def _on_the_host(inputs, results):
    """The function as PyTensor itself rewrites it: some of its rewrites change values or raise, for instance for no elements."""
    outputs = [r.variable for r in results]
    return pytensor.function(inputs, outputs, mode=Mode("py", "fast_run"), on_unused_input="ignore")


def _check_call(f, inputs, results, arguments):
    try:
        got = f(*arguments)
    except (ValueError, AssertionError) as error:  # AssertionError: a wrong static shape, as SpecifyShape finds it
        with pytest.raises(type(error)):
            _on_the_host(inputs, results)(*arguments)
        return
    wrong = [i for i, known in enumerate(results) if not _is_same(got[i], known.value)]
    for i in wrong:
        [host] = _on_the_host(inputs, results[i : i + 1])(*arguments)
        assert _is_same(got[i], host), f"{results[i].variable.owner}\n{got[i]}\n{results[i].value}\n{f.maker.fgraph}"


def check(graph, placement):
    """Compare a graph's last results with what they must be; return the number of device nodes."""
    inputs = [variable for variable, _ in graph.inputs]
    results = graph.results[-6:]
    with pytensor.config.change_flags(opencl__placement=placement):
        f = pytensor.function(inputs, [r.variable for r in results], mode="OPENCL", on_unused_input="ignore")
    values = [value for _, value in graph.inputs]
    _check_call(f, inputs, results, values)
    _check_call(f, inputs, results, [shuffled_strides(v, graph.rng) for v in values])
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
        device_nodes += check(graph, "device" if number % 2 else "auto")
    assert device_nodes > 0
