"""One GRPO step: answers to boards, their verdicts, rewards and advantages as a batch, and the updates on it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import optax
from flax import nnx

from engineer import evidence
from jaxlake.types import Verdict
from rl import distributed
from rl.config import Config, LearnSection
from rl.judge.answers import judge
from rl.learn import credit, metrics, reward, supervised
from rl.learn.advantages import advantages, token_advantages
from rl.learn.boards import BoardSet
from rl.learn.loss import Batch
from rl.learn.optimizer import learning_rate, make_optimizer, updates_made
from rl.learn.state import TrainState
from rl.learn.update import answer_logprobs_of, update
from rl.model.logprobs import join
from rl.model.policy import Policy, Prompts
from rl.model.sampler import Rollout, SamplingParams
from rl.run.keys import Purpose, make_key
from rl.run.progress import Progress
from rl.run.recorder import Recorder
from rl.run.tracking import Stopwatch

MISMATCH_ALARM = 1.05
"""Mean factor between the trainer's and the sampler's probabilities of a token above which a step is reported."""


@dataclasses.dataclass(frozen=True)
class Rewarded:
    """The worth of a step's ``B`` answers, the same on all processes.

    Attributes:
      rewards, advantages: float32 ``[B]``, advantages over the groups.
      metrics: metrics of the answers.
      short_share: moving share of short answers from now on.
      training: `Progress.training` from now on.
    """

    rewards: np.ndarray
    advantages: np.ndarray
    metrics: dict[str, float]
    short_share: float
    training: evidence.Sums


def grpo_step(
    policy: Policy, config: Config, state: TrainState, recorder: Recorder, data: BoardSet, boards: np.ndarray
) -> tuple[dict[str, float], dict[str, float]]:
    """Take one GRPO step on boards, int ``[learn.prompts]``, by their index in the set.

    1. Sample `learn.samples` answers to each of the boards (`sample`), and judge them.
    2. Reward the answers, and compare those to one board (`reward_answers`).
    3. Make a batch with an advantage a token (`make_batch`), and the log-probabilities that the updates are measured
       against (`add_logprobs`).
    4. Make `learn.minibatches` updates, each on a part of the batch (`make_updates`).
    5. After every `learn.engineer_every`-th step make an update on engineer examples (`supervised.rehearse`).

    A signal ends the step with everything saved as it was before. Once an update is made, it waits for the step's end.

    Returns:
      Metrics, equal on all processes; seconds by part: rollout, credit, logprob, update, rehearsal, host; and answer
      tokens a second by each but the rehearsal.
    """
    settings, progress, watch = config.writer.learn, state.progress, Stopwatch()
    mine = boards[distributed.share(len(boards), "student.learn.prompts")]
    prompts, expected = data.prompts.take(mine), len(mine) * settings.samples
    show = recorder.with_stop_check(lambda done: recorder.display.within(f"answers {done}/{expected}"))
    rollout = sample(policy, config, state, prompts, show)
    watch.lap("rollout")
    verdicts = judge(prompts.instances, data.optima[mine], policy.read(prompts.instances, rollout))
    # Each process learns of all answers: 512 of 8,192 tokens are 38 MB.
    rollout, verdicts = distributed.all_gather((rollout, verdicts))
    rewarded = reward_answers(config, progress, data, boards, rollout, verdicts)
    batch = make_batch(policy, settings, data, boards, rollout, rewarded, watch)
    batch = add_logprobs(policy, settings, state, batch, recorder.check_stop, watch)
    updates = make_updates(policy, config, state, recorder, batch)
    progress.cursor += len(boards)
    progress.short_share, progress.training = rewarded.short_share, rewarded.training
    watch.lap("update")
    metrics = rewarded.metrics | summary(updates)
    parts = [*watch.seconds]
    if settings.engineer_every and (progress.step + 1) % settings.engineer_every == 0:
        metrics["engineer_loss"] = supervised.rehearse(policy, config, state, rounds_optimizer(config), recorder)
        watch.lap("rehearsal")

    metrics["mismatch_alarm"] = float(metrics.get("mismatch_factor", 1.0) > MISMATCH_ALARM)
    tokens = metrics["answer_tokens"] * len(boards) * settings.samples
    rates = {f"{part}_tokens_per_second": tokens / watch.seconds[part] for part in parts}
    if not metrics["rows_computed"]:
        del rates["update_tokens_per_second"]
    rates["tokens_per_second"] = tokens / sum(watch.seconds.values())
    return metrics, watch.seconds | rates


def sample(policy: Policy, config: Config, state: TrainState, prompts: Prompts, show: Callable[[int], None]) -> Rollout:
    """Return `learn.samples` answers to each of this process's prompts, side by side; see `Answerer` for `show`."""
    settings, progress = config.writer.learn, state.progress
    return policy.sampler.generate(
        policy.rollout_parameters(state.parameters),
        prompts.tokens,
        make_key(config.seed, Purpose.ROLLOUT, progress.round, progress.cursor // settings.prompts),
        samples=settings.samples,
        sampling=SamplingParams(settings.temperature),
        progress=show,
    )


def reward_answers(
    config: Config, progress: Progress, data: BoardSet, boards: np.ndarray, rollout: Rollout, verdicts: Verdict
) -> Rewarded:
    """Reward the answers, compare those to one board, and describe them; `progress` is not changed."""
    settings, samples, tokens = config.writer.reward, config.writer.learn.samples, rollout.mask.sum(axis=-1)
    groups = np.repeat(boards, samples)
    short_share = reward.moving_share(progress.short_share, tokens, settings.free_tokens)
    rewards = reward.rewards(settings, verdicts, data.optima[groups], tokens, short_share)
    described = metrics.describe(
        data.kinds[groups], verdicts, rewards, tokens, rollout.truncated, groups, config.lake.kinds
    )
    described["zero_advantage"] = float((np.ptp(rewards.total.reshape(-1, samples), axis=-1) == 0).mean())
    described |= dict.fromkeys(("groups_sampled", "groups_kept"), float(len(boards)))
    if config.writer.text.thinking_cap is not None:
        described["thoughts_cut"] = float(rollout.forced.any(axis=-1).mean())
    compared = advantages(rewards.total, groups, config.writer.learn.advantage)
    columns = {"checks": verdicts.checks, "optimal": verdicts.optimal, "tokens": tokens, "advantages": compared}
    columns["truncated"] = rollout.truncated
    by_group: dict[str, Any] = {name: x.reshape(-1, samples, *x.shape[1:]) for name, x in columns.items()}
    training = evidence.add(progress.training, data.kinds[boards], **by_group)
    return Rewarded(rewards.total, compared, described, short_share, training)


def make_batch(
    policy: Policy,
    settings: LearnSection,
    data: BoardSet,
    boards: np.ndarray,
    rollout: Rollout,
    rewarded: Rewarded,
    watch: Stopwatch,
) -> Batch:
    """Make a batch of this process's part of the answers, with an advantage a token.

    Tokens that the sampler wrote to close a thought are in the batch and count nowhere: the policy did not choose them.

    With exact credit an answer goes into the batch up to the token that loses its reward: what follows teaches nothing,
    so nothing is computed of it. Entropy and mismatch are then of these tokens alone.
    """
    groups = np.repeat(boards, settings.samples)
    mine = distributed.share(len(groups), "student.learn.prompts")
    groups, rollout, mask = groups[mine], rollout[mine], rollout.mask[mine]
    by_token = np.repeat(rewarded.advantages[mine, None], mask.shape[1], axis=-1)
    if settings.credit == "exact":
        watch.lap("host")
        answers = [row[written].tolist() for row, written in zip(rollout.tokens, mask, strict=True)]
        board = groups[:: settings.samples]
        credits = credit.token_credit(
            data.prompts.instances[board],
            data.optima[board],
            [policy.tokenizer.pieces(answer) for answer in answers],
            rewarded.rewards[mine] > 0,
            mask.shape[1],
        )
        mask, by_token = mask & (credits != 0), token_advantages(credits, np.asarray(rollout.logprobs))
        watch.lap("credit")
    prompts = [data.prompts.tokens[board] for board in groups]
    sequences = join(prompts, policy.text.max_prompt_tokens, rollout.tokens, mask)
    batch = Batch(
        sequences=sequences.replace(mask=sequences.mask & ~rollout.forced),
        sampler_logprobs=rollout.logprobs,
        advantages=by_token,
    )
    watch.lap("host")
    return batch


def add_logprobs(
    policy: Policy,
    settings: LearnSection,
    state: TrainState,
    batch: Batch,
    check_stop: Callable[[], None],
    watch: Stopwatch,
) -> Batch:
    """Return the batch with what its updates are measured against, as far as they need it; float32 ``[B, T]`` each.

    The one update of a rollout needs no old log-probs: they are its own. Answers that no update computes need none.
    """
    sequences = batch.sequences
    if settings.needs_advantage:
        learns = np.any(sequences.mask & (batch.advantages != 0), axis=-1, keepdims=True)
        sequences = sequences.replace(mask=sequences.mask & learns)

    def logprobs(parameters: nnx.State) -> np.ndarray:
        values = np.zeros(sequences.mask.shape, np.float32)
        for number in range(settings.minibatches):
            rows = minibatch_rows(number, settings)
            part = sequences[rows]
            values[rows] = answer_logprobs_of(policy.graph, parameters, part, policy.mesh, settings, check_stop)
        watch.lap("logprob")
        return values

    if settings.minibatches > 1:
        batch = batch.replace(old_logprobs=logprobs(state.parameters))
    if settings.kl_coefficient > 0:
        batch = batch.replace(reference_logprobs=logprobs(state.reference_parameters()))
    return batch


def make_updates(
    policy: Policy, config: Config, state: TrainState, recorder: Recorder, batch: Batch
) -> list[dict[str, float]]:
    """Make the updates on the answers of a step, and return the metrics of each."""
    settings, optimizer = config.writer.learn, rounds_optimizer(config)
    schedule, updates = learning_rate(settings, planned_updates(config)), list[dict[str, float]]()
    for number in range(settings.minibatches):
        rate = float(schedule(updates_made(state.optimizer_state)))
        state.parameters, state.optimizer_state, metrics = update(
            policy.graph,
            optimizer,
            state.parameters,
            state.optimizer_state,
            batch[minibatch_rows(number, settings)],
            policy.mesh,
            settings,
            (lambda: None) if updates else recorder.check_stop,  # a step is saved before or after all of its updates
        )
        recorder.note_update(metrics)
        updates.append(metrics | {"learning_rate": rate})
    return updates


def minibatch_rows(number: int, settings: LearnSection) -> np.ndarray:
    """Mark part `number` of a step's batch, bool over this process's rows: of all groups every `minibatches`-th.

    Not groups side by side, as these are on one process: so each has an equal part of every minibatch, and the parts
    hold the same groups for any number of processes.
    """
    count = settings.prompts * settings.samples
    rows = np.arange(count)[distributed.share(count, "student.learn.prompts")]
    return rows // settings.samples % settings.minibatches == number


def summary(updates: list[dict[str, float]]) -> dict[str, float]:
    """Summarise a step's updates: the largest of what is a maximum, the number of those skipped, else the mean.

    An update on answers that all lack a gradient has made nothing that most of the metrics could describe.
    """
    summed: dict[str, float] = {}
    for name in dict.fromkeys(name for made in updates for name in made):
        values = [made[name] for made in updates if name in made]
        over = np.max if name.endswith("_max") else np.sum if name == "update_skipped" else np.mean
        summed[name] = float(over(values))
    return summed


def rounds_optimizer(config: Config) -> optax.GradientTransformation:
    """Return the optimizer of all rounds; its learning rate runs its course over `planned_updates`."""
    return make_optimizer(config.writer.learn, planned_updates(config))


def planned_updates(config: Config) -> int:
    """Return the number of updates of all rounds together, the learning rate's course."""
    rounds, settings = config.rounds, config.writer.learn
    steps = config.writer.epochs * (rounds.instances // settings.prompts)
    rehearsals = steps // settings.engineer_every if settings.engineer_every else 0
    return rounds.count * (steps * settings.minibatches + rehearsals)
