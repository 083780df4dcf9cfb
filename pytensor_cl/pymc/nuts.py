"""The No-U-Turn sampler of many chains: each has a tree of its own, and one call computes the next gradients of all."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt

from pytensor_cl.pymc.density import ModelDensity
from pytensor_cl.pymc.hamiltonian import compile_function
from pytensor_cl.pymc.lost import LostChainMonitor
from pytensor_cl.pymc.parts import Parts
from pytensor_cl.pymc.samplers import Iteration, StepAndMass, window_ends
from pytensor_cl.pymc.trees import advance, begin_trees, new_trees
from pytensor_cl.routines.nuts import STATISTICS

_EARLY_DEPTH = 4
"""Most doublings in the first third of the warm-up: trees are long while the step size and the scales are not right."""
_BLOCK = 4
"""Most draws of a block of the warm-up: longer ones have less idle chains, and fewer step sizes."""
_MOST_DEPTH = 30
"""Most doublings of a tree: the kernel counts leaves in 32 bits."""
_LEAST_ROWS = 16
"""Fewest positions that are evaluated in one call."""
_BOOLEAN = ("diverging", "reached_max_treedepth")
_INTEGER = ("n_steps", "tree_depth")


class TreeChains:
    """Chains whose trees are on the host, and the function that computes their gradients on the device."""

    place = "host"

    def __init__(
        self, density: ModelDensity, chains: int, seed: np.random.SeedSequence, mode: object, max_steps: int
    ) -> None:
        self.density = density
        self.chains = chains
        self.max_depth = deepest(max_steps)
        self.parts = Parts()
        self.inverse_mass = np.ones(density.size)
        self._rng = np.random.default_rng(seed)
        self._latest = np.zeros((chains, density.size))
        self.evaluate = self._compile(mode)
        self._prepare(seed)

    def _prepare(self, seed: np.random.SeedSequence) -> None:
        """Make the state, and compile what advances it."""
        chains, size = self.chains, self.density.size
        self.trees = new_trees(chains, size, self.max_depth)
        self._leaf_density, self._leaf_gradient = np.zeros(chains), np.zeros((chains, size))
        # Numba compiles now, and not in the warm-up.
        self.begin(1.0, 1, keep_gradients=True)
        self.advance(1.0, self.max_depth)

    def _compile(self, mode: object) -> Any:
        flat = pt.matrix("position", dtype=pytensor.config.floatX, shape=(None, self.density.size))
        return compile_function([flat], list(self.density(flat)), {}, mode, "gradient")

    def _gradient(self, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the log densities and gradients, as float64, C-contiguous: Numba compiles for each other order."""
        log_density, gradient = self.evaluate(flat.astype(pytensor.config.floatX))
        return np.ascontiguousarray(log_density, "float64"), np.ascontiguousarray(gradient, "float64")

    def _gradient_of(self, active: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the log densities and gradients at the leaves of some chains; other chains' values mean nothing."""
        rows = rows_for(len(active), self.chains)
        if rows == self.chains:
            return self._gradient(self.trees.position)
        index = np.resize(active, rows)
        self._leaf_density[index], self._leaf_gradient[index] = self._gradient(self.trees.position[index])
        return self._leaf_density, self._leaf_gradient

    def _set_start(self, position: np.ndarray, gradient: np.ndarray, log_density: np.ndarray) -> None:
        """Set the states that the next trees begin at."""
        trees = self.trees
        trees.start_position[:], trees.start_gradient[:], trees.start_density[:] = position, gradient, log_density

    def _start(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the positions, gradients and log densities that trees begin at."""
        return self.trees.start_position, self.trees.start_gradient, self.trees.start_density

    def set_positions(self, positions: Sequence[np.ndarray]) -> np.ndarray:
        """Move the chains, and return their log densities."""
        flat = np.concatenate([np.reshape(q, (self.chains, -1)) for q in positions], axis=1, dtype="float64")
        log_density, gradient = self._gradient(flat)
        self._set_start(flat, gradient, log_density)
        self._latest = flat
        return log_density

    def positions(self) -> list[np.ndarray]:
        """Return the draws of the last iteration."""
        return list(self.density.split(self._latest, self.chains))

    def flat_state(self, rows: Any = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions and gradients that trees of some chains begin at, of shape (chains, parameters)."""
        position, gradient, _ = self._start()
        return position[rows], gradient[rows]

    def set_inverse_mass(self, flat: np.ndarray) -> None:
        """Set the diagonal of the inverse mass matrix; `begin` must follow."""
        self.inverse_mass = np.ascontiguousarray(flat, "float64")

    def try_step(self, step_size: float) -> np.ndarray:
        """Return the acceptance probabilities of one step from the last draws."""
        mass, (position, slope, density) = self.inverse_mass, self._start()
        momentum = self._rng.standard_normal(position.shape) / np.sqrt(mass)
        before = 0.5 * np.sum(mass * momentum**2, axis=1) - density
        momentum += 0.5 * step_size * slope
        log_density, gradient = self._gradient(position + step_size * mass * momentum)
        momentum += 0.5 * step_size * gradient
        with np.errstate(over="ignore", invalid="ignore"):  # a step that is far too large
            error = 0.5 * np.sum(mass * momentum**2, axis=1) - log_density - before
        return np.exp(np.minimum(np.where(np.isnan(error), -np.inf, -error), 0))

    def begin(self, step_size: float, draws: int, keep_gradients: bool) -> None:
        """Begin trees at the last draws. No chain may have a tree that is not finished."""
        shape = (draws, self.chains, self.density.size)
        self.trees = self.trees._replace(
            draws=np.empty(shape),
            gradients=np.empty(shape if keep_gradients else (0, *shape[1:])),
            statistics=np.empty((len(STATISTICS), *shape[:2])),
            n_draws=np.zeros_like(self.trees.n_draws),
        )
        begin_trees(self.trees, self.inverse_mass, self._rng, step_size)

    def advance(self, step_size: float, max_depth: int) -> None:
        """Add a leaf to the tree of each chain that is not idle (`trees.advance`)."""
        trees = self.trees
        log_density, gradient = self._gradient_of(np.flatnonzero(trees.n_draws < len(trees.draws)))
        mass, step_size = self.inverse_mass, float(step_size)
        is_periodic = self.density.parameter_is_periodic
        advance(trees, gradient, log_density, mass, is_periodic, self._rng, step_size, max_depth)

    def advance_to(self, index: int, step_size: float, max_depth: int) -> None:
        """Add leaves until each chain has made a draw of the block."""
        while self.trees.n_draws.min() <= index:
            self.advance(step_size, max_depth)

    def block(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return all draws of the block, the gradients there, and the statistics of shape (names, draws, chains)."""
        return self.trees.draws, self.trees.gradients, self.trees.statistics

    def _stored(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a draw of all chains and its statistics, of shape (names, chains)."""
        return self.trees.draws[index], self.trees.statistics[:, index]

    def draw(self, index: int) -> dict[str, np.ndarray]:
        """Make a stored draw the one that `positions` returns, and return its statistics."""
        self._latest, statistics = self._stored(index)
        kinds = {**dict.fromkeys(_BOOLEAN, bool), **dict.fromkeys(_INTEGER, "int64")}
        floats = pytensor.config.floatX
        return {name: v.astype(kinds.get(name, floats)) for name, v in zip(STATISTICS, statistics, strict=True)}


def deepest(max_steps: int) -> int:
    """Return the most doublings of a tree of so many steps."""
    return min((max_steps + 1).bit_length() - 1, _MOST_DEPTH)


def rows_for(active: int, chains: int) -> int:
    """Return the number of positions that are evaluated: the number of chains divided by a power of two.

    Each of these numbers has kernels and a captured graph of its own.
    """
    rows = chains
    while rows // 2 >= max(active, _LEAST_ROWS):
        rows //= 2
    return rows


def block_ends(tune: int) -> list[int]:
    """Return the iterations at which blocks of the warm-up end: one in the first third, then up to `_BLOCK` each.

    The ends of the windows of the mass matrix are among them.
    """
    ends, last = [], 0
    for window in [*window_ends(tune), tune]:
        while last < window:
            last = min(last + (1 if last < tune // 3 else _BLOCK), window)
            ends.append(last)
    return ends


class Nuts:
    """The No-U-Turn sampler (Hoffman and Gelman 2014) with multinomial weights (Betancourt 2017).

    A chain whose tree is finished begins the next one at once, so that no chain waits for the longest tree of all.

    The warm-up is divided into blocks of a few draws of each chain. In a block the step size and the mass matrix are
    the same; a chain that has made all draws of the block is idle until the others have theirs. What is adapted at the
    end of a block is adapted from the same number of draws of each chain, and all chains begin the next block at a
    draw. If a block ended after an amount of work instead, chains in long trees would be thrown back, and the states
    where the others are would have the density of the posterior times the mean length of the trees that begin there.

    The acceptance that adapts the step size is the harmonic mean over chains of the means over trees of the means over
    leaves.
    """

    trajectory_length = math.nan
    """There is none: it is different for each draw."""

    def __init__(self, chains: TreeChains, tune: int, draws: int, target_accept: float) -> None:
        self._chains = chains
        self._tune = tune
        self._adaptation = StepAndMass(chains, tune, target_accept)
        self._ends = [*block_ends(tune), tune + draws]
        self._count = self._begun = 0
        self._step_size = 1.0

    @property
    def step_size(self) -> float:
        """Step size of the next trees."""
        return self._adaptation.step_size

    def start(self) -> None:
        """Find a first step size, and begin the trees."""
        self._adaptation.search(1.0)
        self._begin_block()

    def _begin_block(self) -> None:
        self._begun, self._step_size = self._count, self.step_size
        self._chains.begin(self._step_size, self._ends[0] - self._count, keep_gradients=self._count < self._tune)

    def iterate(self) -> Iteration:
        """Advance until each chain has made the next draw."""
        chains, tuning, index = self._chains, self._count < self._tune, self._count - self._begun
        depth = min(chains.max_depth, _EARLY_DEPTH) if self._begun < self._tune // 3 else chains.max_depth
        chains.advance_to(index, self._step_size, depth)
        stats = chains.draw(index)
        done = Iteration({} if tuning else stats, self._step_size, round(stats["n_steps"].mean()), tuning)
        self._count += 1
        if tuning and self._count == self._ends[0]:
            self._ends.pop(0)
            self._adapt()
            self._begin_block()
        return done

    @property
    def monitor(self) -> LostChainMonitor:
        """The monitor that restarts chains that are lost in the warm-up."""
        return self._adaptation.monitor

    def _adapt(self) -> None:
        draws, gradients, statistics = self._chains.block()
        acceptance, log_density = (statistics[STATISTICS.index(name)] for name in ("acceptance_rate", "lp"))
        usual = np.ones(self._chains.chains, bool)
        for state in zip(draws, gradients, log_density, strict=True):
            self._chains.parts.see(*state, self._adaptation.is_watching)
            usual &= self._adaptation.look()[0]
        self._adaptation.update(acceptance.mean(axis=0), usual, len(draws))
