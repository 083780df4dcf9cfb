"""Building the commonest kernels of a dtype before they are needed."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pytensor_cl.array import elementwise, reductions
from pytensor_cl.array.creation import full
from pytensor_cl.array.device import context_of
from pytensor_cl.array.dispatch import COMPARISONS, OPERATIONS, apply, variant_of
from pytensor_cl.array.dtypes import DTypeLike
from pytensor_cl.array.launches import cast_launcher, copied
from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.runtime.context import Context

_BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum", *COMPARISONS)
_UNARY = ("negative", "abs", "exp", "log", "sqrt", "square")


def _python_type(dtype: np.dtype) -> type:
    return {"b": bool, "i": int, "u": int, "f": float, "c": complex}[dtype.kind]


def _kinds(dtype: np.dtype) -> Iterable[tuple[str, tuple[Any, ...]]]:
    """Yield operations with the classes of their operands."""
    number = _python_type(dtype)
    for name in _BINARY:
        yield name, (dtype, dtype)
        yield name, (dtype, number)
    for name in ("subtract", "divide"):
        yield name, (number, dtype)
    for name in _UNARY:
        yield name, (dtype,)
    yield "where", (np.dtype(bool), dtype, dtype)


def _sources(context: Context, dtype: np.dtype) -> list[KernelSource]:
    found: list[KernelSource] = []
    for name, kinds in _kinds(dtype):
        try:
            found.extend(variant_of(OPERATIONS[name], kinds, context).launcher.sources())
        except TypeError:  # such as the order of complex numbers
            continue
    for is_number in (False, True):
        found.extend(cast_launcher(context, dtype, dtype, is_number).sources())
    if dtype.kind in "iuf":
        total = reductions.total_dtype(dtype)
        found.extend(reductions.routine_of("add", context, dtype, total).sources())
        for operation in ("maximum", "minimum"):
            found.extend(reductions.routine_of(operation, context, dtype, dtype, dtype).sources())
    return found


def prepare(dtypes: Sequence[DTypeLike] = ("float32",), *, device: Any = None) -> int:
    """Build the commonest kernels of array functions, so that no later call waits for a compiler.

    The results stay in the caches on disk: it is enough to call it once for a machine, a driver and a version, such as
    when a container's image is made. ``pytensor-cl prepare`` does the same.

    Parameters
    ----------
    dtypes
        The dtypes: about 40 kernels for each.
    device
        A `Device` or the name of a context; None is the default.

    Returns
    -------
    int
        The number of kernels.
    """
    context = context_of(device)
    checked = [context.check_dtype(dtype) for dtype in dtypes]
    unique = {source.name: source for dtype in checked for source in _sources(context, dtype)}
    context.build(unique.values())  # as one program: drivers take about as long for one kernel
    for dtype in checked:
        _run(context, dtype)
    context.queue.wait()
    return len(unique)


def _run(context: Context, dtype: np.dtype) -> None:
    """Run each kernel once: some drivers compile at the first launch."""
    x = full((1,), 1, dtype=dtype, device=context.name)
    one = _python_type(dtype)(1)
    for name, kinds in _kinds(dtype):
        operands = [one if isinstance(kind, type) else x for kind in kinds]
        try:
            apply(OPERATIONS[name], [elementwise.equal(x, x), x, x] if name == "where" else operands)
        except TypeError:
            continue
    copied(x)
    if dtype.kind in "iuf":
        for function in (reductions.sum, reductions.max, reductions.min):
            function(x)
