"""The search of ``tune``: one parameter after the other, each candidate against the best values so far."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import exp, inf, log
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.cli.tuning_workloads import Workload
from pytensor_cl.errors import OpenCLError
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.tuning import PARAMETERS, Tuning

__all__ = ["Bench", "Trial", "candidates", "improve"]

TOLERANCE = 2e-5  # largest error relative to the largest element; sums in another order differ by less
ACCEPTED_RATIO = 0.97  # of the time so far: less is noise
MAX_SLOWDOWN = 1.25  # of the time so far that any workload may take: no workload may lose more than that
DROPPED = 1.2  # of the time so far, on the workloads until then: it will not catch up
SECONDS = 0.008  # a turn of one side: short, so that what disturbs one side disturbs the other
ROUNDS = 8

Call = Callable[[], tuple[GpuArray, ...]]


class Trial(NamedTuple):
    """The outcome of a candidate.

    Attributes
    ----------
    name, value
        The parameter and its value.
    ratio
        Time relative to the best values so far; infinite where it failed or was wrong.
    accepted
        Whether it became one of the best.
    """

    name: str
    value: int
    ratio: float
    accepted: bool


class _Prepared(NamedTuple):
    """A workload with its inputs on the device."""

    workload: Workload
    inputs: tuple[Any, ...]
    expected: np.ndarray


class Bench:
    """The workloads of a stage on a device.

    Parameters
    ----------
    context
        Its parameters are replaced while calls are made.
    workloads
        What is timed.
    seconds
        Seconds of a turn of one side.
    """

    def __init__(self, context: Context, workloads: Sequence[Workload], seconds: float = SECONDS) -> None:
        self.context = context
        self.seconds = seconds
        self._prepared = [self._prepare(workload) for workload in workloads]

    def _prepare(self, workload: Workload) -> _Prepared:
        arrays = workload.arrays()
        expected = workload.reference(*(a.astype("float64") for a in arrays), *workload.extra)
        return _Prepared(workload, (*map(self.context.from_host, arrays), *workload.extra), expected)

    def calls(self, values: Mapping[str, int]) -> list[Call] | None:
        """Return the routine of each workload with these parameters; None if a result is wrong or a build fails."""
        before, self.context.tuning = self.context.tuning, Tuning(values, "tune")
        try:
            made = [self._call(p) for p in self._prepared]
        except (OpenCLError, cl.Error):
            return None
        finally:
            self.context.tuning = before
        return [call for call in made if call is not None] if None not in made else None

    def _call(self, prepared: _Prepared) -> Call | None:
        routine = prepared.workload.routine(self.context)

        def call() -> tuple[GpuArray, ...]:
            return routine(*prepared.inputs)

        got = np.asarray(call()[0], "float64")
        if got.shape != prepared.expected.shape:
            return None
        error = np.abs(got - prepared.expected).max() / np.abs(prepared.expected).max()
        return call if error <= TOLERANCE else None

    def _best(self, call: Call, seconds: float) -> float:
        """Return the time of the fastest call of a round."""
        finish = self.context.queue.finish
        finish()
        best, end = inf, perf_counter() + seconds
        while True:
            start = perf_counter()
            call()
            finish()
            now = perf_counter()
            best = min(best, now - start)
            if now >= end:
                return best

    def ratio(self, calls: Sequence[Call], others: Sequence[Call], rounds: int = ROUNDS) -> float:
        """Return the geometric mean of relative times, or the relative time of a workload that is far slower.

        Parameters
        ----------
        calls, others
            What `calls` returned.
        rounds
            Of each side: they take turns. A side that is clearly slower is given up before the last workload.
        """
        logs: list[float] = []
        for call, other in zip(calls, others, strict=True):
            times = [(self._best(call, self.seconds), self._best(other, self.seconds)) for _ in range(rounds)]
            mine, its = (min(column) for column in zip(*times, strict=True))
            logs.append(log(mine / its))
            if mine > MAX_SLOWDOWN * its:
                return mine / its
            if exp(sum(logs) / len(logs)) > DROPPED:
                break
        return exp(sum(logs) / len(logs))


def candidates(stage: str, schedule: str) -> Iterator[tuple[str, int]]:
    """Yield the candidates: names of parameters, and values.

    Parameters
    ----------
    stage
        What the names begin with.
    schedule
        That of the device.
    """
    for name, parameter in PARAMETERS.items():
        if name.startswith(f"{stage}.") and parameter.schedule == schedule:
            yield from ((name, value) for value in (parameter.default, *parameter.candidates))


def improve(bench: Bench, values: dict[str, int], todo: Sequence[tuple[str, int]]) -> Iterator[Trial]:
    """Try candidates one after the other; `values` is updated by better ones.

    Parameters
    ----------
    bench
        What is timed.
    values
        All parameters; changed in place.
    todo
        Names and values.
    """
    best = bench.calls(values)
    if best is None:
        raise RuntimeError("the results are wrong with the parameters that are in use: see 'pytensor-cl doctor'")
    for name, value in todo:
        if values[name] == value:
            continue
        calls = bench.calls({**values, name: value})
        ratio = inf if calls is None else bench.ratio(calls, best)
        accepted = (
            calls is not None and ratio < ACCEPTED_RATIO and bench.ratio(calls, best, 2 * ROUNDS) < ACCEPTED_RATIO
        )
        if accepted and calls is not None:
            values[name], best = value, calls
        yield Trial(name, value, ratio, accepted)
