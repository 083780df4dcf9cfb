"""Every family of Ops that has kernels: importing this module registers their lifts."""

from pytensor_cl.rewriting import (
    advanced_subtensor,
    alloc,
    argmax,
    creation,
    cumop,
    diagonal,
    elemwise,
    gemm,
    gemv,
    join,
    reduction,
    shape,
    subtensor,
)

__all__ = [
    "advanced_subtensor",
    "alloc",
    "argmax",
    "creation",
    "cumop",
    "diagonal",
    "elemwise",
    "gemm",
    "gemv",
    "join",
    "reduction",
    "shape",
    "subtensor",
]
