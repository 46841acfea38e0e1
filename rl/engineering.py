"""The engineer that a run's settings ask for, and what it gets of the run: text, a pilot, the room for a message."""

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
    Covered,
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
from engineer.engineers import Rule
from jaxlake.config import LakeConfig
from rl import distributed
from rl.config import Config, ConfigError, RunError, extensions
from rl.config.choices import GateAction, LanguageKind
from rl.run.boards import build_boards
from rl.run.run import Run
from rl.sampler import Sampling

if TYPE_CHECKING:
    from rl.sampler.api import ChatClient


def make(run: Run, k: int) -> Engineer:
    """The engineer of round k, from 1 on.

    Raises:
      ConfigError: if its template or its server cannot be used.
    """
    settings = run.config.engineer
    pilot = functools.partial(answer_pilot, run)
    if settings.kind == "bandit":
        engineer = RuleEngineer("bandit", functools.partial(RULES["bandit"], exploration=settings.exploration))
    elif settings.kind in RULES:
        engineer = RuleEngineer(settings.kind, RULES[settings.kind])
    elif extensions.is_own(settings.kind):
        engineer = RuleEngineer(settings.kind, _own_rule(settings.kind, run.config.lake.sizes))
    else:
        rounds = run.config.rounds
        engineer = LanguageEngineer(
            name=settings.kind,
            generate=_recorded(run, k, _generate(run)),
            context=read_context(run.config),
            training=lambda number: Training(number, rounds.count, rounds.epochs, details(run.config)),
            attempts=settings.attempts,
            proposals=settings.proposals,
            choice=settings.choice,
            pilot=pilot,
            masked=settings.kind != LanguageKind.API,
            shuffled=settings.kind == LanguageKind.CHECKPOINT_SHUFFLED,
            fits=lambda text: len(run.policy.tokenizer.chat(text, thinking=True)) <= settings.max_prompt_tokens,
        )
    if settings.gate.action is not GateAction.OFF:
        engineer = Gated(engineer, pilot, settings.gate.bound, mix=settings.gate.action is GateAction.MIX)
    return Covered(engineer, settings.floor) if settings.floor else engineer


def check(config: Config) -> None:
    """Finds out before a run, not after its first round, whether its engineer could be made.

    Raises:
      ConfigError: see `make`.
    """
    read_context(config)
    if extensions.is_own(config.engineer.kind):
        extensions.find("engineer.kind", config.engineer.kind)
    if config.engineer.kind == LanguageKind.API:
        _client(config)


def _own_rule(name: str, sizes: tuple[int, ...]) -> Rule:
    rule = extensions.find("engineer.kind", name)

    def checked(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
        config = rule(evidence, history, key)
        if not isinstance(config, LakeConfig) or config.sizes != sizes:
            raise RunError(f"engineer.kind = {name}: must return a LakeConfig of the sizes {sizes}, not {config!r}")
        return config

    return checked


def read_context(config: Config) -> Context:
    """What the run's engineer reads, in which words.

    Raises:
      ConfigError: if `engineer.template` cannot be read or is none.
    """
    settings = config.engineer
    try:
        return Context(modules(settings.context), Template.read(settings.template and Path(settings.template)))
    except ValueError as error:
        raise ConfigError(f"engineer.template = {settings.template}: {error}") from None


def details(config: Config) -> str:
    """How the policy is trained, for the context's module TF; of which the paper's engineer designs worse."""
    grpo, reward = config.grpo, config.reward
    return (
        f"GRPO, {grpo.prompts} boards a step with {grpo.samples} answers each, temperature {grpo.temperature:g}, "
        f"learning rate {grpo.learning_rate:g} ({grpo.schedule}), advantage {grpo.advantage}, loss {grpo.aggregation}, "
        f"clip {grpo.clip_low:g} and {grpo.clip_high:g}, KL coefficient {grpo.kl_coefficient:g}. "
        f"Reward {reward.kind}: free length {reward.free_tokens}, limit {reward.limit_tokens} tokens. "
        f"{config.rounds.instances} boards a round."
    )


def answer_pilot(run: Run, config: LakeConfig, key: jax.Array) -> dict[int, np.ndarray]:
    """Fresh boards of each size with data, answered by the current policy; the same on all processes.

    Args:
      config: gives the sizes and their hole and wait ratios.

    Returns:
      For each size the share of a board's answers that are valid, float ``[engineer.gate.boards]``, one or two more
      where the processes of a job could not share the boards otherwise.

    Raises:
      ConfigError: if no board of a size is solvable.
      Interrupted: with everything saved as it was before.
    """
    settings, training = run.config.engineer.gate, run.config.grpo
    with_data = [i for i, share in enumerate(config.data) if share > 0]
    lake = LakeConfig(
        sizes=tuple(config.sizes[i] for i in with_data),
        data=(1 / len(with_data),) * len(with_data),
        hole=tuple(config.hole[i] for i in with_data),
        wait=tuple(config.wait[i] for i in with_data),
    )
    count = -(-settings.boards * len(with_data) // jax.process_count()) * jax.process_count()
    with run.interruptible():
        boards = build_boards(run.config, lake, jax.random.fold_in(key, 0), count, exclude=run.validation.instances)
    part = distributed.share(count, "engineer.gate.boards")
    prompts = run.policy.prompts(boards.instances).take(part)
    run.display.stage(f"round {run.progress.round}: pilot", len(prompts) * settings.samples)
    rollout = run.answer(
        prompts,
        jax.random.fold_in(key, 1),
        samples=settings.samples,
        sampling=Sampling(training.temperature),
        progress=lambda done: run.display.advance(steps=done - run.display.done),
    )
    verdict = run.judge(prompts, rollout, np.asarray(boards.solutions.cost)[part])
    shares = distributed.gather(verdict.valid).reshape(-1, settings.samples).mean(axis=-1)
    sizes = np.asarray(boards.instances.size)
    return {size: shares[sizes == size] for size in lake.sizes}


def _recorded(run: Run, k: int, generate: Generate) -> Generate:
    """The same, with each message kept in the run's directory; of several attempts the last one's."""

    def recorded(message: str, grammar: str, key: jax.Array, count: int) -> list[Generation]:
        run.directory.write(f"rounds/{k}/context.md", message + "\n")
        return generate(message, grammar, key, count)

    return recorded


def _generate(run: Run) -> Generate:
    """How the model behind the settings writes."""
    if run.config.engineer.kind == LanguageKind.API:
        return _asking(run)
    base = run.config.engineer.kind == LanguageKind.BASE
    return _decoding(run, run.reference_parameters() if base else run.parameters)


def _decoding(run: Run, parameters: nnx.State) -> Generate:
    """With these parameters, held to the grammar; a copy for the sampler lives as long as the engineer does."""
    sampler = run.policy.grammar_sampler()
    parameters = run.policy.rollout_parameters(parameters)

    def generate(message: str, grammar: str, key: jax.Array, count: int) -> list[Generation]:
        def check_stop(done: int) -> None:
            run.check_stop()

        try:
            return [Generation(*texts) for texts in sampler.write(parameters, message, grammar, key, count, check_stop)]
        except ConfigError as error:  # the message is too long even with everything left out that can be
            raise NoAnswer(str(error)) from None

    return generate


def _client(config: Config) -> "ChatClient":
    from rl.sampler.api import ChatClient  # needs a package that not everyone has

    settings = config.engineer.api
    key = os.environ.get(settings.key_env)
    return ChatClient(settings.url, settings.model, key, key_name=settings.key_env, timeout=settings.timeout)


def _asking(run: Run) -> Generate:
    """By a server, without a grammar: the first process of a job asks, and all learn what it said."""
    from rl.sampler.api import Request, RequestFailed

    settings, client = run.config.engineer, _client(run.config)

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
            said, failed = {}, []
            requests = [dataclasses.replace(request, seed=seed) for seed in seeds]
            for index, result in client.map(requests, concurrency=count):
                if isinstance(result, RequestFailed):
                    failed.append(str(result))
                else:
                    said[index] = result.text
            return {"said": [said[index] for index in sorted(said)], "failed": failed}

        with run.interruptible():
            answers = distributed.from_main(ask)
        if not answers["said"]:
            raise NoAnswer(answers["failed"][0])
        for failure in answers["failed"]:
            run.display.say(f"round {run.progress.round}: a proposal is missing: {failure}")
        return [_parted(text) for text in answers["said"]]

    return generate


def _parted(text: str) -> Generation:
    """A response whose thinking, where it shows any, is closed by a tag."""
    thinking, closed, answer = text.rpartition("</think>")
    return Generation(text, thinking.strip().removeprefix("<think>").strip(), answer if closed else text)
