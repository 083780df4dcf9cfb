"""Base class of all routines: compute the layout, allocate, launch."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.routines.base.ndrange import WorkGroupLimits
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.error_flag import DeviceErrorFlag, ErrorRecord
from pytensor_cl.runtime.layout import Layout

SCALAR = Layout((), ())
"""The layout that `Routine.layout` gets for an input that is a NumPy scalar."""

SCHEDULES = ("cpu", "simt")


class ValueArgument(NamedTuple):
    """Conversion and place of a kernel argument that is a number of the host.

    Routines that have such inputs list them, by number, in an attribute ``value_arguments``, and their method
    ``value_kernels`` returns the kernels that take them, all in the same places.

    Attributes
    ----------
    convert
        The NumPy scalar type of the kernel's argument.
    place
        Number of the argument.
    """

    convert: Any
    place: int


def value_arguments(scalars: Iterable[tuple[int, Any]]) -> dict[int, ValueArgument]:
    """Return the arguments of kernels that begin with numbers of the host; `scalars` are input numbers and Types."""
    return {k: ValueArgument(convert, place) for place, (k, convert) in enumerate(scalars)}


class Plans[Plan]:
    """A bounded memory of what was worked out for the layouts of earlier launches.

    Parameters
    ----------
    limit
        The oldest plan is dropped when there would be more than this.
    """

    def __init__(self, limit: int = 64) -> None:
        self._limit = limit
        self._plans: dict[Hashable, Plan] = {}
        self.get = self._plans.get
        self.values = self._plans.values

    def __len__(self) -> int:
        return len(self._plans)

    def store(self, key: Hashable, plan: Plan) -> Plan:
        """Store `plan` and return it."""
        if len(self._plans) >= self._limit:
            del self._plans[next(iter(self._plans))]
        self._plans[key] = plan
        return plan

    def lookup(self, key: Hashable, make: Callable[[], Plan]) -> Plan:
        """Return the plan of `key`; make it if there is none."""
        plan = self.get(key)
        return self.store(key, make()) if plan is None else plan


class KernelVariants[Key: Hashable, Built](dict[Key, Built]):
    """The kernels of a routine by variant: ``variants[key]`` builds what is not there yet.

    Parameters
    ----------
    build
        Returns the kernel, or the kernels, of a variant.
    """

    def __init__(self, build: Callable[[Key], Built]) -> None:
        super().__init__()
        self._build = build

    def __missing__(self, key: Key) -> Built:
        """Build a variant."""
        built = self[key] = self._build(key)
        return built


class DeviceTables:
    """Arrays that were worked out on the host, of which the latest used are kept on the device.

    Parameters
    ----------
    most_bytes
        Most bytes that they take together; the one used last is kept whatever its size.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._arrays: dict[Hashable, tuple[GpuArray, ...]] = {}
        self._bytes = 0
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._arrays)

    def _remove(self, key: Hashable) -> tuple[GpuArray, ...] | None:
        arrays = self._arrays.pop(key, None)
        self._bytes -= sum(array.size * array.dtype.itemsize for array in arrays or ())
        return arrays

    def _store(self, key: Hashable, arrays: tuple[GpuArray, ...]) -> None:
        self._remove(key)
        self._arrays[key] = arrays  # the latest comes last
        self._bytes += sum(array.size * array.dtype.itemsize for array in arrays)
        while self._bytes > self._most_bytes and len(self._arrays) > 1:
            self._remove(next(iter(self._arrays)))

    def lookup(self, key: Hashable, make: Callable[[], tuple[GpuArray, ...]]) -> tuple[GpuArray, ...]:
        """Return the arrays of `key`; make them if there are none."""
        with self._lock:
            found = self._arrays.get(key)
        if found is None:
            found = make()
        with self._lock:
            self._store(key, found)
        return found


def struct_argument(context: Context, packed: bytes, in_buffer: bool) -> Any:
    """Return a kernel argument for a struct: the bytes, or a buffer that holds them.

    A kernel's arguments may have ``DeviceInfo.max_parameter_size`` bytes together. A struct with members for each
    dimension may have more: such kernels read it from a buffer.
    """
    return context.from_host(np.frombuffer(packed, "uint8")).buffer if in_buffer else packed


def layout_of(value: "GpuArray | np.generic") -> Layout:
    """Return the layout of an input; a NumPy scalar has no dimensions."""
    return value.layout if isinstance(value, GpuArray) else SCALAR


class Routine:
    """One device operation with fixed dtypes and parameters, for arrays of any shape.

    Parameters
    ----------
    context
        The context of the arrays and kernels.
    schedule
        ``"cpu"`` or ``"simt"``; None takes what suits the device.

    Attributes
    ----------
    output_dtypes
        Set by the subclass: the dtype of each output.
    limits
        Work-items of a work-group, for kernels that have it compiled in.
    """

    output_dtypes: tuple[str, ...] = ()

    def __init__(self, context: Context, schedule: str | None = None) -> None:
        self.context = context
        self.limits = WorkGroupLimits(context)
        self.schedule = context.info.schedule if schedule is None else schedule
        if self.schedule not in SCHEDULES:
            raise ValueError(f"unknown schedule {schedule!r}; choose from {SCHEDULES}")

    def sources(self) -> tuple[KernelSource, ...]:
        """Return everything that an ordinary launch needs; rare variants may be built on demand."""
        raise NotImplementedError

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layouts of the outputs, touching no data.

        Raises
        ------
        ValueError
            The inputs do not fit together.
        """
        raise NotImplementedError

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue the kernels that write `outputs`; wait for nothing."""
        raise NotImplementedError

    def __call__(self, *inputs: GpuArray | np.generic) -> tuple[GpuArray, ...]:
        """Compute new, C-contiguous outputs."""
        layouts = self.layout(*map(layout_of, inputs))
        empty = self.context.empty
        outputs = tuple(empty(layout.shape, dtype) for layout, dtype in zip(layouts, self.output_dtypes, strict=True))
        self.launch(outputs, inputs)
        return outputs


class Checked(Routine):
    """A routine whose kernels check their data. The host reads the error flag later.

    Attributes
    ----------
    is_checked
        Whether the kernels of this routine can find anything.
    """

    is_checked: bool = True

    def __init__(self, context: Context, schedule: str | None = None) -> None:
        super().__init__(context, schedule)
        self._error_flag: DeviceErrorFlag | None = None
        self.number = np.int32(1)

    @property
    def error_flag(self) -> DeviceErrorFlag:
        """The error flag that the kernels write."""
        if self._error_flag is None:
            self._error_flag = DeviceErrorFlag(self.context)
        return self._error_flag

    def set_error_flag(self, error_flag: DeviceErrorFlag, number: int) -> None:
        """Make the kernels use an error flag that several routines share.

        Parameters
        ----------
        error_flag
            An error flag of the routine's context.
        number
            Number of this routine in the error record; from 1.
        """
        self._error_flag = error_flag
        self.number = np.int32(number)

    def error(self, finding: ErrorRecord) -> Exception:
        """Return the exception that a finding means."""
        raise NotImplementedError

    def check(self) -> None:
        """Wait for the device and raise the error of this routine's kernels, if there is one.

        For routines whose error flag is their own.
        """
        finding = self.error_flag.read() if self.is_checked else None
        if finding is not None:
            raise self.error(finding)
