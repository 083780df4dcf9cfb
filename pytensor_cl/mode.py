"""Registers mode ``"OPENCL"``, its linker and its rewrites, and applies the flags."""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from pytensor.compile.mode import Mode, optdb
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter, get_active_mode, graph_rewriter
from pytensor.graph.rewriting.db import RewriteDatabaseQuery

from pytensor_cl import flags, sharedvar
from pytensor_cl._compat import c_backend, inner_graphs, numba_backend, printing, registration, serial_function
from pytensor_cl.codegen.announcement import announce
from pytensor_cl.errors import ContextNotDefined, OpenCLError
from pytensor_cl.linker.device_arguments import accepted_types, adapt
from pytensor_cl.linker.linker import OpenCLLinker, report_error
from pytensor_cl.linker.reports.page import OP_COLOURS
from pytensor_cl.linker.run.call_lock import assign_lock, run_exclusively
from pytensor_cl.linker.run.vm import OpenCLVM
from pytensor_cl.nn.attention_formulas import recognise_all_attention
from pytensor_cl.nn.marker import Marker
from pytensor_cl.ops.registry import has_kernel
from pytensor_cl.rewriting.decompose.batched_scan import batch_loops
from pytensor_cl.rewriting.decompose.blockwise import decompose_blockwise
from pytensor_cl.rewriting.decompose.choose import expand_choose_lists
from pytensor_cl.rewriting.decompose.conv import split_convolutions
from pytensor_cl.rewriting.decompose.division import check_divisors
from pytensor_cl.rewriting.decompose.hoist_products import hoist_products
from pytensor_cl.rewriting.decompose.ifelse import compile_branches
from pytensor_cl.rewriting.decompose.layer_classes import replace_layers
from pytensor_cl.rewriting.decompose.linalg import decompose_linalg
from pytensor_cl.rewriting.decompose.optimize import compile_objectives
from pytensor_cl.rewriting.decompose.random import decompose_random
from pytensor_cl.rewriting.decompose.scan import compile_loops
from pytensor_cl.rewriting.decompose.sparse_forms import decompose_sparse_matrices, mend_sparse_gradients
from pytensor_cl.rewriting.decompose.sparse_products import decompose_sparse_products
from pytensor_cl.rewriting.decompose.user_kernels import expand_user_kernels
from pytensor_cl.rewriting.decompose.whole_updates import replace_whole_updates
from pytensor_cl.rewriting.draw_in_place import draw_in_place
from pytensor_cl.rewriting.fusion.cross_entropy import fuse_cross_entropies
from pytensor_cl.rewriting.fusion.embedding_bag import fuse_embedding_bags
from pytensor_cl.rewriting.fusion.epilogue import fuse_epilogues
from pytensor_cl.rewriting.fusion.gather_fused import fuse_gathers
from pytensor_cl.rewriting.fusion.gemv_pair import fuse_gemv_pairs
from pytensor_cl.rewriting.fusion.grouped_rows import fuse_grouped_rows
from pytensor_cl.rewriting.fusion.joined_elemwise import fuse_joined_elemwise
from pytensor_cl.rewriting.fusion.last_first import store_last_first
from pytensor_cl.rewriting.fusion.rowwise.fuse import fuse_rows
from pytensor_cl.rewriting.fusion.scan_loop import shorten_loops
from pytensor_cl.rewriting.fusion.slice_update import merge_slice_updates
from pytensor_cl.rewriting.fusion.table_lookup import fuse_table_lookups
from pytensor_cl.rewriting.host_graph.graph import check_host_backends, keep_host_graph
from pytensor_cl.rewriting.host_graph.inner_guards import guard_inner_graph, prepare_host_branches
from pytensor_cl.rewriting.host_graph.wide_factors import widen_factors
from pytensor_cl.rewriting.inline_markers import inline_markers
from pytensor_cl.rewriting.placement.fuse_rest import fuse_rest
from pytensor_cl.rewriting.placement.fusion_barrier import insert_fusion_barriers
from pytensor_cl.rewriting.placement.fusion_limit import split_large_composites
from pytensor_cl.rewriting.placement.lift import Policy, lift_to_device
from pytensor_cl.runtime import progress
from pytensor_cl.runtime.context import Settings
from pytensor_cl.runtime.device import DeviceEntry, check_spec, discover
from pytensor_cl.runtime.features import early_check
from pytensor_cl.runtime.fork import is_forked
from pytensor_cl.runtime.registry import (
    add_context,
    adopt_queue,
    change_settings,
    check_settings,
    default_context_name,
    define_contexts,
    get_context,
    is_open,
    parse_contexts,
    unusable_reason,
)
from pytensor_cl.sharedvar import explain_c_error, shared
from pytensor_cl.variable import refuse_device_variables

__all__ = ["OPENCL", "apply_flags", "devices", "shared", "use"]


def _placement() -> str:
    """Return the placement: ``host`` instead of ``auto`` in a forked process, or if the device fails its self-check."""
    chosen = config.opencl__placement
    return "host" if chosen == "auto" and (is_forked() or unusable_reason()) else chosen


def _check_host_backends(fgraph: FunctionGraph) -> None:
    check_host_backends(fgraph, config.opencl__placement, config.opencl__select_backend)


def _inline(fgraph: FunctionGraph) -> None:
    inner_graphs.inline_op_from_graphs(fgraph, kept=(Marker,))


def _lift(fgraph: FunctionGraph) -> None:
    lift_to_device(fgraph, Policy(_placement(), config.opencl__on_host, config.opencl__float64))


ALL = "auto", "device", "host"
NOT_HOST = "auto", "device"
ONLY_DEVICE = ("device",)


class Pass(NamedTuple):
    """A rewrite of the whole graph, which is named ``opencl_<name>`` in PyTensor's database of rewrites.

    The position is that in the database. PyTensor canonicalises at 1 (and merges at 1.2), fuses at 49, takes care of
    Ops that work in place at 49.5 and compiles inner graphs at 49.6. The pass runs for the given values of the flag
    ``opencl__placement``.
    """

    name: str
    rewrite: Callable[[FunctionGraph], None]
    position: float
    placements: tuple[str, ...] = ALL


PASSES = (
    # the graph of the host backends
    Pass("check_host_backends", _check_host_backends, -0.5),
    Pass("replace_layers", replace_layers, -0.006, NOT_HOST),
    Pass("recognise_attention", recognise_all_attention, -0.004, NOT_HOST),
    Pass("widen_factors", widen_factors, 1.23),
    Pass("mend_sparse_gradients", mend_sparse_gradients, 1.24),
    Pass("keep_host_graph", keep_host_graph, 1.25),
    # Ops without a kernel become Ops with one
    Pass("batch_loops", batch_loops, 1.3, NOT_HOST),
    Pass("hoist_products", hoist_products, 1.31, NOT_HOST),
    Pass("inline", _inline, 47.9),
    Pass("check_divisors", check_divisors, 47.91),
    Pass("decompose_random", decompose_random, 47.92, NOT_HOST),
    Pass("decompose_sparse_matrices", decompose_sparse_matrices, 47.93, NOT_HOST),
    Pass("decompose_linalg", decompose_linalg, 47.94, NOT_HOST),
    Pass("decompose_blockwise", decompose_blockwise, 47.95, NOT_HOST),
    Pass("split_convolutions", split_convolutions, 47.96, NOT_HOST),
    Pass("expand_choose_lists", expand_choose_lists, 47.97, NOT_HOST),
    Pass("cross_entropy", fuse_cross_entropies, 47.98, NOT_HOST),
    Pass("user_kernels", expand_user_kernels, 47.985, NOT_HOST),
    Pass("whole_updates", replace_whole_updates, 47.99, NOT_HOST),
    Pass("compile_branches", compile_branches, 48.93, NOT_HOST),
    Pass("compile_loops", compile_loops, 48.94, NOT_HOST),
    Pass("compile_objectives", compile_objectives, 48.945, ONLY_DEVICE),
    # nodes are placed
    Pass("fusion_barrier", insert_fusion_barriers, 48.95, NOT_HOST),
    Pass("fuse_rest", fuse_rest, 49.05, NOT_HOST),
    Pass("fusion_limit", split_large_composites, 49.1, NOT_HOST),
    Pass("decompose_sparse_products", decompose_sparse_products, 49.15, NOT_HOST),
    Pass("lift", _lift, 49.2),
    Pass("prepare_host_branches", prepare_host_branches, 49.21),
    # several device Ops become one
    Pass("shorten_loops", shorten_loops, 49.22),
    Pass("last_first", store_last_first, 49.23),
    Pass("fuse_gather", fuse_gathers, 49.25),
    Pass("embedding_bag", fuse_embedding_bags, 49.28),
    Pass("rowwise", fuse_rows, 49.3),
    Pass("gemv_pair", fuse_gemv_pairs, 49.32),
    Pass("epilogue", fuse_epilogues, 49.35),
    Pass("joined_elemwise", fuse_joined_elemwise, 49.36),
    Pass("table_lookup", fuse_table_lookups, 49.4),
    Pass("grouped_rows", fuse_grouped_rows, 49.41),
    Pass("merge_slice_updates", merge_slice_updates, 49.42),
    Pass("draw_in_place", draw_in_place, 50.9),
)


def _rewriter(step: Pass) -> GraphRewriter:
    """Return the rewriter of a pass, which hands errors to the linker: PyTensor would only log them."""

    def run(fgraph: FunctionGraph) -> None:
        try:
            if step.placements is ALL or _placement() in step.placements:
                step.rewrite(fgraph)
        except OpenCLError as error:
            report_error(fgraph, error)

    run.__name__ = f"opencl_{step.name}"
    rewriter: GraphRewriter = graph_rewriter(run)
    return rewriter


def _drop_scan_modes(fgraph: FunctionGraph) -> None:
    """Scan of mode OPENCL -> Scan without a mode, in functions of all modes."""
    inner_graphs.drop_scan_modes(fgraph, OpenCLLinker)


def _inline_markers(fgraph: FunctionGraph) -> None:
    """Marker -> its inner graph, in functions of all modes; mode OPENCL keeps the markers with a kernel."""
    is_for_device = isinstance(getattr(get_active_mode(fgraph), "linker", None), OpenCLLinker)

    def is_kept(node: Apply) -> bool:
        if not is_for_device or _placement() == "host":
            return False
        name = default_context_name()
        return has_kernel(node, name, get_context(name).info)

    inline_markers(fgraph, is_kept, keep_draws=is_for_device)


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
        parallel_compile=config.opencl__parallel_compile,
        batch_kernels=config.opencl__batch_kernels,
        park_workers=config.opencl__park_workers,
        quiet=config.opencl__quiet,
    )


progress.choose(lambda: config.opencl__progress)


def _announce_other_mode() -> None:
    other = flags.other_mode(config)
    if other and not config.opencl__quiet:
        announce(
            f"pytensor-cl: the flag {other} is given, so device={config.device} computes only what is compiled with "
            f"mode='OPENCL'. For all functions leave {other} out"
        )


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
        _announce_other_mode()
        if default is not None:
            early_check.start(specs[default], config.opencl__cache_dir or None)


def _is_queue(value: Any) -> bool:
    """Return whether a value is a queue of pyopencl, which need not be loaded."""
    pyopencl = sys.modules.get("pyopencl")
    return pyopencl is not None and isinstance(value, pyopencl.CommandQueue)


def use(device: Any = "opencl", name: str | None = None, **options: Any) -> str:
    """Choose a device before the first function is compiled for one.

    It becomes the default context if none is defined yet. Unlike the flag ``device`` this does not change the default
    mode. If the context is that device already, by whatever string, nothing changes.

    Parameters
    ----------
    device
        ``opencl<P>:<D>``, ``opencl:<name>`` or ``opencl`` for the default device; or a ``pyopencl.CommandQueue`` of the
        user's, which the context then uses, with its OpenCL context. It must be in order, and the OpenCL context must
        have one device.
    name
        Name of its context; ``dev0`` if none is given.
    options
        Settings with which the device is opened, in place of the flags: ``fast_math``, ``cache_dir``,
        ``parallel_compile``, ``batch_kernels``, ``park_workers``, ``quiet`` (flags of the names ``opencl__...``), and
        ``synchronous``, which waits after each command (``opencl__sync_debug``).

    Returns
    -------
    str
        The context's name.

    Raises
    ------
    ValueError
        The name means another device already, or the host (``cpu``), or options are given for a device that is open. Or
        the queue is out of order, or its OpenCL context has several devices or is in use already.
    TypeError
        An option is no setting, or `device` or `name` is no string.
    DeviceNotFound
        `device` is not the name of an OpenCL device. Whether there is such a device shows when it is opened.

    Examples
    --------
    >>> pytensor_cl.use("opencl:pocl")
    'dev0'
    >>> pytensor_cl.use("opencl:gpu:1", "dev1", fast_math=True)
    'dev1'
    """
    chosen = "dev0" if name is None else name
    check_settings(options)
    if _is_queue(device):
        change_settings(**options)
        adopt_queue(device, chosen)
        return chosen
    check_spec(device)
    if options and is_open(chosen):
        raise ValueError(
            f"context {chosen!r} is open: its settings cannot change any more. Give {', '.join(options)} before the "
            "first function is compiled for the device"
        )
    add_context(chosen, device)
    change_settings(**options)
    return chosen


def devices() -> tuple[DeviceEntry, ...]:
    """Return every OpenCL device, with the strings that name it and its facts.

    The drivers are loaded by the first call. No device is opened.

    Returns
    -------
    tuple of DeviceEntry
        The devices in the loader's order; empty if there is none.

    Examples
    --------
    >>> [device.stable_spec for device in pytensor_cl.devices() if device.info.has_fp64]
    ['opencl:pocl:0']
    """
    return discover()


def _register() -> None:
    for step in PASSES:
        optdb.register(f"opencl_{step.name}", _rewriter(step), "opencl", position=step.position)
    optdb.register("opencl_drop_scan_modes", graph_rewriter(_drop_scan_modes), "minimum_compile", position=-0.6)
    optdb.register("nn_inline_markers", graph_rewriter(_inline_markers), "minimum_compile", position=-0.005)
    registration.register("OPENCL", OPENCL)
    numba_backend.prepare_inner_graphs_for_numba(OpenCLLinker, guard_inner_graph)
    serial_function.serialise_calls(OpenCLVM, assign_lock, accepted_types, adapt)
    registration.check_before_jit(refuse_device_variables)
    c_backend.explain_call_errors(explain_c_error)
    sharedvar.install(run_exclusively)
    printing.register_colours(OP_COLOURS)


_register()
apply_flags()
