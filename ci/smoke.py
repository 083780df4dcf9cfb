"""A program without a word of OpenCL runs on a device, as set by ``PYTENSOR_FLAGS``."""

from importlib import metadata

import numpy as np
import pytensor
import pytensor.tensor as pt

x = pt.vector("x")
f = pytensor.function([x], pt.exp(x).sum())
value = np.linspace(-1, 1, 1000, dtype=pytensor.config.floatX)

np.testing.assert_allclose(f(value), np.exp(value).sum(), rtol=1e-5)
names = [type(node.op).__name__ for node in f.maker.fgraph.toposort()]
assert any(name.startswith("Gpu") for name in names), names

import pytensor_cl  # noqa: E402 - the program above works without it

assert pytensor_cl.__version__ == metadata.version("pytensor-cl")
print("outside the checkout:", names)
