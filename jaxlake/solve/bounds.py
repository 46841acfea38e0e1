"""The least rise in cost of a node of the constraint tree over its paths: an admissible heuristic.

Two agents with a cardinal conflict cost one more at least (Felner et al. 2018, CBSH), and any two agents cost what they
cost alone together (Li et al. 2019, WDG). Each agent's share of what is to come must pay for all of its pairs.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.record import Array


def num_pairs(agents: int) -> int:
    """Return the number of pairs of agents."""
    return agents * (agents - 1) // 2


@functools.cache
def _vertex_covers(agents: int) -> np.ndarray:
    """Size of a smallest set of agents that meets every pair of a set of pairs, int32 ``[2 ** pairs]``."""
    pairs = list(itertools.combinations(range(agents), 2))
    sizes = np.full(1 << len(pairs), agents, np.int32)
    for chosen in itertools.product((0, 1), repeat=agents):
        covered = sum(1 << number for number, (i, j) in enumerate(pairs) if chosen[i] or chosen[j])
        graphs = np.arange(sizes.size)
        sizes = np.where(graphs & ~covered, sizes, np.minimum(sizes, sum(chosen)))
    return sizes


@functools.cache
def _packings(agents: int) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """Triangles and single pairs without a common agent, as numbers of pairs; a triangle counts half."""
    pairs = list(itertools.combinations(range(agents), 2))
    number = {pair: index for index, pair in enumerate(pairs)}
    singles = [
        ((), tuple(number[pair] for pair in chosen))
        for count in (1, 2)
        for chosen in itertools.combinations(pairs, count)
        if len(set().union(*chosen)) == 2 * count
    ]
    triangles = [
        (
            tuple(number[pair] for pair in itertools.combinations(three, 2)),
            tuple(number[p] for p in pairs if not set(p) & set(three)),
        )
        for three in itertools.combinations(range(agents), 3)
    ]
    return tuple(singles + triangles)


def sum_of_gaps(arrivals: Array, edges: Array, pair_costs: Array) -> jax.Array:
    """Return by how much the sum of the arrivals must grow at least, int32 ``[lanes]``.

    Args:
      arrivals: int32 ``[agents, lanes]``.
      edges: int32 ``[lanes]``, a bit per pair with a cardinal conflict.
      pair_costs: int32 ``[pairs, lanes]``, what two agents cost at least.
    """
    agents = arrivals.shape[0]
    gaps = [
        jnp.maximum(pair_costs[pair] - arrivals[i] - arrivals[j], (edges >> pair) & 1)
        for pair, (i, j) in enumerate(itertools.combinations(range(agents), 2))
    ]
    least = jnp.asarray(_vertex_covers(agents))[edges]
    for triangle, singles in _packings(agents):
        paid = sum(gaps[pair] for pair in singles)
        if triangle:
            paid += (sum(gaps[pair] for pair in triangle) + 1) // 2
        least = jnp.maximum(least, paid)
    return least
