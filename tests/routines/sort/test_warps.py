"""The radix sort that ranks elements by votes of a warp, which NVIDIA's GPUs have; here local memory stands in for them."""

from dataclasses import replace

import numpy as np
import pytest

from pytensor_cl.routines.sort import plan as sort_plan
from pytensor_cl.routines.sort import routine as module
from pytensor_cl.routines.sort.routine import ArgSort, Sort, SortIndices
from pytensor_cl.runtime.context import Context, Settings

BALLOT = """
static inline uint warp_ballot_in(__local int *votes, const int predicate)
{
    const int item = get_local_id(0);
    votes[item] = predicate;
    barrier(CLK_LOCAL_MEM_FENCE);
    uint mask = 0;
    for (int k = 0; k < 32; ++k)
        mask |= votes[item / 32 * 32 + k] ? 1u << k : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    return mask;
}

static inline uint warp_match_in(__local int *votes, const int number, const int bits)
{
    uint mask = 0xffffffffu;
    for (int b = 0; b < bits; ++b) {
        const uint others = warp_ballot_in(votes, number >> b & 1);
        mask &= number >> b & 1 ? others : ~others;
    }
    return mask;
}

#define warp_match(number, bits) warp_match_in(votes, number, bits)
#define warp_barrier() barrier(CLK_LOCAL_MEM_FENCE)
"""


def without_instructions(source):
    """Replace the votes by local memory, which the kernels have beside their other arrays."""
    begin, end = source.source.index("static inline uint warp_ballot"), source.source.index("typedef")
    assert "asm volatile" in source.source[begin:end]
    text = source.source[:begin] + BALLOT + source.source[end:]
    assert "asm" not in text
    return source._replace(
        source=text.replace("__local uint starts[", "__local int votes[1024];\n__local uint starts[")
    )


@pytest.fixture
def by_warps(context, monkeypatch):
    """Return a context whose device has the instructions, and the number of texts in which they were replaced."""
    made = []

    def render(name, **arguments):
        source = kernel_source(name, **arguments)
        if not arguments.get("by_warps"):
            return source
        made.append(source)
        return without_instructions(source)

    kernel_source = module.kernel_source
    monkeypatch.setattr(module, "kernel_source", render)
    monkeypatch.setattr(sort_plan, "MAX_NETWORK_ROW", 0)
    features = replace(context.info.features, warp_votes=True)
    return Context(context.name, context.entry, Settings(features=features)), made


@pytest.mark.parametrize("kind", [Sort, ArgSort])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "int64"])
def test_sorts(by_warps, rng, monkeypatch, kind, dtype):
    monkeypatch.setattr(module, "MAX_ITEM_ELEMENTS", 2)
    context, made = by_warps
    routine = kind(context, dtype, 2, 1, schedule="simt")
    for shape in ((1, 1), (3, 511), (2, 513), (1, 1024), (1, 5000)):
        host = rng.integers(-900, 900, shape).astype(dtype)
        (got,) = routine(context.from_host(host))
        wanted = np.sort(host) if kind is Sort else np.argsort(host, kind="stable")
        np.testing.assert_array_equal(got.to_host(), wanted, err_msg=str(shape))
    assert made


@pytest.mark.parametrize("limit", [1, 2, 200, 256, 257, 512, 513, 100_000])
@pytest.mark.parametrize("with_warps", [False, True])
def test_indices(request, context, rng, limit, with_warps):
    if with_warps:
        context, made = request.getfixturevalue("by_warps")
    routine = SortIndices(context, "uint32", limit)
    for n in (1, 31, 2047, 2049, 70_000):
        host = rng.integers(0, limit, n).astype("uint32")
        keys, order = (got.to_host() for got in routine.sort(context.from_host(host)))
        wanted = np.argsort(host, kind="stable")
        np.testing.assert_array_equal(order, wanted, err_msg=f"{n}")
        np.testing.assert_array_equal(keys, host[wanted], err_msg=f"{n}")
    assert not with_warps or made
