"""Minimisation and root finding: SciPy's loop on the host, with a function that runs on the device."""

from typing import Any

from pytensor.compile.mode import Mode
from pytensor.configdefaults import config
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.optimize import MinimizeOp, MinimizeScalarOp, RootOp, RootScalarOp, ScipyWrapperOp


class DeviceObjectiveOp(ScipyWrapperOp):
    """An Op that calls SciPy, whose objective, gradient and Hessian matrix are a function of mode OPENCL."""

    def __init__(self, host: ScipyWrapperOp, function_mode: Mode) -> None:
        self.__dict__.update(host.__dict__)
        self._fn = self._fn_wrapped = None
        self.function_mode = function_mode

    def link_mode(self, impl: str | None) -> Mode:
        """Return the mode of the function, which rewrites the inner graph too."""
        return self.function_mode

    def link_fgraph(self, fgraph: FunctionGraph, mode: Mode) -> Any:
        """Compile the function, for the device wherever there is a kernel."""
        with config.change_flags(opencl__placement="device"):
            return super().link_fgraph(fgraph, mode)


class _Minimize(DeviceObjectiveOp, MinimizeOp):
    """A minimum of several variables."""


class _MinimizeScalar(DeviceObjectiveOp, MinimizeScalarOp):
    """A minimum of one variable."""


class _Root(DeviceObjectiveOp, RootOp):
    """A root of several variables."""


class _RootScalar(DeviceObjectiveOp, RootScalarOp):
    """A root of one variable."""


_CLASSES: dict[type, type[DeviceObjectiveOp]] = {
    MinimizeOp: _Minimize,
    MinimizeScalarOp: _MinimizeScalar,
    RootOp: _Root,
    RootScalarOp: _RootScalar,
}


def with_device_objective(op: Any, function_mode: Mode) -> DeviceObjectiveOp | None:
    """Return the Op whose function runs on the device; None for Ops of other classes."""
    kind = _CLASSES.get(type(op))
    return None if kind is None else kind(op, function_mode)
