"""Training steps of small convolutional networks, by turns with JAX and PyTorch on the CPU, each in its own process.

usage: python benchmarks/cnn.py [--networks digits mnist lenet resnet8] [--torch-python PATH] [--device opencl:pocl]
                                [--backends opencl jax torch] [--rounds 5] [--batch 64] [--clock wall|cpu] [--profile]

A step is gradient descent with momentum on a batch of 64 images; all parameters stay on the device, and images and
labels come from the host. A figure is the least time of a step, whose loss is read. The losses of the first 20 steps
must agree. On a machine that others use, `taskset -c 0` and `--clock cpu` compare the processor time of one core.
`--profile` prints the time of each node of this package's step instead (docs/profiling.md).
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

CLASSES, RATE, MOMENTUM, CHECKED = 10, 0.01, 0.9, 20
SECONDS = 0.3  # time of a measurement
BACKENDS = ("opencl", "jax", "torch")


class Network(NamedTuple):
    """A network as a list of layers; the last one has a feature for each class.

    Layers: ``("conv", features, taps)`` with zeros around the image, ``("valid", features, taps)`` without,
    ``("relu",)``, ``("pool",)`` of 2 x 2 pixels, ``("dense", features)``, ``("mean",)`` over the image, and
    ``("residual", features)``: two convolutions of 3 x 3 taps beside one of one tap.
    """

    channels: int
    extent: int
    layers: tuple[tuple[Any, ...], ...]

    def shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of the weights; a bias follows each of them."""
        channels, extent, shapes = self.channels, self.extent, []
        flat = None
        for kind, *sizes in self.layers:
            if kind in ("conv", "valid"):
                shapes.append((sizes[0], channels, sizes[1], sizes[1]))
                channels, extent = sizes[0], extent - (sizes[1] - 1 if kind == "valid" else 0)
            elif kind == "residual":
                shapes += [(sizes[0], c, t, t) for c, t in ((channels, 3), (sizes[0], 3), (channels, 1))]
                channels = sizes[0]
            elif kind == "pool":
                extent //= 2
            elif kind == "mean":
                flat = channels
            elif kind == "dense":
                shapes.append((flat or channels * extent**2, sizes[0]))
                flat = sizes[0]
        return shapes

    def parameters(self) -> list[np.ndarray]:
        """Return weights and biases in turn."""
        rng = np.random.default_rng(0)
        values = []
        for shape in self.shapes():
            dense = len(shape) == 2
            scale = (2 / (shape[0] if dense else np.prod(shape[1:]))) ** 0.5
            values.append((scale * rng.standard_normal(shape)).astype("float32"))
            values.append(np.zeros(shape[1] if dense else shape[0], "float32"))
        return values

    def data(self, batch: int) -> tuple[np.ndarray, np.ndarray]:
        """Return images and labels."""
        rng = np.random.default_rng(1)
        images = rng.standard_normal((batch, self.channels, self.extent, self.extent)).astype("float32")
        return images, rng.integers(0, CLASSES, batch)


class Functions(NamedTuple):
    """The functions of a framework for the layers."""

    conv: Callable[[Any, Any, bool], Any]
    relu: Callable[[Any], Any]
    pool: Callable[[Any], Any]
    flat: Callable[[Any], Any]
    mean: Callable[[Any], Any]


_CONV, _RELU, _POOL = "conv", ("relu",), ("pool",)
NETWORKS = {
    "digits": Network(1, 8, ((_CONV, 16, 3), _RELU, _POOL, (_CONV, 32, 3), _RELU, _POOL, ("dense", 10))),
    "mnist": Network(
        1, 28, ((_CONV, 32, 3), _RELU, _POOL, (_CONV, 64, 3), _RELU, _POOL, ("dense", 128), _RELU, ("dense", 10))
    ),
    "lenet": Network(
        1,
        28,
        (
            *((_CONV, 6, 5), _RELU, _POOL, ("valid", 16, 5), _RELU, _POOL),
            *(("dense", 120), _RELU, ("dense", 84), _RELU, ("dense", 10)),
        ),
    ),
    "resnet8": Network(
        1,
        28,
        (
            *((_CONV, 16, 3), _RELU, ("residual", 16), _RELU, _POOL, ("residual", 32), _RELU, _POOL),
            *(("residual", 64), _RELU, ("mean",), ("dense", 10)),
        ),
    ),
}


def scores_of(network: Network, f: Functions, x: Any, parameters: list[Any]) -> Any:
    """Return the scores of the classes."""
    pairs = iter(zip(parameters[::2], parameters[1::2], strict=True))

    def conv(value: Any, padded: bool) -> Any:
        w, b = next(pairs)
        return f.conv(value, w, padded) + b.reshape((1, -1, 1, 1))

    for kind, *_ in network.layers:
        if kind in ("conv", "valid"):
            x = conv(x, kind == "conv")
        elif kind == "residual":
            inner = conv(f.relu(conv(x, True)), True)
            x = inner + conv(x, True)
        elif kind == "dense":
            w, b = next(pairs)
            x = (f.flat(x) if x.ndim > 2 else x) @ w + b
        else:
            x = {"relu": f.relu, "pool": f.pool, "mean": f.mean}[kind](x)
    return x


# --- the processes that compute ---


def opencl_step(network: Network, mode: str = "OPENCL") -> Any:
    """Return a training step that PyTensor compiled, by default with this package."""
    import pytensor
    import pytensor.tensor as pt

    from pytensor_cl import nn

    x, labels = pt.tensor4("x", dtype="float32"), pt.lvector("labels")
    functions = Functions(
        lambda v, w, padded: nn.conv2d(v, w, border_mode="half" if padded else "valid", filter_flip=False),
        lambda v: pt.maximum(v, 0),
        lambda v: nn.pool_2d(v, 2),
        lambda v: v.flatten(2),
        lambda v: v.mean(axis=(2, 3)),
    )
    parameters = [pytensor.shared(value, name=f"p{k}") for k, value in enumerate(network.parameters())]
    scores = scores_of(network, functions, x, parameters)
    loss = -pt.mean(pt.special.log_softmax(scores, axis=1)[pt.arange(labels.shape[0]), labels])
    updates = []
    for parameter, gradient in zip(parameters, pytensor.grad(loss, parameters), strict=True):
        velocity = pytensor.shared(np.zeros_like(parameter.get_value()))
        change = np.float32(MOMENTUM) * velocity - np.float32(RATE) * gradient
        updates += [(velocity, change), (parameter, parameter + change)]
    return pytensor.function([x, labels], loss, updates=updates, mode=mode)


def _opencl(network: Network, batch: int) -> Callable[[], float]:
    step, data = opencl_step(network), network.data(batch)
    return lambda: float(step(*data))


def _jax(network: Network, batch: int) -> Callable[[], float]:
    import jax
    import jax.numpy as jnp

    dims = ("NCHW", "OIHW", "NCHW")
    functions = Functions(
        lambda v, w, padded: jax.lax.conv_general_dilated(
            v, w, (1, 1), "SAME" if padded else "VALID", dimension_numbers=dims
        ),
        lambda v: jnp.maximum(v, 0),
        lambda v: jax.lax.reduce_window(v, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"),
        lambda v: v.reshape((v.shape[0], -1)),
        lambda v: v.mean(axis=(2, 3)),
    )

    def loss_of(parameters: list[Any], x: Any, labels: Any) -> Any:
        scores = jax.nn.log_softmax(scores_of(network, functions, x, parameters), axis=1)
        return -scores[jnp.arange(len(labels)), labels].mean()

    def step(parameters: list[Any], velocities: list[Any], x: Any, labels: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(parameters, x, labels)
        velocities = [MOMENTUM * v - RATE * g for v, g in zip(velocities, gradients, strict=True)]
        return [p + v for p, v in zip(parameters, velocities, strict=True)], velocities, loss

    compiled = jax.jit(step, donate_argnums=(0, 1))
    values = network.parameters()
    state: list[Any] = [[jnp.asarray(v) for v in values], [jnp.zeros_like(v) for v in values]]
    data = network.data(batch)

    def call() -> float:
        *state[:], loss = compiled(*state, *data)
        return float(loss)

    return call


def _torch(network: Network, batch: int) -> Callable[[], float]:
    import torch
    from torch.nn import functional

    functions = Functions(
        lambda v, w, padded: functional.conv2d(v, w, padding=w.shape[2] // 2 if padded else 0),
        functional.relu,
        lambda v: functional.max_pool2d(v, 2),
        lambda v: v.flatten(1),
        lambda v: v.mean(dim=(2, 3)),
    )
    parameters = [torch.from_numpy(value).requires_grad_() for value in network.parameters()]
    optimizer = torch.optim.SGD(parameters, RATE, MOMENTUM)
    x, labels = map(torch.from_numpy, network.data(batch))

    def call() -> float:
        optimizer.zero_grad()
        loss = functional.cross_entropy(scores_of(network, functions, x, parameters), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return call


STEPS = {"opencl": _opencl, "jax": _jax, "torch": _torch}


def serve(backend: str, clock: Callable[[], float]) -> None:
    """Answer requests, one a line: the losses of the first steps, or the least time of a step."""
    calls: dict[tuple[str, int], Callable[[], float]] = {}
    for line in sys.stdin:
        name, batch = json.loads(line)
        if (name, batch) not in calls:
            call = calls[name, batch] = STEPS[backend](NETWORKS[name], batch)
            print(json.dumps([call() for _ in range(CHECKED)]), flush=True)
            continue
        call, best, end = calls[name, batch], float("inf"), time.perf_counter() + SECONDS
        while time.perf_counter() < end:
            start = clock()
            call()
            best = min(best, clock() - start)
        print(json.dumps(best), flush=True)


# --- the process that compares ---


class Worker:
    """A process that computes for one backend."""

    def __init__(self, backend: str, options: argparse.Namespace) -> None:
        python = options.torch_python if backend == "torch" else sys.executable
        flags = f"device={options.device},floatX=float32,cxx=" if backend == "opencl" else ""
        environment = {**os.environ, "PYTENSOR_FLAGS": flags, "OMP_WAIT_POLICY": "PASSIVE", "JAX_PLATFORMS": "cpu"}
        pipe = subprocess.PIPE
        command = [python, __file__, "--serve", backend, "--clock", options.clock]
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)

    def request(self, name: str, batch: int) -> Any:
        """Return the answer to one request."""
        assert self._process.stdin and self._process.stdout
        print(json.dumps((name, batch)), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())


def _profile(name: str, batch: int) -> None:
    import pytensor_cl

    step, data = opencl_step(NETWORKS[name]), NETWORKS[name].data(batch)
    for _ in range(CHECKED):
        step(*data)
    with pytensor_cl.profile(step) as profile:
        for _ in range(CHECKED):
            step(*data)
    print(name, profile, sep="\n")


def main() -> None:
    """Compare, or serve as one of the processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=["opencl", "jax"])
    parser.add_argument("--torch-python", help="a Python interpreter that has PyTorch")
    parser.add_argument("--device", default="opencl:pocl")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--profile", action="store_true", help="with PYTENSOR_FLAGS=device=...")
    parser.add_argument("--serve", choices=BACKENDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, time.perf_counter if options.clock == "wall" else time.process_time)
        return
    if options.profile:
        for name in options.networks:
            _profile(name, options.batch)
        return
    backends = [*options.backends, *(["torch"] if options.torch_python and "torch" not in options.backends else [])]
    workers = {backend: Worker(backend, options) for backend in backends}
    print(f"{'ms of a step':12s}", *(f"{backend:>10s}" for backend in backends))
    for name in options.networks:
        losses = [worker.request(name, options.batch) for worker in workers.values()]
        np.testing.assert_allclose(losses, losses[:1] * len(losses), rtol=1e-3)
        best = dict.fromkeys(backends, float("inf"))
        for _ in range(options.rounds):
            for backend, worker in workers.items():
                best[backend] = min(best[backend], worker.request(name, options.batch))
        print(f"{name:12s}", *(f"{1e3 * seconds:10.3f}" for seconds in best.values()), flush=True)


if __name__ == "__main__":
    main()
