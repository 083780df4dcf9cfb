"""Every family of Ops that has kernels: importing this module registers their lifts."""

from pytensor_cl.rewriting import (
    alloc,
    elemwise,
    gemm,
    gemv,
    join,
    reduction,
    shape,
    subtensor,
)

__all__ = [
    "alloc",
    "elemwise",
    "gemm",
    "gemv",
    "join",
    "reduction",
    "shape",
    "subtensor",
]
