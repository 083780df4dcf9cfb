"""Rules agree with torch.optim step by step, in every mode, and go on from its state."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl import optimizers
from pytensor_cl.ops.elemwise import GpuElemwise
from tests.helpers import assert_on_device, device_ops, on_one_driver
from tests.optimizers.reference import CASES, STATE_AFTER, TABLE, Run, params_of, rule

pytestmark = pytest.mark.filterwarnings("ignore:Loop fusion failed")  # of many rules in one function
MOST = tuple(case for case in CASES if f"{case}_options" not in CASES)
"""Every rule, with other options than the defaults."""
FEW = ("adam_options", "rmsprop_centered", "nadam_options")
"""Cases for compilers that take long."""


def test_python():
    assert Run({case: rule(case) for case in CASES}, "float64", "FAST_COMPILE").compare(1, 25) == len(CASES) * 12


@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize(("dtype", "floatx", "cases"), [("float64", "float32", FEW), ("float32", "float64", MOST)])
def test_device(context, dtype, floatx, cases):
    with pytensor.config.change_flags(floatX=floatx):
        run = Run({case: rule(case) for case in cases}, dtype, "OPENCL")
    assert_on_device(run.function, GpuElemwise)
    assert sum(isinstance(op, GpuElemwise) for op in device_ops(run.function)) >= 2 * len(cases)
    assert run.compare(1, 25) == len(cases) * 12


@on_one_driver
@pytest.mark.usefixtures("context")
@pytest.mark.parametrize(("floatx", "cases"), [("float64", FEW), ("float32", MOST)])
@pytest.mark.filterwarnings("ignore:Explicitly requested dtype")  # without 64 bits JAX counts with 32
def test_jax(floatx, cases):
    pytest.importorskip("jax")
    with pytensor.config.change_flags(floatX=floatx):
        run = Run({case: rule(case) for case in cases}, floatx, "JAX")
        assert run.compare(1, 25) == len(cases) * 12
    saved = run.rules["adam_options"].state_dict()
    assert saved["adam/step"].dtype == "int64"  # JAX has stored int32
    assert saved["adam/step"] == 25
    run.rules["adam_options"].load_state_dict(saved)


@on_one_driver
@pytest.mark.usefixtures("context")
def test_numba():
    assert Run({"adam_options": rule("adam_options")}, "float32", "NUMBA").compare(1, 25) == 12


@on_one_driver
@pytest.mark.usefixtures("context", "c_compiler")
def test_c():
    mode = pytensor.compile.mode.Mode("c", "fast_run")
    assert Run({"adam_options": rule("adam_options")}, "float32", mode).compare(1, 25) == 12


def test_state_of_torch_is_taken_over():
    dtype = "float64"
    rules = {case: rule(case) for case in MOST}
    values = {case: CASES[case][dtype]["steps"][str(STATE_AFTER)] for case in MOST}
    run = Run(rules, dtype, "FAST_COMPILE", values)
    for case, optimizer in rules.items():
        given = CASES[case][dtype]["state"]
        state = {
            int(position): {slot: None if value is None else np.asarray(value, dtype) for slot, value in slots.items()}
            for position, slots in given["state"].items()
        }
        params = run.params[case]
        optimizer.load_state_dict(
            optimizers.from_torch({"state": state, "param_groups": given["param_groups"]}, params)
        )
    assert run.compare(STATE_AFTER + 1, 25) == len(MOST) * 2


def test_state_of_torch_transposed():
    w, b = params_of("float64")
    optimizer = optimizers.Adam()
    optimizer.updates([w, b], [w, b])
    state = {
        position: {"step": 4.0, "exp_avg": np.arange(n).reshape(shape) * 1.0, "exp_avg_sq": np.ones(shape)}
        for position, n, shape in ((0, 6, (2, 3)), (1, 4, (1, 4)))
    }
    group = {"lr": 0.5, "params": [0, 1]}
    found = optimizers.from_torch({"state": state, "param_groups": [group]}, [w, b], transpose=["w"])
    optimizer.load_state_dict(found)
    np.testing.assert_array_equal(optimizer.state["adam/exp_avg/w"].get_value(), [[0, 3], [1, 4], [2, 5]])
    assert optimizer.state["adam/step"].get_value() == 4
    assert optimizer.learning_rate.get_value() == 0.5
    with pytest.raises(ValueError, match=r"exp_avg of parameter 0 for w has shape \(2, 3\)"):
        optimizers.from_torch({"state": state, "param_groups": [group]}, [w, b])
    with pytest.raises(ValueError, match="that of 2 parameters; 1 are given"):
        optimizers.from_torch({"state": state, "param_groups": [group]}, [w])
    groups = [{"lr": 0.5, "params": [0]}, {"lr": 0.1, "params": [1]}]
    with pytest.raises(ValueError, match="different values of lr"):
        optimizers.from_torch({"state": state, "param_groups": groups}, [w, b], transpose=["w"])


@pytest.mark.parametrize("name", TABLE["schedules"])
def test_schedules(name):
    kind, options, wanted = TABLE["schedules"][name]
    renamed = {"T_max": "total_steps", "eta_min": "final", "max_lr": "max_rate"}
    options = {renamed.get(key, key): value for key, value in options.items()}
    first = {} if kind == "OneCycleLR" else {"rate": 0.2}
    schedule = getattr(optimizers, name.removesuffix("_options"))(**first, **options)
    got = schedule(np.arange(30)).eval()
    assert got.dtype == "float64"
    np.testing.assert_allclose(got, wanted, rtol=1e-12)


def test_clipping():
    norm, limit = pt.dscalar(), pt.dscalar()
    for factor, limit, before, *wanted in TABLE["clipped"]:
        grads, norm = optimizers.clip_by_global_norm(
            [pt.constant([0.6, 0.0]) * factor, pt.constant([-0.8]) * factor], limit
        )
        assert norm.eval() == pytest.approx(before, rel=1e-12)
        for got, grad in zip(grads, wanted, strict=True):
            np.testing.assert_allclose(got.eval(), grad, rtol=1e-12)
