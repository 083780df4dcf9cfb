"""The mode and its names, flags at run time, `use`."""

import copy
import pickle
import re

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import get_mode, predefined_linkers, predefined_modes

import pytensor_cl
from pytensor_cl import mode
from pytensor_cl.errors import UnsupportedDtype
from pytensor_cl.linker.linker import OpenCLLinker
from pytensor_cl.rewriting.placement.lift import Policy, lift_to_device
from pytensor_cl.runtime.registry import default_context_name, define_contexts, defined_contexts
from tests.helpers import CHECKOUT, assert_all_on_device, assert_close, host_sort, opencl, run_script


def test_the_mode_is_known_by_name(context):
    assert get_mode("OPENCL") is predefined_modes["OPENCL"] is mode.OPENCL
    assert isinstance(predefined_linkers["opencl"], OpenCLLinker)
    assert isinstance(get_mode("opencl").linker, OpenCLLinker)


def test_all_rewrites_depend_on_the_linker(context):
    rebuilt = type(mode.OPENCL)(OpenCLLinker(), mode.OPENCL.provided_optimizer)
    copies = (rebuilt, copy.copy(mode.OPENCL), pickle.loads(pickle.dumps(mode.OPENCL)), mode.OPENCL.including("fusion"))
    x = pt.vector("x", dtype="float32")
    for m in copies:
        f = pytensor.function([x], pt.exp(x), mode=m)
        assert_all_on_device(f)
        assert_close(f(np.zeros(3, "float32")), np.ones(3, "float32"))


def test_the_documents_list_the_passes_in_order():
    page = (CHECKOUT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| (-?[\d.]+) \| `(\w+)` \|", page, re.MULTILINE)
    assert rows == [(str(step.position), step.name) for step in sorted(mode.PASSES, key=lambda step: step.position)]


def test_compiling_leaves_the_users_graph_alone(context):
    x = pt.vector("x", dtype="float32")
    y = pt.exp(x) * 2
    text = pytensor.dprint(y, file="str")
    opencl([x], y)
    assert pytensor.dprint(y, file="str") == text
    assert_close(pytensor.function([x], y, mode="FAST_COMPILE")(np.zeros(2, "float32")), np.full(2, 2, "float32"))


def test_public_names():
    for name in pytensor_cl.__all__:
        assert getattr(pytensor_cl, name) is not None
    assert set(pytensor_cl.__all__) <= set(dir(pytensor_cl))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        pytensor_cl.nonsense


def test_use_defines_a_context(context):
    specs = {name: f"opencl:{name}" for name in defined_contexts()}
    try:
        assert pytensor_cl.use(f"opencl:{context.name}", "mine") == "mine"
        assert "mine" in defined_contexts() and default_context_name() == context.name
        assert pytensor_cl.use(f"opencl:{context.name}", "mine") == "mine"
        with pytest.raises(ValueError, match="is 'opencl:.*' already"):
            pytensor_cl.use("opencl9:9", "mine")
        x = pt.vector("x", dtype="float32")
        result = opencl([x], pt.exp(x).transfer("mine"))(np.zeros(3, "float32"))
        assert result.context.name == "mine"
    finally:
        define_contexts(specs, context.name)
    with pytest.raises(TypeError):
        pytensor_cl.use(nonsense=True)


def test_memory_is_reported_and_given_back(context, on_device):
    x = pt.fmatrix("x")
    f = opencl([x], pt.exp(-(x @ x)).transfer(context.name))
    value = np.full((600, 600), 0.01, "float32")
    for _ in range(4):  # the third call replays
        result = f(value)
    before = pytensor_cl.memory_info(context.name)
    assert before.array_bytes >= result.nbytes and before.device_bytes == context.info.global_memory
    assert before.largest_bytes == context.info.max_allocation
    del result
    after = pytensor_cl.memory_info(context.name)
    assert after.array_bytes <= before.array_bytes - value.nbytes and after.idle_bytes >= value.nbytes
    pytensor_cl.free_memory(context.name)
    freed = pytensor_cl.memory_info(context.name)
    # Arrays of other tests may end meanwhile.
    assert freed.graph_bytes == 0 and freed.idle_bytes <= after.idle_bytes - value.nbytes
    assert_close(np.asarray(f(value)), np.full((600, 600), np.exp(-0.06), "float32"))
    with pytest.raises(pytensor_cl.errors.ContextNotDefined):
        pytensor_cl.memory_info("nowhere")


def test_devices_lists_what_there_is(context):
    assert context.entry in pytensor_cl.devices()


def test_float64_where_the_device_lacks_it(context, monkeypatch):
    from dataclasses import replace

    monkeypatch.setattr(context, "info", replace(context.info, has_fp64=False))
    x, y = pt.vector("x", dtype="float64"), pt.vector("y", dtype="float32")
    f = opencl([x, y], [pt.exp(x), pt.exp(y), y.sum()])
    reasons = {n.reason for n in pytensor_cl.explain(f).host_nodes}
    assert any("no double precision" in reason for reason in reasons)
    assert all(v.type.dtype != "float64" for n in pytensor_cl.explain(f).device_nodes for v in n.node.outputs)
    expected = np.exp(np.ones(3))
    for got, dtype in zip(f(np.ones(3), np.ones(3, "float32"))[:2], ("float64", "float32"), strict=True):
        assert_close(got, expected.astype(dtype))
    with (
        pytensor.config.change_flags(opencl__float64="raise"),
        pytest.raises(UnsupportedDtype, match="opencl__float64=raise"),
    ):
        opencl([x], pt.exp(x))


def test_the_device_pass_is_idempotent(context):
    x = pt.vector("x", dtype="float32")
    fgraph = opencl([x], [pt.exp(x), host_sort(x)]).maker.fgraph
    before = [str(node) for node in fgraph.toposort()]
    lift_to_device(fgraph, Policy())
    assert [str(node) for node in fgraph.toposort()] == before


def test_sync_debug_and_check_program_in_a_process_of_its_own(context):
    script = f"""
        import numpy, pytensor, pytensor_cl
        pytensor_cl.use("opencl:{context.name}", synchronous=True)
        from pytensor import function, config, shared, tensor
        x = shared(numpy.asarray(numpy.random.RandomState(22).rand(1000), config.floatX))
        f = function([], tensor.exp(x), mode="OPENCL")
        seen["same"] = bool(numpy.allclose(f(), numpy.exp(x.get_value()), rtol=1e-6))
        seen["cpu"] = any(isinstance(n.op, tensor.elemwise.Elemwise) and "Gpu" not in type(n.op).__name__
                          for n in f.maker.fgraph.toposort())
        seen["waits"] = pytensor_cl.runtime.registry.get_context().queue.synchronous
        f()
    """
    seen, stderr = run_script(script, "floatX=float32")
    assert seen == {"same": True, "cpu": False, "waits": True}
    assert stderr.count("Mapped name None to device opencl") == 1


def test_an_unknown_mode_is_answered_with_the_list_of_modes():
    with pytest.raises(ValueError, match=r"'MLX', 'OPENCL'\].*Instead got: OPENCLX"):
        pytensor.config.mode = "OPENCLX"
    with pytest.raises(ValueError, match="'opencl'"):
        pytensor.config.linker = "openclx"


def test_a_function_is_shown_as_pytensors(context):
    x = pt.fvector("x")
    made = {mode: repr(pytensor.function([x], x + 1, mode=mode)) for mode in ("OPENCL", "FAST_COMPILE")}
    kinds = {text.partition(" at 0x")[0] for text in made.values()}
    assert kinds == {"<pytensor.compile.executor.Function object"}


def test_an_error_before_a_pass_reaches_the_linker(context, monkeypatch):
    """PyTensor logs what a rewrite raises; the placement asks for the device, and that may fail."""

    answers = iter([UnsupportedDtype("asked for the placement")])

    def placement():
        for error in answers:
            raise error
        return "auto"

    x = pt.vector("x", dtype="float32")
    monkeypatch.setattr(mode, "_placement", placement)
    with pytest.raises(UnsupportedDtype, match="asked for the placement"):
        opencl([x], pt.exp(x))
