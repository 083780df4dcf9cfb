"""PyTorch's trajectories (tools/torch_trajectories.py), and the same problem here."""

import json
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt

from pytensor_cl import optimizers

TABLE = json.loads((Path(__file__).parent / "torch_trajectories.json").read_text())
CASES = TABLE["cases"]
SHAPES = {"w": (3, 2), "b": (1, 4)}
STATE_AFTER = 20
TOLERANCE = {"float64": 1e-10, "float32": 2e-5}
_OPTIONS = {"lr": "learning_rate", "eps": "epsilon", "alpha": "rho"}


def rule(case, **more):
    """The optimizer of a case."""
    kind, given = CASES[case]["optimizer"], dict(CASES[case]["options"])
    betas = dict(zip(("beta1", "beta2"), given.pop("betas", ()), strict=False))
    options = {_OPTIONS.get(name, name): value for name, value in given.items()} | betas | more
    if kind == "SGD" and "momentum" in options:
        kind = "Nesterov" if options.pop("nesterov", False) else "Momentum"
    return getattr(optimizers, kind)(**options)


def begin(name, dtype):
    """The first value of a parameter."""
    size = int(np.prod(SHAPES[name]))
    return np.cos(np.arange(size, dtype="float64") * 1.3 + len(name)).reshape(SHAPES[name]).astype(dtype)


def params_of(dtype, values=None):
    """New parameters."""
    values = {name: begin(name, dtype) for name in SHAPES} if values is None else values
    return [
        pytensor.shared(np.array(value, dtype), name=name, shape=(1, None) if name == "b" else None)
        for name, value in values.items()
    ]


def loss_of(params, step):
    """The loss of a step."""
    total = 0
    for x in params:
        k = np.arange(np.prod(x.get_value().shape), dtype="float64").reshape(x.get_value().shape)
        c = pt.cos(0.7 * k + step).astype(x.dtype)
        d = (0.1 + 0.5 * (k % 3)).astype(x.dtype)
        total = total + (d * x * x / np.int8(2) + c * x + np.asarray(0.3, x.dtype) * pt.sin(np.int8(3) * x)).sum()
    return total


class Run:
    """Cases that are computed by one function, so that one compilation serves them all."""

    def __init__(self, rules, dtype, mode, values=None):
        step = pt.dscalar("step") if dtype == "float64" else pt.fscalar("step")
        self.dtype, self.rules = dtype, rules
        self.params = {case: params_of(dtype, values and values[case]) for case in rules}
        updates = {}
        for case, optimizer in rules.items():
            updates |= optimizer.updates(loss_of(self.params[case], step), self.params[case])
        self.function = pytensor.function([step], [], updates=updates, mode=mode)

    def advance(self, first, last):
        """Run steps, and return the parameters after each."""
        for step in range(first, last + 1):
            self.function(np.asarray(step, self.dtype))
            yield step, {case: [np.asarray(p.get_value()) for p in params] for case, params in self.params.items()}

    def compare(self, first, last, tolerance=None):
        """Run steps and compare with PyTorch; return how many values were compared."""
        count, tolerance = 0, TOLERANCE[self.dtype] if tolerance is None else tolerance
        for step, found in self.advance(first, last):
            for case, values in found.items():
                wanted = CASES[case][self.dtype]["steps"].get(str(step))
                for name, value in zip(SHAPES, values, strict=True) if wanted else ():
                    reference = np.asarray(wanted[name])
                    assert (value.dtype, value.shape) == (self.dtype, reference.shape)
                    worst = np.abs(value - reference).max()
                    assert worst <= tolerance * max(1, np.abs(reference).max()), f"{case} {name} {step}: {worst:.3g}"
                    count += 1
        return count
