"""Timed calls in Chrome's trace event format, which Perfetto reads.

One process is the host, with a track of calls and their steps. Each context is a process with a track of what the
device did.
"""

import json
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from pytensor.graph.basic import Apply

from pytensor_cl.linker.run.timed_call import TimedCall
from pytensor_cl.ops.names import short_name
from pytensor_cl.runtime.registry import get_context

HOST = 1

Event = dict[str, Any]


def _slice(process: int, name: str, kind: str, start: int, end: int, zero: int, **args: Any) -> Event:
    """A complete event; the format counts in microseconds."""
    times = {"ts": (start - zero) / 1000, "dur": (end - start) / 1000}
    return {"ph": "X", "name": name, "cat": kind, "pid": process, "tid": 1, **times, "args": args}


def _names(process: int, name: str, track: str) -> Iterator[Event]:
    for kind, value in (("process_name", name), ("thread_name", track)):
        yield {"ph": "M", "name": kind, "pid": process, "tid": 1, "args": {"name": value}}


def _call_events(
    name: str, nodes: Sequence[Apply], call: TimedCall, processes: dict[str, int], zero: int
) -> Iterator[Event]:
    yield _slice(HOST, name, "call", call.start, call.end, zero)
    for step in call.steps:
        shapes = [list(shape) for shape in step.shapes]
        yield _slice(HOST, short_name(nodes[step.node].op), "step", step.start, step.end, zero, shapes=shapes)
    for c in call.commands:
        node = short_name(nodes[c.step].op) if c.step < len(nodes) else "search for errors"
        about = {"kernel": c.name} if c.name else {"bytes": c.nbytes}
        shown = node if c.name else c.kind
        waited = (c.start - c.enqueued) / 1000
        yield _slice(processes[c.context], shown, c.kind, c.start, c.end, zero, node=node, queued_us=waited, **about)


def write_trace(path: str | PathLike[str], calls: Sequence[tuple[str, Sequence[Apply], TimedCall]]) -> None:
    """Write calls to a file."""
    contexts = sorted({c.context for _, _, call in calls for c in call.commands})
    processes = {name: HOST + 1 + k for k, name in enumerate(contexts)}
    zero = min((call.start for _, _, call in calls), default=0)
    events = list(_names(HOST, "host", "PyTensor"))
    for name, process in processes.items():
        events += _names(process, f"{name}: {get_context(name).info.name}", "queue")
    for name, nodes, call in calls:
        events += _call_events(name, nodes, call, processes, zero)
    Path(path).write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))
