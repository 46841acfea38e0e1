"""The directory of a comparison as values: which runs are finished, what they trained on and answered. Reads only."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from engineer.evidence import Evidence
from jaxlake.config import LakeConfig
from jaxlake.kinds import row_name
from rl.config import EngineerSection
from rl.judge.statistics import cell_weights
from rl.lab.comparison import reopen
from rl.lab.held_out import EVALUATION, AnswerColumns, HeldOut, number_cells, read_held_out
from rl.report.run import naming

Curve = tuple[float | None, ...]
"""Share of samples valid on the run's own validation after each round, shared ones first; None: nothing sampled."""


@dataclasses.dataclass(frozen=True)
class Boards:
    """The held-out boards, the same for every policy; numpy arrays ``[boards]``, ``size`` holds `Kind.board`."""

    id: np.ndarray
    agents: np.ndarray
    size: np.ndarray
    wait_subset: np.ndarray

    @property
    def cells(self) -> np.ndarray:
        """The number of agents and the size in one, int ``[boards]``."""
        return number_cells(self.agents, self.size)

    @property
    def strata(self) -> np.ndarray:
        """The slice of its suite that a board was drawn in, int ``[boards]``."""
        return 1000 * self.cells + np.rint(100 * self.wait_subset).astype(int)

    def by_agents(self) -> dict[int | None, np.ndarray]:
        """Return for each number of agents, and under None for several, the boards' weights in a mean over cells."""
        numbers = np.unique(self.agents).tolist()
        groups: dict[int | None, np.ndarray] = {n: cell_weights(self.cells, self.agents == n) for n in numbers}
        return groups if len(numbers) == 1 else groups | {None: cell_weights(self.cells, self.agents > 0)}


@dataclasses.dataclass(frozen=True)
class FinishedRun:
    """A finished run: designs and validations, answers after the shared rounds and in the end."""

    designs: tuple[LakeConfig, ...]
    curve: Curve
    before: AnswerColumns
    after: AnswerColumns


@dataclasses.dataclass(frozen=True, eq=False)
class ComparisonResult:
    """The finished part of a comparison.

    Attributes:
      engineers: settings of each engineer with a finished run, the baseline first.
      runs: runs by engineer, in the order of ``engineers``, and seed.
      shared_rounds: number of first rounds that all engineers share.
      left_out: names of the runs that are not finished.
    """

    name: str
    baseline: str
    engineers: Mapping[str, EngineerSection]
    boards: Boards
    runs: Mapping[str, Mapping[int, FinishedRun]]
    shared_rounds: int
    left_out: tuple[str, ...]

    @property
    def others(self) -> tuple[str, ...]:
        """The engineers without the baseline."""
        return tuple(self.engineers)[1:]

    @property
    def before(self) -> dict[int, AnswerColumns]:
        """The answers by seed of the policy that all engineers begin with."""
        return {seed: run.before for runs in self.runs.values() for seed, run in runs.items()}

    @property
    def start(self) -> str:
        """The row of this policy in tables."""
        return f"round {self.shared_rounds - 1}"

    @property
    def axis_name(self) -> str:
        kinds = next(iter(self.runs[self.baseline].values())).designs[0].kinds
        return "board size" if row_name(kinds) == "size" else "kind of boards"

    def of_kind(self, kind: str) -> str | None:
        return next((name for name, settings in self.engineers.items() if settings.kind == kind), None)

    def paired_seeds(self, engineer: str) -> tuple[int, ...]:
        """Return the seeds that are finished with this engineer and with the baseline."""
        return tuple(seed for seed in self.runs[engineer] if seed in self.runs[self.baseline])


def read(out: str | Path) -> ComparisonResult:
    """Read the directory of ``python -m rl.compare``; runs that are not finished are left out and named.

    Raises:
      ValueError: no comparison, none of its baseline's runs finished, a file that is broken, or policies that were
        asked about different boards; one line.
    """
    out = Path(out)
    resolved = reopen(out)
    held_out: dict[Path, HeldOut] = {}
    runs: dict[str, dict[int, FinishedRun]] = {}
    left_out = []
    for engineer in sorted(resolved.engineers, key=lambda name: name != resolved.baseline):
        for seed in resolved.seeds:
            start, end = out / "start" / f"seed{seed}", out / "arms" / engineer / f"seed{seed}"
            paths = [folder / EVALUATION for folder in (start, end)]
            if not all(path.exists() for path in paths):
                left_out.append(f"{engineer} seed {seed}")
                continue
            held_out |= {path: read_held_out(path) for path in paths if path not in held_out}
            before, after = (held_out[path].answers for path in paths)
            runs.setdefault(engineer, {})[seed] = _run(end / "rounds", before, after)
    if resolved.baseline not in runs:
        raise ValueError(f"{out}: none of the runs of its baseline {resolved.baseline} is finished")
    (first, one), *others = held_out.items()
    for path, other in others:
        if other.boards.id != one.boards.id:
            raise ValueError(f"{path}: its boards are not those of {first}")
    return ComparisonResult(
        name=out.resolve().name,
        baseline=resolved.baseline,
        engineers={name: resolved.configure(name, resolved.seeds[0]).engineer for name in runs},
        boards=Boards(
            np.array(one.boards.id),
            np.array(one.boards.agents),
            np.array(one.boards.size, object),
            np.array(one.boards.wait_subset),
        ),
        runs=runs,
        shared_rounds=resolved.shared_rounds,
        left_out=tuple(left_out),
    )


def _run(rounds: Path, before: AnswerColumns, after: AnswerColumns) -> FinishedRun:
    designs, curve = [], []
    for path in sorted(rounds.glob("*/evidence.json"), key=lambda path: int(path.parent.name)):
        config = path.with_name("config.json")
        with naming(config):
            designs.append(LakeConfig.from_dict(json.loads(config.read_text(encoding="utf-8"))))
        with naming(path):
            curve.append(Evidence.from_json(json.loads(path.read_text(encoding="utf-8"))).sampled_valid)
    return FinishedRun(tuple(designs), tuple(curve), before, after)
