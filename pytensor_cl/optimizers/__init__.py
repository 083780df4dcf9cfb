"""Optimizers: rules as functions and classes, schedules, clipping, averages of weights; they work in every mode.

A function such as ``adam(loss_or_grads, params)`` returns updates for ``pytensor.function``. A class such as
``Adam(learning_rate)`` has the same rule, and the state by name.
"""

from pytensor_cl.optimizers.adaptive import Adadelta, Adagrad, Adam, Adamax, AdamW, NAdam, RMSprop
from pytensor_cl.optimizers.averages import ema
from pytensor_cl.optimizers.base import Optimizer, Updates
from pytensor_cl.optimizers.descent import SGD, Lion, Momentum, Nesterov, apply_momentum, apply_nesterov_momentum
from pytensor_cl.optimizers.functions import (
    adadelta,
    adagrad,
    adam,
    adamax,
    adamw,
    lion,
    momentum,
    nadam,
    nesterov,
    nesterov_momentum,
    rmsprop,
    sgd,
)
from pytensor_cl.optimizers.gradients import (
    Accumulator,
    clip_by_global_norm,
    clip_by_value,
    norm_constraint,
    total_norm_constraint,
)
from pytensor_cl.optimizers.lbfgs import LBFGS, lbfgs
from pytensor_cl.optimizers.schedules import constant, cosine, exponential, one_cycle, piecewise, step_decay, warm_up
from pytensor_cl.optimizers.torch_state import from_torch

__all__ = [
    "LBFGS",
    "SGD",
    "Accumulator",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Lion",
    "Momentum",
    "NAdam",
    "Nesterov",
    "Optimizer",
    "RMSprop",
    "Updates",
    "adadelta",
    "adagrad",
    "adam",
    "adamax",
    "adamw",
    "apply_momentum",
    "apply_nesterov_momentum",
    "clip_by_global_norm",
    "clip_by_value",
    "constant",
    "cosine",
    "ema",
    "exponential",
    "from_torch",
    "lbfgs",
    "lion",
    "momentum",
    "nadam",
    "nesterov",
    "nesterov_momentum",
    "norm_constraint",
    "one_cycle",
    "piecewise",
    "rmsprop",
    "sgd",
    "step_decay",
    "total_norm_constraint",
    "warm_up",
]
