"""The cases of `gpu.py`: the workloads of `workloads.py`, networks, float64 and large products, draws."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from worker import error_of
from workloads import WORKLOADS, Workload

__all__ = ["CASES", "FIRST_CALLS", "Case", "Step"]

Arrays = list[np.ndarray]

FIRST_CALLS = 4  # calls before the result is checked: the third call of a signature is captured
SEED = 2026
TOLERANCE = 1e-4  # relative to the largest element, against float64
EPSILON = 1e-5  # added to the variance by layer norm
ADAM = (1e-3, 0.9, 0.999, 1e-8)  # rate, decays, epsilon


def largest_error(results: Arrays, wanted: Arrays) -> float:
    """Return the largest error of results, each relative to the largest element of what is wanted."""
    if len(results) < len(wanted):
        return float("inf")
    pairs = zip(results[: len(wanted)], wanted, strict=True)
    return max(error_of(got, right.astype(got.dtype)) for got, right in pairs)


class Case(NamedTuple):
    """One thing to measure, with what each backend makes of it."""

    # name, family: for the tables
    name: str
    family: str
    # takes a random generator and a scale, returns the input arrays
    make: Callable[[Any, float], Arrays]
    # takes a module like NumPy (numpy or cupy) and the arrays in float64, returns the results
    wanted: Callable[..., list[Any]]
    # for each backend that has the case: takes the backend and the arrays, returns what is timed, a function of the
    # arrays that the backend placed
    makers: dict[str, Callable[[Any, Arrays], Callable[..., Any]]]
    flops: Callable[[Arrays], float] = lambda inputs: 0.0
    tolerance: float = TOLERANCE
    error: Callable[[Arrays, Arrays], float] = largest_error
    is_stateful: bool = False  # whether calls take no inputs and depend on those before


# --- the workloads of all backends ---


def _of_workload(workload: Workload) -> Case:
    def wanted(xp: Any, *arrays: Any) -> list[Any]:
        if xp is not np and workload.name == "scatter-add rows":
            return [_cupy_scatter(xp, *arrays)]
        return [workload.numeric(xp, *arrays)]

    def opencl(backend: Any, arrays: Arrays) -> Callable[..., Any]:
        return backend.function(*backend.graph(workload, arrays))

    def cupy(backend: Any, arrays: Arrays) -> Callable[..., Any]:
        if workload.name == "scatter-add rows":
            return partial(_cupy_scatter, backend.module)
        return partial(workload.numeric, backend.module)

    def jax(backend: Any, arrays: Arrays) -> Callable[..., Any]:
        value = partial(workload.numeric, backend.module)
        return backend.jit(backend.value_and_grad(value, workload.wanted) if workload.cost else value)

    makers = {"opencl": opencl, "jax": jax}
    if not workload.cost:
        makers["cupy"] = cupy
    if workload.name in TORCH:
        makers["torch"] = lambda backend, arrays: partial(TORCH[workload.name], backend.module)
    return Case(workload.name, workload.family, workload.make, wanted, makers, workload.flops, workload.tolerance)


def _cupy_scatter(cupy: Any, x: Any, i: Any) -> Any:
    import cupyx

    out = cupy.zeros_like(x[: len(x) // 8])
    cupyx.scatter_add(out, i, x)
    return out


def _torch_chain(torch: Any, x: Any) -> Any:
    return torch.exp(-x * x) * torch.tanh(x) + torch.log(1 + x * x) * torch.sin(x)


TORCH: dict[str, Callable[..., Any]] = {
    "add": lambda torch, x, y: torch.add(x, y),
    "exp": lambda torch, x: torch.exp(x),
    "chain of transcendentals": _torch_chain,
    "add transposed": lambda torch, x, y: x + y.T,
    "add row and column": lambda torch, x, y: torch.add(x, y),
    "sum of all": lambda torch, x: torch.sum(x),
    "sum of rows": lambda torch, x: torch.sum(x, 1),
    "sum of columns": lambda torch, x: torch.sum(x, 0),
    "softmax": lambda torch, x: torch.nn.functional.softmax(x, 1),
    "logsumexp": lambda torch, x: torch.logsumexp(x, 1),
    "layer norm": lambda torch, x, s, b: torch.nn.functional.layer_norm(x, (x.shape[1],), s, b),
    "gemm 1024": lambda torch, a, b: torch.matmul(a, b),
    "gemm 20000 x 64 x 64": lambda torch, a, b: torch.matmul(a, b),
    "gemv": lambda torch, a, x: torch.mv(a, x),
    "batched products": lambda torch, a, b: torch.matmul(a, b),
    "transpose": lambda torch, x: x.T.contiguous(),
    "gather rows": lambda torch, x, i: x[i],
    "scatter-add rows": lambda torch, x, i: torch.zeros_like(x[: len(x) // 8]).index_add_(0, i, x),
    "prefix sum": lambda torch, x: torch.cumsum(x, 0),
    "argmax of rows": lambda torch, x: torch.argmax(x, 1),
    "sort": lambda torch, x: torch.sort(x)[0],
}
"""PyTorch's own functions for the workloads, called one by one."""


# --- products ---


def _product(name: str, n: int, dtype: str) -> Case:
    """Two square matrices; the number of elements grows with the scale, and `n` is the length at scale 4."""

    def make(rng: Any, scale: float) -> Arrays:
        m = max(1, round(n * scale**0.5 / 2))
        return [rng.normal(size=(m, m)).astype(dtype) for _ in range(2)]

    makers = {
        "opencl": _graph(lambda pt, nn, a, b: [pt.dot(a, b)]),
        "cupy": lambda backend, arrays: backend.module.matmul,
        "torch": lambda backend, arrays: backend.module.matmul,
    }
    if dtype == "float32":
        makers["jax"] = lambda backend, arrays: backend.jit(backend.module.matmul)
    tolerance = 1e-4 if dtype == "float32" else 1e-12
    return Case(name, "products", make, lambda xp, a, b: [a @ b], makers, _product_flops, tolerance)


def _product_flops(inputs: Arrays) -> float:
    return 2.0 * inputs[0].size * inputs[1].shape[1]


# --- networks ---


def _graph(build: Callable[..., list[Any]]) -> Callable[[Any, Arrays], Callable[..., Any]]:
    """Return a maker for this package; `build` takes ``tensor``, ``nn`` and the variables, whose shapes are static."""

    def maker(backend: Any, arrays: Arrays) -> Callable[..., Any]:
        import pytensor.tensor as pt

        from pytensor_cl import nn

        variables = [pt.tensor(f"x{k}", dtype=a.dtype, shape=a.shape) for k, a in enumerate(arrays)]
        return backend.function(variables, build(pt, nn, *variables))

    return maker


def _with_gradients(value: Callable[..., Any], wrt: tuple[int, ...]) -> Callable[..., list[Any]]:
    """Return what builds a value, and its gradients for the last variable as the cotangent."""

    def build(pt: Any, nn: Any, *variables: Any) -> list[Any]:
        from pytensor import grad

        *inputs, cotangent = variables
        y = value(pt, nn, *inputs)
        return [y, *grad(None, [inputs[k] for k in wrt], known_grads={y: cotangent})]

    return build


def _torch_gradients(value: Callable[..., Any]) -> Callable[[Any, Arrays], Callable[..., Any]]:
    """Return a maker of a value and the gradients of all its inputs; `value` takes ``functional`` and the inputs."""

    def maker(backend: Any, arrays: Arrays) -> Callable[..., Any]:
        torch = backend.module

        def call(*values: Any) -> list[Any]:
            leaves = [v.detach().requires_grad_() for v in values[:-1]]
            y = value(torch.nn.functional, *leaves)
            return [y.detach(), *torch.autograd.grad(y, leaves, values[-1])]

        return call

    return maker


def _jax_gradients(value: Callable[..., Any]) -> Callable[[Any, Arrays], Callable[..., Any]]:
    """Return a maker of a value and the gradients of all its inputs; `value` takes ``jax.numpy`` and the inputs."""

    def maker(backend: Any, arrays: Arrays) -> Callable[..., Any]:
        import jax

        def call(*values: Any) -> tuple[Any, ...]:
            y, pullback = jax.vjp(partial(value, backend.module), *values[:-1])
            return (y, *pullback(values[-1]))

        return backend.jit(call)

    return maker


class Layer(NamedTuple):
    """A convolution of ResNet-50."""

    channels: int
    image: int
    filters: int
    taps: int
    stride: int

    @property
    def positions(self) -> int:
        """Extent of the output; the padding is half of the taps."""
        return (self.image - self.taps % 2) // self.stride + 1

    @property
    def name(self) -> str:
        """Name in the tables."""
        stride = f" stride {self.stride}" if self.stride > 1 else ""
        return f"conv {self.taps}x{self.taps} {self.channels}-{self.filters} of {self.image}{stride}"

    def make(self, rng: Any, scale: float, has_cotangent: bool) -> Arrays:
        """Return x, w and, where wanted, dy."""
        batch = max(1, round(8 * scale))
        shapes = [
            (batch, self.channels, self.image, self.image),
            (self.filters, self.channels, self.taps, self.taps),
            (batch, self.filters, self.positions, self.positions),
        ]
        return [rng.normal(size=shape).astype("float32") for shape in shapes[: 2 + has_cotangent]]

    def flops(self, inputs: Arrays) -> float:
        """Return twice the multiplications of all passes, those with padding included."""
        passes = 3 if len(inputs) > 2 else 1
        return 2.0 * passes * len(inputs[0]) * self.filters * self.channels * self.taps**2 * self.positions**2

    def opencl(self, pt: Any, nn: Any, x: Any, w: Any) -> Any:
        """Return the graph."""
        padding = (self.taps // 2,) * 2
        return nn.conv2d(x, w, border_mode=padding, subsample=(self.stride,) * 2, filter_flip=False)

    def torch(self, functional: Any, x: Any, w: Any) -> Any:
        """Return the result."""
        return functional.conv2d(x, w, None, self.stride, self.taps // 2)

    def jax(self, jnp: Any, x: Any, w: Any) -> Any:
        """Return the result."""
        from jax import lax

        pads = [(self.taps // 2,) * 2] * 2
        return lax.conv_general_dilated(x, w, (self.stride,) * 2, pads, dimension_numbers=("NCHW", "OIHW", "NCHW"))

    def wanted(self, xp: Any, x: Any, w: Any, dy: Any = None) -> list[Any]:
        """Return y and, with dy, the gradients of x and w: a product for each tap."""
        pad, n = self.taps // 2, self.positions
        padded = xp.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)])
        y, dx, dw = 0, xp.zeros_like(padded), xp.zeros_like(w)
        for i in range(self.taps):
            for j in range(self.taps):
                rows, columns = (slice(k, k + self.stride * (n - 1) + 1, self.stride) for k in (i, j))
                part = padded[:, :, rows, columns]
                y = y + xp.moveaxis(xp.tensordot(w[:, :, i, j], part, axes=(1, 1)), 0, 1)
                if dy is not None:
                    dx[:, :, rows, columns] += xp.moveaxis(xp.tensordot(w[:, :, i, j], dy, axes=(0, 1)), 0, 1)
                    dw[:, :, i, j] = xp.tensordot(dy, part, axes=((0, 2, 3), (0, 2, 3)))
        if dy is None:
            return [y]
        return [y, dx[:, :, pad : pad + self.image, pad : pad + self.image], dw]

    def cases(self) -> list[Case]:
        """Return the forward pass alone, and all three passes."""
        forward = {
            "opencl": _graph(lambda *variables: [self.opencl(*variables)]),
            "torch": lambda backend, arrays: partial(self.torch, backend.module.nn.functional),
            "jax": lambda backend, arrays: backend.jit(partial(self.jax, backend.module)),
        }
        both = {
            "opencl": _graph(_with_gradients(self.opencl, (0, 1))),
            "torch": _torch_gradients(self.torch),
            "jax": _jax_gradients(self.jax),
        }
        make = [partial(self.make, has_cotangent=has) for has in (False, True)]
        return [
            Case(self.name, "networks", make[0], self.wanted, forward, self.flops),
            Case(f"{self.name}, gradients", "networks", make[1], self.wanted, both, self.flops),
        ]


LAYERS = [
    Layer(*row)
    for row in (
        (3, 224, 64, 7, 2),
        (64, 56, 64, 3, 1),
        (64, 56, 256, 1, 1),
        (128, 28, 128, 3, 1),
        (256, 56, 512, 1, 2),
        (256, 14, 256, 3, 1),
        (1024, 14, 256, 1, 1),
        (512, 7, 512, 3, 1),
    )
]


def _attention(heads: int, length: int, features: int = 64) -> list[Case]:
    def make(rng: Any, scale: float, count: int) -> Arrays:
        shape = (max(1, round(scale)), heads, length, features)
        return [rng.normal(size=shape).astype("float32") for _ in range(count)]

    def jax(jnp: Any, q: Any, k: Any, v: Any) -> Any:
        s = jnp.matmul(q, jnp.swapaxes(k, -1, -2)) / features**0.5
        e = jnp.exp(s - jnp.max(s, axis=-1, keepdims=True))
        return jnp.matmul(e / jnp.sum(e, axis=-1, keepdims=True), v)

    def wanted(xp: Any, q: Any, k: Any, v: Any, g: Any = None) -> list[Any]:
        s = q @ xp.swapaxes(k, -1, -2) / features**0.5
        p = xp.exp(s - s.max(axis=-1, keepdims=True))
        p /= p.sum(axis=-1, keepdims=True)
        if g is None:
            return [p @ v]
        dp = g @ xp.swapaxes(v, -1, -2)
        ds = p * (dp - (dp * p).sum(axis=-1, keepdims=True)) / features**0.5
        return [p @ v, ds @ k, xp.swapaxes(ds, -1, -2) @ q, xp.swapaxes(p, -1, -2) @ g]

    def flops(inputs: Arrays) -> float:
        q = inputs[0]
        return 4.0 * q.size * length * (3.5 if len(inputs) > 3 else 1)

    def opencl(pt: Any, nn: Any, *values: Any) -> Any:
        return nn.scaled_dot_product_attention(*values)

    def torch(functional: Any, *values: Any) -> Any:
        return functional.scaled_dot_product_attention(*values)

    forward = {
        "opencl": _graph(lambda *variables: [opencl(*variables)]),
        "torch": lambda backend, arrays: partial(torch, backend.module.nn.functional),
        "jax": lambda backend, arrays: backend.jit(partial(jax, backend.module)),
    }
    both = {
        "opencl": _graph(_with_gradients(opencl, (0, 1, 2))),
        "torch": _torch_gradients(torch),
        "jax": _jax_gradients(jax),
    }
    name = f"attention {heads} x {length} x {features}"
    return [
        Case(name, "networks", partial(make, count=3), wanted, forward, flops),
        Case(f"{name}, gradients", "networks", partial(make, count=4), wanted, both, flops),
    ]


def _layer_norm() -> Case:
    def make(rng: Any, scale: float) -> Arrays:
        rows, columns = max(1, round(4096 * scale)), 1024
        shapes = (rows, columns), (columns,), (columns,), (rows, columns)
        return [rng.normal(size=shape).astype("float32") for shape in shapes]

    def jax(jnp: Any, x: Any, weight: Any, bias: Any) -> Any:
        centred = x - jnp.mean(x, axis=1, keepdims=True)
        return centred / jnp.sqrt(jnp.mean(centred * centred, axis=1, keepdims=True) + EPSILON) * weight + bias

    def wanted(xp: Any, x: Any, weight: Any, bias: Any, g: Any) -> list[Any]:
        centred = x - x.mean(axis=1, keepdims=True)
        slope = 1 / xp.sqrt((centred * centred).mean(axis=1, keepdims=True) + EPSILON)
        normal, dn = centred * slope, g * weight
        dx = slope * (dn - dn.mean(axis=1, keepdims=True) - normal * (dn * normal).mean(axis=1, keepdims=True))
        return [normal * weight + bias, dx, (g * normal).sum(axis=0), g.sum(axis=0)]

    def opencl(pt: Any, nn: Any, x: Any, weight: Any, bias: Any) -> Any:
        return nn.layer_norm(x, weight=weight, bias=bias, eps=EPSILON)

    makers = {
        "opencl": _graph(_with_gradients(opencl, (0, 1, 2))),
        "torch": _torch_gradients(lambda functional, x, w, b: functional.layer_norm(x, x.shape[1:], w, b, EPSILON)),
        "jax": _jax_gradients(jax),
    }
    return Case("layer norm, gradients", "networks", make, wanted, makers)


def _cross_entropy(classes: int) -> Case:
    def make(rng: Any, scale: float) -> Arrays:
        rows = max(1, round(4096 * scale))
        return [rng.normal(size=(rows, classes)).astype("float32"), rng.integers(0, classes, rows)]

    def jax(backend: Any, arrays: Arrays) -> Callable[..., Any]:
        import jax

        jnp = backend.module

        def loss(x: Any, labels: Any) -> Any:
            return -jnp.take_along_axis(jax.nn.log_softmax(x, axis=1), labels[:, None], axis=1).mean()

        return backend.jit(jax.value_and_grad(loss))

    def torch(backend: Any, arrays: Arrays) -> Callable[..., Any]:
        module = backend.module

        def call(x: Any, labels: Any) -> list[Any]:
            leaf = x.detach().requires_grad_()
            loss = module.nn.functional.cross_entropy(leaf, labels)
            return [loss.detach(), *module.autograd.grad(loss, [leaf])]

        return call

    def opencl(pt: Any, nn: Any, x: Any, labels: Any) -> list[Any]:
        from pytensor import grad

        loss = nn.softmax_cross_entropy(x, labels)
        return [loss, grad(loss, x)]

    def wanted(xp: Any, x: Any, labels: Any) -> list[Any]:
        rows = xp.arange(len(x))
        e = xp.exp(x - x.max(axis=1, keepdims=True))
        p = e / e.sum(axis=1, keepdims=True)
        loss = -xp.log(p[rows, labels]).mean()
        p[rows, labels] -= 1
        return [loss, p / len(x)]

    makers = {"opencl": _graph(opencl), "torch": torch, "jax": jax}
    return Case(f"softmax cross entropy of {classes}, gradient", "networks", make, wanted, makers)


class Step(NamedTuple):
    """A call without inputs that changes a state, and what reads the state."""

    run: Callable[[], Any]
    read: Callable[[], Any]

    def __call__(self) -> Any:
        """Take a step."""
        return self.run()


class Adam(NamedTuple):
    """A step over parameters whose lengths differ."""

    tensors: int

    def make(self, rng: Any, scale: float) -> Arrays:
        """Return the parameters, then their gradients."""
        sizes = [max(1, round(10_000 * (1 + k) * scale)) for k in range(self.tensors)]
        return [rng.normal(size=size).astype("float32") for _ in range(2) for size in sizes]

    def wanted(self, xp: Any, *arrays: Any) -> list[Any]:
        """Return the parameters after the first calls."""
        rate, b1, b2, epsilon = ADAM
        found = []
        for p, g in zip(*_halves(arrays), strict=True):
            m, v, value = 0 * p, 0 * p, p
            for t in range(1, FIRST_CALLS + 1):
                m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
                value = value - rate * (m / (1 - b1**t)) / (xp.sqrt(v / (1 - b2**t)) + epsilon)
            found.append(value)
        return found

    def opencl(self, backend: Any, arrays: Arrays) -> Step:
        """Return a step on shared variables."""
        import pytensor

        from pytensor_cl import optimizers

        params, grads = (
            [pytensor.shared(a, f"{name}{k}", shape=a.shape) for k, a in enumerate(part)]
            for name, part in zip("pg", _halves(arrays), strict=True)
        )
        step = backend.function([], [], optimizers.adam(grads, params, *ADAM))
        return Step(step, lambda: [p.get_value() for p in params])

    def torch(self, backend: Any, arrays: Arrays) -> Step:
        """Return a step of the fused optimizer."""
        params, grads = (backend.place(part) for part in _halves(arrays))
        for p, g in zip(params, grads, strict=True):
            p.grad = g
        rate, b1, b2, epsilon = ADAM
        optimizer = backend.module.optim.Adam(params, rate, (b1, b2), epsilon, fused=backend.device_name == "cuda")
        return Step(optimizer.step, lambda: params)

    def jax(self, backend: Any, arrays: Arrays) -> Step:
        """Return a step in place."""
        jnp, (rate, b1, b2, epsilon) = backend.module, ADAM
        params, grads = (backend.place(part) for part in _halves(arrays))

        def one(t: Any, p: Any, m: Any, v: Any, g: Any) -> Any:
            m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
            return p - rate * (m / (1 - b1**t)) / (jnp.sqrt(v / (1 - b2**t)) + epsilon), m, v

        def step(t: Any, state: Any, grads: Any) -> Any:
            return t + 1, [one(t + 1, *old, g) for old, g in zip(state, grads, strict=True)]

        compiled = backend.jit(step, donate_argnums=1)
        states = [(jnp.float32(0), [(p, jnp.zeros_like(p), jnp.zeros_like(p)) for p in params])]

        def call() -> Any:
            states[0] = compiled(*states[0], grads)
            return states[0]

        return Step(call, lambda: [p for p, _, _ in states[0][1]])

    def case(self) -> Case:
        """Return the case."""
        makers = {"opencl": self.opencl, "torch": self.torch, "jax": self.jax}
        name = f"adam, {self.tensors} parameters"
        return Case(name, "networks", self.make, self.wanted, makers, is_stateful=True)


def _halves(arrays: Any) -> tuple[Any, Any]:
    return arrays[: len(arrays) // 2], arrays[len(arrays) // 2 :]


# --- draws ---


def _draws(name: str, flag: str, moments: tuple[float, ...], ours: Callable[..., Any], peers: Any) -> Case:
    """Draws of float32; `ours` takes ``tensor.random`` and the arguments ``size`` and ``rng``.

    NumPy's normal numbers are compared one by one. Of others the mean and the variance must be within 6 standard errors
    of `moments`, which are the mean, the variance and the excess kurtosis.
    """

    def make(rng: Any, scale: float) -> Arrays:
        return [np.empty(max(1000, round(4_000_000 * scale)), "float32")]  # only its length counts

    def opencl(backend: Any, arrays: Arrays) -> Callable[..., Any]:
        import pytensor
        import pytensor.tensor as pt

        rng = pytensor.shared(np.random.default_rng(SEED))
        with pytensor.config.change_flags(opencl__random=flag, floatX="float32"):
            following, x = ours(pt.random, size=arrays[0].shape, rng=rng, dtype="float32").owner.outputs
            return backend.function([], [x], {rng: following})

    def wanted(xp: Any, *arrays: Any) -> list[Any]:
        rng, shape = np.random.default_rng(SEED), arrays[0].shape
        return [[rng.normal(size=shape) for _ in range(FIRST_CALLS)][-1]] if flag == "numpy" else []

    def error(results: Arrays, wanted: Arrays) -> float:
        if wanted and np.array_equal(results[0][:4], wanted[0][:4].astype("float32")):
            return largest_error(results, wanted)
        x, (mean, variance, excess) = results[0].astype("float64"), moments
        off = abs(x.mean() - mean) / variance**0.5, abs(x.var() - variance) / variance / (excess + 2) ** 0.5
        return TOLERANCE * max(off) * x.size**0.5 / 6

    makers = {"opencl": opencl, **peers}
    return Case(name, "draws", make, wanted, makers, error=error, is_stateful=True)


def _peer_draws(cupy: str, jax: tuple[Any, ...], torch: str, *parameters: float) -> dict[str, Any]:
    """Return makers of the peers' draws, by the names of their functions."""

    def of_cupy(backend: Any, arrays: Arrays) -> Callable[..., Any]:
        rng = backend.module.random.default_rng(SEED)  # XORWOW
        draw, size = getattr(rng, cupy), arrays[0].shape
        return lambda: draw(*parameters, size=size, dtype=np.float32)

    def of_jax(backend: Any, arrays: Arrays) -> Callable[..., Any]:
        import jax as module

        name, *others = jax

        def draw(key: Any) -> Any:
            following, now = module.random.split(key)
            return following, getattr(module.random, name)(now, *others, arrays[0].shape, dtype="float32")

        compiled, keys = backend.jit(draw), [module.random.key(SEED)]

        def call() -> Any:
            keys[0], x = compiled(keys[0])
            return x

        return call

    def of_torch(backend: Any, arrays: Arrays) -> Callable[..., Any]:
        module = backend.module
        if torch == "randn":
            return lambda: module.randn(arrays[0].shape, device=backend.device_name)
        full = module.full(arrays[0].shape, parameters[0], device=backend.device_name)
        return lambda: getattr(module, torch)(full)

    return {"cupy": of_cupy, "jax": of_jax, "torch": of_torch}


NORMAL = _peer_draws("standard_normal", ("normal",), "randn")
GAMMA = _peer_draws("standard_gamma", ("gamma", 2.5), "_standard_gamma", 2.5)

CASES = (
    *map(_of_workload, WORKLOADS),
    _product("product of float64 2048", 2048, "float64"),
    _product("product of float32 4096", 4096, "float32"),
    *(case for layer in LAYERS for case in layer.cases()),
    *_attention(8, 512),
    *_attention(16, 1024),
    _layer_norm(),
    _cross_entropy(1000),
    Adam(20).case(),
    _draws("normal draws, NumPy's", "numpy", (0, 1, 0), lambda random, **k: random.normal(**k), NORMAL),
    _draws("normal draws, Philox", "philox", (0, 1, 0), lambda random, **k: random.normal(**k), NORMAL),
    _draws("gamma draws, Philox", "philox", (2.5, 2.5, 2.4), lambda random, **k: random.gamma(2.5, 1, **k), GAMMA),
)
