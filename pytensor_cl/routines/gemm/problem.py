"""Canonical form of a matrix product, and the structs that its kernels take."""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.template import render
from pytensor_cl.runtime.layout import Layout, collapse

_BATCH_DIMS = 4  # length of gemm_operand.batch; further dimensions become several launches
GEMM_OPERAND = Struct(("long", f"start row col batch[{_BATCH_DIMS}]"), name="gemm_operand")
GEMM_PLAN = Struct(
    ("long", "m n k"),
    ("long", "mc kc pack_a pack_b packed_b_size workspace_size shared_b_size prefetch triangle"),
    ("long", "split_k split_k_start"),
    ("long", f"batch_count batch_shape[{_BATCH_DIMS}]"),
    (GEMM_OPERAND, "a b c o"),
    name="gemm_plan",
)


class GemmProblem(NamedTuple):
    """A product whose batch dimensions and m are merged as far as all operands allow.

    The strides are those of the batch dimensions, then of rows and columns.
    """

    m: int
    n: int
    k: int
    batch: tuple[int, ...]
    a: tuple[int, ...]
    b: tuple[int, ...]
    c: tuple[int, ...]
    o: tuple[int, ...]
    epilogue_operands: tuple[tuple[int, ...], ...] = ()
    triangle: int = 0  # 1: only the lower triangle of each output is used; -1: the upper one; 0: all

    @property
    def batch_count(self) -> int:
        """Number of products."""
        return prod(self.batch)

    @property
    def launch_batch_count(self) -> int:
        """Number of products of a launch."""
        return prod(self.batch[-_BATCH_DIMS:])

    @property
    def multiply_adds(self) -> int:
        """Number of multiply-adds, at least one for each element."""
        return self.m * self.n * max(1, self.k) * self.batch_count

    def transposed(self) -> "GemmProblem":
        """Return the product ``C.T = B.T @ A.T``."""

        def swapped(x: tuple[int, ...]) -> tuple[int, ...]:
            return (*x[:-2], x[-1], x[-2])

        a, b, c, o = swapped(self.b), swapped(self.a), swapped(self.c), swapped(self.o)
        return GemmProblem(self.n, self.m, self.k, self.batch, a, b, c, o, triangle=-self.triangle)


class CpuBlocking(NamedTuple):
    """Blocking of a product on schedule cpu: fields of gemm_plan (``kernels/gemm/plan.mako``)."""

    mc: int = 1
    kc: int = 1
    pack_a: bool = False
    pack_b: bool = False
    packed_b_size: int = 0
    workspace_size: int = 0
    shared_b_size: int = 0
    prefetch: bool = False
    triangle: int = 0
    split_k: int = 1
    split_k_start: int = 0


def plan_preamble() -> str:
    """Return the OpenCL C that kernels of the gemm family share: structs, partition, function attributes."""
    return render("gemm/plan", operand=GEMM_OPERAND, plan=GEMM_PLAN)


def canonical_problem(a: Layout, b: Layout, c: Layout, o: Layout, *epilogue_operands: Layout) -> GemmProblem:
    """Merge batch dimensions, and those along which B repeats into m, so that few large products remain.

    `a`, `b`, `c`, `o`, `epilogue_operands`: layouts with the same batch dimensions before the last two.
    """
    n, k = b.shape[-1], a.shape[-1]
    b_rows = (*b.strides[:-2], 0)  # B is the same for every row of A
    others = (c, o, *epilogue_operands)
    shape, strides = collapse(a.shape[:-1], (a.strides[:-1], b_rows, *(x.strides[:-1] for x in others)))
    if not shape or strides[1][-1] != 0:  # the last one is a batch dimension: m was 1
        shape, strides = (*shape, 1), tuple((*s, 0) for s in strides)
    a_rows, b_rows, *other_rows = strides
    c_strides, o_strides, *extra = ((*row, x.strides[-1]) for row, x in zip(other_rows, others, strict=True))
    a_strides, b_strides = (*a_rows, a.strides[-1]), (*b_rows[:-1], *b.strides[-2:])
    return GemmProblem(shape[-1], n, k, shape[:-1], a_strides, b_strides, c_strides, o_strides, tuple(extra))


def _offsets(shape: Sequence[int], strides: Sequence[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    """Offsets of each operand for every index of the batch dimensions that the struct has no room for."""
    for index in product(*map(range, shape)):
        yield tuple(sum(i * s for i, s in zip(index, row, strict=False)) for row in strides)


def _encode_operands(p: GemmProblem, operands: Sequence[tuple[int, ...]]) -> list[list[bytes]]:
    """Pack a gemm_operand of each, for each launch."""
    outer = max(0, len(p.batch) - _BATCH_DIMS)
    lead = (0,) * (_BATCH_DIMS - len(p.batch) + outer)
    return [
        [
            GEMM_OPERAND.pack(start=at, row=x[-2], col=x[-1], batch=(*lead, *x[outer:-2]))
            for at, x in zip(offsets, operands, strict=True)
        ]
        for offsets in _offsets(p.batch[:outer], operands)
    ]


def encode(p: GemmProblem, blocking: CpuBlocking, has_epilogue: bool) -> tuple[tuple[bytes, ...], ...]:
    """Pack for each launch a gemm_plan, and the operands of an epilogue, of which there is one at least."""
    inner = ((1,) * _BATCH_DIMS + p.batch)[-_BATCH_DIMS:]
    sizes = {"m": p.m, "n": p.n, "k": p.k, "batch_count": prod(inner), "batch_shape": inner}
    plans = [
        GEMM_PLAN.pack(**sizes, **blocking._asdict(), a=a, b=b, c=c, o=o)
        for a, b, c, o in _encode_operands(p, (p.a, p.b, p.c, p.o))
    ]
    if not has_epilogue:
        return tuple((plan,) for plan in plans)
    extra = (b"".join(operands) or bytes(GEMM_OPERAND.size) for operands in _encode_operands(p, p.epilogue_operands))
    return tuple(zip(plans, extra, strict=True))
