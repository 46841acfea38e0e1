"""Makes the engineer that a run's settings ask for, with what it gets of the run: text, a pilot, room for a message."""

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
from flax import nnx

from engineer import (
    RULES,
    Engineer,
    Evidence,
    Gated,
    Generate,
    Generation,
    Hindsight,
    LanguageEngineer,
    NoAnswer,
    PastRound,
    RuleEngineer,
    Training,
)
from engineer.engineers import Rule
from engineer.proposal import schema
from jaxlake.arguments import seed_key
from jaxlake.config import LakeConfig
from jaxlake.kinds import Kind
from rl import distributed
from rl.config import Config, EngineerSection, MeshSection, ModelSection, RunError, TextSection, extensions
from rl.config.choices import MODELS, SHUFFLED, BranchKind, GateAction, LanguageKind
from rl.context import read_context
from rl.policy import SHIPPED_MODEL, Policy
from rl.qwen3.tokenizer import Tokenizer
from rl.run.directory import RunDirectory
from rl.run.recorder import Recorder
from rl.students import Student

if TYPE_CHECKING:
    from rl.sampler.api import ChatClient, Request

API_LOG = "api.jsonl"
"""File of a run with a line for every time that its engineer asked a server: how, how often, the tokens it counted."""
COST = ("requests", "prompt_tokens", "completion_tokens")
"""What a line of it counts."""


def make(student: Student, recorder: Recorder, k: int) -> Engineer:
    """Return the engineer of round k, from 1 on.

    Raises:
      ConfigError: if its template, its model or its server cannot be used.
    """
    config = student.config
    settings = config.engineer
    pilot = functools.partial(student.pilot, recorder)
    if settings.kind in RULES:
        engineer = RuleEngineer(settings.kind, RULES[settings.kind])
    elif settings.kind == BranchKind.HINDSIGHT:
        engineer = Hindsight(
            functools.partial(student.branch_scores, recorder), tuple(RULES.values()), settings.branches
        )
    elif extensions.is_own(settings.kind):
        engineer = RuleEngineer(settings.kind, _own_rule(settings.kind, config.lake.kinds))
    else:
        generate, tokenizer = _generate(student, recorder)
        engineer = dataclasses.replace(
            language_engineer(student, settings, _recorded(recorder.directory, k, generate), tokenizer),
            proposals=settings.proposals,
            pilot=pilot,
        )
    if settings.gate.action is not GateAction.OFF:
        engineer = Gated(engineer, pilot, settings.gate.bound, mix=settings.gate.action is GateAction.MIX)
    return engineer


def language_engineer(
    student: Student, settings: EngineerSection, generate: Generate, tokenizer: Tokenizer | None
) -> LanguageEngineer:
    """Return a language model that designs for a student as the settings say, and takes its first proposal.

    Args:
      generate: how the model writes.
      tokenizer: by which the room for its message is counted; None where a server has its own.

    Raises:
      ConfigError: if the template cannot be used.
    """
    return LanguageEngineer(
        name=settings.kind,
        generate=generate,
        context=read_context(student.config),
        training=functools.partial(training, student),
        attempts=settings.attempts,
        masked=settings.kind != LanguageKind.API,
        shuffled=settings.kind in SHUFFLED,
        fits=lambda text: tokenizer is None or tokenizer.fits(text, settings.max_prompt_tokens),
    )


def training(student: Student, number: int) -> Training:
    """Return the bookkeeping of a round as an engineer reads it."""
    rounds = student.config.rounds
    return Training(number, rounds.count, rounds.epochs, student.details())


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
    if config.engineer.kind in MODELS:
        load_model(config.engineer, config.mesh, config.text.early_stop)


def check_server(config: Config, say: Callable[[str], None]) -> None:
    """Ask a first small question of the engineer's server, where it has one, before there is a round to lose.

    Args:
      say: gets a line on what the server refuses.

    Raises:
      ConfigError: if it gets no answer; `engineer.api` can be mended then, and the run goes on.
    """
    if config.engineer.kind == LanguageKind.API:
        client = _client(config)
        distributed.from_main(lambda: client.check(_request(config, ""), say))


def _own_rule(name: str, kinds: tuple[Kind, ...]) -> Rule:
    rule = extensions.find("engineer.kind", name)

    def checked(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
        config = rule(evidence, history, key)
        if not isinstance(config, LakeConfig) or config.kinds != kinds:
            named = ", ".join(map(str, kinds))
            raise RunError(f"engineer.kind = {name}: must return a LakeConfig of the kinds {named}, not {config!r}")
        return config

    return checked


def _recorded(directory: RunDirectory, k: int, generate: Generate) -> Generate:
    """Wrap a generation so that each message is kept in the run's directory; of several attempts the last one's."""

    def recorded(message: str, grammar: str, key: jax.Array, count: int) -> list[Generation]:
        directory.write(f"rounds/{k}/context.md", message + "\n")
        return generate(message, grammar, key, count)

    return recorded


def _generate(student: Student, recorder: Recorder) -> tuple[Generate, Tokenizer | None]:
    """Return how the model behind the settings writes, and what counts the tokens of a message to it."""
    config, kind = student.config, student.config.engineer.kind
    if kind == LanguageKind.API:
        return _asking(student, recorder), None
    if kind in MODELS:
        policy, parameters = load_model(config.engineer, config.mesh, config.text.early_stop)
        return policy.generation(parameters, recorder.stoppable(student.state, lambda done: None)), policy.tokenizer
    return student.generation(recorder, base=kind == LanguageKind.BASE)


@functools.lru_cache(4)
def load_model(settings: EngineerSection, mesh: MeshSection, early_stop: str | None) -> tuple[Policy, nnx.State]:
    """Load the language model that is only an engineer; once for all rounds and runs of a process.

    Args:
      early_stop: what it says where its thought is closed at its cap, as `text.early_stop`.

    Raises:
      ConfigError: if `engineer.model` holds none, or does not fit the devices.
    """
    folder = settings.model or str(SHIPPED_MODEL)
    text = TextSection(early_stop=early_stop)
    config = Config(model=ModelSection(path=folder, shape=None), mesh=mesh, engineer=settings, text=text)
    return Policy.create(config, seed_key(0))


def _client(config: Config) -> "ChatClient":
    from rl.sampler.api import ChatClient  # needs a package that not everyone has

    settings = config.engineer.api
    assert settings.url and settings.model  # as Config makes sure
    key = os.environ.get(settings.key_env)
    return ChatClient(settings.url, settings.model, key, key_name=settings.key_env, timeout=settings.timeout)


def _asking(student: Student, recorder: Recorder) -> Generate:
    """By a server, a schema in place of the grammar: the first process of a job asks, and all learn what it said."""
    from rl.sampler.api import RequestFailed

    config, client, state = student.config, _client(student.config), student.state
    limit = config.engineer.api.max_tokens

    def generate(message: str, grammar: str, key: jax.Array, count: int) -> list[Generation]:
        seed = int(jax.random.key_data(key)[-1])
        request = _request(config, message)

        def ask() -> dict[str, Any]:
            responses, failed, prompt_tokens, completion_tokens = {}, [], 0, 0
            requests = [dataclasses.replace(request, seed=seed + i) for i in range(count)]
            for index, result in client.map(requests, concurrency=count):
                if isinstance(result, RequestFailed):
                    failed.append(str(result))
                else:
                    responses[index] = (result.response, result.truncated)
                    prompt_tokens += result.prompt_tokens or 0
                    completion_tokens += result.tokens or 0
            cost = dict(zip(COST, (count, prompt_tokens, completion_tokens), strict=True))
            asked = {"model": client.model, "max_tokens": limit, "sent": client.sent(request)}
            asked["refused"] = sorted(client.refused)
            return {"responses": [responses[i] for i in sorted(responses)], "failed": failed, "cost": cost, "as": asked}

        with recorder.interruptible(state):
            answers = distributed.from_main(ask)
        where = f"round {state.progress.round}"
        recorder.directory.append(API_LOG, {"round": state.progress.round, **answers["cost"], **answers["as"]})
        refused = ", ".join(answers["as"]["refused"])
        told = f"; it refuses {refused}" if refused else ""
        recorder.display.say(f"{where}: {describe_cost(answers['cost'])}{told}")
        if not answers["responses"]:
            raise NoAnswer(answers["failed"][0])
        for failure in answers["failed"]:
            recorder.display.say(f"{where}: a proposal is missing: {failure}")
        if cut := sum(truncated for _, truncated in answers["responses"]):
            recorder.display.say(
                f"{where}: {cut} of {count} answers were cut off at engineer.api.max_tokens = {limit:,}"
            )
        return [Generation.of(text, limit if truncated else None) for text, truncated in answers["responses"]]

    return generate


def _request(config: Config, message: str) -> "Request":
    from rl.sampler.api import Request

    return Request.to_engineer(config.engineer, message, schema=schema(config.lake.kinds))


def describe_cost(cost: Mapping[str, int]) -> str:
    """Say in words what a server was asked and counted."""
    return (
        f"{cost['requests']:,} requests to the engineer's server, {cost['prompt_tokens']:,} tokens read and "
        f"{cost['completion_tokens']:,} written"
    )
