"""One backend in a process of its own: reads requests, one JSON object a line, and answers likewise.

usage: python benchmarks/worker.py BACKEND [DEVICE]
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from workloads import WORKLOADS, Workload

ROTATION = 3  # sets of inputs, so that the inputs of a call are not in the caches
FIRST = (1, 10, 100, 1000)  # numbers of calls whose total time is reported
ROTATING = range(1 << 22, 1 << 28)  # bytes: less stays in a cache anyway, more in none


def inputs_of(workload: Workload, scale: float) -> list[list[np.ndarray]]:
    """Return the sets of inputs, the same in every backend."""
    rng = np.random.default_rng(2026)
    first = workload.make(rng, scale)
    many = ROTATION if sum(np.asarray(x).nbytes for x in first) in ROTATING else 1
    return [first, *(workload.make(rng, scale) for _ in range(many - 1))]


class Backend:
    """Makes a callable of a workload: takes NumPy arrays that `place` prepared, returns when the result is there."""

    def __init__(self, device: str) -> None:
        self.device = device

    def place(self, arrays: list[np.ndarray]) -> list[Any]:
        """Bring inputs to where the backend works; not timed."""
        return arrays

    def compile(self, workload: Workload, arrays: list[np.ndarray]) -> Callable[..., Any]:
        """Return what is timed."""
        raise NotImplementedError

    def release(self) -> None:
        """Free idle memory."""

    def selected(self, call: Callable[..., Any]) -> str:
        """Return the backend that runs a function's calls; empty if there is no choice."""
        return ""

    def host(self, results: Any) -> list[np.ndarray]:
        """Return results as NumPy arrays."""
        return [np.asarray(r) for r in (results if isinstance(results, list | tuple) else [results])]


class NumPy(Backend):
    def compile(self, workload: Workload, arrays: list[np.ndarray]) -> Callable[..., Any]:
        if workload.cost:
            raise NotImplementedError("no gradients")
        return lambda *values: workload.numeric(np, *values)


class PyTensor(Backend):
    mode: Any = "NUMBA"

    def graph(self, workload: Workload, arrays: list[np.ndarray]) -> tuple[list[Any], list[Any]]:
        import pytensor
        import pytensor.tensor as pt

        shapes = [[1 if n == 1 else None for n in np.shape(a)] for a in arrays]
        dtypes = [np.asarray(a).dtype for a in arrays]
        variables = [pt.tensor(f"x{i}", dtype=d, shape=s) for i, (d, s) in enumerate(zip(dtypes, shapes, strict=True))]
        result = workload.graph(pt, *variables) if workload.graph else workload.numeric(_Like(pt), *variables)
        gradients = pytensor.grad(result, [variables[i] for i in workload.wanted]) if workload.cost else []
        return variables, [result, *gradients]

    def compile(self, workload: Workload, arrays: list[np.ndarray]) -> Callable[..., Any]:
        import pytensor

        variables, results = self.graph(workload, arrays)
        f = pytensor.function(variables, results, mode=self.mode)
        f.trust_input = True
        return f


class _Like:
    """PyTensor's functions under the names and keywords of NumPy's that the workloads use."""

    def __init__(self, pt: Any) -> None:
        self._pt = pt
        self.max, self.sum, self.mean, self.matmul = pt.max, pt.sum, pt.mean, pt.matmul

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pt, name)


class C(PyTensor):
    def compile(self, workload: Workload, arrays: list[np.ndarray]) -> Callable[..., Any]:
        from pytensor.compile.mode import Mode

        self.mode = Mode(linker="cvm", optimizer="fast_run")
        return super().compile(workload, arrays)


class OpenCL(PyTensor):
    """Inputs and results stay on the device, except for models, which are called with what NumPy holds."""

    mode = "OPENCL"

    def __init__(self, device: str) -> None:
        super().__init__(device)
        import pytensor_cl

        self.context = pytensor_cl.use(device or "opencl")

    def compile(self, workload: Workload, arrays: list[np.ndarray]) -> Callable[..., Any]:
        import pytensor

        import pytensor_cl

        variables, results = self.graph(workload, arrays)
        if workload.family == "models":
            f = pytensor.function(variables, results, mode="OPENCL")
            f.trust_input = True
            return f
        kinds = [pytensor_cl.GpuArrayType(v.type.dtype, v.type.shape, self.context)() for v in variables]
        given = dict(zip(variables, map(pytensor_cl.host_from_gpu, kinds), strict=True))
        with pytensor.config.change_flags(opencl__placement="device"):
            f = pytensor.function(kinds, [r.transfer(self.context) for r in results], mode="OPENCL", givens=given)
        f.trust_input = True

        def call(*values: Any) -> Any:
            found = f(*values)
            found[0].sync()
            return found

        return call

    def release(self) -> None:
        from pytensor_cl.runtime.registry import get_context

        get_context(self.context).memory.trim()

    def place(self, arrays: list[np.ndarray]) -> list[Any]:
        from pytensor_cl.runtime.registry import get_context

        return [get_context(self.context).from_host(np.asarray(a)) for a in arrays]


class Auto(PyTensor):
    """Inputs and results are NumPy arrays, and where a call runs is left to the placement."""

    mode = "OPENCL"

    def __init__(self, device: str) -> None:
        super().__init__(device)
        import pytensor_cl

        pytensor_cl.use(device or "opencl")

    def selected(self, call: Callable[..., Any]) -> str:
        signatures = getattr(call.vm, "signatures", None)  # type: ignore[attr-defined]
        return signatures[-1].backend if signatures else "device"


class Device(PyTensor):
    """The backend with all calls on the device, without selection."""

    mode = "OPENCL"

    def __init__(self, device: str) -> None:
        super().__init__(device)
        import pytensor

        import pytensor_cl

        pytensor_cl.use(device or "opencl")
        pytensor.config.opencl__select_backend = False


class JAX(Backend):
    def compile(self, workload: Workload, arrays: list[np.ndarray]) -> Callable[..., Any]:
        import jax
        import jax.numpy as jnp

        def value(*values: Any) -> Any:
            return workload.numeric(jnp, *values)

        compiled = jax.jit(jax.value_and_grad(value, workload.wanted) if workload.cost else value)

        def call(*values: Any) -> Any:
            return jax.block_until_ready(compiled(*values))

        return call

    def host(self, results: Any) -> list[np.ndarray]:
        import jax

        return [np.asarray(r) for r in jax.tree.leaves(results)]

    def place(self, arrays: list[np.ndarray]) -> list[Any]:
        import jax.numpy as jnp

        return [jnp.asarray(a) for a in arrays]


BACKENDS: dict[str, type[Backend]] = {
    "numpy": NumPy,
    "numba": PyTensor,
    "c": C,
    "opencl": OpenCL,
    "auto": Auto,
    "device": Device,
    "jax": JAX,
}


def reference(workload: Workload, arrays: list[np.ndarray]) -> np.ndarray:
    """Return the result in float64."""
    wide = [a.astype("float64") if np.asarray(a).dtype.kind == "f" else a for a in arrays]
    return np.asarray(workload.numeric(np, *wide))


def error_of(got: np.ndarray, wanted: np.ndarray) -> float:
    """Return the largest difference, relative to the largest element."""
    if got.shape != wanted.shape:
        return float("inf")
    return float(np.abs(got - wanted).max(initial=0) / max(np.abs(wanted).max(initial=0), 1e-30))


class Session:
    """Serves requests.

    ``prepare`` compiles and checks, ``warm_up`` calls until some time has passed, ``time`` measures, ``check`` checks
    again, ``release`` drops what was prepared.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.call: Callable[..., Any] | None = None
        self.sets: list[list[Any]] = []
        self.compiled: dict[Any, Callable[..., Any]] = {}
        self.wanted = np.empty(0)
        self.tolerance = 0.0

    def compile(self, workload: Workload, arrays: list[np.ndarray]) -> Callable[..., Any]:
        """Compile once for all sizes; lengths of one are static."""
        key = workload.name, *(tuple(n == 1 for n in np.shape(a)) for a in arrays)
        if key not in self.compiled:
            self.compiled[key] = self.backend.compile(workload, arrays)
        return self.compiled[key]

    def prepare(self, name: str, scale: float, recompile: bool = False) -> dict[str, Any]:
        workload = next(w for w in WORKLOADS if w.name == name)
        if recompile:
            self.compiled.clear()
        sets = inputs_of(workload, scale)
        start = time.perf_counter()
        self.call = self.compile(workload, sets[0])
        is_host = workload.family == "models" and not isinstance(self.backend, JAX)
        self.sets = sets if is_host else [self.backend.place(arrays) for arrays in sets]
        results = self.backend.host(self.call(*self.sets[0]))
        seconds = time.perf_counter() - start
        self.wanted, self.tolerance = reference(workload, sets[0]).astype(results[0].dtype), workload.tolerance
        error = self._error(results)
        nbytes = sum(np.asarray(a).nbytes for a in sets[0]) + sum(r.nbytes for r in results)
        return {"compile": seconds, "error": error, "bytes": nbytes, "flops": workload.flops(sets[0])}

    def _error(self, results: list[np.ndarray]) -> float:
        error = error_of(results[0], self.wanted)
        if not error <= self.tolerance:
            raise ValueError(f"wrong result: off by {error:.2g} of the largest element")
        return error

    def check(self) -> dict[str, Any]:
        return {"error": self._error(self.backend.host(self.call(*self.sets[0])))}  # type: ignore[misc]

    def warm_up(self, seconds: float, calls: int) -> dict[str, Any]:
        """Call for a minimum of time and calls; return the last change of backends, and the first calls' times."""
        assert self.call is not None
        name, since, first, spent, count = self.backend.selected(self.call), (0, 0.0), {}, 0.0, 0
        while count < calls or spent < seconds:
            values = self.sets[count % len(self.sets)]
            start = time.perf_counter()
            self.call(*values)
            spent += time.perf_counter() - start
            count += 1
            if count in FIRST:
                first[count] = spent
            now = self.backend.selected(self.call)
            if now != name:
                name, since = now, (count, spent)
        return {"backend": name, "calls": since[0], "seconds": since[1], "first": first}

    def time(self, seconds: float, least: int = ROTATION) -> dict[str, Any]:
        times: list[float] = []
        end = time.perf_counter() + seconds
        while len(times) < least or time.perf_counter() < end:
            values = self.sets[len(times) % len(self.sets)]
            start = time.perf_counter()
            self.call(*values)  # type: ignore[misc]
            times.append(time.perf_counter() - start)
        return {"times": times[-2000:]}

    def release(self) -> dict[str, Any]:
        self.call, self.sets, self.wanted = None, [], np.empty(0)
        self.backend.release()
        return {}


def main() -> None:
    """Answer until there are no more requests."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # whatever a backend prints is no answer
    session = Session(BACKENDS[sys.argv[1]](sys.argv[2] if len(sys.argv) > 2 else ""))
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(session, request.pop("do"))(**request)
        except Exception as error:  # reported to the parent process
            answer = {"failed": f"{type(error).__name__}: {error}".splitlines()[0]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
