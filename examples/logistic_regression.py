"""Logistic regression, the classification model of PyTensor's introduction, by gradient descent.

Only ``mode="OPENCL"`` is new: the same script runs with ``--mode NUMBA``, and ``--compare NUMBA`` shows that
both agree.
"""

import sys
from collections.abc import Sequence

import numpy as np
import pytensor
import pytensor.tensor as pt
from common import Fit, descend, run
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split

SEED = 2882
SAMPLES, FEATURES = 4000, 200
LEARNING_RATE = 0.1


def load() -> list[np.ndarray]:
    """Return training and test features, training and test labels: two overlapping classes."""
    features, labels = make_classification(
        SAMPLES,
        FEATURES,
        n_informative=40,
        n_redundant=20,
        n_clusters_per_class=1,
        flip_y=0.02,
        random_state=SEED,
    )
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    arrays = (features.astype("float32"), labels.astype("float32"))
    return train_test_split(*arrays, test_size=0.25, random_state=SEED)


def train(mode: str, steps: int) -> Fit:
    """Fit the model with `steps` steps of gradient descent."""
    x_train, x_test, y_train, y_test = load()

    # Shared variables stay on the device between calls: no step uploads the data.
    x = pytensor.shared(x_train, name="x")
    y = pytensor.shared(y_train, name="y")
    rng = np.random.default_rng(SEED)
    w = pytensor.shared(0.1 * rng.standard_normal(FEATURES).astype("float32"), name="w")
    b = pytensor.shared(np.float32(0.0), name="b")

    p_1 = 1 / (1 + pt.exp(-pt.dot(x, w) - b))  # probability of class 1
    cross_entropy = -y * pt.log(p_1) - (1 - y) * pt.log(1 - p_1)
    cost = cross_entropy.mean() + 0.01 * (w**2).sum()
    gw, gb = pytensor.grad(cost, [w, b])

    updates = {w: w - LEARNING_RATE * gw, b: b - LEARNING_RATE * gb}
    step = pytensor.function([], cost, updates=updates, mode=mode)
    predict = pytensor.function([], p_1 > 0.5, givens={x: x_test}, mode=mode)

    losses, *seconds = descend(step, [()] * steps, f"gradient descent, {mode}")
    parameters = {v.name: v.get_value() for v in (w, b)}
    return Fit(losses, parameters, y_test.astype(int), predict().astype(int), *seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example; the return value is the exit code."""
    return run(
        train,
        title="Logistic regression",
        unit="steps",
        count=1000,
        class_names=["0", "1"],
        arguments=arguments,
    )


if __name__ == "__main__":
    sys.exit(main())
