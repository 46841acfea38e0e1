"""The loop of rounds: design an environment, train in it, see the failures, design the next (paper, Algorithm 1)."""

from typing import Literal

import jax
import numpy as np
import optax

from engineer import Choice, PastRound, Proposal, RandomEngineer
from engineer.evidence import Evidence, training_evidence
from engineer.proposal import distance, to_answer
from jaxlake.config import MAX_HOLE, LakeConfig
from jaxlake.generate import Dataset
from jaxlake.generate.candidates import BLOCK, Shape, draw
from jaxlake.kinds import Family, Kind
from jaxlake.types import Instance
from rl import distributed, engineering, sft
from rl.collect import grpo_step, rounds_optimizer
from rl.config import Config, ConfigError, extensions
from rl.config.choices import GateAction
from rl.grpo.optimizer import make_optimizer
from rl.policy import Policy
from rl.qwen3.tokenizer import check_fit
from rl.run.boards import BoardSet, build_boards
from rl.run.checkpoint import fingerprint
from rl.run.directory import RunDirectory
from rl.run.keys import Purpose, make_key
from rl.run.recorder import Recorder
from rl.run.saving import restore
from rl.run.signals import Stop
from rl.run.state import TrainState
from rl.run.tracking import Display, Meter, Profiler, Trackers
from rl.run.validation import draw_validation_set, validate


def execute(
    config: Config,
    directory: RunDirectory,
    display: Display,
    stop: Stop,
    until: Literal["rounds", "finished"] | int = "finished",
) -> None:
    """Trains from wherever the directory stands until a stage begins, and leaves the policy in ``final/`` then.

    Args:
      until: "rounds" does the warm start alone, a number goes on until so many rounds are finished; what comes after
        it can still be done, by another call.

    Raises:
      ConfigError: for a mistake of the user's; nothing is written if it is found before the first step.
      RunError: if the run or its disk cannot go on.
      Interrupted: after Ctrl-C or SIGTERM, with everything saved.
    """
    saved = directory.checkpoints.progress()
    if saved is None and directory.has_rounds():
        raise ConfigError(
            f"{directory.path}: has steps of rounds but no checkpoint to go on from; choose another with --run, "
            "or delete this one"
        )
    if saved is not None and saved.stage == "finished":
        display.say(f"{directory.path} is finished; to train anew choose another directory with --run")
        return
    if saved is not None and saved.stage == until:
        display.say(f"{directory.path}: the warm start is done; python -m rl.train goes on with the rounds")
        return
    with stop.at_once():
        policy, parameters = Policy.create(config, make_key(config.seed, Purpose.PARAMETERS))
        display.say(policy.describe(parameters))
        check_room(policy)
        trackers = Trackers(config, directory.path, display.say)
        profiler = Profiler(config.tracking, directory.path)
        warm, optimizer = make_optimizer(config.warm_start, config.warm_start.steps), rounds_optimizer(config)
        optimizers = {"warm_start": warm, "rounds": optimizer, "finished": optimizer}
        state = restore(policy, parameters, optimizers, directory.checkpoints, display)
        if saved is not None:
            display.say(f"Goes on in {directory.path}: {state}")
        progress = state.progress
        supervise = progress.stage == "warm_start" and config.warm_start.steps > 0
        display.stage("boards", 1 + supervise)
        validation = draw_validation_set(policy, directory.validation_seed)
        display.advance("validation")
        if supervise:
            plans = sft.plan_examples(policy, validation.prompts.instances, display)
            display.advance("warm start")

    directory.create()
    directory.cut_logs(progress)
    with trackers, profiler:
        recorder = Recorder(directory, display, stop, trackers, Meter(), profiler)
        if progress.stage == "warm_start":
            if progress.step == 0:
                validate(policy, state, recorder, validation, "before", occasion=0)
            if supervise:
                sft.warm_start(policy, state, recorder, warm, plans)
                evidence = validate(policy, state, recorder, validation, "warm_start", occasion=1)
                recorder.keep_best(state, policy, "warm_start", evidence)
            if until == "rounds":
                recorder.export(policy, state.parameters, "final")
            state.begin_rounds(optimizer, policy)
            recorder.save(state)
        if until != "rounds":
            last = config.rounds.count if until == "finished" else until
            run_rounds(policy, state, recorder, validation, optimizer, last)
            recorder.export(policy, state.parameters, "final")
        if until == "finished":
            progress.stage = "finished"
            recorder.save(state)


def run_rounds(
    policy: Policy,
    state: TrainState,
    recorder: Recorder,
    validation: BoardSet,
    optimizer: optax.GradientTransformation,
    until: int,
) -> None:
    """Algorithm 1, from wherever the run stands: the policy that is trained designs what it is trained on next.

    Args:
      until: so many rounds are finished in the end.
    """
    progress, exclude = state.progress, validation.prompts.instances
    for k in range(progress.round, until):
        if progress.lake is None:
            proposal = design(policy, state, recorder, exclude, k)
            progress.begin_round(proposal.projected.to_dict(), proposal.thinking)
        assert progress.lake is not None
        requested = LakeConfig.from_dict(progress.lake)
        data = build(policy.config, state, recorder, requested, exclude, k)
        train(policy, state, recorder, data, optimizer, k)
        training = training_evidence(progress.training, data, requested)
        evidence = validate(policy, state, recorder, validation, f"rounds/{k}", occasion=2 + k, training=training)
        recorder.keep_best(state, policy, f"rounds/{k}", evidence)
        progress.end_round(data.realised(), evidence.to_json())
        recorder.save(state)
        recorder.check_stop(state)


def design(policy: Policy, state: TrainState, recorder: Recorder, exclude: Instance, k: int) -> Proposal:
    """Round k's configuration: a random draw for round 0, then what the engineer answers to the evidence.

    Where nothing that a model answers holds a configuration, the previous round's stays in force, and the run goes on.

    Args:
      exclude: boards that no pilot may show.

    Raises:
      ConfigError: if the engineer's server refuses for good, or a pilot finds no solvable board.
      Interrupted: with everything saved as it was before.
    """
    config, directory = policy.config, recorder.directory
    key = make_key(config.seed, Purpose.DESIGN, k)
    history = [
        PastRound(
            past["round"], LakeConfig.from_dict(past["config"]), Evidence.from_json(past["evidence"]), past["rationale"]
        )
        for past in state.progress.history
    ]
    if k == 0:
        proposal = RandomEngineer(config.lake.kinds).propose(None, history, key)
    else:
        engineer = engineering.make(policy, state, recorder, exclude, k)
        proposal = engineer.propose(history[-1].evidence, history, key)
        if not distributed.is_same(proposal.raw):
            raise RuntimeError(f"round {k}: the engineer's proposal is not the same on all processes")
        announce(recorder.display, k, proposal)
    directory.write(f"rounds/{k}/config.json", proposal.projected.to_dict())
    author = state.reference_parameters() if proposal.engineer == "base" else state.parameters
    directory.write(f"rounds/{k}/proposal.json", proposal.to_json() | {"parameters": fingerprint(author)})
    return proposal


def announce(display: Display, k: int, proposal: Proposal) -> None:
    """Shows what the engineer designed, and what became of it."""
    who = "the policy" if proposal.engineer == "checkpoint" else proposal.engineer
    projected = "(nothing)" if proposal.errors else to_answer(proposal.projected)
    display.say(f"round {k}: {who} designs\n{proposal.raw or projected}")
    if proposal.fallback:
        display.say(
            f"round {k}: no configuration in {proposal.attempts} attempts ({proposal.errors[-1]}); "
            f"round {k - 1}'s stays in force"
        )
    if proposal.gate and proposal.gate["verdict"] == "refused":
        display.say(
            f"round {k}: refused, as {proposal.gate['without_signal']:.0%} of the pilot's boards are answered all "
            f"validly or all invalidly (engineer.gate.bound = {proposal.gate['bound']:g}); "
            f"{proposal.gate['action']} by round {k - 1}'s"
        )


def build(
    config: Config, state: TrainState, recorder: Recorder, lake: LakeConfig, exclude: Instance, k: int
) -> Dataset:
    """Round k's instances, none in `exclude`; what the generator could realise of `lake` goes beside the proposal.

    Raises:
      ConfigError: if no solvable board is found.
    """
    recorder.display.stage(f"round {k}: boards", 1)
    with recorder.interruptible(state):
        data = build_boards(
            config, lake, make_key(config.seed, Purpose.BUILD, k), config.rounds.instances, exclude=exclude
        )
    realised = data.realised()
    outcome = {"realised": realised, "lowered": data.shortfalls()}
    outcome["distances"] = {"projected_realised": distance(lake, realised)}
    recorder.directory.amend(f"rounds/{k}/proposal.json", outcome)
    return data


def train(
    policy: Policy,
    state: TrainState,
    recorder: Recorder,
    boards: Dataset,
    optimizer: optax.GradientTransformation,
    k: int,
) -> None:
    """GRPO on round k's instances, every epoch in an order of its own, from the step and update where the run stands.

    Raises:
      ConfigError: if the processes cannot share `grpo.prompts` equally.
      RunError: after `grpo.max_skipped` updates in a row that were not finite.
    """
    config, progress, display = policy.config, state.progress, recorder.display
    settings = config.grpo
    data = BoardSet.of(policy, boards)
    count, alarmed = len(data.prompts), False
    total = count * config.rounds.epochs
    batches = progress.cursor // settings.prompts - (state.pending is not None)
    display.stage(f"round {k}: GRPO", total // settings.prompts, done=batches)
    recorder.meter.read()  # what design and boards compiled is not the first step's
    while state.pending is not None or progress.cursor < total:
        epoch, place = divmod(progress.cursor, count)
        order = np.asarray(jax.random.permutation(make_key(config.seed, Purpose.ORDER, k, epoch), count))
        metrics, seconds = grpo_step(policy, state, recorder, data, order[place:], optimizer)
        if metrics["mismatch_alarm"] and not alarmed:
            alarmed = True
            display.say(
                f"round {k}, step {progress.step + 1}: sampler and trainer differ by a factor of "
                f"{metrics['mismatch_factor']:.3f} a token, above grpo.mismatch_alarm = {settings.mismatch_alarm}"
            )
        display.done = progress.cursor // settings.prompts - 1  # one batch of prompts a step, or more
        status = f"reward {metrics['reward']:.2f} valid {metrics['valid']:.0%} optimal {metrics['optimal']:.0%}"
        status += f" {seconds['tokens_per_second']:.0f} tok/s"
        recorder.step_done(state, {"phase": "round"} | metrics, seconds, status, config.checkpoint.every_steps)


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
    contexts, taught, answers = zip(*sft.engineer_texts(policy, np.random.default_rng(0), examples), strict=True)
    check_fit(contexts, config.engineer.max_prompt_tokens, "engineer.max_prompt_tokens")
    check_fit(answers, config.engineer.max_answer_tokens, "engineer.max_answer_tokens")
    if config.warm_start.steps:
        check_fit(contexts, config.warm_start.max_context_tokens, "warm_start.max_context_tokens")
        check_fit(taught, config.warm_start.max_answer_tokens, "warm_start.max_answer_tokens")

    for kind in config.all_kinds:
        policy.prompts(_fullest(kind))


def _fullest(kind: Kind) -> Instance:
    """Boards with the longest prompts that a configuration can ask for, those with the most holes."""
    size, agents = kind.size, kind.num_agents
    if kind.family is not Family.RANDOM:
        return draw(jax.random.key(0), 0, BLOCK, Shape(kind, MAX_HOLE, size, agents))
    cells = np.arange(size * size)
    holes = cells >= size * size - int(MAX_HOLE * (size * size - 2 * agents))
    return Instance(
        size=np.array([size]),
        num_agents=np.array([agents]),
        holes=holes[None],
        starts=cells[None, :agents],
        goals=cells[None, agents : 2 * agents],
    )
