"""Build OpenCL programs, keep them, and launch their kernels."""

import os
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pytensor_cl.errors import CompilationError
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.ahead import Crew
from pytensor_cl.runtime.stale_lock import drop_stale_locks
from pytensor_cl.runtime.ways import Way, Ways, as_it_is
from pytensor_cl.template import KernelSource

if TYPE_CHECKING:
    from pytensor_cl.runtime.queue import Queue

__all__ = ["Kernel", "ProgramCache", "assemble"]

_BY_VALUE = (bytes, np.generic)


def assemble(sources: Sequence[KernelSource]) -> str:
    """Join kernels into one program; each distinct preamble comes once, before them all."""
    preambles = dict.fromkeys(text for source in sources for text in source.preambles)
    return "\n".join((*preambles, *(source.source for source in sources)))


class Kernel:
    """A kernel with arguments of its own.

    Parameters
    ----------
    handle
        The pyopencl kernel.
    """

    __slots__ = ("handle", "set_buffer", "set_bytes")

    def __init__(self, handle: "cl.Kernel") -> None:
        self.handle = handle
        # pyopencl's public set_arg tries buffers first and pays 5 us for every by-value argument.
        self.set_buffer = handle.set_arg
        self.set_bytes = getattr(handle, "_set_arg_buf", handle.set_arg)

    def launch(
        self, queue: "Queue", global_size: tuple[int, ...], local_size: tuple[int, ...] | None, *args: object
    ) -> None:
        """Enqueue the kernel without waiting.

        Parameters
        ----------
        queue
            The queue of the kernel's context.
        global_size, local_size
            The NDRange; None leaves the work-group size to the driver.
        args
            Buffers (None is a null pointer), NumPy scalars of the exact type, or ``bytes`` for structs passed by value.
        """
        if queue.recorder is not None:
            queue.recorder.launched(self.handle, global_size, local_size, args)
        set_bytes, set_buffer = self.set_bytes, self.set_buffer
        for i, arg in enumerate(args):
            if isinstance(arg, _BY_VALUE):
                set_bytes(i, arg)
            else:
                set_buffer(i, arg)
        queue.launch(self.handle, global_size, local_size)

    @staticmethod
    def twin(handle: "cl.Kernel") -> "Kernel":
        """Return a kernel of the same function that shares no arguments with `handle`."""
        program = handle.get_info(cl.kernel_info.PROGRAM)
        return Kernel(cl.Kernel(program, handle.get_info(cl.kernel_info.FUNCTION_NAME)))

    def max_work_group_size(self, device: "cl.Device") -> int:
        """Return the largest work-group that the compiled kernel can run with on `device`."""
        return self.handle.get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, device)


class ProgramCache:
    """Every program of a context, found by the kernels in it.

    Parameters
    ----------
    context
        The pyopencl context.
    options
        Options of every build.
    cache_dir
        Folder of the compiled binaries; None is pyopencl's own.
    ways
        How programs are built.
    ahead
        Whether helper processes may compile kernels of new programs before they are launched.
    """

    def __init__(
        self,
        context: "cl.Context",
        options: Sequence[str],
        cache_dir: str | None,
        ways: Ways = as_it_is,
        ahead: bool = False,
    ) -> None:
        self._context = context
        self._ways = ways
        self._ahead = ahead
        self._options = list(options)
        self._cache_dir = cache_dir
        self._programs: dict[str, cl.Program] = {}

    def build(self, sources: Iterable[KernelSource]) -> None:
        """Build all kernels that are not there yet as one program: a build costs the same for one kernel as for many.

        Raises
        ------
        CompilationError
            The driver rejects the program; holds its log and the numbered source.
        """
        new = list({s.name: s for s in sources if s.name not in self._programs}.values())
        if new:
            program = self._compile(assemble(new))
            self._programs.update((source.name, program) for source in new)

    def _compile(self, text: str) -> "cl.Program":
        """Build a text the first way that works."""
        failed = None
        for way in self._ways(text):
            try:
                return self._build(way)
            except CompilationError as error:
                failed = error
        assert failed is not None
        raise failed

    def _build(self, way: Way) -> "cl.Program":
        """Build one text, and let others compile its kernels if there are many that nobody has compiled."""
        options = [*self._options, *way.options]
        if not (self._ahead and way.is_new):
            return self._call_driver(way.text, options)
        crew = Crew(self._context.devices[0], way.text)
        try:
            program = self._call_driver(way.text, options)
            crew.send(way.text, options)
            return program
        finally:
            crew.dismiss()

    def _call_driver(self, text: str, options: list[str]) -> "cl.Program":
        drop_stale_locks(self._cache_dir)
        program = cl.Program(self._context, text)
        try:
            with warnings.catch_warnings():
                if not os.environ.get("PYOPENCL_COMPILER_OUTPUT"):
                    warnings.simplefilter("ignore", cl.CompilerWarning)  # some drivers report success in words
                return program.build(options=options, cache_dir=self._cache_dir)
        except cl.Error as error:
            log = "\n".join(log for _, log in getattr(error, "_build_log", [])) or str(error)
            raise CompilationError(log, text) from error

    def kernel(self, source: KernelSource, function: str | None = None) -> Kernel:
        """Return a new kernel object of a source, which is built now if nobody has.

        Parameters
        ----------
        source
            What `build` got, or shall get.
        function
            Name of the kernel function if it is not the source's own.
        """
        self.build((source,))
        return Kernel(cl.Kernel(self._programs[source.name], function or source.name))
