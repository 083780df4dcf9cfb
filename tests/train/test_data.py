"""Data of a training: order, kinds, batches from any one on, the thread that makes them ahead, and what is refused."""

import threading
from itertools import repeat

import numpy as np
import pytensor.tensor as pt
import pytest

from pytensor_cl import train
from pytensor_cl.train import prefetch
from pytensor_cl.train.data import Cut, as_source
from pytensor_cl.train.prefetch import Prefetch

X = np.arange(23.0).reshape(23, 1)
Y = np.arange(23)


def seen(data, epochs=1, **options):
    """The batches that a step gets, in lists of an array's rows."""
    batches = []

    def step(*batch):
        batches.append([np.asarray(array).ravel().tolist() for array in batch])
        return 0.0

    train.fit(step, data, epochs, progress="never", **options)
    return batches


def test_order_is_a_function_of_seed_and_epoch():
    batches = seen((X, Y), 2, batch_size=5, seed=3)
    assert len(batches) == 10
    for epoch in range(2):
        order = np.random.default_rng([3, epoch]).permutation(23)
        rows = [row for batch in batches[5 * epoch : 5 * epoch + 5] for row in batch[1]]
        assert rows == order.tolist()
    assert all(x == y for x, y in batches)
    assert seen((X, Y), 2, batch_size=5, seed=3) == batches
    assert seen((X, Y), 2, batch_size=5, seed=4) != batches


def test_without_shuffling_and_without_the_last_batch():
    assert seen(Y, batch_size=10, shuffle=False) == [[list(range(10))], [list(range(10, 20))], [[20, 21, 22]]]
    assert seen(Y, batch_size=10, shuffle=False, drop_last=True) == [[list(range(10))], [list(range(10, 20))]]


def test_arrays_by_name():
    class Step:
        inputs = (pt.dmatrix("x"), pt.lvector("y"))

        def __call__(self, x, y):
            assert (x.ndim, y.ndim) == (2, 1)
            return 0.0

    train.fit(Step(), {"y": Y, "x": X}, progress="never")
    with pytest.raises(TypeError, match=r"inputs of the step are x, y; the data have x, z"):
        train.fit(Step(), {"x": X, "z": Y})
    with pytest.raises(TypeError, match=r"inputs have different names"):
        train.fit(lambda x: 0.0, {"x": X})


def test_functions_of_the_epoch_and_iterables():
    assert seen(lambda epoch: [np.full(2, epoch), np.full(3, epoch)], 2) == [
        [[0, 0]],
        [[0, 0, 0]],
        [[1, 1]],
        [[1, 1, 1]],
    ]
    assert seen([(Y[:2], X[:2]), (Y[2:3], X[2:3])], 2) == 2 * [[[0, 1], [0.0, 1.0]], [[2], [2.0]]]
    with pytest.raises(TypeError, match=r"a generator gives its batches only once"):
        train.fit(lambda x: 0.0, (batch for batch in [Y]))
    with pytest.raises(ValueError, match=r"no batch in epoch 0"):
        train.fit(lambda x: 0.0, [])


@pytest.mark.parametrize("shuffle", [False, True])
def test_dask_arrays(shuffle):
    da = pytest.importorskip("dask.array")
    chunks = (6, 6, 6, 5)
    x, y = da.from_array(X, chunks=(chunks, 1)), da.from_array(Y, chunks=(chunks,))
    batches = seen((x, y), 2, batch_size=4, shuffle=shuffle, seed=1)
    assert [len(batch[1]) for batch in batches] == 2 * [4, 4, 4, 4, 4, 3]
    assert all(a == b for a, b in batches)
    for epoch in range(2):
        order = np.arange(23)
        if shuffle:
            parts = np.split(order, np.cumsum(chunks)[:-1])
            parts = [part[np.random.default_rng([1, epoch, i]).permutation(len(part))] for i, part in enumerate(parts)]
            order = np.concatenate([parts[i] for i in np.random.default_rng([1, epoch]).permutation(4)])
        assert [row for batch in batches[6 * epoch : 6 * epoch + 6] for row in batch[1]] == order.tolist()
    assert seen((x, Y), 2, batch_size=4, shuffle=shuffle, seed=1) == batches  # beside an array of NumPy
    with pytest.raises(ValueError, match=r"different chunks along axis 0"):
        train.fit(lambda x, y: 0.0, (x, y.rechunk(5)))
    with pytest.raises(ValueError, match=r"compute_chunk_sizes"):
        train.fit(lambda x: 0.0, x[x[:, 0] > 3])


@pytest.mark.parametrize("kind", ["arrays", "dask", "function"])
def test_batches_from_any_one_on(kind):
    data = (X, Y)
    if kind == "dask":
        da = pytest.importorskip("dask.array")
        data = tuple(da.from_array(array, chunks=(7, *array.shape[1:])) for array in data)
    if kind == "function":
        data = lambda epoch: [(X[i : i + 4], Y[i : i + 4]) for i in range(epoch, 23, 4)]  # noqa: E731
    for drop_last in (False, True):
        source = as_source(data, Cut(4, True, drop_last, 0), None)
        whole = list(source.batches(1))
        assert source.count in (None, len(whole))
        for first in range(len(whole) + 1):
            rest = list(source.batches(1, first))
            assert len(rest) == len(whole) - first
            for got, wanted in zip(rest, whole[first:], strict=True):
                for array, expected in zip(got, wanted, strict=True):
                    np.testing.assert_array_equal(array, expected)


def test_what_is_refused():
    class Step:
        inputs = (pt.fmatrix("x"), pt.lvector("y"))

        def __call__(self, x, y):
            raise AssertionError

    with pytest.raises(TypeError, match=r"data for x are float64, the input is float32: use .astype\('float32'\)"):
        train.fit(Step(), (X, Y))
    with pytest.raises(TypeError, match=r"data for x have 1 dimensions, the input has 2"):
        train.fit(Step(), (X[:, 0].astype("float32"), Y))
    with pytest.raises(TypeError, match=r"data for y are int32"):
        train.fit(Step(), [(X.astype("float32"), Y.astype("int32"))])
    with pytest.raises(TypeError, match=r"2 inputs.*the data have 1"):
        train.fit(Step(), X)
    with pytest.raises(ValueError, match=r"different numbers of rows: 23, 22"):
        train.fit(lambda x, y: 0.0, (X, Y[1:]))
    with pytest.raises(ValueError, match=r"the data have no rows"):
        train.fit(lambda x: 0.0, X[:0])
    with pytest.raises(ValueError, match=r"23 rows make no batch of 64 rows"):
        train.fit(lambda x: 0.0, X, drop_last=True)
    with pytest.raises(ValueError, match=r"without dimensions"):
        train.fit(lambda x: 0.0, np.float64(3))
    with pytest.raises(TypeError, match=r"data are arrays, a function of the epoch, or an iterable"):
        train.fit(lambda x: 0.0, 3)
    with pytest.raises(ValueError, match=r"batch_size must be at least 1"):
        train.fit(lambda x: 0.0, X, batch_size=0)
    with pytest.raises(TypeError, match=r"batch_size must be a whole number"):
        train.fit(lambda x: 0.0, X, batch_size=2.5)


def test_the_thread_is_no_more_than_the_depth_ahead():
    made, taken = [], threading.Semaphore(0)

    def batches():
        for number in range(10):
            made.append(number)
            if number == 2:
                taken.release()
            yield (number,)

    with Prefetch(batches(), 2, lambda: None) as ready:
        assert taken.acquire(timeout=60)
        assert made == [0, 1, 2]  # two are in the queue, and the third one waits for a place
        assert next(ready) == (0,)
    assert len(made) <= 5


def test_quick_batches_need_no_thread(monkeypatch):
    now, threads = [0.0], []
    monkeypatch.setattr(prefetch, "perf_counter", lambda: now[0])

    def batches():
        for number, seconds in enumerate([0.1, 1e-4, 0.1, 1e-4, 0.1, 0.1, 1e-4, 1e-4]):
            now[0] += seconds
            threads.append(threading.current_thread().name)
            yield number

    with Prefetch(batches(), 1, lambda: None, quick=True) as ready:
        assert list(ready) == list(range(8))
    assert threads[:6] == [threading.current_thread().name] * 6
    assert threads[6:] == ["pytensor_cl batches"] * 2


def test_the_thread_ends_and_hands_on_errors():
    def broken(epoch):
        yield Y
        raise OSError("the disk")

    for depth in (0, 1):
        with pytest.raises(OSError, match="the disk"):
            train.fit(lambda x: 0.0, broken, prefetch=depth, progress="never")

    def stop(x):
        raise KeyError("the step")

    with pytest.raises(KeyError, match="the step"):
        train.fit(stop, lambda epoch: repeat(Y), progress="never")  # endless
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("pytensor_cl batches")]
