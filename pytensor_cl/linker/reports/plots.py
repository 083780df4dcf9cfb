"""Plots of a profile with matplotlib, which is optional."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pytensor_cl.linker.reports.page import COLOURS
from pytensor_cl.linker.run.timed_call import TimedCall
from pytensor_cl.ops.base import GpuOp
from pytensor_cl.ops.names import short_name
from pytensor_cl.ops.transfer import GpuFromHost, GpuToGpu, HostFromGpu
from pytensor_cl.routines.peak import Peak
from pytensor_cl.runtime.timed_queue import COPY, KERNEL

LABELLED = 8  # number of points of the roofline that have a name, the nodes with the longest times
_LINES = {kind: line for kind, (_, line) in COLOURS.items()}
_HATCHES = {"device": "", "transfer": "///", "host": "..."}
_MARKERS = "osD^vP"


def _new_axes(size: tuple[float, float]) -> Any:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("plots of a profile need matplotlib: pip install matplotlib") from error
    return pyplot.subplots(figsize=size, layout="constrained")[1]


def _kind_of_step(op: Any) -> str:
    if isinstance(op, (GpuFromHost, HostFromGpu, GpuToGpu)):
        return "transfer"
    return "device" if isinstance(op, GpuOp) else "host"


def plot_timeline(functions: Sequence[Any], calls: Sequence[tuple[int, TimedCall]], axes: Any, number: int) -> Any:
    """Plot one call; see `Profile.plot_timeline`."""
    if not -len(calls) <= number < len(calls):
        raise IndexError(f"call {number} was asked for, and {len(calls)} calls have been kept")
    at, call = calls[number]
    nodes = functions[at].vm.nodes
    contexts = sorted({command.context for command in call.commands})
    rows = ["host: steps", *contexts]
    unit, scale = ("ms", 1e-6) if call.end - call.start > 2_000_000 else ("us", 1e-3)
    spans: list[tuple[int, str, float, float, str]] = [
        (0, _kind_of_step(nodes[s.node].op), s.start, s.end, short_name(nodes[s.node].op)) for s in call.steps
    ]
    for c in call.commands:
        name = short_name(nodes[c.step].op) if c.step < len(nodes) else "errors"
        kind = "device" if c.kind in (KERNEL, COPY) else "transfer"
        spans.append((1 + contexts.index(c.context), kind, c.start, c.end, name))
    axes = _new_axes((10, 1.6 + 0.9 * len(rows))) if axes is None else axes
    whole = scale * (call.end - call.start)
    named: set[str] = set()
    for row, kind, start, end, name in spans:
        left, width = scale * (start - call.start), scale * (end - start)
        label = {"device": "kernels", "transfer": "transfers", "host": "nodes of the host"}[kind]
        if row == 0 and kind == "device":
            kind, label = "constant", "launches"
        axes.barh(
            row,
            width,
            left=left,
            height=0.7,
            color=COLOURS[kind][0],
            edgecolor=_LINES[kind],
            linewidth=0.6,
            hatch=_HATCHES.get(kind, ""),
            label="" if label in named else label,
        )
        named.add(label)
        shown = _fitting(name, width / whole)
        if shown:
            axes.text(left + width / 2, row, shown, ha="center", va="center", fontsize=7, clip_on=True)
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()
    axes.set_xlim(0, whole)
    axes.set_xlabel(f"time since the call began [{unit}]")
    name = functions[at].name or "the function"
    axes.set_title(f"one call of {name}, {whole:,.{0 if whole >= 100 else 2}f} {unit}", fontsize=10)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.32), ncols=4, fontsize=8, frameon=False)
    return axes


def _fitting(name: str, part: float) -> str:
    """Return as much of a name as a bar of this part of the width has room for."""
    room = int(150 * part)
    return name if len(name) <= room else f"{name[: room - 1]}…" if room > 7 else ""


def plot_roofline(nodes: Sequence[Any], peaks: Mapping[str, Peak], axes: Any) -> Any:
    """Plot the nodes of a profile; see `Profile.plot_roofline`."""
    counted = [n for n in nodes if n.flops and n.nbytes and n.device_seconds and n.context in peaks]
    counted.sort(key=lambda n: -n.device_seconds)
    if not counted:
        raise ValueError("no node of the profile has kernels whose operations are counted: there is nothing to plot")
    axes = _new_axes((8, 5)) if axes is None else axes
    intensities = [n.flops / n.nbytes for n in counted]
    limits = [peak.flops.get("float32", 1.0) / peak.bytes_per_second for peak in peaks.values()]
    low, high = min(*intensities, *limits, 0.1) / 2, max(*intensities, *limits, 1.0) * 4
    for context, dtype in sorted({(n.context, n.dtype) for n in counted}):
        _plot_roof(axes, context, dtype, peaks[context], np.geomspace(low, high, 200))
    slowest = max(n.device_seconds for n in counted)
    for k, (n, intensity) in enumerate(zip(counted, intensities, strict=True)):
        size = 30 + 250 * n.device_seconds / slowest
        marker = _MARKERS[k % len(_MARKERS)]
        label = f"{k + 1}  {short_name(n.node.op)}" if k < LABELLED else None
        rate = n.flops / n.device_seconds / 1e9
        axes.scatter([intensity], [rate], s=size, marker=marker, alpha=0.75, edgecolors="black", label=label)
        if label:
            axes.annotate(str(k + 1), (intensity, rate), xytext=(8, 6), textcoords="offset points", fontsize=8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_xlabel("operations per byte")
    axes.set_ylabel("GFLOP/s")
    axes.set_title("device nodes; the area is the time", fontsize=10)
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False, markerscale=0.5)
    return axes


def _plot_roof(axes: Any, context: str, dtype: str, peak: Peak, intensity: np.ndarray) -> None:
    """Plot what the bandwidth and the arithmetic of a device allow."""
    arithmetic = peak.flops.get(dtype, 0.0)
    allowed = peak.bytes_per_second * intensity
    if arithmetic:
        allowed = np.minimum(allowed, arithmetic)
    text = f"{context}: {peak.bytes_per_second / 1e9:.0f} GB/s, {arithmetic / 1e9:.0f} GFLOP/s {dtype}"
    axes.plot(intensity, allowed / 1e9, linewidth=1.5, linestyle="-" if dtype == "float32" else "--", label=text)
