"""L-BFGS: SciPy's loop on the host, the loss and its gradients compiled for any mode."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytensor
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable

from pytensor_cl.optimizers.gradients import checked_params, gradients


class LBFGS:
    """Minimises a loss over all parameters by L-BFGS; see `lbfgs`.

    Parameters
    ----------
    loss
        A 0-d variable.
    params
        The parameters.
    inputs
        The inputs of the loss.
    options
        Options of SciPy's ``minimize(method="L-BFGS-B")``.
    mode
        The mode in which the loss is compiled.

    Attributes
    ----------
    function
        The compiled function of the inputs, which returns the loss and the gradients.
    """

    def __init__(
        self,
        loss: Variable,
        params: Iterable[SharedVariable],
        inputs: Iterable[Variable],
        options: dict[str, Any],
        mode: Any = None,
    ) -> None:
        self._params = checked_params(params)
        if not self._params:
            raise ValueError("lbfgs needs at least one parameter")
        self._options = options
        self.function = pytensor.function(list(inputs), [loss, *gradients(loss, self._params)], mode=mode)

    def _set(self, flat: np.ndarray) -> None:
        begin = 0
        for param, shape in zip(self._params, self._shapes, strict=True):
            end = begin + int(np.prod(shape))
            param.set_value(flat[begin:end].reshape(shape).astype(param.type.dtype))
            begin = end

    def __call__(self, *values: Any) -> Any:
        """Minimise the loss from the present values of the parameters, which become the best ones that were found.

        An exception, Ctrl-C too, comes through after that.

        Parameters
        ----------
        values
            Values of the inputs: all data, as no sampling is done.

        Returns
        -------
        OptimizeResult
            SciPy's result, with ``fun``, ``nit``, ``success`` and ``message``.
        """
        from scipy.optimize import minimize  # loading it takes 0.2 s

        start = [param.get_value() for param in self._params]
        self._shapes = [value.shape for value in start]
        flat = np.concatenate([value.ravel() for value in start]).astype("float64")
        lowest, best = np.inf, flat

        def evaluate(x: np.ndarray) -> tuple[float, np.ndarray]:
            nonlocal lowest, best
            self._set(x)
            loss, *slopes = self.function(*values)
            if loss < lowest:
                lowest, best = float(loss), x.copy()
            return float(loss), np.concatenate([np.ravel(slope) for slope in slopes]).astype("float64")

        try:
            return minimize(evaluate, flat, jac=True, method="L-BFGS-B", options=self._options)
        finally:
            self._set(best)


def lbfgs(
    loss: Variable,
    params: Iterable[SharedVariable],
    inputs: Iterable[Variable] = (),
    max_iter: int = 20,
    *,
    history_size: int = 10,
    tolerance_grad: float = 1e-7,
    tolerance_change: float = 1e-9,
    mode: Any = None,
) -> LBFGS:
    """Return a function that minimises a loss by L-BFGS over one vector of all parameters.

    The loop is SciPy's and runs on the host in float64; loss and gradients are computed in any mode. It is not
    PyTorch's ``LBFGS`` step by step, and it has no state between two calls.

    Parameters
    ----------
    loss
        A 0-d variable.
    params
        Shared variables.
    inputs
        The inputs of the loss.
    max_iter
        The largest number of iterations of a call.
    history_size
        The number of former steps from which the Hessian matrix is estimated.
    tolerance_grad
        It ends when no element of the gradient is larger.
    tolerance_change
        It ends when the loss falls by less than this part.
    mode
        The mode in which the loss is compiled.

    Examples
    --------
    >>> minimise = lbfgs(loss, params, [x, y], max_iter=200)
    >>> result = minimise(x_values, y_values)
    """
    options = {"maxiter": max_iter, "maxcor": history_size, "gtol": tolerance_grad, "ftol": tolerance_change}
    return LBFGS(loss, params, inputs, options, mode)
