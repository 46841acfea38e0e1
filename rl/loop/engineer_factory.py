"""Makes the engineer that a run's settings ask for: a rule, a model that writes here, or a server's model.

It is made once for all rounds of a run, with what it gets of the run: text, room for a message.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
from flax import nnx

from engineer import (
    RULES,
    Context,
    Engineer,
    Evidence,
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
from rl.config import (
    Config,
    EngineerSection,
    MeshSection,
    ModelSection,
    RunError,
    TextSection,
    extensions,
)
from rl.config.choices import MODELS, SHUFFLED, BranchKind, LanguageKind
from rl.config.training import RoundsSection
from rl.learn.context import read_context
from rl.model.policy import SHIPPED_MODEL, Policy
from rl.model.tokenizer import Tokenizer
from rl.run.recorder import Recorder
from rl.students import BranchingStudent, Student, WritingStudent

if TYPE_CHECKING:
    from rl.judge.server import ChatClient, Request

API_TIMEOUT = 600
"""Seconds for one answer of a server."""
API_LOG = "api.jsonl"
"""File of a run with a line for every time that its engineer asked a server: how, and the tokens it counted."""


SHORT = 480
"""Characters of a message that is shown: as many as 28 kinds in terse words may take, and no page of sentences."""


def check(config: Config) -> None:
    """Find out without a run whether its engineer could be made; no server is asked.

    Raises:
      ConfigError: see `make_engineer`.
    """
    read_context(config.engineer)
    if extensions.is_own(config.engineer.kind):
        extensions.find("engineer.kind", config.engineer.kind)
    if config.engineer.kind == LanguageKind.API:
        make_client(config.engineer)
    if config.engineer.kind in MODELS:
        load_model(config.engineer.model, config.mesh, config.text.early_stop)


def make_engineer(student: Student, recorder: Recorder) -> Engineer:
    """Return the engineer of all rounds of a run, which designs for the student as it is whenever it is asked.

    Where it is a server's, the server gets a first small question now, while there is no round to lose.

    Raises:
      ConfigError: if its template, its function, its model or its server cannot be used.
    """
    config = student.config
    settings, context = config.engineer, read_context(config.engineer)
    training = bookkeeping(config.rounds, student.training_summary)
    engineer: Engineer
    if settings.kind == BranchKind.HINDSIGHT:
        assert isinstance(student, BranchingStudent)  # as Config makes sure
        engineer = Hindsight(
            functools.partial(student.branch_scores, recorder.display), tuple(RULES.values()), settings.branches
        )
    elif settings.kind in RULES or extensions.is_own(settings.kind):
        engineer = rule_engineer(settings, config.lake.kinds)
    else:
        if settings.kind == LanguageKind.API:
            written = server_engineer(settings, context, training, config.lake.kinds, recorder)
        else:
            generate, tokenizer = _generation(student, recorder)
            written = text_engineer(settings, context, training, generate, tokenizer)
        engineer = dataclasses.replace(written, generate=_recorded(recorder, written.generate))
    return engineer


def bookkeeping(rounds: RoundsSection, summary: str = "") -> Callable[[int], Training]:
    """Return a function from the number of a designed round to the stage of the run.

    Args:
      summary: the student's training in words.
    """
    return lambda number: Training(number, rounds.count, rounds.epochs, summary)


def rule_engineer(settings: EngineerSection, kinds: tuple[Kind, ...]) -> RuleEngineer:
    """Return a rule as engineer: one of ours, or a function of the user's own.

    Args:
      kinds: kinds that a design has rows for.

    Raises:
      ConfigError: if there is no such function.
    """
    rule = RULES[settings.kind] if settings.kind in RULES else _own_rule(settings.kind, kinds)
    return RuleEngineer(settings.kind, rule)


def text_engineer(
    settings: EngineerSection,
    context: Context,
    training: Callable[[int], Training],
    generate: Generate,
    tokenizer: Tokenizer,
) -> LanguageEngineer:
    """Return a language model on the devices here as engineer.

    Args:
      context: writer of its message.
      training: function from `bookkeeping`.
      generate: generation with the model, under the grammar.
      tokenizer: the model's, by which the room for its message is counted.
    """
    return LanguageEngineer(
        name=settings.kind,
        generate=generate,
        context=context,
        training=training,
        attempts=settings.attempts,
        shuffled=settings.kind in SHUFFLED,
        renamed=settings.kind == LanguageKind.CHECKPOINT_RENAMED,
        fits=lambda text: tokenizer.fits(text, settings.max_prompt_tokens),
    )


def server_engineer(
    settings: EngineerSection,
    context: Context,
    training: Callable[[int], Training],
    kinds: tuple[Kind, ...],
    recorder: Recorder,
) -> LanguageEngineer:
    """Return a server's model as engineer, after a first small question to the server.

    Its answers follow a schema where the server has such, and are read tolerantly. The first process of a job asks, and
    all get the answer. How the server was asked, and the tokens it counted, go to `API_LOG` of the run.

    Args:
      kinds: kinds that a design has rows for.

    Raises:
      ConfigError: if the server gives no answer; `engineer.api` can then be corrected, and the run resumed.
    """
    from rl.judge.server import Request

    client, limit = make_client(settings), settings.api.max_tokens
    make_request = functools.partial(Request.to_engineer, settings, schema=schema(kinds))
    distributed.from_main(lambda: client.check(make_request("")))

    def generate(message: str, grammar: str, key: jax.Array) -> Generation:
        request = dataclasses.replace(make_request(message), seed=int(jax.random.key_data(key)[-1]))
        with recorder.save_on_interrupt():
            answer, log = distributed.from_main(lambda: _ask(client, request))
        recorder.directory.append(API_LOG, {"round": recorder.progress.round, **log})
        if answer is None:
            raise NoAnswer(log["failed"])
        text, truncated = answer
        return Generation.of(text, limit if truncated else None)

    return LanguageEngineer(
        name=settings.kind,
        generate=generate,
        context=context,
        training=training,
        attempts=settings.attempts,
        masked=False,
    )


def _own_rule(name: str, kinds: tuple[Kind, ...]) -> Rule:
    rule = extensions.find("engineer.kind", name)

    def checked(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
        config = rule(evidence, history, key)
        if not isinstance(config, LakeConfig) or config.kinds != kinds:
            named = ", ".join(map(str, kinds))
            raise RunError(f"engineer.kind = {name}: must return a LakeConfig of the kinds {named}, not {config!r}")
        return config

    return checked


def _recorded(recorder: Recorder, generate: Generate) -> Generate:
    """Wrap a generation so that each message is kept in the run's directory, and shown if it is short.

    Of several attempts the last one's is kept.
    """

    def recorded(message: str, grammar: str, key: jax.Array) -> Generation:
        k, words = recorder.progress.round, "; ".join(message.splitlines())
        recorder.directory.write(f"rounds/{k}/context.md", message + "\n")
        if len(words) <= SHORT:
            recorder.display.say(f"round {k}: reads {words}")
        return generate(message, grammar, key)

    return recorded


def _generation(student: Student, recorder: Recorder) -> tuple[Generate, Tokenizer]:
    """Return how the model behind the settings writes, and what counts the tokens of a message to it."""
    config, settings = student.config, student.config.engineer
    if settings.kind in MODELS:
        policy, parameters = load_model(settings.model, config.mesh, config.text.early_stop)
        sampler = policy.grammar_sampler(settings)
        return sampler.generation(lambda: parameters, recorder.with_stop_check()), policy.tokenizer
    assert isinstance(student, WritingStudent)  # as Config makes sure
    return student.generation(recorder, settings.kind)


@functools.lru_cache(4)
def load_model(folder: str | None, mesh: MeshSection, early_stop: str | None) -> tuple[Policy, nnx.State]:
    """Load the language model that is only an engineer; once for all runs of a process.

    Args:
      folder: checkpoint as in `engineer.model`; None for the shipped one.
      early_stop: words before the end of a thought at its cap, as `text.early_stop`.

    Raises:
      ConfigError: if `engineer.model` holds none, or does not fit the devices.
    """
    model = ModelSection(path=folder or str(SHIPPED_MODEL), shape=None)
    return Policy.create(Config(model=model, mesh=mesh, text=TextSection(early_stop=early_stop)), seed_key(0))


def make_client(settings: EngineerSection) -> "ChatClient":
    """Return a client of the server that the settings name."""
    from rl.judge.server import ChatClient  # needs a package that not everyone has

    api = settings.api
    assert api.url and api.model  # as Config makes sure
    key = os.environ.get(api.key_env)
    return ChatClient(api.url, api.model, key, key_name=api.key_env, timeout=API_TIMEOUT, omit=api.omit)


def _ask(client: "ChatClient", request: "Request") -> tuple[tuple[str, bool] | None, dict[str, Any]]:
    """Send a request; return the response with whether it was cut off, None without one, and a line of `API_LOG`."""
    from rl.judge.server import RequestFailed

    ((_, result),) = client.map([request], concurrency=1)
    log = {"model": client.model, "max_tokens": request.max_tokens, "sent": client.sent(request)}
    if isinstance(result, RequestFailed):
        return None, log | {"failed": str(result)}
    log |= {"prompt_tokens": result.prompt_tokens, "completion_tokens": result.tokens}
    return (result.response, result.truncated), log
