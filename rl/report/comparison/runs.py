"""The directory of a comparison as values: which runs are finished, what they trained on and answered. Reads only."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from rl.lab.comparison import reopen
from rl.lab.held_out import EVALUATION, AnswerColumns, BoardColumns, HeldOut
from rl.report.run import Round, read_rounds


@dataclasses.dataclass(frozen=True)
class FinishedRun:
    """A finished run: its rounds, shared ones first, and its answers after those and in the end."""

    rounds: tuple[Round, ...]
    before: AnswerColumns
    after: AnswerColumns

    @property
    def curve(self) -> tuple[float | None, ...]:
        """The share of samples valid on its own validation after each round; None where nothing was sampled."""
        return tuple(past.evidence.sampled_valid for past in self.rounds if past.evidence)


@dataclasses.dataclass(frozen=True, eq=False)
class ComparisonResult:
    """The finished part of a comparison.

    Attributes:
      ceiling: the first engineer of kind `hindsight`, up to which there is headroom; None without one.
      boards: the held-out boards, the same for every policy.
      runs: runs by engineer, the baseline first, and seed.
      shared_rounds: number of first rounds that all engineers share.
      left_out: names of the runs that are not finished.
    """

    name: str
    baseline: str
    ceiling: str | None
    boards: BoardColumns
    runs: Mapping[str, Mapping[int, FinishedRun]]
    shared_rounds: int
    left_out: tuple[str, ...]


def read(out: str | Path) -> ComparisonResult:
    """Read the directory of ``python -m rl.compare``; runs that are not finished are left out and listed."""
    out = Path(out)
    resolved = reopen(out)
    boards: BoardColumns | None = None
    runs: dict[str, dict[int, FinishedRun]] = {}
    left_out = []
    for engineer in sorted(resolved.engineers, key=lambda name: name != resolved.baseline):
        for seed in resolved.seeds:
            folders = out / "start" / f"seed{seed}", out / "arms" / engineer / f"seed{seed}"
            if not all((folder / EVALUATION).exists() for folder in folders):
                left_out.append(f"{engineer} seed {seed}")
                continue
            before, after = (HeldOut.model_validate_json((folder / EVALUATION).read_bytes()) for folder in folders)
            boards = boards or before.boards
            if not boards.id == before.boards.id == after.boards.id:
                raise ValueError(f"{folders[1]}: its held-out boards are not those of the other runs")
            finished = FinishedRun(read_rounds(folders[1]), before.answers, after.answers)
            runs.setdefault(engineer, {})[seed] = finished
    if boards is None or resolved.baseline not in runs:
        raise ValueError(f"{out}: none of the runs of its baseline {resolved.baseline} is finished")
    kinds = {name: resolved.configure(name, resolved.seeds[0]).engineer.kind for name in runs}
    return ComparisonResult(
        name=out.resolve().name,
        baseline=resolved.baseline,
        ceiling=next((name for name, kind in kinds.items() if kind == "hindsight"), None),
        boards=boards,
        runs=runs,
        shared_rounds=resolved.shared_rounds,
        left_out=tuple(left_out),
    )
