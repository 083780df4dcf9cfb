"""Trees of the No-U-Turn sampler on a device: the state of many chains, and the kernel that adds a leaf to each."""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.routines.base.ndrange import WorkGroupLimits, item_range, power_above
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.program import Kernel

MOST_ITEMS = 128  # work-items of a chain, schedule simt
ITEM_CHAINS = 4  # chains that are worth a work-item, schedule cpu
LANES = 8  # elements of a vector, schedule cpu

STATISTICS = (
    "acceptance_rate",
    "diverging",
    "energy",
    "energy_error",
    "lp",
    "max_energy_error",
    "n_steps",
    "reached_max_treedepth",
    "step_size",
    "tree_depth",
)
"""Names of the statistics of a draw, in the order in which they are stored. They are PyMC's."""

_SLOTS = 12  # vectors of a chain, and two for each doubling
_ADVANCE, _BEGIN, _PLACE = (np.int32(task) for task in range(3))
_WARP = 32


def _slots(max_depth: int) -> int:
    """Return the number of vectors of a chain."""
    return _SLOTS + 2 * max_depth


def state_bytes(chains: int, size: int, max_depth: int, itemsize: int) -> int:
    """Return the bytes of the largest array of the state."""
    return chains * _slots(max_depth) * size * itemsize


class TreeState(NamedTuple):
    """State of the chains on the device; later leaves depend on it, the step size, the mass matrix and the density."""

    vectors: GpuArray  # shape (chains, slots, size)
    numbers: GpuArray  # a struct of each chain, as bytes
    start_position: GpuArray  # position of the last draw; shape (chains, size)
    start_gradient: GpuArray
    start_density: GpuArray
    n_draws: GpuArray  # int32


class DeviceTrees:
    """Trees of the No-U-Turn sampler of many chains.

    Parameters
    ----------
    context
        The context of the arrays and the kernel.
    chains, size, max_depth
        Numbers of chains and of parameters, and most doublings of a tree.
    dtype
        Dtype of the positions and gradients of the model's function.
    key
        Two numbers of 32 bits, from which all random numbers follow.
    is_periodic
        Array of shape (size,) that says which parameters are angles.
    most_error
        Energy error above which a tree diverges.
    real
        Dtype of everything else: ``"float64"`` or ``"float32"``; None takes float64 if the device has it.
    schedule
        ``"cpu"`` or ``"simt"``; None takes what suits the device.
    """

    def __init__(  # noqa: PLR0913 - what a run is made of
        self,
        context: Context,
        chains: int,
        size: int,
        max_depth: int,
        dtype: str,
        key: np.ndarray,
        *,
        is_periodic: np.ndarray,
        most_error: float,
        real: str | None = None,
        schedule: str | None = None,
    ) -> None:
        self.context = context
        self.chains, self.size, self.max_depth = chains, size, max_depth
        self.real = np.dtype(real or ("float64" if context.info.has_fp64 else "float32"))
        self._dtype, self._most_error = dtype, float(most_error)
        self._key = np.ascontiguousarray(key, "uint32").tobytes()
        self.schedule = context.info.schedule if schedule is None else schedule
        self._limits = WorkGroupLimits(context)
        slots = _slots(max_depth)

        def zeros(*shape: int, dtype: Any = self.real) -> GpuArray:
            return context.from_host(np.zeros(shape, dtype))

        self.state = TreeState(
            context.empty((chains, slots, size), self.real),  # a tree writes what it reads, and this may be gigabytes
            zeros(chains, 10 * self.real.itemsize + 16, dtype="uint8"),
            zeros(chains, size),
            zeros(chains, size),
            zeros(chains),
            zeros(chains, dtype="int32"),
        )
        self._is_periodic = context.from_host(np.ascontiguousarray(is_periodic, "uint8"))
        self._everyone = context.from_host(np.arange(chains, dtype="int32"))
        self.set_inverse_mass(np.ones(size))
        self.store(1, 0, False)
        self.select(None)

    @cached_property
    def _kernel(self) -> tuple[Kernel, int]:
        """The kernel, and the work-items of a row."""

        def make() -> tuple[Kernel, int]:
            group = self._group
            kernel = self._limits.kernel(self._source(group), None, group)
            return kernel, group

        return self._limits.with_fitting_groups(make, lambda: None)

    @property
    def _group(self) -> int:
        if self.schedule == "cpu":
            return 1
        return self._limits.size(min(max(power_above(self.size), _WARP), MOST_ITEMS), 3 * self.real.itemsize)

    def _source(self, group: int) -> KernelSource:
        shuffles = (render("common/warp_shuffle", dtype=str(self.real)),) if self.schedule == "simt" else ()
        return kernel_source(
            "nuts/trees",
            preambles=shuffles,
            schedule=self.schedule,
            real_dtype=str(self.real),
            dtype=self._dtype,
            group=group,
            most_error=self._most_error,
            parallel_lanes=LANES,
        )

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel."""
        return (self._source(self._group),)

    def set_inverse_mass(self, flat: np.ndarray) -> None:
        """Set the diagonal of the inverse mass matrix; `begin` must follow."""
        self._inverse_mass = self.context.from_host(np.asarray(flat, self.real))

    def set_start(self, position: np.ndarray, gradient: np.ndarray, log_density: np.ndarray) -> None:
        """Set the states that the next trees begin at, of shapes (chains, size) and (chains,); `begin` must follow."""
        arrays = {"start_position": position, "start_gradient": gradient, "start_density": log_density}
        self.state = self.state._replace(
            **{name: self.context.from_host(np.array(array, self.real)) for name, array in arrays.items()}
        )

    def store(self, ring: int, most: int, keeps_gradients: bool) -> None:
        """Give the next draws new memory: `ring` of each chain are there at once, and it is idle after `most`."""
        self.ring, self.most, self.keeps_gradients = ring, most, keeps_gradients
        width = self.size * (1 + keeps_gradients) + len(STATISTICS)
        self.records = self.context.empty((ring, self.chains, width), self.real)

    def select(self, chains: np.ndarray | None, rows: int = 0) -> None:
        """Let the next leaves be added to some chains' trees only; None selects all.

        `rows`: positions that are evaluated, at least as many as there are selected chains.
        """
        if chains is None:
            self._index, self._active = self._everyone, self.chains
        else:
            self._index, self._active = self.context.from_host(np.resize(chains, rows).astype("int32")), len(chains)
        self.evaluated = self.context.empty((len(self._index), self.size), self._dtype)

    def place(self) -> None:
        """Copy the next positions of the selected chains to `evaluated`."""
        self._launch(_PLACE, self.evaluated, self.evaluated[:, 0], 1.0, self.max_depth)

    def begin(self, step_size: float) -> None:
        """Begin a tree of each chain at its last draw, which is number 0 from now on."""
        self.select(None)
        self._launch(_BEGIN, self.evaluated, self.evaluated[:, 0], step_size, self.max_depth)

    def advance(self, gradient: GpuArray, log_density: GpuArray, step_size: float, max_depth: int) -> None:
        """Add a leaf to the tree of each selected chain that is not idle; `evaluated` then has the next positions.

        `gradient`, `log_density`: those at `evaluated`, of any strides; `step_size`: of trees that begin now.
        """
        self._launch(_ADVANCE, gradient, log_density, step_size, max_depth)

    def _launch(
        self, task: np.int32, gradient: GpuArray, log_density: GpuArray, step_size: float, max_depth: int
    ) -> None:
        kernel, group = self._kernel
        rows, state, integer = len(self._index), self.state, np.int32
        if self.schedule == "simt":
            sizes: Any = (rows * group,), (group,)
        else:
            sizes = item_range(self.context, rows, ITEM_CHAINS)
        kernel.launch(
            self.context.queue,
            *sizes,
            task,
            self._key,
            gradient.buffer,
            *map(np.int64, (gradient.layout.offset, *gradient.layout.strides)),
            log_density.buffer,
            *map(np.int64, (log_density.layout.offset, *log_density.layout.strides)),
            self.evaluated.buffer,
            self._index.buffer,
            *map(integer, (rows, self._active, self.chains, self.size, _slots(self.max_depth))),
            *(array.buffer for array in state),
            self.records.buffer,
            *map(integer, (self.ring, self.most, self.keeps_gradients)),
            self._inverse_mass.buffer,
            self._is_periodic.buffer,
            self.real.type(step_size),
            integer(max_depth),
        )
