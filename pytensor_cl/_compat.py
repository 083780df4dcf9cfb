"""Everything that uses undocumented parts of PyTensor."""

import ast
import copyreg
import inspect
import sys
import textwrap
import warnings
from collections.abc import Callable, Collection, Sequence
from copy import copy
from functools import wraps
from typing import Any

import pytensor.tensor as pt
from pytensor import config
from pytensor.compile import executor
from pytensor.compile.builders import FinalizedOpFromGraph, OpFromGraph
from pytensor.compile.executor import Function
from pytensor.compile.io import In, Out
from pytensor.compile.maker import FunctionMaker
from pytensor.compile.mode import Mode, fast_run_linkers_to_mode, get_mode, predefined_linkers, predefined_modes
from pytensor.compile.rewriting import inline_ofg_node, rewrite_ofg_inner_graph
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.basic import dfs_rewriter
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.link import vm
from pytensor.link.basic import JITLinker
from pytensor.link.c.basic import _CThunk
from pytensor.link.numba.linker import NumbaLinker
from pytensor.link.vm import VMLinker
from pytensor.scan.op import Scan
from pytensor.scan.rewriting.inner_graph import rewrite_scan_inner_graph
from pytensor.scan.rewriting.push_out import scan_push_out_add
from pytensor.tensor.basic import AllocDiag, transfer
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.optimize import rewrite_optimize_inner_graph
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.subtensor import AdvancedIncSubtensor
from pytensor.tensor.type import TensorType

__all__ = [
    "SerialFunction",
    "check_before_jit",
    "compile_node_with_numba",
    "compile_with_c",
    "compile_with_numba",
    "drop_scan_modes",
    "explain_call_errors",
    "has_other_transfers",
    "inline_op_from_graphs",
    "numba_unsupported_errors",
    "prepare_for_numba",
    "prepare_inner_graphs_for_numba",
    "push_sums_out_of_loops",
    "register",
    "register_numba_implementation",
    "run_in_object_mode",
    "serialise_calls",
]

_INNER_GRAPHS = (rewrite_ofg_inner_graph, rewrite_scan_inner_graph, rewrite_optimize_inner_graph)


def has_other_transfers() -> bool:
    """Whether other packages have registered targets of ``x.transfer``."""
    return len(transfer._others) > 1


def check_before_jit(check: Callable[[Any, FunctionGraph], None]) -> None:
    """Call a function before a JIT linker, such as NUMBA's or JAX's, compiles a graph.

    Parameters
    ----------
    check
        Takes the linker and the graph; raises an error if the linker cannot compile it.
    """
    original = JITLinker.make_all

    @wraps(original)
    def make_all(self: JITLinker, *args: Any, **kwargs: Any) -> Any:
        check(self, self.fgraph)
        return original(self, *args, **kwargs)

    JITLinker.make_all = make_all


def explain_call_errors(explain: Callable[[BaseException, Sequence[tuple[Any, Any]]], BaseException]) -> None:
    """Let a function replace the exceptions of calls by PyTensor's C and Python backends.

    Parameters
    ----------
    explain
        Takes the exception and pairs of variables and their storage, as far as they are known; returns an exception.
    """
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


def prepare_inner_graphs_for_numba(linker_type: type) -> None:
    """Rewrite the inner graphs of Scan, OpFromGraph and the optimizers, which run on the host, for NUMBA.

    Parameters
    ----------
    linker_type
        The linker of the outer graphs.
    """
    for generic in _INNER_GRAPHS:
        numba = generic.dispatch(NumbaLinker)

        def rewrite(linker: Any, op: Any, node: Any, inner: Any, *, mode: Any, _numba: Any = numba) -> None:
            if hasattr(inner, "_lazy_ifelse_branch_cache"):  # a branch of an IfElse, which may run on a device
                return
            host_mode = _numba_mode(mode)
            inner._compile_mode = host_mode
            _numba(host_mode.linker, op, node, inner, mode=host_mode)

        generic.register(linker_type, rewrite)


def drop_scan_modes(fgraph: FunctionGraph, linker_type: type) -> None:
    """Remove mode OPENCL from Scan nodes (`scan`'s argument ``mode``).

    The nodes inside a loop run on the host. PyTensor would apply the mode's rewrites to them, including the lift to
    devices.

    Parameters
    ----------
    fgraph
        A graph before any rewrite; changed in place.
    linker_type
        The linker of the mode.
    """
    for node in fgraph.toposort():
        op = _without_mode(node.op, linker_type) if isinstance(node.op, Scan) else node.op
        if op is not node.op:
            new = op.make_node(*node.inputs).outputs
            fgraph.replace_all(list(zip(node.outputs, new, strict=True)), reason="opencl_check_host_backends")


def push_sums_out_of_loops(fgraph: FunctionGraph) -> None:
    """Replace sums of products over all steps of a loop by one product outside of it, as PyTensor's rewrite does.

    Parameters
    ----------
    fgraph
        A graph of host Ops; changed in place.
    """
    dfs_rewriter(scan_push_out_add, ignore_newtrees=False).rewrite(fgraph)


def _without_mode(op: Scan, linker_type: type) -> Scan:
    """Return a Scan without the mode, also in its inner graph; the same Op if it has none."""
    inner = op.fgraph
    if any(isinstance(node.op, Scan) for node in inner.apply_nodes):
        thawed = inner.unfreeze()
        drop_scan_modes(thawed, linker_type)
        op = op.clone_with_inner_graph(thawed)
    if op.mode is not None and isinstance(get_mode(op.mode).linker, linker_type):
        op = copy(op)
        op.mode, op._fn = None, None
    return op


def prepare_for_numba(op: OpFromGraph, mode: Any) -> OpFromGraph:
    """Return an OpFromGraph whose inner graph is rewritten for NUMBA.

    Parameters
    ----------
    op
        A branch of a conditional; not changed.
    mode
        The mode of the outer graph.
    """
    inner = op.fgraph.unfreeze()
    host_mode = _numba_mode(mode)
    inner._compile_mode = host_mode
    node = op.make_node(*(v.type() for v in inner.inputs))
    rewrite_ofg_inner_graph.dispatch(NumbaLinker)(host_mode.linker, op, node, inner, mode=host_mode)
    del inner._compile_mode
    return op.clone_with_inner_graph(inner)


def _numba_mode(mode: Any) -> Mode:
    """Return a mode with NUMBA's linker and the rewrites of a mode; NUMBA's replace those for OpenCL."""
    query = mode.provided_optimizer
    if isinstance(query, RewriteDatabaseQuery):
        query = query.including("numba").excluding("opencl")
    return Mode(NumbaLinker(), query)


def compile_node_with_numba(node: Apply) -> Callable[..., Any]:
    """Compile one node with NUMBA.

    Parameters
    ----------
    node
        A host node with rewritten inner graphs.

    Returns
    -------
    callable
        Takes the values of all inputs (those of constants are ignored), returns the tuple of outputs.
    """
    inputs = [v if isinstance(v, Constant) else v.type() for v in node.inputs]
    free = [i for i, v in enumerate(inputs) if not isinstance(v, Constant)]
    copy = Apply(node.op, inputs, [o.type() for o in node.outputs])
    fgraph = FunctionGraph([inputs[i] for i in free], copy.outputs, clone=False)
    vm, _, _ = NumbaLinker().accept(fgraph).make_thunk()
    compiled = vm.jit_fn

    def call(*values: Any) -> Any:
        return compiled(*[values[i] for i in free])

    return call


def compile_with_numba(
    graph: FunctionGraph, mode: Any, mutable_rngs: Collection[int] = (), scattered: Collection[int] = ()
) -> tuple[Callable[..., Any], FunctionGraph]:
    """Compile a graph as mode NUMBA does.

    A call changes none of its arguments but random generators and those of `scattered`, and no result shares memory
    with others.

    Parameters
    ----------
    graph
        A graph before any rewrite; not changed.
    mode
        The mode of the function; NUMBA's rewrites replace its linker's.
    mutable_rngs
        Positions of the random generators among the inputs that may be changed in place.
    scattered
        Positions of the inputs into whose memory results may be scattered, where no call that fails has done so.

    Returns
    -------
    callable
        Takes the inputs, returns a tuple of the outputs. The first call compiles for the dtypes.
    FunctionGraph
        The compiled graph, for error messages.

    Raises
    ------
    NotImplementedError
        NUMBA would run an Op in Python.
    """
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        maker = _numba_maker(graph, mode, {*mutable_rngs, *scattered})
        if scattered and _may_fail_after_a_write(maker.fgraph, scattered):
            maker = _numba_maker(graph, mode, mutable_rngs)
        vm = maker.create().vm
    if any("object mode" in str(w.message) for w in noted):
        raise NotImplementedError("NUMBA would run some of its Ops in Python")
    return vm.jit_fn, maker.fgraph


def _numba_maker(graph: FunctionGraph, mode: Any, mutable: Collection[int]) -> FunctionMaker:
    copied = graph.clone()
    return FunctionMaker(
        [In(v, mutable=i in mutable) for i, v in enumerate(copied.inputs)],
        [Out(v) for v in copied.outputs],
        mode=_numba_mode(mode),
        on_unused_input="ignore",
    )


def _may_fail_after_a_write(fgraph: FunctionGraph, positions: Collection[int]) -> bool:
    """Return whether a node may raise after another one has written to the memory of an input.

    NUMBA runs the nodes in topological order. Checks of indices and shapes are nodes of their own, and a scatter that
    follows them does not fail. After the first write, only scatters that allocate no memory are accepted.
    """
    order = fgraph.toposort()
    written = [at for at, node in enumerate(order) if _writes_to(node, {fgraph.inputs[i] for i in positions})]
    if not written:
        return False
    first, *later = order[written[0] :]
    return not isinstance(first.op, AdvancedIncSubtensor) or not all(map(_scatters_without_allocation, later))


def _scatters_without_allocation(node: Apply) -> bool:
    """Return whether NUMBA computes a node by a loop over integer indices that writes to the memory of its input."""
    op = node.op
    if not isinstance(op, AdvancedIncSubtensor) or not op.inplace or op.ignore_duplicates:
        return False
    return all(v.type.dtype != "bool" for v in node.inputs[2:] if isinstance(v.type, TensorType))


def _writes_to(node: Apply, variables: Collection[Any]) -> bool:
    """Return whether a node changes the memory of variables, or of what they are views of."""
    changed = [node.inputs[i] for many in node.op.destroy_map.values() for i in many]
    for variable in changed:
        while variable.owner is not None and variable.owner.op.view_map:
            variable = variable.owner.inputs[next(iter(variable.owner.op.view_map.values()))[0]]
        if variable in variables:
            return True
    return False


def compile_with_c(
    graph: FunctionGraph,
    mode: Any,
    cells: Sequence[list[Any]],
    results: Sequence[list[Any]],
    mutable_rngs: Collection[int] = (),
) -> tuple[Callable[[], Any], list[list[Any]]]:
    """Compile a graph for PyTensor's C backend, with a C compiler if there is one.

    The function changes none of its inputs and returns none of them, except random generators.

    Parameters
    ----------
    graph
        A graph before any rewrite; not changed.
    mode
        The mode of the function.
    cells
        Storage of the inputs.
    results
        Storage that the outputs may have.
    mutable_rngs
        Positions of the random generators among the inputs that may be changed in place.

    Returns
    -------
    callable
        Computes and returns the outputs.
    list
        Cells that hold the outputs afterwards, if these are not `results`.

    Raises
    ------
    NotImplementedError
        It cannot be compiled.
    """
    query = mode.provided_optimizer
    if isinstance(query, RewriteDatabaseQuery):
        query = query.excluding("opencl", "gemm_optimizer")  # its Gemm broadcasts an addend without an error
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


def numba_unsupported_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that NUMBA raises if it cannot compile a graph."""
    from numba.core.errors import NumbaError  # loading NUMBA takes 0.1 s

    return NotImplementedError, NumbaError


def run_in_object_mode(*op_types: type) -> None:
    """Make NUMBA call ``perform`` of Ops without a warning: it is NumPy code that NUMBA would not make faster.

    Parameters
    ----------
    op_types
        Classes of Ops.
    """
    from pytensor.link.numba.dispatch.basic import generate_fallback_impl, numba_funcify  # loads NUMBA

    def quietly(op: Any, node: Any = None, **kwargs: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Numba will use object mode", UserWarning)
            return generate_fallback_impl(op, node, **kwargs)

    for op_type in op_types:
        numba_funcify.register(op_type)(quietly)


def register_numba_implementation(op_type: type, make: Callable[..., tuple[Any, str]]) -> None:
    """Register the NUMBA implementation of an Op.

    Parameters
    ----------
    op_type
        The class of the Op.
    make
        Takes the Op, a node of it, and NUMBA's decorator; returns the decorated function and its cache key.
    """
    from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_and_cache_key  # loads NUMBA

    @register_funcify_and_cache_key(op_type)
    def funcify(op: Any, node: Any, **kwargs: Any) -> tuple[Any, str]:
        return make(op, node, numba_njit)


def _unbatched(node: Apply) -> Apply:
    """Return a node of the core Op in place of a Blockwise, where that Op can compute all batches; else the node."""
    core = getattr(node.op, "core_op", None)
    batch = node.op.batch_ndim(node) if isinstance(node.op, Blockwise) else 0
    if isinstance(core, AllocDiag):  # supports batch dimensions
        shifted = type(core)(axis1=core.axis1 + batch, axis2=core.axis2 + batch, offset=core.offset)
        return shifted(*node.inputs).owner
    if core is None or not _is_inlined(core):
        return node
    return _vectorized(core, node, batch) if batch else core.make_node(*node.inputs)


def _vectorized(core: OpFromGraph, node: Apply, batch: int) -> Apply:
    """Return a node of an OpFromGraph of the batched inner graph."""
    inner = core.fgraph.unfreeze()
    inputs = [v.type() for v in node.inputs]
    outputs = vectorize_graph(inner.outputs, dict(zip(inner.inputs, inputs, strict=True)))
    whole = [_of_batch(new, old, inputs, batch) for new, old in zip(outputs, node.outputs, strict=True)]
    return OpFromGraph(inputs, whole).make_node(*node.inputs)


def _of_batch(value: Variable, wanted: Variable, inputs: Sequence[Variable], batch: int) -> Variable:
    """Broadcast an output that does not depend on all inputs along the batch dimensions."""
    if value.type.broadcastable == wanted.type.broadcastable:
        return value
    core = wanted.type.ndim - batch
    free = [next((v for v in inputs if not v.type.broadcastable[i]), inputs[0]) for i in range(batch)]
    lengths = [v.shape[i] for i, v in enumerate(free)]
    return pt.alloc(value, *lengths, *(value.shape[value.type.ndim - core + i] for i in range(core)))


def _is_inlined(op: Op) -> bool:
    return isinstance(op, OpFromGraph) and not isinstance(op, FinalizedOpFromGraph)


def _stabilized(node: Apply, known: dict[Op, Op]) -> Apply:
    """Return a node whose inner graph is rewritten as the outer graph has been.

    PyTensor's own symbolic Ops and their gradients do not need that.
    """
    op = node.op
    if type(op) is not OpFromGraph:
        return node
    if op not in known:
        inner = op.fgraph.unfreeze()
        rewrite_graph(inner, include=("canonicalize", "stabilize", "specialize"), clone=False)
        known[op] = op.clone_with_inner_graph(inner)
    return known[op].make_node(*node.inputs)


def inline_op_from_graphs(fgraph: FunctionGraph) -> None:
    """Replace OpFromGraph nodes by their inner graphs, so that these are fused and placed on devices."""
    known: dict[Op, Op] = {}
    while True:
        simple = ((node, _stabilized(_unbatched(node), known)) for node in fgraph.toposort())
        found = [(node, inner) for node, inner in simple if _is_inlined(inner.op)]
        if not found:
            return
        for node, inner in found:
            pairs = list(zip(node.outputs, inline_ofg_node(inner), strict=True))
            typed = [(old, old.type.filter_variable(new)) for old, new in pairs]
            fgraph.replace_all(typed, reason="opencl_inline", import_missing=True)


def register(name: str, mode: Any) -> None:
    """Register a mode and its linker by name.

    Parameters
    ----------
    name
        In upper case for the mode; the linker's is in lower case.
    mode
        A `pytensor.compile.mode.Mode`.
    """
    predefined_modes[name] = mode
    predefined_linkers[name.lower()] = mode.linker
    fast_run_linkers_to_mode[name.lower()] = mode


# Calls of one function by several threads.

_SERIAL_CALL = """
def __call__(self, *args, **kwargs):
    call_lock = self.vm.call_lock
    while call_lock.held:
        run = call_lock.wait(self)
        if run is not None:
            return run(*args, **kwargs)
        call_lock = self.vm.call_lock
    call_lock.held = True
    try:
        ...
    finally:
        call_lock.held = False
        if call_lock.waiting:
            call_lock.notify()
"""
"""A call that takes a lock of the function first. Between the last test of `held` and the line that sets it, CPython
switches no thread and handles no signal: it does so at the start of functions, after calls and at the end of loop
bodies. A `threading.Lock` takes four times as long, a tenth of the smallest function's time."""


def _body_of(method: Callable[..., Any]) -> tuple[list[ast.stmt], int] | None:
    """Return the statements and the first line of a method ``(self, *args, **kwargs)``; None without source."""
    try:
        lines, first = inspect.getsourcelines(method)
        found = ast.parse(textwrap.dedent("".join(lines))).body[0]
    except (OSError, TypeError, SyntaxError):  # there is no source
        return None
    if not isinstance(found, ast.FunctionDef) or found.decorator_list or method.__code__.co_freevars:
        return None
    if ast.unparse(found.args) != "self, *args, **kwargs":
        return None
    return found.body, first


def _with_lock(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return `Function.__call__` with its statements inside `_SERIAL_CALL`.

    A method that calls the original one needs a second Python frame, a tenth of the time of a small function. It is
    returned only where the source is missing.
    """
    tree, space, file = ast.parse(_SERIAL_CALL), method.__globals__, method.__code__.co_filename
    definition: Any = tree.body[0]
    found = _body_of(method)
    if found is None:
        body, space, file = ast.parse("return method(self, *args, **kwargs)").body, {"method": method}, __file__
    else:
        body, first = found
        for statement in body:
            ast.increment_lineno(statement, first - 1)
    definition.body[-1].body = body
    made: dict[str, Any] = {}
    exec(compile(tree, file, "exec"), space, made)
    return wraps(method)(made["__call__"])


class SerialFunction(Function):
    """A function that runs one call at a time, because PyTensor stores arguments and results in the function.

    The lock is the attribute `call_lock` of its virtual machine.
    """

    __slots__ = ()

    __call__ = _with_lock(Function.__call__)

    def call_unlocked(self, *args: Any, **kwargs: Any) -> Any:
        """Run a call in a thread that holds the lock."""
        return Function.__call__(self, *args, **kwargs)

    def free(self) -> None:
        """Free intermediate results between calls, while no call runs."""
        call_lock = self.vm.call_lock
        while call_lock.held:
            run = call_lock.wait(self, super().free)
            if run is not None:
                run()
                return
            call_lock = self.vm.call_lock
        call_lock.held = True
        try:
            super().free()
        finally:
            call_lock.held = False
            if call_lock.waiting:
                call_lock.notify()


copyreg.pickle(SerialFunction, copyreg.dispatch_table[Function])


def serialise_calls(vm_type: type, prepare: Callable[[SerialFunction], None]) -> None:
    """Make every function with a certain virtual machine a `SerialFunction`.

    Parameters
    ----------
    vm_type
        The class of the virtual machine.
    prepare
        Gives the virtual machine of a new function its `call_lock`.
    """
    create = FunctionMaker.create

    @wraps(create)
    def create_serial(self: FunctionMaker, *args: Any, **kwargs: Any) -> Function:
        made = create(self, *args, **kwargs)
        if type(made) is Function and isinstance(made.vm, vm_type):
            made.__class__ = SerialFunction
            prepare(made)
        return made

    FunctionMaker.create = create_serial
