"""Training on several machines or processes: each worker computes some parts of a batch, and all make the same update.

The workers are those of a Dask cluster. Each has a replica of all variables. The client has the random generators, cuts
the batches, and has the other variables when it asks for them.
"""

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pytensor_cl.optimizers.state import value_of
from pytensor_cl.train import replica
from pytensor_cl.train.parts import PartGraph, add, blocks, cut, next_keys, tree_sum, whole_ranges
from pytensor_cl.train.steps import check_batch

POLL_SECONDS = 0.25
"""Seconds between two looks at whether all workers are there, while a step runs."""
WORKER_SECONDS = 60.0
"""Seconds to wait for a worker if there is none."""
SCATTER_BYTES = 1 << 20
"""Bytes of arrays from which on they go to a worker directly, and not inside of a task through the scheduler."""


class WorkerLost(RuntimeError):
    """A data-parallel training cannot go on, since workers were lost.

    Attributes
    ----------
    is_state_whole
        Whether the variables here are those after the last step, so that a checkpoint can be written.
    """

    def __init__(self, text: str, is_state_whole: bool) -> None:
        super().__init__(text)
        self.is_state_whole = is_state_whole


class _Lost(Exception):
    """A worker was lost, or a replica with it; the work can be tried again."""


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise ImportError("train.distribute needs Dask's scheduler: pip install 'pytensor-cl[dask]'") from error
    return distributed


class _Cluster:
    """The workers of a client: runs tasks on named ones, and finds out if one is lost."""

    def __init__(self, client: Any) -> None:
        self._client, self._library = client, _distributed()
        self._lost = (
            replica.StaleReplica,
            self._library.scheduler.KilledWorker,
            self._library.client.FutureCancelledError,
            self._library.comm.CommClosedError,
            TimeoutError,
        )
        self._running: list[Any] = []

    def workers(self) -> list[str]:
        """Return the addresses of the workers, in a fixed order."""
        return sorted(self._client.nthreads())

    def wait_for_workers(self) -> list[str]:
        """Return the addresses of all workers when there is at least one."""
        try:
            self._client.wait_for_workers(1, timeout=WORKER_SECONDS)
        except TimeoutError as error:
            raise _Lost(f"no worker came within {WORKER_SECONDS:.0f} seconds") from error
        return self.workers()

    def start(self, worker: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the future of a task on one worker."""
        future = self._client.submit(function, *arguments, workers=[worker], allow_other_workers=False, pure=False)
        self._running.append(future)
        return future

    def sent(self, worker: str, what: Any, nbytes: int) -> Any:
        """Return arrays as an argument of a task on a worker: a future if they are large."""
        if nbytes < SCATTER_BYTES:
            return what
        try:
            (future,) = self._client.scatter([what], workers=[worker], hash=False)
        except self._lost as error:
            raise _Lost(f"{worker} does not take data") from error
        return future

    def results(self, futures: Sequence[Any], workers: Sequence[str]) -> list[Any]:
        """Return the results of tasks, which need all of these workers.

        Raises `_Lost` if one of them is not there. A task's own exception is raised as it is.
        """
        try:
            while True:
                try:
                    self._library.wait(futures, timeout=POLL_SECONDS)
                    break
                except TimeoutError:
                    gone = sorted(set(workers) - set(self.workers()))
                    if gone:
                        raise _Lost(f"lost: {', '.join(gone)}") from None
            results: list[Any] = self._client.gather(futures)
            return results
        except self._lost as error:
            raise _Lost(str(error)) from error
        finally:
            self._running = [future for future in self._running if not future.done()]
            if self._running:
                self._client.cancel(self._running, force=True)
            self._running = []

    def each(self, workers: Sequence[str], function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return what a function returns on each worker."""
        return self.results([self.start(worker, function, *arguments) for worker in workers], workers)


class DistributedStep:
    """A step of a training on the workers of a Dask cluster; `distribute` makes it.

    It is called as `Step` and has its attributes, but for ``function``. The variables here have the values of the
    last `pull`.

    Attributes
    ----------
    workers
        The addresses of the workers.
    shards
        The number of parts of a batch.
    """

    def __init__(self, build: Callable[[], Any], client: Any, shards: int | None, retries: int) -> None:
        self._build = _pickled(build)
        self._cluster = _Cluster(client)
        self._definition = definition = replica.definition_of(build())
        PartGraph(definition)  # makes the variables of the optimizer
        self.inputs, self.params = definition.inputs, definition.params
        self.optimizer, self.averages = definition.optimizer, definition.averages
        self.weights, self.variables = definition.weights, definition.variables
        self._training, self._retries = uuid.uuid4().hex, retries
        self._count = self._held = 0  # steps done, and those after which the variables here are
        self._is_whole = True  # all workers are there and have done the same steps
        self._following: list[np.random.Generator] = []  # the generators after the step that runs
        self._results: list[np.ndarray] | None = None  # of a step that had ended when a worker was lost
        self.workers = self._cluster.wait_for_workers()
        self.shards = len(self.workers) if shards is None else shards
        self.settings = {"accumulate": self.shards}
        self.push()

    def __call__(self, *batch: Any) -> dict[str, Any]:
        """Do one step.

        Parameters
        ----------
        batch
            Arrays for ``inputs``.

        Raises
        ------
        WorkerLost
            If workers were lost and the step could not be repeated.
        """
        check_batch(batch, self.inputs)
        parts = cut(batch, self.shards)
        if not self._is_whole:
            self._retried(lambda: None)
        self._results = None
        keys, self._following = next_keys(list(self._definition.generators))
        count = self._count

        def attempt() -> list[np.ndarray]:
            if self._results is None:
                self._results = self._try(parts, keys)
                self._commit()
            return self._results

        results = self._retried(attempt)
        assert self._count == count + 1
        return dict(zip(self._definition.results, results, strict=True))

    def _commit(self) -> None:
        """Count the step that has ended, and move the generators."""
        self._count += 1
        for variable, generator in zip(self._definition.generators, self._following, strict=True):
            variable.set_value(generator, borrow=True)

    def _try(self, parts: Sequence[tuple[Any, ...]], keys: Any) -> list[np.ndarray]:
        """Return the results of a step: sums on each worker, their tree of additions, and the update on each."""
        cluster = self._cluster
        known: dict[tuple[int, int], tuple[Any, str]] = {}
        for worker, block in zip(self.workers, blocks(len(parts), len(self.workers)), strict=True):
            for first, last in whole_ranges(block, 0, len(parts)):
                own = {k: parts[k] for k in range(first, last)}
                nbytes = sum(array.nbytes for part in own.values() for array in part)
                arguments = ("total", self._count, cluster.sent(worker, own, nbytes), keys, first, last)
                known[first, last] = cluster.start(worker, replica.call_replica, self._training, *arguments), worker

        def added(left: tuple[Any, str], right: tuple[Any, str]) -> tuple[Any, str]:
            return cluster.start(left[1], add, left[0], right[0]), left[1]

        total, _ = tree_sum(0, len(parts), lambda *ends: known.get(ends), added)
        results = cluster.each(self.workers, replica.call_replica, self._training, "update", self._count, total)
        found: list[np.ndarray] = results[0]
        return found

    def _retried(self, action: Callable[[], Any]) -> Any:
        """Return what an action returns; it is tried again if workers are lost."""
        try:
            for left in range(self._retries, -1, -1):
                try:
                    if not self._is_whole:
                        self._recover()
                    return action()
                except _Lost as error:
                    self._is_whole = False
                    if not left:
                        raise self._worker_lost(error) from error
        except BaseException:
            self._is_whole = False  # a task may still run
            raise

    def _worker_lost(self, cause: _Lost) -> WorkerLost:
        """Return the error after the last attempt, with the variables here if a worker still has them."""
        count = self._count
        try:
            self._recover()
            self._fetch()
        except (_Lost, WorkerLost):
            pass
        return WorkerLost(
            f"workers were lost in each of {self._retries + 1} attempts at step {count + 1}; the last one: {cause}",
            self._held == self._count == count,
        )

    def _recover(self) -> None:
        """Give all workers that are there the same variables."""
        workers = self._cluster.wait_for_workers()
        found = dict(zip(workers, self._cluster.each(workers, replica.status_of, self._training), strict=True))
        usable = {w: s for w, s in found.items() if s is not None and s.step_count in (self._count, self._count + 1)}
        if not usable:
            if self._held != self._count:
                raise WorkerLost(
                    f"all workers that had the variables after step {self._count} are lost; call fit again to go on "
                    "from its checkpoint",
                    False,
                )
            self._send(workers)
            return
        latest = max(status.step_count for status in usable.values())
        sources = {worker: status for worker, status in usable.items() if status.step_count == latest}
        _check_digests([status.digest for status in sources.values()])
        source = next(iter(sources))
        others = [worker for worker in workers if worker not in sources]
        if others:
            self._open(others)
            values = self._cluster.start(source, replica.call_replica, self._training, "values")
            arguments = (replica.call_replica, self._training, "load", latest, values)
            self._cluster.results([self._cluster.start(w, *arguments) for w in others], [source, *others])
        if latest == self._count + 1:
            self._results = sources[source].results
            self._commit()
        self.workers, self._is_whole = workers, True

    def _open(self, workers: Sequence[str]) -> None:
        self._cluster.each(workers, replica.open_replica, self._training, self._build)

    def _send(self, workers: list[str]) -> None:
        """Give workers the variables that are here."""
        self._open(workers)
        values = [value_of(variable) for variable in self._definition.arrays]
        sent = self._cluster.sent(workers[0], values, sum(value.nbytes for value in values))
        self._cluster.each(workers, replica.call_replica, self._training, "load", self._count, sent)
        self.workers, self._is_whole, self._held = workers, True, self._count

    def _fetch(self) -> None:
        """Set the variables here to those of the workers, which must all have the same."""
        if self._held == self._count:
            return
        statuses = self._cluster.each(self.workers, replica.status_of, self._training)
        if any(status is None or status.step_count != self._count for status in statuses):
            raise _Lost("a worker has no replica, as after a restart")
        _check_digests([status.digest for status in statuses])
        (values,) = self._cluster.each(self.workers[:1], replica.call_replica, self._training, "values")
        for variable, value in zip(self._definition.arrays, values, strict=True):
            variable.set_value(np.array(value))
        self._held = self._count

    def pull(self) -> None:
        """Set the variables here to those of the workers."""
        self._retried(self._fetch)

    def push(self) -> None:
        """Set the variables of all workers to those here; workers that came since are used too."""

        def send() -> None:
            self._send(self._cluster.wait_for_workers())

        self._is_whole = True  # whatever they have is replaced
        self._retried(send)

    def evaluate(self, *batch: Any) -> dict[str, Any]:
        """Return the results of a batch from the prediction graph, computed by one worker.

        Parameters
        ----------
        batch
            Arrays for ``inputs``.
        """
        check_batch(batch, self.inputs)
        arrays = [np.asarray(array) for array in batch]

        def attempt() -> list[np.ndarray]:
            worker = self.workers[0]
            sent = self._cluster.sent(worker, arrays, sum(array.nbytes for array in arrays))
            results = self._cluster.each([worker], replica.call_replica, self._training, "evaluate", sent)
            found: list[np.ndarray] = results[0]
            return found

        return dict(zip(self._definition.results, self._retried(attempt), strict=True))

    def close(self) -> None:
        """Free the memory on the workers."""
        here = [worker for worker in self.workers if worker in self._cluster.workers()]
        self._cluster.each(here, replica.close_replica, self._training)


def _check_digests(digests: Sequence[str]) -> None:
    if len(set(digests)) > 1:
        raise RuntimeError(
            "the workers' variables differ after the same steps, so their devices or drivers do not compute alike; "
            "use equal ones"
        )


def _pickled(build: Callable[[], Any]) -> bytes:
    """Return a function as bytes, by value if it is a local one."""
    if not callable(build):
        raise TypeError(f"build must be a function without arguments that returns those of train.step; got {build!r}")
    _distributed()
    import cloudpickle  # Dask needs it

    try:
        pickled: bytes = cloudpickle.dumps(build)
        return pickled
    except Exception as error:
        raise TypeError(
            f"build cannot be sent to workers: {error}. Make what it needs inside of it, such as open files and locks"
        ) from error


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}")
    return int(value)


def distribute(
    build: Callable[[], Any], client: Any, *, shards: int | None = None, retries: int = 3
) -> DistributedStep:
    """Return a step that the workers of a Dask cluster do together; `fit` takes it as any step.

    Each batch is cut into parts along axis 0, as ``step(accumulate=shards)`` does. Workers compute weighted sums of
    gradients of their parts, which are added in a binary tree from worker to worker; then each worker makes the same
    update. The results are those of one device with ``accumulate=shards``, bit for bit on equal devices, whatever the
    number of workers; see there for random numbers and running statistics.

    If a worker is lost, the step is repeated: its parts go to the others, and to workers that have come since, which
    get the variables from one that has them.

    Parameters
    ----------
    build
        A function without arguments that returns a dict of the arguments of `step`, without ``accumulate``,
        ``devices`` and ``updates``. It is sent to the workers and runs once on each, and once here. Initial values are
        those that it makes here.
    client
        A ``distributed.Client``. Workers use the device that their flags name; each computes in one thread.
    shards
        The number of parts of a batch. None: that of the workers at the start. A training that goes on from a
        checkpoint needs the same number.
    retries
        The number of times that a step is tried again.

    Returns
    -------
    DistributedStep
        A callable.

    Raises
    ------
    TypeError
        If `build` is no function that can be sent, or returns no dict.
    ValueError
        If `build` returns an argument that is not possible here.
    WorkerLost
        By calls of the step: if workers were lost in all attempts. If one of them still had the variables, `fit`
        writes its checkpoint; else its last checkpoint is what there is.

    Examples
    --------
    >>> step = train.distribute(build, Client("tcp://scheduler:8786"), shards=8)
    >>> train.fit(step, (images, labels), epochs=10, checkpoint="net.safetensors", checkpoint_every=500)
    """
    if shards is not None:
        shards = _whole("shards", shards, 1)
    retries = _whole("retries", retries, 0)
    if getattr(client, "asynchronous", False):
        raise TypeError("client must not be asynchronous")
    return DistributedStep(build, client, shards, retries)
