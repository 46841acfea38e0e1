"""Credit for the single tokens of an answer, from the exact solver: which one loses the reward; trains nothing.

The reward is 1 for an optimal plan. The potential of what is written so far is 1 where such a plan can still follow and
0 where none can. It is 1 before the first token, since boards are solvable, and an answer's reward after the last, so
its changes add up to the reward less 1: nothing for every token but the one that loses it. Paid as they are, changes of
a potential leave the best policy what it is (Ng, Harada & Russell 1999); `rl.learn.advantages.token_advantages` has
their weights. VinePPO (Kazemnejad et al. 2024) estimates such values by sampling on from each token. With a reward for
any valid plan a detour would cost nothing: tried in the tiny run, all answers went to and fro until they were cut off.
"""

import re
from collections.abc import Sequence

import jax
import numpy as np

from jaxlake.record import Array
from jaxlake.solve import INFINITE, completion_costs
from jaxlake.types import ABSENT, MAX_STEPS, OUTSIDE, Instance, Plan

_CELL = re.compile(r"\((\d{1,3}),(\d{1,3})\)", re.ASCII)
_BEGUN = re.compile(r"(?:\((?:\d{1,3}(?:,(?:\d{1,3})?)?)?)?", re.ASCII)
"""A cell that is not finished."""


def token_credit(
    instances: Instance, optima: Array, pieces: Sequence[Sequence[str]], rewarded: Array, room: int
) -> np.ndarray:
    """Mark each token: right, the one that loses the reward, or a later one.

    With three and more agents a lower bound replaces the cost while two or more paths are not begun
    (`jaxlake.solve.completion_costs`): the token that is blamed then never comes before the one that loses the reward,
    and may come after it.

    Args:
      instances: ``[P]`` boards.
      optima: int32 ``[P]``, their least sums of costs.
      pieces: the texts of each answer's tokens, "" for the end token, ``S`` answers to a board side by side.
      rewarded: bool ``[P * S]``, whether the answer got its reward.

    Returns:
      int8 ``[P * S, room]``: 1 for a right token, -1 for the one after which no plan that is rewarded can follow, 0
      after that and from the end on. All tokens of an answer with its reward are right, however it is written; of
      another, one that leaves the form that the prompt's examples have loses it. An answer that is cut off before it
      lost anything has 0 throughout: that there was no more room is no token's doing.
    """
    texts = ["".join(answer) for answer in pieces]
    lost = _first_lost(instances, texts, optima, min(room, MAX_STEPS), True)
    credit = np.zeros((len(pieces), room), np.int8)
    for row, (answer, place) in enumerate(zip(pieces, lost, strict=True)):
        if rewarded[row]:
            credit[row, : len(answer)] = 1
        elif place is not None and answer:
            ends = np.cumsum([len(piece) for piece in answer])
            ends[-1] += not answer[-1]  # the end token has no text, and marks the place after the last
            token = int(np.searchsorted(ends, place, side="right"))
            if token < len(answer):
                credit[row, :token], credit[row, token] = 1, -1
    return credit


def first_lost(instances: Instance, texts: Sequence[str]) -> list[int | None]:
    """Return for an answer to each board ``[P]`` the character with which the last valid plan is lost, None for none.

    It may be the one after the last: the answer ends where it should not. Nothing is said of an answer that is written
    in another form than the prompt's examples have.
    """
    return _first_lost(instances, texts, None, MAX_STEPS, False)


def _first_lost(
    instances: Instance, texts: Sequence[str], optima: Array | None, steps: int, strict: bool
) -> list[int | None]:
    """Return as `first_lost` does, for ``S`` texts a board.

    Args:
      optima: the place is that where the last plan of this cost is lost.
      strict: whether a break of the form loses it too.
    """
    boards = len(instances)
    samples = len(texts) // boards
    agents, side = instances.max_agents, instances.max_size
    paths = np.full((len(texts), agents, steps + 1), ABSENT, np.int32)
    lengths = np.zeros((len(texts), agents), np.int32)
    counts, sizes = (np.repeat(np.asarray(x), samples) for x in (instances.num_agents, instances.size))
    readings = []
    for row, text in enumerate(texts):
        cells, states, end = _read(text, int(counts[row]))
        readings.append((states, end if strict or end == len(text) else None))
        for agent, path in enumerate(cells):
            path = path[: steps + 1]
            lengths[row, agent] = len(path)
            paths[row, agent, : len(path)] = [
                r * side + c if r < sizes[row] and c < sizes[row] else OUTSIDE for r, c in path
            ]
    plans = Plan(parsable=np.any(lengths, axis=-1), num_named=(lengths > 0).sum(axis=-1), paths=paths, lengths=lengths)
    plans = jax.tree.map(lambda x: x.reshape(boards, samples, *x.shape[1:]), plans)
    costs = np.asarray(completion_costs(instances, plans)).reshape(len(texts), agents + 1, -1)
    most = np.full(len(texts), INFINITE - 1) if optima is None else np.repeat(np.asarray(optima), samples)

    def is_lost(row: int, agent: int, count: int) -> bool:
        return count >= costs.shape[2] or costs[row, agent, count] > most[row]

    return [
        next((place for place, agent, count in states if is_lost(row, agent, count)), end)
        for row, (states, end) in enumerate(readings)
    ]


def _read(text: str, agents: int) -> tuple[list[list[tuple[int, int]]], list[tuple[int, int, int]], int | None]:
    """Read a plan of `agents` paths in the one form that is taught, as `jaxlake.text.answer` writes it.

    Returns:
      The cells (row, column) of each path that is begun; what is written after each cell and each line, as the place of
      its last character, the agent whose path is under way and its cells so far; and the place at which the text
      leaves the form, None for a text that does not.
    """
    cells: list[list[tuple[int, int]]] = []
    states: list[tuple[int, int, int]] = []
    place = 0
    for agent in range(agents):
        label = f"{agent}:"
        for sign in label:
            if not text.startswith(sign, place):
                return cells, states, place
            place += 1
        cells.append([])
        while match := _CELL.match(text, place):
            place = match.end()
            cells[-1].append((int(match[1]), int(match[2])))
            states.append((place - 1, agent, len(cells[-1])))
        if agent == agents - 1:
            break
        if not text.startswith("\n", place):
            break
        states.append((place, agent + 1, 0))
        place += 1
    if len(cells) == agents and place == len(text):
        return cells, [*states, (place, agents, 0)], None
    begun = _BEGUN.match(text, place)
    assert begun is not None  # it matches the empty text
    return cells, states, begun.end()
