"""The directory of a comparison as values: which policies are finished and what they answered. Reads only."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from engineer.evidence import CHECKS
from rl.report import run as runs
from rl.slices import Slice, number_cells, slices

EVALUATION = "evaluation.json"
OUTCOMES = (*CHECKS, "valid")
"""Outcomes of an answer: the first check that it fails, or valid; they are kept as places here."""


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

    def slices(self) -> Iterator[Slice]:
        """Yield slices by number of agents, wait subset and size, see `rl.slices.slices`."""
        return slices(self.agents, self.wait_subset, self.size)

    def by_agents(self) -> list[Slice]:
        """List the slices of each number of agents, and of all of them where there are several."""
        return [part for part in self.slices() if part.whole and part.size is None]


@dataclasses.dataclass(frozen=True)
class Answers:
    """The answers of one policy to the boards; numpy arrays ``[boards]``.

    Attributes:
      valid, optimal: bool, of the greedy answer.
      outcome: int, its place in ``OUTCOMES``.
      sampled_valid: float, share of the samples that are valid; None where nothing was sampled.
    """

    valid: np.ndarray
    optimal: np.ndarray
    outcome: np.ndarray
    sampled_valid: np.ndarray | None


@dataclasses.dataclass(frozen=True)
class Arm:
    """A finished run of one engineer with one seed.

    Attributes:
      run: its validations, rounds and steps; the first round is the one that all engineers share.
      before: what the policy answered after that round.
      after: what the policy answered in the end.
    """

    run: runs.Run
    before: Answers
    after: Answers


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """A comparison, as far as it is finished.

    Attributes:
      name: that of its directory.
      baseline: the engineer that the others are measured against.
      seeds: those that were asked for.
      settings: kind and context of each engineer.
      boards: held out from training.
      arms: by engineer and seed, the baseline first, then in the order of the configuration; no engineer without one.
      left_out: names of the runs that are not finished.
    """

    name: str
    baseline: str
    seeds: tuple[int, ...]
    settings: Mapping[str, Mapping[str, Any]]
    boards: Boards
    arms: Mapping[str, Mapping[int, Arm]]
    left_out: tuple[str, ...]

    @property
    def engineers(self) -> tuple[str, ...]:
        """The engineers with a finished run, the baseline first."""
        return tuple(self.arms)

    @property
    def others(self) -> tuple[str, ...]:
        """The engineers without the baseline."""
        return self.engineers[1:]

    @property
    def before(self) -> dict[int, Answers]:
        """The answers by seed of the policy that all engineers begin with."""
        return {seed: arm.before for arms in self.arms.values() for seed, arm in arms.items()}

    def against(self, baseline: str) -> "Comparison":
        """Return the comparison as measured against another of its engineers.

        Raises:
          ValueError: if it has none of this name.
        """
        if baseline not in self.arms:
            raise ValueError(f"{self.name} has no engineer {baseline!r}; it has {', '.join(self.arms)}")
        arms = {baseline: self.arms[baseline]} | dict(self.arms)
        return dataclasses.replace(self, baseline=baseline, arms=arms)

    def paired_seeds(self, engineer: str) -> tuple[int, ...]:
        """Return the seeds that are finished with this engineer and with the baseline."""
        return tuple(seed for seed in self.arms[engineer] if seed in self.arms[self.baseline])


def read(out: str | Path) -> Comparison:
    """Read the directory of ``python -m rl.compare``; what is not finished is left out and named.

    Raises:
      ValueError: no comparison, none of its baseline's runs finished, a file that is broken, or policies that were
        asked about different boards; one line.
    """
    out = Path(out)
    asked = _asked(out / "compare.yaml")
    settings = asked["engineers"]
    evaluations: dict[Path, tuple[Boards, Answers]] = {}
    arms: dict[str, dict[int, Arm]] = {}
    left_out = []
    for engineer in sorted(settings, key=lambda name: name != asked["baseline"]):
        for seed in asked["seeds"]:
            folder, origin = out / "arms" / engineer / f"seed{seed}", out / "start" / f"seed{seed}"
            if not ((folder / EVALUATION).exists() and (origin / EVALUATION).exists()):
                left_out.append(f"{engineer} seed {seed}")
                continue
            for path in (origin, folder):
                evaluations[path] = evaluations.get(path) or _evaluation(path / EVALUATION)
            arm = Arm(runs.read(folder), evaluations[origin][1], evaluations[folder][1])
            arms.setdefault(engineer, {})[seed] = arm
    if asked["baseline"] not in arms:
        raise ValueError(f"{out}: none of the runs of its baseline {asked['baseline']} is finished")
    (first, (boards, _)), *others = evaluations.items()
    for path, (its, _) in others:
        if not np.array_equal(its.id, boards.id):
            raise ValueError(f"{path / EVALUATION}: its boards are not those of {first / EVALUATION}")
    return Comparison(
        name=out.resolve().name,
        baseline=asked["baseline"],
        seeds=asked["seeds"],
        settings={name: settings[name] for name in arms},
        boards=boards,
        arms=arms,
        left_out=tuple(left_out),
    )


def _asked(path: Path) -> dict[str, Any]:
    """Read the baseline, the seeds, and the settings of each engineer with those that all have in common."""
    if not path.exists():
        raise ValueError(f"{path.parent}: no comparison, it has no {path.name}")
    with runs.naming(path, "no comparison's settings"):
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
        common = settings["run"]["engineer"]
        engineers = {name: {**common, **(values or {})} for name, values in settings["engineers"].items()}
        return {"baseline": settings["baseline"], "seeds": tuple(settings["seeds"]), "engineers": engineers}


def _evaluation(path: Path) -> tuple[Boards, Answers]:
    with runs.naming(path, "no evaluation of held-out boards"):
        evaluation = json.loads(path.read_text(encoding="utf-8"))
        boards, answers = evaluation["boards"], evaluation["answers"]
        columns = {key: _column(boards, key, len(boards["id"]), kind) for key, kind in _BOARDS.items()}
        return Boards(**columns), _answers(answers, len(boards["id"]))


_BOARDS = {"id": str, "agents": int, "size": object, "wait_subset": float}


def _answers(columns: Mapping[str, Sequence[Any]], count: int) -> Answers:
    kinds: dict[str, type] = {"valid": bool, "optimal": bool}
    if columns["sampled_valid"] is not None:
        kinds["sampled_valid"] = float
    read = {"sampled_valid": None} | {name: _column(columns, name, count, kind) for name, kind in kinds.items()}
    failures = _column(columns, "first_failure", count, object)
    for check in failures:
        if check is not None and check not in CHECKS:
            raise ValueError(f"first_failure {check!r} must be null or one of {', '.join(CHECKS)}")
    outcome = np.array([OUTCOMES.index(check or "valid") for check in failures], int)
    if (read["valid"] != (outcome == OUTCOMES.index("valid"))).any() or (read["optimal"] & ~read["valid"]).any():
        raise ValueError("an answer is valid although it fails a check, or the reverse, or optimal and not valid")
    return Answers(outcome=outcome, **read)


def _column(columns: Mapping[str, Sequence[Any]], name: str, count: int, kind: type) -> np.ndarray:
    column: np.ndarray = np.array(columns[name], kind)
    if not count or column.shape != (count,):
        raise ValueError(f"{name} has shape {column.shape} for {count} boards")
    if kind is float and np.isnan(column).any():
        raise ValueError(f"{name} is no number for some boards")
    return column
