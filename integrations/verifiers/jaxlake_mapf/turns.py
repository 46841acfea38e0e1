"""A board played turn by turn: every agent answers its own view with a word, then all move at once. Asks no model."""

import functools
import itertools
import json

import jax
import numpy as np
import verifiers.v1 as vf

from jaxlake import Action, ConflictRule, HoleRule, Lake, Params, Plan, answer, view
from jaxlake.files import from_record
from jaxlake.types import MAX_AGENTS, MAX_SIZE

_LAKE = Lake(holes=HoleRule.FALL, conflicts=ConflictRule.END, observe=view.View())
_reset, _step = jax.jit(_LAKE.reset), jax.jit(_LAKE.step)  # one program each: all boards are padded alike


class Game:
    """An episode: who enters a hole or meets another agent ends it, and so do all on their goals, and the last step.

    Attributes:
      over: no more is asked.
      unreadable: number of answers that named no move, or one off the board. Such an agent waits.
    """

    def __init__(self, level: str, steps: int) -> None:
        """Begin the episode on a level as of ``jaxlake.adapters.text.tasks``, with a number of steps for all."""
        board = from_record(json.loads(level), MAX_SIZE, MAX_AGENTS)
        self._state, self._now = _reset(board, Params(max_steps=steps))
        self._count = int(board.num_agents)
        self._moves: list[Action] = []
        self.unreadable = 0
        self.over = bool(self._state.done)

    @property
    def message(self) -> str:
        """The view of the agent that is asked next."""
        agent = len(self._moves)
        return f"Agent {agent + 1} of {self._count}: {view.text(np.asarray(self._now.observation)[agent])}"

    @property
    def legal(self) -> np.ndarray:
        """Return which moves the agent that is asked next may make, bool ``[5]``; the others count as waiting."""
        return np.asarray(self._now.legal_actions)[len(self._moves)]

    def play(self, reply: str) -> None:
        """Take the answer to ``message``; with that of the last agent all move."""
        move = view.read_move(reply)
        if move is None or not self.legal[move]:
            move = Action.WAIT
            self.unreadable += 1
        self._moves.append(move)
        if len(self._moves) == self._count:
            actions = np.array(self._moves + [Action.WAIT] * (MAX_AGENTS - self._count), np.int32)
            self._state, self._now = _step(self._state, actions)
            self._moves, self.over = [], bool(self._state.done)

    def outcome(self) -> dict[str, float]:
        """Return ``solved``, 0 or 1, the share of agents that ``arrived``, ``steps``, and ``unreadable``."""
        info = self._now.info
        return {
            "solved": float(info.solved),
            "arrived": float(np.sum(info.arrived)) / self._count,
            "steps": float(self._state.time),
            "unreadable": float(self.unreadable),
        }


@functools.lru_cache(256)  # the reward and the metrics are asked for one after the other, by many rollouts at once
def outcome(replies: tuple[str, ...], level: str, steps: int) -> dict[str, float]:
    """Return the ``Game.outcome`` of the answers to a board's messages."""
    game = Game(level, steps)
    for reply in replies:
        if not game.over:
            game.play(reply)
    return game.outcome()


def words(plan: Plan, max_size: int) -> str:
    """Return the moves of a plan, one word each, in the order in which a ``Game`` asks for them."""
    rows = [line.partition(":")[2].split() for line in answer(plan, max_size, "moves").splitlines()]
    names = {action.name[0]: action.name.lower() for action in Action}
    return " ".join(names[move] for step in itertools.zip_longest(*rows, fillvalue="W") for move in step)


class MapfEnv(vf.SingleAgentEnv):
    """One reply a board, or with ``turns`` a conversation: a message for each agent and step, answered with a word."""

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        """Play one board."""
        if not task.data.turns:
            await super().run(task, agents)
            return
        game = Game(task.data.level, task.data.turns)
        async with agents.agent.interaction(task) as interaction:
            segment = await interaction.turn()
            while not segment.terminated:
                game.play(segment.last_reply)
                if game.over:
                    break
                segment = await interaction.turn(game.message)
