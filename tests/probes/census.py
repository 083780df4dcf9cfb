"""Every Op class of the installed PyTensor, in groups; and which of them do not count, and why."""

import importlib
import inspect
import pkgutil
import warnings
from collections.abc import Iterator

import pytensor
from pytensor.graph.op import Op

__all__ = ["GROUPS", "LEFT_OUT", "Group", "group_of", "ops", "title"]

# PyTensor's linkers define no Op that counts, and importing `pytensor.link.c.lazylinker_c` compiles C code.
_SKIPPED = (".ipython", "pytensor.bin", "pytensor.link.", ".kanren", "check_duplicate_key")

# Why a class does not count. A name that ends with "." or "_" stands for all that start with it.
BASE, INTERNAL, C_ONLY = "a base class", "made by a backend or a rewrite for itself", "for the C linker"
LEFT_OUT = {
    "pytensor.compile.builders.FinalizedOpFromGraph": INTERNAL,
    "pytensor.compile.builders.SymbolicOp": BASE,
    "pytensor.compile.debug.debugmode.OutputGuard": INTERNAL,
    "pytensor.compile.ops.TypeCastingOp": BASE,
    "pytensor.graph.fg.Output": INTERNAL,
    "pytensor.graph.op._NoPythonOp": BASE,
    "pytensor.link.": BASE,
    "pytensor.scalar.basic.BinaryBitOp": BASE,
    "pytensor.scalar.basic.BinaryScalarOp": BASE,
    "pytensor.scalar.basic.FixedLogicalComparison": BASE,
    "pytensor.scalar.basic.LogicalComparison": BASE,
    "pytensor.scalar.basic.ScalarInnerGraphOp": BASE,
    "pytensor.scalar.basic.ScalarOp": BASE,
    "pytensor.scalar.basic.UnaryBitOp": BASE,
    "pytensor.scalar.basic.UnaryScalarOp": BASE,
    "pytensor.sparse.math.__ComparisonOpSparseDense": BASE,
    "pytensor.sparse.math.__ComparisonOpSparseSparse": BASE,
    "pytensor.sparse.rewriting.": C_ONLY,
    "pytensor.tensor.blas.blas_c.": C_ONLY,
    "pytensor.tensor.blockwise.BlockwiseWithCoreShape": INTERNAL,
    "pytensor.tensor.blockwise.OpWithCoreShape": BASE,
    "pytensor.tensor.linalg.solvers.core.SolveBase": BASE,
    "pytensor.tensor.math.FixedOpCAReduce": BASE,
    "pytensor.tensor.math.MaxAndMinCAReduce": BASE,
    "pytensor.tensor.math.NonZeroDimsCAReduce": BASE,
    "pytensor.tensor.random.op.AbstractRNGConstructor": BASE,
    "pytensor.tensor.random.op.RandomVariable": BASE,
    "pytensor.tensor.random.op.RandomVariableWithCoreShape": INTERNAL,
    "pytensor.tensor.random.basic.ScipyRandomVariable": BASE,
    "pytensor.tensor.rewriting.": INTERNAL,
    "pytensor.tensor.symbolic.FusibleSymbolicOp": BASE,
    "pytensor.tensor.symbolic.TensorSymbolicOp": BASE,
    "pytensor.xtensor.basic.XOp": BASE,
    "pytensor.xtensor.basic.XTypeCastOp": BASE,
}

_PREFIXES = tuple(name for name in LEFT_OUT if name.endswith((".", "_")))

# Title of a group, the names that it takes (the first match decides), and what its Ops count as.
NUMERIC, SEPARATE, HOST = "numeric", "separate", "host"
Group = tuple[str, tuple[str, ...], str]
GROUPS: tuple[Group, ...] = (
    ("Scalar functions (Elemwise)", ("pytensor.scalar.", "pytensor.tensor.math.MulWithoutZeros"), NUMERIC),
    ("Dense linear algebra", ("pytensor.tensor.linalg.",), SEPARATE),
    ("Random draws", ("pytensor.tensor.random.",), SEPARATE),
    ("Scan", ("pytensor.scan.",), SEPARATE),
    ("Searches for minima and roots", ("pytensor.tensor.optimize.",), HOST),
    (
        "Shapes, indices and scalars of the host",
        (
            "pytensor.tensor.shape.Shape",
            "pytensor.tensor.basic.ScalarFromTensor",
            "pytensor.tensor.basic.TensorFromScalar",
            "pytensor.tensor.type_other.MakeSlice",
            "pytensor.compile.ops.DeepCopyOp",
            "pytensor.compile.ops.FromFunctionOp",
        ),
        HOST,
    ),
    (
        "Products and convolutions",
        ("pytensor.tensor.blas.", "pytensor.tensor.math.Dot", "pytensor.tensor.signal."),
        NUMERIC,
    ),
    (
        "Elementwise, dimensions, reductions",
        ("pytensor.tensor.elemwise.", "pytensor.tensor.math.", "pytensor.tensor.sort.", "pytensor.tensor.special."),
        NUMERIC,
    ),
    ("Indexing", ("pytensor.tensor.subtensor.",), NUMERIC),
    ("Other tensor Ops", ("pytensor.tensor.",), NUMERIC),
    ("XTensor", ("pytensor.xtensor.random.",), HOST),
    ("XTensor", ("pytensor.xtensor.",), NUMERIC),
    ("Sparse matrices", ("pytensor.sparse.",), SEPARATE),
    ("Typed lists", ("pytensor.typed_list.",), HOST),
    ("Prints and breakpoints", ("pytensor.printing.", "pytensor.breakpoint."), HOST),
    ("Graphs, branches, checks, gradients", ("pytensor.",), NUMERIC),
)


def title(op: type[Op]) -> str:
    """Return the class's full name."""
    return f"{op.__module__}.{op.__qualname__}"


def group_of(op: type[Op]) -> Group:
    """Return the group of an Op class."""
    return next(group for group in GROUPS if title(op).startswith(group[1]))


def _import_all() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in pkgutil.walk_packages(pytensor.__path__, "pytensor."):
            if not any(part in module.name for part in _SKIPPED):
                importlib.import_module(module.name)


def _subclasses(of: type) -> Iterator[type]:
    for kind in of.__subclasses__():
        yield kind
        yield from _subclasses(kind)


def _counts(op: type[Op]) -> bool:
    is_left_out = title(op) in LEFT_OUT or title(op).startswith(_PREFIXES)
    return not inspect.isabstract(op) and not is_left_out


def ops() -> list[type[Op]]:
    """Return the concrete Op classes that a user's graph can contain."""
    _import_all()
    found = {title(op): op for op in _subclasses(Op) if op.__module__.startswith("pytensor.")}
    return [found[name] for name in sorted(found) if _counts(found[name])]
