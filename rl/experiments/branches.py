"""Branches: from one saved state a student is trained on each of several designs, and what each gains is written."""

import contextlib
import dataclasses
import functools
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from engineer.evidence import Evidence, KindEvidence
from engineer.evidence.answers import standard_error
from jaxlake.generate import Dataset
from jaxlake.kinds import Kind
from rl import config as config_
from rl import students
from rl.config import Config, ConfigError
from rl.experiments.designs import BranchPlan, Design, deduplicate, draw_designs, model_designs, rule_designs
from rl.experiments.gains import Change, Gain, append_gains, finished_designs
from rl.experiments.runs import RunPlan, fork
from rl.experiments.states import keep_state
from rl.rounds import execute, past_rounds
from rl.run.boards import join_boards
from rl.run.directory import RunDirectory
from rl.run.keys import Purpose, make_key
from rl.run.signals import Stop
from rl.run.tracking import Display
from rl.students import NetworkStudent, Student

LANES = 24
"""Branches of a network that are trained together: more take no less time a branch on a CPU, and 40 MB each."""


@dataclasses.dataclass(frozen=True)
class BranchRequest:
    """The user's request for branches from a state.

    Attributes:
      designs: number of random designs.
      each_kind: add a design for each kind, with all data on it.
      rules: add the designs of all rules.
      models: folders of language models whose designs are added, from evidence as it is and shuffled.
      repeats: branches of each design.
      updates: updates of a branch, GRPO steps of a language policy; None: those of a round.
      samples: plays of a board before and after a branch of a network.
    """

    designs: int
    each_kind: bool
    rules: bool
    models: Sequence[Path]
    repeats: int
    updates: int | None
    samples: int


class BranchTrainer(Protocol):
    """Trains branches of a student from its state, and measures what they gain.

    Attributes:
      at_once: designs whose branches are trained together.
    """

    at_once: int

    def train(self, designs: Sequence[tuple[int, Design]]) -> list[list[Gain]]:
        """Train all repeats of some numbered designs and return their gains, ``[designs][repeats]``."""
        ...


def branch_from(run: Path, request: BranchRequest, out: Path, display: Display, stop: Stop) -> None:
    """Train branches from the last state of a run, as far as the folder `out` lacks them; the run stays as it is.

    Raises:
      ConfigError: if the run has no finished round, or the folder has other branches of this state.
      Interrupted: on a signal, with all gains kept that have come.
    """
    config = config_.load(run / "config.yaml")
    with contextlib.closing(RunDirectory(run, config)) as directory:
        with stop.interrupt_immediately():
            student = students.create(config)
            student.restore(directory, display)
            progress = student.state.progress
            if not progress.history:
                raise ConfigError(f"--run {run}: has no finished round yet, after which a design would be asked for")
            designs = _designs(student, request)
        name, updates = f"{run} round {progress.round}", request.updates or _updates_of_a_round(config)
        plan = BranchPlan(name, progress.round, tuple(deduplicate(designs)), request.repeats, updates)
        trainer: BranchTrainer
        if isinstance(student, NetworkStudent):
            trainer = NetworkTrainer(student, plan, request.samples)
        else:
            directory.close()  # its branches copy its checkpoint, under its lock
            trainer = LanguageTrainer(student, plan, RunPlan(run, config, None), out, display, stop)
        keep_state(out, name, progress)
        branch_all(plan, trainer, out, display, stop)


def branch_all(plan: BranchPlan, trainer: BranchTrainer, out: Path, display: Display, stop: Stop) -> None:
    """Train the branches that ``gains.jsonl`` of the folder lacks, some designs at a time, and write their lines."""
    done = finished_designs(out, plan)
    left = [(i, design) for i, design in enumerate(plan.designs) if i not in done]
    display.stage(f"{len(plan.designs)} designs x {plan.repeats}", len(plan.designs), done=len(done))
    for first in range(0, len(left), trainer.at_once):
        some = left[first : first + trainer.at_once]
        with stop.interrupt_immediately():
            gains = trainer.train(some)
        append_gains(out, plan, some, gains)
        best = max((gain.overall.after, design.origin) for (_, design), (gain, *_) in zip(some, gains, strict=True))
        display.advance(f"best of these {best[0]:.1%} ({best[1]})", steps=len(some))


def _designs(student: Student, request: BranchRequest) -> list[Design]:
    config = student.config
    designs = rule_designs(past_rounds(student.state.progress), config.seed) if request.rules else []
    for folder in request.models:
        designs += model_designs(folder, student)
    return designs + draw_designs(config.lake.kinds, request.designs, request.each_kind, config.seed)


def _updates_of_a_round(config: Config) -> int:
    return config.student.network.updates if config.plays else config.rounds.instances // config.grpo.prompts


class NetworkTrainer:
    """A `BranchTrainer` of a network: all repeats of several designs are lanes of one program.

    Args:
      samples: plays of each board, before and after.
    """

    def __init__(self, student: NetworkStudent, plan: BranchPlan, samples: int):
        self.at_once = max(1, LANES // plan.repeats)
        self._student, self._repeats, self._samples = student, plan.repeats, samples
        student.settings = student.settings.model_copy(update={"updates": plan.updates})
        self._key = make_key(student.config.seed, Purpose.BRANCH, student.state.progress.round)
        parts = [student.validation] + ([] if student.other_boards is None else [student.other_boards])
        self._boards: Dataset = join_boards(parts)
        self._is_target = np.arange(len(self._boards.kinds)) < len(student.validation.kinds)

    @functools.cached_property  # at the first design: where all are there already, nothing is compiled
    def _before(self) -> np.ndarray:
        return self._student.valid_shares(self._student.state.learner, self._boards, self._samples)[0]

    def train(self, designs: Sequence[tuple[int, Design]]) -> list[list[Gain]]:
        """Train all repeats of some designs in one program."""
        before = self._before
        learner = self._student.branch([design.config for _, design in designs], self._repeats, self._key)
        after = self._student.valid_shares(learner, self._boards, self._samples)
        after = after.reshape(len(designs), self._repeats, -1)
        return [
            [network_gain(before, share, self._boards.kinds, self._is_target) for share in shares] for shares in after
        ]


def network_gain(before: np.ndarray, after: np.ndarray, kinds: np.ndarray, is_target: np.ndarray) -> Gain:
    """Return the gain of a branch from valid shares ``[boards]`` before and after it."""

    def change(where: np.ndarray) -> Change:
        first, last = before[where], after[where]
        return Change(float(first.mean()), float(last.mean()), standard_error(last - first))

    by_kind: dict[Kind, Change] = {kind: change(kinds == kind) for kind in sorted(set(kinds.tolist()))}
    return Gain(change(is_target), by_kind)


class LanguageTrainer:
    """A `BranchTrainer` of a language policy: each branch continues the run for one short round, in its own folder.

    Args:
      source: the run, which is over.
      out: the folder whose ``branches`` hold the branch that is trained.
    """

    at_once = 1

    def __init__(self, student: Student, plan: BranchPlan, source: RunPlan, out: Path, display: Display, stop: Stop):
        self._plan, self._source, self._out, self._display, self._stop = plan, source, out, display, stop
        self._before = past_rounds(student.state.progress)[-1].evidence

    def train(self, designs: Sequence[tuple[int, Design]]) -> list[list[Gain]]:
        """Train all repeats of some designs, one after the other."""
        return [
            [self._branch(f"{number}-{repeat}", design, repeat) for repeat in range(self._plan.repeats)]
            for number, design in designs
        ]

    def _branch(self, name: str, design: Design, repeat: int) -> Gain:
        plan, config, k = self._plan, self._source.config, self._plan.round
        changes = {
            "seed": config.seed + 1 + repeat,
            "rounds": {"count": k + 1, "instances": plan.updates * config.grpo.prompts, "epochs": 1},
            # A history one round longer needs more room, and nobody reads or is taught one in a branch.
            "engineer": {"kind": "previous"},
            "warm_start": {"steps": 0},
            "grpo": {"engineer_every": 0, "schedule": "constant"},  # the updates are few, and all at one rate
        }
        values = config_.merge(config.model_dump(mode="json"), changes, "a branch")
        branch = RunPlan(
            self._out / "branches" / name, config_.validate(Config, values, "a branch"), origin=self._source
        )
        fork(branch, {"stage": "rounds", "lake": design.config.to_dict(), "rationale": ""})
        with contextlib.closing(RunDirectory(branch.path, branch.config)) as directory:
            directory.write(f"rounds/{k}/proposal.json", {"projected": design.config.to_dict()})
            execute(branch.config, directory, self._display, self._stop)
        after = Evidence.from_json(config_.read(branch.path / f"rounds/{k}/evidence.json"))
        shutil.rmtree(branch.path)  # what is kept of it are its numbers: hundreds of them would fill a disk
        return language_gain(self._before, after)


def language_gain(before: Evidence, after: Evidence) -> Gain:
    """Return the gain of a branch; errors as if the answers before and after were independent, which is cautious."""

    def change(first: Evidence | KindEvidence, last: Evidence | KindEvidence) -> Change:
        assert first.sampled_valid is not None and last.sampled_valid is not None  # `validation.samples` is at least 1
        error = math.hypot(first.sampled_se or 0.0, last.sampled_se or 0.0)
        return Change(first.sampled_valid, last.sampled_valid, error)

    rows = {row.kind: row for row in before.by_kind}
    return Gain(change(before, after), {row.kind: change(rows[row.kind], row) for row in after.by_kind})
