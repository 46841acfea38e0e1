"""The player as a student: its rounds, validations and branches; the learning itself is in `ppo`."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

from engineer import evidence as evidence_
from engineer.evidence import TrainingEvidence
from jaxlake.config import LakeConfig
from jaxlake.generate import Dataset, pool
from jaxlake.kinds import Kind
from jaxlake.record import Array
from jaxlake.types import Instance
from jaxlake.verify import verify
from rl.config import Config, ConfigError, PlaySection, RunError, extensions
from rl.config.choices import Baseline
from rl.learn.boards import VALIDATION_WAIT, build_boards, mixed_boards
from rl.run.directory import RunDirectory
from rl.run.keys import Purpose, make_key, make_round_key
from rl.run.recorder import Recorder, RunState
from rl.run.tracking import Display, Stopwatch
from rl.students.player import grpo, ppo
from rl.students.player.actor import Actor, lanes
from rl.students.player.learner import Learner
from rl.students.player.play import Player, play
from rl.students.player.rollout import Played, evidence_rows


def make_optimizer(config: Config, actor: Actor) -> optax.GradientTransformation:
    """Return the optimizer of an actor's parameters."""
    student = play_section(config)
    learn = student.learn
    if learn.baseline is Baseline.VALUE:
        return ppo.make_optimizer(actor, learn.learning_rate)
    updates = config.rounds.count * student.updates * learn.minibatches * learn.iterations
    return grpo.make_optimizer(actor, learn, updates)


def play_section(config: Config) -> PlaySection:
    """Return the settings of a student that moves turn by turn."""
    assert isinstance(config.student, PlaySection)
    return config.student


class PlayerState(RunState, Protocol):
    """What a checkpoint holds of a player, as what PPO trains.

    Attributes:
      learner: what PPO trains, one lane.
    """

    learner: Learner


StateT = TypeVar("StateT", bound=PlayerState)

OTHER_KINDS_WEIGHT = 0.1
"""Weight of boards that are not validated in the score of a branch."""


class PlayerStudent(Generic[StateT]):
    """A `rl.students.Student` that moves turn by turn: one actor for all agents of a board, trained by independent PPO.

    Its boards come from the stock of solved ones (`jaxlake.generate.pool`) where that has all kinds of the run, else
    from the generator. `NetworkPlayer` and `LanguagePlayer` add the actor.

    Args:
      config: the run's configuration.

    Raises:
      ConfigError: in a job of several processes, which a player does not use.
    """

    actor: Actor
    optimizer: optax.GradientTransformation
    frozen: Any = None
    state: StateT
    description: str
    who: ClassVar[str]
    """Who plays, in the words of a report."""

    def __init__(self, config: Config):
        if jax.process_count() > 1:
            raise ConfigError("student.kind = player learns in one process; start it without --processes")
        self.config, self.settings = config, play_section(config)
        self.by_value = self.settings.learn.baseline is Baseline.VALUE
        self.name = "PPO" if self.by_value else "GRPO"
        self.rate = f"student.learn.learning_rate than {self.settings.learn.learning_rate:g}"
        extensions.check_extensions(config)
        self.validation: Dataset
        self._validation_key: jax.Array
        self._has_stock = pool.covers(config.all_kinds)

    @property
    def training_summary(self) -> str:
        """The learning as the settings have it, in words."""
        return (ppo if self.by_value else grpo).summary(self.settings, self.config.rounds.instances, self.who)

    def draw_validation(self, directory: RunDirectory, display: Display) -> None:
        """Draw the boards of the validations."""
        display.stage("boards", 1)
        self._validation_key = make_key(directory.validation_seed, Purpose.VALIDATION_SET)
        self.validation = self._held_out(
            self.config.target_kinds, self._validation_key, self.config.validation.instances
        )
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
        settings, draw = self.config.validation, functools.partial(self._draw, validation=True)
        return mixed_boards(draw, kinds, settings.holes, VALIDATION_WAIT, key, count)

    def build(self, lake: LakeConfig) -> Dataset:
        """Take the boards of the round from the stock, or generate them."""
        key = make_key(self.config.seed, Purpose.BUILD, self.state.progress.round)
        return self.draw(lake, key, self.config.rounds.instances)

    def draw(self, lake: LakeConfig, key: jax.Array, count: int) -> Dataset:
        """Take boards from the stock, or generate them."""
        return self._draw(lake, key, count, self.validation.instances)

    def _draw(
        self, lake: LakeConfig, key: jax.Array, count: int, exclude: Instance | None, validation: bool = False
    ) -> Dataset:
        """Take boards from the stock, whose quarter for validation is never trained on, or generate them."""
        if not self._has_stock:
            return build_boards(self.config.all_kinds, self.config.lake.objective, lake, key, count, exclude)
        kinds = self.config.all_kinds
        return pool.draw(
            lake,
            key,
            count,
            validation=validation,
            max_size=max(kind.size for kind in kinds),
            max_agents=max(kind.num_agents for kind in kinds),
        )

    def train(self, recorder: Recorder, boards: Dataset, requested: LakeConfig) -> TrainingEvidence:
        """Train one round; between the updates a signal stops it, with everything as it was before the round.

        Returns:
          A row for each kind with its episodes; those on one board are a group.

        Raises:
          RunError: if the loss of an update is not finite; the state stays that of before the round.
          Interrupted: where a signal asks for it.
        """
        progress, watch, updates = self.state.progress, Stopwatch(), self.settings.updates
        k = progress.round
        recorder.display.stage(f"round {k}: {self.name}", updates)
        recorder.meter.read()  # what design and boards compiled is not the first step's
        check = recorder.with_stop_check(lambda done: recorder.display.within(f"updates {done}/{updates}"))
        learner, played, metrics = self._train_lanes([boards], [make_key(self.config.seed, Purpose.ROLLOUT, k)], check)
        rows, counts = jax.tree.map(lambda x: np.asarray(x)[0], (metrics, played))
        if not np.isfinite(rows["loss"]).all():
            bad = int(np.argmin(np.isfinite(rows["loss"])))
            recorder.save()
            raise RunError(
                f"round {k}: the loss of update {bad + 1} of {updates} is not finite; a smaller {self.rate} may "
                f"help; the {self.config.student.kind} before the round is saved"
            )
        watch.lap("update")
        seconds = {"update": watch.seconds["update"] / updates}
        seconds["environment_steps_per_second"] = int(counts.played.sum()) / watch.seconds["update"]
        for update in range(progress.step, updates):
            row = {name: float(values[update]) for name, values in rows.items()}
            status = f"valid {row['valid']:.0%} optimal {row['optimal']:.0%}"
            recorder.step_done({"phase": "round"} | row, seconds, status, updates + 1)
        self.state.learner = learner
        return TrainingEvidence(evidence_rows(counts, boards.kinds), evidence_.environment(boards, requested))

    @property
    def reference(self) -> Any:
        """The actor's parameters at the start of the rounds, if the divergence from these is in the loss."""
        raise NotImplementedError

    def _train_lanes(
        self, boards: Sequence[Dataset], keys: Sequence[jax.Array], check: Callable[[int], None] | None = None
    ) -> tuple[Learner, Played, Mapping[str, Array]]:
        """Train a copy of the actor, as it is, on each of several sets of boards; see `ppo.train_round`."""
        learner = jax.tree.map(lambda x: jnp.repeat(x, len(boards), axis=0), self.state.learner)
        levels = lanes([part.instances for part in boards])
        optima = np.stack([np.asarray(part.solutions.cost) for part in boards])
        taught = learner, levels, optima, jnp.stack(list(keys)), check
        if self.by_value:
            return ppo.train_round(self.actor, self.settings, self.frozen, *taught)
        return grpo.train_round(
            self.actor, self.settings, self.settings.learn, self.optimizer, self.frozen, self.reference, *taught
        )

    def answerer(self) -> Player:
        """Return who plays boards with the current parameters."""
        return Player(self.actor, self.settings.environments, self.frozen, self.state.learner.parameters)

    def branch(self, designs: Sequence[LakeConfig], repeats: int, key: jax.Array) -> Learner:
        """Train branches of one round on each design, all in one program; the state stays as it is.

        Repeats of one number share their keys over all designs, so that designs are compared on common random numbers.

        Args:
          designs: configurations; each repeat draws boards of its own.
          repeats: number of branches of each.
          key: key of boards and training.

        Returns:
          The learners, ``[designs * repeats]`` lanes, all repeats of a design side by side.

        Raises:
          ConfigError: if no solvable board of a kind is found.
          RunError: if the loss of a branch is not finite.
        """
        boards, keys = [], []
        for design in designs:
            for repeat in range(repeats):
                board_key, train_key = jax.random.split(jax.random.fold_in(key, repeat))
                boards.append(self.draw(design, board_key, self.config.rounds.instances))
                keys.append(train_key)
        learner, _, metrics = self._train_lanes(boards, keys)
        if not np.isfinite(np.asarray(metrics["loss"])).all():
            raise RunError(f"the loss of a branch is not finite; a smaller {self.rate} may help")
        return learner

    def valid_shares(self, learner: Learner, boards: Dataset, samples: int) -> np.ndarray:
        """Let all lanes play boards with common keys; return the share of plays that are valid, ``[lanes, boards]``."""
        lanes = len(jax.tree.leaves(learner.parameters)[0])
        levels, optima = jax.tree.map(
            lambda x: np.broadcast_to(x, (lanes, *np.shape(x))), (boards.instances, np.asarray(boards.solutions.cost))
        )
        key = make_round_key(self.config.seed, Purpose.VALIDATE, 2**16 + self.state.progress.round)  # no validation's
        valid = []
        for number in range(1, 1 + samples):
            keys = jnp.repeat(jax.random.fold_in(key, number)[None], lanes, axis=0)
            plans, _ = play(self.actor, self.frozen, learner.parameters, levels, keys, False)
            valid.append(np.asarray(verify(levels, plans, optima, objective=self.config.lake.objective).valid))
        return np.mean(valid, axis=0)

    def branch_scores(self, display: Display, designs: Sequence[LakeConfig], key: jax.Array) -> np.ndarray:
        """Return how good the student is after one round of each design, float ``[designs]``; see `scores`."""
        display.stage(f"round {self.state.progress.round}: {len(designs)} branches", 1)
        return self.scores(self.branch(designs, 1, key))

    def scores(self, learner: Learner) -> np.ndarray:
        """Return how good each lane is, float ``[lanes]``.

        That is the valid share on the validation boards and, so that designs can be told apart before any of these is
        solved, `OTHER_KINDS_WEIGHT` times that on boards of the other kinds.
        """
        samples = self.config.validation.samples
        scores = self.valid_shares(learner, self.validation, samples).mean(axis=1)
        if self.other_boards is not None:
            scores = scores + OTHER_KINDS_WEIGHT * self.valid_shares(learner, self.other_boards, samples).mean(axis=1)
        return scores
