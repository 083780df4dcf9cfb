"""The No-U-Turn sampler of many chains: each has a tree of its own, and one call computes the next gradients of all."""

import math
from collections.abc import Sequence

import numpy as np
import pytensor
import pytensor.tensor as pt

from pytensor_cl.pymc.adaptation import harmonic_mean
from pytensor_cl.pymc.density import ModelDensity
from pytensor_cl.pymc.hamiltonian import compile_function
from pytensor_cl.pymc.samplers import Iteration, StepAndMass
from pytensor_cl.pymc.trees import STATISTICS, advance, begin_trees, new_trees

__all__ = ["Nuts", "TreeChains"]

_EARLY_DEPTH = 4
"""Most doublings in the first third of the warm-up: trees are long while the step size and the scales are not right."""
_BOOLEAN = ("diverging", "reached_max_treedepth")
_INTEGER = ("n_steps", "tree_depth")


class TreeChains:
    """Chains whose trees are on the host, and the function that computes their gradients on the device.

    Parameters
    ----------
    density
        See `ModelDensity`.
    chains
        Number of chains.
    seed
        Seed of momenta, directions and choices.
    mode
        PyTensor mode that compiles the function.
    max_steps
        Most leapfrog steps of a tree, which has one of 1, 3, 7, 15, ... steps at most.

    Attributes
    ----------
    density, chains
        As given.
    max_depth : int
        Most doublings of a tree.
    inverse_mass : ndarray
        Diagonal of the inverse mass matrix, shape (parameters,).
    trees : Trees
        State of all chains.
    evaluate
        Function that returns the log densities and gradients at positions of shape (chains, parameters).
    """

    def __init__(
        self, density: ModelDensity, chains: int, seed: np.random.SeedSequence, mode: object, max_steps: int
    ) -> None:
        self.density = density
        self.chains = chains
        self.max_depth = int(math.log2(max_steps + 1))
        self.inverse_mass = np.ones(density.size)
        self.trees = new_trees(chains, density.size, self.max_depth)
        self._rng = np.random.default_rng(seed)
        self._is_periodic = np.repeat(density.is_periodic, [int(np.prod(shape)) for shape in density.shapes])
        self._latest = self.trees.start_position
        self.evaluate = self._compile(mode)
        # Numba compiles now, and not in the warm-up.
        self.restart(1.0)
        self.advance(1.0, self.max_depth)

    def _compile(self, mode: object) -> object:
        flat = pt.matrix("position", dtype=pytensor.config.floatX, shape=(self.chains, self.density.size))
        return compile_function([flat], list(self.density(flat)), {}, mode, "gradient")

    def _gradient(self, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the log densities and gradients, as float64."""
        log_density, gradient = self.evaluate(flat.astype(pytensor.config.floatX))  # type: ignore[operator]
        return np.asarray(log_density, "float64"), np.asarray(gradient, "float64")

    def set_positions(self, positions: Sequence[np.ndarray]) -> np.ndarray:
        """Move the chains, and return their log densities.

        Parameters
        ----------
        positions
            Arrays of shape (chains, *shape).
        """
        trees = self.trees
        trees.start_position[:] = np.concatenate([np.reshape(q, (self.chains, -1)) for q in positions], axis=1)
        trees.start_density[:], trees.start_gradient[:] = self._gradient(trees.start_position)
        self._latest = trees.start_position
        return trees.start_density.copy()

    def positions(self) -> list[np.ndarray]:
        """Return the draws of the last iteration."""
        return list(self.density.split(self._latest, self.chains))

    def set_inverse_mass(self, flat: np.ndarray) -> None:
        """Set the diagonal of the inverse mass matrix; `restart` must follow.

        Parameters
        ----------
        flat
            One positive number for each parameter.
        """
        self.inverse_mass = np.ascontiguousarray(flat, "float64")

    def try_step(self, step_size: float) -> np.ndarray:
        """Return the acceptance probabilities of one step from the last draws.

        Parameters
        ----------
        step_size
            Size of a leapfrog step, in units of the mass matrix.
        """
        trees, mass = self.trees, self.inverse_mass
        momentum = self._rng.standard_normal(trees.momentum.shape) / np.sqrt(mass)
        before = 0.5 * np.sum(mass * momentum**2, axis=1) - trees.start_density
        momentum += 0.5 * step_size * trees.start_gradient
        log_density, gradient = self._gradient(trees.start_position + step_size * mass * momentum)
        momentum += 0.5 * step_size * gradient
        with np.errstate(over="ignore", invalid="ignore"):  # a step that is far too large
            error = 0.5 * np.sum(mass * momentum**2, axis=1) - log_density - before
        return np.exp(np.minimum(np.where(np.isnan(error), -np.inf, -error), 0))

    def restart(self, step_size: float, draws: int = 0) -> None:
        """Discard the trees that are not finished, and begin others at the last draws.

        Parameters
        ----------
        step_size
            Of these trees.
        draws
            How many draws of each chain are to be stored. No chain is idle if it is 0.
        """
        shape = (draws, self.chains, self.density.size)
        self.trees = self.trees._replace(
            draws=np.empty(shape),
            statistics=np.empty((len(STATISTICS), *shape[:2])),
            n_draws=np.zeros_like(self.trees.n_draws),
        )
        begin_trees(self.trees, self.inverse_mass, self._rng, step_size)

    def advance(self, step_size: float, max_depth: int) -> int:
        """Add a leaf to each tree (`trees.advance`), and return how many trees ended.

        Parameters
        ----------
        step_size
            Of trees that begin.
        max_depth
            Most doublings of a tree.
        """
        log_density, gradient = self._gradient(self.trees.position)
        return advance(
            *(self.trees, gradient, log_density, self.inverse_mass, self._is_periodic, self._rng),
            *(float(step_size), max_depth),
        )

    def draw(self, index: int) -> dict[str, np.ndarray]:
        """Make a stored draw the one that `positions` returns, and return its statistics.

        Parameters
        ----------
        index
            Number of the draw, which all chains have made.
        """
        self._latest = self.trees.draws[index]
        found = dict(zip(STATISTICS, self.trees.statistics[:, index], strict=True))
        kinds = {**dict.fromkeys(_BOOLEAN, bool), **dict.fromkeys(_INTEGER, "int64")}
        return {name: value.astype(kinds.get(name, pytensor.config.floatX)) for name, value in found.items()}


class Nuts:
    """The No-U-Turn sampler (Hoffman and Gelman 2014) with multinomial weights (Betancourt 2017).

    A chain whose tree is finished begins the next one at once, so that no chain waits for the longest tree of all. An
    iteration of the warm-up is over when as many trees have ended as there are chains. The acceptance that adapts the
    step size is the harmonic mean over chains of the means over their leaves since the last iteration.

    Parameters
    ----------
    chains
        The chains.
    tune
        Iterations of warm-up.
    draws
        Draws of each chain, at most.
    target_accept
        Wanted harmonic mean of the chains' acceptance probabilities.
    """

    trajectory_length = math.nan
    """There is none: it is different for each draw."""

    def __init__(self, chains: TreeChains, tune: int, draws: int, target_accept: float) -> None:
        self._chains = chains
        self._tune, self._draws = tune, draws
        self._adaptation = StepAndMass(chains, tune, target_accept)
        self._count = 0

    @property
    def step_size(self) -> float:
        """Step size of the next trees."""
        return self._adaptation.step_size

    def start(self) -> None:
        """Find a first step size, and begin the trees."""
        self._adaptation.search(1.0)
        self._chains.restart(self.step_size, self._draws if self._tune == 0 else 0)

    def iterate(self) -> Iteration:
        """Advance until each chain has made the next draw; in the warm-up, until as many trees have ended."""
        tuning = self._count < self._tune
        done = self._warm_up() if tuning else self._next_draw()
        self._count += 1
        if tuning and self._count == self._tune:
            self._chains.restart(self.step_size, self._draws)
        return done

    def _warm_up(self) -> Iteration:
        chains, step_size = self._chains, self.step_size
        depth = min(chains.max_depth, _EARLY_DEPTH) if self._count < self._tune // 3 else chains.max_depth
        trees = chains.trees
        trees.recent[:] = 0
        ended = leaves = 0
        while ended < chains.chains:
            ended += chains.advance(step_size, depth)
            leaves += 1
        moments = np.stack(
            [trees.start_position.mean(axis=0), trees.start_position.var(axis=0), trees.start_gradient.var(axis=0)]
        )
        # A chain that never accepts must not make the harmonic mean 0 and the step size of all chains vanish.
        acceptance = harmonic_mean(np.maximum(trees.recent / leaves, 1e-2))
        if self._adaptation.update(acceptance, moments):
            chains.restart(self.step_size)
        return Iteration({}, step_size, round(leaves * chains.chains / ended), True)

    def _next_draw(self) -> Iteration:
        chains, index = self._chains, self._count - self._tune
        while chains.trees.n_draws.min() <= index:
            chains.advance(self.step_size, chains.max_depth)
        stats = chains.draw(index)
        return Iteration(stats, self.step_size, round(stats["n_steps"].mean()), False)
