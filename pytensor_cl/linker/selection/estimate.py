"""A rough estimate of the time of a call on each backend, from the shapes of its arguments.

It chooses the backend of the first call, and how long the trials of the others wait. Measurements decide all else. The
prices were measured on one core with AVX-512. They are low, since a backend that seems to be slow is tried late.
"""

from collections.abc import Mapping, Sequence
from math import inf, log2, prod
from typing import Any, NamedTuple

import numpy as np
from pytensor.compile.builders import OpFromGraph
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import io_toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar import basic as scalar
from pytensor.scan.op import Scan
from pytensor.tensor.basic import Alloc, Join, MakeVector, ScalarFromTensor, Split, TensorFromScalar
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.rewriting.shape import ShapeFeature
from pytensor.tensor.shape import Reshape, Shape_i
from pytensor.tensor.shape import Shape as ShapeOp
from pytensor.tensor.sort import ArgSortOp, SortOp
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor

from pytensor_cl.ops.base import GpuOp
from pytensor_cl.ops.scan import MAX_CAPTURED_KERNELS, GpuScan
from pytensor_cl.ops.transfer import GpuFromHost, HostFromGpu
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.runtime.host_cpu import granted_cores

Shape = tuple[int, ...]
Shapes = Mapping[Variable, Shape]


class CostEstimate(NamedTuple):
    """Estimated seconds of a call on each backend, and the work, of which the time to compile is estimated."""

    device: float
    numba: float
    c: float
    work: "Work"


class Work(NamedTuple):
    """Amounts of work of a call; or the seconds of one unit of each, so that no amount is without a price."""

    nodes: float
    """Nodes, where a chain of elementwise ones is one."""
    products: float
    """Nodes that call a BLAS or LAPACK."""
    inner_nodes: float
    """Nodes of all steps of loops; an item of a batch that LAPACK takes one by one counts as `ITEM` of them."""
    words: float
    """Words of four bytes that are moved, or computed by arithmetic."""
    functions: float
    """Elements of exp, tanh and other functions, and comparisons of sorts."""
    flops: float
    """Operations of products and of linear algebra."""

    def plus(self, other: "Work") -> "Work":
        """Return the sum."""
        return Work(*[a + b for a, b in zip(self, other, strict=True)])

    def seconds(self, prices: "Work") -> float:
        """Return the time at some prices."""
        return sum(a * b for a, b in zip(self, prices, strict=True))


NO_WORK = Work(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


class CompilePrices(NamedTuple):
    """Seconds of compiling with empty caches: once, for a node, and for one that calls a BLAS or LAPACK."""

    fixed: float
    node: float
    product: float

    def seconds(self, work: Work) -> float:
        """Return the time to compile a graph."""
        return self.fixed + self.node * work.nodes + self.product * work.products


DEVICE_CALL, NUMBA_CALL, C_CALL = 2.6e-5, 2.2e-6, 1.1e-6
"""Seconds of a call that does nothing."""
DEVICE_PRICES = Work(nodes=0.0, products=0.0, inner_nodes=0.0, words=4e-11, functions=3e-10, flops=1.4e-11)
"""Seconds on one core of the device; its nodes are the device graph's, at `KERNEL` and `HOST_NODE`."""
NUMBA_PRICES = Work(nodes=2e-7, products=2e-7, inner_nodes=2e-8, words=4e-11, functions=3e-9, flops=1.4e-11)
C_PRICES = Work(nodes=8e-7, products=8e-7, inner_nodes=4e-7, words=1.2e-10, functions=3e-9, flops=1.6e-11)
KERNEL, HOST_NODE = 4e-6, 2.2e-6
"""Seconds of a kernel and of a node of the host in a call on the device."""
REPLAYED_KERNEL, LAUNCHED_KERNEL = 1.2e-6, 2.5e-5
"""Seconds of a kernel of a loop: in a replay of the whole loop, and where the host launches each step."""
GPU_CORES, GPU_TRANSFER = 8, 1e10
"""Cores that a compute unit of a GPU is worth, and bytes a second between it and the host."""
ITEM, OTHER = 20, 8
"""Inner nodes that an item of a batch is worth; words that an element of an Op without a rule below is worth."""

_CHEAP_FUNCTIONS = (scalar.Sqrt, scalar.Reciprocal, scalar.Ceil, scalar.Floor, scalar.Trunc)
_MOVES = (CAReduce, Alloc, IncSubtensor, Join, Split)
"""Ops that take as long as memory does."""
_SCALARS = (MakeVector, ScalarFromTensor, TensorFromScalar)
_VIEWS = (DimShuffle, Reshape, ShapeOp, Shape_i, CheckAndRaise, Subtensor, *_SCALARS)


def _scalar_ops(op: Any) -> list[Any]:
    inner = getattr(op, "fgraph", None)
    return [op] if inner is None else [s for n in inner.toposort() for s in _scalar_ops(n.op)]


def _is_function(op: Any) -> bool:
    """Return whether a scalar Op is a function such as exp: its result is a float whatever its arguments are."""
    kinds = scalar.upgrade_to_float, scalar.upgrade_to_float_no_complex
    return getattr(op, "output_types_preference", None) in kinds and not isinstance(op, _CHEAP_FUNCTIONS)


def _words(variable: Variable, shape: Shape) -> float:
    return prod(shape) * getattr(variable.type, "numpy_dtype", np.dtype("float32")).itemsize / 4


def _elemwise(node: Apply, fgraph: FunctionGraph, shapes: Shapes) -> Work:
    """Return the work of a part of a fused loop: values between elementwise nodes are not written to memory."""
    size = prod(shapes[node.outputs[0]])
    ops = _scalar_ops(node.op.scalar_op)
    functions = sum(map(_is_function, ops))
    read = [v for v in node.inputs if v.owner is None or not isinstance(v.owner.op, Elemwise)]
    is_last = not all(isinstance(client.op, Elemwise) for client, _ in fgraph.clients[node.outputs[0]])
    moved = sum(_words(v, shapes[v]) for v in read) + is_last * _words(node.outputs[0], shapes[node.outputs[0]])
    return NO_WORK._replace(nodes=is_last, words=(len(ops) - functions) * size + moved, functions=functions * size)


def _scan(node: Apply, shapes: Shapes) -> Work:
    steps = max((shapes[v][0] for v in (*node.inputs, *node.outputs) if shapes[v]), default=1)
    wide = max((prod(shapes[v][1:]) for v in node.outputs if shapes[v]), default=1)
    nodes = len(node.op.fgraph.toposort())
    return NO_WORK._replace(nodes=1 + nodes, inner_nodes=steps * nodes, words=steps * nodes * wide)


def _node_work(node: Apply, inference: "ShapeInference", shapes: Shapes) -> Work:
    op: Any = node.op.core_op if isinstance(node.op, Blockwise) else node.op
    inputs, outputs = [shapes[v] for v in node.inputs], [shapes[v] for v in node.outputs]
    if isinstance(op, Elemwise):
        return _elemwise(node, inference.fgraph, shapes)
    if isinstance(op, OpFromGraph):
        return inference.within(op).work(inputs)
    if isinstance(op, Scan):
        return _scan(node, shapes)
    if isinstance(op, _VIEWS):
        return NO_WORK
    if isinstance(op, Dot):
        return NO_WORK._replace(products=1, flops=2 * prod(outputs[0]) * (inputs[0][-1] if inputs[0] else 1))
    largest = max((*inputs, *outputs), key=prod, default=())
    if type(op).__module__.startswith("pytensor.tensor.linalg"):
        items = prod(outputs[0][: node.op.batch_ndim(node)]) if op is not node.op else 1
        flops = prod(largest) * max(largest[-1:], default=1)
        return NO_WORK._replace(products=1, inner_nodes=ITEM * items, flops=flops)
    if isinstance(op, SortOp | ArgSortOp):  # a comparison takes a host as long as a function, a device much less
        return NO_WORK._replace(nodes=1, functions=prod(largest) * log2(1 + max(largest, default=0)))
    if isinstance(op, AdvancedIncSubtensor):  # the host may write in place
        return NO_WORK._replace(nodes=1, words=OTHER * max(map(prod, inputs[1:])))
    if isinstance(op, AdvancedSubtensor):
        return NO_WORK._replace(nodes=1, words=OTHER * max(map(prod, (*inputs[1:], *outputs))))
    return NO_WORK._replace(nodes=1, words=(2 if isinstance(op, _MOVES) else OTHER) * prod(largest))


class ShapeInference:
    """Shapes of a graph's values, from its inputs' shapes by PyTensor's `infer_shape`, and the work of its nodes."""

    def __init__(self, fgraph: FunctionGraph) -> None:
        feature = ShapeFeature()
        self.fgraph = fgraph
        made = [v for node in fgraph.toposort() for v in node.outputs]
        self._lengths: dict[Variable, Any] = {v: feature.shape_tuple(v) or () for v in made}
        self._order = io_toposort(fgraph.inputs, [n for lengths in self._lengths.values() for n in lengths])
        self._within: dict[OpFromGraph, ShapeInference] = {}

    def within(self, op: OpFromGraph) -> "ShapeInference":
        """Return the inference for the graph inside an Op."""
        if op not in self._within:
            self._within[op] = ShapeInference(op.fgraph)
        return self._within[op]

    def work(self, given: Sequence[Shape]) -> Work:
        """Return the work of all nodes."""
        shapes, total = self.infer(given), NO_WORK
        for node in self.fgraph.toposort():
            total = total.plus(_node_work(node, self, shapes))
        return total

    def infer(self, given: Sequence[Shape]) -> dict[Variable, Shape]:
        """Return the shapes of all values; one that depends on data is taken from the largest input of its node."""
        shapes: dict[Variable, Shape] = dict(zip(self.fgraph.inputs, given, strict=True))
        numbers = self._numbers(shapes)
        for node in self.fgraph.toposort():
            shapes.update((v, np.shape(v.data)) for v in node.inputs if isinstance(v, Constant))
            largest = max((shapes[v] for v in node.inputs), key=prod, default=())
            for v in node.outputs:
                lengths = [n.data if isinstance(n, Constant) else numbers.get(n) for n in self._lengths[v]]
                guess = largest if len(largest) == len(lengths) else (1,) * len(lengths)
                shapes[v] = tuple(int(g if n is None else n) for n, g in zip(lengths, guess, strict=True))
        return shapes

    def _numbers(self, given: Shapes) -> dict[Variable, Any]:
        """Return the lengths that do not depend on data, and the variables that they are computed from."""
        known: dict[Variable, Any] = {}
        for node in self._order:
            if isinstance(node.op, Shape_i | ShapeOp):
                shape = given.get(node.inputs[0])
                if shape is not None:
                    known[node.outputs[0]] = np.asarray(shape[node.op.i] if isinstance(node.op, Shape_i) else shape)
            elif all(isinstance(v, Constant) or v in known for v in node.inputs) and _is_small(node):
                cells: list[list[Any]] = [[None] for _ in node.outputs]
                try:
                    node.op.perform(node, [v.data if isinstance(v, Constant) else known[v] for v in node.inputs], cells)
                except Exception:  # wrong data: the call itself raises
                    continue
                known.update((v, cell[0]) for v, cell in zip(node.outputs, cells, strict=True))
        return known


def _is_small(node: Apply) -> bool:
    """Return whether a node computes a number or a shape."""
    return all(getattr(v.type, "ndim", 0) == 0 or v.type.shape[0] is not None for v in node.outputs)


class Estimator:
    """Estimates the time of a function's calls."""

    def __init__(self, fgraph: FunctionGraph, info: DeviceInfo | None, nodes: Sequence[Apply]) -> None:
        self._fgraph, self._info, self._nodes = fgraph, info, nodes
        self._inference: ShapeInference | None = None  # made by the first call: the function may never be called

    def __call__(self, given: Sequence[Shape]) -> CostEstimate:
        """Return the estimate for arguments of some shapes."""
        self._inference = self._inference or ShapeInference(self._fgraph)
        shapes = self._inference.infer(given)
        work = self._inference.work(given)
        on_host = work._replace(flops=work.flops / granted_cores())  # a BLAS has several threads
        c = C_CALL + on_host.seconds(C_PRICES) if config.cxx else inf
        return CostEstimate(self._device_seconds(work, shapes), NUMBA_CALL + on_host.seconds(NUMBA_PRICES), c, work)

    def _device_seconds(self, work: Work, shapes: Shapes) -> float:
        info = self._info
        if info is None:
            return inf
        steps = max((s[0] for v, s in shapes.items() if s and v.owner and isinstance(v.owner.op, Scan)), default=1)
        seconds = DEVICE_CALL + sum(_launch_seconds(node.op, steps) for node in self._nodes)
        cores = 1 if info.kind == "cpu" else GPU_CORES
        seconds += work.seconds(DEVICE_PRICES) / (info.compute_units * cores)
        if info.has_own_memory:
            transferred = sum(_words(v, shapes[v]) for v in (*self._fgraph.inputs, *self._fgraph.outputs))
            seconds += 4 * transferred / GPU_TRANSFER
        return seconds


def _launch_seconds(op: Any, steps: int) -> float:
    """Return the seconds that a node of the device graph takes whatever its size; `steps` are the steps of a loop."""
    if isinstance(op, GpuScan):
        kernels = steps * op.step_kernels
        is_replayed = op.is_capturable and kernels <= MAX_CAPTURED_KERNELS
        return kernels * (REPLAYED_KERNEL if is_replayed else LAUNCHED_KERNEL)
    if isinstance(op, GpuOp):
        return KERNEL * op.is_compute
    return 0.0 if isinstance(op, GpuFromHost | HostFromGpu) else HOST_NODE
