"""The student of the paper: a language policy that writes whole plans, taught at first, then trained by GRPO."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh

from engineer.evidence import TrainingEvidence, environment, training_evidence
from jaxlake.arguments import seed_key
from jaxlake.config import MAX_HOLE, LakeConfig
from jaxlake.generate import Dataset, candidates
from jaxlake.generate.candidates import BLOCK, Shape
from jaxlake.kinds import Kind
from jaxlake.types import Instance, coordinate
from rl import distributed
from rl.config import Config, ConfigError, extensions
from rl.config.choices import Credit, LanguageKind
from rl.judge.validation import validate
from rl.learn import grpo, sft
from rl.learn.boards import VALIDATION_WAIT, BoardSet, Draw, build_boards, mixed_boards
from rl.learn.grpo.optimizer import make_optimizer
from rl.learn.grpo_step import MISMATCH_ALARM, grpo_step, rounds_optimizer
from rl.model import lora, sharding
from rl.model.logprobs import Sequences
from rl.model.policy import Policy, abstract_model
from rl.model.sampler import Sampler, SamplingParams
from rl.model.sampler.programs import abstract
from rl.model.tokenizer import check_fit
from rl.run.directory import RunDirectory
from rl.run.keys import Purpose, make_key
from rl.run.recorder import Recorder
from rl.run.state import TrainState, needs_reference, restore
from rl.run.tracking import Display
from rl.students.base import Program
from rl.students.writer import PlanWriter, Writer


class LanguageStudent(Writer):
    """A `rl.students.Student` that writes: a Qwen3 that answers boards in words.

    Args:
      config: the run's configuration.

    Raises:
      ConfigError: if model, tokenizer or devices cannot be used as the settings say.
    """

    def __init__(self, config: Config):
        self.config = config
        (
            rounds_optimizer(config),
            make_optimizer(config.warm_start, config.warm_start.steps),
        )  # finds one's own
        self.policy, self._parameters = Policy.create(config, make_key(config.seed, Purpose.PARAMETERS))
        self.description = self.policy.describe(self._parameters)
        self._draw: Draw = functools.partial(build_boards, config)
        self.state: TrainState
        self.validation: Dataset
        self._plans: Sequences | None = None

    @property
    def training_summary(self) -> str:
        """GRPO as the settings have it, in words."""
        settings, reward = self.config.grpo, self.config.reward
        return (
            f"GRPO, {settings.prompts} boards a step with {settings.samples} answers each, temperature "
            f"{settings.temperature:g}, learning rate {settings.learning_rate:g} ({settings.schedule}), credit "
            f"{settings.credit}, advantage {settings.advantage}, loss {settings.aggregation}, clip "
            f"{settings.clip_low:g} and {settings.clip_high:g}, KL coefficient {settings.kl_coefficient:g}. "
            f"Reward {reward.kind}: free length {reward.free_tokens}, limit "
            f"{reward.limit_tokens} tokens. {self.config.rounds.instances} boards a round."
        )

    @staticmethod
    def programs(config: Config, mesh: Mesh) -> list[Program]:
        """List the programs of a run; see `rl.students.programs`."""
        settings, teaching = config.grpo, config.warm_start
        shape, graph, parameters = abstract_model(config.model, mesh)
        trained, frozen = lora.split(parameters)
        rooms = config.text.max_prompt_tokens, config.text.max_new_tokens
        sampler = Sampler(graph, shape, mesh, config.sampler.rows, *rooms, stop_ids=(0,))
        sampler.width(max(settings.samples, config.validation.samples))  # refuses too few rows before all else
        optimizer, first = rounds_optimizer(config), make_optimizer(teaching, teaching.steps)

        def moments_of(optimizer: optax.GradientTransformation) -> optax.OptState:
            return sharding.abstract(jax.eval_shape(optimizer.init, trained), mesh)

        @functools.cache
        def teach(optimizer: optax.GradientTransformation) -> dict[str, jax.stages.Lowered]:
            return sft.lower(graph, parameters, optimizer, teaching, *rooms, mesh)

        rollout = sharding.abstract_rollout(parameters, shape.dtype, mesh)
        answer = functools.cache(functools.partial(sampler.lower, rollout))
        reinforce = functools.cache(functools.partial(grpo.lower, graph, parameters, optimizer, settings, *rooms, mesh))
        reference: Any = ()
        if needs_reference(config):
            copied = jax.eval_shape(lambda tree: sharding.cast_matrices(tree, shape.dtype), trained)
            reference = sharding.abstract(copied, mesh)
        shared, cast = sharding.split_ready(parameters, shape.dtype, mesh)
        moments = moments_of(optimizer)
        trainer = moments, reference
        generating, beside = (rollout, abstract(sampler)), (trainer, cast)
        planned, taught = list[Program](), (parameters, moments_of(first))
        if teaching.steps > teaching.engineer_first:
            planned.append(Program("warm start, plans", lambda: teach(first)["plans"], taught))
        if teaching.teaches_engineer:
            planned.append(Program("warm start, engineer", lambda: teach(first)["engineer"], taught))
        planned += [
            Program("cast", lambda: sharding.lower_for_rollout(parameters, shape.dtype, mesh), cast, (trainer, shared)),
            Program("prefill", lambda: answer(settings.samples)["prefill"], generating, beside),
            Program("prefill, validation", lambda: answer(1)["prefill"], generating, beside),
            Program("decode", lambda: answer(settings.samples)["decode"], generating, beside),
        ]
        if settings.updates > 1 or settings.kl_coefficient > 0:
            planned.append(Program("log-probs", lambda: reinforce()["logprobs"], parameters, trainer))
        planned += [
            Program("gradient", lambda: reinforce()["accumulate"], (parameters, trained), trainer),
            Program("update", lambda: reinforce()["apply"], (trained, moments, trained), (frozen, reference)),
        ]
        if settings.engineer_every:
            rehearsed = parameters, moments
            planned.append(Program("rehearsal", lambda: teach(optimizer)["engineer"], rehearsed, reference))
        return planned

    def restore(self, directory: RunDirectory, display: Display) -> None:
        """Take the state of the last whole checkpoint; draw the boards of the validations and the warm start's plans.

        See `check_room` and `rl.run.state.restore` for the mistakes that are found.
        """
        check_room(self.policy, self.config)
        self.state = restore(self.policy, self._parameters, self._first_optimizer, directory, display)
        del self._parameters
        warm_start = self.config.warm_start
        plans = self.state.progress.stage == "warm_start" and warm_start.steps > warm_start.engineer_first
        display.stage("boards", 1 + plans)
        self.validation = draw_validation_set(self.policy, self.config, self._draw, directory.validation_seed)
        display.advance("validation")
        if plans:
            exclude = self.validation.instances
            self._plans = sft.plan_examples(self.policy, self.config, self._draw, exclude, display)
            display.advance("warm start")

    def _first_optimizer(self, stage: str, parameters: nnx.State) -> optax.OptState:
        """Return the optimizer's state where a stage begins."""
        optimizer, settings = rounds_optimizer(self.config), self.config.warm_start
        if stage == "warm_start":
            optimizer = make_optimizer(settings, settings.steps)
        return grpo.init(optimizer, parameters, self.policy.mesh)

    def warm_start(self, recorder: Recorder) -> None:
        """Learn the solver's plans and engineer examples, and validate; take the optimizer of the rounds."""
        if self.config.warm_start.steps:
            sft.warm_start(self.policy, self.config, self.state, recorder, self._plans)
            recorder.keep_best("warm_start", validate(self, recorder, "warm_start", occasion=1))
        first = self._first_optimizer("rounds", self.state.parameters)
        self.state.begin_rounds(first, self.policy, self.config)

    def build(self, lake: LakeConfig) -> Dataset:
        """Generate and solve the boards of the round."""
        key = make_key(self.config.seed, Purpose.BUILD, self.state.progress.round)
        return self.draw(lake, key, self.config.rounds.instances)

    def train(self, recorder: Recorder, boards: Dataset, requested: LakeConfig) -> TrainingEvidence:
        """Train by GRPO on the round's boards from the run's last update, with an order of its own in every epoch.

        Raises:
          ConfigError: if the processes cannot share `grpo.prompts` equally.
          RunError: after `MAX_SKIPPED` updates in a row that were not finite.
        """
        config, state, progress, display = self.config, self.state, self.state.progress, recorder.display
        settings, k = config.grpo, progress.round
        data = BoardSet.of(self.policy, boards)
        count, alarmed = len(data.prompts), False
        total = count * config.rounds.epochs
        batches = progress.cursor // settings.prompts
        display.stage(f"round {k}: GRPO", total // settings.prompts, done=batches)
        recorder.meter.read()  # what design and boards compiled is not the first step's
        while progress.cursor < total:
            epoch, place = divmod(progress.cursor, count)
            order = np.asarray(jax.random.permutation(make_key(config.seed, Purpose.ORDER, k, epoch), count))
            metrics, seconds = grpo_step(self.policy, config, state, recorder, data, order[place:])
            if metrics["mismatch_alarm"] and not alarmed:
                alarmed = True
                display.say(
                    f"round {k}, step {progress.step + 1}: sampler and trainer differ by a factor of "
                    f"{metrics['mismatch_factor']:.3f} a token, above {MISMATCH_ALARM}"
                )
            display.done = progress.cursor // settings.prompts - 1  # one batch of prompts a step, or more
            status = f"reward {metrics['reward']:.2f} valid {metrics['valid']:.0%} optimal {metrics['optimal']:.0%}"
            status += f" {seconds['tokens_per_second']:.0f} tok/s"
            recorder.step_done({"phase": "round"} | metrics, seconds, status, config.checkpoint.every_steps)
        return training_evidence(progress.training, environment(boards, requested))

    def answerer(self) -> PlanWriter:
        """Return who answers boards with the current parameters."""
        return PlanWriter(self.policy, self.state.parameters, self.policy.rollout_parameters(self.state.parameters))

    @property
    def exploration(self) -> SamplingParams:
        """The sampling of the answers that it is trained on."""
        return SamplingParams(self.config.grpo.temperature)

    def draw(self, lake: LakeConfig, key: jax.Array, count: int) -> Dataset:
        """Generate and solve boards."""
        return self._draw(lake, key, count, self.validation.instances)


def draw_validation_set(policy: Policy, config: Config, draw: Draw, seed: int) -> Dataset:
    """Draw the boards that the settings `validation` ask for, which every validation of a run answers.

    Raises:
      ConfigError: if no solvable board is found, or a prompt does not fit `text.max_prompt_tokens`.
    """
    settings, key = config.validation, make_key(seed, Purpose.VALIDATION_SET)
    boards = mixed_boards(draw, config.target_kinds, settings.holes, VALIDATION_WAIT, key, settings.instances)
    policy.prompts(boards.instances)
    return boards


def load_writer(config: Config, folder: Path | str, boards: Instance, say: Callable[[str], None]) -> PlanWriter:
    """Read a checkpoint that writes plans; see `rl.students.load`."""
    loaded, parameters = Policy.load(config, folder, make_key(config.seed, Purpose.PARAMETERS))
    longest = max(map(len, loaded.unbounded_prompts(boards).tokens))
    policy = dataclasses.replace(loaded, text=config.text.model_copy(update={"max_prompt_tokens": longest}))
    say(f"{folder}: {policy.describe(parameters)}")
    if longest > config.text.max_prompt_tokens:
        say(
            f"prompts have up to {longest} tokens and get the room they need (text.max_prompt_tokens = "
            f"{config.text.max_prompt_tokens} is for training)"
        )
    return PlanWriter(policy, parameters, policy.rollout_parameters(parameters))


def check_room(policy: Policy, config: Config, examples: int = 64) -> None:
    """Find out before a run, not in the middle of it, what would not fit.

    Texts into their room, the answers to a prompt into the sampler's rows, equal shares to the processes of a job. And
    whether tokens can have exact credit: in a cell of several tokens the wrong one is unknown.

    Raises:
      ConfigError: naming the setting that is too small.
    """
    if extensions.is_own(config.reward.kind):
        extensions.find("reward.kind", config.reward.kind)
    engineer = config.engineer
    policy.sampler.width(max(config.grpo.samples, config.validation.samples))
    distributed.share(config.grpo.prompts, "grpo.prompts")
    distributed.share(config.validation.instances, "validation.instances")
    reads = isinstance(engineer.kind, LanguageKind) and engineer.kind != LanguageKind.API
    taught_too = config.warm_start.teaches_engineer or config.grpo.engineer_every > 0

    @functools.cache  # what the engineer reads is mostly what it is taught, and 64 of these take half a second
    def drawn(shown: tuple[str, ...]) -> tuple[Sequence[list[int]], ...]:
        texts = sft.engineer_texts(policy.tokenizer, config, np.random.default_rng(0), examples, shown)
        return tuple(zip(*texts, strict=True))

    if reads:
        contexts, _, answers = drawn((engineer.context,))
        check_fit(contexts, engineer.max_prompt_tokens, "engineer.max_prompt_tokens")
        check_fit(answers, engineer.max_answer_tokens, "engineer.max_answer_tokens")
    if taught_too:
        contexts, taught, _ = drawn(config.warm_start.contexts)
        check_fit(contexts, config.warm_start.max_context_tokens, "warm_start.max_context_tokens")
        check_fit(taught, config.warm_start.max_answer_tokens, "warm_start.max_answer_tokens")

    for kind in config.all_kinds:
        policy.prompts(fullest(kind))
    if config.grpo.credit is Credit.EXACT:
        side = max(kind.size for kind in config.all_kinds)
        for cell in (coordinate(cell, side) for cell in range(side * side)):
            if len(pieces := policy.tokenizer.pieces(policy.tokenizer.encode(cell))) > 1:
                raise ConfigError(
                    f"grpo.credit = exact: needs a tokenizer with one token a cell, and this one's are {pieces} for "
                    f"{cell}; set grpo.credit=outcome"
                )


def fullest(kind: Kind) -> Instance:
    """Draw boards of a kind with the most holes that a configuration can ask for, whose prompts are about the longest.

    Scattered holes: in a drawing, holes side by side are few tokens. Of Qwen's, a board of 10x10 with all holes at its
    end has 433 with five agents, the longest of these 478.
    """
    return candidates.draw(seed_key(0), 0, BLOCK, Shape(kind, MAX_HOLE, kind.size, kind.num_agents))
