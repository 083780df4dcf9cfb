"""Draw the results of figures.py: SVG pictures that suit a light and a dark page, and a summary in Markdown."""

import math
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

INK, LINE = "#010203", "#010204"
"""Colours that the style sheet of a picture replaces."""
STYLE = (
    "<style>:root{--ink:#1f2328;--line:#d0d7de}"
    "@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--line:#3d444d}}</style>"
)
COLOURS = {"device": "#1f77d0", "auto": "#1f77d0", "NUMBA": "#e8710a", "C": "#8a63d2", "JAX": "#1a9850"}
"""Colours of medium brightness, which are seen on white and on black."""
RC = {
    "svg.fonttype": "none",
    "svg.hashsalt": "pytensor-cl",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": LINE,
    "axes.titlesize": 11,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": LINE,
    "axes.grid": True,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.transparent": True,
}


def save(figure: Any, path: Path) -> Path:
    """Write a figure whose colours of text and lines follow the page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None})
    plt.close(figure)
    text = path.read_text().replace(INK, "var(--ink)").replace(LINE, "var(--line)")
    start = text.index(">", text.index("<svg")) + 1
    lines = (text[:start] + STYLE + text[start:]).splitlines()
    path.write_text("\n".join(line.rstrip() for line in lines) + "\n")
    return path


def leads(results: dict[str, Any], peer: str) -> dict[str, float]:
    """Return, for each workload, the time of a peer divided by that of placement ``auto``."""
    found = results["workloads"]
    return {name: times[peer] / times["auto"] for name, times in found.items() if {peer, "auto"} <= set(times)}


def peers_of(results: dict[str, Any]) -> list[str]:
    """Return the backends that were compared."""
    return [peer for peer in ("NUMBA", "C", "JAX") if leads(results, peer)]


def draw_ratios(results: dict[str, Any], path: Path) -> Path:
    """Draw how many times as fast ``auto`` is as each other backend, for each workload."""
    peers = peers_of(results)
    every = {peer: leads(results, peer) for peer in peers}
    names = sorted(results["workloads"], key=lambda name: every[peers[0]].get(name, 0))
    height = 0.8 / len(peers)
    figure, axes = plt.subplots(figsize=(9, 1.6 + 0.42 * len(names)), layout="constrained")
    for k, peer in enumerate(peers):
        found = every[peer]
        mean = geometric_mean(list(found.values()))
        places = [i + (len(peers) - 1 - 2 * k) * height / 2 for i, name in enumerate(names) if name in found]
        label = f"{peer} (geometric mean {mean:.1f})"
        # Bars from 1: those to the left are workloads in which the peer is faster.
        widths = [found[name] - 1 for name in names if name in found]
        axes.barh(places, widths, height * 0.9, left=1, color=COLOURS[peer], label=label)
    axes.set_xscale("log")
    axes.axvline(1, color=INK, linewidth=1)
    low = min(0.5, *(min(found.values()) / 1.2 for found in every.values()))
    high = max(max(found.values()) for found in every.values()) * 1.2
    ticks = [t for t in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500) if low <= t <= high]
    axes.set(xlim=(low, high), ylim=(-0.6, len(names) - 0.4))
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(names)), names)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("how many times as fast it is (1: equally fast; left of it the other one is faster)")
    figure.legend(loc="outside upper center", ncols=len(peers))
    return save(figure, path)


def crossing(by_size: dict[str, dict[str, float]], first: str, second: str) -> float | None:
    """Return the size from which a backend stays faster than another, interpolated in logarithms.

    None if it is not faster at the largest size; the smallest size if it always is.
    """
    points = sorted((float(n), t[first] / t[second]) for n, t in by_size.items() if {first, second} <= set(t))
    if not points or points[-1][1] > 1:
        return None
    size, ratio = points[-1]
    for smaller, other in reversed(points[:-1]):
        if other > 1:
            share = math.log(other) / (math.log(other) - math.log(ratio))
            return smaller * (size / smaller) ** share
        size, ratio = smaller, other
    return size


def draw_sizes(results: dict[str, Any], path: Path) -> Path:
    """Draw the time of a call against the size, and where the device overtakes NUMBA."""
    found = {title: by_size for title, by_size in results["sizes"].items() if by_size}
    figure, axes = plt.subplots(-(-len(found) // 2), 2, figsize=(9, 3.1 * -(-len(found) // 2)), layout="constrained")
    for plot, (title, by_size) in zip(axes.flat, found.items(), strict=False):
        for label in ("device", "NUMBA", "C", "JAX"):
            points = sorted((float(n), times[label]) for n, times in by_size.items() if label in times)
            if points:
                width = 2.4 if label == "device" else 1.4
                plot.loglog(*zip(*points, strict=True), ".-", color=COLOURS[label], linewidth=width, label=label)
        size = crossing(by_size, "device", "NUMBA")
        smallest = min(float(n) for n in by_size)
        if size is not None and size > smallest:
            plot.axvline(size, color=INK, linewidth=1, linestyle=":")
            plot.annotate(
                f"from {short(size)}", (size, 0.02), xycoords=("data", "axes fraction"), textcoords="offset points",
                xytext=(4, 2), fontsize=9,
            )  # fmt: skip
        plot.set(title=title, xlabel="elements", ylabel="seconds a call")
    for plot in axes.flat[len(found) :]:
        plot.axis("off")
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return save(figure, path)


def short(count: float) -> str:
    """Return a number with two digits and a word."""
    for unit, word in ((1e6, " million"), (1e3, ",000")):
        if count >= unit:
            return f"{float(f'{count / unit:.2g}'):g}{word}" if unit > 1e3 else f"{round(float(f'{count:.2g}')):,}"
    return f"{float(f'{count:.2g}'):g}"


def draw_chains(results: dict[str, Any], path: Path) -> Path:
    """Draw the effective draws per second of samplers, without and with the time of the whole process."""
    found = results["chains"]
    counts = [len(samplers) for samplers in found.values()]
    figure, rows = plt.subplots(
        len(found),
        2,
        figsize=(9, 1.1 * len(found) + 0.34 * sum(counts)),
        layout="constrained",
        squeeze=False,
        sharey="row",
        gridspec_kw={"height_ratios": [count + 0.5 for count in counts]},
    )
    for plots, (model, samplers) in zip(rows, found.items(), strict=True):
        names = list(samplers)[::-1]
        colours = [COLOURS["auto"] if name.startswith("pytensor-cl") else "#8b949e" for name in names]
        for plot, part, title in zip(
            plots, ("seconds", "process"), ("warm-up and draws", "the whole process"), strict=True
        ):
            rates = [samplers[name]["effective"] / samplers[name][part] for name in names]
            bars = plot.barh(range(len(names)), rates, 0.7, color=colours)
            plot.bar_label(bars, [f"{float(f'{rate:.3g}'):,.0f}" for rate in rates], padding=3, fontsize=9)
            plot.set(title=f"{model}: {title}", xlim=(0, max(rates) * 1.2))
            plot.set_yticks(range(len(names)), names)
            plot.set_ylim(-0.75, len(names) - 0.25)
            plot.grid(axis="y", visible=False)
            plot.ticklabel_format(axis="x", style="plain")
            plot.locator_params(axis="x", nbins=4)
        plots[0].set_xlabel("effective draws per second")
        plots[1].set_xlabel("effective draws per second")
    return save(figure, path)


def summary(results: dict[str, Any]) -> str:
    """Return what was measured where, and the results in numbers."""
    machine, device, versions = results["machine"], results["device"], results["versions"]
    named = ", ".join(f"{name} {number}" for name, number in versions.items())
    lines = [
        f"Measured on {results['date']} on {machine['processor']}, {machine['cores']} cores"
        + (f", {machine['vector'].upper().removesuffix('F')}" if machine["vector"] else "")
        + f", {machine['system']}; {device['platform']}, {device['version']}; {named}. The load average before was "
        f"{results['load_before']:.1f}; the run took {results['seconds']} seconds.",
    ]
    if results["is_quick"]:
        lines += ["", "**This was a trial run (`--quick`) with small arrays: its numbers say little.**"]
    lines += [
        "",
        "How many times as fast `auto` is; 5 % count as equally fast:",
        "",
        "| `auto` against | geometric mean | least | most | workloads | not slower |",
        "|---|---|---|---|---|---|",
    ]
    for peer in peers_of(results):
        found = list(leads(results, peer).values())
        fine = sum(lead >= 1 / 1.05 for lead in found)
        lines.append(
            f"| {peer} | {geometric_mean(found):.1f} | {min(found):.2f} | {max(found):.0f} | {len(found)} | {fine} |"
        )
    lines += ["", *_slower(results)]
    lines += [
        "",
        "The number of elements from which the device stays faster; a dash means that it does not, within these sizes:",
        "",
        "| | than NUMBA | than C | than JAX |",
        "|---|---|---|---|",
    ]
    for title, by_size in results["sizes"].items():
        cells = [crossing(by_size, "device", peer) for peer in ("NUMBA", "C", "JAX")]
        lines.append(f"| {title} | " + " | ".join("-" if n is None else short(n) for n in cells) + " |")
    return "\n".join(lines) + "\n"


def _slower(results: dict[str, Any]) -> list[str]:
    """Return a table of the workloads and models for which another program is faster, by more than 5 %."""
    rows = []
    for peer in peers_of(results):
        for name, lead in leads(results, peer).items():
            if lead < 1 / 1.05:
                times = (1000 * results["workloads"][name][label] for label in ("auto", peer))
                rows.append((lead, f"{name} | {peer} | {' | '.join(f'{ms:.3g} ms' for ms in times)}"))
    for title, samplers in results["chains"].items():
        rates = {name: found["effective"] / found["seconds"] for name, found in samplers.items()}
        ours = max(rate for name, rate in rates.items() if name.startswith("pytensor-cl"))
        for name, rate in rates.items():
            if ours < rate / 1.05:
                rows.append(
                    (ours / rate, f"{title}, draws/s | {name} | {round(ours, -2):,.0f} | {round(rate, -2):,.0f}")
                )
    if not rows:
        return []
    head = ["Here another program is faster:", "", "| | faster | here | there | ratio |", "|---|---|---|---|---|"]
    return [*head, *(f"| {text} | {lead:.2f} |" for lead, text in sorted(rows))]


def write(results: dict[str, Any], folder: Path) -> list[Path]:
    """Write all pictures and the summary, and return their paths."""
    with matplotlib.rc_context(RC):
        images = folder / "images"
        paths = [
            draw_ratios(results, images / "ratios.svg"),
            draw_sizes(results, images / "sizes.svg"),
        ]
        if results["chains"]:
            paths.append(draw_chains(results, images / "chains.svg"))
    path = folder / "results" / "figures.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("<!-- written by python benchmarks/figures.py: do not edit -->\n\n" + summary(results))
    return [*paths, path]
