"""Compute what PyTorch's optimizers, schedules and clipping do: ``torch_trajectories.py OUT.json``.

It runs in an interpreter that has PyTorch and NumPy, and nothing of this package. The result is
tests/optimizers/torch_trajectories.json, with which the tests in that folder compare, so that they need no PyTorch.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch

CASES = {
    "sgd": ("SGD", {"lr": 0.05}),
    "sgd_decay": ("SGD", {"lr": 0.05, "weight_decay": 0.1}),
    "momentum": ("SGD", {"lr": 0.02, "momentum": 0.9}),
    "momentum_dampening": ("SGD", {"lr": 0.02, "momentum": 0.8, "dampening": 0.3, "weight_decay": 0.05}),
    "nesterov": ("SGD", {"lr": 0.02, "momentum": 0.9, "nesterov": True}),
    "adagrad": ("Adagrad", {}),
    "adagrad_options": ("Adagrad", {"lr": 0.1, "lr_decay": 0.05, "eps": 1e-3, "weight_decay": 0.1}),
    "adadelta": ("Adadelta", {}),
    "adadelta_options": ("Adadelta", {"lr": 0.5, "rho": 0.8, "eps": 1e-4, "weight_decay": 0.1}),
    "rmsprop": ("RMSprop", {}),
    "rmsprop_momentum": ("RMSprop", {"lr": 0.02, "alpha": 0.9, "eps": 1e-3, "momentum": 0.5}),
    "rmsprop_centered": ("RMSprop", {"lr": 0.01, "alpha": 0.9, "eps": 1e-2, "momentum": 0.3, "centered": True}),
    "adam": ("Adam", {}),
    "adam_options": ("Adam", {"lr": 0.05, "betas": [0.8, 0.9], "eps": 1e-3, "weight_decay": 0.1}),
    "adam_amsgrad": ("Adam", {"lr": 0.05, "betas": [0.7, 0.8], "amsgrad": True}),
    "adam_beta0": ("Adam", {"lr": 0.05, "betas": [0.0, 0.99]}),
    "adamw": ("AdamW", {}),
    "adamw_options": ("AdamW", {"lr": 0.05, "weight_decay": 0.3, "amsgrad": True}),
    "adamax": ("Adamax", {}),
    "adamax_options": ("Adamax", {"lr": 0.05, "betas": [0.8, 0.9], "eps": 1e-2, "weight_decay": 0.1}),
    "nadam": ("NAdam", {}),
    "nadam_options": ("NAdam", {"lr": 0.05, "betas": [0.8, 0.9], "momentum_decay": 0.1, "weight_decay": 0.1}),
}
SHAPES = {"w": (3, 2), "b": (1, 4)}
KEPT = (1, 2, 3, 10, 20, 25)
"""Steps whose parameters are kept."""
STATE_AFTER = 20
"""The step whose state is kept."""

SCHEDULES = {
    "step_decay": ("StepLR", {"step_size": 7, "gamma": 0.3}),
    "exponential": ("ExponentialLR", {"gamma": 0.9}),
    "cosine": ("CosineAnnealingLR", {"T_max": 30, "eta_min": 0.01}),
    "one_cycle": ("OneCycleLR", {"max_lr": 0.5, "total_steps": 30}),
    "one_cycle_options": (
        "OneCycleLR",
        {"max_lr": 0.5, "total_steps": 30, "pct_start": 0.5, "div_factor": 10.0, "final_div_factor": 100.0},
    ),
}
NORMS = ((5.0, 1.0), (0.5, 1.0), (1.0, 1.0), (0.0, 1.0), (3.0, 0.0))
"""Norms of gradients, and the bounds to which they are clipped."""


def begin(name: str, dtype: str) -> np.ndarray:
    """Return the first value of a parameter."""
    size = int(np.prod(SHAPES[name]))
    return np.cos(np.arange(size, dtype="float64") * 1.3 + len(name)).reshape(SHAPES[name]).astype(dtype)


def loss(params: dict, step: int) -> torch.Tensor:
    """Return the loss of a step: the sum of d x^2 / 2 + c x + 0.3 sin(3 x) over all elements x."""
    total = torch.zeros(())
    for x in params.values():
        k = np.arange(x.numel(), dtype="float64").reshape(x.shape)
        c = torch.from_numpy(np.cos(0.7 * k + step)).to(x.dtype)
        d = torch.from_numpy(0.1 + 0.5 * (k % 3)).to(x.dtype)
        total = total + (d * x * x / 2 + c * x + 0.3 * torch.sin(3 * x)).sum()
    return total


def plain(value: object) -> object:
    """Return tensors in a state as lists."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, list | tuple) else value


def trajectory(kind: str, options: dict, dtype: str) -> dict:
    """Return the parameters after some steps, and the optimizer's state after one of them."""
    torch.set_default_dtype(getattr(torch, dtype))  # counters and products in the state have it
    params = {name: torch.nn.Parameter(torch.from_numpy(begin(name, dtype))) for name in SHAPES}
    optimizer = getattr(torch.optim, kind)(list(params.values()), **options)
    found = {"steps": {}}
    for step in range(1, KEPT[-1] + 1):
        optimizer.zero_grad()
        loss(params, step).backward()
        optimizer.step()
        if step in KEPT:
            found["steps"][step] = {name: x.detach().tolist() for name, x in params.items()}
        if step == STATE_AFTER:
            found["state"] = plain(optimizer.state_dict())
    return found


def rates(kind: str, options: dict) -> list:
    """Return the rates of the first steps of a schedule; the base rate is 0.2."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.2)
    schedule = getattr(torch.optim.lr_scheduler, kind)(optimizer, **options)
    found = []
    for _ in range(30):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step() if len(found) < 30 else None
    return found


def clipped(norm: float, limit: float) -> list:
    """Return two gradients of a norm together, clipped."""
    params = [torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(1))]
    for param, grad in zip(params, ([0.6, 0.0], [-0.8]), strict=True):
        param.grad = torch.tensor(grad) * norm
    before = torch.nn.utils.clip_grad_norm_(params, limit)
    return [before.item(), *(param.grad.tolist() for param in params)]


def main(target: str) -> None:
    """Write the table."""
    torch.set_default_dtype(torch.float64)
    table = {
        "torch": torch.__version__,
        "schedules": {name: [kind, options, rates(kind, options)] for name, (kind, options) in SCHEDULES.items()},
        "clipped": [[norm, limit, *clipped(norm, limit)] for norm, limit in NORMS],
        "cases": {
            name: {"optimizer": kind, "options": options}
            | {dtype: trajectory(kind, options, dtype) for dtype in ("float64", "float32")}
            for name, (kind, options) in CASES.items()
        },
    }
    Path(target).write_text(json.dumps(table) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
