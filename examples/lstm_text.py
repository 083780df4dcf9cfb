"""An LSTM that invents names of Unicode characters, letter by letter, after those that every Python knows.

The names have different lengths. ``lengths`` stops the recurrence at the end of each, and the label -100 takes what
is behind it out of the loss.
"""

import sys
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from network_common import ORANGE, Trained, parameter, plot_history, run

from pytensor_cl import nn, optimizers, train

SEED = 1997
SCRIPTS = ("LATIN", "GREEK", "CYRILLIC", "ARABIC", "HEBREW", "BENGALI", "TIBETAN", "BOX DRAWINGS", "MATHEMATICAL")
LONGEST, EMBEDDING, WIDTH, BATCH, LEARNING_RATE = 40, 32, 128, 64, 5e-3
IGNORED = -100

names = [unicodedata.name(chr(code), "") for code in range(0x10000)]
names = [name for name in names if name.startswith(SCRIPTS) and len(name) < LONGEST]
alphabet = ["", *sorted(set("".join(names)))]  # code 0 begins a name and ends it
codes = {letter: code for code, letter in enumerate(alphabet)}


def encoded() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return inputs and labels, both (names, LONGEST), and the lengths of the names with their end."""
    inputs = np.zeros((len(names), LONGEST), "int64")
    labels = np.full((len(names), LONGEST), IGNORED)
    for row, name in enumerate(names):
        letters = [codes[letter] for letter in name]
        inputs[row, 1 : len(name) + 1] = letters
        labels[row, : len(name) + 1] = [*letters, 0]
    return inputs, labels, np.array([len(name) + 1 for name in names])


def fit(mode: str, epochs: int) -> Trained:
    """Build the network and train it with `epochs` passes over nine tenths of the names."""
    generator = np.random.default_rng(SEED)
    tokens = parameter("tokens", nn.init.normal(generator, (len(alphabet), EMBEDDING)))
    lstm = [
        parameter("lstm.weight_ih", nn.init.glorot_uniform(generator, (4 * WIDTH, EMBEDDING), layout="oi")),
        parameter("lstm.weight_hh", nn.init.orthogonal(generator, (4 * WIDTH, WIDTH), layout="oi")),
        parameter("lstm.bias", np.repeat([0, 1, 0, 0], WIDTH)),  # gates i f g o: in the beginning nothing is forgotten
    ]
    w = parameter("output.weight", nn.init.glorot_uniform(generator, (WIDTH, len(alphabet))))
    b = parameter("output.bias", np.zeros(len(alphabet)))

    x, y, lengths = pt.lmatrix("x"), pt.lmatrix("y"), pt.lvector("lengths")
    h0, c0 = pt.fmatrix("h0"), pt.fmatrix("c0")
    noise = pt.random.shared_rng(seed=SEED, name="noise")

    def network(x: Any, states: Any, lengths: Any = None) -> tuple[Any, Any]:
        outputs, last = nn.lstm(nn.embedding(x.T, tokens), states, *lstm, lengths=lengths)  # time first
        _, kept = nn.dropout(outputs, 0.1, noise)
        return kept.swapaxes(0, 1) @ w + b, last

    logits, _ = network(x, None, lengths)
    loss = nn.softmax_cross_entropy(logits, y, axis=-1, ignore_index=IGNORED)
    count = pt.neq(y, IGNORED).sum()  # the loss is a mean over so many letters, not over rows
    rate = optimizers.cosine(LEARNING_RATE, epochs * -(-len(names) // BATCH))
    step = train.step([x, y, lengths], loss, optimizers.Adam(rate), weight=count, max_norm=1.0, mode=mode)
    rows = np.random.default_rng(SEED).permutation(len(names))
    held_out, trained = ([array[part] for array in encoded()] for part in np.split(rows, [len(names) // 10]))
    history = train.fit(step, tuple(trained), epochs, batch_size=BATCH, validation=tuple(held_out))

    # Prediction goes on from the states of the letters before, which are inputs and outputs here.
    logits, (h, c) = network(x, (h0, c0))
    one_letter = nn.inference([nn.softmax(logits[:, -1], axis=-1), h, c])
    sample = pytensor.function([x, h0, c0], one_letter, mode=mode)
    states = np.zeros((2, 16, WIDTH), "float32")
    return Trained(step, history, lambda x: sample(x, *states)[0], (held_out[0][:16],), sample)


def invent(sample: Any, seed: int) -> tuple[str, list[float]]:
    """Return a name whose letters are drawn from the predicted probabilities, and the probabilities of those."""
    generator, name, found = np.random.default_rng([SEED, seed]), [0], []
    h = c = np.zeros((1, WIDTH), "float32")
    while len(name) <= LONGEST and (len(name) == 1 or name[-1]):
        probabilities, h, c = sample(np.array([name[-1:]]), h, c)
        p = probabilities[0].astype("float64") ** 1.5  # likely letters are made likelier
        name.append(int(generator.choice(len(alphabet), p=p / p.sum())))
        found.append(probabilities[0, name[-1]])
    return "".join(alphabet[code] for code in name), found


def draw(figure: Any, trained: Trained) -> None:
    """Print names that do not exist; draw the loss, and how sure the network was of each letter of one."""
    invented = [invent(trained.more, seed) for seed in range(30)]
    new = [(name, found) for name, found in invented if name not in names]
    print(*(name for name, _ in new[:12]), sep="\n")
    left, right = figure.subplots(1, 2)
    plot_history(left, trained.history)
    name, found = max(new, key=lambda pair: len(pair[1]))
    right.bar(range(len(found)), found, color=ORANGE)
    right.set_xticks(range(len(found)), [*name, "end"][: len(found)])
    right.set(ylim=(0, 1), title="An invented name", ylabel="probability of the letter")
    right.spines[["top", "right"]].set_visible(False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example; the return value is the exit code."""
    return run(fit, draw, title="LSTM text", epochs=8, width=13, arguments=arguments)


if __name__ == "__main__":
    sys.exit(main())
