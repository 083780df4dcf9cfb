"""Averages in the place of the weights, for a while."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from pytensor.compile.sharedvalue import SharedVariable


@contextmanager
def swapped(params: Iterable[SharedVariable], averages: Mapping[str, SharedVariable]) -> Iterator[None]:
    """Give parameters the values of their averages inside of a ``with`` block, and their own ones after it.

    Parameters
    ----------
    params
        The parameters.
    averages
        The averages that `pytensor_cl.optimizers.ema` returned.

    Raises
    ------
    ValueError
        If a parameter has no average.

    Examples
    --------
    >>> with swapped(params, averages):
    ...     predicted = predict(x)
    """
    params = list(params)
    missing = [str(param.name) for param in params if f"ema/{param.name}" not in averages]
    if missing:
        raise ValueError(f"these parameters have no average: {', '.join(missing)}")
    own = [param.get_value() for param in params]
    try:
        for param in params:
            param.set_value(averages[f"ema/{param.name}"].get_value().astype(param.type.dtype))
        yield
    finally:
        for param, value in zip(params, own, strict=True):
            param.set_value(value)
