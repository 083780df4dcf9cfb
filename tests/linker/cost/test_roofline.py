"""The least time that the host needs: of the right order, and never more for less."""

import pytensor.tensor as pt
import pytest

from pytensor_cl.linker.cost.roofline import (
    BYTES_PER_SECOND,
    BYTES_PER_SECOND_OF_CACHE,
    FLOPS,
    HARD,
    SIMPLE,
    roofline_seconds,
)

x, m, n = pt.fvector("x"), pt.fmatrix("m"), pt.fmatrix("n")


def test_memory_or_arithmetic_whichever_takes_longer():
    simple, hard = (x + 1).owner, pt.exp(x).owner
    assert roofline_seconds(hard, [(1000,)], [(1000,)]) == pytest.approx(1000 * HARD)
    assert roofline_seconds(simple, [(1000,), (1,)], [(1000,)]) == pytest.approx(
        max(4 * (1000 + 1 + 1000) / BYTES_PER_SECOND_OF_CACHE, 1000 * SIMPLE), rel=0.01
    )
    large = 1 << 24
    assert roofline_seconds(simple, [(large,), (1,)], [(large,)]) == pytest.approx(
        8 * large / BYTES_PER_SECOND, rel=0.01
    )


@pytest.mark.parametrize("value", [pt.clip(x, -1, 1), pt.switch(x > 0, x * 2, -x), pt.floor(x), pt.isnan(x)])
def test_a_chain_of_vector_instructions_is_no_obstacle(value):
    """NUMBA took 34 us for a dozen such steps on 100,000 numbers; a higher bound keeps it from being tried."""
    shapes = [(100_000,)[: v.type.ndim] for v in value.owner.inputs]
    assert roofline_seconds(value.owner, shapes, [(100_000,)]) < 1e-5


def test_products_count_every_multiplication():
    node = pt.dot(m, n).owner
    seconds = roofline_seconds(node, [(1000, 2000), (2000, 3000)], [(1000, 3000)])
    assert seconds == pytest.approx(2 * 1000 * 2000 * 3000 / FLOPS)


@pytest.mark.parametrize("value", [m.T, m.shape, m.reshape((3, 2))])
def test_what_touches_no_data_takes_no_time(value):
    assert roofline_seconds(value.owner, [(1000, 1000)], [(1000, 1000)]) == 0


def test_nothing_takes_no_time():
    assert roofline_seconds(pt.exp(x).owner, [(0,)], [(0,)]) == 0
