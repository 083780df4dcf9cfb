"""The virtual machine of placement ``auto``: each call runs on the backend that is fastest for its signature.

`SelectingVM` keeps a `SignatureStats` for each signature, which determines the backend of a call and when another one
is tried. The machine runs the calls, times the calls of a comparison, and handles backends that fail.
"""

import logging
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from errno import ENOSPC
from math import inf
from time import perf_counter
from typing import Any

from pytensor.compile.inner_function import HasInnerFunction
from pytensor.link.basic import Container

from pytensor_cl.errors import ForkedProcessError, OpenCLError, OutOfDeviceMemory, OutOfDiskSpace
from pytensor_cl.linker.run.vm import LinkedGraph, OpenCLVM
from pytensor_cl.linker.selection.backends import DEVICE, NUMBA, Backend, C, HostFunction, Run
from pytensor_cl.linker.selection.call_codegen import SlowPaths, compile_call
from pytensor_cl.linker.selection.compiled_before import CompiledBefore
from pytensor_cl.linker.selection.estimate import NO_WORK, CostEstimate
from pytensor_cl.linker.selection.policy import Candidate, SelectionPolicy, SignatureStats
from pytensor_cl.linker.selection.signature import SignatureSource, bucket
from pytensor_cl.linker.types import Cell
from pytensor_cl.ops.base import GpuOp
from pytensor_cl.sharedvar import DeviceCell

POLICY = SelectionPolicy()
BLAS_SPIN_SECONDS = 0.15
"""Seconds that the threads of a BLAS spin after a call, while they slow the calls of every other backend."""
READY_SECONDS = 0.05
"""Seconds of calls after which a backend that compiles in a thread is asked again."""
_DEVICE_FAILURES = (ForkedProcessError, OutOfDeviceMemory, OutOfDiskSpace)
"""Errors of the device after which a call runs on the host."""
FORKED = "the process was forked"
EMPTY = "no elements"
NO_DEVICE_WORK = "the graph computes nothing on a device"

_log = logging.getLogger("pytensor_cl")


class SelectedSignature(SignatureStats):
    """The statistics of a signature, and what the generated call needs."""

    def __init__(
        self, shapes: Sequence[Any], candidates: Mapping[str, Candidate], excluded: Mapping[str, str], run: Run
    ) -> None:
        super().__init__(candidates, POLICY, excluded)
        self.shapes = tuple(shapes)  # shapes of dynamic inputs, in the first such call
        self.run, self.is_on_device = run, self.backend == DEVICE


class SelectingVM(OpenCLVM):
    """Runs each call on the backend that is fastest for its signature.

    PyTensor puts the arguments in containers, and takes the results out of others.
    """

    # PyTensor calls ``vm()``. As a slot, `__call__` is the generated function itself: a method that forwards to it
    # would add 5 % to a call of one microsecond.
    __slots__ = ("__call__",)

    def __init__(
        self,
        linked: LinkedGraph,
        *,
        host_backends: Sequence[HostFunction],
        compiled_before: CompiledBefore,
        source: SignatureSource,
        arguments: Sequence[Container],
        results: Sequence[Container],
    ) -> None:
        super().__init__(linked)
        # PyTensor empties cells after each call if allow_gc is set. The generated call does it faster. A function with
        # Scan in it keeps the flag: without it, pickling compiles the inner graphs.
        self._empties_cells = self.allow_gc and not any(isinstance(n.op, HasInnerFunction) for n in self.nodes)
        self.allow_gc = self.allow_gc and not self._empties_cells
        self._device = Backend(super().__call__, compiled_before)
        self._host_backends = {host.name: host for host in host_backends}
        self._source = source
        self._arguments, self._result_containers = arguments, results
        self._signatures: OrderedDict[Any, SelectedSignature] = OrderedDict()  # the most recently used one last
        self._excluded: dict[str, str] = {}  # backends that no call may use, and why
        self._computes_on_device = any(isinstance(n.op, GpuOp) and n.op.is_compute for n in self.nodes)
        self.problem = ""  # error of the estimates; empty if there was none
        self._set_call(self._generate_and_call)

    @property
    def backends(self) -> list[str]:
        """Backends of the host that may run a call."""
        return list(self._host_backends)

    @property
    def signatures(self) -> list[SelectedSignature]:
        """The statistics of all signatures, the most recently used one last."""
        return list(self._signatures.values())

    # The entry: what ``vm()`` runs

    @property
    def time_thunks(self) -> bool:
        """Whether calls are timed node by node, on the device. PyTensor sets it for ``profile=True``."""
        return self.is_timed

    @time_thunks.setter
    def time_thunks(self, value: bool) -> None:
        self.is_timed = value
        self._set_call(self._run_without_selection if value else self._generate_and_call)

    def _set_call(self, call: Run) -> None:
        setattr(self, "__call__", call)  # noqa: B010, mypy takes an assignment for one to a method

    def _generate_and_call(self) -> list[Any]:
        """Generate the call. The first call does that: by then PyTensor has set which cells it reads."""
        paths = SlowPaths(self._find_stats, self._run_slowly, self._run_after_failure, self._run_without_selection)
        cells = {id(cell): cell for host in self._host_backends.values() for cell in host.host_array_cells}
        source, emptied = self._source, self._emptied_cells()
        call = compile_call(paths, source.distinguishing, emptied, list(cells.values()), source.context_name)
        self._set_call(call)
        return call()

    def _emptied_cells(self) -> list[Cell]:
        if not self._empties_cells:
            return []
        given = [c.storage for c in self._arguments if getattr(c, "required", False)]
        pairs = zip(self._result_containers, self.fgraph.outputs, strict=True)
        return given + [c.storage for c, v in pairs if v.owner]

    def _run_without_selection(self) -> list[Any]:
        """Run a call on the device that is timed, or that has an argument without a shape (with ``trust_input``)."""
        results = self._run_on_device()
        for cell in self._emptied_cells():
            cell[0] = None
        return results

    # Signatures

    def _find_stats(self) -> SelectedSignature | None:
        """Return the statistics of the arguments' signature; None if an argument has no shape."""
        shapes = _shapes([cell for cell, _ in self._source.distinguishing])
        if shapes is None:
            return None
        key = bucket(shapes)
        stats = self._signatures.get(key)
        if stats is not None:
            self._signatures.move_to_end(key)
            return stats
        dynamic = _shapes(self._source.dynamic)
        if dynamic is None:
            return None
        stats = self._signatures[key] = self._new_stats(dynamic)
        if len(self._signatures) > POLICY.max_signatures:
            self._signatures.popitem(last=False)
        return stats

    def _new_stats(self, shapes: Sequence[Any]) -> SelectedSignature:
        excluded = dict(self._excluded)
        if any(0 in shape for shape in shapes):
            excluded |= dict.fromkeys(self._host_backends, EMPTY)
        if not self._computes_on_device and any(name not in excluded for name in self._host_backends):
            excluded[DEVICE] = NO_DEVICE_WORK
        stats = SelectedSignature(shapes, self._candidates(), excluded, self._run_on_device)
        if stats.next_comparison is None and not stats.is_on_device:
            stats.calls_left = 0  # the first call goes through `_run_slowly`, which compiles
        return stats

    def _candidates(self) -> dict[str, Candidate]:
        """Return the candidates. The device is the first one, which is preferred where estimates are unknown."""
        self._is_compiled(DEVICE)
        cost = self._estimate()
        seconds = {DEVICE: cost.device, NUMBA: cost.numba, C: cost.c}
        spin = BLAS_SPIN_SECONDS if cost.work.products else 0.0
        return {
            b.name: Candidate(seconds[b.name], b.compile_seconds(cost.work), b.warmup_calls, spin)
            for b in (self._device, *self._host_backends.values())
        }

    def _estimate(self) -> CostEstimate:
        """Estimate the time of a call. A failure is logged and reported; the call continues."""
        if not self._computes_on_device:
            return CostEstimate(inf, inf, inf, NO_WORK._replace(nodes=len(self.nodes)))
        try:
            return self._source.estimate([getattr(_value_anywhere(c), "shape", ()) for c in self.input_storage])
        except Exception as error:
            if not self.problem:
                self.problem = f"estimates failed: {type(error).__name__}: {error}"
                _log.warning("The estimate of a call's time failed; the device goes first.", exc_info=True)
            return CostEstimate(inf, inf, inf, NO_WORK._replace(nodes=len(self.nodes)))

    def _apply(self, stats: SelectedSignature) -> None:
        """Let the generated call run the backend that the statistics have chosen."""
        stats.is_on_device = stats.backend == DEVICE
        stats.run = self._device.run if stats.is_on_device else self._host_backends[stats.backend].fast_run

    # Calls that the generated function does not run itself

    def _run_slowly(self, stats: SelectedSignature) -> list[Any]:
        """Run a call of a comparison, or one with values that compiled code cannot read."""
        if stats.calls_left >= 0:
            return self._run_on_device() if stats.is_on_device else self._run_on(stats.backend)
        name = stats.timed_backend
        is_ready = name in (DEVICE, stats.backend) or self._host_backends[name].is_ready()
        if not is_ready:
            stats.postpone(READY_SECONDS)
            name = stats.backend
        failure: Exception | None = None
        start = perf_counter()
        try:
            results = self._run_on(name)
        except Exception as error:
            failure = error  # raised outside the except clause, so that a later error is not chained to it
        if failure is not None:
            return self._recover(stats, name, failure)
        if is_ready:
            stats.note(perf_counter() - start)
        self._apply(stats)
        if self._is_compiled(name):
            for other in self._signatures.values():
                other.note_compiled(name)
        return results

    def _is_compiled(self, name: str) -> bool:
        """Return whether a backend has compiled the graph."""
        if name != DEVICE:
            return self._host_backends[name].is_compiled
        if self._build_kernels is None:
            self._device.note_compiled()
        return self._device.is_compiled

    def _run_on(self, name: str) -> list[Any]:
        """Run a call on a backend, and wait for the device.

        If the data are at fault, the device repeats a call of the host and raises at the node.
        """
        if name == DEVICE:
            results = super().__call__()
            self._finish()
            return results
        host = self._host_backends[name]
        try:
            return host.run()
        except Exception:
            if host.compile_failed:
                raise
        return self._run_on_device()

    def _run_on_device(self) -> list[Any]:
        try:
            return super().__call__()
        except _DEVICE_FAILURES as error:
            failure = error  # handled outside the except clause, so that a later error is not chained to it
        return self._run_on_host(failure)

    # Backends that fail

    def _run_after_failure(self, stats: SelectedSignature, failure: Exception) -> list[Any]:
        """Run a call again that has failed on the present backend: on the device, or on a host if that cannot.

        Raises `Exception`: the failure of the device, if it is the data's.
        """
        if not stats.is_on_device:
            return self._run_on_device()
        if isinstance(failure, _DEVICE_FAILURES):
            return self._run_on_host(failure)
        raise failure

    def _run_on_host(self, failure: OpenCLError) -> list[Any]:
        """Run a call on a host: the device is the parent process's, or has no memory or disk space for it now.

        Raises `OpenCLError`: the failure, if no host can run the call.
        """
        stats = self._find_stats()
        if stats is None:
            raise failure
        if isinstance(failure, ForkedProcessError):
            self._excluded[DEVICE] = FORKED
        for host in sorted(self._host_backends.values(), key=lambda h: stats.seconds.get(h.name, inf)):
            reason = stats.excluded.get(host.name)
            if reason not in (None, NO_DEVICE_WORK) and (host.name, reason) != (C, EMPTY):
                continue
            try:
                results = host.run()
            except Exception:
                if not host.compile_failed:
                    raise
                continue
            if isinstance(failure, ForkedProcessError):
                for other in self._signatures.values():
                    other.exclude(DEVICE, FORKED)
            else:
                stats.fail(DEVICE, _message(DEVICE, failure))
            stats.use(host.name)
            self._apply(stats)
            return results
        raise failure

    def _recover(self, stats: SelectedSignature, failed: str, failure: Exception) -> list[Any]:
        """Run a call on another backend. If that succeeds, the failure was the backend's and not the data's.

        Raises `Exception`: the failure, if it was the data's or no other backend is left.
        """
        if isinstance(failure, _DEVICE_FAILURES):
            return self._run_on_host(failure)
        if failed == stats.backend == DEVICE or (failed != DEVICE and not self._host_backends[failed].compile_failed):
            raise failure
        order = (
            (stats.backend, DEVICE, *self._host_backends)
            if self._computes_on_device
            else (*self._host_backends, DEVICE)
        )
        free = (None, NO_DEVICE_WORK)
        other = next((n for n in order if n != failed and stats.excluded.get(n) in free), None)
        if other is None:
            raise failure
        results = self._run_on_device() if other == DEVICE else self._run_on(other)
        why = _message(failed, failure)
        if _is_transient(failure):
            stats.fail(failed, why)
        else:
            stats.exclude(failed, why)
            if failed != DEVICE:
                self._excluded[failed] = why
        stats.use(other)
        self._apply(stats)
        return results


def _shapes(cells: Sequence[Cell]) -> list[Any] | None:
    """Return the shapes of the values in cells; None if one has no shape."""
    shapes = [getattr(cell[0], "shape", None) for cell in cells]
    return None if None in shapes else shapes


def _message(name: str, error: Exception) -> str:
    """Return in one line what a backend raised."""
    text = f"{'the device' if name == DEVICE else name}: {type(error).__name__}: {error}"
    return text.splitlines()[0]


def _is_transient(error: BaseException | None) -> bool:
    """Return whether an error comes from a lack of memory, of space on a disk, or of files."""
    while error is not None:
        if isinstance(error, MemoryError | OSError) or os.strerror(ENOSPC) in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _value_anywhere(cell: Cell) -> Any:
    """Return a value where it is, on the host or on a device."""
    return cell.anywhere() if isinstance(cell, DeviceCell) else cell[0]
