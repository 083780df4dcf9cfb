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


def is_even(pads: list) -> bool:
    """Return whether each dimension has as much padding before as after it, which is all that PyTorch takes."""
    return all(before == after for before, after in pads)


def convolve(config: dict, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Return a convolution."""
    pads, w = config["padding"], w.flip(tuple(range(2, w.ndim))) if config["flip"] else w
    own = [before for before, _ in pads] if is_even(pads) else 0
    x = x if is_even(pads) else padded(x, pads)
    function = getattr(functional, f"conv{x.ndim - 2}d")
    return function(x, w, None, config["subsample"], own, config["filter_dilation"], config["num_groups"])


def convolve_transposed(config: dict, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Return a transposed convolution; what uneven padding takes away is cut off afterwards."""
    pads, extra = config["padding"], config["output_padding"]
    w = w.flip(tuple(range(2, w.ndim))) if config["flip"] else w
    function, strides = getattr(functional, f"conv_transpose{x.ndim - 2}d"), config["subsample"]
    rest = config["num_groups"], config["filter_dilation"]
    if is_even(pads):
        return function(x, w, None, strides, [before for before, _ in pads], extra, *rest)
    y = padded(function(x, w, None, strides, 0, 0, *rest), [(0, e) for e in extra])
    for axis, (before, after) in enumerate(pads, 2):
        if y.shape[axis] - before - after <= 0:
            raise RuntimeError("output size is too small")
        y = y.narrow(axis, before, y.shape[axis] - before - after)
    return y


def pool(config: dict, x: torch.Tensor) -> torch.Tensor:
    """Return the largest elements, sums or averages."""
    pads, mode, ceil = config["pad"], config["mode"], not config["ignore_border"]
    own, ndim = [before for before, _ in pads], x.ndim - 2
    if not is_even(pads):
        if ceil or mode not in ("max", "average_inc_pad"):
            raise RuntimeError("uneven padding")
        x, own = padded(x, pads, -np.inf if mode == "max" else 0.0), 0
    if mode == "max":
        function = getattr(functional, f"max_pool{ndim}d")
        y = function(x, config["ws"], config["stride"], own, config["dilation"], ceil)
        if config["dilation"] != [1] * ndim and torch.isneginf(y).any():
            raise RuntimeError("a window without elements: its index points out of the array")
        return y
    function = getattr(functional, f"avg_pool{ndim}d")
    if mode == "sum" and ndim == 1:
        tall, pair = x.unsqueeze(-2), [[1, *config["ws"]], [1, *config["stride"]], [0, *own]]
        return functional.avg_pool2d(tall, *pair, ceil, divisor_override=1).squeeze(-2)
    if mode == "sum":
        return function(x, config["ws"], config["stride"], own, ceil, divisor_override=1)
    return function(x, config["ws"], config["stride"], own, ceil, mode == "average_inc_pad")


def places(config: dict, x: torch.Tensor) -> torch.Tensor | None:
    """Return the positions of the largest elements, if PyTorch has the padding itself."""
    if config.get("mode") != "max" or "pad" not in config or not is_even(config["pad"]):
        return None
    function = getattr(functional, f"max_pool{x.ndim - 2}d")
    own, ceil = [before for before, _ in config["pad"]], not config["ignore_border"]
    return function(x, config["ws"], config["stride"], own, config["dilation"], ceil, return_indices=True)[1]


def pool_adaptively(config: dict, x: torch.Tensor) -> torch.Tensor:
    """Return the largest elements or averages of bins."""
    name = "max" if config["mode"] == "max" else "avg"
    return getattr(functional, f"adaptive_{name}_pool{x.ndim - 2}d")(x, config["output_size"])


def compute(config: dict, *inputs: torch.Tensor) -> torch.Tensor:
    """Return what a configuration describes."""
    kind = config["kind"]
    if "pool" in kind:
        return pool_adaptively(config, *inputs) if "adaptive" in kind else pool(config, *inputs)
    function = convolve_transposed if "transpose" in kind else convolve
    return function(config, *inputs)


def reference(config: dict, values: list) -> dict:
    """Return y, and the gradients dx and dw of a sum of its elements with the weights cos(0), cos(1), ..."""
    inputs = [torch.from_numpy(v).requires_grad_() for v in values]
    y = compute(config, *inputs)
    weights = torch.cos(torch.arange(y.numel(), dtype=torch.float64)).to(y.dtype).reshape(y.shape)
    y.backward(weights)
    found = {"y": y.detach().numpy()}
    found |= {f"d{name}": v.grad.numpy() for name, v in zip("xw", inputs, strict=False)}
    indices = places(config, inputs[0])
    return found if indices is None else found | {"places": indices.numpy()}


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
