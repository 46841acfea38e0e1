"""Branches: from one saved state a network is trained on each of several designs, and what each gains is written."""

import contextlib
import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from engineer.evidence.answers import standard_error
from jaxlake.generate import Dataset
from rl import config as config_
from rl.config import ConfigError
from rl.lab.designs import BranchPlan, Design, deduplicate, draw_designs, model_designs, rule_designs
from rl.lab.gains import Gain, KindRow, append_gains, finished_designs
from rl.lab.states import keep_state, need_player
from rl.learn.boards import join_boards
from rl.loop.rounds import past_rounds
from rl.model.policy import pin
from rl.run.directory import RunDirectory
from rl.run.keys import Purpose, make_key
from rl.run.signals import Stop
from rl.run.tracking import Display
from rl.students import PlayerStudent, Student, create

LANES = 24
"""Branches of a network that are trained together: more take no less time a branch on a CPU, and 40 MB each."""


@dataclasses.dataclass(frozen=True)
class BranchRequest:
    """The user's request for branches from a state.

    Attributes:
      models: folders of language models whose designs are added, from evidence as it is and shuffled.
      updates: updates of a branch; None: those of a round.
      samples: plays of a board before and after a branch.
    """

    designs: int
    each_kind: bool
    rules: bool
    models: Sequence[Path]
    repeats: int
    updates: int | None
    samples: int


def branch_from(run: Path, request: BranchRequest, out: Path, display: Display, stop: Stop) -> None:
    """Train branches from the last state of a run, as far as the folder `out` lacks them; the run stays as it is.

    Raises:
      ConfigError: if the run has no network or no finished round, or the folder has other branches of this state.
      Interrupted: on a signal, with all gains kept that have come.
    """
    config = config_.load(run / "config.yaml")
    need_player(config)
    with contextlib.closing(RunDirectory(run, config)) as directory:
        with stop.interrupt_immediately():
            student = create(pin(config, directory.checkpoints.source()))
            assert isinstance(student, PlayerStudent)  # as `need_player` makes sure
            student.restore(directory, display)
            progress = student.state.progress
            if not progress.history:
                raise ConfigError(f"--run {run}: has no finished round yet, after which a design would be asked for")
            designs = deduplicate(_designs(student, request))
        updates = request.updates or config.student.updates
        plan = BranchPlan(f"{run} round {progress.round}", progress.round, tuple(designs), request.repeats, updates)
        keep_state(out, plan.state, progress)
        branch_all(plan, BranchTrainer(student, plan, request.samples), out, display, stop)


def branch_all(plan: BranchPlan, trainer: "BranchTrainer", out: Path, display: Display, stop: Stop) -> None:
    """Train the branches that ``gains.jsonl`` of the folder lacks, some designs at a time, and write their lines."""
    done, at_once = finished_designs(out, plan), max(1, LANES // plan.repeats)
    left = [(i, design) for i, design in enumerate(plan.designs) if i not in done]
    display.stage(f"{len(plan.designs)} designs x {plan.repeats}", len(plan.designs), done=len(done))
    for first in range(0, len(left), at_once):
        some = left[first : first + at_once]
        with stop.interrupt_immediately():
            gains = trainer.train([design for _, design in some])
        append_gains(out, plan, some, gains)
        best = max((gain.after, design.origin) for (_, design), (gain, *_) in zip(some, gains, strict=True))
        display.advance(f"best of these {best[0]:.1%} ({best[1]})", steps=len(some))


def _designs(student: Student, request: BranchRequest) -> list[Design]:
    config = student.config
    designs = rule_designs(past_rounds(student.state.progress), config.seed) if request.rules else []
    for folder in request.models:
        designs += model_designs(folder, student)
    return designs + draw_designs(config.lake.kinds, request.designs, request.each_kind, config.seed)


class BranchTrainer:
    """Trains branches of a network from its state, all repeats of several designs in one program, and their gains."""

    def __init__(self, student: PlayerStudent, plan: BranchPlan, samples: int):
        self._student, self._repeats, self._samples = student, plan.repeats, samples
        student.settings = student.settings.model_copy(update={"updates": plan.updates})
        self._key = make_key(student.config.seed, Purpose.BRANCH, student.state.progress.round)
        parts = [student.validation] + ([] if student.other_boards is None else [student.other_boards])
        self._boards: Dataset = join_boards(parts)
        self._is_target = np.arange(len(self._boards.kinds)) < len(student.validation.kinds)

    @functools.cached_property  # at the first design: where all are there already, nothing is compiled
    def _before(self) -> np.ndarray:
        return self._student.valid_shares(self._student.state.learner, self._boards, self._samples)[0]

    def train(self, designs: Sequence[Design]) -> list[list[Gain]]:
        """Train all repeats of some designs and return their gains, ``[designs][repeats]``."""
        before, kinds = self._before, self._boards.kinds
        learner = self._student.branch([design.config for design in designs], self._repeats, self._key)
        after = self._student.valid_shares(learner, self._boards, self._samples)
        after = after.reshape(len(designs), self._repeats, -1)
        return [[measure(before, shares, kinds, self._is_target) for shares in of_design] for of_design in after]


def measure(before: np.ndarray, after: np.ndarray, kinds: np.ndarray, is_target: np.ndarray) -> Gain:
    """Return the gain of a branch from valid shares ``[boards]`` before and after it."""

    first, last = before[is_target], after[is_target]
    by_kind = {
        kind: KindRow(before=float(before[kinds == kind].mean()), after=float(after[kinds == kind].mean()))
        for kind in sorted(set(kinds.tolist()))
    }
    return Gain(
        before=float(first.mean()),
        after=float(last.mean()),
        gain=float(last.mean()) - float(first.mean()),
        gain_se=standard_error(last - first),
        by_kind=by_kind,
    )
