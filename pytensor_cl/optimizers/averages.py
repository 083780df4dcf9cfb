"""Exponential moving averages of parameters."""

from collections.abc import Iterable, Mapping

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable

from pytensor_cl.optimizers.base import Updates
from pytensor_cl.optimizers.gradients import checked_params
from pytensor_cl.optimizers.numbers import as_type_of, fraction, numbers_as, working_dtype


def ema(
    updates: Mapping[SharedVariable, Variable],
    params: Iterable[SharedVariable],
    decay: float = 0.999,
    warm_up: bool = False,
) -> tuple[Updates, dict[str, SharedVariable]]:
    """Return updates that also average the parameters: a = decay a + (1 - decay) p, with the new p.

    The averages begin as copies. Those of float16 are float32, in which a thousandth of a difference is not lost. A
    step that `skip_nonfinite` leaves out does not change them.

    Parameters
    ----------
    updates
        The updates of the parameters.
    params
        The parameters that are averaged; running statistics of normalisations may be among them.
    decay
        The part of the average that stays.
    warm_up
        Use the smaller one of `decay` and (1 + t) / (10 + t), where t counts from 1, so that the first values are
        forgotten sooner.

    Returns
    -------
    tuple
        The updates, and the averages by their names, such as ``ema/w``.
    """
    decay, params = fraction("decay", decay), checked_params(params)
    updates = updates if isinstance(updates, Updates) else Updates(updates)
    averages, more = {}, {}
    share: Variable | None = None
    if warm_up:
        count = averages["ema/step"] = pytensor.shared(np.asarray(0, "int64"), name="ema/step")
        more[count] = count + 1
        with numbers_as("float64"):
            t = more[count].astype("float64")
            share = pt.minimum(decay, (1.0 + t) / (10.0 + t))
    for param in params:
        work = working_dtype(param.type.dtype)
        average = pytensor.shared(param.get_value().astype(work), name=f"ema/{param.name}", shape=param.type.shape)
        with numbers_as(work):
            kept = decay if share is None else share.astype(work)
            rest = 1 - decay if share is None else (1.0 - share).astype(work)
            more[average] = kept * average + rest * updates.get(param, param).astype(work)
        averages[average.name] = average
    for variable, value in more.items():
        if updates.finite is not None:
            value = pt.switch(updates.finite, value, variable)
        more[variable] = as_type_of(variable, value)
    return updates.derived(more), averages
