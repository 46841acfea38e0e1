"""What comes out of the generator, and the account of how it came about; draws and solves nothing."""

import dataclasses

import numpy as np

from jaxlake.kinds import Kind
from jaxlake.types import Instance, Solution

GAPS = ("0", "1", "2", "3+")
"""The classes of ``KindReport.gaps``: how far the optimum exceeds the agents' independent shortest paths."""


@dataclasses.dataclass(frozen=True)
class KindReport:
    """A kind's quotas, and what was found for them.

    Candidates are counted up to the end of the block of 128 that completed the quotas, so no figure depends on the size
    of the batches in which they were searched.

    Attributes:
      kind: of the boards.
      requested, realised: number of instances.
      requested_waits, realised_waits: number of them in which every optimal plan waits.
      requested_interacting, realised_interacting: number of them in which somebody waits or the optimum exceeds the
        shortest paths; None requested where that was left as it comes.
      repeated: number of the realised that are copies of others, for want of different ones.
      gaps: number of the realised by optimum less the shortest paths, classes as in ``GAPS``.
      holes: holes per board, of families other than random their mean.
      hole_ratio: of random boards the same as a share of the cells that are neither start nor goal, of others the
        density that was asked for.
      candidates: random boards tried.
      known: how many of them were dropped unsearched, as excluded or as having occurred before.
      solvable: share of the candidates searched that have a plan, 0 if none was searched.
      undecided: candidates dropped because a search ran out of its budget.
    """

    kind: Kind
    requested: int
    realised: int
    requested_waits: int
    realised_waits: int
    requested_interacting: int | None
    realised_interacting: int
    repeated: int
    gaps: tuple[int, ...]
    holes: float
    hole_ratio: float
    candidates: int
    known: int
    solvable: float
    undecided: int

    @property
    def acceptance(self) -> float:
        """Different instances realised per candidate tried, 0 if none was tried."""
        return (self.realised - self.repeated) / max(self.candidates, 1)

    def shortfalls(self) -> tuple[str, ...]:
        """Return a line for each quota that was lowered."""
        lines = []
        for what, asked, got in (
            ("need a wait", self.requested_waits, self.realised_waits),
            ("interact", self.requested_interacting, self.realised_interacting),
        ):
            if asked is not None and got < asked:
                lines.append(f"{self.kind.words}: {got} instances {what}, {asked} were asked for")
        if self.repeated:
            lines.append(f"{self.kind.words}: {self.repeated} of {self.realised} instances are repetitions of others")
        return tuple(lines)


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Solved instances in random order; numpy arrays.

    Attributes:
      instances: ``[count]``.
      solutions: ``[count]``, all ``SOLVED``.
      needs_wait: bool ``[count]``, every optimal plan contains a wait before an arrival.
      kinds: object ``[count]``, the ``Kind`` of each.
      report: one entry per kind of the config.
    """

    instances: Instance
    solutions: Solution
    needs_wait: np.ndarray
    kinds: np.ndarray
    report: tuple[KindReport, ...]

    def realised(self) -> dict[str, dict[str, float]]:
        """The config as measured, in the form of ``LakeConfig.to_dict``; 0 waits for a kind without instances."""
        total = sum(entry.realised for entry in self.report)
        return {
            str(entry.kind): {
                "data": entry.realised / total,
                "hole": entry.hole_ratio,
                "wait": entry.realised_waits / max(entry.realised, 1),
            }
            for entry in self.report
        }

    def shortfalls(self) -> tuple[str, ...]:
        """Return a line for each quota that was lowered; empty where the config was met."""
        return tuple(line for entry in self.report for line in entry.shortfalls())
