"""A convolutional network on the 1,797 handwritten digits of scikit-learn.

Only ``mode="OPENCL"`` is of the device: the same script runs with ``--mode NUMBA``, and ``--compare NUMBA`` shows that
both agree.
"""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from network_common import Trained, digits, parameter, plot_confusion, plot_history, run

from pytensor_cl import nn, optimizers, train

SEED = 1797
FEATURES, HIDDEN, CLASSES = (32, 64), 128, 10
BATCH, LEARNING_RATE = 64, 2e-3

x_train, x_test, y_train, y_test = digits(SEED)


def fit(mode: str, epochs: int) -> Trained:
    """Build the network and train it with `epochs` passes over the training images."""
    # Zeros are the usual first biases. But around a digit all pixels are 0, where relu has its kink, and rounding would
    # decide on which side of it they are: the results would agree with other modes to 1e-4 instead of 1e-7.
    generator = np.random.default_rng(SEED)
    first, second = FEATURES
    w1 = parameter("conv1.weight", nn.init.he_normal(generator, (first, 1, 3, 3), layout="oi..."))
    b1 = parameter("conv1.bias", np.full(first, 0.01))
    w2 = parameter("conv2.weight", nn.init.he_normal(generator, (second, first, 3, 3), layout="oi..."))
    b2 = parameter("conv2.bias", np.full(second, 0.01))
    w3 = parameter("hidden.weight", nn.init.he_normal(generator, (second * 4 * 4, HIDDEN)))
    b3 = parameter("hidden.bias", np.full(HIDDEN, 0.01))
    w4 = parameter("output.weight", nn.init.glorot_uniform(generator, (HIDDEN, CLASSES)))
    b4 = parameter("output.bias", np.zeros(CLASSES))

    x, y = pt.tensor4("x", dtype="float32"), pt.lvector("y")
    noise = pt.random.shared_rng(seed=SEED, name="noise")
    h = nn.relu(nn.conv2d(x, w1, border_mode="half") + b1[:, None, None])
    h = nn.pool_2d(nn.relu(nn.conv2d(h, w2, border_mode="half") + b2[:, None, None]), 2)
    _, h = nn.dropout(nn.relu(h.flatten(2) @ w3 + b3), 0.5, noise)
    logits = h @ w4 + b4

    loss = nn.softmax_cross_entropy(logits, y)
    accuracy = pt.eq(logits.argmax(axis=1), y).mean()
    rate = optimizers.cosine(LEARNING_RATE, epochs * -(-len(x_train) // BATCH))
    step = train.step([x, y], loss, optimizers.Adam(rate), metrics={"accuracy": accuracy}, mode=mode)
    history = train.fit(step, (x_train, y_train), epochs, batch_size=BATCH, validation=(x_test, y_test))

    # The same graph without dropout. It reads the same shared variables, so it predicts with the trained weights.
    predict = pytensor.function([x], nn.inference(logits), mode=mode)
    return Trained(step, history, predict, (x_test,))


def draw(figure: Any, trained: Trained) -> None:
    """Draw the loss and the confusion matrix of the held-out digits."""
    left, right = figure.subplots(1, 2)
    plot_history(left, trained.history)
    left.set_yscale("log")
    plot_confusion(right, y_test, trained.predict(x_test).argmax(axis=1))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example; the return value is the exit code."""
    return run(fit, draw, title="CNN digits", epochs=20, arguments=arguments)


if __name__ == "__main__":
    sys.exit(main())
