"""Registers mode ``"OPENCL"``, its linker and its rewrites, and applies the flags."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from pytensor.compile.mode import Mode, optdb
from pytensor.configdefaults import config
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import graph_rewriter
from pytensor.graph.rewriting.db import RewriteDatabaseQuery

from pytensor_cl import flags, sharedvar
from pytensor_cl._compat import c_backend, inner_graphs, numba_backend, registration, serial_function
from pytensor_cl.errors import ContextNotDefined, OpenCLError
from pytensor_cl.linker import branches, loops  # noqa: F401 (register what links inner graphs)
from pytensor_cl.linker.execution.call_lock import assign_lock, run_exclusively
from pytensor_cl.linker.execution.vm import OpenCLVM
from pytensor_cl.linker.linker import OpenCLLinker, report_error
from pytensor_cl.rewriting.fusion.embedding_bag import fuse_embedding_bags
from pytensor_cl.rewriting.fusion.epilogue import fuse_epilogues
from pytensor_cl.rewriting.fusion.gather_fused import fuse_gathers
from pytensor_cl.rewriting.fusion.gemv_pair import fuse_gemv_pairs
from pytensor_cl.rewriting.fusion.grouped_rows import fuse_grouped_rows
from pytensor_cl.rewriting.fusion.rowwise.fuse import fuse_rows
from pytensor_cl.rewriting.fusion.scan_loop import shorten_loops
from pytensor_cl.rewriting.fusion.slice_update import merge_slice_updates
from pytensor_cl.rewriting.fusion.table_lookup import fuse_table_lookups
from pytensor_cl.rewriting.host_backend.canonical_copy import check_host_backends, keep_canonical_copy
from pytensor_cl.rewriting.host_backend.inner_guards import guard_inner_graph
from pytensor_cl.rewriting.lift.random import draw_in_place
from pytensor_cl.rewriting.lowering.batched_scan import batch_loops
from pytensor_cl.rewriting.lowering.blockwise import lower_blockwise
from pytensor_cl.rewriting.lowering.conv import split_convolutions
from pytensor_cl.rewriting.lowering.division import check_divisors
from pytensor_cl.rewriting.lowering.hoist_products import hoist_products
from pytensor_cl.rewriting.lowering.ifelse import lift_branches
from pytensor_cl.rewriting.lowering.linalg import lower_linalg
from pytensor_cl.rewriting.lowering.optimize import place_objectives
from pytensor_cl.rewriting.lowering.random import lower_random
from pytensor_cl.rewriting.lowering.scan import lift_loops
from pytensor_cl.rewriting.lowering.sparse_forms import lower_sparse_matrices, mend_sparse_gradients
from pytensor_cl.rewriting.lowering.take_along_axis import open_lists
from pytensor_cl.rewriting.lowering.wide_factors import widen_factors
from pytensor_cl.rewriting.placement.fusion_barrier import insert_fusion_barriers
from pytensor_cl.rewriting.placement.fusion_limit import split_large_composites
from pytensor_cl.rewriting.placement.lift import Policy, lift_to_device
from pytensor_cl.runtime import progress
from pytensor_cl.runtime.context import Settings
from pytensor_cl.runtime.device import DeviceEntry, check_spec, discover
from pytensor_cl.runtime.features import early_check
from pytensor_cl.runtime.registry import (
    add_context,
    change_settings,
    define_contexts,
    is_forked,
    is_open,
    parse_contexts,
    unusable_reason,
)
from pytensor_cl.sharedvar import explain_c_error, shared
from pytensor_cl.type import check_pyopencl_argument
from pytensor_cl.variable import refuse_device_variables

__all__ = ["OPENCL", "apply_flags", "devices", "shared", "use"]


def _report(rewrite: Callable[[FunctionGraph], None]) -> Callable[[FunctionGraph], None]:
    """Pass errors of a rewrite to the linker, which raises them: PyTensor would only log them."""

    @wraps(rewrite)
    def run(fgraph: FunctionGraph) -> None:
        try:
            rewrite(fgraph)
        except OpenCLError as error:
            report_error(fgraph, error)

    return run


def _placement() -> str:
    """Return the placement: ``host`` instead of ``auto`` in a forked process, or if the device fails its self-check."""
    chosen = config.opencl__placement
    return "host" if chosen == "auto" and (is_forked() or unusable_reason()) else chosen


@graph_rewriter
def opencl_drop_scan_modes(fgraph: FunctionGraph) -> None:
    """Scan of mode OPENCL -> Scan without a mode, in functions of all modes."""
    inner_graphs.drop_scan_modes(fgraph, OpenCLLinker)


@graph_rewriter
def opencl_check_host_backends(fgraph: FunctionGraph) -> None:
    """Note which host backends may run the graph."""
    check_host_backends(fgraph, config.opencl__placement, config.opencl__select_backend)


@graph_rewriter
def opencl_mend_sparse_gradients(fgraph: FunctionGraph) -> None:
    """Gradients of sparse matrices that PyTensor's backends give wrong -> right ones."""
    mend_sparse_gradients(fgraph)


@graph_rewriter
def opencl_widen_factors(fgraph: FunctionGraph) -> None:
    """Products of narrow factors over axes -> the same of wide factors, which PyTensor rewrites correctly."""
    widen_factors(fgraph)


@graph_rewriter
def opencl_keep_canonical_copy(fgraph: FunctionGraph) -> None:
    """Keep a copy of the graph for the host backends."""
    keep_canonical_copy(fgraph)


@graph_rewriter
@_report
def opencl_batch_loops(fgraph: FunctionGraph) -> None:
    """Blockwise(Scan) -> Scan with batched steps."""
    if _placement() != "host":
        batch_loops(fgraph)


@graph_rewriter
@_report
def opencl_hoist_products(fgraph: FunctionGraph) -> None:
    """Products of a loop that need no earlier step -> one product outside of the loop."""
    if _placement() != "host":
        hoist_products(fgraph)


@graph_rewriter
def opencl_inline(fgraph: FunctionGraph) -> None:
    """OpFromGraph(x) -> its inner graph."""
    inner_graphs.inline_op_from_graphs(fgraph)


@graph_rewriter
@_report
def opencl_lower(fgraph: FunctionGraph) -> None:
    """Ops without a kernel -> Ops with a kernel; checks that no backend but PyTensor's C makes."""
    check_divisors(fgraph)
    if _placement() != "host":
        lower_random(fgraph)
        lower_sparse_matrices(fgraph)
        lower_linalg(fgraph)
        lower_blockwise(fgraph)
        split_convolutions(fgraph)
        open_lists(fgraph)


@graph_rewriter
@_report
def opencl_lift_branches(fgraph: FunctionGraph) -> None:
    """LazyIfElse(c, x) -> the same with device graphs of its branches."""
    if _placement() != "host":
        lift_branches(fgraph)


@graph_rewriter
@_report
def opencl_lift_loops(fgraph: FunctionGraph) -> None:
    """Scan(n, x) -> the same with a device graph of its steps."""
    if _placement() != "host":
        lift_loops(fgraph)


@graph_rewriter
@_report
def opencl_device_objectives(fgraph: FunctionGraph) -> None:
    """Minimize(x) -> the same, whose function runs on the device."""
    if _placement() == "device":
        place_objectives(fgraph)


@graph_rewriter
@_report
def opencl_fusion_barrier(fgraph: FunctionGraph) -> None:
    """Elemwise without a kernel -> fusion barrier."""
    if _placement() != "host":
        insert_fusion_barriers(fgraph)


@graph_rewriter
@_report
def opencl_fusion_limit(fgraph: FunctionGraph) -> None:
    """Composite of very many arrays -> several Composites."""
    if _placement() != "host":
        split_large_composites(fgraph)


@graph_rewriter
@_report
def opencl_lift(fgraph: FunctionGraph) -> None:
    """Host Ops -> device Ops and transfers."""
    policy = Policy(_placement(), config.opencl__on_host, config.opencl__float64)
    lift_to_device(fgraph, policy)


@graph_rewriter
@_report
def opencl_shorten_loops(fgraph: FunctionGraph) -> None:
    """Loops in one kernel -> the same without rows that are not read."""
    shorten_loops(fgraph)


@graph_rewriter
@_report
def opencl_fuse_gather(fgraph: FunctionGraph) -> None:
    """Gather of an elementwise result -> one device Op."""
    fuse_gathers(fgraph)


@graph_rewriter
@_report
def opencl_embedding_bag(fgraph: FunctionGraph) -> None:
    """Reduction of gathered rows -> one device Op."""
    fuse_embedding_bags(fgraph)


@graph_rewriter
@_report
def opencl_rowwise(fgraph: FunctionGraph) -> None:
    """Elementwise Ops and reductions over the same rows -> one device Op."""
    fuse_rows(fgraph)


@graph_rewriter
@_report
def opencl_gemv_pair(fgraph: FunctionGraph) -> None:
    """Products with a matrix and with its transpose -> one device Op."""
    fuse_gemv_pairs(fgraph)


@graph_rewriter
@_report
def opencl_epilogue(fgraph: FunctionGraph) -> None:
    """Elementwise functions of a product -> its epilogue."""
    fuse_epilogues(fgraph)


@graph_rewriter
@_report
def opencl_table_lookup(fgraph: FunctionGraph) -> None:
    """Gather from a table with a single client -> a lookup in the client's kernel."""
    fuse_table_lookups(fgraph)


@graph_rewriter
@_report
def opencl_grouped_rows(fgraph: FunctionGraph) -> None:
    """Gathers, a row function and scatter-adds along the same rows -> one device Op."""
    fuse_grouped_rows(fgraph)


@graph_rewriter
@_report
def opencl_merge_slice_updates(fgraph: FunctionGraph) -> None:
    """Successive slice updates of one array -> one device Op, which copies the array once."""
    merge_slice_updates(fgraph)


@graph_rewriter
def opencl_draw_in_place(fgraph: FunctionGraph) -> None:
    """Draws of random numbers -> the same, which change the generator instead of a copy."""
    draw_in_place.apply(fgraph)


# Positions in optdb: before all others; after canonicalisation (1) and merge1.2; before fusion (49), before the destroy
# handler (49.5), and before inner graphs are compiled (49.6).
_PASSES = (
    (opencl_check_host_backends, -0.5),
    (opencl_widen_factors, 1.23),
    (opencl_mend_sparse_gradients, 1.24),
    (opencl_keep_canonical_copy, 1.25),
    (opencl_batch_loops, 1.3),
    (opencl_hoist_products, 1.31),
    (opencl_inline, 47.9),
    (opencl_lower, 47.95),
    (opencl_lift_branches, 48.93),
    (opencl_lift_loops, 48.94),
    (opencl_device_objectives, 48.945),
    (opencl_fusion_barrier, 48.95),
    (opencl_fusion_limit, 49.1),
    (opencl_lift, 49.2),
    (opencl_shorten_loops, 49.22),
    (opencl_fuse_gather, 49.25),
    (opencl_embedding_bag, 49.28),
    (opencl_rowwise, 49.3),
    (opencl_gemv_pair, 49.32),
    (opencl_epilogue, 49.35),
    (opencl_table_lookup, 49.4),
    (opencl_grouped_rows, 49.41),
    (opencl_merge_slice_updates, 49.42),
    (opencl_draw_in_place, 50.9),
)

OPENCL = Mode(OpenCLLinker(), RewriteDatabaseQuery(include=["fast_run"]))


def _contexts_of_flags() -> tuple[dict[str, str], str | None]:
    """Return the contexts that the flags define, and which of them is the default."""
    named = parse_contexts(config.contexts)
    device = config.device.strip()
    if not flags.is_opencl(device):
        return named, next(iter(named), None)
    same = [name for name, spec in named.items() if spec == device]
    free = (n for n in ("dev0", "default", *(f"default{i}" for i in range(len(named)))) if n not in named)
    default = same[0] if same else next(free)
    return {default: device, **named}, default


def _settings_of_flags() -> Settings:
    return Settings(
        fast_math=config.opencl__fast_math,
        cache_dir=config.opencl__cache_dir or None,
        synchronous=config.opencl__sync_debug,
        tuned=config.opencl__tuned,
        parallel_compile=config.opencl__parallel_compile,
        batch_kernels=config.opencl__batch_kernels,
        park_workers=config.opencl__park_workers,
        quiet=config.opencl__quiet,
    )


progress.choose(lambda: config.opencl__progress)


def apply_flags() -> None:
    """Define contexts and settings from PyTensor's flags.

    If the flag ``contexts`` is malformed, the first use of a context raises a `ContextNotDefined` with the reason.
    """
    try:
        specs, default = _contexts_of_flags()
    except ContextNotDefined as error:
        define_contexts({}, None, _settings_of_flags, flag_error=str(error))
    else:
        define_contexts(specs, default, _settings_of_flags)
        if default is not None:
            early_check.start(specs[default], config.opencl__cache_dir or None)


def use(device: str = "opencl", name: str | None = None, **options: Any) -> str:
    """Choose a device before the first function is compiled for one.

    It becomes the default context if none is defined yet. Unlike the flag ``device`` this does not change the default
    mode.

    Parameters
    ----------
    device
        ``opencl<P>:<D>``, ``opencl:<name>`` or ``opencl`` for the default device.
    name
        Name of its context; ``dev0`` if none is given.
    options
        Fields of `pytensor_cl.runtime.context.Settings`.

    Returns
    -------
    str
        The context's name.

    Raises
    ------
    ValueError
        The name means another device already, or options are given for a device that is open.
    TypeError
        An option is no setting, or `device` is no string.
    DeviceNotFound
        `device` is not the name of an OpenCL device. Whether there is such a device shows when it is opened.
    """
    check_spec(device)
    chosen = name or "dev0"
    if options and is_open(chosen):
        raise ValueError(f"context {chosen!r} is open: its settings cannot change any more")
    add_context(chosen, device)
    change_settings(**options)
    return chosen


def devices() -> tuple[DeviceEntry, ...]:
    """Return every OpenCL device, with the strings that name it and its facts."""
    return discover()


def _register() -> None:
    for rewrite, position in _PASSES:
        optdb.register(rewrite.__name__, rewrite, "opencl", position=position)
    optdb.register("opencl_drop_scan_modes", opencl_drop_scan_modes, "minimum_compile", position=-0.6)
    registration.register("OPENCL", OPENCL)
    numba_backend.prepare_inner_graphs_for_numba(OpenCLLinker, guard_inner_graph)
    serial_function.serialise_calls(OpenCLVM, assign_lock, check_pyopencl_argument)
    registration.check_before_jit(refuse_device_variables)
    c_backend.explain_call_errors(explain_c_error)
    sharedvar.install(run_exclusively)


_register()
apply_flags()
