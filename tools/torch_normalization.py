"""Compute normalisations with PyTorch, and their first and second gradients: ``torch_normalization.py OUT.json``.

It runs in an interpreter that has PyTorch and NumPy, and nothing of this package. The result is
tests/nn/torch_normalization.json, with which tests/nn/test_normalization.py compares. Inputs are cosines, so that they
need not be stored: `numbers` there is the same function as here.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

CASES = {
    "batch_2d": ("batch_norm", [5, 3], 3, {"momentum": 0.3, "eps": 1e-3}),
    "batch_4d": ("batch_norm", [3, 2, 2, 3], 2, {"momentum": 0.1, "eps": 1e-4}),
    "batch_two_rows": ("batch_norm", [2, 3], 3, {"momentum": 0.5, "eps": 1e-2}),
    "given_4d": ("given", [2, 3, 2, 2], 3, {"eps": 1e-3}),
    "layer_1": ("layer_norm", [3, 2, 4], [4], {"eps": 1e-5}),
    "layer_2": ("layer_norm", [3, 2, 4], [2, 4], {"eps": 1e-2}),
    "rms_1": ("rms_norm", [3, 5], [5], {"eps": None}),
    "rms_2": ("rms_norm", [2, 3, 4], [3, 4], {"eps": 1e-2}),
    "group": ("group_norm", [2, 6, 3], 6, {"num_groups": 3, "eps": 1e-3}),
    "group_5d": ("group_norm", [2, 4, 1, 2, 2], 4, {"num_groups": 2, "eps": 1e-5}),
    "instance": ("instance_norm", [2, 3, 2, 3], 3, {"eps": 1e-3}),
    "response_odd": ("local_response_norm", [2, 6, 2], None, {"size": 3, "alpha": 0.5, "beta": 0.75, "k": 1.0}),
    "response_even": ("local_response_norm", [2, 5, 2, 1], None, {"size": 4, "alpha": 0.3, "beta": 0.5, "k": 2.0}),
    "response_wide": ("local_response_norm", [1, 3, 2], None, {"size": 7, "alpha": 1e-2, "beta": 1.5, "k": 0.5}),
}


def numbers(shape: list[int] | int, phase: float) -> np.ndarray:
    """Return numbers without a pattern."""
    return np.cos(np.arange(np.prod(shape)) ** 2 + phase).reshape(shape) * 2 + phase


def call(name: str, x, weight, bias, running: list, options: dict):
    """Return the result of PyTorch's function."""
    if name == "batch_norm":
        return functional.batch_norm(x, *running, weight, bias, True, **options)
    if name == "given":
        return functional.batch_norm(x, *running, weight, bias, False, **options)
    if name == "layer_norm":
        return functional.layer_norm(x, weight.shape, weight, bias, **options)
    if name == "rms_norm":
        return functional.rms_norm(x, weight.shape, weight, **options)
    if name == "group_norm":
        return functional.group_norm(x, options["num_groups"], weight, bias, options["eps"])
    if name == "instance_norm":
        return functional.instance_norm(x, weight=weight, bias=bias, **options)
    return functional.local_response_norm(x, **options)


def case(name: str, shape: list[int], lengths: list[int] | int | None, options: dict) -> dict[str, list]:
    """Return flat values: result, running statistics, gradients, gradients of the sum of their squares."""
    x = torch.tensor(numbers(shape, 0.5), requires_grad=True)
    weight, bias = (None if lengths is None else torch.tensor(numbers(lengths, p), requires_grad=True) for p in (1, 2))
    running = [torch.tensor(numbers(lengths, p)) for p in (3, 4)] if name in ("batch_norm", "given") else []
    y = call(name, x, weight, bias, running, options)
    inputs = [v for v in (x, weight, None if name == "rms_norm" else bias) if v is not None]
    first = torch.autograd.grad((y * torch.tensor(numbers(shape, 0.25))).sum(), inputs, create_graph=True)
    second = torch.autograd.grad(sum((g**2).sum() for g in first), inputs, allow_unused=True)
    second = [torch.zeros_like(v) if g is None else g for v, g in zip(inputs, second, strict=True)]
    found = {"y": [y], "running": running if name == "batch_norm" else [], "first": first, "second": second}
    return {k: [np.round(v.detach().numpy(), 14).ravel().tolist() for v in values] for k, values in found.items()}


def main() -> None:
    """Write all cases."""
    results = {key: {"case": value, **case(*value)} for key, value in CASES.items()}
    Path(sys.argv[1]).write_text(json.dumps(results, indent=None, separators=(",", ":")).replace('},"', '},\n"') + "\n")


if __name__ == "__main__":
    main()
