"""Trees of the No-U-Turn sampler, of many chains: what is done for each chain between two gradients.

A tree grows as in Hoffman and Gelman (2014), with states chosen by multinomial weights (Betancourt 2017). It is built
without recursion (Phan, Pradhan, Jankowiak 2019; Lao and Dillon 2020): a subtree of 2**d leaves keeps at most d states.
Numba compiles the functions; they loop over chains, and write into the arrays of `Trees`.
"""

import math
from typing import NamedTuple

import numba
import numpy as np

from pytensor_cl.pymc.hamiltonian import MAX_ENERGY_ERROR
from pytensor_cl.routines.nuts import STATISTICS

_MAX_ERROR = MAX_ENERGY_ERROR


class Trees(NamedTuple):
    """State of the chains, in float64; in axes of two, 0 is the tree and 1 its newest subtree."""

    # The leaf whose gradient is next, with the momentum half a step before it: shape (chains, size).
    position: np.ndarray
    momentum: np.ndarray
    # The last draw of each chain.
    start_position: np.ndarray
    start_gradient: np.ndarray
    start_density: np.ndarray
    # Backward and forward end of each tree: shape (2, chains, size).
    end_position: np.ndarray
    end_momentum: np.ndarray
    end_gradient: np.ndarray
    # First leaves of unfinished parts of the newest subtree: shape (max_depth, chains, size).
    mark_position: np.ndarray
    mark_momentum: np.ndarray
    # The state that is the next draw if the tree ends now, and the logarithm of the sum of weights: shape (2, chains).
    chosen_position: np.ndarray
    chosen_gradient: np.ndarray
    chosen_density: np.ndarray
    chosen_error: np.ndarray
    log_weight: np.ndarray
    energy: np.ndarray  # at the start of the tree
    step: np.ndarray  # negative if the newest subtree grows backward
    acceptance: np.ndarray  # the sum over the leaves
    worst: np.ndarray  # the largest energy error
    # Numbers of leaves of the tree, finished leaves of its newest subtree, subtrees and draws: int64.
    leaves: np.ndarray
    leaf: np.ndarray
    depth: np.ndarray
    n_draws: np.ndarray
    draws: np.ndarray  # shape (draws, chains, size); a chain with as many draws is idle
    gradients: np.ndarray  # at the draws; shape (0, chains, size) if they are not stored
    statistics: np.ndarray  # shape (len(STATISTICS), draws, chains)


def new_trees(chains: int, size: int, max_depth: int) -> Trees:
    """Return the state of chains at zero, which store no draws."""
    one, two = (chains, size), (2, chains, size)
    shapes = {
        **dict.fromkeys(("position", "momentum", "start_position", "start_gradient"), one),
        **dict.fromkeys(("end_position", "end_momentum", "end_gradient", "chosen_position", "chosen_gradient"), two),
        **dict.fromkeys(("chosen_density", "chosen_error", "log_weight"), (2, chains)),
        **dict.fromkeys(("mark_position", "mark_momentum"), (max_depth, chains, size)),
        **dict.fromkeys(("draws", "gradients"), (0, chains, size)),
        "statistics": (len(STATISTICS), 0, chains),
    }
    integers = ("leaves", "leaf", "depth", "n_draws")
    return Trees(
        **{
            name: np.zeros(shapes.get(name, (chains,)), "int64" if name in integers else "float64")
            for name in Trees._fields
        }
    )


_REASSOCIATE = {"reassoc", "contract", "nsz"}
"""Sums of several partial sums, which vector instructions compute. NaN and infinity keep their meaning."""


@numba.njit(cache=True)
def _copy(source, target):
    for k in range(source.size):
        target[k] = source[k]


@numba.njit(cache=True, fastmath=_REASSOCIATE)
def _twice_kinetic(momentum, inverse_mass):
    total = 0.0
    for k in range(inverse_mass.size):
        total += inverse_mass[k] * momentum[k] * momentum[k]
    return total


@numba.njit(cache=True)
def _kick(momentum, half, gradient):
    for k in range(momentum.size):
        momentum[k] += half * gradient[k]


@numba.njit(cache=True, fastmath=_REASSOCIATE)
def _turns(first_position, first_momentum, last_position, last_momentum, forward):
    """Return whether the ends of a trajectory approach each other.

    The generalised criterion of Betancourt (2017) compares the momenta at both ends with the integral of the velocity.
    For a Euclidean metric that is the difference of the positions.
    """
    at_first = at_last = 0.0
    for k in range(first_position.size):
        way = last_position[k] - first_position[k]
        at_first += way * first_momentum[k]
        at_last += way * last_momentum[k]
    return not (at_first > 0 and at_last > 0) if forward else not (at_first < 0 and at_last < 0)


@numba.njit(cache=True)
def _kick_and_drift(t, c, gradient, inverse_mass):
    """Move a chain to the next leaf: the first half of a leapfrog step's kick, and its drift."""
    step, position, momentum = t.step[c], t.position[c], t.momentum[c]
    _kick(momentum, 0.5 * step, gradient)
    for k in range(inverse_mass.size):
        position[k] += step * inverse_mass[k] * momentum[k]


@numba.njit(cache=True)
def _begin_subtree(t, c, inverse_mass, rng):
    """Begin a subtree at one of the tree's ends, which is chosen at random."""
    end = 1 if rng.random() < 0.5 else 0
    t.step[c] = abs(t.step[c]) if end else -abs(t.step[c])
    _copy(t.end_position[end, c], t.position[c])
    _copy(t.end_momentum[end, c], t.momentum[c])
    t.leaf[c] = 0
    t.log_weight[1, c] = -np.inf
    _kick_and_drift(t, c, t.end_gradient[end, c], inverse_mass)


@numba.njit(cache=True)
def _begin_tree(t, c, inverse_mass, rng, step_size):
    """Draw momenta, and begin a tree at the last draw."""
    kinetic = 0.0
    for k in range(inverse_mass.size):
        drawn = rng.standard_normal()
        kinetic += 0.5 * drawn * drawn
        t.end_momentum[0, c, k] = drawn / math.sqrt(inverse_mass[k])
    _copy(t.end_momentum[0, c], t.end_momentum[1, c])
    for end in range(2):
        _copy(t.start_position[c], t.end_position[end, c])
        _copy(t.start_gradient[c], t.end_gradient[end, c])
    _copy(t.start_position[c], t.chosen_position[0, c])
    _copy(t.start_gradient[c], t.chosen_gradient[0, c])
    t.chosen_density[0, c] = t.start_density[c]
    t.chosen_error[0, c] = 0.0
    t.log_weight[0, c] = 0.0
    t.energy[c] = kinetic - t.start_density[c]
    t.acceptance[c] = t.worst[c] = 0.0
    t.leaves[c] = t.depth[c] = 0
    t.step[c] = step_size
    _begin_subtree(t, c, inverse_mass, rng)


@numba.njit(cache=True)
def _add_leaf(t, c, gradient, log_density, inverse_mass, rng):
    """Finish a leapfrog step, and add the leaf to the newest subtree; return its energy error, and whether it turns."""
    _kick(t.momentum[c], 0.5 * t.step[c], gradient)
    error = 0.5 * _twice_kinetic(t.momentum[c], inverse_mass) - log_density - t.energy[c]
    if math.isnan(error):
        error = np.inf
    t.leaves[c] += 1
    t.acceptance[c] += math.exp(min(-error, 0.0))
    if abs(error) > abs(t.worst[c]):
        t.worst[c] = error
    if error > _MAX_ERROR:
        return error, False
    t.log_weight[1, c] = np.logaddexp(t.log_weight[1, c], -error)
    # With an infinite weight the comparison is one with what is not a number.
    if not math.log(rng.random()) > -error - t.log_weight[1, c]:
        _copy(t.position[c], t.chosen_position[1, c])
        _copy(gradient, t.chosen_gradient[1, c])
        t.chosen_density[1, c] = log_density
        t.chosen_error[1, c] = error
    leaf = t.leaf[c]
    t.leaf[c] += 1
    # The place of a part's first leaf: the number of larger parts that are not finished.
    mark, bits = 0, leaf >> 1
    while bits:
        mark += bits & 1
        bits >>= 1
    if leaf & 1 == 0:
        _copy(t.position[c], t.mark_position[mark, c])
        _copy(t.momentum[c], t.mark_momentum[mark, c])
        return error, False
    # The leaf is the last one of as many parts as its number has ones at the end.
    while leaf & 1:
        first_position, first_momentum = t.mark_position[mark, c], t.mark_momentum[mark, c]
        if _turns(first_position, first_momentum, t.position[c], t.momentum[c], t.step[c] > 0):
            return error, True
        leaf >>= 1
        mark -= 1
    return error, False


@numba.njit(cache=True)
def _join(t, c, gradient, rng):
    """Add the finished subtree to the tree, and return whether the tree's ends approach each other."""
    end = 1 if t.step[c] > 0 else 0
    _copy(t.position[c], t.end_position[end, c])
    _copy(t.momentum[c], t.end_momentum[end, c])
    _copy(gradient, t.end_gradient[end, c])
    # States far from the start are preferred: the whole weight of the new half against the old half's.
    if math.log(rng.random()) < t.log_weight[1, c] - t.log_weight[0, c]:
        _copy(t.chosen_position[1, c], t.chosen_position[0, c])
        _copy(t.chosen_gradient[1, c], t.chosen_gradient[0, c])
        t.chosen_density[0, c] = t.chosen_density[1, c]
        t.chosen_error[0, c] = t.chosen_error[1, c]
    t.log_weight[0, c] = np.logaddexp(t.log_weight[0, c], t.log_weight[1, c])
    return _turns(t.end_position[0, c], t.end_momentum[0, c], t.end_position[1, c], t.end_momentum[1, c], True)


@numba.njit(cache=True)
def _end_tree(t, c, is_periodic, is_diverging, is_deepest):
    """Make the chosen state the chain's draw, and store it."""
    _copy(t.chosen_position[0, c], t.start_position[c])
    _copy(t.chosen_gradient[0, c], t.start_gradient[c])
    t.start_density[c] = t.chosen_density[0, c]
    for k in range(is_periodic.size):
        if is_periodic[k]:
            # The density is the same a period further on, and chains must not drift apart by whole periods.
            t.start_position[c, k] -= 2 * math.pi * round(t.start_position[c, k] / (2 * math.pi))
    draw = t.n_draws[c]
    t.n_draws[c] += 1
    _copy(t.start_position[c], t.draws[draw, c])
    if t.gradients.shape[0]:
        _copy(t.start_gradient[c], t.gradients[draw, c])
    t.statistics[0, draw, c] = t.acceptance[c] / t.leaves[c]
    t.statistics[1, draw, c] = is_diverging
    t.statistics[2, draw, c] = t.energy[c] + t.chosen_error[0, c]
    t.statistics[3, draw, c] = t.chosen_error[0, c]
    t.statistics[4, draw, c] = t.start_density[c]
    t.statistics[5, draw, c] = t.worst[c]
    t.statistics[6, draw, c] = t.leaves[c]
    t.statistics[7, draw, c] = is_deepest
    t.statistics[8, draw, c] = abs(t.step[c])
    t.statistics[9, draw, c] = t.depth[c]


@numba.njit(cache=True)
def begin_trees(t, inverse_mass, rng, step_size):
    """Begin a tree of each chain at its last draw."""
    for c in range(t.n_draws.size):
        _begin_tree(t, c, inverse_mass, rng, step_size)


@numba.njit(cache=True)
def advance(t, gradient, log_density, inverse_mass, is_periodic, rng, step_size, max_depth):
    """Add a leaf to the tree of each chain that is not idle, and move it to the next one.

    A new tree follows a finished one, until the chain has all its draws.
    """
    most = t.draws.shape[0]
    for c in range(t.n_draws.size):
        if t.n_draws[c] >= most:
            continue
        error, turns = _add_leaf(t, c, gradient[c], log_density[c], inverse_mass, rng)
        is_diverging = error > _MAX_ERROR
        ends = turns or is_diverging
        is_whole = not ends and t.leaf[c] == 1 << t.depth[c]
        if is_whole or ends:
            t.depth[c] += 1
        if is_whole:
            ends = _join(t, c, gradient[c], rng)
        is_deepest = not ends and t.depth[c] >= max_depth
        if ends or is_deepest:
            _end_tree(t, c, is_periodic, is_diverging, is_deepest)
            _begin_tree(t, c, inverse_mass, rng, step_size)
        elif is_whole:
            _begin_subtree(t, c, inverse_mass, rng)
        else:
            _kick_and_drift(t, c, gradient[c], inverse_mass)
