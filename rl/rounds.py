"""The loop of rounds: design an environment, train in it, see the failures, design the next (paper, Algorithm 1)."""

import jax
import numpy as np
import optax
from flax import nnx

from engineer import Choice, PastRound, Proposal, RandomEngineer
from engineer.evidence import Evidence, training_evidence
from engineer.proposal import distance, to_answer
from jaxlake.config import MAX_HOLE, LakeConfig
from jaxlake.generate import Dataset
from jaxlake.types import Instance
from rl import distributed, engineering, grpo
from rl.collect import TrainingSet, collect
from rl.config import Config, GRPOSection, extensions
from rl.config.choices import GateAction
from rl.grpo.optimizer import learning_rate, updates_made
from rl.policy import Policy
from rl.qwen3.tokenizer import check_fit
from rl.run.boards import build_boards
from rl.run.checkpoint import fingerprint
from rl.run.keys import Purpose
from rl.run.run import Pending, Run
from rl.run.tracking import Stopwatch
from rl.sft import engineer_texts


def run_rounds(run: Run, optimizer: optax.GradientTransformation, until: int) -> None:
    """Algorithm 1, from wherever the run stands: the policy that is trained designs what it is trained on next.

    Args:
      until: so many rounds are finished in the end.
    """
    for k in range(run.progress.round, until):
        if run.progress.lake is None:
            proposal = design(run, k)
            run.progress.begin_round(proposal.projected.to_dict(), proposal.thinking)
        data = build(run, k)
        train(run, k, data, optimizer)
        requested = LakeConfig.from_dict(run.progress.lake)
        training = training_evidence(run.progress.training, data, requested)
        found = run.validate(f"rounds/{k}", occasion=2 + k, training=training)
        run.note_validation(f"rounds/{k}", found)
        run.progress.end_round(data.realised(), found.to_json())
        run.save()
        run.check_stop()


def design(run: Run, k: int) -> Proposal:
    """Round k's configuration: a random draw for round 0, then what the engineer answers to the evidence.

    Where nothing that a model answers holds a configuration, the previous round's stays in force, and the run goes on.

    Raises:
      ConfigError: if the engineer's server refuses for good, or a pilot finds no solvable board.
      Interrupted: with everything saved as it was before.
    """
    history = [
        PastRound(
            past["round"], LakeConfig.from_dict(past["config"]), Evidence.from_json(past["evidence"]), past["rationale"]
        )
        for past in run.progress.history
    ]
    if k == 0:
        proposal = RandomEngineer(run.config.lake.sizes).propose(None, history, run.key(Purpose.DESIGN, k))
    else:
        proposal = engineering.make(run, k).propose(history[-1].evidence, history, run.key(Purpose.DESIGN, k))
        if not distributed.is_same(proposal.raw):
            raise RuntimeError(f"round {k}: the engineer's proposal is not the same on all processes")
        tell(run, k, proposal)
    run.directory.write(f"rounds/{k}/config.json", proposal.projected.to_dict())
    policy = run.reference_parameters() if proposal.engineer == "base" else run.parameters
    run.directory.write(f"rounds/{k}/proposal.json", proposal.to_json() | {"parameters": fingerprint(policy)})
    return proposal


def tell(run: Run, k: int, proposal: Proposal) -> None:
    """Says what the engineer designed, and what became of it."""
    who = "the policy" if proposal.engineer == "checkpoint" else proposal.engineer
    wordless = "(nothing)" if proposal.errors else to_answer(proposal.projected)
    run.display.say(f"round {k}: {who} designs\n{proposal.raw or wordless}")
    if proposal.fallback:
        run.display.say(
            f"round {k}: no configuration in {proposal.attempts} attempts ({proposal.errors[-1]}); "
            f"round {k - 1}'s stays in force"
        )
    if proposal.gate and proposal.gate["verdict"] == "refused":
        run.display.say(
            f"round {k}: refused, as {proposal.gate['without_signal']:.0%} of the pilot's boards are answered all "
            f"validly or all invalidly (engineer.gate.bound = {proposal.gate['bound']:g}); "
            f"{proposal.gate['action']} by round {k - 1}'s"
        )


def build(run: Run, k: int) -> Dataset:
    """Round k's instances; what the generator could realise of the configuration goes beside the proposal.

    Raises:
      ConfigError: if no solvable board is found.
    """
    lake = LakeConfig.from_dict(run.progress.lake)
    run.display.stage(f"round {k}: boards", 1)
    with run.interruptible():
        data = build_boards(
            run.config, lake, run.key(Purpose.BUILD, k), run.config.rounds.instances, exclude=run.validation.instances
        )
    realised = data.realised()
    found = {"realised": realised, "lowered": data.shortfalls()}
    found["distances"] = {"projected_realised": distance(lake, realised)}
    run.directory.amend(f"rounds/{k}/proposal.json", found)
    return data


def train(run: Run, k: int, boards: Dataset, optimizer: optax.GradientTransformation) -> None:
    """GRPO on round k's instances, every epoch in an order of its own, from the step and update where the run stands.

    Raises:
      ConfigError: if the processes cannot share `grpo.prompts` equally.
      RunError: after `grpo.max_skipped` updates in a row that were not finite.
    """
    settings, progress = run.config.grpo, run.progress
    data = TrainingSet(k, run.policy.prompts(boards.instances), np.asarray(boards.solutions.cost))
    count, alarmed = len(data.prompts), False
    total = count * run.config.rounds.epochs
    batches = progress.cursor // settings.prompts - (run.pending is not None)
    run.display.stage(f"round {k}: GRPO", total // settings.prompts, done=batches)
    run.meter.read()  # what design and boards compiled is not the first step's
    while run.pending is not None or progress.cursor < total:
        epoch, place = divmod(progress.cursor, count)
        order = np.asarray(jax.random.permutation(run.key(Purpose.ORDER, k, epoch), count))
        metrics, seconds = grpo_step(run, data, order[place:], optimizer)
        if metrics["mismatch_alarm"] and not alarmed:
            alarmed = True
            run.display.say(
                f"round {k}, step {progress.step + 1}: sampler and trainer differ by a factor of "
                f"{metrics['mismatch_factor']:.3f} a token, above grpo.mismatch_alarm = {settings.mismatch_alarm}"
            )
        run.display.done = progress.cursor // settings.prompts - 1  # one batch of prompts a step, or more
        status = f"reward {metrics['reward']:.2f} valid {metrics['valid']:.0%} optimal {metrics['optimal']:.0%}"
        status += f" {seconds['tokens_per_second']:.0f} tok/s"
        run.step_done({"phase": "round"} | metrics, seconds, status)


def grpo_step(
    run: Run, data: TrainingSet, upcoming: np.ndarray, optimizer: optax.GradientTransformation
) -> tuple[dict[str, float], dict[str, float]]:
    """One step: answers to the next prompts, and `grpo.iterations` passes over them in `grpo.minibatches` updates each.

    The answers of a step whose updates were broken off are in `run.pending` and not sampled again.

    Args:
      upcoming: see `collect`.

    Returns:
      Metrics, equal on all processes, and seconds and answer tokens a second by part: rollout, logprob, update, host.
    """
    watch = Stopwatch()
    if run.pending is None:
        collected = collect(run, data, upcoming, watch)
        batch = add_logprobs(run, collected.batch, watch)
        run.pending = Pending(batch=batch, metrics=collected.metrics, updates=[])
        run.progress.cursor += collected.taken
        run.progress.short_share, run.progress.training = collected.short_share, collected.training
    make_updates(run, optimizer)
    watch.lap("update")

    metrics = run.pending.metrics | summary(run.pending.updates)
    metrics["mismatch_alarm"] = float(metrics.get("mismatch_factor", 1.0) > run.config.grpo.mismatch_alarm)
    tokens = metrics["answer_tokens"] * metrics["groups_sampled"] * run.config.grpo.samples
    rates = {f"{part}_tokens_per_second": tokens / spent for part, spent in watch.seconds.items()}
    if not metrics["rows_computed"]:
        del rates["update_tokens_per_second"]
    rates["tokens_per_second"] = tokens / sum(watch.seconds.values())
    return metrics, watch.seconds | rates


def add_logprobs(run: Run, batch: grpo.Batch, watch: Stopwatch) -> grpo.Batch:
    """The batch with what its updates are measured against, as far as they need it; float32 ``[B, T]`` each.

    The one update of a rollout needs no old log-probs: they are its own. Answers that no update computes need none.

    Args:
      watch: gets the lap `logprob`.

    Raises:
      Interrupted: with everything saved as it was before the step.
    """
    settings, sequences = run.config.grpo, batch.sequences
    if settings.needs_advantage:
        sequences = sequences.replace(mask=sequences.mask & (batch.advantages != 0)[:, None])

    def logprobs(parameters: nnx.State) -> np.ndarray:
        graph, mesh = run.policy.graph, run.policy.mesh
        found = grpo.answer_logprobs_of(graph, parameters, sequences, mesh, settings, run.check_stop)
        watch.lap("logprob")
        return found

    if settings.updates > 1:
        batch = batch.replace(old_logprobs=logprobs(run.parameters))
    if settings.kl_coefficient > 0:
        batch = batch.replace(reference_logprobs=logprobs(run.reference_parameters()))
    return batch


def make_updates(run: Run, optimizer: optax.GradientTransformation) -> None:
    """The updates on `run.pending` that are still to be made.

    Raises:
      Interrupted: with everything saved, the updates made included.
      RunError: see `Run.note_update`.
    """
    settings, policy = run.config.grpo, run.policy
    schedule = learning_rate(settings, planned_updates(run.config))
    for number in range(run.progress.update, settings.updates):
        batch = minibatch(run.pending.batch, number % settings.minibatches, settings)
        rate = float(schedule(updates_made(run.optimizer_state)))
        run.parameters, run.optimizer_state, metrics = grpo.update(
            policy.graph,
            optimizer,
            run.parameters,
            run.optimizer_state,
            batch,
            policy.mesh,
            settings,
            run.config.text.max_new_tokens,
            run.check_stop,
        )
        metrics["learning_rate"] = rate
        run.pending.updates.append(metrics)
        run.progress.update += 1
        run.note_update(metrics, batch)
        run.check_stop()


def minibatch(batch: grpo.Batch, number: int, settings: GRPOSection) -> grpo.Batch:
    """Part `number` of a step's batch, this process's rows: of all groups every `minibatches`-th.

    Not groups side by side, as these are on one process: so each has an equal part of every minibatch, and the parts
    hold the same groups for any number of processes.
    """
    count = settings.prompts * settings.samples
    rows = np.arange(count)[distributed.share(count, "grpo.prompts")]
    return batch[rows // settings.samples % settings.minibatches == number]


def summary(updates: list[dict[str, float]]) -> dict[str, float]:
    """What a step logs of its updates: the largest of what is a maximum, the number of those skipped, else the mean.

    An update on answers that all lack a gradient has made nothing that most of the metrics could describe.
    """

    def one(name: str) -> float:
        values = [update[name] for update in updates if name in update]
        over = np.max if name.endswith("_max") else np.sum if name == "update_skipped" else np.mean
        return float(over(values))

    return {name: one(name) for name in dict.fromkeys(name for update in updates for name in update)}


def planned_updates(config: Config) -> int:
    """Updates of all rounds together, over which the learning rate runs its course; with dynamic sampling the most."""
    rounds, settings = config.rounds, config.grpo
    return rounds.count * rounds.epochs * (rounds.instances // settings.prompts) * settings.updates


def check_room(policy: Policy, examples: int = 64) -> None:
    """Finds out before a run, not in the middle of it, what would not fit.

    Texts into their room, the answers to a prompt into the sampler's rows, equal shares to the processes of a job.

    Raises:
      ConfigError: naming the setting that is too small.
    """
    config = policy.config
    engineering.check(config)
    if extensions.is_own(config.reward.kind):
        extensions.find("reward.kind", config.reward.kind)
    engineer = config.engineer
    pilots = engineer.gate.action is not GateAction.OFF or engineer.choice is Choice.BEST
    policy.sampler.width(max(config.grpo.samples, config.validation.samples, pilots * engineer.gate.samples))
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
