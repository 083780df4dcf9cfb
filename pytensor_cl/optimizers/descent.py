"""Rules of stochastic gradient descent: plain, with momentum, with signs; and momentum for other rules' updates."""

from collections.abc import Iterable, Mapping
from typing import Unpack

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable

from pytensor_cl.optimizers.base import Moment, Optimizer, Options, Rate, Slots, Updates
from pytensor_cl.optimizers.numbers import as_type_of, fraction, nonnegative, numbers_as, working_dtype


class SGD(Optimizer):
    """Stochastic gradient descent: p -= rate g.

    Parameters
    ----------
    learning_rate
        The rate.
    options
        The keyword arguments of `Optimizer`.
    """

    def __init__(self, learning_rate: Rate = 1e-3, **options: Unpack[Options]) -> None:
        super().__init__(learning_rate, **options)

    def rule(self, p: Variable, g: Variable, slots: Slots, s: Mapping[str, Variable]) -> Variable:
        return p - s["rate"] * g


class Momentum(Optimizer):
    """SGD with momentum: v = momentum v + (1 - dampening) g, the first v is g; p -= rate v.

    Form "lasagne": v = momentum v - rate g; p += v. Both agree while the rate is constant and `dampening` is 0.

    Parameters
    ----------
    learning_rate
        The rate.
    momentum
        The part of the former step that stays.
    dampening
        The part of the gradient that is left out.
    options
        The keyword arguments of `Optimizer`.
    """

    def __init__(
        self, learning_rate: Rate = 1e-3, momentum: float = 0.9, dampening: float = 0.0, **options: Unpack[Options]
    ) -> None:
        super().__init__(learning_rate, **options)
        self.momentum = nonnegative("momentum", momentum)
        self.dampening = nonnegative("dampening", dampening)
        if self.dampening and self.form == "lasagne":
            raise ValueError("form='lasagne' of momentum has no dampening")

    def scalars(self, now: Moment) -> tuple[dict[str, Variable], dict[SharedVariable, Variable]]:
        share = pt.switch(pt.eq(now.t, 1), 1.0, 1.0 - self.dampening)
        return {"rate": now.rate, "share": share}, {}

    def velocity(self, g: Variable, slots: Slots, s: Mapping[str, Variable]) -> Variable:
        """Store and return the new velocity; the two forms differ in its meaning, so in its name."""
        if self.form == "lasagne":
            v = self.momentum * slots["velocity"] - s["rate"] * g
            slots["velocity"] = v
        else:
            v = self.momentum * slots["momentum_buffer"] + (s["share"] * g if self.dampening else g)
            slots["momentum_buffer"] = v
        return v

    def rule(self, p: Variable, g: Variable, slots: Slots, s: Mapping[str, Variable]) -> Variable:
        v = self.velocity(g, slots, s)
        return p + v if self.form == "lasagne" else p - s["rate"] * v


class Nesterov(Momentum):
    """SGD with Nesterov's momentum: v = momentum v + g; p -= rate (g + momentum v).

    Form "lasagne": v = momentum v - rate g; p += momentum v - rate g.

    Parameters
    ----------
    learning_rate
        The rate.
    momentum
        The part of the former step that stays.
    options
        The keyword arguments of `Optimizer`.
    """

    def __init__(self, learning_rate: Rate = 1e-3, momentum: float = 0.9, **options: Unpack[Options]) -> None:
        super().__init__(learning_rate, momentum, **options)

    def rule(self, p: Variable, g: Variable, slots: Slots, s: Mapping[str, Variable]) -> Variable:
        v = self.velocity(g, slots, s)
        if self.form == "lasagne":
            return p + self.momentum * v - s["rate"] * g
        return p - s["rate"] * (g + self.momentum * v)


class Lion(Optimizer):
    """Lion (Chen et al. 2023): p = (1 - rate weight_decay) p; p -= rate sign(beta1 m + (1 - beta1) g).

    Then m = beta2 m + (1 - beta2) g. The decay is decoupled, as of AdamW.

    Parameters
    ----------
    learning_rate
        The rate; about a tenth of that for Adam.
    beta1
        The part of m in the direction.
    beta2
        The part of m that stays.
    options
        The keyword arguments of `Optimizer`.
    """

    decoupled = True
    forms = ("torch",)

    def __init__(
        self, learning_rate: Rate = 1e-4, beta1: float = 0.9, beta2: float = 0.99, **options: Unpack[Options]
    ) -> None:
        super().__init__(learning_rate, **options)
        self.beta1, self.beta2 = fraction("beta1", beta1), fraction("beta2", beta2)

    def rule(self, p: Variable, g: Variable, slots: Slots, s: Mapping[str, Variable]) -> Variable:
        m = slots["exp_avg"]
        slots["exp_avg"] = self.beta2 * m + (1 - self.beta2) * g
        return p - s["rate"] * pt.sign(self.beta1 * m + (1 - self.beta1) * g)


def _with_velocities(
    updates: Mapping[SharedVariable, Variable],
    params: Iterable[SharedVariable] | None,
    momentum: float,
    is_nesterov: bool,
) -> Updates:
    """Return updates whose steps have momentum; velocities belong to the state of the updates' optimizer, if any."""
    updates = updates if isinstance(updates, Updates) else Updates(updates)
    optimizer, momentum = updates.optimizer, nonnegative("momentum", momentum)
    if params is None:
        params = list(updates) if optimizer is None else [p for p in updates if optimizer.has(p)]
    changed: dict[SharedVariable, Variable] = {}
    for param in params:
        if optimizer is None:
            value = np.zeros(param.get_value().shape, param.type.dtype)
            velocity = pytensor.shared(value, name=f"velocity/{param.name}", shape=param.type.shape)
        else:
            velocity = optimizer.slot("velocity", param)
        work = working_dtype(param.type.dtype)
        with numbers_as(work):
            goal = updates[param].astype(work)
            moved = momentum * velocity.astype(work) + goal
            new = moved - param.astype(work)
            if is_nesterov:
                moved = momentum * new + goal
            if updates.finite is not None:
                new, moved = pt.switch(updates.finite, new, velocity), pt.switch(updates.finite, moved, param)
        changed |= {velocity: as_type_of(velocity, new), param: as_type_of(param, moved)}
    return updates.derived(changed)


def apply_momentum(
    updates: Mapping[SharedVariable, Variable],
    params: Iterable[SharedVariable] | None = None,
    momentum: float = 0.9,
) -> Updates:
    """Return the updates of any rule with momentum added, as Lasagne's function.

    v = momentum v + (new p - p); p += v.

    Parameters
    ----------
    updates
        Updates of parameters.
    params
        The parameters that get momentum; None: all.
    momentum
        The part of the former step that stays.
    """
    return _with_velocities(updates, params, momentum, is_nesterov=False)


def apply_nesterov_momentum(
    updates: Mapping[SharedVariable, Variable],
    params: Iterable[SharedVariable] | None = None,
    momentum: float = 0.9,
) -> Updates:
    """Return the updates of any rule with Nesterov's momentum added, as Lasagne's function.

    v = momentum v + (new p - p); p = new p + momentum v.

    Parameters
    ----------
    updates
        Updates of parameters.
    params
        The parameters that get momentum; None: all.
    momentum
        The part of the former step that stays.
    """
    return _with_velocities(updates, params, momentum, is_nesterov=True)
