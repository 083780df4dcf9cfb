"""The time of calls by device, transfers, host and the rest; and how far each node is from the device's peak."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from typing import Any, NamedTuple, NoReturn
from weakref import WeakKeyDictionary, ref

from pytensor.graph.basic import Apply

from pytensor_cl.linker.linker import OpenCLLinker
from pytensor_cl.linker.reports.flops import bytes_moved, flops
from pytensor_cl.linker.reports.page import fragment, page, save
from pytensor_cl.linker.reports.plots import plot_roofline, plot_timeline
from pytensor_cl.linker.reports.tables import UNLIMITED, WIDEST, Table, html, text, to_scale
from pytensor_cl.linker.reports.trace import write_trace
from pytensor_cl.linker.run.timed_call import TimedCall, TimedStep
from pytensor_cl.ops.base import GpuOp, context_of
from pytensor_cl.ops.names import cut, full_name, short_name, variable_name
from pytensor_cl.ops.transfer import GpuFromHost, GpuToGpu, HostFromGpu
from pytensor_cl.routines.peak import Peak, measure_peak
from pytensor_cl.runtime.registry import get_context
from pytensor_cl.runtime.timed_queue import COPY, DOWNLOAD, KERNEL, UPLOAD, Command

UPLOADS = (GpuFromHost, GpuToGpu)  # Ops with transfers to a device, and between devices
TRANSFERS = (*UPLOADS, HostFromGpu)
PENDING = 20_000
"""Steps after which time stamps are read, so that the driver can free them."""
TRACED = 200_000
"""Steps that a trace holds at most."""

_NOT_ENTERED = (
    "only calls inside a with block are timed: write with pytensor_cl.profile(f) as p: and call f in it, then print(p)"
)

Span = tuple[int, int]


class TimeBreakdown(NamedTuple):
    """Seconds of calls, divided among what went on. Where two things did, the one named first counts.

    Attributes
    ----------
    kernels
        The device computed.
    transfers
        Values went to or from the device.
    host
        Nodes of the host computed.
    overhead
        The device had nothing to do, and the host prepared launches, or waited for the driver.
    """

    kernels: float = 0.0
    transfers: float = 0.0
    host: float = 0.0
    overhead: float = 0.0


@dataclass
class NodeTime:
    """Time, transfers and work of a node over all calls.

    Attributes
    ----------
    node, function
        The node, and the number of its function.
    context
        The device; empty for nodes of the host.
    calls, launches
        Number of runs of the node, and of all kernels that it enqueued.
    device_seconds
        Time of its kernels, by the device's clock.
    transfer_seconds
        Time of its transfers.
    host_seconds
        Time of the host in its step: it computed, enqueued, or waited.
    nbytes
        Bytes that the node reads and writes at least, or that it transferred.
    flops
        Floating-point operations, by `pytensor_cl.linker.reports.flops.flops`.
    shapes
        Shapes of its inputs and outputs in the last call.
    """

    node: Apply
    function: int
    context: str
    calls: int = 0
    launches: int = 0
    device_seconds: float = 0.0
    transfer_seconds: float = 0.0
    host_seconds: float = 0.0
    nbytes: int = 0
    flops: float = 0.0
    shapes: tuple[tuple[int, ...], ...] = ()

    @property
    def dtype(self) -> str:
        """Dtype of the node's arithmetic, ``"float32"`` or ``"float64"``; peaks are measured for these."""
        kinds = {getattr(v.type, "dtype", "") for v in self.node.outputs}
        return "float64" if kinds & {"float64", "complex128"} else "float32"


def _covered(spans: Iterable[Span], low: int, high: int) -> list[Span]:
    """Return the union of spans inside some limits, in order."""
    merged: list[Span] = []
    for start, end in sorted((max(a, low), min(b, high)) for a, b in spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        elif start < end:
            merged.append((start, end))
    return merged


def _exclusive_times(layers: Sequence[Iterable[Span]], low: int, high: int) -> list[float]:
    """Return the seconds of each layer in which none before it is, and what all of them leave."""
    covered: list[Span] = []
    seconds, before = [], 0
    for layer in layers:
        covered = _covered([*covered, *layer], low, high)
        now = sum(end - start for start, end in covered)
        seconds.append(1e-9 * (now - before))
        before = now
    return [*seconds, 1e-9 * (high - low - before)]


def _device_of(node: Apply) -> str:
    names = (context_of(v) for v in (*node.outputs, *node.inputs))
    return next(filter(None, names), "")


_last_profiles: WeakKeyDictionary[Any, "ref[Profile]"] = WeakKeyDictionary()


def last_profile(fn: Any) -> "Profile | None":
    """Return the last profile of a function that still exists and has timed a call of it."""
    found = _last_profiles.get(fn.vm)
    made = found() if found is not None else None
    return made if made is not None and made.calls else None


@dataclass(eq=False)
class Profile:
    """Timed calls. A context manager; ``print`` shows it, notebooks show it as HTML.

    Attributes
    ----------
    functions
        The functions that are timed.
    full_names
        Whether names of nodes are not shortened.
    calls
        Number of calls.
    seconds
        Time of all calls, by the host's clock, until the device had finished each.
    shares
        Parts of that time; they add up to `seconds`.
    nodes
        Times of the nodes, the longest first.
    """

    functions: tuple[Any, ...]
    full_names: bool = False
    calls: int = 0
    seconds: float = 0.0
    _spent: TimeBreakdown = field(default_factory=TimeBreakdown)
    _nodes: dict[tuple[int, int], NodeTime] = field(default_factory=dict)
    _traced: list[tuple[int, TimedCall]] = field(default_factory=list)
    _pending: list[tuple[int, TimedCall]] = field(default_factory=list)
    _steps: int = 0
    _unread: int = 0
    _undo: list[Callable[[], None]] = field(default_factory=list)
    _was_entered: bool = False

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Say how a profile is made: it is not called in place of the function.

        Raises `TypeError`: always.
        """
        raise TypeError(
            "a profile times the calls inside a with block: write 'with pytensor_cl.profile(f) as p: f(x)' and then "
            "'print(p)', not profile(f)(x)"
        )

    def __enter__(self) -> "Profile":
        self._was_entered = True
        for function in self.functions:
            _last_profiles[function.vm] = ref(self)
        for function in self.functions:
            function.vm.build()  # or the first call would, in none of its nodes
        for number, function in enumerate(self.functions):
            vm, listener = function.vm, partial(self._take, number)
            self._undo += [
                partial(vm.call_listeners.remove, listener),
                partial(setattr, vm, "time_thunks", vm.time_thunks),
            ]
            vm.call_listeners.append(listener)
            vm.time_thunks = True
        return self

    def __exit__(self, *_: object) -> None:
        while self._undo:
            self._undo.pop()()
        self._flush()

    def _take(self, number: int, call: TimedCall) -> None:
        self._pending.append((number, call))
        self._steps += len(call.steps)
        self._unread += len(call.steps)
        if self._unread > PENDING:
            self._flush()

    def _check_entered(self) -> None:
        """Refuse to report on what was never timed."""
        if not self._was_entered:
            raise RuntimeError(_NOT_ENTERED)

    def _flush(self) -> None:
        """Add up what was timed."""
        pending, self._pending, self._unread = self._pending, [], 0
        for number, call in pending:
            self._add(number, call)
        if self._steps <= TRACED:
            self._traced += pending

    def _add(self, number: int, call: TimedCall) -> None:
        nodes = self.functions[number].vm.nodes
        for step in call.steps:
            self._add_step(self._entry(number, step.node, nodes), step)
        for command in call.commands:
            if command.step < len(nodes):
                self._add_command(self._entry(number, command.step, nodes), command)
        self.calls += 1
        self.seconds += 1e-9 * (call.end - call.start)
        shares = _exclusive_times(_layers(nodes, call), call.start, call.end)
        self._spent = TimeBreakdown(*map(sum, zip(self._spent, shares, strict=True)))

    def _entry(self, number: int, at: int, nodes: Sequence[Apply]) -> NodeTime:
        key = number, at
        if key not in self._nodes:
            self._nodes[key] = NodeTime(nodes[at], number, _device_of(nodes[at]))
        return self._nodes[key]

    @staticmethod
    def _add_step(entry: NodeTime, step: TimedStep) -> None:
        node = entry.node
        shapes = step.shapes[: len(node.inputs)], step.shapes[len(node.inputs) :]
        entry.calls += 1
        entry.shapes = step.shapes
        entry.host_seconds += 1e-9 * (step.end - step.start)
        if isinstance(node.op, HostFromGpu):  # a transfer, also where the host reads the device's memory
            entry.nbytes += bytes_moved(node, *shapes) // 2
        if getattr(node.op, "is_compute", False):
            entry.nbytes += bytes_moved(node, *shapes)
            entry.flops += flops(node.op, *shapes)

    @staticmethod
    def _add_command(entry: NodeTime, command: Command) -> None:
        seconds = 1e-9 * (command.end - command.start)
        entry.launches += command.kind == KERNEL
        if command.kind in (KERNEL, COPY):
            entry.device_seconds += seconds
        else:
            entry.transfer_seconds += seconds
            entry.nbytes += command.nbytes if isinstance(entry.node.op, UPLOADS) else 0

    @property
    def shares(self) -> TimeBreakdown:
        """The time of all calls, divided by activity."""
        self._check_entered()
        self._flush()
        return self._spent

    @property
    def nodes(self) -> list[NodeTime]:
        """The times of each node, the largest first."""
        self._check_entered()
        self._flush()
        return sorted(self._nodes.values(), key=lambda n: -max(n.device_seconds, n.transfer_seconds, n.host_seconds))

    def peaks(self) -> dict[str, Peak]:
        """Return the measured peak of each device, by context; the first call measures it."""
        names = sorted({n.context for n in self.nodes if n.context})
        return {name: measure_peak(get_context(name)) for name in names}

    def save_trace(self, path: str | PathLike[str]) -> None:
        """Write the calls in Chrome's trace event format, which Perfetto and chrome://tracing show.

        Parameters
        ----------
        path
            A file, ``.json``. Time 0 is when the first call began.
        """
        self._check_entered()
        self._flush()
        if len(self._traced) < self.calls:
            warnings.warn(f"the trace holds {len(self._traced)} of {self.calls} calls", stacklevel=2)
        names = [f.name or f"function {k}" for k, f in enumerate(self.functions)]
        write_trace(path, [(names[k], self.functions[k].vm.nodes, call) for k, call in self._traced])

    def tables(self) -> list[Table]:
        """Return the report."""
        if not self._was_entered:
            return [
                Table(
                    ("only calls inside a with block are timed",),
                    [("with pytensor_cl.profile(f) as p:",), ("    f(x)",)],
                )
            ]
        if not self.nodes:
            return [Table(("no calls were made inside the with block",), [])]
        peaks = self.peaks()
        made = (
            _summary(self),
            _peak_table(peaks),
            _device_table(self, peaks),
            _transfer_table(self),
            _host_table(self),
        )
        return [table for table in made if table.rows]

    def __str__(self) -> str:
        return text(self.tables(), UNLIMITED if self.full_names else WIDEST)

    __repr__ = __str__

    def _body(self) -> str:
        has_calls = self._was_entered and self.calls
        return (_shares_bar(self) if has_calls else "") + html(self.tables())

    def _repr_html_(self) -> str:
        return fragment(self._body())

    def to_html(self, path: str | PathLike[str]) -> None:
        """Write the report as a page of HTML, which needs no other file.

        Parameters
        ----------
        path
            A file, ``.html``.
        """
        names = ", ".join(f.name or f"function {k}" for k, f in enumerate(self.functions))
        save(path, page(f"Profile of {names}", self._body()))

    def name(self, op: Any) -> str:
        """Return the name of an Op in this report."""
        return full_name(op) if self.full_names else short_name(op)

    def plot_timeline(self, axes: Any = None, *, call: int = -1) -> Any:
        """Plot when the host and the devices worked in one call, with matplotlib.

        Parameters
        ----------
        axes
            Axes of matplotlib to draw on; a new figure without them.
        call
            Number of the call; the last one unless it is given.

        Returns
        -------
        matplotlib.axes.Axes
            The axes: one row for the steps of the host, and one for each device.

        Raises
        ------
        ImportError
            matplotlib is not installed.
        IndexError
            There is no such call.
        """
        self._check_entered()
        self._flush()
        return plot_timeline(self.functions, self._traced, axes, call)

    def plot_roofline(self, axes: Any = None, *, peaks: Mapping[str, Peak] | None = None) -> Any:
        """Plot how far each device node is from the peaks of its device, with matplotlib.

        A node is a point: operations for each byte that it reads or writes, and operations per second. The lines are
        what bandwidth and arithmetic allow. Nodes whose operations are not counted are left out.

        Parameters
        ----------
        axes
            Axes of matplotlib to draw on; a new figure without them.
        peaks
            Peak of each context; measured unless they are given.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.

        Raises
        ------
        ImportError
            matplotlib is not installed.
        ValueError
            No node has operations that are counted.
        """
        return plot_roofline(self.nodes, self.peaks() if peaks is None else peaks, axes)


def _layers(nodes: Sequence[Apply], call: TimedCall) -> list[list[Span]]:
    """Return when kernels ran, when values were moved, and when nodes of the host ran."""
    computing = [(c.start, c.end) for c in call.commands if c.kind in (KERNEL, COPY)]
    moving = [(c.start, c.end) for c in call.commands if c.kind in (UPLOAD, DOWNLOAD)]
    moving += [(s.start, s.end) for s in call.steps if isinstance(nodes[s.node].op, TRANSFERS)]
    host = [(s.start, s.end) for s in call.steps if not isinstance(nodes[s.node].op, (GpuOp, *TRANSFERS))]
    return [computing, moving, host]


# --- tables ---


def _time(seconds: float) -> str:
    if not seconds:
        return ""
    scales = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
    scale, unit = next((s for s in scales if seconds >= s[0]), scales[-1])
    return f"{seconds / scale:.3g} {unit}"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if part and whole else ""


def _rate(amount: float, seconds: float) -> str:
    return f"{amount / seconds / 1e9:.3g}" if amount and seconds else ""


def _summary(p: Profile) -> Table:
    head = f"{p.calls} calls, {_time(p.seconds / p.calls)} each", "per call", "share"
    rows = [(name, _time(s / p.calls), _percent(s, p.seconds)) for name, s in p.shares._asdict().items()]
    return Table(head, rows)


def _peak_table(peaks: dict[str, Peak]) -> Table:
    rows = []
    for name, peak in peaks.items():
        info = get_context(name).info
        rates = (f"{peak.flops[d] / 1e9:.0f}" if d in peak.flops else "-" for d in ("float32", "float64"))
        rows.append((name, f"{info.name} ({info.platform})", f"{peak.bytes_per_second / 1e9:.1f}", *rates))
    return Table(("context", "measured peak of", "GB/s", "GFLOP/s float32", "float64"), rows)


def _device_table(p: Profile, peaks: dict[str, Peak]) -> Table:
    head = ("device node (per call)", "launches", "device", "share", "enqueue", "GB/s", "of peak", "GFLOP/s", "of peak")
    nodes = [n for n in p.nodes if isinstance(n.node.op, GpuOp) and n.launches]
    used = [_parts_of_peak(n, peaks[n.context]) for n in nodes]
    rows = [
        (
            p.name(n.node.op),
            f"{n.launches / n.calls:g}",
            _time(n.device_seconds / n.calls),
            _percent(n.device_seconds, p.seconds),
            _time(n.host_seconds / n.calls),
            _rate(n.nbytes, n.device_seconds),
            _percent(memory, 1),
            _rate(n.flops, n.device_seconds),
            _percent(arithmetic, 1),
        )
        for n, (memory, arithmetic) in zip(nodes, used, strict=True)
    ]
    bars = {
        2: to_scale(n.device_seconds for n in nodes),
        6: [min(memory, 1.0) for memory, _ in used],
        8: [min(arithmetic, 1.0) for _, arithmetic in used],
    }
    return Table(head, rows, bars)


def _parts_of_peak(n: NodeTime, peak: Peak) -> tuple[float, float]:
    """Return which part of the peak bandwidth and of the peak arithmetic a node reached."""
    possible = peak.bytes_per_second * n.device_seconds, peak.flops.get(n.dtype, 0.0) * n.device_seconds
    memory, arithmetic = (a / b if b else 0.0 for a, b in zip((n.nbytes, n.flops), possible, strict=True))
    return memory, arithmetic


def _label(node: Apply) -> str:
    """Return the name of the value that a node transfers."""
    named = (v.name for v in (*node.outputs, *node.inputs) if v.name)
    return cut(next(named, variable_name(node.inputs[0])))


def _transfer_table(p: Profile) -> Table:
    nodes = [n for n in p.nodes if isinstance(n.node.op, TRANSFERS)]
    rows = [
        (
            p.name(n.node.op),
            _label(n.node),
            f"{n.nbytes // n.calls:,}",
            _time(n.transfer_seconds / n.calls),
            _time(n.host_seconds / n.calls),
            _rate(n.nbytes, n.transfer_seconds),
        )
        for n in nodes
    ]
    bars = {2: to_scale(n.nbytes / n.calls for n in nodes), 4: to_scale(n.host_seconds / n.calls for n in nodes)}
    return Table(("transfer (per call)", "value", "bytes", "device", "host, with waiting", "GB/s"), rows, bars)


def _host_table(p: Profile) -> Table:
    nodes = [n for n in p.nodes if not n.context]
    rows = [(p.name(n.node.op), _time(n.host_seconds / n.calls), _percent(n.host_seconds, p.seconds)) for n in nodes]
    return Table(("host node (per call)", "host", "share"), rows, {1: to_scale(n.host_seconds for n in nodes)})


def _shares_bar(p: Profile) -> str:
    """Return the parts of a call as one bar."""
    shares = [(name, s, _percent(s, p.seconds) or "0 %") for name, s in p.shares._asdict().items()]
    bar = "".join(f'<span class="time-{n}" style="width:{100 * s / p.seconds:.2f}%"></span>' for n, s, _ in shares if s)
    key = "".join(f'<span class="time-{n}">{n} {percent}</span>' for n, _, percent in shares)
    return f'<div class="shares">{bar}</div><div class="key">{key}</div>'


def profile(*functions: Any, full_names: bool = False) -> Profile:
    """Time the calls of functions inside a ``with`` block.

    A timed call runs node by node on the device, however it would run otherwise, and waits at its end until the
    device has finished. Kernels that do not exist yet are built when the block begins, and are in no call's time.

    Parameters
    ----------
    functions
        Compiled functions of mode OPENCL.
    full_names
        Whether names of nodes have all their functions and parameters; without it they have 60 characters at most.

    Raises
    ------
    TypeError
        One was compiled for another linker.

    Examples
    --------
    >>> with pytensor_cl.profile(f) as p:  # doctest: +SKIP
    ...     f(x)
    >>> print(p)  # doctest: +SKIP
    >>> p.save_trace("trace.json")  # doctest: +SKIP
    """
    for function in functions:
        linker = getattr(getattr(function, "maker", None), "linker", None)
        if not isinstance(linker, OpenCLLinker):
            raise TypeError(
                f"profile takes compiled functions of mode OPENCL; got {function!r} with linker {linker!r}: compile it "
                "with pytensor.function(..., mode='OPENCL')"
            )
    if not functions:
        raise TypeError("profile needs a compiled function")
    return Profile(functions, full_names)
