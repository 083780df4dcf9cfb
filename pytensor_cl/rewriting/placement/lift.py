"""The device pass: replaces the nodes that `placement` chose by device Ops, and inserts transfers."""

import os
import warnings
from pathlib import Path

import numpy as np
import pytensor
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import MergeOptimizer
from pytensor.tensor import constant
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.type import TensorType

import pytensor_cl
from pytensor_cl.codegen import dtypes
from pytensor_cl.codegen.announcement import announce
from pytensor_cl.errors import OnHostError, OnHostWarning, UnsupportedDtype
from pytensor_cl.ops.base import ANY, DEVICE, GpuOp, context_of
from pytensor_cl.ops.registry import note_reason
from pytensor_cl.ops.transfer import HostFromGpu, host_from_gpu
from pytensor_cl.rewriting.placement.fusion_barrier import remove_fusion_barriers
from pytensor_cl.rewriting.placement.placement import SCALAR, Decision, decide
from pytensor_cl.rewriting.placement.transfer import cut_transfers
from pytensor_cl.runtime.registry import default_context_name

_PACKAGE_FOLDERS = tuple(f"{Path(str(m.__file__)).parent}{os.sep}" for m in (pytensor, pytensor_cl))
"""Folders that warnings skip, so that they show the user's line that compiles the function."""


class Policy:
    """The flags of placement."""

    def __init__(self, placement: str = "auto", on_host: str = "allow", float64: str = "auto") -> None:
        self.placement = placement
        self.on_host = on_host
        self.float64 = float64


def _scalar_source(
    variable: Variable, lifted: dict[Variable, Variable], resident: frozenset[Variable]
) -> Variable | None:
    """Return the 0-d host value that a variable broadcasts, which a kernel takes by value; None if there is none."""
    if isinstance(variable, Constant):
        data = np.asarray(variable.data)
        return constant(data.reshape(())) if data.size == 1 else None
    while variable.owner is not None and isinstance(variable.owner.op, DimShuffle) and variable not in lifted:
        if any(n != 1 for n in variable.owner.inputs[0].type.shape):
            return None
        variable = variable.owner.inputs[0]
    downloaded = variable.owner is not None and isinstance(variable.owner.op, HostFromGpu)
    if downloaded or variable in lifted or variable in resident:
        return None
    if variable.type.ndim == 0:
        return variable
    if variable.owner is None or any(n != 1 for n in variable.type.shape):
        return None
    value = variable.dimshuffle()
    note_reason(value.owner, SCALAR)
    return value


class _Lifter:
    """Builds the device nodes beside the host graph."""

    def __init__(self, decision: Decision) -> None:
        self._decision = decision
        self.lifted: dict[Variable, Variable] = {}  # host variable -> its device counterpart

    def input(self, variable: Variable, op: GpuOp, placement: str) -> Variable:
        """Return the input of a device node for an input of its host node."""
        if placement is ANY:
            value = _scalar_source(variable, self.lifted, self._decision.resident)
            if value is not None and (isinstance(value, Constant) or not op.scalars_on_device):
                return value
        return self._device(variable, op) if placement in (DEVICE, ANY) else self._host(variable)

    def _host(self, variable: Variable) -> Variable:
        """Return a download of a value that a device computes, so that the host does not compute it again."""
        found = self.lifted.get(variable)
        return variable if found is None else self._downloaded(variable, found)

    @staticmethod
    def _downloaded(old: Variable, new: Variable) -> Variable:
        """Return the host variable of an output of a device Op, which may be a host value already."""
        return new if context_of(new) is None else old.type.filter_variable(host_from_gpu(new))

    def _device(self, variable: Variable, op: GpuOp) -> Variable:
        found = self.lifted.get(variable)
        owner = variable.owner
        if found is None and owner is not None and isinstance(owner.op, HostFromGpu):
            found = owner.inputs[0]
        return op.on_device(variable if found is None else found)

    def lift(self, node: Apply) -> None:
        """Make the device node of a host node."""
        op = self._decision.ops[node]
        inputs = [self.input(op.source(v), op, op.placement_of(i)) for i, v in enumerate(node.inputs)]
        device_node = op.apply(inputs, [v.type for v in node.outputs])
        for old, new in zip(node.outputs, device_node.outputs, strict=True):
            new.name = old.name
            new.tag.trace = getattr(old.tag, "trace", [])
            self.lifted[old] = new

    def replacements(self, fgraph: FunctionGraph) -> list[tuple[Variable, Variable]]:
        """Return the host variables that host nodes still read, with their replacements."""
        return [
            (old, self._downloaded(old, new))
            for old, new in self.lifted.items()
            if any(client not in self._decision.ops for client, _ in fgraph.clients[old])
        ]


def _origins_of_float64(fgraph: FunctionGraph) -> list[str]:
    """Return what makes a graph compute in float64: inputs, else nodes that have no such input, else constants."""

    def is_double(variable: Variable) -> bool:
        return isinstance(variable.type, TensorType) and dtypes.needs_fp64(variable.type.dtype)

    inputs = [str(v) for v in fgraph.inputs if is_double(v)]
    nodes = fgraph.toposort()
    read = {v: None for node in nodes for v in node.inputs if isinstance(v, Constant)}
    constants = [f"the constant {v}" for v in read if is_double(v)]
    first = [n for n in nodes if any(map(is_double, n.outputs)) and not any(map(is_double, n.inputs))]
    made = [f"{n.op} of {' and '.join(str(getattr(v.type, 'dtype', v.type)) for v in n.inputs)}" for n in first]
    return inputs or made or constants


def _float64_advice(fgraph: FunctionGraph) -> str:
    found = _origins_of_float64(fgraph)
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    named = f"float64 comes from {', '.join(found[:3])}{more}. " if found else ""
    return f"{named}Make them float32, by floatX=float32, pt.fvector, dtype='float32' or x.astype('float32')"


def _report_unsupported(fgraph: FunctionGraph, decision: Decision, policy: Policy) -> None:
    """Warn or raise for nodes without a kernel, as the flags say."""
    for node, missing in decision.unsupported.items():
        text = f"{node.op} on {', '.join(str(v.type) for v in node.inputs)} stays on the host: {missing.reason}"
        if missing.missing_fp64 and policy.float64 == "raise":
            raise UnsupportedDtype(f"{text} (flag opencl__float64=raise). {_float64_advice(fgraph)}")
        if policy.on_host == "raise":
            raise OnHostError(f"{text} (flag opencl__on_host=raise)")
        if policy.on_host == "warn":
            warnings.warn(text, OnHostWarning, skip_file_prefixes=_PACKAGE_FOLDERS)


def _announce_float64(fgraph: FunctionGraph, decision: Decision) -> None:
    """Write a line, once, if a whole graph is on the host because it computes in float64."""
    lacking = next((missing.reason for missing in decision.unsupported.values() if missing.missing_fp64), None)
    if lacking and not decision.ops:
        announce(
            f"pytensor-cl: the host computes a graph, because {lacking}. {_float64_advice(fgraph)}, and the device may "
            "compute it",
            "a graph of float64 on the host",
        )


def lift_to_device(fgraph: FunctionGraph, policy: Policy) -> None:
    """Replace the nodes that run on devices, and insert transfers."""
    remove_fusion_barriers(fgraph)
    decision = decide(fgraph, default_context_name(), policy.placement)
    _report_unsupported(fgraph, decision, policy)
    _announce_float64(fgraph, decision)
    lifter = _Lifter(decision)
    for node in fgraph.toposort():
        if node in decision.ops:
            lifter.lift(node)
        elif node in decision.reasons:
            note_reason(node, decision.reasons[node])
    fgraph.replace_all_validate(lifter.replacements(fgraph), reason="opencl_lift")
    cut_transfers(fgraph)
    MergeOptimizer().rewrite(fgraph)
