"""Offsets of partial results between the passes of a reduction, and that both passes run."""

import numpy as np
import pytest

from pytensor_cl.routines.argmax import Argmax
from pytensor_cl.routines.base.routine import SCHEDULES
from pytensor_cl.routines.base.two_pass import PartialResults, TwoPass
from pytensor_cl.routines.gemv.routine import Gemv
from pytensor_cl.routines.reduction.routine import Reduction


def test_partial_results_do_not_overlap():
    accumulators = [("float64", False), ("float32", True), ("int8", False), ("complex128", False)]
    partials = PartialResults.of(5, accumulators)
    sizes = [(1 + is_compensated) * 5 * np.dtype(dtype).itemsize for dtype, is_compensated in accumulators]
    ends = [offset + size for offset, size in zip(partials.offsets, sizes, strict=True)]
    assert all(offset % 64 == 0 for offset in partials.offsets)
    assert all(end <= after for end, after in zip(ends, (*partials.offsets[1:], partials.nbytes), strict=True))


def test_one_pass_needs_no_partial_results(context):
    assert PartialResults.of(0, [("float64", True), ("int64", False)]) == ((0, 0), 0)
    assert PartialResults.of(7, []) == ((), 0)
    assert TwoPass().allocate(context) is None


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_both_passes_run(context, rng, schedule):
    x = rng.standard_normal(2_000_003).astype("float32")
    device = context.from_host(x)
    total = Reduction(context, "add", "float32", "float64", "float64", 1, schedule=schedule)
    best = Argmax(context, "float32", 1, schedule=schedule)
    product = Gemv(context, "float32", schedule=schedule)
    np.testing.assert_allclose(total(device)[0].to_host(), x.sum(dtype="float64"), rtol=1e-12, atol=1e-9)
    assert best(device)[0].to_host() == x.argmax()
    got = product(context.from_host(x[None]), device)[0].to_host()
    np.testing.assert_allclose(got, [(x.astype("float64") ** 2).sum()], rtol=1e-4)
    passes = [*total._plans._plans.values(), *best._plans._plans.values()]
    passes += [plan.passes for plan in product._plans._plans.values()]
    assert len(passes) == 3
    assert all(plan.first and plan.final is not None and plan.partial_bytes for plan in passes)
