"""Draws from a distribution: NumPy's numbers for NumPy's Generator."""

import re
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.codegen.dtypes import ctype
from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.limits import SMALL_GROUP_ITEMS
from pytensor_cl.routines.base.routine import SCHEDULES
from pytensor_cl.routines.elemwise.routine import Copy
from pytensor_cl.routines.random.distributions import ARRAYS, DISTRIBUTIONS, METHODS, VARIATES, Distribution
from pytensor_cl.routines.random.generator import ARGUMENTS, RawSequence, is_known, sequence_of
from pytensor_cl.routines.random.limits import CHUNKS_PER_UNIT, DRAW_LANES, FILL_LANES, MIN_UNIFORM_CHUNK
from pytensor_cl.routines.random.stream import NotNumpy, Stream
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.program import Kernel

FUNCTIONS = {"exp": "exp", "expm1": "expm1", "log": "log", "log1p": "log1p", "pow": "pow", "tan": "trigonometric"}
"""Templates in ``kernels/math`` of the functions that exist for vectors."""


class HostDraw(NamedTuple):
    """NumPy's side of a draw.

    `draw`: called with a Generator, the parameters and the size (None or a tuple): draws on the host and changes the
    Generator; `copy`: returns a Generator with the same state; None: the Generator itself is changed; `min_elements`:
    fewer draws than that are made on the host.
    """

    draw: Callable[..., Any]
    copy: Callable[[np.random.Generator], np.random.Generator] | None
    min_elements: int = 0


class Request(NamedTuple):
    """The arguments of a call: a Generator, which may be changed in place, a shape, and the parameters."""

    generator: np.random.Generator
    size: tuple[int, ...] | None
    shape: tuple[int, ...]
    parameters: tuple[Any, ...]


class Draw:
    """Draw from a distribution, the same numbers as NumPy does, and leave the Generator as NumPy does.

    Inputs are a Generator, the size (an array of integers or None), and the parameters: those that change how many
    numbers of the generator a draw takes are the host's, others are arrays or NumPy scalars. What has no kernel, such
    as a generator that cannot jump ahead, or parameters that NumPy refuses, is left to NumPy on the host.

    `host`: NumPy's side; `of_arrays`: take the distribution of `ARRAYS`; `on_host`: calls that were left to NumPy.
    """

    def __init__(
        self,
        context: Context,
        name: str,
        dtype: str,
        host: HostDraw,
        schedule: str | None = None,
        of_arrays: bool = False,
    ) -> None:
        self.context, self.dtype, self.host = context, np.dtype(dtype), host
        self.schedule = schedule or context.info.schedule
        if self.schedule not in SCHEDULES:
            raise ValueError(f"unknown schedule {schedule!r}; choose from {SCHEDULES}")
        self.distribution: Distribution = (ARRAYS if of_arrays else DISTRIBUTIONS | METHODS)[name]
        self._lanes = DRAW_LANES if self.schedule == "cpu" and not self.distribution.function else 1
        self.on_host = 0
        self._name = name
        self._streams: dict[str, Stream] = {}
        self._kernels: dict[Any, Kernel] = {}
        self._casts: dict[tuple[str, int], Copy] = {}

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernels of NumPy's default generator and parameters that are numbers."""
        varying = (False,) * len(self.distribution.free)
        if not self.distribution.variate:
            return (self._uniform_source("pcg64", varying),)
        kind = VARIATES[self._variate(())].kind
        return (self._place_source(kind, varying),)

    def _variate(self, values: Sequence[float]) -> str:
        name = self.distribution.variate
        if name == "ratio_gamma":
            return "gamma"
        if name == "integers":
            return "integers32" if not values or int(values[1]) - int(values[0]) <= 1 << 32 else "integers64"
        return name

    def _finished(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return arguments of the templates, and the functions that the expression calls."""
        finish, preambles = self._of_lanes(self.distribution.finish, self._lanes)
        if self.distribution.function:
            preambles = (render(self.distribution.function), *preambles)
        if self.dtype == "bool":
            finish = f"(({finish}) != 0) & 1"
        arguments = {"result": ctype(self.dtype), "finish": finish, "proper": self.distribution.proper}
        return {**arguments, "lanes": self._lanes, "schedule": self.schedule}, preambles

    @staticmethod
    def _of_lanes(expression: str, lanes: int) -> tuple[str, tuple[str, ...]]:
        """Return a C expression with functions of vectors, and the text of these functions."""
        preambles = []
        for name, family in FUNCTIONS.items() if lanes > 1 else ():
            expression, count = re.subn(rf"\b{name}\(", f"{name}_double{lanes}(", expression)
            if count:
                preambles.append(render(f"math/{family}", dtype="float64"))
        return expression, tuple(dict.fromkeys(preambles))

    def _uniform_source(self, generator: str, varying: tuple[bool, ...]) -> KernelSource:
        arguments, preambles = self._finished()
        return kernel_source(
            "random/uniform",
            preambles=(
                render("random/generator", generator=generator, lanes=FILL_LANES[self.schedule]),
                *preambles,
            ),
            generator=generator,
            state=ARGUMENTS[generator],
            varying=varying,
            search=self._name == "CategoricalRV",
            **arguments,
        )

    def _place_source(self, kind: str, varying: tuple[bool, ...]) -> KernelSource:
        arguments, preambles = self._finished()
        return kernel_source("random/place", preambles=preambles, kind=kind, varying=varying, **arguments)

    def __call__(self, generator: np.random.Generator, size: Any, *parameters: Any) -> tuple[Any, GpuArray]:
        """Return the Generator after the draws, and the draws.

        Raises `ValueError`: NumPy refuses the parameters or the size.
        """
        generator = generator if self.host.copy is None else self.host.copy(generator)
        size = None if size is None else tuple(map(int, size))
        drawn = None
        if is_known(generator):
            shape = self._shape(size, parameters)
            if shape is not None and prod(shape) >= max(self.host.min_elements, 1):
                drawn = self._drawn(Request(generator, size, shape, parameters))
        if drawn is None:
            drawn = self._by_host(generator, size, parameters)
        return generator, drawn

    def _by_host(self, generator: np.random.Generator, size: tuple[int, ...] | None, parameters: Any) -> GpuArray:
        self.on_host += 1
        values = [self.context.download(p) if isinstance(p, GpuArray) else p for p in parameters]
        drawn = self.host.draw(generator, *map(np.asarray, values), size)
        return self.context.from_host(np.asarray(drawn, dtype=self.dtype))

    def _shape(self, size: tuple[int, ...] | None, parameters: Sequence[Any]) -> tuple[int, ...] | None:
        """Return the shape of the result; None if the parameters do not fit."""
        shapes = [tuple(np.shape(p)) if not isinstance(p, GpuArray) else p.shape for p in parameters]
        if self._name == "CategoricalRV":
            shapes = [shapes[0][:-1]]
        try:
            common = np.broadcast_shapes(*shapes)
            if size is None:
                return common
            return size if np.broadcast_shapes(size, common) == size else None
        except ValueError:
            return None

    def _drawn(self, request: Request) -> GpuArray | None:
        """Return the draws; None where they are NumPy's to make."""
        distribution = self.distribution
        if self._name == "CategoricalRV":
            return self._categories(request)
        fixed = self._fixed(request.parameters)
        if None in fixed:
            return None
        free = [self._free(p, request.shape) for p in self._prepared(request.parameters)]
        varying = tuple(isinstance(p, GpuArray) for p in free)
        if not any(varying) and not distribution.is_proper(*free):
            return None
        bad = self.context.from_host(np.zeros(1, "int32")) if any(varying) else None
        arguments = [p.buffer if isinstance(p, GpuArray) else np.float64(p) for p in free]
        if bad is not None:
            arguments.append(bad.buffer)
        sequence = sequence_of(request.generator)
        if sequence is None:
            return None
        out = self.context.empty(request.shape, self.dtype)
        if distribution.variate:
            if not self._streamed(request.generator, sequence, fixed, (out, varying, arguments)):
                return None
        else:
            self._uniform(sequence, out, varying, arguments)
            sequence.go(out.size)
        if bad is not None and self.context.download(bad)[0]:
            sequence.restore()
            return None
        return out

    def _fixed(self, parameters: Sequence[Any]) -> list[Any]:
        """Return the parameters of the variate as numbers of Python, with None for those that differ between draws."""
        fixed = [np.asarray(parameters[k]) for k in self.distribution.fixed]
        if self.distribution.variate == "ratio_gamma":  # in the precision of the parameters, as PyTensor's Op does
            fixed = [np.asarray(np.divide(*fixed))] if np.broadcast(*fixed).size else [np.empty(0)]
        return [_number(p) for p in fixed]

    def _prepared(self, parameters: Sequence[Any]) -> list[Any]:
        """Return the free parameters; of the first one what the expression takes, in the parameter's own precision."""
        free = [parameters[k] for k in self.distribution.free]
        made = self.distribution.made
        if made is None:
            return free
        first = self.context.download(free[0]) if isinstance(free[0], GpuArray) else np.asarray(free[0])
        with np.errstate(all="ignore"):
            value = np.asarray(made(first))
        return [self.context.from_host(value) if isinstance(free[0], GpuArray) else value, *free[1:]]

    def _free(self, parameter: Any, shape: tuple[int, ...]) -> Any:
        """Return a parameter as a number, or as a contiguous array of float64 of the result's shape."""
        if not isinstance(parameter, GpuArray):
            return float(_number(parameter))
        key = str(parameter.dtype), len(shape)
        if parameter.shape == shape and parameter.dtype == "float64" and parameter.layout.is_contiguous:
            return parameter if not parameter.layout.offset else self._cast(key, parameter, shape)
        return self._cast(key, parameter, shape)

    def _cast(self, key: tuple[str, int], parameter: GpuArray, shape: tuple[int, ...]) -> GpuArray:
        if key not in self._casts:
            self._casts[key] = Copy(self.context, key[0], key[1], "float64", self.schedule)
        result = self.context.empty(shape, "float64")
        self._casts[key].launch((result,), (parameter.with_layout(parameter.layout.broadcast_to(shape)),))
        return result

    def _streamed(
        self,
        generator: np.random.Generator,
        sequence: RawSequence,
        fixed: Sequence[Any],
        into: tuple[GpuArray, tuple[bool, ...], Sequence[Any]],
    ) -> bool:
        """Draw a variate and put the draws in place; return whether they are NumPy's."""
        name = self._variate(fixed)
        if name == "gamma" and fixed[0] == 1:  # NumPy draws the same numbers, and there is a faster kernel for these
            name, fixed = "exponential", ()
        variate = VARIATES[name]
        if not variate.is_proper(*fixed):
            return False
        if name not in self._streams:
            self._streams[name] = Stream(self.context, variate, self.schedule)
        out, varying, arguments = into
        kernel = self._kernel(("place", variate.kind, varying), lambda: self._place_source(variate.kind, varying))
        group = 1 if self.schedule == "cpu" else SMALL_GROUP_ITEMS
        try:
            for batch in self._streams[name].draw(sequence, generator, out.size, fixed):
                kernel.launch(
                    self.context.queue,
                    (batch.chunks * group,),
                    (group,),
                    batch.array.buffer,
                    np.int64(batch.capacity),
                    np.int64(batch.chunks),
                    batch.where.buffer,
                    np.int64(batch.at),
                    np.int64(batch.size),
                    out.buffer,
                    *arguments,
                )
        except NotNumpy:
            return False
        return True

    def _kernel(self, key: Any, source: Callable[[], KernelSource]) -> Kernel:
        if key not in self._kernels:
            self._kernels[key] = self.context.kernel(source())
        return self._kernels[key]

    def _uniform(
        self, sequence: RawSequence, out: GpuArray, varying: tuple[bool, ...], arguments: Sequence[Any]
    ) -> None:
        """Draw uniform numbers, and what becomes of each."""
        units, cpu = self.context.info.compute_units, self.schedule == "cpu"
        chunk = max(
            ceil_div(out.size, CHUNKS_PER_UNIT * units * (1 if cpu else 8 * SMALL_GROUP_ITEMS)),
            MIN_UNIFORM_CHUNK if cpu else 64,
        )
        group = 1 if cpu else SMALL_GROUP_ITEMS
        items = ceil_div(out.size, chunk * group) * group
        kernel = self._kernel(("uniform", sequence.name, varying), lambda: self._uniform_source(sequence.name, varying))
        kernel.launch(
            self.context.queue,
            (items,),
            (group,),
            *sequence.arguments,
            *((np.int64(chunk),) if cpu else sequence.stride(items)),
            np.int64(out.size),
            out.buffer,
            *arguments,
        )

    def _categories(self, request: Request) -> GpuArray | None:
        """Draw categories: the first whose sum of probabilities is not below a uniform number."""
        p = np.asarray(request.parameters[0])
        batch = p.shape[:-1]
        fits = zip(request.shape[::-1], batch[::-1], strict=False)
        if not p.shape[-1] or any(s == 1 and n != 1 for s, n in fits):
            return None
        sums = p.cumsum(axis=-1).astype("float64")
        rows = prod(batch)
        numbers = np.broadcast_to(np.arange(rows).reshape(batch), request.shape) if rows > 1 else np.zeros(1, "int64")
        sequence = sequence_of(request.generator)
        if sequence is None:
            return None
        out = self.context.empty(request.shape, self.dtype)
        place = np.int64(p.shape[-1]), np.int64(rows), self.context.from_host(numbers).buffer
        self._uniform(sequence, out, (), (self.context.from_host(sums).buffer, *place))
        sequence.go(out.size)
        return out


def _number(parameter: Any) -> Any:
    """Return a parameter that is the same for all draws as a number of Python; None if it is not."""
    array = np.asarray(parameter)
    if array.size == 1:
        return array.item()
    first = array.flat[0].item() if array.size else None
    return first if first is not None and (array == first).all() else None
