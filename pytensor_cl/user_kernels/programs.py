"""Programs of raw kernels: built once for each text, options and device, and their kernels."""

import hashlib
import re
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from threading import Lock, local
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from pytensor_cl.errors import CompilationError, OpenCLError
from pytensor_cl.forks import at_fork
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.program import Kernel
from pytensor_cl.user_kernels.arguments import KernelArguments
from pytensor_cl.user_kernels.build_errors import SourcePart, build_error
from pytensor_cl.user_kernels.signature import Parameter, kernels_in, read_parameters
from pytensor_cl.user_kernels.structs import StructLayouts

ARG_INFO = "-cl-kernel-arg-info"
"""Build option with which drivers keep the types of parameters."""
MOST_PROGRAMS = 128
"""Programs of a context that are kept although no kernel object of the user's refers to them."""
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)


def include_folder() -> Path:
    """Return the folder of the headers of this package (``-Icluda``)."""
    spec = find_spec("pytensor_cl")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "user_kernels" / "include"


def split_options(options: str | Sequence[str]) -> tuple[str, ...]:
    """Return build options as a tuple, folders of ``-I`` as absolute paths; ``-Icluda`` is this package's.

    Raises `TypeError`: they are no texts.
    """
    words = options.split() if isinstance(options, str) else list(options)
    for word in words:
        if not isinstance(word, str):
            raise TypeError(f"options are texts, such as ('-DN=16', '-I', 'headers'), not {word!r}")
    result, follows = [], False
    for word in words:
        folder = word if follows else word[2:] if word.startswith("-I") and len(word) > 2 else None
        follows = word == "-I"
        if folder is None:
            result.append(word)
            continue
        path = include_folder() if folder == "cluda" else Path(folder.strip('"')).expanduser().absolute()
        text = f'"{path}"' if " " in str(path) else str(path)
        result.append(text if result and result[-1] == "-I" and word == folder else f"-I{text}")
    return tuple(result)


def _folders(options: Sequence[str]) -> list[Path]:
    """Return the folders of ``-I``."""
    pairs = zip(("", *options), options, strict=False)
    found = [word if before == "-I" else word[2:] for before, word in pairs if before == "-I" or word.startswith("-I")]
    return [Path(folder.strip('"')) for folder in found if folder]


def headers(code: str, options: Sequence[str]) -> dict[str, str]:
    """Return the text of each header that a program includes from the folders of ``-I``, by its name."""
    folders = _folders(options)
    found: dict[str, str] = {}
    todo = _INCLUDE.findall(code) if folders else []
    while todo:
        name = todo.pop()
        file = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if file is not None and name not in found:
            found[name] = file.read_text(encoding="utf-8", errors="replace")
            todo += _INCLUDE.findall(found[name])
    return found


class BuiltKernel:
    """A kernel of a program, with an OpenCL kernel object for each thread: it holds arguments between two calls.

    `parameters`: as they are declared.
    """

    def __init__(self, program: "UserProgram", name: str) -> None:
        self.name = name
        self._program = program
        self._objects = local()
        first = self.kernel.handle
        self.parameters: list[Parameter] = program.parameters(first, name)
        limits = cl.kernel_work_group_info
        device = program.context.device
        self.max_work_group_size: int = first.get_work_group_info(limits.WORK_GROUP_SIZE, device)
        self.required_size: tuple[int, ...] = tuple(first.get_work_group_info(limits.COMPILE_WORK_GROUP_SIZE, device))
        self.max_item_sizes: Sequence[int] = device.max_work_item_sizes
        self._arguments: dict[tuple[str, ...], KernelArguments] = {}
        self.sizes: dict[Any, Any] = {}  # checked NDRanges

    @property
    def kernel(self) -> Kernel:
        """The OpenCL kernel object of the calling thread."""
        try:
            found: Kernel = self._objects.kernel
        except AttributeError:
            found = self._objects.kernel = self._program.new_kernel(self.name)
        return found

    def arguments(self, strided: tuple[str, ...]) -> KernelArguments:
        """Return the conversion of arguments."""
        found = self._arguments.get(strided)
        if found is None:
            program = self._program
            found = KernelArguments(program.context, self.name, self.parameters, strided, program.structs)
            self._arguments[strided] = found
        return found

    def attributes(self) -> dict[str, Any]:
        """Return what the driver tells about the compiled kernel."""
        device, info = self._program.context.device, cl.kernel_work_group_info
        query = self.kernel.handle.get_work_group_info
        return {
            "max_work_group_size": self.max_work_group_size,
            "preferred_work_group_size_multiple": query(info.PREFERRED_WORK_GROUP_SIZE_MULTIPLE, device),
            "compile_work_group_size": self.required_size,
            "local_memory": query(info.LOCAL_MEM_SIZE, device),
            "private_memory": query(info.PRIVATE_MEM_SIZE, device),
            "parameters": [parameter.declaration for parameter in self.parameters],
        }


class UserProgram:
    """A program of the user's on a context.

    `title`: what messages call it, such as ``"kernel 'transpose'"``.

    Raises `CompilationError`: the driver rejects it. Raises `OpenCLError`: it is SPIR-V, which the driver does not
    take.
    """

    def __init__(self, context: Context, code: str | bytes, options: tuple[str, ...], title: str) -> None:
        self.context = context
        self._part = SourcePart("code", code if isinstance(code, str) else "")
        self._options, self._title = options, title
        self._all_options = (ARG_INFO, *options)
        self._headers = headers(self._part.text, options)
        self._kernels: dict[str, BuiltKernel] = {}
        self._lock = Lock()
        self.structs = StructLayouts(self._measure)
        if isinstance(code, bytes):
            _check_il(context, title)
            self._program = self._build(code)
        else:
            self._program = self._build(self._text())

    def _text(self, more: str = "") -> str:
        """Return the program; its last line changes with the headers, which drivers' caches need not look at."""
        digest = hashlib.blake2s(repr(sorted(self._headers.items())).encode(), digest_size=16).hexdigest()
        return f"{self._part.marked}\n{more}" + (f"\n// headers {digest}\n" if self._headers else "")

    def _build(self, code: str | bytes) -> "cl.Program":
        try:
            return self.context.programs.build_own(code, self._all_options)
        except CompilationError as error:
            parts = [self._part, *(SourcePart(name, text, f"in {name}") for name, text in self._headers.items())]
            raise build_error(
                _with_header_names(error.log, self._headers),
                code if isinstance(code, str) else "",
                self._title,
                parts if isinstance(code, str) else (),
                self.context.info.has_fp64,
            ) from error

    def kernel(self, name: str) -> BuiltKernel:
        """Return a kernel.

        Raises `ValueError`: there is none of that name.
        """
        found = self._kernels.get(name)
        if found is None:
            with self._lock:
                found = self._kernels.get(name)
                if found is None:
                    found = self._kernels[name] = BuiltKernel(self, name)
        return found

    def new_kernel(self, name: str) -> Kernel:
        """Return a new kernel object.

        Raises `ValueError`: there is no kernel of that name.
        """
        try:
            kernel = self.context.programs.own_kernel(self._program, name)
            kernel.handle.num_args  # noqa: B018  # NVIDIA's driver raises the error for an unknown name here
            return kernel
        except cl.Error as error:
            raise ValueError(self._missing(name)) from error

    @cached_property
    def names(self) -> list[str]:
        """Names of the kernels."""
        try:
            text: str = self._program.get_info(cl.program_info.KERNEL_NAMES)
        except cl.Error:
            return kernels_in(self._part.text)
        return [name for name in text.split(";") if name]

    def _missing(self, name: str) -> str:
        text = f"there is no kernel {name!r} in the code; it has: {', '.join(self.names) or 'none'}"
        if re.search(rf"\b{re.escape(name)}\s*\(", self._part.text) and name not in self.names:
            text += f". A kernel begins with __kernel void: write __kernel void {name}(...)"
        return text

    def parameters(self, kernel: "cl.Kernel", name: str) -> list[Parameter]:
        """Return the parameters of a kernel."""
        info = self.context.info
        facts = (info.platform, info.version, info.driver, info.name, self._options, self._text(), name)
        key = repr(("parameters", *facts)).encode()

        def compile_again() -> "cl.Kernel":
            programs = self.context.programs
            return programs.own_kernel(programs.build_own(self._text(), self._all_options, is_fresh=True), name).handle

        return read_parameters(kernel, name, self._part.text, self._options, key, compile_again)

    def _measure(self, expressions: Sequence[str]) -> list[int]:
        """Return the values of expressions of OpenCL C that may use the types of the program."""
        lines = "\n".join(f"    out[{i}] = (ulong)({text});" for i, text in enumerate(expressions))
        more = f'\n#line 1 "struct"\n__kernel void pytensor_cl_measure(__global ulong *out) {{\n{lines}\n}}\n'
        context = self.context
        program = context.programs.build_own(self._text(more), self._all_options)
        result = np.zeros(len(expressions), np.uint64)
        # A queue of its own: that of the context may be capturing a call.
        queue = cl.CommandQueue(context.cl_context, context.device)
        target = cl.Buffer(context.cl_context, cl.mem_flags.WRITE_ONLY, result.nbytes)
        kernel = context.programs.own_kernel(program, "pytensor_cl_measure")
        kernel.set_buffer(0, target)
        cl.enqueue_nd_range_kernel(queue, kernel.handle, (1,), (1,))
        cl.enqueue_copy(queue, result, target)
        return [int(n) for n in result]


def _with_header_names(log: str, known: dict[str, str]) -> str:
    """Return a build log in which headers have the names by which they are included, without their folders."""
    for name in known:
        log = re.sub(rf"[^\s:\"]*[/\\]{re.escape(name)}(?=[:\"])", name, log)
    return log


def _check_il(context: Context, title: str) -> None:
    """Raise an `OpenCLError` if a driver takes no SPIR-V."""
    try:
        versions = context.device.get_info(cl.device_info.IL_VERSION)
    except cl.Error:
        versions = ""
    if "SPIR-V" not in versions:
        raise OpenCLError(
            f"{title}: the driver {context.info.platform} of {context.name!r} takes no SPIR-V: use the OpenCL C source"
        )


class _Programs:
    """The programs of a context by their texts, the latest used last."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.known: OrderedDict[Any, UserProgram] = OrderedDict()


_contexts: "WeakKeyDictionary[Context, _Programs]" = WeakKeyDictionary()
_contexts_lock = Lock()


def user_program(context: Context, code: str | bytes, options: tuple[str, ...], title: str) -> UserProgram:
    """Return the program of a text, built if it is not there; equal texts with equal options are one program.

    Changed headers make another program. Raises as `UserProgram`.
    """
    with _contexts_lock:
        programs = _contexts.setdefault(context, _Programs())
    text = code if isinstance(code, str) else ""
    key = code, options, tuple(sorted(headers(text, options).items()))
    with programs.lock:
        found = programs.known.get(key)
        if found is None:
            found = programs.known[key] = UserProgram(context, code, options, title)
            while len(programs.known) > MOST_PROGRAMS:
                programs.known.popitem(last=False)
        programs.known.move_to_end(key)
    return found


def _after_fork() -> None:
    global _contexts_lock
    _contexts_lock = Lock()  # another thread of the parent may have held it


at_fork(after_in_child=_after_fork)
