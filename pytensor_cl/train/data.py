"""Sources of batches: arrays, Dask arrays, functions of the epoch, and iterables.

A source yields the batches of an epoch from any of them on, so that a training continues where it stopped. The order is
a function of the seed and the epoch.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl import kept_threads
from pytensor_cl.integers import ceil_div

type Batch = tuple[Any, ...]


class Cut(NamedTuple):
    """Options that say how rows become batches."""

    batch_size: int
    shuffle: bool
    drop_last: bool
    seed: int

    def count(self, rows: int) -> int:
        """Return the number of batches."""
        return rows // self.batch_size if self.drop_last else ceil_div(rows, self.batch_size)


class Source:
    """Batches of each epoch.

    Attributes
    ----------
    rows
        The number of rows; None if it is not known.
    count
        The number of batches in an epoch; None if it is not known.
    is_quick
        Whether a batch is made in less time than a thread needs to hand it over, as a rule.
    """

    rows: int | None = None
    count: int | None = None
    is_quick = False

    def batches(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch from the one numbered `first` on."""
        raise NotImplementedError

    @property
    def description(self) -> dict[str, Any]:
        """The values that a checkpoint and the run that continues it must have in common."""
        raise NotImplementedError


class Fields:
    """The names, dtypes and dimensions that the arrays of a batch must have, where the step tells them."""

    def __init__(self, inputs: Sequence[Any] | None) -> None:
        self._inputs = None if inputs is None else list(inputs)

    def ordered(self, data: Any) -> list[Any]:
        """Return the arrays of a tuple, list or dict, or the array alone, in the order of the inputs."""
        if isinstance(data, Mapping):
            return self._by_name(data)
        arrays = list(data) if isinstance(data, tuple | list) else [data]
        if self._inputs is not None and len(arrays) != len(self._inputs):
            raise TypeError(f"the step has {len(self._inputs)} inputs, {self._inputs}; the data have {len(arrays)}")
        return arrays

    def _by_name(self, data: Mapping[str, Any]) -> list[Any]:
        names = [str(getattr(variable, "name", "")) for variable in self._inputs or ()]
        if self._inputs is None or "" in names or "None" in names or len(set(names)) != len(names):
            raise TypeError("arrays by name need a step whose inputs have different names; give a tuple of arrays")
        if set(names) != set(data):
            raise TypeError(f"the inputs of the step are {', '.join(names)}; the data have {', '.join(map(str, data))}")
        return [data[name] for name in names]

    def check(self, arrays: Iterable[Any]) -> None:
        """Raise TypeError if dtypes or dimensions are not those of the inputs."""
        for variable, array in zip(self._inputs or (), arrays, strict=False):
            dtype, ndim = getattr(array, "dtype", None), getattr(array, "ndim", None)
            if dtype is None:
                array = np.asarray(array)
                dtype, ndim = array.dtype, array.ndim
            if str(dtype) != variable.type.dtype:
                raise TypeError(
                    f"the data for {variable} are {dtype}, the input is {variable.type.dtype}: "
                    f"use .astype({variable.type.dtype!r})"
                )
            if ndim != variable.type.ndim:
                raise TypeError(f"the data for {variable} have {ndim} dimensions, the input has {variable.type.ndim}")


def _number_of_rows(arrays: Sequence[Any], cut: Cut) -> int:
    """Return the common length of arrays, of which there is at least one batch."""
    lengths = [int(array.shape[0]) for array in arrays if array.ndim]
    if len(lengths) < len(arrays):
        raise ValueError("an array without dimensions has no rows; data are arrays with rows along axis 0")
    if len(set(lengths)) > 1:
        raise ValueError(f"the arrays have different numbers of rows: {', '.join(map(str, lengths))}")
    rows = lengths[0]
    if not rows:
        raise ValueError("the data have no rows")
    if not cut.count(rows):
        raise ValueError(f"{rows} rows make no batch of {cut.batch_size} rows with drop_last")
    return rows


class Arrays(Source):
    """Arrays in memory or mapped from files, cut along axis 0."""

    is_quick = True

    def __init__(self, arrays: Sequence[np.ndarray], cut: Cut) -> None:
        self._arrays, self._cut, self._rows = arrays, cut, _number_of_rows(arrays, cut)
        self.rows, self.count = self._rows, cut.count(self._rows)

    def batches(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        size, order = self._cut.batch_size, None
        if self._cut.shuffle:
            order = np.random.default_rng([self._cut.seed, epoch]).permutation(self._rows)
        for number in range(first, self._cut.count(self._rows)):
            part = slice(number * size, min((number + 1) * size, self._rows))
            if order is None:
                yield tuple(array[part] for array in self._arrays)
            else:
                yield tuple(array.take(order[part], axis=0) for array in self._arrays)

    @property
    def description(self) -> dict[str, Any]:
        return {"data": "arrays", "rows": self.rows, **self._cut._asdict()}


class DaskArrays(Source):
    """Dask arrays, computed chunk by chunk; the next chunk is computed while the last one is used.

    Shuffled are the chunks, and the rows inside of each.
    """

    def __init__(self, arrays: Sequence[Any], cut: Cut) -> None:
        self._arrays, self._cut = arrays, cut
        chunked = [array.chunks[0] for array in arrays if _is_dask(array)]
        if any(size != size for sizes in chunked for size in sizes):
            raise ValueError("the sizes of chunks are not known: call compute_chunk_sizes() of the Dask arrays first")
        if len(set(chunked)) > 1:
            raise ValueError("the Dask arrays have different chunks along axis 0: rechunk them alike")
        self.rows = _number_of_rows(arrays, cut)
        self.count = cut.count(self.rows)
        self._sizes: list[int] = list(map(int, chunked[0]))
        self._begins = np.concatenate([[0], np.cumsum(self._sizes)])

    def _chunk(self, epoch: int, number: int) -> list[np.ndarray]:
        import dask

        part = slice(int(self._begins[number]), int(self._begins[number + 1]))
        arrays = [np.asarray(array) for array in dask.compute(*(array[part] for array in self._arrays))]
        if not self._cut.shuffle:
            return arrays
        order = np.random.default_rng([self._cut.seed, epoch, number]).permutation(self._sizes[number])
        return [array.take(order, axis=0) for array in arrays]

    def _chunks(self, epoch: int, order: Sequence[int]) -> Iterator[list[np.ndarray]]:
        left = deque(order)
        ahead: deque[Future[Any]] = deque()
        try:
            while left or ahead:
                while left and len(ahead) < 2:
                    ahead.append(kept_threads.pool(1, "pytensor_cl chunks").submit(self._chunk, epoch, left.popleft()))
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()

    def batches(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        order = np.arange(len(self._sizes))
        if self._cut.shuffle:
            order = np.random.default_rng([self._cut.seed, epoch]).permutation(len(self._sizes))
        skipped, size = first * self._cut.batch_size, self._cut.batch_size
        numbers = list(map(int, order))
        while numbers and skipped >= self._sizes[numbers[0]]:
            skipped -= self._sizes[numbers.pop(0)]
        rest: list[np.ndarray] | None = None
        for chunk in self._chunks(epoch, numbers):
            chunk = [array[skipped:] for array in chunk]
            skipped = 0
            if rest is not None:
                chunk = [np.concatenate(pair) for pair in zip(rest, chunk, strict=True)]
            whole = len(chunk[0]) // size * size
            for begin in range(0, whole, size):
                yield tuple(array[begin : begin + size] for array in chunk)
            rest = [array[whole:] for array in chunk]
        if rest is not None and len(rest[0]) and not self._cut.drop_last:
            yield tuple(rest)

    @property
    def description(self) -> dict[str, Any]:
        return {"data": "dask", "rows": self.rows, "chunks": self._sizes, **self._cut._asdict()}


class Iterables(Source):
    """Batches from a function of the epoch or from an iterable, which are as long and in the order that it makes."""

    def __init__(self, make: Callable[[int], Iterable[Any]], fields: Fields) -> None:
        self._make, self._fields = make, fields

    def batches(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        for batch in islice(self._make(epoch), first, None):
            arrays = self._fields.ordered(batch)
            self._fields.check(arrays)
            yield tuple(arrays)

    @property
    def description(self) -> dict[str, Any]:
        return {"data": "batches"}


def _is_dask(array: Any) -> bool:
    return hasattr(array, "dask") and hasattr(array, "chunks")


def _holds_arrays(data: Any) -> bool:
    """Return whether this is an array, or a tuple or dict of arrays; a list is one of batches."""
    return isinstance(data, Mapping | tuple) or (hasattr(data, "dtype") and hasattr(data, "shape"))


def as_source(data: Any, cut: Cut, inputs: Sequence[Any] | None) -> Source:
    """Return the source of batches that data of any kind are.

    Raises
    ------
    TypeError
        If dtypes or dimensions differ from those of the inputs, or the data can be read only once.
    ValueError
        If there are no rows, or different numbers of them.
    """
    fields = Fields(inputs)
    if _holds_arrays(data):
        arrays = [array if _is_dask(array) else np.asarray(array) for array in fields.ordered(data)]
        if not arrays:
            raise ValueError("the data have no arrays")
        fields.check(arrays)
        return (DaskArrays if any(map(_is_dask, arrays)) else Arrays)(arrays, cut)
    if callable(data):
        return Iterables(data, fields)
    if not isinstance(data, Iterable):
        raise TypeError(f"data are arrays, a function of the epoch, or an iterable of batches; got {data!r}")
    if iter(data) is data:
        raise TypeError("a generator gives its batches only once; give a function of the epoch that returns one")
    return Iterables(lambda epoch: data, fields)
