"""Run probes on a device and by PyTensor's Python Ops; say what was computed where, and whether it was right."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytensor
import scipy.sparse
from pytensor.compile.ops import DeepCopyOp
from pytensor.graph.basic import Apply
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import ScalarInnerGraphOp
from pytensor.sparse.basic import CSM, CSMProperties
from pytensor.tensor.basic import ScalarFromTensor

import pytensor_cl
from pytensor_cl.rewriting.placement.placement import SCALAR
from tests.probes import draws, labelled, linear_algebra, reductions, scalar, sparse, structure, tensors, typed_lists
from tests.probes.probe import VALUES, Probe

__all__ = ["DEVICE", "FAMILIES", "HOST", "PROBES", "Outcome", "run", "run_all"]

FAMILIES = {
    module.__name__.rpartition(".")[2]: module.PROBES
    for module in (scalar, reductions, tensors, linear_algebra, draws, sparse, structure, labelled, typed_lists)
}
PROBES: tuple[Probe, ...] = tuple(probe for family in FAMILIES.values() for probe in family)

DEVICE, HOST = "device", "host"
BATCH = 8
"""Probes that are compiled together: a function costs more than an output."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a probe.

    Attributes
    ----------
    probe
        The probe.
    place
        `DEVICE` or `HOST`.
    reason
        Why it is on the host.
    fault
        What is wrong with the results; empty if nothing is.
    has_raised
        Whether there are no results, as an exception was raised; the fault is its text.
    """

    probe: Probe
    place: str
    reason: str = ""
    fault: str = ""
    has_raised: bool = False


def _holds(op: Any, kind: type) -> bool:
    """Return whether an Op is of a class, or has a scalar Op of the class inside."""
    if isinstance(op, kind):
        return True
    if isinstance(op, ScalarInnerGraphOp):
        return any(_holds(node.op, kind) for node in op.fgraph.apply_nodes)
    inside = getattr(op, "scalar_op", None) or getattr(op, "core_op", None)
    return inside is not None and _holds(inside, kind)


def _is_preparation(node: Any, device_ops: Sequence[Any]) -> bool:
    """Return whether a host node only readies what device nodes take: extents, the arrays of a sparse matrix."""
    if isinstance(node.op, CSM | CSMProperties):
        return any(op.is_compute and not op.is_source for op in device_ops)
    return (node.reason == SCALAR or isinstance(node.op, ScalarFromTensor)) and bool(device_ops)


def _place(kind: type, nodes: set[Apply], report: Any) -> tuple[str, str]:
    """Find an Op among the nodes that make a result; if rewrites replaced it, all that it became counts."""
    device_ops = [n.op for n in report.device_nodes if n.node in nodes]
    on_host = [n for n in report.host_nodes if n.node in nodes and not isinstance(n.op, DeepCopyOp)]
    kept = next((n for n in on_host if _holds(n.op, kind)), None)
    if kept is not None:
        return HOST, kept.reason
    if any(_holds(getattr(op, "host", op), kind) for op in device_ops):
        return DEVICE, ""
    rest = [n for n in on_host if not _is_preparation(n, device_ops)]
    if rest:
        return HOST, f"{rest[0].op}: {rest[0].reason}"
    return (DEVICE, "") if device_ops else (HOST, "nothing is left to compute")


def _nodes_of(outputs: Iterable[Any]) -> set[Apply]:
    return {v.owner for v in ancestors(outputs) if v.owner is not None}


def _as_array(value: Any) -> np.ndarray:
    return value.toarray() if scipy.sparse.issparse(value) else np.asarray(value)


def _difference(probe: Probe, variable: Any, got: Any, wanted: Any) -> str:
    got, wanted = _as_array(got), _as_array(wanted)
    if str(got.dtype) == getattr(
        variable.type, "dtype", ""
    ):  # some Ops of PyTensor return another one than they declare
        wanted = wanted.astype(got.dtype)
    if (got.dtype, got.shape) != (wanted.dtype, wanted.shape):
        return f"{got.dtype}{got.shape} instead of {wanted.dtype}{wanted.shape}"
    if probe.compare != VALUES:
        return ""
    if wanted.dtype.kind not in "fc":
        return "" if np.array_equal(got, wanted) else f"{got} instead of {wanted}"
    scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=1e-30)
    close = np.allclose(got, wanted, rtol=probe.rtol, atol=probe.rtol * scale, equal_nan=True)
    return "" if close else f"{got} instead of {wanted}"


def _compile(probes: Sequence[Probe], mode: str) -> tuple[Any, list[int]]:
    """Return one function for several probes, and where the outputs of each end."""
    inputs, outputs, ends = [], [], []
    for probe in probes:
        own_inputs, own_outputs = probe.graph()
        inputs += own_inputs
        outputs += own_outputs
        ends.append(len(outputs))
    return pytensor.function(inputs, outputs, mode=mode, on_unused_input="ignore"), ends


def _arguments(probes: Sequence[Probe]) -> list[Any]:
    return [value for probe in probes for value in probe.arguments()]


@cache
def _expected(probes: tuple[Probe, ...]) -> tuple[Any, ...]:
    with np.errstate(all="ignore"), pytensor.config.change_flags(cxx=""):  # inner graphs would be compiled
        return tuple(_compile(probes, "FAST_COMPILE")[0](*_arguments(probes)))


def _run_together(probes: tuple[Probe, ...]) -> list[Outcome]:
    f, ends = _compile(probes, "OPENCL")
    report, got, wanted = pytensor_cl.explain(f), f(*_arguments(probes)), _expected(probes)
    outcomes = []
    for probe, start, end in zip(probes, [0, *ends], ends, strict=False):
        place, reason = _place(probe.op, _nodes_of(f.maker.fgraph.outputs[start:end]), report)
        results = zip(f.maker.fgraph.outputs[start:end], got[start:end], wanted[start:end], strict=True)
        faults = [found for result in results if (found := _difference(probe, *result))]
        outcomes.append(Outcome(probe, place, reason, "; ".join(faults)))
    return outcomes


def run(probe: Probe) -> Outcome:
    """Run one probe on the default context."""
    try:
        return _run_together((probe,))[0]
    except Exception as error:
        text = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        return Outcome(probe, HOST, "", text, has_raised=True)


def run_all(probes: Sequence[Probe]) -> list[Outcome]:
    """Run probes on the default context, several in one function; one by one where that goes wrong."""
    outcomes: list[Outcome] = []
    with pytensor.config.change_flags(opencl__placement="device"):
        for start in range(0, len(probes), BATCH):
            batch = tuple(probes[start : start + BATCH])
            try:
                found = _run_together(batch)
            except Exception:
                found = [replace(run(probe), probe=probe) for probe in batch]
            outcomes += found
    return outcomes
