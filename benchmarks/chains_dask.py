"""Chains on the workers of a Dask cluster: measured on this machine, and simulated for many machines.

    PYTENSOR_FLAGS=device=opencl:pocl python benchmarks/chains_dask.py --measure   # with no, one and two workers
    python benchmarks/chains_dask.py --simulate                                    # of 10, 100 and 1,000 workers

In a measurement each process has one core, turns follow each other, and the figure is the smallest of the turns.

The simulation has the messages that `pytensor_cl.pymc.cluster` sends. The scheduler is a server that takes one message
after the other; what goes to the client and comes from it passes through one link, in the order in which it is ready.
"""

import argparse
import heapq
import os
import pickle
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

STATE_COMMANDS = 50
"""Iterations between two states of the shards that the client keeps (`pytensor_cl.pymc.cluster`)."""
TASKS = (0.2, 0.5)
"""Milliseconds of the scheduler for a task, of a quiet one and of a busy one."""
SCALAR = 8
"""Bytes of a number: those of adaptation are float64, and the others too with floatX=float64."""


@dataclass(frozen=True)
class Cluster:
    """Workers with one shard each, and what moves between them and the client."""

    workers: int
    chains: int = 256  # on a worker
    parameters: int = 100
    milliseconds: float = 20.0  # for an iteration of a worker
    jitter: float = 0.05  # standard deviation of its logarithm
    task: float = 0.35  # milliseconds of the scheduler for a task: half when it is sent, half when it is done
    latency: float = 0.2  # milliseconds of a message between two machines
    bandwidth: float = 1e6  # bytes per millisecond: 1 GB/s
    overhead: int = 1500  # bytes of a message beside its numbers
    per_chain: float = 60e-6  # milliseconds of the client for a chain in the warm-up: medians and means
    per_shard: float = 0.01  # milliseconds of the client for the moments of a shard, and for each of their bytes
    per_byte: float = 0.16e-6
    fan_in: int = 8  # children of a sum in a tree of sums

    def moments(self) -> int:
        """Return the bytes of the moments of a shard."""
        return 5 * self.parameters * SCALAR

    def numbers(self) -> int:
        """Return the bytes of each chain's numbers in the warm-up: acceptance, change, slope, and two squares."""
        return 5 * self.chains * SCALAR

    def draw(self) -> int:
        """Return the bytes of a draw of a shard: positions and statistics."""
        return (self.parameters + 6) * self.chains * SCALAR

    def block(self) -> int:
        """Return how many of 200 draws are fetched at once (`pytensor_cl.pymc.cluster`)."""
        most = max((128 << 20) // (self.draw() * self.workers), 200 // 20)
        return max(min((16 << 20) // self.draw(), most, 20), 1)

    def state(self, matrices: int) -> float:
        """Return the bytes of the states of a shard that the client keeps, for each iteration."""
        return matrices * self.parameters * self.chains * SCALAR / STATE_COMMANDS

    def requests(self) -> int:
        """Return the bytes of the requests to a shard in the warm-up: centre, direction and mass matrix, twice."""
        return 5 * self.parameters * SCALAR


def arrivals(cluster: Cluster, sent: int, received: float, iterations: int, rng: np.random.Generator) -> float:
    """Return the milliseconds until the client has the results of all workers, each of so many bytes."""
    half = 0.5 * cluster.task
    link = (sent + cluster.overhead) / cluster.bandwidth
    begun = np.arange(1, cluster.workers + 1) * max(half, link) + cluster.latency
    seconds = cluster.milliseconds * np.exp(rng.normal(0, cluster.jitter, (cluster.workers, iterations))).sum(axis=1)
    events = [(float(t) + cluster.latency, i) for i, t in enumerate(begun + seconds)]
    heapq.heapify(events)
    scheduler = now = cluster.workers * half
    while events:
        ready, _ = heapq.heappop(events)
        scheduler = max(scheduler, ready) + half
        now = max(now, scheduler) + (received + cluster.overhead) / cluster.bandwidth
    return now + cluster.latency


def tree(cluster: Cluster) -> float:
    """Return the milliseconds that a tree of sums of moments takes: its levels wait for each other."""
    count, total = cluster.workers, 0.0
    while count > 1:
        tasks = -(-count // cluster.fan_in)
        transfer = cluster.fan_in * cluster.moments() / cluster.bandwidth
        total += tasks * cluster.task + 2 * cluster.latency + transfer
        count = tasks
    return total


@dataclass(frozen=True)
class Iteration:
    """Times and bytes of an iteration."""

    flat: float  # milliseconds of the warm-up
    tree: float
    draws: float
    warm_up_bytes: float
    tree_bytes: float
    draw_bytes: float


def simulated(cluster: Cluster, rounds: int = 20) -> Iteration:
    """Return the mean of some iterations of the warm-up, and of draws in blocks that are fetched meanwhile."""
    rng = np.random.default_rng(1)
    sums = cluster.workers * (cluster.per_shard + cluster.moments() * cluster.per_byte)
    own = cluster.per_chain * cluster.chains * cluster.workers
    # Positions, gradients and four sums in the second half of a warm-up; among the draws no sums.
    numbers = cluster.numbers() + cluster.state(6)
    flat = [arrivals(cluster, cluster.requests(), numbers + cluster.moments(), 1, rng) for _ in range(rounds)]
    short = [arrivals(cluster, cluster.requests(), numbers, 1, rng) for _ in range(rounds)]
    block = cluster.block()
    # Draws of a block go through the link while the next ones are made: the slower of both counts.
    draw = cluster.draw() + cluster.state(2)
    link = cluster.workers * (block * draw + cluster.overhead) / cluster.bandwidth
    made = np.mean([arrivals(cluster, 40 * block, 0, block, rng) for _ in range(3)])
    messages = cluster.requests() + numbers + 2 * cluster.overhead
    return Iteration(
        float(np.mean(flat)) + own + sums,
        float(np.mean(short)) + own + tree(cluster),
        max(link, float(made)) / block,
        cluster.workers * (messages + cluster.moments()),
        cluster.workers * messages + cluster.moments(),
        cluster.workers * (draw + 2 * cluster.overhead / block),
    )


def stops_paying(cluster: Cluster, share: float = 0.5) -> int:
    """Return the number of workers above which less than a share of the time of the warm-up is computation."""
    low, high = 1, 1 << 17
    while high - low > max(low // 50, 1):
        middle = (low + high) // 2
        time_there = simulated(replace(cluster, workers=middle), rounds=2).flat
        low, high = (middle, high) if cluster.milliseconds / time_there >= share else (low, middle)
    return low


def _range(values: Sequence[float], form: str = ",.0f") -> str:
    """Return the text of the smallest and the largest value."""
    texts = list(dict.fromkeys(format(value, form) for value in sorted(values)))
    return " to ".join(texts)


def simulate() -> None:
    """Print a table for 10, 100 and 1,000 workers."""
    columns = ["workers", "ms an iteration", "parameters", "warm-up, ms", "with a tree, ms", "a draw, ms"]
    columns += ["MB, warm-up", "with a tree", "a draw", "computing, warm-up", "draws"]
    print("| " + " | ".join(columns) + " |")
    print("|---:" * len(columns) + "|")
    for milliseconds, parameters in ((20.0, 100), (200.0, 100), (20.0, 10_000), (200.0, 10_000)):
        for workers in (10, 100, 1000):
            cluster = Cluster(workers, parameters=parameters, milliseconds=milliseconds)
            found = [simulated(replace(cluster, task=task)) for task in TASKS]
            times = [_range([getattr(f, name) for f in found]) for name in ("flat", "tree", "draws")]
            sizes = [f"{b / 1e6:,.3g}" for b in (found[0].warm_up_bytes, found[0].tree_bytes, found[0].draw_bytes)]
            shares = [_range([milliseconds / getattr(f, name) for f in found], ".0%") for name in ("flat", "draws")]
            cells = [f"{workers:,}", f"{milliseconds:.0f}", f"{parameters:,}", *times, *sizes, *shares]
            print("| " + " | ".join(cells) + " |")
    print("\nWorkers above which less than half of the warm-up's time is computation (100 parameters):")
    for milliseconds in (2.0, 20.0, 200.0, 2000.0):
        limits = [stops_paying(Cluster(1, milliseconds=milliseconds, task=task)) for task in TASKS]
        print(f"  {milliseconds:5.0f} ms an iteration: {limits[1]:,} to {limits[0]:,}")


def _model(rows: int = 4_000, columns: int = 20) -> Any:
    import pymc as pm

    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, columns))
    y = rng.random(rows) < 1 / (1 + np.exp(-x @ (0.3 * rng.normal(size=columns))))
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=columns)
        pm.Bernoulli("y", logit_p=pm.math.dot(x, beta), observed=y.astype("int64"))
    return model


class _Sizes:
    """Bytes of all requests and replies, in the order in which they are sent."""

    def __init__(self) -> None:
        from pytensor_cl.pymc.workers import Workers

        self.requests: list[int] = []
        self.replies: list[int] = []
        send, receive = Workers.send, Workers.receive

        def counting_send(workers: Any, requests: Any) -> Any:
            self.requests.append(sum(len(pickle.dumps(request)) for request in requests))
            return send(workers, requests)

        def counting_receive(workers: Any, pending: Any) -> Any:
            replies = receive(workers, pending)
            self.replies.append(sum(len(pickle.dumps(reply)) for reply in replies.values()))
            return replies

        Workers.send, Workers.receive = counting_send, counting_receive  # type: ignore[method-assign]


def _times(model: Any, options: argparse.Namespace, **places: Any) -> tuple[float, float]:
    """Return the milliseconds of an iteration of the warm-up, and of a draw."""
    from pytensor_cl.pymc import sample

    marks: list[float] = []
    sample(
        model,
        chains=options.chains,
        tune=options.tune,
        draws=options.draws,
        random_seed=1,
        progressbar=False,
        callback=lambda record: marks.append(time.perf_counter()),
        **places,
    )
    # The first third of a warm-up has few steps; the median leaves out what is done at the ends of windows.
    warm_up = float(np.median(np.diff(marks[options.tune // 3 : options.tune])))
    return 1e3 * warm_up, 1e3 * (marks[-1] - marks[options.tune - 1]) / options.draws


def measure(options: argparse.Namespace) -> None:
    """Print the milliseconds of an iteration in this process, on one worker and on two, and the bytes of messages."""
    os.environ |= {"POCL_MAX_PTHREAD_COUNT": "1", "OMP_NUM_THREADS": "1"}
    import distributed

    import pytensor_cl

    pytensor_cl.use("opencl:pocl", name="here")
    model = _model()
    found: dict[str, list[tuple[float, float]]] = {}
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as one,
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as two,
        distributed.Client(one) as client_of_one,
        distributed.Client(two) as client_of_two,
    ):
        begun = time.perf_counter()
        client_of_two.gather(client_of_two.map(abs, range(1000), pure=False))
        print(f"a task of the scheduler, with 1,000 at once: {time.perf_counter() - begun:.2f} ms")
        waits = []
        for number in range(50):
            begun = time.perf_counter()
            client_of_one.submit(abs, number, pure=False).result()
            waits.append(1e3 * (time.perf_counter() - begun))
        print(f"one task that does nothing: {min(waits):.1f} ms at least, {np.median(waits):.1f} ms in the median")
        places = {"this process": {"devices": ["here"]}, "a worker": {"client": client_of_one}}
        for _ in range(options.rounds):
            for name, place in {**places, "two workers": {"client": client_of_two}}.items():
                found.setdefault(name, []).append(_times(model, options, **place))
        sizes = _Sizes()
        _times(model, options, client=client_of_two)
    for name, times in found.items():
        warm_up, draw = np.min(times, axis=0)
        print(f"{name}: {warm_up:.1f} ms an iteration of the warm-up, {draw:.1f} ms a draw")
    print(
        f"all requests {sum(sizes.requests):,} bytes, all replies {sum(sizes.replies):,} bytes, median of a command: ",
        end="",
    )
    print(f"{np.median(sizes.requests):,.0f} and {np.median(sizes.replies):,.0f}, in {len(sizes.requests)} commands")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--chains", type=int, default=256)
    parser.add_argument("--tune", type=int, default=60)
    parser.add_argument("--draws", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    if options.measure:
        measure(options)
    if options.simulate:
        simulate()
