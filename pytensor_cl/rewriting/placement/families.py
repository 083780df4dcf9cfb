"""Every family of Ops that has kernels: importing this module registers their lifts."""

from pytensor_cl.rewriting.lift import (
    alloc,
    argmax,
    conv,
    creation,
    cumop,
    elemwise,
    fft,
    gemm,
    gemv,
    join,
    nonzero,
    pool,
    reduction,
    repeat,
    shape,
)
from pytensor_cl.rewriting.lift.indexing import (
    diagonal,
    gather_scatter,
    permute_row_elements,
    ravel_multi_index,
    slice_update,
    take_along_axis,
)
from pytensor_cl.rewriting.lift.sort import searchsorted, sort, unique
from pytensor_cl.rewriting.lowering import ifelse, sparse

__all__ = [
    "alloc",
    "argmax",
    "conv",
    "creation",
    "cumop",
    "diagonal",
    "elemwise",
    "fft",
    "gather_scatter",
    "gemm",
    "gemv",
    "ifelse",
    "join",
    "nonzero",
    "permute_row_elements",
    "pool",
    "ravel_multi_index",
    "reduction",
    "repeat",
    "searchsorted",
    "shape",
    "slice_update",
    "sort",
    "sparse",
    "take_along_axis",
    "unique",
]
