"""Parts that all adapters share: lakes, names and bounds. Knows no library."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxlake import observations
from jaxlake.env import Lake
from jaxlake.state import Info

CENTRAL = Lake()
"""The paper's rules, the whole board seen as planes."""
PER_AGENT = Lake(observe=observations.flat)
"""The paper's rules, seen by every agent from its own place."""


def arrays_by_name(info: Info) -> dict[str, Any]:
    """Return the arrays of an ``Info`` by name, those of its costs among them."""
    arrays = {**vars(info), **vars(info.costs)}
    del arrays["costs"]
    return arrays


def box_of(lake: Lake, seen: Any, max_agents: int) -> tuple[float, float, tuple[int, ...], Any]:
    """Return what a box of observations is made of: least and greatest value, shape and dtype.

    The bounds are those of the dtype where the observation is none of ``jaxlake``'s.

    Args:
      seen: the observation's shape and dtype, as ``jax.eval_shape`` gives it.
    """
    bounds = observations.bounds(lake.observe, max_agents)
    if bounds is None and jnp.issubdtype(seen.dtype, jnp.integer):
        bounds = int(jnp.iinfo(seen.dtype).min), int(jnp.iinfo(seen.dtype).max)
    low, high = bounds or ((0.0, 1.0) if seen.dtype == bool else (-np.inf, np.inf))
    return low, high, seen.shape, seen.dtype


def check_axis_of_agents(lake: Lake, seen: Any, max_agents: int) -> None:
    """Raise ValueError for an observation that has not one row per agent; arguments as of ``box_of``."""
    # Planes are the same for all agents, and on a bank of three agents their shape would pass.
    if getattr(seen, "shape", ())[:1] != (max_agents,) or lake.observe is observations.planes:
        raise ValueError(
            f"the observation is {seen}: it must be one array with an axis of {max_agents} agents in front, as "
            "observations.flat and observations.window(radius) give"
        )
