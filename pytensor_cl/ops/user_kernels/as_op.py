"""Make Ops of graphs of kernels that users write."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pytensor_cl.codegen.dtypes import SUPPORTED, is_supported
from pytensor_cl.ops.user_kernels.elementwise import ElementwiseOp
from pytensor_cl.ops.user_kernels.gradients import check_gradient
from pytensor_cl.ops.user_kernels.op import Gradient, KernelOp
from pytensor_cl.ops.user_kernels.raw import raw_op
from pytensor_cl.ops.user_kernels.reduction import ReductionOp
from pytensor_cl.user_kernels.elementwise import ElementwiseKernel
from pytensor_cl.user_kernels.raw import RawKernel
from pytensor_cl.user_kernels.reduction import ReductionKernel

_OPS: tuple[tuple[type, Callable[..., KernelOp]], ...] = (
    (ElementwiseKernel, ElementwiseOp),
    (ReductionKernel, ReductionOp),
)


def as_op(
    kernel: Any,
    *,
    outputs: Mapping[str, str] | Sequence[str] | None = None,
    infer_shape: Callable[..., Any] | None = None,
    grad: Gradient = None,
    launch: Callable[..., Any] | None = None,
    signature: str | None = None,
    initial: float | None = None,
    perform: Callable[..., Any] | None = None,
    name: str | None = None,
) -> KernelOp:
    """Make an Op of PyTensor graphs of a kernel of one's own.

    It is called with variables and returns variables: shapes and dtypes follow from the kernel's parameters. In mode
    OPENCL an elementwise kernel is fused with its neighbours. Other modes compute by `perform`, or on the default
    device. This is another function than PyTensor's ``as_op``, which is called ``wrap_py`` there.

    Parameters
    ----------
    kernel
        An `ElementwiseKernel`, a `ReductionKernel` or a `RawKernel`.
    outputs
        Dtypes of outputs whose placeholder no input has, by their names: ``{"z": "float64"}``. For a raw kernel a list
        with the name of an input or a dtype for each output; None takes the dtypes that the kernel declares.
    grad
        Gradient, for `pytensor.grad`: a function of inputs, outputs and cotangents, ``lambda x, y, z, gz: [...]``, that
        returns one expression for each input, or None where none flows; or a kernel whose parameters have the names of
        those, ``x y z gz``, and whose outputs are ``gx gy``; or a dict of either by the names of inputs. Sums over
        broadcast dimensions are added. The output of a reduction and its cotangent have the reduced axes, of length 1;
        an expression with such a length holds for all elements along the axis. Without `grad` there is no gradient.
    infer_shape
        For raw kernels with a length that no input has: a function ``infer_shape(node, input_shapes)`` as that of
        PyTensor's Ops.
    launch
        For raw kernels: a function ``launch(*inputs, *outputs)`` that returns the grid, the block and the arguments of
        the kernel. Its arguments have the names of the kernel's parameters. It gets objects with `shape`, `dtype`,
        `size`, `ndim` and `layout`, without data, puts them among the arguments, and depends on nothing else. None is
        one work-item for each element of the first output, and the arrays in order; an integer parameter after them
        gets the number of work-items.
    signature
        For raw kernels, which need it: the dimensions of inputs and outputs, such as ``"(m,n),(n)->(m)"``. Inputs of
        part ``()`` that the kernel takes by value are numbers. Batches launch the kernel for each entry.
    initial
        For raw kernels: a number with which the outputs are filled before the launch, for kernels that add to them.
        None leaves them as they are: the kernel writes every element.
    perform
        Function of NumPy arrays that computes the same, for other modes than OPENCL.
    name
        Name of the Op in graphs and profiles; the kernel's if there is none.

    Returns
    -------
    KernelOp
        The Op. It is pickled by the text of the kernel; the functions are pickled by reference, so that functions at
        the top of a module can be loaded again, and a lambda cannot.

    Raises
    ------
    TypeError
        `kernel` is no kernel, or an argument does not fit it.
    ValueError
        The kernel has a raw output, or no input from which a shape follows.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor
    >>> import pytensor.tensor as pt
    >>> import pytensor_cl
    >>> twice = pytensor_cl.ElementwiseKernel("T x", "T z", "z = 2 * x", "twice")
    >>> twice_op = pytensor_cl.as_op(twice, grad=lambda x, z, gz: [2 * gz])
    >>> x = pt.fvector("x")
    >>> f = pytensor.function([x], [twice_op(x), pt.grad(twice_op(x).sum(), x)], mode="OPENCL")
    >>> print(*f(np.ones(3, "float32")))
    [2. 2. 2.] [2. 2. 2.]
    """
    if isinstance(kernel, RawKernel):
        chosen = kernel.name if name is None else name
        return raw_op(kernel, chosen, grad, perform, signature, outputs, launch, infer_shape, initial)
    make = next((made for kind, made in _OPS if isinstance(kernel, kind)), None)
    if make is None:
        kinds = ", ".join(kind.__name__ for kind, _ in _OPS)
        advice = ": pytensor.wrap_py makes Ops of Python functions" if callable(kernel) else ""
        raise TypeError(f"as_op makes Ops of kernels, {kinds} or RawKernel, not of {type(kernel).__name__}{advice}")
    chosen = kernel.name if name is None else name
    _check_functions(chosen, infer_shape=infer_shape, launch=launch, signature=signature)
    if initial is not None:
        raise TypeError(f"op {chosen}: initial= is for raw kernels: the outputs of others need none")
    if perform is not None and not callable(perform):
        raise TypeError(f"op {chosen}: perform= is a function of NumPy arrays, not {perform!r}")
    _check_shapes(chosen, kernel)
    op = make(kernel, chosen, grad, perform, _output_dtypes(chosen, kernel, outputs))
    if grad is not None:
        check_gradient(chosen, grad, op.names, lambda other: isinstance(other, ElementwiseKernel))
    return op


def _check_functions(op: str, **others: Any) -> None:
    for name, value in others.items():
        if value is not None:
            raise TypeError(f"op {op}: {name}= is for raw kernels: the shapes of this one follow from its parameters")


def _check_shapes(op: str, kernel: Any) -> None:
    definition = kernel.definition
    raw = next((p.name for p in definition.outputs if p.is_raw), None)
    if raw is not None:
        raise ValueError(f"op {op}: the output {raw} is raw, so that its shape is unknown: a RawKernel can have that")
    if all(p.is_raw for p in definition.inputs):
        raise ValueError(
            f"op {op}: the shape of the outputs is that of the inputs that are not raw, and there is none: declare one"
        )


def _output_dtypes(op: str, kernel: Any, outputs: Any) -> tuple[tuple[str, str], ...]:
    """Return the dtypes of outputs that the user gave, by name."""
    definition = kernel.definition
    given = {p.type for p in definition.inputs if p.is_placeholder}
    missing = [p.name for p in definition.outputs if p.is_placeholder and p.type not in given]
    if outputs is not None and not isinstance(outputs, Mapping):
        raise TypeError(f"op {op}: outputs= is a dict such as {{'z': 'float64'}}, not {outputs!r}")
    chosen = {} if outputs is None else {key: str(np.dtype(dtype)) for key, dtype in outputs.items()}
    unknown = next((key for key in chosen if key not in missing), None)
    if unknown is not None:
        raise ValueError(
            f"op {op}: outputs= has {unknown!r}; outputs whose dtype is open are: {', '.join(missing) or 'none'}"
        )
    by_letter = {p.type: chosen[p.name] for p in definition.outputs if p.name in chosen}
    undecided = next((p for p in definition.outputs if p.name in missing and p.type not in by_letter), None)
    if undecided is not None:
        raise TypeError(
            f"op {op}: no input says what {undecided.type} of {undecided.name} is: pass outputs="
            f"{{{undecided.name!r}: 'float32'}} or another dtype"
        )
    wrong = next((dtype for dtype in chosen.values() if not is_supported(dtype)), None)
    if wrong is not None:
        raise TypeError(f"op {op}: device arrays cannot hold {wrong}; they can: {', '.join(SUPPORTED)}")
    return tuple(sorted(chosen.items()))
