"""Write docs/distributions.md: which densities of PyMC's distributions run on a device, and whether they are right.

usage: python tools/distribution_grid.py [--only NAME,NAME] [--kinds KIND,KIND] [--store FILE [--missing]] [--jobs N]

Takes half an hour on two quiet cores. ``--only`` and ``--kinds`` choose a part; with ``--store`` results are kept in a
file between runs, and the page shows all of them; ``--missing`` runs what the file lacks. What has not been run is
marked so.
The exit status is 1 if a result differs from the CPU's, or a rewrite fails.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import pymc  # noqa: E402
import pytensor  # noqa: E402

import pytensor_cl  # noqa: E402
from tests import conftest  # noqa: E402
from tests.pymc.distributions import CASES, LEFT_OUT, SIZE  # noqa: E402
from tests.pymc.grid import CHAINS, KINDS, NOTHING, RTOL, Outcome, run  # noqa: E402

PAGE = ROOT / "docs" / "distributions.md"
DEVICE, NONE, SMALL, NOT_RUN, NOT_BUILT = "device", "", "small", "not run", "not built"
INTRODUCTION = """# Distributions

<!-- written by tools/distribution_grid.py: do not edit -->

The densities of all distributions of PyMC {pymc}, with PyTensor {pytensor}: compiled with
`opencl__placement=device`, run on {device}, and compared with PyTensor's Python Ops on the CPU. Parameters and values
are inputs of the graph; a distribution of scalars has {size} values. Gradients are those of the sum by each parameter
and value of floating point.

| column | |
|---|---|
| logp, logcdf, icdf | the quantity, float64, relative difference below {double:g} |
| gradient | that of the column before |
| batched | logp and its gradient at {chains} points by `vectorize_graph`, after `replace_parameter_checks` |
| float32 | logp and its gradient with `floatX=float32`, relative difference below {single:g} |

`device`: all of it runs there. Else the Ops that stay on the host are named. Arithmetic on single numbers always runs
on the host; `small`: there is nothing else. `not run`: the page was written from a part of the cases.
`not built`: PyMC or PyTensor raises an error when the graph is made. `float64` names nodes of a float32 graph that read
or write float64: PyMC multiplies float32 by int64 there, or has a constant of float64, so that these values are float64
on the CPU too.
Empty: PyMC has no such function of arrays, or no gradient.

{device_count} of {count} quantities and gradients run wholly on the device. {differing}

Left out: {left_out}.

`python tools/distribution_grid.py` writes this page.

| distribution | logp | gradient | logcdf | gradient | icdf | batched | gradient | float32 | gradient |
|---|---|---|---|---|---|---|---|---|---|
"""


def _prepare(device: str) -> None:
    """Build kernels without optimisation: results are the same."""
    warnings.simplefilter("ignore")
    pytensor_cl.use(device)
    pytensor.config.cxx = ""
    conftest.build_quickly()


def _run(job: tuple[str, str]) -> Outcome:
    name, kind = job
    return run(next(case for case in CASES if case.name == name), kind)


def _op(text: str) -> str:
    """Shorten an Op with its parameters to its name."""
    name = text.partition(": ")[0]
    if name.startswith("Blockwise{"):
        return f"Blockwise({_op(name.removeprefix('Blockwise{'))})"
    return name.partition("{")[0].partition("[")[0]


def _place(on_host: tuple[str, ...] | None) -> str:
    if on_host is None:
        return NONE
    if on_host == (NOTHING,):
        return SMALL
    return ", ".join(f"`{name}`" for name in sorted({_op(text) for text in on_host})) or DEVICE


def _cells(outcome: Outcome) -> list[str]:
    """Return the cells of a quantity and its gradient."""
    if outcome.fault:
        return ["**differs**"] * 2
    if outcome.missing and outcome.kind not in ("logcdf", "icdf"):  # every distribution has a density
        sys.stderr.write(f"{outcome.name}, {outcome.kind}: {outcome.missing}\n")
        return [NOT_BUILT] * 2
    cells = [_place(on_host) for on_host in outcome.on_host]
    wide = ", ".join(f"`{name}`" for name in sorted(set(map(_op, outcome.wide))))
    return [f"{cell}; float64: {wide}" if cell and wide else cell for cell in cells]


def _row(by_kind: Mapping[str, Sequence[str]]) -> list[str]:
    logp, logcdf, icdf, batched, single = (by_kind.get(kind, [NOT_RUN] * 2) for kind in KINDS)
    return [*logp, *logcdf, *icdf[:1], *batched, *single]


def _line(name: str, row: Sequence[str]) -> str:
    distribution, _, rest = name.partition(" ")
    return f"| `{distribution}`{' ' if rest else ''}{rest} | " + " | ".join(row) + " |"


def _page(rows: Mapping[str, Sequence[str]], device: str) -> str:
    cells = [cell for row in rows.values() for cell in row if cell not in (NONE, NOT_RUN, NOT_BUILT)]
    wrong = [name for name, row in rows.items() if any("differs" in cell for cell in row)]
    text = INTRODUCTION.format(
        pymc=pymc.__version__,
        pytensor=pytensor.__version__,
        device=device.removeprefix("opencl:"),
        size=SIZE,
        chains=CHAINS,
        double=RTOL["float64"],
        single=RTOL["float32"],
        count=len(cells),
        device_count=sum(cell.startswith(DEVICE) for cell in cells),
        differing=f"Of these differ from the CPU: {', '.join(wrong)}." if wrong else "All agree with the CPU.",
        left_out="; ".join(f"`{name}` ({why})" for name, why in LEFT_OUT.items()),
    )
    return text + "\n".join(_line(name, row) for name, row in rows.items()) + "\n"


def _outcomes(jobs: Sequence[tuple[str, str]], device: str, processes: int) -> Iterator[Outcome]:
    with ProcessPoolExecutor(processes, get_context("spawn"), _prepare, (device,)) as pool:
        for outcome in pool.map(_run, jobs):
            if outcome.fault:
                sys.stderr.write(f"{outcome.name}, {outcome.kind}: {outcome.fault}\n")
            yield outcome


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="distributions, separated by commas")
    parser.add_argument("--kinds", default=",".join(KINDS), help="quantities, separated by commas (default: all)")
    parser.add_argument("--store", type=Path, help="JSON file of earlier results; changed")
    parser.add_argument("--missing", action="store_true", help="run only what the store lacks")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--device", default="opencl:pocl")
    options = parser.parse_args(arguments)
    only, kinds = set(filter(None, options.only.split(","))), options.kinds.split(",")
    kept = json.loads(options.store.read_text()) if options.store and options.store.exists() else {}
    done = {(name, kind) for name, cells in kept.items() for kind in cells} if options.missing else set()
    jobs = [(c.name, kind) for kind in kinds for c in CASES if not only or c.distribution in only]
    jobs = [job for job in jobs if job not in done]
    for outcome in _outcomes(jobs, options.device, options.jobs):
        kept.setdefault(outcome.name, {})[outcome.kind] = _cells(outcome)
        sys.stderr.write(f"{outcome.name}, {outcome.kind}: {' | '.join(kept[outcome.name][outcome.kind])}\n")
        if options.store:
            options.store.write_text(json.dumps(kept, indent=1))
    rows = {case.name: _row(kept.get(case.name, {})) for case in CASES}
    PAGE.write_text(_page(rows, options.device))
    return int(any("differs" in cell for row in rows.values() for cell in row))


if __name__ == "__main__":
    sys.exit(main())
