"""Compute attention with PyTorch, and its first and second gradients: ``torch_attention.py OUT.json``.

It runs in an interpreter that has PyTorch and NumPy, and nothing of this package. The result is
tests/nn/torch_attention.json, with which tests/nn/test_attention.py compares. Inputs are cosines, so that they need not
be stored: `numbers` there is the same function as here.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

CASES = {
    "plain": ("attention", [2, 2, 3, 4], [2, 2, 5, 4], None, {}),
    "causal": ("attention", [1, 2, 4, 3], [1, 2, 3, 3], None, {"is_causal": True, "scale": 0.7}),
    "mask": ("attention", [1, 2, 3, 4], [1, 2, 5, 4], [3, 5], {"is_bool": True}),
    "added": ("attention", [2, 2, 3, 2], [2, 2, 4, 2], [2, 1, 3, 4], {}),
    "grouped": ("attention", [1, 4, 3, 4], [1, 2, 3, 4], None, {"enable_gqa": True}),
    "self": ("heads", {"is_self": True, "has_mask": False, "causal": True}),
    "self masked": ("heads", {"is_self": True, "has_mask": True, "causal": False}),
    "cross": ("heads", {"is_self": False, "has_mask": False, "causal": False}),
}


def numbers(shape: list[int] | tuple[int, ...], phase: float) -> np.ndarray:
    """Return numbers without a pattern."""
    return np.cos(np.arange(np.prod(shape)) ** 2 + phase).reshape(shape) * 2 + phase


def attention(q_shape: list[int], kv_shape: list[int], mask_shape: list[int] | None, options: dict) -> list:
    """Return result, first gradients, and gradients of the sum of their squares."""
    shapes = ((q_shape, 0.1), (kv_shape, 0.2), (kv_shape, 0.3))
    inputs = [torch.tensor(numbers(s, phase), requires_grad=True) for s, phase in shapes]
    mask = None if mask_shape is None else torch.tensor(numbers(mask_shape, 0.4))
    mask = mask > 0 if "is_bool" in options else mask
    rest = {k: v for k, v in options.items() if k != "is_bool"}
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        out = functional.scaled_dot_product_attention(*inputs, mask, **rest)
    first = torch.autograd.grad((out * torch.tensor(numbers(out.shape, 0.5))).sum(), inputs, create_graph=True)
    second = torch.autograd.grad(sum((g**2).sum() for g in first), inputs)
    return [out, *first, *second]


def heads(options: dict) -> list:
    """Return the result of multi-head attention, and gradients of its weights."""
    layer = torch.nn.MultiheadAttention(8, 4, batch_first=True, dtype=torch.float64)
    for i, p in enumerate((layer.in_proj_weight, layer.in_proj_bias, layer.out_proj.weight, layer.out_proj.bias)):
        p.data = torch.tensor(numbers(tuple(p.shape), i / 10) / 3)
    x, y = torch.tensor(numbers((2, 3, 8), 0.6)), torch.tensor(numbers((2, 5, 8), 0.7))
    other = x if options["is_self"] else y
    ignored = torch.tensor([[False, False, True], [False, False, False]]) if options["has_mask"] else None
    causal = torch.ones(3, 3, dtype=torch.bool).triu(1) if options["causal"] else None
    out, _ = layer(x, other, other, key_padding_mask=ignored, attn_mask=causal, need_weights=False)
    weights = [layer.in_proj_weight, layer.in_proj_bias, layer.out_proj.weight, layer.out_proj.bias]
    return [out, *torch.autograd.grad((out * torch.tensor(numbers((2, 3, 8), 0.5))).sum(), weights)]


def main() -> None:
    """Write all cases."""
    results = {}
    for key, (kind, *arguments) in CASES.items():
        found = attention(*arguments) if kind == "attention" else heads(*arguments)
        values = [np.round(v.detach().numpy(), 14).ravel().tolist() for v in found]
        results[key] = {"case": [kind, *arguments], "shape": list(found[0].shape), "values": values}
    Path(sys.argv[1]).write_text(json.dumps(results, indent=None, separators=(",", ":")).replace('},"', '},\n"') + "\n")


if __name__ == "__main__":
    main()
