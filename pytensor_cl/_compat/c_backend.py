"""PyTensor's C backend: compilation of a whole graph, and the errors of its calls."""

import sys
import warnings
from collections.abc import Callable, Collection, Sequence
from functools import wraps
from typing import Any

from pytensor import config
from pytensor.compile import executor
from pytensor.compile.io import In, Out
from pytensor.compile.maker import FunctionMaker
from pytensor.compile.mode import Mode, optdb
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.db import RewriteDatabase, RewriteDatabaseQuery
from pytensor.link import vm
from pytensor.link.c.basic import _CThunk
from pytensor.link.vm import VMLinker
from pytensor.tensor.random.type import RandomGeneratorType


def explain_call_errors(explain: Callable[[BaseException, Sequence[tuple[Any, Any]]], BaseException]) -> None:
    """Let a function replace the exceptions of calls by PyTensor's C and Python backends."""
    for module in (executor, vm):
        original = module.raise_with_op

        @wraps(original)
        def raise_with_op(
            fgraph: FunctionGraph,
            node: Apply,
            thunk: Any = None,
            exc_info: Any = None,
            storage_map: Any = None,
            _original: Any = original,
        ) -> Any:
            kind, error, trace = exc_info or sys.exc_info()
            pairs = list(zip(node.inputs, getattr(thunk, "inputs", ()), strict=False))
            other = explain(error, list(storage_map.items()) if storage_map else pairs)  # type: ignore[arg-type]
            if other is not error:
                kind, error = type(other), other
            _original(fgraph, node, thunk, (kind, error, trace), storage_map)

        module.raise_with_op = raise_with_op

    find_task = _CThunk.find_task

    @wraps(find_task)
    def find_failed(self: Any, failure_code: int) -> Any:  # called when the C code of a node or of a graph fails
        kind, error, _ = self.error_storage
        raised = kind(error) if isinstance(kind, type) and isinstance(error, str) else error
        other = explain(raised, []) if isinstance(raised, BaseException) else raised
        if other is not raised:
            self.error_storage[:2] = type(other), str(other)
        return find_task(self, failure_code)

    _CThunk.find_task = find_failed


def _is_registered(name: str, database: RewriteDatabase) -> bool:
    """Return whether a rewrite is in a database.

    A query for the name of a rewrite that a package has not registered yet, such as ``pytensor.sparse``, leaves an
    empty entry in the database. The package can no longer be imported then.
    """
    nested = (entry for entries in database.__db__.values() for entry in entries if isinstance(entry, RewriteDatabase))
    return name in database._names or any(_is_registered(name, entry) for entry in nested)


def compile_with_c(
    graph: FunctionGraph,
    mode: Any,
    cells: Sequence[list[Any]],
    results: Sequence[list[Any]],
    mutable_rngs: Collection[int] = (),
    excluded: Collection[str] = (),
) -> tuple[Callable[[], Any], list[list[Any]]]:
    """Compile a graph for PyTensor's C backend, with a C compiler if there is one.

    The function changes none of its inputs and returns none of them, except random generators.

    `graph`: a graph before any rewrite; not changed. `results`: storage that the outputs may have. `mutable_rngs`:
    positions of the random generators among the inputs that may be changed in place. Returns computes and returns the
    outputs. Returns cells that hold the outputs afterwards, if these are not `results`. Raises `NotImplementedError`:
    it cannot be compiled.
    """
    query = mode.provided_optimizer
    if isinstance(query, RewriteDatabaseQuery):
        query = query.excluding("opencl", *(name for name in excluded if _is_registered(name, optdb)))
    copied = graph.clone()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as a missing BLAS: the user did not choose this backend
            maker = FunctionMaker(
                [In(v, mutable=i in mutable_rngs) for i, v in enumerate(copied.inputs)],
                [Out(v, borrow=isinstance(v.type, RandomGeneratorType)) for v in copied.outputs],
                mode=Mode(VMLinker(use_cloop=bool(config.cxx)), query),
                on_unused_input="ignore",
            )
            made = {v for v in maker.fgraph.outputs if v.owner}
            given = list(results) if len(made) == len(results) and all(type(c) is list for c in results) else None
            machine, _, outputs = maker.linker.make_thunk(input_storage=list(cells), output_storage=given)
    except Exception as error:
        raise NotImplementedError(f"{type(error).__name__}: {error}".splitlines()[0]) from error
    return machine, [] if given else [c.storage for c in outputs]
