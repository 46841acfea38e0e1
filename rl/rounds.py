"""The loop of rounds: design an environment, train in it, see the failures, design the next (paper, Algorithm 1)."""

import jax
import numpy as np
import optax

from engineer import context
from engineer.context import PastRound, Training
from engineer.engineers import CheckpointEngineer, Generation, RandomEngineer
from engineer.evidence import Evidence
from jaxlake.config import MAX_HOLE, LakeConfig
from jaxlake.generate import Dataset
from jaxlake.rewards import accuracy
from jaxlake.types import Instance
from rl import distributed, grpo, reward
from rl.checkpoint import fingerprint
from rl.logprobs import join
from rl.policy import Policy, Prompts
from rl.qwen3.tokenizer import check_fit
from rl.run import Purpose, Run, Stopwatch, build_boards
from rl.sampler import Sampling
from rl.sft import engineer_texts


def run_rounds(run: Run, optimizer: optax.GradientTransformation) -> None:
    """Algorithm 1, from wherever the run stands: the policy that is trained designs what it is trained on next."""
    for k in range(run.progress.round, run.config.rounds.count):
        if run.progress.lake is None:
            run.progress.lake = design(run, k).to_dict()
        lake = build(run, k)
        train(run, k, lake, optimizer)
        evidence = run.validate(f"rounds/{k}", occasion=2 + k)
        run.progress.history.append({"round": k, "config": lake.realised(), "evidence": evidence.to_json()})
        run.progress.round, run.progress.step, run.progress.lake = k + 1, 0, None
        run.save()
        run.check_stop()


def design(run: Run, k: int) -> LakeConfig:
    """Round k's configuration: a random draw for round 0, then what the current parameters answer to the evidence."""
    rounds, key = run.config.rounds, run.key(Purpose.DESIGN, k)
    history = [
        PastRound(past["round"], LakeConfig.from_dict(past["config"]), Evidence.from_json(past["evidence"]))
        for past in run.progress.history
    ]
    if k == 0:
        proposal = RandomEngineer(run.config.lake.sizes).propose(None, history, key)
    else:
        sampler, parameters = run.policy.grammar_sampler(), run.policy.rollout_parameters(run.parameters)
        engineer = CheckpointEngineer(
            lambda message, grammar, key: Generation(*sampler(parameters, message, grammar, key)),
            rounds=rounds.count,
            epochs_per_round=rounds.epochs,
        )
        proposal = engineer.propose(history[-1].evidence, history, key)
        if not distributed.is_same(proposal.raw):
            raise RuntimeError(f"round {k}: the policy's proposal is not the same on all processes")
        message = context.build(history[-1].evidence, history, Training(k, rounds.count, rounds.epochs))
        run.directory.write(f"rounds/{k}/context.md", message + "\n")
        run.display.say(f"round {k}: the policy designs\n{proposal.raw}")
    run.directory.write(f"rounds/{k}/config.json", proposal.projected.to_dict())
    run.directory.write(f"rounds/{k}/proposal.json", proposal.to_json() | {"parameters": fingerprint(run.parameters)})
    return proposal.projected


def build(run: Run, k: int) -> Dataset:
    """Round k's instances; what the generator could realise of the configuration goes beside the proposal.

    Raises:
      ConfigError: if no solvable board is found.
    """
    lake = LakeConfig.from_dict(run.progress.lake)
    run.display.stage(f"round {k}: boards", 1)
    data = build_boards(
        run.config, lake, run.key(Purpose.BUILD, k), run.config.rounds.instances, exclude=run.validation.instances
    )
    run.directory.amend(f"rounds/{k}/proposal.json", {"realised": data.realised()})
    return data


def train(run: Run, k: int, lake: Dataset, optimizer: optax.GradientTransformation) -> None:
    """GRPO on round k's instances, every epoch in an order of its own, from the step where the run stands.

    Raises:
      ConfigError: if the processes cannot share `grpo.prompts` equally.
    """
    settings = run.config.grpo
    part = distributed.share(settings.prompts, "grpo.prompts")
    prompts, optima = run.policy.prompts(lake.instances), np.asarray(lake.solutions.cost)
    steps_per_epoch = len(prompts) // settings.prompts
    total = steps_per_epoch * run.config.rounds.epochs
    run.display.stage(f"round {k}: GRPO", total, done=run.progress.step)
    for step in range(run.progress.step, total):
        epoch, place = divmod(step, steps_per_epoch)
        order = np.asarray(jax.random.permutation(run.key(Purpose.ORDER, k, epoch), len(prompts)))
        rows = order[place * settings.prompts : (place + 1) * settings.prompts][part]
        metrics, seconds = grpo_step(
            run, prompts.take(rows), optima[rows], run.key(Purpose.ROLLOUT, k, step), optimizer
        )
        status = f"reward {metrics['reward']:.2f} valid {metrics['valid']:.0%} optimal {metrics['optimal']:.0%}"
        status += f" {seconds['tokens_per_second']:.0f} tok/s"
        run.step_done({"phase": "round"} | metrics, seconds, status)


def grpo_step(
    run: Run, prompts: Prompts, optima: np.ndarray, key: jax.Array, optimizer: optax.GradientTransformation
) -> tuple[dict[str, float], dict[str, float]]:
    """Samples answers to this process's ``[P]`` prompts, rewards them and makes one update with all processes.

    The answers to a prompt are all on one process; of the others it learns what they are worth, not what they say.

    Returns:
      Metrics, equal on all processes, and seconds by part.
    """
    settings, lengths = run.config.grpo, run.config.reward
    watch = Stopwatch()
    expected = len(prompts) * settings.samples
    answers = run.answer(
        prompts,
        key,
        samples=settings.samples,
        sampling=Sampling(settings.temperature, settings.top_k, settings.top_p),
        progress=lambda done: run.display.within(f"answers {done}/{expected}"),
    )
    watch.lap("rollout")

    rollout, verdict = answers.rollout, run.judge(prompts, answers, optima)
    verdict, truncated, tokens, optima = distributed.gather(
        (verdict, rollout.truncated, rollout.mask.sum(axis=-1), np.repeat(optima, settings.samples))
    )
    run.progress.short_share = reward.moving_share(run.progress.short_share, tokens, lengths.free_tokens, lengths.decay)
    w_acc, w_len = reward.weights(run.progress.short_share)
    accuracies = accuracy(verdict.valid, verdict.cost, optima)
    penalty = reward.length_penalty(tokens, lengths.free_tokens, lengths.limit_tokens)
    rewards = w_acc * accuracies + w_len * penalty
    groups = rewards.reshape(-1, settings.samples)
    valid = verdict.valid.reshape(groups.shape).mean(axis=-1)
    mine = distributed.share(len(rewards), "grpo.prompts")
    batch = grpo.Batch(
        sequences=join(
            [prompt for prompt in prompts.tokens for _ in range(settings.samples)],
            run.config.text.max_prompt_tokens,
            rollout.tokens,
            rollout.mask,
        ),
        old_logprobs=rollout.logprobs,
        advantages=grpo.group_advantages(groups).reshape(-1)[mine],
    )
    watch.lap("host")

    run.parameters, run.optimizer_state, metrics = grpo.update(
        run.policy.graph, optimizer, run.parameters, run.optimizer_state, batch, run.policy.mesh, settings
    )
    metrics |= {
        "reward": rewards.mean(),
        "reward_accuracy": accuracies.mean(),
        "reward_length": penalty.mean(),
        "weight_accuracy": w_acc,
        "valid": verdict.valid.mean(),
        "optimal": verdict.optimal.mean(),
        "all_valid_groups": (valid == 1).mean(),
        "all_invalid_groups": (valid == 0).mean(),
        "answer_tokens": tokens.mean(),
        "truncated": truncated.mean(),
    }
    watch.lap("update")
    seconds = watch.seconds
    return metrics, seconds | {"tokens_per_second": float(tokens.sum()) / sum(seconds.values())}


def check_room(policy: Policy, examples: int = 64) -> None:
    """Finds out before a run, not in the middle of it, what would not fit.

    Texts into their room, the answers to a prompt into the sampler's rows, equal shares to the processes of a job.

    Raises:
      ConfigError: naming the setting that is too small.
    """
    config = policy.config
    policy.sampler.width(max(config.grpo.samples, config.validation.samples))
    distributed.share(config.grpo.prompts, "grpo.prompts")
    distributed.share(config.validation.instances, "validation.instances")
    contexts, taught, answers = zip(*engineer_texts(policy, np.random.default_rng(0), examples), strict=True)
    check_fit(contexts, config.engineer.max_prompt_tokens, "engineer.max_prompt_tokens")
    check_fit(answers, config.engineer.max_answer_tokens, "engineer.max_answer_tokens")
    if config.warm_start.steps:
        check_fit(contexts, config.warm_start.max_context_tokens, "warm_start.max_context_tokens")
        check_fit(taught, config.warm_start.max_answer_tokens, "warm_start.max_answer_tokens")

    # The longest prompt that a configuration can ask for: the largest board with the most holes.
    size, agents = config.lake.sizes[-1], config.lake.num_agents
    cells = np.arange(size * size)
    holes = cells >= size * size - int(MAX_HOLE * (size * size - 2 * agents))
    fullest = Instance(
        size=np.array([size]),
        num_agents=np.array([agents]),
        holes=holes[None],
        starts=cells[None, :agents],
        goals=cells[None, agents : 2 * agents],
    )
    policy.prompts(fullest)
