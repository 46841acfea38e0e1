"""The player as a student: its rounds, validations and branches, and its answers to boards."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from engineer import evidence
from engineer.evidence import TrainingEvidence
from jaxlake import text
from jaxlake.config import LakeConfig
from jaxlake.generate import Dataset, pool
from jaxlake.kinds import Kind
from jaxlake.record import Array
from jaxlake.types import ABSENT, Instance
from rl.config import Config, ConfigError, PlaySection
from rl.judge.answers import Answers, Show
from rl.learn.boards import VALIDATION_WAIT, build_boards, mixed_boards
from rl.learn.optimizer import make_optimizer
from rl.model.sampler import SamplingParams
from rl.model.sharding import fingerprint
from rl.run.directory import RunDirectory
from rl.run.keys import Purpose, make_key, make_round_key
from rl.run.recorder import Recorder
from rl.run.tracking import Display, Stopwatch
from rl.students.turns.actor import Actor, lanes
from rl.students.turns.rollout import LATE, OPTIMAL, SOLVED, Boards, Ended, count, play
from rl.students.turns.trainer import Learner, TurnTrainer

NAMES = {
    "value": "PPO",
    "group": "GRPO",
    "fitted": "policy gradient with a least-squares baseline",
}
"""What the learning with each baseline is called."""
OTHER_KINDS_WEIGHT = 0.1
"""Weight of boards that are not validated in the score of a branch."""


@dataclasses.dataclass(frozen=True)
class Player:
    """A `rl.judge.answers.Answerer` that moves turn by turn.

    Attributes:
      actor: the static half of who plays.
      rows: plays at once.
      frozen, parameters: what was not trained, and what was; one lane.
      about: plain values that affect its moves, beside the parameters.
    """

    actor: Actor
    rows: int
    frozen: Any
    parameters: Any
    about: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    first_lost: None = None

    @property
    def identity(self) -> dict[str, Any]:
        """The parameters' digest, the length of an episode, and what else affects the moves."""
        digest = fingerprint((self.parameters, self.frozen))
        return {"parameters": digest, "episode_steps": self.actor.episode_steps, **self.about}

    def answer(
        self, boards: Instance, samples: int, sampling: SamplingParams, key: jax.Array, show: Show, first: int = 0
    ) -> Answers:
        """Play each board; see `Answerer`."""
        if sampling.truncated:
            raise ConfigError("top_k and top_p: a player chooses among five moves; use the temperature alone")
        levels = jax.tree.map(lambda x: np.asarray(x)[None], boards)
        plays = []
        for number in range(samples):
            draws = jax.random.fold_in(key, number + (sampling.temperature > 0))
            draws = jax.random.fold_in(draws, first) if first else draws
            heat = float(sampling.temperature)
            plays.append(play(self.actor, self.frozen, self.parameters, levels, draws[None], heat))
            show(len(boards.size) * (number + 1))

        def side_by_side(*plays: Array) -> np.ndarray:
            return np.stack([np.asarray(x)[0] for x in plays], axis=1).reshape(-1, *plays[0].shape[2:])

        plans, steps, outcomes = jax.tree.map(side_by_side, *plays)
        return Answers(
            plans=plans,
            lengths=steps,
            truncated=outcomes == LATE,
            texts=lambda places: [text.answer(plans[i], boards.max_size) for i in places],
        )


@functools.cache
def make_trainer(actor: Actor, student: PlaySection, rounds: int) -> TurnTrainer:
    """Return the trainer of an actor; one object for equal arguments, for which programs are compiled."""
    updates = rounds * student.updates * student.learn.minibatches * student.learn.iterations
    return TurnTrainer(actor, student, actor.adapt(make_optimizer(student.learn, updates)))


class PlayerStudent:
    """A `rl.students.Student` that moves turn by turn: one actor for all agents of a board, see `TurnTrainer`.

    Its boards come from the stock of solved ones (`jaxlake.generate.pool`) where that has all kinds of the run, else
    from the generator. `NetworkPlayer` and `LanguagePlayer` add the actor.
    """

    trainer: TurnTrainer
    frozen: Any = None
    state: Any  # a `rl.run.recorder.RunState` with `learner`, a `Learner` of one lane
    description: str
    who: ClassVar[str]
    """Who plays, in the words of a report."""

    def __init__(self, config: Config):
        if jax.process_count() > 1:
            kind = config.student.kind
            raise ConfigError(f"student.kind = {kind} learns in one process; start it without --processes")
        assert isinstance(config.student, PlaySection)
        self.config, self.settings = config, config.student
        self.name = NAMES[self.settings.learn.baseline]
        self.validation: Dataset
        self._validation_key: jax.Array

    @property
    def training_summary(self) -> str:
        """The learning as the settings have it, in words for an engineer."""
        student, learn = self.settings, self.settings.learn
        sparse = student.reward == "sparse"
        reward = "Reward 1 when all agents have arrived, else 0." if sparse else f"Reward {student.reward}."
        return (
            f"{self.name[0].upper()}{self.name[1:]} of {self.who}, {student.updates} updates a round of "
            f"{student.environments} boards and {student.rollout_steps} steps each, {self.trainer.samples} plays of a "
            f"board side by side, temperature {learn.temperature:g}, learning rate {learn.learning_rate:g} "
            f"({learn.schedule}), clip {learn.clip_low:g} and {learn.clip_high:g}, at most {student.episode_steps} "
            f"steps an episode. {reward} {self.config.rounds.instances} boards a round."
        )

    def draw_validation(self, directory: RunDirectory, display: Display) -> None:
        """Draw the boards of the validations."""
        display.stage("boards", 1)
        self._validation_key = make_key(directory.validation_seed, Purpose.VALIDATION_SET)
        config = self.config
        self.validation = self._held_out(config.target_kinds, self._validation_key, config.validation.instances)
        display.advance("validation")

    @functools.cached_property
    def other_boards(self) -> Dataset | None:
        """Boards like those of the validation, of kinds that are trained on and not validated; None without such."""
        targets = self.config.target_kinds
        kinds = tuple(kind for kind in self.config.lake.kinds if kind not in targets)
        each = max(1, self.config.validation.instances // len(targets))
        key = jax.random.fold_in(self._validation_key, 2**16)
        return self._held_out(kinds, key, each * len(kinds)) if kinds else None

    def _held_out(self, kinds: Sequence[Kind], key: jax.Array, count: int) -> Dataset:
        """Return boards of these kinds as the settings `validation` ask for them."""
        draw = functools.partial(self._draw, validation=True)
        return mixed_boards(draw, kinds, self.config.validation.holes, VALIDATION_WAIT, key, count)

    def build(self, lake: LakeConfig) -> Dataset:
        """Take the boards of the round from the stock, or generate them."""
        key = make_key(self.config.seed, Purpose.BUILD, self.state.progress.round)
        return self._draw(lake, key, self.config.rounds.instances, self.validation.instances)

    def _draw(
        self, lake: LakeConfig, key: jax.Array, count: int, exclude: Instance | None, validation: bool = False
    ) -> Dataset:
        """Take boards from the stock, whose quarter for validation is never trained on, or generate them."""
        kinds = self.config.all_kinds
        if not pool.covers(kinds):
            return build_boards(kinds, lake, key, count, exclude)
        size, agents = max(kind.size for kind in kinds), max(kind.num_agents for kind in kinds)
        return pool.draw(lake, key, count, validation=validation, max_size=size, max_agents=agents)

    def train(self, recorder: Recorder, boards: Dataset, requested: LakeConfig) -> TrainingEvidence:
        """Train one round, unless the state has; between the updates a signal stops it, with all as before the round.

        A saved state has all of a round or nothing of it: what was learned, its evidence and its steps go together.

        Returns:
          A row for each kind with its plays; those on one board are a group.
        """
        if self.state.progress.step < self.settings.updates:
            self._train_round(recorder, boards)
        return evidence.training_evidence(self.state.progress.training, evidence.environment(boards, requested))

    def _train_round(self, recorder: Recorder, boards: Dataset) -> None:
        progress, watch, updates = self.state.progress, Stopwatch(), self.settings.updates
        k = progress.round
        recorder.display.stage(f"round {k}: {self.name}", updates)
        recorder.meter.read()  # what design and boards compiled is not the first step's
        check = recorder.with_stop_check(lambda done: recorder.display.within(f"updates {done}/{updates}"))
        key = make_key(self.config.seed, Purpose.ROLLOUT, k)
        learner, ended, metrics = self._train_lanes([boards], jnp.stack([key]), check)
        ended, metrics = jax.tree.map(lambda x: x[0], (ended, metrics))
        watch.lap("update")
        steps = int(ended.length[ended.outcome != ABSENT].sum())
        seconds = {"update": watch.seconds["update"] / updates}
        seconds["environment_steps_per_second"] = steps / watch.seconds["update"]
        self.state.learner, progress.training = learner, count(ended, boards.kinds)
        for update in range(updates):
            row = {name: float(values[update]) for name, values in metrics.items()}
            status = f"valid {row['valid']:.0%} optimal {row['optimal']:.0%}"
            recorder.step_done({"phase": "round"} | row, seconds, status, save_every=None)

    @property
    def reference(self) -> Any:
        """The actor's parameters at the start of the rounds, if the divergence from these is in the loss."""
        raise NotImplementedError

    def _train_lanes(
        self, boards: Sequence[Dataset], keys: Array, check: Callable[[int], None] | None = None
    ) -> tuple[Learner, Ended, Mapping[str, Array]]:
        """Train a copy of the actor on each of several sets of boards, see `TurnTrainer.train`; the state stays."""
        learner = jax.tree.map(lambda x: jnp.repeat(x, len(boards), axis=0), self.state.learner)
        optima = np.stack([np.asarray(part.solutions.cost) for part in boards])
        levels = Boards.of_lanes(lanes([part.instances for part in boards]), optima, self.settings.reward)
        reference = self.reference if self.settings.learn.kl_coefficient > 0 else None
        return self.trainer.train(self.frozen, reference, learner, levels, keys, check)

    def answerer(self) -> Player:
        """Return who plays boards with the current parameters."""
        return Player(self.trainer.actor, self.settings.environments, self.frozen, self.state.learner.parameters)

    def branch(self, designs: Sequence[LakeConfig], key: jax.Array) -> Learner:
        """Return the learners ``[designs]`` after one round of each design, all in one program; the state stays.

        The branches share their keys, so that designs are compared on common random numbers.
        """
        board_key, train_key = jax.random.split(jax.random.fold_in(key, 0))
        count, exclude = self.config.rounds.instances, self.validation.instances
        boards = [self._draw(design, board_key, count, exclude) for design in designs]
        return self._train_lanes(boards, jnp.stack([train_key] * len(boards)))[0]

    def valid_shares(self, learner: Learner, boards: Dataset, samples: int) -> np.ndarray:
        """Let all lanes play boards with common keys; return the share of plays that are valid, ``[lanes, boards]``."""
        lanes = len(jax.tree.leaves(learner.parameters)[0])
        levels = jax.tree.map(lambda x: np.broadcast_to(x, (lanes, *np.shape(x))), boards.instances)
        key = make_round_key(self.config.seed, Purpose.VALIDATE, 2**16 + self.state.progress.round)  # no validation's
        valid = []
        for number in range(1, 1 + samples):
            keys = jnp.repeat(jax.random.fold_in(key, number)[None], lanes, axis=0)
            outcomes = play(self.trainer.actor, self.frozen, learner.parameters, levels, keys, 1.0)[2]
            valid.append(np.isin(outcomes, (SOLVED, OPTIMAL)))
        return np.mean(valid, axis=0)

    def branch_scores(self, display: Display, designs: Sequence[LakeConfig], key: jax.Array) -> np.ndarray:
        """Return how good the student is after one round of each design, float ``[designs]``.

        That is the valid share on the validation boards and, so that designs can be told apart before any of these is
        solved, `OTHER_KINDS_WEIGHT` times that on boards of the other kinds.
        """
        display.stage(f"round {self.state.progress.round}: {len(designs)} branches", 1)
        learner, samples = self.branch(designs, key), self.config.validation.samples
        scores = self.valid_shares(learner, self.validation, samples).mean(axis=1)
        if self.other_boards is not None:
            scores = scores + OTHER_KINDS_WEIGHT * self.valid_shares(learner, self.other_boards, samples).mean(axis=1)
        return scores
