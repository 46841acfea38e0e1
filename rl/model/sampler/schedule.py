"""Assignment of requests to rows: the host's bookkeeping, the same on every process; knows no arrays of devices."""

from collections import deque
from collections.abc import Sequence

import jax
import numpy as np


class Schedule:
    """The rows of every shard of every process, and the prompts that wait for them.

    All processes bring equally many prompts and learn which rows are done, so each can follow what all of them do, and
    they make the same calls. A prompt's samples stay together on one shard.

    Args:
      owners: the process of each shard.
      width: rows of a shard, at least `samples`.
      prompts: number of prompts of each process; its shards take turns in getting them.
      samples: answers to a prompt, each a request: sample j of prompt i is number ``i * samples + j``.

    Attributes:
      batch: prompts that a shard admits at once.
    """

    def __init__(self, owners: Sequence[int], width: int, prompts: int, samples: int):
        self.samples = samples
        self.mine = np.array([owner == jax.process_index() for owner in owners])
        self.held = np.full((len(owners), width), -1)  # [shards, width], the request in each row
        turns = [owners[:shard].count(owner) for shard, owner in enumerate(owners)]
        self.queues = [
            deque(range(turn, prompts, owners.count(owner))) for turn, owner in zip(turns, owners, strict=True)
        ]
        # Answers to them fill a quarter of its rows. With more, rows stay empty for longer and the prefill takes more
        # memory; with fewer, decoding is interrupted more often. A shard with fewer left prefills gaps: one program.
        self.batch = max(1, width // samples // 4)

    @property
    def active(self) -> bool:
        """Whether anything waits or is under way."""
        return any(self.queues) or bool((self.held >= 0).any())

    @property
    def need(self) -> np.ndarray:
        """Return the rows, int32, that must be free on each shard for its next admission; too many if nothing waits."""
        never = self.held.shape[1] + 1
        return np.array([min(self.batch, len(q)) * self.samples if q else never for q in self.queues], np.int32)

    @property
    def ready(self) -> bool:
        """Whether some shard has room for its next admission; the others then join with what they have."""
        return bool(((self.held < 0).sum(axis=1) >= self.need).any())

    @property
    def local(self) -> np.ndarray:
        """Return the requests in this process's rows, -1 where there is none."""
        return self.held[self.mine].reshape(-1)

    def admit(self) -> list[list[tuple[int, np.ndarray]]]:
        """Take from every queue what fits; for each of this process's shards its prompts, each with its rows."""
        entering = []
        for held, queue in zip(self.held, self.queues, strict=True):
            free = np.flatnonzero(held < 0)
            groups = []
            for place in range(min(self.batch, len(queue), len(free) // self.samples)):
                prompt, rows = queue.popleft(), free[place * self.samples : (place + 1) * self.samples]
                held[rows] = prompt * self.samples + np.arange(self.samples)
                groups.append((prompt, rows))
            entering.append(groups)
        return [groups for groups, mine in zip(entering, self.mine, strict=True) if mine]

    def release(self, done: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Free the rows that are done, bool ``[B]``; return those of this process and the requests they held."""
        before = self.local
        self.held[done.reshape(self.held.shape)] = -1
        rows = np.flatnonzero((before >= 0) & (self.local < 0))
        return rows, before[rows]
