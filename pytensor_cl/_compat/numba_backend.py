"""PyTensor's NUMBA backend: compilation of graphs and nodes, and NUMBA implementations of Ops."""

import inspect
import warnings
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from pytensor.compile.builders import OpFromGraph
from pytensor.compile.io import In, Out
from pytensor.compile.maker import FunctionMaker
from pytensor.compile.mode import Mode, optdb
from pytensor.compile.rewriting import rewrite_ofg_inner_graph
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.link.numba.linker import NumbaLinker
from pytensor.scan.rewriting.inner_graph import rewrite_scan_inner_graph
from pytensor.tensor.optimize import rewrite_optimize_inner_graph
from pytensor.tensor.subtensor import AdvancedIncSubtensor
from pytensor.tensor.type import TensorType

from pytensor_cl._compat.numba_draws import replace_contracted_draws
from pytensor_cl._compat.numba_lock import check_numba, load_numba

_INNER_GRAPHS = (rewrite_ofg_inner_graph, rewrite_scan_inner_graph, rewrite_optimize_inner_graph)


def prepare_inner_graphs_for_numba(linker_type: type, guard: Callable[[FunctionGraph], None]) -> None:
    """Rewrite the inner graphs of Scan, OpFromGraph and the optimizers, which run on the host, for NUMBA."""
    for generic in _INNER_GRAPHS:
        numba = generic.dispatch(NumbaLinker)

        def rewrite(linker: Any, op: Any, node: Any, inner: Any, *, mode: Any, _numba: Any = numba) -> None:
            if hasattr(inner, "_lazy_ifelse_branch_cache"):  # a branch of an IfElse, which may run on a device
                return
            if hasattr(op, "function_mode"):  # its function is compiled in that mode
                return
            guard(inner)  # also for the optimizers: NUMBA's rewrites of masks drop a check
            host_mode = _numba_mode(mode)
            inner._compile_mode = host_mode
            _numba(host_mode.linker, op, node, inner, mode=host_mode)

        generic.register(linker_type, rewrite)


def prepare_for_numba(op: OpFromGraph, mode: Any, guard: Callable[[FunctionGraph], None]) -> OpFromGraph:
    """Return an OpFromGraph whose inner graph is rewritten for NUMBA.

    `op`: a branch of a conditional; not changed.
    """
    inner = op.fgraph.unfreeze()
    guard(inner)
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

    Returns takes the values of all inputs (those of constants are ignored), returns the tuple of outputs.
    """
    check_numba()
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

    `graph`: a graph before any rewrite; not changed. `mutable_rngs`: positions of the random generators among the
    inputs that may be changed in place. `scattered`: positions of the inputs into whose memory results may be
    scattered, where no call that fails has done so. Returns takes the inputs, returns a tuple of the outputs. The first
    call compiles for the dtypes. Returns the compiled graph, for error messages. Raises `NotImplementedError`: NUMBA
    would run an Op in Python, or cannot compile in this process (`NumbaLockedError`).
    """
    check_numba()
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        maker = _numba_maker(graph, mode, {*mutable_rngs, *scattered})
        if scattered and _may_fail_after_a_write(maker.fgraph, scattered):
            maker = _numba_maker(graph, mode, mutable_rngs)
        vm = maker.create().vm
    if any("object mode" in str(w.message) for w in noted):
        raise NotImplementedError("NUMBA would run some of its Ops in Python")
    return vm.jit_fn, maker.fgraph


def compiler_of(function: Any, values: Sequence[Any]) -> Callable[[], Any] | None:
    """Return a function that compiles one of NUMBA's for the types of some values, without a call; None for others.

    NUMBA compiles under a lock of its own, also in another thread.
    """
    if not hasattr(function, "compile"):
        return None
    from numba import typeof

    takes_any_number = bool(function.py_func.__code__.co_flags & inspect.CO_VARARGS)  # NUMBA passes these as a tuple
    arguments = [tuple(values)] if takes_any_number else values
    try:
        types = tuple(typeof(value) for value in arguments)
    except ValueError:  # a device array, which a call converts first
        return None
    return partial(function.compile, types)


def _numba_maker(graph: FunctionGraph, mode: Any, mutable: Collection[int]) -> FunctionMaker:
    copied = graph.clone()
    replace_contracted_draws(copied)
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
    """Return whether a node changes the memory of variables, or of the arrays that they are views of."""
    changed = [node.inputs[i] for many in node.op.destroy_map.values() for i in many]
    for variable in changed:
        while variable.owner is not None and variable.owner.op.view_map:
            variable = variable.owner.inputs[next(iter(variable.owner.op.view_map.values()))[0]]
        if variable in variables:
            return True
    return False


def numba_unsupported_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that NUMBA raises if it cannot compile a graph."""
    from numba.core.errors import NumbaError  # loading NUMBA takes 0.1 s

    return NotImplementedError, NumbaError


def run_in_object_mode(*op_types: type) -> None:
    """Make NUMBA call ``perform`` of Ops without a warning: it is NumPy code that NUMBA would not make faster."""
    load_numba()
    from pytensor.link.numba.dispatch.basic import numba_funcify

    for op_type in op_types:
        numba_funcify.register(op_type)(call_perform)


def call_perform(op: Any, node: Any = None, **kwargs: Any) -> Any:
    """Return a function of NUMBA that calls ``perform`` of an Op, without a warning."""
    load_numba()
    from pytensor.link.numba.dispatch.basic import generate_fallback_impl

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Numba will use object mode", UserWarning)
        return generate_fallback_impl(op, node, **kwargs)


def register_numba_implementation(op_type: type, make: Callable[..., tuple[Any, str]]) -> None:
    """Register the NUMBA implementation of an Op."""
    load_numba()
    from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_and_cache_key

    @register_funcify_and_cache_key(op_type)
    def funcify(op: Any, node: Any, **kwargs: Any) -> tuple[Any, str]:
        return make(op, node, numba_njit)


class _RegisterWithNumba(GraphRewriter):
    """Registers an Op with NUMBA when a graph has it, so that importing a module does not load NUMBA."""

    def __init__(self, op_type: type, make: Callable[..., tuple[Any, Any]]) -> None:
        super().__init__()
        self._op_type, self._make, self._is_done = op_type, make, False

    def apply(self, fgraph: FunctionGraph) -> Any:
        """Register the Op if the graph has it; the graph is not changed."""
        if not self._is_done and any(isinstance(node.op, self._op_type) for node in fgraph.apply_nodes):
            register_numba_implementation(self._op_type, self._make)
            self._is_done = True


def register_when_met(op_type: type, make: Callable[..., tuple[Any, Any]]) -> None:
    """Register the NUMBA implementation of an Op when a graph has it."""
    rewriter = _RegisterWithNumba(op_type, make)
    optdb.register(f"pytensor_cl_numba_{op_type.__name__}", rewriter, "numba", position=0)
