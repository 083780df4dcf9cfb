"""Conditionals: one of two values, or one of two computations, of which only the chosen one runs."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pytensor.conditional.op import IfElse, LazyIfElse
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.tensor.type import TensorType

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.ops.base import DEVICE, HOST, GpuOp, Routine
from pytensor_cl.ops.names import Show
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.ops.transfer import names_of_nodes
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo

_linkers: list[Callable[[FunctionGraph], Callable[..., list[Any]]]] = []


def register_branch_linker(link: Callable[[FunctionGraph], Callable[..., list[Any]]]) -> None:
    """Set the function that links the graph of a branch; the linker, in a layer above, registers itself."""
    _linkers[:] = [link]


class _Choice:
    """Returns the arrays of one branch."""

    def __init__(self, count: int) -> None:
        self._count = count

    def sources(self) -> tuple[KernelSource, ...]:
        """No kernels."""
        return ()

    def __call__(self, condition: Any, *arrays: GpuArray) -> tuple[GpuArray, ...]:
        return arrays[: self._count] if condition else arrays[self._count :]


@register_lift(IfElse, numba_safe=False, every_dtype=True)
class GpuIfElse(GpuOp):
    """Device counterpart of `IfElse`: the condition is read on the host, the values stay where they are."""

    is_compute = False
    operand_placements = (HOST, DEVICE)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the routine that selects the branch."""
        return _Choice(self.host.n_outs)


class IfElseWithDeviceGraphs(LazyIfElse):
    """A `LazyIfElse` with device graphs of its branches, before nodes are placed.

    The inputs of the graphs are at their placements, the outputs are on the device of the context.
    """

    def __init__(
        self, lazy: LazyIfElse, graphs: Sequence[FunctionGraph], operand_placements: Sequence[str], context_name: str
    ) -> None:
        super().__init__(lazy.true_branch, lazy.false_branch, lazy.output_types)
        self.graphs = tuple(graphs)
        self.operand_placements = tuple(operand_placements)
        self.context_name = context_name


class _Branches:
    """Runs one of two branches; the first is for a true condition."""

    def __init__(self, branches: Sequence[Callable[..., list[Any]]], is_array: Sequence[bool]) -> None:
        self._true, self._false = branches
        self._is_array = tuple(is_array)

    def sources(self) -> tuple[KernelSource, ...]:
        """No kernels: the branches build their own."""
        return ()

    def __call__(self, condition: Any, *inputs: Any) -> tuple[GpuArray, ...]:
        pairs = zip(inputs, self._is_array, strict=True)
        values = [np.asarray(v) if is_array and isinstance(v, np.generic) else v for v, is_array in pairs]
        return tuple((self._true if condition else self._false)(*values))


class GpuLazyIfElse(GpuOp):
    """Device counterpart of `LazyIfElse`, with the graphs of the branches in the context."""

    __props__ = ("host", "context_name", "operand_placements")
    may_alias = True

    def __init__(
        self, host: Op, context_name: str, operand_placements: tuple[str, ...], graphs: Sequence[FunctionGraph]
    ) -> None:
        super().__init__(host, context_name)
        self.operand_placements = operand_placements
        self.graphs = tuple(graphs)
        self.is_compute = any(getattr(n.op, "is_compute", False) for graph in graphs for n in graph.apply_nodes)

    def named(self, show: Show) -> str:
        """Return the name; `show` joins the names of parts."""
        return f"GpuLazyIfElse{{{' | '.join(show(names_of_nodes(graph, show)) for graph in self.graphs)}}}"

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the routine that runs one of the branches."""
        (link,) = _linkers
        is_array = [isinstance(v.type, TensorType) for v in node.inputs[1:]]
        return _Branches([link(graph) for graph in self.graphs], is_array)


@register_lift(IfElseWithDeviceGraphs, numba_safe=False, every_dtype=True)
def lift_branches(node: Apply, context_name: str, info: DeviceInfo) -> GpuLazyIfElse | NoKernel:
    """IfElseWithDeviceGraphs(c, xs) -> GpuLazyIfElse(c, xs)."""
    op: Any = node.op
    if op.context_name != context_name:
        return NoKernel(f"its branches were compiled for another device, {op.context_name}")
    return GpuLazyIfElse(op, context_name, op.operand_placements, op.graphs)


@register_lift(LazyIfElse, numba_safe=False, every_dtype=True)
def refuse_lazy_ifelse(node: Apply, context_name: str, info: DeviceInfo) -> NoKernel:
    """Return the reason: branches that could run on a device were replaced before."""
    return NoKernel("no node of its branches has an OpenCL kernel, or is worth one")
