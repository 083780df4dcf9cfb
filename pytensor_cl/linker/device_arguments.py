"""Device arrays as arguments for inputs that are tensors of the host: no download, no upload.

Such a call runs another function, whose inputs at these positions are device arrays. It is made of the rewritten graph,
without the uploads, when it is first needed, and shares all shared variables. So calls with host arrays, which are
common, look at nothing but the types of their arguments.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
from pytensor.compile.aliasing import insert_deepcopy
from pytensor.compile.io import SymbolicOutput
from pytensor.graph.basic import Variable, clone_get_equiv
from pytensor.graph.destroyhandler import DestroyHandler
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.type import Type
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.type import TensorType

from pytensor_cl._compat.serial_function import SerialFunction
from pytensor_cl.ops.transfer import GpuFromHost, host_from_gpu
from pytensor_cl.rewriting.host_graph.graph import HAS_DEVICE_VALUES, state_of
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.interchange import on_device
from pytensor_cl.type import GpuArrayType, is_value_of

Placed = frozenset[tuple[int, str]]
"""Positions of inputs, and the contexts of their arguments."""

_HOST_TYPES = frozenset(
    (np.ndarray, bool, int, float, complex, list, tuple, *(np.dtype(code).type for code in np.typecodes["All"]))
)
"""Types of arguments that PyTensor takes or converts itself."""


def accepted_types(kinds: Sequence[Type]) -> frozenset[type]:
    """Return the types of arguments that a function takes as they are: `adapt` looks at all, if one has another."""
    only_device = all(isinstance(kind, GpuArrayType) for kind in kinds)
    return _HOST_TYPES | {GpuArray} if only_device else _HOST_TYPES


def adapt(
    function: SerialFunction, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[SerialFunction, Sequence[Any], Mapping[str, Any]]:
    """Return the function and the arguments that a call with arrays of other libraries, or of a device, runs with.

    Raises `TypeError`: the memory of an argument cannot be used, or it is on a device that the function does not use.
    """
    containers = function.input_storage
    placed: set[tuple[int, str]] = set()
    args = [_adapted(function, at, value, placed) for at, value in enumerate(args)]
    found = {key: function._finder.get(key) for key in kwargs}
    positions = {key: next((at for at, c in enumerate(containers) if c is found[key]), -1) for key in kwargs}
    kwargs = {
        key: value if positions[key] < 0 else _adapted(function, positions[key], value, placed)
        for key, value in kwargs.items()
    }
    return (_variant(function, frozenset(placed)) if placed else function), args, kwargs


def _adapted(function: SerialFunction, at: int, value: Any, placed: set[tuple[int, str]]) -> Any:
    """Return the argument of input number `at`; note it if it is a device array for a tensor of the host."""
    if at >= len(function.input_storage):
        return value  # PyTensor raises the error
    kind = function.input_storage[at].type
    if isinstance(value, Variable) or not (isinstance(kind, GpuArrayType) or type(kind) is TensorType):
        return value
    try:
        array = on_device(value)
    except (BufferError, TypeError, ValueError) as error:
        raise TypeError(f"{_name(function, at)}: {error}") from error
    if array is None:
        return _on_host(kind, value)
    if isinstance(kind, GpuArrayType):
        return array
    contexts = _upload_contexts(function, at)
    if not contexts or not is_value_of(kind, array):
        return array.to_host()  # PyTensor converts it, or raises the error
    if array.context.name not in contexts:
        raise TypeError(
            f"{_name(function, at)} is in context {array.context.name!r}, and the function reads it in "
            f"{' and '.join(map(repr, contexts))}: pass np.asarray(r)"
        )
    placed.add((at, array.context.name))
    return array


def _on_host(kind: Type, value: Any) -> Any:
    """Return an array of another library in the host's memory as NumPy's, without a copy, if it has the right dtype.

    PyTensor would compare all elements before and after the conversion.
    """
    if type(kind) is TensorType and hasattr(type(value), "__dlpack_device__") and not isinstance(value, np.ndarray):
        host = np.asarray(value)
        if host.dtype == kind.numpy_dtype:
            return host
    return value


def _name(function: SerialFunction, at: int) -> str:
    """Return what an argument is called in an error."""
    name = function.maker.inputs[at].variable.name
    return f"argument {name or at}"


def _upload_contexts(function: SerialFunction, at: int) -> list[str]:
    """Return the contexts to which the function uploads an input."""
    graph = function.maker.fgraph
    clients = [node for node, _ in graph.clients[graph.inputs[at]]]
    return sorted({node.op.context_name for node in clients if isinstance(node.op, GpuFromHost)})


def _variant(function: SerialFunction, placed: Placed) -> SerialFunction:
    """Return the function for device arrays at some positions."""
    known: dict[Placed, SerialFunction] = function.vm.device_variants
    found = known.get(placed)
    if found is None:
        found = known[placed] = _make_variant(function, placed)
    return found


def _make_variant(function: SerialFunction, placed: Placed) -> SerialFunction:
    maker = function.maker
    inputs: list[Variable] = list(maker.fgraph.inputs)
    memo: dict[Any, Any] = {}
    for at, name in placed:
        old = inputs[at]
        inputs[at] = GpuArrayType(old.type.dtype, old.type.shape, name)(name=old.name)
        memo[old] = host_from_gpu(inputs[at])
    given = {at for at, _ in placed}
    memo = clone_get_equiv([v for v in maker.fgraph.inputs if v not in memo], maker.fgraph.outputs, memo=memo)
    inputs = [v if at in given else memo[v] for at, v in enumerate(inputs)]
    graph = FunctionGraph(inputs, [memo[v] for v in maker.fgraph.outputs], clone=False)
    graph.update_mapping = maker.fgraph.update_mapping
    graph.attach_feature(DestroyHandler())
    for at in given:
        _read_on_device(graph, graph.inputs[at])
    state_of(graph).host_graph = HAS_DEVICE_VALUES
    made = _make_function(function, graph)
    made.trust_input, made.unpack_single = function.trust_input, function.unpack_single
    return made


def _read_on_device(graph: FunctionGraph, array: Variable) -> None:
    """Let nodes read a device array instead of what was uploaded, and shapes from it."""
    for download, _ in list(graph.clients[array]):
        (host,) = download.outputs
        for node, _ in list(graph.clients[host]):
            if isinstance(node.op, GpuFromHost) and node.op.context_name == array.type.context_name:
                graph.replace(node.outputs[0], array, reason="device argument")
            elif isinstance(node.op, Shape | Shape_i):
                graph.replace(node.outputs[0], node.op.make_node(array).outputs[0], reason="device argument")


def _make_function(function: SerialFunction, graph: FunctionGraph) -> SerialFunction:
    """Link a graph with the shared variables and defaults of a function's, as `Function.copy` does."""
    maker = function.maker
    specs = [copy(spec) for spec in maker.inputs]
    updated = {of_input: position for position, of_input in graph.update_mapping.items()}
    for at, (spec, variable) in enumerate(zip(specs, graph.inputs, strict=True)):
        spec.variable = variable
        spec.update = graph.outputs[updated[at]] if at in updated else None
    results = [SymbolicOutput(variable) for variable in graph.outputs]
    for result, original in zip(results, maker.outputs, strict=False):
        result.borrow = original.borrow
    insert_deepcopy(graph, specs, results)  # an upload that is left out has made the copy
    made = type(maker)(
        inputs=specs,
        outputs=results,
        fgraph=graph,
        mode=maker.mode,
        on_unused_input="ignore",
        accept_inplace=True,
        no_fgraph_prep=True,
        name=function.name,
    ).create([spec.value for spec in specs])
    for original, copied, spec in zip(function.input_storage, made.input_storage, maker.inputs, strict=True):
        if not spec.mutable and not original.required:
            copied.data = original.data
    found: SerialFunction = made
    return found
