"""The constraint tree alone, without the stages of ``solve``: a search in each lane, from its beginning to its end."""

import numpy as np

from jaxlake.record import Array
from jaxlake.solve.bounds import num_pairs
from jaxlake.solve.tree import advance, idle, results
from jaxlake.types import Instance, Objective, Solution


def search(
    instances: Instance, cost_bound: Array, may_wait: Array, max_steps: int, iterations: int, objective: Objective
) -> Solution:
    """Optimal plans of at most a given cost, in numpy, for a batch in as many lanes.

    Args:
      instances: ``[batch]``.
      cost_bound: int32 ``[batch]``, ``UNBOUNDED`` for none.
      may_wait: bool ``[]``, whether agents may wait before their last arrival.
      max_steps: the horizon; an instance that might need more steps ends undecided.
      iterations: after how many paths have been planned for an instance it is given up.
      objective: what is minimised.
    """
    lanes = len(instances.size)
    renewed, budget = np.ones(lanes, bool), np.int32(iterations)
    costs = np.zeros((lanes, num_pairs(instances.max_agents)), np.int32)
    begun = idle(instances, max_steps, objective)
    ended = advance(begun, instances, cost_bound, costs, renewed, may_wait, budget, np.int32(0), objective)
    return results(ended, np.arange(lanes), instances.max_size, max_steps, objective)
