"""Reductions whose last work-group adds up the partial results (``kernels/reduction/simt.mako``)."""

from dataclasses import replace

import numpy as np
import pytest

from pytensor_cl.routines.reduction.routine import Reduction
from pytensor_cl.runtime.context import Context, Settings
from pytensor_cl.runtime.tuning import DEFAULTS

CASES = [  # shape, axes, operation, dtype, dtype of the accumulators
    ((100_003,), (0,), "add", "float32", "float64"),
    ((7, 50_001), (1,), "maximum", "float32", "float32"),
    ((30_001, 33), (0,), "add", "int32", "int64"),
    ((50_001, 7), (0,), "add", "complex64", "complex64"),
]


def launched(context, monkeypatch):
    """Count the launches of a context."""
    found, enqueue = [], context.queue._enqueue
    monkeypatch.setattr(context.queue, "_enqueue", lambda *a, **k: found.append(a) or enqueue(*a, **k))
    return found


@pytest.fixture(autouse=True)
def in_one_launch(monkeypatch):
    """The passes are joined on request."""
    monkeypatch.setitem(DEFAULTS, "reduction.one_launch", 1)


def test_of_two_contexts_by_turns(context, rng, monkeypatch):
    """Each has a queue and counters of its own, which kernels of any sizes leave zero."""
    features = replace(context.info.features, last_group=True)
    able = [Context(f"{context.name}{k}", context.entry, Settings(features=features)) for k in range(2)]
    calls = []
    for shape, axes, operation, dtype, acc in CASES:
        host = (rng.normal(size=shape) * 50).astype(dtype)
        want = host.astype(np.result_type(acc, "float64") if acc != "int64" else acc)
        want = want.max(axes) if operation == "maximum" else want.sum(axes)
        for c in able:
            routine = Reduction(c, operation, dtype, acc, acc, host.ndim, axes, schedule="simt")
            calls.append((routine, c.from_host(host), want))
    launches = [launched(c, monkeypatch) for c in able]
    results = [[routine(array)[0] for routine, array, _ in calls] for _ in range(5)]
    for round_of_results in results:
        for got, first, (routine, _, want) in zip(round_of_results, results[0], calls, strict=True):
            tolerance = 1e-4 if routine.acc_dtype == "complex64" else 1e-12
            np.testing.assert_allclose(got.to_host(), want, rtol=tolerance, atol=tolerance * 1e4)
            np.testing.assert_array_equal(got.to_host(), first.to_host())
            assert all(plan.joins for plan in routine._plans._plans.values())
    assert [len(found) for found in launches] == [5 * len(CASES)] * 2
    assert not any(c.counters.to_host().any() for c in able)


def test_two_launches_where_one_would_be_slow(context, rng, monkeypatch):
    """Reductions of many partial results for each work-item, and of drivers without the feature."""
    host = rng.integers(0, 9, 70_001)
    able = Context(context.name, context.entry, Settings(features=replace(context.info.features, last_group=True)))
    monkeypatch.setattr("pytensor_cl.routines.reduction.plan.MAX_JOINED_PARTS", 0)
    for c in (able, context):
        routine = Reduction(c, "add", "int64", "int64", "int64", 1, schedule="simt")
        assert routine(c.from_host(host))[0].to_host() == host.sum()
        (plan,) = routine._plans._plans.values()
        assert plan.final is not None
