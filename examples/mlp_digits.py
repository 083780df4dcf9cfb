"""A two-layer network on the 1,797 handwritten digits of scikit-learn, by minibatch gradient descent.

Only ``mode="OPENCL"`` is new: the same script runs with ``--mode NUMBA``, and ``--compare NUMBA`` shows that
both agree.
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

SEED = 1797
HIDDEN, CLASSES, BATCH = 128, 10, 64
LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 0.1, 0.9, 1e-4


def load() -> list[np.ndarray]:
    """Return training and test images (rows of 64 pixels in 0..1), training and test digits."""
    images, digits = load_digits(return_X_y=True)
    images = (images / 16).astype("float32")
    return train_test_split(images, digits, test_size=0.25, random_state=SEED, stratify=digits)


def init_parameters(n_pixels: int) -> list[SharedVariable]:
    """Return the two weight matrices and biases, drawn from `SEED`."""
    rng = np.random.default_rng(SEED)

    def weights(name: str, n_in: int, n_out: int) -> SharedVariable:
        return pytensor.shared(rng.normal(0, n_in**-0.5, (n_in, n_out)).astype("float32"), name=name)

    def biases(name: str, n: int) -> SharedVariable:
        return pytensor.shared(np.zeros(n, "float32"), name=name)

    hidden = [weights("w1", n_pixels, HIDDEN), biases("b1", HIDDEN)]
    return [*hidden, weights("w2", HIDDEN, CLASSES), biases("b2", CLASSES)]


def log_probabilities(x: pt.TensorVariable, parameters: Sequence[SharedVariable]) -> pt.TensorVariable:
    """Return the logarithm of the class probabilities of each row of `x`."""
    w1, b1, w2, b2 = parameters
    hidden = pt.tanh(x @ w1 + b1)
    return log_softmax(hidden @ w2 + b2, axis=-1)


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
    parameters = init_parameters(x_train.shape[1])

    batch = pt.iscalar("batch")
    rows = slice(batch * BATCH, (batch + 1) * BATCH)
    fit = -(targets[rows] * log_probabilities(images[rows], parameters)).sum(axis=1).mean()
    cost = fit + WEIGHT_DECAY * sum((w**2).sum() for w in parameters[::2])
    step = pytensor.function([batch], cost, updates=momentum_updates(cost, parameters), mode=mode)
    x = pt.fmatrix("x")
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
        title="MLP digits",
        unit="epochs",
        count=30,
        class_names=[str(digit) for digit in range(CLASSES)],
        window=21,
        arguments=arguments,
    )


if __name__ == "__main__":
    sys.exit(main())
