"""Episode after episode: what happens once a lake's episode ends. New levels come out of a bank, never a generator."""

import dataclasses
import enum
from typing import Any

import jax
import jax.numpy as jnp

from jaxlake.env import Lake
from jaxlake.levels import LevelBank
from jaxlake.record import Array, record
from jaxlake.state import DEFAULT_PARAMS, LifelongState, Params, State, TimeStep
from jaxlake.types import LifelongInstance


class AutoResetMode(enum.StrEnum):
    """The step in which the next episode begins."""

    OFF = "off"
    """No reset: an environment that is done stays so."""
    SAME_STEP = "same-step"
    """Reset in the step that ends the old episode."""
    NEXT_STEP = "next-step"
    """Reset in the step after it, whose actions are ignored."""


@record
class AutoResetTimeStep(TimeStep):
    """A ``TimeStep`` that keeps the old episode's last observation and legal actions.

    In the mode ``SAME_STEP``, where an episode ends, ``observation`` and ``legal_actions`` are of the next one and the
    rest is of the one that ended.

    Attributes:
      final_observation, final_legal_actions: both without the reset; equal to the others where there was none.
    """

    final_observation: Any
    final_legal_actions: Array


@dataclasses.dataclass(frozen=True)
class AutoReset:
    """A lake that begins again when ``mode`` says; hashable, so it can be a static argument.

    The states of lifelong episodes have no ``tasks`` and ``distances`` here: the bank has them. For an observation of
    your own that needs distances, ``state.replace(distances=bank.at(state.instance.board)[1])`` has them too. A bank
    with another board in the place of an episode's, such as one in another order, truncates the episode: nothing moves
    in that step or is rewarded, and distances in its ``final_observation`` are those of the other board.
    """

    lake: Lake
    mode: AutoResetMode = AutoResetMode.SAME_STEP

    def __post_init__(self) -> None:
        object.__setattr__(self, "mode", AutoResetMode(self.mode))

    def reset(self, bank: LevelBank, key: Array, params: Params = DEFAULT_PARAMS) -> tuple[State, AutoResetTimeStep]:
        """Begin the first episode, on a level drawn with the key."""
        state, time_step = self.begin(bank, bank.draw_index(key), params)
        return state, _with_final(time_step, jax.tree.map(jnp.copy, time_step))

    def step(self, bank: LevelBank, state: State, actions: Array, key: Array) -> tuple[State, AutoResetTimeStep]:
        """Play one step of actions int32 ``[max_agents]``, and begin the next episode as the mode says."""
        draw_key, step_key = jax.random.split(key) if self.lake.needs_key(state.params) else (key, None)
        after, time_step = self.lake.step(_with_bank(state, bank), actions, step_key)
        after = _with_bank(after, None)
        if self.mode is AutoResetMode.OFF:
            return after, _with_final(time_step, time_step)
        fresh, fresh_step = self.begin(bank, bank.draw_index(draw_key), state.params)
        if self.mode is AutoResetMode.NEXT_STEP:
            after, time_step = _select(state.done, (fresh, fresh_step), (after, time_step))
            return after, _with_final(time_step, time_step)
        last = time_step
        # A loop for its own sake: XLA would compute it anew for each entry that it selects (77 ns a step against 72).
        done = jax.lax.fori_loop(0, 2, lambda *_: after.done, after.done)
        after = _select(done, fresh, after)
        # Observed once more rather than selected: whichever of the two is not used costs nothing.
        time_step = time_step.replace(
            observation=self.observe(bank, after),
            legal_actions=self.lake.legal_actions(after),
        )
        return after, _with_final(time_step, last)

    def observe(self, bank: LevelBank, state: State) -> Any:
        """Return the observation of a state, as ``step`` does."""
        return self.lake.observe(_with_bank(state, bank))

    def begin(self, bank: LevelBank, index: Array | int, params: Params) -> tuple[State, TimeStep]:
        """Begin an episode on the bank's level of that number."""
        if not isinstance(bank.instances, LifelongInstance):
            instance, distances = bank.at(index)
            return self.lake.reset(instance, params, distances)
        instance, _ = bank.replace(distances=None).at(index)
        state, time_step = self.lake._reset(instance, params, _tables(bank))
        return _with_bank(state, None), time_step


def _with_bank(state: State, bank: LevelBank | None) -> State:
    """Return a lifelong state with the bank's goals and distances, which no state keeps: each step would copy them."""
    if not isinstance(state, LifelongState):
        return state
    tasks = distances = None
    if bank and isinstance(bank.instances, LifelongInstance):
        tasks, distances = bank.instances.tasks, _tables(bank)
        other = jnp.asarray(bank.instances.digest)[state.instance.board] != state.instance.digest
        # As in step, so that XLA computes it once: a tenth of a lifelong step.
        other = jax.lax.fori_loop(0, 2, lambda *_: other, other)
        state = state.replace(truncated=state.truncated | (other & ~state.terminated))
    return state.replace(instance=state.instance.replace(tasks=tasks), distances=distances)


def _tables(bank: LevelBank) -> jax.Array | None:
    """Return the tables of a bank's lifelong boards, ``[levels, cells, cells]``."""
    return None if bank.distances is None else jnp.squeeze(bank.distances, 1)


def _select(condition: Array, if_true: Any, if_false: Any) -> Any:
    return jax.tree.map(lambda first, second: jnp.where(condition, first, second), if_true, if_false)


def _with_final(time_step: TimeStep, last: TimeStep) -> AutoResetTimeStep:
    final = {"final_observation": last.observation, "final_legal_actions": last.legal_actions}
    return AutoResetTimeStep(**vars(time_step), **final)
