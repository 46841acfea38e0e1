"""One GRPO step: answers to boards, their verdicts, rewards and advantages as a batch, and the updates on it."""

import dataclasses
from collections.abc import Callable

import jax
import numpy as np
import optax
from flax import nnx

from engineer import evidence
from jaxlake.types import Verdict
from rl import distributed
from rl.config import Config, LearnSection
from rl.config.choices import Credit
from rl.judge.answers import judge
from rl.learn import credit, metrics, reward, supervised
from rl.learn.advantages import advantages, token_advantages
from rl.learn.boards import BoardSet
from rl.learn.loss import Batch
from rl.learn.optimizer import learning_rate, make_optimizer, updates_made
from rl.learn.state import TrainState
from rl.learn.update import answer_logprobs_of, update
from rl.model.logprobs import join
from rl.model.policy import Policy
from rl.model.sampler import Rollout, SamplingParams
from rl.model.tokenizer import Tokenizer
from rl.run.keys import Purpose, make_key
from rl.run.progress import Progress
from rl.run.recorder import Recorder
from rl.run.tracking import Stopwatch

MISMATCH_ALARM = 1.05
"""Mean factor between the trainer's and the sampler's probabilities of a token above which a step is reported."""


@dataclasses.dataclass(frozen=True)
class Rewarded:
    """The worth of a step's answers, the same on all processes.

    Attributes:
      rewards, advantages: rewards of ``B`` answers, and advantages over their groups, float32 ``[B]``.
      metrics: metrics of the answers.
      short_share: moving share of short answers from now on.
      training: `Progress.training` from now on.
    """

    rewards: reward.Rewards
    advantages: np.ndarray
    metrics: dict[str, float]
    short_share: float
    training: evidence.Sums


def grpo_step(
    policy: Policy, config: Config, state: TrainState, recorder: Recorder, data: BoardSet, boards: np.ndarray
) -> tuple[dict[str, float], dict[str, float]]:
    """Take one GRPO step on boards, int ``[learn.prompts]``, by their index in the set.

    1. Sample `learn.samples` answers to each of the boards, and judge them (`sample`).
    2. Reward the answers, and compare those to one board (`reward_answers`).
    3. Make a batch with an advantage a token (`make_batch`), and the log-probabilities that the updates are measured
       against (`add_logprobs`).
    4. Make `learn.minibatches` updates, each on a part of the batch (`make_updates`).
    5. After every `learn.engineer_every`-th step make an update on engineer examples (`supervised.rehearse`).

    Returns:
      Metrics, equal on all processes; seconds by part: rollout, credit, logprob, update, rehearsal, host; and answer
      tokens a second by each but the rehearsal.

    Raises:
      Interrupted: with everything saved as it was before the step. Once an update is made, a signal waits for its end.
    """
    settings, progress, watch = config.writer.learn, state.progress, Stopwatch()
    expected = len(boards) * settings.samples // jax.process_count()
    show = recorder.with_stop_check(lambda done: recorder.display.within(f"answers {done}/{expected}"))
    rollout, verdicts = sample(policy, config, state, data, boards, show, watch)
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
        optimizer = rounds_optimizer(config)
        metrics["engineer_loss"] = supervised.rehearse(policy, config, state, optimizer, recorder)
        watch.lap("rehearsal")

    metrics["mismatch_alarm"] = float(metrics.get("mismatch_factor", 1.0) > MISMATCH_ALARM)
    tokens = metrics["answer_tokens"] * len(boards) * settings.samples
    rates = {f"{part}_tokens_per_second": tokens / watch.seconds[part] for part in parts}
    if not metrics["rows_computed"]:
        del rates["update_tokens_per_second"]
    rates["tokens_per_second"] = tokens / sum(watch.seconds.values())
    return metrics, watch.seconds | rates


def sample(
    policy: Policy,
    config: Config,
    state: TrainState,
    data: BoardSet,
    boards: np.ndarray,
    show: Callable[[int], None],
    watch: Stopwatch,
) -> tuple[Rollout, Verdict]:
    """Answer the boards, and judge the answers: ``[P * learn.samples]``, those to one board side by side.

    Each process samples the answers to its part of the boards and then learns of all. (512 answers of 8,192 tokens are
    38 MB.) `show` is called with the number of finished answers, now and then, and may raise.
    """
    settings, progress = config.writer.learn, state.progress
    mine = boards[distributed.share(len(boards), "student.learn.prompts")]
    prompts = data.prompts.take(mine)
    rollout = policy.sampler.generate(
        policy.rollout_parameters(state.parameters),
        prompts.tokens,
        make_key(config.seed, Purpose.ROLLOUT, progress.round, progress.cursor // settings.prompts),
        samples=settings.samples,
        sampling=SamplingParams(settings.temperature),
        progress=show,
    )
    watch.lap("rollout")
    plans = policy.read(prompts.instances, rollout)
    verdicts = judge(prompts.instances, data.optima[mine], plans)
    answers = distributed.all_gather((rollout, verdicts))
    watch.lap("host")
    return answers


def reward_answers(
    config: Config, progress: Progress, data: BoardSet, boards: np.ndarray, rollout: Rollout, verdicts: Verdict
) -> Rewarded:
    """Reward the answers, compare those to one board, and describe them; `progress` is not changed."""
    samples, lengths, tokens = config.writer.learn.samples, config.writer.reward, rollout.mask.sum(axis=-1)
    groups = np.repeat(boards, samples)
    short_share = reward.moving_share(progress.short_share, tokens, lengths.free_tokens)
    rewards = reward.rewards(lengths, verdicts, data.optima[groups], tokens, short_share)
    kinds, truncated = data.kinds[groups], rollout.truncated
    described = metrics.describe(kinds, verdicts, rewards, tokens, truncated, groups, config.lake.kinds)
    described["zero_advantage"] = float((np.ptp(rewards.total.reshape(-1, samples), axis=-1) == 0).mean())
    described |= dict.fromkeys(("groups_sampled", "groups_kept"), float(len(boards)))
    if config.writer.text.thinking_cap is not None:
        described["thoughts_cut"] = float(rollout.forced.any(axis=-1).mean())
    compared = advantages(rewards.total, groups, config.writer.learn.advantage)
    checks, optimal, length, cut, worth = (
        x.reshape(-1, samples, *x.shape[1:]) for x in (verdicts.checks, verdicts.optimal, tokens, truncated, compared)
    )
    of_boards = data.kinds[boards]
    training = evidence.add(
        progress.training, of_boards, checks=checks, optimal=optimal, tokens=length, truncated=cut, advantages=worth
    )
    return Rewarded(rewards, compared, described, short_share, training)


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

    With exact credit an answer goes into the batch up to the token that loses its reward: what an update says of its
    tokens, entropy and mismatch among it, is said of these.
    """
    groups = np.repeat(boards, settings.samples)
    mine = distributed.share(len(groups), "student.learn.prompts")
    groups, rollout, mask = groups[mine], rollout[mine], rollout.mask[mine]
    by_token = np.repeat(rewarded.advantages[mine, None], mask.shape[1], axis=-1)
    if settings.credit is Credit.EXACT:
        watch.lap("host")
        has_reward = rewarded.rewards.total[mine] > 0
        mask, by_token = exact_credit(policy.tokenizer, data, groups[:: settings.samples], rollout, has_reward)
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


def exact_credit(
    tokenizer: Tokenizer, data: BoardSet, boards: np.ndarray, rollout: Rollout, rewarded: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return which tokens of these answers are trained on, bool ``[B, T]``, and their advantages, float32 ``[B, T]``.

    What follows the loss of the reward teaches nothing, so nothing is computed of it.

    Args:
      boards: int ``[P]``, the boards of the answers, those to one board side by side.
      rewarded: bool ``[B]``.
    """
    answers = [row[mask].tolist() for row, mask in zip(rollout.tokens, rollout.mask, strict=True)]
    credits = credit.token_credit(
        data.prompts.instances[boards],
        data.optima[boards],
        [tokenizer.pieces(answer) for answer in answers],
        rewarded,
        rollout.mask.shape[1],
    )
    return rollout.mask & (credits != 0), token_advantages(credits, np.asarray(rollout.logprobs))


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
            values[rows] = answer_logprobs_of(
                policy.graph, parameters, sequences[rows], policy.mesh, settings, check_stop
            )
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
