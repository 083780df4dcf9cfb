"""The state of a PyTorch optimizer in the form that `load_state_dict` takes."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable

from pytensor_cl.optimizers.gradients import checked_params

_KINDS = {"exp_inf": "adamax", "mu_product": "nadam", "acc_delta": "adadelta", "sum": "adagrad"}
"""Slots that one rule alone has."""


def _rule(slots: Iterable[str], group: Mapping[str, Any]) -> str:
    """Return the name of the rule that has such a state."""
    slots = set(slots)
    for slot, name in _KINDS.items():
        if slot in slots:
            return name
    if "square_avg" in slots:
        return "rmsprop"
    if "exp_avg_sq" in slots:
        return "adamw" if group.get("decoupled_weight_decay") else "adam"
    if "momentum_buffer" in slots:
        return "nesterov" if group.get("nesterov") else "momentum"
    if slots <= {"step"} and "momentum" in group:
        return "sgd"
    raise ValueError(f"no rule here has the slots {sorted(slots)} of this state")


def _only(what: str, values: Iterable[Any], default: Any = None) -> Any:
    """Return the value that all have."""
    found = {float(value) for value in values}
    if len(found) > 1:
        raise ValueError(f"the parameters have different values of {what}: {sorted(found)}; here they share one")
    return found.pop() if found else default


def _is_used(slot: str, group: Mapping[str, Any]) -> bool:
    """Return whether a slot has a place here: PyTorch keeps some that an option has switched off."""
    return slot not in ("step", "mu_product") and not (slot == "momentum_buffer" and not group.get("momentum", 1))


def from_torch(
    state_dict: Mapping[str, Any],
    params: Iterable[SharedVariable],
    *,
    transpose: Iterable[str] = (),
    name: str | None = None,
) -> dict[str, np.ndarray]:
    """Return the state of a PyTorch optimizer by the names of parameters, for `load_state_dict`.

    Parameters
    ----------
    state_dict
        The result of PyTorch's ``optimizer.state_dict()``.
    params
        The parameters here, in PyTorch's order: its state has positions only.
    transpose
        Names of the parameters that are matrices transposed here, as weights of ``torch.nn.Linear`` for ``x @ w``.
    name
        The optimizer's name here; None: it is found from the state.

    Returns
    -------
    dict
        Name to array. PyTorch's SGD does not count steps: the count is 1 if there is momentum, else 0, unless you set
        it. An optimizer with a schedule has no rate in its state: take the key ``<name>/learning_rate`` out.

    Raises
    ------
    ValueError
        If the number of parameters or a shape differs, or groups differ in their rates.
    """
    params = checked_params(params)
    groups, states = state_dict["param_groups"], state_dict["state"]
    positions = [position for group in groups for position in group["params"]]
    if len(positions) != len(params):
        raise ValueError(f"the state is that of {len(positions)} parameters; {len(params)} are given")
    slots = {slot for state in states.values() for slot, value in state.items() if value is not None}
    prefix = _rule(slots, groups[0]) if name is None else name
    counted = _only("step", (state["step"] for state in states.values() if "step" in state), 1.0 if slots else 0.0)
    found = {f"{prefix}/step": np.array(counted, "int64")}
    found[f"{prefix}/learning_rate"] = np.array(_only("lr", (group["lr"] for group in groups)), "float64")
    if "mu_product" in slots:
        product = _only("mu_product", (state["mu_product"] for state in states.values()))
        found[f"{prefix}/mu_product"] = np.array(product, "float64")
    turned = set(transpose)
    for position, param in zip(positions, params, strict=True):
        for slot, value in states.get(position, {}).items():
            if value is None or not _is_used(slot, groups[0]):
                continue
            array = np.asarray(value)
            array = np.array(array.T if param.name in turned else array, order="C")
            if array.shape != param.get_value().shape:
                shapes = f"{array.shape}, the parameter {param.get_value().shape}"
                raise ValueError(f"{slot} of parameter {position} for {param.name} has shape {shapes}")
            found[f"{prefix}/{slot}/{param.name}"] = array
    return found
