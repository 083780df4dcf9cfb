"""Ops that hold graphs, steer, check or copy."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor import gradient
from pytensor.assumptions.specify import SpecifyAssumptions, assume
from pytensor.breakpoint import PdbBreakpoint
from pytensor.compile import builders, ops
from pytensor.conditional.op import IfElse, LazyIfElse, ifelse
from pytensor.printing import Print
from pytensor.raise_op import Assert, CheckAndRaise
from pytensor.scan.op import Scan
from pytensor.tensor import optimize, symbolic

from tests.probes.probe import Probe, probe

X = np.linspace(0.1, 2, 6).astype("float32")
M = np.arange(12, dtype="float32").reshape(3, 4) / 10


@ops.wrap_py(itypes=[pt.fvector], otypes=[pt.fvector])
def doubled(x):
    """An Op made of a Python function."""
    return 2 * x


def _inner(kind, x):
    y = pt.vector("y", dtype="float32")
    return kind([y], [pt.exp(y) + 1])(x)


def _views() -> Iterator[Probe]:
    yield probe(ops.DeepCopyOp, lambda x: ops.deep_copy_op(x) + 1, X)
    yield probe(ops.ViewOp, lambda x: ops.view_op(x) + 1, X)
    yield probe(ops.FromFunctionOp, lambda x: doubled(x), X)
    for kind in (gradient.ZeroGrad, gradient.UndefinedGrad, gradient.DisconnectedGrad):
        yield probe(kind, lambda x, k=kind: k()(x) * 2, X)
    yield probe(gradient.GradClip, lambda x: pt.grad((gradient.grad_clip(x, -1, 1) ** 2).sum(), x), X)
    yield probe(gradient.GradScale, lambda x: pt.grad((gradient.grad_scale(x, 3) ** 2).sum(), x), X)
    yield probe(SpecifyAssumptions, lambda x: assume(x, diagonal=True) * 2, M)
    yield probe(Print, lambda x: Print("probe", global_fn=lambda *_: None)(x) * 2, X)
    yield probe(PdbBreakpoint, lambda x: PdbBreakpoint("probe")(x[0] > 100, x) * 2, X)
    yield probe(Assert, lambda x: Assert("positive")(x, (x > 0).all()) * 2, X)
    yield probe(CheckAndRaise, lambda x: CheckAndRaise(ValueError, "positive")(x, (x > 0).all()) * 2, X)


def _graphs() -> Iterator[Probe]:
    yield probe(builders.OpFromGraph, lambda x: _inner(builders.OpFromGraph, x), X)
    for value in (True, False):
        yield probe(IfElse, lambda c, x: ifelse(c, x.sum(), pt.exp(x).max()), np.bool_(value), X, variant=str(value))
        yield probe(IfElse, lambda c, x, y: ifelse(c, x, y), np.bool_(value), X, X[:2], variant=f"inputs-{value}")
    yield probe(LazyIfElse, _lazy, np.bool_(True), X)


def _lazy(condition, x):
    y, z = (pt.vector(dtype="float32") for _ in range(2))
    branches = [builders.OpFromGraph([y], [y + 1]), builders.OpFromGraph([z], [z * 2])]
    return LazyIfElse(*branches, [pt.fvector])(condition, x)


def _derivatives() -> Iterator[Probe]:
    """Probe Ops that only gradients of symbolic Ops make. The class is in PyTensor since 3.3.8."""
    kind = getattr(symbolic, "FusibleSymbolicOpDerivative", None)
    if kind is not None:
        yield probe(kind, lambda x: pt.grad(pt.logsumexp(x * 2), x), X)
        yield probe(kind, lambda x: pt.grad(pt.logaddexp(x, x * 3).sum(), x), X, variant="logaddexp")


def _scans() -> Iterator[Probe]:
    for dtype in ("float32", "float64"):
        # No map: PyTensor moves all of it out of the loop.
        x = X.astype(dtype)
        one = np.dtype(dtype).type(1)
        fold = partial(pytensor.scan, lambda e, total: total * 0.5 + e, return_updates=False)
        yield probe(Scan, lambda v, s, f=fold: f(sequences=v, outputs_info=s), x, one, variant=f"recurrence-{dtype}")
        yield probe(Scan, lambda v, s, f=fold: f(sequences=v, outputs_info=s)[-1], x, one, variant=f"last-{dtype}")


def _searches() -> Iterator[Probe]:
    start = np.float64(1)
    vector = np.array([1.0, 2.0])
    target = np.array([0.5, -1.0])
    goal = np.float64(2)
    minimum = optimize.minimize_scalar
    yield probe(optimize.MinimizeScalarOp, lambda x, c: minimum((x - c) ** 2, x)[0], start, goal)
    yield probe(optimize.MinimizeOp, lambda x, c: optimize.minimize(((x - c) ** 2).sum(), x)[0], vector, target)
    root = partial(optimize.root_scalar, method="newton")
    yield probe(optimize.RootScalarOp, lambda x, c: root(x**2 - c, x)[0], start, goal)
    yield probe(optimize.RootOp, lambda x, c: optimize.root(x**3 - c, x)[0], vector, target)


PROBES = (*_views(), *_graphs(), *_derivatives(), *_scans(), *_searches())
