"""The No-U-Turn sampler of many chains with trees on the device, which the host polls."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import get_mode

from pytensor_cl.linker.linker import OpenCLLinker
from pytensor_cl.pymc.hamiltonian import MAX_ENERGY_ERROR, compile_function
from pytensor_cl.pymc.nuts import TreeChains, deepest, rows_for
from pytensor_cl.routines.nuts import STATISTICS, DeviceTrees, TreeState, state_bytes
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.runtime.registry import default_context_name, get_context
from pytensor_cl.type import GpuArrayType

MOST_STEPS = 32
"""Steps between two polls of the device, at most."""
LEAST_STEPS = 3
"""The least number of steps between two polls, but for the last steps of trees: a poll takes as long as one or two."""
FIRST_POLL = 0.75
"""Share of the steps of the last block after which the host polls for the first time."""
POLLS = 8
"""Then it polls after another one of so many parts of the steps."""
RING_BYTES = 64 << 20
"""Bytes of the draws on the device, at most; the host has the others."""
MEMORY_SHARE = 4
"""The trees may take this part of the device's memory; else they are on the host."""


def check_trees(trees: str | None, sampler: str, mode: object) -> str | None:
    """Return the argument `trees` of `sample`, or raise a ValueError if it is not a place for this sampler and mode."""
    if trees is None:
        return None
    if trees not in ("device", "host"):
        raise ValueError(f"trees must be 'device' or 'host', not {trees!r}")
    if sampler != "nuts":
        raise ValueError(f"trees= is for sampler 'nuts', not {sampler!r}")
    if trees == "device" and not _has_device(mode):
        raise ValueError(f"trees='device' needs mode OPENCL, not {mode!r}")
    return trees


def _has_device(mode: object) -> bool:
    return isinstance(get_mode(mode).linker, OpenCLLinker)


def tree_place(trees: str | None, mode: object, chains: int, size: int, max_steps: int) -> str:
    """Return where the trees are: what is wanted, or the device if its memory is not the host's and has room."""
    if trees is not None or not _has_device(mode) or pytensor.config.opencl__placement == "host":
        return trees or "host"
    info = get_context().info
    return "device" if info.has_own_memory and _fits(info, chains, size, deepest(max_steps)) else "host"


def _fits(info: DeviceInfo, chains: int, size: int, max_depth: int) -> bool:
    needed = state_bytes(chains, size, max_depth, 8 if info.has_fp64 else 4)
    return needed <= min(info.max_allocation, info.global_memory // MEMORY_SHARE)


class DeviceTreeChains(TreeChains):
    """Chains whose trees are on the device, as are their positions and gradients.

    A step is a call of the function of the gradient and a launch of the kernel; nothing is transferred, and the host
    does not wait. It polls whether the draws are there a few times in a block of the warm-up, and every 32 steps or
    more often later. Draws that all chains have are downloaded then. The numbers of steps between polls follow from
    numbers of steps and of draws alone, so they are the same in each run with the same seed.
    """

    place = "device"
    context: Context

    def _compile(self, mode: object) -> Any:
        name = default_context_name()
        self.context = get_context(name)
        flat = GpuArrayType(pytensor.config.floatX, (None, self.density.size), context_name=name)("position")
        outputs = [part.transfer(name) for part in self.density(pt.as_tensor_variable(flat))]
        function = compile_function([flat], outputs, {}, mode, "gradient")
        function.trust_input = True
        return function

    def _prepare(self, seed: np.random.SeedSequence) -> None:
        self._trees = DeviceTrees(
            self.context,
            self.chains,
            self.density.size,
            self.max_depth,
            pytensor.config.floatX,
            seed.generate_state(2),
            is_periodic=self.density.parameter_is_periodic,
            most_error=MAX_ENERGY_ERROR,
        )
        self.context.build(self._trees.sources())
        self._active: np.ndarray | None = None  # the chains that were selected; None selects all
        self._rows: list[np.ndarray] = []  # draws of the block that the host has, from `_first` on
        self._first = self._draws = 0
        self._steps, self._last_steps = 0, 0.0  # of this block; of a draw of the block before it

    def _evaluate(self) -> tuple[GpuArray, GpuArray]:
        """Return the log densities and gradients at the selected chains' leaves, on the device."""
        log_density, gradient = self.evaluate(self._trees.evaluated)
        return log_density, gradient

    def _gradient(self, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = self.evaluate(self.context.from_host(flat.astype(pytensor.config.floatX)))
        log_density, gradient = (np.asarray(part).astype("float64") for part in found)
        return log_density, gradient

    def _set_start(self, position: np.ndarray, gradient: np.ndarray, log_density: np.ndarray) -> None:
        self._trees.set_start(position, gradient, log_density)

    def _start(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        state = self._trees.state
        position, gradient, density = (
            np.asarray(part).astype("float64")
            for part in (state.start_position, state.start_gradient, state.start_density)
        )
        return position, gradient, density

    def set_inverse_mass(self, flat: np.ndarray) -> None:
        """Set the diagonal of the inverse mass matrix; `begin` must follow."""
        super().set_inverse_mass(flat)
        self._trees.set_inverse_mass(flat)

    def begin(self, step_size: float, draws: int, keep_gradients: bool) -> None:
        """Begin trees at the last draws. No chain may have a tree that is not finished."""
        if self._draws:
            self._last_steps = self._steps / self._draws
        trees = self._trees
        width = self.density.size * (1 + keep_gradients) + len(STATISTICS)
        ring = min(draws, max(1, RING_BYTES // (self.chains * width * trees.real.itemsize)))
        trees.store(ring, ring, keep_gradients)
        trees.begin(step_size)
        self._rows, self._first, self._draws, self._steps, self._active = [], 0, draws, 0, None

    def advance(self, step_size: float, max_depth: int) -> None:
        """Add a leaf to the tree of each chain that is not idle."""
        log_density, gradient = self._evaluate()
        self._trees.advance(gradient, log_density, step_size, max_depth)
        self._steps += 1

    def _steps_to_poll(self, max_depth: int) -> int:
        """Return the number of steps until the host polls: the first time after most of the steps of the last block."""
        first = int(FIRST_POLL * self._last_steps * self._draws)
        steps = max(first - self._steps, self._steps // POLLS, LEAST_STEPS)
        # No chain needs more.
        most = self._draws * ((1 << max_depth) - 1) - self._steps
        return max(min(steps, MOST_STEPS, most), 1)

    def advance_to(self, index: int, step_size: float, max_depth: int) -> None:
        """Add leaves until each chain has made a draw of the block."""
        while self._first + len(self._rows) <= index:
            for _ in range(self._steps_to_poll(max_depth)):
                self.advance(step_size, max_depth)
            self._poll()

    def _poll(self) -> None:
        """Download the draws that all chains have made, and select the chains that are not idle if they are few."""
        trees, done = self._trees, self._first + len(self._rows)
        made: np.ndarray = np.asarray(trees.state.n_draws)
        complete = int(made.min())
        while done < complete:
            at = done % trees.ring
            stop = min(at + complete - done, trees.ring)
            self._rows.extend(np.asarray(trees.records[at:stop]))
            done += stop - at
        trees.most = min(complete + trees.ring, self._draws)
        active = np.flatnonzero(made < self._draws)
        if active.size and rows_for(active.size, self.chains) < trees.evaluated.shape[0]:
            self._select(active)

    def _select(self, active: np.ndarray | None) -> None:
        self._active = active
        self._trees.select(active, 0 if active is None else rows_for(active.size, self.chains))
        self._trees.place()

    def block(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return all draws of the block, the gradients there, and the statistics of shape (names, draws, chains)."""
        rows, size = np.stack(self._rows).astype("float64"), self.density.size
        return rows[..., :size], rows[..., size : -len(STATISTICS)], rows[..., -len(STATISTICS) :].transpose(2, 0, 1)

    def _stored(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        row = self._rows[index - self._first]
        if not self._trees.keeps_gradients:  # a draw of the run: nothing else will ask for it
            del self._rows[: index - self._first]
            self._first = index
        return row[:, : self.density.size], row[:, -len(STATISTICS) :].T

    def state_dict(self) -> dict[str, Any]:
        """Return the state between two iterations."""
        trees = self._trees
        return {
            "trees": [np.asarray(part) for part in trees.state],
            "records": np.asarray(trees.records),
            "ring": [trees.ring, trees.most, trees.keeps_gradients],
            "active": self._active,
            "rows": [row.copy() for row in self._rows],
            "counts": [self._first, self._draws, self._steps, self._last_steps],
            "inverse_mass": self.inverse_mass.copy(),
            "latest": self._latest.copy(),
            "rng": self._rng.bit_generator.state,
            "parts": self.parts.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        trees, upload = self._trees, self.context.from_host
        real = state["trees"][0].dtype
        if real != trees.real:
            raise ValueError(f"the checkpoint has trees of {real}, and this device computes them in {trees.real}")
        trees.state = TreeState(*(upload(np.array(part)) for part in state["trees"]))
        trees.store(*state["ring"])
        trees.records = upload(np.array(state["records"]))
        self._rows = list(state["rows"])
        self._first, self._draws, self._steps, self._last_steps = state["counts"]
        self.set_inverse_mass(state["inverse_mass"])
        self._latest = state["latest"]
        self._rng.bit_generator.state = state["rng"]
        self.parts.load_state_dict(state["parts"])
        self._select(state["active"])
