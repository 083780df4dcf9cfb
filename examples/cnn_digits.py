"""A small convolutional network on the 1,797 handwritten digits of scikit-learn, by minibatch gradient descent.

Convolution and pooling are `pytensor_cl.nn`'s, and run in every mode: on the device by ``mode="OPENCL"``, on the host
with ``--mode NUMBA``; ``--compare NUMBA`` shows that both agree.
"""

import sys
from collections.abc import Sequence

import numpy as np
import pytensor
import pytensor.tensor as pt
from common import Fit, descend, run
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.tensor.special import log_softmax
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from pytensor_cl import nn

SEED = 1797
FEATURES, CLASSES, BATCH = (16, 32), 10, 64
LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 0.05, 0.9, 1e-4


def load() -> list[np.ndarray]:
    """Return training and test images (one channel of 8 x 8 pixels in 0..1), training and test digits."""
    images, digits = load_digits(return_X_y=True)
    images = (images / 16).astype("float32").reshape(-1, 1, 8, 8)
    return train_test_split(images, digits, test_size=0.25, random_state=SEED, stratify=digits)


def init_parameters() -> list[SharedVariable]:
    """Return the kernels of both convolutions, the weight matrix, and the biases of each, drawn from `SEED`."""
    rng = np.random.default_rng(SEED)

    def layer(number: int, shape: tuple[int, ...], fan_in: int, n_out: int) -> list[SharedVariable]:
        weights = rng.normal(0, (2 / fan_in) ** 0.5, shape).astype("float32")
        names = (f"w{number}", weights), (f"b{number}", np.zeros(n_out, "float32"))
        return [pytensor.shared(value, name=name) for name, value in names]

    first, second = FEATURES
    flat = second * 2 * 2  # 8 x 8 pixels, pooled twice
    convolutions = layer(1, (first, 1, 3, 3), 9, first) + layer(2, (second, first, 3, 3), 9 * first, second)
    return convolutions + layer(3, (flat, CLASSES), flat, CLASSES)


def log_probabilities(x: pt.TensorVariable, parameters: Sequence[SharedVariable]) -> pt.TensorVariable:
    """Return the logarithm of the class probabilities of each image of `x`."""
    w1, b1, w2, b2, w3, b3 = parameters
    for w, b in ((w1, b1), (w2, b2)):
        x = pt.maximum(nn.conv2d(x, w, border_mode="half") + b[:, None, None], 0)
        x = nn.pool_2d(x, 2)
    return log_softmax(x.reshape((x.shape[0], -1)) @ w3 + b3, axis=-1)


def momentum_updates(cost: pt.TensorVariable, parameters: Sequence[SharedVariable]) -> dict:
    """Return the updates of gradient descent with Nesterov's momentum."""
    updates = {}
    for parameter, gradient in zip(parameters, pytensor.grad(cost, parameters), strict=True):
        velocity = pytensor.shared(np.zeros_like(parameter.get_value()), name=f"velocity_{parameter.name}")
        updates[velocity] = MOMENTUM * velocity - LEARNING_RATE * gradient
        updates[parameter] = parameter + MOMENTUM * updates[velocity] - LEARNING_RATE * gradient
    return updates


def train(mode: str, epochs: int) -> Fit:
    """Fit the network with `epochs` passes over the training images."""
    x_train, x_test, digits_train, digits_test = load()

    # The data stay on the device; a step is called with the number of its minibatch only.
    images = pytensor.shared(x_train, name="images")
    targets = pytensor.shared(np.eye(CLASSES, dtype="float32")[digits_train], name="targets")
    parameters = init_parameters()

    batch = pt.iscalar("batch")
    rows = slice(batch * BATCH, (batch + 1) * BATCH)
    fit = -(targets[rows] * log_probabilities(images[rows], parameters)).sum(axis=1).mean()
    cost = fit + WEIGHT_DECAY * sum((w**2).sum() for w in parameters[::2])
    step = pytensor.function([batch], cost, updates=momentum_updates(cost, parameters), mode=mode)
    x = pt.tensor4("x", dtype="float32")
    predict = pytensor.function([x], log_probabilities(x, parameters), mode=mode)

    rng = np.random.default_rng(SEED)
    n_batches = len(x_train) // BATCH
    order = [(number,) for _ in range(epochs) for number in rng.permutation(n_batches)]
    losses, *seconds = descend(step, order, f"{epochs} epochs, {mode}")
    values = {p.name: p.get_value() for p in parameters}
    return Fit(losses, values, digits_test, predict(x_test).argmax(axis=1), *seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example; the return value is the exit code."""
    return run(
        train,
        title="CNN digits",
        unit="epochs",
        count=20,
        class_names=[str(digit) for digit in range(CLASSES)],
        window=21,
        arguments=arguments,
    )


if __name__ == "__main__":
    sys.exit(main())
