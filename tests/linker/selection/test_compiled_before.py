"""The notes of graphs that were compiled before: the caches on disk have what a trial needs, so it waits for a tenth of the time."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

from pytensor_cl import explain
from pytensor_cl.linker.selection.backends import CFunction, NumbaFunction
from pytensor_cl.linker.selection.compiled_before import CompiledBefore
from pytensor_cl.linker.selection.estimate import NO_WORK
from tests.helpers import assert_close, opencl

x, named = pt.fvector("x"), pt.fvector("x")


def graph(variable, dtype="float32"):
    return FunctionGraph([variable], [pt.exp(variable.astype(dtype)) * 2], clone=True)


def test_a_graph_is_known_by_its_nodes_and_types():
    CompiledBefore(graph(x)).add("NUMBA")
    assert "NUMBA" in CompiledBefore(graph(named))
    assert "C" not in CompiledBefore(graph(named))
    assert "NUMBA" not in CompiledBefore(graph(x, "float64"))


@pytest.mark.parametrize("kind", [NumbaFunction, CFunction])
def test_to_compile_again_takes_less(kind):
    work, before = NO_WORK._replace(nodes=10, products=2), CompiledBefore(graph(x))
    function = kind.__new__(kind)
    function.is_compiled, function._compiled_before = False, before
    first = function.compile_seconds(work)
    before.add(kind.name)
    assert 0 < function.compile_seconds(work) < first / 4
    function.note_compiled()
    assert function.compile_seconds(work) == 0


@pytest.mark.usefixtures("c_compiler")
def test_a_second_function_is_tried_sooner(context):
    """It is as in a second process: the first one notes what it compiles on the host."""
    with pytensor.config.change_flags(opencl__select_backend=True):
        waits, value = [], np.ones(300_000, "float32")
        for _ in range(2):
            f = opencl([x], pt.exp(pt.tanh(x)))
            while explain(f).choices == () or explain(f).choices[0].device_seconds is None:
                assert_close(f(value), np.exp(np.tanh(value)), rtol=1e-5)
            (stats,) = f.vm.signatures
            waits.append({name: candidate.compile_seconds for name, candidate in stats.candidates.items()})
            for host in f.vm._host_backends.values():
                f.vm.input_storage[0][0] = value
                host.run()
        assert all(0 < waits[1][name] < waits[0][name] for name in ("NUMBA", "C"))
