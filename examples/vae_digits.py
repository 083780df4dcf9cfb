"""A variational autoencoder on the 1,797 handwritten digits of scikit-learn, with a latent space of two dimensions.

The random draw is PyTensor's own. ``train.step`` finds the random generator in the graph and updates its state.
"""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from network_common import Trained, digits, parameter, plot_history, run
from scipy.stats import norm

from pytensor_cl import nn, optimizers, train

SEED = 1797
PIXELS, HIDDEN, LATENT = 64, 128, 2
BATCH, LEARNING_RATE = 64, 3e-3
GRID = 12  # samples along each side of the picture

x_train, x_test, _, y_test = digits(SEED)
x_train, x_test = x_train.reshape(-1, PIXELS), x_test.reshape(-1, PIXELS)


def layer(name: str, n_in: int, n_out: int, generator: Any) -> tuple[Any, Any]:
    """Return a matrix of weights and the biases."""
    weight = parameter(f"{name}.weight", nn.init.glorot_uniform(generator, (n_in, n_out)))
    return weight, parameter(f"{name}.bias", np.zeros(n_out))


def fit(mode: str, epochs: int) -> Trained:
    """Build the network and train it with `epochs` passes over the training images."""
    generator = np.random.default_rng(SEED)
    w1, b1 = layer("encoder", PIXELS, HIDDEN, generator)
    w2, b2 = layer("mean", HIDDEN, LATENT, generator)
    w3, b3 = layer("log_var", HIDDEN, LATENT, generator)
    w4, b4 = layer("decoder", LATENT, HIDDEN, generator)
    w5, b5 = layer("hidden", HIDDEN, HIDDEN, generator)
    w6, b6 = layer("pixels", HIDDEN, PIXELS, generator)

    x = pt.fmatrix("x")
    noise = pt.random.shared_rng(seed=SEED, name="noise")
    h = nn.relu(x @ w1 + b1)
    mean, log_var = h @ w2 + b2, h @ w3 + b3
    _, draws = noise.normal(size=mean.shape, dtype="float32")
    z = mean + pt.exp(log_var / 2) * draws
    logits = nn.relu(nn.relu(z @ w4 + b4) @ w5 + b5) @ w6 + b6

    error = nn.binary_crossentropy_with_logits(logits, x, reduction="none").sum(axis=1).mean()
    divergence = ((pt.sqr(mean) + pt.exp(log_var) - 1 - log_var).sum(axis=1) / 2).mean()
    metrics = {"error": error, "divergence": divergence}
    rate = optimizers.cosine(LEARNING_RATE, epochs * -(-len(x_train) // BATCH))
    step = train.step([x], error + divergence, optimizers.Adam(rate), metrics=metrics, mode=mode)
    history = train.fit(step, x_train, epochs, batch_size=BATCH, validation=x_test)

    # z is an input here: it cuts the graph, and what lies before it is not computed.
    decode = pytensor.function([z], nn.inference(nn.sigmoid(logits)), mode=mode)
    encode = pytensor.function([x], nn.inference(mean), mode=mode)
    return Trained(step, history, encode, (x_test,), decode)


def draw(figure: Any, trained: Trained) -> None:
    """Draw the loss, where the held-out digits are in the latent space, and what its points decode to."""
    left, middle, right = figure.subplots(1, 3)
    plot_history(left, trained.history)
    places = trained.predict(x_test)
    points = middle.scatter(*places.T, c=y_test, cmap="tab10", vmin=-0.5, vmax=9.5, s=12)
    figure.colorbar(points, ax=middle, ticks=range(10))
    middle.set(title="Held-out digits in the latent space", xlabel="z[0]", ylabel="z[1]")
    # Quantiles of the normal distribution, so that all tiles together are a sample of it.
    along = norm.ppf((np.arange(GRID) + 0.5) / GRID)
    z = np.stack(np.meshgrid(along, along[::-1]), axis=-1).reshape(-1, 2).astype("float32")
    tiles = np.pad(trained.more(z).reshape(GRID, GRID, 8, 8), [(0, 0), (0, 0), (1, 1), (1, 1)])
    right.imshow(tiles.swapaxes(1, 2).reshape(GRID * 10, GRID * 10), cmap="gray_r")
    right.set(xticks=[], yticks=[], title="Samples", xlabel="z[0]", ylabel="z[1]")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example; the return value is the exit code."""
    return run(fit, draw, title="VAE digits", epochs=60, width=16, arguments=arguments)


if __name__ == "__main__":
    sys.exit(main())
