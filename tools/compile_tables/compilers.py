"""Run the compilers of NVIDIA, AMD and SPIR-V on a kernel's text, and read registers and memory from their output."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from pytensor_cl.runtime.compilation.variants import nvidia_variants

__all__ = ["TARGETS", "Compiler", "Kernel", "Outcome", "missing_tools", "parse_notes", "parse_ptxas", "versions"]

NVIDIA = ("sm_70", "sm_80", "sm_90")
AMD = ("gfx906", "gfx90a", "gfx1100")
TARGETS = (*NVIDIA, *AMD, "spirv", "front-end")
_LLVM = "19"  # from 21 on a kernel calls a copy of itself for NVIDIA's devices, with a stack for its structs
_SPIRV = "15"  # the newest translator that Debian 12 has
_HEADERS = ("-Xclang", "-finclude-default-header", "-Xclang", "-fdeclare-opencl-builtins")
_LIBDEVICE = "libdevice.10.bc"
_LIBRARIES = {"NVIDIA": ("nvptx64--nvidiacl.bc", _LIBDEVICE), "AMD": ("amdgcn--amdhsa.bc",)}
# `asm`, and what the driver's probes switch on
_PTX = ("-fgnu-keywords", "-DWARP_SHUFFLES", "-DHALF_CONVERSIONS")


@dataclass
class Kernel:
    """Resources of one compiled kernel."""

    registers: int = 0  # registers per work-item; on AMD's devices vector registers
    # scalar_registers, scalar_spills: per wavefront, AMD only; these spills go to lanes of vector registers, not to
    # memory
    scalar_registers: int = 0
    spills: int = 0  # bytes (NVIDIA: stored and loaded together) or registers (AMD)
    scalar_spills: int = 0
    stack: int = 0  # bytes of private memory, spilled registers included
    local: int = 0  # bytes of local memory


@dataclass
class Outcome:
    """Outcome of a compilation: the kernels, or the compiler's message if the text does not compile."""

    kernels: dict[str, Kernel] = field(default_factory=dict)
    error: str = ""

    def dumps(self) -> str:
        """Return JSON."""
        return json.dumps({"kernels": {name: asdict(k) for name, k in self.kernels.items()}, "error": self.error})

    @staticmethod
    def loads(text: str) -> "Outcome":
        """Return the outcome from JSON."""
        read = json.loads(text)
        return Outcome({name: Kernel(**k) for name, k in read["kernels"].items()}, read["error"])


# --- what the tools print ---

_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_CUMULATIVE = re.compile(r"(\d+) bytes cumulative stack size")


def parse_ptxas(text: str) -> dict[str, Kernel]:
    """Return the kernels in the output of ``ptxas -v``.

    Functions that were not inlined stand between the kernels; what they spill counts for each kernel of the text.
    """
    kernels: dict[str, Kernel] = {}
    current = function = ""
    elsewhere = 0
    for line in text.splitlines():
        if found := _ENTRY.search(line):
            current = found[1]
            kernels[current] = Kernel()
        elif found := _PROPERTIES.search(line):
            function = found[1]
        elif found := _STACK.search(line):
            stack, stored, loaded = map(int, found.groups())
            if function == current:
                kernels[current].stack, kernels[current].spills = stack, stored + loaded
            else:
                elsewhere += stored + loaded
        elif found := _USED.search(line):
            kernels[current].registers = int(found[1])
            shared, deepest = _SHARED.search(line), _CUMULATIVE.search(line)
            kernels[current].local = int(shared[1]) if shared else 0
            kernels[current].stack = max(kernels[current].stack, int(deepest[1]) if deepest else 0)
    for kernel in kernels.values():
        kernel.spills += elsewhere
    return kernels


_NOTES = {
    "vgpr_count": "registers",
    "sgpr_count": "scalar_registers",
    "vgpr_spill_count": "spills",
    "sgpr_spill_count": "scalar_spills",
    "private_segment_fixed_size": "stack",
    "group_segment_fixed_size": "local",
}
_NOTE = re.compile(r"^ {2}(- |  )\.(\w+): +(\S+)$")  # deeper lines are about arguments


def parse_notes(text: str) -> dict[str, Kernel]:
    """Return the kernels in the output of ``llvm-readelf --notes``, whose metadata is YAML."""
    kernels: dict[str, Kernel] = {}
    current: dict[str, str] = {}
    for line in text.splitlines():
        found = _NOTE.match(line)
        if not found:
            continue
        if found[1] == "- ":
            current = {}
        current[found[2]] = found[3]
        if found[2] == "wavefront_size":  # the last one of a kernel: the order is that of the alphabet
            values = {ours: int(current[theirs]) for theirs, ours in _NOTES.items()}
            kernels[current["name"]] = Kernel(**values)
    return kernels


# --- the tools ---


def _program(name: str) -> str | None:
    """Find a program: of LLVM by its version, ptxas in NVIDIA's wheel."""
    in_wheel = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    places = sorted(in_wheel.glob(f"*/bin/{name}")) if name == "ptxas" else []
    version = _SPIRV if name in ("clang-spirv", "llvm-spirv") else _LLVM
    stem = "clang" if name == "clang-spirv" else name
    chosen = os.environ.get(name.upper().replace("-", "_"))
    return chosen or next(map(str, places), None) or shutil.which(f"{stem}-{version}") or shutil.which(name)


def _library(name: str) -> str:
    """Return a file of libclc, or the library of NVIDIA's compiler that libclc's built-ins call."""
    if name == _LIBDEVICE:
        in_wheel = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
        return os.environ.get("LIBDEVICE") or next(map(str, in_wheel.glob(f"*/nvvm/libdevice/{name}")), name)
    return str(Path(os.environ.get("LIBCLC", "/usr/lib/clc")) / name)


def _linked(*libraries: str) -> list[str]:
    """Return the options that link the functions of libraries which are used."""
    return [o for name in libraries for o in ("-Xclang", "-mlink-builtin-bitcode", "-Xclang", _library(name))]


_NEEDED = {
    "NVIDIA": ("clang", "ptxas"),
    "AMD": ("clang", "ld.lld", "llvm-readelf"),
    "SPIR-V": ("clang-spirv", "llvm-spirv", "spirv-val"),
    "front-end": ("clang",),
}


def _vendor(target: str) -> str:
    return "NVIDIA" if target in NVIDIA else "AMD" if target in AMD else "SPIR-V" if target == "spirv" else "front-end"


def missing_tools(targets: Iterable[str]) -> list[str]:
    """Return the programs and libraries that `targets` need and that are not there."""
    vendors = {_vendor(t) for t in targets}
    programs = {p for v in vendors for p in _NEEDED[v] if _program(p) is None}
    libraries = {file for v in vendors for file in _LIBRARIES.get(v, ()) if not Path(_library(file)).exists()}
    return sorted(programs | libraries)


@cache
def _version(name: str) -> str:
    """Return the version text of a program: a part of the digest of its outputs."""
    done = subprocess.run([str(_program(name)), "--version"], capture_output=True, text=True, check=False)
    return done.stdout


def versions() -> str:
    """Return a sentence on the compilers, for the page."""
    numbers = {name: re.search(r"(?:version|release) (\S+?),? ", _version(name) + " ") for name in ("clang", "ptxas")}
    return ", ".join(f"{name} {found[1]}" for name, found in numbers.items() if found) + "."


class _Failed(Exception):
    """A tool rejects its input; holds its output."""


def _run(name: str, *arguments: str) -> str:
    done = subprocess.run([str(_program(name)), *arguments], capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    if done.returncode:
        raise _Failed(f"{name}: {said.strip()[:2000]}")
    return said


class Compiler:
    """Compiles texts and keeps the outcomes on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, text: str, target: str, options: Sequence[str]) -> Outcome:
        """Compile one text for one target."""
        versions = [_version(name) for name in _NEEDED[_vendor(target)]]
        versions += _PTX if target in NVIDIA else ()
        key = hashlib.blake2s(repr((text, target, tuple(options), versions)).encode(), digest_size=16).hexdigest()
        path = self.folder / key
        if path.exists():
            return Outcome.loads(path.read_text())
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "kernel.cl"
            source.write_text(text)
            try:
                outcome = Outcome(_compile(source, text, target, options))
            except _Failed as error:
                outcome = Outcome(error=str(error).replace(folder, ""))
        self._keep(path, outcome)
        return outcome

    def _keep(self, path: Path, outcome: Outcome) -> None:
        handle, name = tempfile.mkstemp(dir=self.folder)
        with os.fdopen(handle, "w") as file:
            file.write(outcome.dumps())
        Path(name).replace(path)


def _compile(source: Path, text: str, target: str, options: Sequence[str]) -> dict[str, Kernel]:
    steps = {"NVIDIA": _nvidia, "AMD": _amd, "SPIR-V": _spirv, "front-end": _front_end}
    return steps[_vendor(target)](source, text, target, options)


def _nvidia(source: Path, text: str, target: str, options: Sequence[str]) -> dict[str, Kernel]:
    ptx, binary = str(source.with_suffix(".ptx")), str(source.with_suffix(".cubin"))
    variant = next(nvidia_variants(text))
    source.write_text(variant.text)
    library = _linked(*_LIBRARIES["NVIDIA"])
    where = ("-target", "nvptx64-nvidia-nvcl", f"-march={target}", *_PTX)
    _run("clang", "-x", "cl", *_HEADERS, *where, *library, *options, "-O3", "-w", "-S", "-o", ptx, str(source))
    limit = [option.replace("cl-nv-", "") for option in variant.options]
    return parse_ptxas(_run("ptxas", "-v", *limit, "-arch", target, ptx, "-o", binary))


def _amd(source: Path, _text: str, target: str, options: Sequence[str]) -> dict[str, Kernel]:
    linked = str(source.with_suffix(".hsaco"))
    library = _linked(*_LIBRARIES["AMD"])
    where = ("-target", "amdgcn-amd-amdhsa", f"-mcpu={target}", "-nogpulib", "-Wl,--no-undefined")
    _run("clang", "-x", "cl", *_HEADERS, *where, *library, *options, "-O3", "-w", "-o", linked, str(source))
    return parse_notes(_run("llvm-readelf", "--notes", linked))


def _spirv(source: Path, _text: str, _target: str, options: Sequence[str]) -> dict[str, Kernel]:
    bitcode, module = str(source.with_suffix(".bc")), str(source.with_suffix(".spv"))
    where = ("-target", "spir64-unknown-unknown", "-Xclang", "-disable-llvm-passes")
    _run("clang-spirv", "-x", "cl", *_HEADERS, *where, *options, "-w", "-emit-llvm", "-c", "-o", bitcode, str(source))
    _run("llvm-spirv", bitcode, "--spirv-max-version=1.2", "-o", module)
    _run("spirv-val", "--target-env", "opencl2.2", module)
    return {}


def _front_end(source: Path, _text: str, _target: str, options: Sequence[str]) -> dict[str, Kernel]:
    where = ("-target", "spir64-unknown-unknown")
    said = _run("clang", "-x", "cl", *_HEADERS, *where, *options, "-fsyntax-only", str(source))
    doubles = [line for line in said.splitlines() if "double precision constant" in line]
    if doubles:  # clang only warns of these, other compilers fail
        raise _Failed("\n".join(doubles[:10]))
    return {}
