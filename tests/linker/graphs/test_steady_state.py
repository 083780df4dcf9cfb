"""Training steps that were taken before allocate no memory on the device."""

from itertools import pairwise

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.special import log_softmax

from pytensor_cl import nn
from tests.helpers import assert_on_device, opencl

WARM_UP, STEPS = 6, 12


def dense(x, sizes, parameters, rng):
    """Layers of a perceptron; appends its parameters."""
    for k, (n_in, n_out) in enumerate(pairwise(sizes)):
        w = pytensor.shared(rng.normal(0, 0.1, (n_in, n_out)).astype("float32"))
        b = pytensor.shared(np.zeros(n_out, "float32"))
        parameters += [w, b]
        x = x @ w + b
        x = pt.tanh(x) if k + 2 < len(sizes) else x
    return x


def perceptron(x, parameters, rng):
    return dense(x.flatten(2), (144, 32, 10), parameters, rng)


def convolutional(x, parameters, rng):
    w = pytensor.shared(rng.normal(0, 0.1, (16, 1, 3, 3)).astype("float32"))
    b = pytensor.shared(np.zeros(16, "float32"))
    parameters += [w, b]
    hidden = nn.pool_2d(pt.maximum(nn.conv2d(x, w, border_mode="half") + b[:, None, None], 0), 2)
    return dense(hidden.flatten(2), (16 * 36, 10), parameters, rng)


@pytest.mark.parametrize("network", [perceptron, convolutional])
def test_a_training_step_allocates_nothing(context, rng, monkeypatch, network):
    """Neither buffers of any pool nor the arena of captured graphs change from step to step, with new data in each."""
    x, targets, parameters = pt.tensor4("x", dtype="float32"), pt.fmatrix("targets"), []
    loss = -(targets * log_softmax(network(x, parameters, rng), axis=1)).sum(axis=1).mean()
    updates = {}
    for parameter, gradient in zip(parameters, pytensor.grad(loss, parameters), strict=True):
        velocity = pytensor.shared(np.zeros_like(parameter.get_value()))
        updates[velocity] = np.float32(0.9) * velocity - np.float32(0.05) * gradient
        updates[parameter] = parameter + updates[velocity]
    with pytensor.config.change_flags(opencl__placement="device"):
        step = opencl([x, targets], loss, updates=updates)
    assert_on_device(step)
    images = rng.normal(size=(WARM_UP + STEPS, 8, 1, 12, 12)).astype("float32")
    labels = np.eye(10, dtype="float32")[rng.integers(0, 10, (WARM_UP + STEPS, 8))]
    losses = [float(step(*pair)) for pair in zip(images[:WARM_UP], labels[:WARM_UP], strict=True)]
    allocated = []
    monkeypatch.setattr(context.memory.buffers, "_on_allocation", allocated.append)
    before = context.memory.statistics()
    for pair in zip(images[WARM_UP:], labels[WARM_UP:], strict=True):
        losses.append(float(step(*pair)))
        after = context.memory.statistics()
        assert after.managed_bytes == before.managed_bytes
        assert after.arena_bytes == before.arena_bytes
        assert after.active_blocks + after.held_blocks == before.active_blocks + before.held_blocks
    assert not allocated
    assert np.isfinite(losses).all() and len(set(losses)) > STEPS
