"""The backends of a function: its steps on the device, and the whole graph compiled by PyTensor's NUMBA or C."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.link.utils import raise_with_op
from pytensor.tensor.type import TensorType

from pytensor_cl import kept_threads
from pytensor_cl._compat.c_backend import compile_with_c
from pytensor_cl._compat.numba_backend import compile_with_numba, compiler_of, numba_unsupported_errors
from pytensor_cl.linker.run.graph_cache import WARMUP_CALLS
from pytensor_cl.linker.run.rng_state import restore_saved_state, rng_state_saver
from pytensor_cl.linker.selection.call_codegen import with_host_arrays
from pytensor_cl.linker.selection.compiled_before import CompiledBefore
from pytensor_cl.linker.selection.estimate import CompilePrices, Work
from pytensor_cl.linker.types import Cell
from pytensor_cl.rewriting.host_graph.graph import HostGraph
from pytensor_cl.rewriting.host_graph.known_faults import NUMBA, C, excluded_rewrites
from pytensor_cl.runtime.interrupts import reraising_interrupts
from pytensor_cl.runtime.progress import compiling
from pytensor_cl.sharedvar import DeviceCell

DEVICE, HOST = "device", "host"

Run = Callable[[], list[Any]]


class Backend:
    """The backend that runs the calls of a function on the device, by a function that returns the outputs."""

    name: ClassVar[str] = DEVICE
    warmup_calls: ClassVar[int] = WARMUP_CALLS + 8
    """Calls that are slower than later ones. The device captures one of the first calls, and in the following ones
    measures how many threads to use. The first call on the host compiles; the second one fills the caches."""
    compile_prices: ClassVar[CompilePrices] = CompilePrices(fixed=0.5, node=0.07, product=0.07)
    recompile_prices: ClassVar[CompilePrices] = CompilePrices(fixed=0.1, node=0.01, product=0.01)
    """The prices where an earlier process has filled the caches on disk."""

    def __init__(self, run: Run, compiled_before: CompiledBefore) -> None:
        self.run = run
        self.is_compiled = False  # a call compiles nothing
        self._compiled_before = compiled_before

    @property
    def fast_run(self) -> Run:
        """`run` itself: this backend has no faster call."""
        return self.run

    def compile_seconds(self, work: Work) -> float:
        """Return how long the first call may compile."""
        if self.is_compiled:
            return 0.0
        prices = self.recompile_prices if self.name in self._compiled_before else self.compile_prices
        return prices.seconds(work)

    def is_ready(self) -> bool:
        """Return whether the backend has compiled in a thread as far as it can; the first call starts the thread."""
        return True

    def note_compiled(self) -> None:
        """Note that a call has compiled the graph."""
        if not self.is_compiled:
            self.is_compiled = True
            self._compiled_before.add(self.name)


class HostFunction(Backend):
    """The whole graph in canonical form as a function of one of PyTensor's own backends, compiled by its first call.

    There are cells for the first outputs of the graph, as many as are computed.
    """

    warmup_calls = 2
    function_name: str | None = None  # name of the function in messages

    def __init__(
        self, copy: HostGraph, cells: Sequence[Cell], outputs: Sequence[Cell], compiled_before: CompiledBefore
    ) -> None:
        super().__init__(self._first_call, compiled_before)
        self._copy = copy
        self._given = cells
        self._cells = [_HostReadCell(c) if isinstance(c, DeviceCell) else c for c in cells]
        self._outputs = outputs
        self.compile_failed = False  # the last failure was one of the backend and not of the data
        self._compiled: Run | None = None

    @property
    def host_array_cells(self) -> list[Cell]:
        """Cells whose values the compiled function may not be able to read; `fast_run` requires NumPy arrays there.

        Shared variables may be on a device. With ``trust_input`` an argument may be a NumPy scalar, or an array whose
        byte order is not the machine's, which compiled code would read as if it were.
        """
        pairs = zip(self._copy.graph.inputs, self._given, strict=True)
        return [c for v, c in pairs if type(c) is not list or _is_checked(v)]

    def _first_call(self) -> list[Any]:
        with reraising_interrupts(), compiling("a graph", self.name, self.function_name):
            return self._compile_and_run()

    def _compile_and_run(self) -> list[Any]:
        self.compile_failed = False
        try:
            self._compiled = self._compiled or self._compile()
        except Exception:
            self.compile_failed = True
            raise
        self.run = self._compiled  # NUMBA's replaces it after its first run
        try:
            results = self.run()
        except Exception:
            if not self.compile_failed:
                self.note_compiled()
            raise
        except BaseException:  # an interrupt
            self.run = self._first_call
            raise
        self.note_compiled()
        return results

    @property
    def _has_updates(self) -> bool:
        """Whether a call computes all outputs of the graph; a copy of a function may be without its updates."""
        return len(self._outputs) == len(self._copy.graph.outputs)

    def _wanted(self, graph: FunctionGraph) -> FunctionGraph:
        """Return a graph without the updates, if the function has none."""
        if self._has_updates:
            return graph
        return FunctionGraph(graph.inputs, graph.outputs[: len(self._outputs)], clone=True)

    def _compile(self) -> Run:
        raise NotImplementedError


class NumbaFunction(HostFunction):
    """The graph with checks for the errors in the data that NUMBA does not find.

    An update of some rows of a shared variable is written in place, if nothing can fail after that.
    """

    name = NUMBA
    compile_prices = CompilePrices(fixed=0.25, node=0.12, product=1.5)
    recompile_prices = CompilePrices(fixed=0.1, node=0.012, product=0.012)
    compiles_in_thread: ClassVar[bool] = True
    _fast_run: Run | None = None
    _compile_for_arguments: Callable[[], Any] | None = None
    _thread: kept_threads.Work | None = None

    @property
    def fast_run(self) -> Run:
        """The compiled call, for arguments whose `host_array_cells` all hold arrays; `run` before it is compiled."""
        return self._fast_run or self.run

    def is_ready(self) -> bool:
        """Return whether NUMBA has compiled. PyTensor's part of that runs here: it changes flags of the process."""
        if self.is_compiled or not self.compiles_in_thread:
            return True
        if self._thread is None:
            try:
                self._compiled = self._compiled or self._compile()
                if self._compile_for_arguments is None:
                    return True
                compile_all = partial(self._compile_quietly, self._compile_for_arguments)
                self._thread = kept_threads.start(compile_all, "pytensor-cl NUMBA", is_awaited=True)
            except Exception:  # the call that needs the function raises it again
                return True
        return not self._thread.is_alive()

    @staticmethod
    def _compile_quietly(compile_for_arguments: Callable[[], Any]) -> None:
        with suppress(Exception):  # the call that needs the function raises it again
            compile_for_arguments()

    def _compile(self) -> Run:
        rngs = self._copy.mutable_rngs
        scattered = self._copy.scattered_inputs if self._has_updates else ()
        function, graph = compile_with_numba(self._wanted(self._copy.with_guards()), self._copy.mode, rngs, scattered)
        cells, given, generators = self._cells, self._given, [self._cells[i] for i in rngs]
        self._compile_for_arguments = compiler_of(function, [c[0] for c in cells])
        read = list.__getitem__  # a shared variable's cell is a list, too

        def plain_call() -> list[Any]:
            return list(function(*[c[0] for c in cells]))

        arguments = [c for c in self.host_array_cells if type(c) is list]
        call = with_host_arrays(plain_call, arguments) if arguments else plain_call

        def fast_call() -> list[Any]:
            return list(function(*[read(c, 0) for c in given]))

        run = _with_rng_rollback(call, generators) if rngs else call
        has_shared = any(isinstance(c, DeviceCell) for c in given)
        fast_run = fast_call if has_shared and all(isinstance(c, list) for c in given) else plain_call
        fast_run = _with_rng_rollback(fast_run, generators) if rngs else fast_run

        def first_run() -> list[Any]:
            """Run and compile: NUMBA compiles for the types of the first arguments."""
            try:
                results = run()
            except Exception as error:
                self.compile_failed = isinstance(error, (*numba_unsupported_errors(), MemoryError, OSError))
                _raise_at_first_result(graph)
                raise
            self.run, self._fast_run = run, fast_run
            return results

        return first_run


class CFunction(HostFunction):
    """The graph as it is, by PyTensor's C backend."""

    name = C
    compile_prices = CompilePrices(fixed=0.0, node=0.5, product=0.5)
    recompile_prices = CompilePrices(fixed=0.25, node=0.01, product=0.01)
    _fast_run: Run | None = None

    @property
    def fast_run(self) -> Run:
        """The compiled call, for arguments whose `host_array_cells` all hold arrays; `run` before it is compiled."""
        return self._fast_run or self.run

    def _compile(self) -> Run:
        graph = self._wanted(self._copy.graph)
        excluded = excluded_rewrites(C)
        vm, outputs = compile_with_c(
            graph, self._copy.mode, self._given, self._outputs, self._copy.mutable_rngs, excluded
        )
        run = _with_results(vm, outputs) if outputs else vm
        generators = [self._cells[i] for i in self._copy.mutable_rngs]
        self._fast_run = _with_rng_rollback(run, generators) if generators else run
        return with_host_arrays(self._fast_run, self.host_array_cells) if self.host_array_cells else self._fast_run


def _is_checked(variable: Variable) -> bool:
    """Return whether an argument may be a NumPy scalar, or have a byte order."""
    kind = variable.type
    return type(kind) is TensorType and (kind.ndim == 0 or kind.numpy_dtype.itemsize > 1)


def _with_results(vm: Callable[[], Any], outputs: Sequence[Cell]) -> Run:
    """Return a function that runs a virtual machine and takes the results out of their cells."""

    if len(outputs) == 1:
        (only,) = outputs

        def run_one() -> list[Any]:
            vm()
            results, only[0] = [only[0]], None
            return results

        return run_one

    def run() -> list[Any]:
        vm()
        results = [cell[0] for cell in outputs]
        for cell in outputs:
            cell[0] = None
        return results

    return run


def _with_rng_rollback(run: Run, generators: Sequence[Cell]) -> Run:
    """Return a function that restores random generators when it fails: the call is repeated on the device."""

    savers = [rng_state_saver(cell) for cell in generators]

    def run_or_restore() -> list[Any]:
        before = [save() for save in savers]
        try:
            return run()
        except BaseException:
            for saved in before:
                restore_saved_state(saved)
            raise

    return run_or_restore


class _HostReadCell:
    """Reads a shared variable on the host, and leaves its device copies valid."""

    __slots__ = ("_cell",)

    def __init__(self, cell: DeviceCell) -> None:
        self._cell = cell

    def __getitem__(self, index: int) -> Any:
        return self._cell.peek()


def _raise_at_first_result(graph: FunctionGraph) -> None:
    """Re-raise the current exception as NUMBA's linker does, with the node of the first result."""
    node = next((o.owner for o in graph.outputs if o.owner), None)
    if node is not None:
        raise_with_op(graph, node, None)


def host_functions(
    copy: HostGraph, cells: Sequence[Cell], outputs: Sequence[Cell], compiled_before: CompiledBefore
) -> list[HostFunction]:
    """Return the backends of the host that may run a graph, the preferred one first."""
    is_allowed: dict[type[HostFunction], bool] = {
        NumbaFunction: not copy.numba_excluded,
        CFunction: copy.c_eligible,
    }
    return [kind(copy, cells, outputs, compiled_before) for kind, allowed in is_allowed.items() if allowed]
