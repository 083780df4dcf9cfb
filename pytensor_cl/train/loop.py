"""The loop of a training: batches, results, callbacks, checkpoints, signals."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.train.checkpoint import CheckpointFile, callback_names
from pytensor_cl.train.data import Cut, Source, as_source
from pytensor_cl.train.files import check_folder, save_keys
from pytensor_cl.train.history import History
from pytensor_cl.train.prefetch import Prefetch
from pytensor_cl.train.progress import READ_SECONDS, Progress
from pytensor_cl.train.run import Means, Run, named_results, read, rows_of
from pytensor_cl.train.signals import Interrupts

ON_NAN = ("warn", "raise", "ignore")
_HOOKS = ("on_begin", "on_epoch_begin", "on_step_end", "on_epoch_end", "on_end")


class _Validation(NamedTuple):
    """Data for the end of each epoch, and what computes the results."""

    source: Source
    evaluate: Callable[..., Any]

    def results(self, run: Run, check: Callable[[], None]) -> dict[str, float]:
        """Return the means over all batches."""
        found, means = [], Means()
        for batch in self.source.batches(run.epoch):
            found.append((named_results(self.evaluate(*batch)), rows_of(batch)))
            check()
        for results, rows in found:
            means.add(*read(results, rows))
        return {f"val_{name}": value for name, value in means.values().items()}


class _Loop:
    """Runs the epochs of a training."""

    def __init__(
        self,
        run: Run,
        source: Source,
        callbacks: Sequence[Any],
        validation: _Validation | None,
        checkpoint: CheckpointFile | None,
        every: int | None,
        prefetch: int,
        progress: Progress,
    ) -> None:
        self._run, self._source, self._validation = run, source, validation
        self._checkpoint, self._every, self._prefetch, self._progress = checkpoint, every, prefetch, progress
        self._hooks = {
            name: [getattr(callback, name) for callback in callbacks if hasattr(callback, name)] for name in _HOOKS
        }
        self._interrupts = Interrupts()
        self._last_read = perf_counter()

    def _call(self, name: str) -> None:
        for hook in self._hooks[name]:
            hook(self._run)

    def _is_finished(self) -> bool:
        return self._run.is_stopped or self._run.epoch >= self._run.epochs

    def train(self) -> None:
        """Run all epochs that are left."""
        self._call("on_begin")
        try:
            if not self._is_finished():
                with self._interrupts, self._saved_at_the_end():
                    while not self._is_finished():
                        self._epoch()
                self._interrupts.raise_if_any()
        finally:
            self._progress.close()
            self._call("on_end")

    @contextmanager
    def _saved_at_the_end(self) -> Iterator[None]:
        """Write a checkpoint at the end, or before an exception goes on.

        There is none if the state may be broken: an exception of the step, a NaN, a second signal.
        """
        try:
            yield
        except BaseException as error:
            if self._checkpoint is not None and self._run.is_whole and not self._interrupts.is_forced:
                try:
                    self._checkpoint.write(self._run)
                except Exception as other:
                    error.add_note(f"No checkpoint could be written: {other!r}")
            raise
        if self._checkpoint is not None:
            self._checkpoint.write(self._run)

    def _epoch(self) -> None:
        run = self._run
        self._call("on_epoch_begin")
        self._progress.begin(run, self._source.count)
        batches = self._source.batches(run.epoch, run.batch)
        check, is_quick = self._interrupts.raise_if_any, self._source.is_quick
        with Prefetch(batches, self._prefetch, check, is_quick) as ready:
            for batch in ready:
                self._step(batch)
                if run.is_stopped:
                    return
        if not run.batch:
            raise ValueError(f"the data gave no batch in epoch {run.epoch}")
        run.read()
        speed = self._progress.speed(run)
        more = self._validation.results(run, self._interrupts.raise_if_any) if self._validation else {}
        run.end_epoch(more)
        self._progress.end(run, speed)
        try:
            self._call("on_epoch_end")
        finally:
            run.next_epoch()
        if self._checkpoint is not None and self._every is None and not self._is_finished():
            self._checkpoint.write(run)
        self._interrupts.raise_if_any()

    def _step(self, batch: tuple[Any, ...]) -> None:
        run = self._run
        run.do_step(batch)
        now = perf_counter()
        if now - self._last_read >= READ_SECONDS:
            self._last_read = now
            run.read()
            self._progress.update(run)
        self._call("on_step_end")
        if self._checkpoint is not None and self._every is not None and run.step_count % self._every == 0:
            self._checkpoint.write(run)
        self._interrupts.raise_if_any()


def _whole(name: str, value: Any, least: int) -> int:
    """Return a whole number that is large enough."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be a whole number; got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}; got {value}")
    return int(value)


def _validation(data: Any, evaluate: Any, step: Any, cut: Cut) -> _Validation | None:
    if data is None:
        if evaluate is not None:
            raise ValueError("evaluate needs validation=, the data that it is called with")
        return None
    cut = cut._replace(shuffle=False, drop_last=False)
    if evaluate is not None:
        return _Validation(as_source(data, cut, getattr(evaluate, "inputs", None)), evaluate)
    if not hasattr(step, "evaluate"):
        raise ValueError("validation= needs evaluate=, a function of a batch: the step has none of its own")
    return _Validation(as_source(data, cut, step.inputs), step.evaluate)


def fit(
    step: Callable[..., Any],
    data: Any,
    epochs: int = 1,
    callbacks: Sequence[Any] = (),
    *,
    batch_size: int = 64,
    shuffle: bool = True,
    drop_last: bool = False,
    seed: int = 0,
    validation: Any = None,
    evaluate: Callable[..., Any] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int | None = None,
    state: Any = None,
    prefetch: int = 2,
    progress: str = "auto",
    log: Callable[[str], Any] | None = None,
    on_nan: str = "warn",
) -> History:
    """Call a step for each batch of each epoch.

    With a `checkpoint` the same call goes on where an earlier one stopped, and ends with the same bits as a run that
    was never stopped, on the same device and versions. A training that had ended returns at once. In the main thread
    SIGINT and SIGTERM let the running step end and write the checkpoint; then KeyboardInterrupt or SystemExit(143) is
    raised. A second signal interrupts at once.

    Parameters
    ----------
    step
        The result of `step`, or any callable that takes the arrays of a batch and returns the loss or a dict of
        results; see `TrainingStep`.
    data
        An array, or a tuple or dict (by the names of the inputs) of arrays with rows along axis 0, of NumPy or Dask;
        a function of the epoch (counted from 0) that returns an iterable of batches; or an iterable of batches that
        can be iterated again. dtypes must be those of the inputs.
    epochs
        The number of epochs.
    callbacks
        Objects with any of ``on_begin``, ``on_epoch_begin``, ``on_step_end``, ``on_epoch_end`` and ``on_end``, which
        get the `Run`; with ``state_dict`` and ``load_state_dict`` if they have something to remember.
    batch_size
        The number of rows of a batch. This and the next three are for arrays; other data have batches of their own.
    shuffle
        Whether rows are taken in random order, another one in each epoch. Of Dask arrays, chunks and the rows inside
        of each chunk are shuffled.
    drop_last
        Leave out a last batch that has fewer rows.
    seed
        The order in an epoch depends on this number and the epoch's.
    validation
        Data for the end of each epoch, of the kinds of `data`; results are ``val_loss`` and so on.
    evaluate
        A function of a batch of `validation`, which returns the loss or a dict. None: the step's own prediction graph.
    checkpoint
        A file.
    checkpoint_every
        The number of steps between two checkpoints. None: one at the end of each epoch. One is written at the end of
        the training in both cases.
    state
        Shared variables, optimizers, or lists or dicts of them that belong into checkpoints, for a step that has no
        ``variables``. Those of a compiled function of PyTensor are found.
    prefetch
        The number of batches that a thread makes ahead. 0: no thread. Parts of arrays in memory are made without one
        as long as that is faster.
    progress
        "auto": a bar if stderr is a terminal, else one line for each epoch; "always": a bar; "never": nothing.
    log
        A function that takes the line of each epoch.
    on_nan
        "warn" once, "raise" FloatingPointError without a new checkpoint, or "ignore", if a result is NaN.

    Returns
    -------
    History
        The results of each epoch: means over all rows, weighted.

    Raises
    ------
    TypeError
        If dtypes of the data differ from those of the inputs, or the data can be read only once.
    ValueError
        If there are no rows, or the checkpoint is that of other data, or of another batch size, seed or order.

    Examples
    --------
    >>> history = train.fit(step, (images, labels), epochs=10, validation=(more, their_labels), checkpoint="net.st")
    >>> history["val_accuracy"][-1]
    """
    if not callable(step):
        raise TypeError(f"step must be callable with the arrays of a batch; got {step!r}")
    if on_nan not in ON_NAN:
        raise ValueError(f"on_nan is {', '.join(ON_NAN)}; got {on_nan!r}")
    every = None if checkpoint_every is None else _whole("checkpoint_every", checkpoint_every, 1)
    cut = Cut(_whole("batch_size", batch_size, 1), bool(shuffle), bool(drop_last), _whole("seed", seed, 0))
    source = as_source(data, cut, getattr(step, "inputs", None))
    run = Run(step, _whole("epochs", epochs, 0), state, on_nan)
    named = callback_names(callbacks)
    file = None
    if checkpoint is not None:
        check_folder(checkpoint)
        if not save_keys(run.variables):
            raise ValueError("a checkpoint of this step needs state=, the shared variables that it changes")
        file = CheckpointFile(checkpoint, {**source.description, **getattr(step, "settings", {})}, named)
    elif every is not None:
        raise ValueError("checkpoint_every needs checkpoint=, a file")
    check = _validation(validation, evaluate, step, cut)
    bar = Progress(progress, log)
    if file is not None:
        file.resume(run)
    _Loop(run, source, list(named.values()), check, file, every, _whole("prefetch", prefetch, 0), bar).train()
    return run.history
