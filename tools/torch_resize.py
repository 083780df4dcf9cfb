"""Write what PyTorch makes of some resizings, and their gradients, for tests/nn/test_resampling.py.

usage: PYTHON_WITH_TORCH tools/torch_resize.py tests/nn/torch_resize.json

The input is ``sin(0..)`` and the gradient of the output ``cos(0..)``, both in float64.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import interpolate

CASES: list[dict] = [
    {"shape": [1, 2, 5], "mode": "nearest", "size": [12]},
    {"shape": [1, 1, 7], "mode": "nearest", "scale_factor": [0.37]},
    {"shape": [1, 1, 3, 7], "mode": "nearest", "scale_factor": [1.179, 2.092]},
    {"shape": [1, 1, 3, 4], "mode": "nearest-exact", "size": [7, 3]},
    {"shape": [2, 1, 6], "mode": "linear", "size": [4]},
    {"shape": [1, 1, 5], "mode": "linear", "scale_factor": [1.19]},
    {"shape": [1, 1, 5], "mode": "linear", "size": [1], "align_corners": True},
    {"shape": [1, 1, 3, 5], "mode": "bilinear", "scale_factor": [2.3, 0.7]},
    {"shape": [1, 2, 4, 3], "mode": "bilinear", "size": [2, 9], "align_corners": True},
    {"shape": [1, 1, 5, 4], "mode": "bicubic", "scale_factor": [1.7, 2.2]},
    {"shape": [1, 1, 4, 6], "mode": "bicubic", "size": [9, 3], "align_corners": True},
    {"shape": [1, 1, 1, 1], "mode": "bicubic", "size": [3, 2]},
    {"shape": [1, 1, 2, 3, 4], "mode": "trilinear", "size": [3, 2, 5]},
]


def main() -> None:
    """Compute and write."""
    for case in CASES:
        shape, options = case["shape"], {k: v for k, v in case.items() if k != "shape"}
        x = torch.tensor(np.sin(np.arange(np.prod(shape))).reshape(shape), requires_grad=True)
        y = interpolate(x, **options)
        y.backward(torch.tensor(np.cos(np.arange(y.numel())).reshape(y.shape)))
        case["y"] = y.detach().numpy().round(13).tolist()
        case["dx"] = x.grad.numpy().round(13).tolist()
    lines = ",\n".join(json.dumps(case) for case in CASES)
    Path(sys.argv[1]).write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
