"""Boards as pixels under jit, for whoever draws thousands of them; ``pixels`` draws the finer pictures on the host."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.processes import runs_programs
from jaxlake.record import Array
from jaxlake.render import scene
from jaxlake.types import Instance


@runs_programs
def tiles(instance: Instance, positions: Array, tile_size: int) -> jax.Array:
    """Draw the padded board without numbers, uint8 ``[max_size * tile_size, max_size * tile_size, 3]``.

    Holes are dark and what is off the board is white; agents are discs and goals rings in the agent's colour. Where two
    are on one cell, the one with the larger number is seen.

    Args:
      instance: no batch axes; ``jax.vmap`` adds them.
      positions: int32 ``[max_agents]`` cells, ``ABSENT`` for agents that are not there.
      tile_size: side of a cell in pixels, static.
    """
    side, agents = instance.max_size, instance.max_agents
    offset = np.abs((np.arange(tile_size) + 0.5) / tile_size - 0.5)
    radius = np.hypot(offset[:, None], offset)
    tile = np.maximum(offset[:, None], offset) <= scene.TILE
    # A ring as thin as the other pictures' would fall between the pixels of a small tile.
    ring = (radius > scene.DISC) & (radius <= scene.RING + scene.LINE)
    colours = np.array([_rgb(scene.COLOURS[agent % len(scene.COLOURS)]) for agent in range(agents)])

    def over(image: Array, shape: np.ndarray, cells: Array) -> jax.Array:
        """The shape in the agents' colours on their cells, over the image ``[cells, tile_size, tile_size, 3]``."""
        who = jnp.full(side * side, -1, jnp.int32)
        number = np.arange(agents, dtype=np.int32)
        who = who.at[jnp.asarray(cells).astype(jnp.uint32)].max(number, mode="drop")  # ABSENT is out of range.
        drawn = shape & (who >= 0)[:, None, None]
        return jnp.where(drawn[..., None], jnp.asarray(colours)[who][:, None, None], image)

    row, column = np.divmod(np.arange(side * side), side)
    off_board = np.maximum(row, column) >= instance.size
    ground = jnp.where(jnp.asarray(instance.holes)[:, None], _rgb(scene.HOLE), _rgb(scene.FREE))
    visible = tile & ~off_board[:, None, None]
    image = jnp.where(visible[..., None], ground[:, None, None], _rgb(scene.WHITE))
    image = over(over(image, ring, instance.goals), radius <= scene.DISC, positions)
    image = image.reshape(side, side, tile_size, tile_size, 3)
    return image.transpose(0, 2, 1, 3, 4).reshape(side * tile_size, side * tile_size, 3)


def _rgb(colour: str) -> np.ndarray:
    """``#RRGGBB`` as uint8 ``[3]``."""
    return np.frombuffer(bytes.fromhex(colour[1:]), np.uint8)
