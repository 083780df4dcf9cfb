"""Rules that scale each element of a gradient by the sizes of the former ones, and Adam's family."""

from collections.abc import Mapping
from typing import Any, Unpack

import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable

from pytensor_cl.optimizers.base import Moment, Optimizer, Options, Rate, Slots
from pytensor_cl.optimizers.numbers import fraction, nonnegative, one_minus_power

type Scalars = tuple[dict[str, Variable], dict[SharedVariable, Variable]]


class _Scaled(Optimizer):
    """Rules whose step is divided by a root with `epsilon`: sqrt(s) + epsilon, or sqrt(s + epsilon) for "lasagne"."""

    def __init__(self, learning_rate: Rate, epsilon: float, **options: Any) -> None:
        super().__init__(learning_rate, **options)
        self.epsilon = nonnegative("epsilon", epsilon)

    def root(self, s: Variable) -> Variable:
        return pt.sqrt(s + self.epsilon) if self.form == "lasagne" else pt.sqrt(s) + self.epsilon


class Adagrad(_Scaled):
    """Adagrad (Duchi et al. 2011): s += g^2; p -= rate / (1 + (t - 1) lr_decay) g / (sqrt(s) + epsilon).

    Form "lasagne": g / sqrt(s + epsilon), where Lasagne's defaults are a rate of 1.0 and an epsilon of 1e-6.

    Parameters
    ----------
    learning_rate
        The rate.
    epsilon
        Keeps the divisor from 0.
    lr_decay
        The rate is divided by 1 + (t - 1) times this.
    options
        The keyword arguments of `Optimizer`.
    """

    def __init__(
        self,
        learning_rate: Rate = 0.01,
        epsilon: float = 1e-10,
        lr_decay: float = 0.0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(learning_rate, epsilon, **options)
        self.lr_decay = nonnegative("lr_decay", lr_decay)

    def scalars(self, now: Moment) -> Scalars:
        return {"rate": now.rate / (1.0 + (now.t - 1.0) * self.lr_decay) if self.lr_decay else now.rate}, {}

    def rule(self, p: Variable, g: Variable, slots: Slots, s: Mapping[str, Variable]) -> Variable:
        total = slots["sum"] + pt.sqr(g)
        slots["sum"] = total
        return p - s["rate"] * g / self.root(total)


class Adadelta(_Scaled):
    """Adadelta (Zeiler 2012): u = g sqrt(d + epsilon) / sqrt(s + epsilon); p -= rate u.

    Before, s = rho s + (1 - rho) g^2; afterwards, d = rho d + (1 - rho) u^2. Both forms are the same; Lasagne's
    default of `rho` is 0.95.

    Parameters
    ----------
    learning_rate
        The rate.
    rho
        The part of the former averages that stays.
    epsilon
        Keeps the divisor from 0 and lets the first step be larger than 0.
    options
        The keyword arguments of `Optimizer`.
    """

    def __init__(
        self, learning_rate: Rate = 1.0, rho: float = 0.9, epsilon: float = 1e-6, **options: Unpack[Options]
    ) -> None:
        super().__init__(learning_rate, epsilon, **options)
        self.rho = fraction("rho", rho)

    def rule(self, p: Variable, g: Variable, slots: Slots, s: Mapping[str, Variable]) -> Variable:
        square = self.rho * slots["square_avg"] + (1 - self.rho) * pt.sqr(g)
        change = slots["acc_delta"]
        u = g * pt.sqrt(change + self.epsilon) / pt.sqrt(square + self.epsilon)
        slots["square_avg"] = square
        slots["acc_delta"] = self.rho * change + (1 - self.rho) * pt.sqr(u)
        return p - s["rate"] * u


class RMSprop(_Scaled):
    """RMSprop (Tieleman and Hinton 2012): s = rho s + (1 - rho) g^2; p -= rate g / (sqrt(s) + epsilon).

    Form "lasagne": g / sqrt(s + epsilon), where Lasagne's defaults are 1.0, 0.9 and 1e-6.

    Parameters
    ----------
    learning_rate
        The rate.
    rho
        The part of the former average that stays.
    epsilon
        Keeps the divisor from 0.
    momentum
        The part of the former step that stays.
    centered
        Divide by the deviation from the mean gradient. The variance is bounded at 0, where rounding would make it
        negative.
    options
        The keyword arguments of `Optimizer`.
    """

    def __init__(
        self,
        learning_rate: Rate = 0.01,
        rho: float = 0.99,
        epsilon: float = 1e-8,
        momentum: float = 0.0,
        centered: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(learning_rate, epsilon, **options)
        self.rho, self.momentum = fraction("rho", rho), nonnegative("momentum", momentum)
        self.centered = centered

    def rule(self, p: Variable, g: Variable, slots: Slots, s: Mapping[str, Variable]) -> Variable:
        square = self.rho * slots["square_avg"] + (1 - self.rho) * pt.sqr(g)
        slots["square_avg"] = variance = square
        if self.centered:
            mean = self.rho * slots["grad_avg"] + (1 - self.rho) * g
            slots["grad_avg"] = mean
            variance = pt.maximum(square - pt.sqr(mean), 0.0)
        u = g / self.root(variance)
        if self.momentum:
            u = self.momentum * slots["momentum_buffer"] + u
            slots["momentum_buffer"] = u
        return p - s["rate"] * u


class _Moments(Optimizer):
    """Rules with an average of gradients and one of their sizes."""

    def __init__(self, learning_rate: Rate, beta1: float, beta2: float, epsilon: float, **options: Any) -> None:
        super().__init__(learning_rate, **options)
        self.beta1, self.beta2 = fraction("beta1", beta1), fraction("beta2", beta2)
        self.epsilon = nonnegative("epsilon", epsilon)

    def mean(self, g: Variable, slots: Slots) -> Variable:
        m = self.beta1 * slots["exp_avg"] + (1 - self.beta1) * g
        slots["exp_avg"] = m
        return m

    def mean_square(self, g: Variable, slots: Slots) -> Variable:
        v = self.beta2 * slots["exp_avg_sq"] + (1 - self.beta2) * pt.sqr(g)
        slots["exp_avg_sq"] = v
        return v


class Adam(_Moments):
    """Adam (Kingma and Ba 2015): p -= rate / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon).

    m = beta1 m + (1 - beta1) g and v = beta2 v + (1 - beta2) g^2. Form "lasagne", the paper's "epsilon hat":
    p -= rate sqrt(1 - beta2^t) / (1 - beta1^t) m / (sqrt(v) + epsilon).

    Parameters
    ----------
    learning_rate
        The rate.
    beta1
        The part of m that stays.
    beta2
        The part of v that stays.
    epsilon
        Keeps the divisor from 0.
    amsgrad
        Divide by the largest v so far (Reddi et al. 2018).
    options
        The keyword arguments of `Optimizer`.
    """

    def __init__(
        self,
        learning_rate: Rate = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        amsgrad: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, **options)
        self.amsgrad = amsgrad

    def scalars(self, now: Moment) -> Scalars:
        root = pt.sqrt(one_minus_power(self.beta2, now.t))
        size = now.rate / one_minus_power(self.beta1, now.t)
        return {"size": size * root if self.form == "lasagne" else size, "inverse_root": 1.0 / root}, {}

    def rule(self, p: Variable, g: Variable, slots: Slots, s: Mapping[str, Variable]) -> Variable:
        m, v = self.mean(g, slots), self.mean_square(g, slots)
        if self.amsgrad:
            v = pt.maximum(slots["max_exp_avg_sq"], v)
            slots["max_exp_avg_sq"] = v
        scale = pt.sqrt(v) if self.form == "lasagne" else pt.sqrt(v) * s["inverse_root"]
        return p - s["size"] * m / (scale + self.epsilon)


class AdamW(Adam):
    """AdamW (Loshchilov and Hutter 2019): p = (1 - rate weight_decay) p, then Adam.

    The decay is decoupled: it has no part in the moments. `weight_decay` is 0.01 unless it is given.

    Parameters
    ----------
    learning_rate
        The rate.
    beta1
        The part of m that stays.
    beta2
        The part of v that stays.
    epsilon
        Keeps the divisor from 0.
    amsgrad
        Divide by the largest v so far.
    options
        The keyword arguments of `Optimizer`.
    """

    decoupled = True

    def __init__(
        self,
        learning_rate: Rate = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        amsgrad: bool = False,
        **options: Unpack[Options],
    ) -> None:
        options.setdefault("weight_decay", 0.01)
        super().__init__(learning_rate, beta1, beta2, epsilon, amsgrad, **options)


class Adamax(_Moments):
    """Adamax (Kingma and Ba 2015): u = max(beta2 u, abs(g) + epsilon); p -= rate / (1 - beta1^t) m / u.

    Form "lasagne": u = max(beta2 u, abs(g)), and m / (u + epsilon).

    Parameters
    ----------
    learning_rate
        The rate.
    beta1
        The part of m that stays.
    beta2
        The part of u that stays.
    epsilon
        Keeps the divisor from 0.
    options
        The keyword arguments of `Optimizer`.
    """

    def __init__(
        self,
        learning_rate: Rate = 2e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, **options)

    def scalars(self, now: Moment) -> Scalars:
        return {"size": now.rate / one_minus_power(self.beta1, now.t)}, {}

    def rule(self, p: Variable, g: Variable, slots: Slots, s: Mapping[str, Variable]) -> Variable:
        m = self.mean(g, slots)
        if self.form == "lasagne":
            u = pt.maximum(self.beta2 * slots["exp_inf"], pt.abs(g))
            divisor = u + self.epsilon
        else:
            divisor = u = pt.maximum(self.beta2 * slots["exp_inf"], pt.abs(g) + self.epsilon)
        slots["exp_inf"] = u
        return p - s["size"] * m / divisor


class NAdam(_Moments):
    """NAdam (Dozat 2016), Adam with Nesterov's momentum, as PyTorch computes it.

    With mu(t) = beta1 (1 - 0.96^(t momentum_decay) / 2) and P(t) the product of mu(1) to mu(t), the numerator is
    (1 - mu(t)) g / (1 - P(t)) + mu(t + 1) m / (1 - P(t + 1)).

    Parameters
    ----------
    learning_rate
        The rate.
    beta1
        The part of m that stays.
    beta2
        The part of v that stays.
    epsilon
        Keeps the divisor from 0.
    momentum_decay
        The exponent of 0.96 grows by this with each step.
    options
        The keyword arguments of `Optimizer`.
    """

    forms = ("torch",)

    def __init__(
        self,
        learning_rate: Rate = 2e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        momentum_decay: float = 4e-3,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, **options)
        self.momentum_decay = nonnegative("momentum_decay", momentum_decay)
        self._product = self.scalar_state("mu_product", 1.0)

    def _momentum(self, t: Variable) -> Variable:
        return self.beta1 * (1.0 - 0.5 * pt.pow(0.96, t * self.momentum_decay))

    def scalars(self, now: Moment) -> Scalars:
        mu, following = self._momentum(now.t), self._momentum(now.t + 1.0)
        product = self._product * mu
        return {
            "of_gradient": now.rate * (1.0 - mu) / (1.0 - product),
            "of_mean": now.rate * following / (1.0 - product * following),
            "inverse_root": 1.0 / pt.sqrt(one_minus_power(self.beta2, now.t)),
        }, {self._product: product}

    def rule(self, p: Variable, g: Variable, slots: Slots, s: Mapping[str, Variable]) -> Variable:
        m, v = self.mean(g, slots), self.mean_square(g, slots)
        divisor = pt.sqrt(v) * s["inverse_root"] + self.epsilon
        return p - (s["of_gradient"] * g + s["of_mean"] * m) / divisor
