"""A character-level transformer on the reference texts of Python that ``help()`` shows, which every Python ships.

It prints a text that the network writes, and saves a figure of the loss and of what each position attends to.
"""

import sys
from collections.abc import Iterator, Sequence
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from network_common import Trained, parameter, plot_history, run

from pytensor_cl import nn, optimizers, train

SEED = 1991
LENGTH, WIDTH, HEADS, BLOCKS = 64, 96, 4, 2
BATCH, STEPS, LEARNING_RATE = 32, 100, 3e-3  # steps of an epoch

text = "\n\n".join(topics[name] for name in sorted(topics))
alphabet = sorted(set(text))
codes = {character: code for code, character in enumerate(alphabet)}
encoded = np.array([codes[character] for character in text])
split = len(encoded) * 9 // 10


def windows(starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return pieces of text, and the same pieces one character later: what is to be predicted."""
    places = starts[:, None] + np.arange(LENGTH)
    return encoded[places], encoded[places + 1]


def batches(epoch: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield random windows of the first nine tenths of the text."""
    generator = np.random.default_rng([SEED, epoch])
    for _ in range(STEPS):
        yield windows(generator.integers(0, split - LENGTH, BATCH))


def parameters() -> dict[str, Any]:
    """Return all parameters by name; matrices are (outputs, inputs), as those of torch's transformer layers."""
    generator = np.random.default_rng(SEED)

    def weight(*shape: int) -> np.ndarray:
        return nn.init.normal(generator, shape, std=WIDTH**-0.5)

    values = {"tokens": weight(len(alphabet), WIDTH), "positions": weight(LENGTH, WIDTH)}
    for i in range(BLOCKS):
        values |= {f"{i}.attn.in_proj_weight": weight(3 * WIDTH, WIDTH), f"{i}.attn.in_proj_bias": np.zeros(3 * WIDTH)}
        values |= {f"{i}.attn.out_proj.weight": weight(WIDTH, WIDTH), f"{i}.attn.out_proj.bias": np.zeros(WIDTH)}
        values |= {f"{i}.fc1.weight": weight(4 * WIDTH, WIDTH), f"{i}.fc1.bias": np.zeros(4 * WIDTH)}
        values |= {f"{i}.fc2.weight": weight(WIDTH, 4 * WIDTH) / 2, f"{i}.fc2.bias": np.zeros(WIDTH)}
    for norm in [f"{i}.{name}" for i in range(BLOCKS) for name in ("norm1", "norm2")] + ["norm"]:
        values |= {f"{norm}.weight": np.ones(WIDTH), f"{norm}.bias": np.zeros(WIDTH)}
    return {name: parameter(name, value) for name, value in values.items()}


def layer_norm(x: Any, p: dict[str, Any], name: str) -> Any:
    """Normalise each position."""
    return nn.layer_norm(x, weight=p[f"{name}.weight"], bias=p[f"{name}.bias"])


def block(x: Any, p: dict[str, Any], i: int) -> Any:
    """Add to each position what it reads at earlier ones, then a function of itself."""
    names = ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")
    h = layer_norm(x, p, f"{i}.norm1")
    x = x + nn.multi_head_attention(h, h, h, HEADS, *(p[f"{i}.attn.{name}"] for name in names), is_causal=True)
    h = nn.linear(layer_norm(x, p, f"{i}.norm2"), p[f"{i}.fc1.weight"], p[f"{i}.fc1.bias"])
    return x + nn.linear(nn.gelu(h), p[f"{i}.fc2.weight"], p[f"{i}.fc2.bias"])


def attention_map(x: Any, p: dict[str, Any], i: int) -> Any:
    """Return how much each position attends to the others in block `i`: (N, HEADS, L, L)."""
    h = layer_norm(x, p, f"{i}.norm1")
    h = nn.linear(h, p[f"{i}.attn.in_proj_weight"], p[f"{i}.attn.in_proj_bias"])
    query, key = (h[..., j * WIDTH : (j + 1) * WIDTH].reshape((*x.shape[:2], HEADS, -1)) for j in (0, 1))
    # The kernel keeps no probabilities, but those are what it returns for the rows of a unit matrix as values.
    unit = pt.eye(x.shape[1], dtype=x.dtype)[None, None]
    return nn.scaled_dot_product_attention(query.swapaxes(1, 2), key.swapaxes(1, 2), unit, is_causal=True)


def fit(mode: str, epochs: int) -> Trained:
    """Build the network and train it with `epochs` times `STEPS` batches."""
    p = parameters()
    x, y = pt.lmatrix("x"), pt.lmatrix("y")  # codes of characters (batch, length)
    h = nn.embedding(x, p["tokens"]) + p["positions"][: x.shape[1]]
    for i in range(BLOCKS):
        last, h = h, block(h, p, i)
    logits = layer_norm(h, p, "norm") @ p["tokens"].T  # tied weights: one variable, one name in the file

    loss = nn.softmax_cross_entropy(logits, y, axis=-1)
    rate = optimizers.warm_up(optimizers.cosine(LEARNING_RATE, epochs * STEPS), STEPS // 2)
    step = train.step([x, y], loss, optimizers.AdamW(rate), max_norm=1.0, mode=mode)
    held_out = windows(np.arange(split, len(encoded) - LENGTH, 4 * LENGTH))
    history = train.fit(step, batches, epochs, batch_size=BATCH, validation=held_out)

    next_character = nn.inference(nn.softmax(logits[:, -1], axis=-1))
    predict = pytensor.function([x], next_character, mode=mode)
    attention = pytensor.function([x], attention_map(last, p, BLOCKS - 1), mode=mode)
    return Trained(step, history, predict, (held_out[0][:BATCH],), attention)


def write(trained: Trained, begin: str, count: int) -> str:
    """Continue a text by characters that are drawn from the predicted probabilities."""
    generator, written = np.random.default_rng(SEED), [codes[character] for character in begin]
    for _ in range(count):
        probabilities = trained.predict(np.array([written[-LENGTH:]]))[0].astype("float64") ** 1.5  # likely ones more
        written.append(int(generator.choice(len(alphabet), p=probabilities / probabilities.sum())))
    return "".join(alphabet[code] for code in written)


def draw(figure: Any, trained: Trained) -> None:
    """Print a text that the network writes; draw the loss and what two of the heads attend to."""
    print(write(trained, "The statement ", 400))
    piece = "If the expression is not found, a NameError exception is raised."
    attention = trained.more(np.array([[codes[character] for character in piece]]))[0]
    left, *others = figure.subplots(1, 3)
    plot_history(left, trained.history)
    for head, axes in enumerate(others):
        axes.imshow(attention[head] ** 0.5, cmap="Blues", vmin=0, vmax=1)
        axes.set_xticks(range(len(piece)), piece, fontsize=6, family="monospace")
        axes.set_yticks(range(len(piece)), piece, fontsize=6, family="monospace")
        axes.tick_params(length=0)
        axes.set(title=f"Head {head + 1} of the last block", xlabel="attends to", ylabel="position")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example; the return value is the exit code."""
    return run(fit, draw, title="Transformer text", epochs=8, width=17, arguments=arguments)


if __name__ == "__main__":
    sys.exit(main())
