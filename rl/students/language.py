"""The student of the paper: a language policy that writes whole plans, taught at first, then trained by GRPO."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from engineer import Evidence
from engineer import evidence as evidence_
from engineer.engineers.language import Generate
from engineer.evidence import TrainingEvidence, training_evidence
from jaxlake.arguments import seed_key
from jaxlake.config import MAX_HOLE, LakeConfig
from jaxlake.generate import Dataset, candidates
from jaxlake.generate.candidates import BLOCK, Shape
from jaxlake.kinds import Kind
from jaxlake.types import Instance, Verdict, coordinate
from rl import distributed, grpo, sft
from rl.grpo_step import grpo_step, rounds_optimizer
from rl.config import Config, ConfigError, extensions
from rl.config.choices import Credit, GateAction, LanguageKind
from rl.credit import first_lost
from rl.grpo.optimizer import make_optimizer
from rl.policy import Policy, Prompts, writer
from rl.qwen3 import lora
from rl.qwen3.logprobs import Sequences, join
from rl.qwen3.model import Qwen3, abstract
from rl.qwen3.tokenizer import Tokenizer, check_fit
from rl.run.boards import BoardSet, build_boards, even, mixed_boards
from rl.run.checkpoint import Checkpoints
from rl.run.keys import Purpose, make_key
from rl.run.recorder import Recorder
from rl.run.saving import restore
from rl.run.state import TrainState
from rl.run.tracking import Display
from rl.run.validation import Answers, keep_validation, stage_name
from rl.sampler import Rollout, SamplingParams

ADAPTER_TOKENS = 16, 64
"""How many answers of a validation a process measures adapters on, evenly spread over its own, and how much of each."""


class LanguageStudent:
    """A `rl.students.Student`: a Qwen3 that answers boards in words.

    Args:
      config: of the run.

    Raises:
      ConfigError: if model, tokenizer or devices cannot be used as the settings say.
    """

    def __init__(self, config: Config):
        self.config = config
        self.policy, self._parameters = Policy.create(config, make_key(config.seed, Purpose.PARAMETERS))
        self.optimizer = rounds_optimizer(config)
        self._warm_optimizer = make_optimizer(config.warm_start, config.warm_start.steps)
        self.state: TrainState
        self.validation: BoardSet
        self._plans: Sequences | None = None

    @property
    def validation_boards(self) -> Instance:
        """The boards ``[n]`` that no training shows."""
        return self.validation.prompts.instances

    def describe(self) -> str:
        """Return its number of parameters and its devices."""
        return self.policy.describe(self._parameters)

    def check(self) -> None:
        """See `check_room`."""
        check_room(self.policy)

    def restore(self, checkpoints: Checkpoints, display: Display) -> None:
        """Take the state of the last whole checkpoint; see `rl.run.saving.restore`."""
        optimizers = {"warm_start": self._warm_optimizer, "rounds": self.optimizer, "finished": self.optimizer}
        self.state = restore(self.policy, self._parameters, optimizers, checkpoints, display)
        del self._parameters

    def prepare(self, validation_seed: int, display: Display) -> None:
        """Draw the boards of the validations and the plans of the warm start."""
        warm_start = self.config.warm_start
        plans = self.state.progress.stage == "warm_start" and warm_start.steps > warm_start.engineer_first
        display.stage("boards", 1 + plans)
        self.validation = draw_validation_set(self.policy, validation_seed)
        display.advance("validation")
        if plans:
            self._plans = sft.plan_examples(self.policy, self.validation_boards, display)
            display.advance("warm start")

    def warm_start(self, recorder: Recorder) -> None:
        """Learn the solver's plans and engineer examples; validate, and begin the rounds."""
        if self.config.warm_start.steps:
            sft.warm_start(self.policy, self.state, recorder, self._warm_optimizer, self._plans)
            evidence = self.validate(recorder, "warm_start", occasion=1)
            recorder.keep_best(self.state, self.save, "warm_start", evidence)
        self.state.begin_rounds(self.optimizer, self.policy)

    def build(self, lake: LakeConfig, k: int) -> Dataset:
        """Generate and solve the boards of round k."""
        config = self.config
        key = make_key(config.seed, Purpose.BUILD, k)
        return build_boards(config, lake, key, config.rounds.instances, exclude=self.validation_boards)

    def train(self, recorder: Recorder, boards: Dataset, k: int) -> None:
        """GRPO on round k's boards, every epoch in an order of its own, from the step and update where the run stands.

        Raises:
          ConfigError: if the processes cannot share `grpo.prompts` equally.
          RunError: after `grpo.max_skipped` updates in a row that were not finite.
        """
        config, state, progress, display = self.config, self.state, self.state.progress, recorder.display
        settings = config.grpo
        data = BoardSet.of(self.policy, boards)
        count, alarmed = len(data.prompts), False
        total = count * config.rounds.epochs
        batches = progress.cursor // settings.prompts - (state.pending is not None)
        display.stage(f"round {k}: GRPO", total // settings.prompts, done=batches)
        recorder.meter.read()  # what design and boards compiled is not the first step's
        while state.pending is not None or progress.cursor < total:
            epoch, place = divmod(progress.cursor, count)
            order = np.asarray(jax.random.permutation(make_key(config.seed, Purpose.ORDER, k, epoch), count))
            metrics, seconds = grpo_step(self.policy, state, recorder, data, order[place:], self.optimizer)
            if metrics["mismatch_alarm"] and not alarmed:
                alarmed = True
                display.say(
                    f"round {k}, step {progress.step + 1}: sampler and trainer differ by a factor of "
                    f"{metrics['mismatch_factor']:.3f} a token, above grpo.mismatch_alarm = {settings.mismatch_alarm}"
                )
            display.done = progress.cursor // settings.prompts - 1  # one batch of prompts a step, or more
            status = f"reward {metrics['reward']:.2f} valid {metrics['valid']:.0%} optimal {metrics['optimal']:.0%}"
            status += f" {seconds['tokens_per_second']:.0f} tok/s"
            state.pending = None
            recorder.step_done(state, {"phase": "round"} | metrics, seconds, status, config.checkpoint.every_steps)

    def training_evidence(self, boards: Dataset, requested: LakeConfig) -> TrainingEvidence:
        """Return the rows of the round's answers."""
        return training_evidence(self.state.progress.training, boards, requested)

    def validate(
        self, recorder: Recorder, name: str, occasion: int, training: TrainingEvidence | None = None
    ) -> Evidence:
        """Answer the validation boards.

        Raises:
          Interrupted: with everything saved as it was before.
        """
        config, policy, boards, display = self.config, self.policy, self.validation, recorder.display
        settings = config.validation
        part = distributed.share(len(boards.prompts), "validation.instances")
        prompts, optima = boards.prompts.take(part), boards.optima[part]
        display.stage(f"{stage_name(name)}: validation", len(prompts) * (1 + settings.samples))

        def answer(number: int, samples: int, sampling: SamplingParams) -> tuple[Rollout, Verdict]:
            before = display.done
            rollout = policy.rollout(
                policy.rollout_parameters(self.state.parameters),
                prompts,
                make_key(config.seed, Purpose.VALIDATE, occasion, number),
                samples=samples,
                sampling=sampling,
                progress=recorder.stoppable(
                    self.state, lambda done: display.advance(steps=before + done - display.done)
                ),
            )
            return rollout, policy.judge(prompts, rollout, optima)

        greedy, verdicts = answer(0, 1, SamplingParams(temperature=0.0))
        sampling = SamplingParams(settings.temperature, settings.top_k, settings.top_p)
        drawn, sampled = answer(1, settings.samples, sampling)
        if policy.shape.lora is not None:
            check_stop = functools.partial(recorder.check_stop, self.state)
            effects = adapter_effects(policy, self.state.parameters, prompts, drawn, check_stop)
            recorder.directory.write(f"{name}/adapters.json", effects)
        rollout, verdicts, valid = distributed.all_gather((greedy, verdicts, sampled.valid))
        instances = boards.prompts.instances
        answers = Answers(
            instances=instances,
            optima=boards.optima,
            kinds=boards.kinds,
            environment=boards.environment,
            verdicts=verdicts,
            tokens=rollout.mask.sum(axis=-1),
            truncated=rollout.truncated,
            sampled_valid=valid.reshape(-1, settings.samples).mean(axis=-1),
            samples=settings.samples,
            plans=lambda chosen: policy.read(instances[chosen], rollout[chosen]),
            texts=lambda chosen: policy.texts(rollout.tokens[chosen], rollout.mask[chosen]),
            first_lost=lambda chosen, texts: first_lost(instances[chosen], texts),
            prompt=writer(config.text),
        )
        return keep_validation(recorder, name, answers, training)

    def pilot(self, recorder: Recorder, lake: LakeConfig, key: jax.Array) -> Mapping[Kind, np.ndarray]:
        """Let the current policy answer fresh boards of each kind with data; the result is the same on all processes.

        Args:
          lake: gives the kinds and their hole and wait ratios.

        Returns:
          For each kind the share of a board's answers that are valid, float ``[engineer.gate.boards]``, one or two more
          where the processes of a job could not share the boards otherwise.

        Raises:
          ConfigError: if no board of a kind is solvable.
          Interrupted: with everything saved as it was before.
        """
        policy, state = self.policy, self.state
        settings, training, display = self.config.engineer.gate, self.config.grpo, recorder.display
        lake = even(lake)
        count = -(-settings.boards * len(lake.kinds) // jax.process_count()) * jax.process_count()
        exclude = self.validation_boards
        with recorder.interruptible(state):
            boards = build_boards(self.config, lake, jax.random.fold_in(key, 0), count, exclude=exclude)
        part = distributed.share(count, "engineer.gate.boards")
        prompts = policy.prompts(boards.instances).take(part)
        display.stage(f"round {state.progress.round}: pilot", len(prompts) * settings.samples)
        rollout = policy.rollout(
            policy.rollout_parameters(state.parameters),
            prompts,
            jax.random.fold_in(key, 1),
            samples=settings.samples,
            sampling=SamplingParams(training.temperature),
            progress=recorder.stoppable(state, lambda done: display.advance(steps=done - display.done)),
        )
        verdict = policy.judge(prompts, rollout, np.asarray(boards.solutions.cost)[part])
        shares = distributed.all_gather(verdict.valid).reshape(-1, settings.samples).mean(axis=-1)
        return {kind: shares[boards.kinds == kind] for kind in lake.kinds}

    def branch_scores(self, recorder: Recorder, designs: Sequence[LakeConfig], key: jax.Array) -> np.ndarray:
        """Raise ValueError: a branch takes minutes, and a configuration that asks for them here is refused."""
        raise ValueError("a language policy trains no branch within a round")

    def author(self, engineer: str) -> nnx.State:
        """Return the reference's parameters for the engineer `base`, else the current ones."""
        return self.state.reference_parameters() if engineer == "base" else self.state.parameters

    def generation(self, recorder: Recorder, base: bool) -> tuple[Generate, Tokenizer]:
        """Return generation with its parameters, or those at the start of the rounds, held to the grammar."""
        parameters = self.state.reference_parameters() if base else self.state.parameters
        generate = self.policy.generation(parameters, recorder.stoppable(self.state, lambda done: None))
        return generate, self.policy.tokenizer

    def details(self) -> str:
        """Describe GRPO as the settings have it."""
        grpo, reward = self.config.grpo, self.config.reward
        return (
            f"GRPO, {grpo.prompts} boards a step with {grpo.samples} answers each, temperature {grpo.temperature:g}, "
            f"learning rate {grpo.learning_rate:g} ({grpo.schedule}), credit {grpo.credit}, advantage "
            f"{grpo.advantage}, loss {grpo.aggregation}, clip {grpo.clip_low:g} and {grpo.clip_high:g}, KL coefficient "
            f"{grpo.kl_coefficient:g}. Reward {reward.kind}: free length {reward.free_tokens}, limit "
            f"{reward.limit_tokens} tokens. {self.config.rounds.instances} boards a round."
        )

    def save(self, folder: Path) -> None:
        """Write model and tokenizer as a Hugging Face folder."""
        self.policy.save(folder, self.state.parameters)


def adapter_effects(
    policy: Policy, parameters: nnx.State, prompts: Prompts, rollout: Rollout, check: Callable[[], None]
) -> dict[str, float]:
    """Return how far the adapters move the policy's answers, and how far merging them would.

    Args:
      prompts, rollout: of this process, with its samples of each prompt; `ADAPTER_TOKENS` of these are looked at.
      check: called now and then; may raise.

    Returns:
      The mean absolute change of the log-probability of an answer's token, in nats: "training" from the base to the
      policy, "merging" from there to the model that `Policy.save` writes, rounded to the dtype of the base.
    """
    count, room = ADAPTER_TOKENS
    rows = np.linspace(0, len(rollout.tokens) - 1, count).astype(int)
    asked = [prompts.tokens[row * len(prompts) // len(rollout.tokens)] for row in rows]
    tokens, mask = rollout.tokens[rows, :room], rollout.mask[rows, :room]
    sequences = join(asked, policy.config.text.max_prompt_tokens, tokens, mask)

    trained, base = lora.split(parameters)
    # No second copy of the model: of 4 B parameters that would be 6.8 GiB beside the base's 7.5.
    nothing = jax.tree.map(jnp.zeros_like, trained)
    merged = abstract(dataclasses.replace(policy.shape, merged=True), policy.mesh)[0]

    def logprobs(graph: nnx.GraphDef[Qwen3], parameters: nnx.State) -> np.ndarray:
        return grpo.answer_logprobs_of(graph, parameters, sequences, policy.mesh, policy.config.grpo, check)

    ours = logprobs(policy.graph, parameters)
    moved = np.array(
        [
            np.abs(ours - logprobs(policy.graph, nnx.merge_state(nothing, base))).sum(),
            np.abs(ours - logprobs(merged, parameters)).sum(),
            mask.sum(),
        ]
    )
    training, merging, tokens = distributed.all_gather(moved[None]).sum(axis=0)
    return {"training": training / tokens, "merging": merging / tokens}


def draw_validation_set(policy: Policy, seed: int) -> BoardSet:
    """Draws the boards that the settings `validation` ask for, which every validation of a run answers.

    Raises:
      ConfigError: if no solvable board is found, or a prompt does not fit `text.max_prompt_tokens`.
    """
    settings, key = policy.config.validation, make_key(seed, Purpose.VALIDATION_SET)
    kinds = policy.config.target_kinds
    draw = functools.partial(build_boards, policy.config)
    boards = mixed_boards(draw, kinds, settings.holes, settings.wait, key, settings.instances)
    return dataclasses.replace(BoardSet.of(policy, boards), environment=evidence_.environment(boards))


def check_room(policy: Policy, examples: int = 64) -> None:
    """Finds out before a run, not in the middle of it, what would not fit.

    Texts into their room, the answers to a prompt into the sampler's rows, equal shares to the processes of a job. And
    whether tokens can have exact credit: of a cell in several tokens nobody knows which one was wrong.

    Raises:
      ConfigError: naming the setting that is too small.
    """
    config = policy.config
    if extensions.is_own(config.reward.kind):
        extensions.find("reward.kind", config.reward.kind)
    engineer = config.engineer
    pilots = engineer.gate.action is not GateAction.OFF or engineer.proposals > 1
    policy.sampler.width(max(config.grpo.samples, config.validation.samples, pilots * engineer.gate.samples))
    distributed.share(config.grpo.prompts, "grpo.prompts")
    distributed.share(config.validation.instances, "validation.instances")
    reads = isinstance(engineer.kind, LanguageKind) and engineer.kind != LanguageKind.API
    taught_too = config.warm_start.steps > 0 or config.grpo.engineer_every > 0

    @functools.cache  # what the engineer reads is mostly what it is taught, and 64 of these take half a second
    def drawn(shown: tuple[str, ...]) -> tuple[Sequence[list[int]], ...]:
        return tuple(zip(*sft.engineer_texts(policy, np.random.default_rng(0), examples, shown), strict=True))

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
