"""Convolution and pooling agree with PyTorch; needs an interpreter that has it, named by PYTENSOR_CL_TORCH_PYTHON."""

import os
import subprocess

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl import nn
from tests.helpers import ROOT, opencl
from tests.nn.configurations import KINDS, arrays, configurations, save

TORCH_PYTHON = os.environ.get("PYTENSOR_CL_TORCH_PYTHON")
COUNT, LEAST = 340, 200  # configurations of a kind; those of them that PyTorch takes, too
ON_DEVICE = 10  # one of so many also runs on the device
TOLERANCE = {"float64": 1e-10, "float32": 1e-4}

pytestmark = pytest.mark.skipif(TORCH_PYTHON is None, reason="PYTENSOR_CL_TORCH_PYTHON names no interpreter")


@pytest.fixture(scope="module")
def references(tmp_path_factory):
    """Configurations of each kind, and what PyTorch makes of them."""
    folder = tmp_path_factory.mktemp("torch")
    configs = [config for kind in KINDS for config in configurations(kind, COUNT)]
    save(folder / "in.npz", configs)
    tool = ROOT / "tools" / "torch_reference.py"
    subprocess.run([TORCH_PYTHON, tool, folder / "in.npz", folder / "out.npz"], check=True)
    with np.load(folder / "out.npz") as results:
        found = dict(results)
    return {
        kind: [
            (config, {name: found[f"{n}.{name}"] for name in ("y", "dx", "dw", "places") if f"{n}.{name}" in found})
            for n, config in enumerate(configs)
            if config["kind"] == kind and f"{n}.y" in found
        ]
        for kind in KINDS
    }


def build(config, x, w=None, **more):
    """The same with this package."""
    if "adaptive" in config["kind"]:
        return nn.adaptive_pool(x, config["output_size"], config["mode"])
    function = getattr(nn, config["kind"])
    if w is None:
        names = ("ws", "ignore_border", "stride", "pad", "mode", "dilation")
        return function(x, **{name: config[name] for name in names}, **more)
    options = {name: config[name] for name in ("filter_dilation", "num_groups")}
    options |= {"filter_flip": config["flip"], "border_mode": config["border_mode"] or config["padding"]}
    if "output_padding" in config:
        options |= {"input_dilation": config["subsample"], "output_padding": config["output_padding"]}
    else:
        options["subsample"] = config["subsample"]
    return function(x, w, **options)


def graph(config, wanted):
    inputs = [pt.tensor(n, shape=(None,) * len(config[n]), dtype=config["dtype"]) for n in "xw" if config[n]]
    y = build(config, *inputs)
    weights = pt.cos(pt.arange(y.size, dtype="float64")).astype(y.dtype).reshape(y.shape)
    places = [build(config, *inputs, return_indices=True)[1]] if "places" in wanted else []
    return inputs, [y, *pytensor.grad((y * weights).sum(), inputs), *places]


def check(config, results, wanted):
    for got, (name, value) in zip(results, wanted.items(), strict=True):
        assert (got.dtype, got.shape) == (value.dtype, value.shape), (name, config)
        scale = TOLERANCE[config["dtype"]]
        largest = np.abs(value).max(initial=1e-3)
        np.testing.assert_allclose(got, value, rtol=scale, atol=scale * largest, err_msg=f"{name} {config}")


@pytest.mark.parametrize("kind", KINDS)
def test_host(references, kind):
    assert len(references[kind]) >= LEAST
    for config, wanted in references[kind]:
        f = pytensor.function(*graph(config, wanted), mode="FAST_COMPILE")
        check(config, f(*arrays(config).values()), wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_device(references, context, kind):
    with pytensor.config.change_flags(opencl__placement="device"):
        for config, wanted in references[kind][::ON_DEVICE]:
            check(config, opencl(*graph(config, wanted))(*arrays(config).values()), wanted)
