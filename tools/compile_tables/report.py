"""The page of the results, as Markdown."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from tools.compile_tables.compilers import AMD, NVIDIA, Kernel
from tools.compile_tables.matrix import KNOWN, Results
from tools.compile_tables.occupancy import occupancy
from tools.compile_tables.programs import Program

__all__ = ["page", "summary"]

_NAMED = 2  # benchmarks that a row names


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _cell(target: str, kernel: Kernel | None, group: int) -> str:
    """Registers, the share of the device's wavefronts, and spilled values."""
    if kernel is None:
        return "-"
    parts = [str(kernel.registers)]
    if group:
        parts.append(f"{occupancy(target, kernel, group):.0%}")
    if kernel.spills:
        parts.append(f"**spills {kernel.spills}**")
    if kernel.stack:
        parts.append(f"private {kernel.stack}")
    return ", ".join(parts)


class _Row:
    """Kernels of the benchmarks that look alike, and where they are used."""

    def __init__(self) -> None:
        self.benchmarks: set[str] = set()
        self.count = 0

    @property
    def where(self) -> str:
        names = sorted(self.benchmarks)
        more = len(names) - _NAMED
        return "; ".join(names[:_NAMED]) + (f"; {more} more" if more > 0 else "")


def _kernels_of(program: Program, results: Results, targets: Sequence[str]) -> list[str]:
    return sorted({name for target, name in results.kernels if target in targets and name.startswith(program.name)})


def _benchmark_rows(
    programs: Iterable[Program], groups: dict[str, int], results: Results, targets: Sequence[str], names: dict
) -> list[list[str]]:
    """Return a row for each kernel; those with equal figures share one."""
    rows: defaultdict[tuple[str, ...], _Row] = defaultdict(_Row)
    for program in programs:
        for name in names[program.name] if program.benchmarks else ():
            found = [results.kernels.get((t, name)) for t in targets]
            if name not in groups:
                continue  # another variant: no benchmark launches it
            group = groups[name]
            local = max((k.local for k in found if k), default=0)
            label = program.family + name.removeprefix(program.name)
            cells = (_cell(t, k, group) for t, k in zip(targets, found, strict=True))
            row = rows[f"`{label}`", str(group or "driver's"), str(local), *cells]
            row.benchmarks.update(program.benchmarks)
            row.count += 1
    return [[label, row.where, *rest] for (label, *rest), row in sorted(rows.items())]


def _family_rows(
    programs: Iterable[Program], groups: dict[str, int], results: Results, targets: Sequence[str], names: dict
) -> Iterator[list[str]]:
    """Yield a row for each family: how many kernels, and the worst of them."""
    families: defaultdict[str, list[str]] = defaultdict(list)
    for program in programs:
        families[program.family] += names[program.name]
    for family, kernels in sorted(families.items()):
        row = [f"`{family}`", str(len(kernels))]
        for target in targets:
            found = {name: results.kernels[target, name] for name in kernels if (target, name) in results.kernels}
            row.append(_worst(target, found, groups))
        yield row


def _worst(target: str, found: dict[str, Kernel], groups: dict[str, int]) -> str:
    if not found:
        return "-"
    shares = [occupancy(target, kernel, groups[name]) for name, kernel in found.items() if groups.get(name)]
    spilled = sum(k.spills > 0 for k in found.values())
    stacks = [k.stack for k in found.values() if k.stack]
    parts = [str(max(k.registers for k in found.values()))]
    parts += [f"{min(shares):.0%}"] if shares else []
    parts += [f"**{spilled} spill**"] if spilled else []
    parts += [f"{len(stacks)} have private memory, at most {max(stacks)}"] if stacks else []
    return ", ".join(parts)


def _known_rows() -> Iterator[list[str]]:
    for known in KNOWN:
        mark = known.mark.replace("|", "\\|")
        yield [f"`{known.template}`", f"`{mark}`", ", ".join(known.targets), str(known.most), known.reason]


_HEAD = """# What GPU compilers make of the kernels

<!-- written by python -m tools.compile_tables: do not edit -->

Made by `python -m tools.compile_tables {command} --write docs/compile-tables.md`, which needs no GPU: it records the
kernels that {sources} launch on a GPU, and compiles each one. {versions}

A cell has the registers of a work-item (on AMD's devices vector registers), and the share of the warps or wavefronts of
a full multiprocessor or compute unit that are resident, with the largest work-group that was launched. "private" is
private memory in bytes, spilled registers included. A spill makes the command fail, unless it is listed below. Where a
kernel's text has a limit of registers, ptxas gets it as an option, as NVIDIA's driver does.
"""


def page(
    programs: Sequence[Program], groups: dict[str, int], results: Results, targets: Sequence[str], versions: str
) -> str:
    """Return the page."""
    columns = [t for t in targets if t in (*NVIDIA, *AMD)]
    only_benchmarks = all(program.benchmarks for program in programs)
    sources = "the benchmarks" if only_benchmarks else "the tests and the benchmarks"
    names = {program.name: _kernels_of(program, results, columns) for program in programs}
    arguments = (programs, groups, results, columns, names)
    lines = [
        _HEAD.format(versions=versions, command="--benchmarks" * only_benchmarks, sources=sources).replace(
            "  --", " --"
        ),
        "## Kernels of the benchmarks",
        "",
        *_table(("kernel", "benchmarks", "work-group", "local memory", *columns), _benchmark_rows(*arguments)),
        "",
        f"## All kernels of {sources}, by template",
        "",
        "The most registers, and the smallest share, of any.",
        "",
        *_table(("template", "kernels", *columns), _family_rows(*arguments)),
        "",
        "## Accepted spills",
        "",
        *_table(("template", "in whose text", "devices", "at most", "why"), _known_rows()),
        "",
    ]
    return "\n".join(lines)


def summary(results: Results) -> Iterator[str]:
    """Yield lines for a terminal: what failed, and what spills."""
    for failure in results.failures:
        options = " ".join(failure.options)
        yield f"DOES NOT COMPILE {failure.program.name} for {failure.target} {options}: {failure.message}"
        yield f"    from {', '.join(sorted(failure.program.origins)[:3])}"
    for (target, name), kernel in sorted(results.kernels.items()):
        if kernel.spills and results.reason(target, name):
            yield f"known: {name} on {target} spills {kernel.spills}: {results.reason(target, name)}"
    for target, name in results.spilled():
        kernel = results.kernels[target, name]
        yield f"SPILLS {name} on {target}: {kernel.spills}, with {kernel.registers} registers"
    yield (
        f"{results.count} compilations, {len(results.kernels)} of kernels to machine code; "
        f"{len(results.failures)} failed, {len(results.spilled())} spill"
    )
