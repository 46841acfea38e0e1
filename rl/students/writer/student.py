"""The writer as a student: a language model that answers boards in words, and as an engineer designs the next ones."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh

from engineer.engineers.language import Generate
from engineer.evidence import TrainingEvidence, environment, training_evidence
from jaxlake.arguments import seed_key
from jaxlake.config import MAX_HOLE, LakeConfig
from jaxlake.generate import Dataset, candidates
from jaxlake.generate.candidates import BLOCK, Shape
from jaxlake.types import Instance, coordinate
from rl import distributed
from rl.config import Config, ConfigError
from rl.config.choices import LanguageKind
from rl.judge.answers import Answerer, Answers, Show
from rl.judge.validation import validate
from rl.learn import supervised
from rl.learn.boards import VALIDATION_WAIT, BoardSet, Draw, build_boards, mixed_boards
from rl.learn.credit import first_lost
from rl.learn.optimizer import init_state, make_optimizer
from rl.learn.state import TrainState, restore
from rl.learn.update import lower_gradient
from rl.model import lora, sharding
from rl.model.logprobs import Sequences
from rl.model.policy import Policy, abstract_model
from rl.model.sampler import Sampler, SamplingParams
from rl.model.sampler.programs import abstract
from rl.model.tokenizer import Tokenizer, check_fit
from rl.run.directory import RunDirectory
from rl.run.keys import Purpose, make_key
from rl.run.recorder import Recorder
from rl.run.tracking import Display
from rl.students.base import Program
from rl.students.writer.step import MISMATCH_ALARM, grpo_step, rounds_optimizer


@dataclasses.dataclass(frozen=True)
class PlanWriter:
    """A `rl.judge.answers.Answerer` that writes whole plans.

    Attributes:
      policy: the model's static half and its tokenizer.
      trained: the parameters as they were trained, which its identity names.
      parameters: the samplers' copy of them, `Policy.rollout_parameters`.
    """

    policy: Policy
    trained: nnx.State
    parameters: nnx.State
    first_lost = staticmethod(first_lost)

    @property
    def identity(self) -> dict[str, Any]:
        """The parameters' and the model's digests, and the cap on thoughts."""
        cap = self.policy.text.thinking_cap
        thinking = {"max_thinking_tokens": cap, "early_stop": self.policy.early_stop} if cap else {}
        computed = {"parameters": sharding.fingerprint(self.trained), "dtype": str(self.policy.shape.dtype)}
        return computed | self.policy.identity | thinking

    @property
    def rows(self) -> int:
        """Answers in the sampler at once."""
        return self.policy.rows

    def answer(
        self, boards: Instance, samples: int, sampling: SamplingParams, key: jax.Array, show: Show, first: int = 0
    ) -> Answers:
        """Write plans; see `Answerer`. Each answer's draws follow from its number alone."""
        policy, processes = self.policy, jax.process_count()
        count = len(boards.size)
        share = -(-count // processes)
        begin = jax.process_index() * share
        # What is asked too much, so that all processes ask equally many, is dropped.
        rollout = policy.sampler.generate(
            self.parameters,
            policy.prompts(boards[np.minimum(begin + np.arange(share), count - 1)]).tokens,
            jax.random.fold_in(key, int(sampling.temperature > 0)),
            samples=samples,
            sampling=sampling,
            first_request=first + begin * samples,
            progress=lambda done: show(min(done * processes, count * samples)),
        )
        rollout = jax.tree.map(lambda leaf: leaf[: count * samples], distributed.all_gather(rollout))
        return Answers(
            plans=policy.read(boards, rollout),
            lengths=rollout.mask.sum(axis=-1),
            truncated=rollout.truncated,
            texts=lambda rows: policy.texts(rollout.tokens[rows], rollout.mask[rows]),
        )


class Writer:
    """The part of a student that a language model is: it is taught, designs environments, and is saved.

    Attributes:
      config: the run's configuration.
      policy: the model's static half, its tokenizer and its mesh.
      state: the run's state; known after `Student.restore`.
      plans: the plans of the warm start, if there are any.
    """

    config: Config
    policy: Policy
    validation: Dataset
    state: Any  # a `rl.learn.state.TrainState`, which each student narrows
    plans: Sequences | None = None

    def answerer(self) -> Answerer:
        """Return who answers boards with the current parameters."""
        raise NotImplementedError

    def rounds_learner(self, trained: nnx.State) -> tuple[optax.GradientTransformation, Any]:
        """Return the optimizer of the rounds, and the first parameters that it updates."""
        raise NotImplementedError

    def first_optimizer_state(self, stage: str, trained: nnx.State) -> optax.OptState:
        """Return the optimizer's state where a stage begins."""
        if stage == "warm_start":
            settings = self.config.student.warm_start
            return init_state(make_optimizer(settings, settings.steps), trained, self.policy.mesh)
        return init_state(*self.rounds_learner(trained), self.policy.mesh)

    def warm_start(self, recorder: Recorder) -> None:
        """Learn the examples if the settings ask for any, and validate; take the optimizer of the rounds."""
        if self.config.student.warm_start.steps:
            supervised.warm_start(self.policy, self.config, self.state, recorder, self.plans)
            recorder.keep_best("warm_start", validate(self, recorder, "warm_start", occasion=1))
        first = self.first_optimizer_state("rounds", lora.split(self.state.parameters)[0])
        self.state.begin_rounds(first, self.policy, self.config)

    def designer_parameters(self, engineer: str) -> nnx.State:
        """Return the reference's parameters for the engineer `base`, else the current ones."""
        return self.state.reference_parameters() if engineer == LanguageKind.BASE else self.state.parameters

    def generation(self, recorder: Recorder, engineer: str) -> tuple[Generate, Tokenizer]:
        """Return generation with the engineer's parameters at the time when it is asked, held to the grammar."""
        generate = self.policy.grammar_sampler(self.config.engineer).generation(
            lambda: self.designer_parameters(engineer), recorder.with_stop_check()
        )
        return generate, self.policy.tokenizer

    def save(self, folder: Path) -> None:
        """Write model and tokenizer as a Hugging Face folder."""
        self.policy.save(folder, self.state.parameters)


def abstract_reference(config: Config, trained: nnx.State, dtype: Any, mesh: Mesh) -> Any:
    """Return the arrays of the reference policy without numbers; None where the run keeps none."""
    if not config.needs_reference:
        return None
    return sharding.abstract(jax.eval_shape(lambda tree: sharding.cast_matrices(tree, dtype), trained), mesh)


class WriterStudent(Writer):
    """A `rl.students.Student` that writes: a language model that answers boards in words."""

    def __init__(self, config: Config):
        self.config, key = config, make_key(config.seed, Purpose.PARAMETERS)
        self.policy, self._parameters = Policy.create(config.writer, config.mesh, key)
        self.description = self.policy.describe(self._parameters)
        self._draw: Draw = functools.partial(build_boards, config.all_kinds)
        self.state: TrainState

    @property
    def training_summary(self) -> str:
        """GRPO as the settings have it, in words."""
        settings, reward = self.config.writer.learn, self.config.writer.reward
        return (
            f"GRPO, {settings.prompts} boards a step with {settings.samples} answers each, temperature "
            f"{settings.temperature:g}, learning rate {settings.learning_rate:g} ({settings.schedule}), credit "
            f"{settings.credit}, advantage {settings.advantage}, loss {settings.loss}, clip "
            f"{settings.clip_low:g} and {settings.clip_high:g}, KL coefficient {settings.kl_coefficient:g}. "
            f"Reward {reward.kind}: free length {reward.free_tokens}, limit "
            f"{reward.limit_tokens} tokens. {self.config.rounds.instances} boards a round."
        )

    @staticmethod
    def programs(config: Config, mesh: Mesh) -> list[Program]:
        """List the programs that take the most memory of a run: a token of all rows, and a micro-batch's gradient."""
        shape, graph, parameters = abstract_model(config.writer.model, mesh)
        trained, _ = lora.split(parameters)
        rooms = config.writer.text.max_prompt_tokens, config.writer.text.max_new_tokens
        sampler = Sampler(graph, shape, mesh, config.writer.sampler.rows, *rooms, stop_ids=(0,))
        rollout = sharding.abstract_rollout(parameters, shape.dtype, mesh)
        unshared = sharding.split_ready(parameters, shape.dtype, mesh)[1]
        moments = sharding.abstract(jax.eval_shape(rounds_optimizer(config).init, trained), mesh)
        beside = moments, abstract_reference(config, trained, shape.dtype, mesh)
        gradient = functools.partial(lower_gradient, graph, parameters, config.writer.learn, *rooms, mesh)
        return [
            Program("decode", lambda: sampler.lower(rollout), (rollout, abstract(sampler)), (beside, unshared)),
            Program("gradient", gradient, (parameters, trained), beside),
        ]

    def restore(self, directory: RunDirectory, display: Display) -> None:
        """Take the state of the last whole checkpoint; draw the boards of validations and the warm start's plans."""
        config, teaching, wanted = self.config, self.config.writer.warm_start, self.config.validation
        check_room(self.policy, config)
        self.state = restore(self.policy, self._parameters, self.first_optimizer_state, directory, display)
        del self._parameters
        plans = self.state.progress.stage == "warm_start" and teaching.steps > teaching.engineer_first
        display.stage("boards", 1 + plans)
        key, kinds = make_key(directory.validation_seed, Purpose.VALIDATION_SET), config.target_kinds
        self.validation = mixed_boards(self._draw, kinds, wanted.holes, VALIDATION_WAIT, key, wanted.instances)
        self.policy.prompts(self.validation.instances)  # they must fit
        display.advance("validation")
        if plans:
            exclude = self.validation.instances
            self.plans = supervised.plan_examples(self.policy, config, self._draw, exclude, display)
            display.advance("warm start")

    def rounds_learner(self, trained: nnx.State) -> tuple[optax.GradientTransformation, nnx.State]:
        """Return the optimizer of the rounds, and what it updates."""
        return rounds_optimizer(self.config), trained

    def build(self, lake: LakeConfig) -> Dataset:
        """Generate and solve the boards of the round."""
        key = make_key(self.config.seed, Purpose.BUILD, self.state.progress.round)
        return self._draw(lake, key, self.config.rounds.instances, self.validation.instances)

    def train(self, recorder: Recorder, boards: Dataset, requested: LakeConfig) -> TrainingEvidence:
        """Train by GRPO on the round's boards from the run's last update, with an order of its own in every epoch."""
        config, state, progress, display = self.config, self.state, self.state.progress, recorder.display
        prompts, k = config.writer.learn.prompts, progress.round
        data, alarmed = BoardSet.of(self.policy, boards), False
        count = len(data.prompts)
        total = count * config.writer.epochs
        display.stage(f"round {k}: GRPO", total // prompts, done=progress.cursor // prompts)
        recorder.meter.read()  # what design and boards compiled is not the first step's
        while progress.cursor < total:
            epoch, place = divmod(progress.cursor, count)
            order = np.asarray(jax.random.permutation(make_key(config.seed, Purpose.ORDER, k, epoch), count))
            metrics, seconds = grpo_step(self.policy, config, state, recorder, data, order[place : place + prompts])
            if metrics["mismatch_alarm"] and not alarmed:
                alarmed = True
                display.say(
                    f"round {k}, step {progress.step + 1}: sampler and trainer differ by a factor of "
                    f"{metrics['mismatch_factor']:.3f} a token, above {MISMATCH_ALARM}"
                )
            status = f"reward {metrics['reward']:.2f} valid {metrics['valid']:.0%} optimal {metrics['optimal']:.0%}"
            status += f" {seconds['tokens_per_second']:.0f} tok/s"
            recorder.step_done({"phase": "round"} | metrics, seconds, status, config.checkpoint.every_steps)
        return training_evidence(progress.training, environment(boards, requested))

    def answerer(self) -> PlanWriter:
        """Return who answers boards with the current parameters."""
        return PlanWriter(self.policy, self.state.parameters, self.policy.rollout_parameters(self.state.parameters))


def load_writer(config: Config, folder: Path | str, boards: Instance, say: Callable[[str], None]) -> PlanWriter:
    """Read a checkpoint that writes plans; see `rl.students.load`."""
    loaded, parameters = Policy.load(config.writer, config.mesh, folder, make_key(config.seed, Purpose.PARAMETERS))
    longest = max(map(len, loaded.unbounded_prompts(boards).tokens))
    policy = dataclasses.replace(loaded, text=config.writer.text.model_copy(update={"max_prompt_tokens": longest}))
    say(f"{folder}: {policy.describe(parameters)}")
    return PlanWriter(policy, parameters, policy.rollout_parameters(parameters))


def check_room(policy: Policy, config: Config, examples: int = 64) -> None:
    """Find out before a run, not in the middle of it, what would not fit; ConfigError that names the setting.

    The answers to a prompt must fit into the sampler's rows, texts into their room, and the boards of a step into equal
    shares of the processes. Tokens can have exact credit only if a cell is one token: else the wrong one is unknown.
    """
    tokenizer, engineer = policy.tokenizer, config.engineer
    learn, teaching = config.writer.learn, config.writer.warm_start
    policy.sampler.width(max(learn.samples, config.validation.samples))
    distributed.share(learn.prompts, "student.learn.prompts")
    draw = functools.partial(supervised.example_tokens, tokenizer, config, np.random.default_rng(0), examples)
    if isinstance(engineer.kind, LanguageKind) and engineer.kind != LanguageKind.API:
        drawn = draw((engineer.context,))
        check_fit([x.context for x in drawn], engineer.max_prompt_tokens, "engineer.max_prompt_tokens")
        check_fit([x.answer for x in drawn], engineer.max_answer_tokens, "engineer.max_answer_tokens")
    if teaching.teaches_engineer or learn.engineer_every > 0:
        supervised.join_examples(tokenizer, teaching, draw(teaching.contexts))
    for kind in config.all_kinds:
        # Boards with the most holes have about the longest prompts. They are scattered: in a drawing, holes side by
        # side are few tokens. Of Qwen's, a board of 10x10 with all holes at its end has 433, the longest of these 478.
        policy.prompts(candidates.draw(seed_key(0), 0, BLOCK, Shape(kind, MAX_HOLE, kind.size, kind.num_agents)))
    if learn.credit == "exact":
        side = max(kind.size for kind in config.all_kinds)
        for cell in (coordinate(cell, side) for cell in range(side * side)):
            if len(pieces := tokenizer.pieces(tokenizer.encode(cell))) > 1:
                raise ConfigError(
                    f"student.learn.credit = exact: needs a tokenizer with one token a cell, and {cell} has {pieces}; "
                    "set student.learn.credit=outcome"
                )
