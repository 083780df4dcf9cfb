"""The form "lasagne" agrees with pymc.variational.updates, which is Lasagne's code, and so do its helpers."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl import optimizers
from tests.optimizers.reference import loss_of, params_of

lasagne = pytest.importorskip("pymc.variational.updates")

RULES = {
    "sgd": {"learning_rate": 0.05},
    "momentum": {"learning_rate": 0.05, "momentum": 0.8},
    "nesterov_momentum": {"learning_rate": 0.05, "momentum": 0.8},
    "adagrad": {"learning_rate": 0.5, "epsilon": 1e-3},
    "rmsprop": {"learning_rate": 0.1, "rho": 0.9, "epsilon": 1e-3},
    "adadelta": {"learning_rate": 1.0, "rho": 0.95, "epsilon": 1e-3},
    "adam": {"learning_rate": 0.05, "beta1": 0.8, "beta2": 0.9, "epsilon": 1e-2},
    "adamax": {"learning_rate": 0.05, "beta1": 0.8, "beta2": 0.9, "epsilon": 1e-2},
}


def falling(count):
    """A rate that is not constant, so that the forms of momentum differ."""
    return 0.05 / (1 + count.astype("float64"))


def compare(pairs, dtype="float64", **others):
    """Run updates of both in one function; `pairs` maps names to functions of (loss, params) -> updates."""
    step = pt.dscalar("step")
    params, updates = {}, {}
    for name, makers in pairs.items():
        params[name] = [params_of(dtype) for _ in makers]
        for make, own in zip(makers, params[name], strict=True):
            updates |= make(loss_of(own, step), own)
    f = pytensor.function([step], [], updates=updates, mode="FAST_COMPILE")
    for count in range(6):
        f(count)
        for name, (ours, theirs) in params.items():
            for mine, wanted in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(mine.get_value(), wanted.get_value(), rtol=1e-11, atol=1e-12, err_msg=name)


def test_rules():
    compare(
        {
            name: (
                lambda loss, params, n=name, o=options: getattr(optimizers, n)(loss, params, form="lasagne", **o),
                lambda loss, params, n=name, o=options: getattr(lasagne, n)(loss, params, **o),
            )
            for name, options in RULES.items()
        }
    )


@pytest.mark.parametrize("name", ["momentum", "nesterov_momentum"])
def test_momentum_with_a_rate_that_changes(name):
    """Here the two forms differ; the reference needs a count of its own."""

    def theirs(loss, params):
        count = pytensor.shared(np.int64(0))
        return {**getattr(lasagne, name)(loss, params, falling(count)), count: count + 1}

    compare({name: (lambda loss, params: getattr(optimizers, name)(loss, params, falling, form="lasagne"), theirs)})
    with pytest.raises(AssertionError):
        compare({name: (lambda loss, params: getattr(optimizers, name)(loss, params, falling), theirs)})


@pytest.mark.parametrize("name", ["apply_momentum", "apply_nesterov_momentum"])
@pytest.mark.parametrize("base", ["rmsprop", "plain"])
def test_momentum_for_other_updates(name, base):
    def base_updates(module, loss, params, **form):
        if base == "rmsprop":
            return module.rmsprop(loss, params, learning_rate=0.02, rho=0.9, epsilon=1e-3, **form)
        return {p: p - np.asarray(0.1, p.dtype) * g for p, g in zip(params, pytensor.grad(loss, params), strict=True)}

    def ours(loss, params):
        updates = base_updates(optimizers, loss, params, form="lasagne")
        result = getattr(optimizers, name)(updates, momentum=0.7)
        if base == "rmsprop":  # the velocities are part of what is saved
            assert {"rmsprop/velocity/w", "rmsprop/velocity/b"} < set(result.optimizer.state)
            assert set(result.optimizer.state.values()) <= set(result) | {result.optimizer.learning_rate}
        return result

    def theirs(loss, params):
        return getattr(lasagne, name)(base_updates(lasagne, loss, params), params, momentum=0.7)

    compare({name: (ours, theirs)})


def test_norm_constraints():
    value = np.random.default_rng(1).normal(size=(4, 3))
    for ours, theirs in [
        (optimizers.norm_constraint(pt.constant(value), 1.5), lasagne.norm_constraint(pt.constant(value), 1.5)),
        (
            optimizers.norm_constraint(pt.constant(value), 1.5, norm_axes=(1,)),
            lasagne.norm_constraint(pt.constant(value), 1.5, norm_axes=(1,)),
        ),
        (
            optimizers.norm_constraint(pt.constant(value.reshape(4, 3, 1)), 0.2),
            lasagne.norm_constraint(pt.constant(value.reshape(4, 3, 1)), 0.2),
        ),
    ]:
        np.testing.assert_allclose(ours.eval(), theirs.eval(), rtol=1e-13)
    with pytest.raises(ValueError, match="norm_axes is needed for 1 dimensions"):
        optimizers.norm_constraint(pt.constant([1.0]), 1.0)
    for limit in (0.5, 100.0):
        (ours,), norm = optimizers.total_norm_constraint([pt.constant(value)], limit, return_norm=True)
        (theirs,) = lasagne.total_norm_constraint([pt.constant(value)], limit)
        np.testing.assert_allclose(ours.eval(), theirs.eval(), rtol=1e-13)
        assert norm.eval() == pytest.approx(np.linalg.norm(value))


@pytest.mark.parametrize("rule", [optimizers.NAdam, optimizers.Lion])
def test_rules_that_lasagne_does_not_have(rule):
    with pytest.raises(ValueError, match="has form='torch'"):
        rule(form="lasagne")


def test_as_the_optimizer_of_variational_inference():
    """PyMC calls an optimizer with a loss and parameters."""
    pm = pytest.importorskip("pymc")
    with pm.Model():
        pm.Normal("mu", 3.0, 0.5)
        approximation = pm.fit(
            400,
            obj_optimizer=optimizers.Adam(0.05),
            random_seed=1,
            progressbar=False,
            compile_kwargs={"mode": "FAST_COMPILE"},
        )
    assert approximation.params[0].get_value()[0] == pytest.approx(3.0, abs=0.3)
