"""Matrix of compilations: programs, dialects of OpenCL C and targets."""

import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

from tools.compile_tables.compilers import AMD, NVIDIA, Compiler, Kernel
from tools.compile_tables.programs import Program

__all__ = ["DIALECTS", "KNOWN", "Failure", "Results", "compile_all"]

_WITHOUT = {
    "full": "",
    "no-fp16": "-cl_khr_fp16",
    "small": "-cl_khr_fp64,-cl_khr_fp16",
}
_NOTHING = "-all"  # OpenCL C 3.0 on the smallest device: no optional feature at all
DIALECTS = ("CL1.2", "CL3.0")


class Known(NamedTuple):
    """Spills that are accepted, and why."""

    # template, mark: the kernels: of which template, and an expression that matches in their text
    template: str
    mark: str
    targets: tuple[str, ...]
    most: int  # the most allowed spills, in bytes or registers as in `Kernel`; more are an error
    reason: str  # explanation on the page


KNOWN = (
    Known(
        "gemm_simt_double_buffered", "at most", ("sm_70",), 280,
        "sums of 64 elements, and a limit of registers that lets several work-groups run on a multiprocessor",
    ),
    Known(
        "gemm_simt_double_buffered", "at most", ("sm_80", "sm_90"), 160, "the same: a few registers, in small tiles",
    ),
    Known("conv_simt_double_buffered", "at most", ("sm_70",), 280, "the same as of gemm_simt_double_buffered"),
    Known("conv_simt_double_buffered", "at most", ("sm_80",), 32, "the same: a few registers, in the largest tile"),
    Known("elemwise_simt", "hyp2f1_double", NVIDIA, 512, "a function of many branches that computes much"),
    Known(
        "elemwise_simt", r"(bessel|beta|gamma|erf\w*)_\w*(double|float)\(|log_double", ("gfx90a",), 600,
        "special functions of float64, mostly several in one kernel, whose constants the compiler holds in registers; "
        "gfx906 and gfx1100 spill nothing",
    ),
    Known(
        "elemwise_simt", "b_o30", (*NVIDIA, *AMD), 4096,
        "a test of all complex functions in one kernel, whose results wait in registers for each other",
    ),
)  # fmt: skip


def _options(dialect: str, device: str) -> tuple[str, ...]:
    """Return clang's options for the language that a device has."""
    lacks = _NOTHING if device == "small" and dialect == "CL3.0" else _WITHOUT[device]
    return (f"-cl-std={dialect}", *(("-Xclang", f"-cl-ext={lacks}") if lacks else ()))


class Failure(NamedTuple):
    """A text that a compiler rejects."""

    program: Program
    target: str
    options: tuple[str, ...]
    message: str


@dataclass
class Results:
    """Results of all compilations."""

    kernels: dict[tuple[str, str], Kernel] = field(default_factory=dict)  # keys: target, name of the kernel
    programs: dict[str, Program] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    count: int = 0  # number of compilations

    def spilled(self) -> list[tuple[str, str]]:
        """Return target and name of the kernels that keep registers in memory, but for those that are `KNOWN`."""
        found = (key for key, kernel in self.kernels.items() if kernel.spills)
        return sorted(key for key in found if self.reason(*key) is None)

    def reason(self, target: str, name: str) -> str | None:
        """Return why a kernel may spill; None if it may not."""
        program, kernel = self.programs[name], self.kernels[target, name]
        fits = (
            known.reason
            for known in KNOWN
            if known.template == program.family
            and re.search(known.mark, program.text)
            and target in known.targets
            and kernel.spills <= known.most
        )
        return next(fits, None)


class _Job(NamedTuple):
    program: Program
    target: str
    options: tuple[str, ...]


def _jobs(program: Program, targets: Sequence[str]) -> Iterator[_Job]:
    """Yield how a program is compiled.

    The front end reads it in each dialect, for each device that gets it. Machine code is made once, as OpenCL C 1.2 for
    the device with the most extensions; for the others only of texts that look at the extensions.
    """
    devices = sorted(program.devices, key=list(_WITHOUT).index)
    if "front-end" in targets:
        for device in devices:
            for dialect in DIALECTS:
                yield _Job(program, "front-end", _options(dialect, device))
    looks = "cl_khr_fp" in program.text
    for target in targets:
        if target in (*NVIDIA, *AMD, "spirv"):
            for device in devices if looks else devices[:1]:
                yield _Job(program, target, _options("CL1.2", device))


def compile_all(programs: Iterable[Program], targets: Sequence[str], compiler: Compiler, jobs: int) -> Results:
    """Compile programs for targets, several at a time."""
    results = Results()
    todo = [job for program in programs for job in _jobs(program, targets)]
    with ThreadPoolExecutor(jobs) as pool:
        outcomes = pool.map(lambda job: compiler(job.program.text, job.target, job.options), todo)
        for job, outcome in zip(todo, outcomes, strict=True):
            results.count += 1
            if outcome.error:
                results.failures.append(Failure(*job, outcome.error))
            for name, kernel in outcome.kernels.items():
                results.programs[name] = job.program
                known = results.kernels.get((job.target, name))
                if known is None or _worse(kernel, known):
                    results.kernels[job.target, name] = kernel
    return results


def _worse(kernel: Kernel, known: Kernel) -> bool:
    return (kernel.spills, kernel.stack, kernel.registers) > (known.spills, known.stack, known.registers)
