"""Base class of Ops of users' kernels, and what all of them do in the modes of PyTensor."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from pytensor.compile.mode import optdb
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.tensor import as_tensor_variable, constant
from pytensor.tensor.type import discrete_dtypes
from pytensor.tensor.utils import broadcast_static_dim_lengths

from pytensor_cl._compat.jax_backend import call_from_jax
from pytensor_cl._compat.numba_backend import run_in_object_mode
from pytensor_cl.ops.user_kernels.gradients import Names, cotangents_of, fitted, gradients
from pytensor_cl.routines.elemwise.routine import common_shape
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.registry import get_context
from pytensor_cl.user_kernels.parameters import Parameter, convert_number, is_number

Gradient = Any
"""A function of inputs, outputs and cotangents, a kernel, or a dict of either by input."""


class KernelOp(Op):
    """An Op whose results a kernel of the user's computes; `pytensor_cl.as_op` makes it.

    Attributes
    ----------
    kernel
        The kernel: two Ops of equal kernels with the same functions are equal.
    name
        Name of the Op in graphs and profiles.
    gradient
        Gradient that the user gave; None: there is none.
    perform_on_host
        Function of the user's that computes the same with NumPy; None: modes other than OPENCL use the device too.
    outputs
        Names of outputs whose placeholders no input has, with their dtypes.
    """

    repeats_gradients = False  # a parameter of `fitted`
    __props__: tuple[str, ...] = ("kernel", "name", "gradient", "perform_on_host")

    def __init__(
        self,
        kernel: Any,
        name: str,
        gradient: Gradient = None,
        perform_on_host: Callable[..., Any] | None = None,
        outputs: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.kernel = kernel
        self.name = name
        self.gradient = gradient
        self.perform_on_host = perform_on_host
        self.outputs = outputs

    def _key(self) -> tuple[Any, ...]:
        """Return all that decides what the Op is."""
        gradient = self.gradient
        known = tuple(sorted(gradient.items())) if isinstance(gradient, Mapping) else gradient
        return type(self), self.kernel, self.name, known, self.perform_on_host, self.outputs

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KernelOp) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        return self.name

    @property
    def names(self) -> Names:
        """Names of the parameters."""
        definition = self.kernel.definition
        return Names(tuple(p.name for p in definition.inputs), tuple(p.name for p in definition.outputs))

    # Types

    def broadcast(self, inputs: Sequence[Any]) -> tuple[list[Any], tuple[int | None, ...]]:
        """Return the inputs as variables, those that are not raw of as many dimensions, and their common static shape.

        Raises `TypeError`: there are more or fewer inputs than parameters, or dtypes do not fit. Raises `ValueError`:
        shapes do not fit.
        """
        count = len(self.kernel.definition.inputs)
        if len(inputs) != count:
            raise TypeError(f"op {self.name} takes {count} inputs, not {len(inputs)}")
        variables = self._typed(inputs)
        ndim = max((v.type.ndim for v, p in self.pairs(variables) if not p.is_raw), default=0)
        padded = [v if p.is_raw else _left_padded(v, ndim) for v, p in self.pairs(variables)]
        shapes = [v.type.shape for v, p in self.pairs(padded) if not p.is_raw]
        try:
            return padded, tuple(map(broadcast_static_dim_lengths, zip(*shapes, strict=True)))
        except ValueError:
            raise ValueError(f"op {self.name}: the shapes do not fit together: {shapes}") from None

    def pairs(self, variables: Sequence[Any]) -> list[tuple[Any, Parameter]]:
        """Return inputs, or what is known of them, with their parameters."""
        return list(zip(variables, self.kernel.definition.inputs, strict=True))

    def full_shape(self, node: Apply, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """Return the shape to which the inputs of a node are broadcast, but raw ones.

        Raises `ValueError`: the shapes differ, or a dimension that is not known to have length 1 would be repeated.
        """
        places = [k for k, (_, p) in enumerate(self.pairs(shapes)) if not p.is_raw]
        types: list[Any] = [node.inputs[k].type for k in places]
        return common_shape([tuple(shapes[k]) for k in places], [kind.broadcastable for kind in types])

    def _typed(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the inputs as variables; numbers take the dtypes of their parameters."""
        variables = [None if is_number(x) else as_tensor_variable(x) for x in inputs]
        types = dict(self.types([v for v in variables if v is not None], variables))
        return [
            v if v is not None else constant(self._number(p, x, types))
            for v, (x, p) in zip(variables, self.pairs(inputs), strict=True)
        ]

    def _number(self, parameter: Parameter, value: Any, types: Mapping[str, str]) -> Any:
        dtype = types.get(parameter.type) if parameter.is_placeholder else parameter.type
        return np.asarray(value) if dtype is None else np.asarray(convert_number(parameter, value, dtype, self.name))

    def types(self, given: Sequence[Any], variables: Sequence[Any]) -> tuple[tuple[str, str], ...]:
        """Return the dtypes of the placeholders.

        Raises `TypeError`: two inputs give one of them different dtypes, or an input another one than its parameter.
        """
        found: dict[str, str] = {}
        giver: dict[str, str] = {}
        for v, p in self.pairs(variables):
            if v is None:
                continue
            dtype = v.type.dtype
            expected = found.setdefault(p.type, dtype) if p.is_placeholder else p.type
            giver.setdefault(p.type, p.name)
            if dtype != expected and p.is_placeholder:
                raise TypeError(
                    f"op {self.name}: {giver[p.type]} is {expected} and {p.name} is {dtype}, but both are declared "
                    f"{p.type}: cast one, or declare them with two letters"
                )
            if dtype != expected:
                raise TypeError(f"op {self.name}: {p.name} is declared {expected}, the input is {dtype}: cast it")
        chosen = dict(self.outputs)
        for p in self.kernel.definition.outputs:
            if p.is_placeholder and p.name in chosen:
                found.setdefault(p.type, chosen[p.name])
        return tuple(sorted(found.items()))

    def compute(self, node: Apply, context: Context, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the results of the kernel for arrays of the host, computed on a device."""
        raise NotImplementedError

    def gradient_op(self, kernel: Any) -> Op:
        """Return the Op of a kernel that computes gradients."""
        raise NotImplementedError

    # Gradients

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Return that all inputs are connected to all outputs but integers."""
        return [[v.type.dtype not in discrete_dtypes for v in node.outputs] for _ in node.inputs]

    def pullback(
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], cotangents: Sequence[Variable]
    ) -> list[Variable]:
        """Return the gradients that the user gave, in the shapes and dtypes of the inputs.

        Raises `NotImplementedError`: the user gave none.
        """
        if self.gradient is None:
            raise NotImplementedError(
                f"op {self.name} has no gradient: pass grad= to as_op; if the kernel is itself a gradient, pass in its "
                "place a function that calls its Op, grad=lambda x, z, gz: [op(x, gz)]"
            )
        results = self.as_gradient_sees(inputs, (*outputs, *cotangents_of(outputs, cotangents)))
        known = dict(zip(self.names.all, (*inputs, *results), strict=True))
        found = gradients(self.name, self.gradient, self.names, known, self.gradient_op)
        shaped = self.gradient_shapes(inputs, outputs)
        places = (f"op {self.name}: the gradient that grad= returned for the input {n}" for n in self.names.inputs)
        return [fitted(*one, self.repeats_gradients) for one in zip(places, found, inputs, shaped, strict=True)]

    def as_gradient_sees(self, inputs: Sequence[Any], results: Sequence[Any]) -> Sequence[Variable]:
        """Return outputs and cotangents as the user's gradient gets them."""
        return results

    def gradient_shapes(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Variable]:
        """Return for each input a variable of the shape to which it was broadcast, and which its gradient may have."""
        return [outputs[0]] * len(inputs)

    # Other modes

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        """Compute by the user's function of NumPy, or on the default device.

        Raises `TypeError` or `ValueError`: the function returns arrays of other dtypes or numbers of dimensions.
        """
        if self.perform_on_host is None:
            results = self.compute(node, get_context(), inputs)
        else:
            results = self._checked(node, self.perform_on_host(*inputs))
        for storage, result in zip(output_storage, results, strict=True):
            storage[0] = result

    def _checked(self, node: Apply, found: Any) -> list[np.ndarray]:
        given = found if isinstance(found, list | tuple) else [found]
        if len(given) != len(node.outputs):
            raise ValueError(f"op {self.name}: perform= returned {len(given)} arrays, not {len(node.outputs)}")
        results = list(map(np.asarray, given))
        for result, output in zip(results, node.outputs, strict=True):
            kind: Any = output.type
            if result.dtype != kind.dtype:
                raise TypeError(f"op {self.name}: perform= returned {result.dtype}, not {kind.dtype}")
            if result.ndim != kind.ndim:
                raise ValueError(f"op {self.name}: perform= returned {result.ndim} dimensions, not {kind.ndim}")
        return results

    def do_constant_folding(self, fgraph: Any, node: Apply) -> bool:
        """Return False: a graph is compiled without a device."""
        return False


def _left_padded(variable: Any, ndim: int) -> Any:
    missing = ndim - variable.type.ndim
    return variable.dimshuffle(["x"] * missing + list(range(variable.type.ndim))) if missing else variable


def has_kernel_op(nodes: Iterable[Apply]) -> bool:
    """Return whether an Op of a user's kernel is among nodes, in a batch, or in the inner graph of one."""
    for node in nodes:
        core = getattr(node.op, "core_op", node.op)
        inner = getattr(node.op, "fgraph", None)
        if isinstance(core, KernelOp) or (inner is not None and has_kernel_op(inner.apply_nodes)):
            return True
    return False


class _RegisterWithBackend(GraphRewriter):
    """Registers the Ops with a backend when one first occurs, so that importing them does not load it."""

    def __init__(self, register: Callable[[type[Op]], None]) -> None:
        super().__init__()
        self._register = register
        self._is_done = False

    def apply(self, fgraph: FunctionGraph) -> Any:
        """Look whether there is such an Op; the graph is not changed."""
        if not self._is_done and has_kernel_op(fgraph.apply_nodes):
            self._register(KernelOp)
            self._is_done = True


optdb.register("pytensor_cl_kernels_numba", _RegisterWithBackend(run_in_object_mode), "numba", position=0)
optdb.register("pytensor_cl_kernels_jax", _RegisterWithBackend(call_from_jax), "jax", position=0)
