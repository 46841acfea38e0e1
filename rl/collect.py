"""The answers of one step: prompts in; out come verdicts, rewards, groups and advantages, as a batch to train on."""

import dataclasses

import jax
import numpy as np

from engineer import evidence
from jaxlake.types import Verdict
from rl import distributed, grpo, metrics, reward
from rl.policy import Prompts
from rl.qwen3.logprobs import join
from rl.run.keys import Purpose
from rl.run.run import Run
from rl.run.tracking import Stopwatch
from rl.sampler import Rollout, Sampling


@dataclasses.dataclass(frozen=True)
class TrainingSet:
    """What a round trains on.

    Attributes:
      round: its number, which is the version of its configuration.
      prompts, optima: ``[n]`` instances and their least costs; the same on all processes.
    """

    round: int
    prompts: Prompts
    optima: np.ndarray


@dataclasses.dataclass(frozen=True)
class Collected:
    """A step's answers.

    Attributes:
      batch: this process's rows, equally many on each, ``grpo.prompts * grpo.samples`` in all; see `collect`.
      metrics: describe all answers that were sampled, kept or not; the same on all processes.
      taken: instances that were used up.
      short_share: moving share of short answers from now on.
      training: `Progress.training` from now on: all answers that were sampled count, those left out of the batch with
        an advantage of 0.
    """

    batch: grpo.Batch
    metrics: dict[str, float]
    taken: int
    short_share: float
    training: evidence.Sums


def collect(run: Run, data: TrainingSet, upcoming: np.ndarray, watch: Stopwatch) -> Collected:
    """Answers the next prompts and says what the answers are worth.

    With `grpo.resampling`, groups (the answers to one prompt) that are all valid or all invalid are left out, and
    further batches of prompts are answered until `grpo.prompts` groups remain, the cap is reached or the epoch ends
    (dynamic sampling, Yu et al. 2025). What counts is validity alone: the penalty on length gives groups without any
    valid answer differences in reward of their own. Places in the batch that no group fills count nowhere: their masks
    are empty, their advantages 0.

    Each process samples the answers to its part of the prompts and then learns of all, so that all choose the same
    groups and share them equally. (512 answers of 8,192 tokens are 38 MB.)

    Args:
      upcoming: int ``[m]``, instances of the set in the order of the epoch, those that are used up left out; m is a
        multiple of `grpo.prompts`.
      watch: gets the laps `rollout` and `host`.

    Raises:
      Interrupted: with everything saved as it was before.
    """
    settings, lengths, samples = run.config.grpo, run.config.reward, run.config.grpo.samples
    rollout, verdict, kept, taken = _sample(run, data, upcoming, watch)
    instances, tokens = np.repeat(taken, samples), rollout.mask.sum(axis=-1)
    short_share = reward.moving_share(run.progress.short_share, tokens, lengths.free_tokens, lengths.decay)
    rewards = reward.rewards(lengths, verdict, data.optima[instances], tokens, short_share)
    groups = grpo.Groups(
        version=np.full(len(instances), data.round, np.int32),
        instance=instances.astype(np.int32),
        role=np.full(len(instances), grpo.Role.PLANNER, np.int32),
    ).ids()
    sizes = data.prompts.instances.size[instances]
    described = metrics.describe(sizes, verdict, rewards, tokens, rollout.truncated, groups, run.config.lake.sizes)
    described |= {
        "zero_advantage": float((np.ptp(rewards.total.reshape(-1, samples), axis=-1) == 0).mean()),
        "groups_sampled": float(len(taken)),
        "groups_kept": float((kept >= 0).sum()),
    }

    rows, filled = answer_rows(np.maximum(kept, 0), samples), np.repeat(kept >= 0, samples)
    chosen, advantages = rows[filled], np.zeros(len(rows), np.float32)
    if len(chosen):
        advantages[filled] = grpo.advantages(rewards.total[chosen], groups[chosen], settings.advantage)
    of_all = np.zeros(len(instances), np.float32)
    of_all[chosen] = advantages[filled]
    training = _add(run.progress.training, data, taken, verdict, rollout, of_all)
    counts = filled & ~rollout.truncated[rows] if settings.mask_truncated else filled
    mine = distributed.share(len(rows), "grpo.prompts")
    rows = rows[mine]
    sequences = join(
        [data.prompts.tokens[instance] for instance in instances[rows]],
        run.config.text.max_prompt_tokens,
        rollout.tokens[rows],
        rollout.mask[rows],
    )
    batch = grpo.Batch(
        sequences=sequences.replace(mask=sequences.mask & counts[mine][:, None]),
        sampler_logprobs=rollout.logprobs[rows],
        advantages=advantages[mine],
    )
    watch.lap("host")
    return Collected(batch, described, taken=len(taken), short_share=short_share, training=training)


def _add(
    sums: evidence.Sums | None,
    data: TrainingSet,
    taken: np.ndarray,
    verdict: Verdict,
    rollout: Rollout,
    advantages: np.ndarray,
) -> evidence.Sums:
    """The round's sums with the answers to the instances taken."""

    def grouped(values: np.ndarray) -> np.ndarray:
        return values.reshape(len(taken), -1, *values.shape[1:])

    return evidence.add(
        sums,
        data.prompts.instances.size[taken],
        checks=grouped(verdict.checks),
        optimal=grouped(verdict.optimal),
        tokens=grouped(rollout.mask.sum(axis=-1)),
        truncated=grouped(rollout.truncated),
        advantages=grouped(advantages),
    )


def _sample(
    run: Run, data: TrainingSet, upcoming: np.ndarray, watch: Stopwatch
) -> tuple[Rollout, Verdict, np.ndarray, np.ndarray]:
    """All answers with their verdicts, the groups that are kept (see `placed`), and whose answers they are."""
    settings = run.config.grpo
    batches, sampled = run.progress.cursor // settings.prompts, []
    for number, instances in enumerate(upcoming.reshape(-1, settings.prompts)[: 1 + settings.resampling], batches):
        # By the batch's place in the round, and no key made from another: the sampler folds numbers into this one too.
        sampled.append(_answer(run, data, instances, run.key(Purpose.ROLLOUT, data.round, number), watch))
        rollout, verdict = jax.tree.map(lambda *x: np.concatenate(x), *sampled)
        valid = verdict.valid.reshape(-1, settings.samples)
        kept = informative(valid) if settings.resampling else np.arange(len(valid))
        if len(kept) >= settings.prompts:
            break
    return rollout, verdict, placed(kept, settings.prompts), upcoming[: len(sampled) * settings.prompts]


def _answer(
    run: Run, data: TrainingSet, instances: np.ndarray, key: jax.Array, watch: Stopwatch
) -> tuple[Rollout, Verdict]:
    """Answers to these instances ``[P]`` and what they are worth, ``[P * samples]`` on every process."""
    settings = run.config.grpo
    mine = instances[distributed.share(len(instances), "grpo.prompts")]
    prompts, expected = data.prompts.take(mine), len(mine) * settings.samples
    rollout = run.answer(
        prompts,
        key,
        samples=settings.samples,
        sampling=Sampling(settings.temperature),
        progress=lambda done: run.display.within(f"answers {done}/{expected}"),
    )
    watch.lap("rollout")
    gathered = distributed.gather((rollout, run.judge(prompts, rollout, data.optima[mine])))
    watch.lap("host")
    return gathered


def informative(valid: np.ndarray) -> np.ndarray:
    """Which groups hold valid and invalid answers both: their indices, in order, of bool ``[groups, samples]``."""
    return np.flatnonzero(valid.any(axis=-1) & ~valid.all(axis=-1))


def placed(kept: np.ndarray, places: int) -> np.ndarray:
    """The first of the groups kept, a group a place, int ``[places]``; -1 where there are no more of them."""
    return np.concatenate([kept, np.full(places, -1)])[:places]


def answer_rows(groups: np.ndarray, samples: int) -> np.ndarray:
    """The rows of groups ``[n]``, whose answers lie side by side: int ``[n * samples]``."""
    return (groups[:, None] * samples + np.arange(samples)).reshape(-1)
