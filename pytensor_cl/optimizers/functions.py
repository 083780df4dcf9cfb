"""The rules as functions, which return updates at once: ``adam(loss, params)``."""

from collections.abc import Iterable
from typing import Any, Unpack

from pytensor.compile.sharedvalue import SharedVariable

from pytensor_cl.optimizers.adaptive import Adadelta, Adagrad, Adam, Adamax, AdamW, NAdam, RMSprop
from pytensor_cl.optimizers.base import Options, Rate, Updates
from pytensor_cl.optimizers.descent import SGD, Lion, Momentum, Nesterov

type Params = Iterable[SharedVariable]


def sgd(loss_or_grads: Any, params: Params, learning_rate: Rate = 1e-3, **options: Unpack[Options]) -> Updates:
    """Return the updates of `SGD`."""
    return SGD(learning_rate, **options).updates(loss_or_grads, params)


def momentum(
    loss_or_grads: Any,
    params: Params,
    learning_rate: Rate = 1e-3,
    momentum: float = 0.9,
    dampening: float = 0.0,
    **options: Unpack[Options],
) -> Updates:
    """Return the updates of `Momentum`."""
    return Momentum(learning_rate, momentum, dampening, **options).updates(loss_or_grads, params)


def nesterov(
    loss_or_grads: Any,
    params: Params,
    learning_rate: Rate = 1e-3,
    momentum: float = 0.9,
    **options: Unpack[Options],
) -> Updates:
    """Return the updates of `Nesterov`; Lasagne's name, ``nesterov_momentum``, is the same function."""
    return Nesterov(learning_rate, momentum, **options).updates(loss_or_grads, params)


nesterov_momentum = nesterov


def adagrad(
    loss_or_grads: Any,
    params: Params,
    learning_rate: Rate = 0.01,
    epsilon: float = 1e-10,
    lr_decay: float = 0.0,
    **options: Unpack[Options],
) -> Updates:
    """Return the updates of `Adagrad`."""
    return Adagrad(learning_rate, epsilon, lr_decay, **options).updates(loss_or_grads, params)


def adadelta(
    loss_or_grads: Any,
    params: Params,
    learning_rate: Rate = 1.0,
    rho: float = 0.9,
    epsilon: float = 1e-6,
    **options: Unpack[Options],
) -> Updates:
    """Return the updates of `Adadelta`."""
    return Adadelta(learning_rate, rho, epsilon, **options).updates(loss_or_grads, params)


def rmsprop(
    loss_or_grads: Any,
    params: Params,
    learning_rate: Rate = 0.01,
    rho: float = 0.99,
    epsilon: float = 1e-8,
    momentum: float = 0.0,
    centered: bool = False,
    **options: Unpack[Options],
) -> Updates:
    """Return the updates of `RMSprop`."""
    return RMSprop(learning_rate, rho, epsilon, momentum, centered, **options).updates(loss_or_grads, params)


def adam(
    loss_or_grads: Any,
    params: Params,
    learning_rate: Rate = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    amsgrad: bool = False,
    **options: Unpack[Options],
) -> Updates:
    """Return the updates of `Adam`."""
    return Adam(learning_rate, beta1, beta2, epsilon, amsgrad, **options).updates(loss_or_grads, params)


def adamw(
    loss_or_grads: Any,
    params: Params,
    learning_rate: Rate = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    amsgrad: bool = False,
    **options: Unpack[Options],
) -> Updates:
    """Return the updates of `AdamW`."""
    return AdamW(learning_rate, beta1, beta2, epsilon, amsgrad, **options).updates(loss_or_grads, params)


def adamax(
    loss_or_grads: Any,
    params: Params,
    learning_rate: Rate = 2e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    **options: Unpack[Options],
) -> Updates:
    """Return the updates of `Adamax`."""
    return Adamax(learning_rate, beta1, beta2, epsilon, **options).updates(loss_or_grads, params)


def nadam(
    loss_or_grads: Any,
    params: Params,
    learning_rate: Rate = 2e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    momentum_decay: float = 4e-3,
    **options: Unpack[Options],
) -> Updates:
    """Return the updates of `NAdam`."""
    return NAdam(learning_rate, beta1, beta2, epsilon, momentum_decay, **options).updates(loss_or_grads, params)


def lion(
    loss_or_grads: Any,
    params: Params,
    learning_rate: Rate = 1e-4,
    beta1: float = 0.9,
    beta2: float = 0.99,
    **options: Unpack[Options],
) -> Updates:
    """Return the updates of `Lion`."""
    return Lion(learning_rate, beta1, beta2, **options).updates(loss_or_grads, params)
