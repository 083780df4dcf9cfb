"""Arrays in local memory with gaps: work-items of a warp are in different banks."""

import pytest

from pytensor_cl.codegen.local_memory import BANK, ROW, gap, padded_size, per_gap

RUN = 8  # elements of a work-item


def turns(elements, itemsize):
    """Return the turns of 32 banks that an access of a warp takes, as a multiple of the fewest."""
    at_once = min(32, ROW // itemsize)  # work-items whose elements the banks can hold
    worst = 0
    for first in range(0, 32, at_once):
        words = {
            word
            for k in elements[first : first + at_once]
            for place in [(k + k // per_gap(itemsize) * gap(itemsize)) * itemsize]
            for word in range(place // BANK, (place + itemsize - 1) // BANK + 1)
        }
        banks = [word % 32 for word in words]
        worst = max(worst, *(banks.count(bank) for bank in banks))
    return worst


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 16])
def test_no_bank_conflicts(itemsize):
    assert turns([*range(64, 96)], itemsize) == 1
    for k in range(RUN):
        assert turns([item * RUN + k for item in range(32)], itemsize) == 1


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 16])
def test_the_last_element_is_inside(itemsize):
    count = 1024
    last = count - 1 + (count - 1) // per_gap(itemsize) * gap(itemsize)
    assert last < padded_size(count, itemsize)
