"""A player answers boards: it plays each once, and its moves are the plan."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake import text
from jaxlake.env import Lake
from jaxlake.levels import LevelBank
from jaxlake.record import Array
from jaxlake.state import Params, State
from jaxlake.types import ABSENT, STEPS, Check, Instance, Plan, Verdict
from jaxlake.verify import first_failure, verify
from rl.config import ConfigError
from rl.judge.answers import Answers, Show
from rl.model.sampler import SamplingParams
from rl.model.sharding import fingerprint
from rl.students.player.actor import Actor, decide, lake_of


def reset(lake: Lake, episode_steps: int, bank: LevelBank, place: Array) -> State:
    """Return the levels at `place` at the beginning of their episodes."""
    params = Params(max_steps=episode_steps)

    def one(index: Array) -> State:
        level, distances = bank.at(index)
        return lake.reset(level, params, distances)[0]

    return jax.vmap(one)(place)


def see(lake: Lake, states: State) -> tuple[Any, Array]:
    """Return all agents' views and legal actions: none leaves the board, as no plan can."""
    return jax.vmap(lake.observe)(states), jax.vmap(lake.legal_actions)(states)


@functools.partial(jax.jit, static_argnums=(0, 5))
def play(
    actor: Actor,
    frozen: Any,
    parameters: Any,
    levels: Instance,
    keys: Array,
    greedy: bool,
    temperature: float = 1.0,
) -> tuple[Plan, Array]:
    """Let every lane's actor play each of its levels once, and write down the moves as plans.

    A plan ends with the step that ends the episode; an agent that would enter a hole or a conflict does so in the plan.

    Args:
      frozen: parameters that all lanes share.
      parameters: ``[lanes]``.
      levels: ``[lanes, levels]``.
      keys: ``[lanes]``, of the actions.
      greedy: take the likeliest action instead of drawing one.
      temperature: the log-probabilities are divided by it before one is drawn.

    Returns:
      Plans ``[lanes, levels]`` with room for `actor.episode_steps` steps, and the steps played, int32.
    """
    lake = lake_of(actor, None)

    def one(parameters: Any, levels: Instance, key: Array) -> tuple[Plan, Array]:
        states = reset(lake, actor.episode_steps, LevelBank(instances=levels, distances=None), jnp.arange(len(levels)))

        def step(states: State, key: Array) -> tuple[State, Array]:
            wanted = (states.positions != ABSENT) & ~states.done[:, None]
            logits, _ = decide(actor, parameters, frozen, *see(lake, states), wanted)
            action = jnp.argmax(logits, axis=-1) if greedy else jax.random.categorical(key, logits / temperature)
            offset = jnp.array([down * levels.max_size + right for down, right in STEPS], jnp.int32)
            cells = jnp.where(states.positions == ABSENT, ABSENT, states.positions + offset[action])
            cells = jnp.where(states.done[:, None], ABSENT, cells)
            return jax.vmap(lake.step)(states, action)[0], cells

        last, cells = jax.lax.scan(step, states, jax.random.split(key, actor.episode_steps))
        paths = jnp.concatenate([levels.starts[None], cells]).transpose(1, 2, 0)
        plan = Plan(
            parsable=jnp.ones(len(levels), bool),
            num_named=levels.num_agents,
            paths=paths,
            lengths=jnp.sum(paths != ABSENT, axis=-1, dtype=jnp.int32),
        )
        return plan, last.time

    return jax.vmap(one)(parameters, levels, keys)


def ran_out(verdicts: Verdict) -> np.ndarray:
    """Return which plays ended for want of steps: without a fall or a conflict, before all agents arrived."""
    return np.asarray(first_failure(verdicts.checks)) == Check.GOAL_REACHED


@dataclasses.dataclass(frozen=True)
class Player:
    """A `rl.judge.answers.Answerer` that moves turn by turn.

    Attributes:
      actor: the static half of who plays.
      rows: plays at once.
      frozen, parameters: what was not trained, and what was; one lane.
      about: plain values that affect its moves, beside the parameters.
    """

    actor: Actor
    rows: int
    frozen: Any
    parameters: Any
    about: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    first_lost: None = None

    @property
    def identity(self) -> dict[str, Any]:
        """The parameters' digest, the length of an episode, and what else affects the moves."""
        digest = fingerprint((self.parameters, self.frozen))
        return {"parameters": digest, "episode_steps": self.actor.episode_steps, **self.about}

    @property
    def prompt(self) -> Callable[[Instance], str]:
        """The board in words, which the player does not see so."""
        return lambda board: text.prompt(board, text.PromptStyle.COORDINATES)

    def answer(
        self, boards: Instance, samples: int, sampling: SamplingParams, key: jax.Array, show: Show, first: int = 0
    ) -> Answers:
        """Play each board; see `Answerer`.

        Raises:
          ConfigError: if the sampling is by top-k or top-p: there are five moves.
        """
        if sampling.truncated:
            raise ConfigError("top_k and top_p: a player chooses among five moves; use the temperature alone")
        greedy = sampling.temperature == 0
        levels = jax.tree.map(lambda x: np.asarray(x)[None], boards)
        plays = []
        for number in range(samples):
            draws = jax.random.fold_in(key, number + (not greedy))
            draws = jax.random.fold_in(draws, first) if first else draws
            heat = sampling.temperature or 1.0
            plays.append(play(self.actor, self.frozen, self.parameters, levels, draws[None], greedy, heat))
            show(len(boards.size) * (number + 1))

        def side_by_side(*plays: Array) -> np.ndarray:
            return np.stack([np.asarray(x)[0] for x in plays], axis=1).reshape(-1, *plays[0].shape[2:])

        plans, steps = jax.tree.map(side_by_side, *plays)
        repeated = jax.tree.map(lambda x: np.repeat(x, samples, axis=0), boards)
        return Answers(
            plans=plans,
            lengths=steps,
            truncated=ran_out(verify(repeated, plans, np.zeros_like(steps))),
            texts=lambda chosen: [text.answer(plans[i], boards.max_size) for i in chosen],
        )
