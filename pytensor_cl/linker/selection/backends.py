"""The whole graph as a function of one of PyTensor's own backends on the host."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.link.utils import raise_with_op
from pytensor.tensor.type import TensorType

from pytensor_cl._compat import compile_with_c, compile_with_numba, numba_refusals
from pytensor_cl.linker.execution.rng_state import restore_rng_states, save_rng_states
from pytensor_cl.linker.selection.call_codegen import with_arrays
from pytensor_cl.linker.steps.host import Cell
from pytensor_cl.rewriting.host_backend.canonical_copy import CanonicalCopy
from pytensor_cl.runtime.interrupts import insisting
from pytensor_cl.runtime.progress import compiling
from pytensor_cl.sharedvar import DeviceCell

__all__ = ["CFunction", "HostFunction", "NumbaFunction", "host_functions"]


class HostFunction:
    """A function that the first call compiles.

    Parameters
    ----------
    alternative
        What it is made of.
    cells
        Storage of the inputs.
    outputs
        Storage of those of the graph's first outputs that are wanted; empty after each call, if results are dropped.

    Attributes
    ----------
    run
        Computes the outputs.
    direct
        As `run`, once that has compiled it, for calls where all `doubtful` cells hold arrays.
    is_compiled
        Whether that compiles nothing.
    is_to_blame
        Whether it failed last because the backend could not compile it, and not for the data.
    """

    backend: ClassVar[str]
    name: str | None = None  # of the function, for messages

    def __init__(self, alternative: CanonicalCopy, cells: Sequence[Cell], outputs: Sequence[Cell]) -> None:
        self._alternative = alternative
        self._given = cells
        self._cells = [_Peek(c) if isinstance(c, DeviceCell) else c for c in cells]
        self._outputs = outputs
        self.is_compiled = self.is_to_blame = False
        self.run: Callable[[], list[Any]] = self._first_call
        self.direct: Callable[[], list[Any]] | None = None
        self._compiled: Callable[[], list[Any]] | None = None

    @property
    def doubtful(self) -> list[Cell]:
        """Cells that may hold what the compiled function cannot read."""
        return []

    def _first_call(self) -> list[Any]:
        with insisting(), compiling("a graph", self.backend, self.name):
            return self._first()

    def _first(self) -> list[Any]:
        self.is_to_blame = False
        try:
            self._compiled = self._compiled or self._compile()
        except Exception:  # the data have no part in it
            self.is_to_blame = True
            raise
        self.run = self._compiled  # which may replace itself by what is faster
        try:
            results = self.run()
        except Exception:
            self.is_compiled = not self.is_to_blame
            raise
        except BaseException:  # an interrupt
            self.run = self._first_call
            raise
        self.is_compiled = True
        return results

    def _wanted(self, graph: FunctionGraph) -> FunctionGraph:
        """Return a graph without the outputs that are not wanted: those of a copy of a function without its updates."""
        count = len(self._outputs)
        return graph if count == len(graph.outputs) else FunctionGraph(graph.inputs, graph.outputs[:count], clone=True)

    def _compile(self) -> Callable[[], list[Any]]:
        raise NotImplementedError


class NumbaFunction(HostFunction):
    """The graph with the checks that NUMBA leaves out."""

    backend = "NUMBA"

    def _compile(self) -> Callable[[], list[Any]]:
        wanted, draws = self._wanted(self._alternative.with_guards()), self._alternative.mutable_rngs
        function, graph = compile_with_numba(wanted, self._alternative.mode, draws)
        cells = self._cells

        def call() -> list[Any]:
            return list(function(*[c[0] for c in cells]))

        run = _careful(call, [cells[i] for i in draws]) if draws else call

        def first() -> list[Any]:
            try:
                results = run()
            except Exception as error:
                self.is_to_blame = isinstance(error, (*numba_refusals(), MemoryError, OSError))
                _blame(graph)
                raise
            self.run = run
            return results

        return first


class CFunction(HostFunction):
    """The graph as it is; random generators are as they were before a call that fails."""

    backend = "C"

    def _compile(self) -> Callable[[], list[Any]]:
        graph = self._wanted(self._alternative.graph)
        machine, outputs = compile_with_c(
            graph, self._alternative.mode, self._given, self._outputs, self._alternative.mutable_rngs
        )
        run = _results_of(machine, outputs) if outputs else machine
        generators = [self._cells[i] for i in self._alternative.mutable_rngs]
        self.direct = _careful(run, generators) if generators else run
        return with_arrays(self.direct, self.doubtful) if self.doubtful else self.direct

    @property
    def doubtful(self) -> list[Cell]:
        pairs = zip(self._alternative.graph.inputs, self._given, strict=True)
        return [c for v, c in pairs if type(c) is not list or _is_number(v)]


def _is_number(variable: Variable) -> bool:
    """Whether a caller who is trusted may pass a number of NumPy's, which compiled code would take for an array."""
    return isinstance(variable.type, TensorType) and variable.type.ndim == 0


def _results_of(machine: Callable[[], Any], outputs: Sequence[Cell]) -> Callable[[], list[Any]]:
    """Return a function that runs a machine and takes the results out of their cells."""

    if len(outputs) == 1:
        (only,) = outputs

        def run_one() -> list[Any]:
            machine()
            results, only[0] = [only[0]], None
            return results

        return run_one

    def run() -> list[Any]:
        machine()
        results = [cell[0] for cell in outputs]
        for cell in outputs:
            cell[0] = None
        return results

    return run


def _careful(run: Callable[[], list[Any]], generators: Sequence[Cell]) -> Callable[[], list[Any]]:
    """Return a function that sets random generators back when it fails: the call is repeated on the device."""

    def careful() -> list[Any]:
        before = save_rng_states(generators)
        try:
            return run()
        except BaseException:
            restore_rng_states(before)
            raise

    return careful


class _Peek:
    """Reads a shared variable on the host, and leaves it on the device too."""

    __slots__ = ("_cell",)

    def __init__(self, cell: DeviceCell) -> None:
        self._cell = cell

    def __getitem__(self, index: int) -> Any:
        return self._cell.peek()


def _blame(graph: FunctionGraph) -> None:
    """Re-raise the current exception as NUMBA's linker does, with the node of the first result."""
    node = next((o.owner for o in graph.outputs if o.owner), None)
    if node is not None:
        raise_with_op(graph, node, None)


def host_functions(alternative: CanonicalCopy, cells: Sequence[Cell], outputs: Sequence[Cell]) -> list[HostFunction]:
    """Return the functions that may run a graph, the first one first.

    Parameters
    ----------
    alternative, cells, outputs
        As `HostFunction` takes them.
    """
    kinds: dict[type[HostFunction], bool] = {
        NumbaFunction: not alternative.numba_excluded,
        CFunction: alternative.c_eligible,
    }
    return [kind(alternative, cells, outputs) for kind, may_run in kinds.items() if may_run]
