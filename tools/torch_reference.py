"""Compute convolutions and poolings, and their gradients, with PyTorch: ``torch_reference.py IN.npz OUT.npz``.

It runs in an interpreter that has PyTorch and NumPy, and nothing of this package: tests/nn/test_torch.py writes the one
file and reads the other. Configurations (tests/nn/configurations.py) that PyTorch refuses are left out.
"""

import json
import sys

import numpy as np
import torch
from torch.nn import functional


def padded(x: torch.Tensor, pads: list, value: float = 0.0) -> torch.Tensor:
    """Return `x` with other padding at each side of the last dimensions."""
    return functional.pad(x, [p for pair in reversed(pads) for p in pair], value=value)


def function(config: dict) -> object:
    """Return PyTorch's function of a kind."""
    return getattr(functional, config["kind"])


def is_even(pads: list) -> bool:
    """Return whether each dimension has as much padding before as after it, which is all that PyTorch takes."""
    return all(before == after for before, after in pads)


def convolve(config: dict, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Return a convolution."""
    pads, w = config["padding"], w.flip(tuple(range(2, w.ndim))) if config["flip"] else w
    own = [before for before, _ in pads] if is_even(pads) else 0
    x = x if is_even(pads) else padded(x, pads)
    return function(config)(x, w, None, config["strides"], own, config["dilation"], config["groups"])


def convolve_transposed(config: dict, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Return a transposed convolution; what uneven padding takes away is cut off afterwards."""
    pads, extra = config["padding"], config["output_padding"]
    w = w.flip(tuple(range(2, w.ndim))) if config["flip"] else w
    rest = config["groups"], config["dilation"]
    if is_even(pads):
        return function(config)(x, w, None, config["strides"], [before for before, _ in pads], extra, *rest)
    y = padded(function(config)(x, w, None, config["strides"], 0, 0, *rest), [(0, e) for e in extra])
    for axis, (before, after) in enumerate(pads, 2):
        if y.shape[axis] - before - after <= 0:
            raise RuntimeError("output size is too small")
        y = y.narrow(axis, before, y.shape[axis] - before - after)
    return y


def pool_largest(config: dict, x: torch.Tensor) -> torch.Tensor:
    """Return the largest elements."""
    pads, own = config["padding"], [before for before, _ in config["padding"]]
    if not is_even(pads):
        if config["ceil"]:
            raise RuntimeError("uneven padding")
        x, own = padded(x, pads, -np.inf), 0
    return function(config)(x, config["window"], config["strides"], own, 1, config["ceil"])


def pool_average(config: dict, x: torch.Tensor) -> torch.Tensor:
    """Return the averages."""
    pads, own = config["padding"], [before for before, _ in config["padding"]]
    if not is_even(pads):
        if config["ceil"] or not config["inc_pad"]:
            raise RuntimeError("uneven padding")
        x, own = padded(x, pads), 0
    return function(config)(x, config["window"], config["strides"], own, config["ceil"], config["inc_pad"])


COMPUTE = {"conv": convolve, "conv_transpose": convolve_transposed, "max_pool": pool_largest, "avg_pool": pool_average}


def reference(config: dict, values: list) -> dict:
    """Return y, and the gradients dx and dw of a sum of its elements with the weights cos(0), cos(1), ..."""
    inputs = [torch.from_numpy(v).requires_grad_() for v in values]
    y = COMPUTE[config["kind"][:-2]](config, *inputs)
    weights = torch.cos(torch.arange(y.numel(), dtype=torch.float64)).to(y.dtype).reshape(y.shape)
    y.backward(weights)
    found = {"y": y.detach().numpy()}
    return found | {f"d{name}": v.grad.numpy() for name, v in zip("xw", inputs, strict=False)}


def main(source: str, target: str) -> None:
    """Read configurations and arrays, write results."""
    torch.backends.mkldnn.enabled = False  # it crashes at some small convolutions in three dimensions
    with np.load(source) as given:
        configs, results = json.loads(str(given["configurations"])), {}
        for number, config in enumerate(configs):
            values = [given[f"{number}.{name}"] for name in "xw" if f"{number}.{name}" in given]
            try:
                found = reference(config, values)
            except (RuntimeError, ValueError):
                continue
            results |= {f"{number}.{name}": value for name, value in found.items()}
    np.savez(target, **results)


if __name__ == "__main__":
    main(*sys.argv[1:])
