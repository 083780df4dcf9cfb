"""Types of updates, decay, steps left out, moments of another dtype, rates, errors."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import DisconnectedInputError

import pytensor_cl
from pytensor_cl import optimizers
from pytensor_cl.ops.elemwise import GpuElemwise
from tests.helpers import assert_on_device
from tests.optimizers.reference import CASES, params_of, rule

pytestmark = pytest.mark.filterwarnings("ignore:Loop fusion failed")  # of many rules in one function
BOTH = pytest.mark.parametrize("mode", ["FAST_COMPILE", "OPENCL"])
EVERY = {case: lambda case=case, **more: rule(case, **more) for case in CASES}
EVERY |= {"lion": lambda **more: optimizers.Lion(weight_decay=0.1, **more)}
EVERY |= {
    f"{case}_lasagne": lambda case=case, **more: rule(case, form="lasagne", **more)
    for case in CASES
    if "nadam" not in case and "dampening" not in case
}


def run(updates, inputs=(), mode="FAST_COMPILE"):
    return pytensor.function(list(inputs), [], updates=updates, mode=mode)


@pytest.mark.parametrize(("dtype", "floatx"), [("float64", "float32"), ("float32", "float64"), ("float16", "float64")])
def test_updates_have_the_type_of_their_variable(dtype, floatx):
    with pytensor.config.change_flags(floatX=floatx):
        for name, make in EVERY.items():
            for more in ({}, {"skip_nonfinite": True, "learning_rate": optimizers.cosine(0.1, 10)}):
                params = params_of(dtype)
                optimizer, grads = make(**more), list(params)  # the gradient of half their squares
                if more:
                    grads, _ = optimizers.clip_by_global_norm(grads, 1.0)
                updates, _ = optimizers.ema(optimizer.updates(grads, params), params, warm_up=bool(more))
                assert len(updates) > len(params)
                for variable, value in updates.items():
                    assert value.type.dtype == variable.type.dtype, (name, variable)
                    assert variable.type.is_super(value.type), (name, variable)
                assert {v.type.dtype for k, v in optimizer.state.items() if k.count("/") > 1} <= {dtype}
                assert all(v.type.shape == (1, None) for k, v in optimizer.state.items() if k.endswith("/b"))


def test_gradients_of_another_type_are_cast():
    (w,) = params_of("float32", {"w": np.zeros((2, 2))})
    grad = pt.constant(np.ones((2, 2), "float64"))
    updates = optimizers.sgd([grad], [w], 0.5)
    run(updates)()
    np.testing.assert_array_equal(w.get_value(), np.full((2, 2), -0.5, "float32"))


def test_step_count_and_rate():
    w, b = params_of("float64")
    optimizer = optimizers.Adam(1e-3)
    f = run(optimizer.updates([pt.ones_like(w), pt.ones_like(b)], [w, b]))
    before = w.get_value()
    f()
    np.testing.assert_allclose(before - w.get_value(), 1e-3, rtol=1e-6)
    optimizer.learning_rate.set_value(0.5)
    before = w.get_value()
    f()
    np.testing.assert_allclose(before - w.get_value(), 0.5, rtol=1e-6)
    assert optimizer.state["adam/step"].get_value() == 2
    assert optimizer.state["adam/step"].dtype == "int64"
    assert optimizer.learning_rate.dtype == "float64"
    assert optimizer.learning_rate.name == "adam/learning_rate"


@pytest.mark.parametrize("kind", ["shared", "symbolic", "schedule"])
def test_kinds_of_rates(kind):
    (w,) = params_of("float64", {"w": np.zeros(2)})
    rate, inputs = pytensor.shared(np.float32(0.5), name="rate"), []
    if kind == "symbolic":
        rate = pt.fscalar("rate")
        inputs = [rate]
    if kind == "schedule":
        rate = optimizers.piecewise([1], [0.5, 0.25])
    optimizer = optimizers.SGD(rate)
    f = run(optimizer.updates([pt.ones_like(w)], [w]), inputs)
    f(*([np.float32(0.5)] if kind == "symbolic" else []))
    np.testing.assert_array_equal(w.get_value(), [-0.5, -0.5])
    f(*([np.float32(0.25)] if kind == "symbolic" else []))
    np.testing.assert_array_equal(w.get_value(), [-1.0, -1.0] if kind == "shared" else [-0.75, -0.75])
    assert set(optimizer.state) == {"sgd/step"} | ({"sgd/learning_rate"} if kind == "shared" else set())
    if kind == "schedule":
        assert optimizer.learning_rate.eval() == 0.25


@pytest.mark.parametrize("decay", ["all", "predicate", "list"])
def test_decay_reaches_the_chosen_parameters(decay):
    w, b = params_of("float64", {"w": np.ones((2, 2)), "b": np.ones((1, 2))})
    chosen = {"all": None, "predicate": lambda p: p.name == "w", "list": [w]}[decay]
    zeros = [pt.zeros_like(w), pt.zeros_like(b)]
    run(optimizers.adamw(zeros, [w, b], 0.1, weight_decay=0.5, decay=chosen))()
    np.testing.assert_allclose(w.get_value(), 0.95)
    np.testing.assert_allclose(b.get_value(), 0.95 if decay == "all" else 1.0)
    with pytest.raises(ValueError, match="decay lists what is not among the parameters: w"):
        optimizers.sgd([zeros[1]], [b], 0.1, weight_decay=0.5, decay=[w])


@pytest.mark.usefixtures("on_device")
@BOTH
def test_steps_that_are_not_finite_are_left_out(context, mode):
    """All rules are compiled together (a few on the device): parameters, moments, counts, and averages too."""
    value, inputs = np.ones((3, 2), "float32"), pt.fmatrix("g")
    updates, states = {}, []
    for name in EVERY if mode == "FAST_COMPILE" else ("adam_amsgrad", "nadam", "momentum_lasagne"):
        make = EVERY[name]
        w, b = params_of("float32")
        optimizer = make(skip_nonfinite=True)
        own, averages = optimizers.ema(optimizer.updates([inputs, pt.ones_like(b)], [w, b]), [w], 0.5)
        updates |= own
        states += [w, b, *optimizer.state.values(), *averages.values()]
    f = run(updates, [inputs], mode)
    if mode == "OPENCL":
        assert_on_device(f, GpuElemwise)
    f(value)
    before = [variable.get_value() for variable in states]
    for bad in (np.nan, np.inf, -np.inf):
        broken = value.copy()
        broken[1, 1] = bad
        f(broken)
        for variable, old in zip(states, before, strict=True):
            np.testing.assert_array_equal(variable.get_value(), old, err_msg=str(variable))
    f(value)
    changed = [not np.array_equal(v.get_value(), old) for v, old in zip(states, before, strict=True)]
    fixed = {"learning_rate"}
    assert all(c for v, c in zip(states, changed, strict=True) if v.name.rpartition("/")[2] not in fixed | {"w", "b"})
    assert all(c for v, c in zip(states, changed, strict=True) if v.name in ("w", "b"))


def test_nan_comes_through_without_the_option():
    (w,) = params_of("float64", {"w": np.ones(2)})
    run(optimizers.adam([pt.constant([np.nan, 1.0])], [w], 0.1))()
    assert np.isnan(w.get_value()).tolist() == [True, False]


@pytest.mark.usefixtures("on_device")
@BOTH
def test_moments_of_half_precision_parameters(context, mode):
    """The square of 1e-4 is 0 in float16, with which the step would be about 1e4 instead of the rate."""
    (w,) = params_of("float16", {"w": np.ones(3)})
    optimizer = optimizers.Adam(0.125, moment_dtype="float32")
    f = run(optimizer.updates([pt.constant(np.full(3, 1e-4, "float16"))], [w]), mode=mode)
    if mode == "OPENCL":
        assert_on_device(f, GpuElemwise)
    f()
    np.testing.assert_allclose(w.get_value().astype("float32"), 0.875, rtol=1e-3)
    assert w.get_value().dtype == "float16"
    assert optimizer.state["adam/exp_avg_sq/w"].dtype == "float32"
    np.testing.assert_allclose(optimizer.state["adam/exp_avg_sq/w"].get_value(), 1e-11, rtol=1e-3)


def test_centered_variance_is_not_negative():
    """Equal gradients: rounding makes s - a^2 negative after some steps, which PyTorch makes NaN of."""
    (w,) = params_of("float32", {"w": np.zeros(64)})
    grad = pt.constant(np.linspace(0.1, 3, 64, dtype="float32"))
    optimizer = optimizers.RMSprop(1e-3, rho=0.5, epsilon=1e-3, centered=True)
    f = run(optimizer.updates([grad], [w]))
    for _ in range(60):
        f()
    s, a = (optimizer.state[f"rmsprop/{kind}/w"].get_value() for kind in ("square_avg", "grad_avg"))
    assert (s - a * a < 0).any()  # there was something to bound
    assert np.isfinite(w.get_value()).all()


def test_lion():
    """By hand: the sign of an average, and an average with another factor."""
    (w,) = params_of("float64", {"w": np.array([1.0, -2.0])})
    grads = np.array([[0.5, -1.0], [-5.0, 8.0], [0.1, 0.1]])
    g = pt.dvector("g")
    f = run(optimizers.lion([g], [w], 0.1, weight_decay=0.2), [g])
    m, p = np.zeros(2), np.array([1.0, -2.0])
    for grad in grads:
        f(grad)
        p = p * (1 - 0.1 * 0.2) - 0.1 * np.sign(0.9 * m + 0.1 * grad)
        m = 0.99 * m + 0.01 * grad
        np.testing.assert_allclose(w.get_value(), p, rtol=1e-13)


@pytest.mark.usefixtures("on_device")
@BOTH
def test_parameters_without_dimensions(context, mode):
    """A temperature; also a variable whose value is always on the device."""
    (s,) = params_of("float32", {"s": 2.0})
    params = [s] if mode == "FAST_COMPILE" else [s, pytensor_cl.shared(np.full(3, 2, "float32"), name="d")]
    optimizer = optimizers.AdamW(0.1, weight_decay=0.5, skip_nonfinite=True)
    grads, _ = optimizers.clip_by_global_norm([2 * param for param in params], 1.0)
    f = run(optimizer.updates(grads, params), mode=mode)
    if mode == "OPENCL":
        assert_on_device(f, GpuElemwise)
    f()
    for param in params:
        np.testing.assert_allclose(param.get_value(), 2 * 0.95 - 0.1, rtol=1e-5)
    assert s.get_value().shape == ()


def test_two_losses_share_a_state():
    w, b = params_of("float64")
    optimizer = optimizers.Momentum(0.1)
    first, second = optimizer.updates([w, b], [w, b]), optimizer.updates([w], [w])
    assert set(second) < set(first)
    with pytest.raises(ValueError, match="already has the state of another parameter named w"):
        optimizer.updates([w], params_of("float64")[:1])


def test_names_of_two_optimizers():
    (w,) = params_of("float64")[:1]
    optimizer = optimizers.Adam(name="critic")
    optimizer.updates([w], [w])
    assert list(optimizer.state) == [
        "critic/step",
        "critic/learning_rate",
        "critic/exp_avg/w",
        "critic/exp_avg_sq/w",
    ]


def test_state_dict():
    w, b = params_of("float32")
    optimizer = optimizers.NAdam()
    f = run(optimizer.updates([w, b], [w, b]))
    f()
    saved = optimizer.state_dict()
    values = [w.get_value(), b.get_value()]
    f()
    after = optimizer.state_dict(), w.get_value()
    w.set_value(values[0])
    b.set_value(values[1])
    optimizer.load_state_dict(dict(reversed(saved.items())))
    f()
    for name, value in after[0].items():
        np.testing.assert_array_equal(optimizer.state_dict()[name], value)
    np.testing.assert_array_equal(w.get_value(), after[1])
    broken = dict(saved)
    del broken["nadam/step"]
    broken["nadam/exp_avg/x"] = np.zeros(3)
    broken["nadam/exp_avg/w"] = np.zeros((2, 3), "float32")
    broken["nadam/exp_avg/b"] = np.zeros((1, 4), "float64")
    with pytest.raises(ValueError, match="nothing was changed") as caught:
        optimizer.load_state_dict(broken)
    for text in (
        "nadam/step is missing",
        "nadam/exp_avg/x is not known",
        "nadam/exp_avg/w has shape (2, 3), the variable (3, 2)",
        "nadam/exp_avg/b is float64, the variable float32",
    ):
        assert text in str(caught.value)
    for name, value in after[0].items():
        np.testing.assert_array_equal(optimizer.state_dict()[name], value)


def test_errors():
    w, b = params_of("float64")
    loss = pt.sqr(w).sum()
    with pytest.raises(DisconnectedInputError, match="does not depend on these parameters: b"):
        optimizers.adam(loss, [w, b])
    with pytest.raises(ValueError, match="parameter 0 has no name"):
        optimizers.adam(loss, [pytensor.shared(np.zeros(2))])
    with pytest.raises(ValueError, match=r"twice there: \['w'\]"):
        optimizers.adam(loss, [w, params_of("float64")[0]])
    with pytest.raises(TypeError, match="params must be shared variables"):
        optimizers.adam(loss, [pt.dvector("x")])
    with pytest.raises(TypeError, match="optimizers need floating-point numbers"):
        optimizers.adam(loss, [pytensor.shared(np.zeros(2, "int64"), name="n")])
    with pytest.raises(TypeError, match=r"the loss must be 0-d, such as loss.mean\(\)"):
        optimizers.adam(pt.sqr(w), [w])
    for wrong in (w.astype("int64").sum(), w.astype("complex128").sum()):
        with pytest.raises(TypeError, match="the loss must be a floating-point number, so cast it first"):
            optimizers.adam(wrong, [w])
    with pytest.raises(ValueError, match="there are 1 gradients for 2 parameters"):
        optimizers.adam([w], [w, b])
    with pytest.raises(TypeError, match="the gradient of w has 1 dimensions, the parameter 2"):
        optimizers.adam([pt.dvector()], [w])
    with pytest.raises(TypeError, match="the gradient of w is complex128"):
        optimizers.adam([pt.zmatrix()], [w])
    for options in ({"learning_rate": -1}, {"epsilon": -1}, {"weight_decay": -1}, {"beta1": 1.0}, {"beta2": -0.1}):
        with pytest.raises(ValueError, match=next(iter(options))):
            optimizers.Adam(**options)
    with pytest.raises(TypeError, match="beta1 must be a number"):
        optimizers.Adam(beta1=pt.dscalar())
    with pytest.raises(TypeError, match="learning_rate must be a 0-d variable"):
        optimizers.Adam(pt.dvector())
    with pytest.raises(ValueError, match="has form='torch' or 'lasagne'; got 'keras'"):
        optimizers.Adam(form="keras")
    with pytest.raises(TypeError, match="moment_dtype"):
        optimizers.Adam(moment_dtype="int32")
    with pytest.raises(ValueError, match="has no dampening"):
        optimizers.Momentum(dampening=0.1, form="lasagne")
    with pytest.raises(TypeError, match="0-d variable for a 0-d step count"):
        optimizers.SGD(lambda count: pt.ones(3)).updates([w], [w])
