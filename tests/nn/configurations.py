"""Random configurations of convolution and pooling, small and with many degenerate ones, for comparisons with PyTorch."""

import json

import numpy as np

__all__ = ["KINDS", "arrays", "configurations", "save"]

KINDS = [name.format(n) for name in ("conv{}d", "conv{}d_transpose", "pool_{}d", "adaptive_pool{}d") for n in (1, 2, 3)]


def _ints(rng, low, high, ndim):
    """Integers from `low` to `high`, the same in every dimension half of the time."""
    drawn = [int(v) for v in rng.integers(low, high + 1, ndim)]
    return drawn[:1] * ndim if rng.random() < 0.5 else drawn


def _pads(rng, most):
    """Pairs (before, after), mostly of the same number."""
    even = rng.random() < 0.7
    pairs = [(int(rng.integers(0, m + 1)), int(rng.integers(0, m + 1))) for m in most]
    return [(a, a) if even else (a, b) for a, b in pairs]


def _named(rng, extents, dilation):
    """The padding of border mode half or full, in numbers, and its name."""
    name = str(rng.choice(["half", "full"]))
    reach = [(k - 1) * d + 1 for k, d in zip(extents, dilation, strict=True)]
    widths = [r // 2 if name == "half" else r - 1 for r in reach]
    return [(w, w) for w in widths], name


def _lengths(rng, low):
    """Lengths of which most are at least `low`."""
    return [int(rng.integers(1 if rng.random() < 0.1 else max(1, n), max(1, n) + 7)) for n in low]


def _convolution(rng, ndim, is_transposed):
    groups = int(rng.choice([1, 1, 2, 3]))
    strides, dilation, extents = _ints(rng, 1, 3, ndim), _ints(rng, 1, 3, ndim), _ints(rng, 1, 4, ndim)
    pads, name = (_pads(rng, [3] * ndim), None) if rng.random() < 0.8 else _named(rng, extents, dilation)
    reach = [(k - 1) * d + 1 for k, d in zip(extents, dilation, strict=True)]
    low = [1 if is_transposed else r - sum(p) for r, p in zip(reach, pads, strict=True)]
    per_group, features = int(rng.integers(1, 4)), int(rng.integers(1, 4)) * groups
    batch, spatial = int(rng.choice([0, 1, 2, 3], p=[0.05, 0.35, 0.3, 0.3])), _lengths(rng, low)
    x = [batch, features if is_transposed else per_group * groups, *spatial]
    config = {"x": x, "w": [features, per_group, *extents], "subsample": strides}
    config |= {"filter_dilation": dilation, "num_groups": groups}
    config |= {"padding": pads, "border_mode": name, "flip": bool(rng.integers(2))}
    if is_transposed:
        config["output_padding"] = [int(rng.integers(0, s)) for s in strides]
    return config


def _pooling(rng, ndim):
    window, dilation = _ints(rng, 1, 4, ndim), _ints(rng, 1, 3, ndim)
    mode = str(rng.choice(["max", "max", "sum", "average_inc_pad", "average_exc_pad"]))
    dilation = dilation if mode == "max" else [1] * ndim  # PyTorch has others for the largest element alone
    reach = [(k - 1) * d + 1 for k, d in zip(window, dilation, strict=True)]
    pads = _pads(rng, [k // 2 for k in window])
    low = [r - sum(p) for r, p in zip(reach, pads, strict=True)]
    shape = [int(rng.choice([0, 1, 2, 3], p=[0.05, 0.35, 0.3, 0.3])), int(rng.integers(1, 4)), *_lengths(rng, low)]
    flags = {name: bool(rng.integers(2)) for name in ("ignore_border", "ties")}
    return {
        "x": shape,
        "w": None,
        "ws": window,
        "stride": _ints(rng, 1, 4, ndim),
        "pad": pads,
        "mode": mode,
        "dilation": dilation,
        **flags,
    }


def _adaptive_pooling(rng, ndim):
    shape = [int(rng.choice([0, 1, 2, 3])), int(rng.integers(1, 4)), *_ints(rng, 1, 9, ndim)]
    mode = str(rng.choice(["max", "average_exc_pad"]))
    return {"x": shape, "w": None, "output_size": _ints(rng, 1, 6, ndim), "mode": mode, "ties": bool(rng.integers(2))}


def configurations(kind, count):
    """So many configurations of a kind, the same each time; every other one of float32, else of float64."""
    rng = np.random.default_rng(KINDS.index(kind))
    ndim = int(next(c for c in kind if c.isdigit()))
    pooling = _adaptive_pooling if "adaptive" in kind else _pooling
    for number in range(count):
        config = pooling(rng, ndim) if "pool" in kind else _convolution(rng, ndim, "transpose" in kind)
        yield {"kind": kind, "number": number, "dtype": ("float64", "float32")[number % 2], **config}


def arrays(config):
    """The arrays of a configuration, by name."""
    rng = np.random.default_rng([KINDS.index(config["kind"]), config["number"]])
    found = {name: rng.normal(size=config[name]) for name in "xw" if config[name] is not None}
    if config.get("ties"):
        found["x"] = rng.integers(-2, 3, config["x"])
    return {name: value.astype(config["dtype"]) for name, value in found.items()}


def save(path, configs):
    """Write configurations and their arrays for tools/torch_reference.py."""
    values = {f"{n}.{name}": v for n, config in enumerate(configs) for name, v in arrays(config).items()}
    np.savez(path, configurations=json.dumps(configs), **values)
