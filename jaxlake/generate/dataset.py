"""The generator's result and the report on each kind; draws and solves nothing."""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from jaxlake.generate.candidates import Shape
from jaxlake.generate.search import Account, Found, Quotas
from jaxlake.kinds import Family, Kind
from jaxlake.record import Array
from jaxlake.types import Instance, Solution


@dataclasses.dataclass(frozen=True)
class KindReport:
    """A kind's quotas, and what was found for them.

    Candidates are counted up to the end of the block of 128 that completed the quotas, so no figure depends on the size
    of the batches in which they were searched.

    Attributes:
      requested, realised: number of instances.
      requested_waits, realised_waits: number of them in which every optimal plan waits.
      requested_interacting, realised_interacting: number of them in which an agent waits or the optimum exceeds the
        shortest paths; None requested where that was left as it comes.
      repeated: number of the realised that are copies of others, for want of different ones.
      holes: holes per board, of families other than random their mean.
      hole_ratio: of random boards the same as a share of the cells that are neither start nor goal, of others the
        density that was asked for.
      candidates: random boards tried.
      known: number of them that were dropped unsearched, as excluded or as having occurred before.
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
    holes: float
    hole_ratio: float
    candidates: int
    known: int
    solvable: float
    undecided: int

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
        """Return the measured config in the form of ``LakeConfig.to_dict``; 0 waits for a kind without instances."""
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


def assemble(parts: Sequence[Found], report: Sequence[KindReport], key: Array) -> Dataset:
    """Return all boards in one random order; ``parts`` are those of each kind that has some, in the report's order."""
    together = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    order = np.asarray(jax.random.permutation(key, len(together)))
    shuffled, kinds = together[order], np.repeat([entry.kind for entry in report], [entry.realised for entry in report])
    return Dataset(shuffled.instances, shuffled.solutions, shuffled.needs_wait, kinds[order], tuple(report))


def report_kind(shape: Shape, quotas: Quotas, found: Found | None, repeated: int, account: Account) -> KindReport:
    """Return a kind's quotas beside what was found for them; None where nothing was."""
    kind = shape.kind
    free = kind.size**2 - 2 * kind.num_agents
    drawn = kind.family is Family.RANDOM  # to a number of holes, of which the ratio follows
    holes = shape.holes if drawn or found is None else float(found.instances.holes.sum(axis=1).mean())
    searched = account.candidates - account.known
    return KindReport(
        kind=kind,
        requested=quotas.total,
        realised=0 if found is None else len(found),
        requested_waits=quotas.waits or 0,
        realised_waits=0 if found is None else int(np.sum(found.needs_wait)),
        requested_interacting=quotas.interacting,
        realised_interacting=0 if found is None else int(np.sum(found.interacts)),
        repeated=repeated,
        holes=holes,
        hole_ratio=(shape.holes / free if free else 0.0) if drawn else shape.density,
        candidates=account.candidates,
        known=account.known,
        solvable=account.solved / searched if searched else 0.0,
        undecided=len(account.undecided),
    )
