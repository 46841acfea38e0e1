"""What adapters have in common, whether they step on a device or on the host: names and bounds. Knows no library."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake import observations
from jaxlake.env import Lake
from jaxlake.state import Info


def arrays_by_name(info: Info) -> dict[str, Any]:
    """Return the arrays of an ``Info`` by name, those of its costs among them."""
    arrays = {**vars(info), **vars(info.costs)}
    del arrays["costs"]
    return arrays


def one_array(seen: Any) -> jax.ShapeDtypeStruct:
    """Return the shape of an observation; ValueError when it is not one array.

    Args:
      seen: what ``jax.eval_shape`` says of the observation.
    """
    if not isinstance(seen, jax.ShapeDtypeStruct):
        raise ValueError(f"the observation is {seen}: it must be one array")
    return seen


def bounds_of(lake: Lake, seen: jax.ShapeDtypeStruct, max_agents: int) -> tuple[float, float]:
    """Return the least and the greatest value of an observation: those of its dtype if it is none of ``jaxlake``'s.

    Args:
      lake: the rules, with the function that observes.
      seen: the observation's shape and dtype.
      max_agents: agent slots of the levels that are played.
    """
    known = observations.bounds(lake.observe, max_agents)
    if known is not None:
        return known
    if jnp.issubdtype(seen.dtype, jnp.integer):
        return int(jnp.iinfo(seen.dtype).min), int(jnp.iinfo(seen.dtype).max)
    return (0.0, 1.0) if seen.dtype == bool else (-np.inf, np.inf)
