"""Compute what PyTorch's recurrent layers do, and their gradients: ``torch_recurrent.py OUT.json``.

It runs in an interpreter that has PyTorch and NumPy, and nothing of this package. The result is
tests/nn/torch_recurrent.json, with which tests/nn/test_recurrent.py compares, so that it needs no PyTorch. All layers
go in both directions, over rows of different lengths, with states and biases.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch

STEPS, ROWS, INPUTS, WIDTH = 4, 3, 2, 3
LENGTHS = (4, 2, 1)
GATES = {"rnn": 1, "gru": 3, "lstm": 4}
CASES = {
    "rnn": ("rnn", torch.nn.RNN, {"nonlinearity": "tanh"}),
    "rnn_relu": ("rnn", torch.nn.RNN, {"nonlinearity": "relu"}),
    "gru": ("gru", torch.nn.GRU, {}),
    "lstm": ("lstm", torch.nn.LSTM, {}),
}


def values(number: int, *shape: int) -> np.ndarray:
    """Return the value of an argument, or the factor of a result in the loss."""
    k = np.arange(np.prod(shape), dtype="float64")
    return (0.8 * np.cos(1.3 * k * (1 + 0.1 * number) + number)).reshape(shape)


def arguments(kind: str) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
    """Return the input, the parameters of both directions, and the states (2, ROWS, WIDTH)."""
    gates = GATES[kind] * WIDTH
    shapes = [(gates, INPUTS), (gates, WIDTH), (gates,), (gates,)] * 2
    parameters = [values(k, *shape) for k, shape in enumerate(shapes, 1)]
    states = [values(k, 2, ROWS, WIDTH) for k in range(20, 22 if kind == "lstm" else 21)]
    return values(0, STEPS, ROWS, INPUTS), parameters, states


def results(kind: str, layer: type, options: dict) -> dict:
    """Return the outputs, the last states, and the gradients of the sum of all with factors."""
    x, parameters, states = arguments(kind)
    module = layer(INPUTS, WIDTH, bidirectional=True, **options).to(torch.float64)
    with torch.no_grad():
        for own, value in zip(module.parameters(), parameters, strict=True):
            own.copy_(torch.from_numpy(value))
    inputs = [torch.from_numpy(v).requires_grad_() for v in (x, *states)]
    packed = torch.nn.utils.rnn.pack_padded_sequence(inputs[0], torch.tensor(LENGTHS))
    out, last = module(packed, tuple(inputs[1:]) if kind == "lstm" else inputs[1])
    found = [torch.nn.utils.rnn.pad_packed_sequence(out)[0], *(last if kind == "lstm" else [last])]
    loss = sum((v * torch.from_numpy(values(30 + k, *v.shape))).sum() for k, v in enumerate(found))
    gradients = torch.autograd.grad(loss, [inputs[0], *module.parameters(), *inputs[1:]])
    return {name: [v.tolist() for v in group] for name, group in (("results", found), ("gradients", gradients))}


def main(target: str) -> None:
    """Write the table."""
    table = {"torch": torch.__version__} | {name: results(*case) for name, case in CASES.items()}
    Path(target).write_text(json.dumps(table) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
