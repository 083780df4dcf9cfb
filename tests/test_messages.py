"""Mistakes of a first program: each error names the alternative."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import pytensor_cl
from pytensor_cl import nn, optimizers, train
from pytensor_cl.errors import ContextNotDefined, DeviceNotFound
from pytensor_cl.flags import advice
from pytensor_cl.runtime.device import resolve
from pytensor_cl.runtime.registry import _registry
from pytensor_cl.sharedvar import ON_DEVICE
from tests.helpers import on_one_driver, opencl, run_script


@pytest.fixture
def vector():
    return np.arange(5, dtype="float32")


# A value on a device in a function of another mode


@pytest.fixture
def on_the_device(context, vector, on_device):
    w = pytensor.shared(vector.copy(), name="w")
    step = opencl([], w.sum(), updates=[(w, w + 1)])
    step()
    assert list.__getitem__(w.container.storage, 0) is ON_DEVICE
    return w


@on_one_driver
@pytest.mark.parametrize("linker", ["cvm", "vm", "c"])
def test_c_code_that_reads_a_shared_value_on_a_device(on_the_device, linker, c_compiler, vector):
    w = on_the_device
    f = pytensor.function([], (w * 2).sum(), mode=pytensor.compile.mode.Mode(linker, "fast_run"))
    of_w = "of a shared variable w" if linker == "c" else "of the shared variable w"
    with pytest.raises(ValueError, match=of_w + r" is on an OpenCL device.*w.get_value\(borrow=True\).*mode='NUMBA'"):
        f()
    w.get_value(borrow=True)
    assert f() == ((vector + 1) * 2).sum()


@on_one_driver
def test_other_errors_of_c_code_are_left_alone(on_the_device, c_compiler, vector):
    x = pt.fvector("x")
    f = pytensor.function([x], x + np.ones(5, "float32"), mode=pytensor.compile.mode.Mode("cvm", "fast_run"))
    with pytest.raises((ValueError, AssertionError)) as caught:
        f(vector[:3])
    assert "OpenCL" not in str(caught.value)


@on_one_driver
@pytest.mark.parametrize("mode", ["NUMBA", pytensor.compile.mode.Mode("numba", "fast_compile")], ids=["name", "Mode"])
def test_device_variables_in_a_mode_that_cannot_hold_them(context, vector, mode):
    x, d = pt.fvector("x"), pytensor_cl.shared(vector, name="d")
    kind = pytensor_cl.GpuArrayType("float32", (None,))
    for inputs, result in (
        ([], d),
        ([], d.sum()),
        ([x], x.transfer(context.name)),
        ([x], pt.exp(x.transfer(context.name))),
        ([kind("k")], pt.constant(1)),
    ):
        with pytest.raises(NotImplementedError, match=r"(?s)Numba.*GpuArray.*mode='OPENCL'.*pytensor.shared"):
            pytensor.function(inputs, result, mode=mode, on_unused_input="ignore")
    for result, given in ((d, {}), (d * 2, {}), (x.transfer(context.name), {x: vector})):
        with pytest.raises(NotImplementedError, match=r"\.eval\(.*mode='OPENCL'\)"):
            result.eval(given, mode=mode)
        assert result.eval(given, mode="OPENCL") is not None


@on_one_driver
def test_the_variable_is_named(context, vector):
    d = pytensor_cl.shared(vector, name="weights")
    with pytest.raises(NotImplementedError, match="weights"):
        pytensor.function([], d.sum(), mode="NUMBA")


def test_modes_that_call_python_take_device_variables(context, vector):
    d = pytensor_cl.shared(vector)
    assert pytensor.function([], d.sum(), mode="FAST_COMPILE")() == 10


# Names of devices and contexts


@pytest.mark.parametrize("target", ["cuda", "gpu", "dev99", 3])
def test_targets_that_no_context_has(context, target, vector):
    x = pt.fvector("x")
    calls = (
        lambda: x.transfer(target),
        lambda: pytensor_cl.gpu_from_host(x, target),
        lambda: pytensor_cl.shared(vector, target=target),
    )
    for call in calls:
        with pytest.raises(
            ContextNotDefined, match=rf"no context is called {target!r}.*{context.name}.*pytensor_cl.use\(.*contexts="
        ):
            call()
    assert isinstance(x.transfer("cpu").type, pt.TensorType)


@pytest.mark.parametrize("target", ["opencl", "opencl:gpu", "opencl0:0", "opencl:pocl"])
def test_devices_in_place_of_contexts(context, target, vector):
    with pytest.raises(ContextNotDefined, match=rf"{target!r} is a device.*pytensor_cl.use\({target!r}, 'dev1'\)"):
        pt.fvector("x").transfer(target)


def test_the_host_is_no_context(context, vector):
    with pytest.raises(ContextNotDefined, match="pytensor.shared"):
        pytensor_cl.shared(vector, target="cpu")


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        ("gpu", "opencl:gpu"),
        ("GPU", "opencl:gpu"),
        ("cuda", "opencl:nvidia"),
        ("cuda0", "opencl:nvidia:0"),
        ("gpu1", "opencl:gpu:1"),
        ("pocl", "opencl:pocl"),
        ("0:0", "opencl0:0"),
        ("", "opencl"),
    ],
)
def test_devices_without_the_prefix(spec, hint):
    with pytest.raises(DeviceNotFound, match=rf"(?s)no OpenCL device.*{spec}.*write {hint!r}.*There are:"):
        resolve(spec)


def test_use_refuses_what_is_no_device_at_once():
    for spec in ("gpu", "cuda", ""):
        with pytest.raises(DeviceNotFound, match="write 'opencl"):
            pytensor_cl.use(spec, "nowhere")
    with pytest.raises(TypeError, match="device"):
        pytensor_cl.use(3, "nowhere")
    with pytest.raises(ContextNotDefined):
        pytensor_cl.gpu_from_host(pt.fvector(), "nowhere")


def test_a_name_that_is_taken(context):
    own = resolve(f"opencl:{context.name}")
    other = next((entry.spec for entry in pytensor_cl.devices() if entry is not own), None)
    if other is None:
        pytest.skip("needs two OpenCL devices")
    with pytest.raises(
        ValueError,
        match=rf"{context.name!r} is 'opencl:{context.name}' already.*another name.*pytensor_cl.use\('{other}', ",
    ):
        pytensor_cl.use(other, context.name)


def test_another_string_for_the_same_device(context):
    (entry,) = [e for e in pytensor_cl.devices() if e is resolve(f"opencl:{context.name}")]
    for spec in (entry.spec, entry.stable_spec, f"OpenCL:{context.name}"):
        assert pytensor_cl.use(spec, context.name) == context.name
    assert dict(_registry.specs)[context.name] == f"opencl:{context.name}"
    with pytest.raises(ValueError, match=rf"\({entry.spec}, .*cannot become 'opencl9:9' \(no device\)"):
        pytensor_cl.use("opencl9:9", context.name)


def test_names_and_settings_that_use_refuses(context):
    with pytest.raises(ValueError, match="'cpu' is the host's name"):
        pytensor_cl.use("opencl", "cpu")
    with pytest.raises(TypeError, match="the name of a context is a string"):
        pytensor_cl.use("opencl", 1)
    with pytest.raises(TypeError, match="no setting 'floatX' of a device; there are: fast_math.*quiet"):
        pytensor_cl.use("opencl", floatX="float32")
    with pytest.raises(ValueError, match="is open.*Give fast_math before"):
        pytensor_cl.use(f"opencl:{context.name}", context.name, fast_math=True)


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        ("opencl:pcol", "perhaps 'opencl:pocl' is meant"),
        ("opencl:gpus", "perhaps 'opencl:gpu' is meant"),
        ("opencl:0:1", "write 'opencl0:1'"),
        ("opencl floatX=float32", "flags are separated by commas"),
        ("opencl:gpu;floatX=float32", "flags are separated by commas"),
        ("opencl:apple", "There is no OpenCL driver of 'apple' here"),
        ("opencl:accelerator", "No accelerator has an OpenCL driver here"),
    ],
)
def test_misspelt_devices(spec, hint):
    with pytest.raises(DeviceNotFound) as caught:
        resolve(spec)
    assert hint in str(caught.value)


def test_drivers_in_a_folder_that_is_not_there(tmp_path):
    script = """
        import pytensor_cl
        from pytensor_cl.runtime.device import resolve
        try:
            resolve("opencl")
        except pytensor_cl.OpenCLError as error:
            seen["error"] = str(error)
    """
    seen, _ = run_script(script, OCL_ICD_VENDORS=str(tmp_path / "absent"))
    assert f"OCL_ICD_VENDORS names {tmp_path / 'absent'}, which does not exist" in seen["error"]


def test_shared_names_its_argument_for_the_device(vector):
    for name, hint in (("device", "target='dev0'"), ("dtype", "np.asarray")):
        with pytest.raises(TypeError, match=rf"no argument {name}: write .*{hint}"):
            pytensor_cl.shared(vector, **{name: "dev0"})


def test_packages_need_no_import_of_their_own():
    seen, _ = run_script("import pytensor_cl\nseen['name'] = pytensor_cl.optimizers.Adam.__name__")
    assert seen["name"] == "Adam"


# Flags


def test_assignments_to_flags_that_do_not_exist():
    for name, hint in (("opencl_placement", "opencl__placement"), ("opencl__plcement", "opencl__placement")):
        with pytest.raises(AttributeError, match=rf"no flag {name}. Did you mean {hint}\?"):
            setattr(pytensor.config, name, "device")
        assert not hasattr(pytensor.config, name)
    with pytest.raises(TypeError, match=r"cannot change.*PYTENSOR_FLAGS=opencl__cache_dir=/x"):
        pytensor.config.opencl__cache_dir = "/x"


def test_advice_for_unknown_flags():
    known = pytensor.config._config_var_dict
    for key, hint in (
        ("opencl_placement", "Did you mean opencl__placement?"),
        ("opencl__onhost", "Did you mean opencl__on_host?"),
        ("opencl.quiet", "Write it with two underscores: opencl__quiet"),
        ("DebugMode.check_py", "Write it with two underscores: DebugMode__check_py"),
        ("devcie", "Did you mean device?"),
        ("gpuarray.preallocate", "a flag of Theano"),
        ("lib.cnmem", "a flag of Theano"),
        ("force_device", "a flag of Theano"),
        ("opencl__xyzzy", "Flags that begin so are: opencl__quiet"),
    ):
        assert hint in advice(key, known), key
    assert advice("something", known) == ""


def test_unknown_flags_and_options_are_reported(tmp_path):
    rc = tmp_path / "rc"
    rc.write_text("[global]\nopencl__quiet = True\n[opencl]\nplacment = device\non_host = warn\n")
    script = """
        import warnings
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            import pytensor
        seen["found"] = sorted(str(w.message) for w in found)
        seen["on_host"] = pytensor.config.opencl__on_host
    """
    script = "import pytensor_cl\n" + textwrap.dedent(script)  # before PyTensor, as the start-up hook is
    seen, stderr = run_script(script, "opencl_quiet=1,foo=1,device=opencl,mode=FAST_RUN", PYTENSORRC=str(rc))
    assert seen["on_host"] == "warn"
    misplaced = "opencl__quiet in the section [global]. Write it without 'opencl__' in a section [opencl]"
    assert seen["found"] == [
        "PyTensor does not recognise this flag: foo",
        "PyTensor does not recognise this flag: opencl_quiet. Did you mean opencl__quiet?",
        f"the rc file has an option that is no flag: {misplaced}",
        "the rc file has an option that is no flag: placment in the section [opencl]. Did you mean opencl__placement?",
    ]
    assert "mode=FAST_RUN is given, so device=opencl computes only what is compiled with mode='OPENCL'" in stderr


def test_the_flag_device_without_the_prefix():
    script = """
        import pytensor, pytensor.tensor as pt
        x = pt.vector("x")
        try:
            pytensor.function([x], x * 2)
        except Exception as error:
            seen["error"] = [type(error).__name__, str(error)]
    """
    seen, _ = run_script(script, "device=gpu")
    assert seen["error"][0] == "DeviceNotFound" and "write 'opencl:gpu'" in seen["error"][1]


def test_a_loop_for_a_device_that_is_not_there():
    script = """
        import pytensor, pytensor.tensor as pt
        x, h, w, many = pt.matrix("x"), pt.vector("h"), pt.matrix("w"), pt.tensor3("many")
        states = pytensor.scan(
            lambda row, state, w: pt.tanh(row + state @ w),
            sequences=[x], outputs_info=[h], non_sequences=[w], return_updates=False,
        )
        (batch,) = pytensor.graph.replace.vectorize_graph([states], {w: many})
        for inputs, result in (([x, h, w], states), ([x, h, many], batch)):
            try:
                pytensor.function(inputs, result)
            except Exception as error:
                seen.setdefault("errors", []).append(type(error).__name__)
    """
    seen, errors = run_script(script, "device=opencl:absent")
    assert seen["errors"] == ["DeviceNotFound"] * 2 and "Traceback" not in errors


@pytest.mark.parametrize(
    "flag", ["contexts=dev0", "contexts=dev0->", "contexts=dev0=opencl0:0", "contexts=dev0:opencl0:0"]
)
def test_malformed_contexts(flag):
    script = """
        import pytensor, pytensor.tensor as pt
        x, errors = pt.fvector("x"), []
        import pytensor_cl
        for call in (
            lambda: pytensor.function([x], x * 2, mode="OPENCL"),
            lambda: x.transfer("dev0"),
            lambda: pytensor_cl.shared([1.0]),
            lambda: pytensor_cl.use("opencl"),
            lambda: pytensor_cl.GpuArrayType("float32", ()),
        ):
            try:
                call()
            except ValueError as error:
                errors.append(str(error))
        seen["errors"] = errors
        seen["devices"] = len(pytensor_cl.devices())
        seen["host"] = pytensor.function([x], x * 2, mode="FAST_COMPILE")([1.0]).tolist()
    """
    seen, _ = run_script(script, flag)
    assert len(seen["errors"]) == 5 and seen["devices"] >= 1 and seen["host"] == [2.0]
    for error in seen["errors"]:
        assert flag.partition("=")[2] in error and "contexts=dev0->opencl0:0;dev1->opencl0:1" in error


# Profiles


@on_one_driver
def test_a_profile_without_a_block(context, vector, on_device):
    x = pt.fvector("x")
    f = opencl([x], x * 2)
    p = pytensor_cl.profile(f)
    f(vector)
    assert "with pytensor_cl.profile(f) as p:" in str(p)
    assert "with pytensor_cl.profile(f) as p:" in p._repr_html_()
    for read in (lambda: p.nodes, lambda: p.shares, lambda: p.peaks(), lambda: p.save_trace("unwritten.json")):
        with pytest.raises(RuntimeError, match="with pytensor_cl.profile"):
            read()
    with p:
        pass
    assert "no call" in str(p) and "inside" in str(p)
    assert p.nodes == []
    with p:
        f(vector)
    assert "1 call" in str(p)


@on_one_driver
def test_functions_of_other_modes_have_no_profile(context):
    x = pt.fvector("x")
    f = pytensor.function([x], x * 2, mode="FAST_COMPILE")
    for report in (pytensor_cl.profile, pytensor_cl.explain):
        with pytest.raises(TypeError, match="mode='OPENCL'"):
            report(f)


# The line that names the device

_PARENT = """
    import multiprocessing, subprocess, sys
    import numpy as np, pytensor, pytensor.tensor as pt, pytensor_cl
    x = pt.fvector("x")
    with pytensor.config.change_flags(opencl__placement="device", opencl__select_backend=False):
        pytensor.function([x], pt.exp(x), mode="OPENCL")(np.zeros(3, "float32"))
    child = "import pytensor_cl; pytensor_cl.shared([1.0])"
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", child], check=True, capture_output=True, text=True)
        sys.stderr.write(done.stderr)
"""


_WORKERS = """
import multiprocessing
import pytensor
import pytensor_cl

def work(number):
    return float(pytensor_cl.shared([1.0]).get_value()[0])

if __name__ == "__main__":
    workers = multiprocessing.get_context("spawn")
    first = workers.Pool(1)
    second = workers.Pool(1)
    print([pool.apply(work, (0,)) for pool in (first, second)])
    for pool in (first, second):
        pool.close()
        pool.join()
"""


def test_the_line_appears_once_in_a_tree_of_processes():
    _, stderr = run_script(_PARENT)
    assert stderr.count("Mapped name None to device opencl") == 1
    _, stderr = run_script(_PARENT, "opencl__quiet=True")
    assert "Mapped name" not in stderr


def test_workers_of_xdist_print_it_once():
    script = "import pytensor_cl; pytensor_cl.shared([1.0])"
    for worker, count in (("gw0", 1), ("gw1", 0)):
        _, stderr = run_script(script, PYTEST_XDIST_WORKER=worker)
        assert stderr.count("Mapped name") == count


def test_workers_of_a_process_that_opens_no_device_print_it_once(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(_WORKERS)
    environment = {
        **os.environ,
        "PYTENSOR_CL_TREE": "",
        "PYTEST_XDIST_WORKER": "",
        "TMPDIR": str(tmp_path),
        "PYTENSOR_FLAGS": "",
    }
    done = subprocess.run([sys.executable, path], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "[1.0, 1.0]\n"
    assert done.stderr.count("Mapped name None to device opencl") == 1
    assert list(tmp_path.glob("pytensor-cl-*")) == []  # it is removed at the end


def test_two_programs_print_it_each(tmp_path):
    environment = {**os.environ, "PYTENSOR_CL_TREE": "", "PYTEST_XDIST_WORKER": "", "PYTENSOR_FLAGS": ""}
    command = [sys.executable, "-c", "import pytensor_cl; pytensor_cl.shared([1.0])"]
    for temporary in (tmp_path, tmp_path / "not" / "there"):
        environment["TMPDIR"] = str(temporary)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stderr.count("Mapped name None to device opencl") == 1


# Values in place of variables


@on_one_driver
def test_device_arrays_as_values_of_graphs(context, vector, on_device):
    r = context.from_host(vector)
    x = pt.fvector("x")
    for result in (x + r, r + x, pt.exp(r) + x, pt.as_tensor(r) * x):
        f = opencl([x], result)
        wanted = pytensor.function([x], result, mode="FAST_COMPILE")(vector)
        np.testing.assert_allclose(f(vector), wanted, rtol=1e-6)
    np.testing.assert_allclose(opencl([x], x + r)(vector), 2 * vector)
    np.testing.assert_array_equal(pytensor_cl.host_from_gpu(r).eval(mode="OPENCL"), vector)
    with pytest.raises(TypeError, match=r"gpu_from_host"):
        pytensor_cl.host_from_gpu(vector)
    with pytest.raises(TypeError, match=r"'dev0'|tensor"):
        pytensor_cl.gpu_from_host("dev0")


def test_shapes_of_device_types():
    with pytest.raises(TypeError, match="shape"):
        pytensor_cl.GpuArrayType("float32", 3)
    with pytest.raises(ValueError, match="negative"):
        pytensor_cl.GpuArrayType("float32", (-3,))
    with pytest.raises(TypeError, match="floot"):
        pytensor_cl.GpuArrayType("floot", (3,))


# The default context by its name


def test_the_default_context_is_there_by_its_name():
    """Also where nothing has used it yet, as in a process that loads a pickled function."""
    for call in ("pytensor_cl.shared([1.0], target='dev0')", "pytensor_cl.gpu_from_host(pt.fvector(), 'dev0')"):
        seen, _ = run_script(f"import pytensor.tensor as pt, pytensor_cl\nseen['kind'] = str({call}.type)")
        assert seen["kind"].startswith("GpuArray<dev0>")


def test_a_function_is_unpickled_in_a_new_process(tmp_path):
    path = str(tmp_path / "function.pickle")
    make = f"""
        import pickle, pytensor, pytensor.tensor as pt
        x = pt.fvector("x")
        with pytensor.config.change_flags(opencl__placement="device", opencl__select_backend=False):
            f = pytensor.function([x], pt.exp(x), mode="OPENCL")
        with open({path!r}, "wb") as file:
            pickle.dump(f, file)
    """
    load = f"""
        import pickle, pytensor_cl
        with open({path!r}, "rb") as file:
            f = pickle.load(file)
        seen["value"] = f([0.0, 0.0]).tolist()
        seen["nodes"] = [type(n.op).__name__ for n in pytensor_cl.explain(f).device_nodes]
    """
    run_script(make)
    seen, _ = run_script(load)
    assert seen["value"] == [1.0, 1.0] and seen["nodes"] == ["GpuElemwise"]


# Names and arguments of other libraries


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("max_pool2d", r"it is pool_2d\(input, ws\) here"),
        ("conv_transpose3d", "it is conv3d_transpose here"),
        ("dropout2d", "shared_axes"),
        ("batch_norm", "batch_normalization_train"),
        ("nll_loss", "it is nll here"),
        ("Linear", "functions, not layers"),
        ("nonsense", "no attribute 'nonsense'$"),
    ],
)
def test_names_of_other_libraries(name, hint):
    with pytest.raises(AttributeError, match=hint):
        getattr(nn, name)


def test_arguments_of_other_optimizers(tmp_path):
    for name, hint in (("lr", "it is learning_rate here"), ("betas", "beta1 and beta2"), ("nonsense", "'nonsense'$")):
        with pytest.raises(TypeError, match=rf"Adam\(\) got an unexpected keyword argument.*{hint}"):
            optimizers.Adam(**{name: 0.1})
    w = pytensor.shared(np.ones(3), name="w")
    with pytest.raises(TypeError, match=r"params must be a list.*write \[w\]"):
        optimizers.sgd(w.sum(), w, 0.1)
    with pytest.raises(FileNotFoundError, match="there is no folder .*absent for w.safetensors"):
        train.save(tmp_path / "absent" / "w.safetensors", [w])
