"""Write docs/distributions.md: which densities of PyMC's distributions run on a device, and whether they are right.

usage: python tools/distribution_grid.py [--only NAME,NAME] [--jobs N] [--device DEVICE]

Takes half an hour on two cores. With ``--only`` the rows of some distributions are printed, and nothing is written.
The exit status is 1 if a result differs from the CPU's, or a rewrite fails.
"""

import argparse
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
from pytensor.tensor.elemwise import Elemwise  # noqa: E402

import pytensor_cl  # noqa: E402
from pytensor_cl.linker.steps import host  # noqa: E402
from tests import conftest  # noqa: E402
from tests.pymc.distributions import CASES, LEFT_OUT, SIZE, Case  # noqa: E402
from tests.pymc.grid import CHAINS, KINDS, NOTHING, RTOL, Outcome, run  # noqa: E402

PAGE = ROOT / "docs" / "distributions.md"
DEVICE, NONE, SMALL = "device", "", "small"
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
on the host; `small`: there is nothing else. `float64` names nodes of a float32 graph that read or write float64.
Empty: PyMC has no such function, or no gradient.

{device_count} of {count} quantities and gradients run wholly on the device. {differing}

Left out: {left_out}.

`python tools/distribution_grid.py` writes this page.

| distribution | logp | gradient | logcdf | gradient | icdf | batched | gradient | float32 | gradient |
|---|---|---|---|---|---|---|---|---|---|
"""


def _prepare(device: str) -> None:
    """Build kernels without optimisation, and run the host's small nodes in Python: results are the same."""
    warnings.simplefilter("ignore")
    pytensor_cl.use(device)
    pytensor.config.cxx = ""
    conftest.build_quickly()
    host.LOOPS = tuple(op for op in host.LOOPS if op is not Elemwise)


def _run(name: str) -> list[Outcome]:
    case = next(case for case in CASES if case.name == name)
    return [run(case, kind) for kind in KINDS]


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
    cells = [_place(on_host) for on_host in outcome.on_host]
    wide = ", ".join(f"`{_op(name)}`" for name in outcome.wide)
    return [f"{cell}; float64: {wide}" if cell and wide else cell for cell in cells]


def _row(outcomes: Sequence[Outcome]) -> list[str]:
    by_kind = {outcome.kind: _cells(outcome) for outcome in outcomes}
    quantile = by_kind["icdf"][:1]
    return [*by_kind["logp"], *by_kind["logcdf"], *quantile, *by_kind["batched"], *by_kind["float32"]]


def _line(name: str, row: Sequence[str]) -> str:
    distribution, _, rest = name.partition(" ")
    return f"| `{distribution}`{' ' if rest else ''}{rest} | " + " | ".join(row) + " |"


def _page(rows: Mapping[str, Sequence[str]], device: str) -> str:
    cells = [cell for row in rows.values() for cell in row if cell]
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


def _outcomes(cases: Sequence[Case], device: str, jobs: int) -> Iterator[list[Outcome]]:
    names = [case.name for case in cases]
    with ProcessPoolExecutor(jobs, get_context("spawn"), _prepare, (device,)) as pool:
        for found in pool.map(_run, names):
            for outcome in found:
                if outcome.fault:
                    sys.stderr.write(f"{outcome.name}, {outcome.kind}: {outcome.fault}\n")
            yield found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases and write the page, or print the chosen rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="distributions, separated by commas")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--device", default="opencl:pocl")
    options = parser.parse_args(arguments)
    chosen = set(filter(None, options.only.split(",")))
    cases = [case for case in CASES if not chosen or case.distribution in chosen]
    rows: dict[str, list[str]] = {}
    for case, found in zip(cases, _outcomes(cases, options.device, options.jobs), strict=True):
        rows[case.name] = _row(found)
        sys.stderr.write(_line(case.name, rows[case.name]) + "\n")
    if not chosen:
        PAGE.write_text(_page(rows, options.device))
    return int(any("differs" in cell for row in rows.values() for cell in row))


if __name__ == "__main__":
    sys.exit(main())
