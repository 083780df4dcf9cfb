"""Base class of optimizers: options, the step count, the rate, slots for moments, and the state by name."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypedDict

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable

from pytensor_cl.optimizers.gradients import all_finite, checked_params, gradients
from pytensor_cl.optimizers.numbers import as_type_of, nonnegative, numbers_as, working_dtype
from pytensor_cl.optimizers.state import load_values, value_of

type Rate = float | Variable | Callable[[Variable], Any]


class Options(TypedDict, total=False):
    """Options that all rules have; see `Optimizer`."""

    weight_decay: float
    decay: Iterable[SharedVariable] | Callable[[SharedVariable], bool] | None
    moment_dtype: str | None
    skip_nonfinite: bool
    form: Literal["torch", "lasagne"]
    name: str | None


class Updates(dict[Variable, Variable]):
    """Updates as ``pytensor.function`` takes them: shared variable to expression.

    Attributes
    ----------
    optimizer
        The optimizer whose state is among them.
    finite
        A 0-d bool variable: the step is done. None if every step is.
    """

    optimizer: "Optimizer | None" = None
    finite: Variable | None = None

    def derived(self, more: Mapping[SharedVariable, Variable]) -> "Updates":
        """Return a copy with other or further updates."""
        result = Updates({**self, **more})
        result.optimizer, result.finite = self.optimizer, self.finite
        return result


class Slots:
    """The moments of one parameter by the names of their kinds, in the working dtype."""

    def __init__(self, optimizer: "Optimizer", param: SharedVariable, work: str) -> None:
        self._optimizer, self._param, self._work = optimizer, param, work
        self.new: dict[SharedVariable, Variable] = {}

    def __getitem__(self, kind: str) -> Variable:
        return self._optimizer.slot(kind, self._param).astype(self._work)

    def __setitem__(self, kind: str, value: Variable) -> None:
        self.new[self._optimizer.slot(kind, self._param)] = value


class Moment(NamedTuple):
    """Values of a step that are the same for all parameters."""

    t: Variable
    """The number of the step as float64, counted from 1."""
    rate: Variable
    """The learning rate as float64."""


_NAMES_HERE = {
    "lr": "learning_rate",
    "betas": "beta1 and beta2",
    "eps": "epsilon",
    "alpha": "rho",
    "amsgrad": "not offered",
    "params": "an argument of updates(loss, params)",
    "lr_decay": "a schedule as learning_rate",
}
"""Arguments of other libraries, and what they are."""


class Optimizer:
    """Base of all rules. A subclass gives `rule`, and `scalars` for what depends on the step alone.

    Parameters
    ----------
    learning_rate
        A number, which becomes a shared variable; a shared or other 0-d variable; or a schedule, a function of the
        number of steps done.
    weight_decay
        Times a parameter, is added to its gradient; for a rule with decoupled decay, see there.
    decay
        The parameters that the decay reaches: a list, or a function of a parameter. None: all.
    moment_dtype
        dtype of moments, such as "float32" for parameters of float16. None: the parameter's.
    skip_nonfinite
        Leave everything as it is, the step count too, if a gradient has an infinity or NaN.
    form
        "torch", as PyTorch computes it, or "lasagne", as Theano's libraries, PyMC and TensorFlow do.
    name
        First part of the names of the state; None: the rule's.
    """

    decoupled = False
    forms: tuple[str, ...] = ("torch", "lasagne")

    def __init__(
        self,
        learning_rate: Rate,
        *,
        weight_decay: float = 0.0,
        decay: Iterable[SharedVariable] | Callable[[SharedVariable], bool] | None = None,
        moment_dtype: str | None = None,
        skip_nonfinite: bool = False,
        form: str = "torch",
        name: str | None = None,
        **others: Any,
    ) -> None:
        for other in others:
            hint = f": it is {_NAMES_HERE[other]} here" if other in _NAMES_HERE else ""
            raise TypeError(f"{type(self).__name__}() got an unexpected keyword argument {other!r}{hint}")
        if form not in self.forms:
            raise ValueError(f"{type(self).__name__} has form={' or '.join(map(repr, self.forms))}; got {form!r}")
        if moment_dtype is not None and not str(moment_dtype).startswith("float"):
            raise TypeError(f"moment_dtype must be a floating-point dtype; got {moment_dtype!r}")
        self.name = type(self).__name__.lower() if name is None else name
        self.weight_decay = nonnegative("weight_decay", weight_decay)
        self.form, self.skip_nonfinite, self._moment_dtype = form, skip_nonfinite, moment_dtype
        self._decay = decay if decay is None or callable(decay) else list(decay)
        self._state: dict[str, SharedVariable] = {}
        self._params: dict[str, SharedVariable] = {}
        self.step = self.scalar_state("step", np.int64(0))
        self._rate = self._as_rate(learning_rate)

    def _as_rate(self, rate: Rate) -> Rate:
        if isinstance(rate, Variable):
            if rate.type.ndim or not rate.type.dtype.startswith("float"):
                raise TypeError(f"learning_rate must be a 0-d variable of floating-point numbers; got {rate.type}")
            if isinstance(rate, SharedVariable):
                self._state["learning_rate"] = rate
            return rate
        if callable(rate):
            return rate
        return self.scalar_state("learning_rate", np.float64(nonnegative("learning_rate", rate)))

    def scalar_state(self, kind: str, value: Any) -> SharedVariable:
        """Return a 0-d shared variable of the state, which is made at the first call."""
        if kind not in self._state:
            self._state[kind] = pytensor.shared(np.asarray(value), name=f"{self.name}/{kind}")
        return self._state[kind]

    def slot(self, kind: str, param: SharedVariable) -> SharedVariable:
        """Return the moment of a parameter, zeros of its static shape, which is made at the first call."""
        key = f"{kind}/{param.name}"
        if key not in self._state:
            value = np.zeros(param.get_value().shape, self._moment_dtype or param.type.dtype)
            self._state[key] = pytensor.shared(value, name=f"{self.name}/{key}", shape=param.type.shape)
        return self._state[key]

    @property
    def learning_rate(self) -> Variable:
        """The rate of the next step: a shared variable with `set_value`, unless it is a schedule or an expression."""
        if not callable(self._rate):
            return self._rate
        rate = pt.as_tensor(self._rate(self.step))
        if rate.type.ndim:
            raise TypeError(f"a schedule must return a 0-d variable for a 0-d step count; got {rate.type}")
        return rate

    @property
    def state(self) -> dict[str, SharedVariable]:
        """The shared variables by their names in files."""
        return {f"{self.name}/{key}": variable for key, variable in self._state.items()}

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return copies of the values of the state by name."""
        return {name: value_of(variable) for name, variable in self.state.items()}

    def load_state_dict(self, values: Mapping[str, Any]) -> None:
        """Set the state.

        Parameters
        ----------
        values
            The result of `state_dict`; the order does not matter.

        Raises
        ------
        ValueError
            If names, shapes or dtypes differ. The text lists all differences, and nothing has been changed.
        """
        load_values(self.state, values, f"the state of {self.name}")

    def _decayed(self, params: list[SharedVariable]) -> set[SharedVariable]:
        if not self.weight_decay:
            return set()
        if self._decay is None:
            return set(params)
        if callable(self._decay):
            return {param for param in params if self._decay(param)}
        others = [str(param) for param in self._decay if param not in params]
        if others:
            raise ValueError(f"decay lists what is not among the parameters: {', '.join(others)}")
        return set(self._decay)

    def has(self, variable: SharedVariable) -> bool:
        """Return whether a variable is one of the parameters."""
        return self._params.get(variable.name) is variable

    def _note(self, params: list[SharedVariable]) -> None:
        for param in params:
            if self._params.setdefault(param.name, param) is not param:
                raise ValueError(f"this optimizer already has the state of another parameter named {param.name}")

    def updates(self, loss_or_grads: Any, params: Iterable[SharedVariable]) -> Updates:
        """Return the updates of the parameters and of the state.

        Parameters
        ----------
        loss_or_grads
            A 0-d loss, or a list of gradients.
        params
            Shared variables with different names.

        Raises
        ------
        DisconnectedInputError
            If the loss does not depend on a parameter.
        """
        params = checked_params(params)
        grads = gradients(loss_or_grads, params)
        self._note(params)
        decayed, t = self._decayed(params), self.step + 1
        with numbers_as("float64"):
            now = Moment(t.astype("float64"), self.learning_rate.astype("float64"))
            scalars, new = self.scalars(now)
            if self.decoupled and decayed:
                scalars["shrink"] = 1.0 - now.rate * self.weight_decay
        result = Updates()
        for param, grad in zip(params, grads, strict=True):
            result |= self._updates_of(param, grad, scalars, param in decayed)
        result |= {self.step: t, **new}
        result.optimizer = self
        if self.skip_nonfinite and grads:
            result.finite = all_finite(grads)
            for variable, value in result.items():
                result[variable] = pt.switch(result.finite, value, variable)
        for variable, value in result.items():
            result[variable] = as_type_of(variable, value)
        return result

    __call__ = updates

    def _updates_of(
        self, param: SharedVariable, grad: Variable, scalars: Mapping[str, Variable], is_decayed: bool
    ) -> dict[SharedVariable, Variable]:
        """The updates of one parameter and its moments, before the cast to their dtypes."""
        work = working_dtype(param.type.dtype, self._moment_dtype or param.type.dtype)
        s = {name: value.astype(work) for name, value in scalars.items()}
        p, g, slots = param.astype(work), grad.astype(work), Slots(self, param, work)
        with numbers_as(work):
            if is_decayed and self.decoupled:
                p = p * s["shrink"]
            elif is_decayed:
                g = g + self.weight_decay * p
            value = self.rule(p, g, slots, s)
        return {param: value, **slots.new}

    def scalars(self, now: Moment) -> tuple[dict[str, Variable], dict[SharedVariable, Variable]]:
        """Return what `rule` gets in its last argument, computed in float64, and updates of 0-d state."""
        return {"rate": now.rate}, {}

    def rule(self, p: Variable, g: Variable, slots: Slots, s: Mapping[str, Variable]) -> Variable:
        """Return the new value of a parameter and store those of its moments in `slots`."""
        raise NotImplementedError
