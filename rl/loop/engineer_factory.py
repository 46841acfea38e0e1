"""Makes the engineer that a run's settings ask for: a rule, a model that writes here, or a server's model.

It is made once for all rounds of a run, with what it gets of the run: text, and the room for a message.
"""

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
from flax import nnx

from engineer import RULES, Engineer, Hindsight, Renamed, RuleEngineer, Shuffled, Template, Training
from engineer.engineers import Rule
from engineer.engineers.language import Generate, Generation, LanguageEngineer, NoAnswer
from engineer.proposal import schema
from jaxlake.arguments import seed_key
from jaxlake.config import LakeConfig
from jaxlake.kinds import Kind
from rl import distributed
from rl.config import Config, EngineerSection, MeshSection, ModelSection, PlayerSection, RunError, extensions
from rl.config.choices import MODELS, SHUFFLED, LanguageKind
from rl.learn.context import read_context
from rl.model.policy import Policy, at_revision
from rl.model.sampler import SamplingParams
from rl.model.sharding import fingerprint
from rl.run.recorder import Recorder
from rl.students import PlayerStudent, Student, Writer

ATTEMPTS = 3
"""Answers without a configuration before the previous round's stays in force."""
API_LOG = "api.jsonl"
"""File of a run with a line for every time that its engineer asked a server: how, and the tokens it counted."""
BRANCHES = 16
"""Designs that hindsight tries in each round."""
SHORT = 480
"""Characters of a message that is shown: as many as 28 kinds in terse words may take, and no page of sentences."""


def check(config: Config) -> dict[str, str]:
    """Find out without a run whether its engineer could be made, see `make_engineer`; no server is asked.

    Returns:
      What the run depends on behind its settings, by key and value: digests of the files of functions of the user's
      own, of the engineer's template and of its model; of a model of the hub the revision.
    """
    settings, sources = config.engineer, extensions.check_extensions(config)
    read_context(settings)
    if (template := settings.template) and template not in Template.NAMES:
        sources[f"engineer.template = {template}"] = extensions.digest(Path(template).read_bytes())
    if settings.kind == LanguageKind.API:
        import rl.judge.server  # noqa: F401 - needs a package that not everyone has
    if settings.kind in MODELS:
        sources[_model_of(settings)] = load_model(settings.model, config.mesh)[2]
    return sources


def pin_model(settings: EngineerSection, sources: Mapping[str, str]) -> EngineerSection:
    """Return an engineer's settings with the revision of the hub's model that sources name, see `check`."""
    kind, _, revision = sources.get(_model_of(settings), "").partition(" ")
    if settings.model is None or kind != "revision":
        return settings
    return settings.model_copy(update={"model": at_revision(settings.model, revision)})


def _model_of(settings: EngineerSection) -> str:
    return f"engineer.model = {(settings.model or 'null').partition('@')[0]}"


def make_engineer(student: Student, recorder: Recorder) -> Engineer:
    """Return the engineer of all rounds of a run, which designs for the student as it is whenever it is asked.

    ConfigError if its template, function, model or server cannot be used, now, while there is no round to lose.
    """
    config, settings = student.config, student.config.engineer
    if settings.kind == "hindsight":
        assert isinstance(student, PlayerStudent)  # as Config makes sure
        scores = functools.partial(student.branch_scores, recorder.display)
        return Hindsight(scores, tuple(RULES.values()), BRANCHES)
    if settings.kind in RULES:
        return RuleEngineer(settings.kind, RULES[settings.kind])
    if extensions.is_own(settings.kind):
        return RuleEngineer(settings.kind, _own_rule(settings.kind, config.lake.kinds))
    generate, fits = _generation(student, recorder)
    rounds, epochs = config.rounds.count, config.student.epochs
    engineer = LanguageEngineer(
        name=settings.kind,
        generate=_recorded(recorder, generate),
        context=read_context(settings),
        training=lambda number: Training(number, rounds, epochs, student.training_summary),
        attempts=ATTEMPTS,
        masked=settings.kind != LanguageKind.API,
        fits=fits,
    )
    if settings.kind in SHUFFLED:
        return Shuffled(engineer)
    return Renamed(engineer) if settings.kind == LanguageKind.CHECKPOINT_RENAMED else engineer


def _own_rule(name: str, kinds: tuple[Kind, ...]) -> Rule:
    rule = extensions.find("engineer.kind", name)

    def checked(*arguments: Any) -> LakeConfig:
        config = rule(*arguments)
        if not isinstance(config, LakeConfig) or config.kinds != kinds:
            words = ", ".join(map(str, kinds))
            raise RunError(f"engineer.kind = {name}: must return a LakeConfig of the kinds {words}, not {config!r}")
        return config

    return checked


def _recorded(recorder: Recorder, generate: Generate) -> Generate:
    """Wrap a generation so that the last message is kept in the run's directory, and each is shown if it is short."""

    def recorded(message: str, grammar: str, key: jax.Array) -> Generation:
        k, words = recorder.progress.round, "; ".join(message.splitlines())
        recorder.directory.write(f"rounds/{k}/context.md", message + "\n")
        if len(words) <= SHORT:
            recorder.display.say(f"round {k}: reads {words}")
        return generate(message, grammar, key)

    return recorded


def _generation(student: Student, recorder: Recorder) -> tuple[Generate, Callable[[str], bool]]:
    """Return how the model behind the settings writes, and whether a message to it has room."""
    config, settings = student.config, student.config.engineer
    if settings.kind == LanguageKind.API:
        return _server_generation(settings, config.lake.kinds, recorder), lambda message: True
    if settings.kind in MODELS:
        policy, parameters, _ = load_model(settings.model, config.mesh)
        generate = policy.grammar_sampler(settings).generation(lambda: parameters, recorder.with_stop_check())
        fits = policy.tokenizer.fits
    else:
        assert isinstance(student, Writer)  # as Config makes sure
        generate, tokenizer = student.generation(recorder, settings.kind)
        fits = tokenizer.fits
    return generate, lambda message: fits(message, settings.max_prompt_tokens)


@functools.lru_cache(4)
def load_model(folder: str | None, mesh: MeshSection) -> tuple[Policy, nnx.State, str]:
    """Load the language model that is only an engineer, None for the shipped one; once for all runs of a process.

    Returns:
      The policy, its parameters, and a digest of both; of a model of the hub its revision.
    """
    model = ModelSection(path=folder, shape="tiny" if folder is None else None)
    policy, parameters = Policy.create(PlayerSection(model=model), mesh, seed_key(0))
    content = json.dumps([policy.identity, fingerprint(parameters)])
    known = policy.revision.get("revision")
    return policy, parameters, f"revision {known}" if known else extensions.digest(content.encode())


def _server_generation(settings: EngineerSection, kinds: tuple[Kind, ...], recorder: Recorder) -> Generate:
    """Return generation by a server's model, which has answered a first small question.

    Its answers follow a schema where the server has such. The first process of a job asks, and all get the answer.
    """
    from rl.judge.server import ChatClient, RequestFailed

    api = settings.api
    assert api.url and api.model  # as Config makes sure
    sampling = SamplingParams(settings.temperature, settings.top_k, settings.top_p)
    client = ChatClient(api.url, api.model, sampling, api.max_tokens, thinking=True, schema=schema(kinds))
    distributed.from_main(lambda: client.check(recorder.display.say))

    def ask(message: str, seed: int) -> dict[str, Any]:
        ((_, result),) = client.map([message], [seed], concurrency=1)
        return {"failed": str(result)} if isinstance(result, RequestFailed) else dataclasses.asdict(result)

    def generate(message: str, grammar: str, key: jax.Array) -> Generation:
        with recorder.save_on_interrupt():
            answer = distributed.from_main(lambda: ask(message, int(jax.random.key_data(key)[-1])))
        row = {"round": recorder.progress.round, "model": api.model, "max_tokens": api.max_tokens, "sent": client.sent}
        row |= {name: answer[name] for name in ("failed", "prompt_tokens", "completion_tokens") if name in answer}
        recorder.directory.append(API_LOG, row)
        if "failed" in answer:
            raise NoAnswer(answer["failed"])
        return Generation.of(answer["text"], api.max_tokens if answer["truncated"] else None)

    return generate
