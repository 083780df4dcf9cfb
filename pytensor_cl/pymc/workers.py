"""Workers of a Dask cluster that have shards of chains: who has which, who is gone, and who takes over."""

import pickle
import sys
import uuid
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from typing import Any

from pytensor_cl.integers import ceil_div
from pytensor_cl.pymc.worker_shards import Reply, Request, execute, forget_run

SECONDS_WITHOUT_WORKERS = 60.0
"""Time in which a cluster may bring another worker when none is left."""
_SECONDS_BETWEEN_LOOKS = 1.0
"""Time after which it is asked whether workers are still there, while something is awaited."""
_SECONDS_OF_TRANSFER = 20.0
"""Time after which that is asked while results are on their way; twice as long each time."""
_MOST_LOSSES = 8
"""Workers that may be lost without a reply of any other: an error that ends each of them is not tried for ever."""


class WorkersLost(RuntimeError):
    """No worker of a cluster is left."""


def check_client(client: Any) -> None:
    """Raise if it is no client of `dask.distributed` that works."""
    # Where there is such a client, its package has been loaded.
    of_dask = getattr(sys.modules.get("distributed"), "Client", ())
    if not isinstance(client, of_dask):
        raise TypeError(
            f"client must be a dask.distributed.Client, not {type(client).__module__}.{type(client).__name__} "
            "(pip install pytensor-cl[dask])"
        )
    if client.asynchronous:
        raise TypeError("client must not be asynchronous: sample() waits for its workers")
    if client.status != "running":
        raise ValueError(f"the client is not connected to a cluster: its status is {client.status!r}")


def _execute_pickled(run: str, requests: bytes, payload: bytes | None) -> list[Reply | None] | None:
    return execute(run, pickle.loads(requests), payload)


class Workers:
    """The workers of one run. Each shard is on one worker, and moves to another one if that is gone.

    `recovered` returns a request with the state from which a worker can begin that does not have the shard.
    """

    def __init__(self, client: Any, payload: bytes, shards: int, recovered: Callable[[Request], Request]) -> None:
        self._client, self._payload, self._recovered = client, payload, recovered
        self._run = uuid.uuid4().hex
        self._places: list[str | None] = [None] * shards
        self._prepared: set[str] = set()

    def send(self, requests: Iterable[Request]) -> "PendingReplies":
        """Send requests to the workers of their shards."""
        pending = PendingReplies()
        self._send(list(requests), pending)
        return pending

    def receive(self, pending: "PendingReplies") -> dict[int, Reply]:
        """Wait for the replies to requests, by shard; requests of workers that are gone are sent to others."""
        replies: dict[int, Reply] = {}
        while pending.requests:
            again, known = self._wait(pending), len(replies)
            for future, found in self._results(pending, again).items():
                requests = pending.requests.pop(future)
                if found is None:
                    again += requests
                    self._dismiss(pending.places[future])
                    continue
                for request, reply in zip(requests, found, strict=True):
                    if reply is None:
                        self._places[request.shard] = None
                        again.append(request)
                    else:
                        replies[request.shard] = reply
            pending.losses = 0 if len(replies) > known else pending.losses + bool(again)
            if pending.losses > _MOST_LOSSES:
                raise WorkersLost(f"workers were lost {pending.losses} times, one after the other, at the same work")
            self._send(again, pending)
        return replies

    def rebalance(self) -> None:
        """Take shards from workers that have more than others; they move when their next requests are sent."""
        alive = self._alive()
        most = ceil_div(len(self._places), max(min(len(alive), len(self._places)), 1))
        loads: dict[str, int] = {}
        for shard, place in enumerate(self._places):
            if place is not None:
                loads[place] = loads.get(place, 0) + 1
                if place not in alive or loads[place] > most:
                    self._places[shard] = None

    def close(self) -> None:
        """Let the workers forget the run."""
        try:
            alive = self._alive().intersection(self._prepared)
            if alive:
                self._client.run(forget_run, self._run, workers=sorted(alive), on_error="ignore")
        except (OSError, WorkersLost):
            pass  # they forget it when other runs come

    def forget_places(self) -> None:
        """Start again as another run, whose shards are nowhere."""
        self._run = uuid.uuid4().hex
        self._places = [None] * len(self._places)
        self._prepared.clear()

    def _alive(self) -> set[str]:
        try:
            return set(self._client.nthreads())
        except (OSError, RuntimeError, TimeoutError) as error:
            raise WorkersLost(f"the scheduler of the cluster does not answer: {error}") from error

    def _dismiss(self, place: str | None) -> None:
        """Take all shards from a worker."""
        self._prepared.discard(place or "")
        self._places = [None if other == place else other for other in self._places]

    def _send(self, requests: Sequence[Request], pending: "PendingReplies") -> None:
        without_place = [request.shard for request in requests if self._places[request.shard] is None]
        if without_place:
            self._find_places(without_place)
            pending.moved.update(without_place)
        by_place: dict[str, list[Request]] = {}
        for request in requests:
            place = self._places[request.shard]
            assert place is not None
            by_place.setdefault(place, []).append(
                self._recovered(request) if request.shard in pending.moved else request
            )
        for place, of_place in by_place.items():
            payload = None if place in self._prepared else self._payload
            self._prepared.add(place)
            with warnings.catch_warnings():
                # States and models are large, and have to go to the worker anyway.
                warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
                future = self._client.submit(
                    _execute_pickled,
                    self._run,
                    pickle.dumps(of_place),  # Dask would look for tasks in lists of lists
                    payload,
                    workers=[place],
                    key=f"pytensor_cl_chains-{uuid.uuid4().hex}",
                    pure=False,
                )
            pending.requests[future], pending.places[future] = of_place, place

    def _find_places(self, shards: Sequence[int]) -> None:
        """Give shards without a worker to workers that have fewest."""
        alive = self._alive()
        if not alive:
            try:
                self._client.wait_for_workers(1, timeout=SECONDS_WITHOUT_WORKERS)
            except (TimeoutError, OSError) as error:
                raise WorkersLost(
                    f"no worker of the cluster is left, and none came within {SECONDS_WITHOUT_WORKERS:.0f} seconds"
                ) from error
            alive = self._alive()
        loads = dict.fromkeys(sorted(alive), 0)
        for place in self._places:
            if place in loads:
                loads[place] += 1
        for shard in shards:
            place = min(loads, key=lambda name: loads[name])
            loads[place] += 1
            self._places[shard] = place

    def _wait(self, pending: "PendingReplies") -> list[Request]:
        """Wait until all tasks are done, or a worker is gone; return the requests of such workers."""
        from distributed import wait

        while True:
            try:
                wait(list(pending.requests), timeout=_SECONDS_BETWEEN_LOOKS)
            except TimeoutError:
                again = self._abandon(pending)
                if again:
                    return again
            except CancelledError:
                return []  # the status of a future says which
            else:
                return []

    def _abandon(self, pending: "PendingReplies") -> list[Request]:
        """Return the requests of workers that are gone, and take their shards from them."""
        alive, again = self._alive(), []
        for future in [future for future in pending.requests if pending.places[future] not in alive]:
            again += pending.requests.pop(future)
            future.cancel()
            self._dismiss(pending.places[future])
        return again

    def _results(self, pending: "PendingReplies", again: list[Request]) -> dict[Any, list[Reply | None] | None]:
        """Return what the tasks that are done returned; requests of workers that are gone are added to `again`.

        The value of a task that is to be sent again is None.
        """
        from distributed.scheduler import KilledWorker

        found: dict[Any, list[Reply | None] | None] = {}
        for future in pending.requests:
            if future.status == "error":
                error = future.exception()
                if not isinstance(error, KilledWorker):
                    raise error
                found[future] = None
            elif future.status in ("cancelled", "lost"):
                self._alive()  # a scheduler that is gone has cancelled all
                found[future] = None
        seconds = _SECONDS_OF_TRANSFER
        while True:
            finished = [future for future in pending.requests if future.status == "finished"]
            try:
                return found | dict(zip(finished, self._gather(finished, seconds), strict=True))
            except (TimeoutError, CancelledError):
                again += self._abandon(pending)
                seconds *= 2

    def _gather(self, futures: list[Any], seconds: float) -> list[Any]:
        client = self._client

        async def gather() -> Any:
            return await client.gather(futures, asynchronous=True)

        found: list[Any] = client.sync(gather, callback_timeout=seconds)
        return found


class PendingReplies:
    """Requests that were sent, and the workers to which they were sent."""

    def __init__(self) -> None:
        self.requests: dict[Any, list[Request]] = {}
        self.places: dict[Any, str] = {}
        self.moved: set[int] = set()
        self.losses = 0  # since the last reply
        self.start = self.length = 0  # number of the first command, and how many draws there are
