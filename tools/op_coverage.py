"""Write docs/coverage.md: which of PyTensor's Ops run on a device, and why the others do not.

usage: python tools/op_coverage.py [--check] [--drivers pocl,intel]

Runs the probes of `tests/probes` on each driver. With ``--check`` nothing is written: the exit status is 1 if the page
is not what the run says. With another PyTensor than the page's, the difference is printed and the exit status is 0.
"""

import argparse
import difflib
import re
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import pytensor  # noqa: E402

from pytensor_cl.runtime.registry import define_contexts  # noqa: E402
from tests.probes.census import GROUPS, HOST, LEFT_OUT, NUMERIC, SEPARATE, group_of, ops, title  # noqa: E402
from tests.probes.survey import DEVICE, PROBES, Outcome, run_all  # noqa: E402

PAGE = ROOT / "docs" / "coverage.md"
INTRODUCTION = """# Coverage

<!-- written by tools/op_coverage.py: do not edit -->

Which Ops of PyTensor {version} run on a device in mode `OPENCL`. There are {ops} Op classes that a user's graph can
contain; base classes, and what backends make for themselves, are left out. Each was put in one or more small graphs,
{probes} in all (`tests/probes`), which were compiled with `opencl__placement=device`, run on {drivers}, and compared
with PyTensor's Python Ops: values, dtypes, shapes. An Op that PyTensor replaces before a graph comes to a device
(XTensor's, `Softmax`, `Einsum`) counts as what it becomes.

`device` means that at least one of the Op's graphs runs there and is right; the graphs that do not are named beside it.
The reasons are those that `pytensor_cl.explain` gives. Sparse matrices are objects of the host; the vectors
that make them up are on the device, and all that is computed from them. They are counted in a row of their own.
"Right on" names the drivers on which all graphs were right.

The first row counts all of them. The others divide it. What is left in linear
algebra are generalised Schur forms (QZ), and Riccati equations, which are made of them.

`python tools/op_coverage.py` writes this page; with `--check` it compares the page with what the code does.
"""


class Row(NamedTuple):
    """A row about an Op: where it runs, why there, what was tried."""

    op: type
    on_device: bool
    reason: str
    dtypes: str
    drivers: str


def _dtypes(outcomes: Iterable[Outcome]) -> str:
    return ", ".join(sorted({dtype for outcome in outcomes for dtype in outcome.probe.dtypes}))


def _reason(outcomes: Sequence[Outcome], on_device: bool) -> str:
    """Why the Op is on the host; for one on the device, which of its graphs are not."""
    away = [o for o in outcomes if o.place != DEVICE and not o.fault]
    if not on_device:
        return away[0].reason if away else "; ".join(sorted({o.fault for o in outcomes}))
    exceptions = sorted({f"{o.probe.variant or 'a graph'}: {o.reason}" for o in away})
    return "; ".join(exceptions)


def _row(op: type, by_driver: Mapping[str, Sequence[Outcome]]) -> Row:
    outcomes = [outcome for found in by_driver.values() for outcome in found]
    on_device = any(o.place == DEVICE and not o.fault for o in outcomes)
    right = [driver for driver, found in by_driver.items() if not any(o.fault for o in found)]
    return Row(op, on_device, _reason(outcomes, on_device), _dtypes(outcomes), ", ".join(right))


def survey(drivers: Sequence[str]) -> list[Row]:
    """Run every probe on every driver; a row for each Op."""
    found: dict[type, dict[str, list[Outcome]]] = defaultdict(lambda: {driver: [] for driver in drivers})
    for driver in drivers:
        define_contexts({name: f"opencl:{name}" for name in drivers}, driver)
        for outcome in run_all(PROBES):
            found[outcome.probe.op][driver].append(outcome)
            if outcome.fault:
                sys.stderr.write(f"{driver}: {outcome.probe.name}: {outcome.fault}\n")
    return [_row(op, found[op]) for op in ops() if op in found]


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")


def _share(rows: Sequence[Row]) -> str:
    count = sum(row.on_device for row in rows)
    return f"{count} | {len(rows)} | {100 * count / len(rows):.0f} %" if rows else "0 | 0 |"


def _totals(rows: Sequence[Row]) -> list[str]:
    numeric = [row for row in rows if group_of(row.op)[2] == NUMERIC]
    lines = ["| | on the device | Ops | share |", "|---|---|---|---|", f"| **all Ops** | {_share(rows)} |"]
    lines.append(f"| numeric Ops but those of the next four rows | {_share(numeric)} |")
    for name, _, kind in GROUPS:
        if kind == SEPARATE:
            lines.append(f"| {name} | {_share([row for row in rows if group_of(row.op)[0] == name])} |")
    rest = [row for row in rows if group_of(row.op)[2] == HOST]
    lines.append(f"| objects of the host: typed lists, prints, indices, searches | {_share(rest)} |")
    return lines


def _table(name: str, rows: Sequence[Row]) -> list[str]:
    count = sum(row.on_device for row in rows)
    lines = ["", f"## {name}", "", f"{count} of {len(rows)} on the device.", ""]
    lines += ["| Op | where | if on the host: why | dtypes tried | right on |", "|---|---|---|---|---|"]
    for row in rows:
        short = title(row.op).removeprefix("pytensor.")
        place = "device" if row.on_device else "host"
        lines.append(f"| `{short}` | {place} | {_cell(row.reason)} | {row.dtypes} | {row.drivers} |")
    return lines


def page(rows: Sequence[Row], drivers: Sequence[str]) -> str:
    """Return the page's text."""
    facts = {"version": pytensor.__version__, "ops": len(rows), "probes": len(PROBES), "drivers": " and ".join(drivers)}
    lines = [INTRODUCTION.format(**facts), *_totals(rows)]
    for name in dict.fromkeys(group[0] for group in GROUPS):
        chosen = [row for row in rows if group_of(row.op)[0] == name]
        lines += _table(name, chosen) if chosen else []
    lines += ["", "## Left out", "", "| Op | why |", "|---|---|"]
    lines += [
        f"| `{name}{'*' if name.endswith(('.', '_')) else ''}` | {why} |" for name, why in sorted(LEFT_OUT.items())
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the page, or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is not current")
    parser.add_argument("--drivers", default="pocl,intel", help="default: %(default)s")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    drivers = options.drivers.split(",")
    text = page(survey(drivers), drivers)
    if not options.check:
        PAGE.write_text(text)
        return 0
    return _compare(PAGE.read_text() if PAGE.exists() else "", text)


def _compare(there: str, text: str) -> int:
    """Print how the page differs from the run; return 1 if it must not."""
    sys.stdout.writelines(difflib.unified_diff(there.splitlines(True), text.splitlines(True), "the page", "the run"))
    written_with = re.search(r"Ops of PyTensor (\S+) run", there)
    if written_with and written_with[1] != pytensor.__version__:
        sys.stdout.write(f"the page is of PyTensor {written_with[1]}, the run of {pytensor.__version__}\n")
        return 0
    return int(there != text)


if __name__ == "__main__":
    sys.exit(main())
