"""One of two values, or of two computations, of which only the one that is wanted is run."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pytensor.conditional.op import LazyIfElse
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.tensor.type import TensorType

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.ops.base import DEVICE, HOST, GpuOp, Routine
from pytensor_cl.ops.transfer import GpuFromHost, HostFromGpu
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context

__all__ = ["GpuIfElse", "GpuLazyIfElse", "IfElseWithDeviceGraphs", "register_branch_linker"]

_linkers: list[Callable[[FunctionGraph], Callable[..., list[Any]]]] = []


def register_branch_linker(link: Callable[[FunctionGraph], Callable[..., list[Any]]]) -> None:
    """Set what makes a callable of a branch's graph; the linker, which is above this file, registers itself."""
    _linkers[:] = [link]


class _Choice:
    """Hand on the arrays of one side."""

    def __init__(self, count: int) -> None:
        self._count = count

    def sources(self) -> tuple[KernelSource, ...]:
        """No kernels."""
        return ()

    def __call__(self, condition: Any, *arrays: GpuArray) -> tuple[GpuArray, ...]:
        return arrays[: self._count] if condition else arrays[self._count :]


class GpuIfElse(GpuOp):
    """Device counterpart of `IfElse`: the condition is read on the host, the values stay where they are."""

    is_compute = False
    operand_placements = (HOST, DEVICE)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the choice."""
        return _Choice(self.host.n_outs)


class IfElseWithDeviceGraphs(LazyIfElse):
    """A `LazyIfElse` that is not for the host yet, with what a device would run.

    Parameters
    ----------
    lazy
        Its branches are as the user wrote them.
    graphs
        The graph of each branch with device nodes inside; inputs and outputs are of the host.
    """

    def __init__(self, lazy: LazyIfElse, graphs: Sequence[FunctionGraph]) -> None:
        super().__init__(lazy.true_branch, lazy.false_branch, lazy.output_types)
        self.graphs = tuple(graphs)


class _Branches:
    """Runs one of two graphs.

    Parameters
    ----------
    branches
        A callable for each, the one of the true condition first.
    is_array
        Which inputs are arrays, of 0 dimensions too.
    """

    def __init__(self, branches: Sequence[Callable[..., list[Any]]], is_array: Sequence[bool]) -> None:
        self._true, self._false = branches
        self._is_array = tuple(is_array)

    def sources(self) -> tuple[KernelSource, ...]:
        """No kernels but those that the branches have built."""
        return ()

    def __call__(self, condition: Any, *inputs: Any) -> tuple[GpuArray, ...]:
        pairs = zip(inputs, self._is_array, strict=True)
        values = [np.asarray(v) if is_array and isinstance(v, np.generic) else v for v, is_array in pairs]
        return tuple((self._true if condition else self._false)(*values))


class GpuLazyIfElse(GpuOp):
    """Device counterpart of `LazyIfElse`.

    Parameters
    ----------
    host, context_name
        See `GpuOp`.
    operand_placements
        Per input, where it must be.
    graphs
        The graph of each branch, with inputs where they are demanded, and outputs on the device.
    """

    __props__ = ("host", "context_name", "operand_placements")
    may_alias = True

    def __init__(
        self, host: Op, context_name: str, operand_placements: tuple[str, ...], graphs: Sequence[FunctionGraph]
    ) -> None:
        super().__init__(host, context_name)
        self.operand_placements = operand_placements
        self.graphs = tuple(graphs)
        self.is_compute = any(getattr(n.op, "is_compute", False) for graph in graphs for n in graph.apply_nodes)

    def __str__(self) -> str:
        return f"GpuLazyIfElse{{{' | '.join(map(_told, self.graphs))}}}"

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return what runs one of the branches."""
        (link,) = _linkers
        is_array = [isinstance(v.type, TensorType) for v in node.inputs[1:]]
        return _Branches([link(graph) for graph in self.graphs], is_array)


def _told(graph: FunctionGraph) -> str:
    """Name the nodes of a branch, and where they are if not on the device."""
    ops = [n.op for n in graph.toposort() if not isinstance(n.op, GpuFromHost | HostFromGpu)]
    return ", ".join(str(op) if isinstance(op, GpuOp) else f"{op} on the host" for op in ops) or "nothing"
