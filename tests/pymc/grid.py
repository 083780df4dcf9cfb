"""Log-densities, distribution functions and quantiles of a case on the device and on the CPU: where, and how far apart."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.pytensorf import compile as compile_pymc
from pytensor.compile.mode import Mode
from pytensor.compile.ops import DeepCopyOp
from pytensor.gradient import NullTypeGradError
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import ScalarFromTensor

import pytensor_cl
from pytensor_cl.pymc import replace_parameter_checks
from pytensor_cl.rewriting.placement.placement import SCALAR
from tests.pymc.distributions import SIZE, Case

__all__ = ["KINDS", "MISSING", "Outcome", "run"]

KINDS = ("logp", "logcdf", "icdf", "batched", "float32")
"""The quantities of a case: `batched` and `float32` are the log-density again."""
MISSING = "PyMC has none"
NOTHING = "nothing is left to compute but small arrays"
CPU = Mode("py", RewriteDatabaseQuery(include=["fast_run"], exclude=["fusion", "inplace"]))
"""PyTensor's Python Ops. Those of fused scalars would round constants to float32."""
RTOL = {"float64": 1e-8, "float32": 2e-4}
CHAINS = 3
SEED = 20


@dataclass(frozen=True)
class Outcome:
    """The outcome of one quantity of a case.

    Attributes
    ----------
    name, kind
        Of the case, and which of `KINDS`.
    on_host
        For the quantity and for its gradient: the Ops that run on the host, with reasons. None where there is none.
    fault
        What is wrong; empty if nothing is.
    missing
        Why there is nothing to compute.
    wide
        Device nodes of a float32 graph that read or write float64.
    """

    name: str
    kind: str
    on_host: tuple[tuple[str, ...] | None, tuple[str, ...] | None] = (None, None)
    fault: str = ""
    missing: str = ""
    wide: tuple[str, ...] = ()


def _narrow(value: Any, float_dtype: str) -> np.ndarray:
    """Return an array of the float type, or of the integer type that goes with it."""
    array = np.asarray(value)
    if array.dtype.kind == "f":
        return array.astype(float_dtype)
    return array.astype("int64" if float_dtype == "float64" else "int16")


def _draw(case: Case) -> list[np.ndarray]:
    """Return values of the distribution: one for each point of a batch."""
    if case.value is not None:
        return [np.asarray(case.value)] * CHAINS
    variable = case.build(**case.parameters)
    with pytensor.config.change_flags(cxx=""):
        return list(pm.draw(variable, CHAINS, random_seed=SEED, mode="FAST_COMPILE"))


@dataclass
class _Graph:
    """Inputs of a function, its outputs (the quantity first, gradients after it) and its arguments."""

    inputs: list[Any]
    outputs: list[Any]
    arguments: list[np.ndarray]


def _inputs(case: Case, values: Sequence[np.ndarray], dtype: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    arrays = {name: _narrow(value, dtype) for name, value in case.parameters.items()}
    arrays["value"] = _narrow(values[0], dtype)
    # Of unknown shape: what is known to be small runs on the host.
    return {name: pt.tensor(name, dtype=a.dtype, shape=(None,) * a.ndim) for name, a in arrays.items()}, arrays


def _quantity(case: Case, kind: str, variables: dict[str, Any]) -> Any:
    parameters = {name: variable for name, variable in variables.items() if name != "value"}
    random_variable = case.build(**parameters)
    if kind == "icdf":
        return pm.icdf(random_variable, np.linspace(0.1, 0.85, SIZE))
    if kind == "logcdf":
        return pm.logcdf(random_variable, variables["value"])
    return pm.logp(random_variable, variables["value"])


def _smooth(case: Case, kind: str, variables: dict[str, Any]) -> list[Any]:
    names = [name for name, v in variables.items() if v.type.dtype.startswith("float")]
    if kind == "icdf" or not case.is_smooth:
        names = [name for name in names if name != "value"]
    return [variables[name] for name in names]


def _gradients(quantity: Any, wrt: Sequence[Any]) -> list[Any]:
    """Return the gradients, if PyTensor and PyMC have them: some special functions have none by their parameters."""
    try:
        return pt.grad(quantity.sum(), wrt, disconnected_inputs="ignore") if wrt else []
    except (NullTypeGradError, NotImplementedError):
        return []


def _batch(case: Case, graph: _Graph, arrays: dict[str, np.ndarray], values: Sequence[np.ndarray]) -> _Graph:
    """Evaluate the graph at several points: other values, and parameters a few percent apart."""
    batches = {}
    for name, array in arrays.items():
        if name == "value":
            batches[name] = np.stack([_narrow(value, "float64") for value in values])
        elif name in case.fixed or array.dtype.kind != "f":
            batches[name] = np.stack([array] * CHAINS)
        else:
            batches[name] = np.stack([array * (1 + 0.02 * k) for k in range(CHAINS)])
    inputs = [pt.tensor(f"{name}_batch", dtype=a.dtype, shape=(None,) * a.ndim) for name, a in batches.items()]
    outputs = vectorize_graph(graph.outputs, dict(zip(graph.inputs, inputs, strict=True)))
    return _Graph(inputs, list(outputs), list(batches.values()))


def _build(case: Case, kind: str, values: Sequence[np.ndarray]) -> _Graph:
    dtype = "float32" if kind == "float32" else "float64"
    with pytensor.config.change_flags(floatX=dtype, warn_float64="ignore"):
        variables, arrays = _inputs(case, values, dtype)
        quantity = _quantity(case, kind, variables)
        if kind == "batched":
            (quantity,) = replace_parameter_checks([quantity])
        gradients = _gradients(quantity, _smooth(case, kind, variables))
        graph = _Graph(list(variables.values()), [quantity, *gradients], list(arrays.values()))
        return _batch(case, graph, arrays, values) if kind == "batched" else graph


@contextmanager
def _messages() -> Iterator[list[str]]:
    """Collect what PyTensor's loggers say: rewrites that fail are errors there."""
    found: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    handler, logger = Collect(logging.WARNING), logging.getLogger("pytensor")
    logger.addHandler(handler)
    try:
        yield found
    finally:
        logger.removeHandler(handler)


def _compute(graph: _Graph, mode: Any) -> tuple[Any, list[np.ndarray]]:
    f = compile_pymc(graph.inputs, graph.outputs, mode=mode, on_unused_input="ignore")
    with np.errstate(all="ignore"):
        return f, [np.asarray(result) for result in f(*graph.arguments)]


def _left_on_host(f: Any, report: Any, start: int, end: int) -> tuple[str, ...] | None:
    outputs = f.maker.fgraph.outputs[start:end]
    if not outputs:
        return None
    nodes = {v.owner for v in ancestors(outputs) if v.owner is not None}
    kept = [n for n in report.host_nodes if n.node in nodes and not isinstance(n.op, (DeepCopyOp, ScalarFromTensor))]
    found = {f"{n.op}: {n.reason}" for n in kept if n.reason != SCALAR}
    if not found and not any(n.node in nodes for n in report.device_nodes):
        found = {NOTHING}
    return tuple(sorted(found))


def _wide(report: Any) -> tuple[str, ...]:
    """Return the device nodes that read or write float64. PyTensor's sums of float32 have an accumulator of float64."""
    nodes = [
        n
        for n in report.device_nodes
        if "float64" in {getattr(v.type, "dtype", "") for v in (*n.node.inputs, *n.node.outputs)}
    ]
    return tuple(sorted({str(n.op) for n in nodes}))


def _difference(got: np.ndarray, wanted: np.ndarray, rtol: float) -> str:
    if (got.dtype, got.shape) != (wanted.dtype, wanted.shape):
        return f"{got.dtype}{got.shape} instead of {wanted.dtype}{wanted.shape}"
    scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=1e-30)
    if np.allclose(got, wanted, rtol=rtol, atol=rtol * scale, equal_nan=True):
        return ""
    return f"{got.ravel()} instead of {wanted.ravel()}"


def run(case: Case, kind: str) -> Outcome:
    """Compute one of `KINDS` on the device and on the CPU."""
    try:
        graph = _build(case, kind, _draw(case))
    except Exception as error:  # whatever PyMC raises: it has no such function, or not for arrays
        return Outcome(case.name, kind, missing=f"{MISSING}: {error}")
    try:
        with _messages() as messages, pytensor.config.change_flags(opencl__placement="device"):
            f, got = _compute(graph, "OPENCL")
        with _messages() as others, pytensor.config.change_flags(cxx=""):
            _, wanted = _compute(graph, CPU)
    except Exception as error:
        return Outcome(case.name, kind, fault=f"{type(error).__name__}: {error}")
    report = pytensor_cl.explain(f)
    places = (_left_on_host(f, report, 0, 1), _left_on_host(f, report, 1, len(got)))
    rtol = RTOL["float32" if kind == "float32" else "float64"]  # PyTensor may compute wider
    faults = [found for a, b in zip(got, wanted, strict=True) if (found := _difference(a, b, rtol))]
    own = [text for text in messages if text not in others]  # PyTensor's own rewrites fail on the CPU too
    wide = _wide(report) if kind == "float32" else ()
    return Outcome(case.name, kind, places, "; ".join([*own, *faults]), wide=wide)
