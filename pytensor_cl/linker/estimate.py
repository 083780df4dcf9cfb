"""How long a call would take on each side, guessed from the shapes of its arguments: who goes first.

The figures are of one core with AVX-512. Nothing depends on them but which side begins, and how long the others wait
until they are tried: what is fastest is measured.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from math import inf, prod
from typing import Any, NamedTuple

import numpy as np
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.link.c.op import COp
from pytensor.scan.op import Scan
from pytensor.tensor.basic import MakeVector
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Argmax, Dot
from pytensor.tensor.shape import Reshape, Shape, Shape_i
from pytensor.tensor.sort import ArgSortOp, SortOp
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor

from pytensor_cl.linker.work import is_simple
from pytensor_cl.runtime.device import DeviceInfo

__all__ = ["Guess", "guess"]

Extents = tuple[int, ...]


class Guess(NamedTuple):
    """Seconds of a call on each side; how many nodes C would build, with element-wise ones fused."""

    device: float
    numba: float
    c: float
    nodes: int


class _Price(NamedTuple):
    """Seconds: of an element on each side, and of a node in C; in NUMBA's function it is none."""

    device: float
    numba: float
    c: float
    node: float


class _Device(NamedTuple):
    """Seconds of a call that does nothing; how many of the cores that the figures are of; bytes moved in a second."""

    call: float
    cores: float
    speed: float


NUMBA_CALL, C_CALL = 2.5e-6, 0.9e-6
"""Seconds of an empty function."""
FLOPS, DEVICE_FLOPS = 6e10, 4.5e10
"""Of a core: its BLAS, and kernels."""
FEW = 6
"""Nodes: a function of more takes C long to build, so it never goes first."""
LARGE, FAULT = 1 << 25, 0.3e-9
"""Bytes of a result from which on its memory comes from the system, and what a byte of that takes."""

_FREE = _Price(0.0, 0.0, 0.0, 0.0)
_SIMPLE = _Price(0.55e-9, 0.25e-9, 0.5e-9, 5e-8)
_HARD = _Price(0.55e-9, 3e-9, 3e-9, 5e-8)
_ALL = _Price(0.15e-9, 0.12e-9, 0.9e-9, 5e-7)
_OF_ROWS, _OF_COLUMNS = _ALL._replace(c=3.4e-9), _ALL._replace(c=0.15e-9)
_MATRICES = _Price(0.0, 0.0, 0.0, 5e-7)
_VECTORS = _Price(0.15e-9, 0.1e-9, 0.1e-9, 2.5e-6)
_OTHER = _Price(2e-9, 1e-9, 1e-9, 5e-7)
_INTERPRETED = _OTHER._replace(node=8e-6)

_PRICES: dict[type, _Price] = {
    **dict.fromkeys((DimShuffle, Reshape, Subtensor, Shape, Shape_i), _FREE),
    MakeVector: _SIMPLE,
    **dict.fromkeys((SortOp, ArgSortOp), _Price(20e-9, 60e-9, 30e-9, 1e-6)),
    **dict.fromkeys((Softmax, LogSoftmax), _Price(1e-9, 7e-9, 12e-9, 5e-7)),
    Argmax: _Price(0.2e-9, 1.1e-9, 0.13e-9, 2e-7),
    CumOp: _Price(0.5e-9, 1e-9, 3.5e-9, 5e-7),
    AdvancedSubtensor: _Price(1e-9, 0.2e-9, 0.17e-9, 3e-7),
    AdvancedIncSubtensor: _Price(1.6e-9, 0.3e-9, 15e-9, 8e-6),
    Scan: _Price(1e-7, 5e-9, 1e-6, 2e-5),
}


def _price(node: Apply, inputs: Sequence[Extents], outputs: Sequence[Extents]) -> _Price:
    op: Any = node.op
    if isinstance(op, Elemwise):
        return _SIMPLE if is_simple(op.scalar_op) else _HARD
    if isinstance(op, CAReduce):
        axes = range(node.inputs[0].type.ndim) if op.axis is None else op.axis
        return _ALL if len(axes) == node.inputs[0].type.ndim else _OF_COLUMNS if tuple(axes) == (0,) else _OF_ROWS
    if isinstance(_core(op), Dot):
        is_small = len(outputs[0]) < 2 or 1 in outputs[0][-2:]
        return _SIMPLE if all(prod(n) == 1 for n in inputs) else _VECTORS if is_small else _MATRICES
    other = _OTHER if isinstance(op, COp) else _INTERPRETED
    return next((_PRICES[t] for t in type(op).__mro__ if t in _PRICES), other)


def _core(op: Any) -> Any:
    return op.core_op if isinstance(op, Blockwise) else op


def guess(fgraph: FunctionGraph, given: Sequence[Extents], info: DeviceInfo | None) -> Guess:
    """Return how long a call may take.

    Parameters
    ----------
    fgraph
        A graph of host Ops.
    given
        Shapes of its inputs.
    info
        Of the device; None if there is nothing for one to do.
    """
    shapes = dict(zip(fgraph.inputs, given, strict=True))
    to = _device(info)
    device, numba, c, nodes = to.call, NUMBA_CALL, C_CALL, 0
    for node in fgraph.toposort():
        inputs = [_shape_of(v, shapes) for v in node.inputs]
        outputs = _shapes_of(node, inputs)
        shapes.update(zip(node.outputs, outputs, strict=True))
        price, elements = _price(node, inputs, outputs), max(map(prod, (*inputs, *outputs)), default=0)
        flops = 2 * prod(outputs[0]) * (inputs[0][-1] if inputs[0] else 1) if price is _MATRICES else 0
        device += elements * price.device / to.cores + flops / (DEVICE_FLOPS * to.cores)
        numba += elements * price.numba + flops / (FLOPS * _cores())
        c += elements * price.c + flops / (FLOPS * _cores()) + price.node
        nodes += _is_built(node, fgraph, price)
    results = [4 * prod(_shape_of(v, shapes)) for v in fgraph.outputs]
    faults = FAULT * sum(n for n in results if n > LARGE)
    moved = (4 * sum(map(prod, given)) + sum(results)) / to.speed
    return Guess(device + moved, numba + faults, inf if nodes > FEW or not config.cxx else c + faults, nodes)


def _is_built(node: Apply, fgraph: FunctionGraph, price: _Price) -> bool:
    """Whether C has code of its own for a node: element-wise ones become part of others that read them."""
    if not isinstance(node.op, Elemwise):
        return price is not _FREE
    return not all(isinstance(client.op, Elemwise) for client, _ in fgraph.clients[node.outputs[0]])


def _device(info: DeviceInfo | None) -> _Device:
    if info is None:
        return _Device(5e-6, 1, inf)
    if info.kind == "cpu":
        return _Device(2.5e-5, info.compute_units, inf)
    return _Device(4e-5, 8 * info.compute_units, inf if info.shares_host_memory else 1e10)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _shape_of(variable: Variable, shapes: Mapping[Variable, Extents]) -> Extents:
    return np.shape(variable.data) if isinstance(variable, Constant) else shapes[variable]


# Shapes: exact where it is easy, else those of the largest input


def _broadcast(node: Apply, inputs: Sequence[Extents]) -> Extents:
    return tuple(map(max, zip(*inputs, strict=True))) if inputs and inputs[0] else ()


def _shuffled(node: Apply, inputs: Sequence[Extents]) -> Extents:
    order: Sequence[Any] = node.op.new_order
    return tuple(1 if axis == "x" else inputs[0][axis] for axis in order)


def _reduced(node: Apply, inputs: Sequence[Extents]) -> Extents:
    axes = node.op.axis
    return () if axes is None else tuple(n for axis, n in enumerate(inputs[0]) if axis not in axes)


def _product(node: Apply, inputs: Sequence[Extents]) -> Extents:
    left, right = inputs
    batch = _broadcast(node, [left[:-2], right[:-2]])
    return (*batch, *left[-2:-1], *right[-1:]) if len(right) > 1 else left[:-1]


def _taken(node: Apply, inputs: Sequence[Extents]) -> Extents:
    return (*inputs[1], *inputs[0][1:])


def _first(node: Apply, inputs: Sequence[Extents]) -> Extents:
    return inputs[0]


_SHAPES: Mapping[type, Callable[[Apply, Sequence[Extents]], Extents]] = {
    Elemwise: _broadcast,
    DimShuffle: _shuffled,
    CAReduce: _reduced,
    Argmax: _reduced,
    Dot: _product,
    AdvancedSubtensor: _taken,
    **dict.fromkeys((IncSubtensor, AdvancedIncSubtensor), _first),
}


def _shapes_of(node: Apply, inputs: Sequence[Extents]) -> list[Extents]:
    exact = next((_SHAPES[t] for t in type(_core(node.op)).__mro__ if t in _SHAPES), None)
    try:
        found = exact(node, inputs) if exact is not None else None
    except (IndexError, ValueError):  # wrong data, about which the call itself complains
        found = None
    if found is not None and len(found) == node.outputs[0].type.ndim:
        return [found] * len(node.outputs)
    return [_like_the_largest(v, inputs) for v in node.outputs]


def _like_the_largest(variable: Variable, inputs: Sequence[Extents]) -> Extents:
    ndim = getattr(variable.type, "ndim", 0)
    if not ndim:
        return ()
    largest = max(inputs, key=prod, default=())
    return largest if len(largest) == ndim else (*[1] * (ndim - 1), prod(largest))
