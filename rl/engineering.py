"""Makes the engineer that a run's settings ask for, with what it gets of the run: text, a pilot, room for a message."""

import dataclasses
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np
from flax import nnx

from engineer import (
    RULES,
    Context,
    DataFloor,
    Engineer,
    Evidence,
    Gated,
    Generate,
    Generation,
    LanguageEngineer,
    NoAnswer,
    PastRound,
    RuleEngineer,
    Template,
    Training,
    modules,
)
from engineer.engineers import Rule, bandit
from jaxlake.config import LakeConfig
from jaxlake.kinds import Kind
from jaxlake.types import Instance
from rl import distributed
from rl.config import Config, ConfigError, RunError, extensions
from rl.config.choices import GateAction, LanguageKind
from rl.policy import Policy
from rl.run.boards import build_boards
from rl.run.directory import RunDirectory
from rl.run.recorder import Recorder
from rl.run.state import TrainState
from rl.sampler import SamplingParams

if TYPE_CHECKING:
    from rl.sampler.api import ChatClient


def make(policy: Policy, state: TrainState, recorder: Recorder, exclude: Instance, k: int) -> Engineer:
    """Return the engineer of round k, from 1 on.

    Args:
      exclude: boards that no pilot may show.

    Raises:
      ConfigError: if its template or its server cannot be used.
    """
    config = policy.config
    settings = config.engineer
    pilot = functools.partial(answer_pilot, policy, state, recorder, exclude)
    if settings.kind == "bandit":
        engineer = RuleEngineer("bandit", functools.partial(bandit, exploration=settings.exploration))
    elif settings.kind in RULES:
        engineer = RuleEngineer(settings.kind, RULES[settings.kind])
    elif extensions.is_own(settings.kind):
        engineer = RuleEngineer(settings.kind, _own_rule(settings.kind, config.lake.kinds))
    else:
        rounds = config.rounds
        engineer = LanguageEngineer(
            name=settings.kind,
            generate=_recorded(recorder.directory, k, _generate(policy, state, recorder)),
            context=read_context(config),
            training=lambda number: Training(number, rounds.count, rounds.epochs, details(config)),
            attempts=settings.attempts,
            proposals=settings.proposals,
            choice=settings.choice,
            pilot=pilot,
            masked=settings.kind != LanguageKind.API,
            shuffled=settings.kind == LanguageKind.CHECKPOINT_SHUFFLED,
            fits=lambda text: len(policy.tokenizer.chat(text, thinking=True)) <= settings.max_prompt_tokens,
        )
    if settings.gate.action is not GateAction.OFF:
        engineer = Gated(engineer, pilot, settings.gate.bound, mix=settings.gate.action is GateAction.MIX)
    return DataFloor(engineer, settings.floor) if settings.floor else engineer


def check(config: Config) -> None:
    """Find out before a run, not after its first round, whether its engineer could be made.

    Raises:
      ConfigError: see `make`.
    """
    read_context(config)
    if extensions.is_own(config.engineer.kind):
        extensions.find("engineer.kind", config.engineer.kind)
    if config.engineer.kind == LanguageKind.API:
        _client(config)


def _own_rule(name: str, kinds: tuple[Kind, ...]) -> Rule:
    rule = extensions.find("engineer.kind", name)

    def checked(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
        config = rule(evidence, history, key)
        if not isinstance(config, LakeConfig) or config.kinds != kinds:
            named = ", ".join(map(str, kinds))
            raise RunError(f"engineer.kind = {name}: must return a LakeConfig of the kinds {named}, not {config!r}")
        return config

    return checked


def read_context(config: Config) -> Context:
    """Return what the run's engineer reads, in which words.

    Raises:
      ConfigError: if `engineer.template` cannot be read or is none.
    """
    settings = config.engineer
    if not settings.template:
        return Context(modules(settings.context), Template.shipped())
    try:
        template = Template.parse(Path(settings.template).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it must be UTF-8 text"
        raise ConfigError(f"engineer.template = {settings.template}: cannot be read: {reason}") from None
    except ValueError as error:
        raise ConfigError(f"engineer.template = {settings.template}: {error}") from None
    return Context(modules(settings.context), template)


def details(config: Config) -> str:
    """Describe how the policy is trained, for the context's module TF; with it the paper's engineer designs worse."""
    grpo, reward = config.grpo, config.reward
    return (
        f"GRPO, {grpo.prompts} boards a step with {grpo.samples} answers each, temperature {grpo.temperature:g}, "
        f"learning rate {grpo.learning_rate:g} ({grpo.schedule}), advantage {grpo.advantage}, loss {grpo.aggregation}, "
        f"clip {grpo.clip_low:g} and {grpo.clip_high:g}, KL coefficient {grpo.kl_coefficient:g}. "
        f"Reward {reward.kind}: free length {reward.free_tokens}, limit {reward.limit_tokens} tokens. "
        f"{config.rounds.instances} boards a round."
    )


def answer_pilot(
    policy: Policy, state: TrainState, recorder: Recorder, exclude: Instance, config: LakeConfig, key: jax.Array
) -> dict[Kind, np.ndarray]:
    """Let the current policy answer fresh boards of each kind with data; the result is the same on all processes.

    Args:
      config: gives the kinds and their hole and wait ratios.

    Returns:
      For each kind the share of a board's answers that are valid, float ``[engineer.gate.boards]``, one or two more
      where the processes of a job could not share the boards otherwise.

    Raises:
      ConfigError: if no board of a kind is solvable.
      Interrupted: with everything saved as it was before.
    """
    settings, training, display = policy.config.engineer.gate, policy.config.grpo, recorder.display
    with_data = [i for i, share in enumerate(config.data) if share > 0]
    lake = LakeConfig(
        kinds=tuple(config.kinds[i] for i in with_data),
        data=(1 / len(with_data),) * len(with_data),
        hole=tuple(config.hole[i] for i in with_data),
        wait=tuple(config.wait[i] for i in with_data),
    )
    count = -(-settings.boards * len(with_data) // jax.process_count()) * jax.process_count()
    with recorder.interruptible(state):
        boards = build_boards(policy.config, lake, jax.random.fold_in(key, 0), count, exclude=exclude)
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


def _recorded(directory: RunDirectory, k: int, generate: Generate) -> Generate:
    """Wrap a generation so that each message is kept in the run's directory; of several attempts the last one's."""

    def recorded(message: str, grammar: str, key: jax.Array, count: int) -> list[Generation]:
        directory.write(f"rounds/{k}/context.md", message + "\n")
        return generate(message, grammar, key, count)

    return recorded


def _generate(policy: Policy, state: TrainState, recorder: Recorder) -> Generate:
    """Return how the model behind the settings writes."""
    if policy.config.engineer.kind == LanguageKind.API:
        return _asking(policy.config, state, recorder)
    base = policy.config.engineer.kind == LanguageKind.BASE
    return _decoding(policy, state, recorder, state.reference_parameters() if base else state.parameters)


def _decoding(policy: Policy, state: TrainState, recorder: Recorder, parameters: nnx.State) -> Generate:
    """Return generation with these parameters, held to the grammar; their copy lives as long as the engineer."""
    sampler = policy.grammar_sampler()
    parameters = policy.rollout_parameters(parameters)

    progress = recorder.stoppable(state, lambda done: None)

    def generate(message: str, grammar: str, key: jax.Array, count: int) -> list[Generation]:
        try:
            return [Generation(*texts) for texts in sampler.write(parameters, message, grammar, key, count, progress)]
        except ConfigError as error:  # the message is too long even with everything left out that can be
            raise NoAnswer(str(error)) from None

    return generate


def _client(config: Config) -> "ChatClient":
    from rl.sampler.api import ChatClient  # needs a package that not everyone has

    settings = config.engineer.api
    assert settings.url and settings.model  # as Config makes sure
    key = os.environ.get(settings.key_env)
    return ChatClient(settings.url, settings.model, key, key_name=settings.key_env, timeout=settings.timeout)


def _asking(config: Config, state: TrainState, recorder: Recorder) -> Generate:
    """By a server, without a grammar: the first process of a job asks, and all learn what it said."""
    from rl.sampler.api import Request, RequestFailed

    settings, client = config.engineer, _client(config)

    def generate(message: str, grammar: str, key: jax.Array, count: int) -> list[Generation]:
        seed = int(jax.random.key_data(key)[-1]) % 2**31
        request = Request(
            message=message,
            temperature=settings.temperature,
            max_tokens=settings.max_thinking_tokens + settings.max_answer_tokens,
            top_p=settings.top_p,
            top_k=settings.top_k,
        )
        seeds = [(seed + i) % 2**31 if settings.temperature else None for i in range(count)]

        def ask() -> dict[str, list[str]]:
            texts, failed = {}, []
            requests = [dataclasses.replace(request, seed=seed) for seed in seeds]
            for index, result in client.map(requests, concurrency=count):
                if isinstance(result, RequestFailed):
                    failed.append(str(result))
                else:
                    texts[index] = result.text
            return {"texts": [texts[index] for index in sorted(texts)], "failed": failed}

        with recorder.interruptible(state):
            answers = distributed.from_main(ask)
        if not answers["texts"]:
            raise NoAnswer(answers["failed"][0])
        for failure in answers["failed"]:
            recorder.display.say(f"round {state.progress.round}: a proposal is missing: {failure}")
        return [_parted(text) for text in answers["texts"]]

    return generate


def _parted(text: str) -> Generation:
    """Part a response whose thinking, where it shows any, is closed by a tag."""
    thinking, closed, answer = text.rpartition("</think>")
    return Generation(text, thinking.strip().removeprefix("<think>").strip(), answer if closed else text)
