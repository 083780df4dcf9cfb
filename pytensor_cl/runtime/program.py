"""Build OpenCL programs, keep them, and launch their kernels."""

import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.errors import CompilationError
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.compilation.binaries import Binaries
from pytensor_cl.runtime.compilation.kernel_objects import new_kernel
from pytensor_cl.runtime.compilation.struct_arguments import StructBuffers, by_reference, setter
from pytensor_cl.runtime.compilation.variants import BuildVariant, BuildVariants, plain
from pytensor_cl.runtime.interrupts import in_another_thread
from pytensor_cl.runtime.parallel_build import ParallelBuild
from pytensor_cl.runtime.progress import compiling, kernel_is_new
from pytensor_cl.runtime.queue import Queue

Precompile = Callable[[str], AbstractContextManager[Callable[[str, Sequence[str]], None]]]
"""The type of `ContextHooks.precompile`."""
_BY_VALUE = frozenset((bytes, *(np.dtype(code).type for code in np.typecodes["All"])))
"""Types of arguments that are passed by value: it takes less time to find one than `isinstance` of `np.generic`."""
_explainers: list[Callable[[CompilationError], CompilationError | None]] = []
_RECENT = 16
"""Unused programs that are kept, as similar functions are often compiled again. Each takes 0.5 MB (PoCL) to 3 MB
(Intel)."""


def explain_build_errors(explain: Callable[[CompilationError], CompilationError | None]) -> None:
    """Register a function that returns another error for that of a program, or None: for texts that users wrote."""
    _explainers.append(explain)


def _explained(error: CompilationError) -> CompilationError:
    found = (explain(error) for explain in _explainers)
    return next((other for other in found if other is not None), error)


def assemble(sources: Sequence[KernelSource]) -> str:
    """Join kernels into one program; each distinct preamble comes once, before them all."""
    preambles = dict.fromkeys(text for source in sources for text in source.preambles)
    return "\n".join((*preambles, *(source.source for source in sources)))


def _set_bytes_of(handle: "cl.Kernel") -> Callable[[int, Any], None]:
    return getattr(handle, "_set_arg_buf", handle.set_arg)


def _log_of(error: "cl.Error") -> str:
    """Return the driver's messages about a build that failed."""
    return "\n".join(log for _, log in getattr(error, "_build_log", [])) or str(error)


def _handle(program: "cl.Program", name: str, source: KernelSource) -> "cl.Kernel":
    """Return a kernel of a program that was built from a source.

    Raises `CompilationError`: it is not in the program: what was compiled is damaged.
    """
    try:
        return new_kernel(program, name)
    except cl.Error as error:
        raise CompilationError(f"the program that was built has no kernel {name!r}: {error}", source.source) from error


class Kernel:
    """A kernel with arguments of its own.

    `handle`: the pyopencl kernel; `program`: its program, kept as long as the kernel; `set_bytes`: sets an argument
    that is passed by value; None uses the driver's.
    """

    __slots__ = ("_has_null_arguments", "_program", "handle", "set_buffer", "set_bytes")

    def __init__(
        self,
        handle: "cl.Kernel",
        program: "cl.Program | None" = None,
        set_bytes: Callable[[int, Any], None] | None = None,
    ) -> None:
        self.handle = handle
        self._program = program
        self._has_null_arguments = False
        # pyopencl's public set_arg tries buffers first, which takes 5 us for every by-value argument.
        self.set_buffer = handle.set_arg
        self.set_bytes = set_bytes or _set_bytes_of(handle)

    def launch(
        self, queue: Queue, global_size: tuple[int, ...], local_size: tuple[int, ...] | None, *args: object
    ) -> None:
        """Enqueue the kernel without waiting.

        `queue`: the queue of the kernel's context; `global_size`, `local_size`: the NDRange; None leaves the work-group
        size to the driver; `args`: buffers (None is a null pointer), NumPy scalars of the exact type, or ``bytes`` for
        structs passed by value.
        """
        if queue.capture is not None:
            queue.capture.note_launch(self.handle, global_size, local_size, args)
        if not self._has_null_arguments:
            self.null_trailing_arguments(len(args))
            queue.expect_long_wait()
        set_bytes, set_buffer = self.set_bytes, self.set_buffer
        for i, arg in enumerate(args):
            if type(arg) in _BY_VALUE:
                set_bytes(i, arg)
            else:
                set_buffer(i, arg)
        queue.launch(self.handle, global_size, local_size)

    def null_trailing_arguments(self, count: int) -> None:
        """Set the pointer arguments after the first `count` to null: drivers' build variants may have added some."""
        for index in range(count, self.handle.num_args):
            self.set_buffer(index, None)
        self._has_null_arguments = True

    @staticmethod
    def clone(handle: "cl.Kernel") -> "Kernel":
        """Return a kernel of the same function that shares no arguments with `handle`."""
        program = handle.get_info(cl.kernel_info.PROGRAM)
        return Kernel(new_kernel(program, handle.get_info(cl.kernel_info.FUNCTION_NAME)))

    def max_work_group_size(self, device: "cl.Device") -> int:
        """Return the largest work-group that the compiled kernel can run with on `device`."""
        return self.handle.get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, device)

    def local_memory(self, device: "cl.Device") -> int:
        """Return the bytes of local memory that the compiled kernel uses on `device`, without its arguments."""
        return self.handle.get_work_group_info(cl.kernel_work_group_info.LOCAL_MEM_SIZE, device)


class ProgramCache:
    """The programs of a context, by the kernels in them, as long as there are references to them.

    `options`: options of every build; `cache_dir`: folder of the package's caches; None is the user's cache folder;
    `variants`: yields the build variants of a program's text; `precompile`: makes a context manager around the build of
    a new program (`ContextHooks.precompile`); None makes none; `structs_by_reference`: whether kernels read structs
    from buffers: the driver takes none as arguments; `check_room`: called before the driver compiles a program, and a
    kernel (`ContextHooks.check_room`); `parallel`: builds the kernels of a function in parts; None builds them as one
    program.
    """

    def __init__(
        self,
        context: "cl.Context",
        options: Sequence[str],
        cache_dir: str | None,
        variants: BuildVariants = plain,
        precompile: Precompile | None = None,
        structs_by_reference: bool = False,
        check_room: Callable[[str], object] = id,
        parallel: ParallelBuild | None = None,
    ) -> None:
        self._context = context
        self._variants = variants
        self._precompile = precompile
        self._check_room = check_room
        self._parallel = parallel
        self._options = list(options)
        self._binaries = Binaries(context, cache_dir)
        self._driver = context.devices[0].platform.name
        self._keeps_thread = not context.devices[0].type & cl.device_type.CPU
        self._programs: WeakValueDictionary[str, cl.Program] = WeakValueDictionary()
        self._recent: deque[cl.Program] = deque(maxlen=_RECENT)
        self._structs = StructBuffers(context) if structs_by_reference else None
        self._struct_places: dict[str, frozenset[int]] = {}  # keys: names of kernel functions
        self._sources: dict[str, KernelSource] = {}  # the same

    def build(self, sources: Iterable[KernelSource]) -> list["cl.Program"]:
        """Build all kernels that are not there yet as one program, or as few: most drivers take as long for one kernel.

        Returns the program of each source. The caller keeps them: a program without references is dropped. Raises
        `CompilationError`: the driver rejects the program; holds its log and the numbered source.
        """
        wanted = {s.name: s for s in sources}
        programs = {name: self._programs.get(name) for name in wanted}
        new = [s for s in wanted.values() if programs[s.name] is None]
        if new:
            self._check_room("".join(source.source for source in new))
            with compiling(f"{len(new)} kernel{'s' * (len(new) > 1)}", self._driver):
                built = self._build_new(new)
            self._recent.extend(dict.fromkeys(built.values()))
            programs.update(built)
            self._programs.update(built)
        return [program for program in programs.values() if program is not None]

    def _build_new(self, new: list[KernelSource]) -> dict[str, "cl.Program"]:
        """Build kernels, as one program or in parts; return the program of each by its name.

        Kernels with build options of their own are programs of their own.
        """
        built = {s.name: self.build_text(assemble([s]), s.options) for s in new if s.options is not None}
        shared = [source for source in new if source.options is None]
        if not shared:
            return built
        if self._parallel is None:
            return built | dict.fromkeys((source.name for source in shared), self.build_text(assemble(shared)))
        parts = self._parallel.parts(shared)
        programs = self._parallel.build([assemble(part) for part in parts], self.build_text)
        return built | {s.name: program for part, program in zip(parts, programs, strict=True) for s in part}

    def build_text(self, text: str, options: Sequence[str] = ()) -> "cl.Program":
        """Build the first variant of a text that the driver accepts; `options`: besides those of every build."""
        failed = None
        if self._structs is not None:
            text, places = by_reference(text)
            self._struct_places.update(places)
        for variant in self._variants(text):
            try:
                return self._build(variant, options)
            except CompilationError as error:
                failed = error
        assert failed is not None
        raise _explained(failed)

    def _build(self, variant: BuildVariant, others: Sequence[str]) -> "cl.Program":
        """Build one variant; let other processes compile the kernels of a new one."""
        options = [*self._options, *variant.options, *others]
        if self._precompile is None or not variant.is_new:
            return self._call_driver(variant.text, options)
        with self._precompile(variant.text) as compile_kernels:
            program = self._call_driver(variant.text, options)
            compile_kernels(variant.text, options)
            return program

    def _call_driver(self, text: str, options: list[str]) -> "cl.Program":
        with warnings.catch_warnings():
            if not os.environ.get("PYOPENCL_COMPILER_OUTPUT"):
                warnings.simplefilter("ignore", cl.CompilerWarning)  # some drivers report success in words
            found = self._binaries.find(text, options)
            return found or in_another_thread(lambda: self._compiled(text, options), self._keeps_thread)

    def _compiled(self, text: str, options: list[str]) -> "cl.Program":
        try:
            program = cl.Program(self._context, text).build(options=options, cache_dir=False)
        except cl.Error as error:
            raise CompilationError(_log_of(error), text) from error
        self._binaries.keep(text, options, program)
        return program

    def build_own(self, code: str | bytes, options: Sequence[str], is_fresh: bool = False) -> "cl.Program":
        """Build a program of the user's alone, as it is written: there are no build variants, and no other kernels.

        `code`: OpenCL C, or SPIR-V; `options`: build options besides every build's; `is_fresh`: compile it, even if it
        is kept on disk. Raises `CompilationError`: the driver rejects it.
        """
        all_options = [*self._options, *options]
        text = code if isinstance(code, str) else ""
        self._check_room(text)
        with compiling("1 kernel", self._driver):
            if isinstance(code, str) and is_fresh:
                return in_another_thread(lambda: self._compiled(code, all_options), self._keeps_thread)
            if isinstance(code, str):
                return self._call_driver(code, all_options)
            return in_another_thread(lambda: self._compiled_il(code, all_options), self._keeps_thread)

    def _compiled_il(self, code: bytes, options: list[str]) -> "cl.Program":
        try:
            return cl.Program(self._context, code).build(options=options, cache_dir=False)
        except cl.Error as error:
            raise CompilationError(_log_of(error), "") from error

    def own_kernel(self, program: "cl.Program", name: str) -> Kernel:
        """Return a new kernel object of a program that `build_own` returned.

        Raises `pyopencl.Error`: the program has no such kernel.
        """
        self._check_room("")
        kernel_is_new(self._driver)
        return Kernel(new_kernel(program, name), program)

    def kernel(self, source: KernelSource, function: str | None = None) -> Kernel:
        """Return a new kernel object of a source, which is built now if it has not been built.

        `function`: name of the kernel function if it is not the source's own.
        """
        (program,) = self.build((source,))
        self._check_room("")
        kernel_is_new(self._driver)
        name = function or source.name
        self._sources[name] = source
        return self._kernel_of(program, _handle(program, name, source))

    def source_of(self, handle: "cl.Kernel") -> KernelSource | None:
        """Return the source that has a kernel; None if it is not one of `kernel`."""
        return self._sources.get(handle.function_name)

    def clone(self, handle: "cl.Kernel") -> Kernel:
        """Return a kernel of the same function that shares no arguments with `handle`, which a `kernel` has."""
        program = handle.get_info(cl.kernel_info.PROGRAM)
        return self._kernel_of(program, new_kernel(program, handle.get_info(cl.kernel_info.FUNCTION_NAME)))

    def _kernel_of(self, program: "cl.Program", handle: "cl.Kernel") -> Kernel:
        places = self._struct_places.get(handle.get_info(cl.kernel_info.FUNCTION_NAME)) if self._struct_places else None
        if self._structs is None or not places:
            return Kernel(handle, program)
        return Kernel(handle, program, setter(handle, _set_bytes_of(handle), places, self._structs))
