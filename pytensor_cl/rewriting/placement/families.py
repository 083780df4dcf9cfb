"""Every family of Ops that has kernels: importing this module registers their lifts."""

from pytensor_cl.rewriting.lift import (
    alloc,
    argmax,
    blas,
    blockwise,
    conv,
    creation,
    cumop,
    elemwise,
    fft,
    indexing,
    join,
    nonzero,
    pool,
    reduction,
    repeat,
    shape,
    sort,
)
from pytensor_cl.rewriting.lowering import ifelse, sparse

__all__ = [
    "alloc",
    "argmax",
    "blas",
    "blockwise",
    "conv",
    "creation",
    "cumop",
    "elemwise",
    "fft",
    "ifelse",
    "indexing",
    "join",
    "nonzero",
    "pool",
    "reduction",
    "repeat",
    "shape",
    "sort",
    "sparse",
]
